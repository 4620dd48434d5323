//! The few fields of a KILT record that scoring needs, borrowed from its line.

use std::{borrow::Cow, fmt, path::Path};

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use crate::{Error, Result, jsonl};

/// Which fields of a provenance item are read, in the order of their columns, and whether the input is.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    names: Vec<String>,
    input: bool,
}

impl Fields {
    pub(super) fn new(input: bool) -> Self {
        Self { names: Vec::new(), input }
    }

    /// The column of a field, added where it is new.
    pub(super) fn column(&mut self, name: &str) -> usize {
        self.names.iter().position(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        })
    }
}

/// A field of a provenance item.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Field<'a> {
    #[default]
    Missing,
    Null,
    Text(Cow<'a, str>),
}

impl Field<'_> {
    /// The value as part of a rank key. A null is a value of its own there, as it is for the public scorer.
    pub(super) fn key(&self) -> Option<&str> {
        match self {
            Self::Missing => None,
            Self::Null => Some("None"),
            Self::Text(text) => Some(super::trim(text)),
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Missing | Self::Null => None,
        }
    }
}

/// The provenance items of one output, a row of fields each.
#[derive(Debug, Default)]
pub(super) struct Rows<'a> {
    values: Vec<Field<'a>>,
    width: usize,
}

impl<'a> Rows<'a> {
    pub(super) fn iter(&self) -> impl Iterator<Item = &[Field<'a>]> {
        self.values.chunks_exact(self.width.max(1))
    }
}

/// One output; a field that is null counts as left out, except that a null answer is an empty one.
#[derive(Debug, Default)]
pub(super) struct Output<'a> {
    pub(super) answer: Field<'a>,
    pub(super) provenance: Option<Rows<'a>>,
}

/// A gold or predicted record.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) id: Cow<'a, str>,
    pub(super) input: Option<Cow<'a, str>>,
    pub(super) outputs: Option<Vec<Output<'a>>>,
}

impl Line<'_> {
    /// The id that records are aligned by.
    pub(super) fn key(&self) -> &str {
        super::trim(&self.id)
    }
}

/// Reads a line.
pub(super) fn parse<'a>(path: &Path, number: u64, bytes: &'a [u8], fields: &Fields) -> Result<Line<'a>> {
    let text = jsonl::utf8(path, number, bytes)?;
    let mut json = serde_json::Deserializer::from_str(text);
    let fast = LineSeed(fields).deserialize(&mut json).and_then(|line| json.end().map(|()| line));
    // Only a failure pays for following the path of the field.
    fast.or_else(|_| {
        let mut json = serde_json::Deserializer::from_str(text);
        let mut track = serde_path_to_error::Track::new();
        let line = LineSeed(fields)
            .deserialize(serde_path_to_error::Deserializer::new(&mut json, &mut track))
            .map_err(|error| Error::record(path, number, track.path().to_string(), error.to_string()))?;
        json.end().map_err(|error| Error::record(path, number, ".", error.to_string()))?;
        Ok(line)
    })
}

/// A string, borrowed where it has no escapes.
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Strings;
        impl<'de> Visitor<'de> for Strings {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Strings)
    }
}

impl<'de> Deserialize<'de> for Field<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;
        impl<'de> Visitor<'de> for Scalar {
            type Value = Field<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, an integer or null")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Field::Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Field::Text(Cow::Owned(text.to_owned())))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
                Ok(Field::Text(Cow::Owned(number.to_string())))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
                Ok(Field::Text(Cow::Owned(number.to_string())))
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Field::Null)
            }
        }
        deserializer.deserialize_any(Scalar)
    }
}

/// Declares a seed that visits a JSON object or, with `null`, an optional one.
macro_rules! object_seed {
    ($seed:ident, $value:ty, $what:literal, |$self:ident, $map:ident| $body:block) => {
        impl<'de> DeserializeSeed<'de> for $seed<'_> {
            type Value = $value;
            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
                deserializer.deserialize_map(self)
            }
        }
        impl<'de> Visitor<'de> for $seed<'_> {
            type Value = $value;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($what)
            }
            fn visit_map<A: MapAccess<'de>>($self, mut $map: A) -> Result<Self::Value, A::Error> $body
        }
    };
}

/// Declares a seed that visits an array or null.
macro_rules! array_seed {
    ($seed:ident, $value:ty, $what:literal, |$self:ident, $array:ident| $body:block) => {
        impl<'de> DeserializeSeed<'de> for $seed<'_> {
            type Value = Option<$value>;
            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
                deserializer.deserialize_any(self)
            }
        }
        impl<'de> Visitor<'de> for $seed<'_> {
            type Value = Option<$value>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($what)
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(None)
            }
            fn visit_seq<A: SeqAccess<'de>>($self, mut $array: A) -> Result<Self::Value, A::Error> $body
        }
    };
}

struct LineSeed<'f>(&'f Fields);

object_seed!(LineSeed, Line<'de>, "a record", |self, map| {
    let (mut id, mut input, mut outputs) = (None, None, None);
    while let Some(Text(key)) = map.next_key()? {
        match &*key {
            "id" => id = Some(map.next_value::<Field<'de>>()?),
            "input" if self.0.input => input = map.next_value::<Option<Text<'de>>>()?,
            "output" => outputs = map.next_value_seed(OutputsSeed(self.0))?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
    }
    let id = match id {
        Some(Field::Text(id)) => id,
        Some(_) => return Err(A::Error::custom("field `id`: expected a string or an integer, found null")),
        None => return Err(A::Error::missing_field("id")),
    };
    Ok(Line { id, input: input.map(|Text(text)| text), outputs })
});

struct OutputsSeed<'f>(&'f Fields);

array_seed!(OutputsSeed, Vec<Output<'de>>, "an array of outputs", |self, array| {
    let mut outputs = Vec::with_capacity(1);
    while let Some(output) = array.next_element_seed(OutputSeed(self.0))? {
        outputs.push(output);
    }
    Ok(Some(outputs))
});

struct OutputSeed<'f>(&'f Fields);

object_seed!(OutputSeed, Output<'de>, "an output", |self, map| {
    let mut output = Output::default();
    while let Some(Text(key)) = map.next_key()? {
        match &*key {
            "answer" => output.answer = map.next_value()?,
            "provenance" => output.provenance = map.next_value_seed(RowsSeed(self.0))?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
    }
    Ok(output)
});

struct RowsSeed<'f>(&'f Fields);

array_seed!(RowsSeed, Rows<'de>, "an array of provenance items", |self, array| {
    let width = self.0.names.len();
    let mut rows = Rows { values: Vec::with_capacity(10 * width), width };
    while array.next_element_seed(RowSeed { fields: self.0, rows: &mut rows })?.is_some() {}
    Ok(Some(rows))
});

struct RowSeed<'f, 'r, 'de> {
    fields: &'f Fields,
    rows: &'r mut Rows<'de>,
}

impl<'de> DeserializeSeed<'de> for RowSeed<'_, '_, 'de> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RowSeed<'_, '_, 'de> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a provenance item")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let start = self.rows.values.len();
        self.rows.values.resize_with(start + self.fields.names.len(), Field::default);
        while let Some(Text(key)) = map.next_key()? {
            match self.fields.names.iter().position(|name| **name == *key) {
                Some(column) => self.rows.values[start + column] = map.next_value()?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Fields {
        let mut fields = Fields::new(true);
        fields.column("wikipedia_id");
        fields.column("section");
        fields
    }

    #[test]
    fn only_the_named_fields_are_read() {
        let json = br#"{"id": 7, "x": [1], "input": "q\n", "output": [{"answer": null, "provenance": [{"title": {}, "wikipedia_id": 12}, {"section": null}]}, {"answer": "b"}]}"#;
        let line = parse(Path::new("f"), 1, json, &fields()).unwrap();
        assert_eq!((line.key(), line.input.as_deref()), ("7", Some("q\n")));
        let outputs = line.outputs.unwrap();
        assert_eq!(outputs[0].answer, Field::Null);
        let rows: Vec<Vec<Option<&str>>> = outputs[0]
            .provenance
            .as_ref()
            .unwrap()
            .iter()
            .map(|row| row.iter().map(Field::key).collect())
            .collect();
        assert_eq!(rows, [[Some("12"), None], [None, Some("None")]]);
        assert!(outputs[1].provenance.is_none());
    }

    #[test]
    fn a_wrong_value_is_named_by_its_path() {
        let cases: [(&[u8], &str); 4] = [
            (
                br#"{"id":1,"output":[{"provenance":[{},{"section":1.5}]}]}"#,
                "output[0].provenance[1].section",
            ),
            (br#"{"id":1,"output":[{"answer":["x"]}]}"#, "expected a string, an integer or null"),
            (br#"{"output":[]}"#, "missing field `id`"),
            (br#"{"id":1} 2"#, "trailing"),
        ];
        for (json, expected) in cases {
            let message = parse(Path::new("f.jsonl"), 3, json, &fields()).unwrap_err().to_string();
            assert!(message.contains("f.jsonl:3") && message.contains(expected), "{message}");
        }
    }
}
