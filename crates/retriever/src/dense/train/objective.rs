//! Contrastive learning (Karpukhin et al. 2020; Reimers and Gurevych 2019): a query's positive passage is classified among
//! all passages of the batch. The others are hard negatives and the passages of other queries.

use std::sync::Arc;

use candle_core::{D, Tensor};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_checkpoint::{Error, Result};
use sporran_training::{Gradients, Objective, Pick, TrainingOptions, TunedEncoder, pool_states};
use sporran_transformers::{EncoderRow, Pooling, length_batches};

/// A passage in tokens.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ContrastPassage {
    /// The tokens of the passage.
    pub(super) row: EncoderRow,
    /// The key of the passage. Queries with the same positive passage do not use it as a negative of each other.
    pub(super) key: u64,
}

/// A query with a positive passage and hard negatives.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Contrast {
    /// The tokens of the query.
    pub(super) query: EncoderRow,
    /// The positive passage.
    pub(super) positive: ContrastPassage,
    /// The hard negatives.
    pub(super) negatives: Vec<ContrastPassage>,
}

/// The options of vectors and their similarity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ContrastOptions {
    /// The pooling of hidden states: `cls` or `mean`.
    pub(super) pooling: Pooling,
    /// Whether vectors are normalised to length 1.
    pub(super) cosine: bool,
    /// The factor of similarities before the softmax: 1 for inner products, about 20 for cosines.
    pub(super) scale: f64,
    /// The largest number of hard negatives of a query in a batch, sampled again in each epoch.
    pub(super) negatives: usize,
}

/// The softmax cross-entropy of each query's positive passage among all passages of the batch.
pub(super) struct ContrastiveObjective<'a> {
    encoder: &'a TunedEncoder,
    contrasts: Arc<Vec<Contrast>>,
    contrast: ContrastOptions,
    tokens_per_batch: usize,
    seed: u64,
}

/// Queries with the sampled hard negatives of an epoch.
pub(super) struct ContrastiveBatch {
    contrasts: Arc<Vec<Contrast>>,
    shown: Vec<(usize, Vec<usize>)>,
}

impl ContrastiveBatch {
    fn queries(&self) -> impl ExactSizeIterator<Item = &Contrast> {
        self.shown.iter().map(|(at, _)| &self.contrasts[*at])
    }

    /// The positive passages, then the hard negatives.
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
    pub(super) fn new(
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
    /// Checks the values.
    ///
    /// # Errors
    /// [`Error::Options`] with the wrong option.
    pub(super) fn check(&self) -> Result<()> {
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
        let vectors = pool_states(self.pooling, states, lengths)?;
        if !self.cosine {
            return Ok(vectors);
        }
        let lengths = (vectors.sqr()?.sum_keepdim(D::Minus1)? + 1e-12)?.sqrt()?;
        Ok(vectors.broadcast_div(&lengths)?)
    }

    /// The vectors of rows with the current weights of an encoder, in the order of the rows, in batches of at most `tokens` tokens.
    ///
    /// # Errors
    /// Errors of [`TunedEncoder::states`].
    pub(super) fn encode(
        &self,
        encoder: &TunedEncoder,
        rows: &[EncoderRow],
        tokens: usize,
    ) -> Result<Vec<Vec<f32>>> {
        let lengths: Vec<usize> = rows.iter().map(|row| row.ids.len()).collect();
        let mut found = vec![Vec::new(); rows.len()];
        for batch in length_batches(&lengths, usize::MAX, tokens) {
            let members: Vec<&EncoderRow> = batch.iter().map(|&at| &rows[at]).collect();
            let lengths: Vec<usize> = members.iter().map(|row| row.ids.len()).collect();
            let states = encoder.states(&members, Pick::of_pooling(self.pooling))?;
            let vectors = self.vectors(&states, &lengths)?.to_vec2::<f32>()?;
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
        self.encoder.learn(&rows, Pick::of_pooling(self.contrast.pooling), seed, gradients, |states, _| {
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
    use candle_core::Device;
    use sporran_training::{Training, Variables, train};
    use sporran_transformers::{BertConfig, BertTask};

    use super::*;

    /// A small BERT, the same at every call.
    fn tiny() -> TunedEncoder {
        let config = BertConfig {
            task: BertTask::SequenceClassification,
            vocab_size: 50,
            hidden_size: 24,
            num_hidden_layers: 2,
            num_attention_heads: 3,
            intermediate_size: 40,
            hidden_dropout_prob: 0.0,
            attention_probs_dropout_prob: 0.0,
            head_dropout: 0.0,
            max_position_embeddings: 32,
            // Large enough for attention to be far from even.
            initializer_range: 0.3,
            layer_norm_eps: 1e-5,
            pad_token_id: 1,
            labels: vec!["LABEL_0".into()],
            ..BertConfig::default()
        };
        TunedEncoder::new(&config, Variables::new(3), &Device::Cpu).unwrap()
    }

    /// A row of three to nine tokens.
    fn row(salt: u32) -> EncoderRow {
        let length = 3 + salt % 7;
        EncoderRow {
            ids: (0..length).map(|j| 4 + (j * 7 + salt * 3) % 46).collect(),
            types: (0..length).map(|j| u32::from(j * 2 > length)).collect(),
        }
    }

    fn contrasts() -> Vec<Contrast> {
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
            let encoder = tiny();
            let options =
                TrainingOptions { learning_rate: 3e-3, steps: 60, warmup_steps: Some(5), ..options(10_000) };
            let objective =
                ContrastiveObjective::new(&encoder, contrasts(), contrast(pooling), &options).unwrap();
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
            let vectors = |rows: Vec<EncoderRow>| contrast(pooling).encode(&encoder, &rows, 64).unwrap();
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
        let encoder = tiny();
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
        let encoder = tiny();
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
