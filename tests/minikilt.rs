//! The bundled data: it can be made again byte for byte, and what its records say holds.

#[path = "../examples/make_minikilt/minikilt/mod.rs"]
mod minikilt;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use minikilt::facts::{Class, Facts, Pid, Qid};
use minikilt::wording::Wordings;
use minikilt::world::World;
use serde_json::Value;

/// The seed of the committed files, as the README's command has it.
const SEED: u64 = 1;

const EXTRACTIVE: [&str; 4] = ["nq", "trex", "structured_zeroshot", "triviaqa"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/minikilt")
}

fn text(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut text = String::new();
    if path.extension().is_some_and(|e| e == "gz") {
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).unwrap();
    } else {
        text = String::from_utf8(bytes).unwrap();
    }
    text
}

fn jsonl(path: &Path) -> Vec<Value> {
    text(path).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn files() -> BTreeMap<String, PathBuf> {
    fn walk(folder: &Path, root: &Path, found: &mut BTreeMap<String, PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, root, found);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
                found.insert(name, path);
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&root(), &root(), &mut found);
    found
}

/// Dataset, part and records of every task file that has answers.
fn answered() -> Vec<(String, String, Vec<Value>)> {
    let mut found = Vec::new();
    for (name, path) in files() {
        let Some(file) = name.strip_prefix("kilt/").or_else(|| name.strip_prefix("gold/")) else { continue };
        if file.contains("without_answers") || !file.contains("-kilt.jsonl") {
            continue;
        }
        let (stem, rest) = file.split_once('-').unwrap();
        let part = rest.split(['-', '_']).next().unwrap();
        found.push((stem.to_owned(), part.to_owned(), jsonl(&path)));
    }
    found
}

fn pages() -> BTreeMap<String, Value> {
    let all = jsonl(&root().join("knowledge_source.jsonl.gz"));
    let count = all.len();
    let by: BTreeMap<String, Value> =
        all.into_iter().map(|p| (p["wikipedia_id"].as_str().unwrap().to_owned(), p)).collect();
    assert_eq!(by.len(), count, "page ids repeat");
    by
}

fn slice(paragraph: &Value, start: &Value, end: &Value) -> String {
    let (start, end) = (start.as_u64().unwrap() as usize, end.as_u64().unwrap() as usize);
    paragraph.as_str().unwrap().chars().skip(start).take(end - start).collect()
}

/// Undoes percent-encoding.
fn unquoted(href: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), href.as_bytes());
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'%' {
            bytes.push(u8::from_str_radix(std::str::from_utf8(&tail[..2]).unwrap(), 16).unwrap());
            rest = &tail[2..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn spans(record: &Value) -> impl Iterator<Item = (&Value, &Value)> {
    let outputs = record["output"].as_array().unwrap().iter();
    outputs.flat_map(|o| o["provenance"].as_array().into_iter().flatten().map(move |p| (o, p)))
}

/// The content of a file. Libraries compress it to different bytes.
fn unpacked(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    if name.ends_with(".gz") {
        flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut content).unwrap();
    } else {
        content.extend(bytes);
    }
    content
}

#[test]
fn the_program_makes_the_committed_content_again() {
    let wordings = Wordings::bundled().unwrap();
    let facts = Facts::parse(&text(&root().join("facts.tsv"))).unwrap();
    let made = minikilt::make(&World::build(facts, wordings, SEED)).unwrap();
    let mut committed = files();
    committed.remove("README.md");
    committed.remove("LICENSE-CODEX");
    for file in made {
        let path = committed.remove(&file.name).unwrap_or_else(|| panic!("{} is not committed", file.name));
        let content = |bytes: &[u8]| unpacked(&file.name, bytes);
        let committed = fs::read(path).unwrap();
        assert!(
            content(&committed) == content(&file.bytes),
            "{} differs from what the program makes",
            file.name
        );
    }
    assert!(committed.is_empty(), "no program makes {:?}", committed.keys());
}

#[test]
fn another_seed_makes_another_world_of_the_same_facts() {
    let facts = Facts::parse(&text(&root().join("facts.tsv"))).unwrap();
    let made = minikilt::make(&World::build(facts, Wordings::bundled().unwrap(), SEED + 1)).unwrap();
    let same = |name: &str| {
        let made = &made.iter().find(|f| f.name == name).unwrap().bytes;
        unpacked(name, made) == unpacked(name, &fs::read(root().join(name)).unwrap())
    };
    assert!(same("facts.tsv") && same("kb/triples.tsv.gz"));
    assert!(!same("knowledge_source.jsonl.gz") && !same("kilt/nq-dev-kilt.jsonl"));
}

#[test]
fn it_stays_small() {
    let bytes: u64 = files().values().map(|p| fs::metadata(p).unwrap().len()).sum();
    assert!(bytes <= 6_000_000, "{bytes} bytes");
    assert!((1_500..=2_500).contains(&pages().len()));
}

#[test]
fn anchors_point_at_their_text_and_at_pages() {
    let pages = pages();
    let titles: BTreeSet<String> =
        pages.values().map(|p| p["wikipedia_title"].as_str().unwrap().to_owned()).collect();
    let mut seen = 0;
    for page in pages.values() {
        assert_eq!(page["text"][0], format!("{}\n", page["wikipedia_title"].as_str().unwrap()));
        for anchor in page["anchors"].as_array().unwrap() {
            let paragraph = &page["text"][anchor["paragraph_id"].as_u64().unwrap() as usize];
            assert_eq!(anchor["text"], slice(paragraph, &anchor["start"], &anchor["end"]));
            assert!(titles.contains(&unquoted(anchor["href"].as_str().unwrap())), "no page for {anchor}");
            seen += 1;
        }
    }
    assert!(seen > 10_000);
}

#[test]
fn provenance_points_at_whole_sentences_that_hold_the_answer() {
    let pages = pages();
    for (stem, part, records) in answered() {
        for record in &records {
            for (output, span) in spans(record) {
                let page = &pages[span["wikipedia_id"].as_str().unwrap()];
                assert_eq!(span["title"], page["wikipedia_title"], "{stem} {part} {}", record["id"]);
                let Some(paragraph) = span["start_paragraph_id"].as_u64() else { continue };
                assert_eq!(span["start_paragraph_id"], span["end_paragraph_id"]);
                let paragraph = &page["text"][paragraph as usize];
                let sentence = slice(paragraph, &span["start_character"], &span["end_character"]);
                assert!(sentence.ends_with('.') && !sentence.starts_with(' '), "{sentence:?}");
                if EXTRACTIVE.contains(&stem.as_str()) {
                    let answer = output["answer"].as_str().unwrap();
                    assert!(sentence.contains(answer), "{stem} {part}: {answer:?} is not in {sentence:?}");
                }
            }
        }
    }
}

#[test]
fn evidence_of_dev_and_test_is_no_evidence_of_train() {
    let mut by: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (_, part, records) in answered() {
        let of = by.entry(part).or_default();
        for (_, span) in records.iter().flat_map(spans).filter(|(_, s)| s["start_character"].is_u64()) {
            let key = [&span["wikipedia_id"], &span["start_paragraph_id"], &span["start_character"]];
            of.insert(key.map(Value::to_string).join(" "));
        }
    }
    for (a, b) in [("train", "dev"), ("train", "test"), ("dev", "test")] {
        assert!(by[a].len() > 100 && by[b].len() > 100);
        assert_eq!(by[a].intersection(&by[b]).count(), 0, "{a} and {b} share evidence");
    }
}

#[test]
fn ids_are_unique_and_test_files_match_their_gold() {
    let files = files();
    let mut seen = BTreeSet::new();
    for (stem, part, records) in answered() {
        assert!(records.len() >= 100, "{stem} {part} has {}", records.len());
        for record in &records {
            assert!(seen.insert((stem.clone(), record["id"].to_string())), "{stem} {} repeats", record["id"]);
            assert_eq!(record.get("input").is_none(), stem == "triviaqa");
        }
        if part == "test" {
            let tag = if stem == "triviaqa" { "_id" } else { "" };
            let blind = jsonl(&files[&format!("kilt/{stem}-test{tag}_without_answers-kilt.jsonl")]);
            assert_eq!(blind.len(), records.len());
            for (blind, gold) in blind.iter().zip(&records) {
                assert!(blind["id"] == gold["id"] && blind["input"] == gold["input"]);
                assert!(blind.get("output").is_none() && blind["meta"].get("obj_surface").is_none());
            }
        }
    }
}

#[test]
fn every_trivia_question_is_in_the_original_file() {
    let mut questions = BTreeMap::new();
    for (_, path) in files().into_iter().filter(|(name, _)| name.starts_with("triviaqa/")) {
        let original: Value = serde_json::from_str(&text(&path)).unwrap();
        for entry in original["Data"].as_array().unwrap() {
            questions.insert(entry["QuestionId"].to_string(), entry["Question"].as_str().unwrap().to_owned());
        }
    }
    for (_, _, records) in answered().into_iter().filter(|(stem, ..)| stem == "triviaqa") {
        for record in records {
            assert!(!questions[&record["id"].to_string()].is_empty());
        }
    }
}

#[test]
fn fever_is_balanced_and_hotpot_needs_two_pages() {
    for (stem, part, records) in answered() {
        match stem.as_str() {
            "fever" => {
                let supports = records.iter().filter(|r| r["output"][0]["answer"] == "SUPPORTS").count();
                let share = supports as f64 / records.len() as f64;
                assert!((0.45..=0.55).contains(&share), "{part}: {share}");
            }
            "hotpotqa" => {
                for record in &records {
                    let pages: BTreeSet<String> =
                        spans(record).map(|(_, s)| s["wikipedia_id"].to_string()).collect();
                    assert_eq!(pages.len(), 2, "{part} {}", record["id"]);
                }
            }
            _ => {}
        }
    }
}

#[test]
fn zero_shot_dev_and_test_ask_for_relations_that_its_train_part_lacks() {
    let mut relations: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (_, part, records) in answered().into_iter().filter(|(stem, ..)| stem == "structured_zeroshot") {
        for record in records {
            let (_, relation) = record["input"].as_str().unwrap().split_once(" [SEP] ").unwrap();
            relations.entry(part.clone()).or_default().insert(relation.to_owned());
            assert!(!record["meta"]["template_questions"].as_array().unwrap().is_empty());
        }
    }
    assert!(
        relations["train"].is_disjoint(&relations["dev"])
            && relations["train"].is_disjoint(&relations["test"])
    );
}

#[test]
fn knowledgenet_offsets_hold_in_code_points() {
    for name in ["knowledgenet/train.json", "gold/knowledgenet-test.json"] {
        let mut facts = 0;
        for document in jsonl(&root().join(name)) {
            let whole = &document["documentText"];
            for passage in document["passages"].as_array().unwrap() {
                assert_eq!(
                    passage["passageText"],
                    slice(whole, &passage["passageStart"], &passage["passageEnd"])
                );
                for fact in passage["facts"].as_array().unwrap() {
                    assert_eq!(fact["subjectText"], slice(whole, &fact["subjectStart"], &fact["subjectEnd"]));
                    assert_eq!(fact["objectText"], slice(whole, &fact["objectStart"], &fact["objectEnd"]));
                    facts += 1;
                }
            }
        }
        assert!(facts > 30, "{name}: {facts}");
    }
}

#[test]
fn an_extract_keeps_facts_labels_and_types_and_no_text() {
    let folder = std::env::temp_dir().join(format!("sporran-minikilt-{}", std::process::id()));
    fs::create_dir_all(folder.join("codex-s")).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    write(
        "codex-s/entity_text.tsv",
        "id\tqid\tname\tent_type\tdescription\textract\n\
         0\tQ1\tAda\thuman\ta secret\ta long text\n\
         1\tQ2\tLyon\tcity\tcity\ttext\n\
         2\tQ3\t\"\"\"U, V\"\"\"\tuniversity\td\tt\n",
    );
    write("codex-s/train.txt", "Q1\tP19\tQ2\nQ1\tP106\tQ3\n");
    write("codex-s/valid.txt", "Q1\tP69\tQ3\n");
    // P1050 (medical condition) has no wording, so it is left out.
    write("codex-s/test.txt", "Q1\tP1050\tQ3\n");
    write(
        "relations.json",
        r#"{"P19": {"label": "place of birth"}, "P69": {"label": "educated at"}, "P106": {"label": "occupation"}}"#,
    );
    write("wikidata_properties.json", r#"[{"id": "P19", "aliases": ["born in", "birthplace"]}]"#);
    write("entity2types.json", r#"{"Q3": ["Q9"]}"#);
    write("types.json", r#"{"Q9": {"label": "school"}}"#);
    let facts = Facts::extract(&folder, &Wordings::bundled().unwrap());
    fs::remove_dir_all(&folder).unwrap();
    let facts = facts.unwrap();
    let tsv = facts.to_tsv();
    assert!(!tsv.contains("secret") && !tsv.contains("text"));
    assert_eq!(facts.entities[&Qid(3)].label, "U, V");
    assert_eq!(facts.entities[&Qid(3)].over, ["school"]);
    assert_eq!(facts.relations[&Pid(19)].aliases, ["born in", "birthplace"]);
    assert_eq!(facts.statements.len(), 3);
    assert_eq!(facts.class(Qid(1)), Class::Person);
    assert_eq!(Facts::parse(&tsv).unwrap().to_tsv(), tsv);
}

#[test]
fn wrong_facts_and_wordings_say_where() {
    let error = Facts::parse("E\tQ1\tAda\thuman\nX\tQ1\n").unwrap_err().to_string();
    assert!(error.contains("line 2"), "{error}");
    let error = Facts::parse("R\tP19\tborn\t\nE\tQ1\tAda\thuman\nF\tQ1\tP19\tQ7\n").unwrap_err().to_string();
    assert!(error.contains("Q7"), "{error}");
    let error = Wordings::parse("[P19 person]\nstyle: loud\n").unwrap_err().to_string();
    assert!(error.contains("line 2"), "{error}");
    let error = Wordings::parse("[P19 person]\nstyle: plain\n").unwrap_err().to_string();
    assert!(error.contains("P19") && error.contains("`page`"), "{error}");
}

#[test]
fn every_file_reads_into_its_nouns() {
    use sporran_kilt::{Dataset, Page, Record, jsonl, knowledgenet, korc, wowpp};

    let count = |path: &Path| jsonl::open(path).unwrap().records::<Record>().map(Result::unwrap).count();
    let mut datasets = BTreeSet::new();
    for (name, path) in files() {
        if let Some(file) = name.strip_prefix("kilt/") {
            let (dataset, split) =
                Dataset::from_file_name(file).unwrap_or_else(|| panic!("{file} is no dataset's file name"));
            assert!(dataset.has_split(split), "{file}");
            assert!(count(&path) > 0);
            datasets.insert(dataset.stem());
        }
    }
    assert_eq!(datasets.len(), Dataset::ALL.len());
    let pages = jsonl::open(root().join("knowledge_source.jsonl.gz")).unwrap().records::<Page>();
    assert!(pages.map(Result::unwrap).count() > 1_500);
    let names = ["train.json.gz", "dev.json", "test-without-answers.json"];
    let paths = names.map(|name| root().join(format!("triviaqa/unfiltered-web-{name}")));
    assert!(sporran_kilt::triviaqa::Questions::open(&paths).unwrap().len() > 2_000);
    for name in ["knowledgenet/train.json", "knowledgenet/test-no-facts.json", "gold/knowledgenet-test.json"]
    {
        assert!(!knowledgenet::load(root().join(name)).unwrap().is_empty());
    }
    for name in ["train", "valid", "small_iid_test", "small_ood_test"] {
        assert!(!korc::load(root().join(format!("korc/{name}.json"))).unwrap().is_empty());
    }
    for name in ["train", "dev", "test"] {
        assert!(!wowpp::load(root().join(format!("wowpp/{name}.json"))).unwrap().0.is_empty());
    }
}
