//! The neural semantic matching network (Nie, Chen and Bansal 2019): two texts are read by an LSTM, aligned with each
//! other, read again, and compared.
//!
//! The paper's inputs are GloVe and ELMo vectors with WordNet's and numbers' features. Here they are token vectors that are
//! learned, and whether the token occurs in the other text.

mod config;

use std::{collections::HashSet, path::Path, sync::Arc};

use candle_core::{D, DType, Device, Tensor, Var};
use candle_nn::{Init, Linear, Module, VarBuilder};

pub use config::{NSMN, NsmnConfig};

use crate::{
    checkpoint,
    error::{Error, Result},
    lstm::{BiLstm, LstmOptions, PackedBiLstm},
    mode::Mode,
    training::Variables,
};

/// Two texts as tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenPair {
    /// The first text's, at least one.
    pub first: Vec<u32>,
    /// The second text's, at least one.
    pub second: Vec<u32>,
}

impl TokenPair {
    /// The tokens of both.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.first.len() + self.second.len()
    }
}

const EMBEDDINGS: &str = "embeddings.weight";
const ENCODER: &str = "encoder";
const MATCHER: &str = "matcher";

/// A matching network over variables.
#[derive(Debug)]
pub struct Nsmn {
    config: NsmnConfig,
    variables: Variables,
    embeddings: Tensor,
    pub(crate) encoder: BiLstm,
    pub(crate) matcher: BiLstm,
    align: Linear,
    inner: Linear,
    output: Linear,
}

/// Pairs as both LSTMs read them: the first and the second text of each pair, one after the other.
pub(crate) struct Read {
    /// The tokens of all texts.
    pub(crate) ids: Vec<u32>,
    /// The tokens of each text.
    pub(crate) lengths: Vec<usize>,
    /// (tokens, embedding + 1): a token's vector, and whether the other text has it.
    pub(crate) xs: Vec<f32>,
}

fn linear(vb: &VarBuilder, inputs: usize, outputs: usize) -> Result<Linear> {
    let bound = (6.0 / (inputs + outputs) as f64).sqrt();
    let weight = vb.get_with_hints((outputs, inputs), "weight", Init::Uniform { lo: -bound, up: bound })?;
    let bias = vb.get_with_hints(outputs, "bias", Init::Const(0.0))?;
    Ok(Linear::new(weight, Some(bias)))
}

impl Nsmn {
    /// A network of `config` over `variables`, which draw what they do not hold yet.
    ///
    /// # Errors
    /// [`Error::Options`] for a shape of no size; a tensor error where variables have another shape.
    pub fn new(config: &NsmnConfig, variables: Variables) -> Result<Self> {
        let sizes = [
            ("vocab-size", config.vocab_size),
            ("embedding-size", config.embedding_size),
            ("hidden-size", config.hidden_size),
            ("projection-size", config.projection_size),
            ("labels", config.labels.len()),
            ("max-length", config.max_length),
        ];
        if let Some((option, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return Err(Error::Options { option, expected: "at least 1".into(), found: "0".into() });
        }
        let vb = variables.builder(&Device::Cpu);
        let shape = (config.vocab_size, config.embedding_size);
        let embeddings = vb.get_with_hints(shape, EMBEDDINGS, Init::Randn { mean: 0.0, stdev: 0.3 })?;
        let lstm = |inputs| LstmOptions { inputs, hidden: config.hidden_size, layers: 1, dropout: 0.0 };
        let inputs = config.embedding_size + 1;
        let encoder = BiLstm::new(lstm(inputs), ENCODER, &variables)?;
        let matcher = BiLstm::new(lstm(config.projection_size + inputs), MATCHER, &variables)?;
        let states = 2 * config.hidden_size;
        let align = linear(&vb.pp("align"), 4 * states, config.projection_size)?;
        let inner = linear(&vb.pp("inner"), 4 * states, config.projection_size)?;
        let output = linear(&vb.pp("output"), config.projection_size, config.labels.len())?;
        Ok(Self { config: config.clone(), variables, embeddings, encoder, matcher, align, inner, output })
    }

    /// Loads a folder with `config.json` and `model.safetensors`.
    ///
    /// # Errors
    /// Where a file is missing or wrong.
    pub fn load(folder: &Path) -> Result<Self> {
        let config = NsmnConfig::open(folder)?;
        let (tensors, path) = checkpoint::tensors(folder, DType::F32, &Device::Cpu)?;
        let drawn = Self::new(&config, Variables::new(0))?;
        for (name, var) in drawn.variables.all() {
            let expected = var.shape().clone();
            let Some(tensor) = tensors.get(&name) else {
                return Err(Error::MissingTensor { path, tensor: name, expected });
            };
            if tensor.shape() != &expected {
                let found = tensor.shape().clone();
                return Err(Error::TensorShape { path, tensor: name, expected, found });
            }
        }
        Self::new(&config, Variables::with_initial(0, tensors))
    }

    /// The shape.
    #[must_use]
    pub fn config(&self) -> &NsmnConfig {
        &self.config
    }

    /// What is trained.
    #[must_use]
    pub fn variables(&self) -> &Variables {
        &self.variables
    }

    /// The place of the token vectors in the order of the variables' names.
    pub(crate) fn place_of_embeddings(&self) -> Option<usize> {
        self.variables.place(EMBEDDINGS)
    }

    /// Looks the tokens of pairs up.
    pub(crate) fn read(&self, pairs: &[&TokenPair]) -> Result<Read> {
        let mut read = Read { ids: Vec::new(), lengths: Vec::new(), xs: Vec::new() };
        let mut known: Vec<f32> = Vec::new();
        for pair in pairs {
            for (own, other) in [(&pair.first, &pair.second), (&pair.second, &pair.first)] {
                let other: HashSet<u32> = other.iter().copied().collect();
                read.lengths.push(own.len());
                read.ids.extend(own);
                known.extend(own.iter().map(|id| f32::from(u8::from(other.contains(id)))));
            }
        }
        let wrong = read.ids.iter().find(|id| **id as usize >= self.config.vocab_size);
        if let Some(id) = wrong.copied().or(read.lengths.contains(&0).then_some(0)) {
            return Err(Error::Batch {
                expected: format!("texts of tokens below {}", self.config.vocab_size),
                found: if read.lengths.contains(&0) { "an empty text".into() } else { format!("token {id}") },
            });
        }
        let ids = Tensor::new(read.ids.as_slice(), &Device::Cpu)?;
        let vectors = self.embeddings.detach().index_select(&ids, 0)?.flatten_all()?.to_vec1::<f32>()?;
        for (vector, known) in vectors.chunks_exact(self.config.embedding_size).zip(known) {
            read.xs.extend(vector);
            read.xs.push(known);
        }
        Ok(read)
    }

    /// From the encoder's states (tokens, 2 hidden) to what each token is beside what it is aligned with, (tokens,
    /// projection).
    pub(crate) fn aligned(&self, states: &Tensor, lengths: &[usize]) -> Result<Tensor> {
        let mut partners = Vec::with_capacity(lengths.len());
        let mut from = 0;
        for pair in lengths.chunks_exact(2) {
            let (first, second) =
                (states.narrow(0, from, pair[0])?, states.narrow(0, from + pair[0], pair[1])?);
            let scores = first.matmul(&second.t()?)?;
            partners.push(candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&second)?);
            partners.push(candle_nn::ops::softmax(&scores.t()?.contiguous()?, D::Minus1)?.matmul(&first)?);
            from += pair[0] + pair[1];
        }
        let partners = Tensor::cat(&partners, 0)?;
        let joined =
            Tensor::cat(&[states, &partners, &(states - &partners)?, &(states * &partners)?], D::Minus1)?;
        Ok(self.align.forward(&joined)?.relu()?)
    }

    /// From the matcher's states (tokens, 2 hidden) to logits (pairs, labels).
    pub(crate) fn compared(&self, states: &Tensor, lengths: &[usize], mode: &mut Mode) -> Result<Tensor> {
        let (mut firsts, mut seconds) = (Vec::new(), Vec::new());
        let mut from = 0;
        for (at, &length) in lengths.iter().enumerate() {
            let greatest = states.narrow(0, from, length)?.max_keepdim(0)?;
            if at % 2 == 0 {
                firsts.push(greatest)
            } else {
                seconds.push(greatest)
            }
            from += length;
        }
        let (p, q) = (Tensor::cat(&firsts, 0)?, Tensor::cat(&seconds, 0)?);
        let joined = Tensor::cat(&[&p, &q, &(&p - &q)?.abs()?, &(&p * &q)?], D::Minus1)?;
        let inner = self.inner.forward(&mode.dropout(joined, self.config.dropout)?)?.relu()?;
        Ok(self.output.forward(&mode.dropout(inner, self.config.dropout)?)?)
    }

    /// What the matcher reads: the aligned tokens beside what the encoder read.
    pub(crate) fn beside(&self, aligned: &[f32], xs: &[f32]) -> Vec<f32> {
        let (left, right) = (self.config.projection_size, self.config.embedding_size + 1);
        let rows = aligned.chunks_exact(left).zip(xs.chunks_exact(right));
        rows.flat_map(|(aligned, x)| aligned.iter().chain(x)).copied().collect()
    }
}

/// A matching network for inference, its weights packed.
#[derive(Debug)]
pub struct PackedNsmn {
    network: Arc<Nsmn>,
    encoder: PackedBiLstm,
    matcher: PackedBiLstm,
}

impl PackedNsmn {
    /// Packs the weights as they are now.
    ///
    /// # Errors
    /// A tensor error.
    pub fn new(network: Arc<Nsmn>) -> Result<Self> {
        Ok(Self { encoder: network.encoder.pack()?, matcher: network.matcher.pack()?, network })
    }

    /// The network.
    #[must_use]
    pub fn network(&self) -> &Nsmn {
        &self.network
    }

    /// The logits of each pair, one for each label. Batches have about `tokens` tokens; a pair's logits do not depend on the
    /// pairs beside it.
    ///
    /// # Errors
    /// [`Error::Batch`] where a text is empty or has a token that there is not.
    pub fn logits(&self, pairs: &[TokenPair], tokens: usize) -> Result<Vec<Vec<f32>>> {
        let lengths: Vec<usize> = pairs.iter().map(TokenPair::tokens).collect();
        let mut found = vec![Vec::new(); pairs.len()];
        for batch in crate::batch::length_batches(&lengths, usize::MAX, tokens) {
            let members: Vec<&TokenPair> = batch.iter().map(|&at| &pairs[at]).collect();
            let read = self.network.read(&members)?;
            let count = read.ids.len();
            let width = self.encoder.options().width();
            let states = self.encoder.states(&read.xs, &read.lengths)?;
            let states = Tensor::from_vec(states, (count, width), &Device::Cpu)?;
            let aligned = self.network.aligned(&states, &read.lengths)?.detach();
            let beside = self.network.beside(&aligned.flatten_all()?.to_vec1()?, &read.xs);
            let states = self.matcher.states(&beside, &read.lengths)?;
            let states = Tensor::from_vec(states, (count, width), &Device::Cpu)?;
            let logits = self.network.compared(&states, &read.lengths, &mut Mode::Inference)?;
            for (at, logits) in batch.into_iter().zip(logits.to_vec2::<f32>()?) {
                found[at] = logits;
            }
        }
        Ok(found)
    }
}

/// A leaf of the tape with these values, (rows, width).
pub(crate) fn leaf(values: &[f32], width: usize) -> Result<Var> {
    let tensor = Tensor::from_slice(values, (values.len() / width, width), &Device::Cpu)?;
    Ok(Var::from_tensor(&tensor)?)
}
