//! Answers the records of task files with provenance: retrieval, reranking, generation and scores. Also trains the models.

mod ask;
pub(crate) mod assemble;
pub(crate) mod check;
mod evidence;
mod explain;
mod index_report;
pub(crate) mod judged;
mod mentions;
pub mod options;
mod overrides;
mod plan;
pub mod report;
mod rerank;
pub mod retrieval;
mod run;
mod shards;
mod system;
mod titles;
mod trace;
pub mod train;
mod tune;
pub(crate) mod workflow;

pub use ask::{
    AskOptions, Asker, CitedAnswer, CitedPassage, CitedSentence, Conversation, Endpoint, EvalSet,
    FollowUpQueries, SuggestedModel, Synthetic, cited_passages, eval_set, heading, suggested_model,
};
pub use assemble::{Assembly, assemble, assemble_retrieval};
pub use explain::{Answer, Evidence, Explanation, explain};
pub use index_report::IndexReport;
pub use options::Options;
pub use plan::{BuildPlan, Total};
pub use report::Report;
pub use run::{retrieve, run};
pub(crate) use shards::merge;
pub use shards::{retrieve_shard, run_shard};
pub use system::{Answered, System};
pub use trace::{Step, trace};
pub use train::train;
pub use tune::{Trial, tune};
