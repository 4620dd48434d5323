//! The folder of a reranker: `reranker.json` with its kind and settings, and the files of its model.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sporran_kilt::jsonl;
use sporran_transformers::{DeviceName, Precision, Truncation};

use crate::{
    Combined, Cosine, CosineOptions, CrossEncoder, CrossEncoderOptions, Error, PositionPrior, QueryView,
    Reranker, Result, Term, TfIdf, TitleMatch, TitleSimilarity,
};

/// The file with the kind and the settings of a reranker.
pub const RERANKER: &str = "reranker.json";
/// The file with the word counts of a tf-idf reranker.
pub const COUNTS: &str = "tfidf.json";

/// The content of `reranker.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Saved {
    /// Word counts in `tfidf.json`.
    #[serde(rename = "tfidf", rename_all = "kebab-case")]
    TfIdf {
        /// Whether the query is compared with the titles of passages only.
        #[serde(default)]
        titles_only: bool,
    },
    /// The cosine of an encoder's vectors.
    #[serde(rename_all = "kebab-case")]
    Cosine {
        /// The largest number of tokens of a text.
        max_tokens: Option<usize>,
    },
    /// A cross-encoder.
    #[serde(rename_all = "kebab-case")]
    CrossEncoder {
        /// The largest number of tokens of a pair.
        max_tokens: Option<usize>,
        /// The truncation of longer pairs.
        truncation: Truncation,
    },
    /// Whether the query contains a passage's title.
    #[serde(rename = "named")]
    TitleMatch,
    /// The position of a passage among the passages of its page.
    #[serde(rename = "place")]
    PositionPrior,
    /// A weighted sum of rerankers.
    Combined {
        /// The terms of the sum.
        parts: Vec<SavedPart>,
    },
}

/// One term of a weighted sum of rerankers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedPart {
    /// The reranker's folder, relative to that of the sum. Parts with the same folder share one loaded reranker.
    pub folder: PathBuf,
    /// The query text and the pooling.
    #[serde(default)]
    pub view: QueryView,
    /// The weight of the scores.
    pub weight: f32,
    /// Whether the scores are first standardised to mean 0 and standard deviation 1 over the query's passages.
    pub standardised: bool,
}

/// The settings for the models of a folder.
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
    /// Reads `reranker.json` in `folder`. A folder without this file is a cross-encoder in the Hugging Face layout.
    ///
    /// # Errors
    /// Errors of reading the file, with line and field.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(RERANKER);
        if path.is_file() {
            return Ok(jsonl::read_json(path)?);
        }
        Ok(Self::CrossEncoder { max_tokens: None, truncation: Truncation::LongestFirst })
    }

    /// The name of the kind in `reranker.json` and in a config.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::TfIdf { .. } => "tfidf",
            Self::Cosine { .. } => "cosine",
            Self::CrossEncoder { .. } => "cross-encoder",
            Self::TitleMatch => "named",
            Self::PositionPrior => "place",
            Self::Combined { .. } => "combined",
        }
    }

    /// Writes `reranker.json` into `folder`.
    ///
    /// # Errors
    /// Errors of writing the file.
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
/// Errors of [`Saved::read`] and of loading the models.
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
        Saved::TitleMatch => Box::new(TitleMatch),
        Saved::PositionPrior => Box::new(PositionPrior),
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

    #[test]
    fn a_saved_reranker_is_opened_by_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        let computing = Computing { precision: Precision::F32, device: DeviceName::Cpu, batch_tokens: 100 };
        let words = folder.path().join("words");
        std::fs::create_dir(&words).unwrap();
        Saved::TfIdf { titles_only: false }.write(&words).unwrap();
        TfIdf::fit(["tea", "tea and milk"]).save(&words.join(COUNTS)).unwrap();
        let parts = vec![SavedPart {
            folder: "words".into(),
            view: QueryView::default(),
            weight: 2.0,
            standardised: true,
        }];
        let saved = Saved::Combined { parts };
        saved.write(folder.path()).unwrap();
        assert_eq!(Saved::read(folder.path()).unwrap(), saved);
        let reranker = open(folder.path(), computing).unwrap();
        let (a, b) = (Passage::of_text("milk"), Passage::of_text("sea"));
        let scores = reranker.score(&Query::of_text("q", "milk"), &[&a, &b]).unwrap();
        assert!(scores[0] > scores[1]);
        std::fs::write(folder.path().join(RERANKER), r#"{"kind": "tf-idf"}"#).unwrap();
        let message = open(folder.path(), computing).err().unwrap().to_string();
        assert!(message.contains("tf-idf") && message.contains("tfidf"), "{message}");
    }
}
