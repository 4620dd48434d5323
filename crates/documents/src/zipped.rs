//! Documents that are zip archives of XML: docx, odt and epub.

use std::{
    collections::BTreeMap,
    io::{Cursor, Read},
};

use roxmltree::{Document as Xml, Node, ParsingOptions};
use zip::ZipArchive;

use crate::{
    Block, Document,
    flow::{Flow, table},
    html,
};

/// The largest part of an archive, in bytes after decompression.
const LARGEST: u64 = 256 << 20;
/// The most nodes of an XML file, which take memory.
const NODES: u32 = 20_000_000;
/// The most elements within one another. Readers recurse into them, and writers make some dozens.
const DEPTH: usize = 1_000;

type Archive = ZipArchive<Cursor<Vec<u8>>>;

/// The structure of a zip archive.
///
/// # Errors
/// A message for a damaged archive and for one that is none of these formats.
pub(crate) fn read(bytes: Vec<u8>) -> Result<Document, String> {
    let mut archive = ZipArchive::new(Cursor::new(bytes))
        .map_err(|error| format!("the zip archive is damaged: {error}"))?;
    let has = |archive: &Archive, name: &str| archive.index_for_name(name).is_some();
    if has(&archive, "word/document.xml") {
        docx(&mut archive)
    } else if has(&archive, "META-INF/container.xml") && !has(&archive, "content.xml") {
        epub(&mut archive)
    } else if has(&archive, "content.xml") {
        odt(&mut archive)
    } else {
        Err("expected docx, odt or epub, found another zip archive".to_owned())
    }
}

/// A file of the archive as text; `None` if there is none of that name.
fn part(archive: &mut Archive, name: &str) -> Result<Option<String>, String> {
    let Some(index) = archive.index_for_name(name) else { return Ok(None) };
    let failed = |error: &dyn std::fmt::Display| format!("{name} in the archive cannot be read: {error}");
    let file = archive.by_index(index).map_err(|error| failed(&error))?;
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    if bytes.len() as u64 > LARGEST {
        return Err(failed(&format!("expected at most {} MiB, found more", LARGEST >> 20)));
    }
    crate::encoding::decode(&bytes, None).map(|decoded| Some(decoded.text)).map_err(|error| failed(&error))
}

fn xml<'x>(name: &str, text: &'x str) -> Result<Xml<'x>, String> {
    let options = ParsingOptions { nodes_limit: NODES, ..ParsingOptions::default() };
    let xml = Xml::parse_with_options(text, options)
        .map_err(|error| format!("{name} in the archive is damaged: {error}"))?;
    match is_deep(&xml) {
        true => Err(format!("{name} in the archive has elements within more than {DEPTH} others")),
        false => Ok(xml),
    }
}

/// Whether an element is within more than [`DEPTH`] others.
fn is_deep(xml: &Xml<'_>) -> bool {
    let (mut node, mut depth) = (xml.root(), 0);
    loop {
        if let Some(child) = node.first_child() {
            (node, depth) = (child, depth + 1);
            if depth > DEPTH {
                return true;
            }
            continue;
        }
        loop {
            if let Some(next) = node.next_sibling() {
                node = next;
                break;
            }
            let Some(parent) = node.parent() else { return false };
            (node, depth) = (parent, depth - 1);
        }
    }
}

/// The nearest elements of a name inside of `node`, in order: not those inside of one another.
fn nearest<'n, 'x>(node: Node<'n, 'x>, name: &str, found: &mut Vec<Node<'n, 'x>>) {
    for child in node.children().filter(Node::is_element) {
        if is(child, name) {
            found.push(child);
        } else {
            nearest(child, name, found);
        }
    }
}

fn is(node: Node<'_, '_>, name: &str) -> bool {
    node.is_element() && node.tag_name().name() == name
}

/// The value of an attribute in any namespace.
fn attribute<'n>(node: Node<'n, '_>, name: &str) -> Option<&'n str> {
    node.attributes().find(|attribute| attribute.name() == name).map(|attribute| attribute.value())
}

/// Reads the properties of a document, as Dublin Core names them.
fn properties(text: Option<String>, document: &mut Document) {
    let Some(text) = text else { return };
    let Ok(xml) = xml("the properties", &text) else { return };
    for node in xml.descendants().filter(Node::is_element) {
        let Some(text) = node.text() else { continue };
        match node.tag_name().name() {
            "title" if document.title.is_none() => {
                document.title = Some(text.trim().to_owned()).filter(|title| !title.is_empty());
            }
            "creator" | "initial-creator" => document.describe("author", text),
            "created" | "creation-date" | "date" => document.describe("date", text),
            name @ ("language" | "subject" | "description" | "publisher") => document.describe(name, text),
            _ => {}
        }
    }
}

fn docx(archive: &mut Archive) -> Result<Document, String> {
    const NAME: &str = "word/document.xml";
    let mut document = Document::default();
    properties(part(archive, "docProps/core.xml")?, &mut document);
    let styles = part(archive, "word/styles.xml")?.unwrap_or_default();
    let levels = heading_styles(&styles);
    let mut notes = BTreeMap::new();
    for (name, kind) in [("word/footnotes.xml", "footnote"), ("word/endnotes.xml", "endnote")] {
        match part(archive, name).and_then(|text| notes_of(name, kind, &text.unwrap_or_default())) {
            Ok(found) => notes.extend(found),
            Err(message) => document.missing.push(message),
        }
    }
    let text = part(archive, NAME)?.unwrap_or_default();
    let xml = xml(NAME, &text)?;
    // Word writes the breaks of its last layout. Without them the pages are unknown.
    let is_laid_out = xml.descendants().any(|node| is(node, "lastRenderedPageBreak"));
    let mut reader = Docx { document, flow: Flow::default(), levels, notes, page: u32::from(is_laid_out) };
    if let Some(body) = xml.descendants().find(|&node| is(node, "body")) {
        reader.children(body);
    }
    Ok(reader.document)
}

/// The ids of the styles of headings with their levels.
fn heading_styles(text: &str) -> Vec<(String, u8)> {
    let Ok(xml) = xml("word/styles.xml", text) else { return Vec::new() };
    let styles = xml.descendants().filter(|&node| is(node, "style"));
    let level = |style: Node<'_, '_>| {
        let outline = style.descendants().find(|&node| is(node, "outlineLvl"));
        let outline =
            outline.and_then(|node| attribute(node, "val")?.parse::<u8>().ok()).filter(|&level| level < 9);
        let name = style.children().find(|&node| is(node, "name")).and_then(|node| attribute(node, "val"));
        let name = name.unwrap_or_default().to_ascii_lowercase();
        let named = name.strip_prefix("heading ").and_then(|level| level.parse().ok());
        let level = outline.map(|level| level + 1).or(named).or((name == "title").then_some(1))?;
        Some((attribute(style, "styleId")?.to_owned(), level))
    };
    styles.filter_map(level).collect()
}

/// The texts of notes, by the kind and the id that their references have.
type Notes = BTreeMap<(&'static str, String), String>;

/// The notes of a file of docx, without the lines that separate notes from text.
fn notes_of(name: &str, kind: &'static str, text: &str) -> Result<Notes, String> {
    let mut notes = Notes::new();
    if text.is_empty() {
        return Ok(notes);
    }
    let xml = xml(name, text)?;
    for note in xml.descendants().filter(|&node| is(node, kind)) {
        let is_text = attribute(note, "type").is_none_or(|kind| kind == "normal");
        let Some(id) = attribute(note, "id").filter(|_| is_text) else { continue };
        let paragraph = |node: Node<'_, '_>| -> String {
            node.descendants().filter(|&node| is(node, "t")).filter_map(|node| node.text()).collect()
        };
        let paragraphs: Vec<String> =
            note.descendants().filter(|&node| is(node, "p")).map(paragraph).collect();
        notes.insert((kind, id.to_owned()), paragraphs.join(" ").trim().to_owned());
    }
    Ok(notes)
}

struct Docx {
    document: Document,
    flow: Flow,
    levels: Vec<(String, u8)>,
    notes: Notes,
    page: u32,
}

impl Docx {
    fn children(&mut self, node: Node<'_, '_>) {
        for child in node.children().filter(Node::is_element) {
            match child.tag_name().name() {
                "p" => {
                    self.inline(child);
                    let level = self.level(child);
                    self.document.blocks.extend(self.flow.finish(level));
                }
                "tbl" => {
                    let (mut all, mut rows) = (Vec::new(), Vec::new());
                    nearest(child, "tr", &mut all);
                    for row in all {
                        self.row(row);
                        rows.extend(self.flow.finish(0));
                    }
                    self.document.blocks.extend(table(rows));
                }
                "sectPr" => {}
                _ => self.children(child),
            }
        }
    }

    /// The cells of a row. A table in a cell is part of its text.
    fn row(&mut self, row: Node<'_, '_>) {
        let mut cells = Vec::new();
        // A cell can be inside of a content control.
        nearest(row, "tc", &mut cells);
        for (at, cell) in cells.into_iter().enumerate() {
            if at > 0 {
                self.flow.push(" | ", 0, 0);
            }
            self.inline(cell);
            self.flow.space();
        }
    }

    /// The level of a paragraph's style; 0 for a text.
    fn level(&self, paragraph: Node<'_, '_>) -> u8 {
        let properties = paragraph.children().find(|&node| is(node, "pPr"));
        let Some(properties) = properties else { return 0 };
        let of = |name: &str| {
            properties.children().find(|&node| is(node, name)).and_then(|node| attribute(node, "val"))
        };
        if let Some(level) =
            of("outlineLvl").and_then(|level| level.parse::<u8>().ok()).filter(|&level| level < 9)
        {
            return level + 1;
        }
        let style = of("pStyle").unwrap_or_default();
        let known = self.levels.iter().find(|(id, _)| id == style).map(|(_, level)| *level);
        known.or_else(|| style.strip_prefix("Heading")?.parse().ok()).unwrap_or(0)
    }

    fn inline(&mut self, node: Node<'_, '_>) {
        for child in node.children().filter(Node::is_element) {
            match child.tag_name().name() {
                "t" => self.flow.push(child.text().unwrap_or_default(), 0, self.page),
                "tab" | "br" | "cr" => self.flow.space(),
                name @ ("footnoteReference" | "endnoteReference") => {
                    let kind = if name.starts_with('f') { "footnote" } else { "endnote" };
                    let id = attribute(child, "id").unwrap_or_default().to_owned();
                    if let Some(note) = self.notes.get(&(kind, id)) {
                        self.flow.space();
                        self.flow.push(note, 0, self.page);
                        self.flow.space();
                    }
                }
                "noBreakHyphen" => self.flow.push("-", 0, self.page),
                // In a cell or in a text box.
                "p" => {
                    self.flow.space();
                    self.inline(child);
                    self.flow.space();
                }
                "tr" => {
                    self.flow.space();
                    self.row(child);
                }
                "lastRenderedPageBreak" => self.page += 1,
                // Properties, deleted text, and the other of two forms of the same content.
                "pPr" | "rPr" | "del" | "moveFrom" | "Fallback" => {}
                _ => self.inline(child),
            }
        }
    }
}

fn odt(archive: &mut Archive) -> Result<Document, String> {
    const NAME: &str = "content.xml";
    let mut document = Document::default();
    properties(part(archive, "meta.xml")?, &mut document);
    let manifest = part(archive, "META-INF/manifest.xml")?.unwrap_or_default();
    if manifest.contains("encryption-data") {
        return Err("is encrypted, and a password is needed to read it".to_owned());
    }
    let text = part(archive, NAME)?.unwrap_or_default();
    let xml = xml(NAME, &text)?;
    let is_laid_out = xml.descendants().any(|node| is(node, "soft-page-break"));
    let mut reader = Odt { document, flow: Flow::default(), rows: Vec::new(), page: u32::from(is_laid_out) };
    if let Some(body) = xml.descendants().find(|&node| is(node, "body")) {
        reader.children(body);
    }
    Ok(reader.document)
}

struct Odt {
    document: Document,
    flow: Flow,
    /// The rows of the open table.
    rows: Vec<Block>,
    page: u32,
}

impl Odt {
    fn children(&mut self, node: Node<'_, '_>) {
        for child in node.children().filter(Node::is_element) {
            match child.tag_name().name() {
                name @ ("p" | "h") => {
                    self.inline(child);
                    let level = if name == "h" { attribute(child, "outline-level") } else { None };
                    let level = level.and_then(|level| level.parse().ok()).unwrap_or(u8::from(name == "h"));
                    self.document.blocks.extend(self.flow.finish(level));
                }
                "table" => {
                    let before = std::mem::take(&mut self.rows);
                    self.children(child);
                    let rows = std::mem::replace(&mut self.rows, before);
                    self.document.blocks.extend(table(rows));
                }
                "table-row" => {
                    self.row(child);
                    self.rows.extend(self.flow.finish(0));
                }
                "soft-page-break" => self.page += 1,
                "tracked-changes" | "forms" | "sequence-decls" => {}
                _ => self.children(child),
            }
        }
    }

    /// The cells of a row. A table in a cell is part of its text.
    fn row(&mut self, row: Node<'_, '_>) {
        for (at, cell) in row.children().filter(|&node| is(node, "table-cell")).enumerate() {
            if at > 0 {
                self.flow.push(" | ", 0, 0);
            }
            self.cell(cell);
            self.flow.space();
        }
    }

    /// The paragraphs of a cell, without the blanks between elements.
    fn cell(&mut self, node: Node<'_, '_>) {
        for child in node.children().filter(Node::is_element) {
            match child.tag_name().name() {
                "p" | "h" => {
                    self.flow.space();
                    self.inline(child);
                }
                "table-row" => {
                    self.flow.space();
                    self.row(child);
                }
                "annotation" | "tracked-changes" | "forms" => {}
                _ => self.cell(child),
            }
        }
    }

    fn inline(&mut self, node: Node<'_, '_>) {
        for child in node.children() {
            if let Some(text) = child.text().filter(|_| child.is_text()) {
                self.flow.push(text, 0, self.page);
            } else if child.is_element() {
                match child.tag_name().name() {
                    "s" | "tab" | "line-break" => self.flow.space(),
                    "soft-page-break" => self.page += 1,
                    "annotation" | "note-citation" | "change" => {}
                    "note" => {
                        self.flow.space();
                        self.inline(child);
                        self.flow.space();
                    }
                    "p" => {
                        self.flow.space();
                        self.inline(child);
                    }
                    _ => self.inline(child),
                }
            }
        }
    }
}

fn epub(archive: &mut Archive) -> Result<Document, String> {
    let mut document = Document::default();
    let container = part(archive, "META-INF/container.xml")?.unwrap_or_default();
    let package = {
        let xml = xml("META-INF/container.xml", &container)?;
        let root = xml.descendants().find(|&node| is(node, "rootfile"));
        root.and_then(|node| attribute(node, "full-path"))
            .ok_or("expected an epub with a package, found none")?
            .to_owned()
    };
    if part(archive, "META-INF/encryption.xml")?
        .is_some_and(|text| !text.contains("obfuscation") && text.contains("EncryptedData"))
    {
        return Err("is encrypted and cannot be read".to_owned());
    }
    let text =
        part(archive, &package)?.ok_or_else(|| format!("expected {package} in the archive, found none"))?;
    properties(Some(text.clone()), &mut document);
    let xml = xml(&package, &text)?;
    let folder = package.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    let files: Vec<(&str, &str)> = xml
        .descendants()
        .filter(|&node| is(node, "item"))
        .filter_map(|node| Some((attribute(node, "id")?, attribute(node, "href")?)))
        .collect();
    for item in xml.descendants().filter(|&node| is(node, "itemref")) {
        let name = attribute(item, "idref").and_then(|id| files.iter().find(|(known, _)| *known == id));
        let Some((_, href)) = name else { continue };
        let name = resolved(&format!("{folder}{}", decoded(href)));
        match part(archive, &name) {
            Ok(Some(chapter)) => {
                let mut blocks = html::read(&chapter).blocks;
                // Lines of a file within the archive are no places of the archive.
                blocks.iter_mut().for_each(|block| block.marks.clear());
                document.blocks.extend(blocks);
            }
            Ok(None) => document.missing.push(format!("the chapter {name} is not in the archive")),
            Err(message) => document.missing.push(message),
        }
    }
    Ok(document)
}

/// A path without `.` and `..`.
fn resolved(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// A path of a package, whose percent codes are decoded.
fn decoded(href: &str) -> String {
    let href = href.split('#').next().unwrap_or_default();
    let mut bytes = Vec::with_capacity(href.len());
    let mut rest = href.as_bytes();
    while let [first, tail @ ..] = rest {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let code = match (first, tail) {
            (b'%', [high, low, ..]) => {
                digit(*high).zip(digit(*low)).map(|(high, low)| (high * 16 + low) as u8)
            }
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
