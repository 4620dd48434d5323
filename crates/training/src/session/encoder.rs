//! The training of an encoder that ranks passages, for any objective.

use std::path::Path;

use candle_core::DType;
use sporran_checkpoint::{Error, Result};
use sporran_kilt::{StagedFolder, contrast::ContrastExample, observe::Observer};
use sporran_transformers::{BertTask, Checkpoint, DeviceName, EncoderInput, Truncation};

use super::{Evaluate, Trained, TrainingSession, encoder_files};
use crate::{Objective, TrainingOptions, TunedEncoder};

/// The data and the place of an encoder's training on queries with positive and negative passages.
#[derive(Clone, Debug)]
pub struct ContrastTraining<'a> {
    /// The training data.
    pub examples: Vec<ContrastExample>,
    /// The validation data. Without it, the last weights are saved.
    pub validation: Vec<ContrastExample>,
    /// The folder of the checkpoints.
    pub checkpoints: &'a Path,
    /// The seed of a new head.
    pub seed: u64,
}

/// A training of an encoder without its objective.
#[derive(Clone, Copy, Debug)]
pub struct EncoderSession<'a> {
    /// The folder of the initial encoder.
    pub from: &'a Path,
    /// The folder of the trained model.
    pub model: &'a Path,
    /// The folder of the checkpoints.
    pub checkpoints: &'a Path,
    /// The seed of a new head.
    pub seed: u64,
    /// The largest number of tokens of an input. The default is that of the folder `from`.
    pub max_tokens: Option<usize>,
    /// The truncation of a pair of texts that is too long.
    pub truncation: Truncation,
    /// The optimizer and the schedule.
    pub optimizer: &'a TrainingOptions,
    /// The device.
    pub device: DeviceName,
}

/// An encoder before its training.
pub struct InitialEncoder {
    /// The encoder with its head.
    pub encoder: TunedEncoder,
    /// Its tokenizer.
    pub input: EncoderInput,
    /// The names and contents of the other files of the model.
    extra_files: Vec<(String, Vec<u8>)>,
}

impl EncoderSession<'_> {
    /// Opens the initial encoder with a head for `task` and this number of labels.
    ///
    /// # Errors
    /// Errors of the folder or the device.
    pub fn open(&self, task: BertTask, labels: usize) -> Result<InitialEncoder> {
        let checkpoint = Checkpoint::open(self.from)?;
        let encoder = TunedEncoder::open(&checkpoint, task, labels, self.seed, &self.device.open()?)?;
        let length = encoder.config().max_input_length();
        let input = EncoderInput::open(&checkpoint, length, self.max_tokens, self.truncation)?;
        let extra_files = extra_files(&checkpoint, &encoder, &input)?;
        Ok(InitialEncoder { encoder, input, extra_files })
    }

    /// Trains from the newest checkpoint if there is one. Replaces the model's folder by the best weights. `finish` writes
    /// further files into the new folder. The validation score is the mean reciprocal rank.
    ///
    /// # Errors
    /// Errors of the training, of `finish` and of the file system.
    pub fn run<O: Objective, E: From<Error> + From<sporran_kilt::Error>>(
        &self,
        initial: &InitialEncoder,
        objective: &O,
        evaluate: Option<Evaluate<'_>>,
        finish: impl FnOnce(&Path) -> Result<(), E>,
        observe: &mut Observer<'_>,
    ) -> Result<Trained, E> {
        let staged = StagedFolder::create(self.model)?;
        let model = staged.path();
        let session = TrainingSession {
            variables: initial.encoder.variables(),
            options: self.optimizer,
            folder: self.checkpoints.to_path_buf(),
            model: &model,
            dtype: DType::F32,
            extra_files: &initial.extra_files,
            score: "MRR",
        };
        let trained = session.run(objective, evaluate, observe)?;
        finish(&model)?;
        staged.commit()?;
        Ok(Trained { model: self.model.to_path_buf(), ..trained })
    }
}

/// The other files of the model: those of [`encoder_files`], with the settings of its input.
fn extra_files(
    from: &Checkpoint,
    encoder: &TunedEncoder,
    input: &EncoderInput,
) -> Result<Vec<(String, Vec<u8>)>> {
    const INPUT: &str = "sentence_bert_config.json";
    let mut files = encoder_files(from, encoder.config())?;
    files.retain(|(name, _)| name != INPUT);
    let settings =
        serde_json::json!({"max_seq_length": input.max_length(), "do_lower_case": input.lowercases()});
    files.push((INPUT.to_owned(), format!("{settings}\n").into_bytes()));
    Ok(files)
}
