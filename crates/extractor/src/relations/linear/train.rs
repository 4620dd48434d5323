//! Training of a linear model, with thresholds from cross-validation.

use sporran_kilt::observe::{Event, Observer, Unit, advance, begin};

use super::{LinearData, LinearRelations, LinearTraining};
use crate::{
    Result,
    relations::{
        Annotated, MaximumRecall, Reach, RelationTraining, Scores, Thresholds, TrainedRelationModel,
        validation::{decided_scores, with_scores},
    },
};

impl LinearTraining {
    /// Tunes thresholds by cross-validation over `parts` of the documents, then trains the final model on all
    /// documents and saves it. Cross-validation holds each document out once, so the validation documents are all
    /// documents. Documents of a teacher are in every training. `step` is the title of the progress.
    ///
    /// # Errors
    /// Errors of writing the model.
    pub fn train(
        &self,
        training: &RelationTraining<'_>,
        teacher_documents: Vec<Annotated>,
        parts: usize,
        step: String,
        observe: &mut Observer<'_>,
    ) -> Result<TrainedRelationModel> {
        let RelationTraining { properties, documents, validation, seed, .. } = *training;
        let reached = Reach::of(validation, properties, |_, _, _, _| true);
        let maximum_recall = MaximumRecall::reported(reached, validation.len(), observe);
        begin(observe, step, parts as u64 + 1, Unit::Steps);
        let data = LinearData::of(documents.iter().chain(&teacher_documents), properties.len(), self.buckets);
        drop(teacher_documents);
        let count = documents.len();
        let mut scores: Vec<Vec<Scores>> = vec![Vec::new(); count];
        for part in 0..parts {
            let model =
                LinearRelations::train(&data, properties, self, seed, |at| at >= count || at % parts != part);
            for at in (part..count).step_by(parts) {
                scores[at] = decided_scores(&model, &documents[at])?;
            }
            advance(observe, part as u64 + 1);
        }
        let scored = with_scores(documents, &scores);
        let thresholds = Thresholds::tuned(properties.len(), &scored);
        let f1 = thresholds.micro_f1(&scored);
        let model = LinearRelations::train(&data, properties, self, seed, |_| true);
        model.with_thresholds(thresholds).save(training.model)?;
        observe(Event::End);
        Ok(TrainedRelationModel { steps: self.epochs as u64, maximum_recall, validation_f1: f1.into() })
    }
}
