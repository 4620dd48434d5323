//! The options of generation.

use std::{borrow::Cow, path::Path};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Visitor};
use sporran_checkpoint::{
    Error, Result,
    json::{TokenIds, parse},
};

/// When a beam search of one input ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyStopping {
    /// As soon as there are `num-beams` finished sequences.
    Yes,
    /// When the best running sequence, scored at its present length, is no better than the worst finished one.
    No,
    /// When no running sequence can become better than the worst finished one.
    Never,
}

impl JsonSchema for EarlyStopping {
    fn schema_name() -> Cow<'static, str> {
        "EarlyStopping".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "enum": [true, false, "never"] })
    }
}

impl Serialize for EarlyStopping {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Yes => serializer.serialize_bool(true),
            Self::No => serializer.serialize_bool(false),
            Self::Never => serializer.serialize_str("never"),
        }
    }
}

impl<'de> Deserialize<'de> for EarlyStopping {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Value;
        impl Visitor<'_> for Value {
            type Value = EarlyStopping;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("true, false or \"never\"")
            }

            fn visit_bool<E>(self, yes: bool) -> Result<EarlyStopping, E> {
                Ok(if yes { EarlyStopping::Yes } else { EarlyStopping::No })
            }

            fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<EarlyStopping, E> {
                match value {
                    "never" => Ok(EarlyStopping::Never),
                    other => Err(E::invalid_value(serde::de::Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(Value)
    }
}

/// How sequences are generated. Unset options come from the model's folder (`generation_config.json`, or
/// `config.json` if there is no such file), and then from the defaults named here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct GenerationOptions {
    /// The most tokens to generate, the end token included. Wins over `max-length`. Default 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_new_tokens: Option<usize>,
    /// The most tokens of a sequence, the decoder's start token included.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_length: Option<usize>,
    /// No sequence ends before it has this many tokens. Wins over `min-length`. Default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "tokens"))]
    pub min_new_tokens: Option<usize>,
    /// The same with the decoder's start token counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_length: Option<usize>,
    /// How many sequences are followed for each input; 1 is greedy search. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub num_beams: Option<usize>,
    /// A sequence's score is its log-probability divided by its length to this power. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length_penalty: Option<f64>,
    /// When a beam search ends. Default `false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early_stopping: Option<EarlyStopping>,
    /// The number of sequences to return for each input, best first; at most `num-beams`. Sampling without beams allows
    /// any number, in the order of sampling. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub num_return_sequences: Option<usize>,
    /// Samples tokens by their probability instead of taking the most probable ones. Default `false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub do_sample: Option<bool>,
    /// Sampling: scores are divided by this before they become probabilities. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub temperature: Option<f64>,
    /// Sampling: the number of most probable tokens to sample from; 0 for all. Default 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<usize>,
    /// Sampling: the smallest set of most probable tokens whose probabilities reach this sum. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub top_p: Option<f64>,
    /// Sampling: the smallest probability of a token, as a share of that of the most probable one. Default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub min_p: Option<f64>,
    /// Sampling: the seed of the random numbers. Default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Diverse beam search: the number of groups of equal size that the beams form. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub num_beam_groups: Option<usize>,
    /// Diverse beam search: the penalty on a token for each beam of an earlier group that has it at the same step.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub diversity_penalty: Option<f64>,
    /// The score of a token that is already in the sequence is divided by this if positive and multiplied by it if
    /// negative. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub repetition_penalty: Option<f64>,
    /// No sequence has the same run of this many tokens twice; 0 allows it. Default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_repeat_ngram_size: Option<usize>,
    /// No sequence has a run of this many tokens that its source has; 0 allows it. Default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoder_no_repeat_ngram_size: Option<usize>,
    /// Runs of tokens that no sequence has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bad_words_ids: Option<Vec<Vec<u32>>>,
    /// Tokens that no sequence has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "tokens"))]
    pub suppress_tokens: Option<Vec<u32>>,
    /// Tokens that no sequence begins with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "tokens"))]
    pub begin_suppress_tokens: Option<Vec<u32>>,
    /// The first token after the decoder's start token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forced_bos_token_id: Option<u32>,
    /// The token at the last position of a sequence that does not end before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forced_eos_token_id: Option<u32>,
    /// Whether the probabilities of the tokens that the other options leave sum to 1. It changes the scores of beams; the
    /// other searches always do it. Default `false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renormalize_logits: Option<bool>,
    /// A setting of sampling in the model's folder that this crate does not have, with its value. Sampling is refused then.
    #[serde(skip)]
    pub unsupported_sampling: Option<String>,
}

/// The generation fields of `generation_config.json` or `config.json`, by their names there.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Fields {
    max_new_tokens: Option<usize>,
    max_length: Option<usize>,
    min_new_tokens: Option<usize>,
    min_length: Option<usize>,
    num_beams: Option<usize>,
    length_penalty: Option<f64>,
    early_stopping: Option<EarlyStopping>,
    num_return_sequences: Option<usize>,
    do_sample: Option<bool>,
    temperature: Option<f64>,
    top_k: Option<usize>,
    top_p: Option<f64>,
    min_p: Option<f64>,
    num_beam_groups: Option<usize>,
    diversity_penalty: Option<f64>,
    repetition_penalty: Option<f64>,
    no_repeat_ngram_size: Option<usize>,
    encoder_no_repeat_ngram_size: Option<usize>,
    bad_words_ids: Option<Vec<Vec<u32>>>,
    suppress_tokens: Option<Vec<u32>>,
    begin_suppress_tokens: Option<Vec<u32>>,
    forced_bos_token_id: Option<u32>,
    forced_eos_token_id: TokenIds,
    renormalize_logits: Option<bool>,
}

/// Unsupported fields that change the output, each with the value that has no effect.
const UNSUPPORTED: [(&str, &str); 13] = [
    ("encoder_repetition_penalty", "1.0"),
    ("guidance_scale", "1.0"),
    ("force_words_ids", "null"),
    ("sequence_bias", "null"),
    ("exponential_decay_length_penalty", "null"),
    ("penalty_alpha", "0.0"),
    ("prompt_lookup_num_tokens", "null"),
    ("constraints", "null"),
    ("dola_layers", "null"),
    ("max_time", "null"),
    ("stop_strings", "null"),
    ("token_healing", "false"),
    ("watermarking_config", "null"),
];

/// The same of fields that only sampling reads.
const UNSUPPORTED_SAMPLING: [(&str, &str); 4] =
    [("top_h", "null"), ("typical_p", "1.0"), ("epsilon_cutoff", "0.0"), ("eta_cutoff", "0.0")];

/// Whether a field has the value that has no effect, or is null.
fn is_inert(found: &serde_json::Value, inert: &str) -> bool {
    match found {
        serde_json::Value::Null => true,
        serde_json::Value::Bool(found) => inert.parse() == Ok(*found),
        found => found.as_f64().is_some_and(|found| inert.parse() == Ok(found)),
    }
}

impl GenerationOptions {
    /// The options that `text`, the content of `path`, sets.
    ///
    /// # Errors
    /// [`Error::Json`] where a field has the wrong type, and [`Error::Config`] where the file asks for a kind of
    /// generation that this crate does not have.
    pub(crate) fn from_folder(path: &Path, text: &str) -> Result<Self> {
        let all: serde_json::Map<String, serde_json::Value> = parse(path, text)?;
        let set = |fields: &[(&'static str, &'static str)]| {
            let given = |(field, inert)| Some((field, inert, all.get(field)?));
            fields.iter().copied().filter_map(given).find(|(_, inert, found)| !is_inert(found, inert))
        };
        let sampling = set(&UNSUPPORTED_SAMPLING);
        let samples = all.get("do_sample").and_then(serde_json::Value::as_bool) == Some(true);
        if let Some((field, inert, found)) = set(&UNSUPPORTED).or(sampling.filter(|_| samples)) {
            let (field, found) = (field.to_string(), found.to_string());
            return Err(Error::Config { path: path.into(), field, expected: inert.into(), found });
        }
        let fields: Fields = parse(path, text)?;
        let forced_eos_token_id = match fields.forced_eos_token_id.0.as_slice() {
            [] => None,
            [id] => Some(*id),
            ids => {
                return Err(Error::Config {
                    path: path.into(),
                    field: "forced_eos_token_id".into(),
                    expected: "one token id".into(),
                    found: format!("{ids:?}"),
                });
            }
        };
        Ok(Self {
            max_new_tokens: fields.max_new_tokens,
            max_length: fields.max_length,
            min_new_tokens: fields.min_new_tokens,
            min_length: fields.min_length,
            num_beams: fields.num_beams,
            length_penalty: fields.length_penalty,
            early_stopping: fields.early_stopping,
            num_return_sequences: fields.num_return_sequences,
            do_sample: fields.do_sample,
            temperature: fields.temperature,
            top_k: fields.top_k,
            top_p: fields.top_p,
            min_p: fields.min_p,
            num_beam_groups: fields.num_beam_groups,
            diversity_penalty: fields.diversity_penalty,
            repetition_penalty: fields.repetition_penalty,
            seed: None,
            no_repeat_ngram_size: fields.no_repeat_ngram_size,
            encoder_no_repeat_ngram_size: fields.encoder_no_repeat_ngram_size,
            bad_words_ids: fields.bad_words_ids,
            suppress_tokens: fields.suppress_tokens,
            begin_suppress_tokens: fields.begin_suppress_tokens,
            forced_bos_token_id: fields.forced_bos_token_id,
            forced_eos_token_id,
            renormalize_logits: fields.renormalize_logits,
            unsupported_sampling: sampling.map(|(field, _, found)| format!("`{field}` {found}")),
        })
    }

    /// The options that are set here and that take the place of another value among `defaults`: each by its name in a config,
    /// with the value there and the value here. A bound on the new tokens takes the place of one on the length.
    #[must_use]
    pub fn replacing(&self, defaults: &Self) -> Vec<(String, String, String)> {
        // Plain data, whose JSON cannot fail.
        let fields = |options: &Self| match serde_json::to_value(options) {
            Ok(serde_json::Value::Object(fields)) => fields,
            _ => serde_json::Map::new(),
        };
        let (own, defaults) = (fields(self), fields(defaults));
        let other_bound = |name: &str| match name.split_once('-') {
            Some((side, "new-tokens")) => format!("{side}-length"),
            Some((side, "length")) => format!("{side}-new-tokens"),
            _ => name.to_owned(),
        };
        let text =
            |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let mut found = Vec::new();
        for (name, value) in own {
            let rival = other_bound(&name);
            match (defaults.get(&name), defaults.get(&rival)) {
                (Some(default), _) if *default != value => {
                    found.push((name, text(default), text(&value)));
                }
                (None, Some(default)) => {
                    found.push((name, format!("{rival} {default}"), text(&value)));
                }
                _ => {}
            }
        }
        found
    }

    /// These options, and those of `defaults` where they are not set. A bound on the new tokens that is set here
    /// is not narrowed by a bound on the length that comes from `defaults`, nor the other way round.
    #[must_use]
    pub fn or(&self, defaults: &Self) -> Self {
        let bound = |new: Option<usize>, length: Option<usize>, defaults: (Option<usize>, Option<usize>)| {
            if new.is_some() || length.is_some() { (new, length) } else { defaults }
        };
        let (max_new_tokens, max_length) =
            bound(self.max_new_tokens, self.max_length, (defaults.max_new_tokens, defaults.max_length));
        let (min_new_tokens, min_length) =
            bound(self.min_new_tokens, self.min_length, (defaults.min_new_tokens, defaults.min_length));
        Self {
            max_new_tokens,
            max_length,
            min_new_tokens,
            min_length,
            num_beams: self.num_beams.or(defaults.num_beams),
            length_penalty: self.length_penalty.or(defaults.length_penalty),
            early_stopping: self.early_stopping.or(defaults.early_stopping),
            num_return_sequences: self.num_return_sequences.or(defaults.num_return_sequences),
            do_sample: self.do_sample.or(defaults.do_sample),
            temperature: self.temperature.or(defaults.temperature),
            top_k: self.top_k.or(defaults.top_k),
            top_p: self.top_p.or(defaults.top_p),
            min_p: self.min_p.or(defaults.min_p),
            seed: self.seed.or(defaults.seed),
            num_beam_groups: self.num_beam_groups.or(defaults.num_beam_groups),
            diversity_penalty: self.diversity_penalty.or(defaults.diversity_penalty),
            repetition_penalty: self.repetition_penalty.or(defaults.repetition_penalty),
            no_repeat_ngram_size: self.no_repeat_ngram_size.or(defaults.no_repeat_ngram_size),
            encoder_no_repeat_ngram_size: self
                .encoder_no_repeat_ngram_size
                .or(defaults.encoder_no_repeat_ngram_size),
            bad_words_ids: self.bad_words_ids.clone().or_else(|| defaults.bad_words_ids.clone()),
            suppress_tokens: self.suppress_tokens.clone().or_else(|| defaults.suppress_tokens.clone()),
            begin_suppress_tokens: self
                .begin_suppress_tokens
                .clone()
                .or_else(|| defaults.begin_suppress_tokens.clone()),
            forced_bos_token_id: self.forced_bos_token_id.or(defaults.forced_bos_token_id),
            forced_eos_token_id: self.forced_eos_token_id.or(defaults.forced_eos_token_id),
            renormalize_logits: self.renormalize_logits.or(defaults.renormalize_logits),
            unsupported_sampling: self
                .unsupported_sampling
                .clone()
                .or_else(|| defaults.unsupported_sampling.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{EarlyStopping, GenerationOptions};
    use sporran_checkpoint::SpecialTokens;

    #[test]
    fn what_takes_the_place_of_a_default_is_named_with_both_values() {
        let folder = GenerationOptions {
            max_length: Some(64),
            min_new_tokens: Some(2),
            num_beams: Some(4),
            do_sample: Some(true),
            temperature: Some(0.6),
            early_stopping: Some(EarlyStopping::Never),
            ..GenerationOptions::default()
        };
        let own = GenerationOptions {
            max_new_tokens: Some(32),
            min_length: Some(3),
            num_beams: Some(1),
            do_sample: Some(true),
            temperature: Some(0.5),
            early_stopping: Some(EarlyStopping::Yes),
            length_penalty: Some(2.0),
            ..GenerationOptions::default()
        };
        let mut found = own.replacing(&folder);
        found.sort();
        let expected = [
            ("early-stopping", "never", "true"),
            ("max-new-tokens", "max-length 64", "32"),
            ("min-length", "min-new-tokens 2", "3"),
            ("num-beams", "4", "1"),
            ("temperature", "0.6", "0.5"),
        ];
        assert_eq!(found, expected.map(|(name, there, here)| (name.into(), there.into(), here.into())));
        assert!(
            GenerationOptions::default().replacing(&folder).is_empty()
                && folder.replacing(&folder).is_empty()
        );
    }

    fn tokens() -> SpecialTokens {
        SpecialTokens { pad: 0, eos: vec![1], bos: None, decoder_start: 0 }
    }

    fn folder(text: &str) -> sporran_checkpoint::Result<GenerationOptions> {
        GenerationOptions::from_folder(Path::new("generation_config.json"), text)
    }

    #[test]
    fn a_folder_sets_defaults_that_options_override() {
        let defaults = folder(
            r#"{"max_length": 142, "min_length": 56, "num_beams": 4, "early_stopping": true,
                "length_penalty": 2.0, "forced_eos_token_id": 2, "do_sample": false, "top_k": 50}"#,
        )
        .unwrap();
        let options =
            GenerationOptions { max_new_tokens: Some(60), num_beams: Some(2), ..Default::default() };
        let settings = options.or(&defaults).settings(&tokens(), 100, 1).unwrap();
        // max-new-tokens replaces max_length; min_length 56 counts the start token.
        assert_eq!((settings.max_new_tokens, settings.min_new_tokens, settings.num_beams), (60, 55, 2));
        assert_eq!((settings.early_stopping, settings.length_penalty), (EarlyStopping::Yes, 2.0));
        assert_eq!((settings.forced_eos, settings.num_return_sequences), (Some(2), 1));
    }

    #[test]
    fn nothing_set_is_greedy_with_twenty_tokens() {
        let settings = GenerationOptions::default().settings(&tokens(), 100, 1).unwrap();
        assert_eq!(
            (settings.max_new_tokens, settings.num_beams, settings.early_stopping),
            (20, 1, EarlyStopping::No)
        );
    }

    #[test]
    fn a_kind_of_generation_that_is_not_here_is_an_error() {
        let error = folder(r#"{"token_healing": true}"#).unwrap_err().to_string();
        assert_eq!(error, "generation_config.json: field `token_healing`: expected false, found true");
        assert!(folder(r#"{"guidance_scale": 1.2}"#).is_err());
        let normalised = folder(r#"{"renormalize_logits": true}"#).unwrap();
        assert_eq!(normalised.renormalize_logits, Some(true));
        assert!(folder(r#"{"guidance_scale": 1, "sequence_bias": null}"#).is_ok());
    }

    /// `transformers` reads these fields where `do_sample` is true, and a `typical_p` of 1 removes no token.
    #[test]
    fn what_sampling_alone_reads_is_refused_where_tokens_are_drawn() {
        let error = folder(r#"{"do_sample": true, "typical_p": 0.1}"#).unwrap_err().to_string();
        assert_eq!(error, "generation_config.json: field `typical_p`: expected 1.0, found 0.1");
        let none = folder(r#"{"do_sample": true, "min_p": 0.2, "typical_p": 1, "eta_cutoff": 0}"#).unwrap();
        assert_eq!(none.min_p, Some(0.2));
        assert_eq!(none.unsupported_sampling, None);
        for text in
            [r#"{"eta_cutoff": 0.1}"#, r#"{"do_sample": false, "typical_p": 0.5, "epsilon_cutoff": 0.1}"#]
        {
            let defaults = folder(text).unwrap();
            assert!(defaults.settings(&tokens(), 100, 1).unwrap().sampling.is_none());
            let options = GenerationOptions { do_sample: Some(true), ..Default::default() };
            let error = options.or(&defaults).settings(&tokens(), 100, 1).unwrap_err().to_string();
            assert!(error.starts_with("option `do-sample`: expected false with the folder's `"), "{error}");
        }
    }

    #[test]
    fn options_are_written_in_kebab_case_and_a_typo_is_an_error() {
        let options: GenerationOptions =
            serde_json::from_str(r#"{"num-beams": 4, "early-stopping": "never"}"#).unwrap();
        assert_eq!(options.early_stopping, Some(EarlyStopping::Never));
        let text = serde_json::to_string(&options).unwrap();
        assert_eq!(text, r#"{"num-beams":4,"early-stopping":"never"}"#);
        assert!(serde_json::from_str::<GenerationOptions>(r#"{"num-beam": 4}"#).is_err());
        assert!(serde_json::from_str::<GenerationOptions>(r#"{"early-stopping": "always"}"#).is_err());
    }
}
