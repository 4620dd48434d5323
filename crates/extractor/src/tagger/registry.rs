//! The list of tagger kinds.

use sporran_config::kinds;

use super::{BiLstmOptions, EncoderOptions, TaggerKind};

kinds! {
    /// `[tagger]`, by `kind`.
    pub enum TaggerOptions: dyn TaggerKind {
        /// `kind = "encoder-crf"`: an encoder with a conditional random field.
        "encoder-crf" => EncoderCrf(EncoderOptions),
        /// `kind = "bilstm-crf"`: a BiLSTM over hashed words and their parts, with a conditional random field.
        "bilstm-crf" => BilstmCrf(BiLstmOptions),
    }
}
