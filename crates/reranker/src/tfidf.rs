//! Similarity of words: the cosine of tf-idf vectors (Salton and Buckley 1988).

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::{Passage, Query, jsonl};

use crate::{Error, Reranker, Result, passage_text};

/// `kind = "tfidf"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TfIdfOptions {
    /// The folder that `sporran train` made.
    #[serde(rename = "model")]
    pub folder: PathBuf,
}

/// Tf-idf weights: the number of texts with each word.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TfIdf {
    texts: u64,
    frequencies: BTreeMap<String, u64>,
}

/// The words of a text: runs of letters and digits, in lower case.
fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_lowercase).collect()
}

/// The weights of a text's words, as a unit vector.
type Vector = BTreeMap<String, f64>;

impl TfIdf {
    /// Counts the texts with each word.
    pub fn fit<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut counts = Self::default();
        for text in texts {
            counts.texts += 1;
            let mut seen = words(text);
            seen.sort_unstable();
            seen.dedup();
            for word in seen {
                *counts.frequencies.entry(word).or_default() += 1;
            }
        }
        counts
    }

    /// Reads the file of [`save`](Self::save).
    ///
    /// # Errors
    /// Errors of reading the file, with line and field.
    pub fn load(path: &Path) -> Result<Self> {
        Ok(jsonl::read_json(path)?)
    }

    /// Writes the counts as JSON.
    ///
    /// # Errors
    /// Errors of writing the file. A failed write leaves no partial file.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut json =
            serde_json::to_vec_pretty(self).map_err(|source| Error::Json { path: path.into(), source })?;
        json.push(b'\n');
        Ok(jsonl::write(path, &json)?)
    }

    /// The smoothed inverse document frequency, plus 1. The smoothing adds a text that contains every word.
    fn weight(&self, word: &str) -> f64 {
        let seen = self.frequencies.get(word).copied().unwrap_or(0);
        ((1.0 + self.texts as f64) / (1.0 + seen as f64)).ln() + 1.0
    }

    fn vector(&self, text: &str) -> Vector {
        let mut vector = Vector::new();
        for word in words(text) {
            *vector.entry(word).or_default() += 1.0;
        }
        for (word, weight) in &mut vector {
            *weight *= self.weight(word);
        }
        let length = vector.values().map(|weight| weight * weight).sum::<f64>().sqrt();
        vector.values_mut().for_each(|weight| *weight /= length);
        vector
    }

    /// The cosine of the vectors of two texts, or 0 if one has no words.
    pub fn similarity(&self, one: &str, other: &str) -> f64 {
        product(&self.vector(one), &self.vector(other))
    }
}

fn product(one: &Vector, other: &Vector) -> f64 {
    one.iter().filter_map(|(word, weight)| Some(weight * other.get(word)?)).sum()
}

impl Reranker for TfIdf {
    fn score(&self, query: &Query, passages: &[&Passage]) -> Result<Vec<f32>> {
        let query = self.vector(&query.text);
        let score = |passage: &&Passage| product(&query, &self.vector(&passage_text(passage))) as f32;
        Ok(passages.iter().map(score).collect())
    }
}

/// The tf-idf similarity of the query and the title.
pub struct TitleSimilarity(TfIdf);

impl TitleSimilarity {
    /// Uses the weights of `counts`.
    #[must_use]
    pub fn new(counts: TfIdf) -> Self {
        Self(counts)
    }
}

impl Reranker for TitleSimilarity {
    fn score(&self, query: &Query, passages: &[&Passage]) -> Result<Vec<f32>> {
        let query = self.0.vector(&query.text);
        let score = |passage: &&Passage| product(&query, &self.0.vector(&passage.title)) as f32;
        Ok(passages.iter().map(score).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_similarity_is_the_cosine_of_weighted_counts() {
        let counts = TfIdf::fit(["a b", "a c", "a a d"]);
        // Weights: a ln(4/4) + 1 = 1, b and c ln(4/2) + 1.
        let rare = 2f64.ln() + 1.0;
        // (2a, b) with (a, c): 2 over the lengths.
        let expected = 2.0 / ((4.0 + rare * rare).sqrt() * (1.0 + rare * rare).sqrt());
        assert!((counts.similarity("A a, b!", "a c") - expected).abs() < 1e-12);
        assert!((counts.similarity("b x", "b x") - 1.0).abs() < 1e-12);
        assert_eq!(counts.similarity("b", "c"), 0.0);
        assert_eq!(counts.similarity("", "c"), 0.0);
    }

    #[test]
    fn counts_survive_a_round_trip() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        let counts = TfIdf::fit(["Ä b", "b"]);
        counts.save(&path).unwrap();
        assert_eq!(TfIdf::load(&path).unwrap(), counts);
        std::fs::write(&path, "{\"texts\": 1}").unwrap();
        assert!(TfIdf::load(&path).unwrap_err().to_string().contains("frequencies"));
    }
}
