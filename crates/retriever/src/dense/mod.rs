//! Dense retrieval: texts as vectors, and vector search.
//!
//! An [`Encoder`] maps texts to vectors; [`BiEncoder`] is one, [`RemoteEncoder`] another at an HTTP endpoint. A [`VectorIndex`] finds the nearest vectors;
//! [`Index`] is one on disk. [`Dense`] is the retriever that combines both, and [`PassageEncoder`] encodes
//! its passages. [`BiEncoderTraining`] trains a [`BiEncoder`]. [`LiveDense`] is searched while
//! its question encoder is trained.

mod bi_encoder;
mod distance;
mod encoder;
mod fingerprint;
mod flat;
mod folder;
mod header;
mod hnsw;
mod index;
mod kind;
mod options;
mod part;
mod plan;
mod pq;
mod progress;
mod recall;
mod remote;
mod retriever;
mod rows;
mod sentence_layout;
mod sharded;
mod train;
mod vector_index;

pub use bi_encoder::{BiEncoder, BiEncoderOptions, Prompt};
pub use encoder::{Embeddings, Encoder};
pub use header::Report;
pub use index::{Index, Origin};
pub use options::{
    DenseOptions, FlatOptions, HnswLibrary, HnswOptions, IndexOptions, PqBits, PqOptions, Similarity,
    Storage, VectorStorage,
};
pub use progress::Progress;
pub use recall::Recall;
pub use remote::{RemoteDenseOptions, RemoteEncoder};
pub use retriever::{Dense, PassageEncoder};
pub use sentence_layout::{SentenceLayout, SentencePrompts};
pub use sporran_kernels::Filter;
pub use train::{BiEncoderTraining, LiveDense};
pub use vector_index::VectorIndex;
