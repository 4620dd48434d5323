//! From a ranking to a prediction's provenance.

use rustc_hash::FxHashSet;
use sporran_kilt::{Hit, Passage, PassageId, PassageStore, Provenance, store::PageIndex, with_context};

use crate::options::EvidenceOptions;

/// The provenance of one prediction, best first.
///
/// `first` are the passages that the generator says it used, best first; then comes the ranking. With `title`, the
/// page of that title goes before everything: entity linking's answer names its own evidence.
pub(crate) fn provenance(
    store: &PassageStore,
    hits: &[Hit],
    first: &[PassageId],
    title: Option<&str>,
    options: &EvidenceOptions,
) -> Vec<Provenance> {
    let mut items = Vec::new();
    let mut pages: FxHashSet<PageIndex> = FxHashSet::default();
    let mut passages: FxHashSet<PassageId> = FxHashSet::default();
    let named = title.filter(|_| options.title_first).and_then(|title| store.page_by_title(title));
    // The page's best hit is its evidence; a page that was not retrieved is shown by its first passage.
    let named = named.map(|page| {
        let hit = hits.iter().find(|hit| store.page_of(hit.passage) == page);
        hit.map_or(PassageId(store.passages_of(page).start), |hit| hit.passage)
    });
    let ranking = named.into_iter().chain(first.iter().copied()).chain(hits.iter().map(|hit| hit.passage));
    for id in ranking {
        if items.len() == options.limit {
            break;
        }
        let new_page = pages.insert(store.page_of(id));
        if !passages.insert(id) || (options.one_per_page && !new_page) {
            continue;
        }
        let passage: Passage = store.passage(id);
        let item = passage.provenance();
        items.push(if options.with_text {
            let score = hits.iter().find(|hit| hit.passage == id).map_or(0.0, |hit| hit.score);
            with_context(item, &passage.text, score)
        } else {
            item
        });
    }
    items
}

#[cfg(test)]
mod tests {
    use sporran_kilt::{PassageSplit, jsonl, store::BuildOptions};

    use super::*;

    fn store(folder: &std::path::Path) -> PassageStore {
        let source = folder.join("pages.jsonl");
        let pages = [("1", "A"), ("2", "B"), ("3", "C")].map(|(id, title)| {
            format!(r#"{{"wikipedia_id":"{id}","wikipedia_title":"{title}","text":["{title}","one","two"]}}"#)
        });
        jsonl::write(&source, pages.join("\n").as_bytes()).unwrap();
        let options = BuildOptions { source, redirects: None, split: PassageSplit::Paragraph };
        PassageStore::build(&options, &folder.join("store"), &mut |_| {}).unwrap()
    }

    fn ids(items: &[Provenance]) -> Vec<String> {
        items
            .iter()
            .map(|item| {
                format!(
                    "{}.{}",
                    item.wikipedia_id.as_ref().unwrap(),
                    item.start_paragraph_id.as_ref().unwrap()
                )
            })
            .collect()
    }

    #[test]
    fn provenance_follows_the_ranking_one_passage_a_page() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        // Passages 0 and 1 are page 1's, 2 and 3 page 2's, 4 and 5 page 3's.
        let hits = [3, 2, 0, 5].map(|id| Hit { passage: PassageId(id), score: 1.0 });
        let options = EvidenceOptions::default();
        assert_eq!(ids(&provenance(&store, &hits, &[], None, &options)), ["2.2", "1.1", "3.2"]);
        let all = EvidenceOptions { one_per_page: false, limit: 3, ..options.clone() };
        assert_eq!(ids(&provenance(&store, &hits, &[], None, &all)), ["2.2", "2.1", "1.1"]);
        assert_eq!(ids(&provenance(&store, &hits, &[PassageId(5)], None, &options)), ["3.2", "2.2", "1.1"]);
    }

    #[test]
    fn the_page_of_the_answers_title_goes_first() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let hits = [3, 5].map(|id| Hit { passage: PassageId(id), score: 1.0 });
        let options = EvidenceOptions::default();
        assert_eq!(ids(&provenance(&store, &hits, &[], Some("C"), &options)), ["3.2", "2.2"]);
        assert_eq!(ids(&provenance(&store, &hits, &[], Some("A"), &options)), ["1.1", "2.2", "3.2"]);
        assert_eq!(ids(&provenance(&store, &hits, &[], Some("D"), &options)), ["2.2", "3.2"]);
    }
}
