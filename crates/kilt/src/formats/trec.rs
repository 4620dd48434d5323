//! TREC's run and qrels files in trec_eval's format: columns separated by white space.
//!
//! KILT's ids can contain blanks (`947testa CRICKET:0`), which the format does not allow. Blanks, control characters and
//! the percent sign are written percent-encoded. The reader decodes only these codes.

use std::{borrow::Cow, fmt::Write, path::Path};

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
    /// The documents are pages, not passages; see [`pages_tag`].
    pub of_pages: bool,
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

/// The columns of a run.
pub(crate) const RUN_COLUMNS: [&str; 6] = ["query", "Q0", "document", "rank", "score", "tag"];
const QREL_COLUMNS: [&str; 4] = ["query", "iteration", "document", "relevance"];

/// The end of the tags of our runs over pages. Their documents are numbers too, so that a reader of passages could not tell
/// them apart.
const PAGES: &str = "/pages";

/// The tag of a run over pages.
pub fn pages_tag(name: &str) -> String {
    format!("{name}{PAGES}")
}

/// A passage as a document of a run: its page's id and its place in the page, from 0.
pub fn passage_document(page: &str, place: u32) -> String {
    format!("{page}#{place}")
}

/// The page of a document that [`passage_document`] made; any other document is a page.
pub fn page_of_document(document: &str) -> &str {
    let is_place = |place: &str| place.parse::<u32>().is_ok();
    document.rsplit_once('#').filter(|(_, place)| is_place(place)).map_or(document, |(page, _)| page)
}

/// The scores of a run, each less than the one before, also as 32-bit floats. Programs that break ties by id keep the
/// order of such a run.
///
/// ```
/// use sporran_kilt::formats::trec::falling;
///
/// let scores: Vec<f32> = falling([2.0, 2.0, 1.0, 1.5]).collect();
/// assert!(scores[0] == 2.0 && scores.is_sorted_by(|a, b| a > b));
/// ```
pub fn falling(scores: impl IntoIterator<Item = f32>) -> impl Iterator<Item = f32> {
    let mut bound = f32::MAX;
    scores.into_iter().map(move |score| {
        let score = score.min(bound);
        bound = score.next_down();
        score
    })
}

/// The lines of a run, with their numbers. Ends after the first error.
///
/// # Errors
/// [`Error::Io`] if the file cannot be opened; an item is [`Error::Record`] where a line has not six columns, the
/// rank is no whole number or the score is not a finite number.
pub fn read_run(path: &Path) -> Result<impl Iterator<Item = Result<(u64, RunLine)>> + use<>> {
    lines(path, run_line)
}

fn run_line(path: &Path, line: u64, text: &str) -> Result<RunLine> {
    let [query, _, document, rank, score, tag] = columns(path, line, text, RUN_COLUMNS)?;
    Ok(RunLine {
        query: decoded(query).into_owned(),
        document: decoded(document).into_owned(),
        rank: number(path, line, "rank", rank, "a whole number")?,
        score: number(path, line, "score", score, "a number")
            .and_then(|score: f64| finite(path, line, score))?,
        tag: decoded(tag).into_owned(),
    })
}

/// The judgements of a qrels file, with their lines. Ends after the first error.
///
/// # Errors
/// [`Error::Io`] if the file cannot be opened; an item is [`Error::Record`] where a line has not four columns or the
/// relevance is not an integer.
pub fn read_qrels(path: &Path) -> Result<impl Iterator<Item = Result<(u64, Qrel)>> + use<>> {
    lines(path, qrel)
}

/// A judgement in a line.
pub(super) fn qrel(path: &Path, line: u64, text: &str) -> Result<Qrel> {
    let [query, _, document, relevance] = columns(path, line, text, QREL_COLUMNS)?;
    let relevance = number(path, line, "relevance", relevance, "an integer")?;
    let (query, document) = (decoded(query).into_owned(), decoded(document).into_owned());
    Ok(Qrel { query, document, relevance })
}

/// The rankings of a run, query by query in the order of their first lines. The lines of a query may stand anywhere. If
/// those of each query are consecutive, only one ranking is in memory. Ends after the first error.
///
/// # Errors
/// As [`read_run`]; also if a query has a document twice.
pub fn read_rankings(path: &Path) -> Result<Box<dyn Iterator<Item = Result<Ranking>>>> {
    // Standard input and pipes cannot be read twice.
    if jsonl::is_stream(path) || !is_grouped(path)? {
        return collected(path);
    }
    let path = path.to_owned();
    let mut lines = read_run(&path)?.peekable();
    Ok(Box::new(super::until_error(std::iter::from_fn(move || {
        let first = match lines.next()? {
            Ok(first) => first,
            Err(error) => return Some(Err(error)),
        };
        let query = first.1.query.clone();
        let mut rows = vec![first];
        while let Some(next) = lines.next_if(|next| next.as_ref().map_or(true, |(_, row)| row.query == query))
        {
            match next {
                Ok(row) => rows.push(row),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(ranking(&path, query, rows))
    }))))
}

/// Whether the lines of each query are consecutive. Wrong lines are left to the reader.
fn is_grouped(path: &Path) -> Result<bool> {
    let mut reader = jsonl::open(path)?;
    let mut seen: FxHashSet<Box<[u8]>> = FxHashSet::default();
    let mut last: Vec<u8> = Vec::new();
    loop {
        let query = match reader.next_line() {
            Ok(Some((_, line))) => words(line).next().unwrap_or_default(),
            // The reader reports errors after the rankings before them.
            Ok(None) | Err(_) => return Ok(true),
        };
        if last != query {
            if !seen.insert(query.into()) {
                return Ok(false);
            }
            last.clear();
            last.extend_from_slice(query);
        }
    }
}

/// The rankings of a run in memory.
fn collected(path: &Path) -> Result<Box<dyn Iterator<Item = Result<Ranking>>>> {
    let mut places: FxHashMap<String, usize> = FxHashMap::default();
    let mut queries: Vec<(String, Vec<(u64, RunLine)>)> = Vec::new();
    for line in read_run(path)? {
        let (line, row) = line?;
        let place = *places.entry(row.query.clone()).or_insert(queries.len());
        if place == queries.len() {
            queries.push((row.query.clone(), Vec::new()));
        }
        queries[place].1.push((line, row));
    }
    let path = path.to_owned();
    let rankings = queries.into_iter().map(move |(query, rows)| ranking(&path, query, rows));
    Ok(Box::new(super::until_error(rankings)))
}

/// The ranking of a query from its lines.
fn ranking(path: &Path, query: String, mut rows: Vec<(u64, RunLine)>) -> Result<Ranking> {
    let mut documents = FxHashMap::default();
    for (line, row) in &rows {
        if let Some(first) = documents.insert(row.document.as_str(), *line) {
            let message =
                format!("`{}` stands twice in the ranking of `{query}`, first on line {first}", row.document);
            return Err(Error::record(path, *line, "document", message));
        }
    }
    let line = rows.first().map_or(0, |(line, _)| *line);
    let of_pages = rows.first().is_some_and(|(_, row)| row.tag.ends_with(PAGES));
    rows.sort_by(|(_, a), (_, b)| b.score.total_cmp(&a.score).then(a.rank.cmp(&b.rank)));
    let documents = rows
        .into_iter()
        .map(|(line, row)| RankedDocument { id: row.document, score: row.score, line })
        .collect();
    Ok(Ranking { query, line, of_pages, documents })
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

/// The values of the lines of a file, with their numbers. Ends after the first error.
fn lines<T>(
    path: &Path,
    parse: fn(&Path, u64, &str) -> Result<T>,
) -> Result<impl Iterator<Item = Result<(u64, T)>> + use<T>> {
    let path = path.to_owned();
    Ok(super::until_error(jsonl::open(&path)?.lines().map(move |line| {
        let (number, line) = line?;
        Ok((number, parse(&path, number, &line)?))
    })))
}

/// The words of a line.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// The columns of a line of bytes.
///
/// # Errors
/// [`Error::Record`] for another number of columns.
pub(crate) fn split<'l, const N: usize>(
    path: &Path,
    line: u64,
    bytes: &'l [u8],
    names: [&str; N],
) -> Result<[&'l [u8]; N]> {
    let mut found = [&bytes[..0]; N];
    let mut count = 0;
    for word in words(bytes) {
        if let Some(column) = found.get_mut(count) {
            *column = word;
        }
        count += 1;
    }
    if count == N {
        return Ok(found);
    }
    let message = format!("expected the {N} columns {}, found {count}", names.join(", "));
    let field = names.get(count).map_or_else(|| (N + 1).to_string(), |&name| name.to_owned());
    Err(Error::record(path, line, field, message))
}

/// The columns of a line of text.
fn columns<'l, const N: usize>(
    path: &Path,
    line: u64,
    text: &'l str,
    names: [&str; N],
) -> Result<[&'l str; N]> {
    // A text between blanks of ASCII is a text.
    Ok(split(path, line, text.as_bytes(), names)?.map(|word| std::str::from_utf8(word).unwrap_or_default()))
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

/// Whether a character is percent-encoded: readers split lines at white space, some also at control characters.
fn is_encoded(letter: char) -> bool {
    letter.is_whitespace() || letter.is_control() || letter == '%'
}

/// Encodes an id as a column.
fn encoded(id: &str) -> String {
    let mut text = String::with_capacity(id.len());
    for letter in id.chars() {
        if is_encoded(letter) {
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
pub(crate) fn decoded(column: &str) -> Cow<'_, str> {
    if !column.contains('%') {
        return Cow::Borrowed(column);
    }
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
    Cow::Owned(text + rest)
}

/// The encoded character at the start of a text, and the code's length.
fn code(text: &str) -> Option<(char, usize)> {
    let mut bytes = Vec::with_capacity(3);
    for piece in text.as_bytes().chunks(3).take(3) {
        let &[b'%', high, low] = piece else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push((digit(high)? * 16 + digit(low)?) as u8);
        if let Ok(letter) = std::str::from_utf8(&bytes) {
            let letter = letter.chars().next()?;
            return is_encoded(letter).then_some((letter, bytes.len() * 3));
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
    fn a_passage_names_its_page() {
        assert_eq!(page_of_document(&passage_document("a#b", 3)), "a#b");
        assert_eq!((page_of_document("12"), page_of_document("C#")), ("12", "C#"));
    }

    #[test]
    fn ids_with_white_space_survive() {
        for id in
            ["947testa CRICKET:0", "100%", "50%20", "a\tb\u{a0}c", "é", "%", "\u{3000}", "a\u{1c}b\u{85}"]
        {
            assert!(!encoded(id).contains(|c: char| c.is_whitespace() || c.is_control()), "{id}");
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
    fn lines_of_a_query_may_stand_anywhere() {
        let (_folder, path) = file("q1 Q0 a 1 3 t\nq2 Q0 b 1 3 t\n\nq1 Q0 c 2 2 t\nq1 Q0 d 2 9 t\n");
        let rankings: Vec<Ranking> = read_rankings(&path).unwrap().map(Result::unwrap).collect();
        let found: Vec<(&str, u64, Vec<&str>)> = rankings
            .iter()
            .map(|it| (it.query.as_str(), it.line, it.documents.iter().map(|it| it.id.as_str()).collect()))
            .collect();
        assert_eq!(found, [("q1", 1, vec!["d", "a", "c"]), ("q2", 2, vec!["b"])]);
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
                "p Q0 a 1 1 t\nq Q0 a 2 0.5 t\n",
                "a.trec:3: field `document`: `a` stands twice in the ranking of `q`, first on line 1",
            ),
        ];
        for (text, expected) in cases {
            let (_folder, path) = file(&format!("{good}{text}"));
            let error = read_rankings(&path).map_or_else(Some, |mut rankings| rankings.find_map(Result::err));
            let error = error.expect("an error");
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
