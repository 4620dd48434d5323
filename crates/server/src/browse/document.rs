//! A document of an index, with the marks of a passage and of a sentence in it.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sporran_kilt::{
    ParagraphKind, PassageId, PassageStore,
    passage::{HEADING, shown},
    store::PageIndex,
};
use sporran_pipeline::workflows::answer::heading;

use crate::{
    Failure,
    mounts::{InStore, fields, named},
};

/// The most documents of a list.
const MOST: usize = 200;

/// Some documents of an index, in its order.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct PlacedDocuments {
    /// The number of documents of the index.
    pub(crate) total: usize,
    /// The number of the first one, from 0.
    pub(crate) offset: usize,
    /// The documents.
    pub(crate) documents: Vec<ListedDocument>,
}

/// A document in a list.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct ListedDocument {
    /// The id.
    pub(crate) id: String,
    /// The title.
    pub(crate) title: String,
    /// The file, if the document comes from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    /// The number of passages.
    passages: usize,
}

impl PlacedDocuments {
    /// At most `limit` documents of a store from `offset` on.
    pub(crate) fn of(store: &PassageStore, offset: usize, limit: usize) -> Self {
        let total = store.pages();
        let listed = |page: usize| {
            let page = PageIndex(page as u32);
            ListedDocument {
                id: store.page_id(page).into_owned(),
                title: store.page_title(page).to_owned(),
                file: store.metadata(page).file().path,
                passages: store.passages_of(page).len(),
            }
        };
        let end = total.min(offset.saturating_add(limit.min(MOST)));
        Self { total, offset, documents: (offset.min(end)..end).map(listed).collect() }
    }
}

/// The document to show, and what to mark in it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DocumentPlace {
    /// The mount.
    pub(crate) mount: Option<String>,
    /// The id of a document, or of a passage, which is marked.
    pub(crate) id: String,
    /// The paragraph in which the passage to mark starts, for the id of a document.
    pub(crate) paragraph: Option<u32>,
    /// The character in that paragraph at which the passage starts.
    pub(crate) start: Option<u32>,
    /// The first character of the sentence to mark, in the text of the passage.
    pub(crate) from: Option<usize>,
    /// The character after its last one.
    pub(crate) to: Option<usize>,
}

/// A whole document.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct PlacedDocument {
    /// The id.
    id: String,
    /// The title.
    title: String,
    /// The file, if the document comes from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    /// Other fields of the document.
    fields: Map<String, Value>,
    /// The paragraphs that have a text.
    paragraphs: Vec<Paragraph>,
}

/// A paragraph of a document.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Paragraph {
    /// The number in the document, from 0, as in provenance.
    number: u32,
    /// `title`, `heading`, `list` or `text`.
    kind: &'static str,
    /// The number of headings above a heading, plus one; 0 for other kinds.
    level: usize,
    /// The text that a reader sees.
    text: String,
    /// The page of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<u64>,
    /// What is marked.
    marks: Vec<Mark>,
}

/// A marked part of a paragraph's text. The offsets count Unicode scalar values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Mark {
    /// The first character.
    start: usize,
    /// The character after the last one.
    end: usize,
    /// `passage` or `sentence`.
    kind: &'static str,
}

impl PlacedDocument {
    /// The document of a place in a store.
    ///
    /// # Errors
    /// An id of nothing.
    pub(crate) fn of(store: &PassageStore, place: &DocumentPlace) -> Result<Self, Failure> {
        let named = named(store, &place.id).ok_or_else(|| Failure::not_found("document", &place.id, []))?;
        let (page, passage) = match named {
            InStore::Passage(passage) => (store.page_of(passage), Some(passage)),
            InStore::Page(page) => (page, passage_at(store, page, place.paragraph, place.start)),
        };
        let sentence = place.from.zip(place.to).map(|(from, to)| from..to);
        let marks = passage.map_or_else(Vec::new, |passage| marks(store, passage, sentence));
        let paragraphs = store.paragraphs(page).zip(0..).filter_map(|(text, number)| {
            let own = marks.iter().filter(|(at, ..)| *at == number);
            Paragraph::new(
                text,
                number,
                store.file_place(page, number, 0).page,
                own.map(|(_, bytes, kind)| (bytes, *kind)),
            )
        });
        let paragraphs = paragraphs.collect();
        let metadata = store.metadata(page);
        let (file, fields) = (metadata.file().path, fields(metadata));
        Ok(Self {
            id: store.page_id(page).into_owned(),
            title: store.page_title(page).to_owned(),
            file,
            fields,
            paragraphs,
        })
    }
}

impl Paragraph {
    /// A paragraph with its marks, which are bytes of `whole`; `None` for one without a text.
    fn new<'m>(
        whole: &str,
        number: u32,
        page: Option<u64>,
        marks: impl Iterator<Item = (&'m Range<usize>, &'static str)>,
    ) -> Option<Self> {
        let range = shown(whole);
        let text = &whole[range.clone()];
        let (kind, level) = match ParagraphKind::of(whole) {
            _ if number == 0 => ("title", 0),
            ParagraphKind::Header => ("heading", 1),
            ParagraphKind::Heading => ("heading", 1 + whole[HEADING.len()..].matches(" > ").count()),
            ParagraphKind::ListItem => ("list", 0),
            ParagraphKind::Text => ("text", 0),
        };
        let text = if ParagraphKind::of(whole) == ParagraphKind::Header { heading(whole) } else { text };
        let characters = |byte: usize| {
            let byte = byte.clamp(range.start, range.end);
            whole[range.start..byte].chars().count()
        };
        let marks = marks.map(|(bytes, kind)| Mark {
            start: characters(bytes.start),
            end: characters(bytes.end),
            kind,
        });
        let marks = marks.filter(|mark| mark.start < mark.end).collect();
        (!text.is_empty()).then(|| Self { number, kind, level, text: text.to_owned(), page, marks })
    }
}

/// The passage of a page that starts at a character of a paragraph.
fn passage_at(
    store: &PassageStore,
    page: PageIndex,
    paragraph: Option<u32>,
    start: Option<u32>,
) -> Option<PassageId> {
    let (paragraph, start) = (paragraph?, start?);
    store.passages_of(page).map(PassageId).find(|&passage| {
        let found = store.passage(passage);
        (found.start_paragraph, found.start_character) == (paragraph, start)
    })
}

/// The parts of paragraphs that are a passage, and those that are a range of characters of its text.
fn marks(
    store: &PassageStore,
    passage: PassageId,
    sentence: Option<Range<usize>>,
) -> Vec<(u32, Range<usize>, &'static str)> {
    let page = store.page_of(passage);
    let mut found = Vec::new();
    // The characters of the text before a piece.
    let mut before = 0;
    for (number, bytes) in store.pieces(passage) {
        let piece = &store.paragraph(page, number)[bytes.clone()];
        let length = piece.chars().count();
        if let Some(Range { start, end }) = &sentence {
            let byte = |character: usize| {
                let within = character.clamp(before, before + length) - before;
                bytes.start + piece.char_indices().nth(within).map_or(piece.len(), |(at, _)| at)
            };
            let part = byte(*start)..byte(*end);
            if !part.is_empty() {
                found.push((number, part, "sentence"));
            }
        }
        found.push((number, bytes, "passage"));
        before += length + 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use sporran_kilt::{PassageSplit, store::BuildOptions};

    use super::*;

    fn store(split: PassageSplit) -> (tempfile::TempDir, PassageStore) {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("pages.jsonl");
        let page = serde_json::json!({
            "wikipedia_id": "7",
            "wikipedia_title": "Tea",
            "text": ["Tea\n", "Grün ist gut. Tee", "Section::::Use.\n", "BULLET::::- 茶 is hot.\n", "  \n"],
        });
        std::fs::write(&source, page.to_string()).unwrap();
        let options = BuildOptions { source, redirects: None, split };
        let store = PassageStore::build(&options, folder.path().join("store"), &mut |_| {}).unwrap();
        (folder, store)
    }

    fn place(id: &str) -> DocumentPlace {
        DocumentPlace { mount: None, id: id.into(), paragraph: None, start: None, from: None, to: None }
    }

    #[test]
    fn a_sentence_is_marked_across_paragraphs_in_characters() {
        let (_folder, store) = store(PassageSplit::Page);
        let text = store.text(PassageId(0));
        assert_eq!(text, "Grün ist gut. Tee 茶 is hot.");
        // `Tee 茶 is`
        let wanted =
            DocumentPlace { paragraph: Some(1), start: Some(0), from: Some(14), to: Some(22), ..place("7") };
        let found = PlacedDocument::of(&store, &wanted).unwrap();
        let shown: Vec<_> = found.paragraphs.iter().map(|part| (part.kind, part.text.as_str())).collect();
        assert_eq!(
            shown,
            [("title", "Tea"), ("text", "Grün ist gut. Tee"), ("heading", "Use"), ("list", "茶 is hot.")]
        );
        let mark = |start, end, kind| Mark { start, end, kind };
        assert_eq!(found.paragraphs[1].marks, [mark(14, 17, "sentence"), mark(0, 17, "passage")]);
        assert!(found.paragraphs[2].marks.is_empty());
        assert_eq!(found.paragraphs[3].marks, [mark(0, 4, "sentence"), mark(0, 9, "passage")]);
    }

    #[test]
    fn a_document_is_shown_by_its_id_or_a_passage_of_it() {
        let (_folder, store) = store(PassageSplit::Paragraph);
        let whole = PlacedDocument::of(&store, &place("7")).unwrap();
        assert!(whole.paragraphs.iter().all(|part| part.marks.is_empty()));
        let second = PlacedDocument::of(&store, &place("7#1")).unwrap();
        assert_eq!(second.paragraphs[3].marks, [Mark { start: 0, end: 9, kind: "passage" }]);
        // A place that is no passage's marks nothing.
        let stray = DocumentPlace { paragraph: Some(1), start: Some(3), ..place("7") };
        assert_eq!(PlacedDocument::of(&store, &stray).unwrap(), whole);
        let message = PlacedDocument::of(&store, &place("8")).unwrap_err().message;
        assert_eq!(message, "there is no document `8`");
    }

    #[test]
    fn lists_end_with_the_index() {
        let (_folder, store) = store(PassageSplit::Paragraph);
        let all = PlacedDocuments::of(&store, 0, 10);
        assert_eq!((all.total, all.documents.len(), all.documents[0].passages), (1, 1, 2));
        assert!(PlacedDocuments::of(&store, 5, 10).documents.is_empty());
    }
}
