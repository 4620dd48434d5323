//! The positions of a config: the windows, angles and biases of layers.

use sporran_checkpoint::Result;

use super::{
    config::LlamaConfig,
    kind::LlamaKind,
    rope::{Rope, RopeContext, RopeParameters},
};
use crate::architectures::{alibi::Alibi, wrong::wrong};

/// The layer type of attention to a sliding window.
pub(super) const SLIDING: &str = "sliding_attention";
/// The layer type of attention to everything before.
pub(super) const FULL: &str = "full_attention";
/// The layer type of a short convolution.
pub(super) const SHORT: &str = "conv";
/// The layer type of a delta rule.
pub(super) const LINEAR: &str = "linear_attention";

/// The layer types of GPT-Neo.
pub(super) const LOCAL: &str = "local";
pub(super) const GLOBAL: &str = "global";

/// How queries grow with their positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct QueryGrowth {
    beta: f32,
    /// The number of positions after which they grow again.
    period: usize,
}

impl QueryGrowth {
    /// The factor of the query at `position`.
    pub(crate) fn at(self, position: usize) -> f32 {
        self.beta * ((position / self.period) as f32).ln_1p() + 1.0
    }
}

/// The type of `layer`, where each list of types comes as often as its number says.
fn layer_type(types: &[(Vec<String>, usize)], mut layer: usize) -> Option<&str> {
    for (types, times) in types {
        let all = types.len().saturating_mul(*times);
        if layer < all {
            return Some(&types[layer % types.len()]);
        }
        layer -= all;
    }
    None
}

impl LlamaKind {
    /// Whether layers of this kind may attend to a sliding window.
    pub(super) fn has_window(self) -> bool {
        matches!(
            self,
            Self::Cohere2
                | Self::Cwm
                | Self::Dots1
                | Self::Exaone4
                | Self::Gemma2
                | Self::Gemma3
                | Self::Gemma3n
                | Self::Gemma4
                | Self::GptNeo
                | Self::GptOss
                | Self::GraniteSwa
                | Self::Ministral
                | Self::Ministral3
                | Self::Mistral
                | Self::Mixtral
                | Self::Olmo3
                | Self::Phi3
                | Self::PhiMoe
                | Self::Qwen2
                | Self::Qwen2Moe
                | Self::Qwen3
                | Self::Qwen3Moe
                | Self::SmolLm3
                | Self::Starcoder2
                | Self::UltraBert
                | Self::VaultGemma
        )
    }
}

impl LlamaConfig {
    /// Whether tokens see those after them, as in encoders.
    pub(crate) fn is_bidirectional(&self) -> bool {
        self.kind.encoder_classes().is_some()
            || self.is_causal == Some(false)
            || self.use_bidirectional_attention == Some(true)
    }

    /// Whether positions turn queries and keys.
    fn has_angles(&self) -> bool {
        let is_turned =
            self.kind != LlamaKind::GraniteHybrid || self.position_embedding_type.as_deref() == Some("rope");
        self.kind.position_offset().is_none() && !self.has_biases() && is_turned
    }

    /// Whether positions are biases of scores.
    pub(super) fn has_biases(&self) -> bool {
        match self.kind {
            LlamaKind::Bloom | LlamaKind::Mpt => true,
            LlamaKind::Falcon => self.alibi == Some(true),
            _ => false,
        }
    }

    /// The biases of scores by positions.
    pub(crate) fn alibi(&self) -> Option<Alibi> {
        let heads = self.num_attention_heads;
        match self.kind {
            LlamaKind::Bloom => Some(Alibi::new(heads)),
            LlamaKind::Falcon if self.has_biases() => {
                Some(Alibi::rounded(heads, (self.head_width() as f32).powf(-0.5)))
            }
            LlamaKind::Mpt => {
                let most = self.attn_config.as_ref().and_then(|attention| attention.alibi_bias_max);
                Some(Alibi::down_to(heads, most.unwrap_or(8.0) as f32))
            }
            _ => None,
        }
    }

    /// Whether `layer` attends to a sliding window, where the model has one.
    pub(super) fn is_sliding(&self, layer: usize) -> bool {
        // The last layer of Gemma 4 attends to everything, whatever its config says.
        if self.kind == LlamaKind::Gemma4 && layer + 1 == self.num_hidden_layers {
            return false;
        }
        if let Some(types) = &self.layer_types {
            return types.get(layer).is_some_and(|kind| kind == SLIDING);
        }
        match self.kind {
            LlamaKind::Qwen2 | LlamaKind::Qwen3 => layer >= self.max_window_layers.unwrap_or(28),
            LlamaKind::Dots1 => layer >= self.max_window_layers.unwrap_or(62),
            LlamaKind::Gemma2 | LlamaKind::GptOss | LlamaKind::VaultGemma => !(layer + 1).is_multiple_of(2),
            LlamaKind::UltraBert => !(layer + 1).is_multiple_of(3),
            LlamaKind::Gemma3n => !(layer + 1).is_multiple_of(5),
            LlamaKind::Gemma4 => !(layer + 1).is_multiple_of(6),
            LlamaKind::Cwm | LlamaKind::GraniteSwa => !layer.is_multiple_of(4),
            LlamaKind::Gemma3 => !(layer + 1).is_multiple_of(self.sliding_window_pattern.unwrap_or(6)),
            LlamaKind::Cohere2 | LlamaKind::Exaone4 | LlamaKind::Olmo3 => {
                !(layer + 1).is_multiple_of(self.sliding_window_pattern.unwrap_or(4))
            }
            LlamaKind::GptNeo => match &self.attention_types {
                Some(types) => layer_type(types, layer).is_some_and(|kind| kind == LOCAL),
                None => !layer.is_multiple_of(2),
            },
            LlamaKind::Ministral => true,
            LlamaKind::Qwen2Moe => {
                !(layer + 1).is_multiple_of(2) && layer < self.max_window_layers.unwrap_or(28)
            }
            LlamaKind::SmolLm3 => self.use_sliding_window && !self.turns(layer),
            _ => false,
        }
    }

    /// Whether `layer` turns queries and keys by their positions.
    fn turns(&self, layer: usize) -> bool {
        match self.kind {
            LlamaKind::SmolLm3 => {}
            LlamaKind::Cohere2 => return self.window(layer).is_some(),
            LlamaKind::Exaone4 => return self.sliding_window.is_none() || self.is_sliding(layer),
            _ => return self.has_angles() && self.own_theta(layer) != Some(0.0),
        }
        match &self.no_rope_layers {
            Some(turned) => turned.get(layer).is_some_and(|turned| *turned != 0),
            None => !(layer + 1).is_multiple_of(self.no_rope_layer_interval.unwrap_or(4)),
        }
    }

    /// The tokens that `layer` attends to, the own one included; none for all before.
    pub(crate) fn window(&self, layer: usize) -> Option<usize> {
        let is_windowed = match self.kind {
            LlamaKind::Ministral3
            | LlamaKind::Mistral
            | LlamaKind::Mixtral
            | LlamaKind::Phi3
            | LlamaKind::PhiMoe
            | LlamaKind::Starcoder2 => true,
            LlamaKind::Qwen3Moe => self.use_sliding_window,
            LlamaKind::Qwen2 | LlamaKind::Qwen2Moe | LlamaKind::Qwen3 => {
                self.use_sliding_window && self.is_sliding(layer)
            }
            _ => self.kind.has_window() && self.is_sliding(layer),
        };
        let window = self.sliding_window.filter(|_| is_windowed)?;
        Some(match self.is_bidirectional() {
            // Half of it on either side.
            true if self.use_bidirectional_attention == Some(true) => window / 2 + 1,
            // All of it on either side, beside the own one.
            true => window.saturating_add(1),
            false => window,
        })
    }

    /// The different angles of the layers; [`rope_of`](Self::rope_of) says which are a layer's.
    pub(crate) fn ropes(&self) -> Result<Vec<Rope>> {
        if !self.has_angles() {
            return Ok(Vec::new());
        }
        let old = self.rope_scaling.as_ref().map(|rope| ("rope_scaling", rope));
        let new = self.rope_parameters.as_ref().map(|rope| ("rope_parameters", rope));
        let none = RopeParameters::default();
        let (field, own) = old.or(new).unwrap_or(("rope_parameters", &none));
        let of_width = |field: &str, parameters: &RopeParameters, theta: Option<f64>, head: usize| {
            let theta = parameters.rope_theta.or(theta).unwrap_or(self.kind.theta());
            if !(theta > 0.0 && theta.is_finite()) {
                return Err(wrong("rope_theta", "a number above 0", &theta.to_string()));
            }
            let named = self.named_rope(field, parameters)?;
            let parameters = named.as_ref().unwrap_or(parameters);
            let context = RopeContext {
                theta,
                width: self.turned_width(parameters, head)?,
                longest: self.max_position_embeddings,
                original: self.original_max_position_embeddings,
                // 0 stands for none.
                alpha: parameters.alpha.filter(|alpha| self.kind.is_hunyuan() && *alpha != 0.0),
            };
            Rope::new(parameters, context).map_err(|(inner, expected, found)| {
                let field = if inner == "head_dim" { inner.into() } else { format!("{field}.{inner}") };
                wrong(&field, &expected, &found)
            })
        };
        let build = |field: &str, parameters: &RopeParameters, theta: Option<f64>| {
            of_width(field, parameters, theta, self.head_width())
        };
        if !self.kind.has_two_ropes() {
            if own.full_attention.is_some() || own.sliding_attention.is_some() {
                return Err(wrong(field, "one set of angles for all layers", "angles by layer type"));
            }
            if self.layer_rope_theta.is_some() {
                let of = |theta: f64| {
                    build(field, &RopeParameters { rope_theta: None, ..own.clone() }, Some(theta))
                };
                return self.thetas().into_iter().map(of).collect();
            }
            let theta = new.and_then(|(_, rope)| rope.rope_theta).or(self.rope_theta);
            let rope = build(field, own, theta)?;
            let rope = if self.kind == LlamaKind::NanoChat { rope.reversed() } else { rope };
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
        let local = match self.kind {
            LlamaKind::Gemma3 | LlamaKind::Gemma3n => self.rope_local_base_freq.or(Some(10_000.0)),
            LlamaKind::UltraBert => Some(10_000.0),
            _ => self.rope_theta,
        };
        Ok(vec![
            of_width(field, full, self.rope_theta, self.global_head_width())?,
            build("rope_parameters.sliding_attention", sliding, local)?,
        ])
    }

    /// The base of the angles of `layer`, where each layer has its own; 0 stands for none.
    fn own_theta(&self, layer: usize) -> Option<f64> {
        self.layer_rope_theta.as_ref().and_then(|thetas| thetas.get(layer)).copied()
    }

    /// The different bases of the angles of layers, where each layer has its own, in the order of the layers.
    fn thetas(&self) -> Vec<f64> {
        let mut found: Vec<f64> = Vec::new();
        for theta in (0..self.num_hidden_layers).filter_map(|layer| self.own_theta(layer)) {
            if theta != 0.0 && !found.contains(&theta) {
                found.push(theta);
            }
        }
        found
    }

    /// The angles of Phi 3 by their name today, and those of Phi 3.5 with experts as `transformers` has them; none where
    /// `parameters` need no change.
    fn named_rope(&self, field: &str, parameters: &RopeParameters) -> Result<Option<RopeParameters>> {
        const LONG: &str = "longrope";
        let kind = parameters.rope_type.as_deref().or(parameters.old_type.as_deref()).unwrap_or("default");
        let of =
            |parameters: RopeParameters| Some(RopeParameters { rope_type: Some(LONG.into()), ..parameters });
        match self.kind {
            // The first files say `su`, and the next ones `yarn`.
            LlamaKind::Phi3 if kind == "su" || (kind == "yarn" && parameters.long_factor.is_some()) => {
                Ok(of(parameters.clone()))
            }
            LlamaKind::PhiMoe if kind == LONG => {
                for (name, value) in
                    [("short_mscale", parameters.short_mscale), ("long_mscale", parameters.long_mscale)]
                {
                    if value.is_none() {
                        return Err(wrong(&format!("{field}.{name}"), "a number", "none"));
                    }
                }
                // Long sequences have another factor, but the same divisors.
                Ok(of(RopeParameters { long_factor: parameters.short_factor.clone(), ..parameters.clone() }))
            }
            LlamaKind::PhiMoe if kind != "default" => {
                let expected = format!("the rope type `default` or `{LONG}`");
                Err(wrong(&format!("{field}.rope_type"), &expected, &format!("`{kind}`")))
            }
            // Other kinds have no such factors.
            _ if parameters.short_mscale.is_some() || parameters.long_mscale.is_some() => {
                Ok(Some(RopeParameters { short_mscale: None, long_mscale: None, ..parameters.clone() }))
            }
            _ => Ok(None),
        }
    }

    /// The length of the longest sequence with the angles of short ones, where a longer one is read again with its own
    /// angles, as `transformers` does for Phi 3.
    pub(crate) fn reads_again_after(&self) -> Result<Option<usize>> {
        if !matches!(self.kind, LlamaKind::Phi3 | LlamaKind::PhiMoe) {
            return Ok(None);
        }
        Ok(self.ropes()?.first().and_then(Rope::last_short))
    }

    /// The place of the angles of `layer` in [`ropes`](Self::ropes); none where it turns nothing.
    pub(crate) fn rope_of(&self, layer: usize) -> Option<usize> {
        let own = match self.own_theta(layer) {
            Some(theta) => self.thetas().iter().position(|other| *other == theta).unwrap_or(0),
            None => usize::from(self.kind.has_two_ropes() && self.is_sliding(layer)),
        };
        self.turns(layer).then_some(own)
    }

    /// The sinusoids of each position that is added to embeddings (positions, width), those of a position after the other.
    pub(crate) fn sinusoids(&self) -> Vec<f32> {
        let (width, rows) = (self.hidden_size, self.max_position_embeddings);
        let offset = self.kind.position_offset().unwrap_or(0);
        let half = width / 2;
        let step = (10_000f64.ln() / half.saturating_sub(1).max(1) as f64) as f32;
        let factors: Vec<f32> = (0..half).map(|at| (at as f32 * -step).exp()).collect();
        let mut table = Vec::with_capacity(rows * width);
        for position in offset..offset + rows {
            let angles = || factors.iter().map(|factor| position as f32 * factor);
            let start = table.len();
            table.extend(angles().map(f32::sin));
            table.extend(angles().map(f32::cos));
            table.resize(start + width, 0.0);
            if self.pad_token_id.is_some_and(|pad| pad as usize == position) {
                table[start..].fill(0.0);
            }
        }
        table
    }

    /// Whether the two of a pair that is turned together lie side by side, and not half a head apart.
    pub(crate) fn turns_neighbours(&self) -> bool {
        match self.kind {
            LlamaKind::Cohere
            | LlamaKind::Cohere2
            | LlamaKind::CodeGen
            | LlamaKind::DeepSeekV2
            | LlamaKind::Ernie45
            | LlamaKind::Ernie45Moe
            | LlamaKind::Glm
            | LlamaKind::Glm4
            | LlamaKind::GptJ
            | LlamaKind::Helium => true,
            LlamaKind::DeepSeekV3 | LlamaKind::Mistral4 => self.rope_interleave.unwrap_or(true),
            _ => false,
        }
    }

    /// How queries grow with their positions.
    pub(crate) fn query_growth(&self) -> Result<Option<QueryGrowth>> {
        if !matches!(self.kind, LlamaKind::Ministral3 | LlamaKind::Mistral4) {
            return Ok(None);
        }
        let rope = self.rope_scaling.as_ref().or(self.rope_parameters.as_ref());
        let beta = rope.and_then(|rope| rope.llama_4_scaling_beta).filter(|beta| beta.is_finite());
        let period = rope.and_then(|rope| rope.original_max_position_embeddings);
        let beta = beta.ok_or_else(|| wrong("rope_parameters.llama_4_scaling_beta", "a number", "none"))?;
        match period {
            Some(period) if period > 0 => Ok(Some(QueryGrowth { beta: beta as f32, period })),
            _ => {
                let found = period.map_or_else(|| "none".into(), |period| period.to_string());
                Err(wrong("rope_parameters.original_max_position_embeddings", "at least 1", &found))
            }
        }
    }

    /// The width of the part of a head of `whole` that is turned.
    fn turned_width(&self, parameters: &RopeParameters, whole: usize) -> Result<usize> {
        // All of it has angles, some of which are 0.
        if parameters.is_proportional() {
            return Ok(whole);
        }
        if let Some(sizes) = self.latent() {
            return match sizes.turned {
                width if width > 0 && width.is_multiple_of(2) => Ok(width),
                width => Err(wrong("qk_rope_head_dim", "an even number above 0", &width.to_string())),
            };
        }
        if matches!(self.kind, LlamaKind::CodeGen | LlamaKind::GptJ) {
            let (width, most) = (self.rotary_dim.unwrap_or(0), whole);
            if width == 0 || width > most || !width.is_multiple_of(2) {
                let expected = format!("an even number from 2 to {most}");
                return Err(wrong("rotary_dim", &expected, &width.to_string()));
            }
            return Ok(width);
        }
        let part = parameters.partial_rotary_factor.or(self.partial_rotary_factor);
        let width = self.rotary_dim.filter(|_| self.kind == LlamaKind::MiniMaxM2);
        let part = part.or(width.map(|width| width as f64 / whole as f64));
        let part = part.or(self.kind.turned_part()).unwrap_or(1.0);
        if part == 1.0 {
            return Ok(whole);
        }
        if self.kind.turned_part().is_none() {
            return Err(wrong("partial_rotary_factor", "1", &part.to_string()));
        }
        let width = (whole as f64 * part) as usize;
        if !(0.0..1.0).contains(&part) || width == 0 || !width.is_multiple_of(2) {
            let expected = format!("an even part of a head of {whole}");
            return Err(wrong("partial_rotary_factor", &expected, &part.to_string()));
        }
        Ok(width)
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
            config.ropes().unwrap()[0].steps(1).0[1].powi(-2).round()
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
}
