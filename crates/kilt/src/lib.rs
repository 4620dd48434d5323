//! The data types, files and metrics of knowledge-intensive language tasks; no machine learning.
//!
//! A [`Page`] of a knowledge source is split into [`Passage`]s, which a [`PassageStore`] holds. A [`Record`]
//! of a task file is a [`Query`] for systems and an [`Example`] for scoring. A system answers with a
//! [`Prediction`].

pub mod annotation;
pub mod contrast;
pub mod csv;
pub mod docred;
mod error;
pub mod evidence;
pub mod folder;
pub mod formats;
mod hash;
mod id;
pub mod jsonl;
pub mod kb;
pub mod knowledgenet;
pub mod korc;
pub mod linked;
pub mod mapping;
mod metadata;
pub mod observe;
mod open_record;
pub mod page;
pub mod passage;
mod query;
mod record;
pub mod resources;
pub mod scores;
mod sentences;
mod shown;
mod staged;
pub mod statistics;
pub mod store;
pub mod synthesis;
mod task;
mod template;
pub mod trex;
pub mod triviaqa;
pub mod wow;
pub mod wowpp;
pub mod zsre;

pub use error::{Error, Result, ShardFault, with_causes};
pub use hash::{hash_id, hash_json};
pub use id::{Id, PassageId};
pub use metadata::{Field, FieldKind, Metadata};
pub use page::{Anchor, Page, ParagraphKind};
pub use passage::{FilePlace, Hit, Passage, Place, Split as PassageSplit};
pub use query::{Example, Prediction, Query, split_mention, with_context};
pub use record::{Output, Provenance, Record};
pub use sentences::sentences;
pub use shown::{counted, escaped_json, printable, printable_line};
pub use staged::{StagedFolder, remove_leftovers};
pub use store::PassageStore;
pub use task::{Dataset, Metric, Split, Task};
pub use template::Template;
