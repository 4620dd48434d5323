//! EmbedKGQA and TransferNet as kinds of reasoner.

use std::path::Path;

use sporran_config::Document;
use sporran_kilt::{kb::KnowledgeBase, observe::Observer};
use sporran_training::{TrainingOptions, session::Trained};

use super::{
    Reasoner,
    kind::{Background, QuestionTraining, ReasonerKind},
    model::{QuestionKind, QuestionModel, Vectors},
    options::{EmbedOptions, EmbedStarOptions, ObjectiveOptions, Reading, Topic, TransferOptions},
    part::linked_part,
    session::{self, Start, VectorSource, vectors},
};
use crate::{Error, Result};

impl ReasonerKind for EmbedOptions {
    fn model(&self) -> &Path {
        &self.model
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        check_optimizer(&self.optimizer, key, document);
        check_vectors(self.rank, self.embedding.as_deref(), key, document);
        if self.train_entities && self.embedding.is_none() {
            document.report_key(&format!("{key}.train-entities"), "expected it only with `embedding`");
        }
        if self.objective.norm_penalty != 0.0 && self.embedding.is_some() && !self.train_entities {
            let message = "expected it only with trained vectors (`train-entities = true`)";
            document.report_key(&format!("{key}.objective.norm-penalty"), message);
        }
        check_batches(self.batch_normalisation, &self.optimizer, key, document);
    }

    fn train(&self, training: &QuestionTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained> {
        let Self { rank, topic, train_entities, batch_normalisation, objective, .. } = *self;
        let embedding = self.embedding.as_deref();
        let source =
            VectorSource { embedding, rank, are_trained: train_entities, topic, batch_normalisation };
        let (kind, vectors) = vectors(source, training.kb)?;
        let start = Start { kind, vectors, shape: &self.encoder, objective, folder: &self.model };
        session::train(start, &self.optimizer, training, observe)
    }

    fn open<'a>(&self, background: Background<'a>) -> Result<Box<dyn Reasoner + 'a>> {
        open(&self.model, "embed-kgqa", background.kb)
    }
}

impl ReasonerKind for EmbedStarOptions {
    fn model(&self) -> &Path {
        &self.model
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        check_optimizer(&self.optimizer, key, document);
        check_vectors(self.rank, self.embedding.as_deref(), key, document);
        check_batches(self.batch_normalisation, &self.optimizer, key, document);
    }

    fn reads_tests(&self) -> bool {
        self.with_tests
    }

    fn train(&self, training: &QuestionTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained> {
        let tests = if self.with_tests { training.tests } else { &[] };
        let questions = training.questions.iter().chain(training.valid).chain(tests);
        let kb = linked_part(training.kb, questions, self.topic == Topic::Given, self.reach)?;
        tracing::info!("{} of {} entities are in reach", kb.entity_count(), training.kb.entity_count());
        let Self { rank, topic, batch_normalisation, objective, .. } = *self;
        let embedding = self.embedding.as_deref();
        let source = VectorSource { embedding, rank, are_trained: true, topic, batch_normalisation };
        let (kind, vectors) = vectors(source, &kb)?;
        let start = Start { kind, vectors, shape: &self.encoder, objective, folder: &self.model };
        let training = QuestionTraining { kb: &kb, ..*training };
        session::train(start, &self.optimizer, &training, observe)
    }

    fn open<'a>(&self, background: Background<'a>) -> Result<Box<dyn Reasoner + 'a>> {
        open(&self.model, "embed-kgqa", background.kb)
    }
}

impl ReasonerKind for TransferOptions {
    fn model(&self) -> &Path {
        &self.model
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        check_optimizer(&self.optimizer, key, document);
        if self.topic == Topic::Text {
            document.report_key(&format!("{key}.topic"), "expected `given` or `names`, found `text`");
        }
        let ObjectiveOptions { smoothing, norm_penalty, .. } = self.objective;
        for (option, value) in [("smoothing", smoothing), ("norm-penalty", norm_penalty)] {
            if value != 0.0 {
                let message = "expected it only for an EmbedKGQA";
                document.report_key(&format!("{key}.objective.{option}"), message);
            }
        }
    }

    fn train(&self, training: &QuestionTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained> {
        let Self { steps, topic, edges, objective, .. } = *self;
        let kind = QuestionKind::TransferNet { steps, topic, edges, reading: Reading::of(edges) };
        let start =
            Start { kind, vectors: Vectors::Drawn, shape: &self.encoder, objective, folder: &self.model };
        session::train(start, &self.optimizer, training, observe)
    }

    fn open<'a>(&self, background: Background<'a>) -> Result<Box<dyn Reasoner + 'a>> {
        open(&self.model, "transfer-net", background.kb)
    }
}

/// Reports a rank next to an embedding, which has one.
fn check_vectors(rank: Option<usize>, embedding: Option<&Path>, key: &str, document: &mut Document<'_>) {
    if rank.is_some() && embedding.is_some() {
        let message = "expected it only without `embedding`, which has a rank";
        document.report_key(&format!("{key}.rank"), message);
    }
}

fn check_optimizer(optimizer: &TrainingOptions, key: &str, document: &mut Document<'_>) {
    if let Err(error) = optimizer.check() {
        document.report_key(&format!("{key}.optimizer"), error.to_string());
    }
}

/// Reports batches at the same time next to batch normalisation, whose running statistics follow their order.
fn check_batches(
    batch_normalisation: bool,
    optimizer: &TrainingOptions,
    key: &str,
    document: &mut Document<'_>,
) {
    if batch_normalisation && optimizer.parallel_batches > 1 {
        let message = "expected 1 with `batch-normalisation`";
        document.report_key(&format!("{key}.optimizer.parallel-batches"), message);
    }
}

/// Checks that the folder of a model is there. The check of a config does not require it, because the config may train the model.
///
/// # Errors
/// [`Error::Argument`] without the folder.
pub fn check_trained(folder: &Path) -> Result<()> {
    if folder.exists() {
        return Ok(());
    }
    Err(Error::Argument(format!("no folder {}; `sporran train` creates it", folder.display())))
}

/// Loads a model of the given kind.
fn open(folder: &Path, kind: &'static str, kb: &KnowledgeBase) -> Result<Box<dyn Reasoner>> {
    check_trained(folder)?;
    let model = QuestionModel::load(folder, kb)?;
    let found = model.kind().name();
    if found != kind {
        return Err(Error::Kind { path: folder.to_owned(), expected: kind, found });
    }
    Ok(Box::new(model))
}
