//! Models that are served by themselves, in the forms of text-embeddings-inference, Jina and Cohere.

use std::thread;

use serde_json::{Value, json};
use sporran_reranker::{CrossEncoder, CrossEncoderOptions};
use sporran_retriever::dense::{BiEncoder, BiEncoderOptions, Encoder};
use sporran_server::ServerOptions;

use crate::common::{Served, fixture, models};

const TEXTS: [&str; 3] = ["who wrote the song", "the band wrote the song", "capital of the country"];

fn served() -> Served {
    Served::start(|_| ServerOptions { models: models(), ..ServerOptions::new() })
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect()
}

fn near(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-5, "{found} for {expected}");
    }
}

#[test]
fn vectors_are_those_of_the_library_alone_and_together() {
    let served = served();
    let encoder = BiEncoder::load(&BiEncoderOptions::new(fixture("encoders/sentence"))).unwrap();
    let expected = encoder.encode(&TEXTS).unwrap();
    let expected: Vec<&[f32]> = expected.rows().collect();
    let found = served.post("/embed", &json!({ "inputs": TEXTS, "normalize": false })).json();
    for (found, expected) in found.as_array().unwrap().iter().zip(&expected) {
        near(&floats(found), expected);
    }
    // Requests that share a batch.
    thread::scope(|scope| {
        for at in 0..12 {
            let (served, expected) = (&served, &expected);
            scope.spawn(move || {
                let found = served.post("/", &json!({ "inputs": TEXTS[at % 3] })).json();
                near(&floats(&found[0]), expected[at % 3]);
            });
        }
    });
    let two = floats(&served.post("/embed", &json!({ "inputs": TEXTS[0], "dimensions": 2 })).json()[0]);
    assert!((two.iter().map(|value| value * value).sum::<f32>() - 1.0).abs() < 1e-5 && two.len() == 2);
    let states = served.post("/embed_all", &json!({ "inputs": [TEXTS[0]] })).json();
    let tokens = served.post("/tokenize", &json!({ "inputs": TEXTS[0] })).json();
    assert_eq!(states[0].as_array().unwrap().len(), tokens[0].as_array().unwrap().len());
    for wrong in [
        json!({ "inputs": [] }),
        json!({ "inputs": 3 }),
        json!({ "inputs": "a", "dimensions": 100_000 }),
        json!({ "inputs": "a", "prompt_name": "nothing" }),
        json!({ "inputs": "a", "truncation_direction": "Left" }),
    ] {
        let found = served.post("/embed", &wrong);
        assert_eq!((found.status, found.json()["error_type"].as_str()), (422, Some("Validation")), "{wrong}");
    }
}

#[test]
fn wrong_fields_are_named() {
    let served = served();
    for (path, request, expected) in [
        ("/embed", json!({ "inputs": "a", "truncate": "x" }), "`truncate`: "),
        ("/embed", json!({}), "`inputs`: is missing"),
        ("/", json!({ "inputs": "a", "normalize": "x" }), "`normalize`: "),
        ("/", json!({ "inputs": { "source_sentence": "a" } }), "`inputs.sentences`: is missing"),
        ("/embed_all", json!({ "inputs": "a", "truncation_direction": "x" }), "`truncation_direction`: "),
        (
            "/rerank",
            json!({ "query": "a", "texts": ["b"], "truncate": false }),
            "`truncate`: expected `true`",
        ),
        (
            "/predict",
            json!({ "inputs": "a", "truncation_direction": "Left" }),
            "`truncation_direction`: expected",
        ),
        ("/tokenize", json!({ "inputs": "a", "prompt_name": "x" }), "prompt"),
    ] {
        let found = served.post(path, &request);
        let error = found.json()["error"].as_str().unwrap_or_default().to_owned();
        assert!(
            found.status == 422 && error.starts_with(expected) || error.contains(expected),
            "{path}: {}",
            found.text
        );
    }
    for (path, key, extra) in [
        ("/v1/rerank", "detail", json!({ "truncation": false })),
        ("/v1/rerank", "detail", json!({ "return_embeddings": true })),
        ("/v2/rerank", "message", json!({ "max_tokens_per_doc": 10 })),
    ] {
        let mut request = json!({ "query": "a", "documents": ["b"] });
        request.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let found = served.post(path, &request);
        let field = extra.as_object().unwrap().keys().next().unwrap();
        let message = found.json()[key].as_str().unwrap_or_default().to_owned();
        assert!(found.status == 400 && message.starts_with(&format!("`{field}`: ")), "{}", found.text);
    }
}

#[test]
fn a_long_text_is_cut_or_refused() {
    let served = served();
    let long = "song ".repeat(900);
    assert_eq!(served.post("/embed", &json!({ "inputs": long })).status, 200);
    let found = served.post("/embed", &json!({ "inputs": long, "truncate": false }));
    assert_eq!(found.status, 413);
    assert!(found.json()["error"].as_str().unwrap().contains("tokens in a text, found"), "{}", found.text);
}

#[test]
fn similarities_are_cosines() {
    let served = served();
    let inputs = json!({ "source_sentence": TEXTS[0], "sentences": [TEXTS[0], TEXTS[1]] });
    let found = floats(&served.post("/similarity", &json!({ "inputs": inputs })).json());
    assert!((found[0] - 1.0).abs() < 1e-5 && found[1] < 1.0);
    near(&floats(&served.post("/", &json!({ "inputs": inputs })).json()), &found);
}

#[test]
fn tokens_have_their_characters() {
    let served = served();
    let found = served.post("/tokenize", &json!({ "inputs": ["é song"] })).json();
    let tokens = found[0].as_array().unwrap();
    assert_eq!((&tokens[0]["special"], &tokens[0]["start"]), (&json!(true), &Value::Null));
    let last = &tokens[tokens.len() - 2];
    assert_eq!((&last["text"], &last["stop"]), (&json!("song"), &json!(6)));
    let bare = served.post("/tokenize", &json!({ "inputs": "é song", "add_special_tokens": false })).json();
    assert!(bare[0].as_array().unwrap().iter().all(|token| token["special"] == false));
}

#[test]
fn rankings_are_those_of_the_library_in_three_forms() {
    let served = served();
    let texts = ["river", "the band wrote the song", "the king"];
    let model = CrossEncoder::load(&CrossEncoderOptions::new(fixture("encoders/bert-sequence"))).unwrap();
    let pairs: Vec<(&str, &str)> = texts.iter().map(|text| (TEXTS[0], *text)).collect();
    let logits: Vec<f32> = model.logits(&pairs).unwrap().into_iter().map(|row| row[0]).collect();
    let mut order: Vec<usize> = (0..3).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    let places = |found: &Value| -> Vec<usize> {
        found.as_array().unwrap().iter().map(|rank| rank["index"].as_u64().unwrap() as usize).collect()
    };
    let request = json!({ "query": TEXTS[0], "texts": texts, "raw_scores": true, "return_text": true });
    let raw = served.post("/rerank", &request).json();
    assert_eq!(places(&raw), order);
    near(&[raw[0]["score"].as_f64().unwrap() as f32], &[logits[order[0]]]);
    assert_eq!(raw[0]["text"], texts[order[0]]);
    let found = served.post("/rerank", &json!({ "query": TEXTS[0], "texts": texts })).json();
    let sigmoid = 1.0 / (1.0 + (-logits[order[0]]).exp());
    near(&[found[0]["score"].as_f64().unwrap() as f32], &[sigmoid]);
    assert!(found[0].get("text").is_none());
    let documents = json!([texts[0], { "text": texts[1] }, texts[2]]);
    let request = json!({ "model": "any", "query": TEXTS[0], "documents": documents, "top_n": 2 });
    let jina = served.post("/v1/rerank", &request).json();
    assert_eq!(places(&jina["results"]), order[..2]);
    assert_eq!(jina["results"][0]["document"]["text"], texts[order[0]]);
    let cohere = served.post("/v2/rerank", &request).json();
    assert_eq!(places(&cohere["results"]), order[..2]);
    assert!(cohere["results"][0].get("document").is_none() && cohere["id"].is_string());
    near(&[cohere["results"][0]["relevance_score"].as_f64().unwrap() as f32], &[sigmoid]);
}

#[test]
fn labels_come_with_probabilities_best_first() {
    let served = served();
    let one = served.post("/predict", &json!({ "inputs": "who wrote the song" })).json();
    let scores: Vec<f32> =
        one.as_array().unwrap().iter().map(|label| label["score"].as_f64().unwrap() as f32).collect();
    assert!(scores.len() == 2 && scores[0] >= scores[1] && (scores[0] + scores[1] - 1.0).abs() < 1e-5);
    let pair = served.post("/predict", &json!({ "inputs": [TEXTS[0], TEXTS[1]] })).json();
    let many = served.post("/predict", &json!({ "inputs": [[TEXTS[0]], [TEXTS[0], TEXTS[1]]] })).json();
    assert_eq!((&many[0], &many[1]), (&one, &pair));
    assert_eq!(served.post("/predict", &json!({ "inputs": [["a", "b", "c"]] })).status, 422);
}

#[test]
fn a_model_that_is_not_served_is_named() {
    let served = Served::start(|_| {
        let models = sporran_server::ServedModels { reranker: models().reranker, ..Default::default() };
        ServerOptions { models, ..ServerOptions::new() }
    });
    let found = served.post("/embed", &json!({ "inputs": "a" }));
    assert_eq!(found.status, 404);
    assert!(found.json()["error"].as_str().unwrap().contains("without `--embed`"), "{}", found.text);
    let info = served.get("/info").json();
    assert_eq!(
        (&info["model_id"], &info["served_model_name"]),
        (&json!("bert-sequence"), &json!("bert-sequence"))
    );
}
