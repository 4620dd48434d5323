//! Rows of tables and JSON objects as pages.

use serde_json::{Map, Value};
use sporran_kilt::{
    Page,
    formats::{Document as Passage, anserini, beir, passages},
    jsonl::plain_json,
};

use crate::{
    Columns, SourceFile,
    document::{page, shortened},
};

/// The longest value that is metadata of a row without `[source.columns]`, in bytes.
const LONGEST_VALUE: usize = 256;

/// The most digits of a decimal number, with its point.
const MOST_DIGITS: usize = 16;

/// A row of a table, or an object of JSON lines.
pub(crate) struct Row {
    /// Its number, from 1.
    pub(crate) number: u64,
    /// The line on which it starts, from 1; `None` for a file without lines.
    pub(crate) line: Option<u64>,
    /// Whether its values have types, as those of JSON have. Cells of tables have none.
    pub(crate) has_types: bool,
    pub(crate) fields: Map<String, Value>,
}

/// A page of a record.
pub(crate) struct RecordPage {
    pub(crate) page: Page,
    pub(crate) id: IdOf,
}

/// What the id of a page names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdOf {
    /// The file and the number of the record; no other page has it.
    Place,
    /// A record of the whole source. A second record with it is the same one.
    Source,
    /// A record of its file, whose number this is, from 1. A record of another file can have it.
    Row(u64),
}

/// A cell as a value: a number if it is written as JSON would write it, else a string.
pub(crate) fn value_of(text: &str) -> Value {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let number = is_number.then(|| serde_json::from_str::<serde_json::Number>(text).ok()).flatten();
    number.filter(|number| number.to_string() == text).map_or_else(|| text.into(), Value::Number)
}

/// A text as metadata: a number if it is one in decimals, such as `1.50`, else as [`value_of`] it. A code such as `007` is none.
pub(crate) fn metadata_of(text: &str) -> Value {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let decimals = digits.split_once('.').filter(|(whole, fraction)| {
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        is_number(whole) && is_number(fraction) && (*whole == "0" || !whole.starts_with('0'))
    });
    // More digits than a double has would be changed.
    let number = decimals.filter(|_| digits.len() <= MOST_DIGITS).and_then(|_| text.parse().ok());
    number.map_or_else(|| value_of(text), |number: f64| number.into())
}

/// Makes numbers of the cells of a table that are metadata, as [`metadata_of`] does.
fn type_cells(metadata: &mut Map<String, Value>) {
    for value in metadata.values_mut() {
        if let Value::String(text) = value {
            *value = metadata_of(text);
        }
    }
}

/// A value as text.
fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text_of).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// The paragraphs of a value.
fn paragraphs(value: &Value) -> Vec<String> {
    let texts = match value {
        Value::Array(items) if items.iter().all(Value::is_string) => items.iter().map(text_of).collect(),
        other => vec![text_of(other)],
    };
    texts.into_iter().filter(|text| !text.trim().is_empty()).collect()
}

impl Row {
    /// Its place in the file, as a field of its page: its line, or else its number.
    fn place(&self) -> (&'static str, u64) {
        self.line.map_or(("row", self.number), |line| ("line", line))
    }

    /// The number by which messages name it.
    pub(crate) fn shown_number(&self) -> u64 {
        self.place().1
    }

    /// The page of a row; `None` if it has no text.
    ///
    /// # Errors
    /// A message if the row lacks a column of `columns`, or if it is not what its layout expects.
    pub(crate) fn into_page(
        self,
        columns: Option<&Columns>,
        file: &SourceFile,
    ) -> Result<Option<RecordPage>, String> {
        match columns {
            Some(columns) => self.mapped(columns, file),
            None => self.known(file),
        }
    }

    /// The page of a row with `[source.columns]`.
    fn mapped(self, columns: &Columns, file: &SourceFile) -> Result<Option<RecordPage>, String> {
        let Columns { id, title, text, metadata } = columns;
        let value = |name: &String| {
            self.fields.get(name).ok_or_else(|| {
                let found: Vec<&str> = self.fields.keys().map(String::as_str).collect();
                format!("expected a column `{name}`, found {}", found.join(", "))
            })
        };
        let one = |name: &Option<String>| {
            let text = name.as_ref().map(|name| value(name).map(text_of)).transpose()?;
            Ok::<_, String>(text.filter(|text| !text.trim().is_empty()))
        };
        let (id, title) = (one(id)?, one(title)?);
        let texts = match text {
            None => self.name_values(|key| {
                columns.id.as_deref() != Some(key) && columns.title.as_deref() != Some(key)
            }),
            Some(names) => {
                let found: Result<Vec<_>, _> =
                    names.all().iter().map(|name| value(name).map(paragraphs)).collect();
                found?.concat()
            }
        };
        let mut fields = Map::new();
        for name in metadata.iter().flat_map(|names| names.all()) {
            fields.insert(name.clone(), value(name)?.clone());
        }
        Ok(self.build(id, title, texts, fields, file))
    }

    /// Every column as `name: value`, as one paragraph.
    fn name_values(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let fields = self.fields.iter().filter(|(key, _)| wanted(key));
        let lines =
            fields.map(|(key, value)| (key, text_of(value))).filter(|(_, text)| !text.trim().is_empty());
        let lines: Vec<String> = lines.map(|(key, text)| format!("{key}: {text}")).collect();
        if lines.is_empty() { lines } else { vec![lines.join("\n")] }
    }

    fn build(
        self,
        id: Option<String>,
        title: Option<String>,
        texts: Vec<String>,
        mut metadata: Map<String, Value>,
        file: &SourceFile,
    ) -> Option<RecordPage> {
        if texts.is_empty() {
            return None;
        }
        if !self.has_types {
            type_cells(&mut metadata);
        }
        let (id_of, place) = (if id.is_some() { IdOf::Source } else { IdOf::Place }, self.place());
        let id = id.map_or_else(|| format!("{}#{}", file.id, self.number), |id| id.trim().to_owned());
        let title =
            title.map_or_else(|| format!("{} {}", file.stem(), self.number), |title| shortened(title.trim()));
        let mut text = vec![title.clone()];
        text.extend(texts);
        let mut found = page(id, title, text, Map::new());
        if !metadata.is_empty() {
            found.extra.insert("metadata".to_owned(), metadata.into());
        }
        Some(RecordPage { page: placed(found, place, file), id: id_of })
    }

    /// The page of a row in one of the layouts that `convert files` reads, whose other columns are metadata, or else of all columns.
    fn known(self, file: &SourceFile) -> Result<Option<RecordPage>, String> {
        let is = |key: &str, kind: fn(&Value) -> bool| self.fields.get(key).is_some_and(kind);
        let is_id = |value: &Value| value.is_string() || value.is_number();
        let (place, wrong) = (self.place(), |error: serde_json::Error| plain_json(&error.to_string()));
        let (has_types, mut id) = (self.has_types, IdOf::Row(self.number));
        let mut passage: Passage =
            if is("wikipedia_id", |_| true) && is("wikipedia_title", |_| true) && is("text", Value::is_array)
            {
                let mut page: Page = serde_json::from_value(self.fields.into()).map_err(wrong)?;
                page.extra.insert("source".to_owned(), file.source.as_str().into());
                return Ok(Some(RecordPage { page, id: IdOf::Source }));
            } else if is("_id", is_id) && is("text", Value::is_string) {
                id = IdOf::Source;
                serde_json::from_value::<beir::Document>(self.fields.into()).map_err(wrong)?.into()
            } else if is("id", is_id) && is("text", Value::is_string) {
                serde_json::from_value::<passages::Passage>(self.fields.into()).map_err(wrong)?.into()
            } else if is("id", is_id) && is("contents", Value::is_string) {
                serde_json::from_value::<anserini::Document>(self.fields.into()).map_err(wrong)?.into()
            } else {
                let texts = self.name_values(|_| true);
                let short = |value: &Value| match value {
                    Value::String(text) => !text.trim().is_empty() && text.len() <= LONGEST_VALUE,
                    Value::Object(_) | Value::Null => false,
                    _ => true,
                };
                let metadata = self.fields.iter().filter(|(_, value)| short(value));
                let metadata = metadata.map(|(key, value)| (key.clone(), value.clone())).collect();
                let title =
                    ["title", "Title", "name", "Name"].iter().find_map(|key| self.fields.get(*key)?.as_str());
                let title = title.filter(|title| !title.trim().is_empty()).map(str::to_owned);
                return Ok(self.build(None, title, texts, metadata, file));
            };
        if passage.text.trim().is_empty() {
            return Ok(None);
        }
        if !has_types {
            type_cells(&mut passage.metadata);
        }
        let mut page = passage.into_page();
        if page.wikipedia_title.trim().is_empty() {
            page.wikipedia_title = page.wikipedia_id.text().into_owned();
            page.text[0].clone_from(&page.wikipedia_title);
        }
        Ok(Some(RecordPage { page: placed(page, place, file), id }))
    }
}

/// The page with its place. A record that names a file has the place that it names.
fn placed(mut page: Page, (key, number): (&str, u64), file: &SourceFile) -> Page {
    let metadata = page.extra.get("metadata");
    let names = |key: &str| metadata.and_then(|fields| fields.get(key)).is_some_and(Value::is_string);
    let (names_file, names_section) = (names("file"), names("section"));
    if !names_file && !names_section {
        page.extra.insert("section".to_owned(), "".into());
    }
    if !names_file {
        page.extra.insert("file".to_owned(), file.file.as_str().into());
        page.extra.insert(key.to_owned(), number.into());
    }
    page.extra.insert("source".to_owned(), file.source.as_str().into());
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OneOrMore;

    fn of(fields: &str, columns: Option<&Columns>) -> Result<Option<RecordPage>, String> {
        let fields = serde_json::from_str(fields).unwrap();
        Row { number: 3, line: Some(5), has_types: true, fields }
            .into_page(columns, &SourceFile::named("data/people.csv"))
    }

    fn json(found: &RecordPage) -> String {
        serde_json::to_string(&found.page).unwrap()
    }

    #[test]
    fn columns_are_mapped_or_written_with_their_names() {
        let row = r#"{"Id":7,"Name":"Ann","Bio":"She sings.","Notes":["a","b"],"Year":1990}"#;
        let columns = Columns {
            id: Some("Id".into()),
            title: Some("Name".into()),
            text: Some(OneOrMore::from(vec!["Bio".to_owned(), "Notes".to_owned()])),
            metadata: Some("Year".into()),
        };
        let found = of(row, Some(&columns)).unwrap().unwrap();
        let expected = r#"{"wikipedia_id":"7","wikipedia_title":"Ann","text":["Ann","She sings.","a","b"],"metadata":{"Year":1990},"section":"","file":"data/people.csv","line":5,"source":"data/people.csv"}"#;
        assert_eq!((json(&found).as_str(), found.id), (expected, IdOf::Source));
        let found = of(row, None).unwrap().unwrap();
        let text = ["Ann", "Id: 7\nName: Ann\nBio: She sings.\nNotes: a, b\nYear: 1990"];
        assert_eq!((found.page.text[1].as_str(), found.id), (text[1], IdOf::Place));
        assert_eq!(
            (found.page.wikipedia_id.text().as_ref(), found.page.wikipedia_title.as_str()),
            ("data/people.csv#3", "Ann")
        );
        let missing = of(r#"{"Id":1,"Name":"x"}"#, Some(&columns)).err().unwrap();
        assert_eq!(missing, "expected a column `Bio`, found Id, Name");
        assert!(
            of(r#"{"Id":1,"Name":"x","Bio":" ","Notes":null,"Year":1}"#, Some(&columns)).unwrap().is_none()
        );
    }

    #[test]
    fn a_file_without_lines_has_rows() {
        for fields in [r#"{"Name":"Ann"}"#, r#"{"id":1,"text":"Ann"}"#] {
            let row =
                Row { number: 3, line: None, has_types: true, fields: serde_json::from_str(fields).unwrap() };
            let page = row.into_page(None, &SourceFile::named("people.parquet")).unwrap().unwrap().page;
            assert!(page.extra["row"] == 3 && !page.extra.contains_key("line"), "{fields}");
        }
    }

    #[test]
    fn known_layouts_keep_their_ids_and_places() {
        let found = of(
            r#"{"id":"a:1","text":"It is hot.","title":"Tea","file":"tea.md","line":12,"lang":"en"}"#,
            None,
        );
        let page = found.unwrap().unwrap().page;
        assert_eq!((page.wikipedia_id.text().as_ref(), page.text.len()), ("a:1", 2));
        assert!(page.extra.get("file").is_none() && page.extra["metadata"]["line"] == 12);
        for (row, title, id) in [
            (r#"{"_id":"1","title":"Tea","text":"x"}"#, "Tea", IdOf::Source),
            (r#"{"_id":"1","text":"x"}"#, "1", IdOf::Source),
            (r#"{"id":"1","text":"x"}"#, "1", IdOf::Row(3)),
            (r#"{"id":"1","contents":"Tea\nx"}"#, "Tea", IdOf::Row(3)),
            (r#"{"wikipedia_id":"1","wikipedia_title":"Tea","text":["Tea\n","x"]}"#, "Tea", IdOf::Source),
        ] {
            let found = of(row, None).unwrap().unwrap();
            assert_eq!((found.page.wikipedia_title.as_str(), found.id), (title, id), "{row}");
            assert_eq!(found.page.text[1], "x");
        }
    }

    #[test]
    fn other_columns_of_known_layouts_are_metadata() {
        let rows = [
            r#"{"id":"1","text":"Tea.","lang":"en","price":"1.50","code":"007"}"#,
            r#"{"_id":"1","text":"Tea.","lang":"en","metadata":{"price":"1.50","code":"007"}}"#,
            r#"{"id":"1","contents":"Tea.","lang":"en","price":"1.50","code":"007"}"#,
        ];
        for (row, has_types) in rows.into_iter().flat_map(|row| [(row, true), (row, false)]) {
            let fields = serde_json::from_str(row).unwrap();
            let row = Row { number: 1, line: Some(2), has_types, fields };
            let page = row.into_page(None, &SourceFile::named("a.csv")).unwrap().unwrap().page;
            let metadata = &page.extra["metadata"];
            assert!(metadata["lang"] == "en" && metadata["code"] == "007", "{metadata}");
            let price: Value = if has_types { "1.50".into() } else { 1.5.into() };
            assert_eq!((metadata["price"].clone(), page.text[1].as_str()), (price, "Tea."));
        }
    }

    #[test]
    fn cells_are_numbers_if_they_are_written_like_numbers() {
        for text in ["7", "-2", "1.5"] {
            assert!(value_of(text).is_number(), "{text}");
        }
        for text in ["007", "1.50", "+1", "1e3x", "", "-", "2024-05-01"] {
            assert!(value_of(text).is_string(), "{text}");
        }
        assert_eq!(metadata_of("1.50"), 1.5);
        assert_eq!(metadata_of("-0.10"), -0.1);
        for text in ["007.5", "007", "1.", ".5", "1.5.2", "12345678901234.5678", "+1.0"] {
            assert!(metadata_of(text).is_string(), "{text}");
        }
    }
}
