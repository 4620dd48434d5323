//! A folder in the layout of REBEL's released checkpoints, compared with `transformers`.
//! `scripts/reference/rebel_parity.py` created both.

use std::path::Path;

use serde_json::Value;
use sporran_extractor::{
    Chain, Coreference, Document, EntityType, Extractor, FactExtractor, Mention, MentionFinder, MentionForm,
    Relations, Result, Span,
    relations::{Properties, Property, Thresholds},
    triplets::{ReadTriplet, TripletOptions, TripletReader},
};
use sporran_transformers::{Batch, Checkpoint, DeviceName, GenerationOptions, Precision, generate};

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rebel")
}

fn cases() -> Vec<Value> {
    serde_json::from_slice(&std::fs::read(folder().join("expected.json")).unwrap()).unwrap()
}

/// The relations and the search of the script.
fn reader(threshold: f32) -> TripletReader {
    let property = |id: &str, name: &str| Property { id: id.into(), name: name.into(), symmetric: false };
    let options = TripletOptions {
        version: TripletOptions::VERSION,
        properties: Properties::new(vec![property("12", "PLACE_OF_BIRTH"), property("25", "SPOUSE")]),
        relations: vec![vec!["place of birth".into()], vec!["spouse".into()]],
        max_tokens: 90,
        max_written: 60,
        beams: 3,
        thresholds: Thresholds::even(2, threshold),
    };
    TripletReader::load(&folder(), Some(options), DeviceName::Cpu, Precision::F32).unwrap()
}

#[test]
fn beams_are_those_of_transformers() {
    let checkpoint = Checkpoint::open(&folder()).unwrap();
    let model = checkpoint.seq2seq(DeviceName::Cpu, Precision::F32).unwrap();
    let tokenizer = checkpoint.tokenizer().unwrap();
    let options = GenerationOptions {
        num_beams: Some(3),
        num_return_sequences: Some(3),
        length_penalty: Some(0.0),
        max_new_tokens: Some(60),
        ..GenerationOptions::default()
    };
    for case in cases() {
        let row = tokenizer.encode(case["text"].as_str().unwrap(), None).unwrap();
        let input = Batch::new(&[row], model.special_tokens().pad, model.device()).unwrap();
        let found = generate(model.as_ref(), &input, &options).unwrap().remove(0);
        let expected = case["beams"].as_array().unwrap();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            let tokens: Vec<u32> = serde_json::from_value(expected["tokens"].clone()).unwrap();
            assert_eq!(found.tokens, tokens);
            let score = expected["score"].as_f64().unwrap();
            assert!((f64::from(found.score) - score).abs() < 1e-4, "{} {score}", found.score);
        }
    }
}

#[test]
fn facts_are_those_of_a_search_that_is_held_to_a_list_of_all_pieces() {
    let reader = reader(0.5);
    let cases = cases();
    let documents: Vec<Document> =
        cases.iter().map(|case| Document::new("d", case["text"].as_str().unwrap())).collect();
    let read = reader.read(&documents.iter().collect::<Vec<_>>()).unwrap();
    let mut sure = 0;
    for ((case, document), read) in cases.iter().zip(&documents).zip(read) {
        let text = |span: Span| document.slice(span).unwrap();
        let mut left = read;
        for fact in case["facts"].as_array().unwrap() {
            let (head, tail) = (fact[0].as_str().unwrap(), fact[2].as_str().unwrap());
            let label = usize::from(fact[1] == "spouse");
            let share = fact[3].as_f64().unwrap();
            let is_same = |read: &ReadTriplet| {
                let triplet = read.triplet;
                text(triplet.head) == head && text(triplet.tail) == tail && triplet.label == label
            };
            // Each word occurs once in the text. If one contains the other there is no fact.
            if head.contains(tail) {
                assert!(!left.iter().any(is_same));
                continue;
            }
            let at = left.iter().position(is_same).unwrap_or_else(|| panic!("{fact} of {left:?}"));
            let found = left.remove(at).confidence;
            assert!((f64::from(found) - share).abs() < 1e-4 * share.max(0.01), "{fact}: {found}");
            sure += usize::from(share > 0.9);
        }
        assert!(left.is_empty(), "{left:?}");
    }
    assert_eq!(sure, 4);
}

/// Finds words of the only document.
struct Words(Vec<std::ops::Range<usize>>);

impl MentionFinder for Words {
    fn mentions(&self, documents: &[Document]) -> Result<Vec<Vec<Mention>>> {
        let mention = |tokens: &std::ops::Range<usize>| Mention {
            span: documents[0].span(tokens.clone()),
            tokens: tokens.clone(),
            sentence: documents[0].sentence_of(tokens.start).unwrap(),
            kind: EntityType::Person,
            form: MentionForm::Name,
            confidence: 1.0,
        };
        Ok(vec![self.0.iter().map(mention).collect()])
    }
}

/// The first mention refers to the same entity as the last, which is the representative.
struct Ends;

impl Coreference for Ends {
    fn chains(&self, _: &Document, mentions: &[Mention]) -> Result<Vec<Chain>> {
        let last = mentions.len() - 1;
        Ok(vec![Chain { mentions: vec![(0, 1.0), (last, 1.0)], representative: last, others: vec![] }])
    }
}

#[test]
fn facts_have_the_names_of_their_mentions_and_need_no_mentions() {
    let documents =
        [Document::new("d", "Cleo Nash, the spouse of Dan Orr, was born in Bern. She is Cleopatra.")];
    let facts = |words: Vec<std::ops::Range<usize>>| -> Vec<[String; 3]> {
        let coreference: Option<Box<dyn Coreference>> =
            if words.is_empty() { None } else { Some(Box::new(Ends)) };
        let (mentions, relations) = (Box::new(Words(words)), Relations::Triplets(Box::new(reader(0.5))));
        let fact_extractor =
            FactExtractor { mentions, coreference, linker: None, knowledge: None, relations };
        let name = |span: Span| documents[0].slice(span).unwrap().to_owned();
        let facts = fact_extractor.extract(&documents).unwrap().remove(0);
        assert!(facts.iter().all(|fact| fact.sentence == documents[0].sentences[0].span));
        facts
            .iter()
            .map(|fact| [name(fact.subject.name), fact.property.clone(), name(fact.object.name)])
            .collect()
    };
    let expected = |subject: &str, spouse: &str| {
        [[subject, "SPOUSE", spouse], [subject, "PLACE_OF_BIRTH", "Bern"]].map(|fact| fact.map(str::to_owned))
    };
    assert_eq!(facts(Vec::new()), expected("Cleo Nash", "Dan Orr"));
    // `Dan Orr` contains one mention; Bern has none.
    let words = |of: &str| {
        documents[0].tokens.iter().position(|token| documents[0].slice(*token) == Some(of)).unwrap()
    };
    let (orr, last) = (words("Orr"), words("Cleopatra"));
    assert_eq!(facts(vec![0..2, orr..orr + 1, last..last + 1]), expected("Cleopatra", "Orr"));
    // It contains two mentions: neither counts.
    assert_eq!(
        facts(vec![0..2, orr - 1..orr, orr..orr + 1, last..last + 1]),
        expected("Cleopatra", "Dan Orr")
    );
}
