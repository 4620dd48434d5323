//! A classifier of texts and of pairs of texts.

use std::path::Path;

use sporran_checkpoint::ScoreActivation;
use sporran_transformers::{PairClassifier, PairOptions, Text, Truncation};

use crate::{
    Failure, Result, ServedModels,
    work::{Setting, Worker, size},
};

/// The tokens of a batch of the model itself.
const BATCH_TOKENS: usize = 4096;

/// A classifier with its thread.
pub(crate) struct Classifier {
    name: String,
    labels: Vec<String>,
    worker: Worker<Classified, Vec<f32>>,
}

/// A text, or a pair of texts.
#[derive(Clone, Debug)]
pub(crate) struct Classified {
    /// The text.
    pub(crate) first: String,
    /// The second one of a pair.
    pub(crate) second: Option<String>,
}

fn text(item: &Classified) -> Text<'_> {
    match &item.second {
        None => Text::One(&item.first),
        Some(second) => Text::Pair(&item.first, second),
    }
}

impl Classifier {
    /// Loads a classifier, and starts its thread.
    ///
    /// # Errors
    /// Errors of the folder, such as a model without a head for classification, and a system without threads.
    pub(crate) fn open(folder: &Path, options: &ServedModels, setting: &Setting) -> Result<Self> {
        let options = PairOptions {
            max_tokens: None,
            truncation: Truncation::LongestFirst,
            first_room: None,
            precision: options.precision,
            device: options.device,
            batch_tokens: BATCH_TOKENS,
        };
        let model = PairClassifier::load(folder, &options)?;
        let labels = model.labels().to_vec();
        let work = move |items: &[Classified]| {
            let texts: Vec<Text<'_>> = items.iter().map(text).collect();
            model.text_logits(&texts).map_err(Failure::internal)
        };
        let worker = setting.worker("classify", work)?;
        Ok(Self { name: super::name(folder), labels, worker })
    }

    /// The name: that of the folder.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The names of the labels.
    pub(crate) fn labels(&self) -> &[String] {
        &self.labels
    }

    /// The score of each label for each item, in the order of the [labels](Self::labels): probabilities, or logits if `raw`.
    ///
    /// # Errors
    /// A full queue, and errors of the model.
    pub(crate) async fn classify(&self, items: Vec<Classified>, raw: bool) -> Result<Vec<Vec<f32>>, Failure> {
        let tokens = |item: &Classified| size(&item.first) + item.second.as_deref().map_or(0, size);
        let items: Vec<(Classified, usize)> = items
            .into_iter()
            .map(|item| {
                let tokens = tokens(&item);
                (item, tokens)
            })
            .collect();
        let logits = self.worker.all(items).await?;
        if raw {
            return Ok(logits);
        }
        // One label is a probability of its own.
        let activation =
            if self.labels.len() == 1 { ScoreActivation::Sigmoid } else { ScoreActivation::Softmax };
        Ok(logits.iter().map(|row| activation.scores(row)).collect())
    }
}
