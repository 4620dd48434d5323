//! GGUF files, llama.cpp's format: config, tokenizer and weights in one.

mod fields;
mod head;
mod tokenizer;

use std::{
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use candle_core::{
    Device, Tensor,
    quantized::{
        GgmlDType,
        gguf_file::{Content, TensorInfo},
    },
};
use memmap2::Mmap;

use crate::{
    error::{Error, Result},
    parameters::Parameter,
    tokenizer::Tokenizer,
    weights::MappedBytes,
};
pub use fields::GgufFields;
use head::head;
use tokenizer::{chat_template, tokenizer};

/// A file's chat template: its text, and the special tokens that it may name.
pub(crate) type Template = (String, Vec<(&'static str, String)>);

/// An opened GGUF file.
#[derive(Debug)]
pub struct GgufFile {
    path: PathBuf,
    content: Content,
    file: Mutex<BufReader<File>>,
    /// The bytes of the file.
    map: Mmap,
    /// The size of the file in bytes.
    length: u64,
}

impl GgufFile {
    /// Reads the file's metadata.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Gguf`] where the file is not GGUF.
    pub fn open(path: &Path) -> Result<Self> {
        let (content, file) = head(path)?;
        let length = file.get_ref().metadata().map_err(Error::io(path, "read"))?.len();
        // SAFETY: the mapping is read only, and its bytes are copied into packed weights. A file that another process
        // changes while it is mapped gives wrong weights or a bus error, as with every reader that maps files.
        let map = unsafe { Mmap::map(file.get_ref()) }.map_err(Error::io(path, "map"))?;
        Ok(Self { path: path.into(), content, file: Mutex::new(file), map, length })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The fields of its head.
    #[must_use]
    pub fn fields(&self) -> GgufFields<'_> {
        GgufFields::new(&self.path, &self.content)
    }

    /// The number of its tensors.
    #[must_use]
    pub fn tensor_count(&self) -> usize {
        self.content.tensor_infos.len()
    }

    /// Whether it holds the tensor `name`.
    #[must_use]
    pub fn has_tensor(&self, name: &str) -> bool {
        self.content.tensor_infos.contains_key(name)
    }

    /// Checks that it holds `parameter`, under the name `stored`, with its shape.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::TensorShape`] and [`Error::Truncated`].
    pub fn check_tensor(&self, stored: &str, parameter: Parameter) -> Result<()> {
        let path = || self.path.clone();
        let (tensor, expected) = (stored.to_owned(), parameter.shape);
        let Some(info) = self.content.tensor_infos.get(stored) else {
            return Err(Error::MissingTensor { path: path(), tensor, expected });
        };
        if info.shape != expected {
            return Err(Error::TensorShape { path: path(), tensor, expected, found: info.shape.clone() });
        }
        self.check_length(info)
    }

    /// Checks that the file is long enough for each of its tensors, because reading one allocates all of it first.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn check_lengths(&self) -> Result<()> {
        self.content.tensor_infos.values().try_for_each(|info| self.check_length(info))
    }

    fn check_length(&self, info: &TensorInfo) -> Result<()> {
        let elements = info.shape.dims().iter().try_fold(1usize, |all, size| all.checked_mul(*size));
        let blocks = elements.unwrap_or(usize::MAX) / info.ggml_dtype.block_size();
        let expected = (blocks as u64).saturating_mul(info.ggml_dtype.type_size() as u64);
        if expected > self.length {
            return Err(Error::Truncated { path: self.path.clone(), expected, found: self.length });
        }
        Ok(())
    }

    /// The number of rows of the tensor `name`, where it is there.
    #[must_use]
    pub fn rows(&self, name: &str) -> Option<usize> {
        self.content.tensor_infos.get(name)?.shape.dims().first().copied()
    }

    /// The path, the head, and the file to read tensors from.
    #[must_use]
    pub fn into_parts(self) -> (PathBuf, Content, BufReader<File>) {
        (self.path, self.content, self.file.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// The tensor that the file calls `stored`, made into the f32 numbers that it stands for, on `device`.
    ///
    /// # Errors
    /// [`Error::Gguf`] where it cannot be read, or a tensor error where memory ends.
    pub fn tensor(&self, stored: &str, device: &Device) -> Result<Tensor> {
        let wrong = |source: candle_core::Error| Error::gguf(&self.path, &source);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let tensor = self.content.tensor(&mut *file, stored, device).map_err(wrong)?;
        Ok(tensor.dequantize(device)?)
    }

    /// The bytes of the tensor that the file calls `stored`, with their type, if its rows are whole blocks.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the file ends before it.
    pub fn raw_tensor(&self, stored: &str) -> Result<Option<(GgmlDType, MappedBytes<'_>)>> {
        let Some(info) = self.content.tensor_infos.get(stored) else { return Ok(None) };
        let (kind, width) = (info.ggml_dtype, info.shape.dims().last().copied().unwrap_or(1));
        if !width.is_multiple_of(kind.block_size()) {
            return Ok(None);
        }
        self.check_length(info)?;
        let size = (info.shape.elem_count() / kind.block_size() * kind.type_size()) as u64;
        let start = self.content.tensor_data_offset.saturating_add(info.offset);
        let end = start.saturating_add(size);
        match self.map.get(start as usize..end as usize) {
            Some(bytes) => Ok(Some((kind, MappedBytes::new(bytes.into(), &self.map)))),
            None => Err(Error::Truncated { path: self.path.clone(), expected: end, found: self.length }),
        }
    }

    /// The tokenizer that the file holds: byte-level BPE, split as GPT-2, SmolLM, StarCoder, LLaMA 3, DBRX or Qwen 2
    /// split, or pieces of SentencePiece that are merged by their scores.
    ///
    /// # Errors
    /// [`Error::Config`] for another kind of tokenizer, [`Error::Tokenizer`] where its parts do not fit.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        Tokenizer::from_json(&self.path, tokenizer(&self.fields())?.to_string())
    }

    /// The chat template of the file `path`; none where it has none. Its tensors are not looked at.
    pub(crate) fn chat_template(path: &Path) -> Result<Option<Template>> {
        let (content, _) = head(path)?;
        chat_template(&GgufFields::new(path, &content))
    }
}

/// The one GGUF file of a folder without a `config.json`, or the file itself.
///
/// # Errors
/// [`Error::Io`] where the folder cannot be read.
pub fn find_gguf(path: &Path) -> Result<Option<PathBuf>> {
    let is_gguf = |path: &Path| path.extension().is_some_and(|extension| extension == "gguf");
    if !path.is_dir() {
        return Ok(is_gguf(path).then(|| path.to_owned()));
    }
    if path.join("config.json").exists() {
        return Ok(None);
    }
    let mut found = Vec::new();
    for entry in path.read_dir().map_err(Error::io(path, "read"))? {
        found.push(entry.map_err(Error::io(path, "read"))?.path());
    }
    found.retain(|path| is_gguf(path));
    Ok(if found.len() == 1 { found.pop() } else { None })
}
