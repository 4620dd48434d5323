//! The special tokens of a model.

use std::path::Path;

use serde::Deserialize;

use crate::{
    error::{Error, Result},
    json::TokenIds,
};

/// The ids with a meaning of their own, from `generation_config.json` and `config.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Fills rows up to one length.
    pub pad: u32,
    /// Any of these ends a sequence; the first is what an encoder input ends with.
    pub eos: Vec<u32>,
    /// Begins a sequence, where the model has such a token.
    pub bos: Option<u32>,
    /// What a decoder is given first.
    pub decoder_start: u32,
}

/// The token fields of one JSON file, each of which may be missing.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TokenFields {
    pad_token_id: Option<u32>,
    eos_token_id: TokenIds,
    bos_token_id: Option<u32>,
    decoder_start_token_id: Option<u32>,
}

impl TokenFields {
    /// What an architecture takes where its config says nothing.
    pub(crate) fn defaults(pad: u32, eos: u32, bos: Option<u32>, decoder_start: Option<u32>) -> Self {
        Self {
            pad_token_id: Some(pad),
            eos_token_id: TokenIds(vec![eos]),
            bos_token_id: bos,
            decoder_start_token_id: decoder_start,
        }
    }

    /// These fields, and those of `other` where they are missing.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            pad_token_id: self.pad_token_id.or(other.pad_token_id),
            eos_token_id: if self.eos_token_id.0.is_empty() { other.eos_token_id } else { self.eos_token_id },
            bos_token_id: self.bos_token_id.or(other.bos_token_id),
            decoder_start_token_id: self.decoder_start_token_id.or(other.decoder_start_token_id),
        }
    }

    /// The tokens; `path` is for the error. Padding falls back to the end token and the decoder's start to the
    /// beginning of a sequence, as in `transformers`.
    pub(crate) fn resolve(self, path: &Path) -> Result<SpecialTokens> {
        let missing = |field: &str| Error::Config {
            path: path.into(),
            field: field.into(),
            expected: "a token id".into(),
            found: "none".into(),
        };
        let eos = self.eos_token_id.0;
        let pad = self.pad_token_id.or(eos.first().copied()).ok_or_else(|| missing("pad_token_id"))?;
        if eos.is_empty() {
            return Err(missing("eos_token_id"));
        }
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
        let tokens = fields.resolve(Path::new("config.json")).unwrap();
        assert_eq!((tokens.pad, tokens.decoder_start, tokens.eos), (2, 0, vec![2, 7]));
    }

    #[test]
    fn a_model_without_an_end_token_is_refused() {
        let fields: TokenFields = serde_json::from_str(r#"{"pad_token_id": 0}"#).unwrap();
        let error = fields.resolve(Path::new("config.json")).unwrap_err().to_string();
        assert_eq!(error, "config.json: field `eos_token_id`: expected a token id, found none");
    }
}
