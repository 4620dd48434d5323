//! Fusion-in-Decoder (Izacard and Grave 2021): passages are encoded separately and decoded together.

mod train;

use std::{path::PathBuf, sync::Arc};

use candle_core::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::Tokenizer;
use sporran_transformers::{
    Cache, DeviceName, GenerationOptions, Inputs, Memory, ModelType, Precision, Seq2Seq, TakesModel, fuse,
    generate_with,
};

use crate::{
    Generation, Generator, PromptOptions, Request, Result,
    kind::{GeneratorContext, GeneratorKind, prompted_model},
    passages::PassageReader,
};

/// `[generator]` with `kind = "fid"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// The ranking of the evidence: `attention` or `retriever`.
    #[serde(default)]
    pub evidence: FidEvidence,
    /// Tokens that are worked on together, at most, when passages are encoded; also the passages' tokens that are
    /// decoded together, unless one input has more.
    #[serde(default = "batch_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub batch_tokens: usize,
}

/// The ranking of the passages of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FidEvidence {
    /// The share of the decoder's attention that each has while the answer is written: the mean over layers, heads and the
    /// answer's tokens (after Izacard and Grave 2021, "Distilling Knowledge from Reader to Retriever for Question Answering",
    /// who take scores before the softmax at the first token).
    #[default]
    Attention,
    /// The retriever, as for any other generator; saves reading the answer once more.
    Retriever,
}

pub(crate) fn batch_tokens() -> usize {
    8192
}

/// A model that reads passages one by one and answers from all of them.
pub struct FidGenerator {
    reader: PassageReader,
    evidence: FidEvidence,
}

impl FidGenerator {
    /// Loads the model.
    ///
    /// # Errors
    /// An error in the model's folder or an option.
    pub fn load(options: &FidOptions) -> Result<Self> {
        let FidOptions { model, device, precision, prompt, generation, evidence, batch_tokens } = options;
        let reader = PassageReader::load(model, (*device, *precision), prompt, generation, *batch_tokens)?;
        Ok(Self { reader, evidence: *evidence })
    }

    /// A model that is loaded already.
    ///
    /// # Errors
    /// An error in an option.
    pub fn new(options: &FidOptions, model: Arc<dyn Seq2Seq>, tokenizer: Tokenizer) -> Result<Self> {
        let FidOptions { prompt, generation, evidence, batch_tokens, .. } = options;
        let reader = PassageReader::new(model, tokenizer, prompt, generation, *batch_tokens)?;
        Ok(Self { reader, evidence: *evidence })
    }

    /// The tokens of each text that the model reads for a request: the input with each of its passages.
    ///
    /// # Errors
    /// Where the tokenizer fails.
    pub fn rows(&self, request: &Request<'_>) -> Result<Vec<Vec<u32>>> {
        Ok(self.reader.rows(std::slice::from_ref(request))?.concat())
    }

    /// The passages of one input, those first that the decoder attends to most while it writes `answer`.
    fn attended(&self, memory: &Memory, rows: &[Vec<u32>], answer: &[u32]) -> Result<Vec<usize>> {
        let model = self.reader.model.as_ref();
        let tokens: Vec<u32> =
            std::iter::once(model.special_tokens().decoder_start).chain(answer.iter().copied()).collect();
        let mut cache = Cache::watching();
        model.decode(&tokens, 1, memory, &mut cache)?;
        let weights = cache.attended()?.concat();
        let mut rest = weights.as_slice();
        let shares = rows.iter().map(|row| {
            let (own, later) = rest.split_at(row.len().min(rest.len()));
            rest = later;
            own.iter().sum::<f32>()
        });
        let shares: Vec<f32> = shares.collect();
        let mut order: Vec<usize> = (0..shares.len()).collect();
        order.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]).then(a.cmp(&b)));
        Ok(order)
    }
}

impl Generator for FidGenerator {
    fn generate(&self, requests: &[Request<'_>]) -> Result<Vec<Generation>> {
        let mut answers = vec![None; requests.len()];
        // One portion after the other, since the keys and values of its passages need memory.
        for portion in self.reader.portions(self.reader.rows(requests)?) {
            let memory = {
                let states = self.reader.states(&portion)?;
                fuse(&states.iter().map(Vec::as_slice).collect::<Vec<&[Tensor]>>())?
            };
            let sources: Vec<Vec<u32>> = portion.rows.iter().map(|rows| rows.concat()).collect();
            let inputs = Inputs { sources: Some(&sources), ..Inputs::default() };
            let model = self.reader.model.as_ref();
            let found = generate_with(model, &memory, &self.reader.generation, &inputs)?;
            for (number, (at, found)) in portion.requests.iter().zip(found).enumerate() {
                let mut generation = self.reader.generation(&requests[*at], &found)?;
                // An input without passages is read alone.
                if let (FidEvidence::Attention, Some(best), false) =
                    (self.evidence, found.first(), generation.evidence.is_empty())
                {
                    let memory = memory.select(&[number as u32])?;
                    generation.evidence = self.attended(&memory, &portion.rows[number], &best.tokens)?;
                }
                answers[*at] = Some(generation);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    fn kind(&self) -> &'static str {
        "fid"
    }

    fn samples(&self) -> bool {
        self.reader.samples()
    }

    fn passages(&self) -> usize {
        self.reader.passages()
    }

    fn prompt_tokens(&self, requests: &[Request<'_>]) -> Result<Vec<usize>> {
        self.reader.prompt_tokens(requests)
    }

    fn prompts(&self, request: &Request<'_>) -> Result<Vec<String>> {
        self.reader.texts(request)
    }
}

impl TakesModel for FidOptions {
    const TAKES: &'static [ModelType] = &[ModelType::EncoderDecoder];
}

impl GeneratorKind for FidOptions {
    prompted_model!();

    fn open(&self, _: &GeneratorContext) -> Result<Box<dyn Generator>> {
        Ok(Box::new(FidGenerator::load(self)?))
    }
}
