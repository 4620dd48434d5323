//! The sizes of the experts of Switch Transformers.

/// The experts of a layer of a Switch Transformer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SwitchSizes {
    pub(crate) count: usize,
    /// The most tokens of a sequence that an expert reads.
    pub(crate) capacity: usize,
    /// Whether the layer that scores experts has a bias.
    pub(crate) has_bias: bool,
}

impl SwitchSizes {
    /// For each token of a sequence, the expert that reads it and its weight, by the scores of all experts; none for a token
    /// after those that its expert has room for.
    pub(crate) fn route(self, scores: &[f32]) -> Vec<Option<(usize, f32)>> {
        let mut read = vec![0; self.count];
        let mut one = |scores: &[f32]| {
            let mut best = 0;
            for (expert, score) in scores.iter().enumerate() {
                if *score > scores[best] {
                    best = expert;
                }
            }
            let sum: f32 = scores.iter().map(|score| (score - scores[best]).exp()).sum();
            read[best] += 1;
            (read[best] <= self.capacity).then_some((best, 1.0 / sum))
        };
        scores.chunks_exact(self.count).map(&mut one).collect()
    }
}
