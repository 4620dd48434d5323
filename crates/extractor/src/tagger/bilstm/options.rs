//! A BiLSTM with a conditional random field: options and training.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_kilt::observe::Observer;
use sporran_training::{
    CrfVariables, TrainingOptions, Variables,
    session::{Trained, WeightDtype},
};

use super::BiLstmEmitter;
use crate::{
    Result,
    tagger::{
        SavedTagger, TaggerKind, TaggerTraining, WordFeatures, WordRows,
        train::{CrfTraining, check_optimizer, sentences},
    },
    tags::{tag_grammar, tag_names},
};

/// `kind = "bilstm-crf"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BiLstmOptions {
    /// `[tagger.features]`: the table of hashed embeddings.
    #[serde(default)]
    pub features: WordFeatures,
    /// The hidden size of each direction.
    #[serde(default = "hidden_size")]
    #[schemars(range(min = 1))]
    pub hidden_size: usize,
    /// The number of layers.
    #[serde(default = "layers")]
    #[schemars(range(min = 1), extend("x-unit" = "layers"))]
    pub layers: usize,
    /// The dropout rate of inputs and hidden states.
    #[serde(default = "dropout")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// The number format of the saved weights: `f32` or `f16`.
    #[serde(default)]
    pub dtype: WeightDtype,
    /// `[tagger.optimizer]`: epochs, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

fn hidden_size() -> usize {
    96
}

fn layers() -> usize {
    2
}

fn dropout() -> f64 {
    0.3
}

impl TaggerKind for BiLstmOptions {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        check_optimizer(&self.optimizer, key, document);
    }

    fn train(&self, training: &TaggerTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained> {
        let variables = Variables::new(training.seed);
        let crf = CrfVariables::new(tag_grammar(), "crf", &variables)?;
        let Self { features, hidden_size, layers, dropout, .. } = *self;
        let labels = tag_names();
        let emitter = BiLstmEmitter::new(features, hidden_size, layers, labels.len(), dropout, &variables)?;
        let rows = |words: &[&str]| -> Result<Vec<(Vec<WordRows>, usize)>> {
            let read = words.iter().enumerate().map(|(at, word)| features.rows(word, at == 0)).collect();
            Ok(vec![(read, words.len())])
        };
        let files = [SavedTagger::BilstmCrf { labels, features, lstm: *emitter.lstm() }.file()];
        let documents = sentences(training.documents, rows)?;
        let validation = sentences(training.validation, rows)?;
        CrfTraining {
            emitter: &emitter,
            crf: &crf,
            variables: &variables,
            optimizer: TrainingOptions { seed: training.seed, ..self.optimizer.clone() },
            dtype: self.dtype,
            files: &files,
            training,
        }
        .run(documents, &validation, observe)
    }
}
