//! Retrieval-augmented generation (Lewis et al. 2020, "Retrieval-Augmented Generation for Knowledge-Intensive NLP
//! Tasks"): an input is read with each of its passages separately, and the passage is marginalised.
//!
//! RAG-Token does that for every token: `p(y|x) = prod_i sum_z p(z|x) p(y_i|x,z,y_<i)`. RAG-Sequence does it for
//! whole sequences: `p(y|x) = sum_z p(z|x) prod_i p(y_i|x,z,y_<i)`. As in `transformers`, a beginning-of-sequence
//! token that leads a sequence of RAG-Sequence does not count.

use rayon::prelude::*;
use sporran_checkpoint::{Error, Result};

use super::{
    GenerationOptions, Hypothesis, Inputs, generate_from, scores,
    scores::log_sum_exp,
    search,
    sequences::{Decoder, Sequences},
};
use crate::{
    cache::Cache,
    seq2seq::{Memory, Seq2Seq},
};

/// How RAG-Sequence scores the sequences that beam search finds for each passage.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum RagDecoding {
    /// Every sequence is scored with every passage.
    #[default]
    Thorough,
    /// A sequence counts as impossible with the passages whose beams do not have it.
    Fast,
}

/// The logarithms of the softmax of each input's passage scores; `memory` has a row for every one of them.
fn priors(memory: &Memory, passages: &[Vec<f32>]) -> Result<Vec<Vec<f32>>> {
    let count: usize = passages.iter().map(Vec::len).sum();
    if count != memory.size() || passages.iter().any(Vec::is_empty) {
        return Err(Error::Batch {
            expected: format!("the scores of {} passages, at least one an input", memory.size()),
            found: format!("{:?} an input", passages.iter().map(Vec::len).collect::<Vec<_>>()),
        });
    }
    let log_softmax = |scores: &Vec<f32>| {
        let normaliser = log_sum_exp(scores);
        scores.iter().map(|score| score - normaliser).collect()
    };
    Ok(passages.iter().map(log_softmax).collect())
}

/// Generates for every input by RAG-Token. `memory` has the passages of all inputs, input after input, each read
/// together with its input; `passages` has their scores, of which the softmax is taken.
///
/// # Errors
/// As for [`generate_from`](super::generate_from), and [`Error::Batch`] where `memory` and `passages` differ.
pub fn generate_rag_token(
    model: &dyn Seq2Seq,
    memory: &Memory,
    passages: &[Vec<f32>],
    options: &GenerationOptions,
    inputs: &Inputs<'_>,
) -> Result<Vec<Vec<Hypothesis>>> {
    let priors = priors(memory, passages)?;
    let mut sequences = Marginal { decoder: Decoder::new(model, memory), priors };
    search(&mut sequences, model.special_tokens(), &options.or(model.generation_defaults()), inputs)
}

/// Sequences whose next tokens have the probabilities marginalised over the passages of their input.
struct Marginal<'a> {
    /// The decoder's inputs are passages.
    decoder: Decoder<'a>,
    /// The log-probability of each passage of each input.
    priors: Vec<Vec<f32>>,
}

impl Marginal<'_> {
    /// The decoder's rows for `groups` rows of every input: passage after passage, each with all rows of its input.
    fn spread<T: Copy>(&self, values: &[T]) -> Vec<T> {
        let each = values.len() / self.priors.len();
        let groups = self.priors.iter().zip(values.chunks_exact(each));
        groups
            .flat_map(|(passages, values)| std::iter::repeat_n(values, passages.len()).flatten().copied())
            .collect()
    }

    /// The rows of the decoder, of which the inputs `inputs` had `each` for every passage, that become those of
    /// `rows`: indices of an input's rows, grouped by those inputs.
    fn sources(&self, inputs: &[u32], rows: &[u32]) -> Vec<u32> {
        let first: Vec<usize> = self.first_passages();
        let each = rows.len() / inputs.len();
        // All rows of an input are in its group. The rows no longer show the previous group size, but the decoder's
        // cache does; the size is the same for every passage.
        let before = self.decoder.rows() / first[first.len() - 1];
        let mut sources = Vec::new();
        for (input, rows) in inputs.iter().zip(rows.chunks_exact(each)) {
            let input = *input as usize;
            for passage in first[input]..first[input + 1] {
                sources.extend(rows.iter().map(|row| (passage * before + *row as usize % before) as u32));
            }
        }
        sources
    }

    /// The first passage of every input, and the number of all.
    fn first_passages(&self) -> Vec<usize> {
        let mut first = vec![0];
        for passages in &self.priors {
            first.push(first[first.len() - 1] + passages.len());
        }
        first
    }

    /// From the decoder's scores, (passages * each, vocabulary), to those of the inputs' rows.
    fn marginalise(&self, scores: Vec<f32>, each: usize) -> Vec<f32> {
        let vocabulary = self.vocab_size();
        let normalisers: Vec<f32> = scores.par_chunks_exact(vocabulary).map(log_sum_exp).collect();
        let first = self.first_passages();
        let mut out = vec![f32::NEG_INFINITY; self.priors.len() * each * vocabulary];
        out.par_chunks_exact_mut(vocabulary).enumerate().for_each(|(at, out)| {
            let (input, row) = (at / each, at % each);
            let rows: Vec<(&[f32], f32)> = self.priors[input]
                .iter()
                .enumerate()
                .map(|(passage, prior)| {
                    let at = (first[input] + passage) * each + row;
                    (&scores[at * vocabulary..][..vocabulary], prior - normalisers[at])
                })
                .collect();
            scores::log_add(&rows, out);
        });
        out
    }
}

impl Sequences for Marginal<'_> {
    fn inputs(&self) -> usize {
        self.priors.len()
    }

    fn prompt(&self, input: usize) -> &[u32] {
        self.decoder.prompt(input)
    }

    fn room(&self, input: usize) -> usize {
        self.decoder.room(input)
    }

    fn vocab_size(&self) -> usize {
        self.decoder.vocab_size()
    }

    fn begin(&mut self) -> Result<Vec<f32>> {
        let scores = self.decoder.begin()?;
        Ok(self.marginalise(scores, 1))
    }

    fn next(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let scores = self.decoder.next(&self.spread(tokens))?;
        Ok(self.marginalise(scores, tokens.len() / self.priors.len()))
    }

    fn reorder(&mut self, rows: &[u32]) -> Result<()> {
        let all: Vec<u32> = (0..self.priors.len() as u32).collect();
        self.decoder.reorder(&self.sources(&all, rows))
    }

    fn keep(&mut self, inputs: &[u32], rows: &[u32]) -> Result<()> {
        let sources = self.sources(inputs, rows);
        let first = self.first_passages();
        let passages: Vec<u32> = inputs
            .iter()
            .flat_map(|input| first[*input as usize] as u32..first[*input as usize + 1] as u32)
            .collect();
        self.priors = inputs.iter().map(|input| self.priors[*input as usize].clone()).collect();
        self.decoder.keep(&passages, &sources)
    }
}

/// Generates for every input by RAG-Sequence; arguments as for [`generate_rag_token`]. Beam search with each passage
/// finds `num-beams` sequences; the best of all that were found come back, at most `num-return-sequences`. A
/// hypothesis's score is its log-probability with the passages marginalised out, without a length penalty.
///
/// # Errors
/// As for [`generate_rag_token`], and [`Error::Options`] for sampling.
pub fn generate_rag_sequence(
    model: &dyn Seq2Seq,
    memory: &Memory,
    passages: &[Vec<f32>],
    options: &GenerationOptions,
    decoding: RagDecoding,
) -> Result<Vec<Vec<Hypothesis>>> {
    let priors = priors(memory, passages)?;
    let options = options.or(model.generation_defaults());
    if options.do_sample == Some(true) {
        let (expected, found) = ("false for RAG-Sequence".into(), "true".into());
        return Err(Error::Options { option: "do-sample", expected, found });
    }
    let wanted = options.num_return_sequences.unwrap_or(1);
    let each = GenerationOptions { num_return_sequences: options.num_beams, ..options.clone() };
    let mut found = generate_from(model, memory, &each)?.into_iter();
    let mut first = 0;
    let mut outputs = Vec::with_capacity(priors.len());
    for priors in priors {
        let found: Vec<Vec<Hypothesis>> = found.by_ref().take(priors.len()).collect();
        let mut candidates: Vec<Vec<u32>> = Vec::new();
        for hypothesis in found.iter().flatten() {
            if !hypothesis.tokens.is_empty() && !candidates.contains(&hypothesis.tokens) {
                candidates.push(hypothesis.tokens.clone());
            }
        }
        let sums: Vec<Vec<f32>> = match decoding {
            RagDecoding::Thorough => {
                let rows: Vec<u32> = (first as u32..(first + priors.len()) as u32).collect();
                with_every_passage(model, &memory.select(&rows)?, &candidates)?
            }
            RagDecoding::Fast => {
                let penalty = if options.num_beams.unwrap_or(1) > 1 {
                    options.length_penalty.unwrap_or(1.0)
                } else {
                    0.0
                };
                let sum = |found: &[Hypothesis], tokens: &Vec<u32>| {
                    let same = found.iter().find(|hypothesis| hypothesis.tokens == *tokens);
                    let factor = (tokens.len() as f64).powf(penalty) as f32;
                    same.map_or(f32::NEG_INFINITY, |hypothesis| hypothesis.score * factor)
                };
                candidates
                    .iter()
                    .map(|tokens| found.iter().map(|found| sum(found, tokens)).collect())
                    .collect()
            }
        };
        first += priors.len();
        let score = |sums: &Vec<f32>| {
            let joint: Vec<f32> = sums.iter().zip(&priors).map(|(sum, prior)| sum + prior).collect();
            log_sum_exp(&joint)
        };
        let mut scored: Vec<Hypothesis> = candidates
            .into_iter()
            .zip(&sums)
            .map(|(tokens, sums)| Hypothesis { tokens, score: score(sums) })
            .collect();
        scored.sort_by(|a, b| b.score.total_cmp(&a.score));
        scored.truncate(wanted);
        outputs.push(scored);
    }
    Ok(outputs)
}

/// The log-probability of each target with each row of `memory`, a leading beginning-of-sequence token left out.
fn with_every_passage(model: &dyn Seq2Seq, memory: &Memory, targets: &[Vec<u32>]) -> Result<Vec<Vec<f32>>> {
    let bos = model.special_tokens().bos;
    let each = log_probabilities(model, memory, targets)?;
    let sum = |target: &Vec<u32>, row: &Vec<f32>| -> f32 {
        let skipped = usize::from(bos.is_some() && target.first() == bos.as_ref());
        row.iter().skip(skipped).map(|value| f64::from(*value)).sum::<f64>() as f32
    };
    Ok(targets
        .iter()
        .zip(each)
        .map(|(target, rows)| rows.iter().map(|row| sum(target, row)).collect())
        .collect())
}

/// Scores that one pass over the targets may have at once: 256 MiB of them.
const SCORES_AT_ONCE: usize = 1 << 26;

/// The log-probability of every token of each target, given the tokens before it, with each input of `memory`:
/// `[target][input][token]`. A target has the tokens after the decoder's start token.
///
/// # Errors
/// As for [`Seq2Seq::decode`], and [`Error::Batch`] where a token is none of the model's.
pub fn log_probabilities(
    model: &dyn Seq2Seq,
    memory: &Memory,
    targets: &[Vec<u32>],
) -> Result<Vec<Vec<Vec<f32>>>> {
    let (vocabulary, inputs) = (model.vocab_size(), memory.size());
    if let Some(token) = targets.iter().flatten().find(|token| **token as usize >= vocabulary) {
        return Err(Error::Batch {
            expected: format!("tokens below {vocabulary}"),
            found: token.to_string(),
        });
    }
    let mut found = Vec::with_capacity(targets.len());
    for targets in targets.chunks((SCORES_AT_ONCE / (inputs * vocabulary)).max(1)) {
        let mut each = vec![vec![Vec::new(); inputs]; targets.len()];
        let mut cache = Cache::new();
        let longest = targets.iter().map(Vec::len).max().unwrap_or(0);
        let mut last = vec![model.special_tokens().decoder_start; targets.len()];
        for at in 0..longest {
            let tokens = last.repeat(inputs);
            let scores = model.decode(&tokens, tokens.len(), memory, &mut cache)?;
            let here: Vec<Option<f32>> = scores
                .par_chunks_exact(vocabulary)
                .enumerate()
                .map(|(row, scores)| {
                    let token = targets[row % targets.len()].get(at)?;
                    Some(scores[*token as usize] - log_sum_exp(scores))
                })
                .collect();
            for (row, value) in here.into_iter().enumerate() {
                each[row % targets.len()][row / targets.len()].extend(value);
            }
            for (last, target) in last.iter_mut().zip(targets) {
                // Positions after the end of a target are ignored.
                *last = target.get(at).copied().unwrap_or(*last);
            }
        }
        found.append(&mut each);
    }
    Ok(found)
}
