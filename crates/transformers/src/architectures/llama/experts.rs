//! Mixtures of experts (Shazeer et al. 2017): feed-forward parts, of which each token is read by a few.

use super::{config::LlamaConfig, kind::LlamaKind};

/// The sizes of a mixture of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Experts {
    /// The number of experts.
    pub(crate) count: usize,
    /// The number of experts that read a token.
    pub(crate) chosen: usize,
    /// The inner width of an expert.
    pub(crate) width: usize,
    /// Whether the weights of a token's experts have the sum 1.
    pub(crate) is_normalised: bool,
    /// The inner width of the part that every token reads, where there is one.
    pub(crate) shared: Option<usize>,
}

impl Experts {
    /// The experts of greatest probability, the first of equal ones, in ascending order.
    pub(crate) fn choose(&self, probabilities: &[f32]) -> Vec<usize> {
        let mut all: Vec<usize> = (0..probabilities.len()).collect();
        all.sort_by(|a, b| probabilities[*b].total_cmp(&probabilities[*a]).then(a.cmp(b)));
        all.truncate(self.chosen);
        all.sort_unstable();
        all
    }
}

impl LlamaConfig {
    /// The experts of the feed-forward part of `layer`; none where it is one that reads all tokens.
    pub(crate) fn experts(&self, layer: usize) -> Option<Experts> {
        let at_steps = (layer + 1).is_multiple_of(self.decoder_sparse_step.unwrap_or(1).max(1));
        let is_dense = self.mlp_only_layers.as_ref().is_some_and(|layers| layers.contains(&layer));
        let has_experts = match self.kind {
            LlamaKind::Qwen2Moe | LlamaKind::Qwen3Moe => at_steps && !is_dense,
            _ => true,
        };
        self.expert_sizes().filter(|_| has_experts)
    }

    /// The sizes of the mixtures of all layers that have one; none where the model has no experts.
    pub(super) fn expert_sizes(&self) -> Option<Experts> {
        let has_experts = match self.kind {
            LlamaKind::Mixtral | LlamaKind::Olmoe => true,
            LlamaKind::Qwen2Moe | LlamaKind::Qwen3Moe => self.num_experts.is_some_and(|count| count > 0),
            _ => false,
        };
        has_experts.then(|| Experts {
            count: self.num_experts.unwrap_or(0),
            chosen: self.num_experts_per_tok.unwrap_or(0),
            width: self.moe_intermediate_size.unwrap_or(self.intermediate_size),
            is_normalised: self.kind == LlamaKind::Mixtral || self.norm_topk_prob.unwrap_or(false),
            shared: self.shared_expert_intermediate_size.filter(|_| self.kind == LlamaKind::Qwen2Moe),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{LlamaConfig, LlamaKind};

    #[test]
    fn the_most_probable_experts_read_a_token() {
        let experts = LlamaKind::Mixtral.defaults().experts(0).unwrap();
        assert_eq!((experts.count, experts.chosen, experts.width), (8, 2, 14_336));
        assert_eq!(experts.choose(&[0.1, 0.3, 0.2, 0.4]), [1, 3]);
        assert_eq!(experts.choose(&[0.25; 4]), [0, 1]);
    }

    #[test]
    fn layers_have_experts_by_their_places() {
        let config = LlamaConfig {
            decoder_sparse_step: Some(2),
            mlp_only_layers: Some(vec![3]),
            ..LlamaKind::Qwen2Moe.defaults()
        };
        let has: Vec<bool> = (0..6).map(|layer| config.experts(layer).is_some()).collect();
        assert_eq!(has, [false, true, false, false, false, true]);
        assert_eq!(config.experts(1).unwrap().shared, Some(5632));
        assert_eq!(LlamaKind::Qwen3Moe.defaults().experts(0).unwrap().shared, None);
        assert_eq!(LlamaConfig::default().experts(0), None);
    }
}
