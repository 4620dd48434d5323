//! An answer as text: the answer, then its evidence.

use std::{fmt::Write as _, io, ops::Range};

use anstream::{AutoStream, ColorChoice};
use anstyle::Style;
use sporran_kilt::{printable, printable_line};
use sporran_pipeline::workflows::answer::{CitedAnswer, CitedPassage};

/// The number of characters of a passage to show around its best sentence.
const AROUND: usize = 160;

/// The number of characters of a sentence to show. Not every text has sentences.
const LONGEST: usize = 1000;

/// How answers are shown.
pub(super) struct Page {
    /// Whether to show whole passages and scores.
    whole: bool,
    /// The marks before and after the best sentence of a passage.
    marks: [String; 2],
}

impl Page {
    /// In bold on a terminal unless `NO_COLOR` is set; otherwise between `>>>` and `<<<`.
    pub(super) fn new(whole: bool) -> Self {
        let is_plain = AutoStream::choice(&io::stdout()) == ColorChoice::Never;
        let bold = Style::new().bold();
        let marks = if is_plain {
            [">>>".to_owned(), "<<<".to_owned()]
        } else {
            [format!("{bold}"), format!("{bold:#}")]
        };
        Self { whole, marks }
    }

    /// The text of an answer.
    pub(super) fn text(&self, answer: &CitedAnswer) -> String {
        let mut text = String::new();
        if !answer.is_generated {
            text.push_str(match answer.evidence.is_empty() {
                true => "no passage matches the question\n",
                false => "no generator; the best passages:\n",
            });
        } else if answer.answer.is_empty() {
            text.push_str("(the answer is empty)\n");
        } else {
            text.push_str(&printable(&answer.answer));
            text.push('\n');
        }
        if answer.sentences.iter().any(|sentence| !sentence.supported) {
            text.push_str("\n[?] no passage supports this sentence\n");
        }
        for (number, passage) in (1..).zip(&answer.evidence) {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n[{number}] {}\n    {}\n", self.place(passage), self.passage(passage));
        }
        text
    }

    /// The file, the place in it and the section, with the score if all is shown.
    fn place(&self, passage: &CitedPassage) -> String {
        let mut parts = vec![passage.file.clone()];
        parts.extend(passage.page.map(|page| format!("page {page}")));
        parts.extend(passage.line.map(|line| format!("line {line}")));
        parts.extend(passage.row.map(|row| format!("row {row}")));
        if !passage.section.is_empty() {
            parts.push(passage.section.clone());
        }
        let place = parts.iter().map(|part| printable_line(part)).collect::<Vec<_>>().join(", ");
        if self.whole { format!("{place} (score {:.3})", passage.score) } else { place }
    }

    /// The text with its best sentence marked, on one line. A long text is cut around that sentence.
    fn passage(&self, passage: &CitedPassage) -> String {
        let CitedPassage { text, body, highlight, .. } = passage;
        // The place above names the headings.
        let shown = if self.whole { *body..text.len() } else { around(text, *body, highlight) };
        let start = highlight.start;
        let end = highlight.end.min(shown.end);
        let [open, close] = &self.marks;
        let dots = |is_cut: bool| if is_cut { ".. " } else { "" };
        let shown = format!(
            "{}{}{open}{}{close}{}{}",
            dots(shown.start > *body),
            printable(&text[shown.start..start]),
            printable(&text[start..end]),
            printable(&text[end..shown.end]),
            if shown.end < text.len() { " .." } else { "" }
        );
        shown.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// The part of a text after `body` to show: at most [`LONGEST`] characters of `highlight` and about [`AROUND`] on each side, cut
/// at blanks.
fn around(text: &str, body: usize, highlight: &Range<usize>) -> Range<usize> {
    let before = &text[body..highlight.start];
    let start = before.char_indices().rev().nth(AROUND).map_or(body, |(at, _)| {
        before[at..].find(char::is_whitespace).map_or(highlight.start, |blank| body + at + blank)
    });
    if let Some((cut, _)) = text[highlight.clone()].char_indices().nth(LONGEST) {
        return start..highlight.start + cut;
    }
    let after = &text[highlight.end..];
    let end = after
        .char_indices()
        .nth(AROUND)
        .map_or(text.len(), |(at, _)| highlight.end + after[..at].rfind(char::is_whitespace).unwrap_or(0));
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passage(text: &str, highlight: Range<usize>) -> CitedPassage {
        CitedPassage {
            id: sporran_kilt::PassageId(0),
            has_file: true,
            file: "a.pdf".into(),
            page: Some(2),
            section: "Life".into(),
            paragraph: 1,
            start: 0,
            end_paragraph: 1,
            end: 9,
            text: text.into(),
            score: 1.25,
            title: "A".into(),
            line: None,
            row: None,
            body: 0,
            highlight,
        }
    }

    fn page(whole: bool) -> Page {
        Page { whole, marks: [">>>".into(), "<<<".into()] }
    }

    #[test]
    fn the_best_sentence_is_marked_and_long_texts_are_cut() {
        let text = format!("{} Zoë was here.\nThen {}", "word ".repeat(60), "more ".repeat(60));
        let start = text.find("Zoë").unwrap();
        let passage = passage(&text, start..start + "Zoë was here.".len());
        let cut = page(false).passage(&passage);
        assert!(cut.starts_with(".. word") && cut.ends_with("more .."), "{cut}");
        assert!(cut.contains("word >>>Zoë was here.<<< Then more"), "{cut}");
        assert!(cut.chars().count() < 360, "{cut}");
        let whole = page(true).passage(&passage);
        assert_eq!(whole.matches("word").count(), 60);
        let passage = CitedPassage { body: 300, ..passage };
        assert!(page(true).passage(&passage).starts_with(">>>Zoë"));
        assert!(page(false).passage(&passage).starts_with(">>>Zoë"));
    }

    #[test]
    fn control_characters_and_long_sentences_are_not_shown() {
        let text = format!("a\u{1b}[2J\nb {}", "x".repeat(2000));
        let end = text.len();
        let shown = page(false).passage(&passage(&text, 0..end));
        assert!(shown.starts_with(">>>a\u{fffd}[2J b xxx") && shown.ends_with("x<<< .."), "{shown}");
        assert_eq!(shown.chars().count(), LONGEST + ">>><<< ..".len());
        let odd = CitedPassage { file: "a\nb\u{7}.md".into(), row: Some(3), ..passage("c\u{202e}d", 0..1) };
        assert_eq!(page(false).place(&odd), "a b\u{fffd}.md, page 2, row 3, Life");
        assert_eq!(page(false).passage(&odd), ">>>c<<<\u{fffd}d");
    }

    #[test]
    fn evidence_has_numbers_and_places() {
        let answer = CitedAnswer {
            question: "Who?".into(),
            answer: "Zoë. [1]".into(),
            evidence: vec![passage("Zoë was.", 0..9)],
            sentences: Vec::new(),
            is_generated: true,
        };
        assert_eq!(page(false).text(&answer), "Zoë. [1]\n\n[1] a.pdf, page 2, Life\n    >>>Zoë was.<<<\n");
        let text = page(true).text(&CitedAnswer { is_generated: false, ..answer });
        assert!(
            text.starts_with("no generator; the best passages:\n\n[1] a.pdf, page 2, Life (score 1.250)\n"),
            "{text}"
        );
    }
}
