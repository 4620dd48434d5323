//! A reranker's folder: `reranker.json` says what it is, and the files of the model stand beside it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sporran_kilt::{Passage, Query, jsonl};
use sporran_transformers::{DeviceName, Precision, Truncation};

use crate::{
    Cosine, CosineOptions, CrossEncoder, CrossEncoderOptions, Error, Named, Place, Reranker, Result, TfIdf,
    TitleSimilarity, View,
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
    /// How weights are kept.
    pub precision: Precision,
    /// Where.
    pub device: DeviceName,
    /// Tokens of a batch, padding included, at most.
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
                truncation,
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

/// One addend of a sum of rerankers' scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Term {
    /// The number of what scores.
    pub reranker: usize,
    /// What it is asked, and what its scores become.
    pub view: View,
    /// What its scores count.
    pub weight: f32,
    /// Whether they are brought to mean 0 and deviation 1 among a query's passages first.
    pub standardised: bool,
}

/// The weighted sum of several rerankers' scores.
pub struct Combined {
    rerankers: Vec<Box<dyn Reranker>>,
    terms: Vec<Term>,
}

impl Combined {
    /// Sums up `terms`, each of which names one of `rerankers`.
    ///
    /// # Panics
    /// Where a term names a reranker that there is not.
    #[must_use]
    pub fn new(rerankers: Vec<Box<dyn Reranker>>, terms: Vec<Term>) -> Self {
        assert!(
            terms.iter().all(|term| term.reranker < rerankers.len()),
            "a term names one of the rerankers"
        );
        Self { rerankers, terms }
    }
}

/// Brings the scores of a query's passages to mean 0 and deviation 1; equal scores, which say nothing, to 0.
pub fn standardise(scores: &mut [f32]) {
    let count = scores.len().max(1) as f32;
    let mean = scores.iter().sum::<f32>() / count;
    let variance = scores.iter().map(|score| (score - mean).powi(2)).sum::<f32>() / count;
    let scale = if variance > 0.0 { 1.0 / variance.sqrt() } else { 0.0 };
    scores.iter_mut().for_each(|score| *score = (*score - mean) * scale);
}

impl Reranker for Combined {
    fn score(&self, query: &Query, passages: &[&Passage]) -> Result<Vec<f32>> {
        let mut sums = vec![0.0; passages.len()];
        for (at, reranker) in self.rerankers.iter().enumerate() {
            let terms = || self.terms.iter().filter(|term| term.reranker == at);
            let views: Vec<View> = terms().map(|term| term.view).collect();
            let scores = View::scores(&views, &**reranker, query, passages)?;
            for (term, mut scores) in terms().zip(scores) {
                if term.standardised {
                    standardise(&mut scores);
                }
                sums.iter_mut().zip(scores).for_each(|(sum, score)| *sum += term.weight * score);
            }
        }
        Ok(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PagePool;

    struct Fixed(Vec<f32>);

    impl Reranker for Fixed {
        fn score(&self, _: &Query, _: &[&Passage]) -> Result<Vec<f32>> {
            Ok(self.0.clone())
        }
    }

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
    fn scores_are_brought_to_one_scale_before_they_are_summed_where_that_is_asked_for() {
        let fixed = |scores: [f32; 3]| -> Box<dyn Reranker> { Box::new(Fixed(scores.into())) };
        let rerankers = [[1.0, 2.0, 3.0], [700.0, 500.0, 600.0], [4.0; 3], [0.0, 0.0, 2.0]].map(fixed);
        let term =
            |reranker, weight, standardised| Term { reranker, view: View::default(), weight, standardised };
        let mut terms = vec![term(0, 1.0, true), term(1, 0.5, true), term(2, 9.0, true), term(3, 0.5, false)];
        // All three are of one page, whose best is 2: the last reranker's scores count a second time.
        terms.push(Term {
            view: View { pool: Some(PagePool::Best), ..View::default() },
            ..term(3, 0.25, false)
        });
        let whole = Combined::new(rerankers.into(), terms);
        let (a, b, c) = (passage("a"), passage("b"), passage("c"));
        let scores = whole.score(&Query::of_text("q", "q"), &[&a, &b, &c]).unwrap();
        // Deviations sqrt(2/3) and 100 sqrt(2/3): (-1, 0, 1) and half of (1, -1, 0), over sqrt(2/3).
        let unit = 1.5f32.sqrt();
        for (score, expected) in scores.iter().zip([0.5 - 0.5 * unit, 0.5 - 0.5 * unit, unit + 1.5]) {
            assert!((score - expected).abs() < 1e-5, "{scores:?}");
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
