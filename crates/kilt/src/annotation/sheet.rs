//! Sheets: rows of candidate passages with an annotator's votes, as JSON lines or CSV.

use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;

use crate::{Error, Id, Passage, Provenance, Result, csv, jsonl};

/// A row of a sheet: a candidate passage of a record, and an annotator's vote on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The id of the record.
    pub id: Id,
    /// The record's input.
    #[serde(default)]
    pub input: String,
    /// The record's answers.
    #[serde(default)]
    pub answers: Vec<String>,
    /// The page of the passage.
    pub wikipedia_id: Id,
    /// The paragraph in which it starts, counted from 0 (the title).
    pub start_paragraph_id: u32,
    /// Its first character in that paragraph.
    pub start_character: u32,
    /// The paragraph in which it ends.
    pub end_paragraph_id: u32,
    /// The character after its last in that paragraph.
    pub end_character: u32,
    /// The title of its page.
    #[serde(default)]
    pub title: String,
    /// The header above it.
    #[serde(default)]
    pub section: String,
    /// The passage's text.
    #[serde(default)]
    pub text: String,
    /// The annotator. Without this field, the annotator is the sheet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotator: Option<String>,
    /// The vote: whether the passage is enough evidence for the answer, `yes` or `no`. `None` before the annotation.
    #[serde(default, deserialize_with = "label")]
    pub vote: Option<String>,
    /// The words of the passage that are the evidence, if the annotator marked some.
    #[serde(default)]
    pub span: Option<String>,
}

impl Row {
    /// The place of the passage.
    pub fn place(&self) -> Place {
        Place {
            wikipedia_id: self.wikipedia_id.clone(),
            start_paragraph_id: self.start_paragraph_id,
            start_character: self.start_character,
            end_paragraph_id: self.end_paragraph_id,
            end_character: self.end_character,
        }
    }
}

/// The place of a passage. Paragraphs count from 0 (the title); characters count Unicode scalar values, the end is
/// exclusive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Place {
    /// The page.
    pub wikipedia_id: Id,
    /// The paragraph in which it starts.
    pub start_paragraph_id: u32,
    /// Its first character in that paragraph.
    pub start_character: u32,
    /// The paragraph in which it ends.
    pub end_paragraph_id: u32,
    /// The character after its last in that paragraph.
    pub end_character: u32,
}

impl Place {
    /// The place of a passage.
    pub fn of(passage: &Passage) -> Self {
        Self {
            wikipedia_id: Id::Text(passage.page_id.clone()),
            start_paragraph_id: passage.start_paragraph,
            start_character: passage.start_character,
            end_paragraph_id: passage.end_paragraph,
            end_character: passage.end_character,
        }
    }

    /// The place as KILT evidence, without title and section.
    pub fn provenance(&self) -> Provenance {
        Provenance {
            wikipedia_id: Some(self.wikipedia_id.clone()),
            start_paragraph_id: Some(self.start_paragraph_id.into()),
            start_character: Some(self.start_character.into()),
            end_paragraph_id: Some(self.end_paragraph_id.into()),
            end_character: Some(self.end_character.into()),
            ..Provenance::default()
        }
    }

    /// Whether an item of evidence starts in the passage. A whole page starts in none.
    pub fn holds(&self, item: &Provenance) -> bool {
        let number = |id: &Option<Id>| id.as_ref().and_then(Id::number).and_then(|n| u32::try_from(n).ok());
        let Some(paragraph) = number(&item.start_paragraph_id) else { return false };
        let first = (paragraph, number(&item.start_character).unwrap_or(0));
        item.wikipedia_id.as_ref() == Some(&self.wikipedia_id)
            && (self.start_paragraph_id, self.start_character) <= first
            && first < (self.end_paragraph_id, self.end_character)
    }
}

/// A vote as text: a string, a boolean or a number. Blank text is no vote.
fn label<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(text) => Ok(given(&text)),
        value @ (Value::Bool(_) | Value::Number(_)) => Ok(given(&value.to_string())),
        other => Err(de::Error::custom(format!("expected `yes` or `no`, found {other}"))),
    }
}

fn given(text: &str) -> Option<String> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    // Spreadsheets turn some words into their own booleans.
    Some(match text.to_lowercase().as_str() {
        "yes" | "y" | "true" | "1" => "yes".to_owned(),
        "no" | "n" | "false" | "0" => "no".to_owned(),
        other => other.to_owned(),
    })
}

/// The columns of a CSV sheet.
const COLUMNS: [&str; 13] = [
    "id",
    "input",
    "answers",
    "wikipedia_id",
    "title",
    "section",
    "start_paragraph_id",
    "start_character",
    "end_paragraph_id",
    "end_character",
    "text",
    "vote",
    "span",
];
/// Separates answers in a column.
const SEPARATOR: &str = " | ";

/// Whether a file is CSV, by its name: `.csv`, possibly compressed.
fn is_csv(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    name.trim_end_matches(".gz").trim_end_matches(".zst").ends_with(".csv")
}

/// The rows of a sheet with their lines. A file whose name ends in `.csv` is CSV with a header, separated by commas, semicolons or
/// tabs; it is read at once. Other files are JSON lines. Further columns and fields are skipped. Ends after the first error.
///
/// # Errors
/// Those of [`csv::Table::read`]; [`Error::Io`] if the file cannot be opened; [`Error::Record`] for a header without a needed
/// column. An item is [`Error::Record`] for a row with a wrong field or a `span` that is no part of `text`.
pub fn read(path: &Path) -> Result<Box<dyn Iterator<Item = Result<(u64, Row)>>>> {
    let rows: Box<dyn Iterator<Item = Result<(u64, Row)>>> = if is_csv(path) {
        Box::new(rows_of(path, &csv::Table::read(path)?)?.into_iter().map(Ok))
    } else {
        Box::new(jsonl::open(path)?.numbered::<Row>())
    };
    let path = path.to_owned();
    Ok(Box::new(rows.map(move |row| row.and_then(|(line, row)| checked(&path, line, row)))))
}

/// A row whose places and words are possible.
fn checked(path: &Path, line: u64, mut row: Row) -> Result<(u64, Row)> {
    let trimmed =
        |text: Option<String>| text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    row.span = trimmed(row.span);
    row.annotator = trimmed(row.annotator);
    if row.id.text().is_empty() {
        return Err(Error::record(path, line, "id", "expected the id of a record, found an empty one"));
    }
    let Row { start_paragraph_id, start_character, end_paragraph_id, end_character, .. } = row;
    if (start_paragraph_id, start_character) > (end_paragraph_id, end_character) {
        let message = format!(
            "expected an end after the start, character {start_character} of paragraph {start_paragraph_id}; found \
             character {end_character} of paragraph {end_paragraph_id}"
        );
        return Err(Error::record(path, line, "end_character", message));
    }
    if let Some(span) = row.span.as_deref().filter(|span| !row.text.contains(span)) {
        let message = format!("expected words of the field `text`, found `{span}`");
        return Err(Error::record(path, line, "span", message));
    }
    Ok((line, row))
}

/// The rows of a CSV sheet with their lines.
fn rows_of(path: &Path, table: &csv::Table) -> Result<Vec<(u64, Row)>> {
    let column = |name: &str| table.column(name);
    let (id, page, text, vote) = (column("id")?, column("wikipedia_id")?, column("text")?, column("vote")?);
    let (title, section) = (column("title")?, column("section")?);
    let names = ["start_paragraph_id", "start_character", "end_paragraph_id", "end_character"];
    let mut place = [0; 4];
    for (at, name) in names.iter().enumerate() {
        place[at] = column(name)?;
    }
    let [input, answers, annotator, span] =
        ["input", "answers", "annotator", "span"].map(|name| column(name).ok());
    let row = |row: &csv::Row| {
        let cell = |column: usize| row.cell(column).to_owned();
        let optional = |column: Option<usize>| column.map(cell).unwrap_or_default();
        let number = |at: usize| {
            let found = row.cell(place[at]);
            found.trim().parse::<u32>().map_err(|_| {
                let message = format!("expected a whole number, found `{found}`");
                Error::record(path, row.line, names[at], message)
            })
        };
        let answers = optional(answers);
        let answers = answers.split(SEPARATOR).filter(|answer| !answer.is_empty());
        let found = Row {
            id: cell(id).into(),
            input: optional(input),
            answers: answers.map(str::to_owned).collect(),
            wikipedia_id: cell(page).into(),
            start_paragraph_id: number(0)?,
            start_character: number(1)?,
            end_paragraph_id: number(2)?,
            end_character: number(3)?,
            title: cell(title),
            section: cell(section),
            text: cell(text),
            annotator: Some(optional(annotator)),
            vote: given(row.cell(vote)),
            span: Some(optional(span)),
        };
        Ok((row.line, found))
    };
    table.rows().iter().map(row).collect()
}

/// Writes a sheet. It appears when it is complete.
pub struct SheetWriter {
    writer: jsonl::Writer,
    is_csv: bool,
}

impl SheetWriter {
    /// Starts a sheet: CSV if the name ends in `.csv`, else JSON lines; `.gz` and `.zst` compress, `-` is standard output.
    ///
    /// # Errors
    /// As [`jsonl::Writer::create`].
    pub fn create(path: &Path) -> Result<Self> {
        let mut writer = jsonl::Writer::create(path)?;
        let is_csv = is_csv(path);
        if is_csv {
            // Spreadsheets need the mark to read UTF-8.
            writer.bytes(format!("\u{feff}{}", csv::line(&COLUMNS)).as_bytes())?;
        }
        Ok(Self { writer, is_csv })
    }

    /// Writes a row.
    ///
    /// # Errors
    /// [`Error::Io`] if writing fails.
    pub fn row(&mut self, row: &Row) -> Result<()> {
        if !self.is_csv {
            return self.writer.record(row);
        }
        let fields = [
            row.id.text().into_owned(),
            row.input.clone(),
            row.answers.join(SEPARATOR),
            row.wikipedia_id.text().into_owned(),
            row.title.clone(),
            row.section.clone(),
            row.start_paragraph_id.to_string(),
            row.start_character.to_string(),
            row.end_paragraph_id.to_string(),
            row.end_character.to_string(),
            row.text.clone(),
            row.vote.clone().unwrap_or_default(),
            row.span.clone().unwrap_or_default(),
        ];
        self.writer.bytes(csv::line(&fields).as_bytes())
    }

    /// Completes the file and renames it to its path.
    ///
    /// # Errors
    /// [`Error::Io`] if writing fails; then no file appears.
    pub fn finish(self) -> Result<()> {
        self.writer.finish()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A row about characters 0 to 20 of paragraph 1 of a page.
    pub(in crate::annotation) fn row(id: &str, page: &str, vote: Option<&str>) -> Row {
        Row {
            id: id.into(),
            input: "who, \"then\"?\nand now".into(),
            answers: vec!["Oslo".into(), "Bergen".into()],
            wikipedia_id: page.into(),
            start_paragraph_id: 1,
            start_character: 0,
            end_paragraph_id: 1,
            end_character: 20,
            title: "T".into(),
            section: "Section::::Abstract.".into(),
            text: "Oslo, the capital.".into(),
            annotator: None,
            vote: vote.map(str::to_owned),
            span: None,
        }
    }

    #[test]
    fn rows_survive_csv_and_json_lines() {
        let folder = tempfile::tempdir().unwrap();
        let mut rows = vec![row("a", "1", None), row("b", "2", Some("yes")), row("c 1", "3", Some("maybe"))];
        rows[1].span = Some("the capital".into());
        for name in ["s.csv", "s.jsonl", "s.csv.gz"] {
            let path = folder.path().join(name);
            let mut writer = SheetWriter::create(&path).unwrap();
            rows.iter().for_each(|row| writer.row(row).unwrap());
            writer.finish().unwrap();
            let found: Vec<Row> = read(&path).unwrap().map(|row| row.unwrap().1).collect();
            assert_eq!(found, rows, "{name}");
        }
    }

    #[test]
    fn votes_have_one_form() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.jsonl");
        let line = |vote: &str| {
            let mut value = serde_json::to_value(row("a", "1", None)).unwrap();
            value["vote"] = serde_json::from_str(vote).unwrap();
            value.to_string()
        };
        let votes =
            ["true", "1", "\" Yes \"", "\"y\"", "false", "0", "\"NO\"", "\"partly\"", "\" \"", "null"];
        std::fs::write(&path, votes.map(line).join("\n")).unwrap();
        let found: Vec<Option<String>> = read(&path).unwrap().map(|row| row.unwrap().1.vote).collect();
        let found: Vec<&str> = found.iter().map(|vote| vote.as_deref().unwrap_or("-")).collect();
        assert_eq!(found, ["yes", "yes", "yes", "yes", "no", "no", "no", "partly", "-", "-"]);
    }

    #[test]
    fn errors_name_file_line_and_field() {
        let folder = tempfile::tempdir().unwrap();
        let head = COLUMNS.join(",");
        let good = "a,q,x,1,T,S,1,0,1,5,Oslo.,yes,Oslo";
        let cases = [
            ("s.csv", "id,vote\na,yes\n".to_owned(), "s.csv:1: field `wikipedia_id`: expected a column"),
            ("s.csv", String::new(), "expected at least one header"),
            (
                "s.csv",
                format!("{head}\n{good}\na,q\n"),
                "s.csv:3: field `start_paragraph_id`: expected a whole number, found ``",
            ),
            (
                "s.csv",
                format!("{head}\n{}\n", good.replace(",1,0,1,5,", ",1,x,1,5,")),
                "s.csv:2: field `start_character`: expected a whole number, found `x`",
            ),
            (
                "s.csv",
                format!("{head}\n{}\n", good.replace(",1,0,1,5,", ",1,6,1,5,")),
                "s.csv:2: field `end_character`: expected an end after the start",
            ),
            (
                "s.csv",
                format!("{head}\n{good}\n{}\n", good.replace("yes,Oslo", "yes,Bergen")),
                "s.csv:3: field `span`: expected words of the field `text`, found `Bergen`",
            ),
            ("s.csv", format!("{head}\n{}\n", good.replacen('a', " ", 1)), "s.csv:2: field `id`"),
            (
                "s.jsonl",
                r#"{"id": "a", "wikipedia_id": "1"}"#.to_owned(),
                "missing field `start_paragraph_id`",
            ),
            (
                "s.jsonl",
                serde_json::to_string(&row("a", "1", None)).unwrap().replace(":20,", ":\"x\","),
                "s.jsonl:1: field `end_character`: ",
            ),
            (
                "s.jsonl",
                serde_json::to_string(&row("a", "1", Some("v"))).unwrap().replace("\"v\"", "[1]"),
                "expected `yes` or `no`, found [1]",
            ),
        ];
        for (name, text, expected) in cases {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            let error = read(&path).and_then(|mut rows| rows.find_map(Result::err).map_or(Ok(()), Err));
            let message = error.unwrap_err().to_string();
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
    }

    #[test]
    fn a_passage_holds_the_items_that_start_in_it() {
        let place = row("a", "7", None).place();
        let item = |page: &str, paragraph: i64, character: i64| Provenance {
            wikipedia_id: Some(page.into()),
            start_paragraph_id: Some(paragraph.into()),
            start_character: Some(character.into()),
            ..Provenance::default()
        };
        assert!(place.holds(&item("7", 1, 0)) && place.holds(&item(" 7 ", 1, 19)));
        assert!(!place.holds(&item("7", 1, 20)) && !place.holds(&item("7", 2, 0)));
        assert!(!place.holds(&item("8", 1, 0)));
        assert!(!place.holds(&Provenance { wikipedia_id: Some("7".into()), ..Provenance::default() }));
    }
}
