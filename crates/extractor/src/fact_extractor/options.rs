//! The options of the model that predicts properties. The documentation of this type is the manual of the config file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_transformers::{DeviceName, Precision};

use super::Relations;
use crate::{
    Result,
    model_check::check_relations,
    relations::{self, BilstmTraining, LinearTraining, MarkedTraining, PairClassifier},
    triplets::{TRIPLETS, TripletReader, TripletTraining},
};

/// `[relations]`: a linear model over words, a BiLSTM, an encoder over sentences with marked mentions, or an
/// encoder-decoder that generates facts. `linear` and `training` together give the mean of both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RelationsOptions {
    /// The folder of the model. Training writes it, and `sporran run` reads it.
    pub model: PathBuf,
    /// The precision of the computation: `f32`, or `int8` on a CPU.
    #[serde(default)]
    pub precision: Precision,
    /// The device: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// `[relations.linear]`: the training of a linear model.
    pub linear: Option<LinearTraining>,
    /// `[relations.training]`: the training of an encoder over marked mentions.
    pub training: Option<MarkedTraining>,
    /// `[relations.bilstm]`: the training of a BiLSTM over a sentence and a pair of its mentions (Mesquita et al., 2019).
    pub bilstm: Option<BilstmTraining>,
    /// `[relations.seq2seq]`: the training of an encoder-decoder that generates facts (Huguet Cabot and Navigli, 2021).
    pub seq2seq: Option<TripletTraining>,
}

impl RelationsOptions {
    /// Reports wrong values, tables that exclude each other and, before a training, missing models. `key` is the path of the
    /// table.
    pub fn check(&self, key: &str, is_training: bool, document: &mut Document<'_>) {
        let key = |name: &str| format!("{key}.{name}");
        if let Err(error) = self.device.check(self.precision) {
            document.report_key(&key("device"), error.to_string());
        }
        if let Some(linear) = &self.linear {
            linear.check(&key("linear"), document);
        }
        if let Some(bilstm) = &self.bilstm {
            bilstm.check(&key("bilstm"), is_training, document);
            if self.linear.is_some() || self.training.is_some() {
                let message = "expected no `[relations.linear]` and no `[relations.training]` with it";
                document.report_key(&key("bilstm"), message);
            }
        }
        if let Some(seq2seq) = &self.seq2seq {
            seq2seq.check(&key("seq2seq"), is_training, document);
            if self.linear.is_some() || self.training.is_some() || self.bilstm.is_some() {
                document.report_key(&key("seq2seq"), "expected no other table of a model with it");
            }
        }
        if let Some(training) = &self.training {
            training.check(&key("training"), is_training, document);
        }
        check_relations(&key("model"), &self.model, document);
    }

    /// Whether a teacher's probabilities can be labels of the training.
    #[must_use]
    pub fn supports_teacher(&self) -> bool {
        self.bilstm.is_none() && self.seq2seq.is_none()
    }

    /// Whether the trained model is a linear one, whose thresholds come from a cross-validation.
    #[must_use]
    pub fn is_cross_validated(&self) -> bool {
        matches!(self.pair_classifier(), Some(PairClassifier::Linear(_)))
    }

    /// Whether the trained model uses the chains, links and known properties of mentions.
    #[must_use]
    pub fn uses_background(&self) -> bool {
        self.bilstm.is_some()
    }

    /// The classifier of mention pairs that training trains; `None` without its table.
    #[must_use]
    pub fn pair_classifier(&self) -> Option<PairClassifier<'_>> {
        match (&self.bilstm, &self.linear, &self.training) {
            (_, Some(linear), None) => Some(PairClassifier::Linear(linear)),
            (Some(bilstm), ..) => Some(PairClassifier::Bilstm(bilstm)),
            (None, Some(linear), Some(marked)) => Some(PairClassifier::Averaged(linear, marked)),
            (None, None, Some(marked)) => Some(PairClassifier::Marked(marked)),
            (None, None, None) => None,
        }
    }

    /// Loads the model.
    ///
    /// # Errors
    /// A missing or wrong file.
    pub fn open(&self) -> Result<Relations> {
        let Self { model, device, precision, seq2seq, .. } = self;
        Ok(if seq2seq.is_some() || model.join(TRIPLETS).is_file() {
            let named = seq2seq.as_ref().and_then(TripletTraining::of_config);
            Relations::Triplets(TripletReader::load(model, named, *device, *precision)?.into())
        } else {
            Relations::Pairs(relations::open(model, *device, *precision)?)
        })
    }
}
