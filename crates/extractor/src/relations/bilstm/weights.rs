//! The forward pass: from sentences to the logits of their pairs.

use candle_nn::Init;
use rayon::prelude::*;
use sporran_kernels::{Matrix, Precision};
use sporran_transformers::{PackedBiLstm, length_batches};

use super::{
    BilstmShape, EncoderWords, Pooling, layout,
    reading::{ReadPair, ReadSentence, Words},
};
use crate::tagger::{WordRows, bilstm::head};

pub(super) type Model<T> = sporran_checkpoint::Result<T>;

pub(super) const LSTM: &str = "lstm";
/// The word table, or the projection of an encoder's hidden states.
pub(super) const WORDS: &str = "words.weight";
pub(super) const WORDS_BIAS: &str = "words.bias";
/// The logits of the layers' weights, and the scale of their mean.
pub(super) const MIX: &str = "mix.weight";
pub(super) const SCALE: &str = "mix.scale";
pub(super) const FEATURES: &str = "features.weight";
pub(super) const HEAD: [&str; 2] = ["classifier.weight", "classifier.bias"];

/// The number of pairs' tokens in a batch.
const BATCH: usize = 4096;

/// The sizes of a network.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    pub(super) shape: BilstmShape,
    pub(super) encoder: Option<EncoderWords>,
    pub(super) labels: usize,
}

impl Sizes {
    /// Two outputs a property in both directions.
    pub(super) fn outputs(&self) -> usize {
        4 * self.labels
    }

    /// The size of a token's vector without features of the pair.
    pub(super) fn token_width(&self) -> usize {
        self.shape.token_width(self.encoder.is_some())
    }

    pub(super) fn word_width(&self) -> usize {
        self.shape.word_width(self.encoder.is_some())
    }

    /// Names, shapes and initial values of all weights except the LSTM's.
    pub(super) fn parameters(&self) -> Vec<(&'static str, Vec<usize>, Init)> {
        let normal = |stdev: f64| Init::Randn { mean: 0.0, stdev };
        let share = |inputs: usize| normal((inputs as f64).powf(-0.5));
        let states = 2 * self.shape.hidden;
        let mut all = match &self.encoder {
            None => vec![(WORDS, vec![self.shape.words.buckets, self.shape.words.width], normal(0.3))],
            Some(EncoderWords { layers, width }) => vec![
                (WORDS, vec![self.shape.projected, *width], share(*width)),
                (WORDS_BIAS, vec![self.shape.projected], Init::Const(0.0)),
                (MIX, vec![*layers], Init::Const(0.0)),
                (SCALE, vec![1], Init::Const(1.0)),
            ],
        };
        all.extend([
            (FEATURES, vec![layout::ROWS, self.shape.width], normal(0.3)),
            (HEAD[0], vec![self.outputs(), states], share(states)),
            // Most pairs have no property.
            (HEAD[1], vec![self.outputs()], Init::Const(-3.0)),
        ]);
        all
    }
}

/// All weights except the LSTM's, and their sizes.
#[derive(Debug)]
pub(super) struct Weights {
    pub(super) sizes: Sizes,
    pub(super) words: Vec<f32>,
    words_bias: Vec<f32>,
    mix: Vec<f32>,
    pub(super) scale: f32,
    pub(super) features: Vec<f32>,
    pub(super) head: Vec<f32>,
    head_bias: Vec<f32>,
}

/// The vectors of sentences' tokens, without features of a pair.
pub(super) struct Tokens {
    /// (tokens, token width)
    pub(super) vectors: Vec<f32>,
    /// The mixed layers of an encoder, (tokens, width).
    pub(super) mixed: Vec<f32>,
}

/// A pair with the index of its sentence's first token among all tokens.
pub(super) struct Placed<'a> {
    pub(super) first: usize,
    pub(super) pair: &'a ReadPair,
}

impl Weights {
    /// Takes the weights from `take` by name and shape.
    pub(super) fn new(sizes: Sizes, take: impl Fn(&str, &[usize]) -> Model<Vec<f32>>) -> Model<Self> {
        let parameters = sizes.parameters();
        let of = |name: &str| match parameters.iter().find(|(own, ..)| *own == name) {
            Some((_, shape, _)) => take(name, shape),
            None => Ok(Vec::new()),
        };
        Ok(Self {
            words: of(WORDS)?,
            words_bias: of(WORDS_BIAS)?,
            mix: of(MIX)?,
            scale: of(SCALE)?.first().copied().unwrap_or(1.0),
            features: of(FEATURES)?,
            head: of(HEAD[0])?,
            head_bias: of(HEAD[1])?,
            sizes,
        })
    }

    /// The weights of an encoder's layers, which sum to 1.
    pub(super) fn shares(&self) -> Vec<f32> {
        let most = self.mix.iter().fold(f32::NEG_INFINITY, |most, value| most.max(*value));
        let raised: Vec<f32> = self.mix.iter().map(|value| (value - most).exp()).collect();
        let sum: f32 = raised.iter().sum();
        raised.into_iter().map(|value| value / sum).collect()
    }

    /// Adds the mean of rows of the feature table; nothing without rows.
    fn add_slot(&self, rows: &[u32], out: &mut [f32]) {
        let width = self.sizes.shape.width;
        for row in rows {
            let row = &self.features[*row as usize * width..][..width];
            out.iter_mut().zip(row).for_each(|(sum, value)| *sum += value / rows.len() as f32);
        }
    }

    /// The vectors of sentences' tokens, without features of a pair. `kept` has a dropout factor for each
    /// group of each hashed word.
    pub(super) fn tokens(&self, sentences: &[&ReadSentence], kept: Option<&[f32]>) -> Tokens {
        let count: usize = sentences.iter().map(|sentence| sentence.slots.len()).sum();
        let (word_width, token_width) = (self.sizes.word_width(), self.sizes.token_width());
        let mut mixed = Vec::new();
        let words = match &self.sizes.encoder {
            None => {
                let words: Vec<&WordRows> = hashed(sentences).collect();
                self.sizes.shape.words.vectors(&self.words, &words, kept)
            }
            Some(EncoderWords { layers, width }) => {
                let shares = self.shares();
                mixed = vec![0.0; count * width];
                let states = sentences.iter().flat_map(|sentence| sentence.layers());
                for (at, value) in states.enumerate() {
                    let (token, rest) = (at / (layers * width), at % (layers * width));
                    mixed[token * width + rest % width] += self.scale * shares[rest / width] * value;
                }
                let projection = Matrix::pack(&[&self.words], *width, Precision::F32);
                head(&projection, &self.words_bias, &mixed)
            }
        };
        let mut vectors = vec![0.0; count * token_width];
        let tokens = sentences.iter().flat_map(|sentence| sentence.slots.iter().zip(&sentence.numbers));
        let rows = vectors.chunks_exact_mut(token_width).zip(words.chunks_exact(word_width));
        for ((row, word), (slots, numbers)) in rows.zip(tokens) {
            let (own, rest) = row.split_at_mut(word_width);
            own.copy_from_slice(word);
            let (embedded, last) = rest.split_at_mut(rest.len() - layout::TOKEN_NUMBERS);
            for (slot, out) in slots.iter().zip(embedded.chunks_exact_mut(self.sizes.shape.width)) {
                self.add_slot(slot, out);
            }
            last.copy_from_slice(numbers);
        }
        Tokens { vectors, mixed }
    }

    /// The LSTM's inputs for pairs, (tokens of all pairs, inputs), and the length of each.
    pub(super) fn inputs(&self, tokens: &Tokens, pairs: &[Placed<'_>]) -> (Vec<f32>, Vec<usize>) {
        let token_width = self.sizes.token_width();
        let inputs = self.sizes.shape.lstm(self.sizes.encoder.is_some()).inputs;
        let lengths: Vec<usize> = pairs.iter().map(|placed| placed.pair.tokens.len()).collect();
        let mut xs = vec![0.0; lengths.iter().sum::<usize>() * inputs];
        let read = pairs.iter().flat_map(|placed| placed.pair.tokens.clone().map(move |at| (placed, at)));
        for (row, (placed, token)) in xs.chunks_exact_mut(inputs).zip(read) {
            let (own, rest) = row.split_at_mut(token_width);
            own.copy_from_slice(&tokens.vectors[(placed.first + token) * token_width..][..token_width]);
            let (embedded, last) = rest.split_at_mut(rest.len() - layout::PAIR_NUMBERS);
            let slots = placed.pair.slots(token);
            for (slot, out) in slots.iter().zip(embedded.chunks_exact_mut(self.sizes.shape.width)) {
                self.add_slot(slot, out);
            }
            last[0] = f32::from(u8::from(placed.pair.is_between(token)));
        }
        (xs, lengths)
    }

    /// The pooled hidden states of pairs, (pairs, 2 hidden). For max pooling, also the token of each maximum.
    pub(super) fn pooled(&self, states: &[f32], lengths: &[usize]) -> (Vec<f32>, Vec<u32>) {
        let width = 2 * self.sizes.shape.hidden;
        let mut start = 0;
        match self.sizes.shape.pooling {
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

    /// The outputs from pooled states.
    pub(super) fn outputs(&self, pooled: &[f32]) -> Vec<f32> {
        let matrix = Matrix::pack(&[&self.head], 2 * self.sizes.shape.hidden, Precision::F32);
        head(&matrix, &self.head_bias, pooled)
    }

    /// The logits of the pairs of each sentence, pair by pair.
    pub(super) fn logits(&self, lstm: &PackedBiLstm, sentences: &[&ReadSentence]) -> Model<Vec<Vec<f32>>> {
        let tokens = self.tokens(sentences, None);
        let mut pairs: Vec<Placed<'_>> = Vec::new();
        let mut first = 0;
        for sentence in sentences {
            pairs.extend(sentence.pairs.iter().map(|pair| Placed { first, pair }));
            first += sentence.slots.len();
        }
        let lengths: Vec<usize> = pairs.iter().map(|placed| placed.pair.tokens.len()).collect();
        let batches = length_batches(&lengths, usize::MAX, BATCH);
        let parts: Vec<Vec<f32>> = batches
            .par_iter()
            .map(|batch| {
                let own = |&at: &usize| Placed { first: pairs[at].first, pair: pairs[at].pair };
                let own: Vec<Placed<'_>> = batch.iter().map(own).collect();
                let (xs, lengths) = self.inputs(&tokens, &own);
                let states = lstm.states(&xs, &lengths)?;
                Ok(self.outputs(&self.pooled(&states, &lengths).0))
            })
            .collect::<Model<_>>()?;
        let mut found: Vec<&[f32]> = vec![&[]; pairs.len()];
        for (batch, part) in batches.iter().zip(&parts) {
            for (at, logits) in batch.iter().zip(part.chunks_exact(self.sizes.outputs())) {
                found[*at] = logits;
            }
        }
        let mut found = found.into_iter();
        let of =
            |sentence: &&ReadSentence| found.by_ref().take(sentence.pairs.len()).flatten().copied().collect();
        Ok(sentences.iter().map(of).collect())
    }
}

/// The hashed words of sentences.
pub(super) fn hashed<'a>(sentences: &[&'a ReadSentence]) -> impl Iterator<Item = &'a WordRows> {
    sentences.iter().flat_map(|sentence| match &sentence.words {
        Words::Hashed(words) => words.as_slice(),
        Words::Layers(_) => &[],
    })
}

impl ReadSentence {
    /// The hidden states of an encoder's layers.
    pub(super) fn layers(&self) -> &[f32] {
        match &self.words {
            Words::Hashed(_) => &[],
            Words::Layers(states) => states,
        }
    }
}
