//! A vector index in its folder.
//!
//! A dense index is a folder like a sparse one's (`header`, and the files that it lists). The kinds of index
//! define their files. The header also names the encoder, and an index opens only for that one.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
};

use sporran_kernels::Filter;
use sporran_kilt::folder::Place;

use super::{
    Embeddings, IndexOptions, Progress, Report, Similarity, VectorIndex,
    distance::{self, Distances},
    flat::{self, Flat},
    header::{Header, KIND},
    hnsw,
    pq::{self, Pq},
    rows::{collect, scale},
};
use crate::{
    Error, Result,
    layout::{self, Folder, verify},
};

/// The longest vectors: sums in 8 bits stay within 32 bits.
const MOST_VALUES: usize = 65_536;

/// The encoder and passages of an index. It opens only for the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// Identifies the encoder.
    pub encoder_hash: &'a str,
    /// Identifies the passages.
    pub passages_hash: &'a str,
}

/// A memory-mapped dense index of any kind.
///
/// The index's files must not be changed while it is open; building a new one at the same path is fine.
pub struct Index {
    folder: PathBuf,
    header: Header,
    inner: Box<dyn VectorIndex>,
}

impl Index {
    /// The number of vectors in a portion that [`build`](Self::build) requests and writes.
    pub const PORTION: usize = super::rows::PORTION;

    /// Indexes vectors of `dim` values and puts the index in a folder. An existing index is replaced. If
    /// another process builds at the same path, this one waits for it first. `vectors` returns them from a
    /// number on, in portions of [`PORTION`](Self::PORTION), of which only the last may be smaller. Each
    /// portion is written to disk, with 4 bytes a value. A killed build leaves its vectors in
    /// `.NAME.building` next to the folder. The next build resumes with the missing portion and gives the
    /// same bytes.
    ///
    /// # Errors
    /// Errors of `vectors`, [`Error::Option`] for options out of range, [`Error::Vector`] for values that cannot be stored,
    /// [`sporran_kilt::Error::InTheWay`], [`Error::TooLarge`], [`Error::Io`]. After an error, an existing index is unchanged, and
    /// the vectors so far stay for the next build.
    ///
    /// # Panics
    /// If a portion has another width or length than it should.
    pub fn build<F, I>(
        options: &IndexOptions,
        similarity: Similarity,
        dim: usize,
        origin: Origin<'_>,
        vectors: F,
        place: impl Into<Place>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()>
    where
        F: FnOnce(u32) -> I,
        I: IntoIterator<Item = Result<Embeddings>>,
    {
        options.check()?;
        distance::check(options, similarity)?;
        if dim > MOST_VALUES {
            return Err(Error::TooLarge { what: "values a vector", most: MOST_VALUES as u64 });
        }
        if let IndexOptions::Pq(options) = options {
            pq::check(options, dim)?;
        }
        let folder = Folder::resume(KIND, place.into())?;
        let Origin { encoder_hash, passages_hash } = origin;
        let key = blake3::hash(
            serde_json::json!([similarity, dim, encoder_hash, passages_hash]).to_string().as_bytes(),
        );
        let rows = collect(&folder, key.to_hex().as_str(), dim, similarity, vectors, progress)?;
        let (sections, report) = match options {
            _ if similarity.is_distance() => (distance::write(&rows, &folder)?, Report::default()),
            IndexOptions::Flat(options) => {
                (flat::write(options, &rows, &folder, progress)?, Report::default())
            }
            IndexOptions::Pq(options) => pq::write(options, &rows, &folder, progress)?,
            IndexOptions::Hnsw(options) => hnsw::write(options, &rows, &folder, progress)?,
        };
        let header = Header {
            kind: KIND.into(),
            index: options.clone(),
            similarity,
            dim,
            passages: rows.count() as u32,
            passages_hash: passages_hash.into(),
            encoder_hash: encoder_hash.into(),
            report,
            sections,
        };
        rows.remove()?;
        folder.finish(&header)
    }

    /// Opens the index in a folder. It must have this origin and these options, except options of the search.
    /// Verifies the files' checksums: at each opening, or once for a large index (see
    /// [`sporran_kilt::folder::Contents`]).
    ///
    /// # Errors
    /// [`Error::NotAnIndex`], [`Error::Version`], [`Error::Header`], [`Error::Kind`], [`Error::OtherPassages`],
    /// [`Error::OtherEncoder`], [`Error::OtherOptions`], [`Error::Length`], [`sporran_kilt::Error::Checksum`],
    /// [`Error::Corrupt`], [`Error::Io`], each naming the file; [`Error::Option`].
    pub fn open(
        options: &IndexOptions,
        similarity: Similarity,
        origin: Origin<'_>,
        dir: &Path,
    ) -> Result<Self> {
        options.check()?;
        Self::open_with(options, similarity, origin, dir, |header| layout::check(dir, header))
    }

    /// Opens an index; `check` verifies the checksums after the header is validated.
    fn open_with(
        options: &IndexOptions,
        similarity: Similarity,
        origin: Origin<'_>,
        dir: &Path,
        check: impl FnOnce(&Header) -> Result<()>,
    ) -> Result<Self> {
        distance::check(options, similarity)?;
        let (header, mut files) = layout::open_unchecked::<Header>(dir, KIND, origin.passages_hash)?;
        let path = || dir.join("header");
        if header.encoder_hash != origin.encoder_hash {
            return Err(Error::OtherEncoder {
                path: path(),
                expected: origin.encoder_hash.into(),
                found: header.encoder_hash,
            });
        }
        if (header.index.built(), header.similarity) != (options.built(), similarity) {
            let describe = |index: &IndexOptions, similarity: Similarity| {
                format!("{}, {}", index.describe(), similarity.name())
            };
            return Err(Error::OtherOptions {
                path: path(),
                expected: describe(&options.built(), similarity),
                found: describe(&header.index.built(), header.similarity),
            });
        }
        if header.dim == 0 || header.dim > MOST_VALUES {
            let message = format!("expected vectors of 1 to {MOST_VALUES} values, found {}", header.dim);
            return Err(Error::Header { path: path(), message });
        }
        check(&header)?;
        let inner: Box<dyn VectorIndex> = match options {
            _ if similarity.is_distance() => Box::new(Distances::open(&mut files, &header)?),
            IndexOptions::Flat(options) => Box::new(Flat::open(options, &mut files, &header)?),
            IndexOptions::Pq(options) => Box::new(Pq::open(options, &mut files, &header)?),
            IndexOptions::Hnsw(options) => hnsw::open(options, &mut files, &header)?,
        };
        Ok(Self { folder: dir.to_owned(), header, inner })
    }

    /// The similarity of vectors.
    pub fn similarity(&self) -> Similarity {
        self.header.similarity
    }

    /// The options of the build and of the search.
    pub fn options(&self) -> &IndexOptions {
        &self.header.index
    }

    /// The quality measured when it was built.
    pub fn report(&self) -> Report {
        self.header.report
    }

    /// Length of all files except the header.
    pub fn bytes(&self) -> u64 {
        self.header.sections.iter().map(|section| section.bytes).sum()
    }

    /// Queries normalised for the index.
    fn fitting<'q>(&self, queries: &'q Embeddings) -> Result<Cow<'q, Embeddings>> {
        let Header { dim, similarity, .. } = self.header;
        if queries.dim() != dim {
            return Err(Error::Vector {
                vector: 0,
                expected: format!("{dim} values, as the index has"),
                found: format!("{} values", queries.dim()),
            });
        }
        let scales: Vec<f64> = queries
            .rows()
            .enumerate()
            .map(|(at, query)| scale(query, at, similarity))
            .collect::<Result<_>>()?;
        if similarity != Similarity::Cosine {
            return Ok(Cow::Borrowed(queries));
        }
        let values = queries
            .rows()
            .zip(scales)
            .flat_map(|(query, scale)| query.iter().map(move |value| (f64::from(*value) * scale) as f32));
        Ok(Cow::Owned(Embeddings::new(dim, values.collect())?))
    }

    /// Reads the whole index and verifies its checksums.
    ///
    /// # Errors
    /// [`sporran_kilt::Error::Checksum`] for the first damaged file.
    pub fn verify(&self) -> Result<()> {
        verify(&self.folder, &self.header)
    }
}

impl VectorIndex for Index {
    fn dim(&self) -> usize {
        self.header.dim
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn search(
        &self,
        queries: &Embeddings,
        k: usize,
        filter: Option<Filter<'_>>,
    ) -> Result<Vec<Vec<(u32, f32)>>> {
        // The kinds reserve memory for k vectors.
        self.inner.search(&*self.fitting(queries)?, k.min(self.len()), filter)
    }

    fn scores(&self, queries: &Embeddings, lists: &[Vec<u32>]) -> Result<Vec<Vec<f32>>> {
        let queries = self.fitting(queries)?;
        if let Some(id) = lists.iter().flatten().find(|id| **id as usize >= self.len()) {
            return Err(Error::Vector {
                vector: *id as usize,
                expected: format!("a number below {}, as many vectors as the index has", self.len()),
                found: id.to_string(),
            });
        }
        assert_eq!(queries.len(), lists.len(), "a list for each query");
        self.inner.scores(&queries, lists)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dense::{FlatOptions, HnswLibrary, HnswOptions, PqOptions, Storage};

    #[test]
    fn damage_that_a_stamp_hides_is_no_panic() {
        const ORIGIN: Origin<'_> = Origin { encoder_hash: "e", passages_hash: "p" };
        const DIM: usize = 8;
        let values: Vec<f32> = (0..300 * DIM).map(|at| ((at * 37 % 101) as f32 - 50.0) / 50.0).collect();
        let vectors = Embeddings::new(DIM, values).unwrap();
        let queries = Embeddings::new(DIM, vectors.values()[..4 * DIM].to_vec()).unwrap();
        for options in [
            IndexOptions::Flat(FlatOptions { storage: Storage::Int8, rescore: 2, ..FlatOptions::default() }),
            IndexOptions::Pq(PqOptions { parts: Some(4), rescore: 2, ..PqOptions::default() }),
            IndexOptions::Hnsw(HnswOptions { links: 4, ..HnswOptions::default() }),
            IndexOptions::Hnsw(HnswOptions {
                library: HnswLibrary::HnswRs,
                search_width: 8,
                ..HnswOptions::default()
            }),
        ] {
            let place = tempfile::tempdir().unwrap();
            let dir = place.path().join("index");
            let similarity = Similarity::InnerProduct;
            let all = |_| [Ok(vectors.clone())];
            Index::build(&options, similarity, DIM, ORIGIN, all, &dir, &mut |_| {}).unwrap();
            layout::damage_each(&dir, || {
                let index = Index::open_with(&options, similarity, ORIGIN, &dir, |_| Ok(()));
                // Another result or an error, but valid vector numbers.
                let Ok(found) = index.and_then(|index| index.search(&queries, 5, None)) else { return };
                assert!(found.iter().flatten().all(|(id, _)| *id < 300));
            });
        }
    }
}
