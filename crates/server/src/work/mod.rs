//! Workers: threads that compute, each for one model. They gather what waits into batches.

mod generation;
mod queue;
mod setting;
mod worker;

pub(crate) use generation::{Generated, GeneratorWorker, Piece, Prompted, finished};
pub(crate) use queue::size;
pub(crate) use setting::{Setting, thread};
pub(crate) use worker::Worker;
