//! Indexes a knowledge source, retrieves whole pages for KILT task files, and writes one TREC run per task file.
//!
//!     cargo run --release --example sparse_run -- \
//!         PAGES.jsonl.gz FOLDER K bm25|tfidf OPTIONS.json TASK.jsonl..
//!
//! `FOLDER` gets the index and a file `TASK.trec` for each task, with the pages' Wikipedia ids. `OPTIONS.json` is the
//! options as JSON itself, such as `{"b": 0.75}`. `scripts/reference/bm25_bm25s.py` compares the runs with bm25s.

use std::{convert::Infallible, error::Error, fs, path::Path, time::Instant};

use sporran_kilt::{PassageId, Query, Record, jsonl};
use sporran_retriever::{
    Retriever,
    sparse::{Bm25, Build, TfIdf},
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pages, folder, k, kind, options, tasks @ ..] = arguments.as_slice() else {
        return Err("expected PAGES FOLDER K bm25|tfidf OPTIONS TASK..".into());
    };
    let (k, folder) = (k.parse()?, Path::new(folder));
    let mut ids = Vec::new();
    let mut texts = Vec::new();
    for page in jsonl::open(pages)?.records::<sporran_kilt::Page>() {
        let page = page?;
        ids.push(page.wikipedia_id.text().into_owned());
        // Joined as in the peer; the first paragraph is the title.
        texts.push(page.text.join(" "));
    }
    let passages = texts.iter().enumerate().map(|(id, text)| {
        // The text is the whole page, so that the title counts once.
        Ok::<_, Infallible>((PassageId(id as u32), "", text.as_str()))
    });
    fs::create_dir_all(folder)?;
    let (index, mut progress) = (folder.join("index"), |_| {});
    let start = Instant::now();
    let retriever: Box<dyn Retriever> = match kind.as_str() {
        "bm25" => {
            Bm25::build(&serde_json::from_str(options)?, passages, pages, &index, Build::new(&mut progress))?;
            eprintln!("indexed in {:.3} s", start.elapsed().as_secs_f64());
            let opened = Bm25::open(&index, pages)?;
            opened.verify()?;
            eprintln!("{:?} {:?}", opened.statistics(), opened.options());
            Box::new(opened)
        }
        "tfidf" => {
            TfIdf::build(
                &serde_json::from_str(options)?,
                passages,
                pages,
                &index,
                Build::new(&mut progress),
            )?;
            eprintln!("indexed in {:.3} s", start.elapsed().as_secs_f64());
            let opened = TfIdf::open(&index, pages)?;
            opened.verify()?;
            eprintln!("{:?} {:?}", opened.statistics(), opened.options());
            Box::new(opened)
        }
        other => return Err(format!("expected bm25 or tfidf, found {other:?}").into()),
    };
    for task in tasks {
        let mut queries = Vec::new();
        for record in jsonl::open(task)?.records::<Record>() {
            queries.push(
                Query::from_record(&record?, None)
                    .map_err(|(field, message)| format!("{field}: {message}"))?,
            );
        }
        let start = Instant::now();
        let found = retriever.retrieve(&queries, k)?;
        eprintln!("{task}: {:.0} queries/s", queries.len() as f64 / start.elapsed().as_secs_f64());
        let name = Path::new(task).file_stem().ok_or("expected a file")?;
        let mut run = jsonl::Writer::create(folder.join(name).with_extension("trec"))?;
        for (query, hits) in queries.iter().zip(found) {
            for (rank, hit) in hits.iter().enumerate() {
                let page = &ids[hit.passage.index()];
                run.line(
                    format!("{} Q0 {page} {} {} {kind}", query.id.text(), rank + 1, hit.score).as_bytes(),
                )?;
            }
        }
        run.finish()?;
    }
    Ok(())
}
