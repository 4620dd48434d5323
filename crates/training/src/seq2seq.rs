//! Teacher forcing: an encoder-decoder learns to write the targets of its sources.

use std::sync::Arc;

use candle_core::Var;
use sporran_checkpoint::Result;
use sporran_transformers::{Mode, Trainable};

use crate::{
    data::{Row, RowBatch, TrainingBatch},
    gradients::Gradients,
    loss::cross_entropy,
    objective::Objective,
    options::TrainingOptions,
    variables::Variables,
};

/// The cross-entropy of target tokens.
pub struct Seq2SeqObjective<'a> {
    model: &'a dyn Trainable,
    /// In the order of the gradients.
    variables: Vec<Var>,
    options: &'a TrainingOptions,
    rows: &'a (dyn Fn(u64) -> Result<Arc<Vec<Row>>> + Sync),
}

impl<'a> Seq2SeqObjective<'a> {
    /// Learns the rows that `rows` gives for each epoch, with the `model` that was built from `variables`. The rows
    /// may differ from epoch to epoch (fresh distractors, say), but must be a function of the epoch's number.
    pub fn new(
        model: &'a dyn Trainable,
        variables: &Variables,
        options: &'a TrainingOptions,
        rows: &'a (dyn Fn(u64) -> Result<Arc<Vec<Row>>> + Sync),
    ) -> Self {
        let variables = variables.all().into_iter().map(|(_, var)| var).collect();
        Self { model, variables, options, rows }
    }
}

impl Objective for Seq2SeqObjective<'_> {
    type Batch = RowBatch;

    fn check(&self, _: &TrainingOptions) -> Result<()> {
        Ok(())
    }

    fn epoch(&self, number: u64) -> Result<Vec<RowBatch>> {
        Ok(RowBatch::all(&(self.rows)(number)?, self.options, number))
    }

    fn weight(&self, batch: &RowBatch) -> f64 {
        batch.targets() as f64
    }

    fn tokens(&self, batch: &RowBatch) -> usize {
        batch.tokens()
    }

    fn learn(&self, batch: &RowBatch, weight: f64, seed: u64, gradients: &mut Gradients) -> Result<f64> {
        let (model, special) = (self.model, self.model.special_tokens());
        let rows: Vec<&Row> = batch.rows().collect();
        let batch = TrainingBatch::new(&rows, special.pad, special.decoder_start, model.device())?;
        let mut mode = Mode::training(seed);
        let logits = model.forward(&batch.input, &batch.decoder_ids, &batch.decoder_mask, &mut mode)?;
        let sum = cross_entropy(&logits, &batch.labels, self.options.label_smoothing)?;
        let loss = (sum / weight)?;
        gradients.add_backward(&loss, &self.variables)?;
        Ok(f64::from(loss.to_scalar::<f32>()?))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::variables::Variables;
    use candle_core::Device;
    use sporran_transformers::T5;
    use sporran_transformers::T5Config;

    /// A small T5, the same at every call.
    pub(crate) fn build(dropout_rate: f64) -> (T5, Variables) {
        let config = T5Config {
            vocab_size: 40,
            d_model: 32,
            d_kv: 8,
            d_ff: 48,
            num_layers: 1,
            num_heads: 4,
            relative_attention_num_buckets: 8,
            dropout_rate,
            ..T5Config::default()
        };
        let variables = Variables::new(5);
        let model = T5::new(&config, &variables.builder(&Device::Cpu)).unwrap();
        (model, variables)
    }

    /// Rows of several lengths.
    pub(crate) fn examples(count: u32) -> Arc<Vec<Row>> {
        let row = |i: u32| Row {
            source: (0..3 + i % 3).map(|j| 5 + (i * 7 + j * 11) % 33).chain([1]).collect(),
            target: (0..1 + i % 2).map(|j| 5 + (i * 13 + j * 5) % 33).chain([1]).collect(),
        };
        Arc::new((0..count).map(row).collect())
    }

    /// Compares the gradients that `learn` adds up with differences of the loss that it gives, at the place of each
    /// variable where the gradient is largest.
    pub(crate) fn assert_gradients(variables: &Variables, learn: impl Fn(&mut Gradients) -> f64) {
        let vars = variables.all();
        let zeros = || vars.iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect::<Gradients>();
        let mut gradients = zeros();
        learn(&mut gradients);
        for ((name, var), gradient) in vars.iter().zip(&gradients) {
            let values = var.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            let (at, expected) =
                gradient.iter().enumerate().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())).unwrap();
            let step = 5e-3f32;
            let loss = |change: f32| {
                let mut changed = values.clone();
                changed[at] += change;
                var.set(&candle_core::Tensor::from_vec(changed, var.shape(), &Device::Cpu).unwrap()).unwrap();
                learn(&mut zeros())
            };
            let slope = (loss(step) - loss(-step)) / (2.0 * f64::from(step));
            loss(0.0);
            let expected = f64::from(*expected);
            assert!((slope - expected).abs() < 0.02 * expected.abs() + 2e-3, "{name}: {slope} {expected}");
        }
    }

    #[test]
    fn gradients_equal_numerical_ones() {
        let (model, variables) = build(0.0);
        let rows = examples(3);
        let (options, given) =
            (TrainingOptions { label_smoothing: 0.1, ..Default::default() }, |_| Ok(rows.clone()));
        let objective = Seq2SeqObjective::new(&model, &variables, &options, &given);
        let batch = RowBatch { rows: rows.clone(), members: vec![0, 1, 2] };
        assert_gradients(&variables, |gradients| objective.learn(&batch, 5.0, 0, gradients).unwrap());
    }

    #[test]
    fn padding_does_not_change_the_loss() {
        let (model, variables) = build(0.0);
        let rows = examples(3);
        assert!(rows.iter().any(|r| r.source.len() != rows[0].source.len()));
        let (options, given) = (TrainingOptions::default(), |_| Ok(rows.clone()));
        let objective = Seq2SeqObjective::new(&model, &variables, &options, &given);
        let loss = |members: Vec<usize>| {
            let mut zeros: Gradients =
                variables.all().iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect();
            let batch = RowBatch { rows: rows.clone(), members };
            objective.learn(&batch, 1.0, 0, &mut zeros).unwrap()
        };
        let together = loss(vec![0, 1, 2]);
        let alone: f64 = (0..3).map(|at| loss(vec![at])).sum();
        assert!((together - alone).abs() < 1e-4, "{together} {alone}");
    }
}
