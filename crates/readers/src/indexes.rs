//! Readers of stores and indexes: folders in which the input replaces one file.
//!
//! The first byte of an input is the number of the file, the rest is its content. The checksums in the folder's header are made to
//! fit, because the damage that they find is not looked at any further.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use serde_json::{Value, json};
use sporran_checkpoint::Tokenizer;
use sporran_kilt::{PassageId, PassageStore, Query, store::BuildOptions};
use sporran_retriever::{
    Retriever, Titles,
    dense::{
        Embeddings, FlatOptions, HnswOptions, Index, IndexOptions, Origin, PqOptions, Similarity, Storage,
        VectorIndex,
    },
    entity::Aliases,
    sparse::{Bm25, Bm25Options, Build, TfIdf, TfIdfOptions},
};
use sporran_transformers::decode::Trie;
use tempfile::TempDir;

use crate::folders::with_files;

/// Pages of which all indexes are made.
const PAGES: &str = concat!(
    r#"{"wikipedia_id":"1","wikipedia_title":"Berlin","text":["Berlin\n","Berlin is the capital of Germany.\n"],"anchors":[{"text":"Oslo","href":"Oslo","paragraph_id":1,"start":0,"end":4}]}"#,
    "\n",
    r#"{"wikipedia_id":"2","wikipedia_title":"Café Müller","text":["Café Müller\n","Section::::Ort.\n","Ein Stück – 👍 von Pina.\n"]}"#,
    "\n",
    r#"{"wikipedia_id":"3","wikipedia_title":"Oslo","text":["Oslo\n","Oslo is the capital of Norway.\n"],"file":"a.txt"}"#,
    "\n"
);
const WIDTH: usize = 8;
const VECTORS: usize = 20;

/// The built folders.
struct Built {
    folder: TempDir,
}

impl Built {
    fn files(&self, name: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path().join(name)).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    }
}

type Failure = Box<dyn std::error::Error>;

fn dense_options() -> [(&'static str, IndexOptions); 4] {
    [
        ("flat", IndexOptions::Flat(FlatOptions::default())),
        (
            "int8",
            IndexOptions::Flat(FlatOptions { storage: Storage::Int8, rescore: 2, ..FlatOptions::default() }),
        ),
        ("pq", IndexOptions::Pq(PqOptions { parts: Some(2), ..PqOptions::default() })),
        (
            "hnsw",
            IndexOptions::Hnsw(HnswOptions { links: 4, construction_width: 8, ..HnswOptions::default() }),
        ),
    ]
}

fn vectors(count: usize) -> Vec<f32> {
    (0..count * WIDTH).map(|at| ((at * 7919) % 101) as f32 / 50.0 - 1.0).collect()
}

const ORIGIN: Origin<'static> = Origin { encoder_hash: "e", passages_hash: "p" };

fn words() -> Result<Tokenizer, Failure> {
    let vocabulary: BTreeMap<&str, usize> =
        ["berlin", "café", "müller", "oslo", "[UNK]"].into_iter().zip(0..).collect();
    let value = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    });
    Ok(Tokenizer::from_json(Path::new("tokenizer.json"), value.to_string())?)
}

fn build() -> Result<Built, Failure> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    fs::write(path("pages.jsonl"), PAGES)?;
    fs::write(path("redirects.tsv"), "Capital of Norway\tOslo\n")?;
    let options = BuildOptions {
        source: path("pages.jsonl"),
        redirects: Some(path("redirects.tsv")),
        split: sporran_kilt::PassageSplit::Words,
    };
    let store = PassageStore::build(&options, path("store"), &mut |_| {})?;
    let passages = || {
        (0..store.len() as u32).map(|id| {
            let passage = store.passage(PassageId(id));
            Ok::<_, std::io::Error>((PassageId(id), passage.title, passage.text))
        })
    };
    Bm25::build(&Bm25Options::default(), passages(), "p", path("bm25"), Build::new(&mut |_| {}))?;
    TfIdf::build(&TfIdfOptions::default(), passages(), "p", path("tfidf"), Build::new(&mut |_| {}))?;
    Aliases::build(&path("pages.jsonl"), &store, path("aliases"), &mut |_| {})?;
    Titles::build(&store, &words()?, true, path("titles"), &mut |_| {})?;
    for (name, options) in dense_options() {
        let portions = |_| [Embeddings::new(WIDTH, vectors(VECTORS))];
        Index::build(&options, Similarity::InnerProduct, WIDTH, ORIGIN, portions, path(name), &mut |_| {})?;
    }
    Ok(Built { folder })
}

/// The folders, which are built once.
fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build().unwrap_or_else(|error| panic!("expected the indexes to be built: {error}")))
}

/// The files as inputs: their numbers and contents.
pub(crate) fn seeds_of(files: &[PathBuf]) -> Vec<Vec<u8>> {
    let seed = |(at, path): (u8, &PathBuf)| [&[at], fs::read(path).unwrap_or_default().as_slice()].concat();
    (0..).zip(files).map(seed).collect()
}

/// Calls `read` with a copy of a folder of `files`, in which `bytes` replace one of them. `mend` gets the folder and the file's name.
pub(crate) fn damaged(files: &[PathBuf], bytes: &[u8], mend: impl Fn(&Path, &str), read: impl Fn(&Path)) {
    let Some((number, content)) = bytes.split_first() else { return };
    let contents: Vec<(String, Vec<u8>)> = files
        .iter()
        .enumerate()
        .map(|(at, path)| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let own = || fs::read(path).unwrap_or_default();
            let is_replaced = at == usize::from(*number) % files.len();
            (name, if is_replaced { content.to_vec() } else { own() })
        })
        .collect();
    let borrowed: Vec<(&str, &[u8])> =
        contents.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
    with_files(&borrowed, |folder| {
        if let Some((name, _)) = contents.get(usize::from(*number) % files.len()) {
            mend(folder, name);
        }
        read(folder);
    });
}

fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// Makes the checksums of an index fit: those of its files, and that of its header.
fn mend_index(folder: &Path, _: &str) {
    let path = folder.join("header");
    let Ok(bytes) = fs::read(&path) else { return };
    let Some(at) = bytes.iter().position(|byte| *byte == b'\n') else { return };
    let first = String::from_utf8_lossy(&bytes[..at]).into_owned();
    let mut body = bytes[at + 1..].to_vec();
    if let Ok(mut header) = serde_json::from_slice::<Value>(&body)
        && let Some(sections) = header.get_mut("sections").and_then(Value::as_array_mut)
    {
        for section in sections.iter_mut().filter(|section| section.is_object()) {
            let name = section["name"].as_str().unwrap_or_default().to_owned();
            if let Ok(content) = fs::read(folder.join(Path::new(&name).file_name().unwrap_or_default())) {
                section["bytes"] = content.len().into();
                section["blake3"] = hash(&content).into();
            }
        }
        body = format!("{header:#}\n").into_bytes();
    }
    let words: Vec<&str> = first.split(' ').collect();
    if let [start @ .., _] = words.as_slice() {
        let whole = [format!("{} {}\n", start.join(" "), hash(&body)).as_bytes(), &body].concat();
        let _ = fs::write(&path, whole);
    }
}

/// Makes the checksums of a store fit, in the order of `store.json`.
fn mend_store(folder: &Path, _: &str) {
    let path = folder.join("store.json");
    let Ok(mut manifest) =
        fs::read(&path).map_err(drop).and_then(|bytes| serde_json::from_slice::<Value>(&bytes).map_err(drop))
    else {
        return;
    };
    if !manifest.is_object() {
        return;
    }
    let fit = |files: &mut Value| {
        for (name, content) in files.as_object_mut().into_iter().flatten() {
            if let Ok(bytes) = fs::read(folder.join(Path::new(name).file_name().unwrap_or_default()))
                && content.is_object()
            {
                content["bytes"] = bytes.len().into();
                content["blake3"] = hash(&bytes).into();
            }
        }
    };
    let hashes = |files: &Value| -> BTreeMap<String, String> {
        let files = files.as_object().into_iter().flatten();
        files
            .map(|(name, content)| (name.clone(), content["blake3"].as_str().unwrap_or_default().to_owned()))
            .collect()
    };
    fit(&mut manifest["files"]);
    let mut hasher = blake3::Hasher::new();
    hasher.update(
        serde_json::to_string(&(sporran_kilt::store::VERSION, &manifest["split"]))
            .unwrap_or_default()
            .as_bytes(),
    );
    for (name, hash) in hashes(&manifest["files"]) {
        hasher.update(name.as_bytes()).update(hash.as_bytes());
    }
    manifest["hash"] = hasher.finalize().to_hex().to_string().into();
    if manifest["metadata"].is_object() {
        fit(&mut manifest["metadata"]["files"]);
        let listed: Vec<(String, String)> = hashes(&manifest["metadata"]["files"]).into_iter().collect();
        let keys: BTreeMap<String, Value> =
            serde_json::from_value(manifest["metadata"]["keys"].clone()).unwrap_or_default();
        manifest["metadata"]["hash"] = sporran_kilt::hash_json(&(keys, listed)).into();
    }
    let _ = fs::write(&path, manifest.to_string());
}

pub(crate) fn store(bytes: &[u8]) {
    damaged(&built().files("store"), bytes, mend_store, |folder| {
        let Ok(store) = PassageStore::open(folder) else { return };
        // A hostile header can claim many passages only with rows for them.
        for id in 0..store.len().min(200) as u32 {
            let _ = (store.passage(PassageId(id)), store.text(PassageId(id)));
            let page = store.page_of(PassageId(id));
            let _ =
                (store.page_id(page), store.page_title(page), store.metadata(page), store.passages_of(page));
            store.paragraphs(page).for_each(|text| drop(text.to_owned()));
        }
        let _ = (
            store.page_by_id("2"),
            store.page_by_title("oslo"),
            store.page_by_href("Caf%C3%A9%20M%C3%BCller"),
        );
        store.names_of_pages().take(200).for_each(drop);
        let _ = store.sound();
    });
}

pub(crate) fn store_seeds() -> Vec<Vec<u8>> {
    seeds_of(&built().files("store"))
}

fn query() -> [Query; 2] {
    ["the capital of Norway is Oslo", "Ein Stück von Pina"].map(|text| Query::of_text("q", text))
}

pub(crate) fn bm25(bytes: &[u8]) {
    damaged(&built().files("bm25"), bytes, mend_index, |folder| {
        let Ok(index) = Bm25::open(folder, "p") else { return };
        let _ = index.retrieve(&query(), 3);
        let _ = index.retrieve_exhaustively(&query(), 3);
    });
}

pub(crate) fn bm25_seeds() -> Vec<Vec<u8>> {
    seeds_of(&built().files("bm25"))
}

pub(crate) fn tfidf(bytes: &[u8]) {
    damaged(&built().files("tfidf"), bytes, mend_index, |folder| {
        let Ok(index) = TfIdf::open(folder, "p") else { return };
        let _ = index.retrieve(&query(), 3);
    });
}

pub(crate) fn tfidf_seeds() -> Vec<Vec<u8>> {
    seeds_of(&built().files("tfidf"))
}

/// The hash of the passages that an index over the store names.
fn passages_hash() -> String {
    PassageStore::open(built().folder.path().join("store"))
        .map(|store| store.hash().to_owned())
        .unwrap_or_default()
}

pub(crate) fn aliases(bytes: &[u8]) {
    damaged(&built().files("aliases"), bytes, mend_index, |folder| {
        let Ok(names) = Aliases::open(folder, &passages_hash()) else { return };
        let _ = (names.find("Oslo"), names.find("nothing"), names.len());
    });
}

pub(crate) fn aliases_seeds() -> Vec<Vec<u8>> {
    seeds_of(&built().files("aliases"))
}

/// The first byte also selects the kind of index.
pub(crate) fn dense(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let options = dense_options();
    let (name, options) = &options[usize::from(first / 16) % options.len()];
    let bytes = [&[first % 16], rest].concat();
    damaged(&built().files(name), &bytes, mend_index, |folder| {
        let Ok(index) = Index::open(options, Similarity::InnerProduct, ORIGIN, folder) else { return };
        let Ok(queries) = Embeddings::new(WIDTH, vectors(3)) else { return };
        let _ = index.search(&queries, 4, None);
        let _ = index.scores(&queries, &[vec![0, 1], vec![], vec![19]]);
    });
}

pub(crate) fn dense_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (at, (name, _)) in (0..).zip(dense_options()) {
        let mut own = seeds_of(&built().files(name));
        own.iter_mut().for_each(|seed| seed[0] += 16 * at);
        seeds.extend(own);
    }
    seeds
}

/// The titles of pages in a model's tokens: their trie and their pages.
pub(crate) fn trie(bytes: &[u8]) {
    damaged(&built().files("titles"), bytes, mend_index, |folder| {
        if let Ok(titles) = Titles::open(folder, &passages_hash()) {
            walk(titles.trie());
            let _ = titles.pages(&[0]);
        }
        if let Ok(trie) = Trie::open(&folder.join("trie")) {
            walk(&trie);
        }
    });
}

/// Visits the nodes near the root. Damaged nodes may refer to each other.
fn walk(trie: &Trie) {
    let mut open = vec![(trie.root(), 0)];
    let mut seen = 0;
    while let Some((node, depth)) = open.pop() {
        seen += 1;
        let _ = trie.is_end(node);
        if depth < 8 && seen < 200 {
            open.extend(trie.children(node).take(20).map(|(_, child)| (child, depth + 1)));
        }
    }
    let _ = (trie.find(&[0]), trie.contains(&[3, 1]), trie.verify());
}

pub(crate) fn trie_seeds() -> Vec<Vec<u8>> {
    seeds_of(&built().files("titles"))
}
