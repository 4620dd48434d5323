//! Trains a matching network to label pairs of texts with cross-entropy. The LSTMs' gradients are our own; the others come
//! from candle's autograd.

use candle_core::{Device, Tensor, Var};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_checkpoint::{Error, Result};
use sporran_training::{Gradients, Objective, TrainingOptions, cross_entropy};
use sporran_transformers::Mode;

use super::{Nsmn, TokenPair, leaf};

/// A pair of texts with its label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledPair {
    /// The texts.
    pub pair: TokenPair,
    /// The label's number.
    pub label: u32,
}

/// The cross-entropy of a matching network's labels.
pub struct MatchingObjective<'a> {
    network: &'a Nsmn,
    /// In the order of the gradients.
    all: Vec<Var>,
    epoch: &'a (dyn Fn(u64) -> Vec<LabelledPair> + Sync),
    options: TrainingOptions,
}

impl<'a> MatchingObjective<'a> {
    /// Learns the labels of the pairs that `epoch` returns for each epoch. The pairs must depend only on the epoch's number.
    #[must_use]
    pub fn new(
        network: &'a Nsmn,
        epoch: &'a (dyn Fn(u64) -> Vec<LabelledPair> + Sync),
        options: &TrainingOptions,
    ) -> Self {
        let all = network.variables().all().into_iter().map(|(_, var)| var).collect();
        Self { network, all, epoch, options: options.clone() }
    }
}

fn values(tensor: &Tensor) -> Result<Vec<f32>> {
    Ok(tensor.flatten_all()?.to_vec1()?)
}

impl Objective for MatchingObjective<'_> {
    type Batch = Vec<LabelledPair>;

    fn check(&self, _: &TrainingOptions) -> Result<()> {
        Ok(())
    }

    fn epoch(&self, number: u64) -> Result<Vec<Vec<LabelledPair>>> {
        let mut pairs = (self.epoch)(number);
        let labels = self.network.config().labels.len();
        if let Some(wrong) = pairs.iter().find(|pair| pair.label as usize >= labels) {
            return Err(Error::Training {
                what: "a label".into(),
                expected: format!("a number below {labels}"),
                found: wrong.label.to_string(),
            });
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.options.seed);
        rng.set_stream(number);
        pairs.shuffle(&mut rng);
        let mut batches: Vec<Vec<LabelledPair>> = Vec::new();
        let mut tokens = usize::MAX;
        for pair in pairs {
            let more = pair.pair.tokens();
            if tokens.saturating_add(more) > self.options.tokens_per_batch {
                batches.push(Vec::new());
                tokens = 0;
            }
            tokens += more;
            if let Some(batch) = batches.last_mut() {
                batch.push(pair);
            }
        }
        Ok(batches)
    }

    fn weight(&self, batch: &Vec<LabelledPair>) -> f64 {
        batch.len() as f64
    }

    fn tokens(&self, batch: &Vec<LabelledPair>) -> usize {
        batch.iter().map(|pair| pair.pair.tokens()).sum()
    }

    fn learn(
        &self,
        batch: &Vec<LabelledPair>,
        weight: f64,
        seed: u64,
        gradients: &mut Gradients,
    ) -> Result<f64> {
        let Nsmn { encoder, matcher, comparison, .. } = self.network;
        let pairs: Vec<&TokenPair> = batch.iter().map(|pair| &pair.pair).collect();
        let labels: Vec<u32> = batch.iter().map(|pair| pair.label).collect();
        let (ids, read) = self.network.read(&pairs)?;
        let width = encoder.options().width();

        let first = encoder.forward(&read.xs, &read.lengths, None)?;
        let encoded = leaf(first.states(), width)?;
        let aligned = comparison.aligned(encoded.as_tensor(), &read.lengths)?;
        let inputs = read.matcher_inputs(&values(&aligned)?);
        let second = matcher.forward(&inputs, &read.lengths, None)?;
        let matched = leaf(second.states(), width)?;
        let logits = comparison.compared(matched.as_tensor(), &read.lengths, &mut Mode::training(seed))?;
        let loss = (cross_entropy(&logits, &labels, self.options.label_smoothing)? / weight)?;

        let store = loss.backward()?;
        gradients.add_stored(&store, &self.all)?;
        let lost = |what: &str| Error::Training {
            what: what.into(),
            expected: "a gradient".into(),
            found: "none".into(),
        };
        let to_matched = values(store.get(&matched).ok_or_else(|| lost("the matcher"))?)?;
        let to_beside = matcher.backward(second, &to_matched, gradients)?;

        let (left, right) = (self.network.config().projection_size, self.network.config().embedding_size + 1);
        let mut to_aligned: Vec<f32> = Vec::with_capacity(ids.len() * left);
        let mut to_xs: Vec<f32> = Vec::with_capacity(ids.len() * right);
        for row in to_beside.chunks_exact(left + right) {
            to_aligned.extend(&row[..left]);
            to_xs.extend(&row[left..]);
        }
        let to_aligned = Tensor::from_vec(to_aligned, (ids.len(), left), &Device::Cpu)?;
        // A sum whose gradient of the aligned tokens is the one that came back.
        let store = (aligned * to_aligned)?.sum_all()?.backward()?;
        gradients.add_stored(&store, &self.all)?;
        let to_encoded = values(store.get(&encoded).ok_or_else(|| lost("the encoder"))?)?;
        let below = encoder.backward(first, &to_encoded, gradients)?;
        to_xs.iter_mut().zip(below).for_each(|(sum, value)| *sum += value);

        let place = self.network.place_of_embeddings().ok_or_else(|| lost("the token vectors"))?;
        let size = right - 1;
        for (id, to_x) in ids.iter().zip(to_xs.chunks_exact(right)) {
            let row = &mut gradients[place][*id as usize * size..][..size];
            row.iter_mut().zip(to_x).for_each(|(sum, value)| *sum += value);
        }
        Ok(f64::from(loss.to_scalar::<f32>()?))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::verifier::nsmn::{NSMN, NsmnConfig, PackedNsmn};
    use sporran_training::Variables;

    fn network() -> Arc<Nsmn> {
        let config = NsmnConfig {
            model_type: NSMN.into(),
            vocab_size: 12,
            embedding_size: 4,
            hidden_size: 3,
            projection_size: 5,
            dropout: 0.0,
            max_length: 20,
            labels: ["a", "b", "c"].map(str::to_owned).to_vec(),
        };
        Arc::new(Nsmn::new(&config, Variables::new(5)).unwrap())
    }

    /// Whether the second text has the first's second token: two tokens that are compared.
    fn pairs(_: u64) -> Vec<LabelledPair> {
        let pair = |(a, b): (u32, u32)| LabelledPair {
            pair: TokenPair { first: vec![1, 4 + a, 2], second: vec![3, 2, 4 + b, 1] },
            label: u32::from(a == b),
        };
        (0..16).map(|at| pair((at / 4, at % 4))).collect()
    }

    fn options() -> TrainingOptions {
        TrainingOptions { tokens_per_batch: 60, ..TrainingOptions::default() }
    }

    fn zeros(network: &Nsmn) -> Gradients {
        network.variables().all().iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect()
    }

    #[test]
    fn gradients_are_those_of_small_steps() {
        let network = network();
        let options = options();
        let objective = MatchingObjective::new(&network, &pairs, &options);
        let batch = objective.epoch(0).unwrap().remove(0);
        let mut gradients = zeros(&network);
        objective.learn(&batch, 1.0, 0, &mut gradients).unwrap();
        let step = 2e-3f32;
        for (place, (name, var)) in network.variables().all().into_iter().enumerate() {
            let start = values(var.as_tensor()).unwrap();
            let set = |values: Vec<f32>| {
                var.set(&Tensor::from_vec(values, var.shape(), &Device::Cpu).unwrap()).unwrap();
            };
            let loss = |at: usize, step: f32| {
                let mut moved = start.clone();
                moved[at] += step;
                set(moved);
                objective.learn(&batch, 1.0, 0, &mut zeros(&network)).unwrap()
            };
            for at in (0..start.len()).step_by(start.len() / 7 + 1) {
                let expected = (loss(at, step) - loss(at, -step)) / f64::from(2.0 * step);
                let found = f64::from(gradients[place][at]);
                // ReLUs have corners, and sums are in f32.
                let bound = 0.03 * expected.abs().max(found.abs()) + 0.01;
                assert!((found - expected).abs() < bound, "{name} {at}: {found} {expected}");
            }
            set(start);
        }
    }

    #[test]
    fn a_network_learns_to_compare() {
        let network = network();
        let options = TrainingOptions {
            steps: 400,
            warmup_steps: Some(5),
            learning_rate: 1e-2,
            weight_decay: 0.0,
            ..options()
        };
        let objective = MatchingObjective::new(&network, &pairs, &options);
        let folder = tempfile::tempdir().unwrap();
        let training = sporran_training::Training {
            objective: &objective,
            variables: network.variables(),
            options: &options,
            evaluate: None,
            folder: folder.path(),
            extra_files: &[],
        };
        sporran_training::train(&training, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
        let expected = pairs(0);
        let texts: Vec<TokenPair> = expected.iter().map(|pair| pair.pair.clone()).collect();
        let packed = PackedNsmn::new(network.clone()).unwrap();
        let together = packed.logits(&texts, 30).unwrap();
        for (logits, pair) in together.iter().zip(&expected) {
            let best = (0..3).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
            assert_eq!(best as u32, pair.label, "{logits:?}");
            let alone = packed.logits(std::slice::from_ref(&pair.pair), 30).unwrap().remove(0);
            assert!(alone.iter().zip(logits).all(|(a, b)| (a - b).abs() < 1e-5), "{alone:?} {logits:?}");
        }
    }

    #[test]
    fn empty_texts_and_unknown_tokens_are_refused() {
        let network = network();
        let packed = PackedNsmn::new(network.clone()).unwrap();
        let of = |first: Vec<u32>, second: Vec<u32>| {
            packed.logits(&[TokenPair { first, second }], 30).unwrap_err().to_string()
        };
        assert!(of(vec![1], vec![]).contains("an empty text"));
        assert!(of(vec![1], vec![12]).contains("tokens below 12"));
    }
}
