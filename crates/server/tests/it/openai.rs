//! The API of OpenAI.

use std::{
    io::Read,
    thread,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use sporran_pipeline::workflows::answer::{AskOptions, Endpoint};
use sporran_server::{Limits, ServerOptions};

use crate::common::{Served, documents, fixture, models, reader};

fn with_reader() -> Served {
    Served::start(|folder| {
        let mount = AskOptions { generator: Some(reader()), max_new_tokens: 8, ..documents(folder) };
        ServerOptions { mounts: vec![mount], models: models(), ..ServerOptions::new() }
    })
}

fn with_llama() -> Served {
    Served::start(|folder| {
        let mount = AskOptions { generator: Some(fixture("llama")), max_new_tokens: 6, ..documents(folder) };
        ServerOptions { mounts: vec![mount], ..ServerOptions::new() }
    })
}

fn user(text: &str) -> Value {
    json!([{ "role": "user", "content": text }])
}

#[test]
fn models_are_listed_and_found_by_name() {
    let served = with_reader();
    let list = served.get("/v1/models").json();
    let ids: Vec<&str> =
        list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["pages.jsonl", "sentence", "bert-sequence", "roberta-sequence"]);
    assert_eq!(served.get("/v1/models/sentence").json()["task"], "embed");
    // The time at which a model was loaded does not change until mounts are opened again.
    thread::sleep(Duration::from_millis(1100));
    assert_eq!(served.get("/v1/models").json(), list);
    served.state.reload(&mut |_| {}).unwrap();
    let again = served.get("/v1/models").json();
    let created = |list: &Value, at: usize| list["data"][at]["created"].as_u64().unwrap();
    assert!(created(&again, 0) > created(&list, 0) && created(&again, 1) == created(&list, 1));
    let missing = served.get("/v1/models/other");
    assert_eq!((missing.status, missing.json()["error"]["code"].as_str()), (404, Some("not_found")));
}

#[test]
fn embeddings_come_as_numbers_or_bytes() {
    let served = with_reader();
    let texts = ["who wrote the song", "the king"];
    let request = json!({ "model": "any", "input": texts });
    let numbers = served.post("/v1/embeddings", &request).json();
    assert!(numbers["usage"]["prompt_tokens"].as_u64().unwrap() > 4);
    let request = json!({ "input": texts, "encoding_format": "base64" });
    let bytes = served.post("/v1/embeddings", &request).json();
    for (at, data) in bytes["data"].as_array().unwrap().iter().enumerate() {
        let bytes = STANDARD.decode(data["embedding"].as_str().unwrap()).unwrap();
        let values: Vec<f64> =
            bytes.chunks(4).map(|four| f64::from(f32::from_le_bytes(four.try_into().unwrap()))).collect();
        let expected: Vec<f64> = serde_json::from_value(numbers["data"][at]["embedding"].clone()).unwrap();
        assert_eq!(values.len(), expected.len());
        assert!(values.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6));
    }
    let short = served.post("/v1/embeddings", &json!({ "input": "a", "dimensions": 3 })).json();
    assert_eq!(short["data"][0]["embedding"].as_array().unwrap().len(), 3);
    let tokens = served.post("/v1/embeddings", &json!({ "input": [1, 2] }));
    assert_eq!((tokens.status, tokens.json()["error"]["param"].as_str()), (400, Some("input")));
}

#[test]
fn a_chat_answers_over_the_index_with_citations() {
    let served = with_reader();
    let question = "Where was Oberlin born?";
    let found = served
        .post("/v1/chat/completions", &json!({ "model": "pages.jsonl", "messages": user(question) }))
        .json();
    let answer = served.post("/v1/answer", &json!({ "question": question })).json();
    let choice = &found["choices"][0];
    assert_eq!(
        (&choice["message"]["role"], &choice["message"]["content"]),
        (&json!("assistant"), &answer["answer"])
    );
    assert_eq!(found["citations"], answer["provenance"]);
    let usage = &found["usage"];
    assert!(
        usage["prompt_tokens"].as_u64().unwrap() > 10 && usage["completion_tokens"].as_u64().unwrap() > 0
    );
    let completion = served.post("/v1/completions", &json!({ "prompt": [question, "What is tea?"] })).json();
    assert_eq!(completion["choices"][0]["text"], answer["answer"]);
    assert_eq!(completion["choices"][1]["index"], 1);
    assert_eq!(completion["choices"][0]["citations"], answer["provenance"]);
}

#[test]
fn a_stream_has_the_text_in_parts_and_then_the_citations() {
    let served = with_reader();
    let request = json!({
        "messages": user("Where was Oberlin born?"), "stream": true, "stream_options": { "include_usage": true },
    });
    let reply = served.post("/v1/chat/completions", &request);
    assert_eq!(reply.header("content-type").as_deref(), Some("text/event-stream"));
    let (events, is_done) = reply.events();
    assert!(is_done && events[0]["choices"][0]["delta"]["role"] == "assistant", "{}", reply.text);
    let text: String =
        events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    let last = &events[events.len() - 2];
    assert!(!text.is_empty() && last["choices"][0]["finish_reason"].is_string());
    assert_eq!(last["citations"][0]["title"], "Mira Oberlin");
    let whole = served.post("/v1/answer", &json!({ "question": "Where was Oberlin born?" })).json();
    assert_eq!(last["sporran"]["answer"], whole["answer"]);
    assert!(events[..events.len() - 1].iter().all(|event| event.get("usage") == Some(&Value::Null)));
    let usage = &events[events.len() - 1];
    assert_eq!(
        (&usage["choices"], usage["usage"]["completion_tokens"].as_u64() > Some(0)),
        (&json!([]), true)
    );
}

#[test]
fn a_chat_has_the_steps_of_an_answer_if_it_asks_for_them() {
    let served = with_reader();
    let steps = |found: &Value| -> Vec<String> {
        let steps = found["trace"]["steps"].as_array().unwrap();
        steps.iter().map(|step| step["name"].as_str().unwrap().to_owned()).collect()
    };
    let question = "Where was Oberlin born?";
    let answer = served.post("/v1/answer", &json!({ "question": question, "trace": true })).json();
    let request = json!({ "messages": user(question), "stream": true, "sporran": { "trace": true } });
    let (events, _) = served.post("/v1/chat/completions", &request).events();
    let last = &events[events.len() - 1];
    assert_eq!(steps(&last["sporran"]), steps(&answer));
    assert_eq!(steps(&answer).last().map(String::as_str), Some("answer"));
    assert_eq!(last["sporran"]["sentences"], answer["sentences"]);
    assert_eq!(last["citations"][0]["text"], answer["provenance"][0]["text"]);
    let text = served.post("/v1/completions", &json!({ "prompt": question, "sporran": { "trace": true } }));
    assert_eq!((text.status, text.json()["error"]["param"].as_str()), (400, Some("sporran.trace")));
}

#[test]
fn a_question_that_refers_to_earlier_turns_is_searched_for_with_them() {
    let served = with_llama();
    let turn = |role: &str, text: &str| json!({ "role": role, "content": text });
    let steps = |question: &str| {
        let messages = [
            turn("assistant", "Hello."),
            turn("user", "Where was Oberlin born?"),
            turn("assistant", "In Leipzig [1]."),
            turn("user", question),
        ];
        let request = json!({ "messages": messages, "max_tokens": 2, "sporran": { "trace": true } });
        let found = served.post("/v1/chat/completions", &request).json();
        found["sporran"]["trace"]["steps"].as_array().unwrap_or_else(|| panic!("{found}")).clone()
    };
    let prompt = |steps: &[Value]| {
        let step = steps.iter().find(|step| step["name"] == "prompt").unwrap();
        step["items"][0]["text"].as_str().unwrap().to_owned()
    };
    let found = steps("and what did she build?");
    assert_eq!(found[0]["query"], "and what did she build? Where was Oberlin born? In Leipzig.");
    let text = prompt(&found);
    let expected = "Where was Oberlin born?\nAnswer: In Leipzig.\nQuestion: and what did she build?";
    assert!(text.contains(expected), "{text}");
    let found = steps("What is tea?");
    assert_eq!(found[0]["query"], "What is tea?");
    assert!(!prompt(&found).contains("Leipzig."), "{}", prompt(&found));
}

#[test]
fn a_stream_is_not_compressed() {
    let served = with_reader();
    let request = json!({ "messages": user("Where was Oberlin born?"), "stream": true }).to_string();
    let headers = [("content-type", "application/json"), ("accept-encoding", "gzip, br")];
    let reply = served.send("POST", "/v1/chat/completions", &headers, &request);
    assert_eq!((reply.status, reply.header("content-encoding")), (200, None));
    assert!(reply.events().1);
}

#[test]
fn the_bare_model_continues_what_it_is_given() {
    let served = with_llama();
    let bare = |extra: Value| {
        let mut request =
            json!({ "prompt": "the king was born", "temperature": 0, "sporran": { "retrieve": false } });
        request.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        request
    };
    let found = served.post("/v1/completions", &bare(json!({ "max_tokens": 5 }))).json();
    let choice = &found["choices"][0];
    assert_eq!((&choice["citations"], &found["usage"]["completion_tokens"]), (&Value::Null, &json!(5)));
    assert_eq!(choice["finish_reason"], "length");
    let text = choice["text"].as_str().unwrap().to_owned();
    let (events, is_done) =
        served.post("/v1/completions", &bare(json!({ "max_tokens": 5, "stream": true }))).events();
    let streamed: String = events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
    assert_eq!((streamed.as_str(), is_done), (text.as_str(), true));
    // The text ends before a stop, which the client chose.
    let middle: String = text.chars().skip(text.chars().count() / 2).collect();
    let found = served.post("/v1/completions", &bare(json!({ "max_tokens": 5, "stop": [middle] }))).json();
    let stopped = found["choices"][0]["text"].as_str().unwrap();
    assert!(text.starts_with(stopped) && stopped.len() < text.len(), "{stopped:?} of {text:?}");
    assert_eq!(found["choices"][0]["finish_reason"], "stop");
    // The same seed gives the same text.
    let sampled = |seed: u64| {
        let request = bare(json!({ "max_tokens": 5, "temperature": 1.0, "seed": seed }));
        served.post("/v1/completions", &request).json()["choices"][0]["text"].clone()
    };
    assert_eq!(sampled(3), sampled(3));
    let chat = json!({ "messages": user("the king"), "max_tokens": 3, "sporran": { "retrieve": false } });
    let found = served.post("/v1/chat/completions", &chat).json();
    assert_eq!(found["citations"], Value::Null);
}

/// A server whose generator is that of another server, with documents or without.
fn behind(endpoint: &Served, has_documents: bool) -> Served {
    let endpoint = Endpoint {
        url: format!("http://{}/v1", endpoint.address),
        model: "llama".into(),
        key_variable: None,
    };
    Served::start(|folder| {
        let documents = documents(folder);
        let sources = if has_documents { documents.sources.clone() } else { Vec::new() };
        let mount = AskOptions {
            sources,
            endpoint: Some(endpoint),
            max_new_tokens: 6,
            keep_responses: false,
            ..documents
        };
        ServerOptions { mounts: vec![mount], ..ServerOptions::new() }
    })
}

/// The small model alone, by the name `llama`.
fn bare_llama() -> Served {
    Served::start(|folder| {
        let mount = AskOptions { generator: Some(fixture("llama")), max_new_tokens: 6, ..documents(folder) };
        ServerOptions { mounts: vec![AskOptions { sources: Vec::new(), ..mount }], ..ServerOptions::new() }
    })
}

#[test]
fn a_model_at_an_endpoint_takes_the_settings_of_a_request() {
    let endpoint = bare_llama();
    for served in [behind(&endpoint, true), behind(&endpoint, false)] {
        for (path, request) in [
            ("/v1/completions", json!({ "prompt": "the king was born" })),
            ("/v1/chat/completions", json!({ "messages": user("the king was born") })),
        ] {
            let mut request = request;
            request["sporran"] = json!({ "retrieve": false });
            for (most, reason) in [(3, "length"), (5, "length")] {
                (request["max_tokens"], request["temperature"]) = (json!(most), json!(0));
                let (found, expected) =
                    (served.post(path, &request).json(), endpoint.post(path, &request).json());
                let choices = (&found["choices"][0], &expected["choices"][0]);
                assert_eq!(
                    (&choices.0["text"], &choices.0["message"]),
                    (&choices.1["text"], &choices.1["message"])
                );
                assert_eq!(choices.0["finish_reason"], reason, "{found}");
                assert_eq!(found["usage"], expected["usage"]);
                let mut streamed = request.clone();
                streamed["stream"] = json!(true);
                let (events, is_done) = served.post(path, &streamed).events();
                let choice = |event: &Value| event["choices"][0]["finish_reason"].as_str().map(str::to_owned);
                assert_eq!((events.iter().find_map(choice).as_deref(), is_done), (Some(reason), true));
            }
            // With a seed the endpoint draws the same text.
            (request["temperature"], request["seed"]) = (json!(1.5), json!(7));
            let (found, expected) =
                (served.post(path, &request).json(), endpoint.post(path, &request).json());
            assert_eq!(found["choices"][0]["message"], expected["choices"][0]["message"]);
            assert_eq!(found["choices"][0]["text"], expected["choices"][0]["text"]);
        }
    }
    // Over documents a limit of the client is the endpoint's.
    let served = behind(&endpoint, true);
    let found = served
        .post(
            "/v1/chat/completions",
            &json!({ "messages": user("Where was Oberlin born?"), "max_tokens": 2 }),
        )
        .json();
    assert_eq!(
        (&found["choices"][0]["finish_reason"], &found["usage"]["completion_tokens"]),
        (&json!("length"), &json!(2))
    );
}

#[test]
fn the_system_s_turn_follows_the_instruction_over_documents() {
    let endpoint = bare_llama();
    let messages = json!([
        { "role": "system", "content": "Answer in French." },
        { "role": "user", "content": "Where was Oberlin born?" },
    ]);
    for served in [with_llama(), behind(&endpoint, true)] {
        let request = json!({ "messages": messages, "max_tokens": 2, "sporran": { "trace": true } });
        let found = served.post("/v1/chat/completions", &request).json();
        let trace = found["sporran"]["trace"].to_string();
        assert!(trace.contains("Answer in French."), "{found}");
    }
}

#[test]
fn a_prompt_that_the_model_does_not_read_as_a_whole_is_refused() {
    let served = with_llama();
    let long = "king ".repeat(5000);
    for (path, field, mut request) in [
        ("/v1/completions", "prompt", json!({ "prompt": long })),
        ("/v1/chat/completions", "messages", json!({ "messages": user(&long) })),
    ] {
        request["sporran"] = json!({ "retrieve": false });
        let found = served.post(path, &request);
        let message = found.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(found.status == 400 && message.contains("expected a prompt of at most "), "{}", found.text);
        assert_eq!(found.json()["error"]["param"], field);
    }
}

#[test]
fn wrong_requests_have_the_form_of_openai() {
    let served = with_reader();
    for (request, param) in [
        (json!({ "messages": [] }), "messages"),
        (json!({ "messages": user("a"), "temperature": 9 }), "temperature"),
        (json!({ "messages": user("a"), "n": 3 }), "n"),
        (json!({ "messages": [{ "role": "user", "content": " " }] }), "messages"),
        (json!({ "model": "pages.jsonl" }), "messages"),
        (json!({ "messages": [{ "content": "a" }] }), "messages[0].role"),
        (json!({ "messages": [{ "role": "tool", "content": "a" }] }), "messages[0].role"),
        (
            json!({ "messages": [{ "role": "user", "content": [{ "type": "image_url" }] }] }),
            "messages[0].content",
        ),
        (json!({ "messages": user("a"), "temperature": "hot" }), "temperature"),
        (json!({ "messages": user("a"), "stream_options": { "include_usage": true } }), "stream_options"),
        (json!({ "messages": user("a"), "tools": [{ "type": "function" }] }), "tools"),
        (json!({ "messages": user("a"), "tool_choice": "required" }), "tool_choice"),
        (json!({ "messages": user("a"), "response_format": { "type": "json_object" } }), "response_format"),
        (json!({ "messages": user("a"), "sporran": { "top": "x" } }), "sporran.top"),
        (json!({ "messages": user("a"), "stop": [1] }), "stop"),
    ] {
        let found = served.post("/v1/chat/completions", &request);
        let error = &found.json()["error"];
        assert_eq!((found.status, error["param"].as_str()), (400, Some(param)), "{request}: {}", found.text);
        assert_eq!(error["type"], "invalid_request_error");
    }
    let found = served.post("/v1/chat/completions", &json!({ "model": "gpt-4o", "messages": user("a") }));
    assert_eq!(found.status, 404);
    assert!(found.json()["error"]["message"].as_str().unwrap().contains("`pages.jsonl`"), "{}", found.text);
    for (request, param) in [
        (json!({ "prompt": [1, 2] }), "prompt"),
        (json!({ "prompt": vec!["a"; 1001] }), "prompt"),
        (json!({ "prompt": "a", "logprobs": 0 }), "logprobs"),
        (json!({ "prompt": "a", "n": "2" }), "n"),
    ] {
        let found = served.post("/v1/completions", &request);
        assert_eq!(
            (found.status, found.json()["error"]["param"].as_str()),
            (400, Some(param)),
            "{}",
            found.text
        );
    }
    for (request, param) in [
        (json!({ "input": [[1, 2]] }), "input"),
        (json!({ "input": "a", "encoding_format": "int8" }), "encoding_format"),
        (json!({ "input": "a", "dimensions": -1 }), "dimensions"),
    ] {
        let found = served.post("/v1/embeddings", &request);
        assert_eq!(
            (found.status, found.json()["error"]["param"].as_str()),
            (400, Some(param)),
            "{}",
            found.text
        );
    }
    // What asks for nothing, and what changes no answer, is taken.
    let plain = json!({
        "messages": [{ "role": "user", "name": "me", "content": [{ "type": "text", "text": "What is tea?" }] }],
        "user": "me", "metadata": {}, "store": false, "n": 1, "seed": -3, "stop": "zzz", "temperature": 0,
        "tools": null, "tool_choice": "none", "logprobs": false, "max_completion_tokens": 3, "stream": false,
    });
    let found = served.post("/v1/chat/completions", &plain);
    assert_eq!(found.status, 200, "{}", found.text);
    assert_eq!(found.json()["choices"][0]["message"].get("refusal"), Some(&Value::Null));
    let two = json!({ "prompt": ["a", "b"], "stream": true });
    assert_eq!(served.post("/v1/completions", &two).status, 400);
}

#[test]
fn settings_that_cannot_hold_are_named() {
    let served = with_reader();
    for (extra, param) in [
        (json!({ "sporran": { "top": 0 } }), "sporran.top"),
        (json!({ "sporran": { "retrieve": false, "top": 3 } }), "sporran.top"),
        (json!({ "stop": ["a", "b", "c", "d", "e"] }), "stop"),
        (json!({ "max_tokens": 1_000_000 }), "max_tokens"),
        (json!({ "logprobs": true }), "logprobs"),
    ] {
        let mut request = json!({ "messages": user("What is tea?") });
        request.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let found = served.post("/v1/chat/completions", &request);
        let error = &found.json()["error"];
        assert_eq!((found.status, error["param"].as_str()), (400, Some(param)), "{extra}: {}", found.text);
    }
}

#[test]
fn a_stream_whose_client_goes_frees_its_work() {
    let served = Served::start(|folder| {
        let mount = AskOptions { generator: Some(fixture("llama")), ..documents(folder) };
        // Requests are in the queue for a known time.
        let limits = Limits { window: Duration::from_millis(500), ..Limits::default() };
        ServerOptions { mounts: vec![mount], limits, ..ServerOptions::new() }
    });
    let body = json!({ "prompt": "the king", "stream": true, "sporran": { "retrieve": false } }).to_string();
    let mut stream = served.begin("POST", "/v1/completions", &[("content-type", "application/json")], &body);
    // The head of the response is there, and the first token is not.
    stream.read_exact(&mut [0; 12]).unwrap();
    drop(stream);
    let end = Instant::now() + Duration::from_secs(20);
    while served.metric(r#"sporran_cancelled_total{worker="generate pages.jsonl"}"#) < 1.0 {
        assert!(Instant::now() < end, "{}", served.get("/metrics").text);
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(served.metric(r#"sporran_tokens_total{worker="generate pages.jsonl"}"#), 0.0);
}

#[test]
fn a_stream_that_takes_too_long_ends() {
    let served = Served::start(|folder| {
        let mount = AskOptions { generator: Some(fixture("llama")), ..documents(folder) };
        let (window, stream_time) = (Duration::from_secs(2), Duration::from_millis(100));
        let limits = Limits { window, stream_time, ..Limits::default() };
        ServerOptions { mounts: vec![mount], limits, ..ServerOptions::new() }
    });
    let request = json!({ "prompt": "the king", "stream": true, "sporran": { "retrieve": false } });
    let (events, is_done) = served.post("/v1/completions", &request).events();
    assert_eq!((events.len(), is_done), (1, true), "{events:?}");
    assert_eq!(events[0]["error"]["message"], "the stream took longer than 0.1 s");
}

#[test]
fn a_model_alone_is_served_by_its_name() {
    let served = Served::start(|folder| {
        let mount = AskOptions::new(Vec::new(), folder.join("cache"));
        let mount = AskOptions { generator: Some(fixture("llama")), max_new_tokens: 6, ..mount };
        ServerOptions { mounts: vec![mount], ..ServerOptions::new() }
    });
    assert_eq!(served.get("/v1/models").json()["data"][0]["id"], "llama");
    let request =
        json!({ "model": "llama", "prompt": "the king was born", "temperature": 0, "max_tokens": 5 });
    let found = served.post("/v1/completions", &request).json();
    let mut bare = request.clone();
    bare["sporran"] = json!({ "retrieve": false });
    bare["model"] = json!("pages.jsonl");
    let expected = with_llama().post("/v1/completions", &bare).json();
    assert_eq!(found["choices"][0]["text"], expected["choices"][0]["text"], "{found}");
    assert_eq!(found["choices"][0]["citations"], Value::Null);
}
