//! PDF: the text layer, page by page.
//!
//! The glyphs of a page come in the order in which they are drawn, which is the order of reading in nearly all files. Their
//! positions give words, lines and paragraphs; their sizes give headings.

use std::collections::BTreeMap;

use hayro_interpret::{
    BlendMode, ClipPath, Context, Device, DrawMode, DrawProps, Image, ImageDrawProps, InterpreterCache,
    InterpreterSettings, SoftMask,
    font::{Glyph, GlyphRun},
    hayro_cmap::BfString,
    hayro_syntax::{DecryptionError, LoadPdfError, Pdf, metadata::Metadata, page::Page},
    interpret_page,
    kurbo::{Affine, BezPath, Point, Rect, Vec2},
};
use sporran_kilt::{counted, passage::Mark};

use crate::{Block, Document};

/// The gap between two glyphs that is a blank, in sizes of the font.
const BLANK: f64 = 0.15;
/// The difference of baselines that begins another line, in sizes of the font.
const LINE: f64 = 0.4;
/// The distance of baselines that begins another paragraph, in sizes of the font.
const PARAGRAPH: f64 = 1.7;
/// The indent of the first line of a paragraph, in sizes of the font.
const INDENT: f64 = 0.8;
/// The size of headings, in sizes of the text.
const HEADING: f64 = 1.15;
/// The longest heading, in characters.
const LONGEST_HEADING: usize = 200;
/// The largest number of glyphs of a file. A file of the largest size can draw a form again and again.
const GLYPHS: usize = 50_000_000;

/// The text of a PDF file.
///
/// # Errors
/// A message for an encrypted file, for a file that is no PDF, and for one without a text layer.
pub(crate) fn read(bytes: Vec<u8>) -> Result<Document, String> {
    let pdf = Pdf::new(bytes).map_err(|error| match error {
        LoadPdfError::Decryption(DecryptionError::PasswordProtected) => {
            "is encrypted, and a password is needed to read it".to_owned()
        }
        LoadPdfError::Decryption(error) => format!("is encrypted in a way that cannot be read: {error:?}"),
        LoadPdfError::Invalid => "expected a PDF file, found a damaged one".to_owned(),
    })?;
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    let (mut pages, mut blank, mut unknown, mut glyphs) = (0, 0, 0, 0);
    for (at, page) in pdf.pages().iter().enumerate() {
        let mut text = PageText::default();
        draw(page, &mut text);
        pages += 1;
        blank += u32::from(text.lines.is_empty());
        unknown += text.unknown;
        glyphs += text.glyphs;
        if glyphs > GLYPHS {
            return Err(format!("expected at most {GLYPHS} characters, found more"));
        }
        paragraphs.extend(text.paragraphs(at as u32 + 1));
    }
    if paragraphs.is_empty() {
        return Err(match pages {
            0 => "expected a PDF file with pages, found none".to_owned(),
            _ if unknown > 0 => "has no readable text: its characters have no Unicode values".to_owned(),
            1 => "has no text layer on its page, which may be a scan".to_owned(),
            _ => format!("has no text layer on any of its {pages} pages, which may be scans"),
        });
    }
    let mut document = Document::default();
    describe(pdf.metadata(), &mut document);
    document.blocks = blocks(paragraphs);
    if blank > 0 {
        document.notes.push(format!("has no text layer on {blank} of its {}", counted(pages as u64, "page")));
    }
    if unknown > 0 {
        let (have, were) = if unknown == 1 { ("has", "was") } else { ("have", "were") };
        let characters = counted(unknown, "character");
        document.missing.push(format!("{characters} {have} no Unicode value and {were} left out"));
    }
    Ok(document)
}

fn describe(metadata: &Metadata, document: &mut Document) {
    let text = |bytes: &Option<Box<[u8]>>| bytes.as_ref().map(|bytes| string(bytes)).unwrap_or_default();
    let title = text(&metadata.title);
    // Programs write file names and the like.
    let is_junk = ["untitled", "microsoft word", ".dvi", ".doc", ".tex", ".indd"]
        .iter()
        .any(|junk| title.to_lowercase().contains(junk));
    document.title = Some(title.trim().to_owned()).filter(|title| !title.is_empty() && !is_junk);
    document.describe("author", &text(&metadata.author));
    document.describe("subject", &text(&metadata.subject));
    document.describe("keywords", &text(&metadata.keywords));
    if let Some(date) = &metadata.creation_date {
        document.describe("date", &format!("{:04}-{:02}-{:02}", date.year, date.month, date.day));
    }
}

/// A text string of PDF: UTF-16 or UTF-8 with a byte order mark, or Latin letters.
fn string(bytes: &[u8]) -> String {
    if encoding_rs::Encoding::for_bom(bytes).is_some() {
        return crate::encoding::decode(bytes, None).map(|decoded| decoded.text).unwrap_or_default();
    }
    bytes.iter().map(|&byte| char::from(byte)).filter(|c| !c.is_control()).collect()
}

fn draw(page: &Page<'_>, text: &mut PageText) {
    let cache = InterpreterCache::new();
    let area = Rect::new(0.0, 0.0, 1.0, 1.0);
    let initial = page.initial_transform(false).as_coeffs();
    let mut context =
        Context::new(Affine::new(initial), area, &cache, page.xref(), InterpreterSettings::default());
    interpret_page(page, &mut context, text);
}

/// A line of text.
#[derive(Debug, Default)]
struct Line {
    text: String,
    /// The position of its first glyph.
    start: Point,
    /// The position after its last glyph.
    end: Point,
    size: f64,
}

/// The lines of a page, in the order in which they are drawn. The axis of y points up.
#[derive(Default)]
struct PageText {
    lines: Vec<Line>,
    glyphs: usize,
    unknown: u64,
}

impl PageText {
    /// Adds a glyph: its text, the place where it starts, and the place of the next one.
    fn push(&mut self, text: &str, start: Point, end: Point, size: f64) {
        self.glyphs += 1;
        let gap = self.lines.last().map(|line| {
            let unit = line.size.max(size);
            ((start.y - line.end.y).abs() / unit, (start.x - line.end.x) / unit, line.end)
        });
        let same = gap.is_some_and(|(height, width, _)| height < LINE && width > -1.0 && width < 12.0);
        if !same {
            if text.trim().is_empty() {
                return;
            }
            self.lines.push(Line { start, end, size, ..Line::default() });
        }
        let Some(line) = self.lines.last_mut() else { return };
        let is_apart = same && gap.is_some_and(|(_, width, _)| width > BLANK);
        if (is_apart || text.trim().is_empty()) && !line.text.is_empty() && !line.text.ends_with(' ') {
            line.text.push(' ');
        }
        if !text.trim().is_empty() {
            for c in text.chars().filter(|c| !c.is_control()) {
                line.text.push_str(&letters(c));
            }
        }
        line.end = end;
        line.size = line.size.max(size);
    }

    /// The paragraphs of the lines of page `number`.
    fn paragraphs(self, number: u32) -> Vec<Paragraph> {
        let mut paragraphs: Vec<Paragraph> = Vec::new();
        let mut last: Option<Line> = None;
        // The left edge of the paragraph's lines after its first.
        let mut edge = f64::NAN;
        for line in self.lines {
            let text = line.text.trim();
            if text.is_empty() {
                continue;
            }
            let joins = last.as_ref().is_some_and(|last| {
                let size = last.size.max(line.size);
                let down = (last.start.y - line.start.y) / size;
                let is_same_size = (last.size / line.size - 1.0).abs() < 0.1;
                let is_indented = line.start.x - edge.min(last.start.x) > INDENT * size && down > 0.0;
                let next_to = down.abs() < LINE;
                // The text continues in the next column.
                let goes_on = text.starts_with(char::is_lowercase);
                is_same_size
                    && (next_to || goes_on && down < 0.0 || down > 0.0 && down < PARAGRAPH && !is_indented)
            });
            match paragraphs.last_mut().filter(|_| joins) {
                Some(paragraph) => {
                    paragraph.append(text);
                    edge = if edge.is_nan() { line.start.x } else { edge.min(line.start.x) };
                }
                None => {
                    paragraphs.push(Paragraph { text: text.to_owned(), size: line.size, page: number });
                    edge = f64::NAN;
                }
            }
            last = Some(line);
        }
        paragraphs
    }
}

/// The letters of a ligature; other characters as they are.
fn letters(c: char) -> String {
    let letters = match c {
        '\u{fb00}' => "ff",
        '\u{fb01}' => "fi",
        '\u{fb02}' => "fl",
        '\u{fb03}' => "ffi",
        '\u{fb04}' => "ffl",
        '\u{fb05}' | '\u{fb06}' => "st",
        '\u{a0}' => " ",
        other => return other.to_string(),
    };
    letters.to_owned()
}

impl Device<'_> for PageText {
    fn draw_path(&mut self, _: &BezPath, _: DrawProps<'_>, _: &DrawMode) {}

    fn push_clip_path(&mut self, _: &ClipPath) {}

    fn push_transparency_group(&mut self, _: f32, _: Option<SoftMask<'_>>, _: BlendMode) {}

    fn draw_glyph_run(&mut self, run: &GlyphRun<'_, '_>, props: DrawProps<'_>, _: &DrawMode) {
        for glyph in run.glyphs() {
            if self.glyphs > GLYPHS {
                return;
            }
            let transform = props.transform * glyph.transform();
            let width = match &**glyph {
                Glyph::Outline(glyph) => glyph.advance_width(),
                Glyph::Type3(glyph) => glyph.advance_width(),
            };
            // A glyph is drawn on a square of 1000 units.
            let start = transform * Point::ZERO;
            let end = transform * Point::new(f64::from(width.unwrap_or(500.0)), 0.0);
            let [a, b, c, d, ..] = transform.as_coeffs();
            let size = Vec2::new(c, d).hypot().max(Vec2::new(a, b).hypot()) * 1000.0;
            if !(start.is_finite() && end.is_finite() && size.is_finite() && size > 0.0) {
                continue;
            }
            match glyph.as_unicode() {
                Some(BfString::Char(c)) => self.push(c.encode_utf8(&mut [0; 4]), start, end, size),
                Some(BfString::String(text)) => self.push(&text, start, end, size),
                None => {
                    self.unknown += 1;
                    self.push(" ", start, end, size);
                }
            }
        }
    }

    fn draw_image(&mut self, _: Image<'_, '_>, _: ImageDrawProps<'_>) {}

    fn pop_clip(&mut self) {}

    fn pop_transparency_group(&mut self) {}
}

/// Lines that belong together.
#[derive(Debug)]
struct Paragraph {
    text: String,
    size: f64,
    page: u32,
}

impl Paragraph {
    /// Adds a line. A hyphen between two lower-case letters joins the parts of a word.
    fn append(&mut self, line: &str) {
        let before = self.text.strip_suffix(['-', '\u{ad}', '\u{2010}']);
        let is_word = before.is_some_and(|before| before.ends_with(char::is_lowercase));
        if is_word && line.starts_with(char::is_lowercase) {
            self.text.pop();
        } else {
            self.text.push(' ');
        }
        self.text.push_str(line);
    }
}

/// The blocks of paragraphs. Short paragraphs that are larger than most of the text are headings, the largest of level 1.
fn blocks(paragraphs: Vec<Paragraph>) -> Vec<Block> {
    let rounded = |size: f64| (size * 4.0).round() as u64;
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for paragraph in &paragraphs {
        *counts.entry(rounded(paragraph.size)).or_default() += paragraph.text.len();
    }
    let body = counts.iter().max_by_key(|(_, count)| **count).map_or(0, |(size, _)| *size);
    let is_large = |size: u64| size as f64 > body as f64 * HEADING;
    let levels: Vec<u64> = counts.keys().rev().copied().filter(|&size| is_large(size)).collect();
    let block = |paragraph: Paragraph| {
        let size = rounded(paragraph.size);
        let is_short =
            paragraph.text.chars().count() <= LONGEST_HEADING && paragraph.text.contains(char::is_alphabetic);
        let level = levels.iter().position(|&level| level == size).filter(|_| is_short);
        let marks = vec![Mark { at: 0, line: 0, page: paragraph.page }];
        Block { level: level.map_or(0, |level| (level + 1).min(6) as u8), text: paragraph.text, marks }
    };
    paragraphs.into_iter().map(block).collect()
}
