//! Training of models: the loop over an [`Objective`], and the objectives that several stages share.
//!
//! The loop has AdamW, warm-up and decay, clipping, batches by token budget, and evaluations that keep the best weights. A
//! killed training resumes from its newest checkpoint, bit for bit.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::{ops::ControlFlow, path::Path, sync::Arc};
//! use candle_core::Device;
//! use sporran_training::{Row, Seq2SeqObjective, Training, TrainingOptions, Variables, train};
//! use sporran_transformers::{T5, T5Config};
//!
//! let config = T5Config { vocab_size: 8192, d_model: 192, ..T5Config::default() };
//! let variables = Variables::new(7);
//! let model = T5::new(&config, &variables.builder(&Device::Cpu))?;
//! let rows = Arc::new(vec![Row { source: vec![5, 6, 1], target: vec![6, 1] }]);
//! let options = TrainingOptions::default();
//! train(
//!     &Training {
//!         objective: &Seq2SeqObjective::new(&model, &variables, &options, &|_epoch| Ok(rows.clone())),
//!         variables: &variables,
//!         options: &options,
//!         evaluate: None,
//!         folder: Path::new("run"),
//!         extra_files: &[],
//!     },
//!     &mut |_progress| ControlFlow::Continue(()),
//! )?;
//! # Ok(())
//! # }
//! ```

mod causal;
mod checkpoint;
mod classification;
mod copying;
mod crf;
mod data;
mod dpr_reader;
mod fid;
mod gradients;
mod history;
mod live_index;
mod loss;
mod lstm;
mod masked;
mod memnet;
mod memory;
mod objective;
mod optimizer;
mod options;
mod packed;
mod pairs;
mod pooling;
mod rag;
mod ranking;
mod ranking_loss;
mod reciprocal_rank;
mod schedule;
mod seq2seq;
pub mod session;
mod tagging;
mod trainer;
mod tuned;
mod variables;
mod vocabulary;

pub use causal::{CausalObjective, mean_loss};
pub use checkpoint::{ExtraFiles, best_folder, export, export_part};
pub use classification::{ClassificationObjective, LabelledRow};
pub use copying::wire_copying;
pub use crf::CrfVariables;
pub use data::{
    IGNORED_LABEL, Row, RowBatch, TextPair, TrainingBatch, batches_of, rows_of, shuffled_batches,
};
pub use dpr_reader::{ReadQuestion, ReaderObjective, ReaderScores};
pub use fid::{FidObjective, FidRow};
pub use gradients::Gradients;
pub use live_index::{IndexError, LiveIndex, QuestionEncoder};
pub use loss::cross_entropy;
pub use lstm::BiLstm;
pub use masked::{MaskedBatch, MaskedLmObjective, MaskingTokens};
pub use memnet::{KnowledgeOptions, MemoryObjective, MemoryRow};
pub use memory::KeptMemory;
pub use objective::Objective;
pub use optimizer::{AdamW, AdamWConfig};
pub use options::TrainingOptions;
pub use pairs::{PairExample, PairObjective, PairTarget};
pub use pooling::pool_states;
pub use rag::{
    FindPassages, FoundPassage, RAG_PREFIXES, RagLoss, RagModels, RagObjective, RagQuestion, ScoredQuestion,
    ScoredRagObjective,
};
pub use ranking::{RankingBatch, RankingObjective, RankingQuery};
pub use ranking_loss::RankingLoss;
pub use reciprocal_rank::{ValidationList, mean_reciprocal_rank};
pub use schedule::{Decay, Schedule};
pub use seq2seq::Seq2SeqObjective;
pub use tagging::{Emitter, EncoderEmitter, ScoreLoss, TaggedRow, TaggingObjective};
pub use trainer::{EvaluationError, Outcome, Progress, Training, train};
pub use tuned::{Pick, TunedEncoder};
pub use variables::Variables;
pub use vocabulary::{END, PAD, UNKNOWN, VocabularyOptions, tokenizer_files, train_vocabulary};
