//! A page under construction.

use super::facts::Qid;
use super::line::{Line, Link};

/// A page before it becomes a record.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// Page id, a number as a string.
    pub id: String,
    /// Title.
    pub title: String,
    /// The entity; none for a page that lists the bearers of a name.
    pub qid: Option<Qid>,
    /// Paragraphs; the first is the title line.
    pub text: Vec<String>,
    /// Paragraph and mention.
    pub anchors: Vec<(usize, Link)>,
    /// Category names.
    pub categories: Vec<String>,
}

impl Page {
    /// A page with its title line.
    pub(crate) fn new(id: String, title: String, qid: Option<Qid>) -> Self {
        let text = vec![format!("{title}\n")];
        Self { id, title, qid, text, anchors: Vec::new(), categories: Vec::new() }
    }

    /// Adds a paragraph and returns its index.
    pub(crate) fn paragraph(&mut self, line: &Line) -> usize {
        let id = self.text.len();
        self.text.push(format!("{}\n", line.text));
        self.anchors.extend(line.links.iter().map(|&link| (id, link)));
        id
    }

    /// Adds a section header.
    pub(crate) fn section(&mut self, title: &str) {
        self.text.push(format!("Section::::{title}.\n"));
    }

    /// The header of a paragraph, in the form that provenance uses.
    pub(crate) fn header(&self, paragraph: usize) -> &str {
        let above = self.text[..=paragraph].iter().rev().find(|p| p.starts_with("Section::::"));
        above.map_or("Section::::Abstract.", String::as_str)
    }
}
