//! Texts in, texts out: a model with its tokenizer, batched by length.

use std::{path::PathBuf, sync::Arc};

use candle_core::Device;
use sporran_transformers::{
    Batch, CausalLm, Checkpoint, DeviceName, GenerationOptions, Gguf, Hypothesis, Precision, Seq2Seq,
    Tokenizer, each_batch, find_gguf, generate, generate_causal_until, length_batches,
};

use crate::{Error, Result};

/// A model, and how it generates.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelOptions {
    /// The model's folder, in the Hugging Face layout.
    pub folder: PathBuf,
    /// How its weights are kept.
    pub precision: Precision,
    /// How it generates.
    pub generation: GenerationOptions,
    /// Tokens of an input, at most; the rest is cut.
    pub max_tokens: usize,
    /// Inputs that are worked on together, at most.
    pub batch_size: usize,
    /// Tokens of a batch, padding included, at most; a longer input is a batch of its own.
    pub batch_tokens: usize,
    /// Where it computes.
    pub device: DeviceName,
    /// A text ends before the first of these.
    pub stops: Vec<String>,
}

impl ModelOptions {
    /// A folder's model in f32 on the CPU with the default portions: 1,024 tokens an input, 32 inputs or 8,192 tokens a batch.
    pub fn new(folder: PathBuf, generation: GenerationOptions) -> Self {
        Self {
            folder,
            precision: Precision::F32,
            generation,
            max_tokens: 1024,
            batch_size: 32,
            batch_tokens: 8192,
            device: DeviceName::Cpu,
            stops: Vec::new(),
        }
    }
}

/// A generated text.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratedText {
    /// The text, special tokens left out.
    pub text: String,
    /// The score of its sequence.
    pub score: f32,
    /// The tokens of its sequence.
    pub tokens: usize,
}

/// The outputs of a batch, each with its row's place among the texts.
type Answers = Vec<(usize, Vec<GeneratedText>)>;

/// What generates.
#[derive(Clone)]
enum Model {
    Seq2Seq(Arc<dyn Seq2Seq>),
    /// It continues its input.
    Causal(Arc<dyn CausalLm>),
}

impl Model {
    fn device(&self) -> &Device {
        match self {
            Self::Seq2Seq(model) => model.device(),
            Self::Causal(model) => model.device(),
        }
    }

    /// The most tokens of an input.
    fn max_input_length(&self) -> Option<usize> {
        match self {
            Self::Seq2Seq(model) => model.max_input_length(),
            // Room for one more token at least.
            Self::Causal(model) => Some(model.max_length().saturating_sub(1)),
        }
    }

    fn generate(
        &self,
        rows: &[&[u32]],
        options: &GenerationOptions,
        stops: &[u32],
    ) -> Result<Vec<Vec<Hypothesis>>> {
        Ok(match self {
            Self::Seq2Seq(model) => {
                let input = Batch::new(rows, model.special_tokens().pad, model.device())?;
                generate(model.as_ref(), &input, options)?
            }
            Self::Causal(model) => {
                let prompts: Vec<Vec<u32>> = rows.iter().map(|row| row.to_vec()).collect();
                generate_causal_until(model.as_ref(), &prompts, options, stops)?
            }
        })
    }
}

/// The tokens whose text has one of `stops` in it.
fn stop_tokens(tokenizer: &Tokenizer, stops: &[String]) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for token in 0..tokenizer.vocab_size() as u32 {
        let text = tokenizer.decode(&[token])?;
        if stops.iter().any(|stop| text.contains(stop)) {
            found.push(token);
        }
    }
    Ok(found)
}

/// A model that generates, with its tokenizer.
pub struct TextGenerator {
    model: Model,
    tokenizer: Tokenizer,
    options: ModelOptions,
    /// Tokens of a decoder-only model that hold one of `stops`: none is needed after them.
    stops: Vec<u32>,
}

impl TextGenerator {
    /// Loads a folder.
    ///
    /// # Errors
    /// [`Error::Transformers`] for a folder that is not a generating model's and for a device that is not there,
    /// [`Error::Option`] for empty batches.
    pub fn load(options: &ModelOptions) -> Result<Self> {
        if let Some(file) = find_gguf(&options.folder)? {
            let file = Gguf::open(&file)?;
            let model = Model::Causal(file.causal(options.device, options.precision)?.into());
            return Self::over(model, file.tokenizer()?, options.clone());
        }
        let checkpoint = Checkpoint::open(&options.folder)?;
        let model = if checkpoint.config().is_causal() {
            Model::Causal(checkpoint.causal(options.device, options.precision)?.into())
        } else {
            Model::Seq2Seq(checkpoint.seq2seq(options.device, options.precision)?.into())
        };
        Self::over(model, checkpoint.tokenizer()?, options.clone())
    }

    /// A model that is loaded already, such as one in training.
    ///
    /// # Errors
    /// [`Error::Option`] for empty batches.
    pub fn new(model: Arc<dyn Seq2Seq>, tokenizer: Tokenizer, options: ModelOptions) -> Result<Self> {
        Self::over(Model::Seq2Seq(model), tokenizer, options)
    }

    fn over(model: Model, tokenizer: Tokenizer, mut options: ModelOptions) -> Result<Self> {
        for (option, value) in [("batch-size", options.batch_size), ("batch-tokens", options.batch_tokens)] {
            if value == 0 {
                return Err(Error::Option { option, expected: "at least 1", found: "0".into() });
            }
        }
        options.max_tokens = options.max_tokens.min(model.max_input_length().unwrap_or(usize::MAX));
        let stops = match (&model, options.stops.is_empty()) {
            (Model::Causal(_), false) => stop_tokens(&tokenizer, &options.stops)?,
            _ => Vec::new(),
        };
        Ok(Self { model, tokenizer, options, stops })
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The tokens of a text, cut to what the model reads, and how many it had before.
    ///
    /// # Errors
    /// Where the tokenizer fails.
    pub fn encode(&self, text: &str) -> Result<(Vec<u32>, usize)> {
        let whole = self.tokenizer.encode(text, None)?;
        let count = whole.len();
        if count <= self.options.max_tokens {
            return Ok((whole, count));
        }
        Ok((self.tokenizer.encode(text, Some(self.options.max_tokens))?, count))
    }

    /// The tokens of a text, at most.
    pub fn max_tokens(&self) -> usize {
        self.options.max_tokens
    }

    /// The positions of the model, an answer's included, where it has a bound.
    pub(crate) fn max_length(&self) -> usize {
        match &self.model {
            Model::Seq2Seq(model) => model.max_input_length().unwrap_or(usize::MAX),
            Model::Causal(model) => model.max_length(),
        }
    }

    /// Answer `i` belongs to text `i`: as many outputs as the options' `num-return-sequences`, best first. Texts of
    /// like length are worked on together, which changes the time and not the answers.
    ///
    /// # Errors
    /// Where the tokenizer or the model fails.
    pub fn generate(&self, texts: &[&str]) -> Result<Vec<Vec<GeneratedText>>> {
        let rows = self.tokenizer.encode_batch(texts, Some(self.options.max_tokens))?;
        self.generate_from(&rows)
    }

    /// [`generate`](Self::generate) for texts that have been [encoded](Self::encode), each to one token at least.
    ///
    /// # Errors
    /// Where the model fails.
    pub fn generate_from(&self, rows: &[Vec<u32>]) -> Result<Vec<Vec<GeneratedText>>> {
        let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
        let batches = length_batches(&lengths, self.options.batch_size, self.options.batch_tokens);
        let answers = each_batch(self.model.device(), &batches, |batch| self.answer(batch, rows))?;
        let mut outputs: Vec<Vec<GeneratedText>> = vec![Vec::new(); rows.len()];
        for (at, output) in answers.into_iter().flatten() {
            outputs[at] = output;
        }
        Ok(outputs)
    }

    fn answer(&self, batch: &[usize], rows: &[Vec<u32>]) -> Result<Answers> {
        let inputs: Vec<&[u32]> = batch.iter().map(|&at| rows[at].as_slice()).collect();
        let hypotheses = self.model.generate(&inputs, &self.options.generation, &self.stops)?;
        batch
            .iter()
            .zip(hypotheses)
            .map(|(&at, hypotheses)| {
                let outputs: Result<Vec<GeneratedText>> = hypotheses
                    .iter()
                    .map(|hypothesis| {
                        let mut text = self.tokenizer.decode(&hypothesis.tokens)?;
                        let ends = self.options.stops.iter().filter_map(|stop| text.find(stop));
                        text.truncate(ends.min().unwrap_or(text.len()));
                        Ok(GeneratedText { text, score: hypothesis.score, tokens: hypothesis.tokens.len() })
                    })
                    .collect();
                Ok((at, outputs?))
            })
            .collect()
    }
}
