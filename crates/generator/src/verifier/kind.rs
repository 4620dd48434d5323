//! The verifier as a kind of generator.

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
        let mut models =
            GeneratorModel::only::<Self>(key, &self.model, (self.device, self.precision), self.passages);
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

    fn open(&self, context: &GeneratorContext) -> Result<Box<dyn Generator>> {
        Ok(Box::new(Verifier::load(self, context.store.clone())?))
    }
}
