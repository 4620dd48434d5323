//! Contrastive learning (Karpukhin et al. 2020; Reimers and Gurevych 2019): a bi-encoder learns to put a query nearer to
//! its passage than to the other passages of the batch, which are those of other queries and hard negatives.

use std::sync::Arc;

use candle_core::{D, Tensor};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_checkpoint::{Error, Result};
use sporran_transformers::{EncoderRow, Pooling};

use crate::{
    gradients::Gradients,
    objective::Objective,
    options::TrainingOptions,
    tuned::{Pick, TunedEncoder},
};

/// A passage as the encoder reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct ContrastPassage {
    /// Its tokens.
    pub row: EncoderRow,
    /// Names it: a passage that answers one query is no negative of another that it answers too.
    pub key: u64,
}

/// A query, the passage that answers it, and passages that do not although they look as if they did.
#[derive(Clone, Debug, PartialEq)]
pub struct Contrast {
    /// The query's tokens.
    pub query: EncoderRow,
    /// A passage that answers it.
    pub positive: ContrastPassage,
    /// Passages that do not answer it.
    pub negatives: Vec<ContrastPassage>,
}

/// How vectors are made of states and compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContrastOptions {
    /// How the states of a text become its vector: `cls` or `mean`.
    pub pooling: Pooling,
    /// Whether vectors are brought to a length of 1 before they are compared.
    pub cosine: bool,
    /// The factor of similarities before the softmax: 1 for inner products, about 20 for cosines.
    pub scale: f64,
    /// Hard negatives of a query in a batch, at most, sampled again for each epoch.
    pub negatives: usize,
}

/// The softmax cross-entropy of each query's own passage among all passages of the batch.
pub struct ContrastiveObjective<'a> {
    encoder: &'a TunedEncoder,
    contrasts: Arc<Vec<Contrast>>,
    contrast: ContrastOptions,
    tokens_per_batch: usize,
    seed: u64,
}

/// Queries with the hard negatives that this epoch shows of them.
pub struct ContrastiveBatch {
    contrasts: Arc<Vec<Contrast>>,
    shown: Vec<(usize, Vec<usize>)>,
}

impl ContrastiveBatch {
    fn queries(&self) -> impl ExactSizeIterator<Item = &Contrast> {
        self.shown.iter().map(|(at, _)| &self.contrasts[*at])
    }

    /// The queries' own passages, then the hard negatives.
    fn passages(&self) -> impl Iterator<Item = &ContrastPassage> {
        let negatives = self
            .shown
            .iter()
            .flat_map(|(at, drawn)| drawn.iter().map(|&negative| &self.contrasts[*at].negatives[negative]));
        self.queries().map(|contrast| &contrast.positive).chain(negatives)
    }

    fn rows(&self) -> Vec<&EncoderRow> {
        let queries = self.queries().map(|contrast| &contrast.query);
        queries.chain(self.passages().map(|passage| &passage.row)).collect()
    }

    /// The mask added to the similarities (queries, passages): 0, or a large negative value for another query's passage that
    /// also answers the query.
    fn mask(&self) -> Vec<f32> {
        let keys: Vec<u64> = self.passages().map(|passage| passage.key).collect();
        self.queries()
            .enumerate()
            .flat_map(|(at, contrast)| {
                let same = move |(place, key): (usize, &u64)| {
                    if place != at && *key == contrast.positive.key { -1e9 } else { 0.0 }
                };
                keys.iter().enumerate().map(same).collect::<Vec<f32>>()
            })
            .collect()
    }
}

impl<'a> ContrastiveObjective<'a> {
    /// Trains on `contrasts` with `encoder`.
    ///
    /// # Errors
    /// [`Error::Options`] for another pooling than `cls` or `mean`, or a scale that is not above 0.
    pub fn new(
        encoder: &'a TunedEncoder,
        contrasts: Vec<Contrast>,
        contrast: ContrastOptions,
        options: &TrainingOptions,
    ) -> Result<Self> {
        contrast.check()?;
        Ok(Self {
            encoder,
            contrasts: Arc::new(contrasts),
            contrast,
            tokens_per_batch: options.tokens_per_batch,
            seed: options.seed,
        })
    }
}

impl ContrastOptions {
    /// Whether a bi-encoder can learn by these.
    ///
    /// # Errors
    /// [`Error::Options`] naming the option at fault.
    pub fn check(&self) -> Result<()> {
        if !matches!(self.pooling, Pooling::Cls | Pooling::Mean) {
            return Err(Error::Options {
                option: "pooling",
                expected: "`cls` or `mean`".into(),
                found: format!("{:?}", self.pooling).to_lowercase(),
            });
        }
        if !(self.scale.is_finite() && self.scale > 0.0) {
            return Err(Error::Options {
                option: "scale",
                expected: "a number above 0".into(),
                found: self.scale.to_string(),
            });
        }
        Ok(())
    }

    /// The vectors (rows, d) of picked states.
    fn vectors(&self, states: &Tensor, lengths: &[usize]) -> Result<Tensor> {
        let vectors = pooled(self.pooling, states, lengths)?;
        if !self.cosine {
            return Ok(vectors);
        }
        let lengths = (vectors.sqr()?.sum_keepdim(D::Minus1)? + 1e-12)?.sqrt()?;
        Ok(vectors.broadcast_div(&lengths)?)
    }
}

/// Which states a vector is made of.
pub(super) fn pick(pooling: Pooling) -> Pick<'static> {
    if pooling == Pooling::Cls { Pick::First } else { Pick::All }
}

/// The vectors (rows, d) of picked states of rows of these lengths: `cls`, or else their mean.
pub(super) fn pooled(pooling: Pooling, states: &Tensor, lengths: &[usize]) -> Result<Tensor> {
    if pooling == Pooling::Cls {
        return Ok(states.clone());
    }
    let tokens: usize = lengths.iter().sum();
    let mut shares = vec![0.0f32; lengths.len() * tokens];
    let mut first = 0;
    for (row, &length) in lengths.iter().enumerate() {
        shares[row * tokens + first..][..length].fill(1.0 / length as f32);
        first += length;
    }
    Ok(Tensor::from_vec(shares, (lengths.len(), tokens), states.device())?.matmul(states)?)
}

impl TunedEncoder {
    /// The vectors of rows with the current weights, one after the other, in batches of at most `tokens` tokens.
    ///
    /// # Errors
    /// Those of [`states`](Self::states).
    pub fn vectors(
        &self,
        rows: &[EncoderRow],
        contrast: &ContrastOptions,
        tokens: usize,
    ) -> Result<Vec<Vec<f32>>> {
        let lengths: Vec<usize> = rows.iter().map(|row| row.ids.len()).collect();
        let mut found = vec![Vec::new(); rows.len()];
        for batch in sporran_transformers::length_batches(&lengths, usize::MAX, tokens) {
            let members: Vec<&EncoderRow> = batch.iter().map(|&at| &rows[at]).collect();
            let lengths: Vec<usize> = members.iter().map(|row| row.ids.len()).collect();
            let states = self.states(&members, pick(contrast.pooling))?;
            let vectors = contrast.vectors(&states, &lengths)?.to_vec2::<f32>()?;
            for (at, vector) in batch.into_iter().zip(vectors) {
                found[at] = vector;
            }
        }
        Ok(found)
    }
}

impl Objective for ContrastiveObjective<'_> {
    type Batch = ContrastiveBatch;

    fn check(&self, options: &TrainingOptions) -> Result<()> {
        options.refuse_smoothing("passages are the classes")
    }

    fn epoch(&self, number: u64) -> Result<Vec<ContrastiveBatch>> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(number);
        let mut order: Vec<usize> = (0..self.contrasts.len()).collect();
        order.shuffle(&mut rng);
        let mut batches: Vec<ContrastiveBatch> = Vec::new();
        let mut tokens = 0;
        for at in order {
            let contrast = &self.contrasts[at];
            let mut drawn: Vec<usize> = (0..contrast.negatives.len()).collect();
            drawn.shuffle(&mut rng);
            drawn.truncate(self.contrast.negatives);
            let negatives: usize = drawn.iter().map(|&at| contrast.negatives[at].row.ids.len()).sum();
            let more = contrast.query.ids.len() + contrast.positive.row.ids.len() + negatives;
            match batches.last_mut() {
                Some(batch) if tokens + more <= self.tokens_per_batch => batch.shown.push((at, drawn)),
                _ => {
                    let contrasts = Arc::clone(&self.contrasts);
                    batches.push(ContrastiveBatch { contrasts, shown: vec![(at, drawn)] });
                    tokens = 0;
                }
            }
            tokens += more;
        }
        // With a single passage there is no negative.
        batches.retain(|batch| batch.passages().nth(1).is_some());
        Ok(batches)
    }

    fn weight(&self, batch: &ContrastiveBatch) -> f64 {
        batch.shown.len() as f64
    }

    fn tokens(&self, batch: &ContrastiveBatch) -> usize {
        batch.rows().iter().map(|row| row.ids.len()).sum()
    }

    fn learn(
        &self,
        batch: &ContrastiveBatch,
        weight: f64,
        seed: u64,
        gradients: &mut Gradients,
    ) -> Result<f64> {
        let rows = batch.rows();
        let lengths: Vec<usize> = rows.iter().map(|row| row.ids.len()).collect();
        let (queries, passages) = (batch.shown.len(), rows.len() - batch.shown.len());
        self.encoder.learn(&rows, pick(self.contrast.pooling), seed, gradients, |states, _| {
            let vectors = self.contrast.vectors(states, &lengths)?;
            let query_vectors = vectors.narrow(0, 0, queries)?;
            let answers = vectors.narrow(0, queries, passages)?.t()?;
            let mask = Tensor::from_vec(batch.mask(), (queries, passages), states.device())?;
            let scores = ((query_vectors.matmul(&answers)? * self.contrast.scale)? + mask)?;
            // The passage of query `i` has index `i`.
            let own = Tensor::arange(0, queries as u32, states.device())?.unsqueeze(1)?;
            let own = scores.gather(&own, 1)?.sum_all()?;
            Ok(((scores.log_sum_exp(1)?.sum_all()? - own)? / weight)?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuned::tests::{self, tiny};

    fn contrasts() -> Vec<Contrast> {
        let row = |seed: u32| tests::rows(1, seed).remove(0);
        let passage = |seed: u32| ContrastPassage { row: row(seed), key: u64::from(seed) };
        (0..6)
            .map(|at| Contrast {
                query: row(at),
                positive: passage(20 + at),
                negatives: vec![passage(40 + at), passage(60 + at)],
            })
            .collect()
    }

    fn contrast(pooling: Pooling) -> ContrastOptions {
        ContrastOptions { pooling, cosine: true, scale: 20.0, negatives: 1 }
    }

    fn options(tokens_per_batch: usize) -> TrainingOptions {
        TrainingOptions { tokens_per_batch, seed: 4, ..TrainingOptions::default() }
    }

    #[test]
    fn a_query_learns_its_passage() {
        for pooling in [Pooling::Cls, Pooling::Mean] {
            let encoder = tiny(1, 0.0);
            let options =
                TrainingOptions { learning_rate: 3e-3, steps: 60, warmup_steps: 5, ..options(10_000) };
            let objective =
                ContrastiveObjective::new(&encoder, contrasts(), contrast(pooling), &options).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let training = crate::Training {
                objective: &objective,
                variables: encoder.variables(),
                options: &options,
                evaluate: None,
                folder: folder.path(),
                extra_files: &[],
            };
            crate::train(&training, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
            let vectors = |rows: Vec<EncoderRow>| encoder.vectors(&rows, &contrast(pooling), 64).unwrap();
            let asked = vectors(contrasts().into_iter().map(|contrast| contrast.query).collect());
            let answers = vectors(contrasts().into_iter().map(|contrast| contrast.positive.row).collect());
            for (at, asked) in asked.iter().enumerate() {
                let near = |answer: &Vec<f32>| asked.iter().zip(answer).map(|(a, b)| a * b).sum::<f32>();
                let best = (0..6).max_by(|&a, &b| near(&answers[a]).total_cmp(&near(&answers[b]))).unwrap();
                assert_eq!(best, at, "{pooling:?}");
            }
        }
    }

    #[test]
    fn a_passage_that_answers_two_queries_is_no_negative_of_either() {
        let encoder = tiny(1, 0.0);
        let mut given = contrasts();
        given.truncate(3);
        given[2].positive.key = given[0].positive.key;
        given[1].negatives[0].key = given[0].positive.key;
        given[1].negatives.truncate(1);
        given[0].negatives.clear();
        given[2].negatives.clear();
        let objective =
            ContrastiveObjective::new(&encoder, given, contrast(Pooling::Cls), &options(10_000)).unwrap();
        let batch = objective.epoch(0).unwrap().remove(0);
        let order: Vec<usize> = batch.shown.iter().map(|(at, _)| *at).collect();
        let mask = batch.mask();
        // Four columns: the three queries' passages and the one negative, which is the passage of queries 0 and 2.
        for (at, &query) in order.iter().enumerate() {
            for (place, &other) in order.iter().enumerate() {
                let masked = place != at && query != 1 && other != 1;
                assert_eq!(mask[at * 4 + place] < 0.0, masked);
            }
            assert_eq!(mask[at * 4 + 3] < 0.0, query != 1);
        }
    }

    #[test]
    fn epochs_show_every_query_once_with_negatives_of_their_own() {
        let encoder = tiny(1, 0.0);
        let objective =
            ContrastiveObjective::new(&encoder, contrasts(), contrast(Pooling::Mean), &options(60)).unwrap();
        let shown = |epoch| {
            let batches = objective.epoch(epoch).unwrap();
            let mut shown: Vec<_> = batches.into_iter().flat_map(|batch| batch.shown).collect();
            shown.sort();
            shown
        };
        let first = shown(0);
        assert_eq!(first, shown(0));
        assert_eq!(first.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        assert!(first.iter().all(|(_, drawn)| drawn.len() == 1));
        assert!((1..5).any(|epoch| shown(epoch) != first));
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let refused = |options: ContrastOptions| options.check().unwrap_err().to_string();
        assert!(refused(contrast(Pooling::Max)).contains("pooling"));
        assert!(refused(ContrastOptions { scale: 0.0, ..contrast(Pooling::Cls) }).contains("scale"));
    }
}
