//! Runs from a TOML config: knowledge source, index, retrieval, generation, predictions with provenance, scores.
//!
//! [`Options`] are the options of a config. [`run`] executes it; [`retrieve`] and [`train()`] execute parts.
//! A run writes its folder: the resolved config, predictions with the names of their inputs, rankings in
//! TREC's format, a report and a manifest. A step runs again only if its options or inputs have changed. A
//! killed run resumes where it stopped.

mod compare;
mod config;
mod error;
mod html;
pub mod review;
mod run_dir;
pub mod shards;
mod source;
pub mod submit;
mod tasks;
mod user;
pub mod workflows;

pub use compare::{
    Comparison, Cost, DatasetRow, DatasetTable, FactComparison, FactRun, Form, PublishedSize,
    QuestionComparison, QuestionScores, QuestionSystem, RunKind, Score, Size, System, Table, Task,
    compare_facts, compare_questions, compare_runs, kind_of_runs, responses,
};
pub use config::Config;
pub use error::{Error, Result};
pub use run_dir::{
    folder::{check_finished, check_model, continues},
    integrity::{Checked, Unfinished, Verification, verify},
    manifest,
    shard::ShardReport,
};
pub use source::{
    cache,
    documents::source_pages,
    options::{SourceOptions, SplitBy},
    store::{PartHash, cached_store},
};
pub use sporran_config::Diagnostic;
pub use sporran_documents::Summary as DocumentsSummary;
pub use sporran_kilt::observe::{self, Event, Observer, Unit};
pub use sporran_training::session::Trained;
pub use tasks::{files::TaskFile, loader::Asked};
pub use user::{MOST_THREADS, UserEndpoint, UserOptions};
pub use workflows::{
    answer::{
        Answer, Assembly, BuildPlan, Evidence, Explanation, IndexReport, Options, Report, Step, Total, Trial,
        assemble, assemble_retrieval, explain, options, report, retrieval, retrieve, retrieve_shard, run,
        run_shard, trace, train, train::encoder_options, tune,
    },
    document_relations, entity_linking, kbqa, knowledge_selection, link_prediction, population,
    registry::{self, check, show, workflow_named, workflow_of},
    rules, slot_filling, tagging,
    workflow::{Outcome, Workflow},
};
