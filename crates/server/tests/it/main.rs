//! Servers in this process, and clients over loopback.

mod answers;
mod browse;
mod common;
mod lifecycle;
mod models;
mod openai;
