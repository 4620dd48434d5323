//! `sporran evaluate`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use sporran_checkpoint::Tokenizer;
use sporran_kilt::{
    kb::Part,
    scores::{
        PerRecord, agreement, answer_set, document_relations, extraction, kilt, provenance::RankKeys,
        ranking, retrieval, significance, whole,
    },
};
use sporran_pipeline::links;

use super::{print, print_json};
use crate::error::{Error, Result};

/// `sporran evaluate`
#[derive(Args)]
pub(crate) struct Evaluate {
    /// The gold file
    #[arg(long, value_name = "FILE", requires = "guess")]
    gold: Option<PathBuf>,
    /// The predictions
    #[arg(long, value_name = "FILE", requires = "gold")]
    guess: Option<PathBuf>,
    /// Score evidence alone, at several depths
    #[arg(long, requires = "guess", conflicts_with_all = ["ranking", "knowledgenet", "answer_sets"])]
    retrieval: bool,
    /// Score answers, and evidence at several depths, in one pass over both files
    #[arg(long, requires = "guess", conflicts_with_all = ["retrieval", "ranking", "knowledgenet", "answer_sets"])]
    whole: bool,
    /// Depths of the rank
    #[arg(long, value_delimiter = ',', default_value = "1,5,10,20", value_name = "K,..")]
    ks: Vec<usize>,
    /// Fields that tell items of evidence apart; may be given several times
    #[arg(long, default_value = "wikipedia_id", value_name = "FIELD,..")]
    rank_keys: Vec<RankKeys>,
    /// Compare with another file of predictions, or another ranking: paired bootstrap and permutation tests
    #[arg(long, value_name = "FILE", conflicts_with_all = ["knowledgenet", "answer_sets"])]
    against: Option<PathBuf>,
    /// Rounds of the tests
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    rounds: u32,
    /// Seed of the tests
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Score ranked candidates: lines of `{id, candidates: [{id, confidence, score}]}`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["gold", "knowledgenet", "answer_sets"])]
    ranking: Option<PathBuf>,
    /// The least confidence of a relevant candidate
    #[arg(long, default_value_t = 0.6)]
    threshold: f64,
    /// Score facts in KnowledgeNet's layout
    #[arg(long, requires = "guess", conflicts_with = "answer_sets")]
    knowledgenet: bool,
    /// How a predicted fact matches a gold one
    #[arg(long, value_enum, default_value_t = MethodArg::SpanOverlap)]
    method: MethodArg,
    /// Only the documents of this fold
    #[arg(long)]
    fold: Option<i64>,
    /// Tell why facts are missed or wrong: by property and by cause
    #[arg(long, requires = "knowledgenet")]
    errors: bool,
    /// Score relations between the entities of documents in DocRED's layout
    #[arg(long, requires = "guess", conflicts_with_all = ["knowledgenet", "answer_sets"])]
    docred: bool,
    /// Documents in DocRED's layout that were learned from: what they tell is left out of `ign_f1`
    #[arg(long, value_name = "FILE", requires = "docred")]
    known: Vec<PathBuf>,
    /// Score answer sets: lines of `{id, answers, predictions}`
    #[arg(long, value_name = "FILE", conflicts_with = "gold")]
    answer_sets: Option<PathBuf>,
    /// A `tokenizer.json` whose tokens the answer sets' scores count; white-space words without it
    #[arg(long, value_name = "FILE", requires = "answer_sets")]
    tokenizer: Option<PathBuf>,
    /// Tell how far the annotators of a file in WOW++'s layout agree (Fleiss' kappa), from the `votes` of its sentences
    #[arg(long, value_name = "FILE", conflicts_with_all = ["gold", "ranking", "knowledgenet", "answer_sets"])]
    agreement: Option<PathBuf>,
    /// Score link prediction with the embedding in this folder, over the knowledge base of `--kb`
    #[arg(long, value_name = "MODEL", requires = "kb", conflicts_with_all = ["gold", "ranking", "knowledgenet", "answer_sets", "agreement"])]
    links: Option<PathBuf>,
    /// A knowledge base: the folder that the embedding was trained on
    #[arg(long, value_name = "FOLDER", requires = "links")]
    kb: Option<PathBuf>,
    /// Rank by the sum of the embedding and these rules, weighted as is best on the valid part: the file that `train` mined
    #[arg(long, value_name = "FILE", requires = "links")]
    rules: Option<PathBuf>,
    /// The part whose triples are ranked
    #[arg(long, value_enum, default_value_t = PartArg::Test)]
    part: PartArg,
    /// Score triple classification on hard negatives too, with thresholds chosen on the valid part
    #[arg(long, requires = "links")]
    classification: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum PartArg {
    Train,
    Valid,
    Test,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum MethodArg {
    SpanExact,
    SpanOverlap,
    Uri,
}

/// A file of predictions, scored.
struct Scored {
    /// The means under their names.
    report: Value,
    /// What each record scored, by the kind of evidence; of answers under an empty name.
    records: Vec<(String, PerRecord)>,
    /// What a reader of the means should know.
    notes: Vec<String>,
}

impl Evaluate {
    pub(crate) fn run(self) -> Result<()> {
        let scored = [&self.guess, &self.against, &self.ranking, &self.answer_sets];
        for path in scored.into_iter().flatten() {
            sporran_pipeline::check_finished(path)?;
        }
        if let (Some(model), Some(kb)) = (&self.links, &self.kb) {
            let part = match self.part {
                PartArg::Train => Part::Train,
                PartArg::Valid => Part::Valid,
                PartArg::Test => Part::Test,
            };
            return self.show(&value(&links::evaluate(
                model,
                kb,
                part,
                self.classification,
                self.rules.as_deref(),
            )?)?);
        }
        if let Some(path) = &self.ranking {
            return self.show(&self.ranked(path)?);
        }
        if let Some(path) = &self.agreement {
            return match agreement::of_wowpp(path)? {
                Some(agreement) => self.show(&value(&agreement)?),
                None => Err(Error::Usage(format!(
                    "{}: expected sentences with `votes`, found none; confidences alone do not tell how annotators agree",
                    path.display()
                ))),
            };
        }
        if let Some(path) = &self.answer_sets {
            let report = match &self.tokenizer {
                None => answer_set::evaluate(path, answer_set::words)?.report,
                Some(file) => {
                    let tokenizer = Tokenizer::open(file)?;
                    // A text that cannot be tokenised has no tokens to match.
                    let tokens = |text: &str| tokenizer.encode_plain(text).unwrap_or_default();
                    answer_set::evaluate(path, tokens)?.report
                }
            };
            return self.show(&value(&report)?);
        }
        let (Some(gold), Some(guess)) = (&self.gold, &self.guess) else {
            return Err(Error::Usage(
                "expected `--gold FILE --guess FILE`, `--ranking FILE`, `--answer-sets FILE`, `--agreement FILE` or `--links MODEL --kb FOLDER`".into(),
            ));
        };
        if self.docred {
            return self.show(&value(&document_relations::evaluate(gold, guess, &self.known)?)?);
        }
        if self.knowledgenet && self.errors {
            return self.show(&value(&sporran_pipeline::population::errors(gold, guess, self.fold)?)?);
        }
        if self.knowledgenet {
            let method = match self.method {
                MethodArg::SpanExact => extraction::Method::SpanExact,
                MethodArg::SpanOverlap => extraction::Method::SpanOverlap,
                MethodArg::Uri => extraction::Method::Uri,
            };
            return self.show(&value(&extraction::evaluate(gold, guess, method, self.fold)?)?);
        }
        let scored = self.score(gold, guess)?;
        match &self.against {
            None => self.show_noted(&scored.report, &scored.notes),
            Some(other) => {
                let against = self.score(gold, other)?;
                let comparison = self.compare(&scored.records, &against.records)?;
                let named = |path: &Path, notes: Vec<String>| {
                    notes
                        .into_iter()
                        .map(move |note| format!("{}: {note}", path.display()))
                        .collect::<Vec<_>>()
                };
                let notes = [named(guess, scored.notes), named(other, against.notes)].concat();
                let report =
                    json!({ "guess": scored.report, "against": against.report, "comparison": comparison });
                self.show_noted(&report, &notes)
            }
        }
    }

    /// The means of a ranking with their intervals, and where there is another ranking, how the two compare.
    fn ranked(&self, path: &Path) -> Result<Value> {
        let rounds = self.rounds();
        let found = ranking::evaluate(path, self.threshold)?;
        let other = self.against.as_ref().map(|path| ranking::evaluate(path, self.threshold)).transpose()?;
        let with_intervals = |found: &ranking::Evaluation| -> Result<Value> {
            let mut report = value(&found.report)?;
            let mut intervals = Map::new();
            // Without a scored query there is nothing to be sure or unsure of.
            if !found.records.is_empty() {
                for (name, scores, _) in found.paired(found)? {
                    intervals.insert(name.into(), value(&significance::interval(&scores, rounds)?)?);
                }
            }
            if let Value::Object(report) = &mut report {
                report.insert("intervals".into(), Value::Object(intervals));
            }
            Ok(report)
        };
        let Some(other) = other else { return with_intervals(&found) };
        let mut comparison = Map::new();
        for (name, mine, theirs) in found.paired(&other)? {
            let compared = significance::compare(&mine, &theirs, rounds)?;
            let entry = json!({ "difference": compared.difference, "p_value": compared.p_value });
            comparison.insert(name.into(), entry);
        }
        let (ranking, against) = (with_intervals(&found)?, with_intervals(&other)?);
        Ok(json!({ "ranking": ranking, "against": against, "comparison": comparison }))
    }

    fn rounds(&self) -> significance::Rounds {
        significance::Rounds { count: self.rounds, seed: self.seed, ..Default::default() }
    }

    fn score(&self, gold: &Path, guess: &Path) -> Result<Scored> {
        let options = retrieval::Options { ks: self.ks.clone(), rank_keys: self.rank_keys.clone() };
        let mut notes = Vec::new();
        let (report, records, unknown) = if self.whole {
            let found = whole::evaluate(gold, guess, &options)?;
            let mut report = value(&found.answers.report)?;
            let (evidence, mut records) = reports(found.evidence, &mut notes)?;
            insert(&mut report, "evidence", evidence);
            records.insert(0, (String::new(), found.answers.records));
            (report, records, found.answers.unknown)
        } else if self.retrieval {
            let found = retrieval::evaluate(gold, guess, &options)?;
            let unknown = found.unknown.clone();
            let (report, records) = reports(found, &mut notes)?;
            (report, records, unknown)
        } else {
            let found = kilt::evaluate(gold, guess)?;
            let mut report = value(&found.report)?;
            insert(&mut report, "depth", value(&found.depth)?);
            notes.extend(found.depth.note("pages"));
            (report, vec![(String::new(), found.records)], found.unknown)
        };
        if let Some(first) = unknown.first() {
            tracing::warn!(
                "{}: {} predictions are not in the gold file and are left out, `{first}` first",
                guess.display(),
                unknown.len()
            );
        }
        Ok(Scored { report, records, notes })
    }

    /// For each score: both means with their intervals, the difference with its, and its p-value.
    fn compare(&self, first: &[(String, PerRecord)], second: &[(String, PerRecord)]) -> Result<Value> {
        let rounds = self.rounds();
        let mut comparison = Map::new();
        for ((keys, first), (_, second)) in first.iter().zip(second) {
            for name in first.names() {
                let (Some(a), Some(b)) = (first.column(name), second.column(name)) else { continue };
                let compared = significance::compare(&a, &b, rounds)?;
                let entry = json!({
                    "guess": significance::interval(&a, rounds)?,
                    "against": significance::interval(&b, rounds)?,
                    "difference": compared.difference,
                    "p_value": compared.p_value,
                });
                // Answers have no keys; those of evidence are told where there are several kinds, or answers beside.
                let label = if !keys.is_empty() && (self.rank_keys.len() > 1 || self.whole) {
                    format!("{keys} {name}")
                } else {
                    name.clone()
                };
                comparison.insert(label, entry);
            }
        }
        Ok(Value::Object(comparison))
    }

    fn show(&self, report: &Value) -> Result<()> {
        self.show_noted(report, &[])
    }

    /// Prints a report; as text, the notes follow it.
    fn show_noted(&self, report: &Value, notes: &[String]) -> Result<()> {
        if self.json {
            return print_json(report);
        }
        let mut text = String::new();
        table(report, "", &mut text);
        for note in notes {
            text.push_str(&format!("note: {note}\n"));
        }
        print(&text)
    }
}

fn insert(report: &mut Value, name: &str, part: Value) {
    if let Value::Object(report) = report {
        report.insert(name.into(), part);
    }
}

fn value(report: &impl serde::Serialize) -> Result<Value> {
    serde_json::to_value(report)
        .map_err(|error| Error::Stream { stream: "standard output", source: error.into() })
}

/// The means of each kind of evidence, one kind flat and several as one object each, and what each record scored. Each says
/// how deep the predictions go; notes say which depths lie beyond.
fn reports(
    found: retrieval::Evaluation,
    notes: &mut Vec<String>,
) -> Result<(Value, Vec<(String, PerRecord)>)> {
    let mut reports = Map::new();
    let mut records = Vec::new();
    let single = found.reports.len() == 1;
    for ((report, per_record), depth) in found.reports.into_iter().zip(&found.depths) {
        let keys = report.rank_keys.to_string();
        let mut flat = value(&report)?;
        insert(&mut flat, "depth", value(depth)?);
        let items = if report.rank_keys == RankKeys::page() { "pages" } else { "places" };
        let named = |note| if single { note } else { format!("{keys}: {note}") };
        notes.extend(depth.note(items).map(named));
        reports.insert(keys.clone(), flat);
        records.push((keys, per_record));
    }
    let flat = if reports.len() == 1 { reports.values().next().cloned() } else { None };
    Ok((flat.unwrap_or(Value::Object(reports)), records))
}

/// One line a figure, nested names joined by blanks.
fn table(report: &Value, path: &str, text: &mut String) {
    match report {
        Value::Object(map) => {
            for (name, value) in map {
                let path = if path.is_empty() { name.clone() } else { format!("{path} {name}") };
                table(value, &path, text);
            }
        }
        // What there is nothing to say of: a measure without data, or an empty list.
        Value::Null => text.push_str(&format!("{path:50} -\n")),
        Value::Array(list) if list.is_empty() => text.push_str(&format!("{path:50} -\n")),
        Value::Number(number) if number.is_f64() => {
            text.push_str(&format!("{path:50} {:.4}\n", number.as_f64().unwrap_or_default()));
        }
        other => text.push_str(&format!("{path:50} {other}\n")),
    }
}
