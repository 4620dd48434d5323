//! Task files of all eleven datasets load and round trip as equal JSON values.
//!
//! With `SPORRAN_DATA` set to a folder of the published files, those; otherwise a record in the shape of each.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use sporran_kilt::{
    Dataset, Query, Record, Split,
    formats::convert::{Format, Request, convert},
    jsonl,
};

/// A record in the shape that each dataset's dev file has.
const SHAPES: [(Dataset, &str); 11] = [
    (
        Dataset::Fever,
        r#"{"id": "137334", "input": "A claim.", "output": [{"answer": "SUPPORTS", "provenance": [{"wikipedia_id": "1", "title": "T (film)", "start_paragraph_id": 1, "start_character": 0, "end_paragraph_id": 1, "end_character": 153, "bleu_score": 0.8482942955247808, "section": "Section::::Abstract."}]}]}"#,
    ),
    (
        Dataset::AidaYago2,
        r#"{"id": "9636_947testa CRICKET:0", "input": "a [START_ENT] b [END_ENT] c", "output": [{"answer": "B", "provenance": [{"wikipedia_id": "1", "title": "B"}]}], "meta": {"left_context": "a", "mention": "b", "right_context": "c"}}"#,
    ),
    (
        Dataset::Wned,
        r#"{"id": "x_B:0", "input": "[START_ENT] b [END_ENT]", "output": [{"answer": "B", "provenance": [{"wikipedia_id": "1", "title": "B"}]}], "meta": {"mention": "b"}}"#,
    ),
    (
        Dataset::Cweb,
        r#"{"id": "x_clueweb12-0501wb-06-2866:0", "input": "[START_ENT] b [END_ENT]", "output": [{"answer": "B", "provenance": [{"wikipedia_id": "1", "title": "B"}]}], "meta": {}}"#,
    ),
    (
        Dataset::Trex,
        r#"{"id": "9353", "input": "S [SEP] r", "output": [{"answer": "O", "provenance": [{"wikipedia_id": "1", "section": "Section::::Abstract.", "start_paragraph_id": "2", "start_character": null, "meta": {"evidence_span": []}}]}], "meta": {"sub_surface": ["S"], "rel_surface": ["r"]}}"#,
    ),
    (
        Dataset::StructuredZeroshot,
        r#"{"id": "a641", "input": "S [SEP] r", "output": [{"answer": "O"}], "meta": {"template_questions": ["What is S?"]}}"#,
    ),
    (
        Dataset::Nq,
        r#"{"id": "-4203908294749842710", "input": "who", "output": [{"answer": "a"}, {"provenance": [{"wikipedia_id": 1, "meta": {"yes_no_answer": "NONE", "annotation_id": 6.5}}]}, {"answer": null, "provenance": []}]}"#,
    ),
    (
        Dataset::HotpotQa,
        r#"{"id": "5a8b", "input": "which", "output": [{"answer": "a", "provenance": [{"wikipedia_id": "1"}, {"wikipedia_id": "2"}]}], "meta": {"type": "bridge"}}"#,
    ),
    (
        Dataset::TriviaQa,
        r#"{"id": "sfq_17752", "output": [{"answer": "Jim Laker"}, {"answer": "jim laker"}]}"#,
    ),
    (
        Dataset::Eli5,
        r#"{"id": "1kiwfx", "input": "why\nso", "output": [{"answer": "Because … 👍", "meta": {"score": 3}}], "meta": {"evidence": []}}"#,
    ),
    (
        Dataset::Wow,
        r#"{"id": "54b8_3", "input": "Hi\nHello\nDo you?", "output": [{"answer": "I do.", "provenance": [{"wikipedia_id": "1"}]}]}"#,
    ),
];

fn values(path: &Path) -> Vec<Value> {
    jsonl::open(path).unwrap().records().map(Result::unwrap).collect()
}

#[test]
fn task_files_load_and_round_trip() {
    let folder = tempfile::tempdir().unwrap();
    let source = std::env::var_os("SPORRAN_DATA").map(PathBuf::from);
    if source.is_none() {
        for (dataset, line) in SHAPES {
            fs::write(folder.path().join(dataset.file_name(Split::Dev)), format!("{line}\n")).unwrap();
        }
    }
    let source = source.unwrap_or_else(|| folder.path().to_owned());
    let mut files: Vec<PathBuf> = fs::read_dir(&source).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_string_lossy().contains("-kilt.jsonl"));
    files.sort();
    let mut datasets = Vec::new();
    for path in &files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let (dataset, split) = Dataset::from_file_name(name).expect(name);
        datasets.push(dataset);
        for line in jsonl::open(path).unwrap().lines() {
            let record: Record = serde_json::from_str(&line.unwrap().1).expect(name);
            assert_eq!(
                Query::from_record(&record, Some(dataset)).is_ok(),
                dataset != Dataset::TriviaQa,
                "{name}"
            );
            assert!(split == Split::Test || !record.outputs().is_empty(), "{name}");
        }
        let output = folder.path().join("out.jsonl.gz");
        let request = Request {
            from: Format::Kilt,
            to: Format::Kilt,
            inputs: vec![path.clone()],
            output: output.clone(),
            store: None,
            run: None,
            mapping: None,
            triviaqa: Vec::new(),
        };
        let done = convert(&request).unwrap();
        let original = values(path);
        assert_eq!((values(&output), done.written), (original.clone(), original.len() as u64), "{name}");
    }
    datasets.dedup();
    assert_eq!(datasets.len(), 11, "{files:?}");
}
