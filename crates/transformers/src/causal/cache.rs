//! The cache of a decoder-only model between steps. The caller owns it, so beams can be re-ordered.

use candle_core::Tensor;
use sporran_checkpoint::{Error, Result};

use super::{Alignment, Biases, Shape, too_long};
use crate::{
    architectures::alibi::Alibi, cache::LayerCache, candle_models::CandleSequence, layers::hidden_score,
    packed::KvCache,
};

/// The keys and values of sequences, one row a sequence, and which of them are tokens rather than padding.
#[derive(Debug, Clone, Default)]
pub struct CausalCache {
    /// The cache of a packed model, which needs no other field.
    pub(crate) packed: Option<KvCache>,
    /// The sequence of a model of candle's, which needs no other field.
    pub(crate) candle: Option<CandleSequence>,
    /// The tokens of each sequence, of a model that may read them again.
    history: Vec<Vec<u32>>,
    pub(crate) layers: Vec<LayerCache>,
    /// For each row and each cached position, whether it has a token.
    kept: Vec<Vec<bool>>,
}

impl CausalCache {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of sequences; 0 while the cache is empty.
    #[must_use]
    pub fn rows(&self) -> usize {
        if self.candle.is_some() {
            return 1;
        }
        self.packed.as_ref().map_or(self.kept.len(), KvCache::rows)
    }

    /// The number of positions that are kept, padding included.
    #[must_use]
    pub fn length(&self) -> usize {
        if let Some(sequence) = &self.candle {
            return sequence.len();
        }
        match &self.packed {
            Some(kept) => kept.length(),
            None => self.kept.first().map_or(0, Vec::len),
        }
    }

    /// Makes row `i` the continuation of the previous row `rows[i]`; rows may be dropped and repeated.
    ///
    /// # Errors
    /// [`Error::Batch`] where a row does not exist, or a tensor error.
    pub fn select(&mut self, rows: &[u32]) -> Result<()> {
        if !self.history.is_empty() {
            let row = |row: &u32| self.history.get(*row as usize).cloned().unwrap_or_default();
            self.history = rows.iter().map(row).collect();
        }
        if let Some(kept) = &mut self.packed {
            return kept.select(rows);
        }
        if self.candle.is_some() {
            match rows {
                [] => self.candle = None,
                [0] => {}
                _ => {
                    let (expected, found) = ("one sequence".into(), format!("the rows {rows:?}"));
                    return Err(Error::Batch { expected, found });
                }
            }
            return Ok(());
        }
        let kept = |row: &u32| {
            let kept = self.kept.get(*row as usize).cloned();
            let (expected, found) = (format!("one of {} rows", self.kept.len()), format!("row {row}"));
            kept.ok_or(Error::Batch { expected, found })
        };
        self.kept = rows.iter().map(kept).collect::<Result<_>>()?;
        LayerCache::select(&mut self.layers, rows)
    }

    /// Appends the rows of `other`. Both are of a packed model, and `other` is not empty.
    ///
    /// # Errors
    /// [`Error::Batch`] where one of them is another model's.
    pub(crate) fn join(&mut self, other: Self) -> Result<()> {
        self.history.extend(other.history);
        match (&mut self.packed, other.packed) {
            (Some(kept), Some(other)) => kept.join(other),
            (kept, Some(other)) => *kept = Some(other),
            (_, None) => {
                let (expected, found) = ("the cache of a packed model".into(), "another".into());
                return Err(Error::Batch { expected, found });
            }
        }
        Ok(())
    }

    /// Frees memory of rows that are gone.
    pub(crate) fn compact(&mut self) {
        if let Some(kept) = &mut self.packed {
            kept.compact();
        }
    }

    /// Keeps the tokens of sequences that a model has begun.
    pub(crate) fn remember(&mut self, rows: Vec<Vec<u32>>) {
        self.history = rows;
    }

    /// Adds `tokens` (r, t) to those that are kept of each of `rows` sequences. Returns all tokens of all sequences, and becomes
    /// empty, where one of them has just become longer than `last`: its model reads them again.
    pub(crate) fn outgrow(&mut self, tokens: &[u32], rows: usize, last: usize) -> Option<Vec<Vec<u32>>> {
        let each = tokens.len() / rows.max(1);
        let mut outgrows = false;
        for (row, tokens) in self.history.iter_mut().zip(tokens.chunks(each.max(1))) {
            outgrows |= row.len() <= last && row.len() + tokens.len() > last;
            row.extend_from_slice(tokens);
        }
        outgrows.then(|| std::mem::take(self).history)
    }

    /// Appends new positions, of which `mask` (r, t) marks the tokens, to a cache of a model of this `shape`. Returns
    /// their positions (r, t) in their sequences and the biases on the scores of keys. A sequence has at most as many
    /// tokens as there are positions if these are learned.
    pub(super) fn extend(&mut self, mask: &[Vec<f32>], shape: &Shape) -> Result<(Tensor, Biases)> {
        let device = &shape.device;
        let most = shape.has_learned_positions.then_some(shape.max_length);
        let (past, length) = (self.length(), mask.first().map_or(0, Vec::len));
        let mut kept = std::mem::take(&mut self.kept);
        kept.resize(mask.len(), Vec::new());
        let mut positions = Vec::with_capacity(mask.len() * length);
        let mut longest = 0;
        for (row, mask) in kept.iter_mut().zip(mask) {
            let mut tokens = row.iter().filter(|is_token| **is_token).count();
            for is_token in mask.iter().map(|mask| *mask != 0.0) {
                row.push(is_token);
                // Padding may have any position, since it is never attended to.
                positions.push(if is_token { tokens as u32 } else { 0 });
                tokens += usize::from(is_token);
            }
            longest = longest.max(tokens);
            if let Some(most) = most.filter(|most| tokens > *most) {
                return Err(too_long("sequence", most, tokens));
            }
        }
        self.layers.resize_with(shape.layers, LayerCache::default);
        let positions = Tensor::from_vec(positions, (mask.len(), length), device)?;
        let is_plain =
            length == 1 && shape.alibi.is_none() && kept.iter().flatten().all(|is_token| *is_token);
        let bias = |window: Option<usize>| bias(&kept, past, length, window, shape);
        let all = if is_plain { None } else { Some(bias(None)?) };
        let near = match shape.window.filter(|window| longest > *window) {
            Some(window) => Some(bias(Some(window))?),
            None => all.clone(),
        };
        self.kept = kept;
        let alignment = if shape.is_recurrent { Alignment::new(mask, device)? } else { Alignment::default() };
        Ok((positions, Biases { all, near, alignment }))
    }
}

/// The bias on the scores of the keys of `kept`: (r, 1, t, past + t), or with a number of heads in place of the 1 where these
/// have their own. A query sees no padding, no later token where tokens are read in order, and with a window no token that is
/// that far away.
fn bias(
    kept: &[Vec<bool>],
    past: usize,
    length: usize,
    window: Option<usize>,
    shape: &Shape,
) -> Result<Tensor> {
    let hidden = hidden_score(shape.dtype)? as f32;
    let heads = shape.alibi.as_ref().map_or(1, Alibi::heads);
    let mut bias = Vec::with_capacity(kept.len() * heads * length * (past + length));
    for row in kept {
        // The tokens before each position.
        let before = |tokens: &mut usize, is_token: &bool| {
            let own = *tokens;
            *tokens += usize::from(*is_token);
            Some(own)
        };
        let places: Vec<usize> = row.iter().scan(0, before).collect();
        for (head, query) in (0..heads).flat_map(|head| (past..past + length).map(move |query| (head, query)))
        {
            let is_near =
                |key: usize| window.is_none_or(|window| places[query].abs_diff(places[key]) < window);
            let is_seen = |key: usize, is_token: &bool| {
                *is_token && (key <= query || shape.is_bidirectional) && is_near(key)
            };
            let score = |(key, is_token): (usize, &bool)| match &shape.alibi {
                _ if !is_seen(key, is_token) => hidden,
                Some(alibi) => alibi.bias(head, places[query], places[key]),
                None => 0.0,
            };
            bias.extend(row.iter().enumerate().map(score));
        }
    }
    let bias = Tensor::from_vec(bias, (kept.len(), heads, length, past + length), &shape.device)?;
    Ok(bias.to_dtype(shape.dtype)?)
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};
    use sporran_checkpoint::SpecialTokens;

    use super::{CausalCache, Shape};
    use crate::decode::GenerationOptions;

    /// The shape of a model without layers.
    fn shape(learned: Option<usize>, window: Option<usize>) -> Shape {
        Shape {
            tokens: SpecialTokens { pad: 0, eos: vec![0], bos: None, decoder_start: 0 },
            generation: GenerationOptions::default(),
            vocab_size: 8,
            max_length: learned.unwrap_or(64),
            has_learned_positions: learned.is_some(),
            layers: 0,
            window,
            alibi: None,
            is_bidirectional: false,
            is_recurrent: false,
            reads_again_after: None,
            dtype: DType::F32,
            device: Device::Cpu,
        }
    }

    fn seen(bias: Option<candle_core::Tensor>) -> Vec<bool> {
        let bias: Vec<f32> = bias.unwrap().flatten_all().unwrap().to_vec1().unwrap();
        bias.iter().map(|bias| *bias == 0.0).collect()
    }

    #[test]
    fn places_are_counted_by_tokens_and_padding_is_never_seen() {
        let mut cache = CausalCache::new();
        let mask = [vec![0.0, 1.0, 1.0], vec![1.0, 1.0, 0.0]];
        let shape = shape(None, None);
        let (positions, biases) = cache.extend(&mask, &shape).unwrap();
        assert_eq!(positions.to_vec2::<u32>().unwrap(), [[0, 0, 1], [0, 1, 0]]);
        #[rustfmt::skip]
        assert_eq!(seen(biases.all), [
            false, false, false,  false, true, false,  false, true, true,
            true, false, false,   true, true, false,   true, true, false,
        ]);
        // One more token each: it comes after the tokens, and sees them and itself.
        let one = [vec![1.0], vec![1.0]];
        let (positions, biases) = cache.extend(&one, &shape).unwrap();
        assert_eq!(positions.to_vec2::<u32>().unwrap(), [[2], [2]]);
        assert_eq!(seen(biases.all), [false, true, true, true, true, true, false, true]);
        cache.select(&[1, 1, 0]).unwrap();
        assert_eq!((cache.rows(), cache.length()), (3, 4));
        assert!(cache.select(&[3]).is_err());
    }

    #[test]
    fn sequences_are_read_again_once_when_one_outgrows_a_length() {
        let mut cache = CausalCache::new();
        cache.remember(vec![vec![1, 2], vec![3]]);
        assert_eq!(cache.outgrow(&[4, 5], 2, 3), None);
        cache.history = vec![vec![3, 5], vec![1, 2, 4], vec![1, 2, 4]];
        let all = cache.outgrow(&[6, 7, 8], 3, 3).unwrap();
        assert_eq!(all, [vec![3, 5, 6], vec![1, 2, 4, 7], vec![1, 2, 4, 8]]);
        cache.remember(all[1..].to_vec());
        assert_eq!(cache.outgrow(&[9, 9], 2, 3), None);
    }

    #[test]
    fn a_sequence_that_is_too_long_is_refused_by_its_tokens() {
        let mask = [vec![0.0, 1.0, 1.0]];
        assert!(CausalCache::new().extend(&mask, &shape(Some(2), None)).is_ok());
        let error = CausalCache::new().extend(&mask, &shape(Some(1), None)).unwrap_err();
        assert_eq!(error.to_string(), "batch: expected at most 1 sequence tokens, found 2");
    }

    #[test]
    fn a_window_counts_tokens_and_not_padding() {
        let mut cache = CausalCache::new();
        let shape = shape(None, Some(2));
        let mask = [vec![0.0, 1.0, 1.0], vec![1.0, 1.0, 0.0]];
        // As long as no sequence is longer than the window, both biases are the same.
        let (_, biases) = cache.extend(&mask, &shape).unwrap();
        assert_eq!(seen(biases.all), seen(biases.near));
        let (_, biases) = cache.extend(&[vec![1.0], vec![1.0]], &shape).unwrap();
        assert_eq!(seen(biases.near), [false, false, true, true, false, true, false, true]);
        let mut cache = CausalCache::new();
        let (_, biases) = cache.extend(&[vec![1.0, 1.0, 1.0]], &shape).unwrap();
        assert_eq!(seen(biases.near), [true, false, false, true, true, false, false, true, true]);
        // A single token without padding needs a bias too.
        let (_, biases) = cache.extend(&[vec![1.0]], &shape).unwrap();
        assert!(biases.all.is_none());
        assert_eq!(seen(biases.near), [false, false, true, true]);
    }
}
