//! Servers in this process, and clients over loopback.

mod answers;
mod browse;
mod common;
mod facts;
mod lifecycle;
mod models;
mod openai;
