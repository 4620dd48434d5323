//! From settings to working parts. This is the one place that matches on a stage's `kind`.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Serialize;
use sporran_generator::{
    ByDataset, CausalGenerator, EntityTitle, EntityTitleOptions, Extractive, FidGenerator, Generator, MemNet,
    RagGenerator, Seq2SeqGenerator, TitleGenerator, Verifier,
};
use sporran_kilt::{Dataset, PassageId, PassageStore, folder::Place};
use sporran_reranker::CrossEncoder;
use sporran_retriever::{
    Filtered, PassageScorer, Retriever, Titles,
    dense::{self, Dense, DenseOptions},
    entity::{Aliases, EntityRetriever},
    fusion::Hybrid,
    iterative::Iterative,
    sparse::{self, Bm25, Bm25Options, Build, TfIdf},
};

use crate::{
    Error, Result,
    config::Diagnostic,
    observe::{Event, Observer, Unit, advance, begin},
    run_dir::{
        folder::check_finished,
        inputs::{Inputs, changed},
        key::hash_json,
    },
    source::{
        options::{PagesOptions, SourceOptions},
        store::{PartHash, store, unchanged, vacant},
    },
    workflows::answer::{
        generation::GeneratorOptions,
        options::Options,
        report::IndexRecall,
        rerank::Reranked,
        retrieval::{RetrieverOptions, ScorerOptions},
        titles::TitleRetriever,
    },
};

/// The parts of a run.
pub struct Assembly {
    /// The passages, where the config names a source.
    pub store: Option<Arc<PassageStore>>,
    /// Finds passages.
    pub retriever: Option<Box<dyn Retriever>>,
    /// Writes answers.
    pub generator: Option<Box<dyn Generator>>,
    /// What predictions depend on beside their inputs: one hash a part.
    pub hashes: Vec<PartHash>,
    /// What approximate indexes find.
    pub recalls: Vec<IndexRecall>,
    /// The files that the parts were made from.
    pub(crate) inputs: Inputs,
}

impl Assembly {
    /// Whether all that was read of the store so far was content that a store can have.
    ///
    /// # Errors
    /// That of [`PassageStore::sound`].
    pub(crate) fn sound(&self) -> Result<()> {
        Ok(self.store.as_deref().map_or(Ok(()), PassageStore::sound)?)
    }
}

/// Builds or opens what the config names: store, index, model.
///
/// # Errors
/// Whatever is wrong with the source, an index or a model, each error naming the file.
pub fn assemble(options: &Options, observe: &mut Observer<'_>) -> Result<Assembly> {
    with_generator(options, Inputs::default(), observe)
}

/// As [`assemble`], where some inputs are hashed already.
pub(crate) fn with_generator(
    options: &Options,
    inputs: Inputs,
    observe: &mut Observer<'_>,
) -> Result<Assembly> {
    let mut assembly = without_generator(options, inputs, observe)?;
    if let Some(generator) = &options.generator {
        let models = generator.models("generator");
        if models.is_empty() {
            let (part, path) = ("generator", PathBuf::new());
            assembly.hashes.push(PartHash { part, path, blake3: hash_json(generator) });
        }
        for model in models {
            check_finished(model.folder)?;
            // A config that trains the model is not asked for it before.
            if !model.folder.exists() {
                let makes = if options.general.train.is_some() { "; `sporran train` makes it" } else { "" };
                let message = format!("{} is not there{makes}", model.folder.display());
                let key = format!("{}.model", model.key);
                return Err(Error::Config(vec![Diagnostic::of_config(&key, message)]));
            }
            let blake3 = hash_json(&(generator, assembly.inputs.content(model.folder)?));
            assembly.hashes.push(PartHash { part: "generator", path: model.folder.to_owned(), blake3 });
        }
        let seed = options.general.seed;
        assembly.generator = Some(load_generator(generator, assembly.store.as_ref(), seed)?);
        assembly.inputs.verify()?;
    }
    Ok(assembly)
}

/// Loads a generator; `store` holds the pages that some kinds look up, `seed` decides what some draw by chance.
pub(crate) fn load_generator(
    options: &GeneratorOptions,
    store: Option<&Arc<PassageStore>>,
    seed: u64,
) -> Result<Box<dyn Generator>> {
    Ok(match options {
        GeneratorOptions::Seq2Seq(options) => Box::new(Seq2SeqGenerator::load(options)?),
        GeneratorOptions::Fid(options) => Box::new(FidGenerator::load(options)?),
        GeneratorOptions::RagSequence(options) => Box::new(RagGenerator::load_sequence(options)?),
        GeneratorOptions::RagToken(options) => Box::new(RagGenerator::load_token(options)?),
        GeneratorOptions::MemNet(options) => Box::new(MemNet::load(options, store.cloned())?),
        GeneratorOptions::Verifier(options) => Box::new(Verifier::load(options, store.cloned())?),
        GeneratorOptions::Extractive(options) => Box::new(Extractive::load(options, seed)?),
        GeneratorOptions::Causal(options) => Box::new(CausalGenerator::load(options)?),
        GeneratorOptions::Title(_) => Box::new(TitleGenerator),
        GeneratorOptions::ByDataset(options) => {
            let load = |(dataset, options): (&Dataset, &GeneratorOptions)| {
                Ok((*dataset, load_generator(options, store, seed)?))
            };
            let datasets: Result<_> = options.datasets.iter().map(load).collect();
            Box::new(ByDataset::new(load_generator(&options.default, store, seed)?, datasets?))
        }
    })
}

/// Builds or opens the store and the indexes only.
///
/// # Errors
/// As [`assemble`].
pub fn assemble_retrieval(options: &Options, observe: &mut Observer<'_>) -> Result<Assembly> {
    without_generator(options, Inputs::default(), observe)
}

/// As [`assemble_retrieval`], where some inputs are hashed already.
pub(crate) fn without_generator(
    options: &Options,
    inputs: Inputs,
    observe: &mut Observer<'_>,
) -> Result<Assembly> {
    let mut assembly = Assembly {
        store: None,
        retriever: None,
        generator: None,
        hashes: Vec::new(),
        recalls: Vec::new(),
        inputs,
    };
    let Some(source) = &options.general.source else { return Ok(assembly) };
    let store = store(source, observe, &mut assembly.hashes, &mut assembly.inputs)?;
    if let Some(retriever) = &options.retriever {
        let Assembly { hashes, recalls, inputs, .. } = &mut assembly;
        let mut indexes = Indexes { source, store: &store, aliases: None, observe, hashes, recalls, inputs };
        let found = indexes.retriever(retriever)?;
        assembly.retriever = Some(match &options.general.pages {
            None => found,
            Some(pages) => {
                let blake3 = hash_json(&(pages, assembly.inputs.file(&pages.file)?));
                assembly.hashes.push(PartHash { part: "pages", path: pages.file.clone(), blake3 });
                filter(found, pages, &store)?
            }
        });
    }
    assembly.store = Some(store);
    assembly.inputs.verify()?;
    Ok(assembly)
}

/// Retrievers over one store, each by itself.
pub(crate) struct Parts {
    pub(crate) store: Arc<PassageStore>,
    pub(crate) retrievers: Vec<Box<dyn Retriever>>,
}

/// Builds or opens the store and each of some retrievers.
///
/// # Errors
/// As [`assemble`].
pub(crate) fn assemble_parts(
    options: &Options,
    parts: &[RetrieverOptions],
    observe: &mut Observer<'_>,
) -> Result<Parts> {
    let Some(source) = &options.general.source else { return Err(missing_source()) };
    let (mut hashes, mut recalls, mut inputs) = (Vec::new(), Vec::new(), Inputs::default());
    let store = store(source, observe, &mut hashes, &mut inputs)?;
    let (hashes, recalls) = (&mut hashes, &mut recalls);
    let mut indexes =
        Indexes { source, store: &store, aliases: None, observe, hashes, recalls, inputs: &mut inputs };
    let retrievers: Result<Vec<_>> = parts.iter().map(|part| indexes.retriever(part)).collect();
    let retrievers = retrievers?;
    inputs.verify()?;
    Ok(Parts { retrievers, store })
}

/// Builds or opens the store and a dense index over it; the assembly has no retriever.
///
/// # Errors
/// As [`assemble`].
pub(crate) fn assemble_dense(
    options: &Options,
    dense: &DenseOptions,
    observe: &mut Observer<'_>,
) -> Result<(Assembly, Dense)> {
    let parts = Options { retriever: None, ..options.clone() };
    let mut assembly = assemble_retrieval(&parts, observe)?;
    let (Some(source), Some(store)) = (&options.general.source, assembly.store.clone()) else {
        return Err(missing_source());
    };
    let Assembly { hashes, recalls, inputs, .. } = &mut assembly;
    let dense =
        Indexes { source, store: &store, aliases: None, observe, hashes, recalls, inputs }.dense(dense)?;
    assembly.inputs.verify()?;
    Ok((assembly, dense))
}

fn missing_source() -> Error {
    Error::Config(vec![crate::config::Diagnostic {
        origin: "config".into(),
        line: 0,
        key: "source".into(),
        message: "is missing; a retriever needs passages".into(),
    }])
}

/// Holds a retriever to the pages that a file lists, or to the others.
fn filter(
    base: Box<dyn Retriever>,
    pages: &PagesOptions,
    store: &Arc<PassageStore>,
) -> Result<Box<dyn Retriever>> {
    let mut listed = vec![false; store.pages()];
    let text = sporran_kilt::jsonl::read_to_string(&pages.file)?;
    for (line, name) in text.lines().enumerate() {
        let name = name.trim();
        if name.is_empty() {
            continue;
        }
        let page = store.page_by_id(name).or_else(|| store.page_by_title(name)).ok_or_else(|| {
            let message = format!("expected the id or the title of a page of the source, found `{name}`");
            sporran_kilt::Error::Record {
                path: pages.file.clone(),
                line: line as u64 + 1,
                field: ".".into(),
                message,
            }
        })?;
        listed[page.0 as usize] = true;
    }
    let (store, exclude) = (Arc::clone(store), pages.exclude);
    Ok(Box::new(Filtered::new(base, move |passage| listed[store.page_of(passage).0 as usize] != exclude)))
}

/// Opens or builds what retrievers search.
struct Indexes<'a, 'o> {
    source: &'a SourceOptions,
    store: &'a Arc<PassageStore>,
    aliases: Option<Arc<Aliases>>,
    observe: &'a mut Observer<'o>,
    hashes: &'a mut Vec<PartHash>,
    recalls: &'a mut Vec<IndexRecall>,
    inputs: &'a mut Inputs,
}

impl Indexes<'_, '_> {
    fn retriever(&mut self, options: &RetrieverOptions) -> Result<Box<dyn Retriever>> {
        Ok(match options {
            RetrieverOptions::Bm25(options) => Box::new(self.bm25(options)?),
            RetrieverOptions::TfIdf(tfidf) => {
                let (folder, hash) = self.place("tfidf", hash_json(&(options, self.store.hash())));
                self.build("tfidf", &folder, |passages, place, build| {
                    TfIdf::build(tfidf, passages, &hash, place, build)
                })?;
                Box::new(TfIdf::open(&folder, self.store.hash())?)
            }
            RetrieverOptions::Dense(options) => Box::new(self.dense(options)?),
            RetrieverOptions::Entity(options) => {
                let context: Option<Box<dyn PassageScorer>> = match options.context.as_deref() {
                    Some(RetrieverOptions::Bm25(options)) => Some(Box::new(self.bm25(options)?)),
                    Some(RetrieverOptions::Dense(options)) => Some(Box::new(self.dense(options)?)),
                    // Reading a config lets no other kind through.
                    _ => None,
                };
                self.record("names", &options.names);
                let (store, aliases) = (Arc::clone(self.store), self.aliases()?);
                Box::new(EntityRetriever::new(store, aliases, context, options.names.clone())?)
            }
            RetrieverOptions::EntityTitle(options) => Box::new(self.entity_title(options)?),
            RetrieverOptions::Hybrid(options) => {
                let parts: Result<Vec<_>> = options.parts.iter().map(|part| self.retriever(part)).collect();
                self.record("fusion", &options.fusion);
                Box::new(Hybrid::new(parts?, options.fusion.clone())?)
            }
            RetrieverOptions::Iterative(options) => {
                let base = self.retriever(&options.base)?;
                let words = self.bm25(&options.coverage)?;
                self.record("hops", &options.hops);
                let (store, aliases) = (Arc::clone(self.store), self.aliases()?);
                Box::new(Iterative::new(base, store, aliases, words, options.hops.clone())?)
            }
            RetrieverOptions::Reranked(options) => {
                let base = self.retriever(&options.base)?;
                let ScorerOptions::CrossEncoder(model) = &options.reranker.model;
                let blake3 = hash_json(&(&options.reranker, self.inputs.content(&model.folder)?));
                self.hashes.push(PartHash { part: "reranker", path: model.folder.clone(), blake3 });
                let reranker = Box::new(CrossEncoder::load(model)?);
                Box::new(Reranked::new(
                    base,
                    reranker,
                    Arc::clone(self.store),
                    options.reranker.rerank.clone(),
                ))
            }
        })
    }

    /// Notes options that a ranking depends on and that no index holds.
    fn record(&mut self, part: &'static str, options: &impl Serialize) {
        self.hashes.push(PartHash { part, path: self.source.path.clone(), blake3: hash_json(options) });
    }

    /// The folder of an index that all of `key` decides.
    fn place(&mut self, kind: &'static str, key: String) -> (PathBuf, String) {
        let folder = self.source.indexes.join(format!("{kind}-{}", &key[..12]));
        self.hashes.push(PartHash { part: "retriever", path: folder.clone(), blake3: key });
        (folder, self.store.hash().to_owned())
    }

    fn bm25(&mut self, options: &Bm25Options) -> Result<Bm25> {
        let key = hash_json(&(RetrieverOptions::Bm25(options.clone()), self.store.hash()));
        let (folder, hash) = self.place("bm25", key);
        self.build("bm25", &folder, |passages, place, build| {
            Bm25::build(options, passages, &hash, place, build)
        })?;
        Ok(Bm25::open(&folder, &hash)?)
    }

    fn dense(&mut self, options: &DenseOptions) -> Result<Dense> {
        let made_by = options.key()?;
        let (folder, hash) = self.place("dense", hash_json(&("dense", &made_by, self.store.hash())));
        self.record("search", options);
        if options.passage_model.is_some() {
            let blake3 = hash_json(&self.inputs.content(&options.model)?);
            self.hashes.push(PartHash { part: "queries", path: options.model.clone(), blake3 });
        }
        let step = "index dense";
        if let Some(place) = vacant(&folder, step, self.observe)? {
            let store = self.store;
            begin(self.observe, step, store.len() as u64, Unit::Passages);
            // The model was hashed before it was loaded.
            let asked = options.clone();
            let place = place.checked(move || match asked.key() {
                Ok(now) if now == made_by => Ok(()),
                _ => Err(changed(asked.passage_model.as_ref().unwrap_or(&asked.model))),
            });
            let passages = |from: PassageId| passages(store, from);
            let observe = &mut *self.observe;
            let mut progress = |progress| {
                if let dense::Progress::Encoded(done) = progress {
                    advance(observe, done);
                }
            };
            Dense::build(options, passages, &hash, place, &mut progress)?;
            (self.observe)(Event::End);
        }
        let dense = Dense::open(options, &folder, &hash)?;
        let dense::Report { recall, lost, unrepaired } = dense.index().report();
        self.recalls.extend(recall.map(|dense::Recall { queries, k, recall }| IndexRecall {
            index: folder,
            recall,
            k,
            queries,
            repaired: lost - unrepaired,
            lost: unrepaired,
        }));
        Ok(dense)
    }

    /// The titles in the tokens of a model that writes them.
    fn entity_title(&mut self, options: &EntityTitleOptions) -> Result<TitleRetriever> {
        let model = EntityTitle::load(options)?;
        let tokenizer = model.tokenizer();
        // Of these options, the index depends on one and on the tokenizer: a new option does not compile.
        let EntityTitleOptions {
            redirects,
            model: _,
            precision: _,
            device: _,
            prompt: _,
            constrained: _,
            generation: _,
            batch_size: _,
            batch_tokens: _,
        } = *options;
        let (folder, hash) =
            self.place("titles", hash_json(&(tokenizer.json(), redirects, self.store.hash())));
        let blake3 = hash_json(&(options, self.inputs.content(&options.model)?));
        self.hashes.push(PartHash { part: "titles", path: options.model.clone(), blake3 });
        let step = "index titles";
        if let Some(place) = vacant(&folder, step, self.observe)? {
            begin(self.observe, step, self.store.pages() as u64, Unit::Records);
            let observe = &mut *self.observe;
            Titles::build(self.store, tokenizer, redirects, place, &mut |done| advance(observe, done))?;
            (self.observe)(Event::End);
        }
        Ok(TitleRetriever::new(model, Titles::open(&folder, &hash)?, Arc::clone(self.store)))
    }

    /// The names of pages, which all parts share.
    fn aliases(&mut self) -> Result<Arc<Aliases>> {
        if let Some(aliases) = &self.aliases {
            return Ok(Arc::clone(aliases));
        }
        // Not the store alone, which has no links: the names of pages are the texts of links to them as well.
        let source = self.inputs.file(&self.source.path)?;
        let (folder, hash) = self.place("names", hash_json(&("names", source, self.store.hash())));
        let step = "index names";
        if let Some(place) = vacant(&folder, step, self.observe)? {
            begin(self.observe, step, self.store.pages() as u64, Unit::Records);
            let observe = &mut *self.observe;
            let place = unchanged(place, self.inputs);
            Aliases::build(&self.source.path, self.store, place, &mut |done| advance(observe, done))?;
            (self.observe)(Event::End);
        }
        let aliases = Arc::new(Aliases::open(&folder, &hash)?);
        self.aliases = Some(Arc::clone(&aliases));
        Ok(aliases)
    }

    /// Builds a sparse index where it is not there.
    fn build(
        &mut self,
        kind: &'static str,
        folder: &Path,
        build: impl FnOnce(Passages<'_>, Place, Build<'_>) -> sporran_retriever::Result<()>,
    ) -> Result<()> {
        let step = format!("index {kind}");
        let Some(place) = vacant(folder, &step, self.observe)? else { return Ok(()) };
        begin(self.observe, step, self.store.len() as u64, Unit::Passages);
        let observe = &mut *self.observe;
        let mut progress = |progress| {
            if let sparse::Progress::Passages(done) = progress {
                advance(observe, done);
            }
        };
        build(passages(self.store, PassageId(0)), place, Build::new(&mut progress))?;
        (self.observe)(Event::End);
        Ok(())
    }
}

type Passages<'s> = Box<dyn Iterator<Item = sporran_kilt::Result<(PassageId, &'s str, String)>> + 's>;

/// The passages of a store from one on, as indexes take them.
fn passages(store: &PassageStore, from: PassageId) -> Passages<'_> {
    let passage = |id| {
        let passage = (id, store.page_title(store.page_of(id)), store.text(id));
        store.sound().map(|()| passage)
    };
    Box::new((from.0..store.len() as u32).map(PassageId).map(passage))
}
