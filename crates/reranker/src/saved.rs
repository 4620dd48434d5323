//! A reranker's folder: `reranker.json` says what it is, and the files of the model stand beside it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sporran_kilt::jsonl;
use sporran_transformers::{DeviceName, Precision, Truncation};

use crate::{
    Combined, Cosine, CosineOptions, CrossEncoder, CrossEncoderOptions, Error, Named, Place, Reranker,
    Result, Term, TfIdf, TitleSimilarity, View,
};

/// The file that says what a folder holds.
pub const RERANKER: &str = "reranker.json";
/// The file of a tf-idf reranker's counts.
pub const COUNTS: &str = "tfidf.json";

/// What a folder holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Saved {
    /// Word counts in `tfidf.json`.
    #[serde(rename = "tfidf", rename_all = "kebab-case")]
    TfIdf {
        /// Whether only passages' titles are compared.
        #[serde(default)]
        titles_only: bool,
    },
    /// An encoder whose vectors are compared.
    #[serde(rename_all = "kebab-case")]
    Cosine {
        /// Tokens of a text, at most.
        max_tokens: Option<usize>,
    },
    /// A transformer that reads query and passage together.
    #[serde(rename_all = "kebab-case")]
    CrossEncoder {
        /// Tokens of a pair, at most.
        max_tokens: Option<usize>,
        /// What is cut of a pair that is too long.
        truncation: Truncation,
    },
    /// Whether the query names a passage's title.
    Named,
    /// Where a passage stands among its page's.
    Place,
    /// Several together.
    Combined {
        /// What is combined.
        parts: Vec<SavedPart>,
    },
}

/// A reranker among others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedPart {
    /// Its folder inside the whole's; parts of one folder share what it is asked.
    pub folder: PathBuf,
    /// What it is asked, and what its scores become.
    #[serde(default)]
    pub view: View,
    /// What its scores count.
    pub weight: f32,
    /// Whether its scores are brought to mean 0 and deviation 1 among a query's passages first.
    pub standardised: bool,
}

/// How the models of a folder compute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Computing {
    /// The data type of the weights.
    pub precision: Precision,
    /// The device.
    pub device: DeviceName,
    /// The largest number of tokens in a batch, padding included.
    pub batch_tokens: usize,
}

impl Saved {
    /// Reads the file of `folder`; a folder without one is a cross-encoder's, in the Hugging Face layout.
    ///
    /// # Errors
    /// What reading gives, with line and field.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(RERANKER);
        if path.is_file() {
            return Ok(jsonl::read_json(path)?);
        }
        Ok(Self::CrossEncoder { max_tokens: None, truncation: Truncation::LongestFirst })
    }

    /// The name of the kind, as `reranker.json` and a config have it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::TfIdf { .. } => "tfidf",
            Self::Cosine { .. } => "cosine",
            Self::CrossEncoder { .. } => "cross-encoder",
            Self::Named => "named",
            Self::Place => "place",
            Self::Combined { .. } => "combined",
        }
    }

    /// Writes the file into `folder`.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(RERANKER);
        let mut json =
            serde_json::to_vec_pretty(self).map_err(|source| Error::Json { path: path.clone(), source })?;
        json.push(b'\n');
        Ok(jsonl::write(path, &json)?)
    }
}

/// Loads the reranker of a folder.
///
/// # Errors
/// Those of [`Saved::read`] and of the models.
pub fn open(folder: &Path, computing: Computing) -> Result<Box<dyn Reranker>> {
    let Computing { precision, device, batch_tokens } = computing;
    Ok(match Saved::read(folder)? {
        Saved::TfIdf { titles_only: false } => Box::new(TfIdf::load(&folder.join(COUNTS))?),
        Saved::TfIdf { titles_only: true } => {
            Box::new(TitleSimilarity::new(TfIdf::load(&folder.join(COUNTS))?))
        }
        Saved::Cosine { max_tokens } => Box::new(Cosine::load(&CosineOptions {
            folder: folder.into(),
            max_tokens,
            precision,
            device,
            batch_tokens,
        })?),
        Saved::CrossEncoder { max_tokens, truncation } => {
            Box::new(CrossEncoder::load(&CrossEncoderOptions {
                max_tokens,
                truncation: Some(truncation),
                precision,
                device,
                batch_tokens,
                ..CrossEncoderOptions::new(folder.into())
            })?)
        }
        Saved::Named => Box::new(Named),
        Saved::Place => Box::new(Place),
        Saved::Combined { parts } => {
            let (mut names, mut rerankers, mut terms) = (Vec::new(), Vec::new(), Vec::new());
            for SavedPart { folder: name, view, weight, standardised } in parts {
                let known = names.iter().position(|known| *known == name);
                let reranker = known.unwrap_or(names.len());
                if known.is_none() {
                    rerankers.push(open(&folder.join(&name), computing)?);
                    names.push(name);
                }
                terms.push(Term { reranker, view, weight, standardised });
            }
            Box::new(Combined::new(rerankers, terms))
        }
    })
}

#[cfg(test)]
mod tests {
    use sporran_kilt::{Passage, Query};

    use super::*;

    fn passage(text: &str) -> Passage {
        Passage {
            id: sporran_kilt::PassageId(0),
            page_id: String::new(),
            title: String::new(),
            section: String::new(),
            text: text.into(),
            start_paragraph: 0,
            start_character: 0,
            end_paragraph: 0,
            end_character: 0,
        }
    }

    #[test]
    fn a_folder_says_what_it_holds() {
        let folder = tempfile::tempdir().unwrap();
        let computing = Computing { precision: Precision::F32, device: DeviceName::Cpu, batch_tokens: 100 };
        let words = folder.path().join("words");
        std::fs::create_dir(&words).unwrap();
        Saved::TfIdf { titles_only: false }.write(&words).unwrap();
        TfIdf::fit(["tea", "tea and milk"]).save(&words.join(COUNTS)).unwrap();
        let parts = vec![SavedPart {
            folder: "words".into(),
            view: View::default(),
            weight: 2.0,
            standardised: true,
        }];
        let saved = Saved::Combined { parts };
        saved.write(folder.path()).unwrap();
        assert_eq!(Saved::read(folder.path()).unwrap(), saved);
        let reranker = open(folder.path(), computing).unwrap();
        let (a, b) = (passage("milk"), passage("sea"));
        let scores = reranker.score(&Query::of_text("q", "milk"), &[&a, &b]).unwrap();
        assert!(scores[0] > scores[1]);
        std::fs::write(folder.path().join(RERANKER), r#"{"kind": "tf-idf"}"#).unwrap();
        let message = open(folder.path(), computing).err().unwrap().to_string();
        assert!(message.contains("tf-idf") && message.contains("tfidf"), "{message}");
    }
}
