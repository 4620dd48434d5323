//! Tables of comma-, semicolon- or tab-separated values with a header, read row by row.

use std::io::BufRead;

use serde_json::{Map, Value};

use crate::{
    encoding,
    record::{Row, value_of},
};

/// The longest row, in bytes. A quote without an end must not take the rest of the file into memory.
const LONGEST_ROW: usize = 64 << 20;
const SEPARATORS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// A table while it is read.
pub(crate) struct Table<R> {
    input: R,
    parser: csv_core::Reader,
    columns: Vec<String>,
    line: u64,
    number: u64,
    /// The bytes of the row, and its cells.
    row: Vec<u8>,
    cells: Vec<u8>,
    ends: Vec<usize>,
    count: usize,
    /// Whether a cell was not UTF-8.
    pub(crate) guessed: bool,
}

/// A row that cannot be read: its line, and what is wrong. The next row can be read.
pub(crate) type Fault = (u64, String);

/// The item of a table.
pub(crate) enum Item {
    Row(Row),
    Fault(Fault),
    /// Nothing after this can be read.
    End(Fault),
}

impl<R: BufRead> Table<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// The line and a message for a table without a header and for an unreadable file.
    pub(crate) fn open(mut input: R, is_tabs: bool) -> Result<Self, Fault> {
        let mut first = Vec::new();
        let mut line = 0;
        while first.trim_ascii().is_empty() {
            first.clear();
            line += 1;
            if !read_line(&mut input, &mut first).map_err(|message| (line, message))? {
                return Err((1, "expected a header, found an empty file".to_owned()));
            }
        }
        let mut head = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&first).to_vec();
        let mut separator = if is_tabs { b'\t' } else { separator(&head) };
        // Excel's line that names the separator.
        let line_end = head.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |at| at + 1);
        if let &[b's', b'e', b'p', b'=', named] = &head[..line_end]
            && named != b'"'
            && !named.is_ascii_alphanumeric()
        {
            separator = named;
            head.clear();
            line += 1;
            if !read_line(&mut input, &mut head).map_err(|message| (line, message))? {
                return Err((line, "expected a header, found the end of the file".to_owned()));
            }
        }
        let mut table = Self {
            input,
            // A carriage return that is not part of a line end is text.
            parser: csv_core::ReaderBuilder::new()
                .delimiter(separator)
                .terminator(csv_core::Terminator::Any(b'\n'))
                .build(),
            columns: Vec::new(),
            line: line - 1,
            number: 0,
            row: head,
            cells: Vec::new(),
            ends: vec![0; 64],
            count: 0,
            guessed: false,
        };
        if !table.parse()? {
            return Err((line, "expected a header, found a quote without an end".to_owned()));
        }
        let names = table.texts();
        for (at, name) in names.into_iter().enumerate() {
            let mut name = name.trim().to_owned();
            if name.is_empty() {
                name = format!("column {}", at + 1);
            }
            if table.columns.contains(&name) {
                name = format!("{name} {}", at + 1);
            }
            table.columns.push(name);
        }
        Ok(table)
    }

    /// The names of the columns.
    pub(crate) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Parses the line in `row`, and further lines while a quote is open. False at the end of the file in a quote.
    fn parse(&mut self) -> Result<bool, Fault> {
        let start = self.line + 1;
        self.line += 1;
        self.parser.reset();
        let (mut read, mut written, mut count) = (0, 0, 0);
        loop {
            if !self.row.ends_with(b"\n") {
                self.row.push(b'\n');
            }
            loop {
                self.cells.resize(self.cells.len().max(self.row.len() + 16), 0);
                let (result, used, cells, ends) = self.parser.read_record(
                    &self.row[read..],
                    &mut self.cells[written..],
                    &mut self.ends[count..],
                );
                (read, written, count) = (read + used, written + cells, count + ends);
                match result {
                    csv_core::ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                    csv_core::ReadRecordResult::OutputFull => self.cells.resize(self.cells.len() * 2, 0),
                    csv_core::ReadRecordResult::Record => {
                        self.count = count;
                        return Ok(true);
                    }
                    csv_core::ReadRecordResult::InputEmpty | csv_core::ReadRecordResult::End => break,
                }
            }
            // The line ends within a quote.
            if self.row.len() > LONGEST_ROW {
                let message = format!(
                    "expected a row of at most {LONGEST_ROW} bytes, found a longer one; a quote may lack its end"
                );
                return Err((start, message));
            }
            if !read_line(&mut self.input, &mut self.row).map_err(|message| (self.line, message))? {
                return Ok(false);
            }
            self.line += 1;
        }
    }

    fn texts(&mut self) -> Vec<String> {
        let mut start = 0;
        let mut texts = Vec::with_capacity(self.count);
        for &end in &self.ends[..self.count] {
            texts.push(encoding::line(&self.cells[start..end], &mut self.guessed));
            start = end;
        }
        if let Some(last) = texts.last_mut()
            && last.ends_with('\r')
        {
            last.pop();
        }
        texts
    }

    /// The next row that is not blank; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Item> {
        loop {
            let start = self.line + 1;
            self.row.clear();
            match read_line(&mut self.input, &mut self.row) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(message) => return Some(Item::End((start, message))),
            }
            if self.row.trim_ascii().is_empty() {
                self.line += 1;
                continue;
            }
            match self.parse() {
                Ok(true) => {}
                Ok(false) => {
                    return Some(Item::End((
                        start,
                        "expected a quote that ends the cell, found none".to_owned(),
                    )));
                }
                Err(fault) => return Some(Item::End(fault)),
            }
            let texts = self.texts();
            self.number += 1;
            if texts.len() > self.columns.len() {
                let message = format!("expected at most {} cells, found {}", self.columns.len(), texts.len());
                return Some(Item::Fault((start, message)));
            }
            let cells = texts.iter().map(|text| value_of(text)).chain(std::iter::repeat(Value::Null));
            let fields: Map<String, Value> = self.columns.iter().cloned().zip(cells).collect();
            return Some(Item::Row(Row { number: self.number, line: Some(start), has_types: false, fields }));
        }
    }
}

/// The separator that the header has most often outside of quotes.
fn separator(header: &[u8]) -> u8 {
    let mut in_quotes = false;
    let mut counts = [0; SEPARATORS.len()];
    for &byte in header {
        in_quotes ^= byte == b'"';
        if let Some(at) = SEPARATORS.iter().position(|&separator| separator == byte).filter(|_| !in_quotes) {
            counts[at] += 1;
        }
    }
    let most = counts.iter().max().copied().unwrap_or(0);
    counts.iter().position(|&count| count == most).map_or(b',', |at| SEPARATORS[at])
}

/// Adds a line to `line`; false at the end of the file.
///
/// # Errors
/// A message if the file cannot be read, and for a line that is too long.
pub(crate) fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool, String> {
    let start = line.len();
    let mut limited = std::io::Read::take(input, LONGEST_ROW as u64 + 1);
    let read = std::io::BufRead::read_until(&mut limited, b'\n', line);
    read.map_err(|error| format!("reading failed: {error}"))?;
    if line.len() - start > LONGEST_ROW {
        return Err(format!("expected a line of at most {LONGEST_ROW} bytes, found a longer one"));
    }
    Ok(line.len() > start)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows as `line: JSON`, and the faults.
    fn read(text: &[u8]) -> Vec<String> {
        let mut table = Table::open(text, false).unwrap();
        let mut found = Vec::new();
        while let Some(item) = table.next() {
            let (item, is_last) = match item {
                Item::Row(row) => (
                    format!("{}: {}", row.shown_number(), serde_json::to_string(&row.fields).unwrap()),
                    false,
                ),
                Item::Fault((line, message)) => (format!("{line}! {message}"), false),
                Item::End((line, message)) => (format!("{line}!! {message}"), true),
            };
            found.push(item);
            if is_last {
                break;
            }
        }
        found
    }

    #[test]
    fn rows_have_the_lines_on_which_they_start() {
        let text = b"\xef\xbb\xbfname,note,\r\nAnn,\"x, \"\"y\"\"\r\nz\",3\r\n\r\nBob\r\nEve,1,2,3\nCaf\xe9,caf\xc3\xa9";
        let expected = [
            r#"2: {"name":"Ann","note":"x, \"y\"\r\nz","column 3":3}"#,
            r#"5: {"name":"Bob","note":null,"column 3":null}"#,
            "6! expected at most 3 cells, found 4",
            r#"7: {"name":"Café","note":"café","column 3":null}"#,
        ];
        assert_eq!(read(text), expected);
        assert_eq!(read(b"a;b\n1,5;2\n"), [r#"2: {"a":"1,5","b":2}"#]);
        assert_eq!(read(b"a\tb\n1\t2"), [r#"2: {"a":1,"b":2}"#]);
        assert_eq!(read(b"a,a\n1,2"), [r#"2: {"a":1,"a 2":2}"#]);
        // Excel's first line.
        assert_eq!(read(b"\xef\xbb\xbfsep=;\r\na;b,c\r\n1;2"), [r#"3: {"a":1,"b,c":2}"#]);
        assert_eq!(read(b"sep=\t\na\tb\n1\t2"), [r#"3: {"a":1,"b":2}"#]);
        assert_eq!(read(b"sep=;x\n1"), [r#"2: {"sep=":1,"x":null}"#]);
    }

    #[test]
    fn a_quote_without_an_end_is_told_with_its_line() {
        assert_eq!(
            read(b"a,b\n1,2\n3,\"4\n5,6\n"),
            [r#"2: {"a":1,"b":2}"#, "3!! expected a quote that ends the cell, found none"]
        );
        assert_eq!(
            Table::open(&b"\n \n"[..], false).err().unwrap().1,
            "expected a header, found an empty file"
        );
    }
}
