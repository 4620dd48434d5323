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
    /// Labels of whole texts in encoders of this shape, through an inner layer in some (EuroBERT, UltraBERT).
    PooledLabels(Vec<String>, LabelPooling),
    /// Labels of tokens, in such encoders.
    TokenLabels(Vec<String>),
}

/// What a head of labels for whole texts reads (`classifier_pooling` of EuroBERT and UltraBERT).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelPooling {
    /// The first token's state.
    First,
    /// The mean of all states.
    Mean,
    /// All states: their mean is taken after the inner layer.
    Late,
}

/// The classes of encoders of this shape.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncoderClasses {
    /// The class without a head.
    pub(crate) body: &'static str,
    /// Those with labels, of whole texts and of tokens.
    pub(crate) labels: [&'static str; 2],
    /// The poolings by their names. The first is that of a config without one.
    poolings: &'static [(&'static str, LabelPooling)],
    /// Whether labels of whole texts are read off an inner layer.
    has_inner: bool,
}

/// The classes of EuroBERT.
pub(crate) const EURO_BERT: EncoderClasses = EncoderClasses {
    body: "EuroBertModel",
    labels: ["EuroBertForSequenceClassification", "EuroBertForTokenClassification"],
    poolings: &[("late", LabelPooling::Late), ("bos", LabelPooling::First), ("mean", LabelPooling::Mean)],
    has_inner: true,
};
/// The classes of UltraBERT.
pub(crate) const ULTRA_BERT: EncoderClasses = EncoderClasses {
    body: "UltrabertModel",
    labels: ["UltrabertForSequenceClassification", "UltrabertForTokenClassification"],
    poolings: &[("cls", LabelPooling::First), ("mean", LabelPooling::Mean)],
    has_inner: false,
};

impl EncoderClasses {
    fn usual_pooling(&self) -> LabelPooling {
        self.poolings.first().map_or(LabelPooling::First, |(_, pooling)| *pooling)
    }
}

/// The name of the layer of labels.
const SCORE: &str = "score";
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

    /// The head that the text of a `config.json` of an encoder with these classes names. A head of words is none.
    ///
    /// # Errors
    /// As for [`of`](Self::of), and for a pooling that is not known.
    pub(crate) fn of_classes(classes: &EncoderClasses, path: &Path, text: &str) -> Result<Self> {
        let fields: HeadFields = parse(path, text)?;
        let class = fields.architectures.as_deref().unwrap_or_default().first();
        match classes.labels.iter().position(|known| class.is_some_and(|class| class == known)) {
            None => Ok(Self::None),
            Some(0) => {
                let PoolingField { classifier_pooling: name } = parse(path, text)?;
                let pooling = match &name {
                    None => classes.usual_pooling(),
                    Some(name) => match classes.poolings.iter().find(|(known, _)| known == name) {
                        Some((_, pooling)) => *pooling,
                        None => {
                            let known = classes.poolings.iter().map(|(known, _)| format!("`{known}`"));
                            let expected = format!("one of {}", known.collect::<Vec<_>>().join(", "));
                            return Err(
                                wrong("classifier_pooling", &expected, &format!("`{name}`")).within(path)
                            );
                        }
                    },
                };
                Ok(Self::PooledLabels(checked_labels(path, &fields)?, pooling))
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

    /// The head of an encoder with these classes for a task; none where there is no class with one.
    pub(crate) fn with_task(
        &self,
        classes: &EncoderClasses,
        task: BertTask,
        labels: Vec<String>,
    ) -> Option<Self> {
        match task {
            BertTask::States => Some(Self::None),
            BertTask::SequenceClassification => {
                let pooling = match self {
                    Self::PooledLabels(_, pooling) => *pooling,
                    _ => classes.usual_pooling(),
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

    /// Adds the fields of labels to those of a `config.json`, of an encoder with these classes.
    pub(crate) fn write(&self, classes: Option<&EncoderClasses>, fields: &mut Map<String, Value>) {
        if !self.labels().is_empty() {
            HeadFields::write(self.labels(), fields);
        }
        if let (Self::PooledLabels(_, pooling), Some(classes)) = (self, classes)
            && let Some((name, _)) = classes.poolings.iter().find(|(_, known)| known == pooling)
        {
            fields.insert("classifier_pooling".into(), json!(name));
        }
    }

    /// The layer over states of this width that an encoder with these classes has; `pad` is the padding token of the config, and
    /// `dropout` the rate before labels of encoders.
    pub(crate) fn of_encoder(
        &self,
        classes: Option<&EncoderClasses>,
        width: usize,
        pad: Option<u32>,
        (std, dropout): (f64, f64),
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
                let transform = || -> Result<_> {
                    let inner = Linear::with_bias(width, width, std, &vb.pp("dense"))?;
                    Ok(Transform { inner, activation: Activation::Gelu, norm: None })
                };
                let has_inner = classes.is_some_and(|classes| classes.has_inner);
                Ok(Head::Sequence(SequenceHead {
                    transform: has_inner.then(transform).transpose()?,
                    output: Linear::with_bias(width, labels.len(), std, &vb.pp("classifier"))?,
                    dropout_before: 0.0,
                    dropout,
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
                dropout,
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
pub(crate) fn checked_labels(path: &Path, fields: &HeadFields) -> Result<Vec<String>> {
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

    use super::{DecoderHead, EURO_BERT, LabelPooling, ULTRA_BERT};

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
        let of = |text: &str| DecoderHead::of_classes(&EURO_BERT, Path::new("config.json"), text);
        assert_eq!(of(r#"{"architectures": ["EuroBertForMaskedLM"]}"#).unwrap(), DecoderHead::None);
        for (field, expected) in [
            ("", LabelPooling::Late),
            (r#", "classifier_pooling": "bos""#, LabelPooling::First),
            (r#", "classifier_pooling": "mean""#, LabelPooling::Mean),
        ] {
            let head = of(&format!(r#"{{"architectures": ["{}"]{field}}}"#, EURO_BERT.labels[0])).unwrap();
            assert!(matches!(head, DecoderHead::PooledLabels(_, found) if found == expected), "{field}");
            let mut fields = Map::new();
            head.write(Some(&EURO_BERT), &mut fields);
            let written = serde_json::Value::Object(fields)["classifier_pooling"].clone();
            let again = format!(
                r#"{{"architectures": ["{}"], "classifier_pooling": {written}}}"#,
                EURO_BERT.labels[0]
            );
            assert!(matches!(of(&again).unwrap(), DecoderHead::PooledLabels(_, found) if found == expected));
        }
        let wrong =
            format!(r#"{{"architectures": ["{}"], "classifier_pooling": "max"}}"#, EURO_BERT.labels[0]);
        let error = of(&wrong).unwrap_err().to_string();
        let expected =
            "config.json: field `classifier_pooling`: expected one of `late`, `bos`, `mean`, found `max`";
        assert_eq!(error, expected);
        let text = format!(r#"{{"architectures": ["{}"]}}"#, ULTRA_BERT.labels[0]);
        let head = DecoderHead::of_classes(&ULTRA_BERT, Path::new("config.json"), &text).unwrap();
        assert!(matches!(head, DecoderHead::PooledLabels(_, LabelPooling::First)));
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
