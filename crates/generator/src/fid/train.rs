//! Training of Fusion-in-Decoder: each passage is encoded with the input; the decoder attends to all of them.

use sporran_kilt::observe::Observer;
use sporran_training::{
    EvaluationError, FidObjective, FidRow,
    session::{TrainableModel, Trained},
};

use super::{FidGenerator, FidOptions};
use crate::{
    Result,
    training::{GeneratorTrainer, GeneratorTraining, Targets, mean_score},
};

impl GeneratorTrainer for FidOptions {
    fn passages(&self) -> usize {
        self.prompt.passages
    }

    fn adds_gold(&self) -> bool {
        true
    }

    fn train(&self, training: GeneratorTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained> {
        let TrainableModel { model, tokenizer, variables, extra_files } = training.init_model()?;
        let GeneratorTraining { settings, examples, validation, .. } = &training;
        let generator = FidGenerator::new(self, model.clone(), tokenizer.clone())?;
        let targets = Targets::new(&tokenizer, settings.target_tokens, &self.generation, model.as_ref())?;
        let rows: Vec<FidRow> = examples
            .iter()
            .map(|retrieved| {
                let answers = retrieved.example.answers();
                // Every record has an answer.
                let target = answers.first().copied().unwrap_or_default();
                Ok(FidRow {
                    texts: retrieved.ask(|request| generator.rows(request))?,
                    target: targets.row(target)?,
                })
            })
            .collect::<Result<_>>()?;
        let objective = FidObjective::new(model.as_ref(), &variables, &rows, settings.optimizer)?;
        let evaluate = || mean_score(&generator, validation).map_err(EvaluationError::from);
        let session = training.session(&variables, &extra_files);
        Ok(session.run(&objective, (!validation.is_empty()).then_some(&evaluate), observe)?)
    }
}
