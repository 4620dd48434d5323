//! Dense retrieval over passages.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use sporran_checkpoint::Role;
use sporran_kilt::{Hit, PassageId, Query, Template, folder::Place};
use sporran_transformers::EncoderRow;

use super::{
    BiEncoder, BiEncoderOptions, DenseOptions, Embeddings, Encoder, Index, IndexOptions, Origin, Progress,
    Prompt, Recall, Report, Similarity, VectorIndex, fingerprint::encoder_hash, part,
};
use crate::{
    Error, PassageFilter, PassageScorer, Result, Retriever,
    site::{IndexRecall, Passages, Site},
};

/// A dense retriever of passages.
///
/// The index's files must not be changed while it is open; building a new one at the same path is fine.
pub struct Dense<E = BiEncoder> {
    encoder: E,
    template: Option<Template>,
    index: Index,
}

/// Loads the encoder of a role, with its template and its largest number of tokens.
fn load(
    options: &DenseOptions,
    (folder, role): (&Path, Role),
    (template, max_tokens): (Option<&Template>, Option<usize>),
) -> Result<BiEncoder> {
    BiEncoder::load(&BiEncoderOptions {
        folder: folder.to_owned(),
        pooling: options.pooling,
        dimensions: options.dimensions,
        // A template is the whole text, including the folder's prompt.
        prompt: template.map_or(Prompt::Role(role), |_| Prompt::Text(String::new())),
        max_tokens,
        precision: options.precision,
        device: options.device,
        batch_tokens: options.batch_tokens,
    })
}

/// Loads the encoder of queries, with the template of their texts.
pub(super) fn load_query_encoder(options: &DenseOptions) -> Result<(BiEncoder, Option<Template>)> {
    let template = query_template(options.query_template.as_deref())?;
    let most = options.query_max_tokens.or(options.max_tokens);
    let encoder = load(options, (&options.model, Role::Query), (template.as_ref(), most))?
        .with_truncation(options.query_truncation);
    Ok((encoder, template))
}

/// The encoder's input texts of queries.
pub(super) fn query_texts(template: Option<&Template>, queries: &[&str]) -> Vec<String> {
    let text = |query: &&str| match template {
        None => (*query).to_owned(),
        Some(template) => template.fill(&[query]),
    };
    queries.iter().map(text).collect()
}

/// The template of a query's text.
pub(super) fn query_template(text: Option<&str>) -> Result<Option<Template>> {
    template("query-template", "a text with `{text}`", text, &["text"])
}

/// Parses an option as a template with at least one of the fields `names` and no other.
fn template(
    option: &'static str,
    expected: &'static str,
    text: Option<&str>,
    names: &[&str],
) -> Result<Option<Template>> {
    let wrong = |text| Error::Option { option, expected, found: format!("`{text}`") };
    text.map(|text| Template::parse(text, names).ok_or_else(|| wrong(text))).transpose()
}

/// The template of a passage's text.
pub(super) fn passage_template(text: Option<&str>) -> Result<Option<Template>> {
    let expected = "a text with `{title}`, `{text}` or both";
    template("passage-template", expected, text, &["title", "text"])
}

/// Encodes passages for an index.
pub struct PassageEncoder {
    encoder: BiEncoder,
    template: Option<Template>,
}

impl PassageEncoder {
    /// Loads the passage encoder.
    ///
    /// # Errors
    /// Those of [`BiEncoder::load`], and [`Error::Option`] for a wrong template.
    pub fn load(options: &DenseOptions) -> Result<Self> {
        let template = passage_template(options.passage_template.as_deref())?;
        let folder = options.passage_model.as_ref().unwrap_or(&options.model);
        let encoder = load(options, (folder, Role::Passage), (template.as_ref(), options.max_tokens))?;
        Ok(Self { encoder, template })
    }

    /// The vectors of passages, each a title and a text.
    ///
    /// # Errors
    /// Errors of the tokenizer or the model.
    pub fn encode(&self, passages: &[(&str, &str)]) -> Result<Embeddings> {
        match &self.template {
            None => self.encoder.encode_passages(passages),
            Some(template) => {
                let texts: Vec<_> =
                    passages.iter().map(|(title, text)| template.fill(&[title, text])).collect();
                self.encoder.encode(&texts.iter().map(String::as_str).collect::<Vec<_>>())
            }
        }
    }
}

impl DenseOptions {
    /// Checks ranges and templates, without loading a model.
    ///
    /// # Errors
    /// [`Error::Option`]; [`Error::Transformers`] for a device that this build lacks, or an unsupported precision.
    pub fn check(&self) -> Result<()> {
        query_template(self.query_template.as_deref())?;
        passage_template(self.passage_template.as_deref())?;
        self.device.check(self.precision)?;
        for (option, value) in [("batch-tokens", Some(self.batch_tokens)), ("dimensions", self.dimensions)] {
            if value == Some(0) {
                return Err(Error::Option { option, expected: "at least 1", found: "0".into() });
            }
        }
        self.index.check()
    }

    /// BLAKE3, in hexadecimal, of everything besides passages that an index depends on: the encoders' files
    /// and the options. Search options, the device and the batch size are excluded.
    ///
    /// # Errors
    /// [`Error::Io`] if a model's file cannot be read.
    pub fn key(&self) -> Result<String> {
        let key = serde_json::json!([encoder_hash(self)?, self.index.built()]);
        Ok(blake3::hash(key.to_string().as_bytes()).to_hex().to_string())
    }
}

impl Dense {
    /// Encodes and indexes passages and puts the index in a folder, as [`Index::build`] does. `passages`
    /// returns `(id, title, text)` from an id on, in the order of ids. `passages_hash` identifies the set of
    /// passages; the index opens only with the same hash.
    ///
    /// Vectors are written to disk during the build, so a killed build is resumed: see [`Index::build`].
    ///
    /// # Errors
    /// [`Error::Option`] for options out of range, [`Error::Transformers`] and [`Error::Pooling`] for an unusable model,
    /// [`Error::Passages`] and [`Error::PassageOrder`] for errors of the passages, and those of [`Index::build`].
    pub fn build<F, P, T, U, E>(
        options: &DenseOptions,
        passages: F,
        passages_hash: &str,
        place: impl Into<Place>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()>
    where
        F: FnOnce(PassageId) -> P,
        P: IntoIterator<Item = Result<(PassageId, T, U), E>>,
        T: AsRef<str>,
        U: AsRef<str>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        options.check()?;
        let encoder = PassageEncoder::load(options)?;
        let encoder_hash = encoder_hash(options)?;
        let origin = Origin { encoder_hash: &encoder_hash, passages_hash };
        let vectors = NewVectors {
            index: &options.index,
            similarity: options.similarity()?,
            dim: encoder.encoder.dim(),
            origin,
            encode: &|passages| encoder.encode(passages),
        };
        vectors.build(passages, place, progress)
    }

    /// Encodes the passages in a range of whole portions, and puts their vectors in a folder for [`merge`](Self::merge).
    /// `passages` returns them from an id on. A killed build is resumed.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub(super) fn build_part<'s>(
        options: &DenseOptions,
        range: &Range<usize>,
        passages: impl FnOnce(PassageId) -> Passages<'s>,
        passages_hash: &str,
        place: Place,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        options.check()?;
        let encoder = PassageEncoder::load(options)?;
        let encoder_hash = encoder_hash(options)?;
        let origin = Origin { encoder_hash: &encoder_hash, passages_hash };
        let vectors = |from: u32| {
            let first = range.start as u32 + from;
            let passages = passages(PassageId(first)).take(range.end - first as usize);
            portions(passages, first, |passages| encoder.encode(passages))
        };
        part::write(encoder.encoder.dim(), origin, range, vectors, place, progress)
    }

    /// Merges the vectors of parts, in order, to the index over all passages, which have a hash and a number: the same bytes as
    /// [`build`](Self::build) gives.
    ///
    /// # Errors
    /// [`Error::Part`] for parts that are not those of all passages; those of [`Index::build`].
    pub(super) fn merge(
        options: &DenseOptions,
        parts: &[PathBuf],
        (passages_hash, passages): (&str, usize),
        place: Place,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        options.check()?;
        let encoder_hash = encoder_hash(options)?;
        let origin = Origin { encoder_hash: &encoder_hash, passages_hash };
        part::merge(&options.index, options.similarity()?, origin, (parts, passages), place, progress)
    }

    /// Opens the index in a folder. It must be over passages with this hash, with these options and models
    /// (see [`DenseOptions::key`]). Verifies checksums, as [`Index::open`] does.
    ///
    /// # Errors
    /// Those of [`Index::open`] and of loading the query encoder; [`Error::Option`] if its vectors have another length than the
    /// index's.
    pub fn open(options: &DenseOptions, dir: impl AsRef<Path>, passages_hash: &str) -> Result<Self> {
        options.check()?;
        let encoder_hash = encoder_hash(options)?;
        let origin = Origin { encoder_hash: &encoder_hash, passages_hash };
        let index = Index::open(&options.index, options.similarity()?, origin, dir.as_ref())?;
        let (encoder, template) = load_query_encoder(options)?;
        Self::over(encoder, template, index)
    }

    /// The input tokens of queries.
    ///
    /// # Errors
    /// Errors of the tokenizer.
    pub fn rows(&self, queries: &[&str]) -> Result<Vec<EncoderRow>> {
        let texts = self.texts(queries);
        self.encoder.rows(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

impl<E: Encoder> Dense<E> {
    /// A retriever of an encoder and an index over vectors of the same length. `template` makes the text of a query.
    ///
    /// # Errors
    /// [`Error::Option`] if the encoder's vectors have another length than the index's.
    pub(super) fn over(encoder: E, template: Option<Template>, index: Index) -> Result<Self> {
        if encoder.dim() != index.dim() {
            return Err(Error::Option {
                option: "model",
                expected: "an encoder whose vectors are as wide as those of `passage-model`",
                found: format!("{} values, and {} there", encoder.dim(), index.dim()),
            });
        }
        Ok(Self { encoder, template, index })
    }

    /// The index.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Records the recall of an approximate index in `folder`.
    pub(super) fn report(&self, folder: PathBuf, site: &mut dyn Site) {
        let Report { recall, lost, unrepaired } = self.index.report();
        if let Some(Recall { queries, k, recall }) = recall {
            let repaired = lost - unrepaired;
            site.record_recall(IndexRecall { index: folder, recall, k, queries, repaired, lost: unrepaired });
        }
    }

    /// The encoder's input texts of queries.
    fn texts(&self, queries: &[&str]) -> Vec<String> {
        query_texts(self.template.as_ref(), queries)
    }

    /// The vectors of queries.
    ///
    /// # Errors
    /// Errors of the tokenizer or the model.
    pub fn encode(&self, queries: &[&str]) -> Result<Embeddings> {
        let texts = self.texts(queries);
        self.encoder.encode(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn search(
        &self,
        queries: &[Query],
        k: usize,
        filter: Option<&PassageFilter<'_>>,
    ) -> Result<Vec<Vec<Hit>>> {
        if queries.is_empty() {
            return Ok(Vec::new());
        }
        let texts: Vec<&str> = queries.iter().map(|query| query.text.as_str()).collect();
        let vectors = self.encode(&texts)?;
        let found = match filter {
            None => self.index.search(&vectors, k, None)?,
            Some(filter) => self.index.search(&vectors, k, Some(&|id| filter(PassageId(id))))?,
        };
        let hit = |(id, score)| Hit { passage: PassageId(id), score };
        Ok(found.into_iter().map(|found| found.into_iter().map(hit).collect()).collect())
    }
}

impl<E: Encoder> Retriever for Dense<E> {
    fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        self.search(queries, k, None)
    }

    fn retrieve_filtered(
        &self,
        queries: &[Query],
        k: usize,
        filter: &PassageFilter<'_>,
    ) -> Result<Vec<Vec<Hit>>> {
        self.search(queries, k, Some(filter))
    }
}

impl<E: Encoder> PassageScorer for Dense<E> {
    /// The similarity of query and passage vectors; `1 / (1 + d)` for a distance `d`, which has no bound.
    fn score(&self, queries: &[Query], passages: &[Vec<PassageId>]) -> Result<Vec<Vec<f32>>> {
        if queries.is_empty() {
            return Ok(Vec::new());
        }
        let texts: Vec<&str> = queries.iter().map(|query| query.text.as_str()).collect();
        let vectors = self.encode(&texts)?;
        let lists: Vec<Vec<u32>> =
            passages.iter().map(|passages| passages.iter().map(|id| id.0).collect()).collect();
        let mut scores = self.index.scores(&vectors, &lists)?;
        if self.index.similarity().is_distance() {
            scores.iter_mut().flatten().for_each(|score| *score = 1.0 / (1.0 - *score));
        }
        Ok(scores)
    }
}

/// Encodes passages, each a title and a text.
pub(super) type EncodePassages<'a> = dyn Fn(&[(&str, &str)]) -> Result<Embeddings> + 'a;

/// The vectors of passages, for a new index.
pub(super) struct NewVectors<'a> {
    pub(super) index: &'a IndexOptions,
    pub(super) similarity: Similarity,
    pub(super) dim: usize,
    pub(super) origin: Origin<'a>,
    /// Encodes passages, each a title and a text.
    pub(super) encode: &'a EncodePassages<'a>,
}

impl NewVectors<'_> {
    /// Encodes and indexes passages, as [`Dense::build`] does.
    pub(super) fn build<F, P, T, U, E>(
        &self,
        passages: F,
        place: impl Into<Place>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()>
    where
        F: FnOnce(PassageId) -> P,
        P: IntoIterator<Item = Result<(PassageId, T, U), E>>,
        T: AsRef<str>,
        U: AsRef<str>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let Self { index, similarity, dim, origin, encode } = *self;
        let vectors = |from: u32| portions(passages(PassageId(from)), from, encode);
        Index::build(index, similarity, dim, origin, vectors, place, progress)
    }
}

/// The vectors of passages from an id on, in portions.
pub(super) fn portions<P, T, U, E>(
    passages: P,
    from: u32,
    encode: impl Fn(&[(&str, &str)]) -> Result<Embeddings>,
) -> impl Iterator<Item = Result<Embeddings>>
where
    P: IntoIterator<Item = Result<(PassageId, T, U), E>>,
    T: AsRef<str>,
    U: AsRef<str>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    Portions {
        passages: passages.into_iter(),
        next: from,
        encode: move |passages: &[(T, U)]| {
            let pairs: Vec<_> =
                passages.iter().map(|(title, text)| (title.as_ref(), text.as_ref())).collect();
            encode(&pairs)
        },
    }
}

/// Passages as portions of vectors.
struct Portions<P, F> {
    passages: P,
    next: u32,
    encode: F,
}

impl<P, F, T, U, E> Iterator for Portions<P, F>
where
    P: Iterator<Item = Result<(PassageId, T, U), E>>,
    F: Fn(&[(T, U)]) -> Result<Embeddings>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Item = Result<Embeddings>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut portion = Vec::with_capacity(Index::PORTION);
        for passage in self.passages.by_ref().take(Index::PORTION) {
            match passage {
                Ok((PassageId(id), title, text)) if id == self.next => {
                    portion.push((title, text));
                    self.next = self.next.saturating_add(1);
                }
                Ok((PassageId(found), ..)) => {
                    return Some(Err(Error::PassageOrder { expected: self.next, found }));
                }
                Err(error) => return Some(Err(Error::Passages { passage: self.next, source: error.into() })),
            }
        }
        (!portion.is_empty()).then(|| (self.encode)(&portion))
    }
}
