//! A model's folder as data, without the model: weights in safetensors, PyTorch's files and GGUF, tokenizers, chat templates,
//! the settings of sentence-transformers, and the hub that models come from.
//!
//! A [`StoredModel`] maps the tensors of the files to the parameters of an [`Architecture`]. Here an architecture states only
//! the names and shapes of its tensors. Its computation is in the crate `sporran-transformers`.

mod adapter;
mod architecture;
mod chat;
mod error;
mod gguf;
mod hub;
mod import;
pub mod json;
mod merge;
mod model;
mod parameters;
mod parlai;
mod part;
mod pointer;
mod remote;
mod save;
pub mod sentence;
mod tokenizer;
mod tokens;
mod weights;

pub use adapter::Adapter;
pub use architecture::{Architecture, Embedding, ModelKind};
pub use chat::{ChatMessage, ChatTemplate};
pub use error::{Error, Result};
pub use gguf::{GgufFields, GgufFile, find_gguf};
pub use hub::{Hub, ModelId, Progress};
pub use import::import;
pub use merge::Merged;
pub use model::StoredModel;
pub use parameters::{Parameter, initialise, parameters, stored_values};
pub use parlai::{import_parlai, is_parlai};
pub use part::{BLINK_MARKS, Part};
pub use save::{appear, save, sync, tensor_bytes};
pub use sentence::{
    CrossEncoderFolder, LogitScore, Role, ScoreActivation, SentenceSettings, VectorSimilarity,
};
pub use tokenizer::{PlacedToken, Tokenizer, TruncationSide};
pub use tokens::{SpecialTokens, TokenFields};
pub use weights::{
    MappedBytes, RawTensor, check_quantisation, tensor_shapes, tensors, tensors_of, tensors_under,
    weight_types,
};
