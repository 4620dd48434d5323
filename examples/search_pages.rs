//! Builds a passage store and a BM25 index from the bundled pages and prints the best pages for a query.
//!
//! ```text
//! cargo run --release --example search_pages -- Where did John Kenneth Galbraith work
//! ```
#![allow(clippy::print_stdout, reason = "an example shows its results")]

use std::{convert::Infallible, error::Error, path::Path};

use sporran::{
    kilt::{
        Hit, PassageId, PassageSplit, PassageStore, Query,
        store::{BuildOptions, PageIndex},
    },
    retriever::{
        Retriever,
        sparse::{Bm25, Bm25Options, Build},
    },
};

/// Pages to print.
const PAGES: usize = 5;
/// Passages to retrieve for them: a page can have several among the best.
const PASSAGES: usize = 50;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let text =
        if words.is_empty() { "Where did John Kenneth Galbraith work".to_owned() } else { words.join(" ") };
    let folder = tempfile::tempdir()?;
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/minikilt");

    // The store splits pages into passages of 100 words and keeps their places. Pages and passages are read as a stream,
    // so this also works for all of Wikipedia. The opened store is memory-mapped.
    let source = BuildOptions {
        source: data.join("knowledge_source.jsonl.gz"),
        redirects: Some(data.join("redirects.tsv")),
        split: PassageSplit::Words,
    };
    let store = PassageStore::build(&source, folder.path().join("store"), &mut |_| {})?;
    println!("{} pages, {} passages", store.pages(), store.len());

    // Passages are numbered from 0 in the order of the source. The index has the store's hash and does not open with
    // other passages.
    let passages = (0..store.len() as u32)
        .map(PassageId)
        .map(|id| Ok::<_, Infallible>((id, store.page_title(store.page_of(id)), store.text(id))));
    let place = folder.path().join("bm25");
    Bm25::build(&Bm25Options::default(), passages, store.hash(), &place, Build::new(&mut |_| {}))?;
    let index = Bm25::open(&place, store.hash())?;

    // A query has no gold answers; an `Example` has them, and only training and scoring use it.
    let query = Query::of_text("example", text);
    println!("query: {}\n", query.text);
    let hits: Vec<Hit> = index.retrieve(&[query], PASSAGES)?.into_iter().flatten().collect();

    // The best passage of each page represents it.
    let mut seen: Vec<PageIndex> = Vec::new();
    for hit in hits {
        let page = store.page_of(hit.passage);
        if seen.contains(&page) {
            continue;
        }
        seen.push(page);
        let passage = store.passage(hit.passage);
        let start: Vec<&str> = passage.text.split_whitespace().take(20).collect();
        println!("{}. {} ({:.3})", seen.len(), passage.title, hit.score);
        println!("   {} ..", start.join(" "));
        // The provenance of a prediction: page, title, section, and the exact paragraphs and characters.
        println!("   {}", serde_json::to_string(&passage.provenance())?);
        if seen.len() == PAGES {
            break;
        }
    }
    Ok(())
}
