//! Servers in this process, and clients over loopback.

#![allow(clippy::result_large_err, reason = "an error ends a test")]

mod answers;
mod browse;
mod common;
mod description;
mod facts;
mod lifecycle;
mod log;
mod models;
mod openai;
mod questions;
