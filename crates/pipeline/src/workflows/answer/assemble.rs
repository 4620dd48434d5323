//! Opens the parts of a config: the passage store, the indexes and the models.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use sporran_config::Diagnostic;
use sporran_documents::Summary;
use sporran_generator::{Generator, GeneratorContext, GeneratorOptions};
use sporran_kilt::{
    PassageId, PassageStore, counted, hash_json,
    observe::{Event, Observer, Unit, advance, begin},
    store::SampledPassage,
};
use sporran_retriever::{
    BuildIndex, Filtered, IndexRecall, Items, NewIndex, PlanIndex, PlannedPassages, Retriever, Site,
    entity::Aliases,
};
use sporran_training::session::Pace;

use crate::{
    Error, Result,
    run_dir::{
        folder::check_finished,
        inputs::{Inputs, SourcePages},
    },
    source::{
        collection::needs_pages,
        documents,
        options::{PagesOptions, SourceOptions},
        parts::ShardParts,
        store::{PartHash, store, store_of, unchanged, vacant},
    },
    workflows::answer::{options::Options, retrieval::RetrieverOptions},
};

/// The version of filtered retrieval, part of the keys of results with `[pages]`. 2: searches filter, and fusion is over
/// filtered rankings.
const FILTER_VERSION: u32 = 2;

/// The parts of a run.
pub struct Assembly {
    /// The passage store, if the config has a source.
    pub store: Option<Arc<PassageStore>>,
    /// The retriever.
    pub retriever: Option<Box<dyn Retriever>>,
    /// The generator.
    pub generator: Option<Box<dyn Generator>>,
    /// The hashes of the parts that predictions depend on.
    pub hashes: Vec<PartHash>,
    /// The recall of approximate indexes.
    pub recalls: Vec<IndexRecall>,
    /// The files of the parts.
    pub(crate) inputs: Inputs,
}

impl Assembly {
    /// What was read of the documents of the source; none for a source in KILT's layout.
    pub fn documents(&self) -> Option<&Summary> {
        self.inputs.documents()
    }

    /// Checks that all content read from the store so far was valid.
    ///
    /// # Errors
    /// Those of [`PassageStore::sound`].
    pub(crate) fn sound(&self) -> Result<()> {
        Ok(self.store.as_deref().map_or(Ok(()), PassageStore::sound)?)
    }
}

/// Opens the store, the indexes and the models of a config. Builds what is missing.
///
/// # Errors
/// Errors of the source, an index or a model, with the path of the file.
pub fn assemble(options: &Options, observe: &mut Observer<'_>) -> Result<Assembly> {
    with_generator(options, Inputs::default(), observe)
}

/// As [`assemble`], with inputs that may be hashed already.
pub(crate) fn with_generator(
    options: &Options,
    inputs: Inputs,
    observe: &mut Observer<'_>,
) -> Result<Assembly> {
    check_generator(options)?;
    let mut assembly = without_generator(options, inputs, observe)?;
    if let Some(generator) = &options.generator {
        let models = generator.models("generator");
        if models.is_empty() {
            let (part, path) = ("generator".into(), PathBuf::new());
            assembly.hashes.push(PartHash { part, path, blake3: hash_json(generator) });
        }
        for model in models {
            let blake3 = hash_json(&(generator, assembly.inputs.content(model.folder)?));
            assembly.hashes.push(PartHash {
                part: "generator".into(),
                path: model.folder.to_owned(),
                blake3,
            });
        }
        let seed = options.general.seed;
        assembly.generator = Some(load_generator(generator, assembly.store.as_ref(), seed)?);
        assembly.inputs.verify()?;
    }
    Ok(assembly)
}

/// Checks that the generator's models are there, before an index is built.
fn check_generator(options: &Options) -> Result<()> {
    for model in options.generator.iter().flat_map(|generator| generator.models("generator")) {
        check_finished(model.folder)?;
        // The check of a config does not require a model that the config trains.
        if !model.folder.exists() {
            let makes = if options.general.train.is_some() { "; `sporran train` creates it" } else { "" };
            let message = format!("no folder {}{makes}", model.folder.display());
            let key = format!("{}.model", model.key);
            return Err(Error::Config(vec![Diagnostic::of_config(&key, message)]));
        }
    }
    Ok(())
}

/// Loads a generator. Some kinds read pages of `store`. `seed` is the seed of random choices.
pub(crate) fn load_generator(
    options: &GeneratorOptions,
    store: Option<&Arc<PassageStore>>,
    seed: u64,
) -> Result<Box<dyn Generator>> {
    Ok(options.open(&GeneratorContext { store: store.cloned(), seed })?)
}

/// As [`assemble`], without the generator.
///
/// # Errors
/// As [`assemble`].
pub fn assemble_retrieval(options: &Options, observe: &mut Observer<'_>) -> Result<Assembly> {
    without_generator(options, Inputs::default(), observe)
}

/// As [`assemble_retrieval`], with inputs that may be hashed already.
pub(crate) fn without_generator(
    options: &Options,
    inputs: Inputs,
    observe: &mut Observer<'_>,
) -> Result<Assembly> {
    assemble_of(options, inputs, None, observe)
}

/// As [`without_generator`]. Merges missing indexes out of parts that shards made.
pub(crate) fn assemble_of(
    options: &Options,
    inputs: Inputs,
    parts: Option<&ShardParts>,
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
    let store = store_of(source, parts, observe, &mut assembly.hashes, &mut assembly.inputs)?;
    if let Some(retriever) = &options.retriever {
        let Assembly { hashes, recalls, inputs, .. } = &mut assembly;
        let mut indexes =
            Indexes { source, store: &store, parts, aliases: None, observe, hashes, recalls, inputs };
        let found = retriever.open(&mut indexes)?;
        assembly.retriever = Some(match &options.general.pages {
            None => found,
            Some(pages) => {
                let blake3 = hash_json(&(FILTER_VERSION, pages, assembly.inputs.file(&pages.file)?));
                assembly.hashes.push(PartHash { part: "pages".into(), path: pages.file.clone(), blake3 });
                filter(found, pages, &store)?
            }
        });
    }
    assembly.store = Some(store);
    assembly.inputs.verify()?;
    Ok(assembly)
}

/// A store with a retriever over it, for workflows that are not `answer`.
pub(crate) struct Retrieval<R = Box<dyn Retriever>> {
    pub(crate) store: Arc<PassageStore>,
    pub(crate) retriever: R,
    /// The hashes of the parts that the passages depend on.
    pub(crate) hashes: Vec<PartHash>,
}

/// Opens the store of a source and a retriever over it. Builds what is missing.
///
/// # Errors
/// As [`assemble`].
pub(crate) fn open_retrieval(
    source: &SourceOptions,
    retriever: &RetrieverOptions,
    observe: &mut Observer<'_>,
) -> Result<Retrieval> {
    open_retrieval_with(source, observe, |site| retriever.open(site))
}

/// The same with what `open` opens in place of a retriever.
///
/// # Errors
/// As [`assemble`].
pub(crate) fn open_retrieval_with<R>(
    source: &SourceOptions,
    observe: &mut Observer<'_>,
    open: impl FnOnce(&mut dyn Site) -> sporran_retriever::Result<R>,
) -> Result<Retrieval<R>> {
    let (mut hashes, mut recalls, mut inputs) = (Vec::new(), Vec::new(), Inputs::default());
    let store = store(source, observe, &mut hashes, &mut inputs)?;
    let mut indexes = Indexes {
        source,
        store: &store,
        parts: None,
        aliases: None,
        observe,
        hashes: &mut hashes,
        recalls: &mut recalls,
        inputs: &mut inputs,
    };
    let retriever = open(&mut indexes)?;
    inputs.verify()?;
    Ok(Retrieval { store, retriever, hashes })
}

/// A store and several independent retrievers over it.
pub(crate) struct Parts {
    pub(crate) store: Arc<PassageStore>,
    pub(crate) retrievers: Vec<Box<dyn Retriever>>,
}

/// Opens the store and each of the retrievers. Builds what is missing.
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
    let mut indexes = Indexes {
        source,
        store: &store,
        parts: None,
        aliases: None,
        observe,
        hashes,
        recalls,
        inputs: &mut inputs,
    };
    let retrievers: Result<Vec<_>> =
        parts.iter().map(|part| part.open(&mut indexes).map_err(Error::from)).collect();
    let retrievers = retrievers?;
    inputs.verify()?;
    Ok(Parts { retrievers, store })
}

/// Opens the store, and with `open` a part over its indexes. Builds what is missing. The assembly has no retriever.
///
/// # Errors
/// As [`assemble`].
pub(crate) fn assemble_with<T>(
    options: &Options,
    observe: &mut Observer<'_>,
    open: impl FnOnce(&mut dyn Site) -> sporran_retriever::Result<T>,
) -> Result<(Assembly, T)> {
    let parts = Options { retriever: None, ..options.clone() };
    let mut assembly = assemble_retrieval(&parts, observe)?;
    let (Some(source), Some(store)) = (&options.general.source, assembly.store.clone()) else {
        return Err(missing_source());
    };
    let Assembly { hashes, recalls, inputs, .. } = &mut assembly;
    let mut indexes =
        Indexes { source, store: &store, parts: None, aliases: None, observe, hashes, recalls, inputs };
    let part = open(&mut indexes)?;
    assembly.inputs.verify()?;
    Ok((assembly, part))
}

/// Opens the store and builds the indexes of vectors that do not exist, of the vectors of parts if there are any. Returns the
/// number of indexes of vectors.
///
/// # Errors
/// As [`assemble`].
pub(crate) fn vectors_of(
    options: &Options,
    inputs: Inputs,
    parts: Option<&ShardParts>,
    observe: &mut Observer<'_>,
) -> Result<(Assembly, usize)> {
    let without = Options { retriever: None, ..options.clone() };
    let mut assembly = assemble_of(&without, inputs, parts, observe)?;
    let (Some(source), Some(store)) = (&options.general.source, assembly.store.clone()) else {
        return Err(missing_source());
    };
    let Assembly { hashes, recalls, inputs, .. } = &mut assembly;
    let mut indexes =
        Indexes { source, store: &store, parts, aliases: None, observe, hashes, recalls, inputs };
    let built = match &options.retriever {
        None => 0,
        Some(retriever) => retriever.build_vectors(&mut indexes)?,
    };
    assembly.inputs.verify()?;
    Ok((assembly, built))
}

fn missing_source() -> Error {
    Error::Config(vec![Diagnostic::of_config("source", "is missing; a retriever needs passages")])
}

/// Restricts a retriever to the pages in a file, or to all other pages if `exclude` is set.
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

/// Opens or builds indexes for retrievers.
struct Indexes<'a, 'o> {
    source: &'a SourceOptions,
    store: &'a Arc<PassageStore>,
    /// The parts of missing indexes.
    parts: Option<&'a ShardParts>,
    aliases: Option<Arc<Aliases>>,
    observe: &'a mut Observer<'o>,
    hashes: &'a mut Vec<PartHash>,
    recalls: &'a mut Vec<IndexRecall>,
    inputs: &'a mut Inputs,
}

/// Indexes over at least this many passages are estimated before they are built.
const ANNOUNCED: usize = 200_000;
/// The passages of the sample for that.
const SAMPLED: usize = 8192;

impl Indexes<'_, '_> {
    fn path(&self, NewIndex { kind, key, .. }: &NewIndex) -> PathBuf {
        self.source.indexes.join(format!("{kind}-{}", &key[..12]))
    }

    /// The folder of an index. `build` writes it if it does not exist.
    fn folder(&mut self, index: NewIndex, build: &mut BuildIndex<'_>) -> Result<PathBuf> {
        let folder = self.path(&index);
        let NewIndex { kind, key, items } = index;
        self.hashes.push(PartHash { part: "retriever".into(), path: folder.clone(), blake3: key });
        let step = format!("index {kind}");
        if let Some(place) = vacant(&folder, &step, self.observe)? {
            let (total, unit) = match items {
                Items::Passages => (self.store.len(), Unit::Passages),
                Items::Pages => (self.store.pages(), Unit::Records),
            };
            begin(self.observe, step, total as u64, unit);
            let observe = &mut *self.observe;
            let (mut pace, mut has_begun) = (Pace::default(), false);
            build(place, &mut |done| {
                let text = pace.after(done, total as u64, "items");
                // The first message is about the number, which the step has.
                if let Some(text) = text.filter(|_| has_begun) {
                    observe(Event::Note { text: format!("index {kind}: {text}") });
                }
                has_begun = true;
                advance(observe, done);
            })?;
            (self.observe)(Event::End);
        }
        Ok(folder)
    }

    fn names(&mut self) -> Result<Arc<Aliases>> {
        // Names include the texts of links, which the store does not have. So the key has the source file.
        if let Some(collection) = self.source.format {
            return Err(needs_pages(collection, "the index of names"));
        }
        let SourcePages { path, content, .. } = documents::pages(self.source, self.observe, self.inputs)?;
        let key = hash_json(&("names", content, self.store.hash()));
        let (store, inputs) = (Arc::clone(self.store), self.inputs.clone());
        let folder = self
            .folder(NewIndex { kind: "names", key, items: Items::Pages }, &mut |place, advance| {
                Aliases::build(&path, &store, unchanged(place, &inputs), advance)
            })?;
        Ok(Arc::new(Aliases::open(&folder, self.store.hash())?))
    }
}

impl Site for Indexes<'_, '_> {
    fn store(&self) -> &Arc<PassageStore> {
        self.store
    }

    fn aliases(&mut self) -> sporran_retriever::Result<Arc<Aliases>> {
        if let Some(aliases) = &self.aliases {
            return Ok(Arc::clone(aliases));
        }
        let aliases = self.names().map_err(outside)?;
        self.aliases = Some(Arc::clone(&aliases));
        Ok(aliases)
    }

    fn index(&mut self, index: NewIndex, build: &mut BuildIndex<'_>) -> sporran_retriever::Result<PathBuf> {
        self.folder(index, build).map_err(outside)
    }

    fn source_hash(&self) -> Option<String> {
        self.hashes.iter().find(|part| part.part == "source").map(|part| part.blake3.clone())
    }

    fn parts(&self, part: &str) -> Option<Vec<PathBuf>> {
        self.parts?.named(part)
    }

    fn announce(&mut self, index: &NewIndex, plan: &PlanIndex<'_>) -> sporran_retriever::Result<()> {
        let count = self.store.len();
        if count < ANNOUNCED || self.path(index).exists() {
            return Ok(());
        }
        let passage = |id: usize| {
            let id = PassageId(id as u32);
            (self.store.page_title(self.store.page_of(id)).to_owned(), self.store.text(id))
        };
        let sample: Vec<SampledPassage> = (0..count).step_by(count.div_ceil(SAMPLED)).map(passage).collect();
        let plan = plan(PlannedPassages { count: count as u64, sample: &sample })?;
        let mib = |bytes: u64| bytes >> 20;
        let text = format!(
            "index {} of {}: about {} MiB on disk ({} MiB while it is built) and {} MiB of memory",
            plan.kind,
            counted(count as u64, "passage"),
            mib(plan.disk_bytes),
            mib(plan.build_disk_bytes),
            mib(plan.memory_bytes),
        );
        (self.observe)(Event::Note { text });
        Ok(())
    }

    fn depends_on(&mut self, part: &'static str, path: Option<&Path>, blake3: String) {
        let path = path.unwrap_or(self.source.first_path()).to_owned();
        self.hashes.push(PartHash { part: part.into(), path, blake3 });
    }

    fn files(&mut self, folder: &Path) -> sporran_retriever::Result<Vec<(String, String)>> {
        self.inputs.content(folder).map_err(outside)
    }

    fn record_recall(&mut self, recall: IndexRecall) {
        self.recalls.push(recall);
    }
}

/// Wraps an error of this crate as a retriever's error. The conversion to [`Error`] unwraps it.
pub(crate) fn outside(error: Error) -> sporran_retriever::Error {
    match error {
        Error::Retriever(error) => error,
        other => sporran_retriever::Error::Site(Box::new(other)),
    }
}
