//! Metadata of passages: the fields of their record that KILT does not define, and KILT's `categories`.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

use crate::passage::FilePlace;

/// A value of a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Field {
    /// A string.
    Text(String),
    /// A number.
    Number(Number),
    /// `true` or `false`.
    Boolean(bool),
    /// A list of strings, at least one.
    List(Vec<String>),
}

/// The type of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FieldKind {
    /// Strings.
    Text,
    /// Numbers.
    Number,
    /// `true` and `false`.
    Boolean,
    /// Lists of strings.
    List,
}

impl fmt::Display for FieldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "strings",
            Self::Number => "numbers",
            Self::Boolean => "`true` or `false`",
            Self::List => "lists of strings",
        })
    }
}

impl Field {
    /// The type of the value.
    pub fn kind(&self) -> FieldKind {
        match self {
            Self::Text(_) => FieldKind::Text,
            Self::Number(_) => FieldKind::Number,
            Self::Boolean(_) => FieldKind::Boolean,
            Self::List(_) => FieldKind::List,
        }
    }

    /// A JSON value as a field; `None` for null, objects, empty lists and lists of other values than strings.
    pub fn of(value: Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self::Text(text)),
            Value::Number(number) => Some(Self::Number(number)),
            Value::Bool(value) => Some(Self::Boolean(value)),
            Value::Array(items) if !items.is_empty() => {
                let text = |item| match item {
                    Value::String(text) => Some(text),
                    _ => None,
                };
                items.into_iter().map(text).collect::<Option<_>>().map(Self::List)
            }
            Value::Array(_) | Value::Object(_) | Value::Null => None,
        }
    }

    /// The items of a text that commas join, as in KILT's `categories`; `None` if there are none.
    pub(crate) fn of_commas(text: &str) -> Option<Self> {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        let items: Vec<String> = items.map(str::to_owned).collect();
        (!items.is_empty()).then_some(Self::List(items))
    }

    /// The value as a text.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value as a whole number of at least 0.
    fn count(&self) -> Option<u64> {
        match self {
            Self::Number(number) => number.as_u64(),
            _ => None,
        }
    }
}

/// A value as it is read from a record. It skips what is no field without keeping it in memory.
pub(crate) struct Readable(pub(crate) Option<Field>);

impl<'de> Deserialize<'de> for Readable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Readable;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_bool<E>(self, value: bool) -> Result<Readable, E> {
                Ok(Readable(Some(Field::Boolean(value))))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Readable, E> {
                Ok(Readable(Some(Field::Number(value.into()))))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Readable, E> {
                Ok(Readable(Some(Field::Number(value.into()))))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Readable, E> {
                Ok(Readable(Number::from_f64(value).map(Field::Number)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Readable, E> {
                Ok(Readable(Some(Field::Text(text.to_owned()))))
            }
            fn visit_string<E>(self, text: String) -> Result<Readable, E> {
                Ok(Readable(Some(Field::Text(text))))
            }
            fn visit_unit<E>(self) -> Result<Readable, E> {
                Ok(Readable(None))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Readable, A::Error> {
                let mut items = Some(Vec::new());
                while let Some(Readable(item)) = list.next_element()? {
                    match (&mut items, item) {
                        (Some(items), Some(Field::Text(text))) => items.push(text),
                        _ => items = None,
                    }
                }
                Ok(Readable(items.filter(|items| !items.is_empty()).map(Field::List)))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Readable, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Readable(None))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// The fields of a record, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Metadata(BTreeMap<String, Field>);

impl Metadata {
    /// The fields of a JSON object. Values that are no [`Field`] are omitted.
    pub fn of(object: Map<String, Value>) -> Self {
        Self(object.into_iter().filter_map(|(key, value)| Some((key, Field::of(value)?))).collect())
    }

    /// The fields of a JSON object as text; `None` if it is not one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().map(Self::of)
    }

    /// The value of a field.
    pub fn get(&self, key: &str) -> Option<&Field> {
        self.0.get(key)
    }

    /// The fields by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Field)> {
        self.0.iter().map(|(key, field)| (key.as_str(), field))
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a field, or replaces its value.
    pub fn insert(&mut self, key: impl Into<String>, field: Field) {
        self.0.insert(key.into(), field);
    }

    /// Adds the fields of `other` that are not here.
    pub(crate) fn add(&mut self, other: Self) {
        for (key, field) in other.0 {
            self.0.entry(key).or_insert(field);
        }
    }

    /// The section that a record names: its field `section`.
    pub fn section(&self) -> Option<&str> {
        self.get("section")?.text()
    }

    /// The place that a record names: its fields `file`, `line`, `row` and `page`. A field of another type is not part of it.
    /// `row` is a place of a record with a file only; other records have fields of this name, too.
    pub fn file(&self) -> FilePlace {
        let path = self.get("file").and_then(Field::text).map(str::to_owned);
        FilePlace {
            row: self.get("row").and_then(Field::count).filter(|_| path.is_some()),
            path,
            line: self.get("line").and_then(Field::count),
            page: self.get("page").and_then(Field::count),
        }
    }

    /// Takes out the fields that are the place and the section of a record.
    pub(crate) fn take_place(&mut self) -> (FilePlace, Option<String>) {
        let (file, section) = (self.file(), self.section().map(str::to_owned));
        let taken = [
            ("file", file.path.is_some()),
            ("line", file.line.is_some()),
            ("row", file.row.is_some()),
            ("page", file.page.is_some()),
        ];
        for (key, _) in taken.into_iter().chain([("section", section.is_some())]).filter(|(_, is)| *is) {
            self.0.remove(key);
        }
        (file, section)
    }
}

impl From<Metadata> for Map<String, Value> {
    fn from(metadata: Metadata) -> Self {
        let value = |field| match field {
            Field::Text(text) => Value::String(text),
            Field::Number(number) => Value::Number(number),
            Field::Boolean(value) => Value::Bool(value),
            Field::List(items) => items.into_iter().map(Value::String).collect(),
        };
        metadata.0.into_iter().map(|(key, field)| (key, value(field))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: &str = r#"{"a":"x","b":-3,"c":2.5,"d":true,"e":["p","q"],
        "f":null,"g":{"h":1},"i":[],"j":["p",1],"k":[["p"]],"l":[{"m":"n"}]}"#;

    fn expected() -> Metadata {
        let list = |items: [&str; 2]| Field::List(items.map(str::to_owned).to_vec());
        let mut expected = Metadata::default();
        expected.insert("a", Field::Text("x".into()));
        expected.insert("b", Field::Number((-3).into()));
        expected.insert("c", Field::Number(Number::from_f64(2.5).unwrap()));
        expected.insert("d", Field::Boolean(true));
        expected.insert("e", list(["p", "q"]));
        expected
    }

    #[test]
    fn strings_numbers_booleans_and_lists_of_strings_are_fields() {
        let object: Map<String, Value> = serde_json::from_str(VALUES).unwrap();
        let metadata = Metadata::of(object);
        assert_eq!(metadata, expected());
        // The streaming reader keeps the same values.
        let read: BTreeMap<String, Readable> = serde_json::from_str(VALUES).unwrap();
        let kept = read.into_iter().filter_map(|(key, value)| Some((key, value.0?)));
        assert_eq!(Metadata(kept.collect()), expected());
        let text = serde_json::to_string(&metadata).unwrap();
        assert_eq!(text, r#"{"a":"x","b":-3,"c":2.5,"d":true,"e":["p","q"]}"#);
        assert_eq!(Metadata::parse(&text), Some(expected()));
        assert_eq!(Metadata::parse("[1]"), None);
        assert_eq!(Map::from(metadata).len(), 5);
    }

    #[test]
    fn a_place_has_only_fields_of_its_types() {
        let of = |text: &str| {
            let mut metadata = Metadata::parse(text).unwrap();
            let (file, section) = metadata.take_place();
            (file, section, serde_json::to_string(&metadata).unwrap())
        };
        let (file, section, rest) = of(r#"{"file":"a.md","line":12,"page":3,"section":"Tea","lang":"en"}"#);
        assert_eq!(file, FilePlace { path: Some("a.md".into()), line: Some(12), row: None, page: Some(3) });
        assert_eq!((section.as_deref(), rest.as_str()), (Some("Tea"), r#"{"lang":"en"}"#));
        let (file, _, rest) = of(r#"{"file":"t.parquet","row":4}"#);
        assert_eq!((file.to_string().as_str(), rest.as_str()), ("t.parquet, row 4", "{}"));
        // Without a file, a row is a field as any other.
        assert_eq!(of(r#"{"row":4}"#).0, FilePlace::default());
        let (file, section, rest) = of(r#"{"file":7,"line":-1,"page":"iv","section":true}"#);
        assert_eq!((file, section), (FilePlace::default(), None));
        assert_eq!(rest, r#"{"file":7,"line":-1,"page":"iv","section":true}"#);
    }

    #[test]
    fn commas_join_categories() {
        let list = Field::List(vec!["Tea".into(), "Hot drinks".into()]);
        assert_eq!(Field::of_commas("Tea, Hot drinks,"), Some(list));
        assert_eq!(Field::of_commas(" , "), None);
    }
}
