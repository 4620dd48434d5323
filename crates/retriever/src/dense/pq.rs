//! Product quantisation: a vector is split into parts, and each part is stored as its nearest centroid.
//!
//! H. Jégou, M. Douze and C. Schmid, "Product quantization for nearest neighbor search", 2011, with exact
//! query vectors ("asymmetric"). A query has a table of inner products with all centroids of a part; a row's
//! score is the sum of its entries. Rows are scanned with 8-bit tables first. The best are rescored with
//! exact tables, or with stored vectors.

use rand::{Rng, SeedableRng, seq::index};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use sporran_kernels::{CodeBits, Codebook, Codes, Filter, Isa, Vectors, by_rank, round_tables};

use super::{
    Embeddings, PqBits, PqOptions, Progress, Report, VectorIndex, VectorStorage,
    flat::{VECTORS, rescore_with, scores_of, write_vectors},
    header::Header,
    recall::Sample,
    rows::Rows,
    vector_index::listed_scores,
};
use crate::{
    Error, Result,
    layout::{Files, Folder, Mapped, Section},
};

/// The centroids of each part, f32.
const CENTROIDS: &str = "centroids";
/// The codes, in blocks of 64 rows.
const CODES: &str = "codes";

/// The number of rows encoded at once: whole blocks.
const AT_ONCE: usize = 64 * Codes::ROWS;

/// The number of 8-bit results to rescore with exact tables, as a multiple of k.
const LOOKED_AT: usize = 4;
/// The smallest such number.
const LEAST_LOOKED_AT: usize = 64;

/// The number of queries whose tables are in memory at once.
const PASS: usize = 256;

/// Memory-mapped codes.
pub(crate) struct Pq {
    dim: usize,
    count: usize,
    parts: usize,
    bits: CodeBits,
    books: Vec<Codebook>,
    codes: Mapped,
    rescore: Option<Rescore>,
}

/// Exact rescoring of the best vectors.
struct Rescore {
    /// The number of vectors to rescore, as a multiple of k.
    times: usize,
    half: bool,
    vectors: Mapped,
}

impl From<PqBits> for CodeBits {
    fn from(bits: PqBits) -> Self {
        match bits {
            PqBits::Four => Self::Four,
            PqBits::Eight => Self::Eight,
        }
    }
}

/// The number of parts of a vector.
pub(super) fn parts_of(options: &PqOptions, dim: usize) -> Result<usize> {
    let bits = CodeBits::from(options.bits);
    // The default is one byte for 8 values.
    let parts = options.parts.unwrap_or(match bits {
        CodeBits::Four => dim / 4,
        CodeBits::Eight => dim / 8,
    });
    let even = bits == CodeBits::Eight || parts.is_multiple_of(2);
    if parts == 0 || parts > Codes::MOST_PARTS || !dim.is_multiple_of(parts) || !even {
        return Err(Error::Option {
            option: "index.parts",
            expected: "1 to 256 parts of one width, an even number with 4 bits",
            found: format!("{parts} parts of {dim} values"),
        });
    }
    Ok(parts)
}

/// Checks the constraints on the vector length.
pub(crate) fn check(options: &PqOptions, dim: usize) -> Result<()> {
    parts_of(options, dim).map(|_| ())
}

/// Writes the files of an index.
pub(crate) fn write(
    options: &PqOptions,
    rows: &Rows,
    folder: &Folder,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Vec<Section>, Report)> {
    let (dim, count) = (rows.dim(), rows.count());
    let parts = parts_of(options, dim)?;
    let bits = CodeBits::from(options.bits);
    let centroids = learn(options, rows, parts, bits.codes());
    let mut section = folder.section(CENTROIDS)?;
    section.put(&centroids.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())?;
    let mut sections = vec![section.finish()?];
    let books = books(&centroids, parts, bits.codes());

    let mut section = folder.section(CODES)?;
    let size = bits.block_bytes(parts);
    let mut values = Vec::new();
    for first in (0..count).step_by(AT_ONCE) {
        let some = AT_ONCE.min(count - first);
        values.clear();
        rows.read(first, some, &mut values);
        let mut bytes = vec![0; some.div_ceil(Codes::ROWS) * size];
        let blocks = bytes.par_chunks_mut(size).zip(values.par_chunks(Codes::ROWS * dim));
        blocks.for_each(|(block, values)| {
            let codes = encode(&books, values, dim);
            Codes::pack(bits, parts, &codes, block);
        });
        section.put(&bytes)?;
        progress(Progress::Indexed { done: (first + some) as u64, total: count as u64 });
    }
    sections.push(section.finish()?);
    let mut rescore = None;
    if options.rescore > 0 {
        let section = write_vectors(rows, options.rescore_storage, folder, VECTORS)?;
        let vectors = Mapped::open(folder.path(VECTORS), section.bytes)?;
        sections.push(section);
        rescore = Some(Rescore::new(options, vectors));
    }
    let codes = Mapped::open(folder.path(CODES), sections[1].bytes)?;
    let built = Pq { dim, count, parts, bits, books, codes, rescore };
    let recall = Sample::draw(rows, options.seed)?.recall(&built)?;
    Ok((sections, Report { recall: Some(recall), ..Report::default() }))
}

fn books(centroids: &[f32], parts: usize, codes: usize) -> Vec<Codebook> {
    let width = centroids.len() / (parts * codes);
    centroids.chunks_exact(codes * width).map(|vectors| Codebook::new(width, vectors)).collect()
}

/// The codes of rows, row by row.
fn encode(books: &[Codebook], rows: &[f32], dim: usize) -> Vec<u8> {
    let (parts, count) = (books.len(), rows.len() / dim);
    let mut codes = vec![0; count * parts];
    let mut nearest = vec![0; count];
    for (part, book) in books.iter().enumerate() {
        book.assign(Isa::detected(), &rows[part * (dim / parts)..], dim, &mut nearest);
        for (codes, code) in codes.chunks_exact_mut(parts).zip(&nearest) {
            codes[part] = *code;
        }
    }
    codes
}

/// The centroids of every part, by k-means over a sample.
fn learn(options: &PqOptions, rows: &Rows, parts: usize, codes: usize) -> Vec<f32> {
    let (dim, count) = (rows.dim(), rows.count());
    let width = dim / parts;
    let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
    let mut sample = index::sample(&mut rng, count, options.sample.min(count)).into_vec();
    sample.sort_unstable();
    let mut values = Vec::with_capacity(sample.len() * dim);
    sample.iter().for_each(|at| rows.read(*at, 1, &mut values));
    let learnt: Vec<Vec<f32>> = (0..parts)
        .into_par_iter()
        .map(|part| {
            // One random stream a part, so that results do not depend on threads.
            let mut rng = rng.clone();
            rng.set_stream(part as u64 + 1);
            means(&values, part * width, width, dim, codes, options.iterations, &mut rng)
        })
        .collect();
    learnt.concat()
}

/// K-means of one part of all points: `width` values at `offset` of each `dim`.
fn means(
    points: &[f32],
    offset: usize,
    width: usize,
    dim: usize,
    codes: usize,
    iterations: usize,
    rng: &mut ChaCha8Rng,
) -> Vec<f32> {
    let count = points.len() / dim;
    let point = |at: usize| &points[at * dim + offset..][..width];
    let mut centroids = vec![0.0; codes * width];
    if count == 0 {
        return centroids;
    }
    // With fewer points than codes, some are used twice; the second is never the nearest.
    let mut first = index::sample(rng, count, codes.min(count)).into_vec();
    first.extend((first.len()..codes).map(|_| 0));
    for (centroid, at) in centroids.chunks_exact_mut(width).zip(first) {
        centroid.copy_from_slice(point(at));
    }
    let mut nearest = vec![0u8; count];
    for _ in 0..iterations {
        let book = Codebook::new(width, &centroids);
        book.assign(Isa::detected(), &points[offset..], dim, &mut nearest);
        let mut sums = vec![0f64; codes * width];
        let mut sizes = vec![0usize; codes];
        for (at, code) in nearest.iter().enumerate() {
            let code = usize::from(*code);
            sizes[code] += 1;
            for (sum, value) in sums[code * width..][..width].iter_mut().zip(point(at)) {
                *sum += f64::from(*value);
            }
        }
        for (code, size) in sizes.iter().enumerate() {
            let centroid = &mut centroids[code * width..][..width];
            if *size > 0 {
                for (centroid, sum) in centroid.iter_mut().zip(&sums[code * width..]) {
                    *centroid = (sum / *size as f64) as f32;
                }
            } else {
                // An empty cluster restarts at a random point.
                centroid.copy_from_slice(point(rng.random_range(0..count)));
            }
        }
    }
    centroids
}

impl Rescore {
    fn new(options: &PqOptions, vectors: Mapped) -> Self {
        let half = options.rescore_storage == VectorStorage::F16;
        Self { times: options.rescore, half, vectors }
    }

    /// The vectors, each of `dim` values.
    fn vectors(&self, dim: usize) -> Vectors<'_> {
        Vectors::new(dim, self.half, &self.vectors)
    }
}

/// A query's tables.
struct Tables {
    /// The inner products of each part with its centroids.
    exact: Vec<f32>,
    /// The same as bytes, with one step size for all parts and an offset for each.
    bytes: Vec<u8>,
}

impl Pq {
    /// Opens the files of an index.
    pub(crate) fn open(options: &PqOptions, files: &mut Files, header: &Header) -> Result<Self> {
        let (dim, count) = (header.dim, header.passages as usize);
        let (parts, bits) = (parts_of(options, dim)?, CodeBits::from(options.bits));
        let centroids = files.take(CENTROIDS)?;
        centroids.expect(bits.codes() * dim * 4)?;
        let values: Vec<f32> =
            centroids.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
        let codes = files.take(CODES)?;
        codes.expect(count.div_ceil(Codes::ROWS) * bits.block_bytes(parts))?;
        let rescore = if options.rescore > 0 {
            let vectors = files.take(VECTORS)?;
            vectors.expect(count * dim * options.rescore_storage.bytes())?;
            Some(Rescore::new(options, vectors))
        } else {
            None
        };
        Ok(Self { dim, count, parts, bits, books: books(&values, parts, bits.codes()), codes, rescore })
    }

    fn tables(&self, query: &[f32]) -> Tables {
        let codes = self.bits.codes();
        let mut exact = vec![0.0; self.parts * codes];
        let parts = query.chunks_exact(self.dim / self.parts);
        for ((book, part), table) in self.books.iter().zip(parts).zip(exact.chunks_exact_mut(codes)) {
            book.products(Isa::detected(), part, table);
        }
        let mut bytes = vec![0; exact.len()];
        round_tables(Isa::detected(), self.bits, &exact, &mut bytes);
        Tables { exact, bytes }
    }

    /// Rescores hits of the 8-bit scan with the exact tables.
    fn score(codes: &Codes<'_>, tables: &Tables, found: &mut [(u32, f32)]) {
        for (row, score) in found.iter_mut() {
            *score = codes.sum(&tables.exact, *row as usize);
        }
        found.sort_unstable_by(by_rank);
    }
}

impl VectorIndex for Pq {
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
        let codes = Codes::new(self.bits, self.parts, self.count, &self.codes);
        let times = self.rescore.as_ref().map_or(LOOKED_AT, |rescore| rescore.times.max(LOOKED_AT));
        let wanted = if k == 0 { 0 } else { k.saturating_mul(times).max(LEAST_LOOKED_AT) };
        let mut all = Vec::with_capacity(queries.len());
        for queries in queries.values().chunks(PASS * self.dim) {
            let tables: Vec<Tables> = queries.par_chunks(self.dim).map(|query| self.tables(query)).collect();
            let bytes = tables.iter().map(|tables| &tables.bytes[..]).collect::<Vec<_>>().concat();
            let mut found = codes.search(isa, &bytes, wanted, filter);
            let queries = queries.par_chunks(self.dim).zip(&tables);
            found.par_iter_mut().zip(queries).for_each_init(
                || (Vec::new(), Vec::new()),
                |(ids, scores), (found, (query, tables))| {
                    match &self.rescore {
                        Some(rescore) => {
                            let vectors = rescore.vectors(self.dim);
                            rescore_with(&vectors, isa, query, found, ids, scores);
                        }
                        None => Self::score(&codes, tables, found),
                    }
                    found.truncate(k);
                },
            );
            all.append(&mut found);
        }
        Ok(all)
    }

    fn scores(&self, queries: &Embeddings, lists: &[Vec<u32>]) -> Result<Vec<Vec<f32>>> {
        if let Some(rescore) = &self.rescore {
            let vectors = rescore.vectors(self.dim);
            return Ok(scores_of(&vectors, queries, lists));
        }
        let codes = &Codes::new(self.bits, self.parts, self.count, &self.codes);
        Ok(listed_scores(queries, lists, |query| {
            let tables = self.tables(query);
            move |id| codes.sum(&tables.exact, id as usize)
        }))
    }
}
