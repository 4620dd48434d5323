//! The heads of decoder-only models, and such models as encoders.

use std::path::Path;

use candle_core::{Device, Tensor};
use candle_nn::VarBuilder;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sporran_checkpoint::{Result, json::parse};

use super::{
    bert::{BertTask, Head, HeadFields, LabelledState, SequenceHead, TokenHead, Transform},
    wrong::wrong,
};
use crate::{
    batch::Batch,
    causal::TrainableCausal,
    encoder::Encoder,
    layers::{Activation, Linear},
    mode::Mode,
};

/// The head of a decoder-only model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DecoderHead {
    /// The vocabulary: the model continues its input.
    #[default]
    LanguageModel,
    /// There is none, as in embedders.
    None,
    /// Labels of whole texts, by their names, read off the state of the last token that is no padding.
    Labels(Vec<String>),
    /// Labels of whole texts through an inner layer, in encoders of this shape (EuroBERT).
    PooledLabels(Vec<String>, LabelPooling),
    /// Labels of tokens, in such encoders.
    TokenLabels(Vec<String>),
}

/// What a head of labels for whole texts reads (EuroBERT's `classifier_pooling`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelPooling {
    /// The first token's state.
    First,
    /// The mean of all states.
    Mean,
    /// All states: their mean is taken after the inner layer.
    Late,
}

impl LabelPooling {
    const ALL: [(&'static str, Self); 3] = [("bos", Self::First), ("mean", Self::Mean), ("late", Self::Late)];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, pooling)| *pooling == self).map_or("", |(name, _)| name)
    }
}

/// The name of the layer of labels.
const SCORE: &str = "score";
/// The classes of `EuroBERT` with labels, of whole texts and of tokens.
pub(crate) const EURO_BERT_LABELS: [&str; 2] =
    ["EuroBertForSequenceClassification", "EuroBertForTokenClassification"];

/// The field of the pooling of labels.
#[derive(Deserialize)]
struct PoolingField {
    classifier_pooling: Option<String>,
}
/// The most labels of a head.
const MOST_LABELS: usize = 1 << 20;

impl DecoderHead {
    /// The head that the text of a `config.json` names, where `labels` is the class of the model with labels.
    ///
    /// # Errors
    /// [`Error::Json`](sporran_checkpoint::Error::Json) where a field has the wrong type, and
    /// [`Error::Config`](sporran_checkpoint::Error::Config) for a number of labels that no model has.
    pub(crate) fn of(path: &Path, text: &str, labels: &str) -> Result<Self> {
        let fields: HeadFields = parse(path, text)?;
        let class = fields.architectures.as_deref().unwrap_or_default().first();
        if class.is_none_or(|class| class != labels) {
            return Ok(Self::LanguageModel);
        }
        Ok(Self::Labels(checked_labels(path, &fields)?))
    }

    /// The head that the text of a `config.json` of EuroBERT names. A head of words is none.
    ///
    /// # Errors
    /// As for [`of`](Self::of), and for a pooling that is not known.
    pub(crate) fn of_euro_bert(path: &Path, text: &str) -> Result<Self> {
        let fields: HeadFields = parse(path, text)?;
        let class = fields.architectures.as_deref().unwrap_or_default().first();
        match EURO_BERT_LABELS.iter().position(|known| class.is_some_and(|class| class == known)) {
            None => Ok(Self::None),
            Some(0) => {
                let PoolingField { classifier_pooling: name } = parse(path, text)?;
                let name = name.as_deref().unwrap_or("late");
                let known = LabelPooling::ALL.iter().find(|(known, _)| *known == name);
                let (_, pooling) = known.ok_or_else(|| {
                    wrong("classifier_pooling", "`bos`, `mean` or `late`", &format!("`{name}`")).within(path)
                })?;
                Ok(Self::PooledLabels(checked_labels(path, &fields)?, *pooling))
            }
            Some(_) => Ok(Self::TokenLabels(checked_labels(path, &fields)?)),
        }
    }

    /// The names of the labels.
    pub(crate) fn labels(&self) -> &[String] {
        match self {
            Self::Labels(labels) | Self::PooledLabels(labels, _) | Self::TokenLabels(labels) => labels,
            Self::LanguageModel | Self::None => &[],
        }
    }

    /// The head of an encoder for a task; none where there is no class with one.
    pub(crate) fn with_task(&self, task: BertTask, labels: Vec<String>) -> Option<Self> {
        match task {
            BertTask::States => Some(Self::None),
            BertTask::SequenceClassification => {
                let pooling = match self {
                    Self::PooledLabels(_, pooling) => *pooling,
                    _ => LabelPooling::Late,
                };
                Some(Self::PooledLabels(labels, pooling))
            }
            BertTask::TokenClassification => Some(Self::TokenLabels(labels)),
            _ => None,
        }
    }

    /// Gives the labels other names.
    pub(crate) fn rename(&mut self, names: Vec<String>) {
        if let Self::Labels(labels) | Self::PooledLabels(labels, _) | Self::TokenLabels(labels) = self {
            *labels = names;
        }
    }

    /// Whether logits of words are part of the model.
    pub(crate) fn is_language_model(&self) -> bool {
        *self == Self::LanguageModel
    }

    /// Adds the fields of labels to those of a `config.json`.
    pub(crate) fn write(&self, fields: &mut Map<String, Value>) {
        if !self.labels().is_empty() {
            HeadFields::write(self.labels(), fields);
        }
        if let Self::PooledLabels(_, pooling) = self {
            fields.insert("classifier_pooling".into(), json!(pooling.name()));
        }
    }

    /// The layer over states of this width that an encoder has; `pad` is the padding token of the config.
    pub(crate) fn of_encoder(
        &self,
        width: usize,
        pad: Option<u32>,
        std: f64,
        vb: &VarBuilder,
    ) -> Result<Head> {
        match self {
            Self::Labels(labels) => Ok(Head::Sequence(SequenceHead::of_last_token(
                width,
                labels.len(),
                (pad, std),
                &vb.pp(SCORE),
            )?)),
            Self::PooledLabels(labels, pooling) => {
                let inner = Linear::with_bias(width, width, std, &vb.pp("dense"))?;
                Ok(Head::Sequence(SequenceHead {
                    transform: Some(Transform { inner, activation: Activation::Gelu, norm: None }),
                    output: Linear::with_bias(width, labels.len(), std, &vb.pp("classifier"))?,
                    dropout_before: 0.0,
                    dropout: 0.0,
                    labels: labels.len(),
                    reads: match pooling {
                        LabelPooling::First => LabelledState::First,
                        LabelPooling::Mean => LabelledState::Mean,
                        LabelPooling::Late => LabelledState::MeanOfInner,
                    },
                }))
            }
            Self::TokenLabels(labels) => Ok(Head::Token(TokenHead {
                output: Linear::with_bias(width, labels.len(), std, &vb.pp("classifier"))?,
                dropout: 0.0,
                transform: None,
            })),
            Self::LanguageModel | Self::None => Ok(Head::States),
        }
    }

    /// Whether the tensor is the head of words, of which a model with another head has no use.
    pub(crate) fn ignores(&self, name: &str) -> bool {
        !self.is_language_model() && ["lm_head.weight", "lm_head.bias", "embed_out.weight"].contains(&name)
    }

    /// Takes the head of words off a model whose config does not tie it and whose weights lack it, as `has` says. Returns
    /// whether it did.
    pub(crate) fn drop_missing(&mut self, is_tied: bool, has: &dyn Fn(&str) -> bool) -> bool {
        let is_missing = self.is_language_model() && !is_tied && !has("lm_head.");
        if is_missing {
            *self = Self::None;
        }
        is_missing
    }
}

/// The names of labels, of which there are not too many.
fn checked_labels(path: &Path, fields: &HeadFields) -> Result<Vec<String>> {
    let count = fields.count();
    if (1..=MOST_LABELS).contains(&count) {
        return Ok(fields.labels());
    }
    Err(wrong("num_labels", &format!("1 to {MOST_LABELS}"), &count.to_string()).within(path))
}

/// A decoder-only model over candle whose hidden states are read. A token sees those before it.
#[derive(Debug)]
pub(crate) struct DecoderEncoder<B> {
    body: B,
    width: usize,
}

impl<B: TrainableCausal> DecoderEncoder<B> {
    pub(crate) fn new(body: B, width: usize) -> Self {
        Self { body, width }
    }

    /// The last hidden states (b, s, d) of the inputs.
    pub(crate) fn states_in(&self, input: &Batch, mode: &mut Mode) -> Result<Tensor> {
        self.body.states_in(input, mode)
    }
}

impl<B: TrainableCausal + Send + Sync> Encoder for DecoderEncoder<B> {
    fn states(&self, input: &Batch) -> Result<Tensor> {
        Ok(self.body.states_in(input, &mut Mode::Inference)?.detach())
    }

    fn layers(&self, input: &Batch) -> Result<Vec<Tensor>> {
        self.body.layer_states(input)
    }

    fn width(&self) -> usize {
        self.width
    }

    fn max_input_length(&self) -> usize {
        self.body.max_length()
    }

    fn takes_types(&self) -> bool {
        false
    }

    fn pad_token(&self) -> u32 {
        self.body.special_tokens().pad
    }

    fn device(&self) -> &Device {
        self.body.device()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Map;

    use super::{DecoderHead, EURO_BERT_LABELS, LabelPooling};

    #[test]
    fn the_class_of_labels_names_them_and_other_classes_have_words() {
        let of =
            |text: &str| DecoderHead::of(Path::new("config.json"), text, "Qwen3ForSequenceClassification");
        assert_eq!(of(r#"{"architectures": ["Qwen3ForCausalLM"]}"#).unwrap(), DecoderHead::LanguageModel);
        assert_eq!(of("{}").unwrap(), DecoderHead::LanguageModel);
        let labels = of(
            r#"{"architectures": ["Qwen3ForSequenceClassification"], "id2label": {"0": "no", "1": "yes"}}"#,
        );
        assert_eq!(labels.unwrap().labels(), ["no", "yes"]);
        for count in ["0", "4000000000"] {
            let text =
                format!(r#"{{"architectures": ["Qwen3ForSequenceClassification"], "num_labels": {count}}}"#);
            let error = of(&text).unwrap_err().to_string();
            assert!(error.contains("field `num_labels`: expected 1 to 1048576"), "{error}");
        }
    }

    #[test]
    fn the_pooling_of_euro_bert_s_labels_is_read_and_written() {
        let of = |text: &str| DecoderHead::of_euro_bert(Path::new("config.json"), text);
        assert_eq!(of(r#"{"architectures": ["EuroBertForMaskedLM"]}"#).unwrap(), DecoderHead::None);
        for (field, expected) in [
            ("", LabelPooling::Late),
            (r#", "classifier_pooling": "bos""#, LabelPooling::First),
            (r#", "classifier_pooling": "mean""#, LabelPooling::Mean),
        ] {
            let head = of(&format!(r#"{{"architectures": ["{}"]{field}}}"#, EURO_BERT_LABELS[0])).unwrap();
            assert!(matches!(head, DecoderHead::PooledLabels(_, found) if found == expected), "{field}");
            let mut fields = Map::new();
            head.write(&mut fields);
            assert_eq!(fields["classifier_pooling"], expected.name());
        }
        let wrong =
            format!(r#"{{"architectures": ["{}"], "classifier_pooling": "max"}}"#, EURO_BERT_LABELS[0]);
        let error = of(&wrong).unwrap_err().to_string();
        let expected =
            "config.json: field `classifier_pooling`: expected `bos`, `mean` or `late`, found `max`";
        assert_eq!(error, expected);
    }

    #[test]
    fn an_untied_head_that_the_weights_lack_is_taken_off() {
        let drop = |mut head: DecoderHead, is_tied, stored: &str| {
            let has = |start: &str| stored.starts_with(start);
            (head.drop_missing(is_tied, &has), head)
        };
        let words = DecoderHead::LanguageModel;
        assert_eq!(drop(words.clone(), false, "model.norm.weight"), (true, DecoderHead::None));
        assert_eq!(drop(words.clone(), true, "model.norm.weight"), (false, words.clone()));
        assert_eq!(drop(words.clone(), false, "lm_head.weight"), (false, words));
        let labels = DecoderHead::Labels(vec!["a".into()]);
        assert!(labels.ignores("lm_head.weight") && !labels.ignores("score.weight"));
        assert_eq!(drop(labels.clone(), false, "model.norm.weight"), (false, labels));
    }
}
