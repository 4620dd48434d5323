//! Layers that keep a state of one size in the place of keys and values: gated delta rules (Yang et al. 2025), short
//! convolutions and state spaces.

use std::ops::Range;

use sporran_checkpoint::Result;

use super::{
    config::LlamaConfig,
    kind::LlamaKind,
    mamba::StateSpaceSizes,
    positions::{FULL, LINEAR, SHORT, SLIDING},
};
use crate::architectures::wrong::wrong;

/// What a layer is that keeps a state in the place of keys and values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Recurrence {
    Delta(DeltaSizes),
    Convolution(ConvolutionSizes),
    StateSpace(StateSpaceSizes),
}

/// The sizes of a gated short convolution, which has as many channels as the states have values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConvolutionSizes {
    /// The tokens that it reads, the own one included.
    pub(crate) kernel: usize,
    /// Whether it and its projections have biases.
    pub(crate) has_bias: bool,
}

/// The names of a gated convolution's tensors, in its layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConvolutionNames {
    /// The gates of inputs, the gates of results, and the inputs.
    pub(crate) inputs: &'static str,
    /// Its weights are (channels, 1, kernel).
    pub(crate) convolution: &'static str,
    pub(crate) output: &'static str,
}

/// The names in `transformers`.
pub(crate) const CONVOLUTION: ConvolutionNames =
    ConvolutionNames { inputs: "conv.in_proj", convolution: "conv.conv", output: "conv.out_proj" };

/// The sizes of a gated delta rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeltaSizes {
    /// Heads of queries and keys, each of which serves the same number of heads of values that follow each other.
    pub(crate) key_heads: usize,
    /// Heads of values.
    pub(crate) value_heads: usize,
    /// The width of a query and of a key.
    pub(crate) key_width: usize,
    /// The width of a value.
    pub(crate) value_width: usize,
    /// The tokens that the convolution before it reads, the own one included.
    pub(crate) kernel: usize,
    /// Whether one tensor has the queries, keys, values and gates of a head of keys side by side, and then those of the next.
    pub(crate) is_by_head: bool,
}

/// The names of a delta rule's tensors, in its layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeltaNames {
    /// Queries, keys and values; with their gates where they are stored by head.
    pub(crate) inputs: &'static str,
    pub(crate) inputs_by_head: &'static str,
    /// The gates of results.
    pub(crate) gate: &'static str,
    /// How much of a value is stored, and how fast stored values decay.
    pub(crate) rates: [&'static str; 2],
    pub(crate) rates_by_head: &'static str,
    /// The weights of the convolution (channels, 1, kernel).
    pub(crate) convolution: &'static str,
    /// The logarithm of the decay of each head of values, and what is added to its rate.
    pub(crate) decay: &'static str,
    pub(crate) bias: &'static str,
    /// The norm of each head's results.
    pub(crate) norm: &'static str,
    pub(crate) output: &'static str,
}

/// The names in `transformers`.
pub(crate) const DELTA: DeltaNames = DeltaNames {
    inputs: "linear_attn.in_proj_qkv",
    inputs_by_head: "linear_attn.in_proj_qkvz",
    gate: "linear_attn.in_proj_z",
    rates: ["linear_attn.in_proj_b", "linear_attn.in_proj_a"],
    rates_by_head: "linear_attn.in_proj_ba",
    convolution: "linear_attn.conv1d.weight",
    decay: "linear_attn.A_log",
    bias: "linear_attn.dt_bias",
    norm: "linear_attn.norm",
    output: "linear_attn.out_proj",
};

impl DeltaSizes {
    /// The width of all keys.
    pub(crate) fn keys(self) -> usize {
        self.key_heads * self.key_width
    }

    /// The width of all values.
    pub(crate) fn values(self) -> usize {
        self.value_heads * self.value_width
    }

    /// The width of queries, keys and values side by side, which the convolution reads.
    pub(crate) fn channels(self) -> usize {
        2 * self.keys() + self.values()
    }

    /// For tensors that have all of a head of keys side by side: the places of queries, keys and values, and those of gates, as
    /// ranges of outputs, and the places of all rates.
    pub(crate) fn places(self) -> [Vec<Range<usize>>; 3] {
        let (key, values) = (self.key_width, self.each() * self.value_width);
        let block = 2 * (key + values);
        let part = |from: usize, width: usize| {
            (0..self.key_heads).map(move |head| head * block + from..head * block + from + width)
        };
        let mixed = part(0, key).chain(part(key, key)).chain(part(2 * key, values)).collect();
        let each = self.each();
        let rate = |which: usize| {
            (0..self.key_heads).map(move |head| (2 * head + which) * each..(2 * head + which + 1) * each)
        };
        [mixed, part(2 * key + values, values).collect(), rate(0).chain(rate(1)).collect()]
    }

    /// The heads of values that share a head of keys.
    pub(crate) fn each(self) -> usize {
        self.value_heads / self.key_heads
    }
}

impl LlamaConfig {
    /// What `layer` keeps in the place of keys and values; none where it attends.
    pub(crate) fn recurrence(&self, layer: usize) -> Option<Recurrence> {
        let kind = self.layer_types.as_ref().and_then(|types| types.get(layer)).map(String::as_str);
        if self.kind.is_lfm2() {
            let kernel = self.linear_conv_kernel_dim.unwrap_or(3);
            let sizes = ConvolutionSizes { kernel, has_bias: self.use_bias.unwrap_or(false) };
            return (kind == Some(SHORT)).then_some(Recurrence::Convolution(sizes));
        }
        if let Some(sizes) = self.state_space() {
            let attends = match &self.attn_layer_indices {
                Some(places) => places.contains(&layer),
                None => kind == Some(FULL),
            };
            return (!attends).then_some(Recurrence::StateSpace(sizes));
        }
        let is_linear = match kind {
            Some(kind) => kind == LINEAR,
            None => !(layer + 1).is_multiple_of(self.full_attention_interval.unwrap_or(4)),
        };
        self.delta_sizes().filter(|_| is_linear).map(Recurrence::Delta)
    }

    /// Whether layers attend beside their recurrence.
    pub(crate) fn attends_beside(&self) -> bool {
        self.kind == LlamaKind::FalconH1
    }

    /// The sizes of all delta rules; none where the model has none.
    fn delta_sizes(&self) -> Option<DeltaSizes> {
        self.kind.has_delta_rule().then(|| DeltaSizes {
            key_heads: self.linear_num_key_heads.unwrap_or(16),
            value_heads: self.linear_num_value_heads.unwrap_or(32),
            key_width: self.linear_key_head_dim.unwrap_or(128),
            value_width: self.linear_value_head_dim.unwrap_or(128),
            kernel: self.linear_conv_kernel_dim.unwrap_or(4),
            is_by_head: self.kind == LlamaKind::Qwen3Next,
        })
    }

    /// Whether a layer keeps a state in the place of keys and values.
    pub(crate) fn is_recurrent(&self) -> bool {
        (0..self.num_hidden_layers).any(|layer| self.recurrence(layer).is_some())
    }

    /// The type of layers that have a recurrence or a window, in a list of all types.
    pub(super) fn other_layer_type(&self) -> &'static str {
        match self.kind {
            kind if kind.is_lfm2() => SHORT,
            kind if kind.has_delta_rule() || kind.has_state_space() => LINEAR,
            _ => SLIDING,
        }
    }

    /// Checks the sizes of recurrences.
    pub(super) fn check_recurrence(&self) -> Result<()> {
        if self.kind.is_lfm2() {
            let kernel = self.linear_conv_kernel_dim.unwrap_or(3);
            if kernel == 0 || kernel.checked_mul(self.hidden_size).is_none_or(|all| all > i32::MAX as usize) {
                return Err(wrong(
                    "linear_conv_kernel_dim",
                    "1 to the tokens of a sequence",
                    &kernel.to_string(),
                ));
            }
            if self.layer_types.is_none() {
                return Err(wrong("layer_types", "a type for each layer", "none"));
            }
        }
        self.check_state_space()?;
        let Some(sizes) = self.delta_sizes() else { return Ok(()) };
        for (field, size) in [
            ("linear_num_key_heads", sizes.key_heads),
            ("linear_num_value_heads", sizes.value_heads),
            ("linear_key_head_dim", sizes.key_width),
            ("linear_value_head_dim", sizes.value_width),
            ("linear_conv_kernel_dim", sizes.kernel),
            ("full_attention_interval", self.full_attention_interval.unwrap_or(1)),
        ] {
            if size == 0 {
                return Err(wrong(field, "at least 1", "0"));
            }
        }
        if !sizes.value_heads.is_multiple_of(sizes.key_heads) {
            let expected = format!("a multiple of linear_num_key_heads, {}", sizes.key_heads);
            return Err(wrong("linear_num_value_heads", &expected, &sizes.value_heads.to_string()));
        }
        let most = i32::MAX as usize;
        let state = sizes.value_heads.checked_mul(sizes.value_width);
        let state = state.and_then(|values| values.checked_mul(sizes.key_width));
        let keys = sizes.key_heads.checked_mul(sizes.key_width).and_then(|keys| keys.checked_mul(2));
        let window = keys.zip(state).and_then(|(keys, state)| keys.checked_add(state));
        let window = window.and_then(|channels| channels.checked_mul(sizes.kernel));
        if window.is_none_or(|window| window > most) {
            let expected = format!("at most {most} values of a state");
            let found = format!("{} by {} heads", sizes.key_width, sizes.value_heads);
            return Err(wrong("linear_key_head_dim", &expected, &found));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{LlamaConfig, LlamaKind};
    use sporran_checkpoint::Architecture;

    #[test]
    fn every_fourth_layer_attends_by_default() {
        let config = LlamaKind::Qwen35.defaults();
        let attends = |config: &LlamaConfig| -> Vec<usize> {
            (0..8).filter(|layer| config.recurrence(*layer).is_none()).collect()
        };
        assert_eq!(attends(&config), [3, 7]);
        let third = LlamaConfig { full_attention_interval: Some(3), ..config.clone() };
        assert_eq!(attends(&third), [2, 5]);
        let types = (0..32).map(|layer| if layer < 2 { "full_attention" } else { "linear_attention" });
        let named = LlamaConfig { layer_types: Some(types.map(Into::into).collect()), ..third };
        assert_eq!(attends(&named), [0, 1]);
        assert!(named.is_recurrent() && !LlamaConfig::default().is_recurrent());
    }

    #[test]
    fn sizes_of_delta_rules_that_no_model_has_are_refused_by_name() {
        let refused = |config: LlamaConfig, field: &str| {
            let error = config.validate().unwrap_err().to_string();
            assert!(error.contains(&format!("field `{field}`")), "{error}");
        };
        let config = || LlamaKind::Qwen35.defaults();
        assert!(config().validate().is_ok());
        refused(LlamaConfig { linear_num_value_heads: Some(24), ..config() }, "linear_num_value_heads");
        refused(LlamaConfig { linear_conv_kernel_dim: Some(0), ..config() }, "linear_conv_kernel_dim");
        refused(LlamaConfig { linear_key_head_dim: Some(1 << 40), ..config() }, "linear_key_head_dim");
        refused(LlamaConfig { full_attention_interval: Some(0), ..config() }, "full_attention_interval");
        let types = Some(vec!["sliding_attention".into(); 32]);
        refused(LlamaConfig { layer_types: types, ..config() }, "layer_types");
    }
}
