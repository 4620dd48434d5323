//! Learning labels of texts, or of pairs of texts: cross-entropy over the logits of a head for sequence classification.

use sporran_checkpoint::{Error, Result};
use sporran_transformers::{EncoderRow, Head, Mode, SequenceHead, length_batches};

use crate::{
    data::shuffled_batches,
    gradients::Gradients,
    loss::cross_entropy,
    objective::Objective,
    options::TrainingOptions,
    tuned::{Pick, TunedEncoder},
};

/// A text, or a pair of texts, with its label.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelledRow {
    /// Its tokens.
    pub row: EncoderRow,
    /// The label's number.
    pub label: u32,
}

/// The cross-entropy of labels.
pub struct ClassificationObjective<'a> {
    encoder: &'a TunedEncoder,
    head: &'a SequenceHead,
    epoch: &'a (dyn Fn(u64) -> Vec<LabelledRow> + Sync),
    options: TrainingOptions,
}

fn classifier(encoder: &TunedEncoder) -> Result<&SequenceHead> {
    match encoder.head() {
        Head::Sequence(head) => Ok(head),
        other => Err(Error::Training {
            what: "the classifier".into(),
            expected: "a head for sequence classification".into(),
            found: other.name().into(),
        }),
    }
}

impl<'a> ClassificationObjective<'a> {
    /// Trains on the labelled rows that `epoch` returns for each epoch. The rows must depend only on the epoch's number.
    ///
    /// # Errors
    /// [`Error::Training`] where the encoder has another head.
    pub fn new(
        encoder: &'a TunedEncoder,
        epoch: &'a (dyn Fn(u64) -> Vec<LabelledRow> + Sync),
        options: &TrainingOptions,
    ) -> Result<Self> {
        Ok(Self { encoder, head: classifier(encoder)?, epoch, options: options.clone() })
    }
}

impl Objective for ClassificationObjective<'_> {
    type Batch = Vec<LabelledRow>;

    fn check(&self, _: &TrainingOptions) -> Result<()> {
        Ok(())
    }

    fn epoch(&self, number: u64) -> Result<Vec<Vec<LabelledRow>>> {
        let rows = (self.epoch)(number);
        let labels = self.head.labels();
        if let Some(wrong) = rows.iter().find(|row| row.label as usize >= labels) {
            return Err(Error::Training {
                what: "a label".into(),
                expected: format!("a number below {labels}"),
                found: wrong.label.to_string(),
            });
        }
        let lengths: Vec<usize> = rows.iter().map(|row| row.row.ids.len()).collect();
        let batches = shuffled_batches(&lengths, self.options.tokens_per_batch, self.options.seed, number);
        Ok(batches.into_iter().map(|batch| batch.into_iter().map(|at| rows[at].clone()).collect()).collect())
    }

    fn weight(&self, batch: &Vec<LabelledRow>) -> f64 {
        batch.len() as f64
    }

    fn tokens(&self, batch: &Vec<LabelledRow>) -> usize {
        batch.iter().map(|row| row.row.ids.len()).sum()
    }

    fn learn(
        &self,
        batch: &Vec<LabelledRow>,
        weight: f64,
        seed: u64,
        gradients: &mut Gradients,
    ) -> Result<f64> {
        let rows: Vec<&EncoderRow> = batch.iter().map(|row| &row.row).collect();
        let labels: Vec<u32> = batch.iter().map(|row| row.label).collect();
        self.encoder.learn(&rows, Pick::First, seed, gradients, |states, mode| {
            let logits = self.head.forward(&states.unsqueeze(1)?, mode)?;
            Ok((cross_entropy(&logits, &labels, self.options.label_smoothing)? / weight)?)
        })
    }
}

impl TunedEncoder {
    /// The logits of each row, one for each label, with the current weights; batches have about `tokens` tokens.
    ///
    /// # Errors
    /// As for [`states`](Self::states), and [`Error::Training`] where the head does not classify.
    pub fn logits(&self, rows: &[EncoderRow], tokens: usize) -> Result<Vec<Vec<f32>>> {
        let head = classifier(self)?;
        let lengths: Vec<usize> = rows.iter().map(|row| row.ids.len()).collect();
        let mut found = vec![Vec::new(); rows.len()];
        for batch in length_batches(&lengths, usize::MAX, tokens) {
            let members: Vec<&EncoderRow> = batch.iter().map(|&at| &rows[at]).collect();
            let states = self.states(&members, Pick::First)?;
            let values = head.forward(&states.unsqueeze(1)?, &mut Mode::Inference)?.to_vec2::<f32>()?;
            for (at, logits) in batch.into_iter().zip(values) {
                found[at] = logits;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuned::tests::{rows, tiny, tiny_for};

    fn labelled(epoch: u64) -> Vec<LabelledRow> {
        let label = |at: usize| (at as u32 * 7 + 1) % 3;
        let rows = rows(12, 4).into_iter().enumerate();
        let mut rows: Vec<LabelledRow> =
            rows.map(|(at, row)| LabelledRow { row, label: label(at) }).collect();
        let by = epoch as usize % rows.len();
        rows.rotate_left(by);
        rows
    }

    #[test]
    fn labels_are_learned_by_heart() {
        let encoder = tiny(3, 0.0);
        let options = TrainingOptions {
            steps: 150,
            tokens_per_batch: 60,
            warmup_steps: Some(5),
            learning_rate: 3e-3,
            ..TrainingOptions::default()
        };
        let objective = ClassificationObjective::new(&encoder, &labelled, &options).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let training = crate::Training {
            objective: &objective,
            variables: encoder.variables(),
            options: &options,
            evaluate: None,
            folder: folder.path(),
            extra_files: &[],
        };
        crate::train(&training, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
        let expected = labelled(0);
        let rows: Vec<EncoderRow> = expected.iter().map(|row| row.row.clone()).collect();
        for (logits, row) in encoder.logits(&rows, 40).unwrap().iter().zip(&expected) {
            let best = (0..3).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
            assert_eq!(best as u32, row.label);
        }
    }

    #[test]
    fn the_loss_is_the_cross_entropy_of_the_logits() {
        let encoder = tiny(3, 0.0);
        let options = TrainingOptions { tokens_per_batch: 10_000, ..TrainingOptions::default() };
        let objective = ClassificationObjective::new(&encoder, &labelled, &options).unwrap();
        let batch = objective.epoch(0).unwrap().remove(0);
        let rows: Vec<EncoderRow> = batch.iter().map(|row| row.row.clone()).collect();
        let logits = encoder.logits(&rows, 10_000).unwrap();
        let of = |(logits, row): (&Vec<f32>, &LabelledRow)| {
            let sum: f64 = logits.iter().map(|value| f64::from(*value).exp()).sum();
            sum.ln() - f64::from(logits[row.label as usize])
        };
        let expected = logits.iter().zip(&batch).map(of).sum::<f64>() / batch.len() as f64;
        let mut gradients: Gradients =
            encoder.variables().all().iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect();
        let loss = objective.learn(&batch, batch.len() as f64, 0, &mut gradients).unwrap();
        assert!((loss - expected).abs() < 1e-5, "{loss} {expected}");
        assert!(gradients.iter().flatten().any(|gradient| *gradient != 0.0));
    }

    #[test]
    fn a_label_that_there_is_not_and_another_head_are_refused() {
        let encoder = tiny(2, 0.0);
        let options = TrainingOptions::default();
        let objective = ClassificationObjective::new(&encoder, &labelled, &options).unwrap();
        let found = objective.epoch(0).err().unwrap().to_string();
        assert!(found.contains("a number below 2") && found.contains('2'), "{found}");
        let other = tiny_for(sporran_transformers::BertTask::MaskedLm, 1, 0.0);
        let found = ClassificationObjective::new(&other, &labelled, &options).err().unwrap().to_string();
        assert!(found.contains("a head for sequence classification"), "{found}");
    }
}
