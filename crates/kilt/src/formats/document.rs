//! A document of a collection, the common form of all corpus files.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    Id, Page, ParagraphKind, Passage,
    metadata::Field,
    passage::{self, ABSTRACT, Split},
};

/// The field of a record that is an object of further fields, as in BEIR's corpora.
pub(crate) const METADATA: &str = "metadata";

/// A text with a title, the unit of retrieval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Unique in its collection.
    pub id: String,
    /// The title; empty where the collection has none.
    pub title: String,
    /// The text, without the title.
    pub text: String,
    /// The other fields of its record, and those of its object `metadata`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

/// The fields of a record that its format does not define, with those of its object `metadata` at the same level. A
/// field of the record precedes one of the object.
pub(crate) fn joined(mut fields: Map<String, Value>, metadata: Option<Value>) -> Map<String, Value> {
    match metadata {
        Some(Value::Object(object)) => {
            for (key, value) in object {
                fields.entry(key).or_insert(value);
            }
        }
        Some(other) if !other.is_null() => {
            fields.insert(METADATA.to_owned(), other);
        }
        _ => {}
    }
    fields
}

impl Document {
    /// A page of two paragraphs, the title and the text, for use in a knowledge source. Its metadata are in the object
    /// `metadata`, so that no name is one of KILT's.
    pub fn into_page(self) -> Page {
        let metadata =
            (!self.metadata.is_empty()).then(|| (METADATA.to_owned(), Value::Object(self.metadata)));
        Page {
            record_id: Some(Id::Text(self.id.clone())),
            wikipedia_id: Id::Text(self.id),
            wikipedia_title: self.title.clone(),
            text: vec![self.title, self.text],
            anchors: Some(Vec::new()),
            categories: Some(String::new()),
            history: None,
            wikidata_info: None,
            extra: metadata.into_iter().collect(),
        }
    }
}

impl From<&Page> for Document {
    /// The page's text as in a store with [`Split::Page`]: paragraphs and list items joined by a blank,
    /// without headers. If it is empty, the title. The metadata are the fields that KILT does not define, and
    /// `categories`, as in a store.
    fn from(page: &Page) -> Self {
        let text = passage::split(&page.text, &Split::Page.into())
            .first()
            .filter(|_| !page.text.is_empty())
            .map_or_else(String::new, |&span| {
                passage::text(span, Split::Page.list_items(), |number: u32| {
                    page.text[number as usize].as_str()
                })
            });
        let mut extra = page.extra.clone();
        if let Some(Field::List(categories)) = page.categories.as_deref().and_then(Field::of_commas) {
            extra.insert("categories".to_owned(), categories.into());
        }
        // `remove` would move the last field to the place of this one.
        let metadata = extra.shift_remove(METADATA);
        Self {
            id: page.wikipedia_id.text().into_owned(),
            title: page.wikipedia_title.trim().to_owned(),
            text,
            metadata: joined(extra, metadata),
        }
    }
}

impl From<Passage> for Document {
    /// The id is the passage's number in its store, the id that `sporran retrieve` writes. The metadata have the place
    /// and the section that its record names.
    fn from(passage: Passage) -> Self {
        let mut metadata = Map::from(passage.metadata);
        metadata.extend(passage.file.fields());
        // A page's own headers are parts of its text.
        let is_named = ![ABSTRACT, ""].contains(&passage.section.as_str())
            && ParagraphKind::of(&passage.section) != ParagraphKind::Header;
        metadata.extend(is_named.then(|| ("section".to_owned(), passage.section.into())));
        let (id, title) = (passage.id.to_string(), passage.title.trim().to_owned());
        Self { id, title, text: passage.text, metadata }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_survives_its_page() {
        let object = |text: &str| serde_json::from_str::<Map<String, Value>>(text).unwrap();
        let (title, text) = ("T".to_owned(), "One. Two.".to_owned());
        let document = Document { id: "d 1".into(), title, text, metadata: Map::new() };
        let page = document.clone().into_page();
        assert_eq!(page.text, ["T", "One. Two."]);
        assert!(page.extra.is_empty());
        assert_eq!(Document::from(&page), document);
        // Names of KILT's fields stay in the object.
        let metadata = object(r#"{"lang":"en","text":"x","history":1}"#);
        let document = Document { metadata, ..document };
        let line = serde_json::to_string(&document.clone().into_page()).unwrap();
        let page: Page = serde_json::from_str(&line).unwrap();
        assert_eq!(page.text, ["T", "One. Two."]);
        assert_eq!(Document::from(&page), document);
        let both = joined(object(r#"{"a":1,"b":2}"#), Some(object(r#"{"b":3,"c":4}"#).into()));
        assert_eq!(both, object(r#"{"a":1,"b":2,"c":4}"#));
        assert_eq!(joined(Map::new(), Some("x".into())), object(r#"{"metadata":"x"}"#));
    }

    #[test]
    fn a_page_becomes_its_text_without_headers() {
        let page: Page = serde_json::from_str(
            r#"{"wikipedia_id":7,"wikipedia_title":"T\n","text":["T\n","One.\n","Section::::S.\n","BULLET::::- two\n"]}"#,
        )
        .unwrap();
        let (id, metadata) = ("7".to_owned(), Map::new());
        let expected = Document { id, title: "T".into(), text: "One. two".into(), metadata };
        assert_eq!(Document::from(&page), expected);
        let empty: Page =
            serde_json::from_str(r#"{"wikipedia_id":7,"wikipedia_title":"T","text":[]}"#).unwrap();
        assert_eq!(Document::from(&empty).text, "");
    }
}
