//! Training of question models: the cross-entropy with the gold answers.

use std::sync::Arc;

use candle_core::{DType, Tensor};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_checkpoint::Error as ModelError;
use sporran_kilt::scores::answer_set;
use sporran_training::{Gradients, Objective, Pick, TrainingOptions};
use sporran_transformers::{EncoderRow, Mode};

use super::{
    encoding::EncodedQuestion,
    model::{QuestionModel, chosen},
    options::ObjectiveOptions,
    transfer::POOLER,
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
    /// The factor of the learning rate of the layers over the encoder.
    head_rate: f64,
    options: ObjectiveOptions,
    seed: u64,
}

impl<'a> QuestionObjective<'a> {
    /// An objective over `examples`. Those without answers, or without the topic entity that the model needs, are dropped.
    pub fn new(
        model: &'a QuestionModel,
        examples: Vec<QuestionExample>,
        optimizer: &TrainingOptions,
        options: ObjectiveOptions,
    ) -> Self {
        let is_learned =
            |example: &QuestionExample| !example.answers.is_empty() && !model.lacks_topic(&example.input);
        let examples = examples.into_iter().filter(is_learned).collect();
        Self {
            model,
            examples: Arc::new(examples),
            tokens_per_batch: optimizer.tokens_per_batch,
            head_rate: options.head_learning_rate.map_or(1.0, |rate| rate / optimizer.learning_rate),
            options,
            seed: optimizer.seed,
        }
    }

    fn loss(&self, states: &Tensor, examples: &[usize], weight: f64, mode: &Mode) -> Result<Tensor> {
        let loss = self.answer_loss(states, examples, weight, mode)?;
        let penalty = self.options.norm_penalty;
        match self.model.trained_entities() {
            Some(vectors) if penalty > 0.0 => Ok((loss + (cubic_norms(vectors)? * (penalty / weight))?)?),
            _ => Ok(loss),
        }
    }

    /// The loss of the answers alone.
    fn answer_loss(&self, states: &Tensor, examples: &[usize], weight: f64, mode: &Mode) -> Result<Tensor> {
        let inputs: Vec<&EncodedQuestion> = examples.iter().map(|&at| &self.examples[at].input).collect();
        let found = self.model.forward(states, &inputs, mode.is_training())?;
        let answers: Vec<&[u32]> = examples.iter().map(|&at| &self.examples[at].answers[..]).collect();
        if self.model.is_squared() {
            return Ok((squared_error(&found.likely, &answers)?.sum_all()? / weight)?);
        }
        if let Some(logits) = found.logits.filter(|_| self.options.smoothing > 0.0) {
            return Ok((smoothed(&logits, &answers, self.options.smoothing)? / weight)?);
        }
        let entities = self.model.entity_count();
        let mut places = Vec::new();
        let mut shares = Vec::new();
        for (row, answers) in answers.iter().enumerate() {
            for &answer in *answers {
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

/// The summed cross-entropy of logits (inputs, entities) with smoothed answers. An answer among n entities weighs 1 - s + 1/n
/// and another entity 1/n, each divided by the sum of all weights. This is the loss of the EmbedKGQA of KoRC's authors.
fn smoothed(logits: &Tensor, answers: &[&[u32]], smoothing: f64) -> Result<Tensor> {
    let (inputs, entities) = logits.dims2()?;
    let device = logits.device();
    let logs = candle_nn::ops::log_softmax(logits, 1)?;
    let (mut places, mut shares, mut others) = (Vec::new(), Vec::new(), Vec::with_capacity(inputs));
    for (row, answers) in answers.iter().enumerate() {
        let whole = (1.0 - smoothing) * answers.len() as f64 + 1.0;
        for &answer in *answers {
            places.push((row * entities) as u32 + answer);
            shares.push(((1.0 - smoothing) / whole) as f32);
        }
        others.push((1.0 / (whole * entities as f64)) as f32);
    }
    let count = shares.len();
    let gold = logs.flatten_all()?.index_select(&Tensor::new(places, device)?, 0)?;
    let gold = (gold * Tensor::from_vec(shares, count, device)?)?.sum_all()?;
    let others = (logs.sum(1)? * Tensor::from_vec(others, inputs, device)?)?.sum_all()?;
    Ok((gold + others)?.neg()?)
}

/// The sum of the cubic norms of vectors (entities, k).
fn cubic_norms(vectors: &Tensor) -> Result<Tensor> {
    let cubes = (vectors.sqr()? * vectors.abs()?)?.sum(1)?;
    // The norm of a zero vector has no gradient; with the addend it is 0.
    Ok((cubes + 1e-18)?.powf(1.0 / 3.0)?.sum_all()?)
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
        if self.model.kind().normalises_batches() && options.parallel_batches > 1 {
            return Err(ModelError::Options {
                option: "parallel-batches",
                expected: "1 with batch normalisation".into(),
                found: options.parallel_batches.to_string(),
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
        let most = self.options.questions_per_batch.unwrap_or(usize::MAX);
        let mut tokens = 0;
        for at in order {
            let more = self.examples[at].input.row.ids.len();
            match batches.last_mut() {
                Some(batch) if tokens + more <= self.tokens_per_batch && batch.len() < most => {
                    batch.push(at);
                }
                _ => {
                    batches.push(vec![at]);
                    tokens = 0;
                }
            }
            tokens += more;
        }
        Ok(batches)
    }

    fn rate(&self, variable: &str) -> f64 {
        // The pooler is a part of the encoder.
        let is_over = variable.starts_with("question.") && !variable.starts_with(POOLER);
        if is_over { self.head_rate } else { 1.0 }
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
        self.model.encoder().learn(&rows, Pick::All, seed, gradients, |states, mode| {
            self.loss(states, batch, weight, mode)
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
    use candle_core::{Device, Var};

    use super::*;

    #[test]
    fn smoothing_gives_every_entity_a_share() {
        let logits = Tensor::new(&[[1f32, 0.0, -1.0, 0.5], [0.0, 2.0, 0.0, 0.0]], &Device::Cpu).unwrap();
        let found = smoothed(&logits, &[&[0], &[1, 2]], 0.05).unwrap().to_scalar::<f32>().unwrap();
        let weights = [[1.2, 0.25, 0.25, 0.25], [0.25, 1.2, 1.2, 0.25]];
        let mut expected = 0.0;
        for (logits, weights) in logits.to_vec2::<f32>().unwrap().iter().zip(weights) {
            let whole = logits.iter().map(|logit| logit.exp()).sum::<f32>().ln();
            let all: f32 = weights.iter().sum();
            expected -= logits.iter().zip(weights).map(|(logit, w)| w / all * (logit - whole)).sum::<f32>();
        }
        assert!((found - expected).abs() < 1e-5, "{found} {expected}");
    }

    #[test]
    fn a_zero_vector_has_a_norm_and_a_gradient_of_zero() {
        let vectors = Var::new(&[[3f32, -4.0, 5.0], [0.0, 0.0, 0.0]], &Device::Cpu).unwrap();
        let norms = cubic_norms(&vectors).unwrap();
        assert!((norms.to_scalar::<f32>().unwrap() - 6.0).abs() < 1e-4);
        let gradients = norms.backward().unwrap();
        let found: Vec<Vec<f32>> = gradients.get(&vectors).unwrap().to_vec2().unwrap();
        // The signed square of a number over that of the norm.
        let expected = [[9.0 / 36.0, -16.0 / 36.0, 25.0 / 36.0], [0.0; 3]];
        for (found, expected) in found.iter().flatten().zip(expected.as_flattened()) {
            assert!((found - expected).abs() < 1e-4, "{found} {expected}");
        }
    }

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
