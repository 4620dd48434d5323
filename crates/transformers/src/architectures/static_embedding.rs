//! Static embeddings: one vector a token, whatever stands around it. The vector of a text is the mean of its tokens' vectors, as
//! `StaticEmbedding` of sentence-transformers and model2vec have it.

use std::path::Path;

use candle_core::{DType, Device, Tensor};
use candle_nn::Init;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sporran_checkpoint::{
    Architecture, Error, ModelKind, Parameter, Result, StoredModel, json::parse, tensor_shapes,
};

use super::t5::MOST_TOKENS;
use crate::{batch::Batch, encoder::Encoder};

/// The `model_type` of model2vec's folders. sentence-transformers writes no `config.json`.
pub(crate) const MODEL_TYPE: &str = "model2vec";

/// The table of vectors, and its name in model2vec's files.
const TABLE: &str = "embedding.weight";
const TABLE_OF_MODEL2VEC: &str = "embeddings";

/// The row of the table that each token has, in files where tokens share rows.
const MAPPING: &str = "mapping";

/// What each token's vector is multiplied by, in files that keep it apart.
const WEIGHTS: &str = "weights";

/// The sizes of a table of static embeddings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StaticConfig {
    /// The number of tokens.
    pub vocab_size: usize,
    /// The width of a vector.
    pub hidden_dim: usize,
    /// The rows of the table: as many as tokens, unless tokens share rows.
    pub rows: usize,
    /// Whether the weights say which row a token has.
    pub is_mapped: bool,
    /// Whether the weights have a factor for each token.
    pub is_weighted: bool,
}

impl StaticConfig {
    /// The text of the config that follows from the shapes of a folder's weights, since its own files do not have all sizes;
    /// `None` for a folder of another model. `own` is the text of its `config.json`.
    ///
    /// # Errors
    /// [`Error::Json`], [`Error::Config`] for weights without a table, and those of opening weights.
    pub(crate) fn text(folder: &Path, own: Option<&str>) -> Result<Option<String>> {
        let path = folder.join("config.json");
        if let Some(text) = own
            && parse::<ModelKind>(&path, text)?.model_type.as_deref() != Some(MODEL_TYPE)
        {
            return Ok(None);
        }
        let shapes = match tensor_shapes(folder) {
            Ok(shapes) => shapes,
            // The caller says that there is no config.
            Err(_) if own.is_none() => return Ok(None),
            Err(error) => return Err(error),
        };
        let shape = |name: &str| shapes.get(name).map(Vec::as_slice);
        let table = shape(TABLE).or_else(|| shape(TABLE_OF_MODEL2VEC));
        let has_others =
            shapes.keys().any(|name| ![TABLE, TABLE_OF_MODEL2VEC, MAPPING, WEIGHTS].contains(&name.as_str()));
        let Some(&[rows, hidden_dim]) = table else {
            if own.is_none() {
                return Ok(None);
            }
            let expected = format!("weights with a table `{TABLE}` or `{TABLE_OF_MODEL2VEC}`");
            let found = "weights without one".into();
            return Err(Error::Config { path, field: "model_type".into(), expected, found });
        };
        if own.is_none() && has_others {
            return Ok(None);
        }
        let vocab_size = shape(MAPPING).map_or(rows, |shape| shape.iter().product());
        let (is_mapped, is_weighted) = (shape(MAPPING).is_some(), shape(WEIGHTS).is_some());
        let config = Self { vocab_size, hidden_dim, rows, is_mapped, is_weighted };
        Ok(Some(config.to_json().to_string()))
    }
}

impl Architecture for StaticConfig {
    fn model_type(&self) -> &'static str {
        MODEL_TYPE
    }

    fn class(&self) -> &'static str {
        "StaticModel"
    }

    fn validate(&self) -> Result<()> {
        Ok(())
    }

    fn layers(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }

    fn fields(&self) -> Value {
        json!(self)
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        let tensor = |name: &str, shape: &[usize]| {
            let init = Init::Randn { mean: 0.0, stdev: 1.0 };
            Parameter { name: name.into(), shape: shape.into(), init }
        };
        let mut all = vec![tensor(TABLE, &[self.rows, self.hidden_dim])];
        if self.is_weighted {
            all.push(tensor(WEIGHTS, &[self.vocab_size]));
        }
        Ok(all)
    }

    fn canonical(&self, stored: &str) -> String {
        if stored == TABLE_OF_MODEL2VEC { TABLE } else { stored }.into()
    }

    fn is_ignorable(&self, name: &str) -> bool {
        name == MAPPING
    }
}

/// A table of static embeddings as an encoder, whose states are the vectors of the tokens.
#[derive(Debug)]
pub(crate) struct StaticEmbedding {
    /// (tokens, d)
    table: Tensor,
    width: usize,
    device: Device,
}

impl StaticEmbedding {
    /// Reads the table of a folder, as `dtype` on `device`.
    ///
    /// # Errors
    /// [`Error::TensorDtype`] for a mapping that is not of whole numbers, [`Error::Config`] for one that names a row which
    /// the table does not have, and a tensor error.
    pub(crate) fn new(
        config: &StaticConfig,
        stored: &StoredModel,
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        let mut table = stored.tensor(TABLE, DType::F32, &Device::Cpu)?;
        if config.is_mapped {
            let rows = stored.whole_numbers(MAPPING)?;
            if let Some(row) = rows.iter().find(|row| **row as usize >= config.rows) {
                let (path, field) = (stored.folder().join("model.safetensors"), MAPPING.into());
                let expected = format!("rows of the table, which has {}", config.rows);
                return Err(Error::Config { path, field, expected, found: row.to_string() });
            }
            let count = rows.len();
            table = table.index_select(&Tensor::from_vec(rows, count, &Device::Cpu)?, 0)?;
        }
        if config.is_weighted {
            let weights = stored.tensor(WEIGHTS, DType::F32, &Device::Cpu)?;
            table = table.broadcast_mul(&weights.unsqueeze(1)?)?;
        }
        let table = table.to_dtype(dtype)?.to_device(device)?;
        Ok(Self { table, width: config.hidden_dim, device: device.clone() })
    }
}

impl Encoder for StaticEmbedding {
    fn states(&self, input: &Batch) -> Result<Tensor> {
        let states = self.table.index_select(&input.ids.flatten_all()?, 0)?;
        Ok(states.reshape((input.size(), input.length(), self.width))?)
    }

    fn layers(&self, input: &Batch) -> Result<Vec<Tensor>> {
        Ok(vec![self.states(input)?])
    }

    fn width(&self) -> usize {
        self.width
    }

    fn max_input_length(&self) -> usize {
        MOST_TOKENS
    }

    fn takes_types(&self) -> bool {
        false
    }

    fn pad_token(&self) -> u32 {
        0
    }

    fn device(&self) -> &Device {
        &self.device
    }
}
