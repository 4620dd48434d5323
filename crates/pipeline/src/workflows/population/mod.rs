//! Knowledge-base population (KnowledgeNet; Mesquita et al., 2019): extracts linked facts with evidence from documents.

mod background;
mod errors;
mod options;
mod options_key;
mod parts;
mod populate;
mod shards;
mod sources;
mod system;
mod teacher;
mod train;
pub(crate) mod workflow;

pub use errors::{Causes, ErrorAnalysis, errors};
pub use options::{
    AnnotationsOptions, InputOptions, PopulationOptions, Purpose, TeacherOptions, TriplesOptions,
};
pub(crate) use populate::Node;
pub use populate::{PopulatedFile, PopulationReport, populate};
pub use sources::InputFormat;
pub use sporran_extractor::{
    LinkingOptions, MentionsOptions, NamesFormat, NamesOptions, RelationsOptions,
    coreference::CoreferenceKind,
    relations::{BilstmTraining, FreshEncoder, LinearTraining, MarkedTraining, MaximumRecall},
    triplets::{TripletTraining, WrittenProperty},
};
pub(crate) use system::linked_mentions;
pub use system::{FactArgument, FactSystem, TextFact, TextMention, TextSpan};
pub(crate) use train::maximum_recall;
pub use train::{TrainedRelations, train};
