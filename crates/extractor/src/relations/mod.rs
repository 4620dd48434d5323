//! Relation extraction: the properties that hold between the mentions of a sentence.
//!
//! [`Properties`] are those that a training file is annotated for. [`sentences`] splits a document's mentions
//! into sentences with candidate pairs. A [`RelationModel`] predicts the probability of each property for
//! each pair. [`LinearRelations`] uses hashed features of the words, [`BilstmRelations`] is the BiLSTM of
//! KnowledgeNet's baselines. [`MarkedEntities`] is an encoder over the sentence with marked mentions, and
//! [`Averaged`] averages several models. [`Thresholds`] turn probabilities into facts.

mod averaged;
mod background;
mod bilstm;
mod candidates;
mod decoding;
mod examples;
mod features;
mod linear;
mod marked;
mod marking;
mod pair_classifier;
mod properties;
mod reach;
mod recall;
mod teacher;
mod thresholds;
mod training;
mod validation;

use std::path::Path;

use sporran_transformers::{DeviceName, Precision};

pub use averaged::{AVERAGED, Averaged, AveragedOptions, AveragedPart, train_averaged};
pub use background::{Background, EntityFacts, Known};
pub use bilstm::{
    BILSTM, BilstmFile, BilstmReader, BilstmRelations, BilstmShape, BilstmTraining, Directions, EncoderWords,
    KnownValues, LAYERS, LayerEncoder, PairBatches, Pairing, Pieces, Pooling, Positives, ReadSentence,
    RelationExample, RelationNetwork, RelationObjective, Selection, Vectors,
};
pub use candidates::{Candidates, FEATURES, pair_features, sentences};
pub use decoding::{PredictedProperty, Scores, decode};
pub use examples::{Annotated, GoldFact, annotated};
pub use linear::{LINEAR, LinearData, LinearRelations, LinearTraining};
pub use marked::{FreshEncoder, MARKED, MarkedEntities, MarkedOptions, MarkedTraining, pair_examples};
pub use marking::{Marked, Marking};
pub use pair_classifier::{PairClassifier, PairData};
pub use properties::{Properties, Property};
pub use reach::{HeldOut, Reach};
pub use recall::MaximumRecall;
pub use teacher::Teacher;
pub use thresholds::{Outcomes, ThresholdCounts, ThresholdFit, Thresholds};
pub use training::{RelationTraining, TrainedRelationModel};

use crate::{Document, Mention, Result};

/// A sentence to classify: its document, the document's mentions, and the candidate pairs.
pub type RelationInput<'a> = (&'a Document, &'a [Mention], &'a Candidates);

/// Predicts the properties between mentions.
///
/// Result `i` is that of `inputs[i]`, independently of the others up to rounding.
pub trait RelationModel: Send + Sync {
    /// The possible properties.
    fn properties(&self) -> &Properties;

    /// A property is predicted from this probability on.
    fn thresholds(&self) -> &Thresholds;

    /// The probability from which the links of a fact are included, if the model predicts it. Otherwise all
    /// links of the linker are included.
    fn link_thresholds(&self) -> Option<&Thresholds> {
        None
    }

    /// The scores of a sentence as they are compared with the thresholds: with joint scores of both directions of a pair, unless the
    /// model decides each direction separately.
    fn decided(&self, scores: Scores, candidates: &Candidates) -> Scores {
        scores.joint(&candidates.pairs, self.properties())
    }

    /// The probability of each property for each pair.
    ///
    /// # Errors
    /// Errors of a tokenizer or a model.
    fn score(&self, inputs: &[RelationInput<'_>]) -> Result<Vec<Scores>>;
}

/// Loads the model in a folder. Device and precision are those of an encoder.
///
/// # Errors
/// A missing or wrong file.
pub fn open(folder: &Path, device: DeviceName, precision: Precision) -> Result<Box<dyn RelationModel>> {
    if folder.join(LINEAR).is_file() {
        return Ok(Box::new(LinearRelations::load(folder)?));
    }
    if folder.join(BILSTM).is_file() {
        return Ok(Box::new(BilstmRelations::load(folder, device, precision)?));
    }
    if folder.join(AVERAGED).is_file() {
        return Ok(Box::new(Averaged::load(folder, device, precision)?));
    }
    Ok(Box::new(MarkedEntities::load(folder, device, precision)?))
}
