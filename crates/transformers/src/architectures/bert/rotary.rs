//! Kin of BERT with rotary positions in place of embeddings of positions: RoFormer, NomicBERT, GTE and Jina's embeddings.

use candle_core::{DType, Device, Tensor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sporran_checkpoint::Result;

use super::{
    config::BertConfig,
    family::BertFamily,
    model::{BERT_NAMES, BertNames},
};
use crate::{
    architectures::wrong::wrong,
    attention::{Attention, merged, rotate, rotate_neighbours},
    layers::softmax,
    mode::Mode,
};

/// The rotary positions of an encoder (Su et al. 2021).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RotaryPositions {
    /// The base of the angles.
    pub theta: f64,
    /// For how much longer inputs angles are stretched by a larger base, in some GTEs.
    pub stretch: Option<f64>,
}

/// The fields of a `config.json`.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RotaryFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    rope_parameters: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rope_scaling: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rope_theta: Option<f64>,
    #[serde(skip_serializing)]
    head_dim: Option<usize>,
}

impl RotaryFields {
    /// The settings of a model whose heads are `width` wide.
    pub(crate) fn settings(&self, family: BertFamily, width: usize) -> Result<RotaryPositions> {
        let mut stretch = None;
        for (field, settings) in
            [("rope_parameters", &self.rope_parameters), ("rope_scaling", &self.rope_scaling)]
        {
            let of = |name: &str| settings.as_ref().and_then(|settings| settings.get(name));
            let kind = of("rope_type").or_else(|| of("type"));
            if family == BertFamily::New && kind.is_some_and(|kind| kind.as_str() == Some("ntk")) {
                if let Some(mixed) = of("mixed_b").filter(|mixed| !mixed.is_null()) {
                    return Err(wrong(field, "`ntk` without `mixed_b`", &mixed.to_string()));
                }
                let factor = of("factor").and_then(Value::as_f64);
                match factor.filter(|factor| *factor >= 1.0 && factor.is_finite()) {
                    Some(factor) => stretch = Some(factor),
                    None => {
                        let found = of("factor").map_or_else(|| "none".into(), Value::to_string);
                        return Err(wrong(field, "a `factor` of at least 1", &found));
                    }
                }
                continue;
            }
            if let Some(kind) = kind.filter(|kind| kind.as_str() != Some("default")) {
                return Err(wrong(field, "rotary positions of type `default`", &kind.to_string()));
            }
        }
        if let Some(found) = self.head_dim.filter(|found| *found != width) {
            return Err(wrong("head_dim", &width.to_string(), &found.to_string()));
        }
        let own = self.rope_parameters.as_ref().and_then(|settings| settings.get("rope_theta"));
        let default = match family {
            BertFamily::NomicBert => 1000.0,
            BertFamily::RoFormer | BertFamily::New => 10_000.0,
            BertFamily::Gte => 160_000.0,
            _ => 20_000.0,
        };
        let theta = own.and_then(Value::as_f64).or(self.rope_theta).unwrap_or(default);
        if theta > 0.0 && theta.is_finite() {
            Ok(RotaryPositions { theta, stretch })
        } else {
            Err(wrong("rope_theta", "above 0", &theta.to_string()))
        }
    }

    pub(crate) fn of(family: BertFamily, settings: RotaryPositions) -> Self {
        if family == BertFamily::New {
            let rope = settings.stretch.map(|factor| [("type", json!("ntk")), ("factor", json!(factor))]);
            let rope =
                rope.map(|rope| rope.into_iter().map(|(name, value)| (name.to_owned(), value)).collect());
            return Self { rope_theta: Some(settings.theta), rope_scaling: rope, ..Self::default() };
        }
        let rope = [("rope_type", json!("default")), ("rope_theta", json!(settings.theta))];
        let rope = rope.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { rope_parameters: Some(rope), ..Self::default() }
    }
}

/// The names of NomicBERT. Queries, keys and values are in one tensor.
pub(super) const NOMIC_NAMES: BertNames = BertNames {
    fused: Some("attn.Wqkv"),
    output: "attn.out_proj",
    attention_norm: "norm1",
    inner: "mlp.fc12",
    gated: Some("mlp.fc11"),
    outer: "mlp.fc2",
    feed_forward_norm: "norm2",
    ..BERT_NAMES
};

/// The names of GTE. So are both layers before the activation.
pub(super) const GTE_NAMES: BertNames = BertNames {
    fused: Some("attention.qkv_proj"),
    output: "attention.o_proj",
    attention_norm: "attn_ln",
    fused_inner: Some("mlp.up_gate_proj"),
    outer: "mlp.down_proj",
    feed_forward_norm: "mlp_ln",
    ..BERT_NAMES
};

/// The names of Jina's embeddings.
pub(super) const JINA_NAMES: BertNames = BertNames {
    fused: Some("mixer.Wqkv"),
    output: "mixer.out_proj",
    inner: "mlp.fc1",
    gated: None,
    ..NOMIC_NAMES
};

impl BertConfig {
    /// The factors from a position to the angle of each pair of a head; none without rotary positions.
    pub(crate) fn rotation_steps(&self) -> Option<Vec<f32>> {
        let RotaryPositions { theta, stretch } = self.rotary()?;
        let width = self.hidden_size / self.num_attention_heads;
        // In f32 as `transformers` has it.
        let stretch = stretch.unwrap_or(1.0) as f32;
        let (theta, slower) = (theta as f32 * stretch, stretch.powf(2.0 / width as f32));
        let step = |pair: usize| 1.0 / theta.powf((2 * pair) as f32 / width as f32) / slower;
        Some((0..width / 2).map(step).collect())
    }

    /// The angles of the first positions; none without rotary positions.
    pub(super) fn rotation(&self, length: usize, dtype: DType, device: &Device) -> Result<Option<Rotation>> {
        // The second half of a head repeats the angles of the first.
        let Some(steps) = self.rotation_steps().map(|steps| steps.repeat(2)) else { return Ok(None) };
        let angles: Vec<f32> =
            (0..length).flat_map(|at| steps.iter().map(move |step| at as f32 * step)).collect();
        let angles = Tensor::from_vec(angles, (1, 1, length, steps.len()), device)?;
        Ok(Some(Rotation {
            cos: angles.cos()?.to_dtype(dtype)?,
            sin: angles.sin()?.to_dtype(dtype)?,
            turns_neighbours: self.family.turns_neighbours(),
        }))
    }
}

/// The angles of the first positions.
pub(super) struct Rotation {
    /// (1, 1, length, width of a head)
    cos: Tensor,
    sin: Tensor,
    /// Whether the two of a pair that is turned together lie side by side.
    turns_neighbours: bool,
}

impl Rotation {
    fn turn(&self, heads: &Tensor) -> Result<Tensor> {
        let turn = if self.turns_neighbours { rotate_neighbours } else { rotate };
        turn(heads, &self.cos, &self.sin)
    }
}

/// Self-attention over `xs` (b, t, d) whose queries and keys are turned by their positions.
pub(super) fn attend(
    attention: &Attention,
    xs: &Tensor,
    rotation: &Rotation,
    bias: &Tensor,
    mode: &mut Mode,
) -> Result<Tensor> {
    let own = attention.project(xs)?;
    let queries = rotation.turn(&attention.heads(&attention.query, xs)?)?;
    let keys = rotation.turn(&own.keys)?;
    let scores = (queries.matmul(&keys.t()?)? * attention.scale)?.broadcast_add(bias)?;
    let weights = mode.dropout(softmax(&scores, mode)?, attention.dropout)?;
    attention.output.forward(&merged(&weights.matmul(&own.values)?)?)
}
