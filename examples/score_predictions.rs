//! Scores a small file of predictions against its gold file, pages included.
//!
//! ```text
//! cargo run --release --example score_predictions
//! ```
//!
//! Three records show what KILT's scores distinguish: whether the answer is correct, whether the evidence is,
//! and whether both are.
#![allow(clippy::print_stdout, reason = "an example shows its results")]

use std::error::Error;

use sporran::kilt::{
    Prediction, Provenance, jsonl,
    scores::{kilt, retrieval},
};

/// Gold outputs are alternatives: an answer is correct if it matches any of them. The last question needs two
/// pages.
const GOLD: &str = r#"{"id": "1", "input": "Where was Ada Lovelace born?", "output": [{"answer": "London", "provenance": [{"wikipedia_id": "10"}]}, {"answer": "City of London"}]}
{"id": "2", "input": "In which year did she publish her notes?", "output": [{"answer": "1843", "provenance": [{"wikipedia_id": "20"}]}]}
{"id": "3", "input": "In which city did both Babbage and Lovelace die?", "output": [{"answer": "London", "provenance": [{"wikipedia_id": "30"}, {"wikipedia_id": "31"}]}]}
"#;

/// A prediction whose evidence is whole pages, best first.
fn prediction(id: i64, answer: &str, pages: &[&str]) -> Prediction {
    let page = |&id: &&str| Provenance { wikipedia_id: Some(id.into()), ..Provenance::default() };
    Prediction { id: id.into(), answer: answer.to_owned(), provenance: pages.iter().map(page).collect() }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let (gold, guess) = (folder.path().join("gold.jsonl"), folder.path().join("guess.jsonl"));
    jsonl::write(&gold, GOLD.as_bytes())?;

    // Ids are compared by their trimmed text, so the number 1 answers the record "1". The file appears under
    // its name only when it is complete.
    let mut writer = jsonl::Writer::create(&guess)?;
    for prediction in [
        prediction(1, "london.", &["10", "99"]),
        prediction(2, "1843", &["98", "20"]),
        prediction(3, "Turin", &["30", "97", "31"]),
    ] {
        writer.record(&prediction.into_record(None))?;
    }
    writer.finish()?;

    let evaluation = kilt::evaluate(&gold, &guess)?;
    let report = &evaluation.report;
    println!(
        "answers   exact match {:.3}   accuracy {:.3}",
        report.downstream.em, report.downstream.accuracy
    );
    println!(
        "pages     R-precision {:.3}   recall@5 {:.3}",
        report.retrieval.r_precision, report.retrieval.recall_at_5
    );
    println!("together  KILT exact match {:.3}", report.kilt.em);

    // "london." is London once case and punctuation are gone, so exact match has 2 of 3 and accuracy, which only trims,
    // 1 of 3.
    assert_eq!((report.downstream.em, report.downstream.accuracy), (2.0 / 3.0, 1.0 / 3.0));
    // R-precision uses as many pages as gold has: 1 of 1, then page 98 instead of 20, then 1 of 2.
    assert_eq!(report.retrieval.r_precision, 0.5);
    // Only the first record has the correct answer and all its pages first.
    assert_eq!(report.kilt.em, 1.0 / 3.0);

    println!("\nid  em  KILT-em  Rprec");
    let records = &evaluation.records;
    let columns: Vec<Vec<f64>> =
        ["em", "KILT-em", "Rprec"].iter().filter_map(|name| records.column(name)).collect();
    for (row, id) in records.ids().iter().enumerate() {
        let figures: Vec<String> = columns.iter().map(|column| format!("{:.1}", column[row])).collect();
        println!("{id}   {}", figures.join("  "));
    }

    // Evidence only, at several depths; `rank_keys` can be as fine as paragraphs.
    let options = retrieval::Options { ks: vec![1, 2, 5], ..retrieval::Options::default() };
    println!();
    for (report, _) in retrieval::evaluate(&gold, &guess, &options)?.reports {
        for (name, mean) in report.scores.iter().filter(|(name, _)| !name.contains("context")) {
            println!("{name:16} {mean:.3}");
        }
    }
    Ok(())
}
