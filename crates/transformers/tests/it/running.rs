//! Running batches: each request gets what it gets alone, whichever others join and leave.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use candle_core::{DType, Device};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sporran_transformers::{
    Batch, CausalLm, Checkpoint, DeviceName, GenerationOptions, Hypothesis, Precision, RunningBatch, Seq2Seq,
    decode::{Event, FinishReason, Outcome, RequestId},
    generate, generate_causal_until,
};

const SEQ2SEQ: [&str; 8] =
    ["t5-relu", "t5-gated", "bart", "umt5", "pegasus", "marian", "m2m100", "blenderbot-small"];

fn checkpoint(name: &str) -> Checkpoint {
    Checkpoint::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap()
}

fn causal(name: &str, precision: Precision) -> Arc<dyn CausalLm> {
    checkpoint(name).causal(DeviceName::Cpu, precision).unwrap().into()
}

fn seq2seq(name: &str, precision: Precision) -> Arc<dyn Seq2Seq> {
    checkpoint(name).seq2seq(DeviceName::Cpu, precision).unwrap().into()
}

/// A packed model with its batches and its searches of one request.
enum Model {
    Causal(Arc<dyn CausalLm>),
    Seq2Seq(Arc<dyn Seq2Seq>),
}

impl Model {
    fn all() -> Vec<(String, Self)> {
        let mut all = Vec::new();
        for precision in [Precision::F32, Precision::Int8] {
            // The others have windows, norms of heads and results, factors of parts and logits, keys of earlier layers, streams, and
            // states of recurrent layers.
            for name in [
                "llama",
                "qwen2",
                "decoders/gemma3_text",
                "decoders/qwen3",
                "decoders/granite",
                "decoders/gemma3n_text",
                "decoders/gemma4_text",
                "decoders/falcon_h1",
                "decoders/granitemoehybrid",
                "decoders/lfm2",
                "decoders/qwen3_next",
                "decoders/qwen3_5_text",
            ] {
                all.push((format!("{name}, {precision:?}"), Self::Causal(causal(name, precision))));
            }
            for name in SEQ2SEQ {
                all.push((format!("{name}, {precision:?}"), Self::Seq2Seq(seq2seq(name, precision))));
            }
        }
        all
    }

    fn vocabulary(&self) -> u32 {
        match self {
            Self::Causal(model) => model.vocab_size() as u32,
            Self::Seq2Seq(model) => model.vocab_size() as u32,
        }
    }

    fn batch(&self) -> RunningBatch {
        match self {
            Self::Causal(model) => RunningBatch::causal(model.clone()).unwrap(),
            Self::Seq2Seq(model) => RunningBatch::seq2seq(model.clone()).unwrap(),
        }
    }

    fn alone(&self, request: &Request) -> Hypothesis {
        let mut found = match self {
            Self::Causal(model) => {
                let prompts = std::slice::from_ref(&request.tokens);
                generate_causal_until(&**model, prompts, &request.options, &request.stops, None)
            }
            Self::Seq2Seq(model) => {
                let input = Batch::new(&[&request.tokens], model.special_tokens().pad, &Device::Cpu).unwrap();
                generate(&**model, &input, &request.options)
            }
        };
        found.as_mut().unwrap().remove(0).remove(0)
    }

    /// A random request.
    fn request(&self, rng: &mut ChaCha8Rng) -> Request {
        let vocabulary = self.vocabulary();
        let length = rng.random_range(1..12);
        let tokens = (0..length).map(|_| rng.random_range(3..vocabulary)).collect();
        let is_sampled = rng.random_bool(0.5);
        let most = rng.random_range(1..16);
        let options = GenerationOptions {
            max_new_tokens: Some(most),
            min_new_tokens: rng.random_bool(0.3).then(|| most.min(5)),
            num_beams: Some(1),
            do_sample: Some(is_sampled),
            temperature: Some(if rng.random_bool(0.5) { 0.7 } else { 1.5 }),
            top_k: Some([0, 5, 50][rng.random_range(0..3)]),
            top_p: Some(if rng.random_bool(0.5) { 0.9 } else { 1.0 }),
            seed: Some(rng.random_range(0..1000)),
            repetition_penalty: rng.random_bool(0.5).then_some(1.3),
            no_repeat_ngram_size: rng.random_bool(0.3).then_some(2),
            encoder_no_repeat_ngram_size: rng.random_bool(0.3).then_some(2),
            ..GenerationOptions::default()
        };
        let stops = match self {
            // Many, so that some requests end by them.
            Self::Causal(_) if rng.random_bool(0.5) => (0..vocabulary).step_by(9).collect(),
            _ => Vec::new(),
        };
        Request { tokens, options, stops }
    }
}

#[derive(Debug)]
struct Request {
    tokens: Vec<u32>,
    options: GenerationOptions,
    stops: Vec<u32>,
}

/// What a batch has said of a request.
#[derive(Default)]
struct Seen {
    tokens: Vec<u32>,
    finished: Option<(FinishReason, Hypothesis)>,
}

fn note(seen: &mut BTreeMap<RequestId, Seen>, events: Vec<Event>) {
    for Event { request, outcome } in events {
        let seen = seen.entry(request).or_default();
        assert!(seen.finished.is_none(), "{request:?} has an event after its end");
        match outcome {
            Outcome::Token(token) => seen.tokens.push(token),
            Outcome::Finished { token, reason, hypothesis } => {
                seen.tokens.push(token);
                seen.finished = Some((reason, hypothesis));
            }
            Outcome::Failed(error) => panic!("{request:?}: {error}"),
        }
    }
}

/// Runs requests that join and leave at random, and compares each with its search alone.
fn random_joins(name: &str, model: &Model, seed: u64) {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let mut batch = model.batch();
    let mut requests: BTreeMap<RequestId, Request> = BTreeMap::new();
    let mut seen: BTreeMap<RequestId, Seen> = BTreeMap::new();
    let mut removed: BTreeMap<RequestId, Hypothesis> = BTreeMap::new();
    let count = 14;
    while requests.len() < count || !batch.is_empty() {
        // At most four join at once: with AMX, products of 48 rows and more have sums in another order.
        for _ in 0..4 {
            if requests.len() == count || rng.random_bool(0.6) {
                break;
            }
            let request = model.request(rng);
            let id = batch.add(&request.tokens, &request.options, &request.stops).unwrap();
            assert!(requests.insert(id, request).is_none());
        }
        let open: Vec<RequestId> = requests
            .keys()
            .filter(|id| !removed.contains_key(id))
            .filter(|id| seen.get(id).is_none_or(|seen| seen.finished.is_none()))
            .copied()
            .collect();
        assert_eq!(batch.len(), open.len());
        if !open.is_empty() && rng.random_bool(0.1) {
            let id = open[rng.random_range(0..open.len())];
            removed.insert(id, batch.remove(id).unwrap().unwrap());
            assert_eq!(batch.remove(id).unwrap(), None);
        }
        let events = batch.step().unwrap();
        assert_eq!(
            events.iter().map(|event| event.request).collect::<Vec<_>>(),
            open.into_iter().filter(|id| !removed.contains_key(id)).collect::<Vec<_>>()
        );
        note(&mut seen, events);
    }
    for (id, request) in &requests {
        let alone = model.alone(request);
        let tokens = seen.get(id).map_or(&[][..], |seen| &seen.tokens);
        if let Some(removed) = removed.get(id) {
            assert_eq!(removed.tokens, tokens, "{name}, {seed}: {request:?}");
            assert_eq!(tokens, &alone.tokens[..tokens.len()], "{name}, {seed}: {request:?}");
            continue;
        }
        let (reason, found) = seen[id].finished.as_ref().unwrap();
        assert_eq!(*found, alone, "{name}, {seed}: {request:?}");
        assert_eq!(tokens, alone.tokens, "{name}, {seed}: {request:?}");
        let is_full = tokens.len() == request.options.max_new_tokens.unwrap();
        assert!(*reason == FinishReason::EndToken || is_full, "{name}, {seed}: {request:?}");
    }
}

#[test]
fn requests_that_join_and_leave_get_what_they_get_alone() {
    for (name, model) in Model::all() {
        for seed in 0..4 {
            random_joins(&name, &model, seed);
        }
    }
}

#[test]
fn a_request_that_leaves_does_not_change_its_neighbours() {
    for (name, model) in Model::all() {
        let options = |seed| GenerationOptions {
            num_beams: Some(1),
            max_new_tokens: Some(12),
            min_new_tokens: Some(12),
            do_sample: Some(true),
            seed: Some(seed),
            ..GenerationOptions::default()
        };
        let rows: [Vec<u32>; 3] = [vec![5, 6, 7], vec![8; 17], vec![9, 10]];
        let run = |leaves: Option<usize>| {
            let mut batch = model.batch();
            let ids: Vec<RequestId> =
                (1u64..).zip(&rows).map(|(seed, row)| batch.add(row, &options(seed), &[]).unwrap()).collect();
            let mut seen = BTreeMap::new();
            for step in 0..12 {
                if let Some(leaves) = leaves.filter(|_| step == 5) {
                    assert_eq!(batch.remove(ids[leaves]).unwrap().unwrap().tokens.len(), 5);
                }
                note(&mut seen, batch.step().unwrap());
            }
            assert!(batch.is_empty());
            ids.iter().map(|id| seen[id].tokens.clone()).collect::<Vec<_>>()
        };
        let whole = run(None);
        for leaves in 0..3 {
            let found = run(Some(leaves));
            for (at, (found, whole)) in found.iter().zip(&whole).enumerate() {
                let steps = if at == leaves { 5 } else { 12 };
                assert_eq!(found, &whole[..steps], "{name}: {leaves} leaves, {at}");
            }
        }
    }
}

#[test]
fn a_request_whose_rules_leave_nothing_fails_alone() {
    let model = Model::Causal(causal("llama", Precision::F32));
    let mut batch = model.batch();
    let all: Vec<u32> = (0..model.vocabulary()).collect();
    let none = GenerationOptions { suppress_tokens: Some(all), ..GenerationOptions::default() };
    let good = GenerationOptions {
        max_new_tokens: Some(3),
        min_new_tokens: Some(3),
        ..GenerationOptions::default()
    };
    let first = batch.add(&[4, 5], &good, &[]).unwrap();
    let bad = batch.add(&[4, 5], &none, &[]).unwrap();
    let events = batch.step().unwrap();
    assert!(matches!(&events[0], Event { request, outcome: Outcome::Token(_) } if *request == first));
    let Event { request, outcome: Outcome::Failed(error) } = &events[1] else { panic!("{events:?}") };
    assert!(*request == bad && error.to_string().contains("none after 0 new tokens"), "{error}");
    let request = Request { tokens: vec![4, 5], options: good, stops: Vec::new() };
    let mut seen = BTreeMap::from([(first, Seen::default())]);
    note(&mut seen, batch.step().unwrap());
    note(&mut seen, batch.step().unwrap());
    assert_eq!(seen[&first].finished.as_ref().unwrap().1, model.alone(&request));
    assert_eq!(batch.step().unwrap().len(), 0);
}

#[test]
fn what_cannot_join_is_refused_by_name() {
    let refused = |found: Result<RunningBatch, sporran_checkpoint::Error>| {
        let error = found.err().unwrap().to_string();
        assert!(error.contains("a packed model on a CPU") && error.contains("another model"), "{error}");
    };
    refused(RunningBatch::causal(causal("gpt2", Precision::F32)));
    let candle: Box<dyn CausalLm> = checkpoint("llama").causal_model(DType::F32, &Device::Cpu).unwrap();
    refused(RunningBatch::causal(candle.into()));
    let candle: Box<dyn Seq2Seq> = checkpoint("bart").model(DType::F32, &Device::Cpu).unwrap();
    refused(RunningBatch::seq2seq(candle.into()));

    let mut batch = RunningBatch::seq2seq(seq2seq("bart", Precision::F32)).unwrap();
    let one = || GenerationOptions { num_beams: Some(1), ..GenerationOptions::default() };
    let beams = GenerationOptions { num_beams: Some(4), ..one() };
    let several = GenerationOptions { num_return_sequences: Some(2), do_sample: Some(true), ..one() };
    for (tokens, options, expected) in [
        (vec![5], beams, "`num-beams`: expected 1 in a running batch, found 4"),
        (vec![5], several, "`num-return-sequences`: expected 1 in a running batch, found 2"),
        (vec![5, 160], one(), "token ids below 160, found 160"),
        (vec![], one(), "at least one token, found none"),
        (vec![5; 513], one(), "at most 512 input tokens, found 513"),
        (
            vec![5],
            GenerationOptions { temperature: Some(0.0), do_sample: Some(true), ..one() },
            "temperature",
        ),
    ] {
        let error = batch.add(&tokens, &options, &[]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(batch.is_empty() && batch.step().unwrap().is_empty());
}
