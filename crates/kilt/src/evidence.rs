//! Gold evidence in the passages of a store.

use crate::{Example, Id, Passage, PassageId, PassageStore, Provenance};

/// All passages of the gold pages of a record, in the order of its evidence.
pub fn gold_passages<'s>(
    example: &'s Example,
    store: &'s PassageStore,
) -> impl Iterator<Item = Passage> + 's {
    let gold = example.gold.iter().flat_map(|output| output.evidence());
    let pages = gold.filter_map(|item| store.page_by_id(&item.wikipedia_id.as_ref()?.text()));
    pages.flat_map(|page| store.passages_of(page).map(|id| store.passage(PassageId(id))))
}

/// Whether `piece` of a page (or the page, without a piece) contains an item of gold evidence.
pub fn holds(page: &str, piece: Option<&str>, gold: &Provenance, store: &PassageStore) -> bool {
    let of_page = gold.wikipedia_id.as_ref().is_some_and(|id| id.text() == page);
    of_page
        && piece.is_none_or(|piece| {
            span(gold, store).is_none_or(|span| {
                let (span, piece) = (span.trim(), piece.trim());
                piece.contains(span) || span.contains(piece)
            })
        })
}

/// The text of a span, with one paragraph in each line; `None` if the evidence is a whole page.
pub(crate) fn span(item: &Provenance, store: &PassageStore) -> Option<String> {
    let page = store.page_by_id(&item.wikipedia_id.as_ref()?.text())?;
    let number = |id: &Option<Id>| id.as_ref().and_then(Id::number);
    let first = u32::try_from(number(&item.start_paragraph_id)?).ok()?;
    let last = number(&item.end_paragraph_id).map_or(Some(first), |last| u32::try_from(last).ok())?;
    let start = usize::try_from(number(&item.start_character)?).ok()?;
    let end = usize::try_from(number(&item.end_character)?).ok()?;
    if first > last || (first == last && start > end) || last as usize >= store.paragraph_count(page) {
        return None;
    }
    let piece = |paragraph: u32| -> String {
        let from = if paragraph == first { start } else { 0 };
        let to = if paragraph == last { end } else { usize::MAX };
        store.paragraph(page, paragraph).chars().take(to).skip(from).collect()
    };
    Some((first..=last).map(piece).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PassageSplit, jsonl, store::BuildOptions};

    fn store(folder: &std::path::Path) -> PassageStore {
        let source = folder.join("pages.jsonl");
        let pages = [("1", "A"), ("2", "B"), ("3", "C")].map(|(id, title)| {
            format!(r#"{{"wikipedia_id":"{id}","wikipedia_title":"{title}","text":["{title}","one","two"]}}"#)
        });
        jsonl::write(&source, pages.join("\n").as_bytes()).unwrap();
        let redirects = folder.join("redirects.tsv");
        std::fs::write(&redirects, "Bee\tB\n").unwrap();
        let options = BuildOptions { source, redirects: Some(redirects), split: PassageSplit::Paragraph };
        PassageStore::build(&options, folder.join("store"), &mut |_| {}).unwrap()
    }

    #[test]
    fn a_span_is_read_over_its_paragraphs() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let text = |from: [i64; 2], to: [i64; 2]| {
            let item = Provenance {
                wikipedia_id: Some("1".into()),
                start_paragraph_id: Some(from[0].into()),
                start_character: Some(from[1].into()),
                end_paragraph_id: Some(to[0].into()),
                end_character: Some(to[1].into()),
                ..Provenance::default()
            };
            span(&item, &store)
        };
        assert_eq!(text([1, 1], [1, 3]).as_deref(), Some("ne"));
        assert_eq!(text([1, 1], [2, 2]).as_deref(), Some("ne\ntw"));
        assert_eq!((text([2, 0], [1, 3]), text([1, 2], [1, 1]), text([1, 0], [3, 1])), (None, None, None));
    }
}
