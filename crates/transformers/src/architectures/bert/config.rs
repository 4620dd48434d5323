//! The `config.json` of a BERT-shaped encoder: BERT and the families that differ from it in a few places.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use sporran_checkpoint::{Architecture, Embedding, Parameter, Result, json::parse, parameters};

use super::{
    convbert::ConvSizes,
    disentangled::Disentangled,
    family::{BertFamily, CLASSES, task},
    fields::{BertFields, DistilFields},
    mobile::MobileSizes,
    own_code,
    rotary::RotaryPositions,
    with_head::{BertModel, EncoderModel},
    xlnet::XlnetFields,
};
use crate::{
    architectures::{alibi::Alibi, wrong::wrong},
    layers::Activation,
};

/// The layers of ALBERT that share their weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerSharing {
    /// The groups, each of which serves the same number of layers that follow each other.
    pub groups: usize,
    /// The layers of a group, which run one after the other.
    pub inner: usize,
}

/// The blocks of BigBird's attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionBlocks {
    /// The tokens of a block.
    pub size: usize,
    /// The blocks that are drawn for each block.
    pub random: usize,
}

impl AttentionBlocks {
    /// The most tokens of an input that is read with complete attention: as many as the blocks that a block can attend to have.
    fn most_tokens(self) -> usize {
        self.random.saturating_mul(2).saturating_add(5).saturating_mul(self.size)
    }
}

/// The groups of values that the layers of SqueezeBERT read: of the projections to queries, keys and values, of that after the
/// heads, and of the two of the feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerGroups {
    /// Of the projections to queries, keys and values.
    pub inputs: [usize; 3],
    /// Of that after the heads.
    pub output: usize,
    /// Of the first and of the second layer of the feed-forward part.
    pub feed_forward: [usize; 2],
}

/// The task of an encoder's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BertTask {
    /// There is no head: the states are the result.
    States,
    /// Logits of labels for the whole input.
    SequenceClassification,
    /// Logits of labels for every token.
    TokenClassification,
    /// Where an answer starts and ends.
    Span,
    /// Logits of the vocabulary for every token.
    MaskedLm,
    /// DPR's vector of a question.
    Question,
    /// DPR's vector of a passage.
    Context,
    /// DPR's reader: where an answer starts and ends, and how relevant the passage is.
    Reader,
}

/// The config of an encoder, by BERT's names of the fields and with the defaults of `transformers`.
#[derive(Debug, Clone, PartialEq)]
pub struct BertConfig {
    /// The family, from `model_type`.
    pub family: BertFamily,
    /// The head, from `architectures`.
    pub task: BertTask,
    /// The number of embeddings.
    pub vocab_size: usize,
    /// The width of the hidden states.
    pub hidden_size: usize,
    /// The number of layers.
    pub num_hidden_layers: usize,
    /// The number of attention heads.
    pub num_attention_heads: usize,
    /// The inner width of the feed-forward part.
    pub intermediate_size: usize,
    /// The activation of the feed-forward part.
    pub hidden_act: String,
    /// The dropout rate of embeddings and of each sublayer\'s output, in training.
    pub hidden_dropout_prob: f64,
    /// The dropout rate of attention weights, in training.
    pub attention_probs_dropout_prob: f64,
    /// The dropout rate before the classifying layer, in training.
    pub head_dropout: f64,
    /// The rows of the table of positions; RoBERTa leaves the first ones unused.
    pub max_position_embeddings: usize,
    /// The rows of the table of token types; 0 for DistilBERT.
    pub type_vocab_size: usize,
    /// The standard deviation of fresh weights.
    pub initializer_range: f64,
    /// The epsilon of layer normalisation.
    pub layer_norm_eps: f64,
    /// The padding token.
    pub pad_token_id: u32,
    /// The width of DPR's vectors; 0 where they are hidden states.
    pub projection_dim: usize,
    /// The width of the embeddings, where a projection makes hidden states of them.
    pub embedding_size: Option<usize>,
    /// The width of the table in RemBERT's head over the vocabulary.
    pub output_embedding_size: Option<usize>,
    /// The number of tasks that have an embedding, in some ERNIEs; 0 where none has. All inputs are of the first.
    pub task_types: usize,
    /// The sharing of layers, in ALBERT.
    pub sharing: Option<LayerSharing>,
    /// The blocks of attention, in some BigBirds, which read inputs that are so short that attention is complete.
    pub blocks: Option<AttentionBlocks>,
    /// The tokens that layers attend to, half of them on either side, beside the own one, in Longformer: one number for all
    /// layers, or one for each.
    pub windows: Option<Vec<usize>>,
    /// The sizes of MobileBERT.
    pub mobile: Option<MobileSizes>,
    /// The sizes of ConvBERT and Nyströmformer.
    pub convolution: Option<ConvSizes>,
    /// The groups of values that layers read, in SqueezeBERT.
    pub groups: Option<LayerGroups>,
    /// The attention to distances, in DeBERTa.
    pub disentangled: Option<Disentangled>,
    /// The rotary positions, in some families.
    pub rotary: Option<RotaryPositions>,
    /// The names of the labels, by number.
    pub labels: Vec<String>,
    /// Whether the head over the vocabulary is the embedding table.
    pub tie_word_embeddings: bool,
}

impl BertConfig {
    /// Reads the text of a `config.json` whose `model_type` is `family`; `path` names it in errors.
    ///
    /// # Errors
    /// [`Error::Json`](sporran_checkpoint::Error::Json) where a field has the wrong type, and [`Error::Config`](sporran_checkpoint::Error::Config) where the head is not one of this
    /// crate or a value cannot be used.
    pub fn from_json(family: BertFamily, path: &Path, text: &str) -> Result<Self> {
        let given: Map<String, Value> = parse(path, text)?;
        let family = own_code::family_of(family, &given);
        let given = own_code::renamed(family, given).map_err(|error| error.within(path))?;
        let text = &Value::Object(given).to_string();
        let head: HeadFields = parse(path, text)?;
        let task = task(family, head.architectures.as_deref().unwrap_or_default())
            .map_err(|error| error.within(path))?;
        let labels = head.labels();
        let config = if family == BertFamily::DistilBert {
            parse::<DistilFields>(path, text)?.config(task, labels)
        } else if family == BertFamily::Xlnet {
            let fields = parse::<XlnetFields>(path, text)?;
            fields.config(task, labels).map_err(|error| error.within(path))?
        } else {
            let fields = BertFields::read(family, path, text)?;
            fields.supported(family, task).map_err(|error| error.within(path))?;
            fields.config(family, task, labels).map_err(|error| error.within(path))?
        };
        config.check().map_err(|error| error.within(path))?;
        Ok(config)
    }

    /// The most tokens of an input, special ones included.
    #[must_use]
    pub fn max_input_length(&self) -> usize {
        let positions = self.max_position_embeddings.saturating_sub(self.first_position());
        self.blocks.map_or(positions, |blocks| positions.min(blocks.most_tokens()))
    }

    /// The row of the table of positions that belongs to an input's first token.
    #[must_use]
    pub fn first_position(&self) -> usize {
        if self.family.counts_from_padding() { self.pad_token_id as usize + 1 } else { 0 }
    }

    /// Whether embeddings have a part for each position.
    #[must_use]
    pub fn has_positions(&self) -> bool {
        self.rotary.is_none()
            && self.family != BertFamily::JinaBert
            && self.disentangled.as_ref().is_none_or(|settings| settings.has_positions)
    }

    /// Whether embeddings have a part for each token type.
    #[must_use]
    pub fn has_types(&self) -> bool {
        match self.family {
            BertFamily::DistilBert | BertFamily::Mpnet => false,
            BertFamily::Deberta | BertFamily::FirstDeberta | BertFamily::Gte | BertFamily::New => {
                self.type_vocab_size > 0
            }
            _ => true,
        }
    }

    /// The width of the embeddings.
    #[must_use]
    pub fn embedding_width(&self) -> usize {
        self.embedding_size.unwrap_or(self.hidden_size)
    }

    /// Whether each layer has its own weights, and attention reads contents alone: what the packed training path does.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let names = self.names();
        names.fused.is_none()
            && names.by_heads.is_none()
            && names.fused_inner.is_none()
            && self.embedding_size.is_none()
            && self.sharing.is_none()
            && self.disentangled.is_none()
            && self.rotary.is_none()
            && self.task_types == 0
            && self.groups.is_none()
            && !self.is_apart()
            && !matches!(self.family, BertFamily::Mpnet | BertFamily::BigBird | BertFamily::Longformer)
            && !self.family.norms_first()
    }

    /// Whether the model has its own body, for inference alone and without a packed form.
    #[must_use]
    pub fn is_apart(&self) -> bool {
        use BertFamily::{ConvBert, Fnet, MobileBert, Nystromformer, Xlnet};
        matches!(self.family, MobileBert | Xlnet | ConvBert | Nystromformer | Fnet)
    }

    /// For each layer, the tokens that it attends to on either side; none where it attends to all.
    pub(crate) fn windows(&self) -> Vec<usize> {
        let Some(windows) = &self.windows else { return Vec::new() };
        let of = |layer: usize| windows.get(layer).or(windows.last()).map_or(0, |window| window / 2);
        (0..self.num_hidden_layers).map(of).collect()
    }

    /// Whether the first token attends to all others, and all to it.
    pub(crate) fn sees_first(&self) -> bool {
        self.family == BertFamily::Longformer && self.task == BertTask::SequenceClassification
    }

    /// The layers that run, each as its number among those that have weights.
    #[must_use]
    pub(crate) fn order(&self) -> Vec<usize> {
        let Some(LayerSharing { groups, inner }) = self.sharing else {
            return (0..self.num_hidden_layers).collect();
        };
        // The quotient is rounded as in `transformers`.
        let each = self.num_hidden_layers as f64 / groups as f64;
        let group = |layer: usize| ((layer as f64 / each) as usize).min(groups - 1);
        (0..self.num_hidden_layers)
            .flat_map(|layer| (0..inner).map(move |at| group(layer) * inner + at))
            .collect()
    }

    /// Whether the model was trained with its tokenizer's token types.
    #[must_use]
    pub fn takes_types(&self) -> bool {
        match self.family {
            BertFamily::Bert
            | BertFamily::Dpr
            | BertFamily::Electra
            | BertFamily::Albert
            | BertFamily::Ernie
            | BertFamily::MegatronBert
            | BertFamily::RemBert
            | BertFamily::RoFormer
            | BertFamily::NomicBert
            | BertFamily::SqueezeBert
            | BertFamily::MobileBert
            | BertFamily::Xlnet
            | BertFamily::ConvBert
            | BertFamily::Nystromformer
            | BertFamily::Fnet
            | BertFamily::JinaBert => true,
            BertFamily::Deberta | BertFamily::FirstDeberta => self.has_types(),
            // The multilingual ones have one type.
            BertFamily::Gte | BertFamily::New => self.type_vocab_size > 1,
            _ => false,
        }
    }

    /// The biases of distances on scores, in JinaBERT.
    pub(crate) fn alibi(&self) -> Option<Alibi> {
        (self.family == BertFamily::JinaBert).then(|| Alibi::new(self.num_attention_heads))
    }

    /// The activation of the feed-forward part.
    ///
    /// # Errors
    /// [`Error::Config`](sporran_checkpoint::Error::Config) for one that is not known.
    pub fn activation(&self) -> Result<Activation> {
        let (field, name) = match self.family {
            BertFamily::DistilBert => ("activation", &self.hidden_act),
            BertFamily::Xlnet => ("ff_activation", &self.hidden_act),
            _ => ("hidden_act", &self.hidden_act),
        };
        Activation::named(name).ok_or_else(|| wrong(field, "a known activation", name))
    }

    /// The prefix of the body's tensor names.
    #[must_use]
    pub fn prefix(&self) -> &'static str {
        match (self.task, self.family) {
            (BertTask::Question, _) => "question_encoder.bert_model",
            (BertTask::Context, _) => "ctx_encoder.bert_model",
            (BertTask::Reader, _) => "span_predictor.encoder.bert_model",
            (BertTask::States, _) => "",
            (
                _,
                BertFamily::Roberta
                | BertFamily::XlmRoberta
                | BertFamily::Camembert
                | BertFamily::XlmRobertaXl
                | BertFamily::JinaEmbeddingsV3
                | BertFamily::JinaXlmRoberta,
            ) => "roberta",
            (_, BertFamily::Longformer) => "longformer",
            (_, BertFamily::SqueezeBert | BertFamily::Xlnet) => "transformer",
            (_, BertFamily::MobileBert) => "mobilebert",
            (_, BertFamily::ConvBert) => "convbert",
            (_, BertFamily::Fnet) => "fnet",
            (_, BertFamily::Nystromformer) => "nystromformer",
            (_, BertFamily::NomicBert) => "nomic_bert",
            (_, BertFamily::Gte) => "gte",
            (_, BertFamily::New) => "new",
            (_, BertFamily::DistilBert) => "distilbert",
            (
                _,
                BertFamily::Bert
                | BertFamily::Dpr
                | BertFamily::MegatronBert
                | BertFamily::BigBird
                | BertFamily::JinaBert,
            ) => "bert",
            (_, BertFamily::Ernie) => "ernie",
            (_, BertFamily::Data2VecText) => "data2vec_text",
            (_, BertFamily::RobertaPreLayerNorm) => "roberta_prelayernorm",
            (_, BertFamily::RemBert) => "rembert",
            (_, BertFamily::RoFormer) => "roformer",
            (_, BertFamily::Mpnet) => "mpnet",
            (_, BertFamily::Electra) => "electra",
            (_, BertFamily::Albert) => "albert",
            (_, BertFamily::Deberta | BertFamily::FirstDeberta) => "deberta",
        }
    }

    /// The name of the embedding table.
    pub(crate) fn table(&self) -> String {
        match self.prefix() {
            "" => "embeddings.word_embeddings.weight".into(),
            prefix => format!("{prefix}.embeddings.word_embeddings.weight"),
        }
    }

    /// Whether the model has a head that shares the embedding table.
    pub(crate) fn tied(&self) -> bool {
        self.task == BertTask::MaskedLm && self.tie_word_embeddings && self.family != BertFamily::RemBert
    }

    /// Checks constraints beyond the types: sizes that must not be zero, heads that divide the width, and rates.
    pub(crate) fn check(&self) -> Result<()> {
        for (field, size) in [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("intermediate_size", self.intermediate_size),
            ("embedding_size", self.embedding_width()),
            ("output_embedding_size", self.output_embedding_size.unwrap_or(1)),
            ("num_hidden_groups", self.sharing.map_or(1, |sharing| sharing.groups)),
            ("inner_group_num", self.sharing.map_or(1, |sharing| sharing.inner)),
            ("id2label", self.labels.len()),
        ] {
            if size == 0 {
                return Err(wrong(field, "at least 1", "0"));
            }
        }
        let heads = self.num_attention_heads;
        if heads == 0 || !self.hidden_size.is_multiple_of(heads) {
            let expected = format!("a divisor of hidden_size, {}", self.hidden_size);
            return Err(wrong("num_attention_heads", &expected, &heads.to_string()));
        }
        if self.max_input_length() == 0 {
            let expected = format!("more than {}", self.first_position());
            return Err(wrong(
                "max_position_embeddings",
                &expected,
                &self.max_position_embeddings.to_string(),
            ));
        }
        for (field, rate) in [
            ("hidden_dropout_prob", self.hidden_dropout_prob),
            ("attention_probs_dropout_prob", self.attention_probs_dropout_prob),
            ("classifier_dropout", self.head_dropout),
        ] {
            if !(0.0..1.0).contains(&rate) {
                return Err(wrong(field, "from 0 to below 1", &rate.to_string()));
            }
        }
        if let Some(LayerSharing { groups, inner }) = self.sharing {
            if groups > self.num_hidden_layers {
                let expected = format!("at most num_hidden_layers, {}", self.num_hidden_layers);
                return Err(wrong("num_hidden_groups", &expected, &groups.to_string()));
            }
            if self.num_hidden_layers.checked_mul(inner).is_none_or(|layers| layers > MOST_SHARED) {
                let expected = format!("at most {MOST_SHARED} layers that share weights");
                return Err(wrong("num_hidden_layers", &expected, &self.num_hidden_layers.to_string()));
            }
        }
        if self.family == BertFamily::Mpnet && self.pad_token_id != 1 {
            let expected = "1, from which MPNet counts positions";
            return Err(wrong("pad_token_id", expected, &self.pad_token_id.to_string()));
        }
        if let Some(MobileSizes { narrow, parts, .. }) = self.mobile {
            if narrow == 0 || !narrow.is_multiple_of(heads) {
                let expected = format!("a multiple of num_attention_heads, {heads}");
                return Err(wrong("intra_bottleneck_size", &expected, &narrow.to_string()));
            }
            if !(1..=MOST_PARTS).contains(&parts) {
                let expected = format!("1 to {MOST_PARTS}");
                return Err(wrong("num_feedforward_networks", &expected, &parts.to_string()));
            }
            if self.task == BertTask::MaskedLm && self.embedding_width() >= self.hidden_size {
                let expected = format!("below hidden_size, {}", self.hidden_size);
                return Err(wrong("embedding_size", &expected, &self.embedding_width().to_string()));
            }
        }
        if let Some(sizes) = self.convolution {
            sizes.check(self)?;
        }
        if let Some(LayerGroups { inputs: [query, key, value], output, feed_forward }) = self.groups {
            let (width, inner) = (self.hidden_size, self.intermediate_size);
            for (field, groups, from, to) in [
                ("q_groups", query, width, width),
                ("k_groups", key, width, width),
                ("v_groups", value, width, width),
                ("post_attention_groups", output, width, width),
                ("intermediate_groups", feed_forward[0], width, inner),
                ("output_groups", feed_forward[1], inner, width),
            ] {
                if groups == 0 || !from.is_multiple_of(groups) || !to.is_multiple_of(groups) {
                    let expected = format!("a divisor of {from} and {to}");
                    return Err(wrong(field, &expected, &groups.to_string()));
                }
            }
            // The norms of layers have this one, whatever a config says.
            if self.layer_norm_eps != 1e-12 {
                return Err(wrong("layer_norm_eps", "1e-12", &self.layer_norm_eps.to_string()));
            }
        }
        if let Some(windows) = &self.windows {
            if windows.len() != 1 && windows.len() != self.num_hidden_layers {
                let expected = format!("a number, or one for each of {} layers", self.num_hidden_layers);
                return Err(wrong("attention_window", &expected, &windows.len().to_string()));
            }
            if let Some(odd) = windows.iter().find(|window| **window == 0 || !window.is_multiple_of(2)) {
                return Err(wrong("attention_window", "an even number above 0", &odd.to_string()));
            }
        }
        if let Some(disentangled) = &self.disentangled {
            disentangled.check()?;
        }
        let width = self.hidden_size / heads;
        if self.rotary.is_some() && !width.is_multiple_of(2) {
            return Err(wrong("num_attention_heads", "heads of an even width", &width.to_string()));
        }
        if self.task == BertTask::Reader && self.projection_dim != 0 {
            return Err(wrong("projection_dim", "0 for a reader", &self.projection_dim.to_string()));
        }
        if self.task == BertTask::Span && self.labels.len() != 2 {
            return Err(wrong("id2label", "2 labels, start and end", &self.labels.len().to_string()));
        }
        self.activation().map(|_| ())
    }
}

impl Architecture for BertConfig {
    fn model_type(&self) -> &'static str {
        match self.family {
            BertFamily::Bert | BertFamily::JinaBert => "bert",
            BertFamily::Roberta => "roberta",
            BertFamily::XlmRoberta | BertFamily::JinaXlmRoberta => "xlm-roberta",
            BertFamily::DistilBert => "distilbert",
            BertFamily::Dpr => "dpr",
            BertFamily::Camembert => "camembert",
            BertFamily::Mpnet => "mpnet",
            BertFamily::Electra => "electra",
            BertFamily::Albert => "albert",
            BertFamily::Deberta => "deberta-v2",
            BertFamily::FirstDeberta => "deberta",
            BertFamily::BigBird => "big_bird",
            BertFamily::Longformer => "longformer",
            BertFamily::SqueezeBert => "squeezebert",
            BertFamily::MobileBert => "mobilebert",
            BertFamily::Xlnet => "xlnet",
            BertFamily::ConvBert => "convbert",
            BertFamily::Fnet => "fnet",
            BertFamily::Nystromformer => "nystromformer",
            BertFamily::Ernie => "ernie",
            BertFamily::Data2VecText => "data2vec-text",
            BertFamily::RobertaPreLayerNorm => "roberta-prelayernorm",
            BertFamily::XlmRobertaXl => "xlm-roberta-xl",
            BertFamily::MegatronBert => "megatron-bert",
            BertFamily::RemBert => "rembert",
            BertFamily::RoFormer => "roformer",
            BertFamily::NomicBert => "nomic_bert",
            BertFamily::Gte => "gte",
            BertFamily::New => "new",
            BertFamily::JinaEmbeddingsV3 => "jina_embeddings_v3",
        }
    }

    fn class(&self) -> &'static str {
        let class = CLASSES.iter().find(|(_, family, task)| (*family, *task) == (self.family, self.task));
        class.map_or("", |(class, _, _)| class)
    }

    fn validate(&self) -> Result<()> {
        self.check()
    }

    fn layers(&self) -> Vec<(&'static str, usize)> {
        match self.sharing {
            Some(sharing) => {
                vec![("num_hidden_groups", sharing.groups), ("inner_group_num", sharing.inner)]
            }
            None => vec![("num_hidden_layers", self.num_hidden_layers)],
        }
    }

    fn fields(&self) -> Value {
        let mut value = if self.family == BertFamily::DistilBert {
            json!(DistilFields::of(self))
        } else if self.family == BertFamily::Xlnet {
            json!(XlnetFields::of(self))
        } else {
            BertFields::json(self)
        };
        if let Value::Object(fields) = &mut value {
            HeadFields::write(&self.labels, fields);
        }
        value
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        match self.is_apart() {
            true => parameters(|vb| EncoderModel::apart(self, vb)),
            false => parameters(|vb| BertModel::new(self, vb)),
        }
    }

    /// Checkpoints write the body with or without the prefix of its family, the first ones of BERT call scale and
    /// shift of a normalisation gamma and beta, and some have the bias of a vocabulary's head under a second name.
    fn canonical(&self, stored: &str) -> String {
        let name = match stored.rsplit_once('.') {
            Some((module, "gamma")) => format!("{module}.weight"),
            Some((module, "beta")) => format!("{module}.bias"),
            _ => stored.to_string(),
        };
        match name.as_str() {
            "cls.predictions.decoder.bias" if self.family != BertFamily::RemBert => {
                return "cls.predictions.bias".into();
            }
            "lm_head.decoder.bias" if !matches!(self.family, BertFamily::Gte | BertFamily::New) => {
                return "lm_head.bias".into();
            }
            "predictions.decoder.bias" => return "predictions.bias".into(),
            _ => {}
        }
        let bare = match self.family {
            BertFamily::Mpnet => name.strip_prefix("mpnet."),
            BertFamily::Electra => name.strip_prefix("electra."),
            BertFamily::Albert => name.strip_prefix("albert."),
            BertFamily::Deberta | BertFamily::FirstDeberta => name.strip_prefix("deberta."),
            BertFamily::Ernie => name.strip_prefix("ernie."),
            BertFamily::Longformer => name.strip_prefix("longformer."),
            BertFamily::SqueezeBert | BertFamily::Xlnet => name.strip_prefix("transformer."),
            BertFamily::MobileBert => name.strip_prefix("mobilebert."),
            BertFamily::ConvBert => name.strip_prefix("convbert."),
            BertFamily::Fnet => name.strip_prefix("fnet."),
            BertFamily::Nystromformer => name.strip_prefix("nystromformer."),
            BertFamily::Data2VecText => name.strip_prefix("data2vec_text."),
            BertFamily::RobertaPreLayerNorm => name.strip_prefix("roberta_prelayernorm."),
            BertFamily::RemBert => name.strip_prefix("rembert."),
            BertFamily::RoFormer => name.strip_prefix("roformer."),
            BertFamily::NomicBert => {
                ["nomic_bert.", "bert."].iter().find_map(|prefix| name.strip_prefix(prefix))
            }
            BertFamily::Gte | BertFamily::New => {
                ["gte.", "new."].iter().find_map(|prefix| name.strip_prefix(prefix))
            }
            _ => ["bert.", "roberta.", "distilbert."].iter().find_map(|prefix| name.strip_prefix(prefix)),
        };
        // DeBERTa's pooler is a part of its head.
        if self.family.reads_distances() && name.starts_with("pooler.") {
            return name;
        }
        let bare = bare.unwrap_or(&name);
        let body: &[&str] = match self.family {
            BertFamily::Xlnet => &["word_embedding.", "mask_emb", "layer."],
            _ => &BODY_PARTS,
        };
        if !body.iter().any(|part| bare.starts_with(part)) {
            return name;
        }
        match self.prefix() {
            "" => bare.to_string(),
            prefix => format!("{prefix}.{bare}"),
        }
    }

    fn embedding(&self) -> Option<Embedding> {
        if !self.tied() {
            return None;
        }
        let (name, head) = match self.family {
            BertFamily::Roberta
            | BertFamily::XlmRoberta
            | BertFamily::Camembert
            | BertFamily::XlmRobertaXl
            | BertFamily::JinaEmbeddingsV3
            | BertFamily::JinaXlmRoberta => {
                ("roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight")
            }
            BertFamily::Mpnet => ("mpnet.embeddings.word_embeddings.weight", "lm_head.decoder.weight"),
            BertFamily::Longformer => {
                ("longformer.embeddings.word_embeddings.weight", "lm_head.decoder.weight")
            }
            BertFamily::ConvBert => {
                ("convbert.embeddings.word_embeddings.weight", "generator_lm_head.weight")
            }
            BertFamily::Nystromformer => {
                ("nystromformer.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight")
            }
            BertFamily::Fnet => ("fnet.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
            BertFamily::Electra => ("electra.embeddings.word_embeddings.weight", "generator_lm_head.weight"),
            BertFamily::Albert => ("albert.embeddings.word_embeddings.weight", "predictions.decoder.weight"),
            BertFamily::Deberta | BertFamily::FirstDeberta => {
                ("deberta.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight")
            }
            BertFamily::DistilBert => {
                ("distilbert.embeddings.word_embeddings.weight", "vocab_projector.weight")
            }
            BertFamily::Bert
            | BertFamily::Dpr
            | BertFamily::MegatronBert
            | BertFamily::RemBert
            | BertFamily::BigBird
            | BertFamily::JinaBert => {
                ("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight")
            }
            BertFamily::MobileBert => {
                ("mobilebert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight")
            }
            BertFamily::Xlnet => ("transformer.word_embedding.weight", "lm_loss.weight"),
            BertFamily::SqueezeBert => {
                ("transformer.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight")
            }
            BertFamily::Ernie => {
                ("ernie.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight")
            }
            BertFamily::RoFormer => {
                ("roformer.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight")
            }
            BertFamily::NomicBert => {
                ("nomic_bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight")
            }
            BertFamily::Gte => ("gte.embeddings.word_embeddings.weight", "lm_head.decoder.weight"),
            BertFamily::New => ("new.embeddings.word_embeddings.weight", "lm_head.decoder.weight"),
            BertFamily::Data2VecText => {
                ("data2vec_text.embeddings.word_embeddings.weight", "lm_head.decoder.weight")
            }
            BertFamily::RobertaPreLayerNorm => {
                ("roberta_prelayernorm.embeddings.word_embeddings.weight", "lm_head.decoder.weight")
            }
        };
        Some(Embedding { name, others: &[], tied_head: Some(head) })
    }

    fn untie(&mut self) {
        self.tie_word_embeddings = false;
    }

    fn drop_missing_head(&mut self, has: &dyn Fn(&str) -> bool) -> bool {
        let start = match self.family {
            BertFamily::Bert
            | BertFamily::Dpr
            | BertFamily::Deberta
            | BertFamily::FirstDeberta
            | BertFamily::BigBird
            | BertFamily::Ernie
            | BertFamily::MegatronBert
            | BertFamily::RemBert
            | BertFamily::RoFormer
            | BertFamily::NomicBert
            | BertFamily::SqueezeBert
            | BertFamily::MobileBert
            | BertFamily::Fnet
            | BertFamily::Nystromformer
            | BertFamily::JinaBert => "cls.predictions.",
            BertFamily::DistilBert => "vocab_transform.",
            BertFamily::Electra | BertFamily::ConvBert => "generator_predictions.",
            BertFamily::Albert => "predictions.",
            _ => "lm_head.",
        };
        let is_missing = self.task == BertTask::MaskedLm && !has(start);
        if is_missing {
            self.task = BertTask::States;
        }
        is_missing
    }

    /// BERT's pooler where the head reads states, the heads of pre-training, the numbers of the positions, and the head
    /// of pairs, which is opened apart.
    fn is_ignorable(&self, name: &str) -> bool {
        let heads: &[&str] = match self.family {
            BertFamily::Electra => &["discriminator_predictions."],
            BertFamily::Albert => &["sop_classifier.", "pooler.", "albert.pooler."],
            BertFamily::BigBird => &["pooler.", "bert.pooler."],
            // The state of hidden tokens, and what their words are read with.
            BertFamily::Xlnet => &["lm_loss.", "mask_emb", "transformer.mask_emb"],
            BertFamily::Deberta | BertFamily::FirstDeberta => {
                &["lm_predictions.", "mask_predictions.", "deberta.embeddings.position_embeddings."]
            }
            _ => &[],
        };
        heads.iter().any(|head| name.starts_with(head))
            || name.starts_with("cls.seq_relationship.")
            || EXTRA_HEADS.iter().any(|head| name.starts_with(head))
            || name.ends_with("embeddings.position_ids")
            || name.ends_with("embeddings.token_type_ids")
            || (self.rotary.is_some() && name.ends_with("inv_freq"))
            // The sines and cosines of positions.
            || (self.family == BertFamily::RoFormer && name.ends_with("encoder.embed_positions.weight"))
            || name.contains("pooler.dense.")
            // Those of tokens that attend to everything, where there are none.
            || (self.family == BertFamily::Longformer && name.contains("_global."))
    }
}

/// The first parts of the names of a body's tensors.
const BODY_PARTS: [&str; 7] = [
    "embeddings.",
    "embeddings_project.",
    "encoder.",
    "transformer.layer.",
    "pooler.",
    "LayerNorm.",
    "emb_ln.",
];

/// The most feed-forward parts of a layer of MobileBERT.
const MOST_PARTS: usize = 1000;

/// The most layers of a model whose layers share weights: their number is not bounded by that of the tensors.
const MOST_SHARED: usize = 1000;

/// The tensor name prefixes of heads that this project stores in an encoder's checkpoint: for pairs of marked positions,
/// for a document's entities, for questions over a knowledge base.
const EXTRA_HEADS: [&str; 3] = ["pair_head.", "entity_head.", "question."];

/// The fields that determine the head.
#[derive(Deserialize)]
pub(crate) struct HeadFields {
    pub(crate) architectures: Option<Vec<String>>,
    id2label: Option<Map<String, Value>>,
    num_labels: Option<usize>,
}

impl HeadFields {
    /// The labels in the order of their numbers; `transformers` has two where a config says nothing.
    pub(crate) fn labels(&self) -> Vec<String> {
        let name = |i: usize| {
            let name = self.id2label.as_ref().and_then(|labels| labels.get(&i.to_string()));
            name.and_then(Value::as_str).map_or_else(|| format!("LABEL_{i}"), str::to_owned)
        };
        (0..self.count()).map(name).collect()
    }

    /// The number of labels.
    pub(crate) fn count(&self) -> usize {
        self.id2label.as_ref().map(Map::len).or(self.num_labels).unwrap_or(2)
    }

    /// Adds the fields of labels.
    pub(crate) fn write(labels: &[String], fields: &mut Map<String, Value>) {
        let labels = || labels.iter().enumerate();
        let by_number: Map<String, Value> =
            labels().map(|(i, label)| (i.to_string(), json!(label))).collect();
        let by_name: Map<String, Value> = labels().map(|(i, label)| (label.clone(), json!(i))).collect();
        fields.insert("id2label".into(), Value::Object(by_number));
        fields.insert("label2id".into(), Value::Object(by_name));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{BertConfig, BertFamily, BertTask};
    use crate::architectures::ModelConfig;
    use sporran_checkpoint::Architecture;

    fn read(family: BertFamily, text: &str) -> sporran_checkpoint::Result<BertConfig> {
        BertConfig::from_json(family, Path::new("config.json"), text)
    }

    #[test]
    fn the_architecture_names_the_head() {
        let task = |family, name: &str| read(family, &format!(r#"{{"architectures": ["{name}"]}}"#));
        let bert = task(BertFamily::Bert, "BertForPreTraining").unwrap();
        assert_eq!(bert.task, BertTask::MaskedLm);
        assert_eq!(read(BertFamily::Bert, "{}").unwrap().task, BertTask::States);
        let xlm = task(BertFamily::XlmRoberta, "XLMRobertaForSequenceClassification").unwrap();
        assert_eq!(xlm.task, BertTask::SequenceClassification);
        let error = task(BertFamily::Dpr, "DPRModel").unwrap_err().to_string();
        let expected = "config.json: field `architectures`: expected one of `DPRQuestionEncoder`, \
                        `DPRContextEncoder`, `DPRReader`, found `DPRModel`";
        assert_eq!(error, expected);
        assert!(read(BertFamily::Dpr, "{}").is_err());
    }

    #[test]
    fn positions_of_roberta_begin_after_the_padding_token() {
        let config = read(BertFamily::Roberta, r#"{"max_position_embeddings": 514}"#).unwrap();
        assert_eq!((config.first_position(), config.max_input_length()), (2, 512));
        let error = read(BertFamily::Roberta, r#"{"max_position_embeddings": 2}"#).unwrap_err().to_string();
        assert!(error.contains("expected more than 2, found 2"), "{error}");
    }

    #[test]
    fn an_id_below_zero_names_no_padding_token() {
        let text = r#"{"pad_token_id": -1, "eos_token_id": [1, -1]}"#;
        for family in [BertFamily::Bert, BertFamily::DistilBert] {
            assert_eq!(read(family, text).unwrap().pad_token_id, 0);
        }
        let error = read(BertFamily::Roberta, text).unwrap_err().to_string();
        assert!(error.contains("field `pad_token_id`") && error.ends_with("found -1"), "{error}");
    }

    #[test]
    fn what_is_not_supported_is_refused() {
        for text in [
            r#"{"position_embedding_type": "relative_key"}"#,
            r#"{"is_decoder": true}"#,
            r#"{"hidden_act": "mish"}"#,
            r#"{"num_attention_heads": 5}"#,
            r#"{"id2label": {}}"#,
        ] {
            assert!(
                matches!(read(BertFamily::Bert, text), Err(sporran_checkpoint::Error::Config { .. })),
                "{text}"
            );
        }
    }

    #[test]
    fn every_family_has_the_defaults_of_its_class_in_transformers() {
        let sizes = |family| {
            let config = read(family, "{}").unwrap();
            (config.vocab_size, config.hidden_size, config.num_attention_heads, config.pad_token_id)
        };
        assert_eq!(sizes(BertFamily::Camembert), (30522, 768, 12, 1));
        assert_eq!(sizes(BertFamily::Mpnet), (30527, 768, 12, 1));
        assert_eq!(sizes(BertFamily::Electra), (30522, 256, 4, 0));
        assert_eq!(sizes(BertFamily::Albert), (30000, 4096, 64, 0));
        assert_eq!(sizes(BertFamily::Deberta), (128_100, 1536, 24, 0));
        assert_eq!(sizes(BertFamily::FirstDeberta), (50_265, 768, 12, 0));
        assert_eq!(sizes(BertFamily::BigBird), (50_358, 768, 12, 0));
        assert_eq!(sizes(BertFamily::Longformer), (30522, 768, 12, 1));
        assert_eq!(read(BertFamily::Longformer, "{}").unwrap().windows(), [256; 12]);
        let most = |text: &str| read(BertFamily::BigBird, text).unwrap().max_input_length();
        assert_eq!((most("{}"), most(r#"{"attention_type": "original_full"}"#)), (704, 4096));
        let electra = read(BertFamily::Electra, "{}").unwrap();
        assert_eq!((electra.embedding_size, electra.intermediate_size), (Some(128), 1024));
        let albert = read(BertFamily::Albert, r#"{"hidden_size": 128}"#).unwrap();
        assert_eq!((albert.embedding_size, albert.hidden_act.as_str()), (Some(128), "gelu_new"));
        assert_eq!((albert.head_dropout, albert.hidden_dropout_prob), (0.1, 0.0));
        assert_eq!(sizes(BertFamily::Ernie), (30522, 768, 12, 0));
        assert_eq!(sizes(BertFamily::Data2VecText), (30522, 768, 12, 1));
        assert_eq!(sizes(BertFamily::RobertaPreLayerNorm), (50265, 768, 12, 1));
        assert_eq!(sizes(BertFamily::XlmRobertaXl), (250_880, 2560, 32, 1));
        assert_eq!(sizes(BertFamily::MegatronBert), (29056, 1024, 16, 0));
        assert_eq!(sizes(BertFamily::RemBert), (250_300, 1152, 18, 0));
        assert_eq!(sizes(BertFamily::NomicBert), (30528, 768, 12, 0));
        assert_eq!(sizes(BertFamily::Gte), (250_048, 768, 12, 1));
        assert_eq!(sizes(BertFamily::JinaEmbeddingsV3), (250_002, 1024, 16, 1));
        let theta = |family| read(family, "{}").unwrap().rotary.map(|rotary| rotary.theta);
        assert_eq!(theta(BertFamily::NomicBert), Some(1000.0));
        assert_eq!(theta(BertFamily::Gte), Some(160_000.0));
        assert_eq!(theta(BertFamily::JinaEmbeddingsV3), Some(20_000.0));
        assert_eq!(read(BertFamily::Gte, r#"{"rope_theta": 7}"#).unwrap().rotary.unwrap().theta, 7.0);
        let rembert = read(BertFamily::RemBert, "{}").unwrap();
        assert_eq!((rembert.embedding_size, rembert.output_embedding_size), (Some(256), Some(1664)));
        assert_eq!((rembert.head_dropout, rembert.hidden_dropout_prob), (0.1, 0.0));
        assert!(!rembert.tie_word_embeddings);
        let task_types = |text: &str| read(BertFamily::Ernie, text).unwrap().task_types;
        assert_eq!((task_types("{}"), task_types(r#"{"use_task_id": true}"#)), (0, 3));
        let deberta = read(BertFamily::Deberta, "{}").unwrap();
        assert!(!deberta.has_types() && deberta.has_positions() && !deberta.takes_types());
        assert_eq!(deberta.layer_norm_eps, 1e-7);
    }

    #[test]
    fn groups_of_layers_follow_each_other() {
        let order = |text: &str| read(BertFamily::Albert, text).unwrap().order();
        let text = r#"{"num_hidden_layers": 5, "num_hidden_groups": 2, "inner_group_num": 2}"#;
        // Layers 0 to 2 are of group 0, since 2 / 2.5 is below 1.
        assert_eq!(order(text), [0, 1, 0, 1, 0, 1, 2, 3, 2, 3]);
        assert_eq!(order(r#"{"num_hidden_layers": 3}"#), [0, 0, 0]);
        let error = |text: &str| read(BertFamily::Albert, text).unwrap_err().to_string();
        assert!(error(r#"{"num_hidden_groups": 13}"#).contains("field `num_hidden_groups`"));
        assert!(error(r#"{"num_hidden_layers": 1001}"#).contains("at most 1000 layers that share weights"));
    }

    #[test]
    fn settings_of_one_family_are_checked() {
        for (family, text, field) in [
            (BertFamily::Mpnet, r#"{"pad_token_id": 0}"#, "pad_token_id"),
            (
                BertFamily::Mpnet,
                r#"{"relative_attention_num_buckets": 16}"#,
                "relative_attention_num_buckets",
            ),
            (BertFamily::Electra, r#"{"embedding_size": 0}"#, "embedding_size"),
            (BertFamily::Deberta, r#"{"conv_kernel_size": 3}"#, "conv_kernel_size"),
            (BertFamily::Deberta, r#"{"pooler_hidden_act": "mish"}"#, "pooler_hidden_act"),
            (
                BertFamily::Deberta,
                r#"{"legacy": false, "architectures": ["DebertaV2ForMaskedLM"]}"#,
                "legacy",
            ),
            (BertFamily::Deberta, r#"{"position_buckets": 1}"#, "position_buckets"),
            (BertFamily::Camembert, r#"{"hidden_act": "mish"}"#, "hidden_act"),
            (BertFamily::FirstDeberta, r#"{"talking_head": true}"#, "talking_head"),
            (BertFamily::BigBird, r#"{"rescale_embeddings": true}"#, "rescale_embeddings"),
            (BertFamily::BigBird, r#"{"use_bias": false}"#, "use_bias"),
            (BertFamily::Longformer, r#"{"attention_window": 7}"#, "attention_window"),
            (BertFamily::ConvBert, r#"{"head_ratio": 0}"#, "head_ratio"),
            (BertFamily::ConvBert, r#"{"conv_kernel_size": 8}"#, "conv_kernel_size"),
            (BertFamily::ConvBert, r#"{"num_groups": 5}"#, "num_groups"),
            (BertFamily::ConvBert, r#"{"hidden_size": 12, "head_ratio": 1}"#, "hidden_size"),
            (BertFamily::Nystromformer, r#"{"num_landmarks": 32}"#, "num_landmarks"),
            (BertFamily::Nystromformer, r#"{"conv_kernel_size": 64}"#, "conv_kernel_size"),
            (BertFamily::Fnet, r#"{"use_tpu_fourier_optimizations": true}"#, "use_tpu_fourier_optimizations"),
            (BertFamily::Xlnet, r#"{"attn_type": "uni"}"#, "attn_type"),
            (BertFamily::Xlnet, r#"{"bi_data": true}"#, "bi_data"),
            (BertFamily::Xlnet, r#"{"clamp_len": 9}"#, "clamp_len"),
            (BertFamily::Xlnet, r#"{"d_head": 9}"#, "d_head"),
            (
                BertFamily::Xlnet,
                r#"{"summary_type": "mean", "architectures": ["XLNetForSequenceClassification"]}"#,
                "summary_type",
            ),
            (BertFamily::MobileBert, r#"{"trigram_input": false}"#, "trigram_input"),
            (BertFamily::MobileBert, r#"{"use_bottleneck_attention": true}"#, "use_bottleneck_attention"),
            (BertFamily::MobileBert, r#"{"normalization_type": "layer_norm"}"#, "normalization_type"),
            (BertFamily::MobileBert, r#"{"num_feedforward_networks": 0}"#, "num_feedforward_networks"),
            (BertFamily::MobileBert, r#"{"intra_bottleneck_size": 30}"#, "intra_bottleneck_size"),
            (BertFamily::SqueezeBert, r#"{"output_groups": 5}"#, "output_groups"),
            (BertFamily::SqueezeBert, r#"{"q_groups": 0}"#, "q_groups"),
            (BertFamily::SqueezeBert, r#"{"embedding_size": 128}"#, "embedding_size"),
            (BertFamily::SqueezeBert, r#"{"layer_norm_eps": 1e-5}"#, "layer_norm_eps"),
            (BertFamily::Longformer, r#"{"attention_window": [8, 8]}"#, "attention_window"),
            (
                BertFamily::Longformer,
                r#"{"architectures": ["LongformerForQuestionAnswering"]}"#,
                "architectures",
            ),
            (BertFamily::Gte, r#"{"rope_scaling": {"type": "ntk", "factor": 8}}"#, "rope_scaling"),
            (BertFamily::NomicBert, r#"{"head_dim": 32}"#, "head_dim"),
            (BertFamily::JinaEmbeddingsV3, r#"{"rope_parameters": {"rope_theta": 0}}"#, "rope_theta"),
        ] {
            let error = read(family, text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("config.json: field `{field}`")), "{error}");
        }
    }

    #[test]
    fn a_written_config_is_read_back() {
        for (family, text) in [
            (BertFamily::Bert, r#"{"id2label": {"0": "no", "1": "yes", "2": "maybe"}, "pad_token_id": 3}"#),
            (
                BertFamily::DistilBert,
                r#"{"dim": 24, "n_heads": 2, "qa_dropout": 0.3, "architectures":
                ["DistilBertForQuestionAnswering"]}"#,
            ),
            (BertFamily::Dpr, r#"{"projection_dim": 5, "architectures": ["DPRContextEncoder"]}"#),
            (BertFamily::Camembert, r#"{"classifier_dropout": 0.3}"#),
            (BertFamily::Ernie, r#"{"use_task_id": true, "task_type_vocab_size": 4}"#),
            (BertFamily::Data2VecText, r#"{"architectures": ["Data2VecTextForMaskedLM"]}"#),
            (BertFamily::RobertaPreLayerNorm, r#"{"layer_norm_eps": 1e-5}"#),
            (BertFamily::XlmRobertaXl, r#"{"architectures": ["XLMRobertaXLForQuestionAnswering"]}"#),
            (BertFamily::MegatronBert, r#"{"num_hidden_layers": 2}"#),
            (BertFamily::RemBert, r#"{"input_embedding_size": 5, "output_embedding_size": 9}"#),
            (BertFamily::NomicBert, r#"{"rope_parameters": {"rope_theta": 77, "rope_type": "default"}}"#),
            (BertFamily::Gte, r#"{"type_vocab_size": 0, "architectures": ["GteForMaskedLM"]}"#),
            (BertFamily::JinaEmbeddingsV3, r#"{"architectures": ["JinaEmbeddingsV3ForQuestionAnswering"]}"#),
            (
                BertFamily::New,
                r#"{"rope_scaling": {"type": "ntk", "factor": 8}, "rope_theta": 20000, "architectures": ["NewModel"]}"#,
            ),
            (BertFamily::BigBird, r#"{"architectures": ["BigBirdForMaskedLM"]}"#),
            (BertFamily::BigBird, r#"{"attention_type": "original_full"}"#),
            (
                BertFamily::Longformer,
                r#"{"num_hidden_layers": 2, "attention_window": [8, 16], "architectures": ["LongformerForMaskedLM"]}"#,
            ),
            (
                BertFamily::FirstDeberta,
                r#"{"relative_attention": true, "pos_att_type": "c2p|p2c", "position_biased_input": false}"#,
            ),
            (BertFamily::XlmRoberta, r#"{"use_flash_attn": true}"#),
            (
                BertFamily::Bert,
                r#"{"position_embedding_type": "alibi", "feed_forward_type": "geglu",
                "architectures": ["JinaBertForSequenceClassification"]}"#,
            ),
            (
                BertFamily::MobileBert,
                r#"{"classifier_activation": false, "num_feedforward_networks": 2,
                "architectures": ["MobileBertForSequenceClassification"]}"#,
            ),
            (BertFamily::SqueezeBert, r#"{"q_groups": 2, "intermediate_groups": 1}"#),
            (BertFamily::Mpnet, r#"{"architectures": ["MPNetForMaskedLM"]}"#),
            (BertFamily::Electra, r#"{"embedding_size": 256}"#),
            (BertFamily::Electra, r#"{"embedding_size": 64}"#),
            (BertFamily::Albert, r#"{"num_hidden_groups": 3, "classifier_dropout_prob": 0.2}"#),
            (
                BertFamily::Deberta,
                r#"{"relative_attention": true, "pos_att_type": "p2c|c2p", "share_att_key": true,
                "position_buckets": 256, "norm_rel_ebd": "layer_norm", "position_biased_input": false,
                "cls_dropout": 0.0, "architectures": ["DebertaV2ForSequenceClassification"]}"#,
            ),
        ] {
            let config = read(family, text).unwrap();
            let written = ModelConfig::Bert(config.clone()).to_json().to_string();
            assert_eq!(read(family, &written).unwrap(), config);
        }
    }

    #[test]
    fn tensors_are_found_under_the_names_that_checkpoints_use() {
        let bare = read(BertFamily::Bert, "{}").unwrap();
        assert_eq!(bare.canonical("bert.embeddings.LayerNorm.gamma"), "embeddings.LayerNorm.weight");
        let text = r#"{"architectures": ["RobertaForMaskedLM"]}"#;
        let roberta = read(BertFamily::Roberta, text).unwrap();
        assert_eq!(
            roberta.canonical("encoder.layer.0.output.dense.bias"),
            "roberta.encoder.layer.0.output.dense.bias"
        );
        assert_eq!(roberta.canonical("lm_head.decoder.bias"), "lm_head.bias");
        let text = r#"{"architectures": ["DebertaV2ForSequenceClassification"]}"#;
        let deberta = read(BertFamily::Deberta, text).unwrap();
        assert_eq!(deberta.canonical("pooler.dense.weight"), "pooler.dense.weight");
        assert_eq!(
            deberta.canonical("encoder.rel_embeddings.weight"),
            "deberta.encoder.rel_embeddings.weight"
        );
        let text = r#"{"architectures": ["RobertaPreLayerNormForMaskedLM"]}"#;
        let first = read(BertFamily::RobertaPreLayerNorm, text).unwrap();
        assert_eq!(first.canonical("LayerNorm.weight"), "roberta_prelayernorm.LayerNorm.weight");
        let text = r#"{"architectures": ["RemBertForMaskedLM"]}"#;
        let rembert = read(BertFamily::RemBert, text).unwrap();
        assert_eq!(rembert.canonical("cls.predictions.decoder.bias"), "cls.predictions.decoder.bias");
        let electra = read(BertFamily::Electra, r#"{"architectures": ["ElectraForPreTraining"]}"#).unwrap();
        assert_eq!(electra.canonical("electra.embeddings_project.bias"), "embeddings_project.bias");
        assert!(electra.is_ignorable("discriminator_predictions.dense.weight"));
        assert!(roberta.is_ignorable(&roberta.canonical("embeddings.position_ids")));
    }
}
