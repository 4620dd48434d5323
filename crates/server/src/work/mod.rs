//! Workers: threads that compute, each for one model. They gather what waits into batches.

mod aside;
mod generation;
mod pieces;
mod queue;
mod setting;
mod worker;

pub(crate) use aside::aside;
pub(crate) use generation::{GeneratorWorker, Prompted};
pub(crate) use pieces::{Generated, Piece, PieceReceiver};
pub(crate) use queue::size;
pub(crate) use setting::{Setting, thread};
pub(crate) use worker::Worker;
