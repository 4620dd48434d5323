//! Reading a folder of Markdown files: the first time, unchanged, and after changes.
//!
//! Corpus: `--source FOLDER`, or `--files N` synthetic files (default 20,000) from seed 1: a heading and three paragraphs of 40
//! words `w0` to `w9999`. Command: `cargo bench --bench documents -- [--source FOLDER] [--files N]`. Peer in the same run: the
//! loaders of `langchain_community` (`DirectoryLoader` with `TextLoader`), its splitter of recursive characters, and `bm25s` on
//! the pieces; `PYTHON` names the interpreter (`python3`), and without the packages the peer is skipped. Ours reads, splits at
//! 100 words and indexes by BM25. All seconds are wall-clock time of one run.
#![allow(clippy::print_stdout, reason = "a bench reports on standard output")]

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sporran::{
    documents::{Collection, Options, list},
    kilt::{PassageId, PassageSplit, PassageStore, store::BuildOptions},
    retriever::sparse::{Bm25, Bm25Options, Build},
};

const PEER: &str = "
import sys, time
try:
    import bm25s
    from langchain_community.document_loaders import DirectoryLoader, TextLoader
    from langchain_text_splitters import RecursiveCharacterTextSplitter
except ImportError as error:
    sys.exit(str(error))
start = time.time()
documents = DirectoryLoader(sys.argv[1], glob='**/*.md', loader_cls=TextLoader, loader_kwargs={'encoding': 'utf-8'}).load()
read = time.time() - start
start = time.time()
pieces = RecursiveCharacterTextSplitter(chunk_size=600, chunk_overlap=0).split_documents(documents)
split = time.time() - start
start = time.time()
tokens = bm25s.tokenize([piece.page_content for piece in pieces], show_progress=False)
index = bm25s.BM25()
index.index(tokens, show_progress=False)
print(len(documents), len(pieces), read, split, time.time() - start)
";

fn synthetic(folder: &Path, files: usize) -> Result<(), Box<dyn Error>> {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    for at in 0..files {
        let folder = folder.join(format!("{:03}", at / 1000));
        fs::create_dir_all(&folder)?;
        let mut paragraph =
            || (0..40).map(|_| format!("w{}", random.random_range(0..10_000))).collect::<Vec<_>>().join(" ");
        let text =
            format!("# Page {at}\n\n{}\n\n## Part\n\n{}\n\n{}\n", paragraph(), paragraph(), paragraph());
        fs::write(folder.join(format!("{at}.md")), text)?;
    }
    Ok(())
}

/// Lists and reads a folder.
fn collect(folder: &Path, indexes: &Path) -> Result<Collection, Box<dyn Error>> {
    let options = Options { paths: vec![folder.to_owned()], ..Options::default() };
    let start = Instant::now();
    let listing = list(&options, &mut |_| {})?;
    let listed = start.elapsed().as_secs_f64();
    let collection = Collection::open_or_build(&listing, &options, false, indexes, &mut |_| {})?;
    let seconds = start.elapsed().as_secs_f64();
    let files = listing.files.len();
    println!(
        "{} in {seconds:.2} s, {listed:.2} s of it to list and hash: {:.0} files/s",
        collection.summary(),
        files as f64 / seconds
    );
    Ok(collection)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut source: Option<PathBuf> = None;
    let mut files = 20_000;
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        match argument.as_str() {
            "--source" => source = Some(value.into()),
            "--files" => files = value.parse()?,
            _ => return Err(format!("unknown option {argument}; known are --source and --files").into()),
        }
    }
    let folder = tempfile::tempdir()?;
    let is_own = source.is_none();
    let source = match source {
        Some(path) => path,
        None => {
            let path = folder.path().join("docs");
            synthetic(&path, files)?;
            path
        }
    };
    let indexes = folder.path().join("indexes");
    println!("{} threads", rayon::current_num_threads());
    println!("first reading:");
    let collection = collect(&source, &indexes)?;
    let start = Instant::now();
    let build = BuildOptions { source: collection.pages(), redirects: None, split: PassageSplit::Words };
    let store = PassageStore::build(&build, folder.path().join("store"), &mut |_| {})?;
    println!("{} passages stored in {:.2} s", store.len(), start.elapsed().as_secs_f64());
    let start = Instant::now();
    let passages = (0..store.len() as u32).map(PassageId).map(|id| {
        Ok::<_, std::convert::Infallible>((
            id,
            store.page_title(store.page_of(id)).to_owned(),
            store.text(id),
        ))
    });
    let place = folder.path().join("bm25");
    Bm25::build(&Bm25Options::default(), passages, store.hash(), &place, Build::new(&mut |_| {}))?;
    println!("indexed by BM25 in {:.2} s", start.elapsed().as_secs_f64());
    println!("unchanged:");
    collect(&source, &indexes)?;
    if is_own {
        fs::write(source.join("000/1.md"), "# Changed\n\nOther words.\n")?;
        println!("after a change:");
        collect(&source, &indexes)?;
    }
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let peer = Command::new(&python).args(["-c", PEER]).arg(&source).output();
    let numbers = match &peer {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(output) => return Ok(println!("no peer: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => return Ok(println!("no peer: {error}")),
    };
    let numbers: Vec<f64> = numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let [documents, pieces, read, split, index] = numbers[..] else {
        return Err("no figures of the peer".into());
    };
    println!(
        "langchain_community and bm25s: {documents} files, {pieces} pieces; read in {read:.2} s ({:.0} files/s), split in \
         {split:.2} s, indexed in {index:.2} s",
        documents / read
    );
    Ok(())
}
