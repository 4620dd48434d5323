//! Training of taggers, which find names and dates in texts, from documents with marked mentions.
//!
//! A config of this kind has `[annotations]` and `[tagger]`; [`ConfigKind`](crate::workflows::registry::ConfigKind) tells it.

mod options;
mod scores;
mod train;

pub use options::{
    AnnotationOptions, BiLstmOptions, EncoderOptions, SilverOptions, Stored, TaggerKind, TaggingOptions,
    TestOptions,
};
pub use scores::{Matched, Recalled, Tested};
pub use train::{TrainedTagger, train};
