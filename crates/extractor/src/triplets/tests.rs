use std::{collections::BTreeSet, path::Path, sync::Arc};

use candle_core::Device;
use serde_json::{Value, json};
use sporran_checkpoint::Tokenizer;
use sporran_kilt::knowledgenet;
use sporran_training::{Row, Variables, VocabularyOptions, tokenizer_files, train_vocabulary};
use sporran_transformers::{Constraint, GenerationOptions, Hypothesis, ModelConfig, Seq2Seq, T5Config};

use super::{
    constraint::{MAX_WORDS, Pieces, Speller, TripletConstraint},
    linear::{line, linearise},
    *,
};
use crate::{
    Document, Span,
    relations::{Annotated, Outcomes, Properties, Property, Thresholds, annotated},
};

const RELATIONS: [&str; 4] = ["award", "award of", "place of birth", "spouse"];

/// A vocabulary of some texts, as training creates it.
fn fresh() -> Tokenizer {
    let marks = MARKS.map(str::to_owned).to_vec();
    let texts = ["Ann Lee met Bob in Rome, her place of birth. He won an award; Bob is her spouse."; 2];
    let vocabulary = VocabularyOptions { size: 400, min_frequency: 2, marks };
    let files = tokenizer_files(&train_vocabulary(texts.iter(), &vocabulary).unwrap()).unwrap();
    Tokenizer::from_json(Path::new("tokenizer.json"), String::from_utf8(files[0].1.clone()).unwrap()).unwrap()
}

/// A tokenizer of the tests of `transformers` with the marks added, as in REBEL's training.
fn with_marks(name: &str) -> Tokenizer {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data").join(name);
    let text = std::fs::read_to_string(path.join("tokenizer.json")).unwrap();
    let mut json: Value = serde_json::from_str(&text).unwrap();
    let first = Tokenizer::from_json(&path, text).unwrap().vocab_size();
    for (at, mark) in MARKS.iter().enumerate() {
        json["added_tokens"].as_array_mut().unwrap().push(json!({"id": first + at, "content": mark,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}));
    }
    Tokenizer::from_json(&path, json.to_string()).unwrap()
}

/// Byte-level BPE from a training text, byte-level BPE with `<s>` before a text, and a unigram model whose
/// words start with `▁`. Each has its end token and a sentence of letters that it knows.
fn tokenizers() -> [(Tokenizer, u32, &'static str); 3] {
    let plain = "where the  first award was, the north,\nsouth? of the queen who wrote a song";
    let wild = "where the  first Zoë was, the \"north-south\" 😀 of the queen\nwho's (born): the first";
    [(fresh(), 1, wild), (with_marks("bart"), 2, plain), (with_marks("t5-relu"), 1, plain)]
}

/// The inputs of the constraint of one sentence.
struct Held {
    speller: Speller,
    spans: Vec<Pieces<Span>>,
    relations: Pieces<usize>,
    end: u32,
}

impl Held {
    fn new(tokenizer: Tokenizer, end: u32, document: &Document) -> Self {
        let speller = Speller::new(tokenizer, &[end], Path::new("folder")).unwrap();
        let spans = vec![speller.spans(document, &document.sentences[0]).unwrap()];
        let mut relations = Pieces::new();
        for (label, name) in RELATIONS.iter().enumerate() {
            relations.insert(&speller.spell(name).unwrap().unwrap(), label);
        }
        Self { speller, spans, relations, end }
    }

    fn allowed(&self, tokens: &[u32]) -> Vec<u32> {
        let Self { speller, spans, relations, end } = self;
        let constraint = TripletConstraint { speller, spans, relations, end: *end };
        let mut allowed = Vec::new();
        constraint.allowed(0, tokens, &mut allowed);
        allowed
    }

    /// Every text from `start` to one of `stops`, as the tokenizer decodes its tokens.
    fn texts(&self, start: &[u32], stops: &[u32]) -> BTreeSet<String> {
        let (mut open, mut found) = (vec![start.to_vec()], BTreeSet::new());
        while let Some(tokens) = open.pop() {
            for token in self.allowed(&tokens) {
                if stops.contains(&token) {
                    let text = self.speller.tokenizer().decode(&tokens[start.len()..]).unwrap();
                    found.insert(text.trim().to_owned());
                } else {
                    open.push([&tokens[..], &[token]].concat());
                }
            }
        }
        found
    }
}

#[test]
fn decoding_is_constrained_to_spans_and_known_relations() {
    for (tokenizer, end, sentence) in tokenizers() {
        let document = Document::new("d", sentence);
        let words = document.tokens.len();
        assert_eq!(document.sentences.len(), 1);
        let mut spans = BTreeSet::new();
        for start in 0..words {
            for end in start + 1..=words.min(start + MAX_WORDS) {
                let text = document.slice(document.span(start..end)).unwrap();
                spans.insert(text.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }
        let held = Held::new(tokenizer, end, &document);
        let (marks, begin) = (held.speller.marks(), held.speller.tokenizer().beginning().unwrap());
        for at in 0..begin.len() {
            assert_eq!(held.allowed(&begin[..at]), [begin[at]]);
        }
        assert_eq!(held.allowed(&begin), [marks.head, end]);
        let head = [&begin[..], &[marks.head]].concat();
        assert_eq!(held.texts(&head, &[marks.tail]), spans);
        let some = held.speller.spell("queen").unwrap().unwrap();
        let tail = [&head[..], &some, &[marks.tail]].concat();
        assert_eq!(held.texts(&tail, &[marks.relation]), spans);
        let relation = [&tail[..], &some, &[marks.relation]].concat();
        let after = [marks.head, marks.tail, end];
        assert_eq!(held.texts(&relation, &after), RELATIONS.map(str::to_owned).into());
        // Outside of the language nothing is allowed.
        assert!(held.allowed(&[&begin[..], &some].concat()).is_empty());
    }
}

#[test]
fn what_training_teaches_can_be_written() {
    for (tokenizer, end, sentence) in tokenizers() {
        let document = Document::new("d", sentence);
        let words = document.tokens.len();
        let held = Held::new(tokenizer, end, &document);
        for at in 0..words {
            let span = |start: usize, length: usize| document.span(start..words.min(start + length));
            let triplet = |head, tail, label| Triplet { head, tail, label };
            let facts = [
                triplet(span(at, 1), span((at + 7) % words, 3), at % 4),
                triplet(span(at, 1), span((at + 5) % words, MAX_WORDS), 0),
                triplet(span((at + 3) % words, 4), span(at, 2), 2),
            ];
            let text = linearise(&document, &facts[..at % 4], &RELATIONS);
            let target = held.speller.tokenizer().encode(&text, None).unwrap();
            for (length, token) in target.iter().enumerate() {
                let allowed = held.allowed(&target[..length]);
                assert!(allowed.contains(token), "{text}: {token} after {:?}", &target[..length]);
            }
        }
    }
}

#[test]
fn marks_and_ends_of_the_text_cannot_be_written_as_spans() {
    let document = Document::new("d", "the <obj> of </s> king");
    let held = Held::new(fresh(), 1, &document);
    let found = held.texts(&[held.speller.marks().head], &[held.speller.marks().tail]);
    assert!(
        found.contains("king") && found.iter().all(|text| !text.contains("<obj>") && !text.contains("</s>"))
    );
}

fn properties() -> Properties {
    let property = |(at, name): (usize, &&str)| Property {
        id: at.to_string(),
        name: (*name).into(),
        symmetric: *name == "spouse",
    };
    Properties::new(RELATIONS.iter().enumerate().map(property).collect())
}

fn options() -> TripletOptions {
    TripletOptions {
        version: TripletOptions::VERSION,
        properties: properties(),
        relations: RELATIONS.iter().map(|name| vec![(*name).to_owned()]).collect(),
        max_tokens: 64,
        max_written: 64,
        beams: 3,
        thresholds: Thresholds::even(RELATIONS.len(), 0.5),
    }
}

/// A reader with tiny random weights, so that all tokens are almost equally likely.
fn reader(options: TripletOptions) -> Result<TripletReader, crate::Error> {
    let tokenizer = fresh();
    let config = T5Config {
        vocab_size: tokenizer.vocab_size(),
        d_model: 16,
        d_kv: 8,
        d_ff: 16,
        num_layers: 1,
        num_heads: 2,
        initializer_factor: 0.1,
        ..T5Config::default()
    };
    let special = config.special_tokens();
    let vb = Variables::new(4);
    let vb = vb.builder(&Device::Cpu);
    let model = ModelConfig::T5(config).build(&vb, special, GenerationOptions::default()).unwrap();
    let model: Arc<dyn sporran_transformers::Trainable> = model.into();
    let model: Arc<dyn Seq2Seq> = model;
    TripletReader::new(model, tokenizer, options, Path::new("folder"))
}

#[test]
fn a_reader_writes_words_of_the_sentence_independently_of_the_batch() {
    let reader = reader(TripletOptions { beams: 8, ..options() }).unwrap();
    let texts = ["Ann met Bob in Rome. He won an award.", "", "Zoë 😀 left <subj> عبد الله.", "Ann\n\nBob"];
    let documents: Vec<Document> = texts.iter().map(|text| Document::new("d", *text)).collect();
    let read = reader.read(&documents.iter().collect::<Vec<_>>()).unwrap();
    assert!(read[0].len() > 2 && read[1].is_empty(), "{read:?}");
    for (document, read) in documents.iter().zip(&read) {
        for ReadTriplet { sentence, triplet: Triplet { head, tail, label }, confidence } in read {
            let sentence = document.sentences[*sentence].span;
            assert!(sentence.contains(*head) && sentence.contains(*tail) && !head.overlaps(*tail));
            assert!(*label < RELATIONS.len() && *confidence > 0.0 && *confidence <= 1.0);
        }
        let alone = &reader.read(&[document]).unwrap()[0];
        assert_eq!(alone.len(), read.len());
        for (alone, batched) in alone.iter().zip(read) {
            assert_eq!((alone.sentence, alone.triplet), (batched.sentence, batched.triplet));
            assert!((alone.confidence - batched.confidence).abs() < 1e-4);
        }
    }
}

#[test]
fn a_fact_is_as_sure_as_the_sequences_that_have_it() {
    let reader = reader(options()).unwrap();
    let document = Document::new("d", "Ann and Ann met Bob in Rome where Bob left.");
    let held = Held::new(fresh(), 1, &document);
    let written = |text: &str, probability: f32| Hypothesis {
        tokens: fresh().encode(text, None).unwrap(),
        score: probability.ln(),
    };
    let hypotheses = [
        written("<triplet> Ann <subj> Bob <obj> spouse <subj> Rome <obj> award", 0.02),
        written("<triplet> Ann <subj> Rome <obj> award", 0.01),
        written(
            "<triplet> Ann <subj> Ann <obj> spouse <subj> Anna <obj> award <subj> Bob <obj> enemy",
            0.005,
        ),
        Hypothesis { tokens: Vec::new(), score: 0.005f32.ln() },
        Hypothesis { tokens: vec![7, 7, 7], score: -1e9 },
    ];
    let found = reader.facts(&hypotheses, &held.spans[0]);
    let facts: Vec<(String, String, usize, f32)> = found
        .iter()
        .map(|(fact, share)| {
            let at = |span: Span| format!("{}@{}", line(&document, span), span.start);
            (at(fact.head), at(fact.tail), fact.label, (share * 1000.0).round())
        })
        .collect();
    let facts: Vec<(&str, &str, usize, f32)> = facts
        .iter()
        .map(|(head, tail, label, share)| (head.as_str(), tail.as_str(), *label, *share))
        .collect();
    // Of 0.04 in all. The second Ann is nearest to the first Bob; two Anns do not overlap; there is no Anna.
    assert_eq!(
        facts,
        [
            ("Ann@0", "Ann@8", 3, 125.0),
            ("Ann@8", "Ann@0", 3, 125.0),
            ("Ann@8", "Bob@16", 3, 500.0),
            ("Ann@8", "Rome@23", 0, 750.0),
            ("Bob@16", "Ann@8", 3, 500.0),
        ]
    );
    // A sequence of the largest length may have a forced end, for example after a part of `award of`.
    let full = written("<triplet> Ann <subj> Bob <obj> award", 1.0);
    for (room, count) in [(full.tokens.len(), 0), (full.tokens.len() + 1, 1)] {
        let reader = super::tests::reader(TripletOptions { max_written: room, ..options() }).unwrap();
        assert_eq!(reader.facts(std::slice::from_ref(&full), &held.spans[0]).len(), count);
    }
}

#[test]
fn invalid_triplet_options_are_refused() {
    let wrong = |change: fn(&mut TripletOptions)| {
        let mut options = options();
        change(&mut options);
        reader(options).err().unwrap().to_string()
    };
    assert!(wrong(|options| options.version = 2).contains("version 1"));
    assert!(wrong(|options| options.relations[1] = vec!["award".into()]).contains("`award` twice"));
    assert!(wrong(|options| options.relations[1].push(" ".into())).contains("a relation for each property"));
    assert!(wrong(|options| options.relations[1].push("a <obj>".into())).contains("`a <obj>`"));
    assert!(wrong(|options| options.thresholds = Thresholds::even(1, 0.5)).contains("one a property"));
    assert!(wrong(|options| options.beams = 0).contains("`beams`"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(TRIPLETS), options().bytes()).unwrap();
    assert_eq!(TripletOptions::load(folder.path()).unwrap(), options());
    let without = with_marks("bart").json().replace("<triplet>", "<triple>");
    let without = Tokenizer::from_json(Path::new("t"), without).unwrap();
    let error = Speller::new(without, &[2], Path::new("there")).err().unwrap().to_string();
    assert!(error.contains("there") && error.contains("`<triplet>`"), "{error}");
}

/// Two passages, the first annotated for `award` and `spouse`, the second for nothing; `award` is 0 and
/// `spouse` 3.
fn source() -> (knowledgenet::Document, Annotated) {
    let fact = |id: &str, places: [usize; 4]| {
        json!({"propertyId": id, "subjectStart": places[0], "subjectEnd": places[1],
            "objectStart": places[2], "objectEnd": places[3]})
    };
    let property = |id: &str, name: &str| json!({"propertyId": id, "propertyName": name});
    let source = json!({"fold": 1, "documentId": "d",
        "documentText": "Bob met Ann Lee. Both left Rome. Nobody came.", "passages": [
        {"passageId": "p", "passageStart": 0, "passageEnd": 32, "passageText": "",
            "exhaustivelyAnnotatedProperties": [property("0", "award"), property("3", "spouse")], "facts": [
            // Within a word; both ways; across sentences.
            fact("3", [8, 14, 0, 3]), fact("3", [0, 3, 8, 15]), fact("0", [0, 3, 27, 31])]},
        {"passageId": "q", "passageStart": 33, "passageEnd": 45, "passageText": "",
            "exhaustivelyAnnotatedProperties": [], "facts": []}]});
    let source: knowledgenet::Document = serde_json::from_value(source).unwrap();
    let document = Document::new("d", source.text.clone());
    let annotated = annotated(&source, &properties(), document, Vec::new()).unwrap();
    (source, annotated)
}

#[test]
fn a_sentence_of_an_annotated_passage_is_learned_with_its_facts_or_with_none() {
    let (source, annotated) = source();
    let rows = triplet_examples(&source, &annotated, &reader(options()).unwrap()).unwrap();
    let encode = |text: &str| fresh().encode(text, None).unwrap();
    let row = |source: &str, target: &str| Row { source: encode(source), target: encode(target) };
    assert_eq!(
        rows,
        [row("Bob met Ann Lee.", "<triplet> Bob <subj> Ann Lee <obj> spouse"), row("Both left Rome.", "")]
    );
    assert_eq!(writable(&annotated), (2, 3));
    // Facts that do not fit are dropped one by one.
    let short = reader(TripletOptions { max_written: 8, ..options() }).unwrap();
    assert_eq!(triplet_examples(&source, &annotated, &short).unwrap()[0].target, [1]);
}

#[test]
fn only_what_is_annotated_exhaustively_can_be_wrong() {
    let (source, _) = source();
    let read = |head: (usize, usize), tail: (usize, usize), label: usize, confidence: f32| ReadTriplet {
        sentence: 0,
        triplet: Triplet {
            head: Span { start: head.0, end: head.1 },
            tail: Span { start: tail.0, end: tail.1 },
            label,
        },
        confidence,
    };
    let mut all = vec![Outcomes::default(); RELATIONS.len()];
    let found = [
        // Correct; correct by overlap with less confidence; wrong; of a property without annotation; outside
        // of annotated passages.
        read((0, 3), (8, 15), 3, 0.9),
        read((0, 3), (12, 15), 3, 0.4),
        read((0, 3), (8, 15), 0, 0.7),
        read((0, 3), (8, 15), 2, 0.8),
        read((33, 39), (40, 44), 0, 0.6),
    ];
    outcomes(&source, &properties(), &found, &mut all);
    assert_eq!(all[3].gold, [0.0, 0.9]);
    assert_eq!(all[3].predicted, [(0.9, true), (0.4, true)]);
    assert_eq!((&all[0].gold[..], &all[0].predicted[..]), (&[0.0][..], &[(0.7, false)][..]));
    assert!(all[2].predicted.is_empty());
}
