//! Vectors on disk during encoding, so that a killed build can be resumed.
//!
//! The file `rows` in the unfinished index has the vectors in f32, in order. A second file, `journal`, starts
//! with a line that identifies their origin. After each portion it gets a line with the number of vectors so
//! far, once the portion is flushed to disk. A resumed build truncates vectors after the last complete line
//! and requests the rest. Portions have fixed boundaries, so batches and all bytes are the same. An
//! incomplete portion is the last one.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use sporran_kilt::folder::JOURNAL;

use super::{Embeddings, Progress, Similarity};
use crate::{
    Error, Result,
    layout::{Folder, Mapped},
};

/// The number of vectors in a portion, which is the largest loss of a kill.
pub(crate) const PORTION: usize = 1024;

/// The file of the vectors.
pub(crate) const ROWS: &str = "rows";
const MAGIC: &str = "sporran-rows 1";

/// All vectors of a future index, memory-mapped.
pub(crate) struct Rows {
    dim: usize,
    map: Mapped,
    journal: PathBuf,
    rows: PathBuf,
}

impl Rows {
    /// The length of a vector.
    pub(crate) fn dim(&self) -> usize {
        self.dim
    }

    /// The number of vectors.
    pub(crate) fn count(&self) -> usize {
        self.map.len() / (4 * self.dim)
    }

    /// All of them, in f32.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Appends `count` vectors from `first` on to `out`.
    pub(crate) fn read(&self, first: usize, count: usize, out: &mut Vec<f32>) {
        let bytes = &self.map[4 * self.dim * first..][..4 * self.dim * count];
        out.extend(bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)));
    }

    /// Removes the journal, so that the vectors are a file of the index.
    pub(crate) fn keep(self) -> Result<()> {
        fs::remove_file(&self.journal).map_err(Error::io(&self.journal, "remove"))
    }

    /// Removes the files after the index is finished.
    pub(crate) fn remove(self) -> Result<()> {
        let Self { map, journal, rows, .. } = self;
        drop(map);
        fs::remove_file(&journal).map_err(Error::io(&journal, "remove"))?;
        fs::remove_file(&rows).map_err(Error::io(&rows, "remove"))
    }
}

/// Writes all vectors to disk. `source` returns those from a number on in portions of [`PORTION`], the last
/// of which may be smaller. `key` identifies their origin.
///
/// # Errors
/// Errors of the source, [`Error::Vector`] for values that no index can store, [`Error::TooLarge`], [`Error::Io`].
pub(crate) fn collect<F, I>(
    folder: &Folder,
    key: &str,
    dim: usize,
    similarity: Similarity,
    source: F,
    progress: &mut dyn FnMut(Progress),
) -> Result<Rows>
where
    F: FnOnce(u32) -> I,
    I: IntoIterator<Item = Result<Embeddings>>,
{
    let (path, journal_path) = (folder.path(ROWS), folder.path(JOURNAL));
    let mut journal = open(&journal_path)?;
    let mut file = open(&path)?;
    let length = file.metadata().map_err(Error::io(&path, "read"))?.len();
    let mut text = String::new();
    journal.read_to_string(&mut text).map_err(Error::io(&journal_path, "read"))?;
    let head = format!("{MAGIC} {key}\n");
    let mut count = 0;
    let mut kept = head.len();
    if let Some(lines) = text.strip_prefix(&head) {
        for line in lines.split_inclusive('\n') {
            let rows = line.strip_suffix('\n').and_then(|number| number.parse::<u32>().ok());
            let Some(rows) = rows.filter(|rows| u64::from(*rows) * 4 * dim as u64 <= length) else { break };
            count = rows;
            kept += line.len();
        }
        if count > 0 {
            tracing::info!(rows = count, folder = %folder.path("").display(), "resuming a build");
        }
    } else {
        journal.set_len(0).map_err(Error::io(&journal_path, "write"))?;
        append(&mut journal, 0, head.as_bytes(), &journal_path)?;
    }
    journal.set_len(kept as u64).map_err(Error::io(&journal_path, "write"))?;
    let mut end = u64::from(count) * 4 * dim as u64;
    file.set_len(end).map_err(Error::io(&path, "write"))?;
    progress(Progress::Encoded(u64::from(count)));

    let mut bytes = Vec::new();
    // After an incomplete portion there are no more vectors.
    let source = (count as usize).is_multiple_of(PORTION).then(|| source(count));
    for portion in source.into_iter().flatten() {
        let portion = portion?;
        assert!(portion.dim() == dim && portion.len() <= PORTION, "a portion of another width or length");
        if portion.is_empty() {
            break;
        }
        bytes.clear();
        for (at, row) in portion.rows().enumerate() {
            let scale = scale(row, count as usize + at, similarity)?;
            bytes.extend(row.iter().flat_map(|value| ((f64::from(*value) * scale) as f32).to_le_bytes()));
        }
        append(&mut file, end, &bytes, &path)?;
        end += bytes.len() as u64;
        count = u32::try_from(portion.len())
            .ok()
            .and_then(|more| count.checked_add(more))
            .filter(|count| *count < u32::MAX)
            .ok_or(Error::TooLarge { what: "vectors", most: u64::from(u32::MAX) - 1 })?;
        let line = format!("{count}\n");
        append(&mut journal, kept as u64, line.as_bytes(), &journal_path)?;
        kept += line.len();
        progress(Progress::Encoded(u64::from(count)));
        if portion.len() < PORTION {
            break;
        }
    }
    Ok(Rows { dim, map: Mapped::open(path.clone(), end)?, journal: journal_path, rows: path })
}

/// The normalisation factor of a vector.
///
/// # Errors
/// [`Error::Vector`] if the sum of squares is not finite, because scores might not be finite either.
pub(crate) fn scale(row: &[f32], number: usize, similarity: Similarity) -> Result<f64> {
    let squares: f64 = row.iter().map(|value| f64::from(*value) * f64::from(*value)).sum();
    if !(squares as f32).is_finite() {
        return Err(Error::Vector {
            vector: number,
            expected: "finite values whose squares have a finite sum".into(),
            found: format!("squares that add up to {squares}"),
        });
    }
    Ok(match similarity {
        Similarity::Cosine if squares > 0.0 => 1.0 / squares.sqrt(),
        _ => 1.0,
    })
}

fn open(path: &Path) -> Result<File> {
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true);
    options.open(path).map_err(Error::io(path, "open"))
}

/// Writes bytes at an offset, and waits until they are on disk.
fn append(file: &mut File, at: u64, bytes: &[u8], path: &Path) -> Result<()> {
    file.seek(SeekFrom::Start(at)).map_err(Error::io(path, "write"))?;
    file.write_all(bytes).map_err(Error::io(path, "write"))?;
    file.sync_data().map_err(Error::io(path, "sync"))
}
