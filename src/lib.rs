//! Sporran retrieves and reads for knowledge-intensive language tasks, and its predictions carry their evidence.
//!
//! This crate is the facade: it holds no code, only the other crates under short names.
//!
//! | module | what |
//! |---|---|
//! | [`kilt`] | records, pages, passages and their store; files of this field; every score; no machine learning |
//! | [`documents`] | files and folders of documents and tables as pages of a knowledge source |
//! | [`checkpoint`] | a model's folder as data: weights, tokenizers, chat templates, the hub |
//! | [`remote`] | models at HTTP endpoints: requests, retries, limits, a cache of responses |
//! | [`transformers`] | T5, BART, decoder-only models and encoders over candle: greedy and beam search |
//! | [`training`] | the loop over an objective, the optimiser, checkpoints, and the objectives that several stages share |
//! | [`retriever`] | [`Retriever`](retriever::Retriever), with BM25 and tf-idf over indexes on disk; texts as vectors |
//! | [`reranker`] | [`Reranker`](reranker::Reranker), with cross-encoders |
//! | [`generator`] | [`Generator`](generator::Generator), with a reader that puts passages and input into one text |
//! | [`reasoner`] | reasoning over a knowledge base: embeddings, rules, questions |
//! | [`extractor`] | facts from text, with spans, links and evidence |
//! | [`pipeline`] | runs from a TOML config: it puts the stages together, resumes, scores and packs submissions |
//!
//! The stages (`retriever`, `reranker`, `generator`, `reasoner`, `extractor`) do not know each other; `kilt`, `checkpoint`, `transformers` and `training` lie under them, and only
//! `pipeline` knows them all. The program `sporran` is `pipeline` with a command line.
//!
//! # A whole run
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::path::Path;
//! use sporran::pipeline::{Config, Options, run};
//!
//! let options = Options::load(Path::new("configs/quickstart.toml"), &["tasks.limit=20".to_owned()])?;
//! let report = run(&options, &mut |_event| {})?;
//! assert_eq!(report.tasks.len(), 11);
//! # Ok(())
//! # }
//! ```
//!
//! # Parts of it
//!
//! The programs in `examples/` show the parts one by one: `search_pages` builds a store and an index and searches them,
//! `score_predictions` scores a file, `populate_then_reason` reads facts from a page and answers questions over them.

pub use sporran_checkpoint as checkpoint;
pub use sporran_documents as documents;
pub use sporran_extractor as extractor;
pub use sporran_generator as generator;
pub use sporran_kilt as kilt;
pub use sporran_pipeline as pipeline;
pub use sporran_reasoner as reasoner;
pub use sporran_remote as remote;
pub use sporran_reranker as reranker;
pub use sporran_retriever as retriever;
pub use sporran_training as training;
pub use sporran_transformers as transformers;
