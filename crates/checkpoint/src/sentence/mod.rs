//! The files of sentence-transformers in the folder of an encoder: the modules after it, input settings, and the settings
//! of vectors and scores.

mod cross_encoder;
mod input;
mod modules;
mod settings;

pub use cross_encoder::{CrossEncoderFolder, LogitScore, ScoreActivation};
pub use input::{INPUT_FILES, InputSettings};
pub use modules::{
    MODULE_FILES, Module, encoder_folder, encoder_of, module_config, module_folders, modules, unexpected,
};
pub use settings::{Role, SentenceSettings, VectorSimilarity};
