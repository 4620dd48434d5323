//! A tagger's folder: `tagger.json` says what it is, and the weights stand beside it.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sporran_kilt::jsonl;
use sporran_transformers::LstmOptions;

use super::WordFeatures;
use crate::{Error, Result};

/// The file that says what a folder holds.
pub(super) const FILE: &str = "tagger.json";

/// What a folder holds beside `model.safetensors`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum SavedTagger {
    /// An encoder in the Hugging Face layout, with the field's weights among its own.
    #[serde(rename_all = "kebab-case")]
    EncoderCrf {
        /// The names of the labels in their order.
        labels: Vec<String>,
        /// Tokens of a window, at most.
        max_tokens: usize,
        /// Whether token types tell it of capitals.
        marks_case: bool,
    },
    /// A BiLSTM over hashed embeddings.
    #[serde(rename_all = "kebab-case")]
    BilstmCrf {
        /// The names of the labels in their order.
        labels: Vec<String>,
        /// What it reads of words.
        features: WordFeatures,
        /// The shape of the LSTM.
        lstm: LstmOptions,
    },
}

impl SavedTagger {
    /// Reads the file of `folder`.
    ///
    /// # Errors
    /// What reading gives, with the field; [`Error::Labels`] for labels that are not those of this program.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        let saved: Self = jsonl::read_json(&path)?;
        let labels = match &saved {
            Self::EncoderCrf { labels, .. } | Self::BilstmCrf { labels, .. } => labels,
        };
        if *labels != crate::tags::tag_names() {
            return Err(Error::Labels { path, expected: crate::tags::tag_names(), found: labels.clone() });
        }
        Ok(saved)
    }

    /// Its name and bytes, to be put beside the weights.
    #[must_use]
    pub fn file(&self) -> (String, Vec<u8>) {
        // A struct of strings and numbers always has a form in JSON.
        let mut json = serde_json::to_vec_pretty(self).unwrap_or_default();
        json.push(b'\n');
        (FILE.to_owned(), json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_other_labels_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let saved = |labels| SavedTagger::EncoderCrf { labels, max_tokens: 128, marks_case: true };
        let write = |saved: &SavedTagger| {
            let (name, bytes) = saved.file();
            std::fs::write(folder.path().join(name), bytes).unwrap();
        };
        let good = saved(crate::tags::tag_names());
        write(&good);
        assert_eq!(SavedTagger::read(folder.path()).unwrap(), good);
        write(&saved(vec!["O".into()]));
        let message = SavedTagger::read(folder.path()).unwrap_err().to_string();
        assert!(message.contains("tagger.json") && message.contains("B-PER"), "{message}");
    }
}
