//! Building an index from a stream of passages, in bounded memory.
//!
//! Passages are collected in chunks, each of which becomes a sorted run on any thread. Runs beyond the memory
//! budget are written to one file. At the end the runs are merged, term by term, into the index. The result
//! depends neither on chunk boundaries nor on thread order, so the same passages and options give the same
//! bytes.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde::Serialize;
use sporran_kilt::{PassageId, folder::Place, store::SampledPassage};

use super::{
    dictionary::DictionaryWriter,
    header::Header,
    postings::{PostingsWriter, Scorer},
    segment::{Merge, Run, SegmentBuilder},
};
use crate::{Error, Result, layout::Folder};

/// The differences between kinds of index: the terms of a text, and their impacts on a score.
pub(crate) trait Model: Sync {
    /// The cache that passes from one passage to the next.
    type Cache: Default + Send;
    /// The impacts of terms.
    type Scorer<'a>: Scorer;
    /// The kind in the header.
    const KIND: &'static str;
    /// Whether impacts need the passages' lengths.
    const HAS_NORMS: bool;

    /// The terms of a query, with repetitions.
    fn terms(&self, query: &str) -> Vec<Vec<u8>>;

    /// The weight of a term that occurs so often in a query, and in `with_term` of `passages` passages.
    fn weight(&self, passages: u32, occurrences: u32, with_term: u32) -> f32;

    /// Counts a passage's terms.
    fn count(&self, title: &str, text: &str, cache: &mut Self::Cache, segment: &mut SegmentBuilder);

    /// The letters of a text, and how many of them no term has.
    fn lost(&self, text: &str) -> (u64, u64);

    /// A number for each passage, computed from its length, for impacts; empty if they need none.
    fn norms(&self, lengths: &[u32]) -> Vec<[u8; 4]>;

    /// The impacts, given the numbers of [`Model::norms`].
    fn scorer<'a>(&self, norms: &'a [[u8; 4]]) -> Self::Scorer<'a>;
}

/// The progress of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// The number of passages read.
    Passages(u64),
    /// The number of postings written, and of all.
    Postings {
        /// Finished.
        done: u64,
        /// In all.
        total: u64,
    },
}

/// The memory budget and progress callback of a build.
pub struct Build<'a> {
    /// Bytes of memory for runs; further runs are written to disk. The dictionary's hashes and 8 bytes a
    /// passage are extra.
    pub memory: usize,
    /// Called from the calling thread during the build.
    pub progress: &'a mut dyn FnMut(Progress),
}

/// Bytes of memory for runs, by default.
pub(super) const MEMORY: usize = 512 << 20;

impl<'a> Build<'a> {
    /// A build with 512 MiB for runs.
    pub fn new(progress: &'a mut dyn FnMut(Progress)) -> Self {
        Self { memory: MEMORY, progress }
    }
}

/// The file with an index's numbers for each passage.
pub(crate) const NORMS: &str = "norms";
const SPILL: &str = "runs";

/// The most text of a chunk, in bytes.
const CHUNK: usize = 4 << 20;

/// The largest vocabulary of a worker; a larger one is cleared, so that it does not grow with the corpus.
pub(super) const MOST_TERMS: usize = 1 << 20;

/// The text of a chunk, in bytes. A chunk's words, postings and run take about four times its text, and every thread
/// processes one.
pub(super) fn chunk_bytes(memory: usize) -> usize {
    (memory / (8 * (rayon::current_num_threads() + 2))).clamp(1 << 16, CHUNK)
}

/// The bytes that are read at once of each of some runs on disk.
pub(super) fn run_buffer(memory: usize, runs: usize) -> usize {
    (memory / 2 / runs.max(1)).clamp(1 << 12, 1 << 17)
}

/// Consecutive passages, in one string.
struct Chunk {
    first: u32,
    text: String,
    /// The ends of each passage's title and text.
    ends: Vec<(usize, usize)>,
}

/// The location of a finished run.
enum RunPlace {
    Memory(Vec<u8>),
    Disk { from: u64, bytes: u64 },
}

/// A finished run.
struct Finished {
    first: u32,
    place: RunPlace,
    postings: u64,
    lengths: Vec<u32>,
}

/// All finished runs.
struct Runs {
    limit: usize,
    path: PathBuf,
    spill: Option<File>,
    in_memory: usize,
    on_disk: u64,
    finished: Vec<Finished>,
    /// Letters of some passages, and how many of them no term has.
    lost: (u64, u64),
    error: Option<Error>,
}

impl Runs {
    fn add(&mut self, run: Run) {
        let Run { first, bytes, postings, lengths } = run;
        let place = if self.in_memory + bytes.len() <= self.limit {
            self.in_memory += bytes.len();
            RunPlace::Memory(bytes)
        } else {
            match self.spill(&bytes) {
                Ok(from) => RunPlace::Disk { from, bytes: bytes.len() as u64 },
                Err(error) => {
                    self.error.get_or_insert(error);
                    return;
                }
            }
        };
        self.finished.push(Finished { first, place, postings, lengths });
    }

    fn spill(&mut self, bytes: &[u8]) -> Result<u64> {
        let file = match &mut self.spill {
            Some(file) => file,
            none => none.insert(
                File::options()
                    .create_new(true)
                    .read(true)
                    .write(true)
                    .open(&self.path)
                    .map_err(Error::io(&self.path, "create"))?,
            ),
        };
        file.write_all(bytes).map_err(Error::io(&self.path, "write"))?;
        let from = self.on_disk;
        self.on_disk += bytes.len() as u64;
        Ok(from)
    }
}

/// Reads a run from disk; all of them share one file.
struct Spilled<'a> {
    file: &'a Mutex<File>,
    at: u64,
    end: u64,
}

impl Read for Spilled<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min((self.end - self.at) as usize);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(self.at))?;
        let read = file.read(&mut buffer[..most])?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Converts a chunk to a run.
fn analyse<M: Model>(model: &M, chunk: &Chunk, (cache, segment): &mut (M::Cache, SegmentBuilder)) -> Run {
    segment.start_run(chunk.first);
    let mut begin = 0;
    for &(title_end, text_end) in &chunk.ends {
        model.count(&chunk.text[begin..title_end], &chunk.text[title_end..text_end], cache, segment);
        segment.finish_passage();
        begin = text_end;
    }
    segment.finish_run()
}

/// The letters of some of a chunk's passages, and how many of them no term has.
fn lost<M: Model>(model: &M, chunk: &Chunk) -> (u64, u64) {
    // All of a few passages, and one of many.
    const ALL: usize = 64;
    let starts = std::iter::once(0).chain(chunk.ends.iter().map(|&(_, end)| end));
    let passages = starts.zip(&chunk.ends).enumerate();
    let some = passages.filter(|(at, _)| *at < ALL || at.is_multiple_of(ALL));
    some.fold((0, 0), |(letters, lost), (_, (start, &(_, end)))| {
        let (more, without) = model.lost(&chunk.text[start..end]);
        (letters + more, lost + without)
    })
}

/// Warns if most letters of the passages are in no term.
fn warn_of_lost(kind: &'static str, (letters, lost): (u64, u64)) {
    if 2 * lost > letters {
        let percent = 100 * lost / letters.max(1);
        tracing::warn!(
            index = kind,
            "{percent} % of the letters in the passages are in no term, and are not found; `tokenizer = \"unicode\"` finds text in any script"
        );
    }
}

/// Reads all passages and converts them to runs.
fn collect<M, P, T, U, E>(model: &M, passages: P, spill: &Path, build: &mut Build<'_>) -> Result<Runs>
where
    M: Model,
    P: IntoIterator<Item = Result<(PassageId, T, U), E>>,
    T: AsRef<str>,
    U: AsRef<str>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let threads = rayon::current_num_threads();
    let chunk_bytes = chunk_bytes(build.memory);
    let runs = Mutex::new(Runs {
        limit: build.memory / 2,
        path: spill.to_owned(),
        spill: None,
        in_memory: 0,
        on_disk: 0,
        finished: Vec::new(),
        lost: (0, 0),
        error: None,
    });
    let lock = || runs.lock().unwrap_or_else(PoisonError::into_inner);
    let workers = Mutex::new(Vec::new());
    let finish = |chunk: &Chunk| {
        let idle = workers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut worker = idle.unwrap_or_default();
        let run = analyse(model, chunk, &mut worker);
        let (letters, lost) = lost(model, chunk);
        let mut runs = lock();
        runs.lost = (runs.lost.0 + letters, runs.lost.1 + lost);
        runs.add(run);
        drop(runs);
        if worker.1.vocabulary_len() <= MOST_TERMS {
            workers.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
        }
    };
    let under_way = AtomicUsize::new(0);
    rayon::in_place_scope(|scope| {
        let dispatch = |chunk: Chunk| {
            if chunk.ends.is_empty() {
                return;
            }
            // If every thread is busy, this one helps instead of waiting, so that chunks do not accumulate.
            if under_way.load(Ordering::Acquire) < threads {
                under_way.fetch_add(1, Ordering::AcqRel);
                scope.spawn(|_| {
                    finish(&{ chunk });
                    under_way.fetch_sub(1, Ordering::AcqRel);
                });
            } else {
                finish(&chunk);
            }
        };
        let mut chunk = Chunk { first: 0, text: String::new(), ends: Vec::new() };
        let mut next = 0u32;
        for passage in passages {
            let (PassageId(id), title, text) =
                passage.map_err(|error| Error::Passages { passage: next, source: error.into() })?;
            if id != next {
                return Err(Error::PassageOrder { expected: next, found: id });
            }
            next =
                next.checked_add(1).ok_or(Error::TooLarge { what: "passages", most: u64::from(u32::MAX) })?;
            chunk.text.push_str(title.as_ref());
            let title_end = chunk.text.len();
            chunk.text.push_str(text.as_ref());
            chunk.ends.push((title_end, chunk.text.len()));
            if chunk.text.len() >= chunk_bytes {
                (build.progress)(Progress::Passages(u64::from(next)));
                if let Some(error) = lock().error.take() {
                    return Err(error);
                }
                let empty = Chunk { first: next, text: String::new(), ends: Vec::new() };
                dispatch(std::mem::replace(&mut chunk, empty));
            }
        }
        (build.progress)(Progress::Passages(u64::from(next)));
        dispatch(chunk);
        Ok(())
    })?;
    let mut runs = runs.into_inner().unwrap_or_else(PoisonError::into_inner);
    match runs.error.take() {
        Some(error) => Err(error),
        None => Ok(runs),
    }
}

/// The bytes of the runs of some passages, given that they fit into memory.
pub(super) fn run_bytes<M: Model>(model: &M, passages: &[SampledPassage]) -> Result<u64> {
    let numbered = (0..).zip(passages);
    let passages =
        numbered.map(|(id, (title, text))| Ok::<_, std::convert::Infallible>((PassageId(id), title, text)));
    let mut build = Build { memory: usize::MAX, progress: &mut |_| {} };
    let runs = collect(model, passages, Path::new(SPILL), &mut build)?;
    let bytes = |run: &Finished| match &run.place {
        RunPlace::Memory(bytes) => bytes.len() as u64,
        RunPlace::Disk { bytes, .. } => *bytes,
    };
    Ok(runs.finished.iter().map(bytes).sum())
}

/// A run that is read once.
pub(super) type Source<'a> = Box<dyn Read + 'a>;

/// A written index, which needs only the hash of its passages.
pub(super) struct Written(Header);

impl Written {
    /// Its header, over passages with this hash.
    pub(super) fn of(self, passages_hash: &str) -> Header {
        Header { passages_hash: passages_hash.to_owned(), ..self.0 }
    }
}

/// Merges runs of consecutive passages into the files of an index. `lengths` are the numbers of terms of the passages, with the
/// number of all postings; `failed` is the error of a run that cannot be read.
pub(super) fn write<'r, M: Model>(
    model: &M,
    options: serde_json::Value,
    folder: &Folder,
    (lengths, total): (&[u32], u64),
    sources: Vec<Source<'r>>,
    failed: impl Fn(io::Error) -> Error,
    progress: &mut dyn FnMut(Progress),
) -> Result<Written> {
    let norms = model.norms(lengths);
    let mut norms_file = folder.section(NORMS)?;
    norms_file.put(norms.as_flattened())?;
    let scorer = model.scorer(&norms);
    let mut merge = Merge::new(sources).map_err(&failed)?;
    let mut dictionary = DictionaryWriter::create(folder)?;
    let mut writer = PostingsWriter::create(folder)?;
    let (mut postings, mut done, mut reported) = (Vec::new(), 0, 0);
    while let Some(term) = merge.next(&mut postings).map_err(&failed)? {
        dictionary.put(term, writer.put(&postings, &scorer)?)?;
        done += postings.len() as u64;
        if done - reported >= 1 << 20 {
            reported = done;
            progress(Progress::Postings { done, total });
        }
    }
    progress(Progress::Postings { done, total });
    let (terms, [entries, names, slots]) = dictionary.finish()?;
    let [packed, blocks] = writer.finish()?;
    Ok(Written(Header {
        kind: M::KIND.to_owned(),
        options,
        passages: lengths.len() as u32,
        passages_hash: String::new(),
        terms,
        postings: done,
        tokens: lengths.iter().map(|&length| u64::from(length)).sum(),
        sections: vec![entries, names, slots, packed, blocks, norms_file.finish()?],
    }))
}

/// Builds an index of `passages`, whose ids count from 0, in a folder that is there only when it is whole.
/// Warns if most of the text makes no term.
pub(crate) fn build<M, P, T, U, E>(
    model: &M,
    options: &impl Serialize,
    passages: P,
    passages_hash: &str,
    place: Place,
    build: Build<'_>,
) -> Result<()>
where
    M: Model,
    P: IntoIterator<Item = Result<(PassageId, T, U), E>>,
    T: AsRef<str>,
    U: AsRef<str>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let lost = build_quietly(model, options, passages, passages_hash, place, build)?;
    warn_of_lost(M::KIND, lost);
    Ok(())
}

/// As [`build`], without the warning. Returns the letters of some passages, and how many of them are in no term.
pub(super) fn build_quietly<M, P, T, U, E>(
    model: &M,
    options: &impl Serialize,
    passages: P,
    passages_hash: &str,
    place: Place,
    mut build: Build<'_>,
) -> Result<(u64, u64)>
where
    M: Model,
    P: IntoIterator<Item = Result<(PassageId, T, U), E>>,
    T: AsRef<str>,
    U: AsRef<str>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let folder = Folder::create(M::KIND, place)?;
    let options = serde_json::to_value(options)
        .map_err(|error| Error::Header { path: folder.path(""), message: error.to_string() })?;
    let Runs { path, spill, mut finished, lost, .. } =
        collect(model, passages, &folder.path(SPILL), &mut build)?;
    finished.sort_unstable_by_key(|run| run.first);
    let lengths: Vec<u32> = finished.iter().flat_map(|run| &run.lengths).copied().collect();
    let total = finished.iter().map(|run| run.postings).sum();

    let buffer = run_buffer(build.memory, finished.len());
    let spill = spill.map(Mutex::new);
    let sources = finished.into_iter().map(|run| -> Source<'_> {
        match (run.place, &spill) {
            (RunPlace::Memory(bytes), _) => Box::new(io::Cursor::new(bytes)),
            (RunPlace::Disk { from, bytes }, Some(file)) => {
                Box::new(BufReader::with_capacity(buffer, Spilled { file, at: from, end: from + bytes }))
            }
            (RunPlace::Disk { .. }, None) => unreachable!("a run is on disk only after the file was made"),
        }
    });
    let failed = |error| Error::io(&path, "read")(error);
    let written =
        write(model, options, &folder, (&lengths, total), sources.collect(), failed, build.progress)?;
    if spill.is_some() {
        std::fs::remove_file(&path).map_err(Error::io(&path, "remove"))?;
    }
    folder.finish(&written.of(passages_hash))?;
    Ok(lost)
}
