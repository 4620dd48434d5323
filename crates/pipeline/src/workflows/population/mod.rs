//! Knowledge-base population (KnowledgeNet; Mesquita et al., 2019): extracts linked facts with evidence from documents.

mod aliases;
mod average;
mod bilstm;
mod errors;
mod options;
mod options_key;
mod parts;
mod populate;
mod recall;
mod sources;
mod teacher;
mod train;
mod triplets;
pub(crate) mod workflow;

pub(crate) use aliases::build as build_names;
pub use aliases::{NamesFormat, NamesOptions};
pub use errors::{Causes, ErrorAnalysis, errors};
pub use options::{
    AnnotationsOptions, BilstmTraining, CoreferenceKind, FreshEncoder, InputOptions, LinkingOptions,
    MentionsOptions, PopulationOptions, Purpose, RelationsOptions, RelationsTraining, TeacherOptions,
    TriplesOptions,
};
pub(crate) use parts::{coreference, linker, mentions as finder};
pub(crate) use populate::Node;
pub use populate::{PopulatedFile, PopulationReport, populate};
pub use recall::MaximumRecall;
pub use sources::InputFormat;
pub use train::{TrainedRelations, train};
pub use triplets::{TripletTraining, WrittenProperty};
