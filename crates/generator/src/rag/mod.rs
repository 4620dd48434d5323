//! Retrieval-augmented generation (Lewis et al. 2020): the input is read with each passage separately, and the passage is
//! marginalised over, with the softmax of the passages' scores as its probability.

mod train;

use std::{path::PathBuf, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::Tokenizer;
use sporran_transformers::{
    DeviceName, GenerationOptions, Hypothesis, Inputs, Memory, ModelType, Precision, Seq2Seq, TakesModel,
    decode::{RagDecoding, generate_rag_sequence, generate_rag_token},
    fuse,
};

use crate::{
    Generation, Generator, PromptOptions, Request, Result,
    fid::batch_tokens,
    kind::{EvidenceSource, GeneratorContext, GeneratorKind, prompted_model},
    passages::{PassageReader, Portion},
};

/// `[generator]` with `kind = "rag-sequence"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RagSequenceOptions {
    /// The model's folder, in the Hugging Face layout: BART or T5.
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
    /// `[generator.generation]`: how sequences are searched for with each passage; `num-return-sequences` of all that
    /// are found come back.
    #[serde(default)]
    pub generation: GenerationOptions,
    /// `thorough` scores every sequence with every passage, `fast` only with those whose beams have it.
    #[serde(default)]
    pub decoding: RagDecoding,
    /// Tokens that are worked on together, at most, unless one input with its passages has more.
    #[serde(default = "batch_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub batch_tokens: usize,
}

/// `[generator]` with `kind = "rag-token"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RagTokenOptions {
    /// The model's folder, in the Hugging Face layout: BART or T5.
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
    /// Tokens that are worked on together, at most, unless one input with its passages has more.
    #[serde(default = "batch_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub batch_tokens: usize,
}

/// The unit that is marginalised.
enum Marginal {
    Sequence(RagDecoding),
    Token,
}

/// A model that answers with each passage and weighs the answers by the passages' scores.
pub struct RagGenerator {
    reader: PassageReader,
    marginal: Marginal,
}

impl RagGenerator {
    /// Loads the model of RAG-Sequence.
    ///
    /// # Errors
    /// An error in the model's folder or an option.
    pub fn load_sequence(options: &RagSequenceOptions) -> Result<Self> {
        let RagSequenceOptions { model, device, precision, prompt, generation, decoding, batch_tokens } =
            options;
        let reader = PassageReader::load(model, (*device, *precision), prompt, generation, *batch_tokens)?;
        Ok(Self { reader, marginal: Marginal::Sequence(*decoding) })
    }

    /// Loads the model of RAG-Token.
    ///
    /// # Errors
    /// An error in the model's folder or an option.
    pub fn load_token(options: &RagTokenOptions) -> Result<Self> {
        let RagTokenOptions { model, device, precision, prompt, generation, batch_tokens } = options;
        let reader = PassageReader::load(model, (*device, *precision), prompt, generation, *batch_tokens)?;
        Ok(Self { reader, marginal: Marginal::Token })
    }

    /// RAG-Sequence with a model that is loaded already.
    ///
    /// # Errors
    /// An error in an option.
    pub fn sequence(
        options: &RagSequenceOptions,
        model: Arc<dyn Seq2Seq>,
        tokenizer: Tokenizer,
    ) -> Result<Self> {
        let RagSequenceOptions { prompt, generation, decoding, batch_tokens, .. } = options;
        let reader = PassageReader::new(model, tokenizer, prompt, generation, *batch_tokens)?;
        Ok(Self { reader, marginal: Marginal::Sequence(*decoding) })
    }

    /// RAG-Token with a model that is loaded already.
    ///
    /// # Errors
    /// An error in an option.
    pub fn token(options: &RagTokenOptions, model: Arc<dyn Seq2Seq>, tokenizer: Tokenizer) -> Result<Self> {
        let RagTokenOptions { prompt, generation, batch_tokens, .. } = options;
        let reader = PassageReader::new(model, tokenizer, prompt, generation, *batch_tokens)?;
        Ok(Self { reader, marginal: Marginal::Token })
    }

    fn search(
        &self,
        portion: &Portion,
        memory: &Memory,
        scores: &[Vec<f32>],
    ) -> Result<Vec<Vec<Hypothesis>>> {
        let (model, options) = (self.reader.model.as_ref(), &self.reader.generation);
        Ok(match self.marginal {
            Marginal::Sequence(decoding) => generate_rag_sequence(model, memory, scores, options, decoding)?,
            Marginal::Token => {
                let sources: Vec<Vec<u32>> = portion.rows.iter().map(|rows| rows.concat()).collect();
                let inputs = Inputs { sources: Some(&sources), ..Inputs::default() };
                generate_rag_token(model, memory, scores, options, &inputs)?
            }
        })
    }
}

impl Generator for RagGenerator {
    fn generate(&self, requests: &[Request<'_>]) -> Result<Vec<Generation>> {
        let mut answers = vec![None; requests.len()];
        for portion in self.reader.portions(self.reader.rows(requests)?) {
            let states = self.reader.states(&portion)?;
            let memory = fuse(&states.iter().flatten().map(std::slice::from_ref).collect::<Vec<_>>())?;
            let scores = portion.requests.iter().zip(&portion.rows).map(|(at, rows)| {
                let scores = requests[*at].passages.iter().map(|candidate| candidate.score);
                // Without passages the input alone is certain.
                if requests[*at].passages.is_empty() { vec![0.0] } else { scores.take(rows.len()).collect() }
            });
            let found = self.search(&portion, &memory, &scores.collect::<Vec<_>>())?;
            for (at, found) in portion.requests.iter().zip(found) {
                answers[*at] = Some(self.reader.generation(&requests[*at], &found)?);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    fn kind(&self) -> &'static str {
        match self.marginal {
            Marginal::Sequence(_) => "rag-sequence",
            Marginal::Token => "rag-token",
        }
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

impl TakesModel for RagSequenceOptions {
    const TAKES: &'static [ModelType] = &[ModelType::EncoderDecoder];
}

impl GeneratorKind for RagSequenceOptions {
    prompted_model!();

    fn provenance(&self) -> EvidenceSource {
        EvidenceSource::Read
    }

    fn open(&self, _: &GeneratorContext) -> Result<Box<dyn Generator>> {
        Ok(Box::new(RagGenerator::load_sequence(self)?))
    }
}

impl TakesModel for RagTokenOptions {
    const TAKES: &'static [ModelType] = &[ModelType::EncoderDecoder];
}

impl GeneratorKind for RagTokenOptions {
    prompted_model!();

    fn provenance(&self) -> EvidenceSource {
        EvidenceSource::Read
    }

    fn open(&self, _: &GeneratorContext) -> Result<Box<dyn Generator>> {
        Ok(Box::new(RagGenerator::load_token(self)?))
    }
}
