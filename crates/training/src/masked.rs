//! Masked language modelling (Devlin et al. 2019): an encoder learns to predict the masked tokens, which
//! fits it to the texts of a field before anything else is learned.

use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_checkpoint::{Error, Result, Tokenizer};
use sporran_transformers::{EncoderRow, Head, MaskedLmHead};

use crate::{
    gradients::Gradients,
    loss::cross_entropy,
    objective::Objective,
    options::TrainingOptions,
    tuned::{Pick, TunedEncoder},
};

/// The share of tokens to predict.
const PREDICTED: f64 = 0.15;
/// The share of predicted tokens that the mask replaces; a random token replaces half of the others.
const MASKED: f64 = 0.8;

/// The tokens of a vocabulary that masking needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskingTokens {
    /// The mask token.
    pub mask: u32,
    /// Tokens that are neither masked nor sampled, in ascending order.
    pub special: Vec<u32>,
}

impl MaskingTokens {
    /// A tokenizer's mask (`[MASK]` or `<mask>`) and its special tokens.
    ///
    /// # Errors
    /// [`Error::Training`] where it has no mask.
    pub fn of(tokenizer: &Tokenizer) -> Result<Self> {
        let inner = tokenizer.inner();
        let mask = ["[MASK]", "<mask>"].iter().find_map(|token| inner.token_to_id(token));
        let mask = mask.ok_or_else(|| Error::Training {
            what: "the tokenizer".into(),
            expected: "a token `[MASK]` or `<mask>`".into(),
            found: "neither".into(),
        })?;
        let added = inner.get_added_tokens_decoder();
        let mut special: Vec<u32> =
            added.iter().filter(|(_, token)| token.special).map(|(id, _)| *id).collect();
        special.sort_unstable();
        Ok(Self { mask, special })
    }
}

/// The cross-entropy of hidden tokens.
pub struct MaskedLmObjective<'a> {
    encoder: &'a TunedEncoder,
    head: &'a MaskedLmHead,
    rows: Vec<EncoderRow>,
    tokens: MaskingTokens,
    options: TrainingOptions,
}

/// Rows with hidden tokens.
pub struct MaskedBatch {
    rows: Vec<EncoderRow>,
    /// The positions of the masked tokens, counted over all rows, and their ids.
    hidden: Vec<usize>,
    labels: Vec<u32>,
}

impl<'a> MaskedLmObjective<'a> {
    /// Trains `encoder` on the tokens of `rows`.
    ///
    /// # Errors
    /// [`Error::Training`] where the encoder has another head than one for masked tokens.
    pub fn new(
        encoder: &'a TunedEncoder,
        rows: Vec<EncoderRow>,
        tokens: MaskingTokens,
        options: &TrainingOptions,
    ) -> Result<Self> {
        match encoder.head() {
            Head::MaskedLm(head) => Ok(Self { encoder, head, rows, tokens, options: options.clone() }),
            other => Err(Error::Training {
                what: "the masked language model".into(),
                expected: "a head for masked tokens".into(),
                found: other.name().into(),
            }),
        }
    }

    /// Hides tokens of `row`, the first of which has the number `first` in its batch.
    fn hide(&self, row: &mut EncoderRow, first: usize, rng: &mut ChaCha8Rng, batch: &mut MaskedBatch) {
        let is_special = |id: u32| self.tokens.special.binary_search(&id).is_ok();
        let vocabulary = self.encoder.config().vocab_size() as u32;
        for (at, id) in row.ids.iter_mut().enumerate() {
            if is_special(*id) || !rng.random_bool(PREDICTED) {
                continue;
            }
            batch.hidden.push(first + at);
            batch.labels.push(*id);
            if rng.random_bool(MASKED) {
                *id = self.tokens.mask;
            } else if rng.random_bool(0.5) {
                let drawn = rng.random_range(0..vocabulary);
                // One more look is enough: a special token is then shown once in a vocabulary squared.
                *id = if is_special(drawn) { rng.random_range(0..vocabulary) } else { drawn };
            }
        }
    }
}

impl Objective for MaskedLmObjective<'_> {
    type Batch = MaskedBatch;

    fn check(&self, _: &TrainingOptions) -> Result<()> {
        Ok(())
    }

    fn epoch(&self, number: u64) -> Result<Vec<MaskedBatch>> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.options.seed);
        rng.set_stream(number);
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        order.shuffle(&mut rng);
        let mut batches: Vec<MaskedBatch> = Vec::new();
        let mut tokens = usize::MAX;
        for at in order {
            let mut row = self.rows[at].clone();
            let more = row.ids.len();
            if tokens.saturating_add(more) > self.options.tokens_per_batch {
                batches.push(MaskedBatch { rows: Vec::new(), hidden: Vec::new(), labels: Vec::new() });
                tokens = 0;
            }
            if let Some(batch) = batches.last_mut() {
                self.hide(&mut row, tokens, &mut rng, batch);
                batch.rows.push(row);
            }
            tokens += more;
        }
        // Short texts may have no masked tokens, and a batch of them has no loss.
        batches.retain(|batch| !batch.hidden.is_empty());
        Ok(batches)
    }

    fn weight(&self, batch: &MaskedBatch) -> f64 {
        batch.labels.len() as f64
    }

    fn tokens(&self, batch: &MaskedBatch) -> usize {
        batch.rows.iter().map(|row| row.ids.len()).sum()
    }

    fn learn(&self, batch: &MaskedBatch, weight: f64, seed: u64, gradients: &mut Gradients) -> Result<f64> {
        let rows: Vec<&EncoderRow> = batch.rows.iter().collect();
        self.encoder.learn(&rows, Pick::Tokens(&batch.hidden), seed, gradients, |states, mode| {
            let logits = self.head.forward(&states.unsqueeze(0)?, mode)?.squeeze(0)?;
            let sum = cross_entropy(&logits, &batch.labels, self.options.label_smoothing)?;
            Ok((sum / weight)?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuned::tests::{rows, tiny, tiny_for};
    use sporran_transformers::BertTask;

    fn objective(encoder: &TunedEncoder, count: usize) -> MaskedLmObjective<'_> {
        let tokens = MaskingTokens { mask: 3, special: vec![0, 1, 2, 3] };
        let options = TrainingOptions { tokens_per_batch: 60, seed: 6, ..TrainingOptions::default() };
        MaskedLmObjective::new(encoder, rows(count, 5), tokens, &options).unwrap()
    }

    #[test]
    fn about_one_token_in_seven_is_predicted_and_most_of_those_are_masked() {
        let encoder = tiny_for(BertTask::MaskedLm, 1, 0.0);
        let objective = objective(&encoder, 400);
        let batches = objective.epoch(0).unwrap();
        let (mut predicted, mut masked, mut all) = (0, 0, 0);
        for batch in &batches {
            assert!(objective.tokens(batch) <= 60);
            let shown: Vec<u32> = batch.rows.iter().flat_map(|row| row.ids.clone()).collect();
            all += shown.iter().filter(|id| **id > 3).count();
            predicted += batch.hidden.len();
            masked += batch.hidden.iter().filter(|at| shown[**at] == 3).count();
            assert!(batch.labels.iter().all(|label| *label > 3));
        }
        // Rows of 3 to 9 tokens, 400 of them; masks were counted out of `all`, which adds them back.
        let (asked_share, masked_share) =
            (predicted as f64 / (all + masked) as f64, masked as f64 / predicted as f64);
        assert!((0.12..0.18).contains(&asked_share), "{asked_share}");
        assert!((0.72..0.88).contains(&masked_share), "{masked_share}");
    }

    #[test]
    fn an_epoch_hides_other_tokens_than_the_one_before_and_the_same_again() {
        let encoder = tiny_for(BertTask::MaskedLm, 1, 0.0);
        let objective = objective(&encoder, 400);
        let hidden =
            |epoch| objective.epoch(epoch).unwrap().into_iter().map(|batch| batch.hidden).collect::<Vec<_>>();
        assert_eq!(hidden(1), hidden(1));
        assert_ne!(hidden(0), hidden(1));
    }

    #[test]
    fn an_encoder_learns_what_was_hidden() {
        let encoder = tiny_for(BertTask::MaskedLm, 1, 0.0);
        let objective = objective(&encoder, 12);
        let folder = tempfile::tempdir().unwrap();
        let options = TrainingOptions {
            steps: 300,
            tokens_per_batch: 60,
            warmup_steps: Some(5),
            learning_rate: 5e-3,
            seed: 6,
            ..TrainingOptions::default()
        };
        let training = crate::Training {
            objective: &objective,
            variables: encoder.variables(),
            options: &options,
            evaluate: None,
            folder: folder.path(),
            extra_files: &[],
        };
        let mut losses = Vec::new();
        crate::train(&training, &mut |progress| {
            losses.push(progress.loss);
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        // Fresh weights guess among 50 tokens: ln 50 = 3.9.
        assert!(mean(&losses[..5]) > 3.5 && mean(&losses[280..]) < 2.5, "{losses:?}");
    }

    #[test]
    fn another_head_is_refused() {
        let encoder = tiny(1, 0.0);
        let tokens = MaskingTokens { mask: 3, special: vec![] };
        let error = MaskedLmObjective::new(&encoder, vec![], tokens, &TrainingOptions::default());
        assert!(error.err().unwrap().to_string().contains("sequence classification"));
    }
}
