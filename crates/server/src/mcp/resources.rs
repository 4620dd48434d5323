//! Documents as resources.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rmcp::{
    ErrorData,
    model::{ListResourcesResult, ReadResourceResult, Resource, ResourceContents, ResourceTemplate},
};
use sporran_kilt::{PassageStore, passage::shown, store::PageIndex};

use crate::{
    Failure,
    mounts::{InStore, Mounts, named},
};

/// The scheme of the addresses.
const SCHEME: &str = "sporran://";
/// The resources of a list.
const LISTED: usize = 100;
/// The characters that a part of an address escapes.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The form of the addresses.
pub(super) fn template() -> ResourceTemplate {
    ResourceTemplate::new(format!("{SCHEME}{{index}}/{{id}}"), "document")
        .with_title("A document, or a passage of one")
        .with_description("`index` is the name of an index, `id` an id that `search` or `answer` gives")
        .with_mime_type("text/plain")
}

fn address(index: &str, id: &str) -> String {
    format!("{SCHEME}{}/{}", utf8_percent_encode(index, ESCAPED), utf8_percent_encode(id, ESCAPED))
}

/// The index and the id of an address.
fn parts(address: &str) -> Option<(String, String)> {
    let (index, id) = address.strip_prefix(SCHEME)?.split_once('/')?;
    let decoded = |part: &str| Some(percent_decode_str(part).decode_utf8().ok()?.into_owned());
    Some((decoded(index)?, decoded(id)?))
}

/// The indexes with their documents.
fn stores(mounts: &Mounts) -> impl Iterator<Item = (&str, &PassageStore)> {
    mounts.all().iter().filter_map(|mount| Some((mount.name(), mount.answering()?.index().ok()?)))
}

/// Some documents of all indexes; the cursor is the number of those before them.
pub(super) fn list(mounts: &Mounts, cursor: Option<&str>) -> Result<ListResourcesResult, ErrorData> {
    let begin = match cursor.map(str::parse::<usize>) {
        None => 0,
        Some(Ok(begin)) => begin,
        Some(Err(_)) => {
            return Err(ErrorData::invalid_params("the cursor is not one of this server's", None));
        }
    };
    let (mut resources, mut before) = (Vec::new(), 0);
    for (name, store) in stores(mounts) {
        let first = begin.saturating_sub(before).min(store.pages());
        let last = store.pages().min(first + LISTED - resources.len());
        resources.extend((first..last).map(|page| {
            let page = PageIndex(page as u32);
            let (id, title) = (store.page_id(page), store.page_title(page));
            Resource::new(address(name, &id), id).with_title(title).with_mime_type("text/plain")
        }));
        before += store.pages();
    }
    let end = begin.saturating_add(resources.len());
    let mut result = ListResourcesResult::with_all_items(resources);
    result.next_cursor = (end < before).then(|| end.to_string());
    Ok(result)
}

/// The text of a document or a passage.
pub(super) fn read(mounts: &Mounts, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let missing = || ErrorData::resource_not_found(format!("there is no resource `{uri}`"), None);
    let (index, id) = parts(uri).ok_or_else(missing)?;
    let refused = |failure: Failure| ErrorData::resource_not_found(failure.message, None);
    let store = mounts.searching(Some(&index)).map_err(refused)?.index().map_err(refused)?;
    let text = match named(store, &id).ok_or_else(missing)? {
        InStore::Passage(passage) => store.text(passage),
        InStore::Page(page) => text(store, page),
    };
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri)]))
}

/// The paragraphs of a document as a reader sees them, with empty lines between.
fn text(store: &PassageStore, page: PageIndex) -> String {
    let paragraphs = store.paragraphs(page).map(|paragraph| &paragraph[shown(paragraph)]);
    paragraphs.filter(|paragraph| !paragraph.is_empty()).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_an_index_and_a_document() {
        let found = address("a b", "notes/é.md#3");
        assert_eq!(found, "sporran://a%20b/notes%2F%C3%A9.md%233");
        assert_eq!(parts(&found), Some(("a b".to_owned(), "notes/é.md#3".to_owned())));
        for wrong in ["file:///etc/passwd", "sporran://a", "sporran://a/%ff"] {
            assert_eq!(parts(wrong), None, "{wrong}");
        }
    }
}
