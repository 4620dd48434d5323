//! The graph: links of the layers, and the walk along them.
//!
//! Numbers are little-endian bytes in memory as on disk, so a walk works equally on mapped layers and on
//! those being built.

use sporran_kernels::{Isa, RoughRows, Vectors, by_rank};

/// No link.
pub(crate) const NONE: u32 = u32::MAX;

/// The vectors for comparisons.
///
/// Nodes find each other by distance, queries find nodes by inner product. An extra value that gives all
/// nodes equal norms makes both orders equal (Bachrach et al., "Speeding up the Xbox recommender system",
/// RecSys 2014). A query's extra value is 0.
#[derive(Clone, Copy)]
pub(crate) struct Space<'a> {
    pub(crate) vectors: Vectors<'a>,
    /// One value a node; empty if all norms are equal.
    pub(crate) extra: &'a [f32],
}

impl Space<'_> {
    fn add_extra(&self, extra: f32, ids: &[u32], scores: &mut [f32]) {
        if extra != 0.0 {
            for (score, &id) in scores.iter_mut().zip(ids) {
                *score += extra * self.extra_of(id);
            }
        }
    }

    /// A node's extra value.
    pub(crate) fn extra_of(&self, id: u32) -> f32 {
        self.extra.get(id as usize).copied().unwrap_or_default()
    }
}

/// A node or a query.
#[derive(Clone, Copy)]
pub(crate) struct Point<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) extra: f32,
}

/// The similarity that guides a walk.
pub(crate) trait Nearness {
    /// Replaces `scores` by the similarities of nodes, in order.
    fn scores(&self, ids: &[u32], scores: &mut Vec<f32>);
}

/// The exact similarity of nodes to a point.
#[derive(Clone, Copy)]
pub(crate) struct Exact<'a> {
    pub(crate) space: Space<'a>,
    pub(crate) point: Point<'a>,
}

impl Nearness for Exact<'_> {
    fn scores(&self, ids: &[u32], scores: &mut Vec<f32>) {
        self.space.vectors.scores(Isa::detected(), self.point.values, ids, scores);
        self.space.add_extra(self.point.extra, ids, scores);
    }
}

/// The approximate similarity of nodes to one of them.
#[derive(Clone, Copy)]
pub(crate) struct Rough<'a> {
    pub(crate) space: Space<'a>,
    pub(crate) rows: &'a RoughRows,
    pub(crate) id: u32,
}

impl Nearness for Rough<'_> {
    fn scores(&self, ids: &[u32], scores: &mut Vec<f32>) {
        self.rows.scores(Isa::detected(), self.id, ids, scores);
        self.space.add_extra(self.space.extra_of(self.id), ids, scores);
    }
}

/// One layer's links.
pub(crate) trait Links {
    /// Appends the nodes that a node is linked to.
    fn of(&self, id: u32, to: &mut Vec<u32>);
}

/// The bottom layer, with that many link slots a node.
#[derive(Clone, Copy)]
pub(crate) struct Bottom<'a> {
    pub(crate) links: &'a [[u8; 4]],
    pub(crate) width: usize,
}

impl Links for Bottom<'_> {
    fn of(&self, id: u32, to: &mut Vec<u32>) {
        read(&self.links[id as usize * self.width..][..self.width], to);
    }
}

/// Appends the links up to the first free slot.
pub(crate) fn read(places: &[[u8; 4]], to: &mut Vec<u32>) {
    to.extend(places.iter().map(|id| u32::from_le_bytes(*id)).take_while(|id| *id != NONE));
}

/// Writes links into slots.
pub(crate) fn write(places: &mut [[u8; 4]], links: &[u32]) {
    let none = std::iter::repeat(&NONE);
    places.iter_mut().zip(links.iter().chain(none)).for_each(|(place, id)| *place = id.to_le_bytes());
}

/// The layers above the bottom, with few nodes.
pub(crate) struct Upper {
    /// Places for each node.
    pub(crate) width: usize,
    /// The nodes, ascending.
    ids: Vec<u32>,
    /// The first list of each node, and the end: one list for each of its layers.
    starts: Vec<u32>,
    lists: Vec<[u8; 4]>,
}

impl Upper {
    /// Without links. `levels` has nodes, ascending, with the highest layer of each, from 1.
    pub(crate) fn new(width: usize, levels: &[(u32, usize)]) -> Self {
        let mut starts = vec![0];
        for (at, (_, level)) in levels.iter().enumerate() {
            starts.push(starts[at] + *level as u32);
        }
        let lists = vec![NONE.to_le_bytes(); starts[levels.len()] as usize * width];
        Self { width, ids: levels.iter().map(|(id, _)| *id).collect(), starts, lists }
    }

    /// The highest layer of a node; 0 is the bottom.
    pub(crate) fn level(&self, id: u32) -> usize {
        self.ids.binary_search(&id).map_or(0, |at| (self.starts[at + 1] - self.starts[at]) as usize)
    }

    fn range(&self, id: u32, level: usize) -> Option<std::ops::Range<usize>> {
        let at = self.ids.binary_search(&id).ok()?;
        let list = self.starts[at] as usize + level - 1;
        (list < self.starts[at + 1] as usize).then(|| list * self.width..(list + 1) * self.width)
    }

    /// A node's link slots in a layer.
    pub(crate) fn places_mut(&mut self, id: u32, level: usize) -> &mut [[u8; 4]] {
        match self.range(id, level) {
            Some(range) => &mut self.lists[range],
            None => &mut [],
        }
    }

    /// As bytes: the number of nodes, the nodes, the starts, the lists.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let count = [self.ids.len() as u32];
        let numbers = count.iter().chain(&self.ids).chain(&self.starts).map(|number| number.to_le_bytes());
        numbers.chain(self.lists.iter().copied()).flatten().collect()
    }

    /// From bytes; none if they are not valid layers of `nodes` nodes.
    pub(crate) fn from_bytes(width: usize, nodes: usize, bytes: &[u8]) -> Option<Self> {
        let (numbers, rest) = bytes.as_chunks::<4>();
        let (count, numbers) = numbers.split_first()?;
        let count = u32::from_le_bytes(*count) as usize;
        let (ids, numbers) = numbers.split_at_checked(count)?;
        let (starts, lists) = numbers.split_at_checked(count.checked_add(1)?)?;
        let read = |numbers: &[[u8; 4]]| numbers.iter().map(|id| u32::from_le_bytes(*id)).collect::<Vec<_>>();
        let (ids, starts) = (read(ids), read(starts));
        let rising = ids.is_sorted_by(|a, b| a < b) && starts.is_sorted();
        let known = ids.last().is_none_or(|id| (*id as usize) < nodes);
        let whole = rest.is_empty() && starts[0] == 0 && starts[count] as usize * width == lists.len();
        (rising && known && whole).then(|| Self { width, ids, starts, lists: lists.to_vec() })
    }
}

/// A layer above the bottom.
#[derive(Clone, Copy)]
pub(crate) struct UpperLayer<'a> {
    pub(crate) upper: &'a Upper,
    pub(crate) level: usize,
}

impl Links for UpperLayer<'_> {
    fn of(&self, id: u32, to: &mut Vec<u32>) {
        if let Some(range) = self.upper.range(id, self.level) {
            read(&self.upper.lists[range], to);
        }
    }
}

/// A node that a walk has found.
#[derive(Clone, Copy)]
struct Found {
    id: u32,
    score: f32,
    /// Whether its links are not followed yet.
    open: bool,
}

/// The reusable buffers of a walk.
pub(crate) struct Walk {
    /// The last walk that visited each node.
    visited: Vec<u8>,
    epoch: u8,
    /// The nearest nodes so far, nearest first.
    pool: Vec<Found>,
    ids: Vec<u32>,
    scores: Vec<f32>,
}

impl Walk {
    /// For a graph with that many nodes.
    pub(crate) fn new(nodes: usize) -> Self {
        Self { visited: vec![0; nodes], epoch: 0, pool: Vec::new(), ids: Vec::new(), scores: Vec::new() }
    }

    /// The nearest nodes of the last walk, nearest first.
    pub(crate) fn found(&self) -> impl Iterator<Item = (u32, f32)> {
        self.pool.iter().map(|found| (found.id, found.score))
    }

    /// Walks along a layer's links from the nearest unexplored node, until the nearest `width` nodes are
    /// explored or one scores at least `enough`.
    pub(crate) fn walk_until(
        &mut self,
        enough: f32,
        nearness: impl Nearness,
        links: impl Links,
        start: u32,
        width: usize,
    ) {
        self.epoch = match self.epoch.checked_add(1) {
            Some(epoch) => epoch,
            None => {
                self.visited.fill(0);
                1
            }
        };
        self.pool.clear();
        self.ids.clear();
        self.ids.push(start);
        let mut next = 0;
        loop {
            let (visited, epoch) = (&mut self.visited, self.epoch);
            // A link to a missing node is damage and is ignored.
            self.ids.retain(|id| {
                visited.get_mut(*id as usize).is_some_and(|seen| std::mem::replace(seen, epoch) != epoch)
            });
            nearness.scores(&self.ids, &mut self.scores);
            for at in 0..self.ids.len() {
                let (id, score) = (self.ids[at], self.scores[at]);
                if let Some(place) = self.insert(id, score, width) {
                    next = next.min(place);
                }
            }
            if self.pool.first().is_some_and(|found| found.score >= enough) {
                break;
            }
            while self.pool.get(next).is_some_and(|found| !found.open) {
                next += 1;
            }
            let Some(found) = self.pool.get_mut(next) else { break };
            found.open = false;
            let id = found.id;
            self.ids.clear();
            links.of(id, &mut self.ids);
        }
    }

    /// Descends from `start` through the layers from `top` to above `level`, and returns the nearest node.
    pub(crate) fn descend(
        &mut self,
        nearness: impl Nearness + Copy,
        upper: &Upper,
        (top, level): (usize, usize),
        mut start: u32,
    ) -> u32 {
        for level in (level + 1..=top).rev() {
            self.walk(nearness, UpperLayer { upper, level }, start, 1);
            start = self.found().next().map_or(start, |(id, _)| id);
        }
        start
    }

    /// Walks until the nearest `width` nodes are explored.
    pub(crate) fn walk(&mut self, nearness: impl Nearness, links: impl Links, start: u32, width: usize) {
        self.walk_until(f32::INFINITY, nearness, links, start, width);
    }

    /// Inserts a node among the nearest `width`, if it is one.
    fn insert(&mut self, id: u32, score: f32, width: usize) -> Option<usize> {
        let new = (id, score);
        if self.pool.len() >= width {
            let worst = self.pool.last()?;
            if by_rank(&new, &(worst.id, worst.score)).is_gt() {
                return None;
            }
            self.pool.pop();
        }
        let place = self.pool.partition_point(|found| by_rank(&(found.id, found.score), &new).is_lt());
        self.pool.insert(place, Found { id, score, open: true });
        Some(place)
    }
}
