//! Runs over a folder of documents.

use std::{fs, path::Path};

use sporran_kilt::Query;
use sporran_pipeline::{Config, Options, assemble_retrieval};

use crate::make::{docx, epub, odt, pdf};

/// A config of BM25 over the folder `docs`, with further keys of `[source]` and further tables.
fn options(folder: &Path, source: &str, tables: &str) -> Options {
    let config = folder.join("c.toml");
    let (docs, indexes) = (folder.join("docs"), folder.join("indexes"));
    let text = format!(
        "workflow = 'answer'\nname = 'r'\n[tasks]\n[source]\npath = '{}'\nindexes = '{}'\n{source}\n[retriever]\nkind = 'bm25'\n{tables}\n",
        docs.display(),
        indexes.display()
    );
    fs::write(&config, text).unwrap();
    Options::parse(&config, &[]).unwrap()
}

/// The name of something that no other document mentions.
fn name(at: usize) -> String {
    let syllables = ["ka", "lo", "mi", "ne", "pu", "ra", "so", "ti"];
    (0..4).map(|digit| syllables[at / 8usize.pow(digit) % 8]).collect()
}

#[test]
fn questions_about_200_documents_of_all_formats_find_their_documents() {
    let folder = tempfile::tempdir().unwrap();
    let docs = folder.path().join("docs");
    fs::create_dir(&docs).unwrap();
    let facts: Vec<(String, String)> = (0..200)
        .map(|at| {
            (
                name(at),
                format!("The {} was built in {} by the people of {}.", name(at), 1000 + at, name(at + 1000)),
            )
        })
        .collect();
    let filler = "Many rivers of the land flow to the sea. People drink tea in the morning.";
    let mut files: Vec<String> = Vec::new();
    let (mut rows, mut lines) = (String::from("number,story\n"), String::new());
    for (at, (_, fact)) in facts.iter().enumerate() {
        let blocks = [(1, "History"), (0, filler), (2, "Buildings"), (0, fact.as_str())];
        let (file, content) = match at % 9 {
            0 => (format!("{at}.txt"), format!("{filler}\n\n{fact}\n").into_bytes()),
            1 => (
                format!("{at}.md"),
                format!("# History\n\n{filler}\n\n## Buildings\n\n- {fact}\n").into_bytes(),
            ),
            2 => (
                format!("{at}.html"),
                format!("<h1>History</h1><p>{filler}<h2>Buildings</h2><p>{fact}").into_bytes(),
            ),
            3 => (format!("{at}.docx"), docx(&blocks)),
            4 => (format!("{at}.odt"), odt(&blocks)),
            5 => (format!("{at}.epub"), epub(&[&format!("<p>{filler}</p>"), &format!("<p>{fact}</p>")])),
            6 => (
                format!("{at}.pdf"),
                pdf(&[&[(18, "History"), (11, filler)], &[(18, "Buildings"), (11, fact)]]),
            ),
            7 => {
                rows.push_str(&format!("{at},\"{filler} {fact}\"\n"));
                ("rows.csv".to_owned(), rows.clone().into_bytes())
            }
            _ => {
                lines.push_str(&format!("{{\"id\":\"j{at}\",\"text\":\"{filler} {fact}\"}}\n"));
                ("lines.jsonl".to_owned(), lines.clone().into_bytes())
            }
        };
        fs::write(docs.join(&file), content).unwrap();
        files.push(file);
    }
    for split in ["words", "paragraph", "section", "sentences"] {
        let options = options(folder.path(), &format!("split = '{split}'"), "");
        let assembly = assemble_retrieval(&options, &mut |_| {}).unwrap();
        let (store, retriever) = (assembly.store.as_ref().unwrap(), assembly.retriever.as_ref().unwrap());
        let summary = assembly.documents().unwrap();
        assert_eq!((summary.pages, summary.problems.len()), (200, 0), "{:?}", summary.problems);
        let queries: Vec<Query> = facts
            .iter()
            .map(|(name, _)| Query::of_text(name.as_str(), format!("When was the {name} built?")))
            .collect();
        let found = retriever.retrieve(&queries, 5).unwrap();
        for (at, hits) in found.iter().enumerate() {
            let passages: Vec<_> = hits.iter().map(|hit| store.passage(hit.passage)).collect();
            let right = passages.iter().find(|passage| passage.text.contains(&facts[at].1));
            let right = right.unwrap_or_else(|| panic!("{split}: no fact {at} in {passages:#?}"));
            let file = right.file.path.as_deref().unwrap();
            assert!(file.ends_with(&files[at]), "{file} is not {}", files[at]);
            if at % 9 == 6 {
                // A passage of 100 words starts on the first page.
                let page = if split == "words" { 1 } else { 2 };
                assert_eq!(right.file.page, Some(page), "{file}");
            }
        }
    }
}

#[test]
fn a_changed_folder_gives_the_store_of_a_new_one_and_filters_name_files() {
    let folder = tempfile::tempdir().unwrap();
    let docs = folder.path().join("docs");
    fs::create_dir_all(docs.join("handbook")).unwrap();
    let write = |name: &str, text: &str| fs::write(docs.join(name), text).unwrap();
    write("handbook/a.md", "---\ndate: 2024-05-31\n---\n# Tea\n\nTea is hot.\n");
    write("b.md", "---\ndate: 2024-06-01\n---\n# Milk\n\nMilk is not tea.\n");
    write("gone.md", "Tea was cold.\n");
    let found = |tables: &str| {
        let assembly = assemble_retrieval(&options(folder.path(), "", tables), &mut |_| {}).unwrap();
        let (store, retriever) = (assembly.store.as_ref().unwrap(), assembly.retriever.as_ref().unwrap());
        let hits = retriever.retrieve(&[Query::of_text("q", "tea")], 5).unwrap();
        let mut pages: Vec<String> = hits[0].iter().map(|hit| store.passage(hit.passage).page_id).collect();
        pages.sort();
        (pages, store.hash().to_owned(), store.metadata_hash().map(str::to_owned))
    };
    assert_eq!(found("").0, ["b.md", "gone.md", "handbook/a.md"]);
    assert_eq!(found("filter.source = 'handbook/*'").0, ["handbook/a.md"]);
    assert_eq!(found("filter = { key = 'date', since = '2024-06' }").0, ["b.md"]);
    fs::remove_file(docs.join("gone.md")).unwrap();
    write("b.md", "# Milk\n\nMilk is white.\n");
    let changed = found("");
    assert_eq!(changed.0, ["handbook/a.md"]);
    fs::remove_dir_all(folder.path().join("indexes")).unwrap();
    assert_eq!(found(""), changed);
}
