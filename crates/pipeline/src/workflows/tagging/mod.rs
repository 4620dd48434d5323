//! Training of taggers, which find names and dates in texts, from documents with marked mentions.

mod options;
mod scores;
mod train;
pub(crate) mod workflow;

pub use options::{
    AnnotationOptions, BiLstmOptions, EncoderOptions, TaggerKind, TaggingOptions, TestOptions,
    WeakLabelOptions,
};
pub use scores::{Matched, Recalled, Tested};
pub use sporran_training::session::WeightDtype;
pub use train::{TrainedTagger, train};
