//! Judgements in TREC's or BEIR's format, told apart by BEIR's header.

use std::path::Path;

use super::{Qrel, beir, trec};
use crate::{Result, jsonl};

/// The judgements of a file, with their lines. A file that starts with BEIR's header is BEIR's; any other is TREC's. Ends
/// after the first error.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io) if the file cannot be opened; an item is [`Error::Record`](crate::Error::Record) for a
/// line of another form.
pub fn read(path: &Path) -> Result<impl Iterator<Item = Result<(u64, Qrel)>> + use<>> {
    let reader = jsonl::open(path)?;
    let path = reader.path().to_owned();
    let mut is_beir = None;
    Ok(super::until_error(reader.lines().filter_map(move |line| {
        let (number, line) = match line {
            Ok(line) => line,
            Err(error) => return Some(Err(error)),
        };
        let qrel = match is_beir {
            None => {
                let header = line.trim_end() == beir::QRELS_HEADER;
                is_beir = Some(header);
                if header {
                    return None;
                }
                trec::qrel(&path, number, &line)
            }
            Some(true) => beir::qrel(&path, number, &line),
            Some(false) => trec::qrel(&path, number, &line),
        };
        Some(qrel.map(|qrel| (number, qrel)))
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_tells_the_format() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qrels");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read(&path)?.map(|row| row.map(|(_, qrel)| qrel)).collect::<Result<Vec<_>>>()
        };
        let expected = [Qrel { query: "q".into(), document: "d 1".into(), relevance: -1 }];
        assert_eq!(read("query-id\tcorpus-id\tscore\r\nq\td 1\t-1\r\n").unwrap(), expected);
        assert_eq!(read("\nq 0 d%201 -1\n").unwrap(), expected);
        assert_eq!(read("q\t0\td%201\t-1\n").unwrap(), expected);
        for (text, expected) in [
            ("query-id\tcorpus-id\tscore\nq 0 d 1\n", "qrels:2: field `score`: expected the 3 columns"),
            ("q\td\t1\n", "qrels:1: field `relevance`: expected the 4 columns"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
