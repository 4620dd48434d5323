//! Test sets that are made from a user's own documents.

use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxHashSet;
use serde::Serialize;
use serde_json::{Map, json};
use sporran_config::{Diagnostic, Kinds};
use sporran_generator::{Candidate, Generator, GeneratorOptions, Request};
use sporran_kilt::{
    Id, Output, Passage, PassageId, PassageStore, Query, Record, counted,
    observe::{Event, Observer, Unit, advance, begin},
    printable_line,
    synthesis::questions,
};
use sporran_retriever::sparse::{Analyzer, AnalyzerOptions};

use super::{asker::note_indexes, options::AskOptions};
use crate::{
    Error, Result,
    workflows::answer::{
        assemble::{assemble_retrieval, load_generator},
        options::Options,
    },
};

/// The instruction to the generator, after a passage.
const WRITE: &str = "Write one short question that this text answers. Name the subject of the question.";
/// The number of passages that a generator reads together.
const BATCH: usize = 8;
/// The largest number of passages to try for each question.
const TRIES: usize = 4;
/// The smallest number of words of a passage that a question is about.
const WORDS: usize = 20;

/// The smallest number of words that a question shares with its passage, as stems without stop words. Small models also write
/// questions that are about nothing in it.
const SHARED: usize = 2;

/// The number of characters of a generator's text that an error shows.
const SHOWN: usize = 200;

/// How the questions of a test set were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Synthetic {
    /// Sentences of the documents became questions.
    Sentence,
    /// A generator wrote them about passages.
    Generated,
}

/// A test set of synthetic questions.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalSet {
    /// How the questions were made.
    pub kind: Synthetic,
    /// The questions in KILT's layout, with their pages as evidence and without answers.
    pub records: Vec<Record>,
}

/// Makes at most `count` questions about sources, with the generator of the options if they name one. A page is asked about
/// again only after all others. The same seed gives the same questions.
///
/// # Errors
/// Those of [`AskOptions::resolve`], of the sources and the generator. [`sporran_kilt::Error::Argument`] if no question can
/// be made. [`Error::Config`] for a generator that extracts or classifies instead of writing.
pub fn eval_set(
    options: &AskOptions,
    count: usize,
    seed: u64,
    observe: &mut Observer<'_>,
) -> Result<EvalSet> {
    let resolved = options.resolve()?;
    let sources = Options { retriever: None, ..resolved.clone() };
    let assembly = assemble_retrieval(&sources, observe)?;
    let Some(store) = &assembly.store else {
        return Err(Error::Config(vec![Diagnostic::of_config(
            "source",
            "is missing; questions are about its pages",
        )]));
    };
    note_indexes(options, &assembly, observe)?;
    let set = match &resolved.generator {
        None => {
            let made = questions(store, count, seed)?.into_iter();
            let records = made.map(|record| marked(record, Synthetic::Sentence)).collect();
            EvalSet { kind: Synthetic::Sentence, records }
        }
        Some(generator) => {
            let generator = load_generator(&writing(generator)?, Some(store), seed)?;
            let records = generated(&*generator, store, count, seed, observe)?;
            EvalSet { kind: Synthetic::Generated, records }
        }
    };
    assembly.sound()?;
    if set.records.is_empty() {
        return Err(nothing(
            "expected English sentences with a clear subject, such as `The bridge at Kelso was built in 1803.`"
                .to_owned(),
        ));
    }
    Ok(set)
}

/// The error that no question came of sources.
fn nothing(expected: String) -> Error {
    Error::Kilt(sporran_kilt::Error::Argument(format!("no question came of these sources: {expected}")))
}

/// The options of a generator that writes a question about one passage.
fn writing(generator: &GeneratorOptions) -> Result<GeneratorOptions> {
    match generator {
        GeneratorOptions::Causal(options) => {
            let mut options = options.clone();
            options.instruction = String::new();
            options.prompt.passages = 1;
            options.prompt.passage = "{title}: {text}".into();
            options.prompt.separator = "\n\n".into();
            options.prompt.input = "{input}".into();
            options.generation.max_new_tokens = Some(60);
            Ok(GeneratorOptions::Causal(options))
        }
        GeneratorOptions::Remote(options) => {
            let mut options = options.clone();
            options.instruction = String::new();
            options.prompt.passages = 1;
            options.prompt.passage = "{title}: {text}".into();
            options.prompt.separator = "\n\n".into();
            options.prompt.input = "{input}".into();
            options.generation.max_new_tokens = 60;
            Ok(GeneratorOptions::Remote(options))
        }
        GeneratorOptions::Seq2Seq(options) => {
            let mut options = options.clone();
            options.prompt.passages = 1;
            options.prompt.input = "{input}".into();
            options.generation.max_new_tokens = Some(60);
            Ok(GeneratorOptions::Seq2Seq(options))
        }
        other => {
            let message =
                format!("expected a generator that writes text, found one of kind `{}`", other.kind());
            Err(Error::Config(vec![Diagnostic {
                origin: "eval-set".into(),
                line: 0,
                key: "generator.kind".into(),
                message,
            }]))
        }
    }
}

fn marked(record: Record, kind: Synthetic) -> Record {
    Record { meta: Some(json!({ "synthetic": kind })), ..record }
}

/// Passages in a random order in which no page comes again before all others came.
fn drawn(store: &PassageStore, seed: u64) -> Vec<PassageId> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut all: Vec<PassageId> = (0..store.len() as u32).map(PassageId).collect();
    all.shuffle(&mut rng);
    let mut seen = vec![0u32; store.pages()];
    let mut rounds: Vec<(u32, PassageId)> = all
        .into_iter()
        .map(|passage| {
            let count = &mut seen[store.page_of(passage).0 as usize];
            *count += 1;
            (*count, passage)
        })
        .collect();
    // A stable sort keeps the random order within a round.
    rounds.sort_by_key(|(round, _)| *round);
    rounds.into_iter().map(|(_, passage)| passage).collect()
}

fn generated(
    generator: &dyn Generator,
    store: &PassageStore,
    count: usize,
    seed: u64,
    observe: &mut Observer<'_>,
) -> Result<Vec<Record>> {
    let query = Query::of_text("write", WRITE);
    let passages = drawn(store, seed).into_iter().map(|passage| store.passage(passage));
    let usable: Vec<Passage> = passages
        .filter(|passage| passage.text.split_whitespace().count() >= WORDS)
        .take(count.saturating_mul(TRIES))
        .collect();
    if usable.is_empty() {
        return Err(nothing(format!("expected passages of at least {WORDS} words")));
    }
    let mut records: Vec<Record> = Vec::new();
    let (mut tried, mut written) = (0, String::new());
    let analyzer = Analyzer::new(AnalyzerOptions::default());
    begin(observe, "write questions", count as u64, Unit::Records);
    for batch in usable.chunks(BATCH) {
        if records.len() >= count {
            break;
        }
        let candidates: Vec<Candidate<'_>> =
            batch.iter().map(|passage| Candidate { passage, score: 1.0 }).collect();
        let requests: Vec<Request<'_>> = candidates
            .iter()
            .map(|one| Request { query: &query, passages: std::slice::from_ref(one) })
            .collect();
        for (passage, generation) in batch.iter().zip(generator.generate(&requests)?) {
            tried += 1;
            if !generation.text.trim().is_empty() {
                written.clone_from(&generation.text);
            }
            let Some(text) = question(&generation.text) else { continue };
            let known: FxHashSet<String> =
                analyzer.terms(&format!("{} {}", passage.title, passage.text)).into_iter().collect();
            let shared: FxHashSet<String> =
                analyzer.terms(&text).into_iter().filter(|term| known.contains(term)).collect();
            if shared.len() < SHARED {
                continue;
            }
            if records.len() < count
                && !records.iter().any(|known| known.input.as_deref() == Some(text.as_str()))
            {
                records.push(record(records.len(), text, passage));
            }
        }
        advance(observe, records.len() as u64);
    }
    observe(Event::End);
    if records.is_empty() {
        let last: String = written.trim().chars().take(SHOWN).collect();
        return Err(nothing(format!(
            "expected a line of 4 to 40 words that ends with a question mark and has {SHARED} words of its passage; the \
             generator wrote none about {}, and at last `{}`; another generator may",
            counted(tried, "passage"),
            printable_line(&last)
        )));
    }
    Ok(records)
}

fn record(number: usize, text: String, passage: &Passage) -> Record {
    let provenance = Some(vec![passage.provenance()]);
    let record = Record {
        id: Id::Text(format!("generated-{number}")),
        input: Some(text),
        output: Some(vec![Output { provenance, ..Output::default() }]),
        meta: None,
        extra: Map::new(),
    };
    marked(record, Synthetic::Generated)
}

/// The question in a generator's text: its first line that ends with a question mark, of 4 to 40 words. A question about
/// "the text" or "the passage" has no answer without it, so it does not count.
fn question(text: &str) -> Option<String> {
    let line =
        text.lines().map(str::trim).find(|line| line.ends_with(['?', '"', '*']) && line.contains('?'))?;
    let line = &line[..=line.find('?')?];
    let line = line.strip_prefix("Question:").unwrap_or(line);
    let line = match line.split_once(['.', ')']) {
        Some((number, rest)) if number.len() <= 2 && number.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => line,
    };
    let line = line.trim_start_matches(['"', '*', ' ']);
    let lower = line.to_lowercase();
    let refers =
        ["the text", "this text", "the passage", "this passage", "the author", "given text", "the question"];
    let is_usable = (4..=40).contains(&line.split_whitespace().count())
        && !refers.iter().any(|words| lower.contains(words));
    is_usable.then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use sporran_generator::Generation;
    use sporran_kilt::{PassageSplit, store::BuildOptions};

    use super::*;

    fn store(folder: &std::path::Path, pages: usize) -> (PathBuf, PassageStore) {
        let line = |at: usize| {
            let text = format!(
                "Lake {at} is a lake in the north of a country. {}",
                "It is deep and cold. ".repeat(6)
            );
            json!({"wikipedia_id": at.to_string(), "wikipedia_title": format!("Lake {at}"),
                "text": [format!("Lake {at}"), text, text.replace("north", "south")]})
            .to_string()
        };
        let source = folder.join("pages.jsonl");
        std::fs::write(&source, (0..pages).map(line).collect::<Vec<_>>().join("\n")).unwrap();
        let build = BuildOptions { source: source.clone(), redirects: None, split: PassageSplit::Paragraph };
        (source, PassageStore::build(&build, folder.join("store"), &mut |_| {}).unwrap())
    }

    /// Writes a question about even pages only, and one that is about no page.
    struct Even;

    impl Generator for Even {
        fn generate(&self, requests: &[Request<'_>]) -> sporran_generator::Result<Vec<Generation>> {
            let write = |request: &Request<'_>| {
                let passage = request.passages[0].passage;
                let even = passage.page_id.parse::<u32>().unwrap() % 2 == 0;
                let number = passage.id.0;
                let text = match even {
                    true => format!("1. How deep is lake part {number}?\nMore"),
                    false => "Who won the great race?".to_owned(),
                };
                Generation { text, score: 0.0, alternatives: Vec::new(), evidence: vec![0], tokens: 1 }
            };
            Ok(requests.iter().map(write).collect())
        }

        fn passages(&self) -> usize {
            1
        }
    }

    #[test]
    fn questions_are_taken_out_of_the_generator_s_text() {
        for (text, expected) in [
            ("What is the capital of Norway?", Some("What is the capital of Norway?")),
            ("Sure!\n\n1. \"Who wrote the long book?\"", Some("Who wrote the long book?")),
            ("Question: Where is the lake?", Some("Where is the lake?")),
            ("What is the passage about in general?", None),
            ("What is the answer to the question?", None),
            ("Why so?", None),
            ("It is Oslo.", None),
        ] {
            assert_eq!(question(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_generator_asks_about_each_page_before_any_page_again() {
        let folder = tempfile::tempdir().unwrap();
        let (_, store) = store(folder.path(), 10);
        let order = drawn(&store, 3);
        let pages: std::collections::BTreeSet<u32> =
            order[..10].iter().map(|passage| store.page_of(*passage).0).collect();
        assert_eq!((order.len(), pages.len()), (20, 10));
        let records = generated(&Even, &store, 5, 3, &mut |_| {}).unwrap();
        assert_eq!(records.len(), 5);
        for record in &records {
            assert_eq!(record.meta, Some(json!({ "synthetic": "generated" })));
            let item = &record.outputs()[0].evidence()[0];
            let page: u32 = item.wikipedia_id.as_ref().unwrap().text().parse().unwrap();
            assert!(page.is_multiple_of(2) && item.start_paragraph_id.is_some());
        }
        assert_eq!(records, generated(&Even, &store, 5, 3, &mut |_| {}).unwrap());
        // Ten passages are about even pages.
        assert_eq!(generated(&Even, &store, 100, 3, &mut |_| {}).unwrap().len(), 10);
    }

    #[test]
    fn questions_without_a_generator_are_made_of_sentences() {
        let folder = tempfile::tempdir().unwrap();
        let (source, _) = store(folder.path(), 4);
        let options = AskOptions::new(vec![source.clone()], folder.path().join("cache"));
        let set = eval_set(&options, 4, 0, &mut |_| {}).unwrap();
        assert_eq!((set.kind, set.records.len()), (Synthetic::Sentence, 4));
        assert!(set.records.iter().all(|record| record.meta == Some(json!({ "synthetic": "sentence" }))));
        std::fs::write(&source, r#"{"wikipedia_id":"1","wikipedia_title":"A","text":["A","b"]}"#).unwrap();
        let error = eval_set(&options, 4, 0, &mut |_| {}).unwrap_err();
        assert!(error.is_input() && error.to_string().contains("sentences with a clear subject"), "{error}");
    }

    #[test]
    fn pages_are_named_as_in_the_config_of_the_same_sources() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["a", "b", "x"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        std::fs::write(path("a/kelso.md"), "The bridge at Kelso was built in 1803.").unwrap();
        std::fs::write(path("b/rows.csv"), "id,note\n1,Ayr is a town in the west.\n").unwrap();
        let sources = vec![path("x/../a"), path("x/../b/rows.csv")];
        let options = AskOptions::new(sources, path("cache"));
        let set = eval_set(&options, 9, 0, &mut |_| {}).unwrap();
        let config =
            assemble_retrieval(&Options { retriever: None, ..options.shown().unwrap() }, &mut |_| {});
        let store = config.unwrap().store.unwrap();
        assert_eq!(
            store.page_id(sporran_kilt::store::PageIndex(1)),
            format!("{}#1", path("x/../b/rows.csv").display())
        );
        assert!(!set.records.is_empty());
        for record in &set.records {
            let id = record.outputs()[0].evidence()[0].wikipedia_id.clone().unwrap();
            assert!(store.page_by_id(&id.text()).is_some(), "{id}");
        }
    }

    #[test]
    fn a_generator_without_questions_is_shown() {
        struct Chatter;

        impl Generator for Chatter {
            fn generate(&self, requests: &[Request<'_>]) -> sporran_generator::Result<Vec<Generation>> {
                let text = || "I like lakes.\nThey are\u{1b} cold.".to_owned();
                let one = || Generation {
                    text: text(),
                    score: 0.0,
                    alternatives: Vec::new(),
                    evidence: vec![0],
                    tokens: 1,
                };
                Ok(requests.iter().map(|_| one()).collect())
            }

            fn passages(&self) -> usize {
                1
            }
        }

        let folder = tempfile::tempdir().unwrap();
        let (_, store) = store(folder.path(), 2);
        let error = generated(&Chatter, &store, 1, 3, &mut |_| {}).unwrap_err();
        let expected = "wrote none about 4 passages, and at last `I like lakes. They are\u{fffd} cold.`";
        assert!(error.is_input() && error.to_string().contains(expected), "{error}");
    }
}
