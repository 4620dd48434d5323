//! The scores of awkward files against the figures of `scripts/reference/scores.py`, record by record to 1e-9.

use std::path::PathBuf;

use serde_json::Value;
use sporran_kilt::scores::{
    answer_set,
    extraction::{self, Method},
    kilt,
    ranking::{self, RELEVANT},
    retrieval, trec,
};

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/scores").join(name)
}

fn expected(part: &str) -> Value {
    let text = std::fs::read_to_string(data("expected.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()[part].clone()
}

/// Objects with the same keys and figures that agree to 1e-9.
#[track_caller]
fn assert_close(ours: &Value, theirs: &Value) {
    match (ours, theirs) {
        (Value::Object(left), Value::Object(right)) => {
            let keys = |map: &serde_json::Map<String, Value>| {
                let mut keys: Vec<String> = map.keys().cloned().collect();
                keys.sort();
                keys
            };
            assert_eq!(keys(left), keys(right));
            for (key, value) in left {
                assert_close(value, &right[key]);
            }
        }
        _ => {
            let (ours, theirs) = (ours.as_f64().unwrap(), theirs.as_f64().unwrap());
            assert!((ours - theirs).abs() < 1e-9, "{ours} is not {theirs}");
        }
    }
}

fn json(report: &impl serde::Serialize) -> Value {
    serde_json::to_value(report).unwrap()
}

#[test]
fn answers_agree_with_the_definitions_and_with_rouge() {
    let expected = expected("kilt");
    let evaluation = kilt::evaluate(data("gold.jsonl"), data("guess.jsonl")).unwrap();
    assert_close(&json(&evaluation.report), &expected["report"]);
    let mut unknown = evaluation.unknown.clone();
    unknown.sort();
    assert_eq!(unknown, ["-5", "nobody"]);
    for (column, name) in expected["names"].as_array().unwrap().iter().enumerate() {
        let ours = evaluation.records.column(name.as_str().unwrap()).unwrap();
        for (row, (id, figure)) in evaluation.records.ids().iter().zip(ours).enumerate() {
            let theirs = expected["rows"][row][column].as_f64().unwrap();
            assert!((figure - theirs).abs() < 1e-9, "{name} of {id}: {figure} is not {theirs}");
        }
    }
}

#[test]
fn evidence_agrees_with_the_definitions_at_every_level_of_one_pass() {
    let expected = expected("kilt");
    let levels = expected["levels"].as_object().unwrap();
    let options = retrieval::Options {
        ks: vec![1, 3, 5, 10],
        rank_keys: levels.keys().map(|keys| keys.parse().unwrap()).collect(),
    };
    let evaluation = retrieval::evaluate(data("gold.jsonl"), data("guess_evidence.jsonl"), &options).unwrap();
    assert_eq!(evaluation.reports.len(), 4);
    for (report, records) in &evaluation.reports {
        let theirs = &levels[&report.rank_keys.to_string()];
        assert_close(&json(report), &theirs["report"]);
        let ours = records.column("Rprec").unwrap();
        for (figure, theirs) in ours.iter().zip(theirs["Rprec"].as_array().unwrap()) {
            assert!((figure - theirs.as_f64().unwrap()).abs() < 1e-9);
        }
    }
}

#[test]
fn rankings_agree_with_trec_eval() {
    let evaluation = ranking::evaluate(data("ranking.jsonl"), RELEVANT).unwrap();
    assert_close(&json(&evaluation.report), &expected("ranking"));
}

#[test]
fn facts_agree_with_the_definitions_for_every_method_and_fold() {
    for (name, theirs) in expected("knowledgenet").as_object().unwrap() {
        let (method, fold) = name.split_once(' ').unwrap();
        let fold = Some(fold.parse().unwrap()).filter(|&fold: &i64| fold > 0);
        let method: Method = method.parse().unwrap();
        let (gold, guess) = (data("knowledgenet_gold.jsonl"), data("knowledgenet_guess.jsonl"));
        assert_close(&json(&extraction::evaluate(gold, guess, method, fold).unwrap()), theirs);
    }
}

#[test]
fn answer_sets_agree_with_scipys_matching() {
    let expected = expected("answer_sets");
    let evaluation = answer_set::evaluate(data("answer_sets.jsonl"), answer_set::words).unwrap();
    for ((id, ours), theirs) in evaluation.records.iter().zip(expected["rows"].as_array().unwrap()) {
        let (acc, f1) = (theirs[0].as_f64().unwrap(), theirs[1].as_f64().unwrap());
        assert!(
            (ours.p_acc - acc).abs() < 1e-9 && (ours.p_f1 - f1).abs() < 1e-9,
            "{id}: {ours:?} is not {theirs}"
        );
    }
    assert!((evaluation.report.p_acc - expected["p_acc"].as_f64().unwrap()).abs() < 1e-9);
    assert!((evaluation.report.p_f1 - expected["p_f1"].as_f64().unwrap()).abs() < 1e-9);
}

#[test]
fn runs_are_scored_as_by_trec_eval() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/trec");
    let expected: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("expected.json")).unwrap()).unwrap();
    for (level, queries) in expected.as_object().unwrap() {
        let queries = queries.as_object().unwrap();
        let names: Vec<&String> = queries.values().next().unwrap().as_object().unwrap().keys().collect();
        let measures = names.iter().map(|name| name.parse().unwrap()).collect();
        let options = trec::Options::new(measures);
        let found = trec::evaluate(folder.join("qrels.txt"), folder.join("run.trec"), &options).unwrap();
        assert_eq!(found.queries.len(), queries.len(), "level {level}");
        for query in &found.queries {
            for (name, value) in names.iter().zip(&query.values) {
                let theirs = queries[&query.query][name.as_str()].as_f64().unwrap();
                assert!((value - theirs).abs() < 1e-9, "{}: {name}: {value} is not {theirs}", query.query);
            }
        }
    }
}
