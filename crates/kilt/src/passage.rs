//! Splitting pages into passages with their provenance.

use std::{fmt, ops::Range, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Id, Metadata, PassageId, Provenance, page::ParagraphKind, sentences};

/// The section of text before a page's first header, as in KILT's files.
pub const ABSTRACT: &str = "Section::::Abstract.";

/// The beginning of a paragraph that is a heading of a document. The path of the headings above it follows, joined by
/// ` > `, then its own name.
pub const HEADING: &str = "Heading::::";

/// The beginning of a paragraph that is a header of KILT's pages. The name follows.
pub const SECTION: &str = "Section::::";

/// The beginning of a paragraph that is an item of a list.
pub const BULLET: &str = "BULLET::::";

/// How pages are split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// 100 white-space words across paragraphs, without headers and list items, as in KILT's and DPR's
    /// published passages. The last passage of a page is shorter.
    #[default]
    Words,
    /// Every paragraph and list item alone.
    Paragraph,
    /// All text under one header.
    Section,
    /// The whole page.
    Page,
    /// Windows over the units of a section, which may overlap.
    Windows(Windows),
}

/// A number of consecutive units of a section. The next window starts `size` minus `overlap` units later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Windows {
    /// The unit.
    pub unit: Unit,
    /// The number of units of a window.
    pub size: u32,
    /// The number of units that a window shares with the one before it; less than `size`.
    pub overlap: u32,
}

/// The unit of [`Windows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// White-space words.
    Words,
    /// Sentences, by Unicode's rules (UAX #29).
    Sentences,
    /// Tokens of a model.
    Tokens,
}

/// The byte ranges of a text's tokens, in order.
pub type TokenRanges = dyn Fn(&str) -> Vec<(u32, u32)> + Send + Sync;

/// A split with the tokenizer that [`Unit::Tokens`] needs.
#[derive(Clone)]
pub struct Splitter {
    /// How pages are split.
    pub split: Split,
    /// The tokenizer; without one, words are taken for tokens.
    pub tokens: Option<Arc<TokenRanges>>,
}

impl From<Split> for Splitter {
    fn from(split: Split) -> Self {
        Self { split, tokens: None }
    }
}

impl fmt::Debug for Splitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Splitter").field("split", &self.split).finish_non_exhaustive()
    }
}

/// A place in a paragraph from which its text is on a line and a page of its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The byte in the paragraph.
    pub at: u32,
    /// The line, from 1; 0 if the file has none.
    pub line: u32,
    /// The number of the page, from 1; 0 if the file has none.
    pub page: u32,
}

impl Mark {
    /// As in the field `places` of a record: a list of the three numbers.
    pub fn to_json(&self) -> Value {
        Value::from(vec![self.at, self.line, self.page])
    }
}

/// The name of a section as provenance shows it: the path of a document's headings; KILT's header as it is.
pub fn section_name(header: &str) -> &str {
    header.strip_prefix(HEADING).unwrap_or(header)
}

/// The first byte of a paragraph's visible text: after the path of a heading, else 0.
fn visible(paragraph: &[u8]) -> usize {
    match paragraph.strip_prefix(HEADING.as_bytes()) {
        Some(path) => HEADING.len() + path.windows(3).rposition(|part| part == b" > ").map_or(0, |at| at + 3),
        None => 0,
    }
}

/// The separator of the cells of a row of a table.
const CELLS: &[u8] = b" | ";
/// The longest header of a table that later passages of it repeat, in bytes.
const TABLE_HEADER: usize = 500;

/// A row of a table whose rows are lines of a paragraph, as documents have them.
struct Row {
    /// The bytes of the first row.
    header: Range<usize>,
    /// The first byte of the row.
    start: usize,
}

/// The row at a byte of a paragraph, if it is not the first of a table: both rows have as many cells.
fn table_row(paragraph: &[u8], at: usize) -> Option<Row> {
    let from = visible(paragraph);
    let head = paragraph.get(from..at.min(from + TABLE_HEADER))?;
    let end = from + head.iter().position(|byte| *byte == b'\n')?;
    let (before, after) = paragraph.split_at_checked(at)?;
    let start = before.iter().rposition(|byte| *byte == b'\n')? + 1;
    let row = at + after.iter().position(|byte| *byte == b'\n').unwrap_or(after.len());
    let cells = |bytes: &[u8]| bytes.windows(CELLS.len()).filter(|part| *part == CELLS).count();
    let (header, row) = (cells(&paragraph[from..end]), cells(&paragraph[start..row]));
    (header > 0 && header == row).then_some(Row { header: from..end, start })
}

/// Words a passage of [`Split::Words`] holds.
pub const WORDS: usize = 100;

impl Split {
    /// Whether list items are part of passages.
    pub fn list_items(self) -> bool {
        self != Self::Words
    }
}

/// A part of a page with its exact span.
///
/// Paragraphs count from 0 (the title); characters count Unicode scalar values, the end is exclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Its index in the store.
    pub id: PassageId,
    /// The id of its page.
    pub page_id: String,
    /// The title of its page.
    pub title: String,
    /// The header above its start, as in the page. Before the first one it is the record's field `section`, or
    /// [`ABSTRACT`] without this field.
    pub section: String,
    /// The text. Paragraphs are joined by one blank; headers (and list items, with [`Split::Words`]) are
    /// omitted. A text that starts in a later row of a table has the table's first row before it, which the span does not cover.
    pub text: String,
    /// The paragraph in which it starts.
    pub start_paragraph: u32,
    /// Its first character in that paragraph.
    pub start_character: u32,
    /// The paragraph in which it ends.
    pub end_paragraph: u32,
    /// The character after its last in that paragraph.
    pub end_character: u32,
    /// The place in a file that the record of its page names; empty for a page of Wikipedia.
    pub file: FilePlace,
    /// The other fields of the record of its page.
    pub metadata: Metadata,
}

/// A place in a file, by the fields `file`, `line`, `row` and `page` of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FilePlace {
    /// The path of the file.
    #[serde(rename = "file", skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The line on which the text starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The number of the row, for a table whose file has no lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<u64>,
    /// The number of the page on which the text starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<u64>,
}

impl FilePlace {
    /// Whether the record names no place in a file.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The place as fields of a record: `file`, `line`, `row` and `page`, as far as they are known.
    pub fn fields(&self) -> Map<String, Value> {
        let text = self.path.as_deref().map(|path| ("file", Value::from(path)));
        let numbers = [("line", self.line), ("row", self.row), ("page", self.page)];
        let numbers = numbers.into_iter().filter_map(|(key, number)| Some((key, number?.into())));
        text.into_iter().chain(numbers).map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

impl fmt::Display for FilePlace {
    /// Such as `notes.md, line 12` or `report.pdf, page 3`; empty for an empty place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |name: &str, number: Option<u64>| number.map(|number| format!("{name} {number}"));
        let Self { path, line, row, page } = self;
        let parts = [path.clone(), number("page", *page), number("line", *line), number("row", *row)];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// The place of a passage. `start` and `end` are the paragraph and the character, as in [`Passage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'p> {
    /// A span of a page of the knowledge source.
    Page {
        /// The id of the page.
        id: &'p str,
        /// The section.
        section: &'p str,
        /// The paragraph and the character at which it starts.
        start: (u32, u32),
        /// The paragraph in which it ends, and the character after its last.
        end: (u32, u32),
    },
    /// A span of a record's text, which is from a file.
    File {
        /// The path, with the line or the number of the page.
        file: &'p FilePlace,
        /// The section.
        section: &'p str,
        /// The paragraph of the record and the character at which it starts.
        start: (u32, u32),
        /// The paragraph of the record in which it ends, and the character after its last.
        end: (u32, u32),
    },
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (section, from, to) = match self {
            Self::Page { id, section, start, end } => {
                write!(f, "{id}")?;
                (section, start.0, end.0)
            }
            Self::File { file, section, start, end } => {
                write!(f, "{file}")?;
                (section, start.0, end.0)
            }
        };
        if !section.is_empty() {
            write!(f, ", {section}")?;
        }
        write!(f, ", paragraphs {from} to {to}")
    }
}

impl Passage {
    /// A text that is no page's, for rerankers and generators.
    pub fn of_text(text: impl Into<String>) -> Self {
        Self {
            id: PassageId(0),
            page_id: String::new(),
            title: String::new(),
            section: String::new(),
            text: text.into(),
            start_paragraph: 0,
            start_character: 0,
            end_paragraph: 0,
            end_character: 0,
            file: FilePlace::default(),
            metadata: Metadata::default(),
        }
    }
}

impl Passage {
    /// Its place: in a file if its record names one, else in its page.
    pub fn place(&self) -> Place<'_> {
        let (section, file) = (self.section.as_str(), &self.file);
        let start = (self.start_paragraph, self.start_character);
        let end = (self.end_paragraph, self.end_character);
        if file.is_empty() {
            Place::Page { id: &self.page_id, section, start, end }
        } else {
            Place::File { file, section, start, end }
        }
    }

    /// The span as KILT evidence. The item of a passage from a file also has its `file`, `line` and `page`.
    pub fn provenance(&self) -> Provenance {
        Provenance {
            wikipedia_id: Some(Id::Text(self.page_id.clone())),
            title: Some(self.title.clone()),
            section: Some(self.section.clone()),
            start_paragraph_id: Some(self.start_paragraph.into()),
            start_character: Some(self.start_character.into()),
            end_paragraph_id: Some(self.end_paragraph.into()),
            end_character: Some(self.end_character.into()),
            extra: self.file.fields(),
            ..Provenance::default()
        }
    }
}

/// A retrieved passage; higher scores are better.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// The passage.
    pub passage: PassageId,
    /// The retriever's score.
    pub score: f32,
}

/// A passage's span in bytes, as in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start_paragraph: u32,
    pub(crate) start: u32,
    pub(crate) end_paragraph: u32,
    pub(crate) end: u32,
    /// The header's paragraph; [`Span::NO_SECTION`] before the first one.
    pub(crate) section: u32,
}

impl Span {
    pub(crate) const NO_SECTION: u32 = u32::MAX;
}

/// The byte range of a paragraph without the blanks around it.
fn trimmed(paragraph: &str) -> (u32, u32) {
    let start = paragraph.len() - paragraph.trim_start().len();
    (start as u32, (start + paragraph.trim().len()) as u32)
}

/// Splits a page. A page without text gives one passage, its title, so that every page can be retrieved.
pub(crate) fn split(paragraphs: &[String], splitter: &Splitter) -> Vec<Span> {
    let split = splitter.split;
    let mut spans: Vec<Span> = Vec::new();
    let mut section = Span::NO_SECTION;
    let mut words = 0;
    let mut open: Option<Span> = None;
    // The units of a section, and the headings above the next text.
    let mut units: Vec<Span> = Vec::new();
    let mut headings: Option<Span> = None;
    for (at, paragraph) in paragraphs.iter().enumerate().skip(1) {
        let number = at as u32;
        let kind = ParagraphKind::of(paragraph);
        if kind == ParagraphKind::Header {
            section = number;
            match split {
                Split::Section => spans.extend(open.take()),
                Split::Windows(windows) => spans.append(&mut windowed(&mut units, windows, paragraphs)),
                Split::Words | Split::Paragraph | Split::Page => {}
            }
            continue;
        }
        if kind == ParagraphKind::Heading {
            section = number;
            let (start, end) = (visible(paragraph.as_bytes()) as u32, paragraph.trim_end().len() as u32);
            let whole = Span { start_paragraph: number, start, end_paragraph: number, end, section };
            match split {
                Split::Section => spans.extend(open.take()),
                Split::Windows(windows) => spans.append(&mut windowed(&mut units, windows, paragraphs)),
                Split::Words | Split::Paragraph | Split::Page => {}
            }
            match split {
                Split::Words | Split::Page => {}
                Split::Paragraph | Split::Section | Split::Windows(_) => {
                    let span = headings.get_or_insert(whole);
                    (span.end_paragraph, span.end, span.section) = (number, end, section);
                    continue;
                }
            }
        }
        let (start, end) = trimmed(paragraph);
        let start = start.max(visible(paragraph.as_bytes()) as u32);
        if start == end || (kind == ParagraphKind::ListItem && !split.list_items()) {
            continue;
        }
        let whole = Span { start_paragraph: number, start, end_paragraph: number, end, section };
        match split {
            Split::Paragraph => spans.push(from_headings(&mut headings, whole)),
            Split::Section | Split::Page => {
                let span = open.get_or_insert_with(|| from_headings(&mut headings, whole));
                (span.end_paragraph, span.end) = (number, end);
            }
            Split::Windows(windows) => {
                let first = units.len();
                let ranges = splitter.ranges(windows.unit, &paragraph[start as usize..end as usize]);
                let unit = |(from, to)| Span { start: start + from, end: start + to, ..whole };
                units.extend(ranges.into_iter().map(unit));
                if let Some(first) = units.get_mut(first) {
                    *first = from_headings(&mut headings, *first);
                }
            }
            Split::Words => {
                for (from, to) in word_ranges(&paragraph[start as usize..end as usize]) {
                    let (start, end) = (start + from, start + to);
                    let word = Span { start_paragraph: number, start, end_paragraph: number, end, section };
                    let span = open.get_or_insert(word);
                    (span.end_paragraph, span.end) = (number, end);
                    words += 1;
                    if words == WORDS {
                        spans.extend(open.take());
                        words = 0;
                    }
                }
            }
        }
    }
    spans.extend(open);
    if let Split::Windows(windows) = split {
        spans.append(&mut windowed(&mut units, windows, paragraphs));
    }
    // Headings without a text below them.
    spans.extend(headings);
    if spans.is_empty() {
        let end = paragraphs.first().map_or(0, |title| title.trim_end().len() as u32);
        spans.push(Span { start_paragraph: 0, start: 0, end_paragraph: 0, end, section: Span::NO_SECTION });
    }
    spans
}

/// The span with the headings above it.
fn from_headings(headings: &mut Option<Span>, span: Span) -> Span {
    match headings.take() {
        Some(above) => Span { start_paragraph: above.start_paragraph, start: above.start, ..span },
        None => span,
    }
}

/// The windows over the units of a section, which is empty afterwards. A window that starts inside a row of a table has the whole
/// row.
fn windowed(units: &mut Vec<Span>, windows: Windows, paragraphs: &[String]) -> Vec<Span> {
    let size = (windows.size as usize).max(1);
    let step = size.saturating_sub(windows.overlap as usize).max(1);
    let mut spans = Vec::new();
    let mut first = 0;
    while first < units.len() {
        let end = (first + size).min(units.len());
        let (begin, last) = (units[first], units[end - 1]);
        let paragraph = &paragraphs[begin.start_paragraph as usize];
        let row = table_row(paragraph.as_bytes(), begin.start as usize);
        let start = row.map_or(begin.start, |row| row.start as u32);
        spans.push(Span { start, end_paragraph: last.end_paragraph, end: last.end, ..begin });
        if end == units.len() {
            break;
        }
        first += step;
    }
    units.clear();
    spans
}

impl Splitter {
    /// The byte ranges of the units of a text, without the blanks around them.
    fn ranges(&self, unit: Unit, text: &str) -> Vec<(u32, u32)> {
        match (unit, &self.tokens) {
            (Unit::Tokens, Some(tokens)) => {
                let inside = |&(from, to): &(u32, u32)| {
                    from < to && text.is_char_boundary(from as usize) && text.is_char_boundary(to as usize)
                };
                tokens(text).into_iter().filter(inside).collect()
            }
            (Unit::Words | Unit::Tokens, _) => word_ranges(text).collect(),
            (Unit::Sentences, _) => {
                let base = text.as_ptr() as usize;
                let place = |sentence: &str| {
                    let (at, (from, to)) = (sentence.as_ptr() as usize - base, trimmed(sentence));
                    (at as u32 + from, at as u32 + to)
                };
                sentences(text).map(place).filter(|(from, to)| from < to).collect()
            }
        }
    }
}

/// Byte ranges of the white-space separated words of a text.
fn word_ranges(text: &str) -> impl Iterator<Item = (u32, u32)> {
    let base = text.as_ptr() as usize;
    text.split_whitespace().map(move |word| {
        let start = word.as_ptr() as usize - base;
        (start as u32, (start + word.len()) as u32)
    })
}

/// The bytes of a paragraph that a reader sees: without the marks of its kind, the path of a heading and the blanks around it.
///
/// ```
/// use sporran_kilt::passage::shown;
///
/// let shown = |paragraph: &'static str| &paragraph[shown(paragraph)];
/// assert_eq!(shown("BULLET::::- an item\n"), "an item");
/// assert_eq!((shown("Heading::::Tea > Green"), shown("Section::::History.")), ("Green", "History."));
/// ```
pub fn shown(paragraph: &str) -> Range<usize> {
    let from = match ParagraphKind::of(paragraph) {
        ParagraphKind::Text => 0,
        ParagraphKind::Header => SECTION.len(),
        ParagraphKind::ListItem | ParagraphKind::Heading => visible(paragraph.as_bytes()),
    };
    shown_in(&paragraph[from..], from)
}

/// The bytes of a part of a paragraph without the blanks around it and the marks of a list item. `start` is its first byte.
fn shown_in(part: &str, start: usize) -> Range<usize> {
    let end = start + part.trim_end().len();
    let inner = part.trim_start();
    let inner = inner.strip_prefix(BULLET).map_or(inner, |item| item.trim_start_matches(['-', ' ']));
    (start + part.len() - inner.len()).min(end)..end
}

/// The paragraphs of a page. A passage reads parts of them, so that a page of one long paragraph takes no longer than others.
pub(crate) trait Paragraphs<'a>: Copy {
    /// The bytes of a paragraph.
    fn bytes(self, number: u32) -> &'a [u8];
    /// A part of a paragraph.
    fn part(self, number: u32, bytes: Range<usize>) -> &'a str;
}

impl<'a, F: Fn(u32) -> &'a str + Copy> Paragraphs<'a> for F {
    fn bytes(self, number: u32) -> &'a [u8] {
        self(number).as_bytes()
    }

    fn part(self, number: u32, bytes: Range<usize>) -> &'a str {
        &self(number)[bytes]
    }
}

/// The parts of paragraphs that are the text of a span, in order: the number of the paragraph and its bytes. Headers are left
/// out; list items too, unless the split keeps them. A span that starts in a later row of a table has the first row, too.
pub(crate) fn pieces<'a>(
    span: Span,
    list_items: bool,
    paragraphs: impl Paragraphs<'a>,
) -> impl Iterator<Item = (u32, Range<usize>)> {
    let first = table_row(paragraphs.bytes(span.start_paragraph), span.start as usize);
    let header = first
        .map(|row| shown_in(paragraphs.part(span.start_paragraph, row.header.clone()), row.header.start));
    let header = header.filter(|piece| !piece.is_empty()).map(|piece| (span.start_paragraph, piece));
    let parts = (span.start_paragraph..=span.end_paragraph).filter_map(move |number| {
        let whole = paragraphs.bytes(number);
        match ParagraphKind::of_bytes(whole) {
            ParagraphKind::Header => return None,
            ParagraphKind::ListItem if !list_items => return None,
            _ => {}
        }
        let start = if number == span.start_paragraph { span.start as usize } else { visible(whole) };
        let end = if number == span.end_paragraph { span.end as usize } else { whole.len() };
        let piece = shown_in(paragraphs.part(number, start..end), start);
        Some((number, piece)).filter(|(_, piece)| !piece.is_empty())
    });
    header.into_iter().chain(parts)
}

/// The text of a span: its [pieces], joined by one blank, or by the end of a line after the header of a table.
pub(crate) fn text<'a>(span: Span, list_items: bool, paragraphs: impl Paragraphs<'a>) -> String {
    let mut text = String::new();
    let mut before = None;
    for (number, piece) in pieces(span, list_items, paragraphs) {
        if !text.is_empty() {
            text.push(if before == Some(number) { '\n' } else { ' ' });
        }
        before = Some(number);
        text.push_str(paragraphs.part(number, piece));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(paragraphs: &[&str]) -> Vec<String> {
        paragraphs.iter().map(|&paragraph| paragraph.to_owned()).collect()
    }

    fn texts(paragraphs: &[String], how: Split) -> Vec<String> {
        split(paragraphs, &how.into())
            .into_iter()
            .map(|span| text(span, how.list_items(), |number: u32| paragraphs[number as usize].as_str()))
            .collect()
    }

    #[test]
    fn a_hundred_words_run_across_paragraphs_without_headers_and_list_items() {
        let words: Vec<String> = (0..130).map(|at| format!("w{at}")).collect();
        let paragraphs = page(&[
            "Title\n",
            &format!("{}\n", words[..60].join(" ")),
            "Section::::Life.\n",
            "BULLET::::- an item\n",
            &format!("{}\n", words[60..].join("  ")),
        ]);
        let spans = split(&paragraphs, &Split::Words.into());
        let found = texts(&paragraphs, Split::Words);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].split_whitespace().collect::<Vec<_>>(), words[..100]);
        assert_eq!(found[1].split_whitespace().collect::<Vec<_>>(), words[100..]);
        // The first starts in the lead, the second under the header of paragraph 2.
        assert_eq!((spans[0].section, spans[1].section), (Span::NO_SECTION, 2));
        assert_eq!((spans[0].start_paragraph, spans[0].end_paragraph), (1, 4));
    }

    #[test]
    fn paragraphs_sections_and_pages_keep_list_items() {
        let paragraphs = page(&["T\n", "One.\n", "Section::::S.\n", "Two.\n", "BULLET::::- Three\n", "\n"]);
        assert_eq!(texts(&paragraphs, Split::Paragraph), ["One.", "Two.", "Three"]);
        assert_eq!(texts(&paragraphs, Split::Section), ["One.", "Two. Three"]);
        assert_eq!(texts(&paragraphs, Split::Page), ["One. Two. Three"]);
    }

    #[test]
    fn headings_of_documents_are_part_of_the_text_below_them() {
        let paragraphs = page(&[
            "T\n",
            "Lead one. Lead two.",
            "Heading::::Tea",
            "Heading::::Tea > Hot tea",
            "Boil it. Pour it. Drink it.",
            "Wait.",
            "Heading::::Milk",
        ]);
        let lead = "Lead one. Lead two.";
        assert_eq!(
            texts(&paragraphs, Split::Paragraph),
            [lead, "Tea Hot tea Boil it. Pour it. Drink it.", "Wait.", "Milk"]
        );
        let section = "Tea Hot tea Boil it. Pour it. Drink it. Wait.";
        assert_eq!(texts(&paragraphs, Split::Section), [lead, section, "Milk"]);
        let all = format!("{lead} {section} Milk");
        assert_eq!(texts(&paragraphs, Split::Page), std::slice::from_ref(&all));
        assert_eq!(texts(&paragraphs, Split::Words), [all]);
        let windows = |unit, size, overlap| Split::Windows(Windows { unit, size, overlap });
        assert_eq!(
            texts(&paragraphs, windows(Unit::Sentences, 2, 1)),
            [lead, "Tea Hot tea Boil it. Pour it.", "Pour it. Drink it.", "Drink it. Wait.", "Milk"]
        );
        assert_eq!(
            texts(&paragraphs, windows(Unit::Words, 4, 0)),
            [lead, "Tea Hot tea Boil it. Pour it.", "Drink it. Wait.", "Milk"]
        );
        let spans = split(&paragraphs, &windows(Unit::Sentences, 2, 1).into());
        let sections: Vec<u32> = spans.iter().map(|span| span.section).collect();
        assert_eq!(sections, [Span::NO_SECTION, 3, 3, 3, 6]);
        // The tokens are pairs of characters.
        let pairs = |text: &str| (0..text.len() as u32 / 2).map(|at| (at * 2, at * 2 + 2)).collect();
        let tokens = Splitter { split: windows(Unit::Tokens, 3, 1), tokens: Some(Arc::new(pairs)) };
        let first = split(&paragraphs[..2], &tokens)[1];
        assert_eq!(text(first, true, |number: u32| paragraphs[number as usize].as_str()), "one.");
    }

    #[test]
    fn every_passage_of_a_table_has_its_header() {
        let table = "name | age\nAnn | 5\nBob B. | 6\nEve | 7";
        let paragraphs = page(&["T\n", table, "The end."]);
        let windows = |unit, size, overlap| Split::Windows(Windows { unit, size, overlap });
        let header = "name | age";
        assert_eq!(
            texts(&paragraphs, windows(Unit::Words, 8, 0)),
            [
                "name | age\nAnn | 5\nBob B.".to_owned(),
                // The second window begins inside Bob's row, which is whole in it.
                format!("{header}\nBob B. | 6\nEve | 7 The end."),
            ]
        );
        let spans = split(&paragraphs, &windows(Unit::Words, 8, 0).into());
        let paragraph = |number: u32| paragraphs[number as usize].as_str();
        assert_eq!(
            pieces(spans[1], true, paragraph).collect::<Vec<_>>(),
            [(1, 0..10), (1, 19..37), (2, 0..8)]
        );
        assert_eq!(spans[1].start, 19);
        // Lines with other numbers of cells are no rows of a table.
        let code = page(&["T\n", "a | b\nc d e f", "x"]);
        assert_eq!(texts(&code, windows(Unit::Words, 4, 0)), ["a | b\nc", "d e f x"]);
    }

    #[test]
    fn pieces_are_the_bytes_of_a_text_in_its_paragraphs() {
        let paragraphs = page(&[
            "T\n",
            " One \n",
            "Section::::S.\n",
            "BULLET::::- \n",
            "BULLET::::- Zwölf \n",
            "Heading::::A > B\n",
        ]);
        let span =
            Span { start_paragraph: 1, start: 0, end_paragraph: 5, end: 16, section: Span::NO_SECTION };
        let paragraph = |number: u32| paragraphs[number as usize].as_str();
        let found: Vec<_> = pieces(span, true, paragraph).collect();
        assert_eq!(found, [(1, 1..4), (4, 12..18), (5, 15..16)]);
        assert_eq!(text(span, true, paragraph), "One Zwölf B");
        assert_eq!(pieces(span, false, paragraph).map(|(number, _)| number).collect::<Vec<_>>(), [1, 5]);
    }

    #[test]
    fn a_passage_is_in_a_file_if_its_record_names_one() {
        let mut passage =
            Passage { page_id: "7".into(), section: "Tea".into(), ..Passage::of_text("It is hot.") };
        (passage.start_paragraph, passage.end_paragraph, passage.end_character) = (1, 1, 10);
        assert_eq!(passage.place().to_string(), "7, Tea, paragraphs 1 to 1");
        assert!(passage.provenance().extra.is_empty());
        passage.file = FilePlace { path: Some("a/tea.md".into()), line: Some(12), ..FilePlace::default() };
        assert!(matches!(passage.place(), Place::File { start: (1, 0), end: (1, 10), .. }));
        assert_eq!(passage.place().to_string(), "a/tea.md, line 12, Tea, paragraphs 1 to 1");
        let item = serde_json::to_value(passage.provenance()).unwrap();
        assert_eq!((&item["file"], &item["line"]), (&"a/tea.md".into(), &12.into()));
        assert!(item.get("page").is_none() && item["wikipedia_id"] == "7");
    }

    #[test]
    fn a_page_without_text_is_its_title() {
        for how in [Split::Words, Split::Paragraph, Split::Section, Split::Page] {
            assert_eq!(texts(&page(&["Title\n", "Section::::See also.\n"]), how), ["Title"]);
            assert_eq!(split(&[], &how.into()).len(), 1);
        }
    }
}
