//! Exact top-k search: MaxScore with block maxima, over windows of passages.
//!
//! H. Turtle and J. Flood, "Query evaluation: strategies and optimizations", Information Processing &
//! Management 31(6), 1995, for MaxScore; S. Ding and T. Suel, "Faster top-k document retrieval using
//! block-max indexes", SIGIR 2011, for block maxima. In each window the terms are split into essential ones
//! and a rest. The bounds of the rest cannot lift a passage into the top k. Only passages with an essential
//! term are scored, and the other terms only if they can still decide.
//!
//! Terms are always added in one order, by descending bound. The essential terms are the first of that order.
//! So a score is the same sum of the same `f32` numbers with any skipping, and pruning changes no bit of a
//! result.

use std::{cmp::Ordering, collections::BinaryHeap};

use sporran_kilt::{Hit, PassageId};

use super::postings::{Cursor, Scorer};
use crate::{PassageFilter, Result};

/// The number of passages in a window: their scores stay in the L1 cache.
const WINDOW: usize = 4096;

/// With fewer than one posting for this many passages of a window, touched positions are recorded. Otherwise
/// all are scanned.
const SPARSE: usize = 16;

/// The number of consecutive postings that can be added in the time of one look-up.
const LOOK_UP: usize = 4;

/// The number of scores compared at a time.
const CHUNK: usize = 16;

/// Whether passages that cannot be among the best are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pruning {
    /// They are.
    On,
    /// Every posting of every term is scored.
    Off,
}

/// A hit in a heap whose top is the worst: the lowest score, then the highest passage.
#[derive(PartialEq)]
struct Kept(Hit);

impl Eq for Kept {}

impl Ord for Kept {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.score.total_cmp(&self.0.score).then(self.0.passage.cmp(&other.0.passage))
    }
}

impl PartialOrd for Kept {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The best k hits so far, of passages in ascending order.
struct TopK {
    k: usize,
    heap: BinaryHeap<Kept>,
}

impl TopK {
    /// The score to exceed; a later passage with an equal score does not count.
    fn threshold(&self) -> f32 {
        if self.heap.len() < self.k {
            0.0
        } else {
            self.heap.peek().map_or(f32::INFINITY, |worst| worst.0.score)
        }
    }

    fn offer(&mut self, passage: u32, score: f32) {
        if score <= self.threshold() {
            return;
        }
        let kept = Kept(Hit { passage: PassageId(passage), score });
        if self.heap.len() < self.k {
            self.heap.push(kept);
        } else if let Some(mut worst) = self.heap.peek_mut() {
            *worst = kept;
        }
    }

    fn into_hits(self) -> Vec<Hit> {
        self.heap.into_sorted_vec().into_iter().map(|kept| kept.0).collect()
    }
}

/// Reusable buffers of a search.
pub(crate) struct Scratch {
    scores: Vec<f32>,
    touched: [u64; WINDOW / 64],
    candidates: Vec<(u32, f32)>,
    /// `rest[i]`: the largest score of the terms from `i` on in the window.
    rest: Vec<f64>,
    /// The approximate number of postings of each term in the window.
    postings: Vec<usize>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            scores: vec![0.0; WINDOW],
            touched: [0; WINDOW / 64],
            candidates: Vec::new(),
            rest: Vec::new(),
            postings: Vec::new(),
        }
    }
}

/// The best `k` of `passages` passages by the sum of the terms' weighted impacts, among those that the filter accepts; only
/// positive sums.
pub(crate) fn search(
    mut terms: Vec<Cursor<'_>>,
    (passages, filter): (u32, Option<&PassageFilter<'_>>),
    k: usize,
    scorer: &impl Scorer,
    pruning: Pruning,
    scratch: &mut Scratch,
) -> Result<Vec<Hit>> {
    terms.retain(|term| term.bound > 0.0);
    if k == 0 || terms.is_empty() {
        return Ok(Vec::new());
    }
    terms.sort_by(|a, b| b.bound.total_cmp(&a.bound).then(a.number.cmp(&b.number)));
    let mut best = TopK { k, heap: BinaryHeap::with_capacity(k.min(passages as usize)) };
    // A sum of n rounded numbers can exceed the sum of their bounds by about n units in the last place.
    let slack = 1.0 + (terms.len() + 2) as f64 * f64::from(f32::EPSILON);
    let mut from = 0;
    while from < passages {
        let width = WINDOW.min((passages - from) as usize);
        search_window(&mut terms, filter, from, width, slack, scorer, pruning, scratch, &mut best)?;
        from += width as u32;
    }
    Ok(best.into_hits())
}

#[expect(clippy::too_many_arguments, reason = "the state of one loop, split off to be read alone")]
fn search_window(
    terms: &mut [Cursor<'_>],
    filter: Option<&PassageFilter<'_>>,
    from: u32,
    width: usize,
    slack: f64,
    scorer: &impl Scorer,
    pruning: Pruning,
    scratch: &mut Scratch,
    best: &mut TopK,
) -> Result<()> {
    let Scratch { scores, touched, candidates, rest, postings } = scratch;
    let scores = &mut scores[..width];
    let threshold = f64::from(best.threshold());

    rest.clear();
    rest.resize(terms.len() + 1, 0.0);
    postings.resize(terms.len(), 0);
    for (i, term) in terms.iter_mut().enumerate().rev() {
        let (bound, count) = term.window_bound(from, from + width as u32)?;
        rest[i] = rest[i + 1] + f64::from(bound) * slack;
        postings[i] = count;
    }
    let essential = match pruning {
        Pruning::On => {
            let least = rest.partition_point(|&bound| bound > threshold).min(terms.len());
            if least == 0 {
                return Ok(());
            }
            // A look-up of a passage costs as much as several consecutive postings. So a term that is not
            // much longer than the candidate list is accumulated too.
            let candidates: usize = postings[..least].iter().sum();
            least + postings[least..].iter().take_while(|&&count| count <= LOOK_UP * candidates).count()
        }
        Pruning::Off => terms.len(),
    };
    let (essential_terms, other_terms) = terms.split_at_mut(essential);
    let reach = rest[essential];

    candidates.clear();
    let mut consider = |place: usize, score: f32| {
        let is_accepted = || filter.is_none_or(|filter| filter(PassageId(from + place as u32)));
        if score > 0.0 && f64::from(score) + reach > threshold && is_accepted() {
            candidates.push((from + place as u32, score));
        }
    };
    if postings[..essential].iter().sum::<usize>() < width / SPARSE {
        for term in essential_terms {
            term.accumulate(from, scores, scorer, |place| touched[place / 64] |= 1 << (place % 64))?;
        }
        for (word, bits) in touched.iter_mut().enumerate() {
            while *bits != 0 {
                let place = word * 64 + bits.trailing_zeros() as usize;
                consider(place, std::mem::take(&mut scores[place]));
                *bits &= *bits - 1;
            }
        }
    } else {
        for term in essential_terms {
            term.accumulate(from, scores, scorer, |_| {})?;
        }
        // Slightly below the exact condition, which `consider` tests.
        let limit = ((threshold - reach) * (1.0 - f64::from(f32::EPSILON))).max(0.0) as f32;
        for (chunk, places) in scores.chunks(CHUNK).zip((0..).step_by(CHUNK)) {
            // Without an early exit, so that it compiles to vector comparisons.
            if chunk.iter().fold(false, |any, &score| any | (score > limit)) {
                for (place, &score) in (places..).zip(chunk) {
                    if score > limit {
                        consider(place, score);
                    }
                }
            }
        }
        scores.fill(0.0);
    }

    for (i, term) in other_terms.iter_mut().enumerate() {
        let reach = rest[essential + i];
        candidates.retain(|&(_, score)| f64::from(score) + reach > threshold);
        for (passage, score) in candidates.iter_mut() {
            *score += term.score(*passage, scorer)?;
        }
    }
    for &(passage, score) in &*candidates {
        best.offer(passage, score);
    }
    Ok(())
}
