//! Conversion between formats.
//!
//! A format provides some kinds of content and accepts at most one. A conversion is possible if the source
//! provides what the target accepts. Everything streams except data for look-ups: a run, a mapping,
//! TriviaQA's questions.

mod dialogues;
mod documents;
mod examples;
mod queries;
mod rankings;
mod table;
mod unique;

use std::path::PathBuf;

use serde::Serialize;

pub(crate) use rankings::passage_id;
pub use table::{Format, Noun};

use crate::{Error, Result};

/// The parameters of a conversion.
#[derive(Clone, Debug)]
pub struct Request {
    /// The format of the inputs.
    pub from: Format,
    /// The format of the output.
    pub to: Format,
    /// The files, read in this order into one output; a folder for [`Format::Store`].
    pub inputs: Vec<PathBuf>,
    /// The file that is written; a folder for [`Format::Beir`].
    pub output: PathBuf,
    /// The store whose passages a run names.
    pub store: Option<PathBuf>,
    /// The run with retrieved passages for a task file's records; its documents are indices of passages in
    /// `store`.
    pub run: Option<PathBuf>,
    /// Pages by title (of FiD's passages) or by document id (of a run).
    pub mapping: Option<PathBuf>,
    /// TriviaQA's own question files, or the archive that holds them.
    pub triviaqa: Vec<PathBuf>,
}

/// The counts of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The kind of content that was converted.
    pub noun: Noun,
    /// Records read; passages for [`Noun::Documents`].
    pub read: u64,
    /// Records written.
    pub written: u64,
    /// Skipped on purpose: a duplicate passage, page or judgement, a question without a positive passage.
    pub left_out: u64,
    /// Not found: evidence on an unknown page, records without a ranking in the run.
    pub unresolved: u64,
}

impl Summary {
    fn new(noun: Noun) -> Self {
        Self { noun, read: 0, written: 0, left_out: 0, unresolved: 0 }
    }
}

impl Request {
    /// The kind of content that is converted, if the request is valid.
    ///
    /// # Errors
    /// [`Error::Argument`] for formats that cannot be converted (with the possible targets), a missing option, and one
    /// without effect.
    pub fn check(&self) -> Result<Noun> {
        let Self { from, to, .. } = *self;
        let Some(noun) = from.becomes(to) else {
            let targets: Vec<&str> = from.targets().map(Format::name).collect();
            let targets = if targets.is_empty() {
                "it is only written".to_owned()
            } else {
                format!("it becomes {}", targets.join(", "))
            };
            return Err(Error::Argument(format!("`{from}` cannot become `{to}`; {targets}")));
        };
        if self.inputs.is_empty() {
            return Err(Error::Argument("expected at least one input".to_owned()));
        }
        let examples = noun == Noun::Examples;
        let evidence = to == Format::Predictions;
        let (run, store, mapping) = (self.run.is_some(), self.store.is_some(), self.mapping.is_some());
        let complaint = if examples && !(run && store) {
            "needs --run FILE and --store DIR, the passages that were found"
        } else if !examples && run {
            "has no use for --run"
        } else if !examples && !evidence && store {
            "has no use for --store"
        } else if !evidence && mapping {
            "has no use for --mapping"
        } else if store && mapping {
            "takes pages from --store or from --mapping, not from both"
        } else if evidence && from == Format::Fid && !store && !mapping {
            "needs --store DIR or --mapping FILE to know the pages of the passages' titles"
        } else if noun != Noun::Records && !self.triviaqa.is_empty() {
            "has no use for --triviaqa; `kilt` to `kilt` joins the questions"
        } else {
            return Ok(noun);
        };
        Err(Error::Argument(format!("`{from}` to `{to}` {complaint}")))
    }
}

/// Converts. The output appears after all inputs were read without an error.
///
/// # Errors
/// As [`Request::check`]; any error of the readers and writers; [`Error::DuplicateId`] or [`Error::Record`] for queries or
/// documents with the same id, and for two grades of one document; [`Error::Empty`] for empty inputs.
pub fn convert(request: &Request) -> Result<Summary> {
    match request.check()? {
        Noun::Documents => documents::convert(request),
        Noun::Records => queries::records(request),
        Noun::Tasks => queries::tasks(request),
        Noun::Queries => queries::queries(request),
        Noun::Judgements => queries::judgements(request),
        Noun::Rankings => rankings::convert(request),
        Noun::Examples => examples::convert(request),
        Noun::Dialogues => dialogues::convert(request),
    }
}

/// An error where nothing was read.
fn not_empty(request: &Request, summary: Summary) -> Result<Summary> {
    if summary.read == 0 {
        // `check` saw at least one input.
        let path = request.inputs.first().cloned().unwrap_or_default();
        return Err(Error::Empty { path, what: summary.noun.singular() });
    }
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(from: Format, to: Format) -> Request {
        Request {
            from,
            to,
            inputs: vec!["in".into()],
            output: "out".into(),
            store: None,
            run: None,
            mapping: None,
            triviaqa: Vec::new(),
        }
    }

    #[test]
    fn an_impossible_pair_lists_the_possible_targets() {
        let message = request(Format::Run, Format::PsgsTsv).check().unwrap_err().to_string();
        assert_eq!(message, "`run` cannot become `psgs-tsv`; it becomes predictions");
        let message = request(Format::Beir, Format::Kilt).check().unwrap_err().to_string();
        assert_eq!(message, "`beir` cannot become `kilt`; it is only written");
    }

    #[test]
    fn options_without_effect_and_missing_ones_are_errors() {
        use Format::{Anserini, Fid, Kilt, Predictions, PsgsTsv, Run, Topics};
        let some = || Some(PathBuf::from("x"));
        let cases: [(Request, Option<&str>); 11] = [
            (Request { inputs: vec![], ..request(PsgsTsv, Anserini) }, Some("at least one input")),
            (request(Kilt, Fid), Some("needs --run FILE and --store DIR")),
            (Request { run: some(), store: some(), ..request(Kilt, Fid) }, None),
            (Request { run: some(), ..request(Kilt, Topics) }, Some("no use for --run")),
            (Request { store: some(), ..request(PsgsTsv, Anserini) }, Some("no use for --store")),
            (Request { mapping: some(), ..request(PsgsTsv, Anserini) }, Some("no use for --mapping")),
            (Request { mapping: some(), store: some(), ..request(Run, Predictions) }, Some("not from both")),
            (request(Fid, Predictions), Some("needs --store DIR or --mapping FILE")),
            (request(Run, Predictions), None),
            (Request { triviaqa: vec!["x".into()], ..request(Kilt, Topics) }, Some("no use for --triviaqa")),
            (Request { triviaqa: vec!["x".into()], ..request(Kilt, Kilt) }, None),
        ];
        for (request, expected) in cases {
            match (request.check(), expected) {
                (Ok(_), None) => {}
                (Err(error), Some(expected)) => {
                    assert!(error.to_string().contains(expected), "{error}");
                    assert!(error.is_input());
                }
                (found, expected) => panic!("{found:?} instead of {expected:?}"),
            }
        }
    }
}
