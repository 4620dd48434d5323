//! Files of each format with known content.

use std::io::{Cursor, Write};

/// A zip archive of files.
pub(crate) fn zip(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        archive.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(content.as_bytes()).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

/// A PDF file of Helvetica, with the lines of each page as `(size, text)`.
pub(crate) fn pdf(pages: &[&[(u32, &str)]]) -> Vec<u8> {
    let mut objects = vec![String::new(), String::new()];
    objects.push("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".into());
    objects.push("<< /Title (A \\(short\\) title) /Author (Ann) /CreationDate (D:20240531120000Z) >>".into());
    let mut kids = Vec::new();
    for lines in pages {
        let mut content = String::from("BT\n72 720 Td\n");
        for (size, text) in *lines {
            let text = text.replace('\\', "\\\\").replace('(', "\\(").replace(')', "\\)");
            match text.is_empty() {
                true => content.push_str("0 -30 Td\n"),
                false => content.push_str(&format!("/F1 {size} Tf\n({text}) Tj\n0 -{} Td\n", size + 2)),
            }
        }
        content.push_str("ET");
        let number = objects.len() + 1;
        objects.push(format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {} 0 R /Resources << /Font << /F1 3 0 R >> >> >>",
            number + 1
        ));
        objects.push(format!("<< /Length {} >>\nstream\n{content}\nendstream", content.len()));
        kids.push(format!("{number} 0 R"));
    }
    objects[0] = "<< /Type /Catalog /Pages 2 0 R >>".into();
    objects[1] = format!("<< /Type /Pages /Count {} /Kids [{}] >>", kids.len(), kids.join(" "));
    let mut file = b"%PDF-1.4\n".to_vec();
    let mut starts = Vec::new();
    for (at, object) in objects.iter().enumerate() {
        starts.push(file.len());
        file.extend(format!("{} 0 obj\n{object}\nendobj\n", at + 1).bytes());
    }
    let table = file.len();
    file.extend(format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1).bytes());
    starts.iter().for_each(|start| file.extend(format!("{start:010} 00000 n \n").bytes()));
    let end = format!(
        "trailer\n<< /Size {} /Root 1 0 R /Info 4 0 R >>\nstartxref\n{table}\n%%EOF\n",
        objects.len() + 1
    );
    file.extend(end.bytes());
    file
}

/// A docx file of headings and paragraphs: `(level, text)`, where level 0 is a paragraph. A form feed is the break of a page.
pub(crate) fn docx(blocks: &[(u8, &str)]) -> Vec<u8> {
    let paragraph = |(level, text): &(u8, &str)| {
        let style = match level {
            0 => String::new(),
            level => format!("<w:pPr><w:pStyle w:val=\"H{level}\"/></w:pPr>"),
        };
        let (page, text) = match text.strip_prefix('\u{c}') {
            Some(text) => ("<w:lastRenderedPageBreak/>", text),
            None => ("", *text),
        };
        let (first, second) = text.split_at(text.len() / 2);
        format!(
            "<w:p>{style}<w:r>{page}<w:t>{first}</w:t></w:r><w:r><w:t xml:space=\"preserve\">{second}</w:t></w:r></w:p>"
        )
    };
    let body: String = blocks.iter().map(paragraph).collect();
    let names = "xmlns:w=\"http://schemas.openxmlformats.org/wordprocessingml/2006/main\"";
    let styles: String = (1..4)
        .map(|level| format!("<w:style w:styleId=\"H{level}\"><w:name w:val=\"heading {level}\"/></w:style>"))
        .collect();
    zip(&[
        ("[Content_Types].xml", "<Types/>"),
        (
            "word/document.xml",
            &format!("<w:document {names}><w:body>{body}<w:sectPr/></w:body></w:document>"),
        ),
        ("word/styles.xml", &format!("<w:styles {names}>{styles}</w:styles>")),
        (
            "docProps/core.xml",
            "<p xmlns:dc=\"d\" xmlns:dcterms=\"t\"><dc:title>A docx</dc:title><dc:creator>Ann</dc:creator><dcterms:created>2024-05-31T12:00:00Z</dcterms:created></p>",
        ),
    ])
}

/// An odt file of headings and paragraphs, as [`docx`].
pub(crate) fn odt(blocks: &[(u8, &str)]) -> Vec<u8> {
    let paragraph = |(level, text): &(u8, &str)| {
        let (page, text) = match text.strip_prefix('\u{c}') {
            Some(text) => ("<text:soft-page-break/>", text),
            None => ("", *text),
        };
        match level {
            0 => format!("<text:p>{page}{}</text:p>", text.replace("  ", "<text:s text:c=\"2\"/>")),
            level => {
                format!("<text:h text:outline-level=\"{level}\">{page}<text:span>{text}</text:span></text:h>")
            }
        }
    };
    let body: String = blocks.iter().map(paragraph).collect();
    let names = "xmlns:office=\"o\" xmlns:text=\"t\" xmlns:dc=\"d\" xmlns:meta=\"m\"";
    zip(&[
        ("mimetype", "application/vnd.oasis.opendocument.text"),
        (
            "content.xml",
            &format!(
                "<office:document-content {names}><office:body><office:text>{body}</office:text></office:body></office:document-content>"
            ),
        ),
        (
            "meta.xml",
            &format!(
                "<office:document-meta {names}><dc:title>An odt</dc:title><meta:initial-creator>Ann</meta:initial-creator></office:document-meta>"
            ),
        ),
    ])
}

/// An epub of chapters in XHTML.
pub(crate) fn epub(chapters: &[&str]) -> Vec<u8> {
    let names: Vec<String> = (0..chapters.len()).map(|at| format!("OEBPS/text/c {at}.xhtml")).collect();
    let items: String = (0..chapters.len())
        .map(|at| {
            format!("<item id=\"c{at}\" href=\"text/c%20{at}.xhtml\" media-type=\"application/xhtml+xml\"/>")
        })
        .collect();
    let spine: String = (0..chapters.len()).map(|at| format!("<itemref idref=\"c{at}\"/>")).collect();
    let package = format!(
        "<package xmlns=\"http://www.idpf.org/2007/opf\" xmlns:dc=\"d\"><metadata><dc:title>An epub</dc:title><dc:language>en</dc:language></metadata><manifest>{items}</manifest><spine>{spine}</spine></package>"
    );
    let bodies: Vec<String> = chapters
        .iter()
        .map(|chapter| {
            format!("<?xml version=\"1.0\"?><html><head><title>c</title></head><body>{chapter}</body></html>")
        })
        .collect();
    let mut files = vec![
        ("mimetype", "application/epub+zip"),
        (
            "META-INF/container.xml",
            "<container><rootfiles><rootfile full-path=\"OEBPS/content.opf\"/></rootfiles></container>",
        ),
        ("OEBPS/content.opf", &package),
    ];
    files.extend(names.iter().map(String::as_str).zip(bodies.iter().map(String::as_str)));
    zip(&files)
}
