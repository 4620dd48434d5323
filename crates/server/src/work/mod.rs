//! Workers: threads that compute, each for one model. They gather what waits into batches.

mod generation;
mod queue;
mod worker;

pub(crate) use generation::{Generated, GeneratorWorker, Piece, Prompted, finished};
pub(crate) use queue::{Bounds, size};
pub(crate) use worker::Worker;
