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
    inputs: Inputs,
    mark: Mark,
    held: Folder,
}

impl TrainingFolder {
    /// Takes hold of a folder for a training with these options, without those that it does not depend on. It goes on from
    /// the checkpoints there, if there are any.
    ///
    /// # Errors
    /// [`crate::Error::Busy`] where another process works there; [`crate::Error::OtherTraining`] where the checkpoints are of a
    /// training that depends on something else; what reading the inputs gives.
    pub(crate) fn begin(root: PathBuf, options: &impl Serialize, without: &[&str]) -> Result<Self> {
        let held = Folder::open(root)?;
        let key = StepKey::training(options)?.without(without);
        Self::begin_with(held, Inputs::default(), key)
    }

    /// As [`Self::begin`], in a folder that is held, with a key to which inputs may have been added.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn begin_with(held: Folder, mut inputs: Inputs, key: StepKey) -> Result<Self> {
        let mark = held.begin_training(&key.read(&mut inputs)?)?;
        Ok(Self { inputs, mark, held })
    }

    /// To be called when all inputs are loaded: what was loaded is what the key says.
    ///
    /// # Errors
    /// [`crate::Error::Changed`].
    pub(crate) fn verify(&self) -> Result<()> {
        self.inputs.verify()
    }

    /// To be called when the model is in its place.
    ///
    /// # Errors
    /// [`crate::Error::Io`] where the disk refuses.
    pub(crate) fn finish(self) -> Result<Folder> {
        self.mark.finish()?;
        Ok(self.held)
    }
}
