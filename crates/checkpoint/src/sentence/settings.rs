//! The vector settings of a folder of sentence-transformers: `config_sentence_transformers.json`.

use std::{collections::BTreeMap, fmt, path::Path};

use serde::Deserialize;
use serde_json::Value;

use super::modules::MODULES;
use crate::{
    error::{Error, Result},
    json::{self, parse},
};

/// How near two vectors are, by the names of sentence-transformers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VectorSimilarity {
    /// The inner product of both at a length of 1.
    Cosine,
    /// The inner product.
    Dot,
    /// The Euclidean distance, negative.
    Euclidean,
    /// The sum of absolute differences, negative.
    Manhattan,
}

impl VectorSimilarity {
    const ALL: [Self; 4] = [Self::Cosine, Self::Dot, Self::Euclidean, Self::Manhattan];

    /// How near `a` and `b` are; a vector of zeros has the cosine 0 to every other.
    ///
    /// # Panics
    /// Where the two have different widths.
    #[must_use]
    pub fn of(self, a: &[f32], b: &[f32]) -> f32 {
        assert_eq!(a.len(), b.len(), "vectors of one width");
        let pairs = || a.iter().zip(b);
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        match self {
            Self::Cosine => {
                let length = (dot(a, a) * dot(b, b)).sqrt();
                if length > 0.0 { dot(a, b) / length } else { 0.0 }
            }
            Self::Dot => dot(a, b),
            Self::Euclidean => -pairs().map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt(),
            Self::Manhattan => -pairs().map(|(a, b)| (a - b).abs()).sum::<f32>(),
        }
    }
}

impl fmt::Display for VectorSimilarity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cosine => "cosine",
            Self::Dot => "dot",
            Self::Euclidean => "euclidean",
            Self::Manhattan => "manhattan",
        })
    }
}

/// The role of a text. The folder may have a prompt for each role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It asks.
    Query,
    /// It is searched.
    Passage,
}

impl Role {
    /// The name of the role's prompt, one of [`BUILT_IN`].
    fn prompt_name(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Passage => "document",
        }
    }
}

/// The prompts that every folder has, as in sentence-transformers; a prompt that the file does not set is empty.
const BUILT_IN: [&str; 2] = ["query", "document"];

/// The vector settings of a folder of sentence-transformers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentenceSettings {
    /// The prompts by name; those of [`BUILT_IN`] are always there.
    prompts: BTreeMap<String, String>,
    default_prompt_name: Option<String>,
    /// The similarity of two vectors: cosine if the folder does not set it, as in sentence-transformers.
    pub similarity: VectorSimilarity,
    /// How many values of a vector are kept, from the first on.
    pub truncate_dim: Option<usize>,
    /// The class of sentence-transformers that the folder was saved from.
    pub(super) model_type: Option<String>,
    /// A cross-encoder's activation, by its path in Python.
    pub(super) activation: Option<String>,
}

impl Default for SentenceSettings {
    /// The settings of a folder without the file.
    fn default() -> Self {
        Self {
            prompts: BUILT_IN.map(|name| (name.to_owned(), String::new())).into(),
            default_prompt_name: None,
            similarity: VectorSimilarity::Cosine,
            truncate_dim: None,
            model_type: None,
            activation: None,
        }
    }
}

/// The fields of the file; null means unset.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Fields {
    prompts: Option<BTreeMap<String, Option<String>>>,
    default_prompt_name: Option<String>,
    similarity_fn_name: Option<String>,
    truncate_dim: Option<Value>,
    model_type: Option<String>,
    activation_fn: Option<String>,
}

impl SentenceSettings {
    /// The name of the file.
    pub(super) const FILE: &str = "config_sentence_transformers.json";

    /// Reads the file of `folder`; a folder without one has the defaults.
    ///
    /// # Errors
    /// [`Error::Json`], and [`Error::Config`] for a value that cannot be used.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(Self::FILE);
        let Some(text) = json::text(&path)? else { return Ok(Self::default()) };
        let fields: Fields = parse(&path, &text)?;
        let wrong = |field: &str, expected: &str, found: String| Error::Config {
            path: path.clone(),
            field: field.into(),
            expected: expected.into(),
            found,
        };
        let mut prompts = Self::default().prompts;
        let set = fields.prompts.unwrap_or_default().into_iter();
        prompts.extend(set.map(|(name, prompt)| (name, prompt.unwrap_or_default())));
        if let Some(name) = &fields.default_prompt_name
            && !prompts.contains_key(name)
        {
            let expected = format!("the name of one of the `prompts`: {}", listed(&prompts));
            return Err(wrong("default_prompt_name", &expected, format!("`{name}`")));
        }
        let similarity = match &fields.similarity_fn_name {
            None => VectorSimilarity::Cosine,
            Some(name) => VectorSimilarity::ALL
                .into_iter()
                .find(|known| known.to_string() == *name)
                .ok_or_else(|| {
                    let expected = "`cosine`, `dot`, `euclidean` or `manhattan`";
                    wrong("similarity_fn_name", expected, format!("`{name}`"))
                })?,
        };
        let truncate_dim = match &fields.truncate_dim {
            None => None,
            Some(value) => {
                let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
                Some(number.filter(|number| *number > 0).ok_or_else(|| {
                    wrong("truncate_dim", "a number of dimensions, at least 1", value.to_string())
                })?)
            }
        };
        Ok(Self {
            prompts,
            default_prompt_name: fields.default_prompt_name,
            similarity,
            truncate_dim,
            model_type: fields.model_type,
            activation: fields.activation_fn,
        })
    }

    /// Reads the file of a folder in the layout of sentence-transformers; `None` for another folder.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn of_layout(folder: &Path) -> Result<Option<Self>> {
        if folder.join(MODULES).is_file() { Self::open(folder).map(Some) } else { Ok(None) }
    }

    /// The prompt before a text of this role: the prompt `query` before a query, as in sentence-transformers'
    /// `encode_query`, and the prompt `document` before a passage, as in `encode_document`. It is empty if the folder
    /// does not set it. No prompt of another name and no default prompt replaces it.
    #[must_use]
    pub fn prompt(&self, role: Role) -> &str {
        self.prompts.get(role.prompt_name()).map_or("", String::as_str)
    }

    /// The prompt before a text without a role: the prompt that the folder names as its default, as in
    /// sentence-transformers' `encode`. It is empty where the folder names none.
    #[must_use]
    pub fn default_prompt(&self) -> &str {
        let name = self.default_prompt_name.as_ref();
        name.and_then(|name| self.prompts.get(name)).map_or("", String::as_str)
    }

    /// The prompt of this name. `query` and `document` are always there, and empty where the folder does not set them.
    ///
    /// # Errors
    /// [`Error::Options`] with the existing names.
    pub fn named_prompt(&self, name: &str) -> Result<&str> {
        self.prompts.get(name).map(String::as_str).ok_or_else(|| Error::Options {
            option: "prompt-name",
            expected: format!("one of the folder's prompts: {}", listed(&self.prompts)),
            found: format!("`{name}`"),
        })
    }
}

/// The names of the prompts, first those that every folder has.
fn listed(prompts: &BTreeMap<String, String>) -> String {
    let mut names: Vec<&str> = BUILT_IN.to_vec();
    names.extend(prompts.keys().map(String::as_str).filter(|name| !BUILT_IN.contains(name)));
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<SentenceSettings> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(SentenceSettings::FILE), text).unwrap();
        SentenceSettings::open(folder.path())
    }

    #[test]
    fn a_role_has_the_prompt_of_its_name_and_no_other() {
        for (text, query, passage, default) in [
            (r#"{"prompts": {"query": "q: ", "document": "d: "}}"#, "q: ", "d: ", ""),
            (r#"{"prompts": {"passage": "p: ", "corpus": "c: "}}"#, "", "", ""),
            (r#"{"prompts": {"document": "", "passage": "p: "}}"#, "", "", ""),
            // The default prompt precedes only texts without a role.
            (r#"{"prompts": {"query": null, "x": "x: "}, "default_prompt_name": "x"}"#, "", "", "x: "),
            (r#"{"prompts": {"passage": "p: "}, "default_prompt_name": "passage"}"#, "", "", "p: "),
            (r#"{"prompts": {"query": "q: "}, "default_prompt_name": "query"}"#, "q: ", "", "q: "),
            (r#"{"prompts": {"document": "d: "}, "default_prompt_name": "document"}"#, "", "d: ", "d: "),
            (r#"{"prompts": null, "default_prompt_name": null}"#, "", "", ""),
            (r#"{"default_prompt_name": "query"}"#, "", "", ""),
            ("{}", "", "", ""),
        ] {
            let settings = read(text).unwrap();
            let found =
                (settings.prompt(Role::Query), settings.prompt(Role::Passage), settings.default_prompt());
            assert_eq!(found, (query, passage, default), "{text}");
        }
    }

    #[test]
    fn prompts_are_found_by_their_names() {
        let settings = read(r#"{"prompts": {"query": "q: ", "sts": ""}}"#).unwrap();
        assert_eq!(settings.named_prompt("query").unwrap(), "q: ");
        assert_eq!(settings.named_prompt("sts").unwrap(), "");
        let error = settings.named_prompt("qury").unwrap_err().to_string();
        let names = "`query`, `document`, `sts`, found `qury`";
        assert!(error.contains("`prompt-name`") && error.contains(names), "{error}");
        // Without prompts of the folder's, these two are empty and every other name is unknown.
        let none = SentenceSettings::default();
        for name in BUILT_IN {
            assert_eq!(none.named_prompt(name).unwrap(), "");
        }
        let error = none.named_prompt("passage").unwrap_err().to_string();
        assert!(error.contains("`query`, `document`, found `passage`"), "{error}");
    }

    #[test]
    fn null_and_nothing_are_the_defaults_and_wrong_values_are_named() {
        let text = r#"{"similarity_fn_name": null, "truncate_dim": null, "model_type": null}"#;
        assert_eq!(read(text).unwrap(), SentenceSettings::default());
        assert_eq!(SentenceSettings::default().similarity, VectorSimilarity::Cosine);
        let set = read(r#"{"similarity_fn_name": "manhattan", "truncate_dim": 8}"#).unwrap();
        assert_eq!((set.similarity, set.truncate_dim), (VectorSimilarity::Manhattan, Some(8)));
        for (text, field) in [
            (r#"{"similarity_fn_name": "maxsim"}"#, "similarity_fn_name"),
            (r#"{"truncate_dim": 0}"#, "truncate_dim"),
            (r#"{"truncate_dim": -3}"#, "truncate_dim"),
            (r#"{"prompts": {"a": ""}, "default_prompt_name": "b"}"#, "default_prompt_name"),
            (r#"{"prompts": ["a"]}"#, "prompts"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(&format!("transformers.json: field `{field}`")), "{error}");
        }
    }

    #[test]
    fn similarities_are_those_of_their_definitions() {
        let (a, b) = ([3.0, 4.0], [4.0, 3.0]);
        let of = |similarity: VectorSimilarity| similarity.of(&a, &b);
        assert!((of(VectorSimilarity::Cosine) - 0.96).abs() < 1e-6);
        assert_eq!(of(VectorSimilarity::Dot), 24.0);
        assert!((of(VectorSimilarity::Euclidean) + 2.0f32.sqrt()).abs() < 1e-6);
        assert_eq!(of(VectorSimilarity::Manhattan), -2.0);
        assert_eq!(VectorSimilarity::Cosine.of(&[0.0, 0.0], &b), 0.0);
    }
}
