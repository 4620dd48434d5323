//! Approximate search in a graph that links near vectors.

mod build;
mod graph;
mod library;

use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use sporran_kernels::{Filter, Isa, Top, Vectors};

use self::{
    graph::{Bottom, Exact, NONE, Point, Space, Upper, Walk},
    library::Library,
};
use super::{
    Embeddings, HnswLibrary, HnswOptions, Progress, Report, VectorIndex, VectorStorage,
    flat::{VECTORS, scores_of, write_vectors},
    header::Header,
    recall::Sample,
    rows::Rows,
};
use crate::{
    Result,
    layout::{Files, Folder, Mapped, Section},
};

/// The bottom layer: for each vector up to twice `links` numbers of others, filled up with [`NONE`].
const LINKS: &str = "links";
/// The start of walks, then the upper layers ([`Upper::to_bytes`]).
const UPPER: &str = "upper";

/// A memory-mapped graph.
pub(crate) struct Hnsw {
    dim: usize,
    count: usize,
    half: bool,
    width: usize,
    vectors: Mapped,
    links: Mapped,
    parts: Parts,
}

/// The parts of a walk besides the mapped files.
struct Parts {
    upper: Upper,
    entry: u32,
    top: usize,
    /// Currently unused walks.
    walks: Mutex<Vec<Walk>>,
}

/// Writes the files of an index.
pub(crate) fn write(
    options: &HnswOptions,
    rows: &Rows,
    folder: &Folder,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Vec<Section>, Report)> {
    match options.library {
        HnswLibrary::Own => write_own(options, rows, folder, progress),
        HnswLibrary::HnswRs => library::write(options, rows, folder, progress),
    }
}

/// Opens the files of an index.
pub(crate) fn open(
    options: &HnswOptions,
    files: &mut Files,
    header: &Header,
) -> Result<Box<dyn VectorIndex>> {
    Ok(match options.library {
        HnswLibrary::Own => Box::new(Hnsw::open(options, files, header)?),
        HnswLibrary::HnswRs => Box::new(Library::open(options, files, header)?),
    })
}

fn write_own(
    options: &HnswOptions,
    rows: &Rows,
    folder: &Folder,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Vec<Section>, Report)> {
    let (dim, count) = (rows.dim(), rows.count());
    let half = options.storage == VectorStorage::F16;
    let vectors = write_vectors(rows, options.storage, folder, VECTORS)?;
    let extra = extra(rows);
    let space = Space { vectors: Vectors::new(dim, false, rows.bytes()), extra: &extra };
    let graph = build::build(options, space, &mut |done| {
        progress(Progress::Indexed { done: done as u64, total: count as u64 });
    });
    if graph.unrepaired > 0 {
        tracing::warn!(
            vectors = graph.unrepaired,
            "vectors that a search by themselves does not find: more `links` or a greater `construction-width` help"
        );
    }
    let mut links = folder.section(LINKS)?;
    links.put(graph.bottom.as_flattened())?;
    let mut upper = folder.section(UPPER)?;
    upper.put(&graph.entry.to_le_bytes())?;
    upper.put(&graph.upper.to_bytes())?;
    let sections = vec![vectors, links.finish()?, upper.finish()?];
    let built = Hnsw {
        dim,
        count,
        half,
        width: options.search_width,
        vectors: Mapped::open(folder.path(VECTORS), sections[0].bytes)?,
        links: Mapped::open(folder.path(LINKS), sections[1].bytes)?,
        parts: Parts::new(graph.upper, graph.entry),
    };
    let recall = Sample::draw(rows, options.seed)?.recall(&built)?;
    Ok((sections, Report { recall: Some(recall), lost: graph.lost, unrepaired: graph.unrepaired }))
}

/// The extra values that give all vectors equal norms; empty if they are equal.
fn extra(rows: &Rows) -> Vec<f32> {
    let mut values = Vec::new();
    let squares: Vec<f64> = (0..rows.count())
        .map(|at| {
            values.clear();
            rows.read(at, 1, &mut values);
            values.iter().map(|value| f64::from(*value) * f64::from(*value)).sum()
        })
        .collect();
    let greatest = squares.iter().copied().fold(0.0, f64::max);
    // Normalised vectors differ in norm by rounding.
    if squares.iter().all(|square| greatest - square <= 1e-6 * greatest) {
        return Vec::new();
    }
    squares.into_iter().map(|square| (greatest - square).max(0.0).sqrt() as f32).collect()
}

impl Parts {
    fn new(upper: Upper, entry: u32) -> Self {
        let top = upper.level(entry);
        Self { upper, entry, top, walks: Mutex::new(Vec::new()) }
    }
}

impl Hnsw {
    /// Opens the files of an index.
    pub(crate) fn open(options: &HnswOptions, files: &mut Files, header: &Header) -> Result<Self> {
        let (dim, count) = (header.dim, header.passages as usize);
        let half = options.storage == VectorStorage::F16;
        let vectors = files.take(VECTORS)?;
        vectors.expect(count * dim * options.storage.bytes())?;
        let links = files.take(LINKS)?;
        links.expect(count * 2 * options.links * 4)?;
        let upper = files.take(UPPER)?;
        let parts = upper.split_first_chunk::<4>().and_then(|(entry, rest)| {
            let entry = u32::from_le_bytes(*entry);
            let known = (entry as usize) < count || (count == 0 && entry == NONE);
            Some(Parts::new(Upper::from_bytes(options.links, count, rest).filter(|_| known)?, entry))
        });
        let Some(parts) = parts else {
            return Err(upper.corrupt("expected a first vector and the layers of a graph"));
        };
        Ok(Self { dim, count, half, width: options.search_width, vectors, links, parts })
    }

    fn space(&self) -> Space<'_> {
        Space { vectors: Vectors::new(self.dim, self.half, &self.vectors), extra: &[] }
    }

    fn one(&self, walk: &mut Walk, query: &[f32], k: usize, filter: Option<Filter<'_>>) -> Vec<(u32, f32)> {
        let k = k.min(self.count);
        let mut width = self.width.max(k);
        let nearness = Exact { space: self.space(), point: Point { values: query, extra: 0.0 } };
        let links =
            Bottom { links: self.links.as_chunks().0, width: self.links.len() / 4 / self.count.max(1) };
        let Parts { upper, entry, top, .. } = &self.parts;
        let start = walk.descend(nearness, upper, (*top, 0), *entry);
        // A walk is slower than a sequential scan. If it would visit much of the graph, all vectors are
        // scanned.
        while width < self.count.div_ceil(8) {
            walk.walk(nearness, links, start, width);
            let let_through = walk.found().filter(|(id, _)| filter.is_none_or(|filter| filter(*id)));
            let found: Vec<_> = let_through.take(k).collect();
            if found.len() == k {
                return found;
            }
            width *= 2;
        }
        all(self.space().vectors, query, k, filter)
    }
}

/// The `k` best of all vectors.
fn all(vectors: Vectors<'_>, query: &[f32], k: usize, filter: Option<Filter<'_>>) -> Vec<(u32, f32)> {
    const AT_ONCE: usize = 1024;
    let count = vectors.count();
    let mut top = Top::new(k);
    let (mut ids, mut scores) = (Vec::with_capacity(AT_ONCE), Vec::new());
    for first in (0..count).step_by(AT_ONCE) {
        ids.clear();
        let some = first as u32..(first + AT_ONCE).min(count) as u32;
        ids.extend(some.filter(|id| filter.is_none_or(|filter| filter(*id))));
        vectors.scores(Isa::detected(), query, &ids, &mut scores);
        for (&id, &score) in ids.iter().zip(&scores) {
            if score > top.threshold() {
                top.offer(id, score);
            }
        }
    }
    Top::merged([top], k)
}

impl VectorIndex for Hnsw {
    fn dim(&self) -> usize {
        self.dim
    }

    fn len(&self) -> usize {
        self.count
    }

    fn search(
        &self,
        queries: &Embeddings,
        k: usize,
        filter: Option<Filter<'_>>,
    ) -> Result<Vec<Vec<(u32, f32)>>> {
        let one = |query: &[f32]| {
            let idle = self.parts.walks.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut walk = idle.unwrap_or_else(|| Walk::new(self.count));
            let found = self.one(&mut walk, query, k, filter);
            self.parts.walks.lock().unwrap_or_else(PoisonError::into_inner).push(walk);
            found
        };
        if queries.len() == 1 {
            return Ok(queries.rows().map(one).collect());
        }
        let queries: Vec<&[f32]> = queries.rows().collect();
        Ok(queries.into_par_iter().map(one).collect())
    }

    fn scores(&self, queries: &Embeddings, lists: &[Vec<u32>]) -> Result<Vec<Vec<f32>>> {
        Ok(scores_of(&self.space().vectors, queries, lists))
    }
}
