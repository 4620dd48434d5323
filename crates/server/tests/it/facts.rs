//! Facts of texts, and triples of a knowledge base.

use std::{fs, path::Path};

use serde_json::{Value, json};
use sporran_pipeline::workflows::answer::AskOptions;
use sporran_server::ServerOptions;

use crate::common::Served;

const TEXT: &str = "Ada Lovelace was born in London. She married William King.";

/// A server of two configs: a fact extractor and a knowledge base with mined rules.
fn served() -> Served {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Served::start(|folder| {
        let root = root.display();
        let facts = format!(
            "workflow = \"population\"\nname = \"facts\"\n[relations]\nmodel = \"{root}/models/knowledgenet-linear\"\n\
             [triples.relations]\nPLACE_OF_BIRTH = \"P19\"\n"
        );
        let rules = format!(
            "workflow = \"rules\"\nname = \"minikilt\"\nkb = \"{root}/examples/minikilt/kb\"\n\
             model = \"{root}/models/minikilt-kb/rules.tsv.gz\"\n[rules]\n"
        );
        let mount = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).unwrap();
            AskOptions::new(vec![path], folder.join("cache"))
        };
        let mounts = vec![mount("facts.toml", &facts), mount("rules.toml", &rules)];
        ServerOptions { mounts, ..ServerOptions::new() }
    })
}

fn slice(span: &Value) -> String {
    let place = |key: &str| span[key].as_u64().unwrap() as usize;
    TEXT.chars().skip(place("start")).take(place("end") - place("start")).collect()
}

#[test]
fn facts_and_triples_have_what_they_rest_on() {
    let served = served();
    let mounts = served.get("/v1/mounts").json();
    let abilities: Vec<&Value> =
        mounts["mounts"].as_array().unwrap().iter().map(|mount| &mount["abilities"]).collect();
    assert_eq!(abilities, [&json!(["facts"]), &json!(["complete"])]);

    let found = served.post("/v1/facts", &json!({ "texts": [TEXT, "Nothing."] })).json();
    assert_eq!((&found["mount"], found["results"].as_array().unwrap().len()), (&json!("facts"), 2));
    let facts = found["results"][0]["facts"].as_array().unwrap();
    let birth =
        facts.iter().find(|fact| fact["property"] == "PLACE_OF_BIRTH").unwrap_or_else(|| panic!("{facts:?}"));
    assert_eq!(birth["relation"], "P19");
    for end in ["subject", "object"] {
        assert_eq!(slice(&birth[end]["mention"]), birth[end]["mention"]["text"].as_str().unwrap());
    }
    assert_eq!(slice(&birth["sentence"]), "Ada Lovelace was born in London.");
    assert_eq!(found["results"][1]["facts"], json!([]));
    assert_eq!(served.post("/v1/facts", &json!({})).status, 400);
    // The config has no linker.
    let found = served.post("/v1/link", &json!({ "text": TEXT }));
    assert_eq!((found.status, found.json()["error"].as_str()), (404, Some("no linker is mounted")));

    let question = json!({ "relation": "P463", "object": "Q1065", "answers": 3, "chains": 1 });
    let found = served.post("/v1/kb/complete", &question).json();
    let answers = found["answers"].as_array().unwrap();
    assert!((1..=3).contains(&answers.len()), "{found}");
    for answer in answers {
        let chain = &answer["chains"][0];
        assert!(
            chain["rule"].as_str().unwrap().starts_with("P463(") && chain["weight"].as_f64().unwrap() > 0.0
        );
        assert!(answer["chains"].as_array().unwrap().len() == 1 && answer["label"].is_string());
    }
    for wrong in [
        json!({ "relation": "P463" }),
        json!({ "relation": "P463", "object": "nothing" }),
        json!({ "relation": "P463", "object": "Q1065", "answers": 0 }),
        json!({ "relation": "P463", "object": "Q1065", "mount": "facts" }),
    ] {
        let found = served.post("/v1/kb/complete", &wrong);
        assert!(found.status >= 400 && found.json()["error"].is_string(), "{wrong}: {}", found.text);
    }
}

/// A table of names.
const ENTITIES: &str = "id\tlabel\nQ1\tAda Lovelace\nQ2\tLondon\n";

#[test]
fn a_config_of_entity_linking_links_the_mentions_of_any_text() {
    let served = Served::start(|folder| {
        let names = folder.join("entities.tsv");
        fs::write(&names, ENTITIES).unwrap();
        let text = format!(
            "workflow = \"entity-linking\"\nname = \"linker\"\n[linking]\nfiles = [\"absent.jsonl\"]\n\
             [linker]\n[[linker.names]]\nfile = \"{}\"\nformat = \"table\"\n",
            names.display()
        );
        let path = folder.join("linking.toml");
        fs::write(&path, text).unwrap();
        ServerOptions {
            mounts: vec![AskOptions::new(vec![path], folder.join("cache"))],
            ..ServerOptions::new()
        }
    });
    let mounts = served.get("/v1/mounts").json();
    let mount = &mounts["mounts"][0];
    assert_eq!((&mount["kind"], &mount["abilities"]), (&json!("links"), &json!(["link"])));

    let found = served.post("/v1/link", &json!({ "texts": [TEXT, "Nothing."] })).json();
    assert_eq!((&found["mount"], found["results"].as_array().unwrap().len()), (&json!("linker"), 2));
    let linked: Vec<(String, &Value)> = found["results"][0]["mentions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|mention| mention["entity"].is_string())
        .map(|mention| (slice(&mention["mention"]), &mention["entity"]))
        .collect();
    assert_eq!(linked, [("Ada Lovelace".to_owned(), &json!("Q1")), ("London".to_owned(), &json!("Q2"))]);

    let found = served.post("/v1/facts", &json!({ "text": TEXT }));
    assert_eq!(
        (found.status, found.json()["error"].as_str()),
        (404, Some("no extractor of facts is mounted"))
    );
}
