//! Integration tests of this crate, in one program so that it is linked once.

mod annotate;
mod ask;
mod bad_input;
mod baselines;
mod causal_training;
mod collections;
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
mod limits;
mod linking;
mod links;
#[path = "../../../documents/tests/it/make.rs"]
mod make;
mod models;
mod populate;
mod program;
mod reason;
mod remote;
mod resume;
mod retrieval;
mod selection;
mod sources;
mod submit;
mod tagger;
mod triplets;
mod tutorial;
mod unfinished;
mod verifier;
