//! The options of a source that concern its files.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A value, or a list of values. One value is written as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneOrMore<T>(Vec<T>);

impl<T> OneOrMore<T> {
    /// The values.
    pub fn all(&self) -> &[T] {
        &self.0
    }

    /// The value if there is only one.
    pub fn single(&self) -> Option<&T> {
        match &self.0[..] {
            [only] => Some(only),
            _ => None,
        }
    }
}

impl<T> From<Vec<T>> for OneOrMore<T> {
    fn from(all: Vec<T>) -> Self {
        Self(all)
    }
}

impl From<PathBuf> for OneOrMore<PathBuf> {
    fn from(path: PathBuf) -> Self {
        Self(vec![path])
    }
}

impl From<&Path> for OneOrMore<PathBuf> {
    fn from(path: &Path) -> Self {
        Self(vec![path.to_owned()])
    }
}

impl From<&str> for OneOrMore<String> {
    fn from(text: &str) -> Self {
        Self(vec![text.to_owned()])
    }
}

impl<T: Serialize> Serialize for OneOrMore<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0[..] {
            [only] => only.serialize(serializer),
            all => all.serialize(serializer),
        }
    }
}

impl<'de, T: Deserialize<'de> + From<String>> Deserialize<'de> for OneOrMore<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de> + From<String>> de::Visitor<'de> for Visitor<T> {
            type Value = OneOrMore<T>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string or a list of strings")
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(OneOrMore(vec![T::from(text.to_owned())]))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(item) = list.next_element()? {
                    all.push(item);
                }
                if all.is_empty() {
                    return Err(de::Error::invalid_length(0, &"at least one string"));
                }
                Ok(OneOrMore(all))
            }
        }
        deserializer.deserialize_any(Visitor(std::marker::PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMore<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMore{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (one, more) = (generator.subschema_for::<T>(), generator.subschema_for::<Vec<T>>());
        schemars::json_schema!({ "anyOf": [one, more] })
    }
}

/// `[source.columns]`: the columns of tables (CSV, TSV, Parquet), or the fields of JSON lines, that make a page.
///
/// Without this table the text of a row is `name: value` of every column, and short values are its metadata. KILT's pages,
/// the layouts of `convert files` and DPR's `psgs_w100.tsv` need no table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Columns {
    /// The unique id of a row. Without it the id is the file and the number of the row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The title of a row. Without it the title is the file's name and the number of the row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The text: a column, or a list of columns, each of which is a paragraph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<OneOrMore<String>>,
    /// The metadata: a column or a list of columns. Filters can name them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<OneOrMore<String>>,
}

/// The options of [`list`](crate::list()) and [`Collection`](crate::Collection).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Options {
    /// Files and folders.
    pub paths: Vec<PathBuf>,
    /// Globs of the files of folders to read; empty for all.
    pub include: Vec<String>,
    /// Globs of the files and folders that are not read.
    pub exclude: Vec<String>,
    /// The name of files with globs of files that are not read, in the syntax of `.gitignore`.
    pub ignore_file: String,
    /// The columns of tables.
    pub columns: Option<Columns>,
    /// Folders that are no part of the source, such as that of the indexes.
    #[serde(skip)]
    pub skip: Vec<PathBuf>,
}
