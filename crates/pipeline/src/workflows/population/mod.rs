//! Knowledge-base population (KnowledgeNet; Mesquita et al., 2019): extracts linked facts with evidence from documents.

mod aliases;
mod background;
mod errors;
mod options;
mod options_key;
mod parts;
mod populate;
mod sources;
mod teacher;
mod train;
pub(crate) mod workflow;

pub(crate) use aliases::build as build_names;
pub use aliases::{NamesFormat, NamesOptions};
pub use errors::{Causes, ErrorAnalysis, errors};
pub use options::{
    AnnotationsOptions, InputOptions, LinkingOptions, PopulationOptions, Purpose, RelationsOptions,
    TeacherOptions, TriplesOptions,
};
pub(crate) use parts::linker;
pub(crate) use populate::Node;
pub use populate::{PopulatedFile, PopulationReport, populate};
pub use sources::InputFormat;
pub use sporran_extractor::{
    MentionsOptions,
    coreference::CoreferenceKind,
    relations::{BilstmTraining, FreshEncoder, LinearTraining, MarkedTraining, MaximumRecall},
    triplets::{TripletTraining, WrittenProperty},
};
pub use train::{TrainedRelations, train};
