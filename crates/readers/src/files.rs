//! Readers of task files, knowledge sources, knowledge bases and data sets.

use std::path::{Path, PathBuf};

use sporran_extractor::Parses;
use sporran_kilt::{
    Page, Record, annotation, csv, docred,
    formats::{PageMapping, anserini, beir, elements, psgs, trec},
    jsonl,
    kb::{self, KnowledgeBase, Part},
    knowledgenet, korc, linked,
    scores::significance::Rounds,
    triviaqa, wowpp, zsre,
};
use sporran_pipeline::responses;
use sporran_reasoner::rules;

use crate::folders::{halves, with_file, with_files};

/// Takes the items of a reader up to its end or its first error.
fn drain<T, E>(items: Result<impl Iterator<Item = Result<T, E>>, E>) {
    let _ = items.and_then(|items| items.collect::<Result<Vec<T>, E>>());
}

pub(crate) fn records(bytes: &[u8]) {
    with_file("a.jsonl", bytes, |path| {
        drain(jsonl::open(path).map(|reader| reader.records::<Record>()));
        let _ = jsonl::open(path).and_then(|reader| reader.batches::<Record>(|_| Ok(())));
    });
}

pub(crate) fn lines(bytes: &[u8]) {
    with_file("a.txt.gz", bytes, |path| {
        drain(jsonl::open(path).map(jsonl::Reader::lines));
        let _ = jsonl::read_to_string(path);
    });
}

pub(crate) fn pages(bytes: &[u8]) {
    with_file("a.jsonl", bytes, |path| {
        drain(jsonl::open(path).map(|reader| reader.records::<Page>()));
        let folder = path.with_extension("store");
        let options = sporran_kilt::store::BuildOptions {
            source: path.to_owned(),
            redirects: None,
            split: sporran_kilt::PassageSplit::Words,
        };
        let _ = sporran_kilt::PassageStore::build(&options, folder, &mut |_| {});
    });
}

pub(crate) fn json(bytes: &[u8]) {
    with_file("a.json", bytes, |path| drop(jsonl::read_json::<serde_json::Value>(path)));
}

pub(crate) fn elements(bytes: &[u8]) {
    with_file("a.json", bytes, |path| {
        drain(elements::open(path).map(|elements| elements.records::<serde_json::Value>()));
        drain(elements::open_member(path, "Data").map(|elements| elements.records::<serde_json::Value>()));
    });
}

pub(crate) fn config(bytes: &[u8]) {
    with_file("c.toml", bytes, |path| {
        let _ = sporran_pipeline::check(path, &[]);
        let _ = sporran_pipeline::show(path, &[]);
    });
}

pub(crate) fn csv(bytes: &[u8]) {
    with_file("a.csv", bytes, |path| {
        let Ok(table) = csv::Table::read(path) else { return };
        let _ = table.column("a");
        table.rows().iter().for_each(|row| drop(row.cell(1).to_owned()));
    });
}

pub(crate) fn sheet(bytes: &[u8]) {
    with_file("a.csv", bytes, |path| drain(annotation::sheet::read(path)));
    with_file("a.jsonl", bytes, |path| drain(annotation::sheet::read(path)));
}

pub(crate) fn qrels(bytes: &[u8]) {
    with_file("a.txt", bytes, |path| {
        drain(trec::read_qrels(path));
        drain(beir::read_qrels(path));
    });
}

pub(crate) fn run(bytes: &[u8]) {
    with_file("a.txt", bytes, |path| drain(trec::read_run(path)));
}

pub(crate) fn psgs(bytes: &[u8]) {
    with_file("a.tsv", bytes, |path| drain(psgs::read(path)));
}

pub(crate) fn topics(bytes: &[u8]) {
    with_file("a.tsv", bytes, |path| drain(anserini::read_topics(path)));
}

pub(crate) fn mapping(bytes: &[u8]) {
    with_file("a.tsv", bytes, |path| drop(PageMapping::open(path)));
}

pub(crate) fn triviaqa(bytes: &[u8]) {
    for name in ["a.json", "a.tar.gz"] {
        with_file(name, bytes, |path| drop(triviaqa::Questions::open(&[path])));
    }
}

pub(crate) fn docred(bytes: &[u8]) {
    with_file("a.json", bytes, |path| drop(docred::load(path)));
}

pub(crate) fn knowledgenet(bytes: &[u8]) {
    with_file("a.json", bytes, |path| {
        drop(knowledgenet::load(path));
        drain(knowledgenet::annotated(path));
    });
}

pub(crate) fn wowpp(bytes: &[u8]) {
    with_file("a.json", bytes, |path| {
        let Ok(dialogues) = wowpp::load(path) else { return };
        let _ = dialogues.third_quartile();
    });
}

pub(crate) fn zsre(bytes: &[u8]) {
    with_file("a.tsv", bytes, |path| drop(zsre::load(path)));
}

pub(crate) fn korc(bytes: &[u8]) {
    with_file("a.json", bytes, |path| drop(korc::load(path)));
}

pub(crate) fn linked(bytes: &[u8]) {
    with_file("a.jsonl", bytes, |path| {
        let Ok(numbered) = linked::numbered_entities(path) else { return };
        let _ = linked::load(path, &numbered);
    });
    with_file("a.jsonl", bytes, |path| drop(linked::load(path, &Default::default())));
}

pub(crate) fn names(bytes: &[u8]) {
    with_file("entities.tsv", bytes, |path| {
        let _ = kb::read_names(path, |_| {});
        let mut base = KnowledgeBase::default();
        let _ = base.load_labels(path);
    });
}

pub(crate) fn triples(bytes: &[u8]) {
    with_file("triples.tsv", bytes, |path| {
        let mut base = KnowledgeBase::default();
        let _ = base.load_file(path, Part::Train);
    });
}

pub(crate) fn ntriples(bytes: &[u8]) {
    with_file("triples.nt", bytes, |path| {
        let mut base = KnowledgeBase::default();
        let _ = base.load_file(path, Part::Train);
    });
}

/// The triples of a knowledge base, an empty line, and rules.
pub(crate) fn rules(bytes: &[u8]) {
    let (triples, rules_text) = halves(bytes);
    with_files(&[("triples.tsv", triples), ("rules.tsv", rules_text)], |folder| {
        let mut base = KnowledgeBase::default();
        if base.load_file(&folder.join("triples.tsv"), Part::Train).is_err() {
            return;
        }
        let path = folder.join("rules.tsv");
        let _ = rules::load(&path, &base);
        let _ = rules::load_human(&path, &base);
    });
}

pub(crate) fn conllu(bytes: &[u8]) {
    with_file("a.conllu", bytes, |path| drop(Parses::open(&[path])));
}

/// The key of a sheet, an empty line, and a filled sheet.
pub(crate) fn votes(bytes: &[u8]) {
    let (key, sheet) = halves(bytes);
    with_files(&[("key.json", key), ("a.csv", sheet)], |folder: &Path| {
        let sheets: Vec<PathBuf> = vec![folder.join("a.csv")];
        let rounds = Rounds { count: 10, seed: 0, level: 0.95 };
        drop(responses::read_votes(&folder.join("key.json"), &sheets, rounds));
    });
}
