//! Training of question models: the cross-entropy with the gold answers.

use std::sync::Arc;

use candle_core::{DType, Tensor};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_checkpoint::Error as ModelError;
use sporran_kilt::scores::answer_set;
use sporran_training::{Gradients, Objective, Pick, TrainingOptions};
use sporran_transformers::EncoderRow;

use super::{
    encoding::EncodedQuestion,
    model::{QuestionModel, chosen},
};
use crate::Result;

/// A training example.
#[derive(Clone, Debug)]
pub struct QuestionExample {
    /// The question with its document.
    pub input: EncodedQuestion,
    /// All gold answers in the knowledge base.
    pub answers: Vec<u32>,
}

/// The cross-entropy between a model's probabilities and a uniform distribution over the gold answers, or the squared error of a
/// TransferNet with [`Edges::Sum`](super::Edges::Sum).
pub struct QuestionObjective<'a> {
    model: &'a QuestionModel,
    examples: Arc<Vec<QuestionExample>>,
    tokens_per_batch: usize,
    seed: u64,
}

impl<'a> QuestionObjective<'a> {
    /// An objective over `examples`. Those without answers, or without the topic entity that the model needs, are dropped.
    pub fn new(model: &'a QuestionModel, examples: Vec<QuestionExample>, options: &TrainingOptions) -> Self {
        let is_learned =
            |example: &QuestionExample| !example.answers.is_empty() && !model.lacks_topic(&example.input);
        let examples = examples.into_iter().filter(is_learned).collect();
        Self {
            model,
            examples: Arc::new(examples),
            tokens_per_batch: options.tokens_per_batch,
            seed: options.seed,
        }
    }

    fn loss(&self, states: &Tensor, examples: &[usize], weight: f64) -> Result<Tensor> {
        let inputs: Vec<&EncodedQuestion> = examples.iter().map(|&at| &self.examples[at].input).collect();
        let found = self.model.forward(states, &inputs)?;
        if self.model.is_squared() {
            let answers: Vec<&[u32]> = examples.iter().map(|&at| &self.examples[at].answers[..]).collect();
            return Ok((squared_error(&found.likely, &answers)?.sum_all()? / weight)?);
        }
        let entities = self.model.entity_count();
        let mut places = Vec::new();
        let mut shares = Vec::new();
        for (row, &at) in examples.iter().enumerate() {
            let answers = &self.examples[at].answers;
            for &answer in answers {
                places.push((row * entities) as u32 + answer);
                shares.push(1.0 / answers.len() as f32);
            }
        }
        let count = shares.len();
        let gold = found.likely.flatten_all()?.index_select(&Tensor::new(places, states.device())?, 0)?;
        let shares = Tensor::from_vec(shares, count, states.device())?;
        Ok(((((gold + 1e-6)?.log()? * shares)?.sum_all()?.neg()?) / weight)?)
    }
}

/// The weight of an answer in the squared error; other entities count once.
const ANSWER_WEIGHT: f32 = 100.0;

/// The weighted mean (inputs) of the squared errors of scores (inputs, entities), which are 1 for answers and 0 for others. An
/// answer counts a hundredfold. Entities of score 0, which no step reaches, count only if they are answers. This is the loss
/// of the TransferNet of KoRC's authors.
fn squared_error(scores: &Tensor, answers: &[&[u32]]) -> Result<Tensor> {
    let (inputs, entities) = scores.dims2()?;
    let device = scores.device();
    let (mut places, mut rows) = (Vec::new(), Vec::new());
    for (row, answers) in answers.iter().enumerate() {
        for &answer in *answers {
            places.push((row * entities) as u32 + answer);
            rows.push(row as u32);
        }
    }
    let gold = scores.flatten_all()?.index_select(&Tensor::new(places, device)?, 0)?;
    let mut whole: Vec<f32> = scores.detach().gt(0f32)?.to_dtype(DType::F32)?.sum(1)?.to_vec1()?;
    for (&row, score) in rows.iter().zip(gold.detach().to_vec1::<f32>()?) {
        whole[row as usize] += ANSWER_WEIGHT - f32::from(u8::from(score > 0.0));
    }
    // All entities count as others first.
    let more = (((&gold - 1.0)?.sqr()? * f64::from(ANSWER_WEIGHT))? - gold.sqr()?)?;
    let errors = scores.sqr()?.sum(1)?.index_add(&Tensor::new(rows, device)?, &more, 0)?;
    Ok((errors / Tensor::from_vec(whole, inputs, device)?)?)
}

impl Objective for QuestionObjective<'_> {
    type Batch = Vec<usize>;

    fn check(&self, options: &TrainingOptions) -> sporran_checkpoint::Result<()> {
        if options.label_smoothing != 0.0 {
            return Err(ModelError::Options {
                option: "label-smoothing",
                expected: "0 for the training of question models".into(),
                found: options.label_smoothing.to_string(),
            });
        }
        Ok(())
    }

    fn epoch(&self, number: u64) -> sporran_checkpoint::Result<Vec<Vec<usize>>> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(number);
        let mut order: Vec<usize> = (0..self.examples.len()).collect();
        order.shuffle(&mut rng);
        let mut batches: Vec<Vec<usize>> = Vec::new();
        let mut tokens = 0;
        for at in order {
            let more = self.examples[at].input.row.ids.len();
            match batches.last_mut() {
                Some(batch) if tokens + more <= self.tokens_per_batch => batch.push(at),
                _ => {
                    batches.push(vec![at]);
                    tokens = 0;
                }
            }
            tokens += more;
        }
        Ok(batches)
    }

    fn weight(&self, batch: &Vec<usize>) -> f64 {
        batch.len() as f64
    }

    fn tokens(&self, batch: &Vec<usize>) -> usize {
        batch.iter().map(|&at| self.examples[at].input.row.ids.len()).sum()
    }

    fn learn(
        &self,
        batch: &Vec<usize>,
        weight: f64,
        seed: u64,
        gradients: &mut Gradients,
    ) -> sporran_checkpoint::Result<f64> {
        let rows: Vec<&EncoderRow> = batch.iter().map(|&at| &self.examples[at].input.row).collect();
        self.model.encoder().learn(&rows, Pick::All, seed, gradients, |states, _| {
            self.loss(states, batch, weight)
                .map_err(|error| ModelError::Callback { what: "the head", source: error.into() })
        })
    }
}

/// Of the given thresholds, the one with the best mean P-F1, and that P-F1. Ties go to the higher threshold.
///
/// `gold` are the answers' labels. `label` maps entities to labels.
pub fn tune<'l>(
    likely: &[Vec<(u32, f32)>],
    gold: &[&[String]],
    most: usize,
    label: impl Fn(u32) -> &'l str,
) -> (f32, f64) {
    let score = |threshold: f32| {
        let total: f64 = likely
            .iter()
            .zip(gold)
            .map(|(likely, gold)| {
                let answers: Vec<&str> =
                    chosen(likely, threshold, most).iter().map(|&(entity, _)| label(entity)).collect();
                answer_set::score(&answers, gold, answer_set::words).p_f1
            })
            .sum();
        total / likely.len().max(1) as f64
    };
    let mut best = (1.0, score(1.0));
    for step in (1..20).rev() {
        let threshold = step as f32 / 20.0;
        let found = score(threshold);
        if found > best.1 {
            best = (threshold, found);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn an_answer_counts_a_hundredfold_and_an_unreached_entity_only_as_an_answer() {
        let scores = Tensor::new(&[[0.5f32, 0.2, 0.0, 0.0], [0.0, 0.0, 0.9, 0.3]], &Device::Cpu).unwrap();
        let found: Vec<f32> = squared_error(&scores, &[&[0], &[1, 2]]).unwrap().to_vec1().unwrap();
        // Answer 0 of score 0.5, another of 0.2; then answers of 0 and 0.9, another of 0.3.
        let expected = [(100.0 * 0.25 + 0.04) / 101.0, (100.0 + 100.0 * 0.01 + 0.09) / 201.0];
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected as f32).abs() < 1e-5, "{found} {expected}");
        }
    }
}
