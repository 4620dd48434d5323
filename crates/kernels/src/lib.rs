//! CPU kernels of transformers and of vector search, over plain slices. They cover products with packed
//! matrices in f32 and int8 or in the codings of GGUF files, single-head attention, normalisation, softmax and activations, with gradients
//! and dropout. For search they find the largest inner products of rows with queries.
//!
//! Every function has one generic definition over `simd::Simd`, compiled for each instruction set and
//! chosen at run time: AVX-512 with VNNI, AVX-512, AVX2 with FMA, and plain Rust. Products of many rows use
//! AMX if available, and products that may be rounded to bf16 use AVX-512 BF16. An element of a result is
//! always summed in the same order. So it depends neither on the number of threads nor on the rest of the
//! batch, with one exception: with AMX, products in f32 of 48 or more rows round differently.

mod adagrad;
mod adam;
#[cfg(target_arch = "x86_64")]
mod amx;
mod approx_dot;
mod attention;
mod buffer;
mod codebook;
mod coding;
mod compare;
mod grid;
mod isa;
mod logits;
mod lstm;
mod math;
mod matrix;
mod multiply;
mod normalisation;
mod panels;
mod pq;
mod propagate;
mod quantise;
mod rows;
mod scan;
mod simd;
mod stored;
mod sync;
mod thread_pool;
mod top;
mod training;
mod vectors;

pub use adagrad::AdagradStep;
pub use adam::AdamStep;
pub use approx_dot::RoughRows;
pub use attention::{Distances, PackedHead, Queries, Scores, attend, attend_steps};
pub use buffer::{Buffer, Lines};
pub use codebook::Codebook;
pub use coding::Coding;
pub use compare::Comparison;
pub use isa::Isa;
pub use logits::{count_from, scaled_sigmoid, scaled_softmax, total};
pub use lstm::{lstm_step, lstm_step_back};
pub use math::{Activation, Norm, exp_sum, max};
pub use matrix::{Machine, Matrix, Precision, Product, Store};
pub use multiply::{Scaled, TrainingPrecision, View, multiply as multiply_matrices};
pub use normalisation::{Normalised, NormalisedBack, mean_and_spread, rectify_back};
pub use pq::{CodeBits, Codes, round_tables};
pub use propagate::Adjacency;
pub use rows::{Part, Rows};
pub use scan::{Filter, Panels, Storage};
pub use stored::{Stored, Table};
pub use thread_pool::ThreadPool;
pub use top::{Top, by_rank};
pub use training::{Dropout, ResidualNorm, SoftmaxRows, add_columns, multiply, scaled_exp};
pub use vectors::Vectors;
