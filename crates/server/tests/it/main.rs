//! Servers in this process, and clients over loopback.

mod answers;
mod common;
mod lifecycle;
mod models;
mod openai;
