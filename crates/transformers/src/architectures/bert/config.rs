//! The `config.json` of a BERT-shaped encoder: BERT and the families that differ from it in a few places.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use sporran_checkpoint::{Result, json::parse};

use super::{
    adapter::LanguageAdapters,
    convbert::ConvSizes,
    disentangled::Disentangled,
    family::{BertFamily, task},
    fields::{BertFields, DistilFields},
    mobile::MobileSizes,
    own_code,
    rotary::RotaryPositions,
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

/// The settings that one family, or a few of a kind, have and others do not.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub enum FamilySettings {
    /// None.
    #[default]
    None,
    /// The sharing of layers, in ALBERT.
    Sharing(LayerSharing),
    /// The blocks of attention, in some BigBirds, which read inputs that are so short that attention is complete.
    Blocks(AttentionBlocks),
    /// The tokens that layers attend to, half of them on either side, beside the own one, in Longformer: one number for all
    /// layers, or one for each.
    Windows(Vec<usize>),
    /// The sizes of MobileBERT.
    Mobile(MobileSizes),
    /// The sizes of ConvBERT and Nyströmformer.
    Convolution(ConvSizes),
    /// The groups of values that layers read, in SqueezeBERT.
    Groups(LayerGroups),
    /// The attention to distances, in DeBERTa.
    Disentangled(Disentangled),
    /// The rotary positions, in some families.
    Rotary(RotaryPositions),
    /// The width of the table in RemBERT's head over the vocabulary.
    OutputEmbedding(usize),
    /// The number of tasks that have an embedding, in some ERNIEs. All inputs are of the first.
    Tasks(usize),
    /// The adapters of a language, in X-MOD.
    Adapters(LanguageAdapters),
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
    /// What the family alone has.
    pub own: FamilySettings,
    /// The names of the labels, by number.
    pub labels: Vec<String>,
    /// Whether the head over the vocabulary is the embedding table.
    pub tie_word_embeddings: bool,
}

impl Default for BertConfig {
    /// BERT-base without a head.
    fn default() -> Self {
        Self {
            family: BertFamily::Bert,
            task: BertTask::States,
            vocab_size: 30_522,
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            hidden_act: "gelu".into(),
            hidden_dropout_prob: 0.1,
            attention_probs_dropout_prob: 0.1,
            head_dropout: 0.1,
            max_position_embeddings: 512,
            type_vocab_size: 2,
            initializer_range: 0.02,
            layer_norm_eps: 1e-12,
            pad_token_id: 0,
            projection_dim: 0,
            embedding_size: None,
            own: FamilySettings::None,
            labels: vec!["LABEL_0".into(), "LABEL_1".into()],
            tie_word_embeddings: true,
        }
    }
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
        match &self.own {
            FamilySettings::Blocks(blocks) => positions.min(blocks.most_tokens()),
            _ => positions,
        }
    }

    /// The attention to distances, in DeBERTa.
    #[must_use]
    pub fn disentangled(&self) -> Option<&Disentangled> {
        match &self.own {
            FamilySettings::Disentangled(settings) => Some(settings),
            _ => None,
        }
    }

    /// The rotary positions, in some families.
    #[must_use]
    pub fn rotary(&self) -> Option<RotaryPositions> {
        match self.own {
            FamilySettings::Rotary(positions) => Some(positions),
            _ => None,
        }
    }

    /// The adapters of a language, in X-MOD.
    pub(crate) fn adapters(&self) -> Option<&LanguageAdapters> {
        match &self.own {
            FamilySettings::Adapters(adapters) => Some(adapters),
            _ => None,
        }
    }

    /// Whether each part reads normalised states, and the last states are normalised.
    pub(crate) fn norms_first(&self) -> bool {
        use BertFamily::{MegatronBert, RobertaPreLayerNorm, XlmRobertaXl};
        matches!(self.family, RobertaPreLayerNorm | XlmRobertaXl | MegatronBert)
            || self.adapters().is_some_and(|adapters| adapters.norms_first)
    }

    /// The sizes of MobileBERT.
    pub(super) fn mobile(&self) -> Option<MobileSizes> {
        match self.own {
            FamilySettings::Mobile(sizes) => Some(sizes),
            _ => None,
        }
    }

    /// The number of tasks that have an embedding, in some ERNIEs; 0 where none has.
    pub(crate) fn task_types(&self) -> usize {
        match self.own {
            FamilySettings::Tasks(count) => count,
            _ => 0,
        }
    }

    /// The row of the table of positions that belongs to an input's first token.
    #[must_use]
    pub fn first_position(&self) -> usize {
        if self.family.counts_from_padding() { self.pad_token_id as usize + 1 } else { 0 }
    }

    /// Whether embeddings have a part for each position.
    #[must_use]
    pub fn has_positions(&self) -> bool {
        self.rotary().is_none()
            && self.family != BertFamily::JinaBert
            && self.disentangled().is_none_or(|settings| settings.has_positions)
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
            && matches!(self.own, FamilySettings::None)
            && !self.is_apart()
            && !matches!(self.family, BertFamily::Mpnet | BertFamily::BigBird | BertFamily::Longformer)
            && !self.norms_first()
    }

    /// Whether the model has its own body, for inference alone and without a packed form.
    #[must_use]
    pub fn is_apart(&self) -> bool {
        use BertFamily::{ConvBert, Fnet, MobileBert, Nystromformer, Xlnet};
        matches!(self.family, MobileBert | Xlnet | ConvBert | Nystromformer | Fnet)
    }

    /// For each layer, the tokens that it attends to on either side; none where it attends to all.
    pub(crate) fn windows(&self) -> Vec<usize> {
        let FamilySettings::Windows(windows) = &self.own else { return Vec::new() };
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
        let FamilySettings::Sharing(LayerSharing { groups, inner }) = self.own else {
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
            (_, family) => family.naming().prefix,
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
        // `transformers` ties no words of these two.
        let has_own = matches!(self.family, BertFamily::RemBert | BertFamily::Luke);
        self.task == BertTask::MaskedLm && self.tie_word_embeddings && !has_own
    }
}

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
