//! Learning to rank: a cross-encoder, or a bi-encoder by the cosine of its vectors, learns how well each of a query's
//! candidates answers it.

use std::sync::Arc;

use candle_core::{D, Tensor};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_checkpoint::{Error, Result};
use sporran_transformers::{EncoderRow, Head, Mode, SequenceHead, length_batches};

use crate::{
    gradients::Gradients,
    objective::Objective,
    options::TrainingOptions,
    ranking_loss::RankingLoss,
    tuned::{Pick, TunedEncoder},
};

/// A query with its candidates, joined or as separate rows, and the relevance of each candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct RankingQuery {
    /// The query as a separate token row, for the comparison of vectors.
    pub query: Option<EncoderRow>,
    /// The joined texts as token rows; those of the candidates alone where vectors are compared.
    pub rows: Vec<EncoderRow>,
    /// From 0 to 1, or a teacher's scores; one a row.
    pub targets: Vec<f32>,
    /// Added to the score of each row before the loss: a first stage's scores, so that the model learns to correct them.
    /// Empty for none.
    pub offsets: Vec<f32>,
}

/// The scoring function over an encoder's hidden states.
#[derive(Clone, Copy)]
enum Scorer<'a> {
    /// The head, on a joined text's first state.
    Head(&'a SequenceHead),
    /// The cosine of the mean states of query and candidate, times this.
    Cosine(f64),
}

/// A ranking loss over an encoder.
pub struct RankingObjective<'a> {
    encoder: &'a TunedEncoder,
    scorer: Scorer<'a>,
    queries: Arc<Vec<RankingQuery>>,
    loss: RankingLoss,
    candidates: Option<usize>,
    tokens_per_batch: usize,
    seed: u64,
}

/// Queries, each with the candidates that this epoch shows of it.
pub struct RankingBatch {
    queries: Arc<Vec<RankingQuery>>,
    shown: Vec<(usize, Vec<usize>)>,
}

impl RankingBatch {
    /// The rows of each query: its own, where it has one, and those of its candidates.
    fn rows(&self) -> impl Iterator<Item = &EncoderRow> {
        self.shown.iter().flat_map(|(query, rows)| {
            let query = &self.queries[*query];
            query.query.iter().chain(rows.iter().map(|&row| &query.rows[row]))
        })
    }

    /// Targets and offsets of each query's rows.
    fn targets(&self) -> impl Iterator<Item = (Vec<f32>, Vec<f32>)> {
        self.shown.iter().map(|(query, rows)| {
            let query = &self.queries[*query];
            let offset = |row: usize| query.offsets.get(row).copied().unwrap_or(0.0);
            rows.iter().map(|&row| (query.targets[row], offset(row))).unzip()
        })
    }
}

impl<'a> RankingObjective<'a> {
    /// Trains on `queries` with the head of `encoder`, for sequence classification of one label or two, over joined texts. With
    /// `candidates`, an epoch shows at most that number per query, sampled again each epoch: half of them with a target
    /// above 0 if there are enough of both.
    ///
    /// # Errors
    /// [`Error::Batch`] where a query has not one target a row, or a target is not a number;
    /// [`Error::Options`] for fewer than two candidates; [`Error::Training`] where the encoder has another head.
    pub fn new(
        encoder: &'a TunedEncoder,
        queries: Vec<RankingQuery>,
        loss: RankingLoss,
        candidates: Option<usize>,
        options: &TrainingOptions,
    ) -> Result<Self> {
        let scorer = Scorer::Head(classifier(encoder)?);
        Self::with_scorer(encoder, scorer, queries, loss, candidates, options)
    }

    /// Trains on `queries` by the cosine of the mean states of query and candidate, times `scale`; otherwise as
    /// [`new`](Self::new).
    ///
    /// # Errors
    /// As for `new`, but for the head; [`Error::Batch`] where a query has no separate row.
    pub fn of_vectors(
        encoder: &'a TunedEncoder,
        scale: f64,
        queries: Vec<RankingQuery>,
        loss: RankingLoss,
        candidates: Option<usize>,
        options: &TrainingOptions,
    ) -> Result<Self> {
        Self::with_scorer(encoder, Scorer::Cosine(scale), queries, loss, candidates, options)
    }

    fn with_scorer(
        encoder: &'a TunedEncoder,
        scorer: Scorer<'a>,
        queries: Vec<RankingQuery>,
        loss: RankingLoss,
        candidates: Option<usize>,
        options: &TrainingOptions,
    ) -> Result<Self> {
        let reads_apart = matches!(scorer, Scorer::Cosine(_));
        if let Some(at) = queries.iter().position(|query| query.query.is_some() != reads_apart) {
            let expected = if reads_apart { "a separate row" } else { "no separate row" };
            return Err(Error::Batch {
                expected: format!("{expected} for query {at}"),
                found: if reads_apart { "none" } else { "one" }.into(),
            });
        }
        for (at, query) in queries.iter().enumerate() {
            if query.rows.len() != query.targets.len() {
                return Err(Error::Batch {
                    expected: format!("{} targets of query {at}, one a row", query.rows.len()),
                    found: query.targets.len().to_string(),
                });
            }
            if !(query.offsets.is_empty() || query.offsets.len() == query.rows.len()) {
                return Err(Error::Batch {
                    expected: format!("{} offsets of query {at}, one a row, or none", query.rows.len()),
                    found: query.offsets.len().to_string(),
                });
            }
            if let Some(target) = query.targets.iter().find(|target| !loss.takes(**target)) {
                return Err(Error::Batch {
                    expected: format!("targets of query {at} that are {}", loss.expected()),
                    found: target.to_string(),
                });
            }
        }
        if let Some(few @ 0..2) = candidates {
            return Err(Error::Options {
                option: "candidates",
                expected: "at least 2".into(),
                found: few.to_string(),
            });
        }
        Ok(Self {
            encoder,
            scorer,
            queries: Arc::new(queries),
            loss,
            candidates,
            tokens_per_batch: options.tokens_per_batch,
            seed: options.seed,
        })
    }

    /// The candidates of a query that an epoch shows, in their order.
    fn shown(&self, query: &RankingQuery, rng: &mut ChaCha8Rng) -> Vec<usize> {
        let count = query.rows.len();
        let Some(most) = self.candidates.filter(|most| *most < count) else {
            return (0..count).collect();
        };
        let (mut good, mut others): (Vec<usize>, Vec<usize>) =
            (0..count).partition(|&at| query.targets[at] > 0.0);
        good.shuffle(rng);
        others.shuffle(rng);
        let kept = (most - most / 2).min(good.len()).max(most.saturating_sub(others.len()));
        good.truncate(kept);
        good.extend(others.into_iter().take(most - kept));
        good.sort_unstable();
        good
    }
}

/// The head that gives scores.
fn classifier(encoder: &TunedEncoder) -> Result<&SequenceHead> {
    let wrong = |found: String| {
        let expected = "a head for sequence classification with one label or two".into();
        Err(Error::Training { what: "the cross-encoder".into(), expected, found })
    };
    match encoder.head() {
        Head::Sequence(head) if head.labels() <= 2 => Ok(head),
        Head::Sequence(head) => wrong(format!("{} labels", head.labels())),
        other => wrong(other.name().into()),
    }
}

/// The scores (rows) of first states (rows, d): the logit, or that of the second label less that of the first.
fn scores(head: &SequenceHead, states: &Tensor, mode: &mut Mode) -> Result<Tensor> {
    let logits = head.forward(&states.unsqueeze(1)?, mode)?;
    let last = logits.narrow(D::Minus1, head.labels() - 1, 1)?;
    let score = if head.labels() == 2 { (last - logits.narrow(D::Minus1, 0, 1)?)? } else { last };
    Ok(score.squeeze(D::Minus1)?)
}

/// The scores of all candidates: of each query's row and its `counts` candidates' rows, which follow it, the mean states
/// are compared. `states` (tokens, d) are those of rows of these `lengths`.
fn cosines(states: &Tensor, lengths: &[usize], counts: &[usize], scale: f64) -> Result<Tensor> {
    let tokens = states.dim(0)?;
    let mut shares = vec![0f32; lengths.len() * tokens];
    let mut first = 0;
    for (row, length) in shares.chunks_exact_mut(tokens).zip(lengths) {
        row[first..first + length].fill(1.0 / *length as f32);
        first += length;
    }
    let shares = Tensor::from_vec(shares, (lengths.len(), tokens), states.device())?;
    let means = shares.matmul(states)?;
    let units = means.broadcast_div(&means.sqr()?.sum_keepdim(1)?.sqrt()?)?;
    let mut at = 0;
    let mut parts = Vec::with_capacity(counts.len());
    for count in counts {
        let query = units.narrow(0, at, 1)?;
        parts.push(units.narrow(0, at + 1, *count)?.broadcast_mul(&query)?.sum(1)?);
        at += 1 + count;
    }
    Ok((Tensor::cat(&parts, 0)? * scale)?)
}

impl TunedEncoder {
    /// The cosine of the mean states of `query` with those of each row, with the current weights.
    ///
    /// # Errors
    /// Those of [`states`](Self::states).
    pub fn cosines(&self, query: &EncoderRow, rows: &[EncoderRow]) -> Result<Vec<f32>> {
        let all: Vec<&EncoderRow> = std::iter::once(query).chain(rows).collect();
        let lengths: Vec<usize> = all.iter().map(|row| row.ids.len()).collect();
        let states = self.states(&all, Pick::All)?;
        Ok(cosines(&states, &lengths, &[rows.len()], 1.0)?.to_vec1()?)
    }

    /// The score of each row with the current weights, in batches of at most `tokens` tokens.
    ///
    /// # Errors
    /// [`Error::Training`] where the head does not score, and those of [`states`](Self::states).
    pub fn scores(&self, rows: &[EncoderRow], tokens: usize) -> Result<Vec<f32>> {
        let head = classifier(self)?;
        let lengths: Vec<usize> = rows.iter().map(|row| row.ids.len()).collect();
        let mut found = vec![0.0; rows.len()];
        for batch in length_batches(&lengths, usize::MAX, tokens) {
            let members: Vec<&EncoderRow> = batch.iter().map(|&at| &rows[at]).collect();
            let states = self.states(&members, Pick::First)?;
            let values = scores(head, &states, &mut Mode::Inference)?.to_vec1::<f32>()?;
            for (at, score) in batch.into_iter().zip(values) {
                found[at] = score;
            }
        }
        Ok(found)
    }
}

impl Objective for RankingObjective<'_> {
    type Batch = RankingBatch;

    fn check(&self, options: &TrainingOptions) -> Result<()> {
        options.refuse_smoothing("candidates are ranked")
    }

    fn epoch(&self, number: u64) -> Result<Vec<RankingBatch>> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(number);
        let mut order: Vec<usize> = (0..self.queries.len()).collect();
        order.shuffle(&mut rng);
        let mut batches: Vec<RankingBatch> = Vec::new();
        let mut tokens = 0;
        for at in order {
            let query = &self.queries[at];
            let shown = self.shown(query, &mut rng);
            let targets: Vec<f32> = shown.iter().map(|&row| query.targets[row]).collect();
            // A query without a loss would only cost time.
            if self.loss.weight(&targets) == 0.0 {
                continue;
            }
            let own = query.query.as_ref().map_or(0, |row| row.ids.len());
            let more = own + shown.iter().map(|&row| query.rows[row].ids.len()).sum::<usize>();
            match batches.last_mut() {
                Some(batch) if tokens + more <= self.tokens_per_batch => batch.shown.push((at, shown)),
                _ => {
                    batches.push(RankingBatch { queries: self.queries.clone(), shown: vec![(at, shown)] });
                    tokens = 0;
                }
            }
            tokens += more;
        }
        Ok(batches)
    }

    fn weight(&self, batch: &RankingBatch) -> f64 {
        batch.targets().map(|(targets, _)| self.loss.weight(&targets)).sum()
    }

    fn tokens(&self, batch: &RankingBatch) -> usize {
        batch.rows().map(|row| row.ids.len()).sum()
    }

    fn learn(&self, batch: &RankingBatch, weight: f64, seed: u64, gradients: &mut Gradients) -> Result<f64> {
        let rows: Vec<&EncoderRow> = batch.rows().collect();
        let mut loss = 0.0;
        let pick = match self.scorer {
            Scorer::Head(_) => Pick::First,
            Scorer::Cosine(_) => Pick::All,
        };
        self.encoder.learn(&rows, pick, seed, gradients, |states, mode| {
            let scores = match self.scorer {
                Scorer::Head(head) => scores(head, states, mode)?,
                Scorer::Cosine(scale) => {
                    let lengths: Vec<usize> = rows.iter().map(|row| row.ids.len()).collect();
                    let counts: Vec<usize> = batch.shown.iter().map(|(_, shown)| shown.len()).collect();
                    cosines(states, &lengths, &counts, scale)?
                }
            };
            let values = scores.to_vec1::<f32>()?;
            let mut slopes = Vec::with_capacity(values.len());
            let mut rest = values.as_slice();
            for (targets, offsets) in batch.targets() {
                let (own, others) = rest.split_at(targets.len());
                rest = others;
                let own: Vec<f32> = own.iter().zip(offsets).map(|(score, offset)| score + offset).collect();
                let (part, slope) = self.loss.evaluate(&own, &targets);
                loss += part / weight;
                slopes.extend(slope.into_iter().map(|slope| (f64::from(slope) / weight) as f32));
            }
            // Its gradient by the scores is the loss's own.
            let slopes = Tensor::new(slopes, scores.device())?;
            Ok((scores * slopes)?.sum_all()?)
        })?;
        Ok(loss)
    }
}

#[cfg(test)]
mod tests;
