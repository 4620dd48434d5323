//! Fusion-in-Decoder (Izacard and Grave 2021): passages are encoded apart and decoded together.

use std::{path::PathBuf, sync::Arc};

use candle_core::Tensor;
use serde::{Deserialize, Serialize};
use sporran_transformers::{
    DeviceName, GenerationOptions, Inputs, Precision, Seq2Seq, Tokenizer, fuse, generate_with,
};

use crate::{Generation, Generator, PromptOptions, Request, Result, passages::PassageReader};

/// `[generator]` with `kind = "fid"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FidOptions {
    /// The model's folder, in the Hugging Face layout: T5 or BART.
    pub model: PathBuf,
    /// How the weights are kept: `"f32"`, or `"int8"`, which is faster and rounds weights and inputs of every linear
    /// layer to 8 bits.
    #[serde(default)]
    pub precision: Precision,
    /// Where the model computes: `cpu`, `cuda` or `cuda:N`; GPUs need a program that was built with the feature `cuda`.
    #[serde(default)]
    pub device: DeviceName,
    /// `[generator.prompt]`: the text of the input with one passage, of which there are `passages`; `max-tokens` is for
    /// each of them.
    #[serde(default)]
    pub prompt: PromptOptions,
    /// `[generator.generation]`: how the answer is searched for.
    #[serde(default)]
    pub generation: GenerationOptions,
    /// Tokens that are worked on together, at most, when passages are encoded; also the passages' tokens that are
    /// decoded together, unless one input has more.
    #[serde(default = "batch_tokens")]
    pub batch_tokens: usize,
}

pub(crate) fn batch_tokens() -> usize {
    8192
}

/// A model that reads passages one by one and answers from all of them.
pub struct FidGenerator {
    reader: PassageReader,
}

impl FidGenerator {
    /// Loads the model.
    ///
    /// # Errors
    /// What is wrong with the model's folder or an option.
    pub fn load(options: &FidOptions) -> Result<Self> {
        let FidOptions { model, device, precision, prompt, generation, batch_tokens } = options;
        Ok(Self {
            reader: PassageReader::load(model, (*device, *precision), prompt, generation, *batch_tokens)?,
        })
    }

    /// A model that is loaded already.
    ///
    /// # Errors
    /// What is wrong with an option.
    pub fn new(options: &FidOptions, model: Arc<dyn Seq2Seq>, tokenizer: Tokenizer) -> Result<Self> {
        let FidOptions { prompt, generation, batch_tokens, .. } = options;
        Ok(Self { reader: PassageReader::new(model, tokenizer, prompt, generation, *batch_tokens)? })
    }
}

impl Generator for FidGenerator {
    fn generate(&self, requests: &[Request<'_>]) -> Result<Vec<Generation>> {
        let mut answers = vec![None; requests.len()];
        // One portion after the other: the keys and values of its passages are what memory is needed for.
        for portion in self.reader.portions(self.reader.rows(requests)?) {
            let memory = {
                let states = self.reader.states(&portion)?;
                fuse(&states.iter().map(Vec::as_slice).collect::<Vec<&[Tensor]>>())?
            };
            let sources: Vec<Vec<u32>> = portion.rows.iter().map(|rows| rows.concat()).collect();
            let inputs = Inputs { sources: Some(&sources), constraint: None };
            let model = self.reader.model.as_ref();
            let found = generate_with(model, &memory, &self.reader.generation, &inputs)?;
            for (at, found) in portion.requests.iter().zip(found) {
                answers[*at] = Some(self.reader.generation(&requests[*at], &found)?);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    fn passages(&self) -> usize {
        self.reader.passages()
    }

    fn prompts(&self, request: &Request<'_>) -> Result<Vec<String>> {
        self.reader.texts(request)
    }
}
