//! Mixtures of experts (Shazeer et al. 2017): feed-forward parts, of which each token is read by a few.

use super::{config::LlamaConfig, kind::LlamaKind};

/// The sizes of a mixture of experts, and how they are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Experts {
    /// The number of experts.
    pub(crate) count: usize,
    /// The number of experts that read a token.
    pub(crate) chosen: usize,
    /// The inner width of an expert.
    pub(crate) width: usize,
    /// How scores become weights.
    pub(crate) weighing: Weighing,
    /// Whether the weights of a token's experts are divided by their sum, and the least sum that is.
    pub(crate) least_sum: Option<f64>,
    /// What is added to that sum.
    pub(crate) added_to_sum: f64,
    /// The factor of the weights after that.
    pub(crate) factor: f64,
    /// Whether the layer that scores experts has a bias.
    pub(crate) has_bias: bool,
    /// Whether experts are chosen with corrections of their weights.
    pub(crate) is_corrected: bool,
    /// The groups of experts, of which the best ones can read a token.
    pub(crate) groups: Option<Groups>,
    /// The part that every token reads.
    pub(crate) shared: Option<Shared>,
}

/// How the scores of experts become weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Weighing {
    /// By a softmax over all experts.
    Softmax,
    /// By a sigmoid of each score.
    Sigmoid,
    /// The two best experts: by a softmax over those whose scores are at most this part lower (Abdin et al. 2024).
    Near(f64),
}

/// Groups of experts that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Groups {
    pub(crate) count: usize,
    pub(crate) chosen: usize,
    /// The number of a group's greatest weights whose sum is the group's.
    pub(crate) summed: usize,
}

/// A feed-forward part that every token reads, beside experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shared {
    /// The inner width.
    pub(crate) width: usize,
    /// Whether a layer weighs it.
    pub(crate) is_weighed: bool,
}

/// The places of the `count` greatest values, the first of equal ones, in ascending order.
fn greatest(values: &[f32], count: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..values.len()).collect();
    all.sort_by(|a, b| values[*b].total_cmp(&values[*a]).then(a.cmp(b)));
    all.truncate(count);
    all.sort_unstable();
    all
}

impl Groups {
    /// Puts the weights of experts of other than the best groups below all others.
    fn hide_others(self, weights: &mut [f32]) {
        let size = weights.len() / self.count;
        let of = |group: &[f32]| -> f32 {
            greatest(group, self.summed).into_iter().map(|expert| group[expert]).sum()
        };
        let sums: Vec<f32> = weights.chunks_exact(size).map(of).collect();
        let best = greatest(&sums, self.chosen);
        for (group, weights) in weights.chunks_exact_mut(size).enumerate() {
            if !best.contains(&group) {
                weights.fill(f32::NEG_INFINITY);
            }
        }
    }
}

impl Experts {
    /// The experts of greatest weight, the first of equal ones, in ascending order. `corrections` has one for each expert where
    /// weights are corrected.
    pub(crate) fn choose(&self, weights: &[f32], corrections: &[f32]) -> Vec<usize> {
        let mut weights = weights.to_vec();
        weights.iter_mut().zip(corrections).for_each(|(weight, correction)| *weight += correction);
        if let Some(groups) = self.groups {
            groups.hide_others(&mut weights);
        }
        greatest(&weights, self.chosen)
    }

    /// The experts that read a token with these scores, with their weights.
    pub(crate) fn weigh(&self, scores: &[f32], corrections: &[f32]) -> Vec<(usize, f32)> {
        let weights = match self.weighing {
            Weighing::Near(part) => return nearest(scores, part as f32),
            Weighing::Softmax => softmax(scores),
            Weighing::Sigmoid => scores.iter().map(|score| 1.0 / (1.0 + (-score).exp())).collect(),
        };
        let chosen = self.choose(&weights, corrections);
        let sum: f32 = chosen.iter().map(|expert| weights[*expert]).sum();
        let divisor = self.least_sum.map_or(1.0, |least| sum.max(least as f32) + self.added_to_sum as f32);
        let factor = self.factor as f32;
        chosen.into_iter().map(|expert| (expert, weights[expert] / divisor * factor)).collect()
    }
}

fn softmax(scores: &[f32]) -> Vec<f32> {
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = scores.iter().map(|score| (score - most).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

/// The two experts of greatest score. The weight of each is by a softmax that leaves out experts whose scores are lower by more
/// than twice `part`, relative to the greater of their size and the best score; that of the second leaves out the first too.
fn nearest(scores: &[f32], part: f32) -> Vec<(usize, f32)> {
    let mut left = scores.to_vec();
    let mut found = Vec::with_capacity(2);
    for _ in 0..2 {
        let Some(best) = greatest(&left, 1).first().copied() else { break };
        let most = left[best];
        let is_far = |score: f32| (most - score) / score.abs().max(most) > 2.0 * part;
        let near = |(left, score): (&f32, &f32)| if is_far(*score) { f32::NEG_INFINITY } else { *left };
        let kept: Vec<f32> = left.iter().zip(scores).map(near).collect();
        found.push((best, softmax(&kept)[best]));
        left[best] = f32::NEG_INFINITY;
    }
    found
}

impl LlamaKind {
    /// Whether its experts are chosen with corrections of their weights.
    fn has_corrections(self) -> bool {
        self.has_deepseek_experts() || matches!(self, Self::Ernie45Moe | Self::Lfm2Moe | Self::MiniMaxM2)
    }
}

impl LlamaConfig {
    /// The experts of the feed-forward part of `layer`; none where it is one that reads all tokens.
    pub(crate) fn experts(&self, layer: usize) -> Option<Experts> {
        let at_steps = (layer + 1).is_multiple_of(self.decoder_sparse_step.unwrap_or(1).max(1));
        let is_dense = self.mlp_only_layers.as_ref().is_some_and(|layers| layers.contains(&layer));
        let has_experts = match self.kind {
            LlamaKind::Qwen2Moe | LlamaKind::Qwen3Moe | LlamaKind::Qwen3Next => at_steps && !is_dense,
            // They are beside it.
            LlamaKind::Gemma4 => false,
            // All its layers have them.
            LlamaKind::SolarOpen => true,
            LlamaKind::DeepSeekV2 | LlamaKind::Lfm2Moe | LlamaKind::Mistral4 => {
                layer >= self.first_k_dense_replace.unwrap_or(0)
            }
            kind if kind.has_deepseek_experts() => layer >= self.first_k_dense_replace.unwrap_or(0),
            LlamaKind::Ernie45Moe => {
                let last = self.moe_layer_end_index.and_then(|last| usize::try_from(last).ok());
                (layer + 1).is_multiple_of(self.moe_layer_interval.unwrap_or(1).max(1))
                    && layer >= self.moe_layer_start_index.unwrap_or(0)
                    && last.is_none_or(|last| layer <= last)
            }
            _ => true,
        };
        self.expert_sizes().filter(|_| has_experts)
    }

    /// The sizes of the mixtures of all layers that have one; none where the model has no experts.
    pub(super) fn expert_sizes(&self) -> Option<Experts> {
        let has_experts = match self.kind {
            LlamaKind::DeepSeekV2
            | LlamaKind::Ernie45Moe
            | LlamaKind::FlexOlmo
            | LlamaKind::GptOss
            | LlamaKind::GraniteMoe
            | LlamaKind::GraniteMoeShared
            | LlamaKind::HunYuanMoe
            | LlamaKind::Lfm2Moe
            | LlamaKind::MiniMaxM2
            | LlamaKind::Mistral4
            | LlamaKind::Mixtral
            | LlamaKind::Olmoe
            | LlamaKind::PhiMoe
            | LlamaKind::Qwen35Moe => true,
            LlamaKind::Gemma4 => self.enable_moe_block == Some(true),
            LlamaKind::GraniteHybrid | LlamaKind::Qwen2Moe | LlamaKind::Qwen3Moe | LlamaKind::Qwen3Next => {
                self.num_experts.is_some_and(|count| count > 0)
            }
            kind => kind.has_deepseek_experts(),
        };
        has_experts.then(|| Experts {
            count: self.num_experts.unwrap_or(0),
            chosen: self.num_experts_per_tok.unwrap_or(0),
            width: self.expert_width(),
            weighing: match self.kind {
                LlamaKind::Lfm2Moe | LlamaKind::MiniMaxM2 => Weighing::Sigmoid,
                LlamaKind::PhiMoe => Weighing::Near(self.router_jitter_noise.unwrap_or(0.01)),
                kind if kind.has_deepseek_experts() => Weighing::Sigmoid,
                _ => Weighing::Softmax,
            },
            least_sum: self.least_sum(),
            added_to_sum: if self.kind == LlamaKind::Lfm2Moe { 1e-6 } else { 0.0 },
            factor: self.expert_factor(),
            has_bias: self.kind == LlamaKind::GptOss,
            is_corrected: self.kind.has_corrections() && self.use_expert_bias.unwrap_or(true),
            groups: self.expert_groups(),
            shared: self.shared_expert(),
        })
    }

    /// The inner width of an expert.
    fn expert_width(&self) -> usize {
        // Hunyuan's experts have the width of other parts, whatever their own field says.
        let own = self.moe_intermediate_size.filter(|_| self.kind != LlamaKind::HunYuanMoe);
        own.unwrap_or(self.intermediate_size)
    }

    /// The least sum that the weights of a token's experts are divided by; none where they are not.
    fn least_sum(&self) -> Option<f64> {
        let is_normalised = self.norm_topk_prob.unwrap_or(false);
        match self.kind {
            LlamaKind::Gemma4
            | LlamaKind::GptOss
            | LlamaKind::GraniteHybrid
            | LlamaKind::GraniteMoe
            | LlamaKind::GraniteMoeShared
            | LlamaKind::HunYuanMoe
            | LlamaKind::MiniMaxM2
            | LlamaKind::Mixtral
            | LlamaKind::Qwen35Moe => Some(0.0),
            LlamaKind::Ernie45Moe => Some(self.moe_norm_min.unwrap_or(1e-12)),
            LlamaKind::DeepSeekV2 => None,
            kind if kind.has_deepseek_experts() || kind == LlamaKind::Mistral4 => {
                is_normalised.then_some(1e-20)
            }
            _ => is_normalised.then_some(0.0),
        }
    }

    fn expert_factor(&self) -> f64 {
        let has_factor = self.kind.has_deepseek_experts()
            || matches!(self.kind, LlamaKind::DeepSeekV2 | LlamaKind::Lfm2Moe | LlamaKind::Mistral4);
        self.routed_scaling_factor.filter(|_| has_factor).unwrap_or(1.0)
    }

    fn expert_groups(&self) -> Option<Groups> {
        let summed = match self.kind {
            LlamaKind::Mistral4 => 2,
            kind if kind.has_deepseek_experts() => 2,
            LlamaKind::DeepSeekV2 if self.topk_method.as_deref() == Some("group_limited_greedy") => 1,
            _ => return None,
        };
        let groups =
            Groups { count: self.n_group.unwrap_or(1), chosen: self.topk_group.unwrap_or(1), summed };
        (groups.count != 1).then_some(groups)
    }

    fn shared_expert(&self) -> Option<Shared> {
        match self.kind {
            LlamaKind::Qwen2Moe | LlamaKind::Qwen35Moe | LlamaKind::Qwen3Next => {
                self.shared_expert_intermediate_size.map(|width| Shared { width, is_weighed: true })
            }
            LlamaKind::GraniteHybrid | LlamaKind::GraniteMoeShared => self
                .shared_expert_intermediate_size
                .filter(|width| *width > 0)
                .map(|width| Shared { width, is_weighed: false }),
            LlamaKind::HunYuanMoe => Some(Shared { width: self.intermediate_size, is_weighed: false }),
            LlamaKind::Ernie45Moe if self.n_shared_experts == Some(0) => None,
            kind if kind.has_deepseek_experts()
                || matches!(kind, LlamaKind::DeepSeekV2 | LlamaKind::Ernie45Moe | LlamaKind::Mistral4) =>
            {
                let width = self.expert_width().saturating_mul(self.n_shared_experts.unwrap_or(0));
                Some(Shared { width, is_weighed: false })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Groups, LlamaConfig, LlamaKind, Shared, nearest};

    #[test]
    fn the_most_probable_experts_read_a_token() {
        let experts = LlamaKind::Mixtral.defaults().experts(0).unwrap();
        assert_eq!((experts.count, experts.chosen, experts.width), (8, 2, 14_336));
        assert_eq!(experts.choose(&[0.1, 0.3, 0.2, 0.4], &[]), [1, 3]);
        assert_eq!(experts.choose(&[0.25; 4], &[]), [0, 1]);
        assert_eq!(experts.choose(&[0.25; 4], &[0.0, 0.0, 0.1, 0.2]), [2, 3]);
    }

    #[test]
    fn experts_of_the_best_groups_alone_read_a_token() {
        let mut weights = [0.9, 0.1, 0.6, 0.5, 0.2, 0.3];
        // The sums of two are 1.0, 1.1 and 0.5; the greatest ones are 0.9, 0.6 and 0.3.
        Groups { count: 3, chosen: 1, summed: 2 }.hide_others(&mut weights.clone());
        let chosen = |summed| {
            let mut weights = weights;
            Groups { count: 3, chosen: 1, summed }.hide_others(&mut weights);
            weights.map(f32::is_finite)
        };
        assert_eq!(chosen(2), [false, false, true, true, false, false]);
        assert_eq!(chosen(1), [true, true, false, false, false, false]);
        weights[0] = 0.0;
        Groups { count: 3, chosen: 2, summed: 1 }.hide_others(&mut weights);
        assert_eq!(weights.map(f32::is_finite), [false, false, true, true, true, true]);
    }

    #[test]
    fn experts_with_much_lower_scores_have_no_part_in_the_weights() {
        // 1.5 is lower than 2 by a quarter of 2, and -1 by more than the whole of it.
        let found = nearest(&[2.0, -1.0, 1.5], 0.2);
        let first = 1.0 / (1.0 + (-0.5f32).exp());
        assert_eq!(found.iter().map(|(expert, _)| *expert).collect::<Vec<_>>(), [0, 2]);
        assert!((found[0].1 - first).abs() < 1e-6 && found[1].1 == 1.0, "{found:?}");
        assert_eq!(nearest(&[2.0, -1.0, 1.5], 0.1)[0].1, 1.0);
    }

    #[test]
    fn layers_have_experts_by_their_places() {
        let config = LlamaConfig {
            decoder_sparse_step: Some(2),
            mlp_only_layers: Some(vec![3]),
            ..LlamaKind::Qwen2Moe.defaults()
        };
        let has = |config: &LlamaConfig| -> Vec<bool> {
            (0..6).map(|layer| config.experts(layer).is_some()).collect()
        };
        assert_eq!(has(&config), [false, true, false, false, false, true]);
        let shared = Some(Shared { width: 5632, is_weighed: true });
        assert_eq!(config.experts(1).unwrap().shared, shared);
        assert_eq!(LlamaKind::Qwen3Moe.defaults().experts(0).unwrap().shared, None);
        assert_eq!(LlamaConfig::default().experts(0), None);
        assert_eq!(has(&LlamaKind::DeepSeekV3.defaults()), [false, false, false, true, true, true]);
        let ernie = LlamaConfig {
            moe_layer_interval: Some(2),
            moe_layer_start_index: Some(2),
            moe_layer_end_index: Some(4),
            ..LlamaKind::Ernie45Moe.defaults()
        };
        assert_eq!(has(&ernie), [false, false, false, true, false, false]);
        let shared = Some(Shared { width: 3072, is_weighed: false });
        assert_eq!(ernie.experts(3).unwrap().shared, shared);
    }
}
