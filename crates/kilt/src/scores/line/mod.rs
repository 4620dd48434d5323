//! The fields of a KILT record that scoring needs, borrowed from its line.

mod scan;

use std::{borrow::Cow, fmt, ops::Range, path::Path};

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use crate::{
    Error, Result,
    jsonl::{self, InputFile, parse, python::Strict},
};

/// The fields of a provenance item to read, in column order, and whether to read the input.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    names: Vec<String>,
    input: bool,
}

impl Fields {
    pub(super) fn new(input: bool) -> Self {
        Self { names: Vec::new(), input }
    }

    /// The column of a field, added if it is new.
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
    /// The value as part of a rank key. A null has a separate value there, as in the public scorer.
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
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'l, 'a> {
    values: &'l [Field<'a>],
    width: usize,
}

impl<'l, 'a> Rows<'l, 'a> {
    pub(super) fn iter(self) -> impl ExactSizeIterator<Item = &'l [Field<'a>]> {
        self.values.chunks_exact(self.width.max(1))
    }
}

/// One output. A null field counts as missing, but a null answer is an empty one.
#[derive(Debug, Default)]
struct Item<'a> {
    answer: Field<'a>,
    /// The range of its rows in the line's values.
    provenance: Option<Range<usize>>,
}

/// One output of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output<'l, 'a> {
    pub(super) answer: &'l Field<'a>,
    pub(super) provenance: Option<Rows<'l, 'a>>,
}

/// A gold or predicted record with reusable buffers.
#[derive(Debug, Default)]
pub(super) struct Line<'a> {
    id: Cow<'a, str>,
    pub(super) input: Option<Cow<'a, str>>,
    has_outputs: bool,
    outputs: Vec<Item<'a>>,
    /// The rows of all outputs.
    values: Vec<Field<'a>>,
    width: usize,
}

impl<'a> Line<'a> {
    /// The id that records are aligned by.
    pub(super) fn key(&self) -> &str {
        super::trim(&self.id)
    }

    /// The outputs, `None` without the field.
    pub(super) fn outputs<'l>(&'l self) -> Option<impl ExactSizeIterator<Item = Output<'l, 'a>> + Clone> {
        self.has_outputs.then(|| {
            self.outputs.iter().map(|item| Output {
                answer: &item.answer,
                provenance: item
                    .provenance
                    .clone()
                    .map(|range| Rows { values: &self.values[range], width: self.width }),
            })
        })
    }

    fn clear(&mut self, width: usize) {
        (self.id, self.input, self.has_outputs) = (Cow::Borrowed(""), None, false);
        self.outputs.clear();
        self.values.clear();
        self.width = width;
    }

    /// Reads a line and replaces the previous one.
    pub(super) fn read(
        &mut self,
        file: &InputFile,
        number: u64,
        bytes: &'a [u8],
        fields: &Fields,
    ) -> Result<()> {
        let text = jsonl::utf8(file, number, bytes)?;
        if scan::record(text, fields, self).is_some() {
            return Ok(());
        }
        let Err(error) = self.parse(file, number, text, fields) else { return Ok(()) };
        let strict = Strict::of(text).ok_or(error)?;
        let mut line = Line::default();
        line.parse(file, number, &strict.text, fields)?;
        file.replaced(strict.halves);
        *self = line.into_owned();
        Ok(())
    }

    /// The same with texts of its own.
    fn into_owned<'o>(self) -> Line<'o> {
        let own = |text: Cow<'a, str>| Cow::Owned(text.into_owned());
        let field = |field: Field<'a>| match field {
            Field::Missing => Field::Missing,
            Field::Null => Field::Null,
            Field::Text(text) => Field::Text(own(text)),
        };
        let outputs = self.outputs.into_iter();
        Line {
            id: own(self.id),
            input: self.input.map(own),
            has_outputs: self.has_outputs,
            outputs: outputs
                .map(|item| Item { answer: field(item.answer), provenance: item.provenance })
                .collect(),
            values: self.values.into_iter().map(field).collect(),
            width: self.width,
        }
    }

    /// The same with serde, which tracks the field's path for errors.
    fn parse(&mut self, path: &Path, number: u64, text: &'a str, fields: &Fields) -> Result<()> {
        let mut json = serde_json::Deserializer::from_str(text);
        let mut track = serde_path_to_error::Track::new();
        RecordSeed(fields, self)
            .deserialize(serde_path_to_error::Deserializer::new(&mut json, &mut track))
            .map_err(|error| Error::record(path, number, parse::field(&track.path()), parse::plain(&error)))?;
        json.end().map_err(|error| Error::record(path, number, ".", parse::plain(&error)))
    }
}

/// A string, borrowed unless it has escapes.
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

/// Declares a seed that reads an object into a line.
macro_rules! object_seed {
    ($seed:ident, $what:literal, |$fields:ident, $line:ident, $map:ident| $body:block) => {
        struct $seed<'f, 'l, 'a>(&'f Fields, &'l mut Line<'a>);

        impl<'de> DeserializeSeed<'de> for $seed<'_, '_, 'de> {
            type Value = ();
            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
                deserializer.deserialize_map(self)
            }
        }
        impl<'de> Visitor<'de> for $seed<'_, '_, 'de> {
            type Value = ();
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($what)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut $map: A) -> Result<(), A::Error> {
                let Self($fields, $line) = self;
                $body
            }
        }
    };
}

/// Declares a seed that reads an array of objects into a line, and returns whether it was an array rather
/// than null.
macro_rules! array_seed {
    ($seed:ident, $element:ident, $what:literal) => {
        struct $seed<'f, 'l, 'a>(&'f Fields, &'l mut Line<'a>);

        impl<'de> DeserializeSeed<'de> for $seed<'_, '_, 'de> {
            type Value = bool;
            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
                deserializer.deserialize_any(self)
            }
        }
        impl<'de> Visitor<'de> for $seed<'_, '_, 'de> {
            type Value = bool;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($what)
            }
            fn visit_unit<E>(self) -> Result<bool, E> {
                Ok(false)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<bool, A::Error> {
                while array.next_element_seed($element(self.0, self.1))?.is_some() {}
                Ok(true)
            }
        }
    };
}

object_seed!(RecordSeed, "a record", |fields, line, map| {
    line.clear(fields.names.len());
    let mut id = None;
    while let Some(Text(key)) = map.next_key()? {
        match &*key {
            "id" => id = Some(map.next_value::<Field<'de>>()?),
            "input" if fields.input => {
                line.input = map.next_value::<Option<Text<'de>>>()?.map(|Text(text)| text);
            }
            "output" => {
                // The last one of duplicate fields counts.
                line.outputs.clear();
                line.values.clear();
                line.has_outputs = map.next_value_seed(OutputsSeed(fields, line))?;
            }
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
    }
    line.id = match id {
        Some(Field::Text(id)) => id,
        Some(_) => return Err(A::Error::custom("field `id`: expected a string or an integer, found null")),
        None => return Err(A::Error::missing_field("id")),
    };
    Ok(())
});

array_seed!(OutputsSeed, OutputSeed, "an array of outputs");

object_seed!(OutputSeed, "an output", |fields, line, map| {
    let mut item = Item::default();
    while let Some(Text(key)) = map.next_key()? {
        match &*key {
            "answer" => item.answer = map.next_value()?,
            "provenance" => {
                let start = line.values.len();
                let there = map.next_value_seed(RowsSeed(fields, line))?;
                item.provenance = there.then_some(start..line.values.len());
            }
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
    }
    line.outputs.push(item);
    Ok(())
});

array_seed!(RowsSeed, RowSeed, "an array of provenance items");

object_seed!(RowSeed, "a provenance item", |fields, line, map| {
    let start = line.values.len();
    line.values.resize_with(start + fields.names.len(), Field::default);
    while let Some(Text(key)) = map.next_key()? {
        match fields.names.iter().position(|name| **name == *key) {
            Some(column) => line.values[start + column] = map.next_value()?,
            None => drop(map.next_value::<IgnoredAny>()?),
        }
    }
    Ok(())
});

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
        let mut line = Line::default();
        // The content of the previous line is gone.
        let other =
            br#"{"id": 1, "input": "r", "output": [{"answer": "x", "provenance": [{"section": "s"}]}]}"#;
        line.read(&InputFile::new("f"), 1, other, &fields()).unwrap();
        line.read(&InputFile::new("f"), 2, json, &fields()).unwrap();
        assert_eq!((line.key(), line.input.as_deref()), ("7", Some("q\n")));
        let outputs: Vec<Output<'_, '_>> = line.outputs().unwrap().collect();
        assert_eq!(outputs.len(), 2);
        assert_eq!(outputs[0].answer, &Field::Null);
        let rows = outputs[0].provenance.unwrap().iter();
        let rows: Vec<Vec<Option<&str>>> = rows.map(|row| row.iter().map(Field::key).collect()).collect();
        assert_eq!(rows, [[Some("12"), None], [None, Some("None")]]);
        assert!(outputs[1].provenance.is_none());
        line.read(&InputFile::new("f"), 3, br#"{"id": "", "output": null}"#, &fields()).unwrap();
        assert!(line.outputs().is_none() && line.input.is_none());
    }

    #[test]
    fn what_python_adds_to_json_is_read() {
        let json = br#"{"id": "a\ud83d", "meta": NaN, "output": [{"answer": "x\udc00", "meta": {"score": -Infinity}, "provenance": [{"wikipedia_id": "1", "score": NaN}]}]}"#;
        let file = InputFile::new("f");
        let mut line = Line::default();
        line.read(&file, 1, json, &fields()).unwrap();
        assert_eq!((line.key(), file.halves()), ("a\u{FFFD}", 2));
        let output = line.outputs().unwrap().next().unwrap();
        assert_eq!(output.answer.text(), Some("x\u{FFFD}"));
        assert_eq!(output.provenance.unwrap().iter().next().unwrap()[0].text(), Some("1"));
        assert!(line.read(&file, 1, br#"{"id": 1, "output": NaN"#, &fields()).is_err());
    }

    #[test]
    fn a_wrong_value_is_named_by_its_path() {
        let cases: [(&[u8], &str); 5] = [
            (
                br#"{"id":1,"output":[{"provenance":[{},{"section":1.5}]}]}"#,
                "output[0].provenance[1].section",
            ),
            (br#"{"id":1,"output":[{"answer":["x"]}]}"#, "expected a string, an integer or null"),
            (br#"{"output":[]}"#, "missing field `id`"),
            (br#"{"id":1} 2"#, "not JSON: expected the end after the value"),
            (br#"{"id":1, "#, "not JSON: expected a value, found the end of the text"),
        ];
        for (json, expected) in cases {
            let error = Line::default().read(&InputFile::new("f.jsonl"), 3, json, &fields()).unwrap_err();
            let message = error.to_string();
            assert!(message.contains("f.jsonl:3") && message.contains(expected), "{message}");
        }
    }
}
