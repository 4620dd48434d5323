//! A decoder-only model of candle's, opened.

use std::{panic::AssertUnwindSafe, path::Path};

use candle_core::{DType, Device, Tensor};
use sporran_checkpoint::{
    Error, GgufFields, GgufFile, ModelKind, Result, SpecialTokens, TokenFields, Tokenizer, find_gguf,
    json::{self, parse},
    tensors,
};

use super::{
    config::Settings,
    gguf,
    sequence::{CandleModel, CandleSequence},
    weights::Weights,
};
use crate::{
    architectures::registry::{self, ArchitectureEntry},
    batch::Batch,
    causal::{CausalCache, CausalLm, check_one_row},
    checkpoint::{CONFIG, generation_files},
    decode::GenerationOptions,
    device::{DeviceName, Precision},
    seq2seq::too_long,
};

/// A decoder-only model of the crate `candle-transformers`.
///
/// It reads one sequence at a time: a cache has one row, and a search no beams. A sequence ends at the positions that the
/// model has tables for, and at the window of its attention.
pub struct CandleLm {
    /// It has read nothing.
    model: Box<dyn CandleModel>,
    tokens: SpecialTokens,
    generation: GenerationOptions,
    vocab_size: usize,
    max_length: usize,
    device: Device,
}

/// The model that `load` makes. Some of candle's models panic where a tensor is not as they need it.
fn made<M>(weights: &Weights, load: impl FnOnce() -> Result<M>) -> Result<M> {
    // What a panic leaves half made is dropped: the settings and the model.
    std::panic::catch_unwind(AssertUnwindSafe(load)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        Err(weights.error(candle_core::Error::Msg(text.to_owned())))
    })
}

impl CandleLm {
    /// Opens a folder in the Hugging Face layout, or a GGUF file.
    ///
    /// # Errors
    /// [`Error::Config`] for an architecture that candle does not have, with those that it has, and for a setting that its
    /// model does not support; [`Error::UnknownTensor`] for a tensor that its model would ignore; [`Error::Options`] for
    /// `int8`; those of reading files.
    pub fn open(model: &Path, device: DeviceName, precision: Precision) -> Result<Self> {
        device.check(precision)?;
        if precision == Precision::Int8 {
            return Err(Error::Options {
                option: "precision",
                expected: "`f32` with the engine `candle`".into(),
                found: format!("`{precision}`"),
            });
        }
        match find_gguf(model)? {
            Some(path) => Self::open_gguf(&path, &device.open()?),
            None => Self::open_folder(model, precision.dtype()?, &device.open()?),
        }
    }

    fn open_folder(folder: &Path, dtype: DType, device: &Device) -> Result<Self> {
        let path = folder.join(CONFIG);
        let text = json::text(&path)?
            .ok_or_else(|| Error::MissingFile { folder: folder.into(), expected: CONFIG })?;
        let mut settings = Settings::read(&path, &text)?;
        let name = parse::<ModelKind>(&path, &text)?.model_type.unwrap_or_default();
        let Some(load) = registry::entry(&name).and_then(ArchitectureEntry::candle_load) else {
            let expected = format!("one of {} with the engine `candle`", registry::candle_names());
            return Err(settings.wrong("model_type", &expected, &name.into()));
        };
        let (fields, generation) = generation_files(folder, (&path, &text), &GenerationOptions::default())?;
        let vocab_size = settings.needed("vocab_size")?;
        let tokens =
            fields.or(TokenFields::defaults(None, None, None, Some(0))).resolve(vocab_size, &path)?;
        let is_apart = settings.is_off("tie_word_embeddings");
        let weights = Weights::new(tensors(folder, dtype, device)?, is_apart, (dtype, device));
        settings.check_layers(weights.count())?;
        let model = made(&weights, || load(&mut settings, &weights))?;
        weights.check_all_read()?;
        let max_length = settings.max_length()?;
        Ok(Self { model, tokens, generation, vocab_size, max_length, device: device.clone() })
    }

    fn open_gguf(path: &Path, device: &Device) -> Result<Self> {
        let file = GgufFile::open(path)?;
        let (load, max_length, vocab_size) = gguf::check(&file)?;
        let tokens = gguf_tokens(&file.fields())?;
        let model = gguf::load(load, file, device)?;
        let generation = GenerationOptions::default();
        Ok(Self { model, tokens, generation, vocab_size, max_length, device: device.clone() })
    }

    /// The tokenizer of a folder or a GGUF file.
    ///
    /// # Errors
    /// Those of [`Tokenizer::from_folder`] and of [`GgufFile::tokenizer`].
    pub fn tokenizer(model: &Path) -> Result<Tokenizer> {
        match find_gguf(model)? {
            Some(path) => GgufFile::open(&path)?.tokenizer(),
            None => Tokenizer::from_folder(model),
        }
    }

    /// The generation options that a folder sets. A GGUF file sets none.
    ///
    /// # Errors
    /// Those of reading files.
    pub fn folder_defaults(model: &Path) -> Result<GenerationOptions> {
        let path = model.join(CONFIG);
        match json::text(&path)? {
            Some(text) => Ok(generation_files(model, (&path, &text), &GenerationOptions::default())?.1),
            None => Ok(GenerationOptions::default()),
        }
    }

    /// Checks that a search can be done with this engine.
    ///
    /// # Errors
    /// [`Error::Options`] for beams and for several sequences of one input.
    pub fn check_options(options: &GenerationOptions) -> Result<()> {
        check_one_row(options)
    }

    /// Continues a sequence, and gives the logits after its last token.
    fn advance(&self, tokens: &[u32], sequence: &mut CandleSequence) -> Result<Vec<f32>> {
        let length = sequence.tokens.len() + tokens.len();
        if length > self.max_length {
            return Err(too_long("sequence", self.max_length, length));
        }
        if let Some(id) = tokens.iter().find(|id| **id as usize >= self.vocab_size) {
            let (expected, found) = (format!("token ids below {}", self.vocab_size), id.to_string());
            return Err(Error::Batch { expected, found });
        }
        // After an error the sequence has no model, and is read again.
        let (mut model, read) = match sequence.model.take() {
            Some(model) => (model, sequence.tokens.len()),
            None => (self.model.fresh()?, 0),
        };
        let mut all = std::mem::take(&mut sequence.tokens);
        let kept = all.len();
        all.extend(tokens);
        let result = self.read(model.as_mut(), &all, read);
        if result.is_ok() {
            sequence.model = Some(model);
        } else {
            all.truncate(kept);
        }
        sequence.tokens = all;
        result
    }

    /// Reads the tokens of a sequence from `read` on.
    fn read(&self, model: &mut dyn CandleModel, all: &[u32], read: usize) -> Result<Vec<f32>> {
        // Only a beginning is read at once: some masks are wrong for several tokens after others.
        let ends = if read == 0 { vec![all.len()] } else { (read + 1..=all.len()).collect() };
        let (mut past, mut logits) = (read, None);
        for end in ends {
            let ids = Tensor::new(&all[past..end], &self.device)?.unsqueeze(0)?;
            logits = Some(model.read(&ids, past)?);
            past = end;
        }
        let Some(logits) = logits else {
            let (expected, found) = ("a token".into(), "none".into());
            return Err(Error::Batch { expected, found });
        };
        let logits = logits.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
        if logits.len() != self.vocab_size {
            let expected = format!("{} logits, as the settings say", self.vocab_size);
            return Err(Error::Batch { expected, found: logits.len().to_string() });
        }
        Ok(logits)
    }
}

/// The special tokens of a GGUF file.
fn gguf_tokens(fields: &GgufFields<'_>) -> Result<SpecialTokens> {
    let mut eos = Vec::new();
    for name in ["eos_token_id", "eot_token_id", "eom_token_id"] {
        let id = fields.token(&format!("tokenizer.ggml.{name}"))?;
        eos.extend(id.filter(|id| !eos.contains(id)));
    }
    let bos = fields.token("tokenizer.ggml.bos_token_id")?;
    let end = eos.first().copied().unwrap_or(0);
    let pad = fields.token("tokenizer.ggml.padding_token_id")?.unwrap_or(end);
    Ok(SpecialTokens { pad, eos, bos, decoder_start: bos.unwrap_or(end) })
}

/// The error for several sequences.
fn one_row(found: usize) -> Error {
    let expected = "one sequence at a time with the engine `candle`".into();
    Error::Batch { expected, found: found.to_string() }
}

/// The tokens of each row of a batch, without padding.
fn rows(input: &Batch) -> Result<Vec<Vec<u32>>> {
    let (ids, mask) = (input.ids.to_vec2::<u32>()?, input.mask.to_vec2::<f32>()?);
    let row = |(ids, mask): (Vec<u32>, Vec<f32>)| {
        ids.into_iter().zip(mask).filter(|(_, mask)| *mask != 0.0).map(|(id, _)| id).collect()
    };
    Ok(ids.into_iter().zip(mask).map(row).collect())
}

impl CausalLm for CandleLm {
    fn begin(&self, input: &Batch, cache: &mut CausalCache) -> Result<Vec<f32>> {
        if cache.rows() != 0 {
            let found = format!("one of {} rows", cache.rows());
            return Err(Error::Batch { expected: "an empty cache".into(), found });
        }
        match rows(input)?.as_slice() {
            [row] => self.decode(row, 1, cache),
            rows => Err(one_row(rows.len())),
        }
    }

    fn decode(&self, tokens: &[u32], rows: usize, cache: &mut CausalCache) -> Result<Vec<f32>> {
        if rows != 1 {
            return Err(one_row(rows));
        }
        let mut sequence = cache.candle.take().unwrap_or_default();
        let result = self.advance(tokens, &mut sequence);
        cache.candle = Some(sequence).filter(|sequence| sequence.len() > 0);
        result
    }

    /// A row at a time, and a token at a time, because candle's models return the logits of the last position only.
    fn forward(&self, input: &Batch) -> Result<Tensor> {
        let (batch, length) = input.ids.dims2()?;
        let mask = input.mask.to_vec2::<f32>()?;
        let mut logits = Vec::with_capacity(batch * length * self.vocab_size);
        for (row, mask) in rows(input)?.iter().zip(&mask) {
            let (mut sequence, mut tokens) = (CandleSequence::default(), row.iter());
            for is_token in mask.iter().map(|mask| *mask != 0.0) {
                match is_token.then(|| tokens.next()).flatten() {
                    Some(token) => logits.extend(self.advance(&[*token], &mut sequence)?),
                    None => logits.resize(logits.len() + self.vocab_size, 0.0),
                }
            }
        }
        Ok(Tensor::from_vec(logits, (batch, length, self.vocab_size), &self.device)?)
    }

    fn special_tokens(&self) -> &SpecialTokens {
        &self.tokens
    }

    fn generation_defaults(&self) -> &GenerationOptions {
        &self.generation
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn max_length(&self) -> usize {
        self.max_length
    }

    /// Its tables of angles end, so that sequences end too.
    fn has_learned_positions(&self) -> bool {
        true
    }

    fn most_rows(&self) -> Option<usize> {
        Some(1)
    }

    fn device(&self) -> &Device {
        &self.device
    }
}
