//! Integration tests of this crate, in one program so that it is linked once.

mod bad_input;
mod baselines;
mod common;
mod configs;
mod datasets;
mod documents;
mod encoders;
mod generate;
mod golden;
mod indexes;
mod kills;
mod learning;
mod linking;
mod links;
mod models;
mod populate;
mod program;
mod reason;
mod resume;
mod retrieval;
mod selection;
mod submit;
mod tagger;
mod triplets;
mod unfinished;
mod verifier;
