//! Runs from a TOML config: knowledge source, index, retrieval, generation, predictions with provenance, scores.
//!
//! [`Options`] is what a config says; [`run`] does all of it, [`retrieve`] and [`train()`] parts. A run writes its folder:
//! the resolved config, predictions named as their inputs, rankings in TREC's format, a report and a manifest. A step
//! is done again only if something that it depends on has changed; a killed run goes on where it stopped.

mod compare;
mod config;
mod error;
mod html;
pub mod observe;
mod run_dir;
mod source;
pub mod submit;
mod tasks;
mod training;
pub mod workflows;

pub use compare::{Comparison, Cost, Form, Score, System, Table, Task, compare_runs};
pub use config::{Diagnostic, load::Config};
pub use error::{Error, Result};
pub use observe::{Event, Observer, Unit};
pub use run_dir::{
    folder::{check_finished, check_model},
    integrity::{Checked, Unfinished, Verification, verify},
    manifest,
};
pub use source::store::PartHash;
pub use tasks::files::TaskFile;
pub use training::outcome::Trained;
pub use workflows::{
    answer::{
        Answer, Assembly, Evidence, Explanation, Options, Report, Step, Tried, assemble, assemble_retrieval,
        explain, generation, options, report, retrieval, retrieve, run, trace, train, train::encoders, tune,
    },
    document_relations, entity_linking, kbqa, knowledge_selection, link_prediction, population,
    registry::{self, check, show, workflow_named, workflow_of},
    rules, slot_filling, tagging,
    workflow::{Outcome, Workflow},
};
