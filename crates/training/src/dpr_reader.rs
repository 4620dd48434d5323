//! Training of DPR's reader (Karpukhin et al. 2020, section 6.1): which of a question's passages holds the
//! answer, and where. The places of an answer are marginalised over.

use candle_core::{Device, Tensor};
use sporran_checkpoint::{Error, Result};
use sporran_transformers::{
    BertConfig, BertFamily, BertTask, Checkpoint, EncoderRow, Head, ModelConfig, ReaderHead,
};

use crate::{
    Variables,
    data::shuffled_batches,
    gradients::Gradients,
    objective::Objective,
    options::TrainingOptions,
    tuned::{Pick, TunedEncoder},
};

/// A question with passages: the first holds its answer, the others do not.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadQuestion {
    /// Question and passage as tokens, a row for each passage.
    pub rows: Vec<EncoderRow>,
    /// The first and the last token of each place of the answer in the first row.
    pub spans: Vec<(u32, u32)>,
}

/// The loss of DPR's reader: the negative log-likelihood of the answer's places, all of them together, and that of the
/// passage among those of its question.
pub struct ReaderObjective<'a> {
    encoder: &'a TunedEncoder,
    head: &'a ReaderHead,
    epoch: &'a (dyn Fn(u64) -> Vec<ReadQuestion> + Sync),
    options: TrainingOptions,
}

fn reader(encoder: &TunedEncoder) -> Result<&ReaderHead> {
    match encoder.head() {
        Head::Reader(head) => Ok(head),
        other => Err(Error::Training {
            what: "the reader".into(),
            expected: "DPR's reader".into(),
            found: other.name().into(),
        }),
    }
}

impl<'a> ReaderObjective<'a> {
    /// Trains on the questions that `epoch` returns for each epoch. They must depend only on the epoch's number.
    ///
    /// # Errors
    /// [`Error::Training`] where the encoder has another head.
    pub fn new(
        encoder: &'a TunedEncoder,
        epoch: &'a (dyn Fn(u64) -> Vec<ReadQuestion> + Sync),
        options: &TrainingOptions,
    ) -> Result<Self> {
        Ok(Self { encoder, head: reader(encoder)?, epoch, options: options.clone() })
    }

    fn loss(&self, states: &Tensor, batch: &[ReadQuestion]) -> Result<Tensor> {
        let device = states.device();
        let mut first = Vec::new();
        let mut end = 0u32;
        for row in batch.iter().flat_map(|question| &question.rows) {
            first.push(end);
            end += row.ids.len() as u32;
        }
        let begins = Tensor::new(first.as_slice(), device)?;
        let relevance = self.head.forward(&states.index_select(&begins, 0)?.unsqueeze(1)?)?.relevance;
        let places = self.head.forward(&states.unsqueeze(0)?)?.span;
        let (starts, ends) = (places.start.squeeze(0)?, places.end.squeeze(0)?);
        let mut row = 0;
        let mut losses = Vec::with_capacity(2 * batch.len());
        for question in batch {
            let count = question.rows.len();
            let relevance = relevance.narrow(0, row, count)?;
            losses.push((relevance.log_sum_exp(0)? - relevance.get(0)?)?);
            let (at, length) = (first[row] as usize, question.rows[0].ids.len());
            let side = |logits: &Tensor, pick: fn(&(u32, u32)) -> u32| -> Result<Tensor> {
                let logits = logits.narrow(0, at, length)?;
                let places: Vec<u32> = question.spans.iter().map(pick).collect();
                let chosen = logits.index_select(&Tensor::new(places, device)?, 0)?;
                Ok(chosen.broadcast_sub(&logits.log_sum_exp(0)?)?)
            };
            let both = (side(&starts, |span| span.0)? + side(&ends, |span| span.1)?)?;
            losses.push(both.log_sum_exp(0)?.neg()?);
            row += count;
        }
        Ok(Tensor::stack(&losses, 0)?.sum_all()?)
    }
}

impl Objective for ReaderObjective<'_> {
    type Batch = Vec<ReadQuestion>;

    fn check(&self, _: &TrainingOptions) -> Result<()> {
        Ok(())
    }

    fn epoch(&self, number: u64) -> Result<Vec<Vec<ReadQuestion>>> {
        let questions = (self.epoch)(number);
        for question in &questions {
            let length = question.rows.first().map_or(0, |row| row.ids.len()) as u32;
            let fits = |span: &(u32, u32)| span.0 <= span.1 && span.1 < length;
            if question.spans.is_empty() || !question.spans.iter().all(fits) {
                return Err(Error::Training {
                    what: "the places of an answer".into(),
                    expected: format!("at least one, within {length} tokens"),
                    found: format!("{:?}", question.spans),
                });
            }
        }
        let tokens = |question: &ReadQuestion| question.rows.iter().map(|row| row.ids.len()).sum();
        let lengths: Vec<usize> = questions.iter().map(tokens).collect();
        let batches = shuffled_batches(&lengths, self.options.tokens_per_batch, self.options.seed, number);
        Ok(batches
            .into_iter()
            .map(|batch| batch.into_iter().map(|at| questions[at].clone()).collect())
            .collect())
    }

    fn weight(&self, batch: &Vec<ReadQuestion>) -> f64 {
        batch.len() as f64
    }

    fn tokens(&self, batch: &Vec<ReadQuestion>) -> usize {
        batch.iter().flat_map(|question| &question.rows).map(|row| row.ids.len()).sum()
    }

    fn learn(
        &self,
        batch: &Vec<ReadQuestion>,
        weight: f64,
        seed: u64,
        gradients: &mut Gradients,
    ) -> Result<f64> {
        let rows: Vec<&EncoderRow> = batch.iter().flat_map(|question| &question.rows).collect();
        self.encoder
            .learn(&rows, Pick::All, seed, gradients, |states, _| Ok((self.loss(states, batch)? / weight)?))
    }
}

impl TunedEncoder {
    /// DPR's reader over the encoder of a folder: BERT, to which a fresh head is put, or DPR's reader itself.
    ///
    /// # Errors
    /// Those of [`Checkpoint`], and [`Error::Architecture`] where the folder is another model's.
    pub fn open_reader(checkpoint: &Checkpoint, seed: u64, device: &Device) -> Result<Self> {
        let config = match checkpoint.config() {
            ModelConfig::Bert(config)
                if config.family == BertFamily::Bert || config.task == BertTask::Reader =>
            {
                config
            }
            other => {
                return Err(Error::Architecture {
                    path: checkpoint.folder().join("config.json"),
                    expected: "BERT or DPR's reader",
                    found: format!("`{}`", other.model_type()),
                });
            }
        };
        let reader = BertConfig {
            family: BertFamily::Dpr,
            task: BertTask::Reader,
            projection_dim: 0,
            ..config.clone()
        };
        let tensors = if config.task == BertTask::Reader {
            checkpoint.stored().tensors_for(&mut config.clone())?
        } else {
            let mut body = BertConfig { task: BertTask::States, ..config.clone() };
            let prefix = reader.prefix();
            let tensors = checkpoint.stored().tensors_for(&mut body)?;
            tensors.into_iter().map(|(name, tensor)| (format!("{prefix}.{name}"), tensor)).collect()
        };
        Self::new(&reader, Variables::with_initial(seed, tensors), device)
    }

    /// The reader's scores of each row with the current weights: its relevance, and for each token the logits of the start
    /// and the end of an answer.
    ///
    /// # Errors
    /// As for [`states`](Self::states), and [`Error::Training`] where the head is another.
    pub fn readings(&self, rows: &[EncoderRow], tokens: usize) -> Result<Vec<ReaderScores>> {
        let head = reader(self)?;
        let mut found = Vec::with_capacity(rows.len());
        let mut rest = rows;
        while let Some(longest) = rest.first() {
            let mut count = 1;
            let mut sum = longest.ids.len();
            while count < rest.len() && sum + rest[count].ids.len() <= tokens {
                sum += rest[count].ids.len();
                count += 1;
            }
            let (portion, after) = rest.split_at(count);
            let members: Vec<&EncoderRow> = portion.iter().collect();
            let states = self.states(&members, Pick::All)?;
            let mut at = 0;
            for row in portion {
                let length = row.ids.len();
                let logits = head.forward(&states.narrow(0, at, length)?.unsqueeze(0)?)?;
                found.push(ReaderScores {
                    relevance: logits.relevance.get(0)?.to_scalar()?,
                    start: logits.span.start.squeeze(0)?.to_vec1()?,
                    end: logits.span.end.squeeze(0)?.to_vec1()?,
                });
                at += length;
            }
            rest = after;
        }
        Ok(found)
    }
}

/// A reader's scores for a question and a passage.
#[derive(Clone, Debug, PartialEq)]
pub struct ReaderScores {
    /// The relevance of the passage among those of its question.
    pub relevance: f32,
    /// For each token, the logit of an answer that starts there.
    pub start: Vec<f32>,
    /// For each token, the logit of an answer that ends there.
    pub end: Vec<f32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuned::tests::{rows, tiny_for};

    fn questions() -> Vec<ReadQuestion> {
        let rows = rows(5, 2);
        let spans = vec![(1, 1), (0, 2)];
        vec![
            ReadQuestion { rows: rows[..3].to_vec(), spans },
            ReadQuestion { rows: rows[3..].to_vec(), spans: vec![(1, 2)] },
        ]
    }

    /// The loss by its definition, in f64, from the logits of inference.
    fn expected(encoder: &TunedEncoder, batch: &[ReadQuestion]) -> f64 {
        let log_softmax = |values: &[f32], at: usize| {
            let sum: f64 = values.iter().map(|value| f64::from(*value).exp()).sum();
            f64::from(values[at]) - sum.ln()
        };
        batch
            .iter()
            .map(|question| {
                let scores = encoder.readings(&question.rows, 1000).unwrap();
                let relevance: Vec<f32> = scores.iter().map(|scores| scores.relevance).collect();
                let places: f64 = question
                    .spans
                    .iter()
                    .map(|(start, end)| {
                        let start = log_softmax(&scores[0].start, *start as usize);
                        (start + log_softmax(&scores[0].end, *end as usize)).exp()
                    })
                    .sum();
                -log_softmax(&relevance, 0) - places.ln()
            })
            .sum()
    }

    #[test]
    fn the_loss_is_that_of_passages_and_of_all_places_together() {
        let encoder = tiny_for(BertTask::Reader, 2, 0.0);
        let epoch = |_| questions();
        let options = TrainingOptions { tokens_per_batch: 1000, ..TrainingOptions::default() };
        let objective = ReaderObjective::new(&encoder, &epoch, &options).unwrap();
        let batches = objective.epoch(0).unwrap();
        assert_eq!((batches.len(), objective.weight(&batches[0])), (1, 2.0));
        let mut gradients: Gradients =
            encoder.variables().all().iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect();
        let loss = objective.learn(&batches[0], 2.0, 1, &mut gradients).unwrap();
        let expected = expected(&encoder, &batches[0]) / 2.0;
        assert!((loss - expected).abs() < 1e-4, "{loss} {expected}");
    }

    #[test]
    fn places_outside_the_passage_and_other_heads_are_refused() {
        let encoder = tiny_for(BertTask::Reader, 2, 0.0);
        let epoch = |_| vec![ReadQuestion { spans: vec![(0, 99)], ..questions()[0].clone() }];
        let objective = ReaderObjective::new(&encoder, &epoch, &TrainingOptions::default()).unwrap();
        assert!(objective.epoch(0).unwrap_err().to_string().contains("within"));
        let other = tiny_for(BertTask::SequenceClassification, 2, 0.0);
        assert!(ReaderObjective::new(&other, &epoch, &TrainingOptions::default()).is_err());
    }
}
