//! Searches and answers over documents.

use std::{fs, path::Path, thread};

use serde_json::{Value, json};
use sporran_pipeline::workflows::answer::{AskOptions, Asker};
use sporran_server::{Limits, ServerOptions};

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
    for (query, expected) in [
        ("query=tea&hits=many", "`hits`: expected a whole number, found `many`"),
        ("query=tea&topk=3", "`topk`: expected the parameters `query`, `hits`"),
        ("hits=3", "`query`: is missing"),
    ] {
        let found = served.get(&format!("/v1/pages.jsonl/search?{query}"));
        assert_eq!((found.status, found.json()["error"].as_str()), (400, Some(expected)));
    }
    let found = served.get("/v1/mounts?name=pages.jsonl");
    let expected = "`name`: expected no parameters in the address";
    assert_eq!((found.status, found.json()["error"].as_str()), (400, Some(expected)));
    // They are told in the form of their API.
    let body = json!({ "prompt": "a" }).to_string();
    let found = served.send("POST", "/v1/completions?n=2", &[("content-type", "application/json")], &body);
    assert_eq!((found.status, &found.json()["error"]["param"]), (400, &json!("n")));
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
    let wrong = served.get("/v1/pages.jsonl/doc/%ff");
    assert_eq!((wrong.status, &wrong.json()["error"]), (400, &"the path of the address is not UTF-8".into()));
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
}

#[test]
fn what_a_request_may_ask_for_is_limited() {
    let limits = Limits { hits: 5, all_hits: 6, ..Limits::default() };
    let served = Served::start(|folder| ServerOptions {
        mounts: vec![documents(folder)],
        limits,
        ..ServerOptions::new()
    });
    let retrieve = |queries: &[&str], topk: usize| {
        served.post("/retrieve", &json!({ "queries": queries, "topk": topk }))
    };
    assert_eq!(retrieve(&["tea", "steel"], 3).status, 200);
    let many = retrieve(&["tea", "steel", "water"], 3);
    assert_eq!(many.status, 400);
    let message = many.json()["error"].as_str().unwrap().to_owned();
    assert!(message.starts_with("`queries`: expected at most 6 hits of all queries"), "{message}");
    let deep = retrieve(&["tea"], 6);
    assert_eq!((deep.status, deep.json()), (400, json!({ "error": "`topk`: expected 1 to 5, found 6" })));
    assert_eq!(served.get("/v1/pages.jsonl/search?query=tea&hits=6").status, 400);
}

/// A config over the documents of a folder, with further lines.
fn config(folder: &Path, name: &str, lines: &str) -> AskOptions {
    let path = folder.join(format!("{name}.toml"));
    let text = format!("workflow = \"answer\"\nname = \"{name}\"\noutput = {folder:?}\n{lines}");
    fs::write(&path, text).unwrap();
    AskOptions::new(vec![path], folder.join("cache"))
}

/// The lines of a config that retrieves from the documents of a folder.
fn retrieving(folder: &Path) -> String {
    let source = documents(folder).sources.remove(0);
    let indexes = folder.join("indexes");
    format!("[source]\npath = {source:?}\nindexes = {indexes:?}\n[retriever]\nkind = \"bm25\"\n")
}

/// The lines of a config whose generator is the small reader.
fn reading(settings: &str) -> String {
    reading_as("seq2seq", settings)
}

fn reading_as(kind: &str, settings: &str) -> String {
    format!("[generator]\nkind = \"{kind}\"\nmodel = {:?}\n[generator.generation]\n{settings}\n", reader())
}

#[test]
fn the_tokens_of_a_prompt_are_counted_for_every_encoder_decoder() {
    let count = |kind: &str, settings: &str| {
        let served = Served::start(|folder| {
            let lines = retrieving(folder) + &reading_as(kind, settings);
            ServerOptions { mounts: vec![config(folder, "count", &lines)], ..ServerOptions::new() }
        });
        let messages = json!([{ "role": "user", "content": "Where was Oberlin born?" }]);
        let found = served.post("/v1/chat/completions", &json!({ "messages": messages })).json();
        let usage = &found["usage"];
        let [prompt, answer, all] = ["prompt_tokens", "completion_tokens", "total_tokens"]
            .map(|key| usage[key].as_u64().unwrap_or_else(|| panic!("{kind}: {found}")));
        assert_eq!(prompt + answer, all);
        prompt
    };
    let (joined, beams) =
        (count("seq2seq", "max-new-tokens = 4"), count("seq2seq", "num-beams = 2\nmax-new-tokens = 4"));
    assert_eq!(joined, beams);
    // These read each passage together with the question.
    for kind in ["fid", "rag-sequence"] {
        let each = count(kind, "max-new-tokens = 4");
        assert!(each > 10, "{kind}: {each}");
    }
}

#[test]
fn a_config_with_beams_answers_as_the_library() {
    let beams = |folder: &Path| {
        config(folder, "beams", &(retrieving(folder) + &reading("num-beams = 3\nmax-new-tokens = 8")))
    };
    let served =
        Served::start(|folder| ServerOptions { mounts: vec![beams(folder)], ..ServerOptions::new() });
    let question = "Where was Oberlin born?";
    let expected = Asker::open(&beams(served.folder.path()), &mut |_| {}).unwrap().ask(question).unwrap();
    assert!(!expected.answer.is_empty());
    let found = served.post("/v1/answer", &json!({ "question": question })).json();
    assert_eq!(found["answer"], expected.answer, "{found}");
    let chat = |extra: Value| {
        let mut request = json!({ "messages": [{ "role": "user", "content": question }] });
        request.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        served.post("/v1/chat/completions", &request)
    };
    let (events, is_done) = chat(json!({ "stream": true, "temperature": 0 })).events();
    assert_eq!((&events[events.len() - 1]["sporran"]["answer"], is_done), (&json!(expected.answer), true));
    // A search with beams does not sample, and has no model to ask without passages.
    for (extra, param) in [
        (json!({ "temperature": 0.5 }), "temperature"),
        (json!({ "top_p": 0.5 }), "top_p"),
        (json!({ "sporran": { "retrieve": false } }), "sporran.retrieve"),
    ] {
        let refused = chat(extra);
        assert_eq!((refused.status, refused.json()["error"]["param"].as_str()), (400, Some(param)));
    }
}

#[test]
fn the_first_mount_that_fits_answers() {
    let served = Served::start(|folder| {
        let closed = config(folder, "closed", &reading("max-new-tokens = 4"));
        let searched = config(folder, "searched", &retrieving(folder));
        ServerOptions { mounts: vec![closed, searched], ..ServerOptions::new() }
    });
    assert_eq!(served.post("/retrieve", &json!({ "queries": ["tea"] })).json()["result"][0][0]["id"], "2");
    assert_eq!(served.get("/browse/documents").json()["total"], 3);
    let missing = served.get("/v1/closed/search?query=tea");
    assert_eq!(
        (missing.status, missing.json()),
        (404, json!({ "error": "there is no index `closed`; there are `searched`" }))
    );
    let reversed = Served::start(|folder| {
        let searched = config(folder, "searched", &retrieving(folder));
        let closed = config(folder, "closed", &reading("max-new-tokens = 4"));
        ServerOptions { mounts: vec![searched, closed], ..ServerOptions::new() }
    });
    // An answer is written where a generator is mounted.
    assert_eq!(reversed.post("/v1/answer", &json!({ "question": "What is tea?" })).json()["mount"], "closed");
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
    let seconds: Vec<f64> = steps.iter().map(|step| step["seconds"].as_f64().unwrap()).collect();
    assert!(seconds.iter().all(|seconds| *seconds > 0.0), "{seconds:?}");
    assert!(seconds.iter().sum::<f64>() <= found["seconds"].as_f64().unwrap(), "{found}");
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
