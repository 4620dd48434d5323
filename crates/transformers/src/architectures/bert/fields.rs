//! The fields of the `config.json` of BERT, RoBERTa, DPR and DistilBERT.

use serde::{Deserialize, Serialize};
use sporran_checkpoint::Result;

use super::config::{BertConfig, BertFamily, BertTask, wrong};

/// DistilBERT's normalisation; no config field sets it.
const DISTIL_EPSILON: f64 = 1e-12;

/// The fields of BERT, RoBERTa and DPR.
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct BertFields {
    vocab_size: Option<usize>,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    hidden_act: String,
    hidden_dropout_prob: f64,
    attention_probs_dropout_prob: f64,
    classifier_dropout: Option<f64>,
    max_position_embeddings: usize,
    type_vocab_size: usize,
    initializer_range: f64,
    layer_norm_eps: f64,
    pad_token_id: Option<i64>,
    position_embedding_type: String,
    is_decoder: bool,
    add_cross_attention: bool,
    projection_dim: usize,
    tie_word_embeddings: bool,
}

impl Default for BertFields {
    fn default() -> Self {
        Self {
            vocab_size: None,
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            hidden_act: "gelu".into(),
            hidden_dropout_prob: 0.1,
            attention_probs_dropout_prob: 0.1,
            classifier_dropout: None,
            max_position_embeddings: 512,
            type_vocab_size: 2,
            initializer_range: 0.02,
            layer_norm_eps: 1e-12,
            pad_token_id: None,
            position_embedding_type: "absolute".into(),
            is_decoder: false,
            add_cross_attention: false,
            projection_dim: 0,
            tie_word_embeddings: true,
        }
    }
}

impl BertFields {
    pub(crate) fn supported(&self, family: BertFamily) -> Result<()> {
        // RoBERTa counts positions from after the padding token.
        if matches!(family, BertFamily::Roberta | BertFamily::XlmRoberta)
            && let Some(id) = self.pad_token_id.filter(|id| *id < 0)
        {
            return Err(wrong(
                "pad_token_id",
                "a token's id, from which positions are counted",
                &id.to_string(),
            ));
        }
        if self.position_embedding_type != "absolute" {
            return Err(wrong("position_embedding_type", "absolute", &self.position_embedding_type));
        }
        for (field, set) in
            [("is_decoder", self.is_decoder), ("add_cross_attention", self.add_cross_attention)]
        {
            if set {
                return Err(wrong(field, "false", "true"));
            }
        }
        Ok(())
    }

    pub(crate) fn config(self, family: BertFamily, task: BertTask, labels: Vec<String>) -> BertConfig {
        let (vocabulary, pad) = match family {
            BertFamily::Roberta | BertFamily::XlmRoberta => (50265, 1),
            BertFamily::Bert | BertFamily::DistilBert | BertFamily::Dpr => (30522, 0),
        };
        BertConfig {
            family,
            task,
            vocab_size: self.vocab_size.unwrap_or(vocabulary),
            hidden_size: self.hidden_size,
            num_hidden_layers: self.num_hidden_layers,
            num_attention_heads: self.num_attention_heads,
            intermediate_size: self.intermediate_size,
            hidden_act: self.hidden_act,
            hidden_dropout_prob: self.hidden_dropout_prob,
            attention_probs_dropout_prob: self.attention_probs_dropout_prob,
            head_dropout: self.classifier_dropout.unwrap_or(self.hidden_dropout_prob),
            max_position_embeddings: self.max_position_embeddings,
            type_vocab_size: self.type_vocab_size,
            initializer_range: self.initializer_range,
            layer_norm_eps: self.layer_norm_eps,
            pad_token_id: padding(self.pad_token_id, pad),
            projection_dim: if family == BertFamily::Dpr { self.projection_dim } else { 0 },
            labels,
            tie_word_embeddings: self.tie_word_embeddings,
        }
    }

    pub(crate) fn of(config: &BertConfig) -> Self {
        Self {
            vocab_size: Some(config.vocab_size),
            hidden_size: config.hidden_size,
            num_hidden_layers: config.num_hidden_layers,
            num_attention_heads: config.num_attention_heads,
            intermediate_size: config.intermediate_size,
            hidden_act: config.hidden_act.clone(),
            hidden_dropout_prob: config.hidden_dropout_prob,
            attention_probs_dropout_prob: config.attention_probs_dropout_prob,
            classifier_dropout: Some(config.head_dropout),
            max_position_embeddings: config.max_position_embeddings,
            type_vocab_size: config.type_vocab_size,
            initializer_range: config.initializer_range,
            layer_norm_eps: config.layer_norm_eps,
            pad_token_id: Some(config.pad_token_id.into()),
            projection_dim: config.projection_dim,
            tie_word_embeddings: config.tie_word_embeddings,
            ..Self::default()
        }
    }
}

/// The padding token of a config. A negative id, or one beyond 32 bits, names none; then the `default` fills rows, which no
/// model sees.
fn padding(id: Option<i64>, default: u32) -> u32 {
    id.and_then(|id| u32::try_from(id).ok()).unwrap_or(default)
}

/// The fields of DistilBERT, which have different names.
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DistilFields {
    vocab_size: usize,
    max_position_embeddings: usize,
    n_layers: usize,
    n_heads: usize,
    dim: usize,
    hidden_dim: usize,
    dropout: f64,
    attention_dropout: f64,
    activation: String,
    initializer_range: f64,
    qa_dropout: f64,
    seq_classif_dropout: f64,
    pad_token_id: Option<i64>,
    tie_word_embeddings: bool,
}

impl Default for DistilFields {
    fn default() -> Self {
        Self {
            vocab_size: 30522,
            max_position_embeddings: 512,
            n_layers: 6,
            n_heads: 12,
            dim: 768,
            hidden_dim: 3072,
            dropout: 0.1,
            attention_dropout: 0.1,
            activation: "gelu".into(),
            initializer_range: 0.02,
            qa_dropout: 0.1,
            seq_classif_dropout: 0.2,
            pad_token_id: Some(0),
            tie_word_embeddings: true,
        }
    }
}

impl DistilFields {
    pub(crate) fn config(self, task: BertTask, labels: Vec<String>) -> BertConfig {
        BertConfig {
            family: BertFamily::DistilBert,
            task,
            vocab_size: self.vocab_size,
            hidden_size: self.dim,
            num_hidden_layers: self.n_layers,
            num_attention_heads: self.n_heads,
            intermediate_size: self.hidden_dim,
            hidden_act: self.activation,
            hidden_dropout_prob: self.dropout,
            attention_probs_dropout_prob: self.attention_dropout,
            head_dropout: match task {
                BertTask::SequenceClassification => self.seq_classif_dropout,
                BertTask::Span => self.qa_dropout,
                _ => self.dropout,
            },
            max_position_embeddings: self.max_position_embeddings,
            type_vocab_size: 0,
            initializer_range: self.initializer_range,
            layer_norm_eps: DISTIL_EPSILON,
            pad_token_id: padding(self.pad_token_id, 0),
            projection_dim: 0,
            labels,
            tie_word_embeddings: self.tie_word_embeddings,
        }
    }

    pub(crate) fn of(config: &BertConfig) -> Self {
        Self {
            vocab_size: config.vocab_size,
            max_position_embeddings: config.max_position_embeddings,
            n_layers: config.num_hidden_layers,
            n_heads: config.num_attention_heads,
            dim: config.hidden_size,
            hidden_dim: config.intermediate_size,
            dropout: config.hidden_dropout_prob,
            attention_dropout: config.attention_probs_dropout_prob,
            activation: config.hidden_act.clone(),
            initializer_range: config.initializer_range,
            qa_dropout: config.head_dropout,
            seq_classif_dropout: config.head_dropout,
            pad_token_id: Some(config.pad_token_id.into()),
            tie_word_embeddings: config.tie_word_embeddings,
        }
    }
}
