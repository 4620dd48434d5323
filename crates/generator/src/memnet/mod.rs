//! Transformer memory networks (Dinan et al. 2019): the memory holds pieces of passages. The dialogue attends to one piece,
//! and the answer is generated from both.

mod train;

use std::{path::PathBuf, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::Tokenizer;
use sporran_kilt::{Passage, PassageStore, Query};
use sporran_transformers::{
    Checkpoint, DeviceName, GenerationOptions, Inputs, ModelType, Precision, Seq2Seq, TakesModel,
    attend_to_pieces, fuse, generate_with,
};

use crate::{
    Error, Generation, Generator, Prompt, PromptOptions, Request, Result, Unit, UnitKind,
    fid::batch_tokens,
    kind::{EvidenceSource, GeneratorContext, GeneratorKind, prompted_model},
    passages::PassageReader,
    units,
};

/// `[generator]` with `kind = "memnet"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MemNetOptions {
    /// The model's folder, in the Hugging Face layout: a T5 or BART that was trained so.
    pub model: PathBuf,
    /// How the weights are kept: `"f32"`, or `"int8"`, which is faster and rounds weights and inputs of every linear
    /// layer to 8 bits.
    #[serde(default)]
    pub precision: Precision,
    /// Where the model computes: `cpu`, `cuda` or `cuda:N`; GPUs need a program that was built with the feature `cuda`.
    #[serde(default)]
    pub device: DeviceName,
    /// The unit of the memory: `sentence`, `passage` or `lead` (the first sentence of each passage's page).
    #[serde(default = "sentence")]
    pub evidence: UnitKind,
    /// Pieces of a memory, at most, in the order of their passages.
    #[serde(default = "pieces")]
    #[schemars(range(min = 1))]
    pub pieces: usize,
    /// The tokens that are read of a long dialogue: `whole` (the first, with special tokens) or `latest` (the last, without).
    #[serde(default)]
    pub dialogue: DialoguePart,
    /// Tokens of a piece, at most; `max-tokens` of the prompt where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub piece_tokens: Option<usize>,
    /// `[generator.prompt]`: `passages` are cut into pieces, `passage` is the text of a piece and `input` that of the
    /// dialogue; `passage-words` and `max-tokens` are for each of them. Without passages there is no memory.
    #[serde(default)]
    pub prompt: PromptOptions,
    /// `[generator.generation]`: how the answer is searched for.
    #[serde(default)]
    pub generation: GenerationOptions,
    /// Tokens that are worked on together, at most, unless one input with its pieces has more.
    #[serde(default = "batch_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub batch_tokens: usize,
}

/// The part of a dialogue that a memory network reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DialoguePart {
    /// Its first tokens, with special tokens.
    #[default]
    Whole,
    /// Its last tokens, without special tokens, as in ParlAI.
    Latest,
}

fn sentence() -> UnitKind {
    UnitKind::Sentence
}

fn pieces() -> usize {
    32
}

/// The inputs of a memory network, as tokens.
pub struct MemoryInput {
    tokenizer: Tokenizer,
    prompt: Prompt,
    store: Option<Arc<PassageStore>>,
    evidence: UnitKind,
    pieces: usize,
    dialogue: DialoguePart,
    dialogue_tokens: usize,
    piece_tokens: usize,
}

impl MemoryInput {
    /// How `options` want it, each text within `longest` tokens, where the model has an end; `store` holds the pages whose
    /// first sentences are read.
    ///
    /// # Errors
    /// An error in an option.
    pub fn new(
        options: &MemNetOptions,
        tokenizer: Tokenizer,
        longest: Option<usize>,
        store: Option<Arc<PassageStore>>,
    ) -> Result<Self> {
        for (option, number) in [("pieces", Some(options.pieces)), ("piece-tokens", options.piece_tokens)] {
            if number == Some(0) {
                return Err(Error::Option { option, expected: "at least 1", found: "0".into() });
            }
        }
        let prompt = Prompt::new(options.prompt.clone())?;
        let longest = longest.unwrap_or(usize::MAX);
        let dialogue_tokens = longest.min(options.prompt.max_tokens);
        let piece_tokens = options.piece_tokens.map_or(dialogue_tokens, |tokens| longest.min(tokens));
        let &MemNetOptions { evidence, pieces, dialogue, .. } = options;
        Ok(Self { tokenizer, prompt, store, evidence, pieces, dialogue, dialogue_tokens, piece_tokens })
    }

    /// The most pieces of a memory.
    #[must_use]
    pub fn most(&self) -> usize {
        self.pieces
    }

    /// The pieces of a request's passages, in the passages' order.
    ///
    /// # Errors
    /// As for [`units`].
    pub fn units(&self, request: &Request<'_>) -> Result<Vec<Unit>> {
        let read = request.passages.len().min(self.prompt.options().passages);
        let request = Request { passages: &request.passages[..read], ..*request };
        units(&request, self.evidence, self.store.as_deref())
    }

    /// The text of a dialogue.
    ///
    /// # Errors
    /// Where the tokenizer fails.
    pub fn dialogue(&self, query: &Query) -> Result<String> {
        self.prompt.text(&Request { query, passages: &[] }, &self.tokenizer)
    }

    /// The text of a piece of a passage.
    #[must_use]
    pub fn piece(&self, passage: &Passage, unit: &Unit) -> String {
        self.prompt.passage(unit.passage + 1, &passage.title, &unit.text, self.prompt.options().passage_words)
    }

    /// The tokens that are read of a dialogue's text, one at least.
    ///
    /// # Errors
    /// Where the tokenizer fails.
    pub fn dialogue_tokens(&self, text: &str) -> Result<Vec<u32>> {
        match self.dialogue {
            DialoguePart::Whole => Ok(self.tokenizer.encode(text, Some(self.dialogue_tokens))?),
            DialoguePart::Latest => {
                let mut tokens = self.tokenizer.encode_plain(text)?;
                if tokens.is_empty() {
                    return Ok(self.tokenizer.encode(text, Some(1))?);
                }
                tokens.drain(..tokens.len().saturating_sub(self.dialogue_tokens));
                Ok(tokens)
            }
        }
    }

    /// The tokens that are read of a piece's text.
    ///
    /// # Errors
    /// Where the tokenizer fails.
    pub fn piece_tokens(&self, text: &str) -> Result<Vec<u32>> {
        Ok(self.tokenizer.encode(text, Some(self.piece_tokens))?)
    }

    /// The texts of a request, the dialogue's first, and the passage of each piece.
    fn texts(&self, request: &Request<'_>) -> Result<(Vec<String>, Vec<usize>)> {
        let mut units = self.units(request)?;
        units.truncate(self.pieces);
        let mut texts = vec![self.dialogue(request.query)?];
        texts.extend(units.iter().map(|unit| self.piece(request.passages[unit.passage].passage, unit)));
        Ok((texts, units.into_iter().map(|unit| unit.passage).collect()))
    }
}

/// A model that attends to one piece of knowledge and answers from it.
pub struct MemNet {
    reader: PassageReader,
    input: MemoryInput,
}

impl MemNet {
    /// Loads the model; `store` holds the pages whose first sentences are read.
    ///
    /// # Errors
    /// An error in the model's folder or an option.
    pub fn load(options: &MemNetOptions, store: Option<Arc<PassageStore>>) -> Result<Self> {
        let checkpoint = Checkpoint::open(&options.model)?;
        let model = checkpoint.seq2seq(options.device, options.precision)?;
        Self::new(options, model.into(), checkpoint.tokenizer()?, store)
    }

    /// A model that is loaded already.
    ///
    /// # Errors
    /// An error in an option.
    pub fn new(
        options: &MemNetOptions,
        model: Arc<dyn Seq2Seq>,
        tokenizer: Tokenizer,
        store: Option<Arc<PassageStore>>,
    ) -> Result<Self> {
        let MemNetOptions { prompt, generation, batch_tokens, .. } = options;
        let input = MemoryInput::new(options, tokenizer.clone(), model.max_input_length(), store)?;
        Ok(Self { reader: PassageReader::new(model, tokenizer, prompt, generation, *batch_tokens)?, input })
    }

    /// The tokens of the dialogue and of each piece of a request, and the passage of each piece.
    fn rows(&self, request: &Request<'_>) -> Result<(Vec<Vec<u32>>, Vec<usize>)> {
        let (texts, passages) = self.input.texts(request)?;
        let mut rows = vec![self.input.dialogue_tokens(&texts[0])?];
        for piece in &texts[1..] {
            rows.push(self.input.piece_tokens(piece)?);
        }
        Ok((rows, passages))
    }
}

impl Generator for MemNet {
    fn generate(&self, requests: &[Request<'_>]) -> Result<Vec<Generation>> {
        let read: Vec<(Vec<Vec<u32>>, Vec<usize>)> =
            requests.iter().map(|request| self.rows(request)).collect::<Result<_>>()?;
        let (rows, passages): (Vec<_>, Vec<_>) = read.into_iter().unzip();
        let mut answers = vec![None; requests.len()];
        for portion in self.reader.portions(rows) {
            let states = self.reader.states(&portion)?;
            let mut read = Vec::with_capacity(states.len());
            let mut sources = Vec::with_capacity(states.len());
            let mut rankings = Vec::with_capacity(states.len());
            for ((states, rows), at) in states.iter().zip(&portion.rows).zip(&portion.requests) {
                let scores = attend_to_pieces(&states[0], &states[1..])?;
                let mut order: Vec<usize> = (0..scores.len()).collect();
                order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
                let chosen = order.first().map(|piece| piece + 1).into_iter().chain([0]);
                let (mut texts, mut source) = (Vec::new(), Vec::new());
                for text in chosen {
                    texts.push(states[text].clone());
                    source.extend_from_slice(&rows[text]);
                }
                read.push(texts);
                sources.push(source);
                let mut ranking: Vec<usize> = Vec::new();
                for passage in order.into_iter().map(|piece| passages[*at][piece]) {
                    if !ranking.contains(&passage) {
                        ranking.push(passage);
                    }
                }
                rankings.push(ranking);
            }
            let memory = fuse(&read.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
            let inputs = Inputs { sources: Some(&sources), ..Inputs::default() };
            let found = generate_with(self.reader.model.as_ref(), &memory, &self.reader.generation, &inputs)?;
            for ((at, found), evidence) in portion.requests.iter().zip(found).zip(rankings) {
                let generation = self.reader.generation(&requests[*at], &found)?;
                answers[*at] = Some(Generation { evidence, ..generation });
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    fn kind(&self) -> &'static str {
        "memnet"
    }

    fn passages(&self) -> usize {
        self.reader.passages()
    }

    fn prompt_tokens(&self, requests: &[Request<'_>]) -> Result<Vec<usize>> {
        let tokens = |request| Ok(self.rows(request)?.0.iter().map(Vec::len).sum());
        requests.iter().map(tokens).collect()
    }

    fn prompts(&self, request: &Request<'_>) -> Result<Vec<String>> {
        Ok(self.input.texts(request)?.0)
    }
}

impl TakesModel for MemNetOptions {
    const TAKES: &'static [ModelType] = &[ModelType::EncoderDecoder];
}

impl GeneratorKind for MemNetOptions {
    prompted_model!();

    fn provenance(&self) -> EvidenceSource {
        EvidenceSource::Chosen
    }

    fn open(&self, context: &GeneratorContext) -> Result<Box<dyn Generator>> {
        Ok(Box::new(MemNet::load(self, context.store.clone())?))
    }
}
