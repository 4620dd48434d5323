//! How an answer is written: what `completions` and `chat/completions` share of their requests.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Number, Value};
use sporran_transformers::GenerationOptions;

use crate::{Failure, Limits, routes::others::refuse};

/// The largest number of stops, as in OpenAI's API.
const MOST_STOPS: usize = 4;

/// The settings of a generation.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub(super) struct Settings {
    /// The mount that answers; the first one with a generator by default.
    #[serde(default)]
    pub(super) model: Option<String>,
    /// Whether the answer comes as server-sent events.
    #[serde(default)]
    pub(super) stream: Option<bool>,
    /// What a stream has besides the text.
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    /// The largest number of tokens of the answer.
    #[serde(default)]
    max_tokens: Option<usize>,
    /// The newer name of `max_tokens`.
    #[serde(default)]
    max_completion_tokens: Option<usize>,
    /// 0 takes the most probable tokens; more samples. By default 1 with `top_p`, `top_k` or `min_p`, and without
    /// them the generator's own.
    #[serde(default)]
    temperature: Option<f64>,
    /// Sampling takes the most probable tokens whose probabilities add up to this; above 0.
    #[serde(default)]
    top_p: Option<f64>,
    /// Sampling takes as many of the most probable tokens; at least 1.
    #[serde(default)]
    top_k: Option<usize>,
    /// Sampling takes the tokens whose probability is at least this share of the largest one; 0 to 1.
    #[serde(default)]
    min_p: Option<f64>,
    /// The score of a token that is already there is divided by this if positive and multiplied by it if negative; above 0.
    #[serde(default)]
    repetition_penalty: Option<f64>,
    /// The smallest number of tokens of the answer.
    #[serde(default)]
    min_tokens: Option<usize>,
    /// The seed of sampling; a new one for each answer by default.
    #[serde(default)]
    #[schemars(with = "Option<i64>")]
    seed: Option<Number>,
    /// A text, or up to four, before whose first the answer ends.
    #[serde(default)]
    stop: Option<Stops>,
    /// The number of answers: 1.
    #[serde(default)]
    n: Option<usize>,
    /// What only this server has.
    #[serde(default)]
    pub(super) sporran: Own,
    /// Other settings of OpenAI's API. Those that would change the answer are refused.
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Settings of OpenAI's API, and of servers that have it, that would change the answer and that this server does not have.
const REFUSED: [&str; 27] = [
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "best_of",
    "echo",
    "suffix",
    "response_format",
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "modalities",
    "audio",
    "web_search_options",
    "length_penalty",
    "use_beam_search",
    "ignore_eos",
    "stop_token_ids",
    "allowed_token_ids",
    "bad_words",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
];

/// What a stream has besides the text.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
struct StreamOptions {
    /// Whether a last event has the numbers of tokens.
    #[serde(default)]
    include_usage: bool,
}

/// One text or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
enum Stops {
    /// One text.
    One(String),
    /// Several texts.
    Many(Vec<String>),
}

/// What only this server has.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Own {
    /// Whether the answer is over the index, with citations. Without, the bare model answers.
    #[serde(default = "yes")]
    pub(super) retrieve: bool,
    /// The number of passages in the citations.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub(super) top: Option<usize>,
    /// Whether a chat has the steps that led to the answer.
    #[serde(default)]
    pub(super) trace: bool,
}

fn yes() -> bool {
    true
}

impl Default for Own {
    fn default() -> Self {
        Self { retrieve: true, top: None, trace: false }
    }
}

impl Settings {
    /// The options of the generation. What is not set is the generator's own.
    ///
    /// # Errors
    /// Values outside of their ranges, and several answers.
    pub(super) fn options(&self, limits: &Limits) -> Result<GenerationOptions, Failure> {
        if let Some(count) = self.n.filter(|count| *count != 1) {
            return Err(Failure::invalid("n", format!("`n`: expected 1, found {count}")));
        }
        refuse(&self.others, &REFUSED)?;
        if self.stream_options.is_some() && !self.streams() {
            let message = "`stream_options`: expected none without `\"stream\": true`";
            return Err(Failure::invalid("stream_options", message));
        }
        let seed = self.seed()?;
        let (field, most) = match self.max_completion_tokens {
            Some(most) => ("max_completion_tokens", Some(most)),
            None => ("max_tokens", self.max_tokens),
        };
        if let Some(found) = most.filter(|most| !(1..=limits.answer_tokens).contains(most)) {
            let message = format!("`{field}`: expected 1 to {}, found {found}", limits.answer_tokens);
            return Err(Failure::invalid(field, message));
        }
        let temperature = self.temperature;
        if let Some(found) = temperature.filter(|value| !(0.0..=2.0).contains(value)) {
            let message = format!("`temperature`: expected 0 to 2, found {found}");
            return Err(Failure::invalid("temperature", message));
        }
        if let Some(found) = self.top_p.filter(|value| !(*value > 0.0 && *value <= 1.0)) {
            let message = format!("`top_p`: expected more than 0 and at most 1, found {found}");
            return Err(Failure::invalid("top_p", message));
        }
        if self.top_k == Some(0) {
            return Err(Failure::invalid("top_k", "`top_k`: expected at least 1, found 0"));
        }
        if let Some(found) = self.min_p.filter(|value| !(0.0..=1.0).contains(value)) {
            return Err(Failure::invalid("min_p", format!("`min_p`: expected 0 to 1, found {found}")));
        }
        if let Some(found) = self.repetition_penalty.filter(|value| *value <= 0.0) {
            let message = format!("`repetition_penalty`: expected more than 0, found {found}");
            return Err(Failure::invalid("repetition_penalty", message));
        }
        if let Some(found) = self.min_tokens.filter(|least| *least > most.unwrap_or(limits.answer_tokens)) {
            let most = most.unwrap_or(limits.answer_tokens);
            let message = format!("`min_tokens`: expected at most {most}, found {found}");
            return Err(Failure::invalid("min_tokens", message));
        }
        let options = GenerationOptions {
            max_new_tokens: most,
            min_new_tokens: self.min_tokens,
            repetition_penalty: self.repetition_penalty,
            seed,
            ..GenerationOptions::default()
        };
        let is_narrowed =
            self.top_p.is_some() || self.top_k.is_some() || self.min_p.is_some_and(|least| least > 0.0);
        Ok(match temperature.or(is_narrowed.then_some(1.0)) {
            None => options,
            // Of the most probable token alone, `top_p`, `top_k`, `min_p` and `seed` leave the same one.
            Some(0.0) => GenerationOptions { do_sample: Some(false), seed: None, ..options },
            Some(temperature) => GenerationOptions {
                do_sample: Some(true),
                temperature: Some(temperature),
                top_p: self.top_p,
                top_k: self.top_k,
                min_p: self.min_p,
                seed: Some(seed.unwrap_or_else(fresh)),
                ..options
            },
        })
    }

    /// The seed. A negative one, which OpenAI's API takes, is a large one here.
    fn seed(&self) -> Result<Option<u64>, Failure> {
        let Some(given) = &self.seed else { return Ok(None) };
        let seed = given.as_u64().or_else(|| given.as_i64().map(i64::cast_unsigned));
        let wrong = || Failure::invalid("seed", format!("`seed`: expected a whole number, found {given}"));
        seed.map(Some).ok_or_else(wrong)
    }

    /// The texts before whose first the answer ends.
    ///
    /// # Errors
    /// More than four, and an empty one.
    pub(super) fn stops(&self) -> Result<Vec<String>, Failure> {
        let stops = match &self.stop {
            None => Vec::new(),
            Some(Stops::One(stop)) => vec![stop.clone()],
            Some(Stops::Many(stops)) => stops.clone(),
        };
        if stops.len() > MOST_STOPS {
            let message = format!("`stop`: expected at most {MOST_STOPS} texts, found {}", stops.len());
            return Err(Failure::invalid("stop", message));
        }
        match stops.iter().any(String::is_empty) {
            true => Err(Failure::invalid("stop", "`stop`: expected texts, found an empty one")),
            false => Ok(stops),
        }
    }

    /// Whether the answer comes as server-sent events.
    pub(super) fn streams(&self) -> bool {
        self.stream == Some(true)
    }

    /// Whether a stream ends with the numbers of tokens.
    pub(super) fn streams_usage(&self) -> bool {
        self.stream_options.is_some_and(|options| options.include_usage)
    }
}

/// A seed that no other answer has.
fn fresh() -> u64 {
    use std::hash::{BuildHasher, RandomState};

    // The keys of each state are new.
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(json: &str) -> Settings {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_temperature_decides_whether_tokens_are_sampled() {
        let options = |json: &str| settings(json).options(&Limits::default()).unwrap();
        assert_eq!(options("{}"), GenerationOptions::default());
        let greedy = options(r#"{"temperature": 0, "top_p": 0.5, "max_tokens": 3}"#);
        assert_eq!((greedy.do_sample, greedy.top_p, greedy.max_new_tokens), (Some(false), None, Some(3)));
        let sampled = options(
            r#"{"temperature": 0.5, "top_p": 0.5, "seed": 3, "max_completion_tokens": 7, "max_tokens": 9}"#,
        );
        assert_eq!(
            (sampled.do_sample, sampled.temperature, sampled.top_p),
            (Some(true), Some(0.5), Some(0.5))
        );
        assert_eq!((sampled.seed, sampled.max_new_tokens), (Some(3), Some(7)));
        // As in OpenAI's API, the temperature is 1 where others narrow the choice.
        let narrowed = options(r#"{"top_p": 0.5}"#);
        assert_eq!(
            (narrowed.do_sample, narrowed.temperature, narrowed.top_p),
            (Some(true), Some(1.0), Some(0.5))
        );
        assert_ne!(narrowed.seed, options(r#"{"top_p": 0.5}"#).seed);
        assert_eq!(options(r#"{"top_k": 3}"#).top_k, Some(3));
        assert_eq!(options(r#"{"min_p": 0.1}"#).do_sample, Some(true));
        assert_eq!(options(r#"{"min_p": 0}"#).do_sample, None);
        let least = options(r#"{"min_tokens": 2, "repetition_penalty": 1.2}"#);
        assert_eq!((least.min_new_tokens, least.repetition_penalty), (Some(2), Some(1.2)));
        // Values that ask for nothing, and settings that change no answer.
        let plain =
            r#"{"presence_penalty": 0, "best_of": 1, "response_format": {"type": "text"}, "user": "me"}"#;
        assert_eq!(options(plain), GenerationOptions::default());
        assert_eq!(options(r#"{"seed": -1}"#).seed, Some(u64::MAX));
        // A generator that samples by itself takes the seed.
        assert_eq!(
            options(r#"{"seed": 5}"#),
            GenerationOptions { seed: Some(5), ..GenerationOptions::default() }
        );
    }

    #[test]
    fn a_request_has_up_to_four_stops() {
        let stops = |json: &str| settings(json).stops();
        assert_eq!(stops(r#"{"stop": "a"}"#).unwrap(), ["a"]);
        assert_eq!(stops(r#"{"stop": ["a", "b", "c", "d"]}"#).unwrap().len(), 4);
        for wrong in [r#"{"stop": ["a", "b", "c", "d", "e"]}"#, r#"{"stop": ["a", ""]}"#, r#"{"stop": ""}"#] {
            assert_eq!(stops(wrong).unwrap_err().field.as_deref(), Some("stop"), "{wrong}");
        }
    }

    #[test]
    fn values_outside_of_their_ranges_are_named() {
        for (json, field) in [
            (r#"{"temperature": 3}"#, "temperature"),
            (r#"{"top_p": 1.5}"#, "top_p"),
            (r#"{"n": 2}"#, "n"),
            (r#"{"top_p": 0}"#, "top_p"),
            (r#"{"top_k": 0}"#, "top_k"),
            (r#"{"min_p": 1.1}"#, "min_p"),
            (r#"{"repetition_penalty": 0}"#, "repetition_penalty"),
            (r#"{"max_tokens": 3, "min_tokens": 4}"#, "min_tokens"),
            (r#"{"presence_penalty": 0.5}"#, "presence_penalty"),
            (r#"{"response_format": {"type": "json_object"}}"#, "response_format"),
            (r#"{"tools": [{"type": "function"}]}"#, "tools"),
            (r#"{"seed": 1.5}"#, "seed"),
            (r#"{"stream_options": {"include_usage": true}}"#, "stream_options"),
            (r#"{"max_tokens": 0}"#, "max_tokens"),
            (r#"{"max_completion_tokens": 4097}"#, "max_completion_tokens"),
        ] {
            assert_eq!(settings(json).options(&Limits::default()).unwrap_err().field.as_deref(), Some(field));
        }
        assert!(serde_json::from_str::<Settings>(r#"{"sporran": {"retreive": false}}"#).is_err());
    }
}
