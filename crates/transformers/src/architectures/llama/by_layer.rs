//! What differs between the layers of a model: heads, the keys and values that they attend to, and inner widths.

use std::ops::Range;

use sporran_checkpoint::Result;

use super::{config::LlamaConfig, experts::Experts, kind::LlamaKind};
use crate::architectures::wrong::wrong;

impl LlamaConfig {
    fn is_gemma_4(&self) -> bool {
        self.kind == LlamaKind::Gemma4
    }

    /// The width of a head in layers that attend to everything.
    pub(crate) fn global_head_width(&self) -> usize {
        let own = self.global_head_dim.filter(|_| self.is_gemma_4());
        own.unwrap_or_else(|| self.head_width())
    }

    /// The width of a head of `layer`.
    pub(crate) fn layer_head_width(&self, layer: usize) -> usize {
        if self.is_gemma_4() && !self.is_sliding(layer) {
            return self.global_head_width();
        }
        self.head_width()
    }

    /// The number of heads that keys have in layers that attend to everything.
    pub(super) fn global_groups(&self) -> usize {
        let own = self.num_global_key_value_heads.filter(|_| self.attention_k_eq_v == Some(true));
        own.filter(|_| self.is_gemma_4()).unwrap_or_else(|| self.groups())
    }

    /// The number of heads that keys and values of `layer` have.
    pub(crate) fn layer_groups(&self, layer: usize) -> usize {
        if self.is_gemma_4() && !self.is_sliding(layer) {
            return self.global_groups();
        }
        self.groups()
    }

    /// Whether the values of `layer` are its keys before they are normalised and turned.
    pub(crate) fn values_are_keys(&self, layer: usize) -> bool {
        self.is_gemma_4() && self.attention_k_eq_v == Some(true) && !self.is_sliding(layer)
    }

    /// Whether values are normalised, without weights.
    pub(crate) fn norms_values(&self) -> bool {
        self.kind.has_layer_inputs()
    }

    /// The number of first layers that have keys and values of their own.
    pub(super) fn own_key_layers(&self) -> usize {
        let shared = self.num_kv_shared_layers.filter(|_| self.kind.has_layer_inputs()).unwrap_or(0);
        self.num_hidden_layers.saturating_sub(shared)
    }

    /// The earlier layer whose keys and values `layer` attends to: the last one with its own that sees as far. None where it has
    /// its own.
    pub(crate) fn key_source(&self, layer: usize) -> Option<usize> {
        let own = self.own_key_layers();
        if layer < own {
            return None;
        }
        (0..own).rev().find(|source| self.is_sliding(*source) == self.is_sliding(layer))
    }

    /// The inner width of the feed-forward part of `layer`.
    pub(crate) fn inner_width(&self, layer: usize) -> usize {
        let is_double =
            self.is_gemma_4() && self.use_double_wide_mlp == Some(true) && self.key_source(layer).is_some();
        let width = self.dense_width();
        if is_double { width.saturating_mul(2) } else { width }
    }

    /// The width of the embeddings that each layer has of its own; none where layers have none.
    pub(crate) fn layer_input_width(&self) -> Option<usize> {
        self.hidden_size_per_layer_input.filter(|width| *width > 0 && self.kind.has_layer_inputs())
    }

    /// Whether states are multiplied by a number of the layer after it.
    pub(crate) fn scales_layers(&self) -> bool {
        self.is_gemma_4()
    }

    /// The experts beside the feed-forward part of each layer; none where there are none.
    pub(crate) fn experts_beside(&self) -> Option<Experts> {
        self.expert_sizes().filter(|_| self.is_gemma_4())
    }

    /// Checks that layers have keys of earlier ones of their type, and the sizes of their embeddings.
    pub(super) fn check_layers_of_gemma(&self) -> Result<()> {
        let (layers, own) = (self.num_hidden_layers, self.own_key_layers());
        let has =
            |is_near: bool, mut range: Range<usize>| range.any(|layer| self.is_sliding(layer) == is_near);
        if [true, false].into_iter().any(|is_near| has(is_near, own..layers) && !has(is_near, 0..own)) {
            let found = self.num_kv_shared_layers.unwrap_or(0).to_string();
            let expected = "layers of each type before those that have their keys";
            return Err(wrong("num_kv_shared_layers", expected, &found));
        }
        let Some(width) = self.layer_input_width() else { return Ok(()) };
        if width.checked_mul(layers).is_none_or(|all| all > i32::MAX as usize) {
            let expected = format!("at most {} in all layers", i32::MAX);
            return Err(wrong("hidden_size_per_layer_input", &expected, &width.to_string()));
        }
        match self.vocab_size_per_layer_input.unwrap_or(0) {
            0 => Err(wrong("vocab_size_per_layer_input", "at least 1", "none")),
            _ => Ok(()),
        }
    }

    /// Whether the stored tensor `name` is one of keys and values that their layer does not use.
    pub(super) fn is_of_unused_keys(&self, name: &str) -> bool {
        const KEYS: [&str; 4] = ["k_proj.", "v_proj.", "k_norm.", "v_norm."];
        let Some((layer, end)) = name.strip_prefix("model.layers.").and_then(|name| name.split_once('.'))
        else {
            return false;
        };
        let part = end.strip_prefix("self_attn.").unwrap_or_default();
        KEYS.iter().any(|key| part.starts_with(key))
            && layer.parse().is_ok_and(|layer| self.key_source(layer).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::{LlamaConfig, LlamaKind};

    #[test]
    fn the_last_layers_have_keys_of_the_last_one_that_sees_as_far() {
        let config = LlamaConfig {
            num_hidden_layers: 12,
            num_kv_shared_layers: Some(5),
            use_double_wide_mlp: Some(true),
            attention_k_eq_v: Some(true),
            num_global_key_value_heads: Some(2),
            ..LlamaKind::Gemma4.defaults()
        };
        // Every sixth layer attends to everything.
        let sources: Vec<Option<usize>> = (0..12).map(|layer| config.key_source(layer)).collect();
        let expected = [[None; 7].as_slice(), &[Some(6); 4], &[Some(5)]].concat();
        assert_eq!(sources, expected);
        assert_eq!([6, 7].map(|layer| config.inner_width(layer)), [9216, 18_432]);
        let heads = |layer| (config.layer_groups(layer), config.layer_head_width(layer));
        assert_eq!([4, 5].map(heads), [(4, 256), (2, 512)]);
        assert_eq!([4, 5].map(|layer| config.values_are_keys(layer)), [false, true]);
        for (name, is_unused) in [
            ("model.layers.7.self_attn.k_proj.weight", true),
            ("model.layers.7.self_attn.v_norm.weight", true),
            ("model.layers.7.self_attn.q_proj.weight", false),
            ("model.layers.6.self_attn.k_proj.weight", false),
        ] {
            assert_eq!(config.is_of_unused_keys(name), is_unused, "{name}");
        }
        let others = LlamaConfig { num_kv_shared_layers: Some(5), ..LlamaConfig::default() };
        assert_eq!(others.key_source(31), None);
    }
}
