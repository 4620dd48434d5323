//! From a ranking to a prediction's provenance, and which pieces of passages hold gold evidence.

use rustc_hash::{FxHashMap, FxHashSet};
use sporran_kilt::{
    Example, Hit, Passage, PassageId, PassageStore, Provenance, store::PageIndex, with_context,
};

use crate::options::{EvidenceOptions, PageScore};

/// What is added to a rank before it is inverted, as reciprocal rank fusion has it.
const RANK_CONSTANT: f32 = 60.0;

/// The passages of a ranking in the order in which they are evidence: by rank, or by what their pages' passages score
/// together, and within a page by rank.
fn ordered(store: &PassageStore, hits: &[Hit], score: PageScore) -> Vec<PassageId> {
    let worth = |rank: usize, hit: &Hit| match score {
        PageScore::Best => 0.0,
        PageScore::Sum => hit.score,
        PageScore::ReciprocalRank => 1.0 / (RANK_CONSTANT + rank as f32 + 1.0),
    };
    let mut scores: FxHashMap<PageIndex, f32> = FxHashMap::default();
    for (rank, hit) in hits.iter().enumerate() {
        *scores.entry(store.page_of(hit.passage)).or_insert(0.0) += worth(rank, hit);
    }
    let mut passages: Vec<PassageId> = hits.iter().map(|hit| hit.passage).collect();
    if score != PageScore::Best {
        let of = |passage: &PassageId| scores[&store.page_of(*passage)];
        passages.sort_by(|a, b| of(b).total_cmp(&of(a)));
    }
    passages
}

/// The pages of a ranking as evidence lists them, best first.
pub(crate) fn pages(store: &PassageStore, hits: &[Hit], options: &EvidenceOptions) -> Vec<PageIndex> {
    let mut known: FxHashSet<PageIndex> = FxHashSet::default();
    let pages = ordered(store, hits, options.page_score).into_iter().map(|passage| store.page_of(passage));
    pages.filter(|&page| known.insert(page)).take(options.limit).collect()
}

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
    let found = ordered(store, hits, options.page_score);
    let ranking = named.into_iter().chain(first.iter().copied()).chain(found);
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

/// All passages of the gold pages of a record, in the order of its evidence.
pub(crate) fn gold_passages<'s>(
    example: &'s Example,
    store: &'s PassageStore,
) -> impl Iterator<Item = Passage> + 's {
    let gold = example.gold.iter().flat_map(|output| output.evidence());
    let pages = gold.filter_map(|item| store.page_by_id(&item.wikipedia_id.as_ref()?.text()));
    pages.flat_map(|page| store.passages_of(page).map(|id| store.passage(PassageId(id))))
}

/// Whether `piece` of a page, or the page where there is none, holds what an item of gold evidence points at.
pub(crate) fn holds(page: &str, piece: Option<&str>, gold: &Provenance, store: &PassageStore) -> bool {
    let of_page = gold.wikipedia_id.as_ref().is_some_and(|id| id.text() == page);
    of_page
        && piece.is_none_or(|piece| {
            span(gold, store).is_none_or(|span| {
                let (span, piece) = (span.trim(), piece.trim());
                piece.contains(span) || span.contains(piece)
            })
        })
}

/// The text of a span within one paragraph; `None` where the evidence is a page as a whole.
fn span(item: &Provenance, store: &PassageStore) -> Option<String> {
    let page = store.page_by_id(&item.wikipedia_id.as_ref()?.text())?;
    let number = |id: &Option<sporran_kilt::Id>| id.as_ref().and_then(sporran_kilt::Id::number);
    let paragraph = u32::try_from(number(&item.start_paragraph_id)?).ok()?;
    let (start, end) = (number(&item.start_character)?, number(&item.end_character)?);
    let count = usize::try_from(end.checked_sub(start)?).ok()?;
    if paragraph as usize >= store.paragraph_count(page) {
        return None;
    }
    let text = store.paragraph(page, paragraph);
    Some(text.chars().skip(usize::try_from(start).ok()?).take(count).collect())
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
        PassageStore::build(&options, folder.join("store"), &mut |_| {}).unwrap()
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
    fn pages_can_be_ranked_by_all_their_passages() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        // Page 1 has the best passage, page 2 two good ones.
        let hits =
            [(0, 5.0), (2, 4.0), (3, 3.0), (4, 1.0)].map(|(id, score)| Hit { passage: PassageId(id), score });
        for (page_score, expected) in [
            (PageScore::Best, ["1.1", "2.1", "3.1"]),
            (PageScore::Sum, ["2.1", "1.1", "3.1"]),
            // 1/62 + 1/63 against 1/61 and 1/64.
            (PageScore::ReciprocalRank, ["2.1", "1.1", "3.1"]),
        ] {
            let options = EvidenceOptions { page_score, ..EvidenceOptions::default() };
            assert_eq!(ids(&provenance(&store, &hits, &[], None, &options)), expected);
            let listed = pages(&store, &hits, &options);
            let listed: Vec<String> =
                listed.into_iter().map(|page| format!("{}.1", store.page_id(page))).collect();
            assert_eq!(listed, expected);
        }
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
