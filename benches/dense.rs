//! Vector search, compared with faiss-cpu and hnswlib on the same vectors in one run.
//!
//! Corpus, from seed 1: vectors of 32 intrinsic dimensions in 500 clusters, mapped to the dimension by a
//! random matrix, with a little noise and normalised. Queries are sampled the same way. The bench times one
//! query at a time (mean of 100; for graphs of all) and all 1,000 together, 10 best each, on all threads.
//! Recall is relative to the exact results. Graphs are compared at the smallest search width that reaches a
//! recall. The graphs of the crate `hnsw_rs`, built on one thread, stand beside ours. The peers run if `PYTHON` names an interpreter with `faiss-cpu`, `hnswlib` and `numpy`.
//!
//! ```text
//! PYTHON=python3 cargo bench --bench dense -- --rows 66000 --dim 384 --kinds flat,pq,hnsw
//! ```
#![allow(clippy::print_stdout, reason = "a bench reports on standard output")]

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Instant,
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::Deserialize;
use sporran_retriever::dense::{
    Embeddings, FlatOptions, HnswLibrary, HnswOptions, Index, IndexOptions, Origin, PqBits, PqOptions,
    Similarity, Storage, VectorIndex, VectorStorage,
};

type Outcome<T> = Result<T, Box<dyn Error>>;
type Found = Vec<Vec<(u32, f32)>>;

const SEED: u64 = 1;
const HEAPS: usize = 500;
const INTRINSIC: usize = 32;
const QUERIES: usize = 1000;
/// The number of queries timed one at a time for exhaustive indexes.
const SINGLE: usize = 100;
const K: usize = 10;
const WIDTHS: [usize; 12] = [10, 12, 16, 20, 26, 34, 48, 64, 96, 128, 192, 256];
const RECALLS: [f64; 2] = [0.95, 0.99];
/// The best of this many runs counts.
const RUNS: usize = 3;
const ORIGIN: Origin<'_> = Origin { encoder_hash: "bench", passages_hash: "bench" };

/// The measurements of an index.
#[derive(Clone, Debug, Deserialize)]
struct Figures {
    name: String,
    /// For graphs: the target recall.
    #[serde(default)]
    aim: Option<f64>,
    build: f64,
    bytes: f64,
    /// Seconds a query, one at a time and batched.
    single: f64,
    batch: f64,
    recall: f64,
}

impl Figures {
    fn print(&self) {
        println!(
            "  {:<28} build {:8.2} s  {:7.1} bytes/row  {:9.1} us single  {:8.1} us batched  recall {:.4}",
            self.name,
            self.build,
            self.bytes,
            self.single * 1e6,
            self.batch * 1e6,
            self.recall
        );
    }
}

struct Corpus {
    rows: usize,
    dim: usize,
    folder: tempfile::TempDir,
    queries: Embeddings,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let value = |name: &str| -> Option<&str> {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).map(String::as_str)
    };
    let rows: usize = value("--rows").unwrap_or("66000").parse()?;
    let dim: usize = value("--dim").unwrap_or("384").parse()?;
    let kinds = value("--kinds").unwrap_or("flat,pq,hnsw");
    println!("{rows} rows of {dim}, {} threads, seed {SEED}", rayon::current_num_threads());
    let corpus = Corpus::make(rows, dim)?;
    let exact = corpus.exact()?;
    for kind in kinds.split(',') {
        let ours = match kind {
            "flat" => corpus.flat(&exact)?,
            "pq" => corpus.pq(&exact)?,
            "hnsw" => corpus.graph(&exact)?,
            other => return Err(format!("--kinds: expected flat, pq or hnsw, found {other}").into()),
        };
        compare(&ours, &corpus.peers(kind)?);
    }
    Ok(())
}

/// Prints our measurements and the peers', and the ratio of speeds for equal targets.
fn compare(ours: &[Figures], peers: &[Figures]) {
    let mut aims: BTreeMap<String, (Vec<&Figures>, Vec<&Figures>)> = BTreeMap::new();
    for figures in ours {
        aims.entry(format!("{:?}", figures.aim)).or_default().0.push(figures);
    }
    for figures in peers {
        aims.entry(format!("{:?}", figures.aim)).or_default().1.push(figures);
    }
    for (ours, peers) in aims.values() {
        if let Some(aim) = ours.iter().chain(peers).find_map(|figures| figures.aim) {
            println!("  at a recall of {aim}");
        }
        ours.iter().chain(peers).for_each(|figures| figures.print());
        for figures in ours {
            let ratios: Vec<String> = peers
                .iter()
                .map(|peer| {
                    let [build, single, batch] = [
                        peer.build / figures.build,
                        peer.single / figures.single,
                        peer.batch / figures.batch,
                    ];
                    format!("{}: {build:.2} build, {single:.2} single, {batch:.2} batched", peer.name)
                })
                .collect();
            println!("  {} is, times as fast as {}", figures.name, ratios.join("; "));
        }
    }
}

impl Corpus {
    fn make(rows: usize, dim: usize) -> Outcome<Self> {
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        let mut normal = |count: usize| -> Vec<f32> { (0..count).map(|_| gauss(&mut rng)).collect() };
        let (centres, matrix) = (normal(HEAPS * INTRINSIC), normal(INTRINSIC * dim));
        let vector = |at: usize, stream: u64| -> Vec<f32> {
            let mut rng = ChaCha8Rng::seed_from_u64(SEED);
            rng.set_stream(stream);
            rng.set_word_pos(at as u128 * 8192);
            let centre = rng.random_range(0..HEAPS) * INTRINSIC;
            let mut vector: Vec<f32> = (0..dim).map(|_| 0.2 * (rng.random::<f32>() - 0.5)).collect();
            for (centre, row) in centres[centre..][..INTRINSIC].iter().zip(matrix.chunks(dim)) {
                let value = centre + 0.8 * gauss(&mut rng);
                vector.iter_mut().zip(row).for_each(|(vector, row)| *vector += value * row);
            }
            let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
            vector.iter_mut().for_each(|value| *value /= length);
            vector
        };
        let folder = tempfile::tempdir()?;
        let mut file = std::io::BufWriter::new(fs::File::create(folder.path().join("rows"))?);
        for first in (0..rows).step_by(8192) {
            let last = (first + 8192).min(rows);
            let vectors: Vec<Vec<f32>> = (first..last).into_par_iter().map(|at| vector(at, 1)).collect();
            std::io::Write::write_all(&mut file, &bytes(&vectors.concat()))?;
        }
        drop(file);
        let queries: Vec<Vec<f32>> = (0..QUERIES).into_par_iter().map(|at| vector(at, 2)).collect();
        let queries = queries.concat();
        fs::write(folder.path().join("queries"), bytes(&queries))?;
        Ok(Self { rows, dim, folder, queries: Embeddings::new(dim, queries)? })
    }

    /// The vectors from a number on, in portions, read from disk.
    fn portions(&self, from: u32) -> impl Iterator<Item = sporran_retriever::Result<Embeddings>> {
        let mut file = fs::File::open(self.folder.path().join("rows")).expect("it was written");
        let size = 4 * self.dim;
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(from as u64 * size as u64)).expect("a file");
        let (dim, mut left) = (self.dim, self.rows - from as usize);
        std::iter::from_fn(move || {
            let some = left.min(Index::PORTION);
            left -= some;
            let mut bytes = vec![0; some * size];
            std::io::Read::read_exact(&mut file, &mut bytes).expect("it was written");
            let values = bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
            (some > 0).then(|| Embeddings::new(dim, values))
        })
    }

    /// Builds and opens an index; also returns the build time in seconds.
    fn build(&self, options: &IndexOptions) -> Outcome<(Index, f64)> {
        let dir = self.folder.path().join("index");
        let start = Instant::now();
        let similarity = Similarity::InnerProduct;
        let vectors = |from| self.portions(from);
        Index::build(options, similarity, self.dim, ORIGIN, vectors, &dir, &mut |_| {})?;
        let seconds = start.elapsed().as_secs_f64();
        Ok((Index::open(options, similarity, ORIGIN, &dir)?, seconds))
    }

    fn exact(&self) -> Outcome<Found> {
        let (index, _) = self.build(&IndexOptions::default())?;
        Ok(index.search(&self.queries, K, None)?)
    }

    fn figures(
        &self,
        name: &str,
        index: &Index,
        build: f64,
        singles: usize,
        exact: &Found,
    ) -> Outcome<Figures> {
        let one: Vec<Embeddings> = self
            .queries
            .rows()
            .take(singles)
            .map(|query| Embeddings::new(self.dim, query.to_vec()))
            .collect::<Result<_, _>>()?;
        let (mut single, mut batch, mut found) = (f64::INFINITY, f64::INFINITY, Vec::new());
        for _ in 0..RUNS {
            let start = Instant::now();
            for query in &one {
                index.search(query, K, None)?;
            }
            single = single.min(start.elapsed().as_secs_f64() / singles as f64);
            let start = Instant::now();
            found = index.search(&self.queries, K, None)?;
            batch = batch.min(start.elapsed().as_secs_f64() / QUERIES as f64);
        }
        Ok(Figures {
            name: name.into(),
            aim: None,
            build,
            bytes: index.bytes() as f64 / self.rows as f64,
            single,
            batch,
            recall: recall(&found, exact),
        })
    }

    fn flat(&self, exact: &Found) -> Outcome<Vec<Figures>> {
        let options = |storage, rescore| {
            IndexOptions::Flat(FlatOptions { storage, rescore, rescore_storage: VectorStorage::F16 })
        };
        let all = [
            ("sporran f32", options(Storage::F32, 0)),
            ("sporran f16", options(Storage::F16, 0)),
            ("sporran int8", options(Storage::Int8, 0)),
            ("sporran int8, 4k rescored", options(Storage::Int8, 4)),
        ];
        self.all(&all, exact)
    }

    /// Measurements of exhaustive indexes.
    fn all(&self, all: &[(&str, IndexOptions)], exact: &Found) -> Outcome<Vec<Figures>> {
        all.iter()
            .map(|(name, options)| {
                let (index, seconds) = self.build(options)?;
                self.figures(name, &index, seconds, SINGLE, exact)
            })
            .collect()
    }

    fn pq(&self, exact: &Found) -> Outcome<Vec<Figures>> {
        let options = |bits, rescore| IndexOptions::Pq(PqOptions { bits, rescore, ..PqOptions::default() });
        let all = [
            ("sporran 8 bits", options(PqBits::Eight, 0)),
            ("sporran 4 bits", options(PqBits::Four, 0)),
            ("sporran 8 bits, 10k rescored", options(PqBits::Eight, 10)),
        ];
        self.all(&all, exact)
    }

    fn graph(&self, exact: &Found) -> Outcome<Vec<Figures>> {
        let mut all = Vec::new();
        for (name, library, storage) in [
            ("sporran f32", HnswLibrary::Own, VectorStorage::F32),
            ("sporran f16", HnswLibrary::Own, VectorStorage::F16),
            ("hnsw_rs f32", HnswLibrary::HnswRs, VectorStorage::F32),
        ] {
            let options = |search_width| {
                IndexOptions::Hnsw(HnswOptions { library, storage, search_width, ..HnswOptions::default() })
            };
            let (index, seconds) = self.build(&options(64))?;
            println!("  {name}: {:?}", index.report());
            drop(index);
            let mut aims = RECALLS.to_vec();
            for width in WIDTHS {
                let dir = self.folder.path().join("index");
                let index = Index::open(&options(width), Similarity::InnerProduct, ORIGIN, &dir)?;
                let found = index.search(&self.queries, K, None)?;
                let reached = recall(&found, exact);
                while aims.first().is_some_and(|aim| reached >= *aim) {
                    let figures =
                        self.figures(&format!("{name}, width {width}"), &index, seconds, QUERIES, exact)?;
                    all.push(Figures { aim: Some(aims.remove(0)), ..figures });
                }
            }
        }
        Ok(all)
    }

    /// Runs the peers on the same vectors.
    fn peers(&self, kind: &str) -> Outcome<Vec<Figures>> {
        let Some(python) = env::var_os("PYTHON").map(PathBuf::from) else { return Ok(Vec::new()) };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/reference/dense.py");
        let options = serde_json::json!({
            "dim": self.dim, "k": K, "single": SINGLE, "runs": RUNS, "widths": WIDTHS, "recalls": RECALLS,
            "threads": rayon::current_num_threads(),
        });
        let output = Command::new(python)
            .arg(script)
            .arg(self.folder.path())
            .arg(kind)
            .arg(options.to_string())
            .output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        let text = String::from_utf8(output.stdout)?;
        Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A value of the normal distribution (Box and Muller).
fn gauss(rng: &mut ChaCha8Rng) -> f32 {
    let (a, b): (f32, f32) = (1.0 - rng.random::<f32>(), rng.random());
    (-2.0 * a.ln()).sqrt() * (std::f32::consts::TAU * b).cos()
}

fn recall(found: &Found, exact: &Found) -> f64 {
    let pairs = found.iter().zip(exact);
    let both = pairs.map(|(found, exact)| {
        exact.iter().filter(|(id, _)| found.iter().any(|(other, _)| other == id)).count()
    });
    both.sum::<usize>() as f64 / exact.iter().map(Vec::len).sum::<usize>() as f64
}
