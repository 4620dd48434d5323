//! The folders of all kinds of index, and of their store: built by competing processes, and damaged.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fs,
    path::{Path, PathBuf},
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    },
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sporran_checkpoint::Tokenizer;
use sporran_kilt::{
    PassageId, PassageSplit, PassageStore, Query,
    folder::{Place, STAMP},
    jsonl,
    store::{BuildOptions, PageIndex},
};
use sporran_retriever::{
    Result, Retriever, Titles,
    dense::{
        Embeddings, FlatOptions, HnswOptions, Index, IndexOptions, Origin, PqOptions, Similarity, Storage,
        VectorIndex,
    },
    entity::{Aliases, mentions},
    sparse::{Bm25, Bm25Options, Build, TfIdf, TfIdfOptions},
    verify_index,
};

const WORDS: [&str; 12] =
    ["red", "green", "paris", "new", "york", "city", "big", "apple", "oslo", "blue", "river", "king"];

/// The answers of a folder.
type Answers<'w> = Box<dyn Fn(&Path) -> Result<String> + Sync + 'w>;

/// How a kind of folder is built, and its answers to fixed queries.
struct Kind<'w> {
    name: &'static str,
    build: Box<dyn Fn(Place) -> Result<()> + Sync + 'w>,
    answers: Answers<'w>,
}

/// A store with what is built over it.
struct World {
    _folder: tempfile::TempDir,
    source: PathBuf,
    options: BuildOptions,
    store: PassageStore,
    tokenizer: Tokenizer,
    vectors: Embeddings,
}

const ORIGIN: Origin<'_> = Origin { encoder_hash: "e", passages_hash: "p" };

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut text = |words: usize| {
            (0..words).map(|_| WORDS[rng.random_range(0..WORDS.len())]).collect::<Vec<_>>().join(" ")
        };
        let pages: Vec<String> = (0..150)
            .map(|id| {
                let title = format!("{} {}", text(1), text(1));
                let anchors = [serde_json::json!({"text": text(2), "href": "new york"})];
                serde_json::json!({"wikipedia_id": id.to_string(), "wikipedia_title": title,
                    "text": [title, text(40)], "anchors": anchors})
                .to_string()
            })
            .collect();
        let source = folder.path().join("pages.jsonl");
        jsonl::write(&source, pages.join("\n").as_bytes()).unwrap();
        let options =
            BuildOptions { source: source.clone(), redirects: None, split: PassageSplit::Paragraph };
        let store = PassageStore::build(&options, folder.path().join("store"), &mut |_| {}).unwrap();
        let vocabulary: serde_json::Map<_, _> =
            WORDS.iter().zip(1..).map(|(word, id)| ((*word).to_owned(), id.into())).collect();
        let mut json = serde_json::json!({"version": "1.0", "truncation": null, "padding": null,
            "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}});
        json["model"]["vocab"]["<unk>"] = 0.into();
        let tokenizer = Tokenizer::from_json(Path::new("tokenizer.json"), json.to_string()).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let values = (0..400 * 16).map(|_| rng.random_range(-1.0..1.0)).collect();
        let vectors = Embeddings::new(16, values).unwrap();
        Self { _folder: folder, source, options, store, tokenizer, vectors }
    }

    fn passages(&self) -> impl Iterator<Item = Result<(PassageId, &str, String), Infallible>> {
        let store = &self.store;
        let ids = (0..store.len() as u32).map(PassageId);
        ids.map(move |id| Ok((id, store.page_title(store.page_of(id)), store.text(id))))
    }

    fn dense(&self, name: &'static str, options: IndexOptions) -> Kind<'_> {
        let with = options.clone();
        let build = move |place| {
            let vectors = |_| [Ok(self.vectors.clone())];
            Index::build(&with, Similarity::InnerProduct, 16, ORIGIN, vectors, place, &mut |_| {})
        };
        let answers = move |path: &Path| {
            let index = Index::open(&options, Similarity::InnerProduct, ORIGIN, path)?;
            let queries = Embeddings::new(16, self.vectors.values()[..16 * 20].to_vec())?;
            Ok(format!("{:?}", index.search(&queries, 7, None)?))
        };
        Kind { name, build: Box::new(build), answers: Box::new(answers) }
    }

    fn kinds(&self) -> Vec<Kind<'_>> {
        let queries: Vec<Query> =
            WORDS.iter().map(|word| Query::of_text("q", format!("{word} river"))).collect();
        let asked = queries.clone();
        let hash = self.store.hash();
        vec![
            Kind {
                name: "store",
                build: Box::new(|place| {
                    PassageStore::build(&self.options, place, &mut |_| {})?;
                    Ok(())
                }),
                answers: Box::new(|path| {
                    let store = PassageStore::open(path)?;
                    let pages = (0..store.pages() as u32).map(PageIndex);
                    let ids: Vec<_> = pages.map(|page| store.page_id(page).into_owned()).collect();
                    let passages: Vec<_> =
                        (0..store.len() as u32).map(|id| store.passage(PassageId(id))).collect();
                    let names: Vec<_> = store.names_of_pages().collect();
                    Ok(format!("{ids:?} {passages:?} {names:?} {:?}", store.page_by_title("red red")))
                }),
            },
            Kind {
                name: "bm25",
                build: Box::new(move |place| {
                    let options = Bm25Options::default();
                    Bm25::build(&options, self.passages(), hash, place, Build::new(&mut |_| {}))
                }),
                answers: Box::new(move |path| {
                    Ok(format!("{:?}", Bm25::open(path, hash)?.retrieve(&queries, 9)?))
                }),
            },
            Kind {
                name: "tfidf",
                build: Box::new(move |place| {
                    let options = TfIdfOptions { buckets: 1 << 10, ..TfIdfOptions::default() };
                    TfIdf::build(&options, self.passages(), hash, place, Build::new(&mut |_| {}))
                }),
                answers: Box::new(move |path| {
                    Ok(format!("{:?}", TfIdf::open(path, hash)?.retrieve(&asked, 9)?))
                }),
            },
            Kind {
                name: "names",
                build: Box::new(|place| Aliases::build(&self.source, &self.store, place, &mut |_| {})),
                answers: Box::new(move |path| {
                    let aliases = Aliases::open(path, hash)?;
                    let found = mentions(&aliases, &WORDS.repeat(2).join(" "));
                    let names = WORDS.map(|word| aliases.find(&format!("{word} york")));
                    Ok(format!("{found:?} {names:?} {}", aliases.len()))
                }),
            },
            Kind {
                name: "titles",
                build: Box::new(|place| {
                    Titles::build(&self.store, &self.tokenizer, false, place, &mut |_| {})
                }),
                answers: Box::new(move |path| {
                    let titles = Titles::open(path, hash)?;
                    let pairs = (1..13).flat_map(|a| (1..13).map(move |b| [a, b]));
                    let found: Vec<_> =
                        pairs.map(|pair| (titles.pages(&pair), titles.trie().contains(&pair))).collect();
                    Ok(format!("{found:?} {}", titles.len()))
                }),
            },
            self.dense("flat", IndexOptions::Flat(FlatOptions::default())),
            self.dense(
                "rescored",
                IndexOptions::Flat(FlatOptions {
                    storage: Storage::Int8,
                    rescore: 3,
                    ..FlatOptions::default()
                }),
            ),
            self.dense("pq", IndexOptions::Pq(PqOptions { parts: Some(4), ..PqOptions::default() })),
            self.dense("hnsw", IndexOptions::Hnsw(HnswOptions { links: 4, ..HnswOptions::default() })),
        ]
    }
}

/// The files of a folder without the stamp, which is not part of the build.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()));
    named.filter(|(name, _)| name != STAMP).map(|(name, path)| (name, fs::read(path).unwrap())).collect()
}

/// The number of races for each kind of folder.
const ROUNDS: usize = 12;
const BUILDERS: usize = 3;

#[test]
fn of_many_that_build_one_index_one_builds_and_the_others_take_its_result() {
    let world = World::new();
    for kind in world.kinds() {
        let place = tempfile::tempdir().unwrap();
        let alone = place.path().join("alone");
        (kind.build)((&alone).into()).unwrap();
        let expected = files(&alone);
        let answers = (kind.answers)(&alone).unwrap();
        for round in 0..ROUNDS {
            let target = place.path().join("raced");
            let (start, built) = (Barrier::new(BUILDERS), AtomicUsize::new(0));
            std::thread::scope(|scope| {
                for _ in 0..BUILDERS {
                    scope.spawn(|| {
                        start.wait();
                        if let Some(vacant) = Place::vacant(&target).unwrap() {
                            (kind.build)(vacant).unwrap();
                            built.fetch_add(1, Ordering::Relaxed);
                        }
                        // It is complete as soon as it exists, for every builder.
                        assert_eq!((kind.answers)(&target).unwrap(), answers, "{} {round}", kind.name);
                    });
                }
            });
            assert_eq!(built.into_inner(), 1, "{}", kind.name);
            assert!(files(&target) == expected, "{} {round}", kind.name);
            fs::remove_dir_all(&target).unwrap();
        }
        // Builds that replace a folder wait for their turn too.
        std::thread::scope(|scope| {
            for _ in 0..BUILDERS {
                scope.spawn(|| (kind.build)((&alone).into()).unwrap());
            }
        });
        assert!(files(&alone) == expected, "{}", kind.name);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "{}: something is left", kind.name);
    }
}

#[test]
fn one_changed_byte_anywhere_is_an_error_that_names_the_file() {
    let world = World::new();
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for kind in world.kinds() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join(kind.name);
        (kind.build)((&folder).into()).unwrap();
        let answers = (kind.answers)(&folder).unwrap();
        for (name, bytes) in files(&folder) {
            let path = folder.join(&name);
            let is_header = ["header", "store.json"].contains(&name.as_str());
            for round in 0..40 {
                let mut damaged = bytes.clone();
                match round {
                    0 => damaged.truncate(bytes.len() / 2),
                    1 => damaged.push(0),
                    2 => damaged.clear(),
                    _ if bytes.is_empty() => continue,
                    _ => damaged[rng.random_range(0..bytes.len())] ^= 1 << rng.random_range(0..8),
                }
                if damaged == bytes {
                    continue;
                }
                fs::write(&path, damaged).unwrap();
                match (kind.answers)(&folder) {
                    // White space of JSON, and fields of a store without effect.
                    Ok(found) => assert!(name == "store.json" && found == answers, "{} {name}", kind.name),
                    Err(error) => {
                        let message = error.to_string();
                        assert!(message.contains(&name), "{} {name}: {message}", kind.name);
                        assert!(
                            is_header || round < 3 || message.contains("checksum"),
                            "{} {name}: {message}",
                            kind.name
                        );
                    }
                }
                if kind.name != "store" {
                    assert!(verify_index(&folder).is_err(), "{} {name}", kind.name);
                }
            }
            fs::write(&path, &bytes).unwrap();
        }
        assert_eq!((kind.answers)(&folder).unwrap(), answers);
    }
}
