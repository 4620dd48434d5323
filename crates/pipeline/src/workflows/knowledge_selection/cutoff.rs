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
    /// Above the third quartile of the confidences of all training sentences (Eric et al., 2021, sections 3.3 and 4.1).
    ThirdQuartile,
}

const THIRD_QUARTILE: &str = "third-quartile";

impl Default for Threshold {
    fn default() -> Self {
        Self::Confidence(RELEVANT)
    }
}

impl Threshold {
    /// The cut-off of training dialogues.
    ///
    /// # Errors
    /// [`Error::Argument`] for a third quartile that no sentence exceeds, and without sentences.
    pub(super) fn of(self, dialogues: &Dialogues) -> Result<Cutoff> {
        let quartile = match self {
            Self::Confidence(confidence) => return Ok(Cutoff { value: confidence, is_exceeded: false }),
            Self::ThirdQuartile => dialogues.third_quartile(),
        };
        let sentences = || dialogues.0.iter().flat_map(|(_, dialogue)| &dialogue.annotated_sentences);
        match quartile {
            Some(value) if sentences().any(|sentence| sentence.confidence > value) => {
                Ok(Cutoff { value, is_exceeded: true })
            }
            found => {
                let found = found.map_or_else(|| "no sentence".into(), |quartile| quartile.to_string());
                let message = format!(
                    "data.threshold: expected a third quartile that some confidences exceed, found {found}"
                );
                Err(Error::Argument(message).into())
            }
        }
    }
}

/// The cut-off between relevant and other sentences.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cutoff {
    /// The confidence.
    pub(super) value: f64,
    /// Whether only a larger confidence is relevant. Otherwise this one is too.
    pub(super) is_exceeded: bool,
}

impl Cutoff {
    /// The smallest confidence of a relevant sentence.
    pub(super) fn smallest(self) -> f64 {
        if self.is_exceeded { self.value.next_up() } else { self.value }
    }
}

impl JsonSchema for Threshold {
    fn schema_name() -> Cow<'static, str> {
        "Threshold".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "number", "minimum": 0, "maximum": 1 },
            { "const": THIRD_QUARTILE, "description": "Above the third quartile of the confidences of all sentences of `train`." }
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
        let found = of(&listed(&["0", "0.2", "0.4", "0.6", "1"])).unwrap();
        assert_eq!((found.value, found.is_exceeded), (0.6, true));
        // A sentence at the quartile is not relevant.
        assert!(0.6 < found.smallest() && found.smallest() < 0.6 + 1e-9);
        assert_eq!(of(&listed(&["0", "0", "0", "0", "1"])).unwrap().value, 0.0);
        let error = of(&listed(&["0", "0", "1", "1"])).unwrap_err().to_string();
        assert!(error.contains("that some confidences exceed, found 1"), "{error}");
        assert!(of("").unwrap_err().to_string().contains("found no sentence"));
        assert_eq!(Threshold::default().of(&Dialogues::default()).unwrap().smallest(), 0.6);
    }
}
