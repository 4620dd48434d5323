//! Conversions between the files of KILT, DPR, FiD, BEIR, Anserini and TREC, on a world of three pages.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use sporran_kilt::{
    Error, PassageSplit, PassageStore,
    formats::convert::{Format, Noun, Request, Summary, convert},
    jsonl,
    store::BuildOptions,
};
use tempfile::TempDir;

const PAGES: &str = r#"{"wikipedia_id":"12","wikipedia_title":"Loch Ness","text":["Loch Ness\n","Loch Ness is a lake in the Highlands.\n","Section::::Depth.\n","It is 230 m \"deep\" at most.\n"],"anchors":[]}
{"wikipedia_id":"7","wikipedia_title":"Ben Nevis","text":["Ben Nevis\n","Ben Nevis is a mountain in the Highlands.\n"],"anchors":[]}
{"wikipedia_id":"9","wikipedia_title":"Skye","text":["Skye\n","Skye is an island.\n"],"anchors":[]}
"#;

/// The second record's id has a blank, its input a line end; its evidence is a whole page.
const TASK: &str = r#"{"id":"q1","input":"How deep is Loch Ness?","output":[{"answer":"230 m","provenance":[{"wikipedia_id":"12","title":"Loch Ness","start_paragraph_id":3,"start_character":6,"end_paragraph_id":3,"end_character":11}]},{"answer":"230 m "}]}
{"id":"947 A:0","input":"Which mountain?\nBen N.","output":[{"answer":"Ben Nevis","provenance":[{"wikipedia_id":7,"title":"Ben Nevis"},{"wikipedia_id":"7","title":"Ben Nevis"}]}]}
"#;

/// By paragraph: 0 and 1 are of Loch Ness, 2 of Ben Nevis, 3 of Skye.
const RUN: &str = "q1 Q0 2 1 9.5 bm25\nq1 Q0 1 2 4.25 bm25\nq1 Q0 3 3 1 bm25\n947%20A:0 Q0 0 1 2 bm25\n";

struct World {
    folder: TempDir,
}

impl World {
    fn new() -> Self {
        let world = Self { folder: tempfile::tempdir().unwrap() };
        for (name, text) in [("pages.jsonl", PAGES), ("nq-dev-kilt.jsonl", TASK), ("found.trec", RUN)] {
            world.write(name, text);
        }
        let options = BuildOptions {
            source: world.path("pages.jsonl"),
            redirects: None,
            split: PassageSplit::Paragraph,
        };
        PassageStore::build(&options, world.path("store"), &mut |_| {}).unwrap();
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn request(&self, from: Format, to: Format, input: &str, output: &str) -> Request {
        Request {
            from,
            to,
            inputs: vec![self.path(input)],
            output: self.path(output),
            store: None,
            run: None,
            mapping: None,
            triviaqa: Vec::new(),
        }
    }

    fn text(&self, name: &str) -> String {
        jsonl::read_to_string(self.path(name)).unwrap()
    }

    fn values(&self, name: &str) -> Vec<Value> {
        self.text(name).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn convert(&self, from: Format, to: Format, input: &str, output: &str) -> Summary {
        convert(&self.request(from, to, input, output)).unwrap()
    }

    fn with_store(&self, from: Format, to: Format, input: &str, output: &str) -> Summary {
        let store = Some(self.path("store"));
        convert(&Request { store, ..self.request(from, to, input, output) }).unwrap()
    }

    fn examples(&self, to: Format, output: &str) -> Summary {
        let (store, run) = (Some(self.path("store")), Some(self.path("found.trec")));
        convert(&Request { store, run, ..self.request(Format::Kilt, to, "nq-dev-kilt.jsonl", output) })
            .unwrap()
    }
}

fn summary(noun: Noun, read: u64, written: u64, left_out: u64, unresolved: u64) -> Summary {
    Summary { noun, read, written, left_out, unresolved }
}

#[test]
fn a_corpus_survives_the_way_through_every_format() {
    let world = World::new();
    let ways = [
        (Format::Store, "store", Format::PsgsTsv, "psgs_w100.tsv.gz"),
        (Format::PsgsTsv, "psgs_w100.tsv.gz", Format::BeirCorpus, "corpus.jsonl"),
        (Format::BeirCorpus, "corpus.jsonl", Format::Anserini, "collection.jsonl.zst"),
        (Format::Anserini, "collection.jsonl.zst", Format::KnowledgeSource, "source.jsonl"),
        (Format::KnowledgeSource, "source.jsonl", Format::PsgsTsv, "again.tsv"),
    ];
    for (from, input, to, output) in ways {
        assert_eq!(world.convert(from, to, input, output), summary(Noun::Documents, 4, 4, 0, 0));
    }
    let expected = "id\ttext\ttitle\n\
        0\tLoch Ness is a lake in the Highlands.\tLoch Ness\n\
        1\t\"It is 230 m \"\"deep\"\" at most.\"\tLoch Ness\n\
        2\tBen Nevis is a mountain in the Highlands.\tBen Nevis\n\
        3\tSkye is an island.\tSkye\n";
    assert_eq!(world.text("psgs_w100.tsv.gz"), expected);
    assert_eq!(world.text("again.tsv"), expected);
    let page = &world.values("source.jsonl")[3];
    assert_eq!(
        page,
        &json!({"wikipedia_id": "3", "wikipedia_title": "Skye", "text": ["Skye", "Skye is an island."], "_id": "3", "anchors": [], "categories": ""})
    );
    assert_eq!(
        world.values("corpus.jsonl")[3],
        json!({"_id": "3", "title": "Skye", "text": "Skye is an island.", "metadata": {}})
    );
    // The pages that came out can be indexed again.
    let options =
        BuildOptions { source: world.path("source.jsonl"), redirects: None, split: PassageSplit::Page };
    assert_eq!(PassageStore::build(&options, world.path("again"), &mut |_| {}).unwrap().len(), 4);
}

#[test]
fn metadata_survive_the_way_to_a_store_and_back() {
    let world = World::new();
    let fields = json!({"lang": "en", "tags": ["a", "b"], "file": "tea.md", "line": 12, "section": "Drinks"});
    let with = |first: Value| {
        let mut passage = first;
        passage.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        passage
    };
    let passage = with(json!({"id": "n1", "title": "Tea", "text": "It is hot."}));
    world.write("passages.jsonl", &passage.to_string());
    world.convert(Format::Passages, Format::KnowledgeSource, "passages.jsonl", "described.jsonl");
    assert_eq!(world.values("described.jsonl")[0]["metadata"], fields);
    let options =
        BuildOptions { source: world.path("described.jsonl"), redirects: None, split: PassageSplit::Page };
    PassageStore::build(&options, world.path("described"), &mut |_| {}).unwrap();
    world.convert(Format::Store, Format::Passages, "described", "back.jsonl");
    let expected = with(json!({"id": "0", "title": "Tea", "text": "It is hot."}));
    assert_eq!(world.values("back.jsonl"), [expected]);
    world.convert(Format::Store, Format::BeirCorpus, "described", "corpus.jsonl");
    assert_eq!(world.values("corpus.jsonl")[0]["metadata"], fields);
    world.convert(Format::BeirCorpus, Format::Passages, "corpus.jsonl", "again.jsonl");
    assert_eq!(world.values("again.jsonl"), world.values("back.jsonl"));
}

#[test]
fn pages_become_documents_of_their_own_ids() {
    let world = World::new();
    world.convert(Format::KnowledgeSource, Format::Anserini, "pages.jsonl", "a.jsonl");
    assert_eq!(
        world.values("a.jsonl")[0],
        json!({"id": "12", "contents": "Loch Ness\nLoch Ness is a lake in the Highlands. It is 230 m \"deep\" at most."})
    );
}

#[test]
fn a_task_becomes_queries_and_judgements() {
    let world = World::new();
    let task = "nq-dev-kilt.jsonl";
    assert_eq!(world.convert(Format::Kilt, Format::Beir, task, "beir"), summary(Noun::Tasks, 2, 2, 0, 0));
    assert_eq!(world.text("beir/qrels/dev.tsv"), "query-id\tcorpus-id\tscore\nq1\t12\t1\n947 A:0\t7\t1\n");
    assert_eq!(
        world.values("beir/queries.jsonl")[1],
        json!({"_id": "947 A:0", "text": "Which mountain?\nBen N.", "metadata": {}})
    );
    world.convert(Format::Kilt, Format::Topics, task, "topics.tsv");
    let topics = "q1\tHow deep is Loch Ness?\n947 A:0\tWhich mountain? Ben N.\n";
    assert_eq!(world.text("topics.tsv"), topics);
    world.convert(Format::BeirQueries, Format::Topics, "beir/queries.jsonl", "again.tsv");
    assert_eq!(world.text("again.tsv"), topics);
    world.convert(Format::Topics, Format::BeirQueries, "topics.tsv", "queries.jsonl");
    assert_eq!(world.values("queries.jsonl")[0], world.values("beir/queries.jsonl")[0]);
    assert_eq!(
        world.convert(Format::Kilt, Format::Qrels, task, "qrels.txt"),
        summary(Noun::Judgements, 2, 2, 0, 0)
    );
    assert_eq!(world.text("qrels.txt"), "q1 0 12 1\n947%20A:0 0 7 1\n");
    world.convert(Format::Qrels, Format::BeirQrels, "qrels.txt", "qrels.tsv");
    assert_eq!(world.text("qrels.tsv"), world.text("beir/qrels/dev.tsv"));
    world.convert(Format::BeirQrels, Format::Qrels, "qrels.tsv", "again.txt");
    assert_eq!(world.text("again.txt"), world.text("qrels.txt"));
}

#[test]
fn a_repeated_query_is_an_error_that_names_its_line() {
    let world = World::new();
    world.write(
        "q.jsonl",
        "{\"_id\":\"a\",\"text\":\"x\"}\n{\"_id\":\"b\",\"text\":\"y\"}\n{\"_id\":\"a\",\"text\":\"z\"}\n",
    );
    world.write("q.tsv", "b\ty\na\tx\n a\tz\n");
    world.write(
        "fid.json",
        r#"[{"id":"a","question":"x","ctxs":[]},
        {"id":"b","question":"x","ctxs":[]},{"id":"a","question":"y","ctxs":[]}]"#,
    );
    let task = r#"{"id":"a","input":"x","output":[{"answer":"","provenance":[{"wikipedia_id":"7"}]}]}"#;
    world.write("t.jsonl", &format!("{task}\n{task}\n"));
    for (from, input, to, line, first) in [
        (Format::BeirQueries, "q.jsonl", Format::Topics, 3, 1),
        (Format::Topics, "q.tsv", Format::BeirQueries, 3, 2),
        (Format::Fid, "fid.json", Format::Topics, 2, 1),
        (Format::Fid, "fid.json", Format::Run, 2, 1),
        (Format::Predictions, "t.jsonl", Format::Run, 2, 1),
        (Format::Kilt, "t.jsonl", Format::Topics, 2, 1),
        (Format::Kilt, "t.jsonl", Format::Qrels, 2, 1),
        (Format::Kilt, "t.jsonl", Format::Beir, 2, 1),
        (Format::Kilt, "t.jsonl", Format::Kilt, 2, 1),
    ] {
        let output = if to == Format::Beir { "folder" } else { "out" };
        let error = convert(&world.request(from, to, input, output)).unwrap_err();
        let field = if from == Format::BeirQueries { "_id" } else { "id" };
        let expected = format!("{input}:{line}: field `{field}`: `a` stands on line {first} already");
        assert!(error.is_input() && error.to_string().contains(&expected), "{from} to {to}: {error}");
    }
    // The id is in another file.
    world.write("u.jsonl", &format!("{}\n{task}\n", task.replace("\"a\"", "\"b\"")));
    let inputs = vec![world.path("u.jsonl"), world.path("t.jsonl")];
    let request = Request { inputs, ..world.request(Format::Kilt, Format::Topics, "t.jsonl", "out") };
    let message = convert(&request).unwrap_err().to_string();
    assert!(
        message.contains("t.jsonl:1: field `id`: `a` stands on line 2 of ") && message.contains("u.jsonl"),
        "{message}"
    );
    assert!(!world.path("out").exists());
}

#[test]
fn a_repeated_judgement_is_left_out_and_a_contradiction_is_an_error() {
    let world = World::new();
    world.write("q.txt", "q 0 a 1\nq 0 b 0\nq 0 a 1\n");
    let done = world.convert(Format::Qrels, Format::BeirQrels, "q.txt", "q.tsv");
    assert_eq!(done, summary(Noun::Judgements, 3, 2, 1, 0));
    assert_eq!(world.text("q.tsv"), "query-id\tcorpus-id\tscore\nq\ta\t1\nq\tb\t0\n");
    world.write("q.txt", "q 0 a 1\nq 0 b 0\nq 0 a 2\n");
    let error = convert(&world.request(Format::Qrels, Format::BeirQrels, "q.txt", "out")).unwrap_err();
    let expected =
        "q.txt:3: field `document`: expected one judgement of `a` for `q`, found 1 on line 1 and 2";
    assert!(error.is_input() && error.to_string().contains(expected), "{error}");
}

#[test]
fn a_corpus_without_titles_has_the_same_text_in_every_format() {
    let world = World::new();
    world.write(
        "p.jsonl",
        "{\"id\":\"d77\",\"text\":\"quick fox\"}\n{\"id\":\"d78\",\"title\":\"\",\"text\":\"lazy cat\"}\n",
    );
    for (from, input, to, output) in [
        (Format::Passages, "p.jsonl", Format::PsgsTsv, "p.tsv"),
        (Format::PsgsTsv, "p.tsv", Format::BeirCorpus, "corpus.jsonl"),
        (Format::BeirCorpus, "corpus.jsonl", Format::Passages, "p2.jsonl"),
        (Format::Passages, "p2.jsonl", Format::Anserini, "a.jsonl"),
        (Format::Anserini, "a.jsonl", Format::KnowledgeSource, "k.jsonl"),
        (Format::KnowledgeSource, "k.jsonl", Format::Passages, "again.jsonl"),
    ] {
        assert_eq!(world.convert(from, to, input, output), summary(Noun::Documents, 2, 2, 0, 0));
    }
    assert_eq!(world.text("p.tsv"), "id\ttext\ttitle\nd77\tquick fox\t\nd78\tlazy cat\t\n");
    assert_eq!(world.values("k.jsonl")[0]["text"], json!(["", "quick fox"]));
    let expected = "{\"id\":\"d77\",\"text\":\"quick fox\"}\n{\"id\":\"d78\",\"text\":\"lazy cat\"}\n";
    assert_eq!((world.text("p2.jsonl").as_str(), world.text("again.jsonl").as_str()), (expected, expected));
}

#[test]
fn a_run_of_passages_becomes_predictions_with_their_place() {
    let world = World::new();
    let done = world.with_store(Format::Run, Format::Predictions, "found.trec", "p.jsonl");
    assert_eq!(done, summary(Noun::Rankings, 2, 2, 0, 0));
    let lines = world.values("p.jsonl");
    assert_eq!(lines[1]["id"], "947 A:0");
    assert_eq!(
        lines[0]["output"][0]["provenance"][1],
        json!({"wikipedia_id": "12", "title": "Loch Ness", "section": "Section::::Depth.", "start_paragraph_id": 3, "start_character": 0,
            "end_paragraph_id": 3, "end_character": 27, "text": "It is 230 m \"deep\" at most.", "score": 4.25})
    );
    // Back to a run, of pages now.
    world.convert(Format::Predictions, Format::Run, "p.jsonl", "pages.trec");
    let expected =
        "q1 Q0 7 1 9.5 sporran\nq1 Q0 12 2 4.25 sporran\nq1 Q0 9 3 1 sporran\n947%20A:0 Q0 12 1 2 sporran\n";
    assert_eq!(world.text("pages.trec"), expected);
    // A run of pages needs no store.
    world.convert(Format::Run, Format::Predictions, "pages.trec", "pages.jsonl");
    assert_eq!(
        world.values("pages.jsonl")[0]["output"][0]["provenance"][0],
        json!({"wikipedia_id": "7", "score": 9.5})
    );
}

#[test]
fn a_run_shows_the_order_of_the_evidence_and_a_page_once() {
    let world = World::new();
    // The scores disagree with the order (a reranker's work), page 2 stands twice, one item has no page.
    world.write(
        "p.jsonl",
        r#"{"id":1,"output":[{"answer":"a","provenance":[{"wikipedia_id":"2","score":1.0},{"title":"T"},{"wikipedia_id":" 2 ","score":3.0},{"wikipedia_id":4,"score":2.0}]}]}"#,
    );
    let done = world.convert(Format::Predictions, Format::Run, "p.jsonl", "r.trec");
    assert_eq!(done, summary(Noun::Rankings, 1, 1, 1, 1));
    assert_eq!(world.text("r.trec"), "1 Q0 2 1 1 sporran\n1 Q0 4 2 0.5 sporran\n");
}

#[test]
fn a_mapping_leads_from_another_corpus_to_pages() {
    let world = World::new();
    world.write("r.trec", "q Q0 wiki:1 1 2 t\nq Q0 wiki:2 2 1 t\n");
    world.write("map.tsv", "wiki:1\t12\nLoch Ness\t12\n");
    let mapping = Some(world.path("map.tsv"));
    let request = world.request(Format::Run, Format::Predictions, "r.trec", "p.jsonl");
    let done = convert(&Request { mapping: mapping.clone(), ..request }).unwrap();
    assert_eq!(done, summary(Noun::Rankings, 1, 1, 0, 1));
    assert_eq!(
        world.values("p.jsonl")[0]["output"][0]["provenance"],
        json!([{"wikipedia_id": "12", "score": 2.0}])
    );
    world.write(
        "fid.json",
        r#"[{"id":"q","question":"deep?","answers":["230 m"],"ctxs":[{"id":"5","title":"Loch Ness","text":"x","score":"7.5","has_answer":false},{"id":"6","title":"Else","text":"y"}]}]"#,
    );
    let request = world.request(Format::Fid, Format::Predictions, "fid.json", "f.jsonl");
    assert_eq!(convert(&Request { mapping, ..request }).unwrap(), summary(Noun::Rankings, 1, 1, 0, 1));
    // Gold answers of the results never become a prediction's answer.
    let expected = json!({"id": "q", "input": "deep?", "output": [{"answer": "", "provenance": [
        {"wikipedia_id": "12", "title": "Loch Ness", "text": "x", "score": 7.5}]}]});
    assert_eq!(world.values("f.jsonl"), [expected]);
}

#[test]
fn fid_examples_carry_gold_and_found_passages() {
    let world = World::new();
    assert_eq!(world.examples(Format::Fid, "fid.json"), summary(Noun::Examples, 2, 2, 0, 0));
    let examples: Value = jsonl::read_json(world.path("fid.json")).unwrap();
    let first = &examples[0];
    assert_eq!(
        (&first["id"], &first["question"], &first["answers"]),
        (&json!("q1"), &json!("How deep is Loch Ness?"), &json!(["230 m"]))
    );
    assert_eq!(
        first["ctxs"][1],
        json!({"title": "Loch Ness", "text": "It is 230 m \"deep\" at most.", "id": "1", "score": 4.25, "has_answer": true})
    );
    assert_eq!(first["ctxs"][0]["has_answer"], false);
    // Its passages are the store's own, so predictions made from it know their place.
    world.with_store(Format::Fid, Format::Predictions, "fid.json", "f.jsonl");
    world.with_store(Format::Run, Format::Predictions, "found.trec", "p.jsonl");
    let evidence = |name: &str| -> Vec<Value> {
        world.values(name).iter().map(|line| line["output"][0]["provenance"].clone()).collect()
    };
    assert_eq!(evidence("f.jsonl"), evidence("p.jsonl"));
    world.convert(Format::Fid, Format::Run, "fid.json", "r.trec");
    assert_eq!(world.text("r.trec"), RUN.replace("bm25", "sporran"));
    // Passages that questions share are one document.
    world.write("twice.jsonl", &format!("{first}\n{first}\n"));
    let done = world.convert(Format::Fid, Format::PsgsTsv, "twice.jsonl", "psgs.tsv");
    assert_eq!(done, summary(Noun::Documents, 6, 3, 3, 0));
}

#[test]
fn documents_with_the_same_id_are_an_error() {
    let world = World::new();
    let cases = [
        (Format::BeirCorpus, "{\"_id\":\"a\",\"text\":\"x\"}\n{\"_id\":\"a\",\"text\":\"y\"}\n", "_id"),
        (Format::Passages, "{\"id\":\"a\",\"text\":\"x\"}\n{\"id\":\"a\",\"text\":\"x\"}\n", "id"),
        (Format::Msmarco, "a\tx\na\ty\n", "id"),
    ];
    for (from, text, field) in cases {
        world.write("twice", text);
        let error = convert(&world.request(from, Format::Anserini, "twice", "out.jsonl")).unwrap_err();
        let expected = format!("twice:2: field `{field}`: expected each id once, found `a` again");
        assert!(error.to_string().ends_with(&expected), "{error}");
        assert!(!world.path("out.jsonl").exists());
    }
}

#[test]
fn a_document_without_an_id_is_an_error() {
    let world = World::new();
    world.write("blank", "{\"_id\":\" \",\"text\":\"x\"}\n");
    let error =
        convert(&world.request(Format::BeirCorpus, Format::Anserini, "blank", "out.jsonl")).unwrap_err();
    assert!(
        error.to_string().ends_with("blank:1: field `_id`: expected an id, found an empty one"),
        "{error}"
    );
    assert!(!world.path("out.jsonl").exists());
}

#[test]
fn training_data_has_gold_passages_and_hard_negatives() {
    let world = World::new();
    assert_eq!(world.examples(Format::DprTraining, "train.json"), summary(Noun::Examples, 2, 2, 0, 0));
    let examples: Value = jsonl::read_json(world.path("train.json")).unwrap();
    let ids = |example: usize, list: &str| -> Vec<String> {
        let contexts = examples[example][list].as_array().unwrap();
        contexts.iter().map(|context| context["passage_id"].as_str().unwrap().to_owned()).collect()
    };
    // Gold of q1 is characters 6..11 of paragraph 3 of Loch Ness: passage 1. The found 2 and 3 are of other pages.
    assert_eq!(ids(0, "positive_ctxs"), ["1"]);
    assert_eq!(ids(0, "hard_negative_ctxs"), ["2", "3"]);
    assert_eq!(examples[0]["positive_ctxs"][0]["score"], 4.25);
    assert_eq!((&examples[0]["dataset"], &examples[0]["negative_ctxs"]), (&json!("nq"), &json!([])));
    // A whole page as gold stands for its first passage.
    assert_eq!(ids(1, "positive_ctxs"), ["2"]);
    let done = world.convert(Format::DprTraining, Format::BeirCorpus, "train.json", "corpus.jsonl");
    assert_eq!(done, summary(Noun::Documents, 5, 4, 1, 0));
}

#[test]
fn questions_without_a_positive_passage_are_left_out_and_missing_rankings_counted() {
    let world = World::new();
    let more = r#"{"id":"q3","input":"No gold page?","output":[{"answer":"a","provenance":[{"wikipedia_id":"404"}]}]}"#;
    world.write("nq-dev-kilt.jsonl", &format!("{TASK}{more}\n"));
    assert_eq!(world.examples(Format::DprTraining, "t.json"), summary(Noun::Examples, 3, 2, 1, 1));
    assert_eq!(world.examples(Format::Fid, "f.jsonl"), summary(Noun::Examples, 3, 3, 0, 1));
    assert_eq!(world.values("f.jsonl")[2]["ctxs"], json!([]));
}

#[test]
fn triviaqa_gets_its_questions() {
    let world = World::new();
    world.write("triviaqa-dev_id-kilt.jsonl", "{\"id\":\"tc_1\",\"output\":[{\"answer\":\"a\"}]}\n");
    world.write("wikipedia-dev.json", r#"{"Data":[{"QuestionId":"tc_1","Question":"Who?"}]}"#);
    let request = world.request(Format::Kilt, Format::Topics, "triviaqa-dev_id-kilt.jsonl", "t.tsv");
    let message = convert(&request).unwrap_err().to_string();
    assert!(message.contains(":1: field `input`: ") && message.contains("--triviaqa"), "{message}");
    let request =
        world.request(Format::Kilt, Format::Kilt, "triviaqa-dev_id-kilt.jsonl", "triviaqa-dev-kilt.jsonl");
    convert(&Request { triviaqa: vec![world.path("wikipedia-dev.json")], ..request }).unwrap();
    world.convert(Format::Kilt, Format::Topics, "triviaqa-dev-kilt.jsonl", "t.tsv");
    assert_eq!(world.text("t.tsv"), "tc_1\tWho?\n");
}

#[test]
fn an_invalid_input_names_its_position_and_leaves_no_files() {
    let world = World::new();
    world.write("wrong.trec", "q1 Q0 2 1 9.5 t\nq1 Q0 4 2 1 t\n");
    world.write("other.trec", "elsewhere Q0 2 1 9.5 t\n");
    world.write("two.jsonl", "{\"id\":1,\"output\":[{\"answer\":\"a\"},{\"answer\":\"b\"}]}\n");
    world.write("no-passage.json", r#"[{"id":1,"question":"q","ctxs":[{"title":"T","text":"x"}]}]"#);
    world.write(
        "no-passage-id.json",
        r#"[{"question":"q","answers":[],"positive_ctxs":[{"title":"T","text":"x"}]}]"#,
    );
    world.write("tab.jsonl", "{\"_id\":\"a\\tb\",\"text\":\"q\"}\n");
    world.write("empty.jsonl", "\n");
    let (store, run) = (Some(world.path("store")), |name: &str| Some(world.path(name)));
    let plain = |from, to, input: &str| world.request(from, to, input, "out");
    let task = || plain(Format::Kilt, Format::Fid, "nq-dev-kilt.jsonl");
    let cases: [(Request, &str); 9] = [
        (
            Request { store: store.clone(), ..plain(Format::Run, Format::Predictions, "wrong.trec") },
            "wrong.trec:2: field `document`: expected a passage of the store, `page#place` or a number below 4, found `4`",
        ),
        (
            Request { store: store.clone(), run: run("wrong.trec"), ..task() },
            "wrong.trec:2: field `document`: expected a passage of the store",
        ),
        (
            Request { store: store.clone(), run: run("other.trec"), ..task() },
            "nq-dev-kilt.jsonl:1: field `id`: no record has a ranking in ",
        ),
        (
            plain(Format::Predictions, Format::Run, "two.jsonl"),
            "two.jsonl:1: field `output`: expected exactly one output, found 2",
        ),
        (
            plain(Format::Fid, Format::Run, "no-passage.json"),
            "no-passage.json:1: field `ctxs[0].id`: expected the passage's id",
        ),
        (
            plain(Format::Fid, Format::PsgsTsv, "no-passage.json"),
            "no-passage.json:1: field `ctxs[0].id`: expected the passage's id",
        ),
        (
            plain(Format::DprTraining, Format::PsgsTsv, "no-passage-id.json"),
            "no-passage-id.json:1: field `positive_ctxs[0].passage_id`: expected the passage's id",
        ),
        (
            plain(Format::BeirQueries, Format::Topics, "tab.jsonl"),
            "tab.jsonl:1: field `id`: expected an id without tab",
        ),
        (
            plain(Format::KnowledgeSource, Format::PsgsTsv, "empty.jsonl"),
            "expected at least one document, found none",
        ),
    ];
    for (request, expected) in cases {
        let error = convert(&request).unwrap_err();
        assert!(error.to_string().contains(expected), "{error} lacks {expected}");
        assert!(error.is_input());
        assert!(!world.path("out").exists(), "{expected}");
    }
    let missing = plain(Format::Run, Format::Predictions, "nowhere.trec");
    assert!(matches!(convert(&missing), Err(Error::Io { action: "open", .. })));
}

#[test]
fn a_folder_of_inputs_is_no_file() {
    let world = World::new();
    let folder: &Path = world.folder.path();
    for from in [Format::PsgsTsv, Format::Anserini, Format::BeirCorpus] {
        let mut request = world.request(from, Format::KnowledgeSource, "x", "out");
        request.inputs = vec![folder.to_owned()];
        let error = convert(&request).unwrap_err();
        assert!(error.is_input() && matches!(error, Error::Io { .. }), "{error}");
    }
}
