//! Searches and answers over documents.

use std::thread;

use serde_json::{Value, json};
use sporran_pipeline::workflows::answer::{AskOptions, Asker};
use sporran_server::ServerOptions;

use crate::common::{Served, documents, reader};

fn plain() -> Served {
    Served::start(|folder| ServerOptions { mounts: vec![documents(folder)], ..ServerOptions::new() })
}

fn with_reader() -> Served {
    Served::start(|folder| {
        let mount = AskOptions { generator: Some(reader()), max_new_tokens: 8, ..documents(folder) };
        ServerOptions { mounts: vec![mount], ..ServerOptions::new() }
    })
}

#[test]
fn a_search_has_the_form_of_pyserini() {
    let served = plain();
    let found = served.get("/v1/pages.jsonl/search?query=drink%20of%20leaves&hits=2").json();
    assert_eq!(
        (&found["api"], &found["index"], &found["query"]),
        (&json!("v1"), &json!("pages.jsonl"), &json!({ "text": "drink of leaves" }))
    );
    let candidates = found["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 2);
    assert_eq!((&candidates[0]["docid"], &candidates[0]["rank"]), (&json!("3"), &json!(1)));
    assert!(candidates[0]["score"].as_f64() > candidates[1]["score"].as_f64());
    assert_eq!(candidates[0]["doc"]["contents"], "Tee\nTee is a drink of leaves.");
    // A passage among several of its document.
    let found = served.get("/v1/pages.jsonl/search?query=steel").json();
    let best = &found["candidates"][0];
    assert_eq!(
        (&best["docid"], &best["doc"]["document"], &best["doc"]["section"]),
        (&json!("1#1"), &json!("1"), &json!("Work"))
    );
    assert_eq!(served.get("/v1/pages.jsonl/search?query=nothingatall").json()["candidates"], json!([]));
    for (path, status) in [
        ("/v1/other/search?query=tea", 404),
        ("/v1/pages.jsonl/search", 400),
        ("/v1/pages.jsonl/search?query=", 400),
        ("/v1/pages.jsonl/search?query=tea&hits=0", 400),
        ("/v1/pages.jsonl/search?query=tea&hits=many", 400),
        ("/v1/pages.jsonl/search?query=tea&hits=100000", 400),
    ] {
        let found = served.get(path);
        assert_eq!(found.status, status, "{path}: {}", found.text);
        assert!(found.json()["error"].is_string(), "{path}");
    }
}

#[test]
fn a_document_is_found_by_its_id_and_never_as_a_file() {
    let served = plain();
    let whole = served.get("/v1/pages.jsonl/doc/1").json();
    assert_eq!(whole["doc"]["title"], "Mira Oberlin");
    assert_eq!(whole["doc"]["paragraphs"][3], "She built bridges of steel.");
    assert_eq!(whole["doc"]["metadata"]["lang"], "en");
    let passage = served.get("/v1/pages.jsonl/doc/1%231").json();
    assert_eq!((&passage["docid"], &passage["doc"]["paragraph"]), (&json!("1#1"), &json!(3)));
    assert_eq!(served.get("/v1/pages.jsonl/doc/2").json()["doc"]["file"], "drinks/tea.md");
    for id in ["4", "1%237", "1%23x", "..%2F..%2Fetc%2Fpasswd", "../pages.jsonl", "%2Fetc%2Fpasswd"] {
        let found = served.get(&format!("/v1/pages.jsonl/doc/{id}"));
        assert_eq!(found.status, 404, "{id}");
        assert!(!found.text.contains("root:"), "{id}");
    }
}

#[test]
fn queries_are_answered_in_the_form_of_search_r1() {
    let served = plain();
    let queries = json!(["tea", "steel bridges", "nothingatall"]);
    let found =
        served.post("/retrieve", &json!({ "queries": queries, "topk": 1, "return_scores": true })).json();
    let result = found["result"].as_array().unwrap();
    assert_eq!(result.len(), 3);
    assert_eq!(
        result[1][0]["document"],
        json!({ "id": "1#1", "contents": "Mira Oberlin\nShe built bridges of steel." })
    );
    assert!(result[1][0]["score"].as_f64().unwrap() > 0.0 && result[2] == json!([]));
    let found = served.post("/retrieve", &json!({ "queries": ["steel"] })).json();
    assert_eq!(found["result"][0][0]["id"], "1#1");
    let many: Vec<&str> = ["tea"; 17].into();
    let found = served.post("/retrieve", &json!({ "queries": many, "topk": 1000 }));
    assert_eq!(found.status, 400, "{}", found.text);
    assert!(found.text.contains("at most 16384 hits in all, found 17000"), "{}", found.text);
}

#[test]
fn a_config_with_beams_answers() {
    let served = Served::start(|folder| {
        let pages = documents(folder).sources.remove(0);
        let (config, indexes) = (folder.join("beams.toml"), folder.join("indexes"));
        let text = format!(
            "workflow = \"answer\"\nname = \"beams\"\n[source]\npath = {pages:?}\nindexes = {indexes:?}\n\
             [retriever]\nkind = \"bm25\"\n[generator]\nkind = \"seq2seq\"\nmodel = {:?}\n\
             [generator.generation]\nmax-new-tokens = 8\nnum-beams = 2\n",
            reader()
        );
        std::fs::write(&config, text).unwrap();
        let mount = AskOptions::new(vec![config], folder.join("cache"));
        ServerOptions { mounts: vec![mount], ..ServerOptions::new() }
    });
    let found = served.post("/v1/answer", &json!({ "question": "Where was Oberlin born?" })).json();
    assert!(found["is_generated"] == true && found["answer"] != "", "{found}");
}

#[test]
fn the_first_mount_that_can_is_the_default() {
    let served = Served::start(|folder| {
        let other = folder.join("other");
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("rain.txt"), "Rain falls on the hills.").unwrap();
        let plain = AskOptions::new(vec![other], folder.join("cache"));
        let mount = AskOptions { generator: Some(reader()), max_new_tokens: 8, ..documents(folder) };
        ServerOptions { mounts: vec![plain, mount], ..ServerOptions::new() }
    });
    let found = served.post("/v1/answer", &json!({ "question": "Where was Oberlin born?" })).json();
    assert_eq!((&found["mount"], &found["is_generated"]), (&json!("pages.jsonl"), &json!(true)));
    let found = served.post("/retrieve", &json!({ "queries": ["rain"] })).json();
    assert!(found["result"][0][0]["contents"].as_str().unwrap().contains("Rain falls"), "{found}");
}

#[test]
fn an_answer_has_its_provenance_with_characters() {
    let served = plain();
    let found = served.post("/v1/answer", &json!({ "question": "Where was Oberlin born?", "top": 2 })).json();
    assert_eq!(
        (&found["mount"], &found["is_generated"], &found["answer"]),
        (&json!("pages.jsonl"), &json!(false), &json!(""))
    );
    let best = &found["provenance"][0];
    assert_eq!(
        (&best["number"], &best["title"], &best["wikipedia_id"]),
        (&json!(1), &json!("Mira Oberlin"), &json!("1"))
    );
    let text: Vec<char> = best["text"].as_str().unwrap().chars().collect();
    let place = |at: usize| best["highlight"][at].as_u64().unwrap() as usize;
    let highlighted: String = text[place(0)..place(1)].iter().collect();
    assert_eq!(highlighted.trim(), "Oberlin was born in Leipzig and studied in Vienna.");
    // The characters of the passage are those of the paragraph of its document.
    let document = served.get("/v1/pages.jsonl/doc/1").json();
    let paragraph: Vec<char> = document["doc"]["paragraphs"][best["paragraph"].as_u64().unwrap() as usize]
        .as_str()
        .unwrap()
        .chars()
        .collect();
    let (start, end) = (best["start"].as_u64().unwrap() as usize, best["end"].as_u64().unwrap() as usize);
    assert_eq!(paragraph[start..end], text[..]);
    assert!(found.get("trace").is_none() && found["seconds"].as_f64().unwrap() > 0.0);
    let tea = served.post("/v1/answer", &json!({ "question": "What is made of hot water?" })).json();
    let best = &tea["provenance"][0];
    assert_eq!(
        (&best["file"], &best["line"], &best["wikipedia_id"]),
        (&json!("drinks/tea.md"), &json!(4), &Value::Null)
    );
    for wrong in [
        json!({ "question": " " }),
        json!({ "question": "a", "top": 0 }),
        json!({ "question": "a", "mount": "x" }),
    ] {
        assert!(served.post("/v1/answer", &wrong).status >= 400, "{wrong}");
    }
}

#[test]
fn a_trace_has_the_steps_from_the_search_to_the_answer() {
    let served = with_reader();
    let found =
        served.post("/v1/answer", &json!({ "question": "Where was Oberlin born?", "trace": true })).json();
    let steps = found["trace"]["steps"].as_array().unwrap();
    let names: Vec<&str> = steps.iter().map(|step| step["name"].as_str().unwrap()).collect();
    assert_eq!(&names[names.len() - 2..], ["prompt", "answer"]);
    assert!(names.len() >= 3, "{names:?}");
    let search = &steps[names.len() - 3];
    assert_eq!(search["items"][0]["title"], "Mira Oberlin");
    assert!(search["seconds"].is_number());
    let prompt = steps[names.len() - 2]["items"][0]["text"].as_str().unwrap();
    assert!(prompt.contains("Leipzig") && prompt.contains("Where was Oberlin born?"), "{prompt}");
    assert!(steps[names.len() - 1]["tokens"].as_u64().unwrap() > 0);
}

#[test]
fn answers_of_a_running_batch_are_those_of_the_library() {
    let served = with_reader();
    let options =
        AskOptions { generator: Some(reader()), max_new_tokens: 8, ..documents(served.folder.path()) };
    let asker = Asker::open(&options, &mut |_| {}).unwrap();
    let questions =
        ["Where was Oberlin born?", "What is tea?", "What is made of leaves?", "Who built bridges?"];
    let found: Vec<(&str, Value)> = thread::scope(|scope| {
        let ask = |at: usize| {
            let question = questions[at % questions.len()];
            (question, served.post("/v1/answer", &json!({ "question": question })).json())
        };
        let threads: Vec<_> = (0..12).map(|at| scope.spawn(move || ask(at))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (question, found) in found {
        let expected = asker.ask(question).unwrap();
        assert!(expected.is_generated);
        assert_eq!(found["answer"], expected.answer, "{question}");
        let texts: Vec<&str> = expected.evidence.iter().map(|passage| passage.text.as_str()).collect();
        let served: Vec<&str> = found["provenance"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["text"].as_str().unwrap())
            .collect();
        assert_eq!(served, texts);
    }
}
