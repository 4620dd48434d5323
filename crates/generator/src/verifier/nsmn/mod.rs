//! The neural semantic matching network (Nie, Chen and Bansal 2019): two texts are read by an LSTM, aligned with each
//! other, read again, and compared.
//!
//! The paper's inputs are GloVe and ELMo vectors with WordNet's and numbers' features, which [`ReleasedNsmn`] reads. Those of
//! [`Nsmn`], which is trained here, are token vectors that are learned, and whether the token occurs in the other text.

mod comparison;
mod config;
mod elmo;
mod features;
mod objective;
mod released;
mod stored;
mod treebank;
mod vocabulary;

use std::{collections::HashSet, path::Path, sync::Arc};

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{Init, Linear, VarBuilder};
use sporran_checkpoint::{Error, Result, tensors};
use sporran_training::{BiLstm, Variables};
use sporran_transformers::LstmOptions;

use comparison::{Comparison, PackedComparison, Read};
pub use config::{NSMN, NsmnConfig};
pub use objective::{LabelledPair, MatchingObjective};
pub use released::{
    RELEASED_NSMN, ReleasedNsmn, ReleasedNsmnConfig, WordPair, import_nsmn, is_released_nsmn,
};
pub use treebank::treebank_words;

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
    pub(crate) comparison: Comparison,
}

fn linear(vb: &VarBuilder, inputs: usize, outputs: usize) -> Result<Linear> {
    let bound = (6.0 / (inputs + outputs) as f64).sqrt();
    let weight = vb.get_with_hints((outputs, inputs), "weight", Init::Uniform { lo: -bound, up: bound })?;
    let bias = vb.get_with_hints(outputs, "bias", Init::Const(0.0))?;
    Ok(Linear::new(weight, Some(bias)))
}

impl Nsmn {
    /// A network of `config` over `variables`, which initialise missing parameters.
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
        let comparison = Comparison { align, inner, output, dropout: config.dropout };
        Ok(Self { config: config.clone(), variables, embeddings, encoder, matcher, comparison })
    }

    /// Loads a folder with `config.json` and `model.safetensors`.
    ///
    /// # Errors
    /// Where a file is missing or wrong.
    pub fn load(folder: &Path) -> Result<Self> {
        let config = NsmnConfig::open(folder)?;
        let (tensors, path) = tensors(folder, DType::F32, &Device::Cpu)?;
        config.check(folder, tensors.values().map(Tensor::elem_count).sum())?;
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

    /// The trained variables.
    #[must_use]
    pub fn variables(&self) -> &Variables {
        &self.variables
    }

    /// The place of the token vectors in the order of the variables' names.
    pub(crate) fn place_of_embeddings(&self) -> Option<usize> {
        self.variables.place(EMBEDDINGS)
    }

    /// Looks the tokens of pairs up: their numbers, and of each its vector and whether the other text has it.
    pub(crate) fn read(&self, pairs: &[&TokenPair]) -> Result<(Vec<u32>, Read)> {
        let width = self.config.embedding_size + 1;
        let mut read = Read { lengths: Vec::new(), xs: Vec::new(), width, again: width };
        let (mut numbers, mut known) = (Vec::<u32>::new(), Vec::<f32>::new());
        for pair in pairs {
            for (own, other) in [(&pair.first, &pair.second), (&pair.second, &pair.first)] {
                let other: HashSet<u32> = other.iter().copied().collect();
                read.lengths.push(own.len());
                numbers.extend(own);
                known.extend(own.iter().map(|id| f32::from(u8::from(other.contains(id)))));
            }
        }
        let wrong = numbers.iter().find(|id| **id as usize >= self.config.vocab_size);
        if let Some(id) = wrong.copied().or(read.lengths.contains(&0).then_some(0)) {
            return Err(Error::Batch {
                expected: format!("texts of tokens below {}", self.config.vocab_size),
                found: if read.lengths.contains(&0) { "an empty text".into() } else { format!("token {id}") },
            });
        }
        let ids = Tensor::new(numbers.as_slice(), &Device::Cpu)?;
        let vectors = self.embeddings.detach().index_select(&ids, 0)?.flatten_all()?.to_vec1::<f32>()?;
        for (vector, known) in vectors.chunks_exact(self.config.embedding_size).zip(known) {
            read.xs.extend(vector);
            read.xs.push(known);
        }
        Ok((numbers, read))
    }
}

/// A matching network for inference, its weights packed.
#[derive(Debug)]
pub struct PackedNsmn {
    network: Arc<Nsmn>,
    packed: PackedComparison,
}

impl PackedNsmn {
    /// Packs the current weights.
    ///
    /// # Errors
    /// A tensor error.
    pub fn new(network: Arc<Nsmn>) -> Result<Self> {
        let packed = PackedComparison {
            encoder: network.encoder.pack()?,
            matcher: network.matcher.pack()?,
            comparison: network.comparison.clone(),
        };
        Ok(Self { network, packed })
    }

    /// The network.
    #[must_use]
    pub fn network(&self) -> &Nsmn {
        &self.network
    }

    /// The logits of each pair, one for each label. Batches have about `tokens` tokens; a pair's logits do not depend on the
    /// other pairs.
    ///
    /// # Errors
    /// [`Error::Batch`] where a text is empty or has a token that does not exist.
    pub fn logits(&self, pairs: &[TokenPair], tokens: usize) -> Result<Vec<Vec<f32>>> {
        let lengths: Vec<usize> = pairs.iter().map(TokenPair::tokens).collect();
        in_batches(&lengths, tokens, |batch| {
            let members: Vec<&TokenPair> = batch.iter().map(|&at| &pairs[at]).collect();
            self.packed.logits(&self.network.read(&members)?.1)
        })
    }
}

/// The logits of pairs of these lengths, in batches of about `tokens` tokens whose logits `of` gives.
fn in_batches(
    lengths: &[usize],
    tokens: usize,
    of: impl Fn(&[usize]) -> Result<Vec<Vec<f32>>>,
) -> Result<Vec<Vec<f32>>> {
    let mut found = vec![Vec::new(); lengths.len()];
    for batch in sporran_transformers::length_batches(lengths, usize::MAX, tokens) {
        for (at, logits) in batch.iter().zip(of(&batch)?) {
            found[*at] = logits;
        }
    }
    Ok(found)
}

/// A leaf of the tape with these values, (rows, width).
pub(crate) fn leaf(values: &[f32], width: usize) -> Result<Var> {
    let tensor = Tensor::from_slice(values, (values.len() / width, width), &Device::Cpu)?;
    Ok(Var::from_tensor(&tensor)?)
}
