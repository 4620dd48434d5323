//! Requests that join and leave a generator's batch are answered as alone.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use serde_json::json;
use sporran_generator::{
    Candidate, CausalGenerator, CausalOptions, Error, Generation, Generator, Request, Seq2SeqGenerator,
    Seq2SeqOptions, Sink, TitleGenerator,
};
use sporran_kilt::{Passage, Query};
use sporran_transformers::GenerationOptions;

/// Collects the texts of a request, and ends it with the text of this number.
#[derive(Clone, Default)]
struct Pieces {
    texts: Arc<Mutex<Vec<String>>>,
    last: Option<usize>,
}

impl Pieces {
    fn ending_at(last: usize) -> Self {
        Self { last: Some(last), ..Self::default() }
    }

    fn text(&self) -> String {
        self.texts.lock().unwrap().concat()
    }

    fn count(&self) -> usize {
        self.texts.lock().unwrap().len()
    }
}

impl Sink for Pieces {
    fn write(&self, _: usize, text: &str) -> ControlFlow<()> {
        let mut texts = self.texts.lock().unwrap();
        texts.push(text.to_owned());
        if self.last == Some(texts.len()) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data").join(name)
}

/// A generator of each kind, with these options.
fn generators(generation: &serde_json::Value) -> Vec<(&'static str, Box<dyn Generator>)> {
    let causal = |model: &str| -> Box<dyn Generator> {
        let options = json!({ "model": folder(model), "chat": "none", "generation": generation });
        let options: CausalOptions = serde_json::from_value(options).unwrap();
        Box::new(CausalGenerator::load(&options).unwrap())
    };
    let seq2seq = |model: &str| -> Box<dyn Generator> {
        let options = json!({ "model": folder(model), "generation": generation });
        let options: Seq2SeqOptions = serde_json::from_value(options).unwrap();
        Box::new(Seq2SeqGenerator::load(&options).unwrap())
    };
    vec![
        ("llama", causal("llama")),
        ("qwen2", causal("qwen2")),
        ("t5-relu", seq2seq("t5-relu")),
        ("bart", seq2seq("bart")),
    ]
}

fn queries() -> Vec<Query> {
    let texts = ["where was the author born?", "the king of the city", "war", "é and 東京", "which band?"];
    texts.iter().map(|text| Query::of_text(*text, *text)).collect()
}

/// The answer of a request alone, and the text that its sink receives.
fn alone(generator: &dyn Generator, request: &Request<'_>) -> (Generation, String) {
    let pieces = Pieces::default();
    let mut found = generator.generate_into(std::slice::from_ref(request), &pieces).unwrap();
    (found.remove(0), pieces.text())
}

/// Requires the same answer. With AMX, large batches round scores in another way.
fn same(found: &Generation, expected: &Generation, name: &str) {
    assert!((found.score - expected.score).abs() < 1e-4, "{name}: {found:?} for {expected:?}");
    assert_eq!(*found, Generation { score: found.score, ..expected.clone() }, "{name}");
}

#[test]
fn a_request_that_joins_later_with_its_own_options_is_answered_as_alone() {
    let greedy = json!({ "max-new-tokens": 12, "min-new-tokens": 6, "num-beams": 1 });
    let sampled =
        json!({ "max-new-tokens": 9, "num-beams": 1, "do-sample": true, "seed": 4, "min-new-tokens": 6 });
    let own: GenerationOptions = serde_json::from_value(sampled.clone()).unwrap();
    let passage = Passage::of_text("The king was born in the north.");
    let passages = [Candidate { passage: &passage, score: 1.0 }];
    let queries = queries();
    let request = |at: usize| Request { query: &queries[at], passages: &passages[..at % 2] };
    for ((name, generator), (_, other)) in generators(&greedy).into_iter().zip(generators(&sampled)) {
        let mut batch = generator.running_batch().unwrap();
        let mut pieces = Vec::new();
        let mut found = BTreeMap::new();
        for step in 0..40 {
            // Two begin, and one joins at every third step.
            let joining =
                if step == 0 { 0..2 } else { pieces.len()..pieces.len() + usize::from(step % 3 == 0) };
            for at in joining.start..joining.end.min(queries.len()) {
                let sink = Pieces::default();
                pieces.push(sink.clone());
                let options = if at % 2 == 1 { own.clone() } else { GenerationOptions::default() };
                assert_eq!(batch.add(&request(at), &options, Box::new(sink)).unwrap(), at);
            }
            for over in batch.step().unwrap() {
                assert!(over.read > 0);
                assert!(found.insert(over.request, over.generation.unwrap()).is_none());
            }
        }
        assert!(batch.is_empty() && found.len() == queries.len(), "{name}: {found:?}");
        for (at, found) in found {
            let generator = if at % 2 == 1 { &other } else { &generator };
            let (answer, text) = alone(&**generator, &request(at));
            same(&found, &answer, name);
            assert_eq!(pieces[at].text(), text, "{name}, {at}");
            assert!(pieces[at].count() >= 6, "{name}, {at}: {text}");
        }
    }
}

#[test]
fn a_request_that_leaves_or_whose_sink_ends_it_does_not_change_the_others() {
    let generation = json!({ "max-new-tokens": 8, "min-new-tokens": 8, "num-beams": 1 });
    let queries = queries();
    let request = |at: usize| Request { query: &queries[at], passages: &[] };
    for (name, generator) in generators(&generation) {
        let mut batch = generator.running_batch().unwrap();
        let pieces = [Pieces::default(), Pieces::ending_at(3), Pieces::default(), Pieces::default()];
        for (at, sink) in pieces.iter().enumerate() {
            batch.add(&request(at), &GenerationOptions::default(), Box::new(sink.clone())).unwrap();
        }
        let mut found = BTreeMap::new();
        let mut removed = None;
        for step in 0..8 {
            if step == 5 {
                removed = batch.remove(2).unwrap();
                assert_eq!(batch.remove(2).unwrap(), None);
            }
            for over in batch.step().unwrap() {
                // The options allow eight tokens, and a sink ends one request.
                assert_eq!(over.is_cut, over.request != 1, "{name}, {}", over.request);
                found.insert(over.request, (step, over.generation.unwrap()));
            }
        }
        assert!(batch.is_empty());
        for at in [0, 3] {
            let (answer, text) = alone(&*generator, &request(at));
            assert_eq!(found[&at].0, 7, "{name}, {at}");
            same(&found[&at].1, &answer, name);
            assert_eq!(pieces[at].text(), text, "{name}, {at}");
        }
        // The sink has the text of three tokens, and the answer is that text.
        let (step, ended) = &found[&1];
        assert_eq!((*step, ended.tokens, pieces[1].count()), (2, 3, 3), "{name}");
        let (_, whole) = alone(&*generator, &request(1));
        assert!(whole.starts_with(&pieces[1].text()), "{name}: {whole}");
        // The one that left has five tokens, and its sink received nothing after them.
        let removed = removed.unwrap();
        assert_eq!((removed.tokens, pieces[2].count(), found.contains_key(&2)), (5, 5, false), "{name}");
    }
}

#[test]
fn a_request_without_text_has_an_empty_answer() {
    let (_, generator) = generators(&json!({ "num-beams": 1 })).remove(3);
    let mut batch = generator.running_batch().unwrap();
    let blank = Query::of_text("blank", "  ");
    let request = Request { query: &blank, passages: &[] };
    let sink = Box::new(Pieces::default());
    assert_eq!(batch.add(&request, &GenerationOptions::default(), sink).unwrap(), 0);
    let answered = batch.step().unwrap();
    assert_eq!(answered.len(), 1);
    assert_eq!(*answered[0].generation.as_ref().unwrap(), alone(&*generator, &request).0);
    assert!(batch.is_empty());
}

#[test]
fn what_cannot_run_in_a_batch_says_why() {
    let error = TitleGenerator.running_batch().err().unwrap();
    assert!(matches!(&error, Error::Running { kind: "title" }), "{error}");
    assert!(error.to_string().starts_with("`kind = \"title\"`: expected `causal` or `seq2seq`"), "{error}");
    let options = json!({ "model": folder("gpt2"), "chat": "none" });
    let options: CausalOptions = serde_json::from_value(options).unwrap();
    let gpt2 = CausalGenerator::load(&options).unwrap();
    let error = gpt2.running_batch().err().unwrap().to_string();
    assert!(error.contains("a packed model on a CPU"), "{error}");
    // Beams of the config or of a request.
    let beams = GenerationOptions { num_beams: Some(3), ..GenerationOptions::default() };
    let query = Query::of_text("war", "war");
    let request = Request { query: &query, passages: &[] };
    let (_, generator) = generators(&json!({ "num-beams": 1 })).remove(0);
    let mut batch = generator.running_batch().unwrap();
    let refused = batch.add(&request, &beams, Box::new(Pieces::default())).unwrap_err().to_string();
    assert!(batch.is_empty() && batch.step().unwrap().is_empty());
    for (_, generator) in generators(&json!({ "num-beams": 3 })) {
        let own = generator.running_batch().err().unwrap().to_string();
        for error in [&refused, &own] {
            assert!(error.contains("`num-beams`: expected 1 in a running batch, found 3"), "{error}");
        }
    }
}
