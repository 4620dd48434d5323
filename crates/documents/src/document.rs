//! The text of a file with its structure, and its form as a page.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sporran_kilt::{
    Id, Page,
    passage::{HEADING, Mark},
};

use crate::SourceFile;

/// The longest title of a page, in bytes.
const LONGEST_TITLE: usize = 1000;
/// Separates the headings of a section's path.
const PATH: &str = " > ";

/// A heading or a paragraph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// The level of a heading, from 1; 0 for a paragraph.
    pub level: u8,
    /// The text.
    pub text: String,
    /// The lines and pages of the text, by byte. Empty where the format has neither.
    pub marks: Vec<Mark>,
}

/// The text of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// The title that the file names.
    pub title: Option<String>,
    /// Headings and paragraphs.
    pub blocks: Vec<Block>,
    /// Fields such as `author` and `date`.
    pub metadata: Map<String, Value>,
    /// Remarks on the reading, such as a guessed encoding.
    pub notes: Vec<String>,
    /// Parts that could not be read.
    pub missing: Vec<String>,
}

impl Document {
    /// Adds a field of metadata unless its value is blank.
    pub(crate) fn describe(&mut self, key: &str, value: &str) {
        let value = value.trim();
        if !value.is_empty() && !self.metadata.contains_key(key) {
            self.metadata.insert(key.to_owned(), value.into());
        }
    }

    /// Whether it has no text.
    pub(crate) fn is_blank(&self) -> bool {
        self.blocks.iter().all(|block| block.text.trim().is_empty())
    }

    /// The page of the document. A first heading is the title of a document without one. The section of a text is the
    /// path of its headings.
    pub(crate) fn into_page(mut self, file: &SourceFile) -> Page {
        let first = self.blocks.first().filter(|block| block.level > 0).map(|block| block.text.clone());
        let title = self.title.filter(|title| !title.trim().is_empty()).or_else(|| first.clone());
        let title = title.unwrap_or_else(|| file.stem());
        let title = shortened(&title.split_whitespace().collect::<Vec<_>>().join(" "));
        let mut marks = vec![Vec::new()];
        let mut text = vec![title.clone()];
        if first.is_some_and(|first| first == title) {
            marks[0] = self.blocks.remove(0).marks;
        }
        let mut path: Vec<(u8, String)> = Vec::new();
        for block in self.blocks {
            match block.level {
                0 => {
                    text.push(block.text);
                    marks.push(block.marks);
                }
                level => {
                    path.retain(|(above, _)| *above < level);
                    path.push((level, block.text.replace(PATH, " › ")));
                    let names: Vec<&str> = path.iter().map(|(_, name)| name.as_str()).collect();
                    let names = names.join(PATH);
                    let visible = names.len() - path.last().map_or(0, |(_, name)| name.len());
                    // The marks are those of the last name.
                    let shift = (HEADING.len() + visible) as u32;
                    let moved = block.marks.into_iter();
                    let moved =
                        moved.map(|mark| Mark { at: if mark.at == 0 { 0 } else { mark.at + shift }, ..mark });
                    marks.push(moved.collect());
                    text.push(format!("{HEADING}{names}"));
                }
            }
        }
        let mut extra = Map::from_iter([
            ("file".to_owned(), Value::from(file.file.as_str())),
            ("source".to_owned(), file.source.as_str().into()),
            ("section".to_owned(), "".into()),
        ]);
        if !self.metadata.is_empty() {
            extra.insert("metadata".to_owned(), self.metadata.into());
        }
        if marks.iter().any(|marks| !marks.is_empty()) {
            let places = marks.iter().map(|marks| marks.iter().map(Mark::to_json).collect::<Value>());
            extra.insert("places".to_owned(), places.collect());
        }
        page(file.id.clone(), title, text, extra)
    }
}

/// A page without KILT's other fields.
pub(crate) fn page(id: String, title: String, text: Vec<String>, extra: Map<String, Value>) -> Page {
    Page {
        wikipedia_id: Id::Text(id),
        wikipedia_title: title,
        text,
        record_id: None,
        anchors: None,
        categories: None,
        history: None,
        wikidata_info: None,
        extra,
    }
}

/// The text without what is beyond the longest title.
pub(crate) fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(LONGEST_TITLE.min(text.len()))].to_owned()
}
