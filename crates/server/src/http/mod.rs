//! The HTTP side: the table of endpoints, bodies, keys, limits, the log.

mod api;
mod body;
mod guard;

pub(crate) use api::{Api, Parameter};
pub(crate) use body::{Body, Queries};
pub(crate) use guard::{RequestId, guard};
