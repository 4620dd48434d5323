//! Training of encoder-decoders by teacher forcing: AdamW, warm-up and decay, clipping, length-bucketed batches,
//! evaluations that keep the best weights, and checkpoints that a killed training goes on from, bit for bit.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::{ops::ControlFlow, path::Path, sync::Arc};
//! use candle_core::Device;
//! use sporran_transformers::training::{Row, Training, TrainingOptions, Variables, train};
//! use sporran_transformers::{T5, T5Config};
//!
//! let config = T5Config { vocab_size: 8192, d_model: 192, ..T5Config::default() };
//! let variables = Variables::new(7);
//! let model = T5::new(&config, &variables.builder(&Device::Cpu))?;
//! let rows = Arc::new(vec![Row { source: vec![5, 6, 1], target: vec![6, 1] }]);
//! train(
//!     &Training {
//!         model: &model,
//!         variables: &variables,
//!         options: &TrainingOptions::default(),
//!         rows: &|_epoch| Ok(rows.clone()),
//!         evaluate: None,
//!         folder: Path::new("run"),
//!         companions: &[],
//!     },
//!     &mut |_progress| ControlFlow::Continue(()),
//! )?;
//! # Ok(())
//! # }
//! ```

mod checkpoint;
mod copying;
mod data;
pub(crate) mod fused;
mod history;
mod learner;
mod loss;
mod optimizer;
mod options;
mod schedule;
mod trainer;
mod variables;
mod vocabulary;

pub use checkpoint::{Companions, best_folder, export};
pub use copying::wire_copying;
pub use data::{IGNORED_LABEL, Row, TextPair, TrainingBatch, batches_of, rows_of};
pub use loss::cross_entropy;
pub use optimizer::{AdamW, AdamWConfig, Gradients, clip_global_norm, global_norm};
pub use options::TrainingOptions;
pub use schedule::{Decay, Schedule};
pub use trainer::{EvaluationError, Outcome, Progress, Training, train};
pub use variables::Variables;
pub use vocabulary::{END, PAD, UNKNOWN, VocabularyOptions, tokenizer_files, train_vocabulary};
