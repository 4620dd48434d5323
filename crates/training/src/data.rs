//! From pairs of texts to batches: token rows, a seeded order for every epoch, and length-bucketed batches.

use std::sync::Arc;

use candle_core::{Device, Tensor};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::{Error, Result};
use sporran_transformers::Batch;
use tokenizers::Tokenizer;

use crate::options::TrainingOptions;

/// The label of a position that no loss is taken at.
pub const IGNORED_LABEL: u32 = u32::MAX;

/// A training example: the input text and the target text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextPair {
    /// The encoder\'s input.
    pub source: String,
    /// The target text of the decoder.
    pub target: String,
}

/// A pair as token ids, both ending with the end-of-sequence token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Encoder tokens, or the prompt of a decoder-only model.
    pub source: Vec<u32>,
    /// Decoder tokens, without the start token. Only these have a loss.
    pub target: Vec<u32>,
}

/// A batch: some rows of an epoch.
pub struct RowBatch {
    pub(crate) rows: Arc<Vec<Row>>,
    pub(crate) members: Vec<usize>,
}

impl RowBatch {
    /// The batches of an epoch.
    pub(crate) fn all(rows: &Arc<Vec<Row>>, options: &TrainingOptions, epoch: u64) -> Vec<Self> {
        let batches = batches_of(rows, options.tokens_per_batch, options.seed, epoch);
        batches.into_iter().map(|members| Self { rows: Arc::clone(rows), members }).collect()
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.members.iter().map(|&at| &self.rows[at])
    }

    /// The number of target tokens.
    pub(crate) fn targets(&self) -> usize {
        self.rows().map(|row| row.target.len()).sum()
    }

    /// The number of source and target tokens.
    pub(crate) fn tokens(&self) -> usize {
        self.targets() + self.rows().map(|row| row.source.len()).sum::<usize>()
    }
}

/// Token rows of `pairs`, cut to at most `max_source` and `max_target` tokens; a cut row keeps its last token,
/// which is the end of the sequence.
///
/// # Errors
/// Fails when the tokenizer does, or gives a row without tokens.
pub fn rows_of(
    tokenizer: &Tokenizer,
    pairs: &[TextPair],
    max_source: usize,
    max_target: usize,
) -> Result<Vec<Row>> {
    let encode = |texts: Vec<&str>, limit: usize, side: &str| -> Result<Vec<Vec<u32>>> {
        let encodings = tokenizer
            .encode_batch(texts, true)
            .map_err(|source| Error::Callback { what: "the tokenizer", source })?;
        encodings
            .iter()
            .enumerate()
            .map(|(i, encoding)| {
                let ids = encoding.get_ids();
                let Some(&last) = ids.last() else {
                    return Err(Error::Batch {
                        expected: format!("at least one token in every {side}"),
                        found: format!("no token in {side} {i}"),
                    });
                };
                let mut ids = ids.to_vec();
                if ids.len() > limit {
                    ids.truncate(limit.max(1));
                    let end = ids.len() - 1;
                    ids[end] = last;
                }
                Ok(ids)
            })
            .collect()
    };
    let sources = encode(pairs.iter().map(|p| p.source.as_str()).collect(), max_source, "source")?;
    let targets = encode(pairs.iter().map(|p| p.target.as_str()).collect(), max_target, "target")?;
    Ok(sources.into_iter().zip(targets).map(|(source, target)| Row { source, target }).collect())
}

/// A padded batch of rows, ready for a teacher-forced forward pass.
#[derive(Debug, Clone)]
pub struct TrainingBatch {
    /// The encoder\'s input.
    pub input: Batch,
    /// The target shifted right after the start token, u32 of shape (b, t).
    pub decoder_ids: Tensor,
    /// 1 where a decoder position counts and 0 at padding, f32 of shape (b, t).
    pub decoder_mask: Tensor,
    /// The label of each decoder position, row by row; [`IGNORED_LABEL`] at padding.
    pub labels: Vec<u32>,
}

impl TrainingBatch {
    /// Pads `rows` with `pad` to their longest and shifts their targets right after `start`.
    ///
    /// # Errors
    /// [`Error::Batch`] where there is no row, or a row has no source or no target token.
    pub fn new(rows: &[&Row], pad: u32, start: u32, device: &Device) -> Result<Self> {
        let sources: Vec<&[u32]> = rows.iter().map(|row| row.source.as_slice()).collect();
        let input = Batch::new(&sources, pad, device)?;
        let targets: Vec<&[u32]> = rows.iter().map(|row| row.target.as_slice()).collect();
        let (decoder, labels) = shifted(&targets, pad, start, device)?;
        Ok(Self { input, decoder_ids: decoder.ids, decoder_mask: decoder.mask, labels })
    }
}

/// `targets` shifted right after `start` and padded with `pad`, and the label of each position, row by row;
/// [`IGNORED_LABEL`] at padding.
pub(crate) fn shifted(
    targets: &[&[u32]],
    pad: u32,
    start: u32,
    device: &Device,
) -> Result<(Batch, Vec<u32>)> {
    let inputs: Vec<Vec<u32>> = targets
        .iter()
        .map(|target| std::iter::once(start).chain(target.iter().copied()).take(target.len()).collect())
        .collect();
    let decoder = Batch::new(&inputs, pad, device)?;
    let length = decoder.length();
    let padding = |target: &[u32]| std::iter::repeat_n(IGNORED_LABEL, length - target.len());
    let labels = targets.iter().flat_map(|target| target.iter().copied().chain(padding(target))).collect();
    Ok((decoder, labels))
}

/// Rows are sorted by length inside pools of this many batches: enough to make neighbours equally long, few enough
/// that an epoch's order stays random.
const POOL_BATCHES: usize = 32;

/// The batches of one epoch as lists of row numbers.
///
/// The order is a function of `seed` and `epoch` alone. A batch holds as many rows as keep (source + target) x rows,
/// padding included, within `token_budget`; a row that is longer than the budget forms a separate batch.
pub fn batches_of(rows: &[Row], token_budget: usize, seed: u64, epoch: u64) -> Vec<Vec<usize>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(epoch);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.shuffle(&mut rng);
    let mean = rows.iter().map(|r| r.source.len() + r.target.len()).sum::<usize>() / rows.len().max(1);
    let pool = (token_budget / mean.max(1)).max(1) * POOL_BATCHES;
    let mut batches = Vec::new();
    for chunk in order.chunks_mut(pool) {
        // The sort is stable, so rows of equal lengths keep their random order.
        chunk.sort_by_key(|&i| (rows[i].source.len(), rows[i].target.len()));
        let mut batch: Vec<usize> = Vec::new();
        let (mut source, mut target) = (0, 0);
        for &i in chunk.iter() {
            let wider = (source.max(rows[i].source.len()), target.max(rows[i].target.len()));
            if !batch.is_empty() && (wider.0 + wider.1) * (batch.len() + 1) > token_budget {
                batches.push(std::mem::take(&mut batch));
                (source, target) = (rows[i].source.len(), rows[i].target.len());
            } else {
                (source, target) = wider;
            }
            batch.push(i);
        }
        batches.push(batch);
    }
    batches.shuffle(&mut rng);
    batches
}

/// The batches of one epoch over members of these lengths in tokens. A batch has at most `token_budget` tokens, or one
/// member. The random order depends only on `seed` and `epoch`.
pub fn shuffled_batches(lengths: &[usize], token_budget: usize, seed: u64, epoch: u64) -> Vec<Vec<usize>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(epoch);
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.shuffle(&mut rng);
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut tokens = 0;
    for at in order {
        match batches.last_mut() {
            Some(batch) if tokens + lengths[at] <= token_budget => batch.push(at),
            _ => {
                batches.push(vec![at]);
                tokens = 0;
            }
        }
        tokens += lengths[at];
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize) -> Vec<Row> {
        (0..count)
            .map(|i| Row { source: vec![3; 1 + (i * 7) % 23], target: vec![4; 1 + (i * 5) % 6] })
            .collect()
    }

    #[test]
    fn every_row_is_in_exactly_one_batch_of_an_epoch() {
        let rows = rows(501);
        let mut seen: Vec<usize> = batches_of(&rows, 120, 1, 0).concat();
        seen.sort_unstable();
        assert_eq!(seen, (0..501).collect::<Vec<_>>());
    }

    #[test]
    fn a_padded_batch_stays_within_the_budget() {
        let rows = rows(400);
        for batch in batches_of(&rows, 120, 1, 0) {
            let source = batch.iter().map(|&i| rows[i].source.len()).max().unwrap();
            let target = batch.iter().map(|&i| rows[i].target.len()).max().unwrap();
            assert!((source + target) * batch.len() <= 120);
        }
    }

    #[test]
    fn bucketing_leaves_less_than_a_sixth_of_the_batches_as_padding() {
        let rows = rows(3000);
        let used: usize = rows.iter().map(|r| r.source.len() + r.target.len()).sum();
        let padded: usize = batches_of(&rows, 240, 1, 0)
            .iter()
            .map(|batch| {
                let source = batch.iter().map(|&i| rows[i].source.len()).max().unwrap();
                let target = batch.iter().map(|&i| rows[i].target.len()).max().unwrap();
                (source + target) * batch.len()
            })
            .sum();
        assert!(used as f64 > padded as f64 * 5.0 / 6.0, "{used} of {padded}");
    }

    #[test]
    fn the_order_depends_on_the_seed_and_the_epoch_and_on_nothing_else() {
        let rows = rows(100);
        assert_eq!(batches_of(&rows, 60, 7, 3), batches_of(&rows, 60, 7, 3));
        assert_ne!(batches_of(&rows, 60, 7, 3), batches_of(&rows, 60, 7, 4));
        assert_ne!(batches_of(&rows, 60, 7, 3), batches_of(&rows, 60, 8, 3));
    }

    #[test]
    fn shuffled_batches_hold_everything_once_within_the_budget() {
        let lengths: Vec<usize> = (0..50).map(|at| 1 + at * 7 % 13).chain([90]).collect();
        let batches = shuffled_batches(&lengths, 30, 3, 1);
        let mut seen = batches.concat();
        seen.sort_unstable();
        assert_eq!(seen, (0..51).collect::<Vec<_>>());
        let tokens = |batch: &Vec<usize>| batch.iter().map(|&at| lengths[at]).sum::<usize>();
        assert!(batches.iter().all(|batch| tokens(batch) <= 30 || batch[..] == [50]));
        assert_eq!(batches, shuffled_batches(&lengths, 30, 3, 1));
        assert_ne!(batches, shuffled_batches(&lengths, 30, 3, 2));
    }

    #[test]
    fn a_row_longer_than_the_budget_is_alone() {
        let mut rows = rows(5);
        rows.push(Row { source: vec![1; 500], target: vec![1] });
        let batches = batches_of(&rows, 40, 0, 0);
        assert!(batches.contains(&vec![5]));
        assert!(batches.iter().all(|b| !b.is_empty()));
    }

    #[test]
    fn a_batch_pads_masks_and_shifts() {
        let long = Row { source: vec![5, 6, 1], target: vec![7, 1] };
        let short = Row { source: vec![8, 1], target: vec![9, 9, 1] };
        let batch = TrainingBatch::new(&[&long, &short], 0, 2, &Device::Cpu).unwrap();
        assert_eq!(batch.input.ids.to_vec2::<u32>().unwrap(), [[5, 6, 1], [8, 1, 0]]);
        assert_eq!(batch.input.mask.to_vec2::<f32>().unwrap(), [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]);
        assert_eq!(batch.decoder_ids.to_vec2::<u32>().unwrap(), [[2, 7, 0], [2, 9, 9]]);
        assert_eq!(batch.decoder_mask.to_vec2::<f32>().unwrap(), [[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]);
        assert_eq!(batch.labels, [7, 1, IGNORED_LABEL, 9, 9, 1]);
    }

    #[test]
    fn an_empty_batch_and_an_empty_target_are_errors() {
        assert!(TrainingBatch::new(&[], 0, 0, &Device::Cpu).is_err());
        let row = Row { source: vec![1], target: vec![] };
        assert!(TrainingBatch::new(&[&row], 0, 0, &Device::Cpu).is_err());
    }
}
