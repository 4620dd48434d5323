//! Errors of answer generation.

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every way in which generation can fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model, its folder or its tokenizer.
    #[error(transparent)]
    Transformers(#[from] sporran_checkpoint::Error),
    /// A file of examples.
    #[error(transparent)]
    Kilt(#[from] sporran_kilt::Error),
    /// An endpoint.
    #[error(transparent)]
    Remote(#[from] sporran_remote::Error),
    /// The index that a training searches, or the encoder of its questions.
    #[error(transparent)]
    Index(Box<dyn std::error::Error + Send + Sync>),
    /// A training without a setting or without usable records.
    #[error("`{option}`: {problem}")]
    Training {
        /// The key of the config.
        option: &'static str,
        /// The problem.
        problem: &'static str,
    },
    /// A kind whose requests cannot join a running batch.
    #[error(
        "`kind = \"{kind}\"`: expected `causal` or `seq2seq` for a running batch, which requests join while others are answered"
    )]
    Running {
        /// The kind.
        kind: &'static str,
    },
    /// A client's prompt that the model does not read as a whole.
    #[error("expected a prompt of at most {most} tokens, found {tokens}")]
    PromptLength {
        /// The tokens of the prompt.
        tokens: usize,
        /// The most tokens.
        most: usize,
    },
    /// An option outside its range.
    #[error("{option}: expected {expected}, found {found}")]
    Option {
        /// The option's name in a config.
        option: &'static str,
        /// The expected value.
        expected: &'static str,
        /// The found value.
        found: String,
    },
}
