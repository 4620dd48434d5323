//! Texts to vectors: an encoder with its tokenizer, its pooling and its folder's settings.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use candle_core::{DType, Device, Tensor};
use sporran_checkpoint::{Error, Result, Role, SentenceSettings, Tokenizer, VectorSimilarity};

use super::{Pooling, Sentences};
use crate::{
    Checkpoint, DeviceName, Encoder, EncoderInput, EncoderRow, Head, ModelConfig, Precision, Text,
    Truncation, VectorHead,
    batch::{Batch, each_batch, length_batches},
};

/// A model, and how it reads.
#[derive(Clone, Debug, PartialEq)]
pub struct TextEncoderOptions {
    /// The model's folder: in the layout of sentence-transformers, of DPR, or a bare encoder with a pooling.
    pub folder: PathBuf,
    /// The pooling of hidden states into a vector. Overrides the folder's setting. The folder's layers after the pooling
    /// stay, but DPR's projection does not.
    pub pooling: Option<Pooling>,
    /// The pooling of hidden states into a vector if the folder has no setting.
    pub fallback: Option<Pooling>,
    /// How many values of a vector are kept, from the first on; by default as many as the folder sets.
    pub dimensions: Option<usize>,
    /// Tokens of an input, at most; by default as many as the folder sets.
    pub max_tokens: Option<usize>,
    /// The truncation of a longer input.
    pub truncation: Truncation,
    /// The numbers that it computes with.
    pub precision: Precision,
    /// Where it computes.
    pub device: DeviceName,
    /// Tokens of a batch, padding included, at most; a longer input forms a separate batch.
    pub batch_tokens: usize,
}

impl TextEncoderOptions {
    /// A folder's model as the folder sets, in f32 on a CPU, with 4,096 tokens a batch.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            pooling: None,
            fallback: None,
            dimensions: None,
            max_tokens: None,
            truncation: Truncation::LongestFirst,
            precision: Precision::F32,
            device: DeviceName::Cpu,
            batch_tokens: 4096,
        }
    }
}

/// How the states of a batch become vectors.
enum Reduction {
    /// DPR's way: the first token, projected where the model has a projection.
    Dpr(VectorHead),
    /// Pooling, and the folder's steps after it.
    Sentences(Box<Sentences>),
}

impl Reduction {
    fn sentences(sentences: Sentences) -> Self {
        Self::Sentences(Box::new(sentences))
    }
}

/// The prompt before a text.
#[derive(Clone)]
struct Prompt {
    text: String,
    /// Tokens at the beginning of a row that are not pooled.
    skipped: usize,
}

/// An encoder of texts as vectors. Copies share the weights.
#[derive(Clone)]
pub struct TextEncoder {
    folder: Arc<Path>,
    body: Arc<dyn Encoder>,
    reduction: Arc<Reduction>,
    input: Arc<EncoderInput>,
    prompt: Prompt,
    batch_tokens: usize,
    /// The width of the vectors that are kept.
    width: usize,
    /// The numeric type of hidden states.
    dtype: DType,
}

impl TextEncoder {
    /// Loads a folder, with its default prompt; `None` where neither the folder nor the options say how states become
    /// vectors.
    ///
    /// # Errors
    /// Those of [`Checkpoint`] and of [`Sentences::open`]; [`Error::Options`] for empty batches or vectors, and for more
    /// dimensions than the model has.
    pub fn load(options: &TextEncoderOptions) -> Result<Option<Self>> {
        if options.batch_tokens == 0 {
            return Err(Error::Options {
                option: "batch-tokens",
                expected: "at least 1".into(),
                found: "0".into(),
            });
        }
        options.device.check(options.precision)?;
        // The modules after the encoder take its states in its type; a packed encoder returns f32.
        let dtype = if options.device == DeviceName::Cpu { DType::F32 } else { options.precision.dtype()? };
        let sentences = Sentences::open(&options.folder, dtype, &options.device.open()?)?;
        let folder = sentences.as_ref().map_or(&options.folder, |sentences| &sentences.encoder);
        let checkpoint = Checkpoint::open(folder)?;
        let model = checkpoint.encoder_on(options.device, options.precision)?;
        let reduction = match (options.pooling, sentences, model.head) {
            (Some(pooling), Some(sentences), _) => Reduction::sentences(sentences.with_pooling(pooling)?),
            (None, Some(sentences), _) => Reduction::sentences(sentences),
            (Some(pooling), None, _) => Reduction::sentences(Sentences::plain(&options.folder, pooling)),
            (None, None, Head::Vector(head)) => Reduction::Dpr(head),
            (None, None, _) if matches!(checkpoint.config(), ModelConfig::StaticEmbedding(_)) => {
                Reduction::sentences(Sentences::plain(&options.folder, Pooling::Mean))
            }
            (None, None, _) => match options.fallback {
                Some(pooling) => Reduction::sentences(Sentences::plain(&options.folder, pooling)),
                None => return Ok(None),
            },
        };
        let whole = match &reduction {
            Reduction::Dpr(head) => head.width(),
            Reduction::Sentences(sentences) => {
                sentences.check_widths(model.body.width())?;
                sentences.width(model.body.width())
            }
        };
        let own = match &reduction {
            Reduction::Dpr(_) => None,
            Reduction::Sentences(sentences) => sentences.settings.truncate_dim,
        };
        let width = match options.dimensions {
            // A folder may set more values than the vectors have; then all are kept.
            None => own.map_or(whole, |own| own.min(whole)),
            Some(wanted) if (1..=whole).contains(&wanted) => wanted,
            Some(wanted) => {
                let expected = format!("1 to {whole}, the width of the model's vectors");
                return Err(Error::Options { option: "dimensions", expected, found: wanted.to_string() });
            }
        };
        let length = model.body.max_input_length();
        let input = EncoderInput::open(&checkpoint, length, options.max_tokens, options.truncation)?;
        let folder = options.folder.as_path().into();
        let (body, reduction, input) = (model.body.into(), Arc::new(reduction), Arc::new(input));
        let prompt = Prompt { text: String::new(), skipped: 0 };
        let batch_tokens = options.batch_tokens;
        let encoder = Self { folder, body, reduction, input, prompt, batch_tokens, width, dtype };
        let default = encoder.settings().map(|settings| settings.default_prompt().to_owned());
        Ok(Some(match default {
            Some(prompt) => encoder.with_prompt(&prompt)?,
            None => encoder,
        }))
    }

    /// The folder's settings, if it is one of sentence-transformers.
    #[must_use]
    pub fn settings(&self) -> Option<&SentenceSettings> {
        match &*self.reduction {
            Reduction::Dpr(_) => None,
            Reduction::Sentences(sentences) => Some(&sentences.settings),
        }
    }

    /// The similarity of two vectors: sentence-transformers' setting, and the inner product for DPR.
    #[must_use]
    pub fn similarity(&self) -> VectorSimilarity {
        self.settings().map_or(VectorSimilarity::Dot, |settings| settings.similarity)
    }

    /// Whether the model reads a title and a text as a pair, as DPR does.
    #[must_use]
    pub fn reads_pairs(&self) -> bool {
        matches!(*self.reduction, Reduction::Dpr(_))
    }

    /// The same with another text before each input instead of the folder's prompts. If the folder says so, the tokens of
    /// this text are not pooled.
    ///
    /// # Errors
    /// Where the tokenizer fails.
    pub fn with_prompt(&self, prompt: &str) -> Result<Self> {
        let skipped = match &*self.reduction {
            Reduction::Sentences(sentences) if !sentences.include_prompt && !prompt.is_empty() => {
                self.input.leading_tokens(prompt)?
            }
            _ => 0,
        };
        Ok(Self { prompt: Prompt { text: prompt.into(), skipped }, ..self.clone() })
    }

    /// The same with the folder's prompt for texts of a role.
    ///
    /// # Errors
    /// Where the tokenizer fails.
    pub fn for_role(&self, role: Role) -> Result<Self> {
        let prompt = self.settings().map_or("", |settings| settings.prompt(role)).to_owned();
        self.with_prompt(&prompt)
    }

    /// The same with another way of cutting long inputs.
    #[must_use]
    pub fn with_truncation(&self, truncation: Truncation) -> Self {
        Self { input: Arc::new(self.input.with_truncation(truncation)), ..self.clone() }
    }

    /// The width of a vector.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// The device of the weights.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.body.device()
    }

    /// The tokenizer.
    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        self.input.tokenizer()
    }

    /// The most tokens of an input, special tokens included.
    #[must_use]
    pub fn max_tokens(&self) -> usize {
        self.input.max_length()
    }

    /// The tokens of inputs, as the model reads them. The prompt precedes each input, or the first text of a pair.
    ///
    /// # Errors
    /// Where the tokenizer fails.
    pub fn rows(&self, texts: &[Text<'_>]) -> Result<Vec<EncoderRow>> {
        if self.prompt.text.is_empty() {
            return self.input.rows(texts);
        }
        let first = |text: &Text<'_>| match text {
            Text::One(first) | Text::Pair(first, _) => format!("{}{first}", self.prompt.text),
        };
        let firsts: Vec<String> = texts.iter().map(first).collect();
        let prompted = |(text, first)| match text {
            Text::One(_) => Text::One(first),
            Text::Pair(_, second) => Text::Pair(first, second),
        };
        let prompted: Vec<Text<'_>> =
            texts.iter().copied().zip(firsts.iter().map(String::as_str)).map(prompted).collect();
        self.input.rows(&prompted)
    }

    /// The vectors of inputs, row after row, [`width`](Self::width) values each.
    ///
    /// An empty text of a tokenizer that adds no special tokens has no token. Its pooled vector is zero, as in sentence-transformers
    /// for all means and the last token of a padded row. The steps after the pooling apply to it.
    ///
    /// # Errors
    /// Where the tokenizer or the model fails, and [`Error::NotFinite`].
    pub fn encode(&self, texts: &[Text<'_>]) -> Result<Vec<f32>> {
        self.encode_rows(self.rows(texts)?)
    }

    /// [`encode`](Self::encode) for the [rows](Self::rows) of inputs.
    ///
    /// # Errors
    /// Where the model fails, and [`Error::NotFinite`].
    pub fn encode_rows(&self, rows: Vec<EncoderRow>) -> Result<Vec<f32>> {
        let mut values = vec![0.0; rows.len() * self.width];
        let (mut places, mut read, mut empty) = (Vec::new(), Vec::new(), Vec::new());
        for (at, row) in rows.into_iter().enumerate() {
            if row.ids.len() > self.prompt.skipped {
                places.push(at);
                read.push(row);
            } else {
                empty.push(at);
            }
        }
        let lengths: Vec<usize> = read.iter().map(|row| row.ids.len()).collect();
        let batches = length_batches(&lengths, usize::MAX, self.batch_tokens);
        let parts = each_batch(self.device(), &batches, |batch| self.batch(batch, &read))?;
        let mut put = |at: usize, vector: &[f32]| {
            values[at * self.width..][..self.width].copy_from_slice(vector);
        };
        for (batch, part) in batches.iter().zip(parts) {
            for (&at, vector) in batch.iter().zip(part.chunks_exact(self.width)) {
                put(places[at], vector);
            }
        }
        if !empty.is_empty() {
            let vector = self.of_nothing()?;
            empty.into_iter().for_each(|at| put(at, &vector));
        }
        if !values.iter().all(|value| value.is_finite()) {
            return Err(Error::NotFinite { folder: self.folder.to_path_buf(), what: "vectors" });
        }
        Ok(values)
    }

    /// The hidden states of the [rows](Self::rows) of inputs: for each row one vector a token, (s, d) values in f32.
    ///
    /// # Errors
    /// Where the model fails.
    pub fn states(&self, rows: &[EncoderRow]) -> Result<Vec<Vec<f32>>> {
        let places: Vec<usize> = (0..rows.len()).filter(|&at| !rows[at].ids.is_empty()).collect();
        let lengths: Vec<usize> = places.iter().map(|&at| rows[at].ids.len()).collect();
        let mut batches = length_batches(&lengths, usize::MAX, self.batch_tokens);
        batches.iter_mut().flatten().for_each(|at| *at = places[*at]);
        let parts = each_batch(self.device(), &batches, |batch| {
            let own: Vec<&EncoderRow> = batch.iter().map(|&at| &rows[at]).collect();
            let states = self.body.states(&Batch::for_encoder(&own, &*self.body)?)?.to_dtype(DType::F32)?;
            let row = |(at, row): (usize, &&EncoderRow)| {
                Ok(states.get(at)?.narrow(0, 0, row.ids.len())?.flatten_all()?.to_vec1()?)
            };
            own.iter().enumerate().map(row).collect::<Result<Vec<Vec<f32>>>>()
        })?;
        let mut found = vec![Vec::new(); rows.len()];
        for (batch, part) in batches.iter().zip(parts) {
            for (&at, states) in batch.iter().zip(part) {
                found[at] = states;
            }
        }
        Ok(found)
    }

    /// The pooling of hidden states; several are joined by `+`.
    #[must_use]
    pub fn pooling(&self) -> String {
        match &*self.reduction {
            Reduction::Dpr(_) => "cls".to_owned(),
            Reduction::Sentences(sentences) => {
                sentences.pooling.iter().map(Pooling::to_string).collect::<Vec<_>>().join("+")
            }
        }
    }

    /// The width of the hidden states of tokens.
    #[must_use]
    pub fn state_width(&self) -> usize {
        self.body.width()
    }

    /// The vector of an input without a token.
    fn of_nothing(&self) -> Result<Vec<f32>> {
        let zeros = Tensor::zeros((1, self.body.width()), self.dtype, self.device())?;
        self.values(&match &*self.reduction {
            Reduction::Dpr(head) => head.forward(&zeros)?,
            Reduction::Sentences(sentences) => {
                sentences.after_pooling(&vec![zeros; sentences.pooling.len()])?
            }
        })
    }

    fn batch(&self, batch: &[usize], rows: &[EncoderRow]) -> Result<Vec<f32>> {
        let rows: Vec<&EncoderRow> = batch.iter().map(|&at| &rows[at]).collect();
        let input = Batch::for_encoder(&rows, &*self.body)?;
        let vectors = match &*self.reduction {
            Reduction::Dpr(head) => head.forward(&self.body.first_states(&input)?)?,
            Reduction::Sentences(sentences) => sentences.encode(&*self.body, &input, self.prompt.skipped)?,
        };
        self.values(&vectors)
    }

    /// The values of vectors that are kept.
    fn values(&self, vectors: &Tensor) -> Result<Vec<f32>> {
        let kept = vectors.narrow(1, 0, self.width)?;
        Ok(kept.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?)
    }
}
