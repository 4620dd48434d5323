//! Training objectives, and threads that share the batches of a step.

use sporran_checkpoint::Result;

use crate::{gradients::Gradients, options::TrainingOptions};

/// A training objective: its batches, and the loss of a batch with its gradients.
///
/// Everything must depend only on the epoch's number, the batch and the seed, or a resumed training goes
/// another way.
pub trait Objective: Sync {
    /// A batch, the unit of a gradient.
    type Batch: Send + Sync;

    /// Refuses options that this objective has no use for.
    ///
    /// # Errors
    /// [`Error::Options`](sporran_checkpoint::Error::Options) with the option's name.
    fn check(&self, options: &TrainingOptions) -> Result<()>;

    /// The batches of an epoch, counted from 0, in their order.
    ///
    /// # Errors
    /// Where they cannot be made.
    fn epoch(&self, number: u64) -> Result<Vec<Self::Batch>>;

    /// The factor of the learning rate of a variable.
    fn rate(&self, _variable: &str) -> f64 {
        1.0
    }

    /// The weight of the batch among the batches of its step: its target tokens, rows or queries.
    fn weight(&self, batch: &Self::Batch) -> f64;

    /// Its tokens without padding, for the speed that is shown.
    fn tokens(&self, batch: &Self::Batch) -> usize;

    /// Adds the gradients of the batch's summed loss over `weight`, which is that of all batches of the step, to
    /// `gradients`, which are zero; returns the summed loss over `weight`. Dropout is sampled from `seed`.
    ///
    /// # Errors
    /// Where the model or memory fails.
    fn learn(&self, batch: &Self::Batch, weight: f64, seed: u64, gradients: &mut Gradients) -> Result<f64>;
}

/// Runs each piece of work on a separate pool, all in parallel. The results are in the order of the pieces.
pub(super) fn side_by_side<W: Send, T: Send>(
    pools: &[rayon::ThreadPool],
    pieces: impl Iterator<Item = W>,
    work: impl Fn(W) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let work = &work;
    std::thread::scope(|scope| {
        let running: Vec<_> = pieces
            .zip(pools)
            .map(|(piece, pool)| scope.spawn(move || pool.install(|| work(piece))))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}
