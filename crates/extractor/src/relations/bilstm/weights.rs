//! The forward pass: from sentences to the logits of their pairs.

use std::sync::Arc;

use candle_nn::Init;
use rayon::prelude::*;
use sporran_kernels::{Matrix, Precision};
use sporran_transformers::{PackedBiLstm, length_batches};

use super::{
    BilstmFile, EncoderWords, Pooling, Vectors,
    features::TAGS,
    reading::{ReadPair, ReadSentence, Words},
};
use crate::tagger::{WordRows, bilstm::head};

pub(super) type Model<T> = sporran_checkpoint::Result<T>;

pub(super) const LSTM: &str = "lstm";
/// The trained word table.
pub(super) const WORDS: &str = "words.weight";
/// The logits of the layers' weights, and the scale of their mean.
pub(super) const MIX: &str = "mix.weight";
pub(super) const SCALE: &str = "mix.scale";
pub(super) const HEAD: [&str; 2] = ["classifier.weight", "classifier.bias"];

/// The number of pairs' tokens in a batch.
const BATCH: usize = 4096;

/// Names, shapes and initial values of all weights of a model except the LSTM's.
pub(super) fn parameters(file: &BilstmFile) -> Vec<(&'static str, Vec<usize>, Init)> {
    let normal = |stdev: f64| Init::Randn { mean: 0.0, stdev };
    let mut all = Vec::new();
    if file.vectors.is_none() {
        all.push((WORDS, vec![file.shape.words.buckets, file.shape.words.width], normal(0.3)));
    }
    if let Some(EncoderWords { layers, .. }) = &file.encoder {
        all.push((MIX, vec![*layers], Init::Const(0.0)));
        all.push((SCALE, vec![1], Init::Const(1.0)));
    }
    let inputs = file.joined_width();
    all.push((HEAD[0], vec![file.outputs(), inputs], normal((inputs as f64).powf(-0.5))));
    // Most pairs have no property.
    all.push((HEAD[1], vec![file.outputs()], Init::Const(-3.0)));
    all
}

/// All weights except the LSTM's, and the settings.
#[derive(Debug)]
pub(super) struct Weights {
    pub(super) file: Arc<BilstmFile>,
    vectors: Option<Arc<Vectors>>,
    words: Vec<f32>,
    mix: Vec<f32>,
    pub(super) scale: f32,
    pub(super) head: Vec<f32>,
    head_bias: Vec<f32>,
}

/// A pair with the index of its sentence's first token among all tokens.
pub(super) struct Placed<'a> {
    pub(super) first: usize,
    pub(super) pair: &'a ReadPair,
}

/// Some pairs of a sentence, by their indices.
pub(super) struct Picked<'a> {
    pub(super) sentence: &'a ReadSentence,
    pub(super) pairs: Vec<usize>,
}

impl<'a> Picked<'a> {
    /// All pairs of a sentence.
    pub(super) fn all(sentence: &'a ReadSentence) -> Self {
        Self { sentence, pairs: (0..sentence.pairs.len()).collect() }
    }

    /// The number of tokens of the pairs.
    pub(super) fn tokens(&self) -> usize {
        self.pairs.iter().map(|at| self.sentence.pairs[*at].tokens.len()).sum()
    }
}

/// The picked pairs of sentences, one after the other.
pub(super) fn placed<'a>(picked: &[Picked<'a>]) -> Vec<Placed<'a>> {
    let mut first = 0;
    let mut pairs = Vec::new();
    for Picked { sentence, pairs: own } in picked {
        pairs.extend(own.iter().map(|at| Placed { first, pair: &sentence.pairs[*at] }));
        first += sentence.tags.len();
    }
    pairs
}

impl Weights {
    /// Takes the weights from `take` by name and shape.
    pub(super) fn new(
        file: Arc<BilstmFile>,
        vectors: Option<Arc<Vectors>>,
        take: impl Fn(&str, &[usize]) -> Model<Vec<f32>>,
    ) -> Model<Self> {
        let parameters = parameters(&file);
        let of = |name: &str| match parameters.iter().find(|(own, ..)| *own == name) {
            Some((_, shape, _)) => take(name, shape),
            None => Ok(Vec::new()),
        };
        Ok(Self {
            words: of(WORDS)?,
            mix: of(MIX)?,
            scale: of(SCALE)?.first().copied().unwrap_or(1.0),
            head: of(HEAD[0])?,
            head_bias: of(HEAD[1])?,
            file,
            vectors,
        })
    }

    /// The weights of an encoder's layers, which sum to 1.
    pub(super) fn shares(&self) -> Vec<f32> {
        let most = self.mix.iter().fold(f32::NEG_INFINITY, |most, value| most.max(*value));
        let raised: Vec<f32> = self.mix.iter().map(|value| (value - most).exp()).collect();
        let sum: f32 = raised.iter().sum();
        raised.into_iter().map(|value| value / sum).collect()
    }

    /// The vectors of sentences' tokens without features of a pair, (tokens, token width). `kept` has a dropout factor for each
    /// group of each hashed word.
    pub(super) fn tokens(&self, sentences: &[&ReadSentence], kept: Option<&[f32]>) -> Vec<f32> {
        let (word_width, token_width) = (self.file.word_width(), self.file.token_width());
        let hashed: Vec<&WordRows> = hashed(sentences).collect();
        let hashed = self.file.shape.words.vectors(&self.words, &hashed, kept);
        let mut hashed = hashed.chunks_exact(word_width);
        let shares = self.shares();
        let count: usize = sentences.iter().map(|sentence| sentence.tags.len()).sum();
        let mut vectors = vec![0.0; count * token_width];
        let mut rows = vectors.chunks_exact_mut(token_width);
        for sentence in sentences {
            for (at, (tags, row)) in sentence.tags.iter().zip(rows.by_ref()).enumerate() {
                let (words, rest) = row.split_at_mut(word_width);
                match &sentence.words {
                    Words::Hashed(_) => words.copy_from_slice(hashed.next().unwrap_or(&[])),
                    Words::Pretrained(rows) => {
                        if let (Some(vectors), Some(row)) = (&self.vectors, rows[at]) {
                            words.copy_from_slice(vectors.vector(row));
                        }
                    }
                }
                let (mixed, last) = rest.split_at_mut(rest.len() - TAGS);
                last.copy_from_slice(tags);
                for (layer, share) in shares.iter().enumerate() {
                    let width = mixed.len();
                    let state = &sentence.layers[(at * shares.len() + layer) * width..][..width];
                    let share = self.scale * share;
                    mixed.iter_mut().zip(state).for_each(|(sum, value)| *sum += share * value);
                }
            }
        }
        vectors
    }

    /// The LSTM's inputs for pairs, (tokens of all pairs, inputs), and the length of each.
    pub(super) fn inputs(&self, tokens: &[f32], pairs: &[Placed<'_>]) -> (Vec<f32>, Vec<usize>) {
        let (token_width, pair_width) = (self.file.token_width(), self.file.pair_features().width());
        let inputs = token_width + pair_width;
        let lengths: Vec<usize> = pairs.iter().map(|placed| placed.pair.tokens.len()).collect();
        let mut xs = vec![0.0; lengths.iter().sum::<usize>() * inputs];
        let mut rows = xs.chunks_exact_mut(inputs);
        for Placed { first, pair } in pairs {
            let features = pair.features.chunks_exact(pair_width);
            // The rows come last, because `zip` takes one more of what comes first.
            for ((token, features), row) in pair.tokens.clone().zip(features).zip(rows.by_ref()) {
                let (own, rest) = row.split_at_mut(token_width);
                own.copy_from_slice(&tokens[(first + token) * token_width..][..token_width]);
                rest.copy_from_slice(features);
            }
        }
        (xs, lengths)
    }

    /// The pooled hidden states of pairs, (pairs, 2 hidden). For max pooling, also the token of each maximum.
    pub(super) fn pooled(&self, states: &[f32], lengths: &[usize]) -> (Vec<f32>, Vec<u32>) {
        let width = 2 * self.file.shape.hidden;
        let mut start = 0;
        match self.file.shape.pooling {
            Pooling::Max => {
                let mut out = vec![f32::NEG_INFINITY; lengths.len() * width];
                let mut from = vec![0; out.len()];
                let rows = out.chunks_exact_mut(width).zip(from.chunks_exact_mut(width));
                for ((out, from), length) in rows.zip(lengths) {
                    for token in start..start + length {
                        let state = &states[token * width..][..width];
                        for ((most, from), value) in out.iter_mut().zip(from.iter_mut()).zip(state) {
                            if value > most {
                                (*most, *from) = (*value, token as u32);
                            }
                        }
                    }
                    start += length;
                }
                (out, from)
            }
            Pooling::Mean => {
                let mut out = vec![0.0; lengths.len() * width];
                for (out, length) in out.chunks_exact_mut(width).zip(lengths) {
                    for state in states[start * width..(start + length) * width].chunks_exact(width) {
                        out.iter_mut().zip(state).for_each(|(sum, value)| *sum += value / *length as f32);
                    }
                    start += length;
                }
                (out, Vec::new())
            }
        }
    }

    /// The inputs of the last layer, (pairs, joined width): pooled states, then features 9 and 10.
    pub(super) fn joined(&self, pooled: &[f32], pairs: &[Placed<'_>]) -> Vec<f32> {
        let (width, states) = (self.file.joined_width(), 2 * self.file.shape.hidden);
        let mut joined = vec![0.0; pairs.len() * width];
        let rows = joined.chunks_exact_mut(width).zip(pooled.chunks_exact(states));
        for ((row, pooled), placed) in rows.zip(pairs) {
            row[..states].copy_from_slice(pooled);
            placed.pair.known.iter().for_each(|at| row[states + at] = 1.0);
        }
        joined
    }

    /// The outputs from the joined inputs.
    pub(super) fn outputs(&self, joined: &[f32]) -> Vec<f32> {
        let matrix = Matrix::pack(&[&self.head], self.file.joined_width(), Precision::F32);
        head(&matrix, &self.head_bias, joined)
    }

    /// The logits of the picked pairs of each sentence, pair by pair.
    pub(super) fn logits(&self, lstm: &PackedBiLstm, picked: &[Picked<'_>]) -> Model<Vec<Vec<f32>>> {
        let sentences: Vec<&ReadSentence> = picked.iter().map(|picked| picked.sentence).collect();
        let tokens = self.tokens(&sentences, None);
        let pairs = placed(picked);
        let lengths: Vec<usize> = pairs.iter().map(|placed| placed.pair.tokens.len()).collect();
        let batches = length_batches(&lengths, usize::MAX, BATCH);
        let parts: Vec<Vec<f32>> = batches
            .par_iter()
            .map(|batch| {
                let own = |&at: &usize| Placed { first: pairs[at].first, pair: pairs[at].pair };
                let own: Vec<Placed<'_>> = batch.iter().map(own).collect();
                let (xs, lengths) = self.inputs(&tokens, &own);
                let states = lstm.states(&xs, &lengths)?;
                Ok(self.outputs(&self.joined(&self.pooled(&states, &lengths).0, &own)))
            })
            .collect::<Model<_>>()?;
        let mut found: Vec<&[f32]> = vec![&[]; pairs.len()];
        for (batch, part) in batches.iter().zip(&parts) {
            for (at, logits) in batch.iter().zip(part.chunks_exact(self.file.outputs())) {
                found[*at] = logits;
            }
        }
        let mut found = found.into_iter();
        let of = |picked: &Picked<'_>| found.by_ref().take(picked.pairs.len()).flatten().copied().collect();
        Ok(picked.iter().map(of).collect())
    }
}

/// The hashed words of sentences.
pub(super) fn hashed<'a>(sentences: &[&'a ReadSentence]) -> impl Iterator<Item = &'a WordRows> {
    sentences.iter().flat_map(|sentence| match &sentence.words {
        Words::Hashed(words) => words.as_slice(),
        Words::Pretrained(_) => &[],
    })
}
