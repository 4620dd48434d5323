//! What the trainings of all kinds of generators share: records with passages, the initial model, the session.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use candle_core::DType;
use sporran_kilt::{
    Example, Metric, Output, Passage, PassageId, PassageStore, Query,
    scores::answer::{self, Answers},
};
use sporran_training::{
    LiveIndex, Variables,
    session::{InitialModel, TrainableModel, TrainingSession, model_card},
};
use sporran_transformers::TrainableCausal;

use super::TrainSettings;
use crate::{Candidate, Generation, Generator, Request, Result};

/// A training of a generator's model.
pub struct GeneratorTraining<'a> {
    /// The settings.
    pub settings: TrainSettings<'a>,
    /// The training records.
    pub examples: Vec<RetrievedExample>,
    /// The validation records.
    pub validation: Vec<RetrievedExample>,
    /// The passages, if there is a knowledge source.
    pub store: Option<Arc<PassageStore>>,
    /// The name of the run.
    pub name: &'a str,
    /// The seed.
    pub seed: u64,
    /// The run's folder.
    pub folder: PathBuf,
    /// The index of a training that retrieves with the question encoder that it trains.
    pub live: Option<LiveRetrieval<'a>>,
    /// The score of the validation, in place of the mean over datasets of their headline scores. Only a training with `live` reads it.
    pub score: Option<ValidationScore<'a>>,
}

/// A score of generated texts.
#[derive(Clone, Copy)]
pub struct ValidationScore<'a> {
    /// Its name.
    pub name: &'static str,
    /// The score of the text of the validation record of this number.
    pub of: &'a (dyn Fn(usize, &str) -> f64 + Sync),
}

impl ValidationScore<'_> {
    /// The mean over validation records; 0 without any.
    ///
    /// # Errors
    /// Errors of the generator.
    pub(crate) fn mean(&self, generator: &dyn Generator, validation: &[RetrievedExample]) -> Result<f64> {
        let generations = generate(generator, validation)?;
        let scores = generations.iter().enumerate().map(|(at, generation)| (self.of)(at, &generation.text));
        Ok(scores.sum::<f64>() / validation.len().max(1) as f64)
    }
}

/// The retrieval of a training with its current question encoder.
#[derive(Clone, Copy)]
pub struct LiveRetrieval<'a> {
    /// The index.
    pub index: &'a dyn LiveIndex,
    /// Converts the query of a record to that of the index.
    pub query: &'a (dyn Fn(&Query) -> Query + Sync),
}

/// An example with its retrieved passages.
pub struct RetrievedExample {
    /// The record.
    pub example: Example,
    /// The passages with their scores, best first.
    pub passages: Vec<(Passage, f32)>,
}

impl RetrievedExample {
    /// Calls `use_request` with the request of the record.
    pub fn ask<T>(&self, use_request: impl FnOnce(&Request<'_>) -> T) -> T {
        let candidates: Vec<Candidate<'_>> =
            self.passages.iter().map(|(passage, score)| Candidate { passage, score: *score }).collect();
        use_request(&Request { query: &self.example.query, passages: &candidates })
    }
}

/// Replaces the answers of examples by the titles of their gold pages. Drops examples without a gold page in the store.
pub(crate) fn with_titles(retrieved_examples: &mut Vec<RetrievedExample>, store: &PassageStore) {
    for retrieved in retrieved_examples.iter_mut() {
        let gold = retrieved.example.gold.iter().flat_map(|output| output.evidence());
        let titles = gold.filter_map(|item| {
            let page = store.page_by_id(&item.wikipedia_id.as_ref()?.text())?;
            Some(store.page_title(page).to_owned())
        });
        let output = |title| Output { answer: Some(title), ..Output::default() };
        retrieved.example.gold = titles.map(output).collect();
    }
    retrieved_examples.retain(|retrieved| !retrieved.example.gold.is_empty());
}

/// The mean over datasets of their headline scores.
///
/// # Errors
/// Errors of the generator.
pub fn mean_score(generator: &dyn Generator, validation: &[RetrievedExample]) -> Result<f64> {
    let mut groups: Vec<(Option<sporran_kilt::Dataset>, Vec<f64>)> = Vec::new();
    for (retrieved, generation) in validation.iter().zip(generate(generator, validation)?) {
        let dataset = retrieved.example.query.dataset;
        let scores: answer::Scores = Answers::new(retrieved.example.answers()).score(&generation.text);
        let score = match dataset.map_or(Metric::ExactMatch, |dataset| dataset.metric()) {
            Metric::Accuracy => scores.accuracy,
            Metric::ExactMatch => scores.em,
            Metric::F1 => scores.f1,
            Metric::RougeL => scores.rougel,
        };
        match groups.iter_mut().find(|(known, _)| *known == dataset) {
            Some((_, scores)) => scores.push(score),
            None => groups.push((dataset, vec![score])),
        }
    }
    let means = groups.iter().map(|(_, scores)| scores.iter().sum::<f64>() / scores.len() as f64);
    Ok(means.sum::<f64>() / groups.len().max(1) as f64)
}

/// What the generator answers to each record.
fn generate(generator: &dyn Generator, validation: &[RetrievedExample]) -> Result<Vec<Generation>> {
    let candidates: Vec<Vec<Candidate<'_>>> = validation
        .iter()
        .map(|retrieved| {
            retrieved.passages.iter().map(|(passage, score)| Candidate { passage, score: *score }).collect()
        })
        .collect();
    let requests: Vec<Request<'_>> = validation
        .iter()
        .zip(&candidates)
        .map(|(retrieved, candidates)| Request { query: &retrieved.example.query, passages: candidates })
        .collect();
    generator.generate(&requests)
}

impl GeneratorTraining<'_> {
    /// The session of the training. Its checkpoints are in the folder `training` of the run.
    #[must_use]
    pub fn session<'s>(
        &'s self,
        variables: &'s Variables,
        extra_files: &'s [(String, Vec<u8>)],
    ) -> TrainingSession<'s> {
        TrainingSession {
            variables,
            options: self.settings.optimizer,
            folder: self.folder.join("training"),
            model: self.settings.model,
            dtype: DType::F16,
            extra_files,
            score: self.score.map_or("mean score", |score| score.name),
        }
    }

    /// The content of `model.toml`: the model's role, size and origin.
    pub(crate) fn card(&self, role: &str, variables: &Variables) -> String {
        model_card(role, variables, self.name, self.seed)
    }

    /// The initial model: from a folder, or with random weights.
    ///
    /// # Errors
    /// Errors of the folder, the tokenizer or the device.
    pub fn init_model(&self) -> Result<TrainableModel> {
        let Self { settings, examples, seed, .. } = self;
        let start = match settings.from {
            Some(from) => InitialModel::of_folder(from, *seed)?,
            None => {
                let store = self.store.as_deref();
                let passages = store.into_iter().flat_map(|store| {
                    (0..store.len() as u32)
                        .map(PassageId)
                        .map(|id| format!("{} / {}", store.page_title(store.page_of(id)), store.text(id)))
                });
                let pairs = examples.iter().flat_map(|retrieved| {
                    let answers =
                        retrieved.example.answers().into_iter().map(str::to_owned).collect::<Vec<_>>();
                    std::iter::once(retrieved.example.query.text.clone()).chain(answers)
                });
                let texts: Vec<String> = passages.chain(pairs).collect();
                let marks = ["[START_ENT]", "[END_ENT]", "[SEP]"];
                tracing::info!(examples = examples.len(), "a new model");
                InitialModel::fresh(settings.shape, &texts, &marks, *seed)?
            }
        };
        Ok(start.build(&settings.device.open()?, |variables| self.card("generator", variables))?)
    }

    /// The decoder-only model of a folder, with the tokens that the settings add.
    ///
    /// # Errors
    /// As for [`init_model`](Self::init_model).
    pub fn init_causal(&self, from: &Path) -> Result<TrainableModel<dyn TrainableCausal>> {
        let start =
            InitialModel::of_folder(from, self.seed)?.with_added_tokens(self.settings.added_tokens)?;
        let device = self.settings.device.open()?;
        Ok(start.build_causal(&device, |variables| self.card("generator", variables))?)
    }
}
