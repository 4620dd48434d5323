//! Text with the places of its entity mentions.

use super::facts::{Facts, Qid};
use super::names::{Subject, article, capitalised};
use super::wording::Style;

/// A mention of an entity, in code points from the start of the line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// First code point.
    pub start: usize,
    /// One past the last code point.
    pub end: usize,
    /// The entity.
    pub qid: Qid,
}

/// Text with its links.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    /// The text.
    pub text: String,
    /// Mentions in order.
    pub links: Vec<Link>,
}

impl Line {
    /// Length in code points.
    pub(crate) fn len(&self) -> usize {
        self.text.chars().count()
    }

    /// Adds plain text.
    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Adds text that mentions an entity.
    pub(crate) fn link(&mut self, text: &str, qid: Qid) {
        let start = self.len();
        self.text.push_str(text);
        self.links.push(Link { start, end: self.len(), qid });
    }

    /// Adds another line.
    pub(crate) fn append(&mut self, other: &Self) {
        let shift = self.len();
        self.text.push_str(&other.text);
        let moved =
            other.links.iter().map(|l| Link { start: l.start + shift, end: l.end + shift, qid: l.qid });
        self.links.extend(moved);
    }

    /// Adds `a, b and c`.
    pub(crate) fn list(&mut self, facts: &Facts, style: Style, objects: &[Qid]) {
        for (i, &object) in objects.iter().enumerate() {
            if i > 0 {
                self.push(if i + 1 == objects.len() { " and " } else { ", " });
            }
            self.push(article(&facts.entities[&object], facts.class(object), style));
            self.link(&facts.entities[&object].label, object);
        }
    }
}

/// Fills a template about a subject and its objects.
pub(crate) fn render(
    facts: &Facts,
    template: &str,
    subject: &Subject,
    style: Style,
    objects: &[Qid],
) -> Line {
    let mut line = Line::default();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        line.push(before);
        let Some((name, tail)) = after.split_once('}') else {
            line.push("{");
            rest = after;
            continue;
        };
        match subject.fill(name) {
            Some(text) if line.text.is_empty() => line.push(&capitalised(&text)),
            Some(text) => line.push(&text),
            None => line.list(facts, style, objects),
        }
        rest = tail;
    }
    line.push(rest);
    line
}

/// Fills a template and keeps only the text.
pub(crate) fn fill(facts: &Facts, template: &str, subject: &str, style: Style, objects: &[Qid]) -> String {
    render(facts, template, &Subject::Name(subject.to_owned()), style, objects).text
}
