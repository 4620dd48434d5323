//! Sparse retrieval: by words, over inverted indexes on disk.
//!
//! [`Bm25`] and [`TfIdf`] share the streaming build, the format (compressed, checksummed and memory-mapped)
//! and the exact search with pruning. They differ in their terms and impacts.

mod analyzer;
mod bm25;
mod builder;
mod char_set;
mod dictionary;
mod header;
mod index;
mod kinds;
mod murmur;
mod ngrams;
mod parts;
mod plan;
mod porter;
mod postings;
mod question;
mod scripts;
mod search;
mod segment;
mod sharded;
mod snowball;
mod tfidf;
mod varint;

pub use analyzer::{Analyzer, AnalyzerOptions, Stemmer, StopWords, Tokenizer};
pub use bm25::{Bm25, Bm25Options, Impacts};
pub use builder::{Build, Progress};
pub use index::Statistics;
pub use tfidf::{NgramTokenizer, TfIdf, TfIdfOptions};
