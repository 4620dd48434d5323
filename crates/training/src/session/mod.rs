//! One training: its checkpoints, its progress, and the export of the best weights.

mod encoder;
mod initial;
mod options;
mod pace;
mod trained;

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use candle_core::{DType, Device};
use sporran_checkpoint::{Error, Result};
use sporran_kilt::{
    StagedFolder,
    observe::{Event, Observer, Unit, begin},
};
use sporran_transformers::{Checkpoint, ModelConfig};

pub use encoder::{ContrastTraining, EncoderSession, InitialEncoder};
pub use initial::{InitialModel, TrainableModel};
pub use options::{ShapeOptions, WeightDtype};
pub use pace::Pace;
pub use trained::Trained;

use crate::{
    EvaluationError, ExtraFiles, Objective, Outcome, Training, TrainingOptions, Variables, export,
    train as optimise,
};

/// Evaluates the current weights. The score is from 0 to 1.
pub type Evaluate<'a> = &'a dyn Fn() -> Result<f64, EvaluationError>;

/// A training without its objective.
pub struct TrainingSession<'a> {
    /// The trainable weights.
    pub variables: &'a Variables,
    /// The optimizer and the schedule.
    pub options: &'a TrainingOptions,
    /// The folder of the checkpoints.
    pub folder: PathBuf,
    /// The folder of the best weights.
    pub model: &'a Path,
    /// The data type of the saved weights.
    pub dtype: DType,
    /// The names and contents of the other files of the model.
    pub extra_files: &'a ExtraFiles,
    /// The name of the validation score.
    pub score: &'a str,
}

impl TrainingSession<'_> {
    /// Trains from the newest checkpoint if there is one. Replaces the model's folder by the best weights.
    ///
    /// # Errors
    /// Errors of the training, and [`Error::Io`] for file system errors.
    pub fn run<O: Objective>(
        &self,
        objective: &O,
        evaluate: Option<Evaluate<'_>>,
        observe: &mut Observer<'_>,
    ) -> Result<Trained> {
        let outcome = self.optimise(objective, evaluate, observe)?;
        if let Some(best) = &outcome.best_folder {
            let staged = StagedFolder::create(self.model).map_err(staging)?;
            export(best, &staged.path(), self.dtype, self.extra_files)?;
            staged.commit().map_err(staging)?;
        }
        Ok(Trained { model: self.model.to_path_buf(), steps: outcome.step, best: outcome.best })
    }

    /// Trains from the newest checkpoint if there is one. Exports nothing.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub fn optimise<O: Objective>(
        &self,
        objective: &O,
        evaluate: Option<Evaluate<'_>>,
        observe: &mut Observer<'_>,
    ) -> Result<Outcome> {
        let Self { variables, options, folder, extra_files, score, .. } = self;
        fs::create_dir_all(folder).map_err(Error::io(folder, "write"))?;
        let training = Training { objective, variables, options, evaluate, folder, extra_files };
        let (mut begun, mut pace) = (false, Pace::default());
        let outcome = optimise(&training, &mut |progress| {
            if !begun {
                begin(observe, format!("train {}", folder.display()), progress.steps, Unit::Steps);
                observe(Event::SavesIfStopped);
                begun = true;
            }
            let score = progress.score.map_or_else(String::new, |value| format!(", {score} {value:.4}"));
            let note =
                format!("loss {:.4}, {:.0} tokens/s{score}", progress.loss, progress.tokens_per_second);
            if progress.score.is_some() {
                tracing::info!(step = progress.step, steps = progress.steps, "{note}");
            }
            if let Some(text) = pace.after(progress.step, progress.steps, "steps") {
                observe(Event::Note { text: format!("{}: {text}", folder.display()) });
            }
            observe(Event::Advance { done: progress.step, note: Some(note) });
            ControlFlow::Continue(())
        })?;
        if begun {
            observe(Event::End);
        }
        Ok(outcome)
    }
}

/// An error of replacing a folder.
fn staging(error: sporran_kilt::Error) -> Error {
    match error {
        sporran_kilt::Error::Io { path, action, source } => Error::Io { path, action, source },
        other => Error::Callback { what: "saving the model", source: other.into() },
    }
}

/// The content of `model.toml`: the model's role, size and origin.
#[must_use]
pub fn model_card(role: &str, variables: &Variables, config: &str, seed: u64) -> String {
    format!(
        "role = \"{role}\"\nparameters = {}\nsource = \"sporran {} train, config {config}, seed {seed}\"\n",
        variables.parameter_count(),
        env!("CARGO_PKG_VERSION"),
    )
}

/// Optional files of a tokenizer.
const TOKENIZER: [&str; 5] = [
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "sentence_bert_config.json",
];

/// The other files of a fine-tuned encoder: its config and the tokenizer of `from`.
///
/// # Errors
/// Errors of the tokenizer's files.
pub fn encoder_files(from: &Checkpoint, config: &ModelConfig) -> Result<Vec<(String, Vec<u8>)>> {
    let config = config.to_json();
    let mut files = vec![
        ("config.json".to_owned(), format!("{config:#}\n").into_bytes()),
        ("tokenizer.json".to_owned(), from.tokenizer()?.json().as_bytes().to_vec()),
    ];
    for name in TOKENIZER {
        let path = from.folder().join(name);
        if path.is_file() {
            files.push((name.to_owned(), fs::read(&path).map_err(Error::io(&path, "read"))?));
        }
    }
    Ok(files)
}

/// The weights of a checkpoint as variables in f32. Missing tensors are initialized from `seed`.
///
/// # Errors
/// Errors of the weight files.
pub fn variables_of(checkpoint: &Checkpoint, seed: u64) -> Result<Variables> {
    let map = checkpoint.var_map(DType::F32, &Device::Cpu)?;
    let from = checkpoint.folder();
    let held = map.data().lock().map_err(|_| {
        Error::io(from, "load")(std::io::Error::other("another thread panicked while it used the weights"))
    })?;
    let tensors: Vec<_> = held.iter().map(|(name, var)| (name.clone(), var.as_tensor().clone())).collect();
    Ok(Variables::with_initial(seed, tensors))
}
