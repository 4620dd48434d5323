//! Queries as BEIR's `queries.jsonl` or as lines of `id TAB text`, told apart by the first character of a line.

use std::path::Path;

use super::{anserini::Topic, beir};
use crate::{Error, Result, jsonl};

/// The queries of a file, with their lines. Ends after the first error.
///
/// # Errors
/// [`Error::Io`] if the file cannot be opened; an item is [`Error::Record`] for a line of another form, and for a blank id
/// or text.
pub fn read(path: &Path) -> Result<impl Iterator<Item = Result<(u64, Topic)>> + use<>> {
    let reader = jsonl::open(path)?;
    let path = reader.file();
    Ok(super::until_error(reader.lines().map(move |line| {
        let (number, line) = line?;
        let (topic, id) = if line.trim_start().starts_with('{') {
            let query: beir::Query = jsonl::parse(&path, number, line.as_bytes())?;
            (Topic { id: query.id.text().into_owned(), text: query.text }, "_id")
        } else {
            let Some((id, text)) = line.split_once('\t') else {
                let message = "expected `id TAB query` or BEIR's JSON, found one column";
                return Err(Error::record(&path, number, "text", message));
            };
            (Topic { id: id.trim().to_owned(), text: text.to_owned() }, "id")
        };
        for (name, value) in [(id, &topic.id), ("text", &topic.text)] {
            if value.trim().is_empty() {
                return Err(Error::record(&path, number, name, "expected text, found none"));
            }
        }
        Ok((number, topic))
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_errors_name_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queries");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read(&path)?.map(|row| row.map(|(_, topic)| (topic.id, topic.text))).collect::<Result<Vec<_>>>()
        };
        let expected = [("q é 1".to_owned(), "who?".to_owned())];
        assert_eq!(read("\n{\"_id\":\"q é 1\",\"text\":\"who?\",\"metadata\":{}}\n").unwrap(), expected);
        assert_eq!(read("q é 1\twho?\r\n").unwrap(), expected);
        for (text, expected) in [
            ("1\ta\nwho?\n", "queries:2: field `text`: expected `id TAB query`"),
            ("1\t \n", "queries:1: field `text`: expected text"),
            ("{\"_id\":\"\",\"text\":\"a\"}", "queries:1: field `_id`: expected text"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
