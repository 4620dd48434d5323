//! Learning to rank: a cross-encoder, or a bi-encoder by the cosine of its vectors, learns how well each of a query's
//! candidates answers it.

use std::sync::Arc;

use candle_core::{D, Tensor};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

use crate::{
    EncoderRow, Head, Mode, SequenceHead,
    batch::length_batches,
    error::{Error, Result},
    training::{
        objective::Objective,
        optimizer::Gradients,
        options::TrainingOptions,
        ranking_loss::RankingLoss,
        tuned::{Pick, TunedEncoder},
    },
};

/// A query joined with each of its candidates, or beside them, and how good each of these is.
#[derive(Clone, Debug, PartialEq)]
pub struct RankingQuery {
    /// The query as a token row of its own, where vectors are compared.
    pub query: Option<EncoderRow>,
    /// The joined texts as token rows; those of the candidates alone where vectors are compared.
    pub rows: Vec<EncoderRow>,
    /// From 0 to 1, or a teacher's scores; one a row.
    pub targets: Vec<f32>,
    /// What is added to the score of each row before the loss is taken: a first stage's scores, beside which the model
    /// learns what they miss. Empty for none.
    pub offsets: Vec<f32>,
}

/// What makes a score of an encoder's states.
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
    /// Learns `queries` with the head of `encoder`, for sequence classification of one label or two, over joined texts. With
    /// `candidates`, an epoch shows no more than so many of a query, drawn anew
    /// each time: half of them from those with a target above 0 where there are enough of both.
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

    /// Learns `queries` by the cosine of the mean states of query and candidate, times `scale`; otherwise as
    /// [`new`](Self::new).
    ///
    /// # Errors
    /// As for `new`, but for the head; [`Error::Batch`] where a query has no row of its own.
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
            let expected = if reads_apart { "a row of its own" } else { "no row of its own" };
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
    /// The cosine of the mean states of `query` with those of each row, with the weights as they are now.
    ///
    /// # Errors
    /// Those of [`states`](Self::states).
    pub fn cosines(&self, query: &EncoderRow, rows: &[EncoderRow]) -> Result<Vec<f32>> {
        let all: Vec<&EncoderRow> = std::iter::once(query).chain(rows).collect();
        let lengths: Vec<usize> = all.iter().map(|row| row.ids.len()).collect();
        let states = self.states(&all, Pick::All)?;
        Ok(cosines(&states, &lengths, &[rows.len()], 1.0)?.to_vec1()?)
    }

    /// The score of each row with the weights as they are now, in batches of at most `tokens` tokens.
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
        if options.label_smoothing != 0.0 {
            return Err(Error::Options {
                option: "label-smoothing",
                expected: "0 where candidates are ranked".into(),
                found: options.label_smoothing.to_string(),
            });
        }
        Ok(())
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
            // A query that nothing can be learned from would only cost time.
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
mod tests {
    use super::*;
    use crate::training::tuned::tests::{self, tiny};

    fn queries() -> Vec<RankingQuery> {
        let query = |at: usize, count: usize| RankingQuery {
            query: None,
            rows: tests::rows(count, at as u32),
            targets: (0..count).map(|row| ((row * 7 + at) % 4) as f32 / 3.0).collect(),
            offsets: Vec::new(),
        };
        vec![query(0, 6), query(1, 3), query(2, 9), query(3, 2)]
    }

    fn options(tokens_per_batch: usize) -> TrainingOptions {
        TrainingOptions { tokens_per_batch, seed: 4, ..TrainingOptions::default() }
    }

    #[test]
    fn an_epoch_shows_every_query_once_within_the_budget_and_in_an_order_of_its_own() {
        let encoder = tiny(1, 0.0);
        let objective =
            RankingObjective::new(&encoder, queries(), RankingLoss::Listwise, Some(4), &options(40)).unwrap();
        let seen = |epoch| {
            let batches = objective.epoch(epoch).unwrap();
            for batch in &batches {
                assert!(batch.shown.len() == 1 || objective.tokens(batch) <= 40);
            }
            batches.into_iter().flat_map(|batch| batch.shown).collect::<Vec<_>>()
        };
        let first = seen(0);
        assert_eq!(first, seen(0));
        assert_ne!(first, seen(1));
        let mut numbers: Vec<usize> = first.iter().map(|(query, _)| *query).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 3]);
        for (query, shown) in first {
            assert_eq!(shown.len(), queries()[query].rows.len().min(4));
            assert!(shown.is_sorted());
        }
    }

    #[test]
    fn half_of_what_is_shown_has_a_target_above_zero_where_there_are_enough_of_both() {
        let encoder = tiny(1, 0.0);
        let query = |targets: &[f32]| RankingQuery {
            query: None,
            rows: tests::rows(targets.len(), 0),
            targets: targets.to_vec(),
            offsets: Vec::new(),
        };
        let given = vec![
            query(&[1.0, 1.0, 1.0, 0.0, 0.0, 0.0]),
            query(&[1.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
            query(&[1.0, 1.0, 1.0, 1.0, 1.0, 0.0]),
        ];
        let objective =
            RankingObjective::new(&encoder, given.clone(), RankingLoss::Listwise, Some(4), &options(500))
                .unwrap();
        let batch = objective.epoch(3).unwrap().remove(0);
        for (query, shown) in batch.shown {
            let good = shown.iter().filter(|&&row| given[query].targets[row] > 0.0).count();
            // Two of four; one where there is no other; three where there is one without.
            assert_eq!(good, [2, 1, 3][query]);
        }
    }

    #[test]
    fn a_query_that_nothing_can_be_learned_from_is_left_out() {
        let encoder = tiny(1, 0.0);
        let mut given = queries();
        given[1].targets.fill(0.0);
        let objective =
            RankingObjective::new(&encoder, given, RankingLoss::Pairwise, None, &options(500)).unwrap();
        let batch = objective.epoch(0).unwrap().remove(0);
        assert_eq!(batch.shown.len(), 3);
        assert!(batch.shown.iter().all(|(query, _)| *query != 1));
    }

    #[test]
    fn a_cross_encoder_learns_an_order_by_heart() {
        let encoder = tiny(1, 0.0);
        let options = TrainingOptions { learning_rate: 3e-3, ..options(200) };
        for loss in
            [RankingLoss::Binary, RankingLoss::Pairwise, RankingLoss::Listwise, RankingLoss::MarginMse]
        {
            let encoder = tiny(encoder.config().labels.len(), 0.0);
            let objective = RankingObjective::new(&encoder, queries(), loss, None, &options).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let training = crate::training::Training {
                objective: &objective,
                variables: encoder.variables(),
                options: &TrainingOptions { steps: 150, warmup_steps: 5, ..options.clone() },
                evaluate: None,
                folder: folder.path(),
                companions: &[],
            };
            crate::training::train(&training, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
            for query in queries() {
                let scores = encoder.scores(&query.rows, 64).unwrap();
                let best = |values: &[f32]| {
                    let greatest = values.iter().copied().fold(f32::MIN, f32::max);
                    values.iter().position(|value| *value == greatest).unwrap()
                };
                let greatest = query.targets[best(&query.targets)];
                assert_eq!(query.targets[best(&scores)], greatest, "{loss:?}");
            }
        }
    }

    #[test]
    fn vectors_learn_an_order_by_heart() {
        let encoder = super::super::tuned::tests::tiny_for(crate::BertTask::States, 1, 0.0);
        let given: Vec<RankingQuery> = queries()
            .into_iter()
            .enumerate()
            .map(|(at, query)| RankingQuery { query: tests::rows(9, 5).get(at).cloned(), ..query })
            .collect();
        let options = TrainingOptions { steps: 150, warmup_steps: 5, learning_rate: 3e-3, ..options(200) };
        let objective =
            RankingObjective::of_vectors(&encoder, 8.0, given.clone(), RankingLoss::Listwise, None, &options)
                .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let training = crate::training::Training {
            objective: &objective,
            variables: encoder.variables(),
            options: &options,
            evaluate: None,
            folder: folder.path(),
            companions: &[],
        };
        crate::training::train(&training, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
        for query in given {
            let scores = encoder.cosines(query.query.as_ref().unwrap(), &query.rows).unwrap();
            assert!(scores.iter().all(|score| score.abs() < 1.0001));
            let best = (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b])).unwrap();
            let greatest = query.targets.iter().copied().fold(0.0, f32::max);
            assert_eq!(query.targets[best], greatest);
        }
        let error =
            RankingObjective::of_vectors(&encoder, 8.0, queries(), RankingLoss::Listwise, None, &options);
        assert!(error.err().unwrap().to_string().contains("a row of its own for query 0"));
    }

    #[test]
    fn offsets_count_in_the_loss_as_if_the_model_had_given_them() {
        let encoder = tiny(1, 0.0);
        let loss = |offsets: Vec<f32>| {
            let mut given = queries();
            given.truncate(1);
            given[0].offsets = offsets;
            let objective =
                RankingObjective::new(&encoder, given, RankingLoss::Listwise, None, &options(500))?;
            let batch = objective.epoch(0)?.remove(0);
            let mut zeros: Gradients =
                encoder.variables().all().iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect();
            objective.learn(&batch, 1.0, 0, &mut zeros)
        };
        let scores = encoder.scores(&queries()[0].rows, 500).unwrap();
        let offsets: Vec<f32> = (0..6).map(|at| at as f32 - 2.0).collect();
        let sums: Vec<f32> = scores.iter().zip(&offsets).map(|(a, b)| a + b).collect();
        let (expected, _) = RankingLoss::Listwise.evaluate(&sums, &queries()[0].targets);
        assert!((loss(offsets).unwrap() - expected).abs() < 1e-5);
        assert!(loss(vec![1.0]).unwrap_err().to_string().contains("6 offsets of query 0"));
    }

    #[test]
    fn a_stopped_training_with_dropout_goes_on_to_the_same_weights() {
        let run = |folder: &std::path::Path, stop: u64| {
            let encoder = tiny(2, 0.2);
            let options = TrainingOptions {
                epochs: 3,
                warmup_steps: 1,
                batches_per_step: 2,
                learning_rate: 1e-3,
                ..options(40)
            };
            let objective =
                RankingObjective::new(&encoder, queries(), RankingLoss::Pairwise, Some(3), &options).unwrap();
            let training = crate::training::Training {
                objective: &objective,
                variables: encoder.variables(),
                options: &options,
                evaluate: None,
                folder,
                companions: &[],
            };
            let outcome = crate::training::train(&training, &mut |progress| {
                if progress.step == stop {
                    std::ops::ControlFlow::Break(())
                } else {
                    std::ops::ControlFlow::Continue(())
                }
            })
            .unwrap();
            let values = |var: candle_core::Var| var.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            let weights: Vec<Vec<f32>> =
                encoder.variables().all().into_iter().map(|(_, var)| values(var)).collect();
            (weights, outcome)
        };
        let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (expected, all) = run(whole.path(), 0);
        let (_, first) = run(parts.path(), 2);
        assert!(!first.finished && all.step > 3);
        assert_eq!(run(parts.path(), 0).0, expected);
    }

    #[test]
    fn wrong_targets_heads_and_options_are_refused() {
        let encoder = tiny(1, 0.0);
        let build = |query: RankingQuery, candidates| {
            RankingObjective::new(&encoder, vec![query], RankingLoss::Binary, candidates, &options(9))
                .err()
                .map(|error| error.to_string())
        };
        let query = |targets: Vec<f32>| RankingQuery {
            query: None,
            rows: tests::rows(2, 0),
            targets,
            offsets: Vec::new(),
        };
        assert!(build(query(vec![0.5]), None).unwrap().contains("2 targets of query 0"));
        assert!(build(query(vec![0.5, 1.5]), None).unwrap().contains("1.5"));
        assert!(build(query(vec![0.5, 1.0]), Some(1)).unwrap().contains("at least 2"));
        let three = tiny(3, 0.0);
        let wrong =
            RankingObjective::new(&three, Vec::new(), RankingLoss::Binary, None, &options(9)).err().unwrap();
        assert!(wrong.to_string().contains("3 labels"));
    }
}
