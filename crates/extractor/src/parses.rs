//! Dependency parses in CoNLL-U files, and their alignment with documents.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use sporran_kilt::{Error as Fault, jsonl};

use crate::{
    Document, Parse, Span,
    error::{Error, Result},
};

/// The number of columns of a word's line.
const COLUMNS: usize = 10;

/// The dependency parses of documents, from CoNLL-U files.
///
/// A document begins with `# newdoc id = ID`. Its words must be those of the text in order; blanks do not count. Of the ten
/// columns, ID, FORM and HEAD are read. The words of a multiword token share its text. Empty nodes are skipped.
#[derive(Debug, Default)]
pub struct Parses {
    documents: FxHashMap<String, ParsedDocument>,
}

/// The words of a document.
#[derive(Debug, Default)]
struct ParsedDocument {
    path: PathBuf,
    /// The line of `# newdoc`.
    line: u64,
    words: Vec<Word>,
}

#[derive(Debug)]
struct Word {
    line: u64,
    /// The text; `None` for a word of a multiword token after its first, which has the text of that one.
    form: Option<String>,
    /// The index of the head among the words of the document; `None` for a root.
    head: Option<usize>,
}

/// A sentence that is being read.
#[derive(Default)]
struct Sentence {
    words: Vec<Word>,
    /// The heads as in the file, with the lines.
    heads: Vec<(usize, u64)>,
    /// The last word of the multiword token that is being read.
    shared_until: usize,
    /// The text of that token, until its first word takes it.
    shared: Option<String>,
}

impl Parses {
    /// Reads files, plain, gzip or zstd.
    ///
    /// # Errors
    /// Read errors. [`Fault::Record`] with line and field for a wrong line; [`Fault::DuplicateId`] for a repeated document.
    pub fn open<P: AsRef<Path>>(paths: &[P]) -> Result<Self> {
        let mut parses = Self::default();
        for path in paths {
            parses.read(path.as_ref())?;
        }
        Ok(parses)
    }

    fn read(&mut self, path: &Path) -> Result<()> {
        let wrong = |line: u64, field: &str, message: String| Fault::record(path, line, field, message);
        let mut document: Option<(String, ParsedDocument)> = None;
        let mut sentence = Sentence::default();
        let mut last = 0;
        for line in jsonl::open(path)?.lines() {
            let (line, text) = line?;
            // The reader skips blank lines, but counts them.
            if line > last + 1 {
                sentence.finish(path, document.as_mut())?;
            }
            last = line;
            if let Some(comment) = text.strip_prefix('#') {
                let Some(rest) = comment.trim().strip_prefix("newdoc") else { continue };
                let id = rest.trim().strip_prefix("id").and_then(|rest| rest.trim().strip_prefix('='));
                let Some(id) = id.map(str::trim).filter(|id| !id.is_empty()) else {
                    let message = format!("expected `# newdoc id = ID`, found `{text}`");
                    return Err(wrong(line, "newdoc", message).into());
                };
                sentence.finish(path, document.as_mut())?;
                self.add(document.take())?;
                let words = Vec::new();
                document = Some((id.to_owned(), ParsedDocument { path: path.to_owned(), line, words }));
                continue;
            }
            if document.is_none() {
                let message = "expected `# newdoc id = ID` before the first word, found none".into();
                return Err(wrong(line, "newdoc", message).into());
            }
            sentence.take(path, line, &text)?;
        }
        sentence.finish(path, document.as_mut())?;
        self.add(document)
    }

    fn add(&mut self, document: Option<(String, ParsedDocument)>) -> Result<()> {
        let Some((id, document)) = document else { return Ok(()) };
        if let Some(other) = self.documents.get(&id) {
            let (path, line, first) = (document.path, document.line, other.line);
            return Err(Fault::DuplicateId { path, line, first, field: "newdoc id", id }.into());
        }
        self.documents.insert(id, document);
        Ok(())
    }

    /// Gives a document its parse.
    ///
    /// # Errors
    /// [`Error::Misplaced`] if no file has the document; [`Fault::Record`] with line and field for a word that the text does not
    /// have there.
    pub fn attach(&self, document: &mut Document) -> Result<()> {
        let Some(parsed) = self.documents.get(&document.id) else {
            return Err(Error::Misplaced {
                document: document.id.clone(),
                field: "parses".into(),
                message: "expected a file with its dependency parse, found none".into(),
            });
        };
        let places = parsed.places(document)?;
        let tokens: Vec<_> = places.into_iter().map(|place| document.tokens_of(place)).collect();
        let (mut edges, mut roots) = (Vec::new(), Vec::new());
        for (word, own) in parsed.words.iter().zip(&tokens) {
            match word.head {
                Some(head) => edges.push((own.start, tokens[head].start)),
                None => roots.push(own.start),
            }
            edges.extend((own.start + 1..own.end).map(|token| (own.start, token)));
        }
        document.set_parse(Parse::new(edges, roots));
        Ok(())
    }
}

impl Sentence {
    /// Reads a word.
    fn take(&mut self, path: &Path, line: u64, text: &str) -> Result<()> {
        let wrong = |field: &str, message: String| Err(Fault::record(path, line, field, message).into());
        let columns: Vec<&str> = text.split('\t').collect();
        let [id, form, _, _, _, _, head, ..] = columns[..] else {
            return wrong(".", columns_message(columns.len()));
        };
        if columns.len() != COLUMNS {
            return wrong(".", columns_message(columns.len()));
        }
        let next = self.words.len() + 1;
        if form.trim().is_empty() {
            return wrong("FORM", "expected a word, found none".into());
        }
        if id.contains('.') {
            return Ok(());
        }
        if let Some((first, last)) = id.split_once('-') {
            let last: Option<usize> = last.parse().ok().filter(|last| *last >= next);
            match last.filter(|_| first.parse::<usize>() == Ok(next) && next > self.shared_until) {
                Some(last) => (self.shared_until, self.shared) = (last, Some(form.to_owned())),
                None => return wrong("ID", format!("expected a range from {next} on, found `{id}`")),
            }
            return Ok(());
        }
        if id.parse::<usize>() != Ok(next) {
            return wrong("ID", format!("expected {next}, found `{id}`"));
        }
        let Ok(head) = head.parse::<usize>() else {
            return wrong("HEAD", format!("expected the ID of a word or 0, found `{head}`"));
        };
        let form = if next <= self.shared_until { self.shared.take() } else { Some(form.to_owned()) };
        self.words.push(Word { line, form, head: None });
        self.heads.push((head, line));
        Ok(())
    }

    /// Adds the sentence to the document, and begins another one.
    fn finish(&mut self, path: &Path, document: Option<&mut (String, ParsedDocument)>) -> Result<()> {
        let Self { mut words, heads, shared_until, .. } = std::mem::take(self);
        let (Some((_, document)), Some((_, last))) = (document, heads.last().copied()) else { return Ok(()) };
        let wrong = |line, field: &str, message: String| Fault::record(path, line, field, message);
        if shared_until > words.len() {
            let message = format!("expected the words up to {shared_until}, found {}", words.len());
            return Err(wrong(last, "ID", message).into());
        }
        let first = document.words.len();
        for (word, (head, line)) in words.iter_mut().zip(&heads) {
            if *head > heads.len() {
                let message = format!("expected the ID of a word of the sentence or 0, found {head}");
                return Err(wrong(*line, "HEAD", message).into());
            }
            word.head = head.checked_sub(1).map(|head| first + head);
        }
        let roots = heads.iter().filter(|(head, _)| *head == 0).count();
        if roots != 1 {
            let message = format!("expected one word of the sentence with head 0, found {roots}");
            return Err(wrong(last, "HEAD", message).into());
        }
        document.words.append(&mut words);
        Ok(())
    }
}

fn columns_message(found: usize) -> String {
    format!("expected {COLUMNS} columns with tabs between them, found {found}")
}

impl ParsedDocument {
    /// The place of each word in the text.
    fn places(&self, document: &Document) -> Result<Vec<Span>> {
        let mut text =
            document.text.chars().enumerate().filter(|(_, letter)| !letter.is_whitespace()).peekable();
        let mut places: Vec<Span> = Vec::with_capacity(self.words.len());
        for Word { line, form, .. } in &self.words {
            let Some(form) = form else {
                places.extend(places.last().copied());
                continue;
            };
            let mut place: Option<Span> = None;
            for letter in form.chars().filter(|letter| !letter.is_whitespace()) {
                let Some((at, _)) = text.next_if(|(_, found)| *found == letter) else {
                    let found: String = text.by_ref().take(12).map(|(_, letter)| letter).collect();
                    let message = format!(
                        "document `{}`: expected a word of the text, which is `{found}` here, found `{form}`",
                        document.id
                    );
                    return Err(Fault::record(&self.path, *line, "FORM", message).into());
                };
                place = Some(Span { start: place.map_or(at, |place| place.start), end: at + 1 });
            }
            places.extend(place);
        }
        if text.peek().is_some() {
            let found: String = text.take(12).map(|(_, letter)| letter).collect();
            let line = self.words.last().map_or(self.line, |word| word.line);
            let message = format!(
                "document `{}`: expected words up to the text's end, which is `{found}`",
                document.id
            );
            return Err(Fault::record(&self.path, line, "FORM", message).into());
        }
        Ok(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SentenceGraph;

    fn open(text: &str) -> Result<Parses> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.conllu");
        std::fs::write(&path, text).unwrap();
        Parses::open(&[path])
    }

    fn word(id: &str, form: &str, head: &str) -> String {
        format!("{id}\t{form}\t_\t_\t_\t_\t{head}\t_\t_\t_\n")
    }

    /// A document with a multiword token, an empty node, and words that are not the document's tokens.
    fn example() -> String {
        [
            "# global.columns = ID FORM\n# newdoc id = d\n# sent_id = 1\n",
            &word("1", "Zoë", "2"),
            &word("2-3", "doesn't", "_"),
            &word("2", "does", "0"),
            &word("3", "not", "2"),
            &word("3.1", "gone", "_"),
            &word("4", "go", "2"),
            &word("5", "well-to-do", "4"),
            "\n",
            &word("1", "Ok", "0"),
            &word("2", ".", "1"),
            "# newdoc id = other\n",
        ]
        .concat()
    }

    #[test]
    fn words_are_aligned_by_their_characters() {
        let parses = open(&example()).unwrap();
        let mut document = Document::new("d", "Zoë  doesn't go well-to-do Ok.");
        let words: Vec<&str> = (0..document.tokens.len()).map(|at| document.word(at)).collect();
        assert_eq!(words, ["Zoë", "does", "n't", "go", "well", "-", "to", "-", "do", "Ok", "."]);
        assert_eq!(document.sentences.len(), 1);
        parses.attach(&mut document).unwrap();
        // `n't` belongs to `does`, and the parts of `well-to-do` to its first token, which depends on `go`. The root of the
        // second sentence is connected to that of the first.
        let graph = SentenceGraph::new(document.parse().unwrap(), 0..11);
        assert_eq!(graph.distances([0]), [0, 1, 2, 2, 3, 4, 4, 4, 4, 2, 3]);
        // A document without words has an empty parse.
        let mut other = Document::new("other", " ");
        parses.attach(&mut other).unwrap();
        assert_eq!(other.parse(), Some(&Parse::default()));
        let missing = parses.attach(&mut Document::new("e", "x")).unwrap_err().to_string();
        assert_eq!(missing, "document `e`, parses: expected a file with its dependency parse, found none");
    }

    #[test]
    fn wrong_files_are_named_with_line_and_field() {
        let refused = |text: &str| open(text).unwrap_err().to_string();
        let head = "# newdoc id = d\n";
        let one = |line: &str| refused(&format!("{head}{}{line}", word("1", "a", "0")));
        for (message, expected) in [
            (refused(&word("1", "a", "0")), ":1: field `newdoc`: expected `# newdoc id = ID` before"),
            (refused("# newdoc\n"), ":1: field `newdoc`: expected `# newdoc id = ID`, found `# newdoc`"),
            (one("2\tb\n"), ":3: expected 10 columns with tabs between them, found 2"),
            (one(&format!("{}\tx\n", word("2", "b", "1").trim_end())), ":3: expected 10 columns"),
            (one(&word("3", "b", "1")), ":3: field `ID`: expected 2, found `3`"),
            (one(&word("1-2", "b", "_")), ":3: field `ID`: expected a range from 2 on, found `1-2`"),
            (one(&word("2-3", "b", "_")), ":2: field `ID`: expected the words up to 3, found 1"),
            (one(&word("2", "b", "_")), ":3: field `HEAD`: expected the ID of a word or 0, found `_`"),
            (
                one(&word("2", "b", "3")),
                ":3: field `HEAD`: expected the ID of a word of the sentence or 0, found 3",
            ),
            (
                one(&word("2", "b", "0")),
                ":3: field `HEAD`: expected one word of the sentence with head 0, found 2",
            ),
            (one(&word("2", " ", "1")), ":3: field `FORM`: expected a word, found none"),
        ] {
            assert!(message.contains("p.conllu") && message.contains(expected), "{message}");
        }
        let twice = refused(&format!("{head}{}\n{head}", word("1", "a", "0")));
        assert!(twice.contains("`d` stands on line 1 already"), "{twice}");
    }

    #[test]
    fn words_that_the_text_does_not_have_are_named() {
        let parses = open(&example()).unwrap();
        let message = |text: &str| parses.attach(&mut Document::new("d", text)).unwrap_err().to_string();
        let other = message("Zoë doesn't run well-to-do Ok.");
        assert!(
            other.contains(":9: field `FORM`: document `d`: expected a word of the text, which is `runwell-to-d` here, found `go`"),
            "{other}"
        );
        let longer = message("Zoë doesn't go well-to-do Ok. No");
        assert!(longer.contains(":13: field `FORM`") && longer.contains("`No`"), "{longer}");
    }
}
