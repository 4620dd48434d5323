//! Shards of `sporran index` and `sporran embed`: parts of the passage store and of the indexes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use sporran_config::Diagnostic;
use sporran_kilt::{
    Error as FileError, PassageStore, ShardFault,
    folder::{STAMP, Shard, ShardManifest, ShardRange, ShardSet, clear_abandoned},
    hash_json,
    observe::{Event, Observer, Unit, advance, begin},
    store::{BuildOptions, Progress, count_pages},
    with_causes,
};
use sporran_retriever::{BuildIndex, NewPart, PartFolders, PartSite, dense::Index, verify_index};
use sporran_transformers::Isa;

use crate::{
    Error, Result,
    run_dir::{folder::RunDir, inputs::Inputs, key::StepKey, shard::ShardReport},
    source::{
        collection,
        options::SourceOptions,
        parts::ShardParts,
        store::{Described, describe, store, unchanged, vacant},
    },
    workflows::answer::{
        assemble::{Assembly, assemble_of, outside, vectors_of},
        options::Options,
    },
};

/// What shards index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// The passages and all indexes: `sporran index`.
    Everything,
    /// The vectors of passages: `sporran embed`.
    Vectors,
}

impl Indexing {
    fn verb(self) -> &'static str {
        match self {
            Self::Everything => "index",
            Self::Vectors => "embed",
        }
    }
}

/// Options that do not change a store or an index. The hash of the source's content replaces its path.
const WITHOUT: [&str; 16] = [
    "name",
    "seed",
    "output",
    "then",
    "source.path",
    "source.redirects",
    "source.indexes",
    "pages",
    "tasks",
    "query",
    "evidence",
    "evaluation",
    "train",
    "encoder-training",
    "generator",
    "source.strict",
];

/// The folders of parts that a shard builds.
struct Site<'a, 'o> {
    source: &'a SourceOptions,
    shard: Shard,
    root: &'a Path,
    pages: Option<Arc<PassageStore>>,
    whole: Option<Arc<PassageStore>>,
    inputs: &'a mut Inputs,
    built: BTreeMap<String, String>,
    observe: &'a mut Observer<'o>,
}

impl PartSite for Site<'_, '_> {
    fn shard(&self) -> Shard {
        self.shard
    }

    fn pages(&self) -> Option<Arc<PassageStore>> {
        self.pages.clone()
    }

    fn whole(&mut self) -> sporran_retriever::Result<Arc<PassageStore>> {
        if let Some(store) = &self.whole {
            return Ok(Arc::clone(store));
        }
        let opened = store(self.source, self.observe, &mut Vec::new(), self.inputs).map_err(outside)?;
        Ok(Arc::clone(self.whole.insert(opened)))
    }

    fn part(&mut self, part: NewPart, build: &mut BuildIndex<'_>) -> sporran_retriever::Result<()> {
        let NewPart { name, key, passages } = part;
        let folder_name = format!("{name}.{}", &key[..12]);
        let step = format!("index {name} of shard {}", self.shard);
        let folder = self.root.join(&folder_name);
        remove_damaged(&folder, |folder| Ok(verify_index(folder).map(drop)?)).map_err(outside)?;
        if let Some(place) = vacant(&folder, &step, self.observe).map_err(outside)? {
            begin(self.observe, step, passages as u64, Unit::Passages);
            let observe = &mut *self.observe;
            build(place, &mut |done| advance(observe, done))?;
            (self.observe)(Event::End);
        }
        self.built.insert(name, folder_name);
        Ok(())
    }
}

/// Removes a part of an earlier call if it is damaged, so that it is built again. Otherwise the shard's manifest would have the
/// checksums of the damaged files.
fn remove_damaged(folder: &Path, verify: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    let Err(error) = verify(folder) else { return Ok(()) };
    tracing::warn!(folder = %folder.display(), "a part of the shard is damaged and is built again: {}", with_causes(&error));
    fs::remove_dir_all(folder).map_err(Error::io(folder, "remove"))
}

fn missing(key: &str, message: &str) -> Error {
    Error::Config(vec![Diagnostic::of_config(key, message)])
}

fn source_of(options: &Options) -> Result<&SourceOptions> {
    options.general.source.as_ref().ok_or_else(|| missing("source", "is missing; there is nothing to index"))
}

/// Builds a shard's parts of the passage store and of the indexes of a config. `sporran embed` has no part of the store. Vectors
/// are of passages of the whole store, which is built if it does not exist.
///
/// # Errors
/// Errors of the source, a model or the files; [`Error::Busy`] if another process works on the shard.
pub fn index_shard(
    options: &Options,
    indexing: Indexing,
    shard: Shard,
    observe: &mut Observer<'_>,
) -> Result<ShardReport> {
    let source = source_of(options)?;
    let verb = indexing.verb();
    let name = format!("{}-{verb}", options.general.name);
    let folder = RunDir::open_shard(&options.general.output, &name, shard)?;
    // Parts that exist are not built again, so no build removes the leftovers of a killed one.
    clear_abandoned(&folder.root);
    observe(Event::Folder { path: folder.root.clone() });
    let mut inputs = Inputs::default();
    let described = describe(source, observe, &mut inputs)?;
    let mut manifest = ShardManifest::new(verb, &name, shard);
    manifest.config = config_of(options, &mut inputs)?;
    manifest.inputs = inputs_of(&described);
    let mut parts = PartFolders::default();
    let mut pages = None;
    if indexing == Indexing::Everything {
        let total = count_pages(&described.path, source.format)?;
        let range = shard.range(total, 1);
        manifest.ranges.insert("pages".to_owned(), ShardRange::new(&range, total));
        if !range.is_empty() {
            let folder_name = format!("store.{}", &hash_json(&(&described.key, &range, total))[..12]);
            let path = folder.root.join(&folder_name);
            let step = format!("store passages of shard {shard}");
            remove_damaged(&path, |folder| Ok(PassageStore::open_verified(folder).map(drop)?))?;
            let store = if let Some(place) = vacant(&path, &step, observe)? {
                let build = BuildOptions {
                    source: described.path.clone(),
                    redirects: None,
                    split: source.splitting(),
                };
                begin(observe, step, collection::size(&described.path, source.format)?, Unit::Bytes);
                let place = unchanged(place, &inputs);
                let mut report = |progress: Progress| advance(observe, progress.read);
                let tokens = described.tokens.clone();
                let store =
                    PassageStore::build_part(source.format, &build, tokens, &range, place, &mut report)?;
                observe(Event::End);
                store
            } else {
                PassageStore::open(&path)?
            };
            parts.store = Some(folder_name);
            pages = Some(Arc::new(store));
        }
    }
    if let Some(retriever) = &options.retriever {
        let (root, inputs) = (folder.root.as_path(), &mut inputs);
        let mut site =
            Site { source, shard, root, pages, whole: None, inputs, built: BTreeMap::new(), observe };
        retriever.build_parts(&mut site)?;
        parts.indexes = site.built;
        if let Some(whole) = site.whole {
            let range = shard.range(whole.len(), Index::PORTION);
            manifest.ranges.insert("passages".to_owned(), ShardRange::new(&range, whole.len()));
            manifest.inputs.insert("store".to_owned(), whole.hash().to_owned());
            manifest.inputs.insert(ShardManifest::ISA.to_owned(), Isa::detected().to_string());
        }
    }
    if indexing == Indexing::Vectors && !manifest.ranges.contains_key("passages") {
        return Err(no_vectors());
    }
    inputs.verify()?;
    folder.write_config(options)?;
    let results = results(&folder.root, &parts)?;
    folder.finish_shard(manifest, results, &parts)
}

fn no_vectors() -> Error {
    missing("retriever", "has no vectors to embed; `sporran embed` builds the indexes of vectors of a config")
}

/// The options that change a store or an index, with hashes of the contents of models.
fn config_of(options: &Options, inputs: &mut Inputs) -> Result<BTreeMap<String, String>> {
    Ok(StepKey::new("index", options)?.without(&WITHOUT).read(inputs)?.into_values())
}

fn inputs_of(described: &Described) -> BTreeMap<String, String> {
    let program = ("program", env!("CARGO_PKG_VERSION").to_owned());
    let redirects = ("redirects", described.redirects.clone().unwrap_or_else(|| "none".to_owned()));
    let source = ("source", described.content.clone());
    [program, redirects, source].map(|(name, hash)| (name.to_owned(), hash)).into()
}

/// The files of a shard's parts. Removes parts of an earlier source or config.
fn results(root: &Path, parts: &PartFolders) -> Result<Vec<PathBuf>> {
    let folders: BTreeSet<&str> =
        parts.store.iter().chain(parts.indexes.values()).map(String::as_str).collect();
    let list = |folder: &Path| -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder).map_err(Error::io(folder, "read"))? {
            names.push(entry.map_err(Error::io(folder, "read"))?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    };
    for name in list(root)? {
        let is_part = name
            .rsplit_once('.')
            .is_some_and(|(_, key)| key.len() == 12 && key.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if is_part && !name.starts_with('.') && !folders.contains(name.as_str()) {
            let path = root.join(name);
            fs::remove_dir_all(&path).map_err(Error::io(&path, "remove"))?;
        }
    }
    let mut files = Vec::new();
    for folder in folders {
        let names = list(&root.join(folder))?;
        files.extend(names.into_iter().filter(|name| name != STAMP).map(|name| Path::new(folder).join(name)));
    }
    Ok(files)
}

/// Opens the store of a config and builds its indexes of vectors that do not exist: `sporran embed`.
///
/// # Errors
/// [`Error::Config`] for a config without vectors; errors of the source, a model or an index.
pub fn index_vectors(options: &Options, observe: &mut Observer<'_>) -> Result<Assembly> {
    source_of(options)?;
    let (assembly, built) = vectors_of(options, Inputs::default(), None, observe)?;
    if built == 0 { Err(no_vectors()) } else { Ok(assembly) }
}

/// Merges shards of `sporran index` or `sporran embed` into the folder of indexes, by default that of the first shard's config.
/// Indexes without parts, such as that of names, are built of the whole store.
///
/// # Errors
/// [`FileError::Shard`] if the source has changed since the shards read it; errors of files and models.
pub fn merge_indexes(set: &ShardSet, output: Option<&Path>, observe: &mut Observer<'_>) -> Result<Assembly> {
    let (folder, manifest) = set.first();
    let overrides: Vec<String> =
        output.iter().map(|output| format!("source.indexes={}", output.display())).collect();
    let options = Options::load_without_tasks(&folder.join("config.toml"), &overrides)?;
    let mut inputs = Inputs::default();
    let sources = inputs_of(&describe(source_of(&options)?, observe, &mut inputs)?);
    // Without the parts of the present model, the merge would encode all passages.
    let config = config_of(&options, &mut inputs)?;
    let now = sources.iter().map(|(name, now)| (name, now, &manifest.inputs));
    for (name, now, then) in now.chain(config.iter().map(|(name, now)| (name, now, &manifest.config))) {
        let then = then.get(name).map_or("nothing", String::as_str);
        if then != now {
            let message = format!(
                "`{name}` is {now} now, and was {then} when the shard was made; make the shards again"
            );
            return Err(FileError::shard(folder, ShardFault::Stale, message).into());
        }
    }
    let parts = ShardParts::open(set)?;
    match manifest.verb.as_str() {
        "embed" => vectors_of(&options, inputs, Some(&parts), observe).map(|(assembly, _)| assembly),
        _ => assemble_of(&options, inputs, Some(&parts), observe),
    }
}
