//! Questions over a knowledge base.

use std::fs;

use serde_json::{Value, json};
use sporran_pipeline::workflows::answer::AskOptions;
use sporran_server::ServerOptions;

use crate::common::{Served, documents, reader};

/// The bundled model over the bundled knowledge base, with the lines `data` in `[data]`, after documents.
fn served(data: &str, with_documents: bool) -> Served {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Served::start(|folder| {
        let kb = root.join("examples/minikilt/kb").display().to_string();
        let model = root.join("models/minikilt-reasoner").display().to_string();
        let text = format!(
            "workflow = \"kbqa\"\nname = \"kb\"\nkb = \"{kb}/triples.tsv.gz\"\nentities = \"{kb}/entities.tsv\"\n\
             relations = \"{kb}/relations.tsv\"\n[data]\niid = \"absent.json\"\n{data}\n\
             [reasoner]\nkind = \"transfer-net\"\nmodel = \"{model}\"\n"
        );
        let path = folder.join("kb.toml");
        fs::write(&path, text).unwrap();
        let kb = AskOptions::new(vec![path], folder.join("cache"));
        let mounts = if with_documents { vec![documents(folder), kb] } else { vec![kb] };
        ServerOptions { mounts, ..ServerOptions::new() }
    })
}

/// The first question of the bundled test.
fn question() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/minikilt/korc/small_iid_test.json");
    let questions: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let first = questions
        .as_array()
        .map_or_else(|| questions.as_object().unwrap().values().next(), |all| all.first());
    first.unwrap().clone()
}

#[test]
fn a_question_about_a_document_has_entities_with_their_triples() {
    let served = served("", true);
    let mounts = served.get("/v1/mounts").json();
    let mount = &mounts["mounts"][1];
    assert_eq!((&mount["kind"], &mount["abilities"]), (&json!("questions"), &json!(["reason"])));
    let asked = question();
    let document = asked["context"].as_str().or(asked["text"].as_str()).unwrap();
    let ask = |more: Value| {
        let mut request = json!({ "question": asked["question"], "mount": "kb" });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        served.post("/v1/answer", &request)
    };
    let found = ask(json!({ "document": document, "trace": true })).json();
    assert_eq!((&found["mount"], &found["is_generated"]), (&json!("kb"), &json!(false)), "{found}");
    let entities = found["entities"].as_array().unwrap();
    assert!(!entities.is_empty(), "{found}");
    let labels: Vec<&str> = entities.iter().map(|entity| entity["answer"].as_str().unwrap()).collect();
    assert_eq!(found["answer"], labels.join(", "));
    for entity in entities {
        assert!(entity["wikidata_id"].is_string() && entity["confidence"].is_number(), "{entity}");
        let triples = entity["triples"].as_array().unwrap();
        assert!(triples.iter().all(|triple| triple["labels"].as_array().unwrap().len() == 3), "{entity}");
        let bridge = &entity["bridge"];
        let characters: Vec<char> = document.chars().collect();
        let [start, end] = ["start", "end"].map(|key| bridge[key].as_u64().unwrap() as usize);
        assert_eq!(characters[start..end].iter().collect::<String>(), bridge["text"].as_str().unwrap());
    }
    assert!(entities.iter().any(|entity| !entity["triples"].as_array().unwrap().is_empty()), "{found}");
    let steps = found["trace"]["steps"].as_array().unwrap();
    assert_eq!(
        (&steps[0]["name"], &steps[steps.len() - 1]["name"]),
        (&json!("relation 1"), &json!("answer"))
    );
    assert!(
        steps.iter().all(|step| step["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0)),
        "{found}"
    );
    let one = ask(json!({ "document": document, "top": 1 })).json();
    assert_eq!(one["entities"].as_array().unwrap().len(), 1);
    assert!(one["trace"].is_null());
    let none = ask(json!({ "document": "Nothing here." })).json();
    assert_eq!((&none["answer"], &none["entities"]), (&"".into(), &json!([])));
    for (more, expected) in [
        (json!({}), "`document`: is missing; `kb` answers questions about a document"),
        (json!({ "document": document, "top": 0 }), "`top`: expected 1 to 1000, found 0"),
        (json!({ "document": document, "question": " " }), "`question`: expected a question"),
        (json!({ "document": 3 }), "`document`: expected a string, found the number 3"),
        (
            json!({ "document": document, "mount": "pages.jsonl" }),
            "`document`: expected none, as `pages.jsonl`",
        ),
        (
            json!({ "mount": "x" }),
            "there is no index, generator or knowledge base for questions `x`; there are `pages.jsonl`, `kb`",
        ),
    ] {
        let found = ask(more);
        let error = found.json()["error"].as_str().unwrap_or_default().to_owned();
        assert!(found.status >= 400 && error.contains(expected), "{error}");
    }
    // Documents come first.
    assert_eq!(served.post("/v1/answer", &json!({ "question": "bridges" })).json()["mount"], "pages.jsonl");
}

#[test]
fn an_answer_from_retrieved_passages_has_them_as_provenance() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let served = Served::start(|folder| {
        let kb = root.join("examples/minikilt/kb").display().to_string();
        let source = documents(folder).sources.remove(0);
        let text = format!(
            "workflow = \"kbqa\"\nname = \"rag\"\nkb = \"{kb}/triples.tsv.gz\"\nentities = \"{kb}/entities.tsv\"\n\
             relations = \"{kb}/relations.tsv\"\n[data]\niid = \"absent.json\"\ndocument = false\n\
             [source]\npath = {source:?}\nindexes = {:?}\n[retriever]\nkind = \"bm25\"\n\
             [reasoner]\nkind = \"rag-sequence\"\nmodel = {:?}\nanswer-tokens = 6\n",
            folder.join("indexes"),
            reader()
        );
        let path = folder.join("rag.toml");
        fs::write(&path, text).unwrap();
        ServerOptions {
            mounts: vec![AskOptions::new(vec![path], folder.join("cache"))],
            ..ServerOptions::new()
        }
    });
    let request = json!({ "question": "Where was Oberlin born?", "trace": true });
    let found = served.post("/v1/answer", &request).json();
    let best = &found["provenance"][0];
    assert_eq!(
        (&best["number"], &best["title"], &best["wikipedia_id"]),
        (&json!(1), &json!("Mira Oberlin"), &json!("1")),
        "{found}"
    );
    assert!(best["text"].as_str().unwrap().contains("Leipzig") && best["score"].as_f64().unwrap() > 0.0);
    assert!(best["highlight"][1].as_u64() > best["highlight"][0].as_u64(), "{best}");
    assert_eq!(
        (&found["is_generated"], &found["trace"]["steps"][0]["name"]),
        (&json!(true), &json!("answer"))
    );
}

#[test]
fn a_config_without_documents_takes_none() {
    let served = served("document = false", false);
    let found = served.post("/v1/answer", &json!({ "question": "Which genre?" }));
    assert_eq!((found.status, &found.json()["mount"]), (200, &json!("kb")), "{}", found.text);
    let found = served.post("/v1/answer", &json!({ "question": "Which genre?", "document": "A text." }));
    let expected = "`document`: expected none, as `kb` reads no document";
    assert_eq!((found.status, found.json()["error"].as_str()), (400, Some(expected)));
    let description = served.get("/openapi.json").json();
    let schemas = &description["components"]["schemas"];
    assert!(schemas["AnswerRequest"]["properties"]["document"].is_object(), "{schemas}");
    assert!(schemas["AnswerResponse"]["properties"]["entities"].is_object(), "{schemas}");
}
