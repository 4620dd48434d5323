//! Retrieval-augmented generation learned end to end (Lewis et al. 2020, section 2.4): the negative log-likelihood of an
//! answer with the retrieved passage marginalised over, whose probability is the softmax of the inner products of the
//! question's vector with those of the passages. Vectors of passages stay as they are; the question's encoder learns
//! through the generator.

use candle_core::{Tensor, Var};
use sporran_checkpoint::{Error, Result};
use sporran_transformers::{
    BertTask, Checkpoint, EncodedTexts, EncoderRow, Head, Mode, ModelConfig, Pooling, Trainable,
};

use crate::{
    data::{shifted, shuffled_batches},
    gradients::Gradients,
    loss::cross_entropies,
    objective::Objective,
    options::TrainingOptions,
    pooling::pool_states,
    tuned::{Pick, TunedEncoder},
    variables::Variables,
};

/// The unit that is marginalised over passages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RagLoss {
    /// Whole sequences: `-log sum_z p(z|x) prod_i p(y_i|x,z,y_<i)`.
    Sequence,
    /// Every token: `-sum_i log sum_z p(z|x) p(y_i|x,z,y_<i)`.
    Token,
}

/// A question and its answer, as tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct RagQuestion {
    /// The input of the encoder of questions.
    pub question: EncoderRow,
    /// Decoder tokens, without the start token.
    pub target: Vec<u32>,
}

/// A passage that was found for a question.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundPassage {
    /// Its vector.
    pub vector: Vec<f32>,
    /// The input with the passage, as the generator reads it.
    pub text: Vec<u32>,
}

/// Finds passages: for the questions of these numbers, with these vectors, at least one each.
pub type FindPassages<'a> = &'a (dyn Fn(&[usize], &[Vec<f32>]) -> Result<Vec<Vec<FoundPassage>>> + Sync);

/// The models of a retrieval-augmented generator.
#[derive(Clone, Copy)]
pub struct RagModels<'a> {
    /// Makes vectors of questions.
    pub encoder: &'a TunedEncoder,
    /// The pooling of an encoder without a head: `cls` or `mean`.
    pub pooling: Pooling,
    /// Whether it learns.
    pub encoder_learns: bool,
    /// Reads passages.
    pub generator: &'a dyn Trainable,
    /// The variables of the generator.
    pub variables: &'a Variables,
}

/// The prefixes of the names of both models' variables.
pub const RAG_PREFIXES: [&str; 2] = ["generator.", "question_encoder."];

impl RagModels<'_> {
    /// All that is trained, under [`RAG_PREFIXES`]; the order is that of gradients: the generator's, then the encoder's.
    #[must_use]
    pub fn trained(&self) -> Variables {
        let [generator, encoder] = RAG_PREFIXES;
        if self.encoder_learns {
            Variables::joined(&[(generator, self.variables), (encoder, self.encoder.variables())])
        } else {
            Variables::joined(&[(generator, self.variables)])
        }
    }

    fn pick(&self) -> Pick<'static> {
        if matches!(self.encoder.head(), Head::Vector(_)) {
            Pick::First
        } else {
            Pick::of_pooling(self.pooling)
        }
    }

    /// The vectors (rows, d) of picked states.
    fn of_states(&self, states: &Tensor, lengths: &[usize]) -> Result<Tensor> {
        match self.encoder.head() {
            Head::Vector(head) => head.forward(&states.unsqueeze(1)?),
            _ => pool_states(self.pooling, states, lengths),
        }
    }

    /// The vectors of questions with the current weights, in batches of at most `tokens` tokens.
    ///
    /// # Errors
    /// Those of [`TunedEncoder::states`].
    pub fn vectors(&self, questions: &[&EncoderRow], tokens: usize) -> Result<Vec<Vec<f32>>> {
        let lengths: Vec<usize> = questions.iter().map(|row| row.ids.len()).collect();
        let mut found = vec![Vec::new(); questions.len()];
        for batch in sporran_transformers::length_batches(&lengths, usize::MAX, tokens) {
            let members: Vec<&EncoderRow> = batch.iter().map(|&at| questions[at]).collect();
            let lengths: Vec<usize> = members.iter().map(|row| row.ids.len()).collect();
            let states = self.encoder.states(&members, self.pick())?;
            let vectors = self.of_states(&states, &lengths)?.to_vec2::<f32>()?;
            for (at, vector) in batch.into_iter().zip(vectors) {
                found[at] = vector;
            }
        }
        Ok(found)
    }
}

/// The loss of RAG, per token of the answers.
///
/// Each batch retrieves its passages with the current question encoder, as in the paper.
pub struct RagObjective<'a> {
    models: RagModels<'a>,
    /// The generator's, in the order of the gradients.
    variables: Vec<Var>,
    questions: &'a [RagQuestion],
    find: FindPassages<'a>,
    loss: RagLoss,
    options: &'a TrainingOptions,
    /// About as many tokens as the texts of a question have.
    tokens_each: usize,
}

impl<'a> RagObjective<'a> {
    /// Trains on `questions` with the passages that `find` returns. A question's texts have about `tokens_each` tokens.
    ///
    /// # Errors
    /// [`Error::Options`] for a pooling that is not learned.
    pub fn new(
        models: RagModels<'a>,
        questions: &'a [RagQuestion],
        find: FindPassages<'a>,
        loss: RagLoss,
        options: &'a TrainingOptions,
        tokens_each: usize,
    ) -> Result<Self> {
        if !matches!(models.pooling, Pooling::Cls | Pooling::Mean) {
            return Err(Error::Options {
                option: "pooling",
                expected: "`cls` or `mean`".into(),
                found: models.pooling.to_string(),
            });
        }
        let variables = models.variables.all().into_iter().map(|(_, var)| var).collect();
        Ok(Self { models, variables, questions, find, loss, options, tokens_each })
    }

    /// The summed negative log-likelihood of the answers of a batch, with the questions' vectors (questions, d).
    fn loss(&self, batch: &[usize], vectors: &Tensor, mode: &mut Mode) -> Result<Tensor> {
        let (device, generator) = (vectors.device(), self.models.generator);
        let found = (self.find)(batch, &vectors.to_vec2::<f32>()?)?;
        if found.len() != batch.len() || found.iter().any(Vec::is_empty) {
            let counts: Vec<usize> = found.iter().map(Vec::len).collect();
            let expected = format!("passages for each of {} questions", batch.len());
            return Err(Error::Batch { expected, found: format!("{counts:?} passages") });
        }
        let (mut asked, mut keys, mut members) = (Vec::new(), Vec::new(), Vec::new());
        for (at, (question, found)) in batch.iter().zip(&found).enumerate() {
            for passage in found {
                asked.push(at as u32);
                keys.extend_from_slice(&passage.vector);
            }
            let texts = found.iter().map(|passage| passage.text.as_slice()).collect();
            members.push(Member { texts, target: &self.questions[*question].target });
        }
        let (_, width) = vectors.dims2()?;
        let keys = Tensor::from_vec(keys, (asked.len(), width), device)?;
        let asked = vectors.index_select(&Tensor::new(asked, device)?, 0)?;
        marginal_loss(generator, self.loss, &members, &(asked * keys)?.sum(1)?, mode)
    }
}

/// A question of a batch: its texts with one passage each, and its answer.
struct Member<'a> {
    texts: Vec<&'a [u32]>,
    target: &'a [u32],
}

/// The summed negative log-likelihood of the answers of a batch. `scores` are those of all texts, one after the other; a
/// question's passages have the softmax of its scores as probabilities.
fn marginal_loss(
    generator: &dyn Trainable,
    loss: RagLoss,
    members: &[Member<'_>],
    scores: &Tensor,
    mode: &mut Mode,
) -> Result<Tensor> {
    let texts: Vec<&[u32]> = members.iter().flat_map(|member| member.texts.iter().copied()).collect();
    let targets: Vec<&[u32]> =
        members.iter().flat_map(|member| member.texts.iter().map(|_| member.target)).collect();
    let encoded = EncodedTexts::encode(generator, &texts, mode)?;
    let memory = encoded.fuse(&(0..texts.len()).map(|at| vec![at]).collect::<Vec<_>>())?;
    let special = generator.special_tokens();
    let (decoder, labels) = shifted(&targets, special.pad, special.decoder_start, generator.device())?;
    let logits = generator.decode_in(&decoder.ids, &decoder.mask, &memory, mode)?;
    // The log-probabilities of the answers' tokens, 0 after their ends.
    let tokens = cross_entropies(&logits, &labels, 0.0)?.neg()?;
    let tokens = tokens.reshape((texts.len(), decoder.length()))?;

    let mut first = 0;
    let mut likelihoods = Vec::with_capacity(members.len());
    for member in members {
        let count = member.texts.len();
        let scores = scores.narrow(0, first, count)?;
        let priors = scores.broadcast_sub(&scores.log_sum_exp(0)?)?;
        let tokens = tokens.narrow(0, first, count)?.narrow(1, 0, member.target.len())?;
        likelihoods.push(match loss {
            RagLoss::Sequence => (tokens.sum(1)? + priors)?.log_sum_exp(0)?,
            RagLoss::Token => tokens.broadcast_add(&priors.unsqueeze(1)?)?.log_sum_exp(0)?.sum_all()?,
        });
        first += count;
    }
    Ok(Tensor::stack(&likelihoods, 0)?.sum_all()?.neg()?)
}

impl Objective for RagObjective<'_> {
    /// The numbers of questions.
    type Batch = Vec<usize>;

    fn check(&self, options: &TrainingOptions) -> Result<()> {
        options.refuse_smoothing("passages are marginalised over")
    }

    fn epoch(&self, number: u64) -> Result<Vec<Vec<usize>>> {
        let lengths = vec![self.tokens_each; self.questions.len()];
        Ok(shuffled_batches(&lengths, self.options.tokens_per_batch, self.options.seed, number))
    }

    fn weight(&self, batch: &Vec<usize>) -> f64 {
        batch.iter().map(|&at| self.questions[at].target.len()).sum::<usize>() as f64
    }

    fn tokens(&self, batch: &Vec<usize>) -> usize {
        let own = |at: &usize| self.questions[*at].question.ids.len() + self.questions[*at].target.len();
        batch.iter().map(own).sum::<usize>() + batch.len() * self.tokens_each
    }

    fn learn(&self, batch: &Vec<usize>, weight: f64, seed: u64, gradients: &mut Gradients) -> Result<f64> {
        let rows: Vec<&EncoderRow> = batch.iter().map(|&at| &self.questions[at].question).collect();
        let lengths: Vec<usize> = rows.iter().map(|row| row.ids.len()).collect();
        let RagModels { encoder, encoder_learns, .. } = self.models;
        let pick = self.models.pick();
        if !encoder_learns {
            let vectors = self.models.of_states(&encoder.states(&rows, pick)?, &lengths)?.detach();
            let loss = (self.loss(batch, &vectors, &mut Mode::training(seed))? / weight)?;
            gradients.add_backward(&loss, &self.variables)?;
            return Ok(f64::from(loss.to_scalar::<f32>()?));
        }
        let mut of_encoder = gradients.split_off(self.variables.len());
        let others = (self.variables.as_slice(), &mut *gradients);
        let loss = encoder.learn_with(&rows, pick, seed, &mut of_encoder, others, |states, mode| {
            let vectors = self.models.of_states(states, &lengths)?;
            Ok((self.loss(batch, &vectors, mode)? / weight)?)
        });
        gradients.append(of_encoder);
        loss
    }
}

/// A question with the texts of its passages, as tokens, and the scores of a retriever that does not learn.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredQuestion {
    /// The input with one passage each, and the passage's score. At least one.
    pub texts: Vec<(Vec<u32>, f32)>,
    /// Decoder tokens, without the start token. At least one.
    pub target: Vec<u32>,
}

impl ScoredQuestion {
    /// The tokens of all texts, each with the answer.
    fn tokens(&self) -> usize {
        self.texts.iter().map(|(text, _)| text.len() + self.target.len()).sum()
    }
}

/// The loss of RAG, per token of the answers, for a retriever that does not learn: the passages of a question and their scores
/// are given. Only the generator is trained.
pub struct ScoredRagObjective<'a> {
    generator: &'a dyn Trainable,
    variables: Vec<Var>,
    questions: &'a [ScoredQuestion],
    loss: RagLoss,
    options: &'a TrainingOptions,
}

impl<'a> ScoredRagObjective<'a> {
    /// Trains the generator with these variables on `questions`.
    ///
    /// # Errors
    /// [`Error::Batch`] for a question without a text or without a token of an answer.
    pub fn new(
        generator: &'a dyn Trainable,
        variables: &Variables,
        questions: &'a [ScoredQuestion],
        loss: RagLoss,
        options: &'a TrainingOptions,
    ) -> Result<Self> {
        let is_empty = |question: &ScoredQuestion| question.texts.is_empty() || question.target.is_empty();
        if let Some(at) = questions.iter().position(is_empty) {
            let expected = "questions with at least one text and one token of an answer".into();
            return Err(Error::Batch { expected, found: format!("question {at} without") });
        }
        let variables = variables.all().into_iter().map(|(_, var)| var).collect();
        Ok(Self { generator, variables, questions, loss, options })
    }
}

impl Objective for ScoredRagObjective<'_> {
    /// The numbers of questions.
    type Batch = Vec<usize>;

    fn check(&self, options: &TrainingOptions) -> Result<()> {
        options.refuse_smoothing("passages are marginalised over")
    }

    fn epoch(&self, number: u64) -> Result<Vec<Vec<usize>>> {
        let lengths: Vec<usize> = self.questions.iter().map(ScoredQuestion::tokens).collect();
        Ok(shuffled_batches(&lengths, self.options.tokens_per_batch, self.options.seed, number))
    }

    fn weight(&self, batch: &Vec<usize>) -> f64 {
        batch.iter().map(|&at| self.questions[at].target.len()).sum::<usize>() as f64
    }

    fn tokens(&self, batch: &Vec<usize>) -> usize {
        batch.iter().map(|&at| self.questions[at].tokens()).sum()
    }

    fn learn(&self, batch: &Vec<usize>, weight: f64, seed: u64, gradients: &mut Gradients) -> Result<f64> {
        let questions = batch.iter().map(|&at| &self.questions[at]);
        let members: Vec<Member<'_>> = questions
            .clone()
            .map(|question| Member {
                texts: question.texts.iter().map(|(text, _)| text.as_slice()).collect(),
                target: &question.target,
            })
            .collect();
        let scores: Vec<f32> =
            questions.flat_map(|question| question.texts.iter().map(|text| text.1)).collect();
        let scores = Tensor::new(scores, self.generator.device())?;
        let loss = marginal_loss(self.generator, self.loss, &members, &scores, &mut Mode::training(seed))?;
        let loss = (loss / weight)?;
        gradients.add_backward(&loss, &self.variables)?;
        Ok(f64::from(loss.to_scalar::<f32>()?))
    }
}

impl TunedEncoder {
    /// The encoder of a folder whose vectors are to be tuned: DPR's encoder of questions with its head, or another encoder
    /// without one.
    ///
    /// # Errors
    /// Those of [`Checkpoint`], and [`Error::Architecture`] where the folder is another model's.
    pub fn open_questions(checkpoint: &Checkpoint, seed: u64, device: &candle_core::Device) -> Result<Self> {
        match checkpoint.config() {
            ModelConfig::Bert(config) if config.task == BertTask::Question => {
                let mut config = config.clone();
                let tensors = checkpoint.stored().tensors_for(&mut config)?;
                Self::new(&config, Variables::with_initial(seed, tensors), device)
            }
            _ => Self::open(checkpoint, BertTask::States, 2, seed, device),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::{
        Training,
        seq2seq::tests::{assert_gradients, build},
        train,
        tuned::tests::{rows, tiny_for},
    };
    use sporran_transformers::{T5, decode::log_probabilities, encode_separately, fuse};

    const WIDTH: usize = 24;

    /// The vector of passage `at`, of which there are six.
    fn vector(at: usize) -> Vec<f32> {
        (0..WIDTH).map(|i| ((at * 31 + i * 7) as f32 * 0.9).sin() * 0.3).collect()
    }

    fn text(question: usize, at: usize) -> Vec<u32> {
        let token = |i: usize| 5 + ((question * 13 + at * 7 + i * 11) % 33) as u32;
        (0..2 + at % 3).map(token).chain([1]).collect()
    }

    /// The three passages that are nearest to each vector.
    fn nearest(batch: &[usize], vectors: &[Vec<f32>]) -> Result<Vec<Vec<FoundPassage>>> {
        let of = |(question, asked): (&usize, &Vec<f32>)| {
            let score = |at: &usize| asked.iter().zip(vector(*at)).map(|(a, b)| a * b).sum::<f32>();
            let mut order: Vec<usize> = (0..6).collect();
            order.sort_by(|a, b| score(b).total_cmp(&score(a)));
            order.truncate(3);
            order
                .into_iter()
                .map(|at| FoundPassage { vector: vector(at), text: text(*question, at) })
                .collect()
        };
        Ok(batch.iter().zip(vectors).map(of).collect())
    }

    /// All passages for any vectors, so that the loss is differentiable everywhere.
    fn all(batch: &[usize], _: &[Vec<f32>]) -> Result<Vec<Vec<FoundPassage>>> {
        let of = |question: &usize| {
            (0..6).map(|at| FoundPassage { vector: vector(at), text: text(*question, at) }).collect()
        };
        Ok(batch.iter().map(of).collect())
    }

    fn questions() -> Vec<RagQuestion> {
        let target =
            |at: usize| (0..1 + at % 3).map(|i| 5 + ((at * 5 + i * 3) % 33) as u32).chain([1]).collect();
        rows(4, 1)
            .into_iter()
            .enumerate()
            .map(|(at, question)| RagQuestion { question, target: target(at) })
            .collect()
    }

    fn models<'a>(encoder: &'a TunedEncoder, model: &'a T5, variables: &'a Variables) -> RagModels<'a> {
        RagModels { encoder, pooling: Pooling::Mean, encoder_learns: true, generator: model, variables }
    }

    /// The loss by its definition, in f64, by way of inference.
    fn expected(models: &RagModels<'_>, loss: RagLoss, questions: &[RagQuestion]) -> f64 {
        let rows: Vec<&EncoderRow> = questions.iter().map(|question| &question.question).collect();
        let vectors = models.vectors(&rows, 1000).unwrap();
        let log_sum = |values: &[f64]| values.iter().map(|value| value.exp()).sum::<f64>().ln();
        let (mut sum, mut tokens) = (0.0, 0);
        for (at, (question, asked)) in questions.iter().zip(&vectors).enumerate() {
            let found = nearest(&[at], std::slice::from_ref(asked)).unwrap().remove(0);
            let dot = |passage: &FoundPassage| -> f64 {
                asked.iter().zip(&passage.vector).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            let scores: Vec<f64> = found.iter().map(dot).collect();
            let texts: Vec<&Vec<u32>> = found.iter().map(|passage| &passage.text).collect();
            let states = encode_separately(models.generator, &texts, 1).unwrap();
            let each: Vec<Vec<f64>> = states
                .iter()
                .zip(&scores)
                .map(|(states, score)| {
                    let memory = fuse(&[std::slice::from_ref(states)]).unwrap();
                    let target = question.target.clone();
                    let found = log_probabilities(models.generator, &memory, &[target]).unwrap();
                    let prior = score - log_sum(&scores);
                    std::iter::once(prior).chain(found[0][0].iter().map(|value| f64::from(*value))).collect()
                })
                .collect();
            sum -= match loss {
                RagLoss::Sequence => log_sum(&each.iter().map(|row| row.iter().sum()).collect::<Vec<_>>()),
                RagLoss::Token => (1..=question.target.len())
                    .map(|i| log_sum(&each.iter().map(|row| row[0] + row[i]).collect::<Vec<_>>()))
                    .sum(),
            };
            tokens += question.target.len();
        }
        sum / tokens as f64
    }

    #[test]
    fn the_losses_are_the_papers() {
        let (encoder, (model, variables)) = (tiny_for(BertTask::States, 2, 0.0), build(0.0));
        for task in [BertTask::States, BertTask::Question] {
            let encoder = if task == BertTask::States { &encoder } else { &tiny_for(task, 2, 0.0) };
            let (models, questions) = (models(encoder, &model, &variables), questions());
            for loss in [RagLoss::Sequence, RagLoss::Token] {
                let options = TrainingOptions::default();
                let objective = RagObjective::new(models, &questions, &nearest, loss, &options, 20).unwrap();
                let trained = models.trained();
                let mut gradients =
                    trained.all().iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect();
                let batch = vec![0, 1, 2, 3];
                let found = objective.learn(&batch, objective.weight(&batch), 5, &mut gradients).unwrap();
                let expected = expected(&models, loss, &questions);
                assert!((found - expected).abs() < 1e-4, "{loss:?}: {found} {expected}");
            }
        }
    }

    #[test]
    fn given_scores_weigh_the_answers_of_each_passage() {
        let (model, variables) = build(0.0);
        // Scores of ln 3, 0 and ln 4 are probabilities of 3/8, 1/8 and 4/8.
        let texts = [(vec![6, 9, 1], 3f32.ln()), (vec![12, 1], 0.0), (vec![7, 30, 8, 1], 4f32.ln())];
        let question = ScoredQuestion { texts: texts.to_vec(), target: vec![11, 20, 1] };
        let probabilities = [0.375, 0.125, 0.5];
        // p(token | passage), by inference.
        let each: Vec<Vec<f64>> = texts
            .iter()
            .map(|(text, _)| {
                let states = encode_separately(&model, &[text], 1).unwrap();
                let memory = fuse(&[&states[..]]).unwrap();
                let found =
                    log_probabilities(&model, &memory, std::slice::from_ref(&question.target)).unwrap();
                found[0][0].iter().map(|value| f64::from(*value).exp()).collect()
            })
            .collect();
        let sequence: f64 =
            each.iter().zip(probabilities).map(|(row, prior)| prior * row.iter().product::<f64>()).sum();
        let token: f64 = (0..3)
            .map(|at| each.iter().zip(probabilities).map(|(row, prior)| prior * row[at]).sum::<f64>())
            .product();
        let options = TrainingOptions::default();
        for (loss, expected) in [(RagLoss::Sequence, sequence), (RagLoss::Token, token)] {
            let questions = [question.clone()];
            let objective = ScoredRagObjective::new(&model, &variables, &questions, loss, &options).unwrap();
            assert_eq!(objective.weight(&vec![0]), 3.0);
            // Three texts of 3, 2 and 4 tokens, each with the answer of 3.
            assert_eq!(objective.tokens(&vec![0]), 18);
            let mut gradients: Gradients =
                variables.all().iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect();
            let found = objective.learn(&vec![0], 3.0, 5, &mut gradients).unwrap();
            let expected = -expected.ln() / 3.0;
            assert!((found - expected).abs() < 1e-4, "{loss:?}: {found} {expected}");
        }
        let none = [ScoredQuestion { texts: Vec::new(), target: vec![1] }];
        assert!(ScoredRagObjective::new(&model, &variables, &none, RagLoss::Token, &options).is_err());
    }

    #[test]
    fn gradients_of_both_models_equal_numerical_ones() {
        let (encoder, (model, variables)) = (tiny_for(BertTask::States, 2, 0.0), build(0.0));
        let (models, questions) = (models(&encoder, &model, &variables), questions());
        for loss in [RagLoss::Sequence, RagLoss::Token] {
            let options = TrainingOptions::default();
            let objective = RagObjective::new(models, &questions, &all, loss, &options, 20).unwrap();
            let trained = models.trained();
            assert!(trained.all().iter().any(|(name, _)| name.starts_with("question_encoder.")));
            assert_gradients(&trained, |gradients| {
                objective.learn(&vec![0, 1, 2, 3], 4.0, 5, gradients).unwrap()
            });
        }
    }

    #[test]
    fn an_encoder_that_does_not_learn_leaves_the_loss_and_the_generators_gradients_as_they_are() {
        let (encoder, (model, variables)) = (tiny_for(BertTask::States, 2, 0.0), build(0.0));
        let (learns, questions) = (models(&encoder, &model, &variables), questions());
        let options = TrainingOptions::default();
        let gradients = |models: RagModels<'_>| {
            let objective =
                RagObjective::new(models, &questions, &nearest, RagLoss::Token, &options, 20).unwrap();
            let mut gradients: Gradients =
                models.trained().all().iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect();
            let loss = objective.learn(&vec![0, 1], 3.0, 5, &mut gradients).unwrap();
            (loss, gradients)
        };
        let (loss, both) = gradients(learns);
        let (same, one) = gradients(RagModels { encoder_learns: false, ..learns });
        assert_eq!(loss, same);
        assert!(one.len() < both.len() && one[..] == both[..one.len()]);
    }

    #[test]
    fn a_training_that_was_stopped_goes_on_as_if_it_had_not_been() {
        let run = |folder: &std::path::Path, stop: u64| {
            let (encoder, (model, variables)) = (tiny_for(BertTask::States, 2, 0.1), build(0.1));
            let (models, questions) = (models(&encoder, &model, &variables), questions());
            let options = TrainingOptions {
                steps: 6,
                warmup_steps: Some(1),
                learning_rate: 1e-2,
                tokens_per_batch: 40,
                ..TrainingOptions::default()
            };
            let objective =
                RagObjective::new(models, &questions, &nearest, RagLoss::Token, &options, 20).unwrap();
            let trained = models.trained();
            let training = Training {
                objective: &objective,
                variables: &trained,
                options: &options,
                evaluate: None,
                folder,
                extra_files: &[],
            };
            train(&training, &mut |progress| {
                if progress.step == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
            let values = |var: Var| var.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            trained.all().into_iter().map(|(_, var)| values(var)).collect::<Vec<_>>()
        };
        let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let expected = run(whole.path(), 0);
        assert_ne!(run(parts.path(), 3), expected);
        assert_eq!(run(parts.path(), 0), expected);
    }

    #[test]
    fn questions_without_passages_and_smoothed_labels_are_refused() {
        let (encoder, (model, variables)) = (tiny_for(BertTask::States, 2, 0.0), build(0.0));
        let (models, questions) = (models(&encoder, &model, &variables), questions());
        let none = |batch: &[usize], _: &[Vec<f32>]| Ok(vec![Vec::new(); batch.len()]);
        let options = TrainingOptions { label_smoothing: 0.1, ..TrainingOptions::default() };
        let objective = RagObjective::new(models, &questions, &none, RagLoss::Token, &options, 20).unwrap();
        assert!(objective.check(&options).unwrap_err().to_string().contains("label-smoothing"));
        let mut gradients: Gradients =
            models.trained().all().iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect();
        let found = objective.learn(&vec![0], 1.0, 5, &mut gradients).unwrap_err().to_string();
        assert!(found.contains("passages for each of 1 questions"), "{found}");
    }
}
