//! Which properties hold between the mentions of a sentence.
//!
//! [`Properties`] are those that a training file is annotated for. [`sentences`] cuts a document's mentions into sentences with
//! their candidate pairs. A [`RelationModel`] tells how likely each property is of each pair: [`LinearRelations`] by hashed
//! features of the words, [`BilstmRelations`] by the BiLSTM of KnowledgeNet's baselines, [`MarkedEntities`] by an encoder that reads the sentence with its mentions marked, [`Averaged`] by
//! several of them. [`Thresholds`] turn that into facts.

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
mod properties;
mod reach;
mod thresholds;

use std::path::Path;

use sporran_transformers::{DeviceName, Precision};

pub use averaged::{AVERAGED, Averaged, AveragedOptions, AveragedPart};
pub use background::{Background, EntityFacts, Known};
pub use bilstm::{
    BILSTM, BilstmFile, BilstmReader, BilstmRelations, BilstmShape, EncoderWords, LAYERS, LayerEncoder,
    Pairing, Pooling, ReadSentence, RelationExample, RelationNetwork, RelationObjective,
};
pub use candidates::{Candidates, FEATURES, pair_features, sentences};
pub use decoding::{Scores, Stated, decode};
pub use examples::{Annotated, GoldFact, annotated, pair_examples};
pub use linear::{LINEAR, LinearData, LinearRelations, LinearTraining};
pub use marked::{MARKED, MarkedEntities, MarkedOptions};
pub use marking::{Marked, Marking};
pub use properties::{Properties, Property};
pub use reach::Reach;
pub use thresholds::{Judged, Outcomes, Thresholds};

use crate::{Document, Mention, Result};

/// A sentence to read: its document, the document's mentions, and the pairs that are asked for.
pub type Asked<'a> = (&'a Document, &'a [Mention], &'a Candidates);

/// Tells which properties hold between mentions.
///
/// Result `i` is that of `asked[i]`, whatever stands beside it but for the rounding of sums.
pub trait RelationModel: Send + Sync {
    /// What may hold.
    fn properties(&self) -> &Properties;

    /// The probability from which each property counts as stated.
    fn thresholds(&self) -> &Thresholds;

    /// The probability from which the links of a fact are told, where the model judges them; else they are told wherever the
    /// linker has them.
    fn link_thresholds(&self) -> Option<&Thresholds> {
        None
    }

    /// How likely each property is of each pair.
    ///
    /// # Errors
    /// Where a tokenizer or a model fails.
    fn score(&self, asked: &[Asked<'_>]) -> Result<Vec<Scores>>;
}

/// Loads the model that a folder holds. Device and precision are those of an encoder.
///
/// # Errors
/// Where a file is missing or wrong.
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
