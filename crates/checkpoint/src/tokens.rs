//! The special tokens of a model.

use std::path::Path;

use serde::{Deserialize, Deserializer};

use crate::{
    error::{Error, Result},
    json::{deserialize_id, deserialize_ids},
};

/// The ids with a meaning of their own, from `generation_config.json` and `config.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Fills rows up to one length.
    pub pad: u32,
    /// Any of these ends a sequence; encoder inputs end with the first.
    pub eos: Vec<u32>,
    /// Begins a sequence, where the model has such a token.
    pub bos: Option<u32>,
    /// The first token of a decoder.
    pub decoder_start: u32,
}

/// The token fields of one JSON file, each of which may be missing.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct TokenFields {
    #[serde(deserialize_with = "deserialize_id")]
    pad_token_id: Option<u32>,
    /// Missing, or the end tokens, of which there may be none.
    #[serde(deserialize_with = "deserialize_ends")]
    eos_token_id: Option<Vec<u32>>,
    #[serde(deserialize_with = "deserialize_id")]
    bos_token_id: Option<u32>,
    #[serde(deserialize_with = "deserialize_id")]
    decoder_start_token_id: Option<u32>,
}

/// The end tokens of an existing field.
fn deserialize_ends<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u32>>, D::Error> {
    deserialize_ids(deserializer).map(Some)
}

impl TokenFields {
    /// The defaults of an architecture without settings in its config; `eos` may be no token.
    pub fn defaults(
        pad: Option<u32>,
        eos: Option<u32>,
        bos: Option<u32>,
        decoder_start: Option<u32>,
    ) -> Self {
        Self {
            pad_token_id: pad,
            eos_token_id: Some(eos.into_iter().collect()),
            bos_token_id: bos,
            decoder_start_token_id: decoder_start,
        }
    }

    /// These fields of a `generation_config.json`, and those of `config.json` where they are unset.
    pub fn over(self, config: Self) -> Self {
        Self { eos_token_id: self.eos_token_id.clone().filter(|ids| !ids.is_empty()), ..self }.or(config)
    }

    /// These fields, and those of `other` where they are missing.
    pub fn or(self, other: Self) -> Self {
        Self {
            pad_token_id: self.pad_token_id.or(other.pad_token_id),
            eos_token_id: self.eos_token_id.or(other.eos_token_id),
            bos_token_id: self.bos_token_id.or(other.bos_token_id),
            decoder_start_token_id: self.decoder_start_token_id.or(other.decoder_start_token_id),
        }
    }

    /// The tokens of a model with `vocabulary` embeddings; `path` is for the error. Padding falls back to the end token and
    /// the decoder's start to the beginning of a sequence, as in `transformers`. A model may have no end token: its answers end
    /// at their greatest length. Padding, which is never attended to, is an existing token.
    pub fn resolve(self, vocabulary: usize, path: &Path) -> Result<SpecialTokens> {
        let missing = |field: &str| Error::Config {
            path: path.into(),
            field: field.into(),
            expected: "a token id".into(),
            found: "none".into(),
        };
        let is_known = |id: &u32| (*id as usize) < vocabulary;
        let eos = self.eos_token_id.ok_or_else(|| missing("eos_token_id"))?;
        let pad = self.pad_token_id.or(eos.first().copied()).filter(is_known).unwrap_or(0);
        let start = self.decoder_start_token_id.or(self.bos_token_id);
        let decoder_start = start.ok_or_else(|| missing("decoder_start_token_id"))?;
        Ok(SpecialTokens { pad, eos, bos: self.bos_token_id, decoder_start })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::TokenFields;

    #[test]
    fn a_missing_start_is_the_bos_token_and_missing_padding_the_first_eos() {
        let fields: TokenFields =
            serde_json::from_str(r#"{"eos_token_id": [2, 7], "bos_token_id": 0}"#).unwrap();
        let tokens = fields.resolve(8, Path::new("config.json")).unwrap();
        assert_eq!((tokens.pad, tokens.decoder_start, tokens.eos), (2, 0, vec![2, 7]));
    }

    #[test]
    fn ids_that_no_token_has_are_none() {
        let read = |text: &str| serde_json::from_str::<TokenFields>(text).unwrap();
        let resolve = |fields: TokenFields| fields.resolve(8, Path::new("config.json")).unwrap();
        // LLaMA's old configs pad with -1, and some fine-tuned models with a token that has no embedding.
        for pad in ["-1", "null", "8"] {
            let text = format!(r#"{{"pad_token_id": {pad}, "bos_token_id": 1, "eos_token_id": 8}}"#);
            let tokens = resolve(read(&text));
            assert_eq!((tokens.pad, tokens.eos), (0, vec![8]), "{pad}");
        }
        let none =
            resolve(read(r#"{"eos_token_id": -1, "bos_token_id": 1, "decoder_start_token_id": null}"#));
        assert_eq!((none.pad, none.eos, none.decoder_start), (0, Vec::new(), 1));
    }

    #[test]
    fn a_generation_config_overrides_the_config() {
        let read = |text: &str| serde_json::from_str::<TokenFields>(text).unwrap();
        let config = || read(r#"{"eos_token_id": 2, "pad_token_id": 3, "bos_token_id": 1}"#);
        let over = |text: &str| {
            let tokens = read(text).over(config()).resolve(8, Path::new("config.json")).unwrap();
            (tokens.pad, tokens.eos)
        };
        assert_eq!(over(r#"{"eos_token_id": [4, 5]}"#), (3, vec![4, 5]));
        assert_eq!(over(r#"{"eos_token_id": null, "pad_token_id": 0}"#), (0, vec![2]));
        // A config without such a token does not get the architecture's default.
        let defaults = super::TokenFields::defaults(Some(0), Some(6), Some(7), None);
        let tokens = read(r#"{"eos_token_id": null}"#).or(defaults.clone());
        assert_eq!(tokens.resolve(8, Path::new("c")).unwrap().eos, [0u32; 0]);
        assert_eq!(read("{}").or(defaults).resolve(8, Path::new("c")).unwrap().eos, [6]);
    }

    #[test]
    fn a_model_without_an_end_token_is_refused() {
        let fields: TokenFields = serde_json::from_str(r#"{"pad_token_id": 0}"#).unwrap();
        let error = fields.resolve(8, Path::new("config.json")).unwrap_err().to_string();
        assert_eq!(error, "config.json: field `eos_token_id`: expected a token id, found none");
    }
}
