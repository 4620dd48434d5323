//! Sequences of which only some are allowed.

/// Determines the tokens that may follow, as `prefix_allowed_tokens_fn` does in `transformers`.
pub trait Constraint: Sync {
    /// Appends the tokens that may follow `tokens` to `allowed`, each once. `tokens` are the new tokens of a sequence
    /// of input `input`, without its prompt. If no token may follow, nothing is appended, and the sequence cannot
    /// continue.
    fn allowed(&self, input: usize, tokens: &[u32], allowed: &mut Vec<u32>);

    /// Whether a sequence counts only with its end token. Then sequences truncated at the maximum length are
    /// not returned, and an input may get fewer sequences than requested, or none. `transformers` returns truncated
    /// sequences.
    fn complete_only(&self) -> bool {
        false
    }
}

/// The facts about its inputs that a search uses in addition to their scores.
#[derive(Clone, Copy, Default)]
pub struct Inputs<'a> {
    /// The source tokens of every input, for `encoder-no-repeat-ngram-size`. Sampling is seeded by the seed and these
    /// tokens, so an input's samples do not depend on the batch; without them it is seeded by the input's index in the
    /// batch.
    pub sources: Option<&'a [Vec<u32>]>,
    /// Which tokens may follow.
    pub constraint: Option<&'a dyn Constraint>,
}

impl std::fmt::Debug for Inputs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let constraint = self.constraint.map(|_| "..");
        f.debug_struct("Inputs").field("sources", &self.sources).field("constraint", &constraint).finish()
    }
}
