//! Searches, rules and sampling against the `transformers` library, on the tiny checkpoints of `parity.rs` and the
//! fixtures that `scripts/reference/decoding_parity.py` makes.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::device::device;
use candle_core::DType;
use serde::Deserialize;
use sporran_checkpoint::{Result, SpecialTokens};
use sporran_transformers::{
    Batch, Checkpoint, Constraint, GenerationOptions, Hypothesis, Inputs, Seq2Seq, Sequences, generate,
    generate_with, search,
};

const FOLDERS: [&str; 3] = ["t5-relu", "t5-gated", "bart"];

#[derive(Deserialize)]
struct Inputted {
    rows: Vec<Vec<u32>>,
}

#[derive(Deserialize)]
struct Decoding {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    options: GenerationOptions,
    titles: Option<Vec<Vec<u32>>>,
    outputs: Vec<Vec<Output>>,
}

#[derive(Deserialize)]
struct Output {
    tokens: Vec<u32>,
    score: f32,
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn open(name: &str) -> (Box<dyn Seq2Seq>, Vec<Vec<u32>>, Vec<Case>) {
    let folder = data().join(name);
    let model = Checkpoint::open(&folder).unwrap().model(DType::F32, &device()).unwrap();
    let rows = read::<Inputted>(&folder.join("expected.json")).rows;
    (model, rows, read::<Decoding>(&folder.join("decoding.json")).cases)
}

/// The tokens that may follow each beginning of a title.
struct Titles(BTreeMap<Vec<u32>, BTreeSet<u32>>);

impl Titles {
    fn new(titles: &[Vec<u32>], eos: u32) -> Self {
        let mut follow: BTreeMap<Vec<u32>, BTreeSet<u32>> = BTreeMap::new();
        for title in titles {
            for at in 0..=title.len() {
                let next = title.get(at).copied().unwrap_or(eos);
                follow.entry(title[..at].to_vec()).or_default().insert(next);
            }
        }
        Self(follow)
    }
}

impl Constraint for Titles {
    fn allowed(&self, _: usize, tokens: &[u32], allowed: &mut Vec<u32>) {
        allowed.extend(self.0.get(tokens).into_iter().flatten());
    }
}

fn run(model: &dyn Seq2Seq, rows: &[Vec<u32>], case: &Case) -> Vec<Vec<Hypothesis>> {
    let batch = Batch::new(rows, model.special_tokens().pad, &device()).unwrap();
    let Some(titles) = &case.titles else { return generate(model, &batch, &case.options).unwrap() };
    let titles = Titles::new(titles, model.special_tokens().eos[0]);
    let inputs = Inputs { sources: Some(rows), constraint: Some(&titles), sink: None };
    generate_with(model, &model.encode(&batch).unwrap(), &case.options, &inputs).unwrap()
}

fn assert_same(name: &str, found: &[Vec<Hypothesis>], expected: &[Vec<Output>]) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in std::iter::zip(found, expected).enumerate() {
        assert_eq!(found.len(), expected.len(), "{name}, input {i}");
        for (rank, (found, expected)) in std::iter::zip(found, expected).enumerate() {
            // Hypotheses that cannot win only fill a place.
            if expected.score < -1e7 {
                assert!(found.score < -1e7, "{name}, input {i}, rank {rank}: {found:?}");
                continue;
            }
            assert_eq!(found.tokens, expected.tokens, "{name}, input {i}, rank {rank}");
            let close = (found.score - expected.score).abs() < 1e-4_f32.max(5e-6 * expected.score.abs());
            assert!(close, "{name}, input {i}, rank {rank}: score {} for {}", found.score, expected.score);
        }
    }
}

#[test]
fn searches_and_rules_agree_in_one_batch() {
    for name in FOLDERS {
        let (model, rows, cases) = open(name);
        for case in &cases {
            assert_same(&format!("{name}, {}", case.name), &run(&*model, &rows, case), &case.outputs);
        }
    }
}

#[test]
fn the_order_and_the_size_of_a_batch_do_not_matter() {
    for name in FOLDERS {
        let (model, rows, cases) = open(name);
        let turned: Vec<Vec<u32>> = rows.iter().rev().cloned().collect();
        let mut drawn: Vec<Case> = Vec::new();
        for (beams, count) in [(1, 3), (3, 2)] {
            let options = GenerationOptions {
                do_sample: Some(true),
                temperature: Some(0.8),
                top_k: Some(12),
                top_p: Some(0.9),
                seed: Some(5),
                num_beams: Some(beams),
                num_return_sequences: Some(count),
                max_new_tokens: Some(12),
                ..Default::default()
            };
            let outputs = rows.iter().map(|row| {
                let batch = Batch::new(std::slice::from_ref(row), 0, &device()).unwrap();
                let found = generate(&*model, &batch, &options).unwrap().remove(0);
                found.into_iter().map(|h| Output { tokens: h.tokens, score: h.score }).collect()
            });
            let outputs = outputs.collect();
            drawn.push(Case { name: format!("{beams} beams, drawn"), options, titles: None, outputs });
        }
        let other =
            |name: &str| name.contains("groups") || name.contains("repetition") || name.contains("titles");
        for case in cases.into_iter().filter(|case| other(&case.name)).chain(drawn) {
            let mut found = run(&*model, &turned, &case);
            found.reverse();
            assert_same(&format!("{name}, {}, turned", case.name), &found, &case.outputs);
            for pair in [0..2, 3..5] {
                let found = run(&*model, &rows[pair.clone()], &case);
                assert_same(&format!("{name}, {}, {pair:?}", case.name), &found, &case.outputs[pair]);
            }
        }
    }
}

#[test]
fn other_seeds_draw_other_sequences() {
    let (model, rows, _) = open("bart");
    let batch = Batch::new(&rows, model.special_tokens().pad, &device()).unwrap();
    let draw = |seed| {
        let options = GenerationOptions {
            do_sample: Some(true),
            seed: Some(seed),
            num_return_sequences: Some(4),
            max_new_tokens: Some(10),
            ..Default::default()
        };
        generate(&*model, &batch, &options).unwrap()
    };
    let (first, again, other) = (draw(1), draw(1), draw(2));
    assert_eq!(first, again);
    assert_ne!(first, other);
    assert!(first.iter().all(|drawn| drawn.len() == 4 && drawn[0] != drawn[1]));
}

/// Inputs without a model: every token is followed by the same scores.
struct Fixed {
    logits: Vec<f32>,
    inputs: usize,
}

impl Sequences for Fixed {
    fn inputs(&self) -> usize {
        self.inputs
    }

    fn prompt(&self, _: usize) -> &[u32] {
        &[0]
    }

    fn vocab_size(&self) -> usize {
        self.logits.len()
    }

    fn begin(&mut self) -> Result<Vec<f32>> {
        self.next(&vec![0; self.inputs])
    }

    fn next(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        Ok(self.logits.repeat(tokens.len()))
    }

    fn reorder(&mut self, _: &[u32]) -> Result<()> {
        Ok(())
    }

    fn keep(&mut self, inputs: &[u32], _: &[u32]) -> Result<()> {
        self.inputs = inputs.len();
        Ok(())
    }
}

fn special() -> SpecialTokens {
    SpecialTokens { pad: 0, eos: vec![1], bos: None, decoder_start: 0 }
}

/// Pearson's statistic over all cells with their expected counts, and the cells' number less 1.
fn chi_square(cells: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    let cells: Vec<f64> = cells.map(|(found, expected)| (found - expected).powi(2) / expected).collect();
    (cells.iter().sum(), cells.len() as f64 - 1.0)
}

/// The chi-square value that is exceeded about once in ten thousand times (Wilson and Hilferty 1931).
fn limit(freedom: f64) -> f64 {
    let part = 2.0 / (9.0 * freedom);
    freedom * (1.0 - part + 3.72 * part.sqrt()).powi(3)
}

#[test]
fn draws_follow_the_probabilities_that_warping_leaves() {
    #[derive(Deserialize)]
    struct Warping {
        logits: Vec<f32>,
        cases: Vec<Warped>,
    }
    #[derive(Deserialize)]
    struct Warped {
        options: GenerationOptions,
        probabilities: Vec<f64>,
    }
    let warping: Warping = read(&data().join("warping.json"));
    for case in &warping.cases {
        let count = 30_000;
        let options = GenerationOptions {
            do_sample: Some(true),
            seed: Some(11),
            max_new_tokens: Some(1),
            num_return_sequences: Some(count),
            ..case.options.clone()
        };
        let mut fixed = Fixed { logits: warping.logits.clone(), inputs: 1 };
        let drawn = search(&mut fixed, &special(), &options, &Inputs::default()).unwrap().remove(0);
        assert_eq!(drawn.len(), count);
        let mut found = vec![0f64; warping.logits.len()];
        for Hypothesis { tokens, score } in drawn {
            let probability = case.probabilities[tokens[0] as usize];
            assert!((f64::from(score) - probability.ln()).abs() < 1e-4, "{:?}: {tokens:?}", case.options);
            found[tokens[0] as usize] += 1.0;
        }
        let cells = found.into_iter().zip(&case.probabilities).filter(|(_, p)| **p > 2e-4);
        let (statistic, freedom) = chi_square(cells.map(|(found, p)| (found, p * count as f64)));
        if freedom > 0.0 {
            assert!(statistic < limit(freedom), "{:?}: {statistic}", case.options);
        }
    }
}

#[test]
fn beams_are_drawn_without_putting_them_back() {
    let probabilities = [0.05f64, 0.15, 0.45, 0.05, 0.3];
    let logits = probabilities.iter().map(|p| p.ln() as f32).collect();
    let options = GenerationOptions {
        do_sample: Some(true),
        num_beams: Some(2),
        num_return_sequences: Some(2),
        max_new_tokens: Some(1),
        seed: Some(3),
        ..Default::default()
    };
    let inputs = 20_000;
    let mut found: BTreeMap<(u32, u32), f64> = BTreeMap::new();
    for pair in search(&mut Fixed { logits, inputs }, &special(), &options, &Inputs::default()).unwrap() {
        let (a, b) = (pair[0].tokens[0], pair[1].tokens[0]);
        assert!((f64::from(pair[0].score) - probabilities[a as usize].ln()).abs() < 1e-5);
        *found.entry((a.min(b), a.max(b))).or_default() += 1.0;
    }
    // The first two of the draws come back: a then b, or b then a.
    let pairs = (0..5).flat_map(|a| (a + 1..5).map(move |b| (a, b)));
    let cells = pairs.map(|(a, b)| {
        let (p, q) = (probabilities[a as usize], probabilities[b as usize]);
        let expected = p * q / (1.0 - p) + q * p / (1.0 - q);
        (found.get(&(a, b)).copied().unwrap_or(0.0), expected * inputs as f64)
    });
    let (statistic, freedom) = chi_square(cells);
    assert!(statistic < limit(freedom), "{statistic}: {found:?}");
}

/// What sampling leaves to a beam: all probability where scores are normalised again.
#[test]
fn beams_are_drawn_from_probabilities_that_sum_to_1_where_they_are_normalised_again() {
    let probabilities = [0.05f64, 0.15, 0.45, 0.05, 0.3];
    let logits: Vec<f32> = probabilities.iter().map(|p| p.ln() as f32).collect();
    let scores = |renormalises| {
        let options = GenerationOptions {
            do_sample: Some(true),
            num_beams: Some(2),
            num_return_sequences: Some(2),
            max_new_tokens: Some(1),
            temperature: Some(0.5),
            top_k: Some(2),
            renormalize_logits: Some(renormalises),
            ..Default::default()
        };
        let mut fixed = Fixed { logits: logits.clone(), inputs: 1 };
        let mut drawn = search(&mut fixed, &special(), &options, &Inputs::default()).unwrap().remove(0);
        drawn.sort_by_key(|hypothesis| hypothesis.tokens[0]);
        assert_eq!((drawn[0].tokens[0], drawn[1].tokens[0]), (2, 4));
        [drawn[0].score, drawn[1].score].map(f64::from)
    };
    // A temperature of one half squares the probabilities.
    let squares = [0.45f64.powi(2), 0.3f64.powi(2)];
    for (found, square) in scores(false).into_iter().zip(squares) {
        assert!((found - square.ln()).abs() < 1e-5, "{found}");
    }
    for (found, square) in scores(true).into_iter().zip(squares) {
        assert!((found - (square / squares.iter().sum::<f64>()).ln()).abs() < 1e-5, "{found}");
    }
}

#[test]
fn rules_that_leave_nothing_are_an_error_without_beams() {
    for do_sample in [false, true] {
        let options = GenerationOptions {
            suppress_tokens: Some(vec![0, 1, 2, 3]),
            do_sample: Some(do_sample),
            ..Default::default()
        };
        let mut fixed = Fixed { logits: vec![0.0; 4], inputs: 1 };
        let error = search(&mut fixed, &special(), &options, &Inputs::default()).unwrap_err();
        assert!(error.to_string().contains("none after 0 new tokens"), "{error}");
    }
}

#[test]
fn source_tokens_are_required_by_rules_that_read_them() {
    let options = GenerationOptions { encoder_no_repeat_ngram_size: Some(2), ..Default::default() };
    let mut fixed = Fixed { logits: vec![0.0; 4], inputs: 1 };
    let error = search(&mut fixed, &special(), &options, &Inputs::default()).unwrap_err();
    assert!(error.to_string().contains("encoder-no-repeat-ngram-size"), "{error}");
    let sources = [vec![1], vec![2]];
    let inputs = Inputs { sources: Some(&sources), ..Inputs::default() };
    let error = search(&mut fixed, &special(), &options, &inputs).unwrap_err();
    assert!(error.to_string().contains("the sources of 1 inputs, found 2"), "{error}");
}
