//! DeBERTa's attention to contents and to distances (He et al. 2021): its settings, and its form over candle.

use candle_core::{D, Tensor};
use candle_nn::{Init, VarBuilder};
use serde::{Deserialize, Serialize};
use sporran_checkpoint::Result;

use super::{config::BertConfig, family::BertFamily, state_convolution::ConvolutionSettings};
use crate::{
    architectures::wrong::wrong,
    attention::{Attention, merged},
    layers::{Activation, LayerNorm, Linear, softmax},
    mode::Mode,
};

/// The settings of DeBERTa's attention.
#[derive(Debug, Clone, PartialEq)]
pub struct Disentangled {
    /// Whether embeddings have a part for each position.
    pub has_positions: bool,
    /// Whether attention reads distances at all.
    pub is_relative: bool,
    /// Whether a query reads the distance to a key (`c2p`).
    pub content_to_position: bool,
    /// Whether a key reads the distance from a query (`p2c`).
    pub position_to_content: bool,
    /// Whether distances have the projections of contents (`share_att_key`).
    pub shares_projections: bool,
    /// The buckets of each direction; without them each distance is a bucket.
    pub buckets: Option<usize>,
    /// From this distance on, all distances are one.
    pub max_distance: usize,
    /// Whether the embeddings of distances are normalised.
    pub is_normalised: bool,
    /// The convolution over embeddings, which some have.
    pub convolution: Option<ConvolutionSettings>,
    /// The activation of the head's inner layer.
    pub pooler_act: String,
    /// The dropout rate before the head's inner layer, in training.
    pub pooler_dropout: f64,
}

impl Disentangled {
    /// Half the rows of the table of distances.
    pub(crate) fn span(&self) -> usize {
        self.buckets.unwrap_or(self.max_distance)
    }

    /// The row of the table of distances for a key at `distance`: the query's position less the key's.
    pub(crate) fn row(&self, distance: i64) -> usize {
        let span = self.span() as i64;
        let bucket = match self.buckets {
            Some(buckets) => bucket(distance, buckets, self.max_distance),
            None => distance,
        };
        (bucket + span).clamp(0, 2 * span - 1) as usize
    }

    /// The number of products in a score.
    fn terms(&self) -> usize {
        1 + usize::from(self.content_to_position) + usize::from(self.position_to_content)
    }

    /// The factor of each product of a score, for heads of `width`.
    pub(crate) fn scale(&self, width: usize) -> f64 {
        ((width * self.terms()) as f64).powf(-0.5)
    }

    /// The activation of the head's inner layer.
    pub(super) fn pooler_activation(&self) -> Result<Activation> {
        let expected = "a known activation";
        Activation::named(&self.pooler_act)
            .ok_or_else(|| wrong("pooler_hidden_act", expected, &self.pooler_act))
    }

    /// Checks constraints beyond the types.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(buckets) = self.buckets
            && (buckets < 2 || self.max_distance <= buckets / 2 + 1)
        {
            let expected = "from 2, and half of them below max_relative_positions - 1";
            return Err(wrong("position_buckets", expected, &buckets.to_string()));
        }
        if !(0.0..1.0).contains(&self.pooler_dropout) {
            return Err(wrong("pooler_dropout", "from 0 to below 1", &self.pooler_dropout.to_string()));
        }
        self.convolution.as_ref().map_or(Ok(()), ConvolutionSettings::check)?;
        self.pooler_activation().map(|_| ())
    }
}

/// The bucket of a distance: one each up to half the buckets, then by the logarithm up to `max_distance`.
fn bucket(distance: i64, buckets: usize, max_distance: usize) -> i64 {
    let middle = buckets / 2;
    let far = distance.unsigned_abs() as usize;
    if far <= middle {
        return distance;
    }
    // In f32 as `transformers` has it.
    let whole = (max_distance as f64 - 1.0) / middle as f64;
    let part = (far as f32 / middle as f32).ln() / (whole as f32).ln();
    let place = (part * (middle as f32 - 1.0)).ceil() as i64 + middle as i64;
    place * distance.signum()
}

/// The fields of DeBERTa's `config.json` that other encoders do not have, with the defaults of `transformers`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct DebertaFields {
    relative_attention: bool,
    max_relative_positions: i64,
    position_buckets: i64,
    position_biased_input: bool,
    pos_att_type: Option<Parts>,
    share_att_key: bool,
    norm_rel_ebd: String,
    conv_kernel_size: i64,
    conv_act: String,
    conv_groups: usize,
    pooler_dropout: f64,
    pooler_hidden_act: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pooler_hidden_size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attention_head_size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    embedding_size: Option<usize>,
    pub(super) cls_dropout: Option<f64>,
    pub(super) legacy: bool,
    /// Only of version 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    talking_head: Option<bool>,
}

// Foreign files write the parts of attention in either way.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Parts {
    Text(String),
    List(Vec<String>),
}

impl Default for DebertaFields {
    fn default() -> Self {
        Self {
            relative_attention: false,
            max_relative_positions: -1,
            position_buckets: -1,
            position_biased_input: true,
            pos_att_type: None,
            share_att_key: false,
            norm_rel_ebd: "none".into(),
            conv_kernel_size: 0,
            conv_act: "tanh".into(),
            conv_groups: 1,
            pooler_dropout: 0.0,
            pooler_hidden_act: "gelu".into(),
            pooler_hidden_size: None,
            attention_head_size: None,
            embedding_size: None,
            cls_dropout: None,
            legacy: true,
            talking_head: None,
        }
    }
}

impl DebertaFields {
    /// The settings, of a model with hidden states of `width`, this many heads and `positions` positions.
    pub(super) fn settings(
        &self,
        family: BertFamily,
        (width, heads, positions): (usize, usize, usize),
    ) -> Result<Disentangled> {
        let is_first = family == BertFamily::FirstDeberta;
        if is_first && self.talking_head == Some(true) {
            return Err(wrong("talking_head", "false", "true"));
        }
        // Version 1 has no convolution.
        let kernel = usize::try_from(self.conv_kernel_size).ok().filter(|kernel| *kernel > 0 && !is_first);
        if kernel.is_some() && self.conv_groups != 1 {
            return Err(wrong("conv_groups", "1", &self.conv_groups.to_string()));
        }
        let of_head = width.checked_div(heads).unwrap_or(0);
        for (field, size, expected) in [
            ("pooler_hidden_size", self.pooler_hidden_size, width),
            ("attention_head_size", self.attention_head_size, of_head),
            ("embedding_size", self.embedding_size, width),
        ] {
            if let Some(size) = size.filter(|size| *size != expected) {
                return Err(wrong(field, &expected.to_string(), &size.to_string()));
            }
        }
        let parts: Vec<String> = match &self.pos_att_type {
            None => Vec::new(),
            Some(Parts::Text(text)) => {
                text.to_lowercase().split('|').map(|part| part.trim().to_owned()).collect()
            }
            Some(Parts::List(parts)) => parts.clone(),
        };
        if let Some(part) = parts.iter().find(|part| !["c2p", "p2c", ""].contains(&part.as_str())) {
            return Err(wrong("pos_att_type", "`c2p` and `p2c`", &format!("`{part}`")));
        }
        let norms = self.norm_rel_ebd.to_lowercase();
        let norms: Vec<&str> = norms.split('|').map(str::trim).collect();
        if let Some(norm) = norms.iter().find(|norm| !["none", "layer_norm"].contains(norm)) {
            return Err(wrong("norm_rel_ebd", "`none` or `layer_norm`", &format!("`{norm}`")));
        }
        Ok(Disentangled {
            has_positions: self.position_biased_input,
            is_relative: self.relative_attention,
            content_to_position: parts.iter().any(|part| part == "c2p"),
            position_to_content: parts.iter().any(|part| part == "p2c"),
            // Version 1 has none of these.
            shares_projections: self.share_att_key && !is_first,
            buckets: usize::try_from(self.position_buckets).ok().filter(|buckets| *buckets > 0 && !is_first),
            max_distance: usize::try_from(self.max_relative_positions)
                .ok()
                .filter(|distance| *distance > 0)
                .unwrap_or(positions),
            is_normalised: norms.contains(&"layer_norm") && !is_first,
            convolution: kernel
                .map(|kernel| ConvolutionSettings { kernel, activation: self.conv_act.clone() }),
            pooler_act: self.pooler_hidden_act.clone(),
            pooler_dropout: self.pooler_dropout,
        })
    }

    /// The fields that say the same.
    pub(super) fn of(settings: &Disentangled, head_dropout: f64) -> Self {
        let parts = [("c2p", settings.content_to_position), ("p2c", settings.position_to_content)];
        let parts =
            parts.iter().filter(|(_, is_there)| *is_there).map(|(part, _)| (*part).to_owned()).collect();
        Self {
            relative_attention: settings.is_relative,
            max_relative_positions: settings.max_distance as i64,
            position_buckets: settings.buckets.map_or(-1, |buckets| buckets as i64),
            position_biased_input: settings.has_positions,
            pos_att_type: Some(Parts::List(parts)),
            share_att_key: settings.shares_projections,
            norm_rel_ebd: if settings.is_normalised { "layer_norm" } else { "none" }.into(),
            conv_kernel_size: settings.convolution.as_ref().map_or(0, |settings| settings.kernel as i64),
            conv_act: settings.convolution.as_ref().map_or("tanh", |settings| &settings.activation).into(),
            pooler_dropout: settings.pooler_dropout,
            pooler_hidden_act: settings.pooler_act.clone(),
            cls_dropout: Some(head_dropout),
            ..Self::default()
        }
    }
}

/// The embeddings of distances, which all layers share.
#[derive(Debug, Clone)]
pub(super) struct DistanceTable {
    /// (2 * span, d)
    table: Tensor,
    norm: Option<LayerNorm>,
    dropout: f64,
}

impl DistanceTable {
    /// The table of an encoder whose tensors `vb` has.
    pub(super) fn new(config: &BertConfig, settings: &Disentangled, vb: &VarBuilder) -> Result<Self> {
        let (width, std) = (config.hidden_size, config.initializer_range);
        let normal = Init::Randn { mean: 0.0, stdev: std };
        let table = vb.get_with_hints((2 * settings.span(), width), "rel_embeddings.weight", normal)?;
        let norm = || LayerNorm::new(width, config.layer_norm_eps, &vb.pp("LayerNorm"));
        let norm = settings.is_normalised.then(norm).transpose()?;
        Ok(Self { table, norm, dropout: config.hidden_dropout_prob })
    }

    /// The embeddings (1, 2 * span, d), before dropout.
    pub(super) fn embeddings(&self, mode: &Mode) -> Result<Tensor> {
        let table = self.table.unsqueeze(0)?;
        match &self.norm {
            Some(norm) => norm.forward(&table, mode),
            None => Ok(table),
        }
    }
}

/// The distances of one input: their embeddings, and the row of each pair of positions.
pub(super) struct Distances {
    /// (1, 2 * span, d)
    embeddings: Tensor,
    /// (t, t), type u32: for each query and key.
    rows: Tensor,
    dropout: f64,
}

impl Distances {
    /// The distances between `length` positions.
    pub(super) fn new(
        table: &DistanceTable,
        settings: &Disentangled,
        length: usize,
        mode: &Mode,
    ) -> Result<Self> {
        let pairs = (0..length).flat_map(|query| (0..length).map(move |key| query as i64 - key as i64));
        let rows: Vec<u32> = pairs.map(|distance| settings.row(distance) as u32).collect();
        let rows = Tensor::from_vec(rows, (length, length), table.table.device())?;
        Ok(Self { embeddings: table.embeddings(mode)?, rows, dropout: table.dropout })
    }
}

/// What a layer adds to its attention in order to read distances.
#[derive(Debug, Clone)]
pub(super) struct DistanceAttention {
    /// The projection of distances to keys; that of contents where it is shared.
    key: Option<Linear>,
    /// The projection of distances to queries.
    query: Option<Linear>,
    settings: Disentangled,
}

impl DistanceAttention {
    /// The projections of a layer whose attention `vb` has.
    pub(super) fn new(config: &BertConfig, settings: &Disentangled, vb: &VarBuilder) -> Result<Self> {
        let (width, std) = (config.hidden_size, config.initializer_range);
        let names = config.names();
        let own = |reads: bool, name: &str, has_bias: bool| {
            let linear = || match has_bias {
                true => Linear::with_bias(width, width, std, &vb.pp(name)),
                false => Linear::new(width, width, std, &vb.pp(name)),
            };
            (settings.is_relative && reads && !settings.shares_projections).then(linear).transpose()
        };
        Ok(Self {
            key: own(
                settings.content_to_position,
                names.distance_key,
                config.family != BertFamily::FirstDeberta,
            )?,
            query: own(settings.position_to_content, names.distance_query, true)?,
            settings: settings.clone(),
        })
    }

    /// Attends from `xs` (b, t, d) to itself; `bias` (b, 1, 1, t) hides padding.
    pub(super) fn attend(
        &self,
        attention: &Attention,
        xs: &Tensor,
        distances: Option<&Distances>,
        bias: &Tensor,
        mode: &mut Mode,
    ) -> Result<Tensor> {
        let source = attention.project(xs)?;
        let queries = attention.heads(&attention.query, xs)?;
        let mut scores = queries.matmul(&source.keys.t()?)?;
        if let Some(distances) = distances {
            let embeddings = mode.dropout(distances.embeddings.clone(), distances.dropout)?;
            let rows = distances.rows.broadcast_as(scores.shape())?.contiguous()?;
            if self.settings.content_to_position {
                let keys = attention.heads(self.key.as_ref().unwrap_or(&attention.key), &embeddings)?;
                let products = queries.broadcast_matmul(&keys.t()?)?;
                scores = (scores + products.gather(&rows, D::Minus1)?)?;
            }
            if self.settings.position_to_content {
                let queries =
                    attention.heads(self.query.as_ref().unwrap_or(&attention.query), &embeddings)?;
                let products = source.keys.broadcast_matmul(&queries.t()?)?;
                // For each key the row of a query lies as far on the other side.
                let rows = rows.transpose(2, 3)?.contiguous()?;
                scores = (scores + products.gather(&rows, D::Minus1)?.t()?)?;
            }
        }
        let scores = (scores * attention.scale)?.broadcast_add(bias)?;
        let weights = mode.dropout(softmax(&scores, mode)?, attention.dropout)?;
        attention.output.forward(&merged(&weights.matmul(&source.values)?)?)
    }
}

/// The projections to queries, keys and values in the first DeBERTa: one tensor has those of each head one under the other, and
/// keys have no bias.
#[derive(Debug, Clone)]
pub(super) struct ByHeads {
    /// (heads, 3, width of a head, d): the tensor itself, so that a step of training changes it.
    weight: Tensor,
    /// (d) each: of queries and of values.
    biases: [Tensor; 2],
}

impl ByHeads {
    /// The projections of a layer whose attention `vb` has.
    pub(super) fn new(config: &BertConfig, vb: &VarBuilder) -> Result<Self> {
        let (width, heads) = (config.hidden_size, config.num_attention_heads);
        let normal = Init::Randn { mean: 0.0, stdev: config.initializer_range };
        let weight = vb.get_with_hints((3 * width, width), "in_proj.weight", normal)?;
        let bias = |name: &str| vb.get_with_hints(width, name, Init::Const(0.0));
        let biases = [bias("q_bias")?, bias("v_bias")?];
        Ok(Self { weight: weight.reshape((heads, 3, width / heads, width))?, biases })
    }

    /// The projections to queries, keys and values.
    pub(super) fn projections(&self) -> Result<[Linear; 3]> {
        let (heads, _, of_head, width) = self.weight.dims4()?;
        let part = |at: usize, bias: Option<&Tensor>| -> Result<Linear> {
            let weight = self.weight.narrow(1, at, 1)?.reshape((heads * of_head, width))?;
            Ok(Linear::of(weight, bias.cloned()))
        };
        let [queries, values] = &self.biases;
        Ok([part(0, Some(queries))?, part(1, None)?, part(2, Some(values))?])
    }

    /// The attention with the projections that it has now.
    pub(super) fn attention(&self, attention: &Attention) -> Result<Attention> {
        let [query, key, value] = self.projections()?;
        Ok(Attention { query, key, value, ..attention.clone() })
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::{BertFamily, DebertaFields, bucket};

    #[derive(Deserialize)]
    struct Table {
        buckets: usize,
        max_distance: usize,
        found: Vec<i64>,
    }

    #[test]
    fn distances_fall_into_the_buckets_of_transformers() {
        let tables: Vec<Table> =
            serde_json::from_str(include_str!("../../../tests/data/deberta-buckets.json")).unwrap();
        for table in tables {
            let half = table.found.len() as i64 / 2;
            for (distance, expected) in (-half..=half).zip(&table.found) {
                let found = bucket(distance, table.buckets, table.max_distance);
                let (count, longest) = (table.buckets, table.max_distance);
                assert_eq!(found, *expected, "distance {distance}, {count} buckets to {longest}");
            }
        }
    }

    #[test]
    fn rows_of_distances_are_within_the_table() {
        let read = |text: &str| {
            serde_json::from_str::<DebertaFields>(text)
                .unwrap()
                .settings(BertFamily::Deberta, (8, 2, 16))
                .map_err(|error| error.to_string())
        };
        let settings =
            read(r#"{"relative_attention": true, "position_buckets": 4, "pos_att_type": "P2C| c2p"}"#)
                .unwrap();
        assert!(settings.content_to_position && settings.position_to_content);
        assert_eq!((settings.max_distance, settings.span()), (16, 4));
        // Each distance up to 2 has its row. From 3 to 15 it is ceil(ln(far / 2) / ln(15 / 2)) + 2 = 3, and beyond it 4, which
        // the table lacks on one side.
        let rows: Vec<usize> = [-40, -15, -3, -2, -1, 0, 1, 2, 3, 15, 40].map(|at| settings.row(at)).into();
        assert_eq!(rows, [0, 1, 1, 2, 3, 4, 5, 6, 7, 7, 7]);
        for (text, field) in [
            (r#"{"conv_kernel_size": 3, "conv_groups": 2}"#, "conv_groups"),
            (r#"{"pos_att_type": ["p2p"]}"#, "pos_att_type"),
            (r#"{"norm_rel_ebd": "batch_norm"}"#, "norm_rel_ebd"),
            (r#"{"embedding_size": 4}"#, "embedding_size"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(&format!("field `{field}`")), "{error}");
        }
    }
}
