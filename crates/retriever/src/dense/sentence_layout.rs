//! A trained encoder's folder in the layout of sentence-transformers.

use std::path::{Path, PathBuf};

use candle_core::{DType, Device};
use serde_json::{Value, json};
use sporran_checkpoint::{Role, SentenceSettings, VectorSimilarity};
use sporran_kilt::jsonl;
use sporran_transformers::{Pooling, Sentences};

use super::Similarity;
use crate::Result;

/// The prompts before queries and passages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentencePrompts {
    query: String,
    passage: String,
}

impl SentencePrompts {
    /// The prompts of a folder of sentence-transformers; empty for other folders.
    ///
    /// # Errors
    /// Errors of the folder's files.
    pub fn of(folder: &Path) -> Result<Self> {
        let settings = SentenceSettings::of_layout(folder)?.unwrap_or_default();
        let prompt = |role| settings.prompt(role).to_owned();
        Ok(Self { query: prompt(Role::Query), passage: prompt(Role::Passage) })
    }

    /// A query with its prompt.
    pub(super) fn before_query(&self, text: &str) -> String {
        format!("{}{text}", self.query)
    }

    /// A passage with its prompt.
    pub(super) fn before_passage(&self, text: &str) -> String {
        format!("{}{text}", self.passage)
    }
}

/// The pooling and the similarity of a folder. The default is mean and cosine. A folder with several poolings also has mean.
pub(super) fn vectors_of(folder: &Path) -> Result<(Pooling, Similarity)> {
    let Some(sentences) = Sentences::open(folder, DType::F32, &Device::Cpu)? else {
        return Ok((Pooling::Mean, Similarity::Cosine));
    };
    let pooling = match sentences.pooling.as_slice() {
        [pooling] => *pooling,
        _ => Pooling::Mean,
    };
    let similarity = match sentences.settings.similarity {
        VectorSimilarity::Dot => Similarity::InnerProduct,
        _ => Similarity::Cosine,
    };
    Ok((pooling, similarity))
}

/// The settings of a folder in the layout of sentence-transformers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentenceLayout {
    /// The pooling of hidden states.
    pub pooling: Pooling,
    /// The similarity of vectors.
    pub similarity: Similarity,
    /// The size of the hidden states.
    pub width: usize,
    /// The prompts of training.
    pub prompts: SentencePrompts,
}

impl SentenceLayout {
    /// Writes the files of the layout into `folder`.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let class = |name: &str| format!("sentence_transformers.models.{name}");
        let mut modules = vec![
            json!({"idx": 0, "name": "0", "path": "", "type": class("Transformer")}),
            json!({"idx": 1, "name": "1", "path": "1_Pooling", "type": class("Pooling")}),
        ];
        if self.similarity == Similarity::Cosine {
            modules.push(json!({"idx": 2, "name": "2", "path": "2_Normalize", "type": class("Normalize")}));
        }
        let layout = json!({
            "word_embedding_dimension": self.width,
            "pooling_mode_cls_token": self.pooling == Pooling::Cls,
            "pooling_mode_mean_tokens": self.pooling == Pooling::Mean,
            "pooling_mode_max_tokens": false,
            "pooling_mode_mean_sqrt_len_tokens": false,
        });
        let settings = json!({
            "model_type": "SentenceTransformer",
            "prompts": {"query": self.prompts.query, "document": self.prompts.passage},
            "default_prompt_name": null,
            "similarity_fn_name": match self.similarity {
                Similarity::Cosine => "cosine",
                Similarity::InnerProduct => "dot",
                Similarity::Euclidean => "euclidean",
                Similarity::Manhattan => "manhattan",
            },
        });
        let write = |path: PathBuf, value: &Value| jsonl::write(path, format!("{value:#}\n").as_bytes());
        write(folder.join("1_Pooling/config.json"), &layout)?;
        write(folder.join("config_sentence_transformers.json"), &settings)?;
        // The list of modules is last: it marks the folder as complete.
        write(folder.join("modules.json"), &Value::Array(modules))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_layout_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(SentencePrompts::of(folder.path()).unwrap(), SentencePrompts::default());
        let prompts = SentencePrompts { query: "q: ".into(), passage: String::new() };
        for (similarity, expected) in [
            (Similarity::InnerProduct, VectorSimilarity::Dot),
            (Similarity::Cosine, VectorSimilarity::Cosine),
        ] {
            let layout =
                SentenceLayout { pooling: Pooling::Cls, similarity, width: 4, prompts: prompts.clone() };
            layout.write(folder.path()).unwrap();
            assert_eq!(SentencePrompts::of(folder.path()).unwrap(), prompts);
            let settings = SentenceSettings::of_layout(folder.path()).unwrap().unwrap();
            assert_eq!(settings.similarity, expected);
            assert_eq!(vectors_of(folder.path()).unwrap(), (Pooling::Cls, similarity));
        }
        let several = r#"{"pooling_mode": ["cls", "mean"]}"#;
        std::fs::write(folder.path().join("1_Pooling/config.json"), several).unwrap();
        assert_eq!(vectors_of(folder.path()).unwrap(), (Pooling::Mean, Similarity::Cosine));
        let bare = tempfile::tempdir().unwrap();
        assert_eq!(vectors_of(bare.path()).unwrap(), (Pooling::Mean, Similarity::Cosine));
        assert_eq!(prompts.before_query("a"), "q: a");
        assert_eq!(prompts.before_passage("a"), "a");
    }
}
