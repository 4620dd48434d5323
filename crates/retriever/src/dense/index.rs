//! Vectors that are searched: the seam, and the folder behind it.
//!
//! A dense index is a folder like a sparse one's (`header`, and the files that it lists); what the files are, the kinds of
//! index say. The header also names what made the vectors, and an index opens only for that.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
};

use sporran_kernels::Filter;

use super::{
    Embeddings, IndexOptions, Report, Similarity,
    flat::{self, Flat},
    header::{Header, KIND},
    hnsw::{self, Hnsw},
    pq::{self, Pq},
    rows::{collect, scale},
};
use crate::{
    Error, Result,
    layout::{Folder, read_header, verify},
};

/// The widest vectors: sums in 8 bits stay within 32 bits.
const MOST_VALUES: usize = 65_536;

/// Finds the vectors that are nearest to others.
pub trait VectorIndex: Send + Sync {
    /// The width of a vector.
    fn dim(&self) -> usize;

    /// How many vectors it holds.
    fn len(&self) -> usize;

    /// Whether it holds none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For each query the `k` nearest vectors among those that `filter` lets through, as number and score: the greatest
    /// score first (by `total_cmp`), of equal scores the smaller number. Fewer where there are fewer. A query's result
    /// does not depend on the queries beside it.
    ///
    /// # Errors
    /// [`Error::Vector`] for a query of another width or with values that are not finite; [`Error::Corrupt`] where the
    /// index turns out to be damaged.
    fn search(
        &self,
        queries: &Embeddings,
        k: usize,
        filter: Option<Filter<'_>>,
    ) -> Result<Vec<Vec<(u32, f32)>>>;

    /// For each query the scores of the vectors of its list, in their order: those that a search gives them.
    ///
    /// # Errors
    /// [`Error::Vector`] as for [`search`](Self::search), and for a number that no vector has.
    fn scores(&self, queries: &Embeddings, lists: &[Vec<u32>]) -> Result<Vec<Vec<f32>>>;
}

/// What the vectors of an index are of. It opens only for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// Names what makes a text its vector.
    pub encoder_hash: &'a str,
    /// Names the texts.
    pub passages_hash: &'a str,
}

/// How far a build is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// So many vectors are on disk.
    Encoded(u64),
    /// So many vectors of so many are in their place in the index.
    Indexed {
        /// In place.
        done: u64,
        /// In all.
        total: u64,
    },
}

/// A dense index of any kind that is mapped into memory.
///
/// The index's files must not be changed while it is open; building a new one in the same place is fine.
pub struct Index {
    folder: PathBuf,
    header: Header,
    inner: Box<dyn VectorIndex>,
}

impl Index {
    /// Vectors that are encoded, and come to disk, at once: the portions that [`build`](Self::build) asks for.
    pub const PORTION: usize = super::rows::PORTION;

    /// Indexes vectors of `dim` values and puts the index in the folder `dir`, in place of an index that is there.
    /// `vectors` gives them from a number on, in portions of [`PORTION`](Self::PORTION) of which only the last may be
    /// smaller. Each portion goes to disk as it comes, 4 bytes a value: a build that was killed leaves its vectors in
    /// `.NAME.building` beside `dir`, and the next one goes on with the portion that is missing and gives the same bytes.
    ///
    /// # Errors
    /// What `vectors` gives, [`Error::Option`] for options out of range, [`Error::Vector`] for values that cannot be kept,
    /// [`Error::Busy`], [`Error::InTheWay`], [`Error::TooLarge`], [`Error::Io`]. After an error, an index that was there
    /// before still is, and the vectors so far stay for the next build.
    ///
    /// # Panics
    /// Where a portion is not of the width and length that it should be.
    pub fn build<F, I>(
        options: &IndexOptions,
        similarity: Similarity,
        dim: usize,
        origin: Origin<'_>,
        vectors: F,
        dir: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()>
    where
        F: FnOnce(u32) -> I,
        I: IntoIterator<Item = Result<Embeddings>>,
    {
        options.check()?;
        if dim > MOST_VALUES {
            return Err(Error::TooLarge { what: "values a vector", most: MOST_VALUES as u64 });
        }
        if let IndexOptions::Pq(options) = options {
            pq::check(options, dim)?;
        }
        let folder = Folder::resume(dir)?;
        let Origin { encoder_hash, passages_hash } = origin;
        let key = blake3::hash(
            serde_json::json!([similarity, dim, encoder_hash, passages_hash]).to_string().as_bytes(),
        );
        let rows = collect(&folder, key.to_hex().as_str(), dim, similarity, vectors, progress)?;
        let (sections, report) = match options {
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

    /// Opens the index in a folder, which must be of this origin and built with these options, apart from those that only
    /// a search depends on. Checks the header and the length of each file, not what is in them: see
    /// [`verify`](Self::verify).
    ///
    /// # Errors
    /// [`Error::NotAnIndex`], [`Error::Version`], [`Error::Header`], [`Error::Kind`], [`Error::OtherPassages`],
    /// [`Error::OtherEncoder`], [`Error::OtherOptions`], [`Error::Length`], [`Error::Corrupt`], [`Error::Io`], each naming
    /// the file; [`Error::Option`].
    pub fn open(
        options: &IndexOptions,
        similarity: Similarity,
        origin: Origin<'_>,
        dir: &Path,
    ) -> Result<Self> {
        options.check()?;
        let header: Header = read_header(dir, KIND, origin.passages_hash)?;
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
        let inner: Box<dyn VectorIndex> = match options {
            IndexOptions::Flat(options) => Box::new(Flat::open(options, dir, &header)?),
            IndexOptions::Pq(options) => Box::new(Pq::open(options, dir, &header)?),
            IndexOptions::Hnsw(options) => Box::new(Hnsw::open(options, dir, &header)?),
        };
        Ok(Self { folder: dir.to_owned(), header, inner })
    }

    /// How near two vectors are.
    pub fn similarity(&self) -> Similarity {
        self.header.similarity
    }

    /// The options that it was built with, those included that only a search depends on.
    pub fn options(&self) -> &IndexOptions {
        &self.header.index
    }

    /// How well it finds, as measured when it was built.
    pub fn report(&self) -> Report {
        self.header.report
    }

    /// Length of all files but the header.
    pub fn bytes(&self) -> u64 {
        self.header.sections.iter().map(|section| section.bytes).sum()
    }

    /// Queries as the index compares them.
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
        if similarity == Similarity::InnerProduct {
            return Ok(Cow::Borrowed(queries));
        }
        let values = queries
            .rows()
            .zip(scales)
            .flat_map(|(query, scale)| query.iter().map(move |value| (f64::from(*value) * scale) as f32));
        Ok(Cow::Owned(Embeddings::new(dim, values.collect())?))
    }

    /// Reads all of the index and compares its hashes.
    ///
    /// # Errors
    /// [`Error::Corrupt`] naming the first file that is not what was written.
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
        self.inner.search(&*self.fitting(queries)?, k, filter)
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
