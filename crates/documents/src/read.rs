//! Reading a file into pages.

use std::{
    fs,
    io::{BufReader, Read},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use sporran_kilt::{counted, jsonl};

use crate::{
    Document, Format, Options, Problem, Severity, SourceFile, child, columnar,
    encoding::{self, Transcoded, decode},
    format, html,
    json_lines::{self, JsonLines},
    markdown, pdf,
    record::{IdOf, RecordPage},
    table::{Item, Table},
    text, zipped,
};

/// The largest file that is read as a whole, in bytes. Tables and JSON lines are read piece by piece.
const LARGEST: u64 = 512 << 20;
/// The number of wrong rows of a file that are problems one by one. The others are counted.
const FAULTS: u64 = 5;

/// Receives the pages of a file.
pub(crate) type PageSink<'a> = dyn FnMut(RecordPage) -> sporran_kilt::Result<()> + 'a;

/// What was not read of a file.
#[derive(Default)]
pub(crate) struct Unread {
    pub(crate) problems: Vec<Problem>,
    /// Whether another attempt can give other pages.
    pub(crate) is_transient: bool,
    /// Whether the file is not as it was listed. Its pages do not count.
    pub(crate) has_changed: bool,
}

impl Unread {
    /// All of a file that changed, or disappeared.
    fn changed(file: &SourceFile) -> Self {
        let what = if file.path.exists() { "changed" } else { "disappeared" };
        let message = format!("{what} while the source was read; the next run reads it again");
        let problem = Problem { file: file.file.clone(), line: None, severity: Severity::Unread, message };
        Self { problems: vec![problem], is_transient: true, has_changed: true }
    }

    fn of(problem: Problem, is_transient: bool) -> Self {
        Self { problems: vec![problem], is_transient, has_changed: false }
    }
}

/// Reads a file. What cannot be read is a problem. A file that changes meanwhile may have given pages to the receiver.
///
/// # Errors
/// Those of the receiver.
pub(crate) fn read(
    file: &SourceFile,
    options: &Options,
    sink: &mut PageSink<'_>,
) -> sporran_kilt::Result<Unread> {
    let mut reading = Reading { file, options, problems: Vec::new(), is_transient: false, has_lines: true };
    if !file.is_unchanged() {
        return Ok(Unread::changed(file));
    }
    let head = match head(&file.path) {
        Ok(head) => head,
        Err(_) if !file.is_unchanged() => return Ok(Unread::changed(file)),
        Err(error) => {
            let problem = reading.problem(Severity::Unread, None, format!("opening failed: {error}"));
            return Ok(Unread::of(problem, true));
        }
    };
    if head.is_empty() {
        let problem = reading.problem(Severity::Note, None, "is empty".to_owned());
        return Ok(Unread::of(problem, false));
    }
    let result = match Format::of(&file.path, &head) {
        Ok(format) if format.has_records() => reading.records(format, &head, sink)?,
        Ok(format) => reading.whole(format, &head, sink)?,
        Err(message) => Err(message),
    };
    if let Err(message) = result {
        let problem = reading.problem(Severity::Unread, None, message);
        reading.problems.push(problem);
    }
    if !file.is_unchanged() {
        return Ok(Unread::changed(file));
    }
    Ok(Unread { problems: reading.problems, is_transient: reading.is_transient, has_changed: false })
}

/// The first bytes of a file, which decide its format.
fn head(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    fs::File::open(path)?.take(encoding::HEAD as u64).read_to_end(&mut head)?;
    Ok(head)
}

struct Reading<'a> {
    file: &'a SourceFile,
    options: &'a Options,
    problems: Vec<Problem>,
    is_transient: bool,
    /// Whether the numbers of records are lines. Otherwise they are rows.
    has_lines: bool,
}

impl Reading<'_> {
    fn problem(&self, severity: Severity, line: Option<u64>, message: String) -> Problem {
        let (line, message) = match line {
            Some(row) if !self.has_lines => (None, format!("row {row}: {message}")),
            line => (line, message),
        };
        Problem { file: self.file.file.clone(), line, severity, message }
    }

    /// Reads a document as one page.
    fn whole(
        &mut self,
        format: Format,
        head: &[u8],
        sink: &mut PageSink<'_>,
    ) -> sporran_kilt::Result<Result<(), String>> {
        let too_large = |bytes: u64| {
            Err(format!(
                "expected at most {} MiB for this format, found {} MiB or more",
                LARGEST >> 20,
                bytes >> 20
            ))
        };
        if self.file.bytes > LARGEST {
            return Ok(too_large(self.file.bytes));
        }
        if format == Format::Pdf
            && let Some(read) = child::read(&self.file.path)
        {
            return match read {
                Ok(document) => self.page(document, sink),
                Err(failure) => {
                    self.is_transient |= failure.is_transient;
                    Ok(Err(failure.message))
                }
            };
        }
        let bytes = match format::is_compressed(head) {
            false => fs::read(&self.file.path).map_err(|error| format!("reading failed: {error}")),
            true => self.decompressed(),
        };
        let bytes = match bytes {
            Ok(bytes) if bytes.len() as u64 > LARGEST => return Ok(too_large(bytes.len() as u64)),
            Ok(bytes) => bytes,
            Err(message) => return Ok(Err(message)),
        };
        // A parser that panics is a problem of its file.
        let document = catch_unwind(AssertUnwindSafe(|| document(format, bytes)));
        match document {
            Ok(Ok(document)) => self.page(document, sink),
            Ok(Err(message)) => Ok(Err(message)),
            Err(_) => Ok(Err("the parser failed on this file".to_owned())),
        }
    }

    /// Gives the page of a document, and the remarks on it.
    fn page(
        &mut self,
        document: Document,
        sink: &mut PageSink<'_>,
    ) -> sporran_kilt::Result<Result<(), String>> {
        for (severity, messages) in
            [(Severity::Note, &document.notes), (Severity::Partial, &document.missing)]
        {
            let problems = messages.iter().map(|message| self.problem(severity, None, message.clone()));
            let problems: Vec<Problem> = problems.collect();
            self.problems.extend(problems);
        }
        if document.is_blank() {
            return Ok(Err("has no text".to_owned()));
        }
        sink(RecordPage { page: document.into_page(self.file), id: IdOf::Place }).map(Ok)
    }

    fn decompressed(&self) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let (input, _) = jsonl::open_bytes(&self.file.path).map_err(|error| chain(&error))?;
        let read = input.take(LARGEST + 1).read_to_end(&mut bytes);
        read.map_err(|error| format!("the compressed file is damaged: {error}"))?;
        Ok(bytes)
    }

    /// Reads a table or JSON objects, each record as a page.
    fn records(
        &mut self,
        format: Format,
        head: &[u8],
        sink: &mut PageSink<'_>,
    ) -> sporran_kilt::Result<Result<(), String>> {
        if format == Format::Parquet {
            return self.parquet(sink);
        }
        let mut input = match jsonl::open_bytes(&self.file.path) {
            Ok((input, _)) => input,
            Err(error) => return Ok(Err(chain(&error))),
        };
        let first = match format::is_compressed(head) {
            false => head.to_vec(),
            true => match input.fill_buf() {
                Ok(first) => first[..first.len().min(encoding::HEAD)].to_vec(),
                Err(error) => return Ok(Err(format!("the compressed file is damaged: {error}"))),
            },
        };
        let mut input: Box<dyn std::io::BufRead + Send> = match encoding::wide(&first) {
            Some(encoding) => Box::new(BufReader::new(Transcoded::new(input, encoding))),
            None if encoding::is_binary(&first) => {
                return Ok(Err("expected text, found a binary file".to_owned()));
            }
            None => input,
        };
        // Lines may end with carriage returns alone.
        let begin = input.fill_buf().unwrap_or_default();
        if begin.contains(&b'\r') && !begin.contains(&b'\n') {
            input = Box::new(BufReader::new(encoding::Returns(input)));
        }
        let mut records = Records::default();
        let guessed = if format == Format::Table {
            let is_tabs = self.file.path.to_string_lossy().to_ascii_lowercase().contains(".tsv");
            let mut table = match Table::open(input, is_tabs) {
                Ok(table) => table,
                Err((_, message)) => return Ok(Err(message)),
            };
            let mut columns = self.options.columns.clone();
            if columns.is_none() && table.columns() == ["id", "text", "title"] {
                columns = Some(dpr());
            }
            while let Some(item) = table.next() {
                self.item(item, columns.as_ref(), &mut records, sink)?;
                if records.is_cut {
                    break;
                }
            }
            table.guessed
        } else {
            let is_json = self.file.path.to_string_lossy().to_ascii_lowercase().contains(".json")
                && !self.file.path.to_string_lossy().to_ascii_lowercase().contains(".jsonl");
            if is_json && !is_lines(&first) {
                return self.json(input, sink);
            }
            let mut lines = JsonLines::new(input);
            while let Some(item) = lines.next() {
                self.item(item, self.options.columns.clone().as_ref(), &mut records, sink)?;
                if records.is_cut {
                    break;
                }
            }
            lines.guessed
        };
        if guessed {
            let note = "is not all UTF-8; the other lines were read as windows-1252".to_owned();
            self.problems.push(self.problem(Severity::Note, None, note));
        }
        Ok(self.ended(&records))
    }

    fn ended(&mut self, records: &Records) -> Result<(), String> {
        if records.faults > FAULTS {
            let rest = counted(records.faults - FAULTS, "more record");
            let message = format!("{rest} could not be read");
            self.problems.push(self.problem(Severity::Partial, None, message));
        }
        if records.blank > 0 {
            let have = if records.blank == 1 { "has" } else { "have" };
            let message = format!("{} {have} no text", counted(records.blank, "record"));
            self.problems.push(self.problem(Severity::Note, None, message));
        }
        if records.count == 0 { Err("has no record with text".to_owned()) } else { Ok(()) }
    }

    /// Reads a Parquet file.
    fn parquet(&mut self, sink: &mut PageSink<'_>) -> sporran_kilt::Result<Result<(), String>> {
        self.has_lines = false;
        let file = match fs::File::open(&self.file.path) {
            Ok(file) => file,
            Err(error) => return Ok(Err(format!("opening failed: {error}"))),
        };
        let mut rows = match guarded(|| columnar::Rows::open(file)) {
            Ok(rows) => rows,
            Err(message) => return Ok(Err(message)),
        };
        let mut records = Records::default();
        let columns = self.options.columns.clone();
        while let Some(row) = guarded(|| Ok(rows.next())).unwrap_or_else(|message| Some(Err((0, message)))) {
            let item = match row {
                Ok(row) => Item::Row(row),
                Err(fault) => Item::End(fault),
            };
            self.item(item, columns.as_ref(), &mut records, sink)?;
            if records.is_cut {
                break;
            }
        }
        Ok(self.ended(&records))
    }

    /// Reads a file that is one JSON value.
    fn json(
        &mut self,
        input: impl Read,
        sink: &mut PageSink<'_>,
    ) -> sporran_kilt::Result<Result<(), String>> {
        let mut bytes = Vec::new();
        if let Err(error) = input.take(LARGEST + 1).read_to_end(&mut bytes) {
            return Ok(Err(format!("reading failed: {error}")));
        }
        if bytes.len() as u64 > LARGEST {
            return Ok(Err(format!(
                "expected at most {} MiB for one JSON value; use JSON lines",
                LARGEST >> 20
            )));
        }
        let rows = decode(&bytes, None).and_then(|decoded| json_lines::list(&decoded.text));
        let rows = match rows {
            Ok(rows) => rows,
            Err(message) => return Ok(Err(message)),
        };
        let mut records = Records::default();
        for item in rows {
            self.item(item, self.options.columns.clone().as_ref(), &mut records, sink)?;
        }
        Ok(self.ended(&records))
    }

    fn item(
        &mut self,
        item: Item,
        columns: Option<&crate::Columns>,
        records: &mut Records,
        sink: &mut PageSink<'_>,
    ) -> sporran_kilt::Result<()> {
        let fault = match item {
            Item::Row(row) => {
                let (number, row_number) = (row.shown_number(), row.number);
                match row.into_page(columns, self.file) {
                    Ok(Some(mut page)) => {
                        records.count += 1;
                        // A header that looks like DPR's can be that of any table.
                        if self.options.columns.is_none() && columns.is_some() && page.id == IdOf::Source {
                            page.id = IdOf::Row(row_number);
                        }
                        return sink(page);
                    }
                    Ok(None) => {
                        records.blank += 1;
                        return Ok(());
                    }
                    Err(message) => (number, message),
                }
            }
            Item::Fault(fault) => fault,
            Item::End(fault) => {
                records.is_cut = true;
                fault
            }
        };
        records.faults += 1;
        if records.faults <= FAULTS || records.is_cut {
            let rest = if records.is_cut { "; nothing after it was read" } else { "" };
            let problem = self.problem(Severity::Partial, Some(fault.0), format!("{}{rest}", fault.1));
            self.problems.push(problem);
        }
        Ok(())
    }
}

/// The result of a parser that can panic on damaged files.
fn guarded<T>(read: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err("the parser failed on this file".to_owned()))
}

/// What the records of a file were.
#[derive(Default)]
struct Records {
    count: u64,
    blank: u64,
    faults: u64,
    /// Whether the rest of the file could not be read.
    is_cut: bool,
}

/// The columns of DPR's `psgs_w100.tsv`.
fn dpr() -> crate::Columns {
    crate::Columns {
        id: Some("id".to_owned()),
        title: Some("title".to_owned()),
        text: Some("text".into()),
        metadata: None,
    }
}

/// Whether the first line of a JSON file is an object, so that the file is JSON lines.
fn is_lines(head: &[u8]) -> bool {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let Some(end) = head.iter().position(|&byte| byte == b'\n') else {
        // A line that is longer than the head is no object that a person indented.
        return head.starts_with(b"{") && head.len() >= encoding::HEAD / 2;
    };
    serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&head[..end]).is_ok()
}

/// The structure of a document.
fn document(format: Format, bytes: Vec<u8>) -> Result<Document, String> {
    match format {
        Format::Pdf => return pdf::read(bytes),
        Format::Zipped => return zipped::read(bytes),
        _ => {}
    }
    let declared = (format == Format::Html).then(|| html::declared(&bytes)).flatten();
    let decoded = decode(&bytes, declared.as_deref())?;
    let mut document = match format {
        Format::Markdown => markdown::read(&decoded.text),
        Format::Html => html::read(&decoded.text),
        _ => text::read(&decoded.text),
    };
    document.notes.extend(decoded.note);
    Ok(document)
}

/// An error with its causes. That of a file leaves its name to the problem.
fn chain(error: &sporran_kilt::Error) -> String {
    let (mut text, mut cause) = match error {
        sporran_kilt::Error::Io { action, source, .. } => (format!("{action} failed: {source}"), None),
        other => (other.to_string(), std::error::Error::source(other)),
    };
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
