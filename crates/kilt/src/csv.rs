//! Tables of comma-separated values with a header (RFC 4180), as people save them from a spreadsheet.

use std::path::{Path, PathBuf};

use crate::{Error, Result, jsonl};

/// A table. A byte order mark is skipped, and the header decides whether cells are separated by commas, semicolons or tabs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    path: PathBuf,
    columns: Vec<String>,
    rows: Vec<Row>,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The line on which it starts, from 1.
    pub line: u64,
    cells: Vec<String>,
}

impl Row {
    /// The cell of a column, which is empty where the row ends before it.
    #[must_use]
    pub fn cell(&self, column: usize) -> &str {
        self.cells.get(column).map_or("", String::as_str)
    }
}

impl Table {
    /// Reads a file. Blank lines are skipped.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Utf8`]; [`Error::Record`] for a quote without an end and for a row with more cells than the
    /// header; [`Error::Empty`] for a file without a header.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = jsonl::read_to_string(path)?;
        let mut rows = parse(path, text.strip_prefix('\u{feff}').unwrap_or(&text))?.into_iter();
        let header = rows.next().ok_or_else(|| Error::Empty { path: path.into(), what: "header" })?;
        let columns: Vec<String> = header.cells.iter().map(|name| name.trim().to_owned()).collect();
        let rows: Vec<Row> = rows.collect();
        if let Some(row) = rows.iter().find(|row| row.cells.len() > columns.len()) {
            let message = format!("expected at most {} cells, found {}", columns.len(), row.cells.len());
            return Err(Error::record(path, row.line, ".", message));
        }
        Ok(Self { path: path.into(), columns, rows })
    }

    /// The place of the column called `name`.
    ///
    /// # Errors
    /// [`Error::Record`] where the header has no such column.
    pub fn column(&self, name: &str) -> Result<usize> {
        self.columns.iter().position(|column| column == name).ok_or_else(|| {
            let message = format!("expected a column of this name, found {}", self.columns.join(", "));
            Error::record(&self.path, 1, name, message)
        })
    }

    /// The rows after the header.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }
}

fn parse(path: &Path, text: &str) -> Result<Vec<Row>> {
    let header = text.lines().next().unwrap_or_default();
    let count = |separator: &char| header.matches(*separator).count();
    // Of separators with the same count, the last is taken.
    let separator = ['\t', ';', ','].into_iter().max_by_key(count).unwrap_or(',');
    let (mut rows, mut cells, mut cell) = (Vec::new(), Vec::new(), String::new());
    let (mut line, mut start, mut was_quoted) = (1, 1, false);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if cell.is_empty() && !was_quoted => {
                was_quoted = true;
                loop {
                    match characters.next() {
                        Some('"') if characters.peek() == Some(&'"') => {
                            characters.next();
                            cell.push('"');
                        }
                        Some('"') => break,
                        Some(other) => {
                            line += u64::from(other == '\n');
                            cell.push(other);
                        }
                        None => {
                            let message = "expected a quote that ends the cell, found none";
                            return Err(Error::record(path, start, (cells.len() + 1).to_string(), message));
                        }
                    }
                }
            }
            '\r' if characters.peek() == Some(&'\n') => {}
            '\n' => {
                cells.push(std::mem::take(&mut cell));
                let cells = std::mem::take(&mut cells);
                if cells.len() > 1 || was_quoted || !cells[0].trim().is_empty() {
                    rows.push(Row { line: start, cells });
                }
                line += 1;
                (start, was_quoted) = (line, false);
            }
            other if other == separator => {
                cells.push(std::mem::take(&mut cell));
                was_quoted = false;
            }
            other => cell.push(other),
        }
    }
    if !cells.is_empty() || was_quoted || !cell.trim().is_empty() {
        cells.push(cell);
        rows.push(Row { line: start, cells });
    }
    Ok(rows)
}

/// A line of a table with its line end. A cell with a separator, a quote or a line end is quoted. A cell that a
/// spreadsheet would take for a formula gets a blank before it.
#[must_use]
pub fn line<S: AsRef<str>>(cells: &[S]) -> String {
    let written: Vec<String> = cells
        .iter()
        .map(|cell| {
            let mut cell = cell.as_ref().to_owned();
            if cell.starts_with(['=', '+', '-', '@']) {
                cell.insert(0, ' ');
            }
            match cell.contains([',', ';', '\t', '"', '\n', '\r']) {
                true => format!("\"{}\"", cell.replace('"', "\"\"")),
                false => cell,
            }
        })
        .collect();
    written.join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Table> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Table::read(file.path())
    }

    #[test]
    fn cells_are_read_with_the_lines_of_their_rows() {
        let table = read("\u{feff}a,b\r\n1,\"x, \"\"y\"\"\nz\"\r\n\r\n2\r\n").unwrap();
        let (a, b) = (table.column("a").unwrap(), table.column("b").unwrap());
        let rows: Vec<_> = table.rows().iter().map(|row| (row.line, row.cell(a), row.cell(b))).collect();
        assert_eq!(rows, [(2, "1", "x, \"y\"\nz"), (5, "2", "")]);
    }

    #[test]
    fn the_header_decides_the_separator() {
        for text in ["a;b\n1,5;2\n", "a\tb\n1,5\t2"] {
            let table = read(text).unwrap();
            assert_eq!((table.rows()[0].cell(0), table.rows()[0].cell(1)), ("1,5", "2"));
        }
        assert_eq!(read("a\n1;2\n").unwrap().rows()[0].cell(0), "1;2");
    }

    #[test]
    fn wrong_tables_are_refused_with_line_and_field() {
        let error = |text: &str| read(text).unwrap_err().to_string();
        assert!(error("").contains("at least one header"));
        assert!(error("a,b\n1,2\n3,4,5\n").contains(":3: expected at most 2 cells, found 3"));
        assert!(error("a,b\n\n1,\"2\n").contains(":3: field `2`: expected a quote that ends the cell"));
        let missing = read("a,b\n").unwrap().column("c").unwrap_err().to_string();
        assert!(missing.contains(":1: field `c`: expected a column of this name, found a, b"), "{missing}");
    }

    #[test]
    fn written_lines_are_read_again() {
        let cells = ["plain", "a, \"b\"", "c\nd", ""];
        let table = read(&(line(&["1", "2", "3", "4"]) + &line(&cells))).unwrap();
        let found: Vec<&str> = (0..4).map(|at| table.rows()[0].cell(at)).collect();
        assert_eq!(found, cells);
        assert_eq!(line(&["=1+1", "-"]), " =1+1, -\n");
    }
}
