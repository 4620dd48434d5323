//! Training of Fusion-in-Decoder (Izacard and Grave 2021): texts are encoded separately, and the answer is decoded from all
//! of them.

use candle_core::{Tensor, Var};
use sporran_checkpoint::{Error, Result};
use sporran_transformers::{EncodedTexts, Mode, Trainable};

use crate::{
    data::{shifted, shuffled_batches},
    gradients::Gradients,
    loss::cross_entropy,
    objective::Objective,
    options::TrainingOptions,
    variables::Variables,
};

/// The texts that an answer is read from and the answer, as tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FidRow {
    /// A row for each text.
    pub texts: Vec<Vec<u32>>,
    /// Decoder tokens, without the start token.
    pub target: Vec<u32>,
}

impl FidRow {
    fn tokens(&self) -> usize {
        self.target.len() + self.texts.iter().map(Vec::len).sum::<usize>()
    }
}

/// The cross-entropy of target tokens, each target decoded from all texts of its row.
pub struct FidObjective<'a> {
    model: &'a dyn Trainable,
    /// In the order of the gradients.
    variables: Vec<Var>,
    rows: &'a [FidRow],
    options: &'a TrainingOptions,
}

impl<'a> FidObjective<'a> {
    /// Trains on `rows` with the `model` that was built from `variables`.
    ///
    /// # Errors
    /// [`Error::Training`] for a row without a text.
    pub fn new(
        model: &'a dyn Trainable,
        variables: &Variables,
        rows: &'a [FidRow],
        options: &'a TrainingOptions,
    ) -> Result<Self> {
        if let Some(at) = rows.iter().position(|row| row.texts.is_empty()) {
            let what = format!("row {at}");
            return Err(Error::Training { what, expected: "at least one text".into(), found: "none".into() });
        }
        let variables = variables.all().into_iter().map(|(_, var)| var).collect();
        Ok(Self { model, variables, rows, options })
    }

    fn batch<'b>(&'b self, members: &'b [usize]) -> impl Iterator<Item = &'b FidRow> {
        members.iter().map(|&at| &self.rows[at])
    }

    /// The summed loss of rows.
    fn loss(&self, members: &[usize], seed: u64) -> Result<Tensor> {
        let mut mode = Mode::training(seed);
        let (mut texts, mut places) = (Vec::new(), Vec::new());
        for row in self.batch(members) {
            places.push((texts.len()..texts.len() + row.texts.len()).collect());
            texts.extend(row.texts.iter().map(Vec::as_slice));
        }
        let memory = EncodedTexts::encode(self.model, &texts, &mut mode)?.fuse(&places)?;
        let (special, device) = (self.model.special_tokens(), self.model.device());
        let targets: Vec<&[u32]> = self.batch(members).map(|row| row.target.as_slice()).collect();
        let (decoder, labels) = shifted(&targets, special.pad, special.decoder_start, device)?;
        let logits = self.model.decode_in(&decoder.ids, &decoder.mask, &memory, &mut mode)?;
        cross_entropy(&logits, &labels, self.options.label_smoothing)
    }
}

impl Objective for FidObjective<'_> {
    /// The numbers of rows.
    type Batch = Vec<usize>;

    fn check(&self, _: &TrainingOptions) -> Result<()> {
        Ok(())
    }

    fn epoch(&self, number: u64) -> Result<Vec<Vec<usize>>> {
        let lengths: Vec<usize> = self.rows.iter().map(FidRow::tokens).collect();
        Ok(shuffled_batches(&lengths, self.options.tokens_per_batch, self.options.seed, number))
    }

    fn weight(&self, batch: &Vec<usize>) -> f64 {
        self.batch(batch).map(|row| row.target.len()).sum::<usize>() as f64
    }

    fn tokens(&self, batch: &Vec<usize>) -> usize {
        self.batch(batch).map(FidRow::tokens).sum()
    }

    fn learn(&self, batch: &Vec<usize>, weight: f64, seed: u64, gradients: &mut Gradients) -> Result<f64> {
        let loss = (self.loss(batch, seed)? / weight)?;
        gradients.add_backward(&loss, &self.variables)?;
        Ok(f64::from(loss.to_scalar::<f32>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seq2seq::tests::{assert_gradients, build};
    use sporran_transformers::{decode::log_probabilities, encode_separately, fuse};

    fn rows() -> Vec<FidRow> {
        let text = |salt: u32, length: u32| -> Vec<u32> {
            (0..length).map(|at| 5 + (salt * 17 + at * 11) % 33).chain([1]).collect()
        };
        let row = |salt: u32, texts: u32| FidRow {
            texts: (0..texts).map(|at| text(salt * 5 + at, 2 + (at * 3 + salt) % 6)).collect(),
            target: text(salt + 9, 1 + salt % 3),
        };
        vec![row(0, 3), row(1, 1), row(2, 5)]
    }

    #[test]
    fn the_loss_is_that_of_answers_decoded_from_all_texts() {
        let (model, variables) = build(0.0);
        let (rows, options) = (rows(), TrainingOptions::default());
        let objective = FidObjective::new(&model, &variables, &rows, &options).unwrap();
        let (mut expected, mut tokens) = (0.0, 0);
        for row in &rows {
            let memory = fuse(&[&encode_separately(&model, &row.texts, 1).unwrap()]).unwrap();
            let found = log_probabilities(&model, &memory, std::slice::from_ref(&row.target)).unwrap();
            expected -= found[0][0].iter().map(|value| f64::from(*value)).sum::<f64>();
            tokens += row.target.len();
        }
        let mut gradients = variables.all().iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect();
        let batch = vec![0, 1, 2];
        let loss = objective.learn(&batch, objective.weight(&batch), 3, &mut gradients).unwrap();
        let expected = expected / f64::from(tokens as u32);
        assert!((loss - expected).abs() < 1e-4, "{loss} {expected}");
        let without = [FidRow { texts: Vec::new(), target: vec![1] }];
        assert!(FidObjective::new(&model, &variables, &without, &options).is_err());
    }

    #[test]
    fn gradients_equal_numerical_ones() {
        let (model, variables) = build(0.0);
        let rows = rows();
        let options = TrainingOptions { label_smoothing: 0.1, ..TrainingOptions::default() };
        let objective = FidObjective::new(&model, &variables, &rows, &options).unwrap();
        assert_gradients(&variables, |gradients| objective.learn(&vec![0, 1, 2], 6.0, 3, gradients).unwrap());
    }
}
