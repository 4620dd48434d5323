//! One training: its checkpoints, its progress, and the export of the best weights.

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use candle_core::{DType, Device};
use sporran_kilt::StagedFolder;
use sporran_training::{
    EvaluationError, Objective, Outcome, Training, TrainingOptions, Variables, export, train as optimise,
};
use sporran_transformers::{BertConfig, Checkpoint, ModelConfig};

use crate::{
    Error, Result,
    observe::{Event, Observer, Unit, begin},
    training::{outcome::Trained, pace::Pace},
};

/// Evaluates the current weights. The score is from 0 to 1.
pub(crate) type Evaluate<'a> = &'a dyn Fn() -> Result<f64, EvaluationError>;

/// A training without its objective.
pub(crate) struct TrainingSession<'a> {
    /// The trainable weights.
    pub(crate) variables: &'a Variables,
    /// The optimizer and the schedule.
    pub(crate) options: &'a TrainingOptions,
    /// The folder of the checkpoints.
    pub(crate) folder: PathBuf,
    /// The folder of the best weights, which are saved as `dtype`.
    pub(crate) model: &'a Path,
    pub(crate) dtype: DType,
    /// The names and contents of the other files of the model.
    pub(crate) extra_files: &'a [(String, Vec<u8>)],
    /// The name of the validation score.
    pub(crate) score: &'a str,
}

impl TrainingSession<'_> {
    /// Trains from the newest checkpoint if there is one. Replaces the model's folder by the best weights.
    pub(crate) fn run<O: Objective>(
        &self,
        objective: &O,
        evaluate: Option<Evaluate<'_>>,
        observe: &mut Observer<'_>,
    ) -> Result<Trained> {
        let outcome = self.optimise(objective, evaluate, observe)?;
        if let Some(best) = &outcome.best_folder {
            let staged = StagedFolder::create(self.model)?;
            export(best, &staged.path(), self.dtype, self.extra_files)?;
            staged.commit()?;
        }
        Ok(Trained { model: self.model.to_path_buf(), steps: outcome.step, best: outcome.best })
    }

    /// Trains from the newest checkpoint if there is one. Exports nothing.
    pub(crate) fn optimise<O: Objective>(
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

/// Optional files of a tokenizer.
const TOKENIZER: [&str; 5] = [
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "sentence_bert_config.json",
];

/// The other files of a fine-tuned encoder: its config and the tokenizer of `from`.
pub(crate) fn encoder_files(from: &Checkpoint, config: &BertConfig) -> Result<Vec<(String, Vec<u8>)>> {
    let config = ModelConfig::Bert(config.clone()).to_json();
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
pub(crate) fn variables_of(checkpoint: &Checkpoint, seed: u64) -> Result<Variables> {
    let map = checkpoint.var_map(DType::F32, &Device::Cpu)?;
    let from = checkpoint.folder();
    let held = map.data().lock().map_err(|_| {
        Error::io(from, "load")(std::io::Error::other("another thread panicked while it used the weights"))
    })?;
    let tensors: Vec<_> = held.iter().map(|(name, var)| (name.clone(), var.as_tensor().clone())).collect();
    Ok(Variables::with_initial(seed, tensors))
}
