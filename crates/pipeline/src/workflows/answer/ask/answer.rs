//! An answer with its evidence.

use std::ops::Range;

use serde::Serialize;
use sporran_kilt::{Passage, PassageId, passage::ABSTRACT};

/// An answer with numbered evidence.
///
/// Serialised, it has the keys `question`, `answer` and `evidence`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CitedAnswer {
    /// The question.
    pub question: String,
    /// The answer with its citations, such as `[1]`; empty without a generator. `[?]` follows a sentence that no passage
    /// supports.
    pub answer: String,
    /// The best passages, best first. Citation `[n]` refers to the item with index `n - 1`.
    pub evidence: Vec<CitedPassage>,
    /// The sentences of the answer.
    #[serde(skip)]
    pub sentences: Vec<CitedSentence>,
    /// Whether a generator wrote the answer.
    #[serde(skip)]
    pub is_generated: bool,
}

/// A sentence of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CitedSentence {
    /// The text, without the citations at the ends of its clauses.
    pub text: String,
    /// The passages that support it, by their numbers from 1, ascending.
    pub citations: Vec<usize>,
    /// Whether a passage supports it. A sentence without content words, such as `1.`, needs no support.
    pub supported: bool,
}

/// A passage as evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CitedPassage {
    /// The file, or the title of a page whose record names no file.
    pub file: String,
    /// The page of the file with the marked sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<u64>,
    /// The line of the file with the marked sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The row of the table, for a file without lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<u64>,
    /// The section.
    pub section: String,
    /// The paragraph in which the passage starts, as in provenance.
    pub paragraph: u32,
    /// The first character in that paragraph, counted in Unicode scalar values.
    pub start: u32,
    /// The character after the last one, in the paragraph in which the passage ends.
    pub end: u32,
    /// The text.
    pub text: String,
    /// The score of the retriever or the reranker.
    pub score: f32,
    /// The id of the passage.
    #[serde(skip)]
    pub id: PassageId,
    /// Whether the record of the page names a file.
    #[serde(skip)]
    pub has_file: bool,
    /// The paragraph in which the passage ends.
    #[serde(skip)]
    pub end_paragraph: u32,
    /// The title of the page.
    #[serde(skip)]
    pub title: String,
    /// The byte of `text` after the headings with which it may start.
    #[serde(skip)]
    pub body: usize,
    /// The sentence that supports the answer best, or matches the question best without one. Bytes of `text`.
    #[serde(skip)]
    pub highlight: Range<usize>,
}

impl CitedPassage {
    /// A passage with its score. `body` and `highlight` are bytes of its text.
    pub(super) fn new(passage: Passage, score: f32, (body, highlight): (usize, Range<usize>)) -> Self {
        let Passage { id, title, section, text, file, .. } = passage;
        let Passage { start_paragraph, start_character, end_paragraph, end_character, .. } = passage;
        Self {
            id,
            has_file: file.path.is_some(),
            end_paragraph,
            file: file.path.unwrap_or_else(|| title.clone()),
            page: file.page,
            section: heading(&section).to_owned(),
            paragraph: start_paragraph,
            start: start_character,
            end: end_character,
            text,
            score,
            title,
            line: file.line,
            row: file.row,
            body,
            highlight,
        }
    }
}

/// The name of a section without the marks of KILT's format; empty for the text before a page's first header.
///
/// ```
/// use sporran_pipeline::workflows::answer::heading;
///
/// assert_eq!(heading("Section::::Early life.\n"), "Early life");
/// assert_eq!((heading("Section::::Abstract."), heading("Install")), ("", "Install"));
/// ```
#[must_use]
pub fn heading(section: &str) -> &str {
    let section = section.trim();
    if section == ABSTRACT {
        return "";
    }
    match section.strip_prefix("Section::::") {
        Some(name) => name.strip_suffix('.').unwrap_or(name),
        None => section,
    }
}

#[cfg(test)]
mod tests {
    use sporran_kilt::FilePlace;

    use super::*;

    #[test]
    fn json_has_the_keys_of_the_format_alone() {
        let mut passage = Passage { title: "Tea".into(), ..Passage::of_text("It is hot.") };
        passage.section = "Section::::Drinks.".into();
        (passage.start_paragraph, passage.start_character, passage.end_character) = (3, 1, 11);
        passage.file =
            FilePlace { path: Some("tea.pdf".into()), page: Some(2), line: Some(7), ..FilePlace::default() };
        let evidence = vec![CitedPassage::new(passage, 1.5, (0, 0..10))];
        let answer = CitedAnswer {
            question: "Is it hot?".into(),
            answer: "Yes [1]".into(),
            evidence,
            sentences: Vec::new(),
            is_generated: true,
        };
        let expected = serde_json::json!({
            "question": "Is it hot?",
            "answer": "Yes [1]",
            "evidence": [{
                "file": "tea.pdf", "page": 2, "line": 7, "section": "Drinks", "paragraph": 3, "start": 1, "end": 11,
                "text": "It is hot.", "score": 1.5
            }],
        });
        assert_eq!(serde_json::to_value(answer).unwrap(), expected);
    }

    #[test]
    fn a_page_without_a_file_is_named_by_its_title() {
        let passage = Passage { title: "Tea".into(), ..Passage::of_text("It is hot.") };
        let cited = CitedPassage::new(passage, 0.0, (0, 0..0));
        assert_eq!((cited.file.as_str(), cited.page), ("Tea", None));
    }
}
