//! The Python package's compiled module: classes and functions over the libraries. The package's Python files are in
//! `python/sporran`; `__init__.pyi` there is their manual.
//!
//! A call releases the interpreter's lock while it computes. Long calls look for Ctrl-C between portions of their work.

#![allow(clippy::result_large_err, reason = "an error ends a call, so its size does not count")]

mod arguments;
mod asker;
mod bm25;
mod calls;
mod dense;
mod encoder;
mod error;
mod evaluate;
mod facts;
mod generator;
mod hit;
mod links;
mod program;
mod reranker;
mod shards;
mod store;
mod workflows;

/// The module `sporran._sporran`.
#[pyo3::pymodule]
mod _sporran {
    #[pymodule_export]
    use crate::{
        asker::{Answer, Asker, Evidence},
        bm25::Bm25,
        dense::DenseIndex,
        encoder::Encoder,
        evaluate::{evaluate_kilt, evaluate_trec},
        facts::FactExtractor,
        generator::Generator,
        hit::{Hit, Passage, text_hit},
        links::TripleScorer,
        program::{program, version},
        reranker::Reranker,
        shards::{merge, shard},
        store::PassageStore,
        workflows::{check, run, train},
    };
}
