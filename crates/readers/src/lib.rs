//! Every reader of files as a function of bytes.
//!
//! The targets of `cargo fuzz` and the test `replay` call the same functions. A reader may return an error for any bytes. It must
//! not panic, not allocate far more than its input, and end. Seeds are in `fuzz/corpus`; [`Reader::seeds`] has those that are made.

mod documents;
mod files;
mod folders;
mod indexes;
mod models;
mod mutation;

use std::{
    fs,
    path::{Path, PathBuf},
};

pub use mutation::mutated;

/// A reader of bytes.
#[derive(Clone, Copy)]
pub struct Reader {
    /// Its name, which the fuzz target and the folder of seeds have.
    pub name: &'static str,
    /// Reads bytes. Errors are ignored.
    pub read: fn(&[u8]),
    /// Inputs that are made when they are needed.
    made: fn() -> Vec<Vec<u8>>,
}

/// A reader whose seeds are all files.
const fn files(name: &'static str, read: fn(&[u8])) -> Reader {
    Reader { name, read, made: Vec::new }
}

/// All readers.
pub const READERS: [Reader; 49] = [
    files("records", files::records),
    files("lines", files::lines),
    files("pages", files::pages),
    files("json", files::json),
    files("elements", files::elements),
    files("config", files::config),
    files("csv", files::csv),
    files("sheet", files::sheet),
    files("qrels", files::qrels),
    files("run", files::run),
    files("psgs", files::psgs),
    files("topics", files::topics),
    files("mapping", files::mapping),
    files("triviaqa", files::triviaqa),
    files("docred", files::docred),
    files("knowledgenet", files::knowledgenet),
    files("wowpp", files::wowpp),
    files("zsre", files::zsre),
    files("korc", files::korc),
    files("linked", files::linked),
    files("names", files::names),
    files("triples", files::triples),
    files("ntriples", files::ntriples),
    files("rules", files::rules),
    files("conllu", files::conllu),
    files("votes", files::votes),
    files("gguf", models::gguf),
    files("safetensors", models::safetensors),
    files("pickle", models::pickle),
    files("model-config", models::config),
    files("tokenizer-json", models::tokenizer_json),
    files("spiece", models::spiece),
    files("tiktoken", models::tiktoken),
    files("vocab-json", models::vocab_json),
    files("vocab-txt", models::vocab_txt),
    files("chat-template", models::chat_template),
    Reader { name: "store", read: indexes::store, made: indexes::store_seeds },
    Reader { name: "bm25", read: indexes::bm25, made: indexes::bm25_seeds },
    Reader { name: "tfidf", read: indexes::tfidf, made: indexes::tfidf_seeds },
    Reader { name: "names-index", read: indexes::aliases, made: indexes::aliases_seeds },
    Reader { name: "dense", read: indexes::dense, made: indexes::dense_seeds },
    Reader { name: "trie", read: indexes::trie, made: indexes::trie_seeds },
    Reader { name: "embedding", read: models::embedding, made: models::embedding_seeds },
    Reader { name: "docx", read: documents::docx, made: documents::docx_seeds },
    Reader { name: "odt", read: documents::odt, made: documents::odt_seeds },
    Reader { name: "epub", read: documents::epub, made: documents::epub_seeds },
    files("html", documents::html),
    files("markdown", documents::markdown),
    Reader { name: "parquet", read: documents::parquet, made: documents::parquet_seeds },
];

impl Reader {
    /// The reader of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        READERS.into_iter().find(|reader| reader.name == name)
    }

    /// Its seeds: the files of its folder in `fuzz/corpus` in the order of their names, then those that are made.
    ///
    /// # Errors
    /// A folder or file that cannot be read.
    pub fn seeds(&self) -> std::io::Result<Vec<Vec<u8>>> {
        let folder = self.folder();
        let mut seeds = Vec::new();
        if folder.is_dir() {
            let mut paths: Vec<PathBuf> =
                fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
            paths.sort();
            for path in paths {
                seeds.push(fs::read(path)?);
            }
        }
        seeds.extend((self.made)());
        Ok(seeds)
    }

    /// Its folder in `fuzz/corpus`.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(self.name)
    }
}

/// Reads bytes by the reader of this name.
///
/// # Panics
/// If there is none.
pub fn read(name: &str, bytes: &[u8]) {
    let Some(reader) = Reader::named(name) else {
        panic!("expected a reader, found none of the name {name}")
    };
    (reader.read)(bytes);
}
