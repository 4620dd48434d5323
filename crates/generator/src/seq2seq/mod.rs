//! The reader of KILT's BART + DPR: passages and input in one text, an encoder-decoder answers.

mod train;

use std::{path::PathBuf, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::Tokenizer;
use sporran_transformers::{
    DeviceName, Engine, GenerationOptions, ModelType, Precision, Seq2Seq, TakesModel,
};

use crate::{
    Error, Generation, Generator, ModelOptions, Prompt, PromptOptions, Request, Result, RunningBatch, Sink,
    TextGenerator,
    kind::{GeneratorContext, GeneratorKind, prompted_model},
    one_model::{Asked, OneModel, answers},
};

/// `[generator]` with `kind = "seq2seq"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Seq2SeqOptions {
    /// The model's folder, in the Hugging Face layout: T5 or BART.
    pub model: PathBuf,
    /// The numbers that the model computes with: `"f32"`; on a CPU `"int8"`, which is faster and rounds weights and
    /// inputs of every linear layer to 8 bits; on a GPU `"f16"` or `"bf16"`.
    #[serde(default)]
    pub precision: Precision,
    /// `[generator.prompt]`: the text that the model reads.
    #[serde(default)]
    pub prompt: PromptOptions,
    /// `[generator.generation]`: how the answer is searched for.
    #[serde(default)]
    pub generation: GenerationOptions,
    /// Inputs that are worked on together, at most.
    #[serde(default = "batch_size")]
    #[schemars(range(min = 1))]
    pub batch_size: usize,
    /// Tokens of a batch, padding included, at most.
    #[serde(default = "batch_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub batch_tokens: usize,
    /// Where the model computes: `cpu`, `cuda` or `cuda:N`; GPUs need a program that was built with the feature `cuda`.
    #[serde(default)]
    pub device: DeviceName,
}

fn batch_size() -> usize {
    32
}

fn batch_tokens() -> usize {
    8192
}

impl Seq2SeqOptions {
    fn model_options(&self) -> ModelOptions {
        ModelOptions {
            folder: self.model.clone(),
            precision: self.precision,
            generation: self.generation.clone(),
            max_tokens: self.prompt.max_tokens,
            batch_size: self.batch_size,
            batch_tokens: self.batch_tokens,
            device: self.device,
            engine: Engine::Auto,
            stops: Vec::new(),
        }
    }
}

/// A seq2seq model that reads passages.
pub struct Seq2SeqGenerator {
    prompt: Prompt,
    model: TextGenerator,
}

impl Seq2SeqGenerator {
    /// Loads the model.
    ///
    /// # Errors
    /// An error in the model's folder or an option.
    pub fn load(options: &Seq2SeqOptions) -> Result<Self> {
        let prompt = Prompt::new(options.prompt.clone())?;
        let model = TextGenerator::load(&options.model_options())?;
        if model.is_causal() {
            let found =
                format!("a decoder-only model in {}; use `kind = \"causal\"`", options.model.display());
            return Err(Error::Option { option: "model", expected: "an encoder-decoder", found });
        }
        Ok(Self { prompt, model })
    }

    /// A model that is loaded already, such as one in training.
    ///
    /// # Errors
    /// An error in an option.
    pub fn new(options: &Seq2SeqOptions, model: Arc<dyn Seq2Seq>, tokenizer: Tokenizer) -> Result<Self> {
        let prompt = Prompt::new(options.prompt.clone())?;
        Ok(Self { prompt, model: TextGenerator::new(model, tokenizer, options.model_options())? })
    }
}

impl OneModel for Seq2SeqGenerator {
    fn model(&self) -> &TextGenerator {
        &self.model
    }

    fn rows(&self, requests: &[Request<'_>]) -> Result<Vec<Vec<u32>>> {
        let texts: Vec<String> = requests
            .iter()
            .map(|request| self.prompt.text(request, self.model.tokenizer()))
            .collect::<Result<_>>()?;
        self.model.rows(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn answer(&self, asked: &Asked, text: &str) -> (String, Vec<usize>) {
        asked.free(text.trim().to_owned())
    }
}

impl Generator for Seq2SeqGenerator {
    fn generate(&self, requests: &[Request<'_>]) -> Result<Vec<Generation>> {
        answers(self, requests, None)
    }

    fn generate_into(&self, requests: &[Request<'_>], sink: &dyn Sink) -> Result<Vec<Generation>> {
        answers(self, requests, Some(sink))
    }

    fn samples(&self) -> bool {
        self.model.samples()
    }

    fn passages(&self) -> usize {
        self.prompt.options().passages
    }

    fn kind(&self) -> &'static str {
        "seq2seq"
    }

    fn running_batch(&self) -> Result<RunningBatch<'_>> {
        RunningBatch::over(self)
    }

    fn prompt_tokens(&self, requests: &[Request<'_>]) -> Result<Vec<usize>> {
        Ok(self.rows(requests)?.iter().map(Vec::len).collect())
    }

    fn prompts(&self, request: &Request<'_>) -> Result<Vec<String>> {
        Ok(vec![self.prompt.text(request, self.model.tokenizer())?])
    }
}

impl TakesModel for Seq2SeqOptions {
    const TAKES: &'static [ModelType] = &[ModelType::EncoderDecoder];
}

impl GeneratorKind for Seq2SeqOptions {
    prompted_model!();

    fn open(&self, _: &GeneratorContext) -> Result<Box<dyn Generator>> {
        Ok(Box::new(Seq2SeqGenerator::load(self)?))
    }
}
