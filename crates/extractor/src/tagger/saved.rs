//! A tagger's folder: the description `tagger.json` and the weights.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sporran_kilt::jsonl;
use sporran_transformers::LstmOptions;

use super::WordFeatures;
use crate::{Error, Result};

/// The file that describes the folder.
pub(super) const FILE: &str = "tagger.json";

/// The description of a tagger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum SavedTagger {
    /// An encoder in the Hugging Face layout. Its weights include those of the CRF.
    #[serde(rename_all = "kebab-case")]
    EncoderCrf {
        /// The names of the labels in order.
        labels: Vec<String>,
        /// The largest number of tokens in a window.
        max_tokens: usize,
        /// Whether token types mark capitals.
        marks_case: bool,
    },
    /// A BiLSTM over hashed embeddings.
    #[serde(rename_all = "kebab-case")]
    BilstmCrf {
        /// The names of the labels in order.
        labels: Vec<String>,
        /// The word features.
        features: WordFeatures,
        /// The shape of the LSTM.
        lstm: LstmOptions,
    },
}

impl SavedTagger {
    /// Reads the file of `folder`.
    ///
    /// # Errors
    /// Read errors, with the field; [`Error::Labels`] for other labels than those of this program.
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

    /// The name and bytes of the file.
    #[must_use]
    pub fn file(&self) -> (String, Vec<u8>) {
        // Structs of strings and numbers are always valid JSON.
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
