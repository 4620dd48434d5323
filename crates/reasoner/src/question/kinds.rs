//! EmbedKGQA and TransferNet as kinds of reasoner.

use std::path::Path;

use sporran_config::Document;
use sporran_kilt::observe::Observer;
use sporran_training::{TrainingOptions, session::Trained};

use super::{
    kind::{QuestionTraining, ReasonerKind},
    model::{QuestionKind, Vectors},
    options::{EmbedOptions, TransferOptions},
    session::{self, Start, vectors},
};
use crate::Result;

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
}

fn check_optimizer(optimizer: &TrainingOptions, key: &str, document: &mut Document<'_>) {
    if let Err(error) = optimizer.check() {
        document.report_key(&format!("{key}.optimizer"), error.to_string());
    }
}
