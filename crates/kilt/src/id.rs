//! Ids in data sets, and ids of passages.

use std::{
    borrow::Cow,
    fmt,
    hash::{Hash, Hasher},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A JSON string or integer that names something: a record, a page, a paragraph.
///
/// KILT's files write the same id now as a string, now as a number, at times with blanks around it. Two ids are equal
/// if their trimmed texts are; the written form survives a round trip.
#[derive(Clone, Debug)]
pub enum Id {
    /// Written as a string, blanks included.
    Text(String),
    /// Written as a number.
    Integer(i64),
}

impl Id {
    /// The trimmed text that ids are compared by.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text.trim()),
            Self::Integer(number) => Cow::Owned(number.to_string()),
        }
    }

    /// The value as a number, if its text is one.
    pub fn number(&self) -> Option<i64> {
        match self {
            Self::Text(text) => text.trim().parse().ok(),
            Self::Integer(number) => Some(*number),
        }
    }
}

impl From<&str> for Id {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Id {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Id {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<u32> for Id {
    fn from(number: u32) -> Self {
        Self::Integer(number.into())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl PartialEq for Id {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Id {}

impl PartialOrd for Id {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Id {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text().cmp(&other.text())
    }
}

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Integer(number) => serializer.serialize_i64(*number),
        }
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Id;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an integer")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Id, E> {
                Ok(Id::Text(text.to_owned()))
            }
            fn visit_string<E: de::Error>(self, text: String) -> Result<Id, E> {
                Ok(Id::Text(text))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Id, E> {
                Ok(Id::Integer(number))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Id, E> {
                // Beyond i64 the digits still name the same thing.
                Ok(i64::try_from(number).map_or_else(|_| Id::Text(number.to_string()), Id::Integer))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// A passage's place in its [`PassageStore`](crate::PassageStore): dense, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PassageId(pub u32);

impl PassageId {
    /// The id as an index into dense arrays.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for PassageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_equal_by_trimmed_text_and_keep_their_form() {
        let text: Id = serde_json::from_str("\" 12 \"").unwrap();
        let number: Id = serde_json::from_str("12").unwrap();
        assert_eq!(text, number);
        assert_eq!(serde_json::to_string(&text).unwrap(), "\" 12 \"");
        assert_eq!(serde_json::to_string(&number).unwrap(), "12");
        assert_ne!(number, Id::from("012"));
    }

    #[test]
    fn an_id_is_no_float_and_no_null() {
        for wrong in ["1.5", "null", "true", "[1]"] {
            let message = serde_json::from_str::<Id>(wrong).unwrap_err().to_string();
            assert!(message.contains("a string or an integer"), "{message}");
        }
    }
}
