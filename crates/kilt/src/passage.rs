//! Splitting pages into passages with their provenance.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Id, PassageId, Provenance, page::ParagraphKind};

/// The section of text before a page's first header, as in KILT's files.
pub const ABSTRACT: &str = "Section::::Abstract.";

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
    /// The header above its start, as in the page; [`ABSTRACT`] before the first one.
    pub section: String,
    /// The text. Paragraphs are joined by one blank; headers (and list items, with [`Split::Words`]) are
    /// omitted.
    pub text: String,
    /// The paragraph in which it starts.
    pub start_paragraph: u32,
    /// Its first character in that paragraph.
    pub start_character: u32,
    /// The paragraph in which it ends.
    pub end_paragraph: u32,
    /// The character after its last in that paragraph.
    pub end_character: u32,
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
        }
    }
}

impl Passage {
    /// The span as KILT evidence.
    pub fn provenance(&self) -> Provenance {
        Provenance {
            wikipedia_id: Some(Id::Text(self.page_id.clone())),
            title: Some(self.title.clone()),
            section: Some(self.section.clone()),
            start_paragraph_id: Some(self.start_paragraph.into()),
            start_character: Some(self.start_character.into()),
            end_paragraph_id: Some(self.end_paragraph.into()),
            end_character: Some(self.end_character.into()),
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
pub(crate) fn split(paragraphs: &[String], split: Split) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut section = Span::NO_SECTION;
    let mut words = 0;
    let mut open: Option<Span> = None;
    for (at, paragraph) in paragraphs.iter().enumerate().skip(1) {
        let number = at as u32;
        let kind = ParagraphKind::of(paragraph);
        if kind == ParagraphKind::Header {
            section = number;
            if split == Split::Section {
                spans.extend(open.take());
            }
            continue;
        }
        let (start, end) = trimmed(paragraph);
        if start == end || (kind == ParagraphKind::ListItem && !split.list_items()) {
            continue;
        }
        let whole = Span { start_paragraph: number, start, end_paragraph: number, end, section };
        match split {
            Split::Paragraph => spans.push(whole),
            Split::Section | Split::Page => {
                let span = open.get_or_insert(whole);
                (span.end_paragraph, span.end) = (number, end);
            }
            Split::Words => {
                for (start, end) in word_ranges(paragraph) {
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
    if spans.is_empty() {
        let end = paragraphs.first().map_or(0, |title| title.trim_end().len() as u32);
        spans.push(Span { start_paragraph: 0, start: 0, end_paragraph: 0, end, section: Span::NO_SECTION });
    }
    spans
}

/// Byte ranges of the white-space separated words of a text.
fn word_ranges(text: &str) -> impl Iterator<Item = (u32, u32)> {
    let base = text.as_ptr() as usize;
    text.split_whitespace().map(move |word| {
        let start = word.as_ptr() as usize - base;
        (start as u32, (start + word.len()) as u32)
    })
}

/// The text of a span: paragraphs joined by one blank, without headers; with list items only if the split
/// keeps them.
pub(crate) fn text<'a>(span: Span, list_items: bool, paragraph: impl Fn(u32) -> &'a str) -> String {
    let mut text = String::new();
    for number in span.start_paragraph..=span.end_paragraph {
        let whole = paragraph(number);
        match ParagraphKind::of(whole) {
            ParagraphKind::Header => continue,
            ParagraphKind::ListItem if !list_items => continue,
            _ => {}
        }
        let start = if number == span.start_paragraph { span.start as usize } else { 0 };
        let end = if number == span.end_paragraph { span.end as usize } else { whole.len() };
        let piece = whole[start..end].trim();
        let piece =
            piece.strip_prefix("BULLET::::").map_or(piece, |item| item.trim_start_matches(['-', ' ']));
        if !piece.is_empty() {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(piece);
        }
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
        split(paragraphs, how)
            .into_iter()
            .map(|span| text(span, how.list_items(), |number| &paragraphs[number as usize]))
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
        let spans = split(&paragraphs, Split::Words);
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
    fn a_page_without_text_is_its_title() {
        for how in [Split::Words, Split::Paragraph, Split::Section, Split::Page] {
            assert_eq!(texts(&page(&["Title\n", "Section::::See also.\n"]), how), ["Title"]);
            assert_eq!(split(&[], how).len(), 1);
        }
    }
}
