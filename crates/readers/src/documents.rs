//! Readers of documents and of Parquet files, each as a source of one file.

use std::{io::Write, sync::Arc};

use parquet::{
    data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type},
    errors::ParquetError,
    file::writer::SerializedFileWriter,
    schema::parser::parse_message_type,
};
use sporran_documents::{Collection, Options, list};
use zip::{ZipWriter, result::ZipResult, write::SimpleFileOptions};

use crate::folders::with_file;

/// The parts of an archive: their names and contents.
type Parts = [(&'static str, &'static str)];

const DOCX: &Parts = &[
    (
        "word/document.xml",
        r#"<w:document xmlns:w="w"><w:body><w:p><w:pPr><w:pStyle w:val="H1"/></w:pPr><w:r><w:t>Tea</w:t></w:r></w:p><w:p><w:r><w:lastRenderedPageBreak/><w:t>It is hot</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r></w:p><w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc></w:tr></w:tbl><w:sectPr/></w:body></w:document>"#,
    ),
    (
        "word/styles.xml",
        r#"<w:styles xmlns:w="w"><w:style w:styleId="H1"><w:name w:val="heading 1"/><w:pPr><w:outlineLvl w:val="0"/></w:pPr></w:style></w:styles>"#,
    ),
    (
        "word/footnotes.xml",
        r#"<w:footnotes xmlns:w="w"><w:footnote w:id="2"><w:p><w:r><w:t>Ninety degrees.</w:t></w:r></w:p></w:footnote></w:footnotes>"#,
    ),
    ("docProps/core.xml", r#"<p xmlns:dc="d"><dc:title>A docx</dc:title><dc:creator>Ann</dc:creator></p>"#),
];

const ODT: &Parts = &[
    (
        "content.xml",
        r#"<o:d xmlns:o="o" xmlns:t="t"><o:body><o:text><t:h t:outline-level="1">Tea</t:h><t:p>It is<t:s t:c="2"/>hot.</t:p><t:soft-page-break/><t:table><t:table-row><t:table-cell><t:p>a</t:p></t:table-cell><t:table-cell><t:p>b</t:p></t:table-cell></t:table-row></t:table></o:text></o:body></o:d>"#,
    ),
    ("meta.xml", r#"<o:m xmlns:o="o" xmlns:dc="d"><dc:title>An odt</dc:title></o:m>"#),
    ("META-INF/manifest.xml", "<manifest/>"),
];

const EPUB: &Parts = &[
    (
        "META-INF/container.xml",
        r#"<container><rootfiles><rootfile full-path="O/p.opf"/></rootfiles></container>"#,
    ),
    (
        "O/p.opf",
        r#"<package xmlns:dc="d"><metadata><dc:title>An epub</dc:title></metadata><manifest><item id="a" href="a%20b.xhtml"/></manifest><spine><itemref idref="a"/></spine></package>"#,
    ),
    (
        "O/a b.xhtml",
        r#"<?xml version="1.0"?><html><body><h1>Tea</h1><p>It is <i>hot</i> &amp; wet.</p></body></html>"#,
    ),
];

/// Reads a file of this name and content as a source.
fn source(name: &str, bytes: &[u8]) {
    with_file(name, bytes, |path| {
        let options = Options { paths: vec![path.to_owned()], ..Options::default() };
        let Ok(listing) = list(&options, &mut |_| {}) else { return };
        let indexes = path.with_extension("indexes");
        let _ = Collection::open_or_build(&listing, &options, false, &indexes, &mut |_| {});
    });
}

fn archive(parts: &[(&str, &[u8])]) -> ZipResult<Vec<u8>> {
    let mut archive = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, content) in parts {
        archive.start_file(*name, SimpleFileOptions::default())?;
        archive.write_all(content)?;
    }
    archive.finish().map(std::io::Cursor::into_inner)
}

/// An archive of `parts`, in which `content` replaces the part of this number.
fn replaced(parts: &Parts, number: u8, content: &[u8]) -> ZipResult<Vec<u8>> {
    let mut contents: Vec<(&str, &[u8])> = parts.iter().map(|(name, own)| (*name, own.as_bytes())).collect();
    let at = usize::from(number) % contents.len();
    contents[at].1 = content;
    archive(&contents)
}

/// The input is an archive, or the number of a part and its content. The checksum of an archive finds most damages of its parts, so
/// that nothing looks at them any further.
fn zipped(name: &str, parts: &Parts, bytes: &[u8]) {
    if bytes.starts_with(b"PK") {
        return source(name, bytes);
    }
    let Some((number, content)) = bytes.split_first() else { return };
    if let Ok(whole) = replaced(parts, *number, content) {
        source(name, &whole);
    }
}

fn zipped_seeds(parts: &Parts) -> Vec<Vec<u8>> {
    let seed = |(at, (_, content)): (u8, &(&str, &str))| [&[at], content.as_bytes()].concat();
    let whole = parts.first().and_then(|(_, first)| replaced(parts, 0, first.as_bytes()).ok());
    (0..).zip(parts).map(seed).chain(whole).collect()
}

pub(crate) fn docx(bytes: &[u8]) {
    zipped("a.docx", DOCX, bytes);
}

pub(crate) fn docx_seeds() -> Vec<Vec<u8>> {
    zipped_seeds(DOCX)
}

pub(crate) fn odt(bytes: &[u8]) {
    zipped("a.odt", ODT, bytes);
}

pub(crate) fn odt_seeds() -> Vec<Vec<u8>> {
    zipped_seeds(ODT)
}

pub(crate) fn epub(bytes: &[u8]) {
    zipped("a.epub", EPUB, bytes);
}

pub(crate) fn epub_seeds() -> Vec<Vec<u8>> {
    zipped_seeds(EPUB)
}

pub(crate) fn html(bytes: &[u8]) {
    source("a.html", bytes);
}

pub(crate) fn markdown(bytes: &[u8]) {
    source("a.md", bytes);
}

pub(crate) fn parquet(bytes: &[u8]) {
    source("a.parquet", bytes);
}

/// A Parquet file of two rows: a name, a year that can be missing, and a time.
fn table() -> Result<Vec<u8>, ParquetError> {
    let schema = "message m { REQUIRED BYTE_ARRAY name (UTF8); OPTIONAL INT32 year; \
                  REQUIRED INT64 seen (TIMESTAMP(NANOS,true)); }";
    let mut bytes = Vec::new();
    let schema = Arc::new(parse_message_type(schema)?);
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::default())?;
    let mut group = writer.next_row_group()?;
    if let Some(mut column) = group.next_column()? {
        let names = ["Ann", "Bob"].map(ByteArray::from);
        column.typed::<ByteArrayType>().write_batch(&names, None, None)?;
        column.close()?;
    }
    if let Some(mut column) = group.next_column()? {
        column.typed::<Int32Type>().write_batch(&[1990], Some(&[1, 0]), None)?;
        column.close()?;
    }
    if let Some(mut column) = group.next_column()? {
        column.typed::<Int64Type>().write_batch(&[1_717_157_045_123_000_000, 0], None, None)?;
        column.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(bytes)
}

pub(crate) fn parquet_seeds() -> Vec<Vec<u8>> {
    table().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_has_a_page() {
        let pages = |name: &str, bytes: &[u8]| {
            let mut pages = 0;
            with_file(name, bytes, |path| {
                let options = Options { paths: vec![path.to_owned()], ..Options::default() };
                let listing = list(&options, &mut |_| {}).unwrap();
                let indexes = path.with_extension("indexes");
                let found =
                    Collection::open_or_build(&listing, &options, true, &indexes, &mut |_| {}).unwrap();
                pages = found.summary().pages;
            });
            pages
        };
        for (name, parts) in [("a.docx", DOCX), ("a.odt", ODT), ("a.epub", EPUB)] {
            let whole = replaced(parts, 0, parts[0].1.as_bytes()).unwrap();
            assert_eq!(pages(name, &whole), 1, "{name}");
            assert_eq!(zipped_seeds(parts).len(), parts.len() + 1);
        }
        assert_eq!(pages("a.parquet", &table().unwrap()), 2);
    }
}
