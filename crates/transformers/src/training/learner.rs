//! From a batch to the gradients of its share of the loss.

use candle_core::Var;

use crate::error::Result;
use crate::mode::Mode;
use crate::seq2seq::Trainable;
use crate::training::data::{Row, TrainingBatch};
use crate::training::loss::cross_entropy;
use crate::training::optimizer::Gradients;

/// What the threads of a step share: the model, its variables and the loss.
pub(super) struct Learner<'a> {
    pub(super) model: &'a dyn Trainable,
    pub(super) variables: Vec<&'a Var>,
    pub(super) label_smoothing: f32,
}

impl Learner<'_> {
    /// The gradients of one batch's share of the mean loss over `targets` labels, and that share.
    pub(super) fn gradients(&self, rows: &[Row], targets: usize, seed: u64) -> Result<(Gradients, f64)> {
        let model = self.model;
        let special = model.special_tokens();
        let rows: Vec<&Row> = rows.iter().collect();
        let batch = TrainingBatch::new(&rows, special.pad, special.decoder_start, model.device())?;
        let mut mode = Mode::training(seed);
        let logits = model.forward(&batch.input, &batch.decoder_ids, &batch.decoder_mask, &mut mode)?;
        let sum = cross_entropy(&logits, &batch.labels, self.label_smoothing)?;
        let loss = (sum / targets as f64)?;
        let store = loss.backward()?;
        let gradients = self
            .variables
            .iter()
            .map(|var| match store.get(var) {
                Some(gradient) => Ok(gradient.flatten_all()?.to_vec1::<f32>()?),
                // A variable that this batch does not reach.
                None => Ok(vec![0.0; var.elem_count()]),
            })
            .collect::<Result<Gradients>>()?;
        Ok((gradients, f64::from(loss.to_scalar::<f32>()?)))
    }
}

/// Does each piece of work on a pool of its own, all at the same time; the results come in the order of the pieces.
pub(super) fn side_by_side<W: Send, T: Send>(
    pools: &[rayon::ThreadPool],
    pieces: impl Iterator<Item = W>,
    work: impl Fn(W) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let work = &work;
    std::thread::scope(|scope| {
        let running: Vec<_> = pieces
            .zip(pools)
            .map(|(piece, pool)| scope.spawn(move || pool.install(|| work(piece))))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::t5::T5;
    use crate::t5_config::T5Config;
    use crate::training::variables::Variables;
    use candle_core::Device;

    /// A small T5, the same at every call.
    pub(in crate::training) fn build(dropout_rate: f64) -> (T5, Variables) {
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
    pub(in crate::training) fn examples(count: u32) -> Arc<Vec<Row>> {
        let row = |i: u32| Row {
            source: (0..3 + i % 3).map(|j| 5 + (i * 7 + j * 11) % 33).chain([1]).collect(),
            target: (0..1 + i % 2).map(|j| 5 + (i * 13 + j * 5) % 33).chain([1]).collect(),
        };
        Arc::new((0..count).map(row).collect())
    }

    #[test]
    fn gradients_equal_numerical_ones() {
        let (model, variables) = build(0.0);
        let rows = examples(3);
        let vars = variables.all();
        let learner =
            Learner { model: &model, variables: vars.iter().map(|(_, v)| v).collect(), label_smoothing: 0.1 };
        let targets = 5;
        let (gradients, _) = learner.gradients(&rows, targets, 0).unwrap();
        for ((name, var), gradient) in vars.iter().zip(&gradients) {
            let values = var.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            // The place with the largest gradient of each variable.
            let (at, expected) =
                gradient.iter().enumerate().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())).unwrap();
            let step = 5e-3f32;
            let loss = |change: f32| {
                let mut changed = values.clone();
                changed[at] += change;
                var.set(&candle_core::Tensor::from_vec(changed, var.shape(), &Device::Cpu).unwrap()).unwrap();
                learner.gradients(&rows, targets, 0).unwrap().1
            };
            let slope = (loss(step) - loss(-step)) / (2.0 * f64::from(step));
            loss(0.0);
            let expected = f64::from(*expected);
            assert!((slope - expected).abs() < 0.02 * expected.abs() + 2e-3, "{name}: {slope} {expected}");
        }
    }

    #[test]
    fn padding_does_not_change_the_loss() {
        let (model, variables) = build(0.0);
        let vars = variables.all();
        let learner =
            Learner { model: &model, variables: vars.iter().map(|(_, v)| v).collect(), label_smoothing: 0.0 };
        let rows = examples(3);
        assert!(rows.iter().any(|r| r.source.len() != rows[0].source.len()));
        let together = learner.gradients(&rows, 1, 0).unwrap().1;
        let alone: f64 =
            rows.iter().map(|r| learner.gradients(std::slice::from_ref(r), 1, 0).unwrap().1).sum();
        assert!((together - alone).abs() < 1e-4, "{together} {alone}");
    }
}
