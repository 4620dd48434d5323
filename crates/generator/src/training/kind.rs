//! The trait of the trainings of all kinds of generators.

use sporran_kilt::observe::Observer;
use sporran_training::session::Trained;

use super::GeneratorTraining;
use crate::Result;

/// The training of a kind of generator.
pub trait GeneratorTrainer {
    /// The number of passages to retrieve for each record.
    fn passages(&self) -> usize;

    /// Whether a passage of a gold page is added to the passages of a record without one, as the settings ask for.
    fn adds_gold(&self) -> bool {
        false
    }

    /// Whether it retrieves with the question encoder that it trains. Its [`GeneratorTraining::live`] is then set, and its
    /// records have no passages.
    fn is_live(&self) -> bool {
        false
    }

    /// Whether training needs `train.from`, the folder of an initial model.
    fn needs_from(&self) -> bool {
        false
    }

    /// Whether training can add tokens to the vocabulary of the initial model.
    fn adds_tokens(&self) -> bool {
        false
    }

    /// Trains the model and saves it in the folder of the settings. Checkpoints are in the run's folder; a stopped training
    /// resumes from the newest one.
    ///
    /// # Errors
    /// [`Error::Training`](crate::Error::Training) for missing settings or records; errors of files, model or training.
    fn train(&self, training: GeneratorTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained>;
}
