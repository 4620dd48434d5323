//! Memory networks as ParlAI saves them: the end-to-end generator of its Wizard of Wikipedia project (Dinan et al. 2019).
//!
//! Such a folder has the weights (`model`), the training options (`model.opt`), its words (`model.dict`) and the pairs of
//! symbols that its subwords are merged from (`model.dict.codecs`). The network is an encoder-decoder whose layers are those
//! of BART; its embeddings are scaled and not normalised. It becomes a BART's folder.

mod vocabulary;

use std::{
    borrow::Cow,
    collections::HashMap,
    path::{Path, PathBuf},
};

use candle_core::{DType, Device, Shape, Tensor, Var};
use candle_nn::VarMap;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    architecture::Architecture,
    error::{Error, Result},
    json::{self, parse},
    save::{appear, save},
    weights::tensors_of,
};
use vocabulary::{END, NULL, START, Vocabulary};

const OPTIONS: &str = "model.opt";
const WEIGHTS: &str = "model";

/// The rows of a BART's table of positions before that of the first position.
const POSITION_OFFSET: usize = 2;

/// ParlAI's score of tokens that can never be generated.
const NEVER: f32 = -1e20;

/// The fields of `model.opt` that define the network.
#[derive(Deserialize)]
struct Options {
    n_layers: usize,
    #[serde(default = "same")]
    n_encoder_layers: i64,
    #[serde(default = "same")]
    n_decoder_layers: i64,
    n_heads: usize,
    embedding_size: usize,
    ffn_size: usize,
    #[serde(default)]
    n_segments: usize,
    #[serde(default = "first_variant")]
    variant: String,
    #[serde(default = "relu")]
    activation: String,
    embeddings_scale: bool,
    dropout: f64,
    #[serde(default)]
    attention_dropout: f64,
    #[serde(default)]
    relu_dropout: f64,
    dict_tokenizer: String,
    #[serde(default)]
    dict_lower: bool,
}

/// As many layers as `n_layers` says.
fn same() -> i64 {
    -1
}

fn first_variant() -> String {
    "aiayn".into()
}

fn relu() -> String {
    "relu".into()
}

/// Whether a folder is one that ParlAI has saved a model to.
#[must_use]
pub fn is_parlai(folder: &Path) -> bool {
    folder.join(OPTIONS).is_file()
}

/// Writes a memory network that ParlAI saved into `folder` as a BART's folder, `to`, which must not exist or be empty: it
/// appears whole or not at all. `bart` makes the architecture from the
/// fields of a BART's `config.json` that differ from their defaults.
///
/// ParlAI maps every subword outside its vocabulary to the unknown token. Here each such symbol gets a separate id with the
/// unknown token's vector. It can never be generated, and neither can ParlAI's start token.
///
/// # Errors
/// [`Error::Exists`] where `to` holds something; [`Error::MissingFile`], [`Error::Json`], [`Error::Config`] (a network or
/// words of another kind among them), [`Error::MissingTensor`], [`Error::TensorShape`], and those of reading PyTorch's files.
pub fn import_parlai<C: AsRef<dyn Architecture>>(
    folder: &Path,
    to: &Path,
    bart: impl FnOnce(Value) -> Result<C>,
) -> Result<()> {
    let path = folder.join(OPTIONS);
    let text =
        json::text(&path)?.ok_or_else(|| Error::MissingFile { folder: folder.into(), expected: OPTIONS })?;
    let options: Options = parse(&path, &text)?;
    options.check(&path)?;
    let vocabulary = Vocabulary::read(folder)?;
    let tensors = tensors_of(folder, WEIGHTS, DType::F32, &Device::Cpu)?;
    options.check_layers(&path, tensors.len())?;
    let stored = Stored { path: folder.join(WEIGHTS), tensors };
    let rows = stored.rows("embeddings.weight", vocabulary.words(), options.embedding_size)?;
    let positions =
        stored.rows("encoder.transformer.position_embeddings.weight", 1, options.embedding_size)?;
    let embeddings = rows + vocabulary.further().len();
    let config = bart(options.config(embeddings, positions))?;
    let tokenizer = vocabulary.tokenizer(rows, options.dict_lower)?;
    let weights = stored.weights(config.as_ref(), embeddings, &vocabulary)?;
    appear(to, |folder| save(folder, &config, &weights, &tokenizer, DType::F32))
}

impl Options {
    fn check(&self, path: &Path) -> Result<()> {
        let wrong = |field: &str, expected: &str, found: String| {
            Err(Error::Config { path: path.into(), field: field.into(), expected: expected.into(), found })
        };
        if self.variant != first_variant() {
            return wrong("variant", "`aiayn`", format!("`{}`", self.variant));
        }
        if self.n_segments != 0 {
            return wrong("n_segments", "0", self.n_segments.to_string());
        }
        if self.dict_tokenizer != "bpe" {
            return wrong("dict_tokenizer", "`bpe`", format!("`{}`", self.dict_tokenizer));
        }
        Ok(())
    }

    /// Checks that there are no more layers than tensors, before anything is made for each layer.
    fn check_layers(&self, path: &Path, tensors: usize) -> Result<()> {
        let own = |layers: i64| usize::try_from(layers).unwrap_or(self.n_layers);
        let fields = [
            ("n_encoder_layers", own(self.n_encoder_layers)),
            ("n_decoder_layers", own(self.n_decoder_layers)),
            ("n_layers", self.n_layers),
        ];
        match fields.into_iter().find(|(_, layers)| *layers > tensors) {
            Some((field, layers)) => Err(Error::Config {
                path: path.into(),
                field: field.into(),
                expected: format!("no more layers than the weights have tensors, {tensors}"),
                found: layers.to_string(),
            }),
            None => Ok(()),
        }
    }

    fn config(&self, vocab_size: usize, max_position_embeddings: usize) -> Value {
        let layers = |own: i64| usize::try_from(own).unwrap_or(self.n_layers);
        json!({
            "vocab_size": vocab_size,
            "max_position_embeddings": max_position_embeddings,
            "d_model": self.embedding_size,
            "encoder_layers": layers(self.n_encoder_layers),
            "decoder_layers": layers(self.n_decoder_layers),
            "encoder_ffn_dim": self.ffn_size,
            "decoder_ffn_dim": self.ffn_size,
            "encoder_attention_heads": self.n_heads,
            "decoder_attention_heads": self.n_heads,
            "activation_function": self.activation,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "activation_dropout": self.relu_dropout,
            "scale_embedding": self.embeddings_scale,
            "normalize_embedding": false,
            "pad_token_id": NULL,
            "bos_token_id": START,
            "eos_token_id": END,
            "decoder_start_token_id": START,
            "forced_eos_token_id": null,
        })
    }
}

/// The tensors of ParlAI's file.
struct Stored {
    path: PathBuf,
    tensors: HashMap<String, Tensor>,
}

impl Stored {
    fn tensor(&self, name: &str, expected: &Shape) -> Result<&Tensor> {
        self.tensors.get(name).ok_or_else(|| Error::MissingTensor {
            path: self.path.clone(),
            tensor: name.into(),
            expected: expected.clone(),
        })
    }

    /// The rows of a matrix, which are to be `least` or more, of `width` values each.
    fn rows(&self, name: &str, least: usize, width: usize) -> Result<usize> {
        let expected = Shape::from((least, width));
        let found = self.tensor(name, &expected)?.shape();
        match *found.dims() {
            [rows, columns] if rows >= least && columns == width => Ok(rows),
            _ => Err(Error::TensorShape {
                path: self.path.clone(),
                tensor: name.into(),
                expected,
                found: found.clone(),
            }),
        }
    }

    /// The weights by the names of a BART with this number of embeddings.
    fn weights(&self, bart: &dyn Architecture, embeddings: usize, vocabulary: &Vocabulary) -> Result<VarMap> {
        let weights = VarMap::new();
        for parameter in bart.parameters()? {
            let shape = &parameter.shape;
            let tensor = match parameter.name.as_str() {
                "final_logits_bias" => self.never(embeddings, vocabulary)?,
                "model.shared.weight" => {
                    let table = self.tensor("embeddings.weight", shape)?;
                    let same = Tensor::new(vocabulary.further(), &Device::Cpu)?;
                    Tensor::cat(&[table, &table.index_select(&same, 0)?], 0)?
                }
                name => {
                    let stored = self.tensor(&parlai_name(name), shape)?;
                    if name.ends_with("embed_positions.weight") {
                        let (_, width) = stored.dims2()?;
                        let before = Tensor::zeros((POSITION_OFFSET, width), DType::F32, &Device::Cpu)?;
                        Tensor::cat(&[&before, stored], 0)?
                    } else {
                        stored.clone()
                    }
                }
            };
            if tensor.shape() != shape {
                return Err(Error::TensorShape {
                    path: self.path.clone(),
                    tensor: parlai_name(&parameter.name).into_owned(),
                    expected: shape.clone(),
                    found: tensor.shape().clone(),
                });
            }
            let mut named = weights.data().lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            named.insert(parameter.name, Var::from_tensor(&tensor)?);
        }
        Ok(weights)
    }

    /// The bias on the logits: the start token and symbols outside ParlAI's words are never generated.
    fn never(&self, embeddings: usize, vocabulary: &Vocabulary) -> Result<Tensor> {
        let mut bias = vec![0.0; embeddings - vocabulary.further().len()];
        bias[START as usize] = NEVER;
        bias.resize(embeddings, NEVER);
        Ok(Tensor::from_vec(bias, (1, embeddings), &Device::Cpu)?)
    }
}

/// ParlAI's name of a BART tensor.
fn parlai_name(name: &str) -> Cow<'_, str> {
    let (part, is_decoder) = match name.strip_prefix("model.") {
        Some(rest) if rest.starts_with("decoder.") => (rest, true),
        Some(rest) => (rest, false),
        None => return name.into(),
    };
    let attention = if is_decoder { "self_attention" } else { "attention" };
    let last_norm = if is_decoder { "norm3" } else { "norm2" };
    let renamed = [
        ("encoder_attn_layer_norm", "norm2"),
        ("self_attn_layer_norm", "norm1"),
        ("final_layer_norm", last_norm),
        ("encoder_attn", "encoder_attention"),
        ("self_attn", attention),
        ("q_proj", "q_lin"),
        ("k_proj", "k_lin"),
        ("v_proj", "v_lin"),
        ("out_proj", "out_lin"),
        ("fc1", "ffn.lin1"),
        ("fc2", "ffn.lin2"),
        ("embed_positions", "position_embeddings"),
        ("shared", "embeddings"),
    ];
    let segment = |own: &str| {
        let other = renamed.iter().find(|(bart, _)| *bart == own).map(|(_, parlai)| *parlai);
        other.unwrap_or(own).to_owned()
    };
    let mut segments: Vec<String> = part.split('.').map(segment).collect();
    if segments.first().is_some_and(|first| first == "encoder" || first == "decoder") {
        segments.insert(1, "transformer".into());
    }
    segments.join(".").into()
}
