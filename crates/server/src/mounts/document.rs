//! Documents and hits in the form of Pyserini's and Anserini's API.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use sporran_kilt::{Hit, Metadata, Passage, PassageId, PassageStore, store::PageIndex};
use sporran_pipeline::workflows::answer::heading;

/// The hits of a search.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct SearchResponse {
    /// The version of the API: `v1`.
    pub(crate) api: &'static str,
    /// The index.
    pub(crate) index: String,
    /// The query.
    pub(crate) query: QueryText,
    /// The hits, best first.
    pub(crate) candidates: Vec<SearchCandidate>,
}

/// A query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct QueryText {
    /// The text.
    pub(crate) text: String,
}

/// A hit.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct SearchCandidate {
    /// The id of the passage.
    pub(crate) docid: String,
    /// The score.
    pub(crate) score: f32,
    /// The rank, from 1.
    pub(crate) rank: usize,
    /// The passage.
    pub(crate) doc: Document,
}

/// A document or a passage of it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct DocumentResponse {
    /// The version of the API: `v1`.
    pub(crate) api: &'static str,
    /// The index.
    pub(crate) index: String,
    /// The id.
    pub(crate) docid: String,
    /// The content.
    pub(crate) doc: Document,
}

/// The content of a document or a passage. All offsets count Unicode scalar values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Document {
    /// The id.
    pub(crate) id: String,
    /// The title of the document.
    pub(crate) title: String,
    /// The title, a line break and the text.
    pub(crate) contents: String,
    /// The id of the document of a passage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) document: Option<String>,
    /// The section of a passage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) section: Option<String>,
    /// The paragraph in which a passage starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) paragraph: Option<u32>,
    /// Its first character in that paragraph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<u32>,
    /// The paragraph in which a passage ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) end_paragraph: Option<u32>,
    /// The character after its last one in that paragraph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<u32>,
    /// The file, if the document comes from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    /// The page of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) page: Option<u64>,
    /// The line of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u64>,
    /// The row of a table whose file has no lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) row: Option<u64>,
    /// The paragraphs of a whole document. The first is the title; headings start with `Section::::` or `Heading::::`, list
    /// items with `BULLET::::`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) paragraphs: Option<Vec<String>>,
    /// Other fields of the document than its place in a file.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) metadata: Map<String, Value>,
}

/// The fields of a document that are no place in a file.
pub(crate) fn fields(metadata: Metadata) -> Map<String, Value> {
    let mut fields = Map::from(metadata);
    // A row is a place in a file only.
    let is_in_file = fields.contains_key("file");
    for place in ["line", "page", "section", "file"].into_iter().chain(is_in_file.then_some("row")) {
        fields.remove(place);
    }
    fields
}

/// The id of a passage: that of its document, with `#` and its place in the document, from 0, if there are several.
pub(crate) fn document_id(store: &PassageStore, passage: PassageId) -> String {
    let page = store.page_of(passage);
    let all = store.passages_of(page);
    match all.len() {
        1 => store.page_id(page).into_owned(),
        _ => format!("{}#{}", store.page_id(page), passage.0 - all.start),
    }
}

/// A document or a passage of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InStore {
    /// A document.
    Page(PageIndex),
    /// A passage.
    Passage(PassageId),
}

/// What an id names: a document, or a passage of one.
pub(crate) fn named(store: &PassageStore, id: &str) -> Option<InStore> {
    if let Some(page) = store.page_by_id(id) {
        return Some(InStore::Page(page));
    }
    let (document, place) = id.rsplit_once('#')?;
    let all = store.passages_of(store.page_by_id(document)?);
    // `+1` and `01` are other texts.
    let place: u32 = place.parse().ok().filter(|number: &u32| number.to_string() == place)?;
    let passage = all.start.checked_add(place)?;
    (passage < all.end).then_some(InStore::Passage(PassageId(passage)))
}

impl Document {
    /// The document or the passage of an id.
    pub(crate) fn of_id(store: &PassageStore, id: &str) -> Option<Self> {
        Some(match named(store, id)? {
            InStore::Page(page) => Self::of_page(store, page),
            InStore::Passage(passage) => Self::of_passage(store, passage),
        })
    }

    fn of_page(store: &PassageStore, page: PageIndex) -> Self {
        let paragraphs: Vec<String> = store.paragraphs(page).map(str::to_owned).collect();
        let title = store.page_title(page).to_owned();
        let text: Vec<&str> = paragraphs.iter().skip(1).map(|text| text.trim()).collect();
        let place = store.file_place(page, 0, 0);
        Self {
            id: store.page_id(page).into_owned(),
            contents: format!("{title}\n{}", text.join("\n")),
            title,
            file: place.path,
            metadata: fields(store.metadata(page)),
            paragraphs: Some(paragraphs),
            ..Self::default()
        }
    }

    /// A passage.
    pub(crate) fn of_passage(store: &PassageStore, id: PassageId) -> Self {
        let Passage {
            page_id,
            title,
            section,
            text,
            start_paragraph,
            start_character,
            end_paragraph,
            end_character,
            file,
            metadata,
            ..
        } = store.passage(id);
        Self {
            id: document_id(store, id),
            contents: format!("{title}\n{text}"),
            title,
            document: Some(page_id),
            section: Some(heading(&section).to_owned()),
            paragraph: Some(start_paragraph),
            start: Some(start_character),
            end_paragraph: Some(end_paragraph),
            end: Some(end_character),
            file: file.path,
            page: file.page,
            line: file.line,
            row: file.row,
            paragraphs: None,
            metadata: fields(metadata),
        }
    }
}

impl SearchCandidate {
    /// The hits of a ranking.
    pub(crate) fn of_hits(store: &PassageStore, hits: &[Hit]) -> Vec<Self> {
        let candidate = |(at, hit): (usize, &Hit)| {
            let doc = Document::of_passage(store, hit.passage);
            Self { docid: doc.id.clone(), score: hit.score, rank: at + 1, doc }
        };
        hits.iter().enumerate().map(candidate).collect()
    }
}
