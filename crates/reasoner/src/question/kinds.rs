//! EmbedKGQA and TransferNet as kinds of reasoner.

use std::path::Path;

use sporran_config::Document;
use sporran_training::TrainingOptions;

use super::{
    kind::ReasonerKind,
    options::{EmbedOptions, TransferOptions},
};

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
}

impl ReasonerKind for TransferOptions {
    fn model(&self) -> &Path {
        &self.model
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        check_optimizer(&self.optimizer, key, document);
    }
}

fn check_optimizer(optimizer: &TrainingOptions, key: &str, document: &mut Document<'_>) {
    if let Err(error) = optimizer.check() {
        document.report_key(&format!("{key}.optimizer"), error.to_string());
    }
}
