//! Graphs of the crate `hnsw_rs`.
//!
//! No other file calls the crate. It ends the process or panics for some arguments and for damaged files, and it
//! prints messages. So [`HnswOptions`] are checked before, and checksums are verified at each opening. Its
//! functions that always print are not called.
//!
//! The crate compares distances, which must not be negative. So each vector gets the extra value of
//! [`Space`](super::Space), and Euclidean distances then order vectors as inner products do. Its files are
//! `graph.hnsw.graph` and `graph.hnsw.data`; the latter has all vectors, with their extra values. The vectors are
//! also in `vectors`, for scores and scans.

use std::{fs::File, io, path::Path};

use ::hnsw_rs::{
    anndists::dist::distances::Distance,
    api::AnnT,
    hnsw::{FilterT, Hnsw},
    hnswio::HnswIo,
};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use sporran_kernels::{Comparison, Filter, Isa, Vectors};

use super::{
    super::{
        Embeddings, HnswOptions, Progress, Report, VectorIndex, VectorStorage,
        flat::{VECTORS, rescore_with, scores_of, write_vectors},
        header::Header,
        recall::Sample,
        rows::{PORTION, Rows},
    },
    all,
    build::AUDIT_WIDTH,
    extra,
};
use crate::{
    Error, Result,
    layout::{self, Files, Folder, Mapped, Section},
};

/// The crate appends the ends of both names.
const NAME: &str = "graph";
const GRAPH: &str = "graph.hnsw.graph";
const DATA: &str = "graph.hnsw.data";
/// The number of layers; the crate does not write a graph of fewer.
const LAYERS: usize = 16;
/// The largest share of vectors that a search for themselves may miss.
const MOST_LOST: f64 = 0.05;

/// The Euclidean distance. The crate compares its name with that in a file.
#[derive(Clone, Copy, Default)]
struct Euclidean;

impl Distance<f32> for Euclidean {
    fn eval(&self, a: &[f32], b: &[f32]) -> f32 {
        let mut score = [0.0];
        Comparison::L2.scores(Isa::detected(), a, b, &mut score);
        -score[0]
    }
}

type Graph = Hnsw<'static, f32, Euclidean>;

/// A graph in memory, over mapped vectors.
pub(crate) struct Library {
    dim: usize,
    count: usize,
    half: bool,
    width: usize,
    vectors: Mapped,
    /// None without vectors, because the crate cannot write an empty graph.
    graph: Option<Graph>,
}

/// Builds a graph and writes the files of an index.
pub(crate) fn write(
    options: &HnswOptions,
    rows: &Rows,
    folder: &Folder,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Vec<Section>, Report)> {
    let (dim, count) = (rows.dim(), rows.count());
    if count > i32::MAX as usize {
        return Err(Error::TooLarge { what: "vectors", most: i32::MAX as u64 });
    }
    let mut sections = vec![write_vectors(rows, options.storage, folder, VECTORS)?];
    let points = Points { rows, extra: extra(rows) };
    let mut graph = None;
    if count > 0 {
        let built = build(options, &points, progress);
        sections.extend(dump(&built, folder)?);
        drop(built);
        // What is measured is what is opened later.
        graph = Some(load(&folder.path(""), dim, count)?);
    }
    let lost = graph.as_ref().map_or(0, |graph| lost(graph, count, |id| points.of(id)));
    check_lost(lost, count as u32)?;
    if lost > 0 {
        tracing::warn!(vectors = lost, "vectors that a search by themselves does not find");
    }
    let built = Library {
        dim,
        count,
        half: options.storage == VectorStorage::F16,
        width: options.search_width,
        vectors: Mapped::open(folder.path(VECTORS), sections[0].bytes)?,
        graph,
    };
    let recall = Sample::draw(rows, options.seed)?.recall(&built)?;
    Ok((sections, Report { recall: Some(recall), lost, unrepaired: lost }))
}

/// The vectors with their extra values.
struct Points<'a> {
    rows: &'a Rows,
    /// Empty if all norms are equal.
    extra: Vec<f32>,
}

impl Points<'_> {
    fn of(&self, id: usize) -> Vec<f32> {
        let mut values = Vec::with_capacity(self.rows.dim() + 1);
        self.rows.read(id, 1, &mut values);
        values.push(self.extra.get(id).copied().unwrap_or_default());
        values
    }
}

/// Inserts all vectors in a seeded order.
fn build(options: &HnswOptions, points: &Points<'_>, progress: &mut dyn FnMut(Progress)) -> Graph {
    let count = points.rows.count();
    // The crate reserves memory for this many candidates.
    let width = options.construction_width.min(count);
    let graph = Graph::new(options.links, count, LAYERS, width, Euclidean);
    let mut order: Vec<usize> = (0..count).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(options.seed));
    let mut done = 0;
    for ids in order.chunks(PORTION) {
        if options.parallel_build {
            ids.par_iter().for_each(|id| graph.insert((&points.of(*id), *id)));
        } else {
            ids.iter().for_each(|id| graph.insert((&points.of(*id), *id)));
        }
        done += ids.len();
        progress(Progress::Indexed { done: done as u64, total: count as u64 });
    }
    graph
}

/// Writes a graph that has vectors.
fn dump(graph: &Graph, folder: &Folder) -> Result<[Section; 2]> {
    // The crate panics for a file that it cannot create.
    for name in [GRAPH, DATA] {
        let path = folder.path(name);
        File::create(&path).map_err(Error::io(&path, "create"))?;
    }
    let path = folder.path(GRAPH);
    let written = graph.file_dump(&folder.path(""), NAME);
    written.map_err(|error| Error::io(&path, "write")(io::Error::other(error.to_string())))?;
    Ok([folder.written(GRAPH)?, folder.written(DATA)?])
}

/// Loads a graph from files whose checksums are right.
fn load(folder: &Path, dim: usize, count: usize) -> Result<Graph> {
    // The graph borrows its loader for its whole life. It is a few hundred bytes long, and never freed.
    let loader: &'static mut HnswIo = Box::leak(Box::new(HnswIo::new(folder, NAME)));
    let corrupt = |message: String| Error::Corrupt { path: folder.join(GRAPH), message };
    let graph = loader.load_hnsw::<f32, Euclidean>().map_err(|error| corrupt(error.to_string()))?;
    let found = (graph.get_nb_point(), graph.get_point_indexation().get_data_dimension());
    if found != (count, dim + 1) {
        return Err(corrupt(format!(
            "expected {count} vectors of {} values, found {} of {}",
            dim + 1,
            found.0,
            found.1
        )));
    }
    Ok(graph)
}

/// The number of vectors that a search for themselves does not find. An equal vector counts as found.
fn lost(graph: &Graph, count: usize, point: impl Fn(usize) -> Vec<f32> + Sync) -> u32 {
    let is_lost = |id: &usize| {
        let found = graph.search(&point(*id), 1, AUDIT_WIDTH);
        found.first().is_none_or(|found| found.get_distance() > 0.0)
    };
    (0..count).into_par_iter().filter(is_lost).count() as u32
}

/// Refuses a graph in which many vectors are lost.
fn check_lost(lost: u32, vectors: u32) -> Result<()> {
    if f64::from(lost) > MOST_LOST * f64::from(vectors) {
        return Err(Error::BrokenGraph { lost, vectors });
    }
    Ok(())
}

impl Library {
    /// Opens the files of an index. All checksums are verified.
    pub(crate) fn open(options: &HnswOptions, files: &mut Files, header: &Header) -> Result<Self> {
        let (dim, count) = (header.dim, header.passages as usize);
        let vectors = files.take(VECTORS)?;
        vectors.expect(count * dim * options.storage.bytes())?;
        layout::verify(files.folder(), header)?;
        let mut graph = None;
        if count > 0 {
            files.take(GRAPH)?;
            // A mark and the dimension, and for each vector a mark, its number, its length and its values.
            files.take(DATA)?.expect(12 + count * (20 + 4 * (dim + 1)))?;
            graph = Some(load(files.folder(), dim, count)?);
        }
        let half = options.storage == VectorStorage::F16;
        Ok(Self { dim, count, half, width: options.search_width, vectors, graph })
    }

    fn vectors(&self) -> Vectors<'_> {
        Vectors::new(self.dim, self.half, &self.vectors)
    }

    fn one(&self, query: &[f32], k: usize, filter: Option<Filter<'_>>) -> Vec<(u32, f32)> {
        let k = k.min(self.count);
        // With a width of 1 and a filter the crate can panic.
        let width = self.width.max(k).max(2);
        // As with our graphs: if a search would visit much of the graph, all vectors are scanned.
        if let Some(graph) = self.graph.as_ref().filter(|_| width < self.count.div_ceil(8)) {
            let point: Vec<f32> = query.iter().copied().chain([0.0]).collect();
            let passes = filter.map(|filter| move |id: &usize| filter(*id as u32));
            let passes = passes.as_ref().map(|passes| passes as &dyn FilterT);
            let found = graph.search_filter(&point, k, width, passes);
            if found.len() == k {
                let mut found: Vec<(u32, f32)> =
                    found.iter().map(|found| (found.get_origin_id() as u32, 0.0)).collect();
                let (mut ids, mut scores) = (Vec::new(), Vec::new());
                rescore_with(&self.vectors(), Isa::detected(), query, &mut found, &mut ids, &mut scores);
                return found;
            }
        }
        all(self.vectors(), query, k, filter)
    }
}

impl VectorIndex for Library {
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
        if queries.len() == 1 {
            return Ok(queries.rows().map(|query| self.one(query, k, filter)).collect());
        }
        let queries: Vec<&[f32]> = queries.rows().collect();
        Ok(queries.into_par_iter().map(|query| self.one(query, k, filter)).collect())
    }

    fn scores(&self, queries: &Embeddings, lists: &[Vec<u32>]) -> Result<Vec<Vec<f32>>> {
        Ok(scores_of(&self.vectors(), queries, lists))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_that_are_not_found_are_counted_and_many_are_refused() {
        let graph = Graph::new(8, 100, LAYERS, 40, Euclidean);
        let point = |id: usize| vec![id as f32, (id * id % 17) as f32];
        (0..90).for_each(|id| graph.insert((&point(id), id)));
        // The graph lacks the last 10.
        assert_eq!(lost(&graph, 100, point), 10);
        assert_eq!(lost(&graph, 90, point), 0);
        assert!(check_lost(5, 100).is_ok() && check_lost(0, 0).is_ok());
        let error = check_lost(6, 100).unwrap_err();
        assert!(matches!(error, Error::BrokenGraph { lost: 6, vectors: 100 }));
        assert!(error.to_string().contains("6 of 100 vectors are not found by themselves"), "{error}");
    }
}
