//! The heads of decoder-only models, and such models as encoders.

use std::path::Path;

use candle_core::{Device, Tensor};
use candle_nn::VarBuilder;
use serde_json::{Map, Value};
use sporran_checkpoint::{Error, Result, json::parse};

use super::bert::{Head, HeadFields, SequenceHead};
use crate::{batch::Batch, causal::TrainableCausal, encoder::Encoder, mode::Mode};

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
}

/// The name of the layer of labels.
const SCORE: &str = "score";
/// The most labels of a head.
const MOST_LABELS: usize = 1 << 20;

impl DecoderHead {
    /// The head that the text of a `config.json` names, where `labels` is the class of the model with labels.
    ///
    /// # Errors
    /// [`Error::Json`] where a field has the wrong type, and [`Error::Config`] for a number of labels that no model has.
    pub(crate) fn of(path: &Path, text: &str, labels: &str) -> Result<Self> {
        let fields: HeadFields = parse(path, text)?;
        let class = fields.architectures.as_deref().unwrap_or_default().first();
        if class.is_none_or(|class| class != labels) {
            return Ok(Self::LanguageModel);
        }
        let count = fields.count();
        if !(1..=MOST_LABELS).contains(&count) {
            return Err(Error::Config {
                path: path.into(),
                field: "num_labels".into(),
                expected: format!("1 to {MOST_LABELS}"),
                found: count.to_string(),
            });
        }
        Ok(Self::Labels(fields.labels()))
    }

    /// The names of the labels.
    pub(crate) fn labels(&self) -> &[String] {
        match self {
            Self::Labels(labels) => labels,
            Self::LanguageModel | Self::None => &[],
        }
    }

    /// Whether logits of words are part of the model.
    pub(crate) fn is_language_model(&self) -> bool {
        *self == Self::LanguageModel
    }

    /// Adds the fields of labels to those of a `config.json`.
    pub(crate) fn write(&self, fields: &mut Map<String, Value>) {
        if let Self::Labels(labels) = self {
            HeadFields::write(labels, fields);
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

/// A decoder-only model over candle whose hidden states are read. A token sees those before it.
pub(crate) struct DecoderEncoder {
    body: Box<dyn TrainableCausal>,
    width: usize,
}

impl DecoderEncoder {
    pub(crate) fn new(body: Box<dyn TrainableCausal>, width: usize) -> Self {
        Self { body, width }
    }
}

impl Encoder for DecoderEncoder {
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

    use super::DecoderHead;

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
