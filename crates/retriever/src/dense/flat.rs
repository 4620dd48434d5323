//! Exact search: every vector is compared with every query.

use half::f16;
use rayon::prelude::*;
use sporran_kernels::{Filter, Isa, Panels, Vectors, by_rank};

use super::{
    Embeddings, FlatOptions, Progress, Storage, VectorIndex, VectorStorage, header::Header, rows::Rows,
};
use crate::{
    Error, Result,
    layout::{Files, Folder, Mapped, Section},
};

/// The vectors in panels of 32 for the scan.
const PANELS: &str = "panels";
/// The vectors in order, for access by index.
pub(crate) const VECTORS: &str = "vectors";

/// The number of rows packed at once.
const AT_ONCE: usize = 4096;

/// A flat index.
pub(crate) struct Flat {
    storage: sporran_kernels::Storage,
    dim: usize,
    count: usize,
    panels: Mapped,
    rescore: Option<Rescore>,
}

/// Exact rescoring of the best vectors.
struct Rescore {
    /// The number of vectors to rescore, as a multiple of k.
    times: usize,
    half: bool,
    vectors: Mapped,
}

/// Writes the files of an index.
pub(crate) fn write(
    options: &FlatOptions,
    rows: &Rows,
    folder: &Folder,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Section>> {
    let (dim, count) = (rows.dim(), rows.count());
    let storage: sporran_kernels::Storage = options.storage.into();
    let mut panels = folder.section(PANELS)?;
    let size = storage.panel_bytes(dim);
    let lanes = Panels::ROWS;
    let (mut values, mut bytes) = (Vec::new(), Vec::new());
    for first in (0..count).step_by(AT_ONCE) {
        let some = AT_ONCE.min(count - first);
        values.clear();
        rows.read(first, some, &mut values);
        if options.storage == Storage::F16 {
            check_halves(&values, dim, first)?;
        }
        bytes.resize(some.div_ceil(lanes) * size, 0);
        bytes
            .par_chunks_mut(size)
            .zip(values.par_chunks(lanes * dim))
            .for_each(|(panel, rows)| storage.pack(dim, rows, panel));
        panels.put(&bytes)?;
        progress(Progress::Indexed { done: (first + some) as u64, total: count as u64 });
    }
    let mut sections = vec![panels.finish()?];
    if options.rescore > 0 {
        sections.push(write_vectors(rows, options.rescore_storage, folder, VECTORS)?);
    }
    Ok(sections)
}

/// Writes all vectors in order.
pub(crate) fn write_vectors(
    rows: &Rows,
    storage: VectorStorage,
    folder: &Folder,
    name: &'static str,
) -> Result<Section> {
    let (dim, count) = (rows.dim(), rows.count());
    let mut section = folder.section(name)?;
    let (mut values, mut bytes) = (Vec::new(), Vec::new());
    for first in (0..count).step_by(AT_ONCE) {
        values.clear();
        rows.read(first, AT_ONCE.min(count - first), &mut values);
        bytes.clear();
        match storage {
            VectorStorage::F32 => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            VectorStorage::F16 => {
                check_halves(&values, dim, first)?;
                bytes.extend(values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()));
            }
        }
        section.put(&bytes)?;
    }
    section.finish()
}

/// The error for a value beyond 16 bits.
fn check_halves(values: &[f32], dim: usize, first: usize) -> Result<()> {
    match values.iter().position(|value| value.abs() > f16::MAX.to_f32()) {
        None => Ok(()),
        Some(at) => Err(Error::Vector {
            vector: first + at / dim,
            expected: format!("values up to {} for f16", f16::MAX),
            found: values[at].to_string(),
        }),
    }
}

impl Flat {
    /// Opens the files of an index.
    pub(crate) fn open(options: &FlatOptions, files: &mut Files, header: &Header) -> Result<Self> {
        let storage: sporran_kernels::Storage = options.storage.into();
        let (dim, count) = (header.dim, header.passages as usize);
        let panels = files.take(PANELS)?;
        panels.expect(count.div_ceil(Panels::ROWS) * storage.panel_bytes(dim))?;
        let rescore = if options.rescore > 0 {
            let vectors = files.take(VECTORS)?;
            vectors.expect(count * dim * options.rescore_storage.bytes())?;
            let half = options.rescore_storage == VectorStorage::F16;
            Some(Rescore { times: options.rescore, half, vectors })
        } else {
            None
        };
        Ok(Self { storage, dim, count, panels, rescore })
    }
}

impl VectorIndex for Flat {
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
        let isa = Isa::detected();
        let panels = Panels::new(self.storage, self.dim, self.count, &self.panels);
        let Some(rescore) = &self.rescore else {
            return Ok(panels.search(isa, queries.values(), k, filter));
        };
        let mut found = panels.search(isa, queries.values(), k.saturating_mul(rescore.times), filter);
        let vectors = Vectors::new(self.dim, rescore.half, &rescore.vectors);
        let queries: Vec<&[f32]> = queries.rows().collect();
        found.par_iter_mut().zip(queries).for_each_init(
            || (Vec::new(), Vec::new()),
            |(ids, scores), (found, query)| {
                rescore_with(&vectors, isa, query, found, ids, scores);
                found.truncate(k);
            },
        );
        Ok(found)
    }

    fn scores(&self, queries: &Embeddings, lists: &[Vec<u32>]) -> Result<Vec<Vec<f32>>> {
        let isa = Isa::detected();
        Ok(match &self.rescore {
            None => {
                let panels = Panels::new(self.storage, self.dim, self.count, &self.panels);
                panels.scores(isa, queries.values(), lists)
            }
            Some(rescore) => {
                scores_of(&Vectors::new(self.dim, rescore.half, &rescore.vectors), queries, lists)
            }
        })
    }
}

/// The scores of the vectors in lists, read by index.
pub(crate) fn scores_of(vectors: &Vectors<'_>, queries: &Embeddings, lists: &[Vec<u32>]) -> Vec<Vec<f32>> {
    let one = |(query, ids): (&[f32], &Vec<u32>)| {
        let mut scores = Vec::with_capacity(ids.len());
        vectors.scores(Isa::detected(), query, ids, &mut scores);
        scores
    };
    queries.rows().zip(lists).map(one).collect()
}

/// Rescores hits and sorts them.
pub(crate) fn rescore_with(
    vectors: &Vectors<'_>,
    isa: Isa,
    query: &[f32],
    found: &mut [(u32, f32)],
    ids: &mut Vec<u32>,
    scores: &mut Vec<f32>,
) {
    ids.clear();
    ids.extend(found.iter().map(|(id, _)| *id));
    vectors.scores(isa, query, ids, scores);
    for ((_, score), new) in found.iter_mut().zip(scores) {
        *score = *new;
    }
    found.sort_unstable_by(by_rank);
}
