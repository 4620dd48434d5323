//! Fusion-in-Decoder and retrieval-augmented generation against the `transformers` library, on the tiny checkpoints of
//! `parity.rs` and the fixture that `scripts/reference/fusion_parity.py` makes.

use std::path::Path;

use crate::device::device;
use candle_core::{DType, Tensor};
use serde::Deserialize;
use sporran_transformers::{
    Cache, Checkpoint, GenerationOptions, Hypothesis, Inputs, Memory, Precision, Seq2Seq,
    decode::{RagDecoding, generate_rag_sequence, generate_rag_token, log_probabilities},
    encode_separately, fuse, generate_from,
};

#[derive(Clone, Deserialize)]
struct Folder {
    name: String,
    texts: Vec<Vec<Vec<u32>>>,
    scores: Vec<Vec<f32>>,
    /// Cross-attention's weights for three decoder tokens, the mean over them, over layers and over heads.
    attended: Vec<Vec<f32>>,
    cases: Vec<Case>,
}

#[derive(Clone, Deserialize)]
struct Case {
    options: GenerationOptions,
    fid: Vec<Vec<Output>>,
    thorough: Vec<Vec<Output>>,
    fast: Vec<Vec<Output>>,
    token: Vec<Vec<Output>>,
    logits: Vec<Logits>,
}

#[derive(Clone, Deserialize)]
struct Output {
    tokens: Vec<u32>,
    score: f32,
}

/// The ten best next tokens with RAG-Token's log-probabilities, after three tokens.
#[derive(Clone, Deserialize)]
struct Logits {
    tokens: Vec<u32>,
    scores: Vec<f32>,
}

fn folders() -> Vec<(Folder, Box<dyn Seq2Seq>)> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let text = std::fs::read_to_string(data.join("fusion.json")).unwrap();
    let folders: Vec<Folder> = serde_json::from_str(&text).unwrap();
    // The plain model and the packed one of each folder.
    let models = |name: &str| -> [Box<dyn Seq2Seq>; 2] {
        let checkpoint = Checkpoint::open(&data.join(name)).unwrap();
        let plain: Box<dyn Seq2Seq> = checkpoint.model(DType::F32, &device()).unwrap();
        [plain, Box::new(checkpoint.fast(Precision::F32).unwrap())]
    };
    let both = |folder: Folder| models(&folder.name).map(|model| (folder.clone(), model));
    folders.into_iter().flat_map(both).collect()
}

/// The states of every text, grouped by input.
fn states(model: &dyn Seq2Seq, texts: &[Vec<Vec<u32>>], tokens: usize) -> Vec<Vec<Tensor>> {
    let rows: Vec<&Vec<u32>> = texts.iter().flatten().collect();
    let mut states = encode_separately(model, &rows, tokens).unwrap().into_iter();
    texts.iter().map(|texts| states.by_ref().take(texts.len()).collect()).collect()
}

/// All texts of an input in one row.
fn fused(states: &[Vec<Tensor>]) -> Memory {
    fuse(&states.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap()
}

/// Every text in a separate row.
fn apart(states: &[Vec<Tensor>]) -> Memory {
    fuse(&states.iter().flatten().map(std::slice::from_ref).collect::<Vec<_>>()).unwrap()
}

fn assert_same(name: &str, found: &[Vec<Hypothesis>], expected: &[Vec<Output>]) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in std::iter::zip(found, expected).enumerate() {
        assert_eq!(found.len(), expected.len(), "{name}, input {i}");
        for (rank, (found, expected)) in std::iter::zip(found, expected).enumerate() {
            assert_eq!(found.tokens, expected.tokens, "{name}, input {i}, rank {rank}");
            let difference = (found.score - expected.score).abs();
            assert!(
                difference < 1e-4,
                "{name}, input {i}, rank {rank}: {} for {}",
                found.score,
                expected.score
            );
        }
    }
}

#[test]
fn the_decoder_reads_all_texts_of_an_input() {
    for (folder, model) in folders() {
        // One text at a time, a few, and all.
        for tokens in [1, 40, 10_000] {
            let memory = fused(&states(&*model, &folder.texts, tokens));
            for case in &folder.cases {
                let found = generate_from(&*model, &memory, &case.options).unwrap();
                assert_same(&format!("{} fid {:?}", folder.name, case.options), &found, &case.fid);
            }
        }
    }
}

#[test]
fn what_the_decoder_attends_to_is_kept() {
    for (folder, model) in folders() {
        let memory = fused(&states(&*model, &folder.texts, 100));
        let start = [model.special_tokens().decoder_start, 7, 9].repeat(memory.size());
        let mut cache = Cache::watching();
        let watched = model.decode(&start, memory.size(), &memory, &mut cache).unwrap();
        let found = cache.attended().unwrap();
        let mut plain = Cache::new();
        assert_eq!(watched, model.decode(&start, memory.size(), &memory, &mut plain).unwrap());
        assert!(plain.attended().unwrap().is_empty());
        assert_eq!(found.len(), folder.attended.len());
        for (found, expected) in std::iter::zip(&found, &folder.attended) {
            for (found, expected) in std::iter::zip(&found[..expected.len()], expected) {
                assert!((found - expected).abs() < 1e-6, "{}: {found} {expected}", folder.name);
            }
        }
    }
}

#[test]
fn whole_sequences_are_marginalised() {
    for (folder, model) in folders() {
        let memory = apart(&states(&*model, &folder.texts, 100));
        for case in &folder.cases {
            for (decoding, expected) in
                [(RagDecoding::Thorough, &case.thorough), (RagDecoding::Fast, &case.fast)]
            {
                let found =
                    generate_rag_sequence(&*model, &memory, &folder.scores, &case.options, decoding).unwrap();
                let name = format!("{} {decoding:?} {:?}", folder.name, case.options);
                assert_same(&name, &found, expected);
            }
        }
    }
}

#[test]
fn tokens_are_marginalised_in_a_batch_and_alone() {
    for (folder, model) in folders() {
        let states = states(&*model, &folder.texts, 100);
        for case in &folder.cases {
            let generate = |range: std::ops::Range<usize>| {
                let (memory, scores) = (apart(&states[range.clone()]), &folder.scores[range]);
                generate_rag_token(&*model, &memory, scores, &case.options, &Inputs::default()).unwrap()
            };
            let name = format!("{} token {:?}", folder.name, case.options);
            assert_same(&name, &generate(0..3), &case.token);
            for input in 0..3 {
                assert_same(&name, &generate(input..input + 1), &case.token[input..=input]);
            }
        }
    }
}

#[test]
fn the_probabilities_of_a_token_are_those_of_its_passages_together() {
    for (folder, model) in folders() {
        let states = states(&*model, &folder.texts, 100);
        for (input, logits) in folder.cases[0].logits.iter().enumerate() {
            let memory = apart(&states[input..=input]);
            // By Bayes: p(z|x) p(y_1..3|x,z) does not enter, as RAG-Token mixes every token by p(z|x) alone.
            let total: f32 = folder.scores[input].iter().map(|score| score.exp()).sum();
            for (token, expected) in logits.tokens.iter().zip(&logits.scores) {
                let found = log_probabilities(&*model, &memory, &[vec![7, 9, 4, *token]]).unwrap().remove(0);
                let each = found.iter().zip(&folder.scores[input]);
                let sum: f32 = each.map(|(row, score)| row[3].exp() * score.exp() / total).sum();
                assert!((sum.ln() - expected).abs() < 1e-4, "{}: {} for {expected}", folder.name, sum.ln());
            }
        }
    }
}

#[test]
fn targets_have_the_same_probabilities_together_and_alone() {
    for (folder, model) in folders() {
        let memory = fused(&states(&*model, &folder.texts, 100));
        let targets: Vec<Vec<u32>> =
            folder.cases[1].fid.iter().map(|found| found[0].tokens.clone()).collect();
        let together = log_probabilities(&*model, &memory, &targets).unwrap();
        for (target, rows) in targets.iter().zip(&together) {
            for (input, row) in rows.iter().enumerate() {
                assert_eq!(row.len(), target.len());
                let memory = memory.select(&[input as u32]).unwrap();
                let alone = log_probabilities(&*model, &memory, std::slice::from_ref(target)).unwrap();
                for (a, b) in row.iter().zip(&alone[0][0]) {
                    assert!((a - b).abs() < 1e-4, "{}: {a} and {b}", folder.name);
                }
            }
        }
    }
}

#[test]
fn scores_and_passages_that_differ_are_refused() {
    let (folder, model) = folders().remove(0);
    let memory = apart(&states(&*model, &folder.texts, 100));
    let refused = |scores: &[Vec<f32>], options: &GenerationOptions| {
        generate_rag_sequence(&*model, &memory, scores, options, RagDecoding::Fast).unwrap_err().to_string()
    };
    let none = GenerationOptions::default();
    assert!(refused(&folder.scores[1..], &none).contains("the scores of 8 passages"));
    let drawn = GenerationOptions { do_sample: Some(true), ..none };
    assert!(refused(&folder.scores, &drawn).contains("do-sample"));
    assert!(log_probabilities(&*model, &memory, &[vec![100_000]]).is_err());
}
