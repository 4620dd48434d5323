//! A page of the knowledge source.

use serde_json::{Map, Value};

use crate::{
    Id,
    open_record::open_record,
    passage::{BULLET, HEADING, SECTION},
};

/// One line of KILT's knowledge source.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The page's id, as a string in the published file.
    pub wikipedia_id: Id,
    /// The title.
    pub wikipedia_title: String,
    /// The paragraphs; the first repeats the title. Headers start with `Section::::`, list items with `BULLET::::`.
    pub text: Vec<String>,
    /// The record's id; equal to `wikipedia_id` in the published file.
    pub record_id: Option<Id>,
    /// Links to other pages.
    pub anchors: Option<Vec<Anchor>>,
    /// Category names, joined by commas.
    pub categories: Option<String>,
    /// The revision of the text.
    pub history: Option<Value>,
    /// The Wikidata item: `wikidata_id`, `aliases`, ..
    pub wikidata_info: Option<Value>,
    /// Fields that KILT does not define.
    pub extra: Map<String, Value>,
}

open_record!(Page,
    required { wikipedia_id = "wikipedia_id", wikipedia_title = "wikipedia_title", text = "text" },
    optional {
        record_id = "_id",
        anchors = "anchors",
        categories = "categories",
        history = "history",
        wikidata_info = "wikidata_info"
    }
);

/// A link in a page: the span `start..end` (Unicode scalar values) of a paragraph links to the page `href`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Anchor {
    /// The words that are the link.
    pub text: Option<String>,
    /// The title of the linked page, percent-encoded as in a URL.
    pub href: Option<String>,
    /// The paragraph, counted from 0.
    pub paragraph_id: Option<i64>,
    /// The first character in the paragraph.
    pub start: Option<i64>,
    /// The character after the last.
    pub end: Option<i64>,
    /// Fields that KILT does not define.
    pub extra: Map<String, Value>,
}

open_record!(Anchor, required {}, optional {
    text = "text", href = "href", paragraph_id = "paragraph_id", start = "start", end = "end"
});

/// The kind of a page's paragraph, detected by its first characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParagraphKind {
    /// Running text.
    Text,
    /// `Section::::Name.`
    Header,
    /// `BULLET::::- item`
    ListItem,
    /// `Heading::::Name`: a header whose name is part of the passages, as in documents.
    Heading,
}

impl ParagraphKind {
    /// The kind of a paragraph.
    pub fn of(paragraph: &str) -> Self {
        Self::of_bytes(paragraph.as_bytes())
    }

    pub(crate) fn of_bytes(paragraph: &[u8]) -> Self {
        if paragraph.starts_with(SECTION.as_bytes()) {
            Self::Header
        } else if paragraph.starts_with(BULLET.as_bytes()) {
            Self::ListItem
        } else if paragraph.starts_with(HEADING.as_bytes()) {
            Self::Heading
        } else {
            Self::Text
        }
    }
}
