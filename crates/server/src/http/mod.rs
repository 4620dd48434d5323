//! The HTTP side: the table of endpoints, bodies, keys, limits, the log.

mod api;
mod body;
mod errors;
mod guard;
mod log;
mod query;

pub(crate) use api::{Api, Parameter};
pub(crate) use body::{Bodies, Body, Limited, named, whole};
pub(crate) use errors::{Takes, refused};
pub(crate) use guard::{RequestId, guard, is_loopback};
pub(crate) use log::Noted;
pub(crate) use query::Queries;
