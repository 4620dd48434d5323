//! The metrics of the field's tasks, equal to the public scorers within 1e-9.
//!
//! - [`agreement`]: inter-annotator agreement;
//! - [`answer`]: accuracy, exact match, token F1 and ROUGE-L of one answer against its gold answers;
//! - [`provenance`]: R-precision and the rank for recall@k, precision@k and success_rate@k;
//! - [`depth`]: the number of predicted items, compared with the scoring depths;
//! - [`kilt`]: a file of KILT predictions against its gold file;
//! - [`mentions`]: entity linking, listed by texts;
//! - [`retrieval`]: evidence alone, at page level or finer;
//! - [`whole`]: both in one pass;
//! - [`trec`]: TREC's runs against judgements;
//! - [`ranking`]: mean reciprocal rank, average precision and gain of ranked candidates;
//! - [`extraction`]: KnowledgeNet's facts;
//! - [`document_relations`]: DocRED's relations between a document's entities;
//! - [`answer_set`]: KoRC's P-ACC and P-F1;
//! - [`by_relation`]: KoRC's scores of each relation against its number of questions;
//! - [`significance`]: confidence intervals of means, and tests of differences.
//!
//! Files are read as streams. Gold has a compact form in memory. Predictions are scored line by line on all
//! threads, and only their values are kept.

pub mod agreement;
mod aligned;
pub mod answer;
pub mod answer_set;
mod assignment;
pub mod by_relation;
pub mod depth;
pub mod document_relations;
pub mod extraction;
pub mod kilt;
mod line;
mod measure;
pub mod mentions;
pub mod provenance;
pub mod ranking;
pub mod retrieval;
mod rouge;
pub mod significance;
pub mod trec;
pub mod whole;

pub use aligned::PerRecord;
pub use measure::Measure;
pub use rouge::rouge_l;

/// White space of Python's `str.split` and `str.strip`: Unicode's, and the four ASCII separators.
fn is_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{1c}'..='\u{1f}')
}

/// Trims white space as Python's `str.strip` does.
fn trim(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// The sum over the count; 0 of nothing.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u64), |(sum, count), value| (sum + value, count + 1));
    if count == 0 { 0.0 } else { sum / count as f64 }
}
