//! Training of taggers, which find names and dates in texts, from documents with marked mentions.

mod options;
mod scores;
mod train;
pub(crate) mod workflow;

pub use options::{AnnotationOptions, TaggingOptions, TestOptions, WeakLabelOptions};
pub use scores::{Matched, Recalled, Tested};
pub use sporran_extractor::tagger::{BiLstmOptions, EncoderOptions, TaggerOptions};
pub use sporran_training::session::WeightDtype;
pub use train::{TrainedTagger, train};
