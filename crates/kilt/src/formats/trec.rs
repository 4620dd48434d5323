//! TREC's run and qrels files in trec_eval's format: columns separated by white space.
//!
//! KILT's ids can contain blanks (`947testa CRICKET:0`), which the format does not allow. Blanks and the
//! percent sign are written percent-encoded. The reader decodes only these codes.

use std::{fmt::Write, path::Path};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::{Error, Result, jsonl};

/// A line of a run: `query Q0 document rank score tag`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunLine {
    /// The query's id.
    pub query: String,
    /// The document's id.
    pub document: String,
    /// The rank, counted from 1 (from 0 in some files); trec_eval orders by score.
    pub rank: u32,
    /// The score, finite; higher is better.
    pub score: f64,
    /// The system's name.
    pub tag: String,
}

/// A line of a qrels file: `query 0 document relevance`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qrel {
    /// The query's id.
    pub query: String,
    /// The document's id.
    pub document: String,
    /// The relevance; 0 or less means not relevant.
    pub relevance: i32,
}

/// The ranking of one query in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    /// The query's id.
    pub query: String,
    /// The line of its first document.
    pub line: u64,
    /// The documents with their scores, by descending score, then in the order of their ranks.
    pub documents: Vec<RankedDocument>,
}

/// A document of a [`Ranking`].
#[derive(Clone, Debug, PartialEq)]
pub struct RankedDocument {
    /// The document's id.
    pub id: String,
    /// Its score.
    pub score: f64,
    /// The line of this document.
    pub line: u64,
}

/// The lines of a run, with their numbers. Ends after the first error.
///
/// # Errors
/// [`Error::Io`] if the file cannot be opened; an item is [`Error::Record`] where a line has not six columns, the
/// rank is no whole number or the score is not a finite number.
pub fn read_run(path: &Path) -> Result<impl Iterator<Item = Result<(u64, RunLine)>> + use<>> {
    columns(path, ["query", "Q0", "document", "rank", "score", "tag"], |path, line, columns| {
        let [query, _, document, rank, score, tag] = columns;
        Ok(RunLine {
            query: decoded(query),
            document: decoded(document),
            rank: number(path, line, "rank", rank, "a whole number")?,
            score: number(path, line, "score", score, "a number")
                .and_then(|score: f64| finite(path, line, score))?,
            tag: decoded(tag),
        })
    })
}

/// The judgements of a qrels file, with their lines. Ends after the first error.
///
/// # Errors
/// [`Error::Io`] if the file cannot be opened; an item is [`Error::Record`] where a line has not four columns or the
/// relevance is not an integer.
pub fn read_qrels(path: &Path) -> Result<impl Iterator<Item = Result<(u64, Qrel)>> + use<>> {
    columns(path, ["query", "iteration", "document", "relevance"], |path, line, columns| {
        let [query, _, document, relevance] = columns;
        let relevance = number(path, line, "relevance", relevance, "an integer")?;
        Ok(Qrel { query: decoded(query), document: decoded(document), relevance })
    })
}

/// The rankings of a run, query by query in the file's order. Ends after the first error.
///
/// # Errors
/// As [`read_run`]; also if a query's lines are not consecutive or contain a document twice.
pub fn read_rankings(path: &Path) -> Result<impl Iterator<Item = Result<Ranking>> + use<>> {
    let path = path.to_owned();
    let mut lines = read_run(&path)?.peekable();
    let mut seen: FxHashMap<String, u64> = FxHashMap::default();
    Ok(super::until_error(std::iter::from_fn(move || {
        let (line, first) = match lines.next()? {
            Ok(first) => first,
            Err(error) => return Some(Err(error)),
        };
        let query = first.query.clone();
        if let Some(earlier) = seen.insert(query.clone(), line) {
            let message = format!(
                "`{query}` has a ranking on line {earlier} already; expected the lines of a query to be consecutive"
            );
            return Some(Err(Error::record(&path, line, "query", message)));
        }
        let mut rows = vec![(line, first)];
        while let Some(next) = lines.next_if(|next| next.as_ref().map_or(true, |(_, row)| row.query == query))
        {
            match next {
                Ok(row) => rows.push(row),
                Err(error) => return Some(Err(error)),
            }
        }
        let mut documents = FxHashSet::default();
        for (line, row) in &rows {
            if !documents.insert(row.document.as_str()) {
                let message = format!("`{}` stands twice in the ranking of `{query}`", row.document);
                return Some(Err(Error::record(&path, *line, "document", message)));
            }
        }
        rows.sort_by(|(_, a), (_, b)| b.score.total_cmp(&a.score).then(a.rank.cmp(&b.rank)));
        let documents = rows
            .into_iter()
            .map(|(line, row)| RankedDocument { id: row.document, score: row.score, line })
            .collect();
        Some(Ok(Ranking { query, line, documents }))
    })))
}

impl RunLine {
    /// The line, without its end.
    pub fn line(&self) -> String {
        let Self { query, document, rank, score, tag } = self;
        format!("{} Q0 {} {rank} {score} {}", encoded(query), encoded(document), encoded(tag))
    }
}

impl Qrel {
    /// The line, without its end.
    pub fn line(&self) -> String {
        format!("{} 0 {} {}", encoded(&self.query), encoded(&self.document), self.relevance)
    }
}

fn columns<const N: usize, T>(
    path: &Path,
    names: [&'static str; N],
    parse: fn(&Path, u64, [&str; N]) -> Result<T>,
) -> Result<impl Iterator<Item = Result<(u64, T)>> + use<N, T>> {
    let path = path.to_owned();
    Ok(super::until_error(jsonl::open(&path)?.lines().map(move |line| {
        let (number, line) = line?;
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let columns = <[&str; N]>::try_from(columns).map_err(|columns| {
            let message = format!("expected the {N} columns {}, found {}", names.join(", "), columns.len());
            let field = names.get(columns.len()).map_or_else(|| (N + 1).to_string(), |&name| name.to_owned());
            Error::record(&path, number, field, message)
        })?;
        Ok((number, parse(&path, number, columns)?))
    })))
}

fn number<T: std::str::FromStr>(path: &Path, line: u64, field: &str, text: &str, what: &str) -> Result<T> {
    text.parse().map_err(|_| Error::record(path, line, field, format!("expected {what}, found `{text}`")))
}

fn finite(path: &Path, line: u64, score: f64) -> Result<f64> {
    if score.is_finite() {
        return Ok(score);
    }
    Err(Error::record(path, line, "score", format!("expected a finite number, found {score}")))
}

/// Encodes an id as a column.
fn encoded(id: &str) -> String {
    let mut text = String::with_capacity(id.len());
    for letter in id.chars() {
        if letter.is_whitespace() || letter == '%' {
            for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
                // Writing to a string cannot fail.
                let _ = write!(text, "%{byte:02X}");
            }
        } else {
            text.push(letter);
        }
    }
    text
}

/// Decodes an id.
fn decoded(column: &str) -> String {
    let mut text = String::with_capacity(column.len());
    let mut rest = column;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        match code(rest) {
            Some((letter, length)) => {
                text.push(letter);
                rest = &rest[length..];
            }
            None => {
                text.push('%');
                rest = &rest[1..];
            }
        }
    }
    text + rest
}

/// The encoded white space or percent sign at the start of a text, and the code's length.
fn code(text: &str) -> Option<(char, usize)> {
    let mut bytes = Vec::with_capacity(3);
    for piece in text.as_bytes().chunks(3).take(3) {
        let &[b'%', high, low] = piece else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push((digit(high)? * 16 + digit(low)?) as u8);
        if let Ok(letter) = std::str::from_utf8(&bytes) {
            let letter = letter.chars().next()?;
            return (letter.is_whitespace() || letter == '%').then_some((letter, bytes.len() * 3));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.trec");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn ids_with_white_space_survive() {
        for id in ["947testa CRICKET:0", "100%", "50%20", "a\tb\u{a0}c", "é", "%", "\u{3000}"] {
            assert!(!encoded(id).contains(char::is_whitespace), "{id}");
            assert_eq!(decoded(&encoded(id)), id);
        }
        // Other percent codes are kept.
        assert_eq!(decoded("http://x/%41%C3%A9%2"), "http://x/%41%C3%A9%2");
    }

    #[test]
    fn lines_are_written_as_they_are_read() {
        let text = "a%20b Q0 d1 1 12.5 sporran\na%20b Q0 d2 2 -0.25 sporran\n";
        let (_folder, path) = file(text);
        let lines: Vec<RunLine> = read_run(&path).unwrap().map(|line| line.unwrap().1).collect();
        assert_eq!(lines[0].query, "a b");
        let again: String = lines.iter().map(|line| line.line() + "\n").collect();
        assert_eq!(again, text);
        let (_folder, path) = file("q\t0  d 1\n");
        let qrel = read_qrels(&path).unwrap().next().unwrap().unwrap().1;
        assert_eq!(qrel.line(), "q 0 d 1");
    }

    #[test]
    fn rankings_go_by_score_then_rank() {
        let (_folder, path) = file("q Q0 a 1 1.0 t\nq Q0 b 3 2.0 t\nq Q0 c 2 2.0 t\np Q0 a 1 0 t\n");
        let rankings: Vec<Ranking> = read_rankings(&path).unwrap().map(Result::unwrap).collect();
        let ids: Vec<Vec<&str>> = rankings
            .iter()
            .map(|ranking| ranking.documents.iter().map(|document| document.id.as_str()).collect())
            .collect();
        assert_eq!(ids, [vec!["c", "b", "a"], vec!["a"]]);
        assert_eq!((rankings[1].query.as_str(), rankings[1].line), ("p", 4));
    }

    #[test]
    fn errors_name_file_line_and_field() {
        let good = "q Q0 a 1 1.0 t\n";
        let cases = [
            ("q Q0 b 2 0.5\n", "a.trec:2: field `tag`: expected the 6 columns"),
            ("q Q0 b 2 0.5 t u\n", "a.trec:2: field `7`: expected the 6 columns"),
            ("q Q0 b x 0.5 t\n", "a.trec:2: field `rank`: expected a whole number, found `x`"),
            ("q Q0 b 2 high t\n", "a.trec:2: field `score`: expected a number, found `high`"),
            ("q Q0 b 2 NaN t\n", "a.trec:2: field `score`: expected a finite number"),
            ("q Q0 a 2 0.5 t\n", "a.trec:2: field `document`: `a` stands twice"),
            (
                "p Q0 a 1 1 t\nq Q0 b 2 0.5 t\n",
                "a.trec:3: field `query`: `q` has a ranking on line 1 already",
            ),
        ];
        for (text, expected) in cases {
            let (_folder, path) = file(&format!("{good}{text}"));
            let error = read_rankings(&path).unwrap().find_map(Result::err).expect("an error");
            assert!(error.to_string().contains(expected), "{error}");
        }
        for (text, expected) in [
            ("q 0 a\n", "a.trec:1: field `relevance`: expected the 4 columns"),
            ("q 0 a 1.5\n", "a.trec:1: field `relevance`: expected an integer, found `1.5`"),
        ] {
            let (_folder, path) = file(text);
            let message = read_qrels(&path).unwrap().next().unwrap().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
