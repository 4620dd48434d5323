//! The verifier as a kind of generator.

use sporran_config::Document;
use sporran_transformers::{ModelType, TakesModel};

use super::{Verifier, VerifierOptions};
use crate::{
    Generator, Result,
    kind::{GeneratorContext, GeneratorKind, GeneratorModel},
};

impl TakesModel for VerifierOptions {
    const TAKES: &'static [ModelType] = &[ModelType::SequenceClassifier];
}

impl GeneratorKind for VerifierOptions {
    fn models(&self, key: &str) -> Vec<GeneratorModel<'_>> {
        let computing = (self.device, self.precision);
        let mut models = GeneratorModel::only::<Self>(key, &self.model, computing, self.most_passages());
        for (table, folder) in [
            ("pages", self.pages.as_ref().map(|pages| &pages.model)),
            ("selection", self.selection.as_ref().map(|selection| &selection.model)),
        ] {
            let other = folder.map(|folder| GeneratorModel {
                key: format!("{key}.{table}"),
                folder,
                ..models[0].clone()
            });
            models.extend(other);
        }
        models
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        if let Err(error) = VerifierOptions::check(self) {
            document.report_key(key, error.to_string());
        }
    }

    fn open(&self, context: &GeneratorContext) -> Result<Box<dyn Generator>> {
        Ok(Box::new(Verifier::load(self, context.store.clone())?))
    }
}
