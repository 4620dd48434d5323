//! Training of labels of pairs of marked positions in a text. Labels are independent, and labels without a target have no
//! loss.

use candle_core::{DType, Device, Tensor};
use sporran_checkpoint::{Error, Result, tensors_under};
use sporran_transformers::{
    BertTask, Checkpoint, EncoderRow, Mode, ModelConfig, PAIR_HEAD, PairHead, PairHeadConfig, StatePair,
    length_batches,
};

use crate::{
    data::shuffled_batches,
    gradients::Gradients,
    objective::Objective,
    options::TrainingOptions,
    tuned::{Pick, TunedEncoder},
    variables::Variables,
};

/// The target of one label of one pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairTarget {
    /// The pair's number.
    pub pair: usize,
    /// The label's number.
    pub label: usize,
    /// How sure it is that the label holds, from 0 to 1.
    pub value: f32,
    /// How much it counts in the loss.
    pub weight: f32,
}

/// A text with marked positions and the targets of their pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct PairExample {
    /// The text as tokens.
    pub row: EncoderRow,
    /// The marked tokens, as numbers in the row.
    pub marks: Vec<usize>,
    /// Pairs of marks, as numbers in `marks`.
    pub pairs: Vec<StatePair>,
    /// The targets of the pairs.
    pub targets: Vec<PairTarget>,
}

/// The binary cross-entropy of known labels of pairs.
pub struct PairObjective<'a> {
    encoder: &'a TunedEncoder,
    head: &'a PairHead,
    examples: Vec<PairExample>,
    tokens_per_batch: usize,
    seed: u64,
}

impl<'a> PairObjective<'a> {
    /// Trains on `examples` with `encoder` and `head`, whose weights are among the encoder's variables. Examples without
    /// targets are left out.
    ///
    /// # Errors
    /// [`Error::Batch`] where an example marks a token that it has not, or has a target of a pair or a label that there is
    /// not, or that is not between 0 and 1; [`Error::Training`] where the encoder does not train the head.
    pub fn new(
        encoder: &'a TunedEncoder,
        head: &'a PairHead,
        mut examples: Vec<PairExample>,
        options: &TrainingOptions,
    ) -> Result<Self> {
        let name = format!("{}.output.weight", PAIR_HEAD);
        if encoder.variables().named(&name).is_none() {
            return Err(Error::Training {
                what: "the pair head".into(),
                expected: format!("`{name}` among the encoder's variables"),
                found: "none".into(),
            });
        }
        examples.retain(|example| !example.targets.is_empty());
        for (at, example) in examples.iter().enumerate() {
            let wrong = |expected: String, found: String| {
                Err(Error::Batch { expected: format!("{expected} in example {at}"), found })
            };
            if let Some(mark) = example.marks.iter().find(|mark| **mark >= example.row.ids.len()) {
                return wrong(format!("marks below {}", example.row.ids.len()), mark.to_string());
            }
            let labels = head.config().labels;
            let bad = |target: &&PairTarget| {
                target.pair >= example.pairs.len()
                    || target.label >= labels
                    || !(0.0..=1.0).contains(&target.value)
                    || !(target.weight >= 0.0 && target.weight.is_finite())
            };
            if let Some(target) = example.targets.iter().find(bad) {
                let pairs = example.pairs.len();
                let expected =
                    format!("targets from 0 to 1 of pairs below {pairs} and labels below {labels}");
                return wrong(expected, format!("{target:?}"));
            }
        }
        let (tokens_per_batch, seed) = (options.tokens_per_batch, options.seed);
        Ok(Self { encoder, head, examples, tokens_per_batch, seed })
    }

    fn members(&self, batch: &[usize]) -> impl Iterator<Item = &PairExample> {
        batch.iter().map(|&at| &self.examples[at])
    }
}

/// The marks of `rows` as numbers over all rows, and their pairs as numbers over all marks.
fn joined<'e>(
    examples: impl Iterator<Item = (&'e EncoderRow, &'e [usize], &'e [StatePair])>,
) -> (Vec<&'e EncoderRow>, Vec<usize>, Vec<StatePair>) {
    let (mut rows, mut marks, mut pairs, mut first) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for (row, own, between) in examples {
        let before = marks.len() as u32;
        marks.extend(own.iter().map(|mark| first + mark));
        pairs.extend(between.iter().map(|pair| StatePair {
            first: before + pair.first,
            second: before + pair.second,
            features: pair.features.clone(),
        }));
        first += row.ids.len();
        rows.push(row);
    }
    (rows, marks, pairs)
}

impl TunedEncoder {
    /// Starts from the body of a folder and a pair head: the folder's head if it has one, or else one initialised from
    /// `seed`.
    ///
    /// # Errors
    /// As for [`open`](Self::open), and a tensor error where the folder's head has other sizes.
    pub fn open_with_pairs(
        checkpoint: &Checkpoint,
        head: &PairHeadConfig,
        seed: u64,
        device: &Device,
    ) -> Result<(Self, PairHead)> {
        let (config, mut tensors) = Self::start(checkpoint, BertTask::States, 2)?;
        tensors.extend(tensors_under(checkpoint.folder(), PAIR_HEAD, DType::F32, &Device::Cpu)?);
        Self::with_pairs(&config, head, Variables::with_initial(seed, tensors), device)
    }

    /// An encoder of `config` and a pair head over `variables`, which initialise missing parameters.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_pairs(
        config: impl Into<ModelConfig>,
        head: &PairHeadConfig,
        variables: Variables,
        device: &Device,
    ) -> Result<(Self, PairHead)> {
        // The encoder trains all variables that exist when it is created.
        let head = PairHead::new(head, &variables.builder(device))?;
        Ok((Self::new(config, variables, device)?, head))
    }

    /// The logits of all pairs of each example with the current weights, pair after pair, in batches of at most
    /// `tokens` tokens.
    ///
    /// # Errors
    /// Those of [`states`](Self::states) and of [`PairHead::forward`].
    pub fn pair_logits(
        &self,
        head: &PairHead,
        examples: &[PairExample],
        tokens: usize,
    ) -> Result<Vec<Vec<f32>>> {
        let lengths: Vec<usize> = examples.iter().map(|example| example.row.ids.len()).collect();
        let mut found = vec![Vec::new(); examples.len()];
        for batch in length_batches(&lengths, usize::MAX, tokens) {
            let members: Vec<usize> =
                batch.into_iter().filter(|&at| !examples[at].pairs.is_empty()).collect();
            if members.is_empty() {
                continue;
            }
            let of = |at: &usize| (&examples[*at].row, &*examples[*at].marks, &*examples[*at].pairs);
            let (rows, marks, pairs) = joined(members.iter().map(of));
            let states = self.states(&rows, Pick::Tokens(&marks))?;
            let logits = head.forward(&states, &pairs, &mut Mode::Inference)?.to_vec2::<f32>()?;
            let mut rest = logits.into_iter();
            for at in members {
                found[at] = rest.by_ref().take(examples[at].pairs.len()).flatten().collect();
            }
        }
        Ok(found)
    }
}

impl Objective for PairObjective<'_> {
    type Batch = Vec<usize>;

    fn check(&self, options: &TrainingOptions) -> Result<()> {
        options.refuse_smoothing("pairs are learned")
    }

    fn epoch(&self, number: u64) -> Result<Vec<Vec<usize>>> {
        let lengths: Vec<usize> = self.examples.iter().map(|example| example.row.ids.len()).collect();
        Ok(shuffled_batches(&lengths, self.tokens_per_batch, self.seed, number))
    }

    /// Texts have equal weight, so a text with many pairs counts as much as one with few.
    fn weight(&self, batch: &Vec<usize>) -> f64 {
        batch.len() as f64
    }

    fn tokens(&self, batch: &Vec<usize>) -> usize {
        self.members(batch).map(|example| example.row.ids.len()).sum()
    }

    fn learn(&self, batch: &Vec<usize>, weight: f64, seed: u64, gradients: &mut Gradients) -> Result<f64> {
        let (rows, marks, pairs) =
            joined(self.members(batch).map(|example| (&example.row, &*example.marks, &*example.pairs)));
        let labels = self.head.config().labels;
        let (mut cells, mut values, mut weights, mut first) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for example in self.members(batch) {
            for target in &example.targets {
                cells.push(((first + target.pair) * labels + target.label) as u32);
                values.push(target.value);
                weights.push((f64::from(target.weight) / weight) as f32);
            }
            first += example.pairs.len();
        }
        self.encoder.learn(&rows, Pick::Tokens(&marks), seed, gradients, |states, mode| {
            let device = states.device();
            let logits = self.head.forward(states, &pairs, mode)?.flatten_all()?;
            let logits = logits.index_select(&Tensor::new(cells, device)?, 0)?;
            let (values, weights) = (Tensor::new(values, device)?, Tensor::new(weights, device)?);
            // max(x, 0) - x y + ln(1 + e^-|x|), which is finite for every x.
            let rest = (logits.abs()?.neg()?.exp()? + 1.0)?.log()?;
            let loss = ((logits.relu()? - (&logits * values)?)? + rest)?;
            Ok((loss * weights)?.sum_all()?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Training, train,
        tuned::tests::{rows, tiny_for},
    };

    /// An encoder whose variables hold the head as well.
    fn model() -> (TunedEncoder, PairHead) {
        let head = PairHeadConfig { width: 24, inner: 8, features: 4, labels: 2, dropout: 0.0 };
        let config = tiny_for(BertTask::States, 2, 0.0).config().clone();
        TunedEncoder::with_pairs(&config, &head, Variables::new(3), &Device::Cpu).unwrap()
    }

    /// The first marked token determines the first label. The second label has a target only in row 0.
    fn examples(count: usize) -> Vec<PairExample> {
        let pair = |first, second| StatePair { first, second, features: vec![first + second] };
        rows(count, 1)
            .into_iter()
            .enumerate()
            .map(|(at, row)| {
                let value = f32::from(u8::from(row.ids[1] % 2 == 0));
                let mut targets = vec![PairTarget { pair: 0, label: 0, value, weight: 1.0 }];
                if at == 0 {
                    targets.push(PairTarget { pair: 1, label: 1, value: 1.0, weight: 1.0 });
                }
                PairExample { row, marks: vec![1, 2], pairs: vec![pair(0, 1), pair(1, 0)], targets }
            })
            .collect()
    }

    fn options() -> TrainingOptions {
        TrainingOptions {
            steps: 60,
            tokens_per_batch: 100,
            warmup_steps: Some(5),
            learning_rate: 5e-3,
            seed: 6,
            ..TrainingOptions::default()
        }
    }

    #[test]
    fn pairs_are_learned_and_missing_targets_have_no_gradient() {
        let (encoder, head) = model();
        let options = options();
        let examples = examples(24);
        let objective = PairObjective::new(&encoder, &head, examples.clone(), &options).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let training = Training {
            objective: &objective,
            variables: encoder.variables(),
            options: &options,
            evaluate: None,
            folder: folder.path(),
            extra_files: &[],
        };
        train(&training, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
        let logits = encoder.pair_logits(&head, &examples, 50).unwrap();
        for (example, logits) in examples.iter().zip(&logits) {
            assert_eq!(logits.len(), 4);
            assert_eq!(logits[0] > 0.0, example.targets[0].value == 1.0, "{logits:?}");
        }
        // The head's second row of weights only ever saw the one target.
        assert!(logits[0][3] > 0.0);
    }

    #[test]
    fn a_batch_has_the_loss_of_its_members() {
        let (encoder, head) = model();
        let examples = examples(9);
        let objective = PairObjective::new(&encoder, &head, examples.clone(), &options()).unwrap();
        let loss = |batch: Vec<usize>| {
            let mut gradients: Gradients =
                encoder.variables().all().iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect();
            objective.learn(&batch, 1.0, 0, &mut gradients).unwrap()
        };
        let apart: f64 = (0..9).map(|at| loss(vec![at])).sum();
        assert!((loss((0..9).collect()) - apart).abs() < 1e-4 * apart);
        let logits = encoder.pair_logits(&head, &examples, 50).unwrap();
        let (x, y) = (f64::from(logits[3][0]), f64::from(examples[3].targets[0].value));
        // The definition, where it does not overflow.
        let p = 1.0 / (1.0 + (-x).exp());
        assert!((loss(vec![3]) + y * p.ln() + (1.0 - y) * (1.0 - p).ln()).abs() < 1e-5);
    }

    #[test]
    fn examples_that_cannot_be_learned_are_refused() {
        let (encoder, head) = model();
        let error_of = |change: fn(&mut PairExample)| {
            let mut examples = examples(2);
            change(&mut examples[1]);
            PairObjective::new(&encoder, &head, examples, &options()).err().map(|error| error.to_string())
        };
        assert_eq!(error_of(|_| ()), None);
        assert!(error_of(|example| example.marks[0] = 99).unwrap().contains("in example 1"));
        assert!(error_of(|example| example.targets[0].label = 2).unwrap().contains("labels below 2"));
        assert!(error_of(|example| example.targets[0].value = 1.5).unwrap().contains("from 0 to 1"));
        let bare = tiny_for(BertTask::States, 2, 0.0);
        let error = PairObjective::new(&bare, &head, examples(2), &options()).err().unwrap().to_string();
        assert!(error.contains("pair_head.output.weight"), "{error}");
    }
}
