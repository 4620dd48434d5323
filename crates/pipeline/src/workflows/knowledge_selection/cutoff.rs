//! Options that are a number or a word: the threshold of relevant sentences, and the number of negatives.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Unexpected, Visitor},
};
use sporran_kilt::{Error, scores::ranking::RELEVANT, wowpp::Dialogues};

use crate::Result;

/// The smallest confidence of a relevant sentence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// A confidence.
    Confidence(f64),
    /// The third quartile of the confidences of all training sentences (Eric et al., 2021, section 3.3).
    ThirdQuartile,
}

const THIRD_QUARTILE: &str = "third-quartile";

impl Default for Threshold {
    fn default() -> Self {
        Self::Confidence(RELEVANT)
    }
}

impl Threshold {
    /// The smallest confidence of a relevant sentence.
    ///
    /// # Errors
    /// [`Error::Argument`] for a third quartile of 0, at which every sentence would be relevant, and without sentences.
    pub(super) fn of(self, dialogues: &Dialogues) -> Result<f64> {
        let quartile = match self {
            Self::Confidence(confidence) => return Ok(confidence),
            Self::ThirdQuartile => dialogues.third_quartile(),
        };
        if let Some(value) = quartile.filter(|value| *value > 0.0) {
            return Ok(value);
        }
        let found = quartile.map_or_else(|| "no sentence".into(), |quartile| quartile.to_string());
        let message = format!(
            "data.threshold: expected a third quartile above 0, found {found}; a file with one gold sentence per dialogue needs a number"
        );
        Err(Error::Argument(message).into())
    }
}

impl JsonSchema for Threshold {
    fn schema_name() -> Cow<'static, str> {
        "Threshold".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "number", "minimum": 0, "maximum": 1 },
            { "const": THIRD_QUARTILE, "description": "The third quartile of the confidences of all sentences of `train`." }
        ] })
    }
}

impl Serialize for Threshold {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Confidence(confidence) => serializer.serialize_f64(*confidence),
            Self::ThirdQuartile => serializer.serialize_str(THIRD_QUARTILE),
        }
    }
}

impl<'de> Deserialize<'de> for Threshold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Value;
        impl Visitor<'_> for Value {
            type Value = Threshold;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a number or \"{THIRD_QUARTILE}\"")
            }

            fn visit_f64<E>(self, confidence: f64) -> Result<Threshold, E> {
                Ok(Threshold::Confidence(confidence))
            }

            fn visit_i64<E>(self, confidence: i64) -> Result<Threshold, E> {
                Ok(Threshold::Confidence(confidence as f64))
            }

            fn visit_u64<E>(self, confidence: u64) -> Result<Threshold, E> {
                Ok(Threshold::Confidence(confidence as f64))
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Threshold, E> {
                match word {
                    THIRD_QUARTILE => Ok(Threshold::ThirdQuartile),
                    other => Err(E::invalid_value(Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(Value)
    }
}

/// The number of sentences of a dialogue with gold labels that are not the gold sentence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Negatives {
    /// All.
    #[default]
    All,
    /// As many as give the dialogue as many pairs as it has annotated sentences.
    Match,
    /// A number, drawn with the seed.
    Count(usize),
}

impl JsonSchema for Negatives {
    fn schema_name() -> Cow<'static, str> {
        "Negatives".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "integer", "minimum": 1 },
            { "const": "all", "description": "All other sentences." },
            { "const": "match", "description": "One fewer than the dialogue's annotated sentences, so that the number of pairs is \
                that of training on all annotated sentences." }
        ] })
    }
}

impl Serialize for Negatives {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => serializer.serialize_str("all"),
            Self::Match => serializer.serialize_str("match"),
            Self::Count(count) => serializer.serialize_u64(*count as u64),
        }
    }
}

impl<'de> Deserialize<'de> for Negatives {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Value;
        impl Visitor<'_> for Value {
            type Value = Negatives;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number of at least 1, \"all\" or \"match\"")
            }

            fn visit_i64<E: serde::de::Error>(self, count: i64) -> Result<Negatives, E> {
                let known = usize::try_from(count).ok().filter(|count| *count > 0);
                known.map(Negatives::Count).ok_or_else(|| E::invalid_value(Unexpected::Signed(count), &self))
            }

            fn visit_u64<E: serde::de::Error>(self, count: u64) -> Result<Negatives, E> {
                let count =
                    i64::try_from(count).map_err(|_| E::invalid_value(Unexpected::Unsigned(count), &self))?;
                self.visit_i64(count)
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Negatives, E> {
                match word {
                    "all" => Ok(Negatives::All),
                    "match" => Ok(Negatives::Match),
                    other => Err(E::invalid_value(Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(Value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Both {
        threshold: Threshold,
        negatives: Negatives,
    }

    #[test]
    fn numbers_and_words_survive_a_round_trip() {
        for (text, threshold, negatives) in [
            ("threshold = 0.6\nnegatives = 1\n", Threshold::Confidence(0.6), Negatives::Count(1)),
            (
                "threshold = \"third-quartile\"\nnegatives = \"all\"\n",
                Threshold::ThirdQuartile,
                Negatives::All,
            ),
            ("threshold = 1.0\nnegatives = \"match\"\n", Threshold::Confidence(1.0), Negatives::Match),
        ] {
            let both = Both { threshold, negatives };
            assert_eq!(toml::from_str::<Both>(text).unwrap(), both);
            assert_eq!(toml::to_string(&both).unwrap(), text);
        }
        let whole = toml::from_str::<Both>("threshold = 1\nnegatives = 2\n").unwrap();
        assert_eq!(whole.threshold, Threshold::Confidence(1.0));
        for (text, part) in [
            ("threshold = \"median\"\nnegatives = 1\n", "a number or \"third-quartile\""),
            ("threshold = 1\nnegatives = 0\n", "a whole number of at least 1, \"all\" or \"match\""),
            ("threshold = 1\nnegatives = -1\n", "a whole number of at least 1"),
            ("threshold = 1\nnegatives = \"some\"\n", "\"all\" or \"match\""),
        ] {
            let message = toml::from_str::<Both>(text).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn the_third_quartile_is_of_the_training_file() {
        let of = |confidences: &str| {
            let json =
                format!(r#"{{"d": {{"turns": [], "topic": "", "annotated_sentences": [{confidences}]}}}}"#);
            Threshold::ThirdQuartile.of(&serde_json::from_str(&json).unwrap())
        };
        let sentence = |confidence: &str| format!(r#"{{"label": "T", "confidence": {confidence}}}"#);
        let listed = |all: &[&str]| all.iter().map(|one| sentence(one)).collect::<Vec<_>>().join(",");
        // A sentence at the quartile is relevant, as those of 0.6 are in the published file.
        assert_eq!(of(&listed(&["0", "0.2", "0.4", "0.6", "1"])).unwrap(), 0.6);
        assert_eq!(of(&listed(&["0", "0", "1", "1"])).unwrap(), 1.0);
        let error = of(&listed(&["0", "0", "0", "0", "1"])).unwrap_err().to_string();
        assert!(error.contains("expected a third quartile above 0, found 0;"), "{error}");
        assert!(of("").unwrap_err().to_string().contains("found no sentence"));
        assert_eq!(Threshold::default().of(&Dialogues::default()).unwrap(), 0.6);
    }
}
