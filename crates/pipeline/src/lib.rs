//! Runs from a TOML config: knowledge source, index, retrieval, generation, predictions with provenance, scores.
//!
//! [`Options`] is what a config says; [`run`] does all of it, [`retrieve`] and [`train()`] parts. A run writes its folder:
//! the resolved config, predictions named as their inputs, rankings in TREC's format, a report and a manifest. A step
//! is done again only if something that it depends on has changed; a killed run goes on where it stopped.

mod assemble;
mod comparison;
mod config;
pub mod documents;
pub mod encoders;
mod error;
mod evidence;
mod explain;
mod folder;
mod fusion;
pub mod generation;
mod inputs;
mod integrity;
mod journal;
mod key;
mod kind;
pub mod korc;
mod learn;
pub mod linking;
pub mod links;
pub mod manifest;
mod memory;
pub mod observe;
pub mod options;
mod overrides;
mod pages;
pub mod population;
mod pupil;
mod query;
mod rag;
mod reading;
pub mod report;
mod rerank;
pub mod retrieval;
pub mod rules;
mod run;
pub mod selection;
mod settings;
pub mod slots;
pub mod submission;
pub mod tagging;
mod tasks;
mod titles;
mod trace;
mod train;
mod training_folder;
mod tune;
mod verification;

pub use assemble::{Assembly, PartHash, assemble, assemble_retrieval};
pub use comparison::{Comparison, Cost, Form, Score, System, Table, Task, compare_runs};
pub use config::Diagnostic;
pub use error::{Error, Result};
pub use explain::{Answer, Evidence, Explanation, explain};
pub use folder::{check_finished, check_model};
pub use integrity::{Checked, Unfinished, Verification, verify};
pub use kind::{Config, ConfigKind, show};
pub use observe::{Event, Observer, Unit};
pub use options::Options;
pub use report::Report;
pub use run::{retrieve, run};
pub use settings::TaskFile;
pub use trace::{Step, trace};
pub use train::{Trained, train};
pub use tune::{Tried, tune};
