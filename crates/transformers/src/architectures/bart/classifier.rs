//! BART with a head of labels for whole texts, as models of inference such as `bart-large-mnli` have it: encoder and decoder read the
//! same tokens, and the labels are read off the decoder's last state (Lewis et al. 2020, section 3.1).

use std::path::Path;

use candle_core::{Device, Tensor};
use candle_nn::VarBuilder;
use serde_json::{Map, Value, json};
use sporran_checkpoint::{Architecture, Embedding as Table, Parameter, Result, json::parse, parameters};

use super::{
    config::{BartConfig, BartFamily},
    model::Bart,
};
use crate::{
    architectures::{
        bert::{EncoderModel, Head, HeadFields, LabelledState, SequenceHead, Transform},
        decoder::checked_labels,
    },
    batch::Batch,
    encoder::Encoder,
    layers::{Activation, Linear},
    mode::Mode,
    seq2seq::Seq2Seq,
};

/// The class of `transformers`.
pub(crate) const BART_CLASSIFIER: &str = "BartForSequenceClassification";

/// The labels of a config that says nothing of them.
const LABELS: usize = 3;

/// The name of the head.
const HEAD: &str = "classification_head";

/// The config of a BART with a head of labels.
#[derive(Debug, Clone, PartialEq)]
pub struct BartClassifierConfig {
    /// The model without its head.
    pub body: BartConfig,
    /// The names of the labels.
    pub labels: Vec<String>,
}

impl BartClassifierConfig {
    /// Reads the text of a `config.json`; `path` names it in errors.
    ///
    /// # Errors
    /// As for [`BartConfig::from_json`], and [`Error::Config`](sporran_checkpoint::Error::Config) for a number of labels that no
    /// model has.
    pub fn from_json(path: &Path, text: &str) -> Result<Self> {
        let mut all: Map<String, Value> = parse(path, text)?;
        if !all.contains_key("id2label") {
            all.entry("num_labels").or_insert(json!(LABELS));
        }
        let fields: HeadFields = parse(path, &Value::Object(all).to_string())?;
        let body = BartConfig::from_json(BartFamily::Bart, path, text)?;
        Ok(Self { body, labels: checked_labels(path, &fields)? })
    }
}

impl Architecture for BartClassifierConfig {
    fn model_type(&self) -> &'static str {
        self.body.model_type()
    }

    fn class(&self) -> &'static str {
        BART_CLASSIFIER
    }

    fn validate(&self) -> Result<()> {
        self.body.validate()
    }

    fn layers(&self) -> Vec<(&'static str, usize)> {
        self.body.layers()
    }

    fn fields(&self) -> Value {
        let mut value = self.body.fields();
        if let Value::Object(fields) = &mut value {
            HeadFields::write(&self.labels, fields);
        }
        value
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        parameters(|vb| classifier(self, vb))
    }

    fn canonical(&self, stored: &str) -> String {
        if stored.starts_with(HEAD) { stored.into() } else { self.body.canonical(stored) }
    }

    fn embedding(&self) -> Option<Table> {
        self.body.embedding().map(|table| Table { tied_head: None, ..table })
    }

    /// The head of words.
    fn is_ignorable(&self, name: &str) -> bool {
        matches!(name, "lm_head.weight" | "final_logits_bias")
    }
}

/// The model with its head, with the weights from `vb` by their names in `transformers`.
///
/// # Errors
/// As for [`Bart::new`].
pub(crate) fn classifier(config: &BartClassifierConfig, vb: &VarBuilder) -> Result<EncoderModel> {
    let body = Bart::bare(&config.body, vb)?;
    let (width, labels, std) = (config.body.d_model, config.labels.len(), config.body.init_std);
    let (head, dropout) = (vb.pp(HEAD), config.body.dropout);
    let inner = Linear::with_bias(width, width, std, &head.pp("dense"))?;
    let head = SequenceHead {
        transform: Some(Transform { inner, activation: Activation::Tanh, norm: None }),
        output: Linear::with_bias(width, labels, std, &head.pp("out_proj"))?,
        dropout_before: dropout,
        dropout,
        labels,
        reads: LabelledState::Last(None),
    };
    Ok(EncoderModel { body: Box::new(DecoderStates(body)), head: Head::Sequence(head) })
}

/// The states of a decoder that reads the tokens of the encoder, each one place later, after the start token.
#[derive(Debug)]
struct DecoderStates(Bart);

impl DecoderStates {
    /// The decoder's last states (b, s, d). `see` gets the states before each layer.
    fn read(&self, input: &Batch, see: &mut dyn FnMut(&Tensor)) -> Result<Tensor> {
        let (size, length) = (input.size(), input.length());
        let start = self.0.config().decoder_start_token_id;
        let start = Tensor::full(start, (size, 1), self.0.device())?;
        let ids = Tensor::cat(&[start, input.ids.narrow(1, 0, length - 1)?], 1)?;
        let memory = self.0.encode(input)?;
        // Padding is after all tokens, which do not see it.
        let mask = input.mask.ones_like()?;
        Ok(self.0.decoder_states(&ids, &mask, &memory, &mut Mode::Inference, see)?.detach())
    }
}

impl Encoder for DecoderStates {
    fn states(&self, input: &Batch) -> Result<Tensor> {
        self.read(input, &mut |_| {})
    }

    fn layers(&self, input: &Batch) -> Result<Vec<Tensor>> {
        let mut layers = Vec::new();
        let last = self.read(input, &mut |xs| layers.push(xs.detach()))?;
        layers.push(last);
        Ok(layers)
    }

    fn width(&self) -> usize {
        self.0.config().d_model
    }

    fn max_input_length(&self) -> usize {
        let config = self.0.config();
        config.most_input().min(config.positions(true))
    }

    fn takes_types(&self) -> bool {
        false
    }

    fn pad_token(&self) -> u32 {
        self.0.config().pad_token_id
    }

    fn device(&self) -> &Device {
        Seq2Seq::device(&self.0)
    }
}
