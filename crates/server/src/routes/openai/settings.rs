//! How an answer is written: what `completions` and `chat/completions` share of their requests.

use schemars::JsonSchema;
use serde::Deserialize;
use sporran_transformers::GenerationOptions;

use crate::Failure;

/// The largest number of texts that end an answer, as in OpenAI's API.
const STOPS: usize = 4;

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
    /// 0 takes the most probable tokens; more samples. By default the generator's own.
    #[serde(default)]
    temperature: Option<f64>,
    /// Sampling takes the most probable tokens whose probabilities add up to this.
    #[serde(default)]
    top_p: Option<f64>,
    /// Sampling takes as many of the most probable tokens.
    #[serde(default)]
    top_k: Option<usize>,
    /// The seed of sampling.
    #[serde(default)]
    seed: Option<u64>,
    /// A text, or several, before whose first the answer ends.
    #[serde(default)]
    stop: Option<Stops>,
    /// The number of answers: 1.
    #[serde(default)]
    n: Option<usize>,
    /// What only this server has.
    #[serde(default)]
    pub(super) sporran: Own,
}

/// What a stream has besides the text.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
struct StreamOptions {
    /// Whether a last event has the numbers of tokens.
    #[serde(default)]
    include_usage: bool,
}

/// One text or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
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
    pub(super) top: Option<usize>,
}

fn yes() -> bool {
    true
}

impl Default for Own {
    fn default() -> Self {
        Self { retrieve: true, top: None }
    }
}

impl Settings {
    /// The options of the generation. What is not set is the generator's own.
    ///
    /// # Errors
    /// Values outside of their ranges, and several answers.
    pub(super) fn options(&self) -> Result<GenerationOptions, Failure> {
        if let Some(count) = self.n.filter(|count| *count != 1) {
            return Err(Failure::invalid("n", format!("`n`: expected 1, found {count}")));
        }
        let most = self.max_completion_tokens.or(self.max_tokens);
        if most == Some(0) {
            return Err(Failure::invalid("max_tokens", "`max_tokens`: expected at least 1, found 0"));
        }
        let within = |field: &str, value: Option<f64>, most: f64| match value {
            Some(value) if !(0.0..=most).contains(&value) => {
                Err(Failure::invalid(field, format!("`{field}`: expected 0 to {most}, found {value}")))
            }
            value => Ok(value),
        };
        let temperature = within("temperature", self.temperature, 2.0)?;
        let top_p = within("top_p", self.top_p, 1.0)?;
        if self.top_k == Some(0) {
            return Err(Failure::invalid("top_k", "`top_k`: expected at least 1, found 0"));
        }
        let options = GenerationOptions { max_new_tokens: most, ..GenerationOptions::default() };
        // A choice among tokens, without a temperature, is OpenAI's: at a temperature of 1.
        let chooses = top_p.is_some() || self.top_k.is_some();
        Ok(match temperature.or(chooses.then_some(1.0)) {
            // The generator's own way; a seed makes it repeatable if it samples.
            None => GenerationOptions { seed: self.seed, ..options },
            _ if top_p == Some(0.0) => GenerationOptions { do_sample: Some(false), ..options },
            Some(0.0) => GenerationOptions { do_sample: Some(false), ..options },
            Some(temperature) => GenerationOptions {
                do_sample: Some(true),
                temperature: Some(temperature),
                top_p,
                top_k: self.top_k,
                seed: Some(self.seed.unwrap_or_else(super::now)),
                ..options
            },
        })
    }

    /// The texts before whose first the answer ends.
    ///
    /// # Errors
    /// More than four texts.
    pub(super) fn stops(&self) -> Result<Vec<String>, Failure> {
        let stops = match &self.stop {
            None => Vec::new(),
            Some(Stops::One(stop)) => vec![stop.clone()],
            Some(Stops::Many(stops)) => stops.clone(),
        };
        if stops.len() > STOPS {
            let message = format!("`stop`: expected at most {STOPS} texts, found {}", stops.len());
            return Err(Failure::invalid("stop", message));
        }
        Ok(stops.into_iter().filter(|stop| !stop.is_empty()).collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(json: &str) -> Settings {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_temperature_decides_whether_tokens_are_sampled() {
        let options = |json: &str| settings(json).options().unwrap();
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
        let chosen = options(r#"{"top_p": 0.5, "seed": 3}"#);
        assert_eq!((chosen.do_sample, chosen.temperature, chosen.top_p), (Some(true), Some(1.0), Some(0.5)));
        let seeded = options(r#"{"seed": 3}"#);
        assert_eq!((seeded.do_sample, seeded.seed), (None, Some(3)));
        assert_eq!(options(r#"{"top_p": 0, "temperature": 1}"#).do_sample, Some(false));
    }

    #[test]
    fn values_outside_of_their_ranges_are_named() {
        for (json, field) in [
            (r#"{"temperature": 3}"#, "temperature"),
            (r#"{"top_p": 1.5}"#, "top_p"),
            (r#"{"n": 2}"#, "n"),
            (r#"{"max_tokens": 0}"#, "max_tokens"),
            (r#"{"top_k": 0}"#, "top_k"),
        ] {
            assert_eq!(settings(json).options().unwrap_err().field.as_deref(), Some(field));
        }
        let stops = settings(r#"{"stop": ["a", "b", "c", "d", "e"]}"#).stops();
        assert_eq!(stops.unwrap_err().field.as_deref(), Some("stop"));
        assert_eq!(settings(r#"{"stop": ["a", "", "b"]}"#).stops().unwrap(), ["a", "b"]);
        assert!(serde_json::from_str::<Settings>(r#"{"sporran": {"retreive": false}}"#).is_err());
    }
}
