//! The vectors of some passages, as a shard encodes them, and the index over the vectors of all shards.
//!
//! A part has whole portions of a build, so that a batch of the encoder has the same passages as in a build of the whole. Its
//! file `rows` has the encoder's vectors in f32. The merge builds the index out of them, of any kind, as a build does.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sporran_kilt::folder::Place;

use super::{
    Embeddings, Index, IndexOptions, Origin, Progress, Similarity,
    rows::{PORTION, ROWS, collect},
};
use crate::{
    Error, Result,
    layout::{self, Folder, Mapped, Section},
};

/// The kind of a part in its header.
const KIND: &str = "vectors";

/// The description of a part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Header {
    kind: String,
    dim: usize,
    /// The first passage.
    first: u32,
    /// The number of passages.
    passages: u32,
    /// Hash of all passages.
    passages_hash: String,
    encoder_hash: String,
    sections: Vec<Section>,
}

layout::header!(Header, 1);

/// Writes the vectors of the passages in a range. `vectors` returns them as for [`Index::build`], counted from the range's
/// start. A killed build is resumed.
///
/// # Errors
/// As [`Index::build`].
pub(super) fn write<F, I>(
    dim: usize,
    origin: Origin<'_>,
    range: &Range<usize>,
    vectors: F,
    place: Place,
    progress: &mut dyn FnMut(Progress),
) -> Result<()>
where
    F: FnOnce(u32) -> I,
    I: IntoIterator<Item = Result<Embeddings>>,
{
    let folder = Folder::resume(KIND, place)?;
    let Origin { encoder_hash, passages_hash } = origin;
    let key = sporran_kilt::hash_json(&(KIND, dim, range, encoder_hash, passages_hash));
    // The vectors as they are; the index normalises them.
    let rows = collect(&folder, &key, dim, Similarity::InnerProduct, vectors, progress)?;
    let passages = rows.count() as u32;
    rows.keep()?;
    let sections = vec![folder.written(ROWS)?];
    folder.finish(&Header {
        kind: KIND.to_owned(),
        dim,
        // Stores have fewer passages than 2^32.
        first: range.start as u32,
        passages,
        passages_hash: passages_hash.to_owned(),
        encoder_hash: encoder_hash.to_owned(),
        sections,
    })
}

/// Builds the index over the vectors of parts: the same bytes as [`Index::build`] gives for the vectors of all passages.
///
/// # Errors
/// [`Error::Part`] for parts that are not those of all passages; those of [`Index::build`].
pub(super) fn merge(
    options: &IndexOptions,
    similarity: Similarity,
    origin: Origin<'_>,
    (parts, passages): (&[PathBuf], usize),
    place: Place,
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    let (mut dim, mut next, mut opened) = (None, 0, Vec::new());
    for folder in parts {
        let part = Part::open(folder, origin)?;
        let wrong = |expected: String, found: String| Error::Part { path: folder.clone(), expected, found };
        if part.first() != next {
            return Err(wrong(format!("passages from {next} on"), part.first().to_string()));
        }
        let dim = *dim.get_or_insert(part.dim);
        if dim != part.dim {
            return Err(wrong(format!("vectors of {dim} values"), part.dim.to_string()));
        }
        next += part.len();
        opened.push(part);
    }
    let (Some(dim), true) = (dim, next == passages) else {
        let path = parts.first().cloned().unwrap_or_default();
        let [expected, found] = [passages, next].map(|count| format!("{count} passages in all parts"));
        return Err(Error::Part { path, expected, found });
    };
    let vectors = |from: u32| portions(&opened, dim, from as usize, passages);
    Index::build(options, similarity, dim, origin, vectors, place, progress)
}

/// The vectors of a part.
pub(super) struct Part {
    dim: usize,
    first: usize,
    rows: Mapped,
}

impl Part {
    /// Opens a part of the passages and the encoder of an origin.
    ///
    /// # Errors
    /// [`Error::Part`] for another encoder; those of an index's files.
    pub(super) fn open(folder: &Path, origin: Origin<'_>) -> Result<Self> {
        let (header, mut files) = layout::open::<Header>(folder, KIND, origin.passages_hash)?;
        if header.encoder_hash != origin.encoder_hash {
            let expected = format!("vectors of the encoder {}", origin.encoder_hash);
            return Err(Error::Part { path: folder.to_owned(), expected, found: header.encoder_hash });
        }
        let rows = files.take(ROWS)?;
        let dim = header.dim.max(1);
        rows.expect((header.passages as usize).saturating_mul(dim).saturating_mul(4))?;
        Ok(Self { dim, first: header.first as usize, rows })
    }

    /// The first passage.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    /// The number of passages.
    pub(super) fn len(&self) -> usize {
        self.rows.len() / (4 * self.dim)
    }

    /// Builds the index over the vectors of this part alone.
    ///
    /// # Errors
    /// As [`Index::build`].
    pub(super) fn index(
        &self,
        options: &IndexOptions,
        similarity: Similarity,
        origin: Origin<'_>,
        place: Place,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let vectors = |from: u32| portions(std::slice::from_ref(self), self.dim, from as usize, self.len());
        Index::build(options, similarity, self.dim, origin, vectors, place, progress)
    }
}

/// The vectors of consecutive parts from one on, in portions.
fn portions(
    parts: &[Part],
    dim: usize,
    from: usize,
    count: usize,
) -> impl Iterator<Item = Result<Embeddings>> {
    (from..count).step_by(PORTION).map(move |start| {
        let mut values = Vec::with_capacity(PORTION * dim);
        let (mut at, end) = (start, count.min(start + PORTION));
        let mut first = 0;
        for part in parts {
            let after = first + part.len();
            if at < after && at < end {
                let stop = end.min(after);
                let bytes = &part.rows[4 * dim * (at - first)..4 * dim * (stop - first)];
                values.extend(bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)));
                at = stop;
            }
            first = after;
        }
        Embeddings::new(dim, values)
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use sporran_kilt::folder::Shard;

    use super::*;
    use crate::dense::{FlatOptions, HnswOptions, PqBits, PqOptions, Storage, VectorStorage};

    const DIM: usize = 8;
    const ORIGIN: Origin<'static> = Origin { encoder_hash: "e", passages_hash: "p" };

    fn vectors(count: usize) -> Embeddings {
        let value = |at: usize| ((at * 7919 % 1009) as f32 - 500.0) / 300.0;
        Embeddings::new(DIM, (0..count * DIM).map(value).collect()).unwrap()
    }

    /// The portions of vectors from one on.
    fn from(all: &Embeddings, from: usize) -> Vec<Result<Embeddings>> {
        let portions = all.values()[from * DIM..].chunks(PORTION * DIM);
        portions.map(|values| Embeddings::new(DIM, values.to_vec())).collect()
    }

    /// The files of a folder.
    fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        entries
            .map(|entry| (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap()))
            .collect()
    }

    fn parts(all: &Embeddings, of: u32, folder: &Path) -> Vec<PathBuf> {
        let mut parts = Vec::new();
        for index in 0..of {
            let range = Shard::new(index, of).unwrap().range(all.len(), PORTION);
            if !range.is_empty() {
                let part = folder.join(format!("part-{of}-{index}"));
                let own = &all.values()[range.start * DIM..range.end * DIM];
                let own = Embeddings::new(DIM, own.to_vec()).unwrap();
                let some = |start: u32| from(&own, start as usize);
                write(DIM, ORIGIN, &range, some, (&part).into(), &mut |_| {}).unwrap();
                parts.push(part);
            }
        }
        parts
    }

    #[test]
    fn every_kind_of_index_over_merged_vectors_is_that_over_all_vectors() {
        let all = vectors(2500);
        let flat = |storage, rescore| FlatOptions { storage, rescore, ..FlatOptions::default() };
        let options = [
            IndexOptions::Flat(flat(Storage::F32, 0)),
            IndexOptions::Flat(flat(Storage::F16, 0)),
            IndexOptions::Flat(flat(Storage::Int8, 3)),
            IndexOptions::Pq(PqOptions { parts: Some(4), sample: 300, rescore: 2, ..PqOptions::default() }),
            IndexOptions::Pq(PqOptions { parts: Some(2), bits: PqBits::Four, ..PqOptions::default() }),
            IndexOptions::Hnsw(HnswOptions {
                links: 4,
                construction_width: 16,
                storage: VectorStorage::F16,
                ..HnswOptions::default()
            }),
        ];
        let place = tempfile::tempdir().unwrap();
        let of: Vec<(u32, Vec<PathBuf>)> = [1, 2, 3, 7].map(|of| (of, parts(&all, of, place.path()))).into();
        assert_eq!(of[3].1.len(), 3, "three portions");
        for options in options {
            for similarity in [Similarity::InnerProduct, Similarity::Cosine] {
                let whole = place.path().join("whole");
                let build = |start: u32| from(&all, start as usize);
                Index::build(&options, similarity, DIM, ORIGIN, build, &whole, &mut |_| {}).unwrap();
                for (of, parts) in &of {
                    let merged = place.path().join("merged");
                    let place = Place::from(&merged);
                    merge(&options, similarity, ORIGIN, (parts, 2500), place, &mut |_| {}).unwrap();
                    assert!(files(&merged) == files(&whole), "{options:?} of {of}");
                }
            }
        }
    }

    #[test]
    fn parts_that_do_not_fit_are_named() {
        let place = tempfile::tempdir().unwrap();
        let parts = parts(&vectors(2100), 3, place.path());
        let refused = |parts: &[PathBuf], origin| {
            let options = IndexOptions::default();
            let place = place.path().join("merged").into();
            merge(&options, Similarity::InnerProduct, origin, (parts, 2100), place, &mut |_| {})
                .unwrap_err()
                .to_string()
        };
        let other = Origin { encoder_hash: "f", ..ORIGIN };
        assert!(refused(&parts, other).contains("part-3-0: expected vectors of the encoder f, found e"));
        let two = [parts[0].clone(), parts[2].clone()];
        assert!(refused(&two, ORIGIN).contains("part-3-2: expected passages from 1024 on, found 2048"));
        let message = refused(&parts[..2], ORIGIN);
        assert!(message.contains("expected 2100 passages in all parts, found 2048"), "{message}");
        assert!(refused(&[], ORIGIN).contains("found 0 passages"));
    }
}
