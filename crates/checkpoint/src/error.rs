//! Errors of model folders, models and generation.

use std::path::PathBuf;

use candle_core::{DType, Shape};

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of models, from their folders to their training. The crates `transformers` and `training` use this type too, since
/// the functions that they call return it. A message names the expected value, the found value and the place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be opened, read or written.
    #[error("{}: {action} failed", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The attempted action, as a verb: `read`, `write`, `rename`.
        action: &'static str,
        /// The cause.
        source: std::io::Error,
    },

    /// A model folder lacks a file that it must have.
    #[error("{}: expected the file {expected}, found none", folder.display())]
    MissingFile {
        /// The model folder.
        folder: PathBuf,
        /// The file name, or the names of which one must be there.
        expected: &'static str,
    },

    /// A file holds a pointer of git-lfs instead of its content.
    #[error(
        "{}: expected the file's content{}, found a pointer of git-lfs; run `git lfs pull` in its repository, or fetch \
         the model with `sporran models pull`",
        path.display(), size.map(|size| format!(" ({size} bytes)")).unwrap_or_default()
    )]
    Pointer {
        /// The file.
        path: PathBuf,
        /// The size of the content in bytes, if the pointer has it.
        size: Option<u64>,
    },

    /// A shard that an index of weights names is not in its folder.
    #[error(
        "{}: expected the shard `{shard}`, which holds {tensors} of the {all} tensors, in the same folder, found none; \
         fetch this file, or the whole model again",
        path.display()
    )]
    MissingShard {
        /// The index.
        path: PathBuf,
        /// The file name of the shard.
        shard: String,
        /// The number of its tensors.
        tensors: usize,
        /// The number of the model's tensors.
        all: usize,
    },

    /// A tokenizer has a token without a row in the model's embedding table.
    #[error(
        "{}: expected token ids below {rows}, the number of rows in the embedding table of {}, found {id} for `{token}`; \
         use the tokenizer that the model was trained with, or weights whose table has a row for each token",
        path.display(), weights.display()
    )]
    TokenBeyondRows {
        /// The tokenizer's file.
        path: PathBuf,
        /// The weights file, or the index of its shards.
        weights: PathBuf,
        /// The number of rows.
        rows: usize,
        /// The token.
        token: String,
        /// Its id.
        id: u32,
    },

    /// An adapter that cannot be merged with its base model, or that stands where a model should.
    #[error("{}: {problem}", path.display())]
    Adapter {
        /// The adapter's config or its weights file.
        path: PathBuf,
        /// The problem: what was expected and what was found.
        problem: String,
    },

    /// An adapter whose base model is missing.
    #[error(
        "{}: expected the adapter's base model `{base}` as a folder or in the cache of the hub, found neither; name its \
         folder with `--base`, or fetch it with `sporran models pull`",
        path.display()
    )]
    MissingBase {
        /// The adapter's `adapter_config.json`.
        path: PathBuf,
        /// The name that it gives.
        base: String,
    },

    /// A file of text has bytes that are not UTF-8.
    #[error("{}: expected text in UTF-8, found other bytes at offset {at}", path.display())]
    Utf8 {
        /// The file.
        path: PathBuf,
        /// The first byte that is wrong, from 0.
        at: usize,
    },

    /// A JSON file is not valid JSON, or a field has the wrong type.
    #[error("{}{}", path.display(), of_field(.field))]
    Json {
        /// The JSON file.
        path: PathBuf,
        /// The path of the field inside the file; `.` for the whole document.
        field: String,
        /// The cause, with line and column.
        source: serde_json::Error,
    },

    /// A field of a JSON file is well formed, but its value cannot be used.
    #[error("{}: field `{field}`: {}", path.display(), contrast(expected, found))]
    Config {
        /// The JSON file.
        path: PathBuf,
        /// The field.
        field: String,
        /// The values that the field may have.
        expected: String,
        /// The found content.
        found: String,
    },

    /// A line of a text file is invalid.
    #[error("{}: line {line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The problem.
        problem: String,
    },

    /// A safetensors or GGUF file is shorter than its tensors.
    #[error("{}: the file is truncated: expected {expected} bytes, found {found}", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The size that the header requires, in bytes (8 if the header's length is missing).
        expected: u64,
        /// The size of the file in bytes.
        found: u64,
    },

    /// A file is not a valid safetensors file.
    #[error("{}: not a valid safetensors file", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: safetensors::SafeTensorError,
    },

    /// A PyTorch file is not the archive that it seems to be.
    #[error("{}: not a PyTorch archive", path.display())]
    Archive {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: zip::result::ZipError,
    },

    /// A PyTorch file contradicts its records or its length.
    #[error("{}: expected {expected}, found {found}", path.display())]
    Pytorch {
        /// The file.
        path: PathBuf,
        /// The content that the file should have.
        expected: String,
        /// The found content.
        found: String,
    },

    /// The pickle of a PyTorch file holds more than tensors. Nothing that it names has been called.
    #[error("{}: pickle, byte {at} of the file: expected {expected}, found {found}", path.display())]
    Pickle {
        /// The file.
        path: PathBuf,
        /// The offset of the instruction in the file.
        at: u64,
        /// The instructions that a pickle of tensors may have there.
        expected: String,
        /// The instruction found there.
        found: String,
    },

    /// A text that names no model of the hub.
    #[error("expected a model as `name`, `org/name` or `org/name@revision`, found `{found}`")]
    ModelId {
        /// The text.
        found: String,
    },

    /// The hub does not have a model, or cannot be reached.
    #[error("{id}: it could not be fetched")]
    Hub {
        /// The model, with its revision.
        id: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// A model that is not in the cache, where the network may not be used.
    #[error("{id}: expected it in the cache {}, found no whole model there, and the network is off", cache.display())]
    NotCached {
        /// The model, with its revision.
        id: String,
        /// The cache's folder.
        cache: PathBuf,
    },

    /// A tensor of a file of weights that is missing or has another shape than its config says.
    #[error("tensor `{tensor}`: expected the shape {expected:?}, found {}", shape_of(found.as_deref()))]
    Stored {
        /// Its name.
        tensor: String,
        /// The shape by the config.
        expected: Vec<usize>,
        /// Its shape; none where it is missing.
        found: Option<Vec<usize>>,
    },

    /// A file in the cache whose content does not match its hash.
    #[error(
        "{}: expected content with the hash {expected}, found {found}; the file was damaged after it was fetched; \
         pull the model again where the hub can be reached",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The hash that names the content.
        expected: String,
        /// The hash of the found content.
        found: String,
    },

    /// A folder that would be written over.
    #[error("{}: expected no such folder or an empty one", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },

    /// A file is not a valid GGUF file.
    #[error("{}: not a valid GGUF file", path.display())]
    Gguf {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: candle_core::Error,
    },

    /// The model's kind differs from the requested kind.
    #[error("{}: expected {expected}, found {found}", path.display())]
    Architecture {
        /// The model's `config.json`.
        path: PathBuf,
        /// The requested kind.
        expected: &'static str,
        /// The kind that the folder holds.
        found: String,
    },

    /// The model needs a tensor that no file of the checkpoint has.
    #[error("{}: expected tensor `{tensor}` of shape {expected:?}, found none", path.display())]
    MissingTensor {
        /// The weights file, or the index of its shards.
        path: PathBuf,
        /// The canonical name of the tensor.
        tensor: String,
        /// The shape that the config asks for.
        expected: Shape,
    },

    /// The requested tensor is not part of the model.
    #[error("{}: expected the name of one of the model's tensors, found `{tensor}`", path.display())]
    UnknownTensor {
        /// The weights file, or the index of its shards.
        path: PathBuf,
        /// The requested name.
        tensor: String,
    },

    /// A tensor has another shape than the config asks for.
    #[error("{}: tensor `{tensor}`: expected shape {expected:?}, found {found:?}", path.display())]
    TensorShape {
        /// The file that has the tensor.
        path: PathBuf,
        /// The name of the tensor in that file.
        tensor: String,
        /// The shape that the config asks for.
        expected: Shape,
        /// The shape in the file.
        found: Shape,
    },

    /// A tensor is stored in a type that is not a supported floating-point type.
    #[error("{}: tensor `{tensor}`: expected dtype F32, F16 or BF16, found {found}", path.display())]
    TensorDtype {
        /// The file that has the tensor.
        path: PathBuf,
        /// The name of the tensor in that file.
        tensor: String,
        /// The type in the file.
        found: String,
    },

    /// A tokenizer file could not be read, or a text could not be tokenized.
    #[error("{}: tokenizer", path.display())]
    Tokenizer {
        /// The tokenizer file.
        path: PathBuf,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// A model's chat template is no template, or refuses a conversation.
    #[error("{}: chat template", path.display())]
    ChatTemplate {
        /// The file that holds the template.
        path: PathBuf,
        /// The cause: an error of the template engine, or one that the template raises.
        source: minijinja::Error,
    },

    /// A file of token sequences that cannot be made or is not one.
    #[error("{}: expected {expected}, found {found}", path.display())]
    Trie {
        /// The file.
        path: PathBuf,
        /// The requirement.
        expected: String,
        /// The found value.
        found: String,
    },

    /// Token rows from which no batch can be made.
    #[error("batch: expected {expected}, found {found}")]
    Batch {
        /// The requirement on a batch.
        expected: String,
        /// The found value.
        found: String,
    },

    /// Results of a model that are no finite numbers, as weights that hold NaN give them.
    #[error(
        "{}: expected {what} of finite numbers, found others: the weights may be damaged, or too large for the precision",
        folder.display()
    )]
    NotFinite {
        /// The model's folder.
        folder: PathBuf,
        /// The results.
        what: &'static str,
    },

    /// An option, or a combination of options, that cannot be used.
    #[error("option `{option}`: expected {expected}, found {found}")]
    Options {
        /// The option.
        option: &'static str,
        /// The expected content.
        expected: String,
        /// The found content.
        found: String,
    },

    /// A dtype that this crate cannot write or compute in.
    #[error("dtype: expected {expected}, found {found:?}")]
    Dtype {
        /// The types that can be used.
        expected: &'static str,
        /// The requested type.
        found: DType,
    },

    /// A training that cannot begin, go on, or be gone on with.
    #[error("training: {what}: expected {expected}, found {found}")]
    Training {
        /// The part of the training: a variable, a step, an epoch, a checkpoint.
        what: String,
        /// The requirement.
        expected: String,
        /// The found value.
        found: String,
    },

    /// A training with other options than those that the checkpoint in its folder was saved under.
    #[error("training: checkpoint in {}: expected {expected}, found {found}", folder.display())]
    OtherTraining {
        /// The folder of the checkpoint.
        folder: PathBuf,
        /// The options of the training that differ.
        expected: String,
        /// The values of the checkpoint.
        found: String,
    },

    /// Something that training calls, such as the caller's evaluation, failed.
    #[error("training: {what} failed")]
    Callback {
        /// The callback.
        what: &'static str,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// A tensor operation failed.
    #[error("tensor operation")]
    Tensor(#[from] candle_core::Error),
}

/// The longest text of expected values, in bytes, that stands before the found one.
const LONGEST_EXPECTED: usize = 200;

/// What was expected and what was found. A long list of what there is stands last, so that the found value is seen.
fn contrast(expected: &str, found: &str) -> String {
    match expected.len() > LONGEST_EXPECTED {
        true => format!("found {found}, which is not supported; expected {expected}"),
        false => format!("expected {expected}, found {found}"),
    }
}

impl Error {
    /// Names the file of an error in a config.
    #[must_use]
    pub fn within(self, file: &std::path::Path) -> Self {
        match self {
            Self::Config { field, expected, found, .. } => {
                Self::Config { path: file.into(), field, expected, found }
            }
            Self::Architecture { expected, found, .. } => {
                Self::Architecture { path: file.into(), expected, found }
            }
            other => other,
        }
    }

    /// The error of a GGUF file, without the backtrace that candle may append to its message.
    #[must_use]
    pub fn gguf(path: impl Into<PathBuf>, source: &candle_core::Error) -> Self {
        let message = source.to_string().lines().next().unwrap_or_default().to_owned();
        Self::Gguf { path: path.into(), source: candle_core::Error::Msg(message) }
    }

    /// Wraps an input/output error with its path and the attempted action.
    pub fn io(path: impl Into<PathBuf>, action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, action, source }
    }
}

/// The part of a message that names the field; nothing for the whole document.
fn of_field(field: &str) -> String {
    if field == "." { String::new() } else { format!(": field `{field}`") }
}

/// A shape as a message has it.
fn shape_of(shape: Option<&[usize]>) -> String {
    shape.map_or_else(|| "no such tensor".to_owned(), |shape| format!("{shape:?}"))
}
