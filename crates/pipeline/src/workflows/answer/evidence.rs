//! The provenance of predictions from rankings.

use std::hash::Hash;

use rustc_hash::{FxHashMap, FxHashSet};
use sporran_generator::EvidenceSource;
use sporran_kilt::{
    Hit, Passage, PassageId, PassageStore, Provenance, Query, formats::trec, store::PageIndex, with_context,
};

use crate::{
    tasks::query::is_entity_linking,
    workflows::answer::options::{EvidenceOptions, Options, PageScore, RunDocuments},
};

/// The constant of reciprocal rank fusion.
const RANK_CONSTANT: f32 = 60.0;

/// The pages of a ranking of passages with their scores, best first. Pages with equal scores are in the order of their best
/// passages. An item of `passages` is the page of a passage and the passage's score.
pub(crate) fn ranked_pages<P: Copy + Eq + Hash>(passages: &[(P, f32)], score: PageScore) -> Vec<(P, f32)> {
    let mut places: FxHashMap<P, usize> = FxHashMap::default();
    let mut pages: Vec<(P, f32)> = Vec::new();
    for (rank, &(page, passage)) in passages.iter().enumerate() {
        let share = match score {
            PageScore::Best | PageScore::Sum => passage,
            PageScore::ReciprocalRank => 1.0 / (RANK_CONSTANT + rank as f32 + 1.0),
        };
        match places.get(&page) {
            None => {
                places.insert(page, pages.len());
                pages.push((page, share));
            }
            Some(&place) if score != PageScore::Best => pages[place].1 += share,
            Some(_) => {}
        }
    }
    if score != PageScore::Best {
        pages.sort_by(|a, b| b.1.total_cmp(&a.1));
    }
    pages
}

/// As [`ranked_pages`], for passages of a store.
fn pages_of(store: &PassageStore, hits: &[Hit], score: PageScore) -> Vec<(PageIndex, f32)> {
    let passages: Vec<_> = hits.iter().map(|hit| (store.page_of(hit.passage), hit.score)).collect();
    ranked_pages(&passages, score)
}

/// The passages of a ranking in the order of evidence: by rank, or by the score of their page and then by rank.
fn ordered(store: &PassageStore, hits: &[Hit], score: PageScore) -> Vec<PassageId> {
    let mut passages: Vec<PassageId> = hits.iter().map(|hit| hit.passage).collect();
    if score != PageScore::Best {
        let scores: FxHashMap<PageIndex, f32> = pages_of(store, hits, score).into_iter().collect();
        let of = |passage: &PassageId| scores[&store.page_of(*passage)];
        passages.sort_by(|a, b| of(b).total_cmp(&of(a)));
    }
    passages
}

/// All pages of a ranking in the order of evidence, best first.
pub(crate) fn all_pages(
    store: &PassageStore,
    hits: &[Hit],
    score: PageScore,
) -> impl Iterator<Item = PageIndex> {
    pages_of(store, hits, score).into_iter().map(|(page, _)| page)
}

/// The first `evidence.limit` pages of a ranking in the order of evidence, best first.
pub(crate) fn pages(store: &PassageStore, hits: &[Hit], options: &EvidenceOptions) -> Vec<PageIndex> {
    all_pages(store, hits, options.page_score).take(options.limit).collect()
}

/// The documents of a ranking in TREC's format with their scores, which fall strictly. The score of a page is that of
/// `evidence.page-score`.
pub(crate) fn run_documents(
    store: &PassageStore,
    hits: &[Hit],
    options: &EvidenceOptions,
) -> Vec<(String, f32)> {
    let (ids, found): (Vec<String>, Vec<f32>) = match options.run_documents {
        RunDocuments::Passage => {
            let id = |hit: &Hit| {
                let page = store.page_of(hit.passage);
                let place = hit.passage.0 - store.passages_of(page).start;
                (trec::passage_document(&store.page_id(page), place), hit.score)
            };
            hits.iter().map(id).unzip()
        }
        RunDocuments::Page => {
            let pages = pages_of(store, hits, options.page_score).into_iter();
            pages.map(|(page, score)| (store.page_id(page).into_owned(), score)).unzip()
        }
    };
    ids.into_iter().zip(trec::falling(found)).collect()
}

/// The source of provenance for a query: that of the config, or the default of the generator's kind.
pub(crate) fn source(options: &Options, query: &Query) -> EvidenceSource {
    let evidence = &options.general.evidence;
    let linking = is_entity_linking(query);
    let of_dataset = query.dataset.and_then(|dataset| evidence.datasets.get(&dataset).copied());
    let configured = of_dataset.or(if linking { evidence.entity_linking } else { evidence.from });
    let generator = options.generator.as_ref().map(|generator| generator.of(query.dataset));
    configured.unwrap_or_else(|| match generator {
        None => EvidenceSource::Ranking,
        Some(generator) if linking => generator.linking_provenance(),
        Some(generator) => generator.provenance(),
    })
}

/// The provenance of one prediction, best first.
///
/// `used` are the passages that the generator reports as used, best first; `answer` is its answer. For a page
/// that was not retrieved, provenance has its first passage.
pub(crate) fn provenance(
    store: &PassageStore,
    hits: &[Hit],
    (answer, used): (&str, &[PassageId]),
    source: EvidenceSource,
    options: &EvidenceOptions,
) -> Vec<Provenance> {
    let candidates: Vec<PassageId> = match source {
        EvidenceSource::Ranking => {
            used.iter().copied().chain(ordered(store, hits, options.page_score)).collect()
        }
        EvidenceSource::Retrieved => ordered(store, hits, options.page_score),
        EvidenceSource::Read => used.to_vec(),
        EvidenceSource::Chosen => used.first().copied().into_iter().collect(),
        EvidenceSource::Title => {
            let shown = |page| {
                let hit = hits.iter().find(|hit| store.page_of(hit.passage) == page);
                hit.map_or(PassageId(store.passages_of(page).start), |hit| hit.passage)
            };
            store.page_of_title(answer).map(shown).into_iter().collect()
        }
    };
    let mut items = Vec::new();
    let mut pages: FxHashSet<PageIndex> = FxHashSet::default();
    let mut passages: FxHashSet<PassageId> = FxHashSet::default();
    for id in candidates {
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
    use sporran_kilt::{Dataset, PassageSplit, jsonl, store::BuildOptions};

    use super::*;
    use crate::config::Config;

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

    fn ranked(
        store: &PassageStore,
        hits: &[Hit],
        used: &[PassageId],
        options: &EvidenceOptions,
    ) -> Vec<Provenance> {
        provenance(store, hits, ("x", used), EvidenceSource::Ranking, options)
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
        assert_eq!(ids(&ranked(&store, &hits, &[], &options)), ["2.2", "1.1", "3.2"]);
        let all = EvidenceOptions { one_per_page: false, limit: 3, ..options.clone() };
        assert_eq!(ids(&ranked(&store, &hits, &[], &all)), ["2.2", "2.1", "1.1"]);
        assert_eq!(ids(&ranked(&store, &hits, &[PassageId(5)], &options)), ["3.2", "2.2", "1.1"]);
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
            assert_eq!(ids(&ranked(&store, &hits, &[], &options)), expected);
            let listed = pages(&store, &hits, &options);
            let listed: Vec<String> =
                listed.into_iter().map(|page| format!("{}.1", store.page_id(page))).collect();
            assert_eq!(listed, expected);
        }
    }

    #[test]
    fn the_pages_of_a_run_have_the_scores_of_the_pages() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let hits =
            [(0, 5.0), (2, 4.0), (3, 3.0), (4, 1.0)].map(|(id, score)| Hit { passage: PassageId(id), score });
        let share = |rank: f32| 1.0 / (60.0 + rank);
        for (page_score, expected) in [
            (PageScore::Best, [("1", 5.0), ("2", 4.0), ("3", 1.0)]),
            (PageScore::Sum, [("2", 7.0), ("1", 5.0), ("3", 1.0)]),
            (
                PageScore::ReciprocalRank,
                [("2", share(2.0) + share(3.0)), ("1", share(1.0)), ("3", share(4.0))],
            ),
        ] {
            let options = EvidenceOptions { page_score, ..EvidenceOptions::default() };
            let found = run_documents(&store, &hits, &options);
            assert_eq!(found, expected.map(|(id, score)| (id.to_owned(), score)), "{page_score:?}");
        }
    }

    #[test]
    fn documents_of_a_run_are_pages_or_passages_with_falling_scores() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let hits = [4, 5, 1, 0, 2].map(|id| Hit { passage: PassageId(id), score: 1.0 });
        let options = EvidenceOptions::default();
        let found = run_documents(&store, &hits, &options);
        assert_eq!(found.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["3", "1", "2"]);
        assert!(found.is_sorted_by(|a, b| a.1 > b.1) && found[0].1 == 1.0);
        let options = EvidenceOptions { run_documents: RunDocuments::Passage, ..options };
        let found = run_documents(&store, &hits, &options);
        assert_eq!(
            found.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(),
            ["3#0", "3#1", "1#1", "1#0", "2#0"]
        );
        assert!(found.is_sorted_by(|a, b| a.1 > b.1));
    }

    #[test]
    fn provenance_can_have_only_read_or_chosen_passages() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let hits = [3, 2, 0, 5].map(|id| Hit { passage: PassageId(id), score: 1.0 });
        let options = EvidenceOptions::default();
        let used = [0, 1, 3].map(PassageId);
        let from =
            |source, used: &[PassageId]| ids(&provenance(&store, &hits, ("A", used), source, &options));
        assert_eq!(from(EvidenceSource::Read, &used), ["1.1", "2.2"]);
        assert_eq!(from(EvidenceSource::Chosen, &used), ["1.1"]);
        assert!(from(EvidenceSource::Read, &[]).is_empty() && from(EvidenceSource::Chosen, &[]).is_empty());
        let all = EvidenceOptions { one_per_page: false, ..options.clone() };
        let read = provenance(&store, &hits, ("A", &used), EvidenceSource::Read, &all);
        assert_eq!(ids(&read), ["1.1", "1.2", "2.2"]);
    }

    #[test]
    fn a_linked_entity_is_only_the_page_of_exactly_that_title() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let hits = [3, 5].map(|id| Hit { passage: PassageId(id), score: 1.0 });
        let options = EvidenceOptions::default();
        let linked = |answer| {
            ids(&provenance(&store, &hits, (answer, &[PassageId(3)]), EvidenceSource::Title, &options))
        };
        // The passage that was retrieved, or the page's first.
        assert_eq!((linked("C"), linked(" A ")), (vec!["3.2".to_owned()], vec!["1.1".to_owned()]));
        // No page, a redirect, another case.
        for answer in ["D", "", "Bee", "a"] {
            assert!(linked(answer).is_empty(), "{answer:?}");
        }
        assert!(store.page_by_title("Bee").is_some() && store.page_by_title("a").is_some());
    }

    #[test]
    fn the_kind_of_a_generator_decides_what_provenance_is() {
        use EvidenceSource::{Chosen, Ranking, Read, Retrieved, Title};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        let sources = |config: &str| {
            let general = "workflow = \"answer\"\nname = \"r\"\n[tasks]\nfiles = [\"none.jsonl\"]\n";
            std::fs::write(&path, format!("{general}{config}")).unwrap();
            let options = Options::parse(&path, &[]).unwrap();
            [Dataset::Nq, Dataset::Fever, Dataset::Wned].map(|dataset| {
                source(&options, &Query { dataset: Some(dataset), ..Query::of_text("1", "q") })
            })
        };
        let kind = |kind: &str| format!("[generator]\nkind = \"{kind}\"\nmodel = \"m\"\n");
        assert_eq!(sources(""), [Ranking; 3]);
        assert_eq!(sources("[generator]\nkind = \"title\"\n"), [Ranking; 3]);
        assert_eq!(sources(&kind("rag-token")), [Read, Read, Title]);
        assert_eq!(sources(&kind("rag-sequence")), [Read, Read, Title]);
        assert_eq!(sources(&kind("memnet")), [Chosen, Chosen, Title]);
        for kinds in ["seq2seq", "fid", "extractive", "causal"] {
            assert_eq!(sources(&kind(kinds)), [Ranking, Ranking, Title]);
        }
        let parts = "[generator]\nkind = \"by-dataset\"\n[generator.default]\nkind = \"title\"\n\
                     [generator.datasets.fever]\nkind = \"rag-token\"\nmodel = \"m\"\n";
        assert_eq!(sources(parts), [Ranking, Read, Ranking]);
        let configured = "[evidence]\nfrom = \"ranking\"\nentity-linking = \"chosen\"\n";
        assert_eq!(sources(&format!("{configured}{}", kind("rag-token"))), [Ranking, Ranking, Chosen]);
        let single = "[evidence.datasets]\nnq = \"retrieved\"\nwned = \"read\"\n";
        assert_eq!(
            sources(&format!("{configured}{single}{}", kind("rag-token"))),
            [Retrieved, Ranking, Read]
        );
    }
}
