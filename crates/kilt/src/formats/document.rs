//! A document of a collection, the common form of all corpus files.

use serde::{Deserialize, Serialize};
use serde_json::Map;

use crate::{
    Id, Page, Passage,
    passage::{self, Split},
};

/// A text with a title, the unit of retrieval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Unique in its collection.
    pub id: String,
    /// The title; empty where the collection has none.
    pub title: String,
    /// The text, without the title.
    pub text: String,
}

impl Document {
    /// A page of two paragraphs, the title and the text, for use in a knowledge source.
    pub fn into_page(self) -> Page {
        Page {
            record_id: Some(Id::Text(self.id.clone())),
            wikipedia_id: Id::Text(self.id),
            wikipedia_title: self.title.clone(),
            text: vec![self.title, self.text],
            anchors: Some(Vec::new()),
            categories: Some(String::new()),
            history: None,
            wikidata_info: None,
            extra: Map::new(),
        }
    }
}

impl From<&Page> for Document {
    /// The page's text as in a store with [`Split::Page`]: paragraphs and list items joined by a blank,
    /// without headers. If it is empty, the title.
    fn from(page: &Page) -> Self {
        let text = passage::split(&page.text, Split::Page)
            .first()
            .filter(|_| !page.text.is_empty())
            .map_or_else(String::new, |&span| {
                passage::text(span, Split::Page.list_items(), |number| &page.text[number as usize])
            });
        Self {
            id: page.wikipedia_id.text().into_owned(),
            title: page.wikipedia_title.trim().to_owned(),
            text,
        }
    }
}

impl From<Passage> for Document {
    /// The id is the passage's number in its store, the id that `sporran retrieve` writes.
    fn from(passage: Passage) -> Self {
        Self { id: passage.id.to_string(), title: passage.title.trim().to_owned(), text: passage.text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_survives_its_page() {
        let document = Document { id: "d 1".into(), title: "T".into(), text: "One. Two.".into() };
        let page = document.clone().into_page();
        assert_eq!(page.text, ["T", "One. Two."]);
        assert_eq!(Document::from(&page), document);
    }

    #[test]
    fn a_page_becomes_its_text_without_headers() {
        let page: Page = serde_json::from_str(
            r#"{"wikipedia_id":7,"wikipedia_title":"T\n","text":["T\n","One.\n","Section::::S.\n","BULLET::::- two\n"]}"#,
        )
        .unwrap();
        let expected = Document { id: "7".into(), title: "T".into(), text: "One. two".into() };
        assert_eq!(Document::from(&page), expected);
        let empty: Page =
            serde_json::from_str(r#"{"wikipedia_id":7,"wikipedia_title":"T","text":[]}"#).unwrap();
        assert_eq!(Document::from(&empty).text, "");
    }
}
