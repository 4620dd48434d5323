//! Rerankers that are language models: the model reads a query with a passage, and its next token is `yes` or `no`.

mod prompt;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::{CrossEncoderFolder, LogitScore, ScoreActivation};
use sporran_kilt::{Passage, Query, Template};
use sporran_transformers::{
    Batch, CausalCache, CausalLm, Checkpoint, DeviceName, Precision, each_batch, length_batches,
};

use crate::{Error, Reranker, Result, Saved, passage_text, view::passage_template};
pub use prompt::LlmFormat;
use prompt::Prompt;

/// The most tokens of a prompt, unless an option or the model's positions say otherwise, as in the model card of Qwen 3's
/// rerankers.
const MOST_TOKENS: usize = 8192;

/// The score of a passage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LlmScore {
    /// The logit of `yes` less that of `no`.
    #[default]
    LogOdds,
    /// The logarithm of the probability of `yes` among the two.
    LogProbability,
}

impl LlmScore {
    /// The score of these log odds.
    fn of(self, odds: f32) -> f32 {
        match self {
            Self::LogOdds => odds,
            // -ln(1 + exp(-odds)), whose powers are at most 1.
            Self::LogProbability => odds.min(0.0) - (-odds.abs()).exp().ln_1p(),
        }
    }
}

/// The options of a language model as a reranker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LlmOptions {
    /// The model's folder, in the Hugging Face layout: a decoder-only model.
    #[serde(rename = "model")]
    pub folder: PathBuf,
    /// What makes a passage relevant. The default is the folder's, else that of Qwen 3's rerankers: "Given a web search query,
    /// retrieve relevant passages that answer the query".
    #[serde(default)]
    pub instruction: Option<String>,
    /// The prompt around a query and a passage: `folder`, `qwen3` or `mxbai`.
    #[serde(default)]
    pub format: LlmFormat,
    /// Another prompt: texts with the fields `{instruction}`, `{query}` and `{passage}`, each of which is tokenised by itself. A
    /// text with `{instruction}` is left out where there is none. `{{` and `}}` are literal braces.
    #[serde(default)]
    pub prompt: Option<Vec<String>>,
    /// The token whose logit is for a passage. The default is `yes`, or `1` with the format `mxbai`.
    #[serde(default)]
    pub yes_token: Option<String>,
    /// The token whose logit is against it; an empty text if the score is the logit of `yes-token` alone. The default is `no`,
    /// or `0` with the format `mxbai`.
    #[serde(default)]
    pub no_token: Option<String>,
    /// The score of a passage: `log-odds`, the difference of the two logits, or `log-probability`, the logarithm of the
    /// probability of `yes-token` among the two. The order of passages is the same.
    #[serde(default)]
    pub score: LlmScore,
    /// The input text of a passage, with `{title}` and `{text}`. The default is the title, a space and the text, as in BEIR.
    /// `{{` and `}}` are literal braces.
    #[serde(default)]
    pub passage_template: Option<String>,
    /// The largest number of tokens of a prompt. The passage of a longer prompt loses its end. The default is 8,192, or the
    /// model's positions if these are fewer.
    #[serde(default)]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: Option<usize>,
    /// The data type of the weights: `f32` or `int8` on a CPU; `f32`, `f16` or `bf16` on a GPU.
    #[serde(default)]
    pub precision: Precision,
    /// The device: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// The largest number of tokens in a batch, padding included. A longer prompt is a separate batch.
    #[serde(default = "batch_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub batch_tokens: usize,
}

fn batch_tokens() -> usize {
    4096
}

impl LlmOptions {
    /// The options of the model in `folder`, with batches of 4,096 tokens.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            instruction: None,
            format: LlmFormat::Folder,
            prompt: None,
            yes_token: None,
            no_token: None,
            score: LlmScore::LogOdds,
            passage_template: None,
            max_tokens: None,
            precision: Precision::F32,
            device: DeviceName::Cpu,
            batch_tokens: batch_tokens(),
        }
    }

    /// The answers for and against a passage.
    fn answers(&self) -> [&str; 2] {
        let [yes, no] = self.format.answers();
        [self.yes_token.as_deref().unwrap_or(yes), self.no_token.as_deref().unwrap_or(no)]
    }

    /// Checks the options without loading the model.
    ///
    /// # Errors
    /// [`Error::Option`] for empty batches, equal tokens, a wrong prompt and a wrong template. [`Error::Transformers`] for a device that this
    /// build does not support, and for a precision that the device does not support.
    pub fn check(&self) -> Result<()> {
        if self.batch_tokens == 0 {
            return Err(Error::Option { option: "batch-tokens", expected: "at least 1", found: "0".into() });
        }
        let [yes, no] = self.answers();
        if yes == no {
            let found = format!("`{no}`");
            return Err(Error::Option {
                option: "no-token",
                expected: "another token than `yes-token`",
                found,
            });
        }
        if let Some(parts) = &self.prompt {
            prompt::check_parts(parts)?;
        }
        passage_template(self.passage_template.as_deref())?;
        Ok(self.device.check(self.precision)?)
    }
}

/// A language model that answers `yes` or `no`, with its tokenizer.
///
/// The prompt is that of the folder's chat template where it has the roles `query` and `document`, as in sentence-transformers,
/// else the format of Qwen 3's rerankers (Zhang et al. 2025), unless an option names another.
pub struct LlmReranker {
    model: Box<dyn CausalLm>,
    prompt: Prompt,
    folder: CrossEncoderFolder,
    tokens: LogitScore,
    score: LlmScore,
    template: Option<Template>,
    batch_tokens: usize,
}

impl LlmReranker {
    /// Loads a folder.
    ///
    /// # Errors
    /// [`Error::Transformers`] for a folder without a decoder-only model. [`Error::Head`] for a saved reranker of another kind.
    /// [`Error::Option`] for empty batches, tokens that the vocabulary lacks, and too few tokens for the prompt.
    pub fn load(options: &LlmOptions) -> Result<Self> {
        options.check()?;
        let folder = &options.folder;
        let (instruction, max_tokens) = match Saved::read(folder)? {
            Saved::Llm { instruction, max_tokens } => (instruction, max_tokens),
            other => {
                let found = format!("a reranker of kind `{}`", other.kind());
                return Err(Error::Head { folder: folder.clone(), found });
            }
        };
        let place = CrossEncoderFolder::open(folder)?;
        let checkpoint = Checkpoint::open(&place.model)?;
        let model = checkpoint.causal(options.device, options.precision)?;
        let tokenizer = checkpoint.tokenizer()?;
        let tokens = match place.logit_score {
            Some(tokens) => tokens,
            None => {
                let [yes, no] = options.answers();
                let id = |option, token: &str| {
                    tokenizer.token_id(token).ok_or_else(|| Error::Option {
                        option,
                        expected: "a token of the model's vocabulary",
                        found: format!("`{token}`"),
                    })
                };
                LogitScore {
                    true_token_id: id("yes-token", yes)?,
                    false_token_id: (!no.is_empty()).then(|| id("no-token", no)).transpose()?,
                }
            }
        };
        let ids = [Some(tokens.true_token_id), tokens.false_token_id];
        if let Some(id) = ids.into_iter().flatten().find(|id| *id as usize >= model.vocab_size()) {
            let (expected, found) = ("a token that the model has a logit for", id.to_string());
            return Err(Error::Option { option: "yes-token", expected, found });
        }
        let own = (!place.prompt.is_empty()).then(|| place.prompt.clone());
        let instruction = options.instruction.clone().or(instruction).or(own);
        let most = options.max_tokens.or(max_tokens).unwrap_or(MOST_TOKENS.min(model.max_length()));
        let format = (options.format, options.prompt.as_deref());
        let prompt = Prompt::open(&place.model, tokenizer, instruction, most, format)?;
        Ok(Self {
            model,
            prompt,
            folder: place,
            tokens,
            score: options.score,
            template: passage_template(options.passage_template.as_deref())?,
            batch_tokens: options.batch_tokens,
        })
    }

    /// The log odds of `yes` for each pair of query and passage.
    ///
    /// # Errors
    /// Errors of the tokenizer, the chat template or the model.
    pub fn log_odds(&self, pairs: &[(&str, &str)]) -> Result<Vec<f32>> {
        let rows = self.prompt.rows(pairs)?;
        let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
        let batches = length_batches(&lengths, usize::MAX, self.batch_tokens);
        let parts = each_batch(self.model.device(), &batches, |batch| self.batch(batch, &rows))?;
        let mut odds = vec![0.0; pairs.len()];
        for (batch, part) in batches.iter().zip(parts) {
            for (&at, value) in batch.iter().zip(part) {
                odds[at] = value;
            }
        }
        Ok(odds)
    }

    fn batch(&self, batch: &[usize], rows: &[Vec<u32>]) -> Result<Vec<f32>, sporran_checkpoint::Error> {
        let rows: Vec<&[u32]> = batch.iter().map(|&at| rows[at].as_slice()).collect();
        let input = Batch::new(&rows, self.model.special_tokens().pad, self.model.device())?;
        let logits = self.model.begin(&input, &mut CausalCache::new())?;
        let odds = |row: &[f32]| {
            let against = self.tokens.false_token_id.map_or(0.0, |id| row[id as usize]);
            row[self.tokens.true_token_id as usize] - against
        };
        Ok(logits.chunks_exact(self.model.vocab_size()).map(odds).collect())
    }

    /// The most tokens of a prompt.
    pub fn max_length(&self) -> usize {
        self.prompt.most
    }

    /// The activation of the log odds in sentence-transformers' `CrossEncoder.predict`: the folder's, else the sigmoid, which
    /// makes them the probability of `yes` among the two.
    ///
    /// # Errors
    /// [`Error::Transformers`] if the folder names an unsupported activation.
    pub fn activation(&self) -> Result<ScoreActivation> {
        Ok(self.folder.activation(1)?)
    }
}

impl Reranker for LlmReranker {
    fn score(&self, query: &Query, passages: &[&Passage]) -> Result<Vec<f32>> {
        let text = |passage: &&Passage| match &self.template {
            Some(template) => template.fill(&[&passage.title, &passage.text]),
            None => passage_text(passage),
        };
        let texts: Vec<String> = passages.iter().map(text).collect();
        let pairs: Vec<(&str, &str)> =
            texts.iter().map(|text| (query.text.as_str(), text.as_str())).collect();
        Ok(self.log_odds(&pairs)?.into_iter().map(|odds| self.score.of(odds)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_probability_is_that_of_the_softmax_of_two() {
        for (odds, expected) in
            [(0.0f32, -std::f32::consts::LN_2), (3.0f32.ln(), 0.75f32.ln()), (-2.0, -2.126_928)]
        {
            assert!((LlmScore::LogProbability.of(odds) - expected).abs() < 1e-6, "{odds}");
            assert_eq!(LlmScore::LogOdds.of(odds), odds);
        }
        // Without infinities.
        assert_eq!(LlmScore::LogProbability.of(-200.0), -200.0);
        assert_eq!(LlmScore::LogProbability.of(200.0), 0.0);
    }

    #[test]
    fn wrong_options_are_named() {
        let message = |options: LlmOptions| options.check().unwrap_err().to_string();
        let own = || LlmOptions::new("m".into());
        assert!(own().check().is_ok());
        assert!(
            message(LlmOptions { batch_tokens: 0, ..own() }).starts_with("batch-tokens: expected at least 1")
        );
        let same = LlmOptions { no_token: Some("yes".into()), ..own() };
        assert_eq!(message(same), "no-token: expected another token than `yes-token`, found `yes`");
        let template = LlmOptions { passage_template: Some("{body}".into()), ..own() };
        assert!(message(template).starts_with("passage-template: expected a text with"));
        let parts = |parts: &[&str]| LlmOptions {
            prompt: Some(parts.iter().map(|part| (*part).to_owned()).collect()),
            ..own()
        };
        assert!(parts(&["A: {query}", "\n", "B: {passage}"]).check().is_ok());
        for wrong in [&["{query}"][..], &["{query} {passage}", "{query}"], &["{query} {text}", "{passage}"]] {
            let error = message(parts(wrong));
            assert!(error.starts_with("prompt: expected texts with the fields"), "{error}");
        }
        let mxbai = LlmOptions { format: LlmFormat::Mxbai, ..own() };
        assert_eq!(mxbai.answers(), ["1", "0"]);
    }
}
