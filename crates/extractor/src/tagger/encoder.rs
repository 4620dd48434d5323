//! An encoder with a conditional random field: options and training.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_kilt::observe::Observer;
use sporran_training::{
    EncoderEmitter, TrainingOptions,
    session::{Trained, WeightDtype, encoder_files},
};
use sporran_transformers::{Checkpoint, DeviceName, Precision, WordInput, WordRow};

use super::{
    SavedTagger, TaggerKind, TaggerTraining,
    train::{CrfTraining, check_optimizer, sentences},
};
use crate::{
    Result,
    model_check::{TAGGER, check_start},
    tags::{tag_grammar, tag_names},
};

/// `kind = "encoder-crf"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EncoderOptions {
    /// The folder of the initial encoder.
    pub from: PathBuf,
    /// The largest number of tokens of a window. A longer sentence has several windows.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// Whether token types mark capitals, for encoders with a lower-casing tokenizer and a second token type.
    #[serde(default = "marks_case")]
    pub marks_case: bool,
    /// The number format of the saved weights: `f32` or `f16`.
    #[serde(default)]
    pub dtype: WeightDtype,
    /// `[tagger.optimizer]`: epochs, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
    /// The device of the training: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
}

fn max_tokens() -> usize {
    160
}

fn marks_case() -> bool {
    true
}

impl TaggerKind for EncoderOptions {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        check_start(TAGGER, &format!("{key}.from"), &self.from, document);
        if let Err(error) = self.device.check(Precision::F32) {
            document.report_key(&format!("{key}.device"), error.to_string());
        }
        check_optimizer(&self.optimizer, key, document);
    }

    fn train(&self, training: &TaggerTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained> {
        let checkpoint = Checkpoint::open(&self.from)?;
        let device = self.device.open()?;
        let emitter = EncoderEmitter::open(&checkpoint, &tag_names(), tag_grammar(), training.seed, &device)?;
        let config = emitter.encoder().config();
        let marks_case = self.marks_case && config.token_types() > 1;
        if self.marks_case && !marks_case {
            tracing::warn!("the encoder has no second token type, so capitals are not marked");
        }
        let max_tokens = self.max_tokens.min(config.max_input_length());
        let input = WordInput::new(checkpoint.tokenizer()?, max_tokens, marks_case)?;
        let rows = |words: &[&str]| -> Result<Vec<(WordRow, usize)>> {
            let windows = input.rows(words)?.into_iter();
            Ok(windows.map(|window| (window.firsts.len(), window)).map(|(n, w)| (w, n)).collect())
        };
        let saved = SavedTagger::EncoderCrf { labels: tag_names(), max_tokens, marks_case };
        let mut files = encoder_files(&checkpoint, config)?;
        files.push(saved.file());
        let documents = sentences(training.documents, rows)?;
        let validation = sentences(training.validation, rows)?;
        CrfTraining {
            emitter: &emitter,
            crf: emitter.crf(),
            variables: emitter.encoder().variables(),
            optimizer: TrainingOptions { seed: training.seed, ..self.optimizer.clone() },
            dtype: self.dtype,
            files: &files,
            training,
        }
        .run(documents, &validation, observe)
    }
}
