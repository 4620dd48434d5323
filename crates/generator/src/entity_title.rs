//! GENRE (De Cao et al. 2021, "Autoregressive Entity Retrieval"): an encoder-decoder generates titles of pages, constrained
//! to existing titles. Its beams rank the pages.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::Tokenizer;
use sporran_kilt::Query;
use sporran_transformers::{
    Batch, Checkpoint, DeviceName, GenerationOptions, Inputs, ModelType, Precision, Seq2Seq, TakesModel,
    decode::{Trie, TrieConstraint},
    each_batch, generate_with, length_batches,
};

use crate::{Error, Prompt, PromptOptions, Request, Result};

/// `[retriever]` with `kind = "entity-title"`.
///
/// The prompt has no passages. A tagged mention stays between its marks, with as many words on each side as
/// `mention-context-words` says, where the released models take 384 words in all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EntityTitleOptions {
    /// The model's folder, in the Hugging Face layout: T5 or BART.
    pub model: PathBuf,
    /// How the weights are kept: `"f32"`, or `"int8"`.
    #[serde(default)]
    pub precision: Precision,
    /// Where the model computes: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// `[retriever.prompt]`: the text that the model reads.
    #[serde(default)]
    pub prompt: PromptOptions,
    /// Whether only titles of the source can be generated. Without it, texts that are no title find no page.
    #[serde(default = "constrained")]
    pub constrained: bool,
    /// Whether titles of redirects can be generated as well, and refer to their target pages. Only with `constrained`.
    #[serde(default)]
    pub redirects: bool,
    /// `[retriever.generation]`: the search for titles. By default it has 10 beams, returns all of them, and generates at
    /// most 32 tokens.
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
}

impl TakesModel for EntityTitleOptions {
    const TAKES: &'static [ModelType] = &[ModelType::EncoderDecoder];
}

fn constrained() -> bool {
    true
}

fn batch_size() -> usize {
    16
}

fn batch_tokens() -> usize {
    4096
}

impl EntityTitleOptions {
    /// The generation options, with the defaults of this kind.
    #[must_use]
    pub fn generation(&self) -> GenerationOptions {
        let beams = self.generation.num_beams.unwrap_or(10);
        self.generation.or(&GenerationOptions {
            num_beams: Some(beams),
            num_return_sequences: Some(beams),
            max_new_tokens: Some(32),
            ..GenerationOptions::default()
        })
    }

    /// Checks what can be checked without the model.
    ///
    /// # Errors
    /// [`Error::Option`].
    pub fn check(&self) -> Result<()> {
        for (option, value) in [("batch-size", self.batch_size), ("batch-tokens", self.batch_tokens)] {
            if value == 0 {
                return Err(Error::Option { option, expected: "at least 1", found: "0".into() });
            }
        }
        Prompt::new(self.prompt.clone()).map(|_| ())
    }
}

/// A title that was written.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenTitle {
    /// Its tokens, without special ones.
    pub tokens: Vec<u32>,
    /// Its text.
    pub text: String,
    /// The score of the sequence, as `GenerationOptions` defines it.
    pub score: f32,
}

/// A model that writes titles.
pub struct EntityTitle {
    model: Box<dyn Seq2Seq>,
    tokenizer: Tokenizer,
    prompt: Prompt,
    options: EntityTitleOptions,
    /// The tokens before a title, such as BART's `<s>`.
    begin: Vec<u32>,
}

impl EntityTitle {
    /// Loads the model.
    ///
    /// # Errors
    /// An error in the model's folder or an option.
    pub fn load(options: &EntityTitleOptions) -> Result<Self> {
        let checkpoint = Checkpoint::open(&options.model)?;
        let model = checkpoint.seq2seq(options.device, options.precision)?;
        Self::new(options, model, checkpoint.tokenizer()?)
    }

    /// A model that is loaded already.
    ///
    /// # Errors
    /// An error in an option.
    pub fn new(options: &EntityTitleOptions, model: Box<dyn Seq2Seq>, tokenizer: Tokenizer) -> Result<Self> {
        options.check()?;
        let (prompt, begin) = (Prompt::new(options.prompt.clone())?, tokenizer.beginning()?);
        Ok(Self { model, tokenizer, prompt, options: options.clone(), begin })
    }

    /// The model's tokenizer, in whose tokens titles have to be.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The titles that the model generates for each query, best first; only titles in `trie` if the options say so.
    /// A query's titles do not depend on the other queries.
    ///
    /// # Errors
    /// Where the model or its tokenizer fails, and for generation options that cannot be used.
    pub fn write(&self, queries: &[&Query], trie: &Trie) -> Result<Vec<Vec<WrittenTitle>>> {
        let most = self.model.max_input_length().unwrap_or(usize::MAX).min(self.prompt.options().max_tokens);
        let rows: Result<Vec<Vec<u32>>> = queries
            .iter()
            .map(|query| {
                let text = self.prompt.text(&Request { query, passages: &[] }, &self.tokenizer)?;
                Ok(self.tokenizer.encode(&text, Some(most))?)
            })
            .collect();
        let rows = rows?;
        let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
        let batches = length_batches(&lengths, self.options.batch_size, self.options.batch_tokens);
        let written =
            each_batch(self.model.device(), &batches, |batch| self.write_batch(batch, &rows, trie))?;
        let mut titles = vec![Vec::new(); queries.len()];
        for (at, written) in batches.iter().flatten().zip(written.into_iter().flatten()) {
            titles[*at] = written;
        }
        Ok(titles)
    }

    fn write_batch(&self, batch: &[usize], rows: &[Vec<u32>], trie: &Trie) -> Result<Vec<Vec<WrittenTitle>>> {
        let special = self.model.special_tokens();
        let sources: Vec<Vec<u32>> = batch.iter().map(|&at| rows[at].clone()).collect();
        let input = Batch::new(&sources, special.pad, self.model.device())?;
        let end = special.eos.first().copied().unwrap_or(special.pad);
        let constraint = TrieConstraint::new(trie, &self.begin, end);
        let inputs = Inputs {
            sources: Some(&sources),
            constraint: if self.options.constrained { Some(&constraint) } else { None },
            sink: None,
        };
        let memory = self.model.encode(&input)?;
        let found = generate_with(self.model.as_ref(), &memory, &self.options.generation(), &inputs)?;
        found
            .iter()
            .map(|hypotheses| {
                hypotheses
                    .iter()
                    .map(|hypothesis| {
                        let tokens =
                            hypothesis.tokens.strip_prefix(&self.begin[..]).unwrap_or(&hypothesis.tokens);
                        let tokens = tokens.iter().copied().take_while(|token| !special.eos.contains(token));
                        let tokens: Vec<u32> = tokens.collect();
                        let text = self.tokenizer.decode(&tokens)?.trim().to_owned();
                        Ok(WrittenTitle { tokens, text, score: hypothesis.score })
                    })
                    .collect()
            })
            .collect()
    }
}
