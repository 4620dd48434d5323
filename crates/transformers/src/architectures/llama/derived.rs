//! What follows from a config: the angles, windows, factors and norms of each layer.

use sporran_checkpoint::Result;

use super::{
    config::LlamaConfig,
    kind::{LlamaKind, NormKind},
    rope::{Rope, RopeContext, RopeParameters},
};
use crate::{architectures::wrong::wrong, layers::Activation};

/// The layer type of attention to a sliding window.
pub(super) const SLIDING: &str = "sliding_attention";
/// The layer type of attention to everything before.
pub(super) const FULL: &str = "full_attention";

impl LlamaConfig {
    pub(crate) fn groups(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    pub(crate) fn head_width(&self) -> usize {
        self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads.max(1))
    }

    /// Whether `layer` attends to a sliding window, where the model has one.
    fn is_sliding(&self, layer: usize) -> bool {
        if let Some(types) = &self.layer_types {
            return types.get(layer).is_some_and(|kind| kind == SLIDING);
        }
        match self.kind {
            LlamaKind::Qwen2 | LlamaKind::Qwen3 => layer >= self.max_window_layers.unwrap_or(28),
            LlamaKind::Gemma2 => !(layer + 1).is_multiple_of(2),
            LlamaKind::Gemma3 => !(layer + 1).is_multiple_of(self.sliding_window_pattern.unwrap_or(6)),
            LlamaKind::SmolLm3 => self.use_sliding_window && !self.turns(layer),
            _ => false,
        }
    }

    /// Whether `layer` turns queries and keys by their positions.
    fn turns(&self, layer: usize) -> bool {
        if self.kind != LlamaKind::SmolLm3 {
            return self.kind.position_offset().is_none();
        }
        match &self.no_rope_layers {
            Some(turned) => turned.get(layer).is_some_and(|turned| *turned != 0),
            None => !(layer + 1).is_multiple_of(self.no_rope_layer_interval.unwrap_or(4)),
        }
    }

    /// The tokens that `layer` attends to, the own one included; none for all before.
    pub(crate) fn window(&self, layer: usize) -> Option<usize> {
        let is_windowed = match self.kind {
            LlamaKind::Mistral | LlamaKind::Phi3 | LlamaKind::Starcoder2 => true,
            LlamaKind::Qwen2 | LlamaKind::Qwen3 => self.use_sliding_window && self.is_sliding(layer),
            LlamaKind::Gemma2 | LlamaKind::Gemma3 | LlamaKind::SmolLm3 => self.is_sliding(layer),
            _ => false,
        };
        self.sliding_window.filter(|_| is_windowed)
    }

    /// The different angles of the layers; [`rope_of`](Self::rope_of) says which are a layer's.
    pub(crate) fn ropes(&self) -> Result<Vec<Rope>> {
        if self.kind.position_offset().is_some() {
            return Ok(Vec::new());
        }
        let old = self.rope_scaling.as_ref().map(|rope| ("rope_scaling", rope));
        let new = self.rope_parameters.as_ref().map(|rope| ("rope_parameters", rope));
        let none = RopeParameters::default();
        let (field, own) = old.or(new).unwrap_or(("rope_parameters", &none));
        let build = |field: &str, parameters: &RopeParameters, theta: Option<f64>| {
            let theta = parameters.rope_theta.or(theta).unwrap_or(self.kind.theta());
            if !(theta > 0.0 && theta.is_finite()) {
                return Err(wrong("rope_theta", "a number above 0", &theta.to_string()));
            }
            let context = RopeContext {
                theta,
                width: self.turned_width(parameters)?,
                longest: self.max_position_embeddings,
                original: self.original_max_position_embeddings,
            };
            Rope::new(parameters, context).map_err(|(inner, expected, found)| {
                let field = if inner == "head_dim" { inner.into() } else { format!("{field}.{inner}") };
                wrong(&field, &expected, &found)
            })
        };
        if self.kind != LlamaKind::Gemma3 {
            if own.full_attention.is_some() || own.sliding_attention.is_some() {
                return Err(wrong(field, "one set of angles for all layers", "angles by layer type"));
            }
            let theta = new.and_then(|(_, rope)| rope.rope_theta).or(self.rope_theta);
            let rope = build(field, own, theta)?;
            return Ok(vec![match &self.rope_divisors {
                Some(divisors) => rope.divided(divisors),
                None => rope,
            }]);
        }
        let by_layer = self.rope_parameters.as_ref();
        let full = by_layer.and_then(|rope| rope.full_attention.as_deref());
        let (field, full) = match &self.rope_scaling {
            Some(scaling) => ("rope_scaling", scaling),
            None => ("rope_parameters.full_attention", full.unwrap_or(&none)),
        };
        let sliding = by_layer.and_then(|rope| rope.sliding_attention.as_deref()).unwrap_or(&none);
        let local = self.rope_local_base_freq.or(Some(10_000.0));
        Ok(vec![
            build(field, full, self.rope_theta)?,
            build("rope_parameters.sliding_attention", sliding, local)?,
        ])
    }

    /// The place of the angles of `layer` in [`ropes`](Self::ropes); none where it turns nothing.
    pub(crate) fn rope_of(&self, layer: usize) -> Option<usize> {
        let own = usize::from(self.kind == LlamaKind::Gemma3 && self.is_sliding(layer));
        self.turns(layer).then_some(own)
    }

    /// The width of the part of a head that is turned.
    fn turned_width(&self, parameters: &RopeParameters) -> Result<usize> {
        let part = parameters.partial_rotary_factor.or(self.partial_rotary_factor);
        let part = part.or(self.kind.turned_part()).unwrap_or(1.0);
        if part == 1.0 {
            return Ok(self.head_width());
        }
        if self.kind.turned_part().is_none() {
            return Err(wrong("partial_rotary_factor", "1", &part.to_string()));
        }
        let width = (self.head_width() as f64 * part) as usize;
        if !(0.0..1.0).contains(&part) || width == 0 || !width.is_multiple_of(2) {
            let expected = format!("an even part of a head of {}", self.head_width());
            return Err(wrong("partial_rotary_factor", &expected, &part.to_string()));
        }
        Ok(width)
    }

    pub(crate) fn projections_have_bias(&self) -> bool {
        match self.kind {
            LlamaKind::Qwen2 => true,
            LlamaKind::StableLm => self.use_bias.unwrap_or(false),
            _ => self.output_has_bias(),
        }
    }

    pub(crate) fn output_has_bias(&self) -> bool {
        match self.kind {
            LlamaKind::Mistral | LlamaKind::Phi3 | LlamaKind::StableLm => false,
            LlamaKind::Opt | LlamaKind::Starcoder2 => self.use_bias.unwrap_or(true),
            LlamaKind::Phi => true,
            _ => self.attention_bias,
        }
    }

    pub(crate) fn feed_forward_has_bias(&self) -> bool {
        match self.kind {
            LlamaKind::Llama | LlamaKind::SmolLm3 | LlamaKind::Granite => self.mlp_bias,
            LlamaKind::Opt | LlamaKind::Starcoder2 => self.use_bias.unwrap_or(true),
            LlamaKind::GptNeox | LlamaKind::Phi => true,
            _ => false,
        }
    }

    /// Whether both parts of a layer read the states before it.
    pub(crate) fn is_parallel(&self) -> bool {
        match self.kind {
            LlamaKind::Cohere | LlamaKind::Phi => true,
            LlamaKind::GptNeox => self.use_parallel_residual.unwrap_or(true),
            LlamaKind::StableLm => self.use_parallel_residual.unwrap_or(false),
            _ => false,
        }
    }

    /// Whether both parts of a layer read the states that one norm gives.
    pub(crate) fn shares_norm(&self) -> bool {
        self.is_parallel() && self.kind != LlamaKind::GptNeox
    }

    /// What norms add before they take the root.
    pub(crate) fn norm_eps(&self) -> f64 {
        match self.kind.norm_kind() {
            NormKind::Root | NormKind::RootAroundOne => self.rms_norm_eps,
            NormKind::Layer | NormKind::LayerWithoutShift => self.layer_norm_eps.unwrap_or(1e-5),
            NormKind::LayerWithoutWeights => 1e-5,
        }
    }

    /// The bound of the values of queries, keys and values.
    pub(crate) fn clip(&self) -> Option<f64> {
        self.clip_qkv.filter(|_| self.kind == LlamaKind::Olmo)
    }

    /// The factor of the products of queries and keys.
    pub(crate) fn score_scale(&self) -> f64 {
        match self.kind {
            LlamaKind::Gemma2 | LlamaKind::Gemma3 => self.query_pre_attn_scalar.unwrap_or(256.0).powf(-0.5),
            LlamaKind::Granite => self.attention_multiplier.unwrap_or(1.0),
            _ => (self.head_width() as f64).powf(-0.5),
        }
    }

    /// The bound of the scores of attention.
    pub(crate) fn score_cap(&self) -> Option<f64> {
        self.attn_logit_softcapping.filter(|_| self.kind == LlamaKind::Gemma2)
    }

    /// The factor of embeddings.
    pub(crate) fn embedding_scale(&self) -> f64 {
        match self.kind {
            LlamaKind::Gemma | LlamaKind::Gemma2 | LlamaKind::Gemma3 => (self.hidden_size as f64).sqrt(),
            LlamaKind::Granite => self.embedding_multiplier.unwrap_or(1.0),
            _ => 1.0,
        }
    }

    /// The factor of what a part adds to the states.
    pub(crate) fn residual_scale(&self) -> f64 {
        self.residual_multiplier.filter(|_| self.kind == LlamaKind::Granite).unwrap_or(1.0)
    }

    /// The factor of the logits.
    pub(crate) fn logit_scale(&self) -> f64 {
        match self.kind {
            LlamaKind::Cohere => self.logit_scale.unwrap_or(0.0625),
            LlamaKind::Granite => 1.0 / self.logits_scaling.unwrap_or(1.0),
            _ => 1.0,
        }
    }

    /// The bound of the logits.
    pub(crate) fn logit_cap(&self) -> Option<f64> {
        self.final_logit_softcapping.filter(|_| self.kind.is_new_gemma())
    }

    /// The dropout rates of what attention and the feed-forward part add to the states, in training.
    pub(crate) fn part_dropouts(&self) -> [f64; 2] {
        let rate = self.resid_pdrop.unwrap_or(0.0);
        match self.kind {
            LlamaKind::StableLm => [0.0, rate],
            LlamaKind::GptNeox
            | LlamaKind::Opt
            | LlamaKind::Phi
            | LlamaKind::Phi3
            | LlamaKind::Starcoder2 => [rate; 2],
            _ => [0.0; 2],
        }
    }

    /// The dropout rate of the embeddings, in training.
    pub(crate) fn embedding_dropout(&self) -> f64 {
        match self.kind {
            LlamaKind::GptNeox => self.resid_pdrop.unwrap_or(0.0),
            LlamaKind::Phi | LlamaKind::Starcoder2 => self.embd_pdrop.unwrap_or(0.0),
            _ => 0.0,
        }
    }

    pub(crate) fn activation(&self) -> Result<Activation> {
        let (field, name) = match self.kind {
            LlamaKind::Gemma2 | LlamaKind::Gemma3 => {
                ("hidden_activation", self.hidden_activation.as_deref().unwrap_or("gelu_pytorch_tanh"))
            }
            // The first files say `gelu`, and mean its approximation.
            LlamaKind::Gemma if self.hidden_act == "gelu" => ("hidden_act", "gelu_pytorch_tanh"),
            _ => ("hidden_act", self.hidden_act.as_str()),
        };
        Activation::named(name).ok_or_else(|| wrong(field, "a known activation", name))
    }
}

#[cfg(test)]
mod tests {
    use super::{FULL, LlamaConfig, LlamaKind, RopeParameters, SLIDING};

    #[test]
    fn the_base_of_the_angles_is_found_in_new_files_and_in_old_ones() {
        // The angle of the second of two pairs is the base to the power of -1/2.
        let base = |config: &LlamaConfig| {
            let config = LlamaConfig { head_dim: Some(4), ..config.clone() };
            config.ropes().unwrap()[0].steps(1)[1].powi(-2).round()
        };
        assert_eq!(base(&LlamaConfig::default()), 10_000.0);
        let old = LlamaConfig { rope_theta: Some(250_000.0), ..LlamaConfig::default() };
        assert_eq!(base(&old), 250_000.0);
        let rope = RopeParameters { rope_theta: Some(1e6), ..RopeParameters::default() };
        assert_eq!(base(&LlamaConfig { rope_parameters: Some(rope), ..old }), 1e6);
    }

    #[test]
    fn layers_have_windows_and_angles_by_their_places() {
        let of = |kind: LlamaKind| LlamaConfig { num_hidden_layers: 6, ..kind.defaults() };
        let windows = |config: &LlamaConfig| -> Vec<bool> {
            (0..6).map(|layer| config.window(layer).is_some()).collect()
        };
        assert_eq!(windows(&of(LlamaKind::Gemma2)), [true, false, true, false, true, false]);
        let gemma = of(LlamaKind::Gemma3);
        assert_eq!(windows(&gemma), [true, true, true, true, true, false]);
        assert_eq!([0, 5].map(|layer| gemma.rope_of(layer)), [Some(1), Some(0)]);
        let types = (0..6).map(|layer| [FULL, SLIDING][layer % 2].into()).collect();
        let gemma = LlamaConfig { layer_types: Some(types), ..gemma };
        assert_eq!(windows(&gemma), [false, true, false, true, false, true]);
        let qwen = LlamaConfig {
            use_sliding_window: true,
            sliding_window: Some(8),
            max_window_layers: Some(4),
            ..of(LlamaKind::Qwen3)
        };
        assert_eq!(windows(&qwen), [false, false, false, false, true, true]);
        assert_eq!(windows(&LlamaConfig { use_sliding_window: false, ..qwen }), [false; 6]);
        let smol = of(LlamaKind::SmolLm3);
        let turned: Vec<bool> = (0..6).map(|layer| smol.rope_of(layer).is_some()).collect();
        assert_eq!(turned, [true, true, true, false, true, true]);
        let own = LlamaConfig { no_rope_layers: Some(vec![0, 1, 1, 1, 1, 0]), ..smol };
        assert_eq!((own.rope_of(0), own.rope_of(3)), (None, Some(0)));
    }

    #[test]
    fn qwen_has_biases_that_llama_has_not() {
        let qwen = LlamaConfig { kind: LlamaKind::Qwen2, ..LlamaConfig::default() };
        assert!(qwen.projections_have_bias() && !LlamaConfig::default().projections_have_bias());
    }
}
