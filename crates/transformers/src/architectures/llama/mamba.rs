//! Mamba 2 in the place of attention (Dao and Gu 2024, "state space duality"): sizes, names and fields.

use std::ops::Range;

use serde_json::{Map, Value, json};
use sporran_checkpoint::{Result, json::UNBOUNDED};

use super::{
    config::LlamaConfig,
    kind::LlamaKind,
    positions::{FULL, LINEAR},
};
use crate::architectures::wrong::wrong;

/// The sizes of a state space layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct StateSpaceSizes {
    /// Heads, each of which keeps a matrix.
    pub(crate) heads: usize,
    /// The values of a head.
    pub(crate) head_width: usize,
    /// Groups of heads that follow each other and share the vectors that their matrices are written and read with.
    pub(crate) groups: usize,
    /// The width of these vectors.
    pub(crate) state: usize,
    /// The tokens that the convolution before it reads, the own one included.
    pub(crate) kernel: usize,
    /// Whether the convolution has biases.
    pub(crate) convolution_has_bias: bool,
    /// Whether the projection of the inputs has.
    pub(crate) has_bias: bool,
    /// Whether that of the results has.
    pub(crate) output_has_bias: bool,
    /// When results are normalised; none where they are not.
    pub(crate) norm: Option<GatedNorm>,
    /// The factors of gates, inputs, the vectors that write and read matrices, and steps.
    pub(crate) factors: [f64; 5],
    /// The factor of the results.
    pub(crate) result: f64,
}

/// When results are normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GatedNorm {
    /// Before they are multiplied by their gates.
    Before,
    /// Afterwards.
    After,
}

/// The names of such a layer's tensors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateSpaceNames {
    /// Gates of results, inputs with the vectors that write and read matrices, and steps.
    pub(crate) inputs: &'static str,
    /// Its weights are (channels, 1, kernel).
    pub(crate) convolution: &'static str,
    /// The logarithm of the decay of each head.
    pub(crate) decay: &'static str,
    /// What is added to the steps of each head.
    pub(crate) bias: &'static str,
    /// The factor of a head's inputs that are added to its results.
    pub(crate) skip: &'static str,
    /// The norm of the results.
    pub(crate) norm: &'static str,
    pub(crate) output: &'static str,
}

/// The names in `transformers`.
pub(crate) const STATE_SPACE: StateSpaceNames = StateSpaceNames {
    inputs: "mamba.in_proj",
    convolution: "mamba.conv1d",
    decay: "mamba.A_log",
    bias: "mamba.dt_bias",
    skip: "mamba.D",
    norm: "mamba.norm.weight",
    output: "mamba.out_proj",
};

impl StateSpaceSizes {
    /// The width of the inputs and of the results.
    pub(crate) fn inner(self) -> usize {
        self.heads * self.head_width
    }

    /// The width of what the convolution reads: the inputs, and the vectors of all groups that write and read matrices.
    pub(crate) fn channels(self) -> usize {
        self.inner() + 2 * self.groups * self.state
    }

    /// The factor of each channel.
    pub(crate) fn channel_factors(self) -> Vec<f32> {
        let [_, inputs, written, read, _] = self.factors;
        let vectors = self.groups * self.state;
        let parts = [(inputs, self.inner()), (written, vectors), (read, vectors)];
        parts.into_iter().flat_map(|(factor, width)| vec![factor as f32; width]).collect()
    }

    /// The places of gates, channels and steps among the outputs of the projection.
    pub(crate) fn places(self) -> [Range<usize>; 3] {
        let (inner, end) = (self.inner(), self.inner() + self.channels());
        [0..inner, inner..end, end..end + self.heads]
    }
}

impl LlamaConfig {
    /// The sizes of all state space layers; none where the model has none.
    pub(super) fn state_space(&self) -> Option<StateSpaceSizes> {
        let is_falcon = self.kind == LlamaKind::FalconH1;
        let factors = self.ssm_multipliers.unwrap_or([1.0; 5]);
        self.kind.has_state_space().then(|| StateSpaceSizes {
            heads: self.linear_num_value_heads.unwrap_or(128),
            head_width: self.linear_value_head_dim.unwrap_or(64),
            groups: self.linear_num_key_heads.unwrap_or(1),
            state: self.linear_key_head_dim.unwrap_or(256),
            kernel: self.linear_conv_kernel_dim.unwrap_or(4),
            convolution_has_bias: self.use_bias.unwrap_or(true),
            has_bias: self.mamba_proj_bias.unwrap_or(false),
            output_has_bias: self
                .projectors_bias
                .or(self.mamba_proj_bias.filter(|_| !is_falcon))
                .unwrap_or(false),
            norm: match self.kind {
                LlamaKind::FalconH1 if self.mamba_rms_norm != Some(true) => None,
                LlamaKind::FalconH1 if self.mamba_norm_before_gate != Some(false) => Some(GatedNorm::Before),
                _ => Some(GatedNorm::After),
            },
            factors: factors.map(|factor| factor * self.ssm_in_multiplier.unwrap_or(1.0)),
            result: self.ssm_out_multiplier.unwrap_or(1.0),
        })
    }

    /// Checks the sizes of state space layers.
    pub(super) fn check_state_space(&self) -> Result<()> {
        let Some(sizes) = self.state_space() else { return Ok(()) };
        for (field, size) in [
            ("linear_num_value_heads", sizes.heads),
            ("linear_value_head_dim", sizes.head_width),
            ("linear_num_key_heads", sizes.groups),
            ("linear_key_head_dim", sizes.state),
            ("linear_conv_kernel_dim", sizes.kernel),
            ("mamba_expand", self.mamba_expand.unwrap_or(2)),
        ] {
            if !(1..1 << 20).contains(&size) {
                return Err(wrong(field, "1 to 1048575", &size.to_string()));
            }
        }
        if !sizes.heads.is_multiple_of(sizes.groups) {
            let expected = format!("a divisor of mamba_n_heads, {}", sizes.heads);
            return Err(wrong("linear_num_key_heads", &expected, &sizes.groups.to_string()));
        }
        let inner = self.mamba_expand.unwrap_or(2).saturating_mul(self.hidden_size);
        let inner = self.mamba_d_ssm.unwrap_or(inner);
        if sizes.heads.saturating_mul(sizes.head_width) != inner {
            let expected = format!("the width of the layer, {inner}, over mamba_n_heads, {}", sizes.heads);
            return Err(wrong("linear_value_head_dim", &expected, &sizes.head_width.to_string()));
        }
        let state = inner.saturating_mul(sizes.state);
        let window = inner.saturating_add((2 * sizes.groups).saturating_mul(sizes.state));
        let all = state.saturating_add(window.saturating_mul(sizes.kernel));
        if all > i32::MAX as usize {
            let expected = format!("at most {} values of a state", i32::MAX);
            return Err(wrong("linear_key_head_dim", &expected, &all.to_string()));
        }
        for (field, factor, bias) in [
            ("attention_bias", self.attention_in_multiplier, self.attention_bias),
            ("attention_bias", self.attention_out_multiplier, self.attention_bias),
            ("mamba_proj_bias", self.ssm_in_multiplier, sizes.has_bias),
            ("projectors_bias", self.ssm_out_multiplier, sizes.output_has_bias),
            ("mlp_bias", self.mlp_multipliers.map(|[_, result]| result), self.mlp_bias),
        ] {
            // Factors are those of values without a bias.
            if bias && factor.is_some_and(|factor| factor != 1.0) {
                return Err(wrong(field, "false with factors", "true"));
            }
        }
        // `transformers` bounds the steps of prompts, but not those of later tokens.
        match self.time_step_limit {
            Some([least, most]) if least > 0.0 || most < UNBOUNDED => {
                Err(wrong("time_step_limit", "0 to infinity", &format!("{least} to {most}")))
            }
            _ => Ok(()),
        }
    }
}

impl LlamaKind {
    /// The fields of a model with state space layers by their names and types of today.
    pub(super) fn by_mamba_fields(self, mut given: Map<String, Value>) -> Map<String, Value> {
        let defaults = self.defaults();
        if let Some(types) = given.remove("layers_block_type") {
            given.entry("layer_types").or_insert(types);
        }
        if let Some(types) = given.get_mut("layer_types").and_then(Value::as_array_mut) {
            for kind in types {
                match kind.as_str() {
                    Some("mamba") => *kind = json!(LINEAR),
                    Some("attention") => *kind = json!(FULL),
                    _ => {}
                }
            }
        }
        if self == Self::Bamba {
            // `transformers` does not read it.
            given.remove("partial_rotary_factor");
        }
        if given.get("mamba_d_head").is_none_or(|width| width == "auto") {
            let number = |field: &str, usual: Option<usize>| {
                given.get(field).and_then(Value::as_u64).unwrap_or(usual.unwrap_or(0) as u64)
            };
            let own =
                given.get("mamba_d_ssm").map_or(defaults.mamba_d_ssm.map(|own| own as u64), Value::as_u64);
            let inner = number("mamba_expand", Some(2))
                .saturating_mul(number("hidden_size", Some(defaults.hidden_size)));
            let width =
                own.unwrap_or(inner).checked_div(number("mamba_n_heads", defaults.linear_num_value_heads));
            given.insert("mamba_d_head".into(), json!(width.unwrap_or(0)));
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sporran_checkpoint::Architecture;

    use super::{LlamaConfig, LlamaKind};

    fn read(kind: LlamaKind, text: &str) -> LlamaConfig {
        LlamaConfig::from_json(kind, Path::new("config.json"), text).unwrap()
    }

    #[test]
    fn older_names_of_layer_types_are_read() {
        let text = r#"{"num_hidden_layers": 2, "layers_block_type": ["mamba", "attention"]}"#;
        let config = read(LlamaKind::GraniteHybrid, text);
        assert_eq!([0, 1].map(|layer| config.recurrence(layer).is_some()), [true, false]);
        let config = read(LlamaKind::Bamba, r#"{"attn_layer_indices": [1]}"#);
        assert_eq!([0, 1, 2].map(|layer| config.recurrence(layer).is_some()), [true, false, true]);
    }

    #[test]
    fn the_width_of_a_head_follows_from_the_number_of_heads() {
        let width = |text: &str| read(LlamaKind::GraniteHybrid, text).state_space().unwrap().head_width;
        assert_eq!(width("{}"), 64);
        assert_eq!(width(r#"{"mamba_d_head": "auto", "mamba_n_heads": 32, "hidden_size": 1024}"#), 64);
        assert_eq!(width(r#"{"mamba_d_head": 16}"#), 16);
    }

    #[test]
    fn what_state_space_layers_cannot_be_is_refused_by_name() {
        for (field, value) in [
            ("mamba_d_head", "16"),
            ("mamba_n_groups", "3"),
            ("mamba_d_state", "0"),
            ("mamba_d_conv", "0"),
            ("time_step_limit", "[0.001, 0.1]"),
        ] {
            let config = read(LlamaKind::GraniteHybrid, &format!(r#"{{"{field}": {value}}}"#));
            let error = config.validate().unwrap_err().to_string();
            assert!(error.contains(&format!("field `{field}`: expected ")), "{error}");
        }
        let unbounded = read(LlamaKind::Bamba, r#"{"time_step_limit": [0.0, Infinity]}"#);
        assert!(unbounded.validate().is_ok() && LlamaKind::GraniteHybrid.defaults().validate().is_ok());
    }
}
