//! The formats of files.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// The format of a file, by its first bytes and the ending of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Plain text.
    Text,
    /// Markdown, as CommonMark defines it, with tables and footnotes.
    Markdown,
    /// HTML.
    Html,
    /// A table with a header and separators.
    Table,
    /// JSON lines, or a list of JSON objects.
    Json,
    /// PDF.
    Pdf,
    /// docx, odt or epub.
    Zipped,
    /// Parquet.
    Parquet,
}

impl Format {
    /// The format of a file; a message if it is no format that can be read.
    pub(crate) fn of(path: &Path, head: &[u8]) -> Result<Self, String> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let is_compressed = is_compressed(head);
        let inner =
            [".gz", ".zst", ".zstd"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(&name);
        let ending = inner.rsplit_once('.').map_or("", |(_, ending)| ending);
        // Some PDF files have other bytes before their signature.
        if head[..head.len().min(1024)].windows(5).any(|bytes| bytes == b"%PDF-")
            && (ending == "pdf" || head.starts_with(b"%PDF-"))
        {
            return Ok(Self::Pdf);
        }
        if head.starts_with(b"PK\x03\x04") {
            return Ok(Self::Zipped);
        }
        if head.starts_with(b"PAR1") {
            return Ok(Self::Parquet);
        }
        if let Some(what) =
            [("pdf", "PDF"), ("docx", "docx"), ("odt", "odt"), ("epub", "epub"), ("parquet", "Parquet")]
                .iter()
                .find_map(|(known, what)| (ending == *known && !is_compressed).then_some(what))
        {
            return Err(format!(
                "expected the first bytes of a file of {what}, found others: the file is damaged"
            ));
        }
        let signatures: [(&[u8], &str); 3] = [
            (
                b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
                "an encrypted document, or one of Microsoft Office before 2007",
            ),
            (b"{\\rtf", "a file of Rich Text Format"),
            (b"Rar!", "a rar archive"),
        ];
        if let Some((_, what)) = signatures.iter().find(|(magic, _)| head.starts_with(magic)) {
            return Err(format!("expected a format that can be read, found {what}"));
        }
        Ok(match ending {
            "md" | "markdown" | "mdown" | "mkd" => Self::Markdown,
            "html" | "htm" | "xhtml" => Self::Html,
            "csv" | "tsv" | "tab" => Self::Table,
            "jsonl" | "ndjson" | "json" => Self::Json,
            _ if !is_compressed && looks_like_html(head) => Self::Html,
            _ => Self::Text,
        })
    }

    /// Whether its files have a page for each record, which are read one after the other.
    pub(crate) fn has_records(self) -> bool {
        matches!(self, Self::Table | Self::Json | Self::Parquet)
    }
}

/// Whether a file is compressed with gzip or zstd.
pub(crate) fn is_compressed(head: &[u8]) -> bool {
    head.starts_with(&[0x1f, 0x8b]) || head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
}

fn looks_like_html(head: &[u8]) -> bool {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let starts = |tag: &[u8]| text.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag));
    starts(b"<!doctype html") || starts(b"<html")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_and_first_bytes_decide() {
        let of = |name: &str, head: &[u8]| Format::of(Path::new(name), head);
        assert_eq!(of("a/README.MD", b"# x"), Ok(Format::Markdown));
        assert_eq!(of("t.csv.gz", &[0x1f, 0x8b]), Ok(Format::Table));
        assert_eq!(of("notes", b"x"), Ok(Format::Text));
        assert_eq!(of("page.php", b"\n<!DOCTYPE HTML>"), Ok(Format::Html));
        assert!(of("x.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1").unwrap_err().contains("encrypted"));
    }
}
