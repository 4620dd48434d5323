//! The links of a document's mentions to entities.

use std::path::Path;

use rustc_hash::{FxHashMap, FxHashSet};
use sporran_kilt::{Page, jsonl, kb::EntityId};

use super::{document::decoded, names::Entities};
use crate::Result;

/// An entity of a document with its mentions, as the places of their names in the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vertex {
    /// The first byte of each mention, and the byte after its last.
    pub mentions: Vec<(usize, usize)>,
    /// Whether it is a time or a number, which no linker links.
    pub is_value: bool,
}

/// An entity linker.
pub trait MentionLinker {
    /// Links the vertices of a text to entities of the knowledge base, by their ids.
    fn link(&self, text: &str, vertices: &[Vertex]) -> Vec<Option<String>>;
}

/// The sources of links, in order: hyperlinks, a linker, then names that only one entity has.
pub struct Links<'a> {
    /// The names of entities.
    pub entities: &'a Entities,
    /// The hyperlinks of the documents' pages.
    pub hyperlinks: Hyperlinks,
    /// The linker for what no hyperlink links.
    pub linker: Option<&'a dyn MentionLinker>,
}

impl<'a> Links<'a> {
    /// Links by unique names only.
    pub fn by_names(entities: &'a Entities) -> Self {
        Self { entities, hyperlinks: Hyperlinks::default(), linker: None }
    }
}

/// The hyperlinks of pages: the entity of each text with a link, by the page's title.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hyperlinks(FxHashMap<String, FxHashMap<String, Option<EntityId>>>);

impl Hyperlinks {
    /// Reads the anchors of the pages with these titles from a knowledge source. A page's title names its own
    /// entity. A text that links to two entities on a page links to none.
    ///
    /// # Errors
    /// Read errors, with line and field.
    pub fn read(path: &Path, titles: &FxHashSet<String>, entities: &Entities) -> Result<Self> {
        let mut pages: FxHashMap<String, FxHashMap<String, Option<EntityId>>> = FxHashMap::default();
        for page in jsonl::open(path)?.records::<Page>() {
            let page = page?;
            if !titles.contains(&page.wikipedia_title) {
                continue;
            }
            let links = pages.entry(page.wikipedia_title.clone()).or_default();
            let anchors = page.anchors.iter().flatten().filter_map(|anchor| {
                Some((anchor.text.clone()?, entities.by_title(&decoded(anchor.href.as_deref()?))?))
            });
            let own = entities.by_title(&page.wikipedia_title);
            let title = page.wikipedia_title.split(" (").next().unwrap_or_default();
            for (text, entity) in anchors.chain(own.map(|own| (title.to_owned(), own))) {
                let known = links.entry(text).or_insert(Some(entity));
                *known = known.filter(|known| *known == entity);
            }
        }
        Ok(Self(pages))
    }

    /// The entity that a text links to on a page.
    pub fn of(&self, title: &str, text: &str) -> Option<EntityId> {
        self.0.get(title)?.get(text).copied().flatten()
    }
}

/// The only element; `None` for none, and for different ones.
pub(super) fn only(found: impl Iterator<Item = EntityId>) -> Option<EntityId> {
    let mut found: Vec<EntityId> = found.collect();
    found.sort_unstable();
    found.dedup();
    match found[..] {
        [entity] => Some(entity),
        _ => None,
    }
}
