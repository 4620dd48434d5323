//! Building the graph.
//!
//! Y. Malkov and D. Yashunin, "Efficient and robust approximate nearest neighbor search using hierarchical
//! navigable small world graphs", 2016, with the heuristic of their algorithm 4. Nodes are inserted in a
//! seeded random order and in batches. All nodes of a batch search their neighbours in the previous graph in
//! parallel, and then the links are added. A batch is a fiftieth of the graph, so that few neighbours miss
//! each other. The graph does not depend on the number of threads. Layers are sampled with half of the usual
//! scale, so fewer nodes are above the bottom. Walks use 8-bit rows, which have a lower memory latency; links
//! are selected by exact scores.

use std::sync::{Mutex, PoisonError};

use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use sporran_kernels::{Isa, RoughRows, by_rank};

use super::{
    super::HnswOptions,
    graph::{Bottom, Exact, Links, NONE, Nearness, Point, Rough, Space, Upper, UpperLayer, Walk, write},
};

/// Half of the usual scale, 1 / ln(links).
const LEVEL_SCALE: f64 = 0.5;
/// The highest possible layer.
const MOST_LAYERS: usize = 15;
/// A batch is the graph's size divided by this.
const BATCH_PART: usize = 50;
/// The largest batch.
const MOST_BATCH: usize = 4096;
/// The search width at which a node should find itself; every search has at least this width.
pub(crate) const AUDIT_WIDTH: usize = 32;
/// Rounds of repairs.
const ROUNDS: usize = 4;

/// A graph over all nodes of a space.
pub(crate) struct Graph {
    pub(crate) bottom: Vec<[u8; 4]>,
    pub(crate) upper: Upper,
    /// The start of all walks; [`NONE`] in an empty graph.
    pub(crate) entry: u32,
    /// The number of nodes that did not find themselves at first.
    pub(crate) lost: u32,
    /// The number of nodes that still do not.
    pub(crate) unrepaired: u32,
}

struct Builder<'a> {
    space: Space<'a>,
    /// The approximate vectors for walks. Candidates are compared exactly.
    rough: RoughRows,
    nodes: usize,
    /// The largest number of links in the upper layers; the bottom layer has twice as many.
    links: usize,
    /// The number of candidates for links.
    width: usize,
    bottom: Vec<[u8; 4]>,
    upper: Upper,
    entry: u32,
    top: usize,
    walks: Mutex<Vec<Walk>>,
}

/// The links of a node in a layer.
type Chosen = (usize, Vec<u32>);

/// Nodes with their scores, nearest first.
fn ranked(nearness: impl Nearness, ids: Vec<u32>) -> Vec<(u32, f32)> {
    let mut scores = Vec::new();
    nearness.scores(&ids, &mut scores);
    let mut ranked: Vec<(u32, f32)> = ids.into_iter().zip(scores).collect();
    ranked.sort_unstable_by(by_rank);
    ranked
}

/// Builds the graph of all `nodes`, and calls `progress` with the number of inserted ones.
pub(crate) fn build(options: &HnswOptions, space: Space<'_>, progress: &mut dyn FnMut(usize)) -> Graph {
    let nodes = space.vectors.count();
    let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
    let mut order: Vec<u32> = (0..nodes as u32).collect();
    order.shuffle(&mut rng);
    let scale = LEVEL_SCALE / (options.links as f64).ln();
    let levels: Vec<(u32, usize)> = (0..nodes as u32)
        .filter_map(|id| {
            // From (0, 1], so that the logarithm is finite.
            let level = (-(1.0 - rng.random::<f64>()).ln() * scale) as usize;
            (level > 0).then_some((id, level.min(MOST_LAYERS)))
        })
        .collect();
    let mut builder = Builder {
        space,
        rough: RoughRows::new(space.vectors),
        nodes,
        links: options.links,
        width: options.construction_width,
        bottom: vec![NONE.to_le_bytes(); nodes * 2 * options.links],
        upper: Upper::new(options.links, &levels),
        entry: NONE,
        top: 0,
        walks: Mutex::new(Vec::new()),
    };
    let mut done = 0;
    while done < nodes {
        let batch = (done / BATCH_PART).clamp(1, MOST_BATCH).min(nodes - done);
        builder.insert(&order[done..done + batch]);
        done += batch;
        progress(done);
    }
    let (lost, unrepaired) = builder.audit(&mut || progress(nodes));
    let Builder { bottom, upper, entry, .. } = builder;
    Graph { bottom, upper, entry, lost, unrepaired }
}

impl Builder<'_> {
    /// Calls `work` for each of some nodes, on all threads.
    fn each<T: Send>(&self, ids: &[u32], work: impl Fn(&mut Walk, u32) -> T + Sync) -> Vec<T> {
        ids.par_iter()
            .map(|&id| {
                let idle = self.walks.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let mut walk = idle.unwrap_or_else(|| Walk::new(self.nodes));
                let result = work(&mut walk, id);
                self.walks.lock().unwrap_or_else(PoisonError::into_inner).push(walk);
                result
            })
            .collect()
    }

    fn insert(&mut self, batch: &[u32]) {
        let chosen: Vec<Vec<Chosen>> = self.each(batch, |walk, id| self.place(walk, id));
        let mut reverse = Vec::new();
        for (&id, chosen) in batch.iter().zip(&chosen) {
            for (level, links) in chosen {
                write(self.places_mut(id, *level), links);
                reverse.extend(links.iter().map(|&to| (*level, to, id)));
            }
            let level = self.upper.level(id);
            if self.entry == NONE || level > self.top {
                (self.entry, self.top) = (id, level);
            }
        }
        reverse.sort_unstable();
        let groups: Vec<_> = reverse.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)).collect();
        let lists: Vec<(usize, u32, Vec<u32>)> = groups
            .par_iter()
            .map(|group| {
                let (level, to) = (group[0].0, group[0].1);
                (level, to, self.linked_back(level, to, group))
            })
            .collect();
        for (level, to, links) in lists {
            write(self.places_mut(to, level), &links);
        }
    }

    fn places_mut(&mut self, id: u32, level: usize) -> &mut [[u8; 4]] {
        if level > 0 {
            return self.upper.places_mut(id, level);
        }
        let width = 2 * self.links;
        &mut self.bottom[id as usize * width..][..width]
    }

    fn bottom(&self) -> Bottom<'_> {
        Bottom { links: &self.bottom, width: 2 * self.links }
    }

    fn links_of(&self, id: u32, level: usize) -> Vec<u32> {
        let mut links = Vec::new();
        if level > 0 {
            UpperLayer { upper: &self.upper, level }.of(id, &mut links);
        } else {
            self.bottom().of(id, &mut links);
        }
        links
    }

    fn values(&self, id: u32) -> Vec<f32> {
        let mut values = vec![0.0; self.space.vectors.dim()];
        self.space.vectors.row(id as usize, &mut values);
        values
    }

    /// The exact similarity of nodes to one of them with these values.
    fn exact<'v>(&'v self, id: u32, values: &'v [f32]) -> Exact<'v> {
        Exact { space: self.space, point: Point { values, extra: self.space.extra_of(id) } }
    }

    /// Selects a node's links in the current graph.
    fn place(&self, walk: &mut Walk, id: u32) -> Vec<Chosen> {
        let mut chosen = Vec::new();
        if self.entry == NONE {
            return chosen;
        }
        let values = self.values(id);
        let exact = self.exact(id, &values);
        let rough = Rough { space: self.space, rows: &self.rough, id };
        let level = self.upper.level(id).min(self.top);
        let mut start = walk.descend(rough, &self.upper, (self.top, level), self.entry);
        for level in (0..=level).rev() {
            if level > 0 {
                walk.walk(rough, UpperLayer { upper: &self.upper, level }, start, self.width);
            } else {
                walk.walk(rough, self.bottom(), start, self.width);
            }
            start = walk.found().next().map_or(start, |(id, _)| id);
            let ids: Vec<u32> = walk.found().map(|(id, _)| id).collect();
            chosen.push((level, self.select(ranked(exact, ids), self.links)));
        }
        chosen
    }

    /// Selects candidates (nearest first) that are nearer to the node than to any selected one. So links
    /// point in all directions instead of into one cluster.
    fn select(&self, candidates: Vec<(u32, f32)>, most: usize) -> Vec<u32> {
        let (mut taken, mut bounds) = (Vec::with_capacity(most), Vec::with_capacity(most));
        let mut values = vec![0.0; self.space.vectors.dim()];
        for (id, score) in candidates {
            if taken.len() == most {
                break;
            }
            self.space.vectors.row(id as usize, &mut values);
            let extra = self.space.extra_of(id);
            bounds.clear();
            bounds.extend(taken.iter().map(|taken| score - extra * self.space.extra_of(*taken)));
            if !self.space.vectors.any_above(Isa::detected(), &values, &taken, &bounds) {
                taken.push(id);
            }
        }
        taken
    }

    /// A node's links after others linked to it.
    fn linked_back(&self, level: usize, to: u32, group: &[(usize, u32, u32)]) -> Vec<u32> {
        let mut links = self.links_of(to, level);
        let new = group.iter().map(|&(_, _, id)| id).filter(|id| !links.contains(id));
        let new: Vec<u32> = new.collect();
        links.extend(new);
        let most = if level > 0 { self.links } else { 2 * self.links };
        if links.len() <= most {
            return links;
        }
        let values = self.values(to);
        self.select(ranked(self.exact(to, &values), links), most)
    }

    /// Whether a search for a node's vector finds it, or an equally near one.
    fn is_found(&self, walk: &mut Walk, id: u32) -> bool {
        let values = self.values(id);
        let exact = self.exact(id, &values);
        let mut own = Vec::new();
        exact.scores(&[id], &mut own);
        let start = walk.descend(exact, &self.upper, (self.top, 0), self.entry);
        // No later step removes it.
        walk.walk_until(own[0], exact, self.bottom(), start, AUDIT_WIDTH);
        walk.found().next().is_some_and(|(_, score)| score >= own[0])
    }

    /// The nodes near another one, nearest first.
    fn near(&self, walk: &mut Walk, id: u32) -> Vec<u32> {
        let values = self.values(id);
        let exact = self.exact(id, &values);
        let start = walk.descend(exact, &self.upper, (self.top, 0), self.entry);
        walk.walk(exact, self.bottom(), start, self.width);
        walk.found().map(|(near, _)| near).filter(|near| *near != id).collect()
    }

    /// Searches every node by its vector, and links to those that are not found. Returns the numbers of lost
    /// nodes before and after. Calls `checked` after each portion of the searches.
    fn audit(&mut self, checked: &mut dyn FnMut()) -> (u32, u32) {
        let all: Vec<u32> = (0..self.nodes as u32).collect();
        let mut lost = self.missing(&all, checked);
        let first = lost.len() as u32;
        let mut incoming = vec![0u32; self.nodes];
        for id in self.bottom.iter().map(|id| u32::from_le_bytes(*id)).filter(|id| *id != NONE) {
            incoming[id as usize] += 1;
        }
        for _ in 0..ROUNDS {
            // A new link can replace one that another node was found by. So those nodes are checked too, and
            // all at the end.
            for _ in 0..ROUNDS {
                if lost.is_empty() {
                    break;
                }
                let near: Vec<Vec<u32>> = self.each(&lost, |walk, id| self.near(walk, id));
                let mut suspects = lost.clone();
                for (&id, near) in lost.iter().zip(&near) {
                    suspects.extend(self.link_to(id, near, &mut incoming));
                }
                suspects.sort_unstable();
                suspects.dedup();
                lost = self.missing(&suspects, checked);
            }
            if first == 0 {
                break;
            }
            lost = self.missing(&all, checked);
            if lost.is_empty() {
                break;
            }
        }
        (first, lost.len() as u32)
    }

    /// The nodes that a search by their vectors does not find. Calls `checked` after each portion of them.
    fn missing(&self, ids: &[u32], checked: &mut dyn FnMut()) -> Vec<u32> {
        let mut missing = Vec::new();
        for ids in ids.chunks(MOST_BATCH) {
            let found = self.each(ids, |walk, id| self.is_found(walk, id));
            missing.extend(ids.iter().zip(found).filter(|(_, found)| !found).map(|(id, _)| *id));
            checked();
        }
        missing
    }

    /// Links the nearest possible node to `id`: one with a free slot, or one whose farthest link leads to a
    /// node with other incoming links. Returns the removed node.
    fn link_to(&mut self, id: u32, near: &[u32], incoming: &mut [u32]) -> Option<u32> {
        for &from in near {
            let mut links = self.links_of(from, 0);
            if links.contains(&id) {
                continue;
            }
            let mut left = None;
            if links.len() == 2 * self.links {
                let values = self.values(from);
                let mut scores = Vec::new();
                self.exact(from, &values).scores(&links, &mut scores);
                let spare = (0..links.len()).filter(|at| incoming[links[*at] as usize] > 1);
                let Some(spare) = spare.min_by(|a, b| scores[*a].total_cmp(&scores[*b])) else { continue };
                incoming[links[spare] as usize] -= 1;
                left = Some(links.remove(spare));
            }
            links.push(id);
            incoming[id as usize] += 1;
            let width = 2 * self.links;
            write(&mut self.bottom[from as usize * width..][..width], &links);
            return left;
        }
        None
    }
}
