//! EmbedKGQA and TransferNet as kinds of reasoner.

use std::path::Path;

use sporran_config::Document;
use sporran_kilt::{kb::KnowledgeBase, korc::Version, observe::Observer};
use sporran_training::{TrainingOptions, session::Trained};

use super::{
    Reasoner,
    kind::{QuestionTraining, ReasonerKind},
    model::{QuestionKind, QuestionModel, Vectors},
    options::{EmbedOptions, TransferOptions},
    session::{self, Start, vectors},
};
use crate::{Error, Result};

impl ReasonerKind for EmbedOptions {
    fn model(&self) -> &Path {
        &self.model
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        check_optimizer(&self.optimizer, key, document);
        if self.rank.is_some() && self.embedding.is_some() {
            let message = "expected it only without `embedding`, which has a rank";
            document.report_key(&format!("{key}.rank"), message);
        }
        if self.train_entities && self.embedding.is_none() {
            document.report_key(&format!("{key}.train-entities"), "expected it only with `embedding`");
        }
    }

    fn train(&self, training: &QuestionTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained> {
        let (kind, vectors) = vectors(self, training.kb)?;
        let start = Start { kind, vectors, shape: &self.encoder, folder: &self.model };
        session::train(start, &self.optimizer, training, observe)
    }

    fn open<'a>(&self, kb: &'a KnowledgeBase, _: Version) -> Result<Box<dyn Reasoner + 'a>> {
        open(&self.model, "embed-kgqa", kb)
    }
}

impl ReasonerKind for TransferOptions {
    fn model(&self) -> &Path {
        &self.model
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        check_optimizer(&self.optimizer, key, document);
    }

    fn train(&self, training: &QuestionTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained> {
        let kind = QuestionKind::TransferNet { steps: self.steps };
        let start = Start { kind, vectors: Vectors::Drawn, shape: &self.encoder, folder: &self.model };
        session::train(start, &self.optimizer, training, observe)
    }

    fn open<'a>(&self, kb: &'a KnowledgeBase, _: Version) -> Result<Box<dyn Reasoner + 'a>> {
        open(&self.model, "transfer-net", kb)
    }
}

fn check_optimizer(optimizer: &TrainingOptions, key: &str, document: &mut Document<'_>) {
    if let Err(error) = optimizer.check() {
        document.report_key(&format!("{key}.optimizer"), error.to_string());
    }
}

/// Loads a model of the given kind.
fn open(folder: &Path, kind: &'static str, kb: &KnowledgeBase) -> Result<Box<dyn Reasoner>> {
    let model = QuestionModel::load(folder, kb)?;
    let found = model.kind().name();
    if found != kind {
        return Err(Error::Kind { path: folder.to_owned(), expected: kind, found });
    }
    Ok(Box::new(model))
}
