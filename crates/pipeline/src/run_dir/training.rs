//! A run's folder during a training.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    Error, Result,
    config::Config,
    run_dir::{
        folder::{Mark, RunDir},
        inputs::Inputs,
        key::StepKey,
        manifest::{Account, TrainingEntry},
    },
};

/// The journal of the searches of a training, in `work`. It is no journal of answers, which would mark them as unfinished.
pub(super) const SEARCHES: &str = "searches.kept";

/// A run's folder during a training: locked, and marked as unfinished until [`Self::finish`]. A training that
/// fails before its first checkpoint removes its mark, because the earlier content of the folder is
/// unchanged.
pub(crate) struct TrainingFolder {
    root: PathBuf,
    key: StepKey,
    inputs: Inputs,
    account: Account,
    models: Vec<PathBuf>,
    outside: Option<PathBuf>,
    held: Option<(RunDir, Mark)>,
}

impl TrainingFolder {
    /// Hashes the inputs of a training with these options, without the options `without`. [`Self::verify`]
    /// locks the folder, so that unreadable inputs leave no files.
    ///
    /// # Errors
    /// Errors of reading the inputs.
    pub(crate) fn begin(root: PathBuf, options: &impl Config, without: &[&str]) -> Result<Self> {
        let mut inputs = Inputs::default();
        let key = StepKey::training(options)?.without(without).read(&mut inputs)?;
        let account = Account::begin(options)?;
        Ok(Self { root, key, inputs, account, models: Vec::new(), outside: None, held: None })
    }

    /// Names the models that the training replaces, relative to the folder. For trainings without checkpoints, whose models
    /// would be replaced by those of another training.
    pub(crate) fn replacing(mut self, models: Vec<PathBuf>) -> Self {
        self.models = models;
        self
    }

    /// Names the model that the training writes, which may be outside of the folder. Then it is not replaced if another program
    /// or another training made it.
    pub(crate) fn writing(mut self, model: &Path) -> Self {
        self.outside = Some(model.to_owned());
        self
    }

    /// Like [`Self::begin`], for a locked folder and a key with more inputs.
    ///
    /// # Errors
    /// Those of [`Self::begin`] and of [`Self::verify`].
    pub(crate) fn begin_with(
        folder: RunDir,
        mut inputs: Inputs,
        key: StepKey,
        options: &impl Config,
    ) -> Result<Self> {
        let key = key.read(&mut inputs)?;
        let mark = folder.begin_training(&key)?;
        let account = Account::begin(options)?;
        let (root, models) = (folder.root.clone(), Vec::new());
        Ok(Self { root, key, inputs, account, models, outside: None, held: Some((folder, mark)) })
    }

    /// Checks that the inputs have not changed, and locks the folder. Call it after loading and before
    /// writing. The training resumes from checkpoints in the folder.
    ///
    /// # Errors
    /// [`sporran_kilt::Error::Changed`]; [`crate::Error::Busy`] if another process uses the folder;
    /// [`crate::Error::OtherTraining`] for checkpoints of a training with other options or inputs, and
    /// [`crate::Error::OtherModel`] for models of one; [`crate::Error::ForeignModel`] for a model of [`Self::writing`] that no
    /// training of this folder made.
    pub(crate) fn verify(&mut self) -> Result<()> {
        self.inputs.verify()?;
        if self.held.is_none() {
            let folder = RunDir::open(self.root.clone())?;
            self.outside.as_deref().map_or(Ok(()), |model| folder.check_foreign(model))?;
            if !folder.has_checkpoint() {
                folder.check_models(&self.key, &self.models)?;
            }
            let mark = folder.begin_training(&self.key)?;
            self.held = Some((folder, mark));
        }
        Ok(())
    }

    /// The journal of the training's searches and its key, after [`Self::verify`].
    pub(crate) fn journal_of_searches(&self) -> Option<(PathBuf, String)> {
        Some((self.folder()?.work(SEARCHES), self.key.digest()))
    }

    /// The folder, after [`Self::verify`].
    pub(crate) fn folder(&self) -> Option<&RunDir> {
        self.held.as_ref().map(|(folder, _)| folder)
    }

    /// Writes the training's manifest, then removes the mark. Call it after saving the model. Inputs may have been loaded after
    /// [`Self::verify`].
    ///
    /// # Errors
    /// [`sporran_kilt::Error::Changed`], and then the mark stays; [`crate::Error::Io`] for file system errors.
    pub(crate) fn finish(mut self, training: TrainingEntry) -> Result<()> {
        let Some((folder, mark)) = self.held.take() else { return Ok(()) };
        // The model is written. If an input has changed, the mark stays.
        folder.finished();
        self.inputs.verify()?;
        let mut account = self.account.clone();
        account.took("train");
        account.read(&self.inputs);
        let searches = folder.work(SEARCHES);
        if searches.exists() {
            fs::remove_file(&searches).map_err(Error::io(&searches, "remove"))?;
        }
        account.finish_training(&folder, mark, training)
    }
}

impl Drop for TrainingFolder {
    fn drop(&mut self) {
        let Some((folder, mark)) = self.held.take() else { return };
        if !folder.has_checkpoint()
            && let Err(error) = mark.finish()
        {
            tracing::warn!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;
    use crate::run_dir::folder::check_finished;
    use sporran_config::Document;

    /// The options of a training.
    #[derive(Serialize, schemars::JsonSchema)]
    struct Options {
        name: &'static str,
        seed: u64,
        file: std::path::PathBuf,
    }

    impl Config for Options {
        const WORKFLOWS: &'static [&'static str] = &["rules"];

        fn read(_: &mut Document<'_>) -> Option<Self> {
            None
        }

        fn check(&self, _: &mut Document<'_>) {}
    }

    fn options(file: impl Into<std::path::PathBuf>) -> Options {
        Options { name: "r", seed: 7, file: file.into() }
    }

    const ENTRY: TrainingEntry = TrainingEntry { steps: 12, best: Some(0.5) };

    #[test]
    fn a_training_that_fails_at_once_keeps_earlier_results_usable() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("runs/r");
        let model = root.join("model/config.json");
        let begin = || {
            let mut underway = TrainingFolder::begin(root.clone(), &options(""), &[]).unwrap();
            underway.verify().unwrap();
            underway
        };
        drop(begin());
        assert!(check_finished(&model).is_ok());
        let underway = begin();
        assert!(check_finished(&model).is_err());
        std::fs::create_dir_all(root.join("training/checkpoint-2")).unwrap();
        drop(underway);
        assert!(check_finished(&model).is_err());
        begin().finish(ENTRY).unwrap();
        assert!(check_finished(&model).is_ok());
    }

    #[test]
    fn a_model_without_checkpoints_is_not_replaced_by_that_of_another_training() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("runs/r");
        let verify = |seed: u64, model: &str| {
            let options = Options { seed, ..options("") };
            let begun = TrainingFolder::begin(root.clone(), &options, &[]).unwrap();
            let mut underway = begun.replacing(vec![model.into()]);
            underway.verify().map(|()| underway)
        };
        let underway = verify(7, "model").unwrap();
        std::fs::create_dir_all(root.join("model")).unwrap();
        underway.finish(ENTRY).unwrap();
        let error = verify(8, "model").err().unwrap().to_string();
        assert!(error.contains("`seed` is 8 now and was 7 then"), "{error}");
        assert!(verify(7, "model").is_ok());
        assert!(verify(8, "fold-0/model").is_ok());
    }

    #[test]
    fn a_model_outside_of_the_folder_is_replaced_by_its_own_trainings_only() {
        let place = tempfile::tempdir().unwrap();
        let (root, model) = (place.path().join("runs/r"), place.path().join("model"));
        let verify = || {
            let mut underway =
                TrainingFolder::begin(root.clone(), &options(""), &[]).unwrap().writing(&model);
            underway.verify().map(|()| underway)
        };
        std::fs::create_dir_all(&model).unwrap();
        verify().unwrap().finish(ENTRY).unwrap();
        std::fs::write(model.join("weights"), "w").unwrap();
        verify().unwrap().finish(ENTRY).unwrap();
        std::fs::remove_dir_all(&root).unwrap();
        let error = verify().err().unwrap().to_string();
        assert!(error.contains("no training of") && error.contains("made it"), "{error}");
    }

    #[test]
    fn an_input_that_changed_during_a_training_leaves_it_unfinished() {
        let place = tempfile::tempdir().unwrap();
        let (root, input) = (place.path().join("runs/r"), place.path().join("train.json"));
        std::fs::write(&input, "a").unwrap();
        let mut underway = TrainingFolder::begin(root.clone(), &options(&input), &[]).unwrap();
        underway.verify().unwrap();
        std::fs::create_dir_all(root.join("model")).unwrap();
        std::fs::write(root.join("model/config.json"), "{}").unwrap();
        std::fs::write(&input, "b").unwrap();
        assert!(matches!(
            underway.finish(ENTRY),
            Err(crate::Error::Kilt(sporran_kilt::Error::Changed { .. }))
        ));
        assert!(check_finished(&root.join("model")).is_err());
    }

    #[test]
    fn the_manifest_of_a_training_has_its_inputs_and_its_result() {
        let place = tempfile::tempdir().unwrap();
        let (root, input) = (place.path().join("runs/r"), place.path().join("train.json"));
        std::fs::write(&input, "a").unwrap();
        let mut underway = TrainingFolder::begin(root.clone(), &options(&input), &[]).unwrap();
        underway.verify().unwrap();
        underway.finish(ENTRY).unwrap();
        let manifest: serde_json::Value =
            sporran_kilt::jsonl::read_json(root.join("training-manifest.json")).unwrap();
        assert_eq!((&manifest["name"], &manifest["seed"]), (&"r".into(), &7.into()));
        assert_eq!(manifest["training"], serde_json::json!({"steps": 12, "best": 0.5}));
        let hash = blake3::hash(b"a").to_hex().to_string();
        assert_eq!(manifest["inputs"], serde_json::json!({input.display().to_string(): hash}));
    }
}
