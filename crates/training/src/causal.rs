//! Teacher forcing: a decoder-only model learns to continue prompts by their targets.

use std::sync::Arc;

use candle_core::{Tensor, Var};
use sporran_checkpoint::{Error, Result};
use sporran_transformers::{Batch, Mode, TrainableCausal, length_batches};

use crate::{
    data::{Row, RowBatch},
    gradients::Gradients,
    loss::cross_entropy,
    objective::Objective,
    options::TrainingOptions,
    variables::Variables,
};

/// The cross-entropy of target tokens. The tokens of prompts have no loss.
pub struct CausalObjective<'a> {
    model: &'a dyn TrainableCausal,
    /// In the order of the gradients.
    variables: Vec<Var>,
    options: &'a TrainingOptions,
    rows: &'a (dyn Fn(u64) -> Result<Arc<Vec<Row>>> + Sync),
}

impl<'a> CausalObjective<'a> {
    /// Learns the rows that `rows` gives for each epoch, with the `model` that was built from `variables`. The source of a
    /// row is its prompt. The rows must be a function of the epoch's number.
    pub fn new(
        model: &'a dyn TrainableCausal,
        variables: &Variables,
        options: &'a TrainingOptions,
        rows: &'a (dyn Fn(u64) -> Result<Arc<Vec<Row>>> + Sync),
    ) -> Self {
        let variables = variables.all().into_iter().map(|(_, var)| var).collect();
        Self { model, variables, options, rows }
    }
}

/// The sum of the cross-entropies of all target tokens of `rows`, a scalar.
///
/// A row is read as its prompt and then its target. The state before each target token predicts it, so the last token of a
/// row is not read.
fn summed_loss(
    model: &dyn TrainableCausal,
    rows: &[&Row],
    smoothing: f32,
    mode: &mut Mode,
) -> Result<Tensor> {
    let read = |row: &&Row| -> Vec<u32> {
        let whole = row.source.iter().chain(&row.target);
        whole.take((row.source.len() + row.target.len()).saturating_sub(1)).copied().collect()
    };
    for (at, row) in rows.iter().enumerate() {
        if row.source.is_empty() || row.target.is_empty() {
            let found = format!("{} and {} in row {at}", row.source.len(), row.target.len());
            return Err(Error::Batch { expected: "a token in every prompt and target".into(), found });
        }
    }
    let inputs: Vec<Vec<u32>> = rows.iter().map(read).collect();
    let batch = Batch::new(&inputs, model.special_tokens().pad, model.device())?;
    let length = batch.length();
    let places: Vec<u32> = rows
        .iter()
        .enumerate()
        .flat_map(|(at, row)| {
            let first = at * length + row.source.len() - 1;
            (first..first + row.target.len()).map(|place| place as u32)
        })
        .collect();
    let labels: Vec<u32> = rows.iter().flat_map(|row| row.target.iter().copied()).collect();
    let states = model.states_in(&batch, mode)?.flatten_to(1)?;
    let places = Tensor::new(places, states.device())?;
    // The head is much larger than a layer, so it reads only the states that predict a target token.
    cross_entropy(&model.logits_of(&states.index_select(&places, 0)?)?, &labels, smoothing)
}

/// Tokens of a batch of validation rows, padding included, at most.
const VALIDATION_TOKENS: usize = 2048;

/// The mean cross-entropy of the target tokens of `rows` in nats, without dropout or smoothing. Its exponential is the
/// perplexity.
///
/// # Errors
/// [`Error::Batch`] where there is no row, or a row has no prompt or no target; errors of the model.
pub fn mean_loss(model: &dyn TrainableCausal, rows: &[Row]) -> Result<f64> {
    let lengths: Vec<usize> = rows.iter().map(|row| row.source.len() + row.target.len()).collect();
    let (mut sum, mut targets) = (0.0, 0);
    for members in length_batches(&lengths, usize::MAX, VALIDATION_TOKENS) {
        let batch: Vec<&Row> = members.iter().map(|&at| &rows[at]).collect();
        let loss = summed_loss(model, &batch, 0.0, &mut Mode::Inference)?;
        sum += f64::from(loss.to_scalar::<f32>()?);
        targets += batch.iter().map(|row| row.target.len()).sum::<usize>();
    }
    if targets == 0 {
        return Err(Error::Batch { expected: "at least one row".into(), found: "none".into() });
    }
    Ok(sum / targets as f64)
}

impl Objective for CausalObjective<'_> {
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
        let rows: Vec<&Row> = batch.rows().collect();
        let sum = summed_loss(self.model, &rows, self.options.label_smoothing, &mut Mode::training(seed))?;
        let loss = (sum / weight)?;
        gradients.add_backward(&loss, &self.variables)?;
        Ok(f64::from(loss.to_scalar::<f32>()?))
    }
}

#[cfg(test)]
mod tests {
    use std::{ops::ControlFlow, sync::Arc};

    use candle_core::Device;
    use sporran_transformers::{CausalLm, Gpt2, Gpt2Config, Llama, LlamaConfig, LlamaKind};

    use super::*;
    use crate::{Training, seq2seq::tests::assert_gradients, train};

    fn gpt2(rate: f64) -> (Gpt2, Variables) {
        let config = Gpt2Config {
            vocab_size: 40,
            eos_token_id: vec![1],
            n_positions: 16,
            n_embd: 24,
            n_layer: 2,
            n_head: 3,
            initializer_range: 0.3,
            resid_pdrop: rate,
            embd_pdrop: rate,
            attn_pdrop: rate,
            ..Gpt2Config::default()
        };
        let variables = Variables::new(5);
        (Gpt2::new(&config, &variables.builder(&Device::Cpu)).unwrap(), variables)
    }

    fn llama(kind: LlamaKind, rate: f64) -> (Llama, Variables) {
        let config = LlamaConfig {
            kind,
            vocab_size: 40,
            hidden_size: 24,
            intermediate_size: 32,
            num_hidden_layers: 2,
            num_attention_heads: 4,
            num_key_value_heads: Some(2),
            initializer_range: 0.3,
            attention_dropout: rate,
            tie_word_embeddings: kind == LlamaKind::Qwen2,
            ..LlamaConfig::default()
        };
        let variables = Variables::new(6);
        (Llama::new(&config, &variables.builder(&Device::Cpu)).unwrap(), variables)
    }

    fn rows() -> Arc<Vec<Row>> {
        let row = |i: u32| Row {
            source: (0..1 + i % 4).map(|j| 5 + (i * 7 + j * 11) % 33).collect(),
            target: (0..1 + i % 3).map(|j| 5 + (i * 13 + j * 5) % 33).collect(),
        };
        Arc::new((0..6).map(row).collect())
    }

    fn assert_numerical(model: &dyn TrainableCausal, variables: &Variables) {
        let rows = rows();
        let (options, given) =
            (TrainingOptions { label_smoothing: 0.1, ..Default::default() }, |_| Ok(rows.clone()));
        let objective = CausalObjective::new(model, variables, &options, &given);
        let batch = RowBatch { rows: rows.clone(), members: (0..6).collect() };
        // The same seed drops the same values in each evaluation of a difference.
        assert_gradients(variables, |gradients| objective.learn(&batch, 12.0, 3, gradients).unwrap());
    }

    #[test]
    fn gradients_equal_numerical_ones() {
        for rate in [0.0, 0.2] {
            let (model, variables) = gpt2(rate);
            assert_numerical(&model, &variables);
            for kind in [LlamaKind::Llama, LlamaKind::Qwen2] {
                let (model, variables) = llama(kind, rate);
                assert_numerical(&model, &variables);
            }
        }
    }

    #[test]
    fn the_loss_is_that_of_the_logits_before_each_target_token() {
        let (model, _) = gpt2(0.0);
        let row = Row { source: vec![7, 9, 30], target: vec![4, 11] };
        // The logits of the whole sequence predict 4 after the third token and 11 after the fourth.
        let whole = Batch::new(&[vec![7, 9, 30, 4, 11]], 0, &Device::Cpu).unwrap();
        let logits: Vec<Vec<f32>> = model.forward(&whole).unwrap().squeeze(0).unwrap().to_vec2().unwrap();
        let loss = |place: usize, token: usize| {
            let sum: f64 = logits[place].iter().map(|x| f64::from(*x).exp()).sum();
            sum.ln() - f64::from(logits[place][token])
        };
        let expected = (loss(2, 4) + loss(3, 11)) / 2.0;
        let found = mean_loss(&model, &[row]).unwrap();
        assert!((found - expected).abs() < 1e-5, "{found} {expected}");
    }

    #[test]
    fn a_batch_has_the_loss_of_its_rows() {
        for (model, name) in [
            (Box::new(gpt2(0.0).0) as Box<dyn TrainableCausal>, "gpt2"),
            (Box::new(llama(LlamaKind::Llama, 0.0).0) as Box<dyn TrainableCausal>, "llama"),
        ] {
            let rows = rows();
            let together = mean_loss(&*model, &rows).unwrap();
            let weighted =
                |row: &Row| row.target.len() as f64 * mean_loss(&*model, std::slice::from_ref(row)).unwrap();
            let targets: usize = rows.iter().map(|row| row.target.len()).sum();
            let alone = rows.iter().map(weighted).sum::<f64>() / targets as f64;
            assert!((together - alone).abs() < 1e-5, "{name}: {together} {alone}");
        }
    }

    #[test]
    fn rows_without_a_prompt_or_a_target_are_refused() {
        let (model, _) = gpt2(0.0);
        for (source, target) in [(vec![], vec![3]), (vec![3], vec![])] {
            let error = mean_loss(&model, &[Row { source, target }]).unwrap_err().to_string();
            assert!(error.contains("a token in every prompt and target"), "{error}");
        }
        assert!(mean_loss(&model, &[]).unwrap_err().to_string().contains("at least one row"));
    }

    #[test]
    fn a_stopped_training_ends_with_the_weights_of_one_that_was_not_stopped() {
        let rows = rows();
        let given = |_| Ok(rows.clone());
        let options = TrainingOptions {
            steps: 12,
            tokens_per_batch: 16,
            warmup_steps: Some(2),
            learning_rate: 1e-2,
            checkpoint_every: 4,
            ..TrainingOptions::default()
        };
        let learn = |folder: &std::path::Path, stop: Option<u64>| {
            let (model, variables) = gpt2(0.1);
            let objective = CausalObjective::new(&model, &variables, &options, &given);
            let training = Training {
                objective: &objective,
                variables: &variables,
                options: &options,
                evaluate: None,
                folder,
                extra_files: &[],
            };
            train(&training, &mut |progress| match stop {
                Some(stop) if progress.step == stop => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            })
            .unwrap();
            let loss = mean_loss(&model, &rows).unwrap();
            let weights = variables
                .all()
                .into_iter()
                .map(|(_, var)| var.flatten_all().unwrap().to_vec1::<f32>().unwrap());
            (loss, weights.collect::<Vec<_>>())
        };
        let [whole, parts] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let before = mean_loss(&gpt2(0.1).0, &rows).unwrap();
        let (loss, weights) = learn(whole.path(), None);
        assert!(loss < before, "{loss} {before}");
        learn(parts.path(), Some(5));
        assert!(learn(parts.path(), None).1 == weights);
    }
}
