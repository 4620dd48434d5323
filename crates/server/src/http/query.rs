//! The parameters in the query of an address. What is wrong with one is a [`Failure`] that names it.

use std::{fmt, num::IntErrorKind, sync::Arc};

use axum::{
    extract::{FromRequestParts, Request},
    http::request::Parts,
    middleware::Next,
    response::{IntoResponse, Response},
};
use percent_encoding::percent_decode_str;
use serde::{
    Deserializer,
    de::{DeserializeOwned, IntoDeserializer, Visitor, value::MapDeserializer},
    forward_to_deserialize_any,
};

use crate::{Cause, Failure};

/// The values in the query of an address.
pub(crate) struct Queries<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Queries<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        read(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

/// Refuses parameters that are not `known`.
pub(super) async fn only_known(known: Arc<[&'static str]>, request: Request, next: Next) -> Response {
    match strange(request.uri().query().unwrap_or_default(), &known) {
        Some(failure) => failure.into_response(),
        None => next.run(request).await,
    }
}

/// Why a query is refused whose parameters are not all `known`.
fn strange(query: &str, known: &[&str]) -> Option<Failure> {
    let pairs = match pairs(query) {
        Ok(pairs) => pairs,
        Err(failure) => return Some(failure),
    };
    let (name, _) = pairs.iter().find(|(name, _)| !known.contains(&name.as_str()))?;
    let expected = match known {
        [] => "expected no parameters in the address".to_owned(),
        [known] => format!("expected the parameter `{known}`"),
        _ => format!("expected the parameters `{}`", known.join("`, `")),
    };
    Some(Failure::invalid(name, format!("`{name}`: {expected}")))
}

fn read<T: DeserializeOwned>(query: &str) -> Result<T, Failure> {
    let pairs = pairs(query)?.into_iter().map(|(name, text)| (name.clone(), Part { name, text }));
    T::deserialize(MapDeserializer::new(pairs)).map_err(|Wrong { name, message }| match name {
        Some(name) => Failure::invalid(&name, format!("`{name}`: {message}")),
        None => Failure::new(Cause::Invalid, format!("the query of the address: {message}")),
    })
}

/// The names and the values of a query.
fn pairs(query: &str) -> Result<Vec<(String, String)>, Failure> {
    let decoded = |text: &str| {
        let text = text.replace('+', " ");
        let decoded = percent_decode_str(&text).decode_utf8();
        decoded
            .map(String::from)
            .map_err(|_| Failure::new(Cause::Invalid, "the query of the address is not UTF-8"))
    };
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Ok((decoded(name)?, decoded(value)?))
        })
        .collect()
}

/// The value of a parameter.
struct Part {
    name: String,
    text: String,
}

impl Part {
    fn wrong(&self, expected: &str) -> Wrong {
        Wrong {
            name: Some(self.name.clone()),
            message: format!("expected {expected}, found `{}`", self.text),
        }
    }
}

impl<'de> IntoDeserializer<'de, Wrong> for Part {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Part {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_string(self.text)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_some(self)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.text.parse::<u64>() {
            Ok(number) => visitor.visit_u64(number),
            Err(error) if *error.kind() == IntErrorKind::PosOverflow => Err(self.wrong("a smaller number")),
            Err(_) => Err(self.wrong("a whole number")),
        }
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        match words.contains(&self.text.as_str()) {
            true => visitor.visit_enum(self.text.into_deserializer()),
            false => Err(self.wrong(&format!("`{}`", words.join("` or `")))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}

/// What is wrong with a parameter.
#[derive(Debug)]
struct Wrong {
    name: Option<String>,
    message: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Wrong {}

impl serde::de::Error for Wrong {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { name: None, message: message.to_string() }
    }

    fn missing_field(field: &'static str) -> Self {
        Self { name: Some(field.to_owned()), message: "is missing".to_owned() }
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self { name: Some(field.to_owned()), message: "expected once, found twice".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Search {
        query: String,
        hits: Option<usize>,
        answer: Option<Verdict>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Verdict {
        Right,
        Wrong,
    }

    #[test]
    fn values_are_read_and_wrong_ones_are_named() {
        let found: Search = read("query=a+b%20%C3%A9&hits=3&answer=right").unwrap();
        let expected = Search { query: "a b é".into(), hits: Some(3), answer: Some(Verdict::Right) };
        assert_eq!(found, expected);
        assert_eq!(read::<Search>("query=").unwrap().hits, None);
        for (query, expected) in [
            ("query=a&hits=many", "`hits`: expected a whole number, found `many`"),
            ("query=a&hits=-1", "`hits`: expected a whole number, found `-1`"),
            ("query=a&hits=", "`hits`: expected a whole number, found ``"),
            (
                "query=a&hits=99999999999999999999",
                "`hits`: expected a smaller number, found `99999999999999999999`",
            ),
            ("query=a&answer=maybe", "`answer`: expected `right` or `wrong`, found `maybe`"),
            ("hits=1", "`query`: is missing"),
            ("query=a&query=b", "`query`: expected once, found twice"),
            ("query=%ff", "the query of the address is not UTF-8"),
        ] {
            let failure = read::<Search>(query).unwrap_err();
            assert_eq!((failure.cause, failure.message.as_str()), (Cause::Invalid, expected));
        }
    }

    #[test]
    fn unknown_parameters_are_named_with_the_known_ones() {
        let message = |query: &str, known: &[&str]| strange(query, known).map(|failure| failure.message);
        assert_eq!(message("query=a&hits=3", &["query", "hits"]), None);
        let wrong = message("query=a&topk=3", &["query", "hits"]);
        assert_eq!(wrong.as_deref(), Some("`topk`: expected the parameters `query`, `hits`"));
        assert_eq!(message("a", &[]).as_deref(), Some("`a`: expected no parameters in the address"));
    }
}
