//! `[generator]` with `kind = "remote"`.

use std::{collections::BTreeMap, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sporran_checkpoint::Tokenizer;
use sporran_config::Document;
use sporran_remote::{RequestOptions, check_endpoint};
use sporran_transformers::GenerationOptions;

use super::{COMPLETION_TOKENS, RemoteGenerator};
use crate::{
    DemonstrationsOptions, Generator, Prompt, PromptOptions, Result,
    in_context::{GivenPrompt, answer, check_files, is_off, prompt},
    kind::{GeneratorContext, GeneratorKind, GeneratorModel},
};

/// The form of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Api {
    /// `chat/completions`: the instruction, the examples and the question are the messages of a conversation.
    #[default]
    Chat,
    /// `completions`: they are one text, which the model continues.
    Completions,
}

/// `[generator]` with `kind = "remote"`: a model at an HTTP endpoint in the form of OpenAI's API (vLLM, llama.cpp, Ollama,
/// TGI).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RemoteOptions {
    /// The address, such as `http://localhost:8000/v1`. One without a path gets `/v1`.
    pub base_url: String,
    /// The name of the model at the endpoint.
    pub model: String,
    /// The name of the environment variable that has the key; none for an endpoint without keys. The key itself is in no
    /// config, log, cache or result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// The form of requests: `chat` or `completions`.
    #[serde(default)]
    pub api: Api,
    /// The instruction: the system's message, or the first paragraph.
    #[serde(default)]
    pub instruction: String,
    /// `[generator.prompt]`: the passages and the input. `max-tokens` is for these alone.
    #[serde(default = "prompt", deserialize_with = "GivenPrompt::deserialize")]
    pub prompt: PromptOptions,
    /// The text before an answer. In a conversation it ends the user's messages.
    #[serde(default = "answer")]
    pub answer: String,
    /// `[generator.demonstrations]`: examples; none without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demonstrations: Option<DemonstrationsOptions>,
    /// Claims and mentions have a choice: the answer to a claim is the one of `SUPPORTS` and `REFUTES` that the text names
    /// first, the answer to a tagged mention the title of one of the passages in the prompt. A text that names no title, by its words or its
    /// rank, chooses that of the best passage.
    #[serde(default, skip_serializing_if = "is_off")]
    pub choose: bool,
    /// `[generator.generation]`: how the endpoint generates.
    #[serde(default)]
    pub generation: RemoteGenerationOptions,
    /// An answer ends before the first of these; an endpoint may accept four at most. The default is a line break with
    /// `completions`, and none with `chat`, whose answers end by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stops: Option<Vec<String>>,
    /// Tokens of the whole text, at most. Examples are left out, the least similar first, until the text fits.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// A folder with the model's tokenizer, which counts tokens. Without it they are estimated: four bytes each, and at least
    /// one a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
    /// `[generator.requests]`: concurrency, repetitions, limits, the cache of responses, and prices.
    #[serde(default)]
    pub requests: RequestOptions,
}

/// `[generator.generation]` of a remote model. Names are those of local models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RemoteGenerationOptions {
    /// The most tokens to generate (`max_tokens`, unless `extra` has `max_completion_tokens`).
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_new_tokens: usize,
    /// The temperature of sampling; 0 takes the most probable tokens.
    #[schemars(range(min = 0, max = 2))]
    pub temperature: f64,
    /// Sampling: the smallest set of most probable tokens whose probabilities reach this sum. The default is the endpoint's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub top_p: Option<f64>,
    /// Sampling: the seed, where the endpoint has one. It is sent only if it is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Asks for the log-probabilities of tokens. The score of an answer is their mean then, and 0 otherwise.
    pub log_probabilities: bool,
    /// Further fields of the request, as the endpoint names them, such as `chat_template_kwargs`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Value>,
}

impl Default for RemoteGenerationOptions {
    fn default() -> Self {
        Self {
            max_new_tokens: 64,
            temperature: 0.0,
            top_p: None,
            seed: None,
            log_probabilities: false,
            extra: BTreeMap::new(),
        }
    }
}

impl RemoteGenerationOptions {
    /// With the options of one request in the place of its own, where they are set.
    pub(super) fn with(&self, options: &GenerationOptions) -> Self {
        let mut own = self.clone();
        if let Some(most) = options.max_new_tokens {
            own.max_new_tokens = most;
            if let Some(value) = own.extra.get_mut(COMPLETION_TOKENS) {
                *value = most.into();
            }
        }
        match options.do_sample {
            Some(false) => own.temperature = 0.0,
            _ => own.temperature = options.temperature.unwrap_or(own.temperature),
        }
        own.top_p = options.top_p.or(own.top_p);
        own.seed = options.seed.or(own.seed);
        // OpenAI's API lacks these; other servers have them.
        let others = [
            ("top_k", options.top_k.map(Value::from)),
            ("min_p", options.min_p.map(Value::from)),
            ("repetition_penalty", options.repetition_penalty.map(Value::from)),
            ("min_tokens", options.min_new_tokens.map(Value::from)),
        ];
        let set = others.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        own.extra.extend(set);
        own
    }
}

fn max_tokens() -> usize {
    4096
}

/// The fields of a request that other options set.
const OWN: [&str; 12] = [
    "model",
    "messages",
    "prompt",
    "stream",
    "stream_options",
    "max_tokens",
    "temperature",
    "top_p",
    "seed",
    "stop",
    "logprobs",
    "n",
];

impl RemoteOptions {
    /// A model at an address, with the defaults.
    #[must_use]
    pub fn new(base_url: String, model: String) -> Self {
        Self {
            base_url,
            model,
            api_key_env: None,
            api: Api::default(),
            instruction: String::new(),
            prompt: prompt(),
            answer: answer(),
            demonstrations: None,
            choose: false,
            generation: RemoteGenerationOptions::default(),
            stops: None,
            max_tokens: max_tokens(),
            tokenizer: None,
            requests: RequestOptions::default(),
        }
    }

    /// The texts before which an answer ends.
    pub(super) fn stops(&self) -> Vec<String> {
        self.stops.clone().unwrap_or_else(|| match self.api {
            Api::Chat => Vec::new(),
            Api::Completions => vec!["\n".into()],
        })
    }

    /// Reports wrong values and missing files. `key` is the path of the table. Sends no request.
    pub fn check_in(&self, key: &str, document: &mut Document<'_>) {
        check_endpoint(key, (&self.base_url, &self.model, self.api_key_env.as_deref()), document);
        check_files(key, self.demonstrations.as_ref(), document);
        if let Err(error) = Prompt::new(self.prompt.clone()) {
            document.report_key(key, error.to_string());
        }
        if self.stops.iter().flatten().any(String::is_empty) {
            document.report_key(&format!("{key}.stops"), "expected texts, found an empty one");
        }
        for name in self.generation.extra.keys().filter(|name| OWN.contains(&name.as_str())) {
            let message = format!("expected other fields; another option sets `{name}`");
            document.report_key(&format!("{key}.generation.extra"), message);
        }
        if let Some(folder) = self.tokenizer.as_ref().filter(|folder| !Tokenizer::is_in(folder)) {
            let message = format!("expected a folder with a tokenizer, found none in {}", folder.display());
            document.report_key(&format!("{key}.tokenizer"), message);
        }
    }
}

impl GeneratorKind for RemoteOptions {
    /// None: no file of a model is here.
    fn models(&self, _: &str) -> Vec<GeneratorModel<'_>> {
        Vec::new()
    }

    fn read_passages(&self, key: &str) -> Vec<(String, usize)> {
        vec![(key.to_owned(), self.prompt.passages)]
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        self.check_in(key, document);
    }

    fn open(&self, context: &GeneratorContext) -> Result<Box<dyn Generator>> {
        Ok(Box::new(RemoteGenerator::open(self, context.seed)?))
    }
}
