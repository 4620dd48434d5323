//! A run's folder while a model is trained in it.

use std::path::PathBuf;

use serde::Serialize;

use crate::{
    Result,
    folder::{Folder, Mark},
    inputs::Inputs,
    key::StepKey,
};

/// A run's folder that this process trains in: locked, and marked as unfinished until [`Self::finish`].
pub(crate) struct TrainingFolder {
    root: PathBuf,
    key: StepKey,
    inputs: Inputs,
    held: Option<(Folder, Mark)>,
}

impl TrainingFolder {
    /// Hashes what a training with these options reads. Options that it does not depend on are left out. The folder is taken
    /// hold of by [`Self::verify`], so that inputs that cannot be read leave nothing behind.
    ///
    /// # Errors
    /// What reading the inputs gives.
    pub(crate) fn begin(root: PathBuf, options: &impl Serialize, without: &[&str]) -> Result<Self> {
        let mut inputs = Inputs::default();
        let key = StepKey::training(options)?.without(without).read(&mut inputs)?;
        Ok(Self { root, key, inputs, held: None })
    }

    /// As [`Self::begin`], in a folder that is held already, with a key to which inputs may have been added.
    ///
    /// # Errors
    /// As there, and those of [`Self::verify`].
    pub(crate) fn begin_with(folder: Folder, mut inputs: Inputs, key: StepKey) -> Result<Self> {
        let key = key.read(&mut inputs)?;
        let mark = folder.begin_training(&key)?;
        Ok(Self { root: folder.root.clone(), key, inputs, held: Some((folder, mark)) })
    }

    /// To be called when all inputs are loaded and nothing is written: what was loaded is what the key says. Takes hold of the
    /// folder; the training goes on from the checkpoints there, if there are any.
    ///
    /// # Errors
    /// [`crate::Error::Changed`]; [`crate::Error::Busy`] where another process works in the folder;
    /// [`crate::Error::OtherTraining`] where the checkpoints are of a training that depends on something else.
    pub(crate) fn verify(&mut self) -> Result<()> {
        self.inputs.verify()?;
        if self.held.is_none() {
            let folder = Folder::open(self.root.clone())?;
            let mark = folder.begin_training(&self.key)?;
            self.held = Some((folder, mark));
        }
        Ok(())
    }

    /// To be called when the model is in its place.
    ///
    /// # Errors
    /// [`crate::Error::Io`] where the disk refuses.
    pub(crate) fn finish(self) -> Result<()> {
        self.held.map_or(Ok(()), |(_, mark)| mark.finish())
    }
}
