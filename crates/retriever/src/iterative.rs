//! Questions that need several pages: what was found says what to look for next, and pages are ranked as sets.
//!
//! As multi-hop retrievers do (W. Xiong et al., "Answering complex open-domain questions with multi-hop dense retrieval",
//! ICLR 2021; A. Asai et al., "Learning to retrieve reasoning paths over Wikipedia graph", ICLR 2020), a beam holds sets of
//! pages that grow by a page at each hop. A set is extended by pages that the question alone finds, by pages that are named
//! in one of its pages, and by pages that the question joined with its last page finds. There is no trained scorer here: a
//! set is as good as the share of the question that its pages cover together, the links between them, and how well the
//! question alone finds them.

use std::{cmp::Ordering, sync::Arc};

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use sporran_kilt::{Hit, PassageId, PassageStore, Query, store::PageIndex};

use crate::{
    Error, Result, Retriever, Trace,
    entity::{Aliases, mentions},
    sparse::{Bm25, Impacts},
};

/// How sets of pages grow and what they are worth: `coverage + link * links + rank * places`, each of the three from 0
/// to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct IterativeOptions {
    /// Pages of a set.
    pub hops: usize,
    /// Sets that grow at each hop.
    pub beams: usize,
    /// Pages that the question alone finds and that any set can grow by.
    pub candidates: usize,
    /// Pages that the question joined with a set's last page finds and that this set can grow by; 0 leaves this out.
    pub follow_up: usize,
    /// Words of a page that join the question.
    pub words: usize,
    /// The weight of links: the share of a set's pages, its first aside, that name one of the pages before them or are
    /// named by one.
    pub link: f32,
    /// The weight of places: the mean over a set's pages of `1 / (1 + place / 5)`, the best place of the question's own
    /// ranking being 0, and 0 for pages that it does not list.
    pub rank: f32,
}

impl Default for IterativeOptions {
    fn default() -> Self {
        Self { hops: 2, beams: 10, candidates: 30, follow_up: 10, words: 60, link: 0.2, rank: 0.2 }
    }
}

/// How fast places lose worth.
const PLACES: f32 = 5.0;

impl IterativeOptions {
    /// Whether these can be followed.
    ///
    /// # Errors
    /// [`Error::Option`] naming the option at fault.
    pub fn check(&self) -> Result<()> {
        for (option, value) in [
            ("hops", self.hops),
            ("beams", self.beams),
            ("candidates", self.candidates),
            ("words", self.words),
        ] {
            if value == 0 {
                return Err(Error::Option { option, expected: "at least 1", found: "0".into() });
            }
        }
        for (option, value) in [("link", self.link), ("rank", self.rank)] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(Error::Option { option, expected: "a number from 0", found: value.to_string() });
            }
        }
        Ok(())
    }
}

/// Asks another retriever, looks at what it finds, and asks again.
///
/// The ranking lists the pages of the best set, then those of the next ones that were not listed yet, and then what the
/// question alone finds. Within a set the question's own order counts. A page is listed by one passage: the one that the
/// question finds, or else the one that covers most of it.
pub struct Iterative {
    base: Box<dyn Retriever>,
    store: Arc<PassageStore>,
    aliases: Arc<Aliases>,
    words: Bm25,
    options: IterativeOptions,
}

/// A page that sets of one question can hold.
struct Candidate {
    passage: PassageId,
    /// Its place in the question's own ranking.
    place: Option<usize>,
    /// The pages that it names.
    links: FxHashSet<PageIndex>,
}

/// Some pages, by their numbers among the candidates.
#[derive(Clone, Debug)]
struct Set {
    pages: Vec<usize>,
    score: f32,
}

/// Best first, ties by the pages' order of discovery.
fn better(a: &Set, b: &Set) -> Ordering {
    b.score.total_cmp(&a.score).then_with(|| a.pages.cmp(&b.pages))
}

/// One question's search.
struct Search<'a> {
    iterative: &'a Iterative,
    query: &'a Query,
    candidates: Vec<Candidate>,
    pages: FxHashMap<PageIndex, usize>,
    /// Of each candidate, in their order.
    impacts: Impacts,
    /// How many candidates the question alone found.
    found: usize,
    /// The sets of the last hop, best first.
    sets: Vec<Set>,
}

impl Iterative {
    /// Looks for sets of pages around what `base` finds. `words` is an index of the same passages, which says how much of a
    /// question a passage covers.
    ///
    /// # Errors
    /// [`Error::Option`] for options that cannot be followed.
    pub fn new(
        base: Box<dyn Retriever>,
        store: Arc<PassageStore>,
        aliases: Arc<Aliases>,
        words: Bm25,
        options: IterativeOptions,
    ) -> Result<Self> {
        options.check()?;
        Ok(Self { base, store, aliases, words, options })
    }

    /// The question, and what it reads of a page.
    fn joined(&self, query: &Query, passage: PassageId) -> Query {
        let title = self.store.page_title(self.store.page_of(passage));
        let text = self.store.text(passage);
        let words = text.split_whitespace().take(self.options.words);
        let text = [query.text.as_str(), title].into_iter().chain(words).collect::<Vec<_>>().join(" ");
        Query { text, ..query.clone() }
    }

    /// For each query all sets of the last hop, best first. Queries go from hop to hop together, so that what they ask next
    /// is asked at once.
    fn search<'a>(&'a self, queries: &'a [Query], first: &[Vec<Hit>]) -> Result<Vec<Search<'a>>> {
        let begun = queries.par_iter().zip(first).map(|(query, first)| Search::begin(self, query, first));
        let mut searches: Vec<Search<'a>> = begun.collect::<Result<_>>()?;
        for _ in 1..self.options.hops {
            let mut follow_ups = self.follow_ups(&searches)?;
            searches
                .par_iter_mut()
                .zip(&mut follow_ups)
                .try_for_each(|(search, follow_ups)| search.grow(std::mem::take(follow_ups)))?;
        }
        Ok(searches)
    }

    /// What each set of each query finds when it is asked about; nothing where that is not wanted.
    fn follow_ups(&self, searches: &[Search<'_>]) -> Result<Vec<Vec<Vec<Hit>>>> {
        if self.options.follow_up == 0 {
            return Ok(searches.iter().map(|search| vec![Vec::new(); search.beam().len()]).collect());
        }
        let queries: Vec<Query> = searches.iter().flat_map(Search::next_queries).collect();
        let mut found = self.base.retrieve(&queries, self.options.follow_up)?.into_iter();
        Ok(searches.iter().map(|search| found.by_ref().take(search.beam().len()).collect()).collect())
    }

    fn answer(&self, search: &Search<'_>, first: &[Hit], k: usize) -> Vec<Hit> {
        let mut hits: Vec<Hit> = Vec::new();
        let mut listed: FxHashSet<PassageId> = FxHashSet::default();
        for set in &search.sets {
            for passage in search.passages(set) {
                if listed.insert(passage) {
                    hits.push(Hit { passage, score: set.score });
                }
            }
        }
        let last = hits.last().map_or(0.0, |hit| hit.score);
        for hit in first {
            if listed.insert(hit.passage) {
                hits.push(Hit { passage: hit.passage, score: last });
            }
        }
        hits.truncate(k);
        // Pages of one set stay in their order although their set's score is one: each gets the next smaller number.
        for at in 1..hits.len() {
            if hits[at].score >= hits[at - 1].score {
                hits[at].score = hits[at - 1].score.next_down();
            }
        }
        hits
    }

    fn first(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        self.base.retrieve(queries, k.max(self.options.candidates))
    }
}

impl<'a> Search<'a> {
    /// Sets of one page each.
    fn begin(iterative: &'a Iterative, query: &'a Query, first: &[Hit]) -> Result<Self> {
        let mut search = Self {
            iterative,
            query,
            candidates: Vec::new(),
            pages: FxHashMap::default(),
            impacts: iterative.words.impacts(&query.text, &[])?,
            found: 0,
            sets: Vec::new(),
        };
        for (place, hit) in first.iter().enumerate() {
            search.add(hit.passage, Some(place));
        }
        search.weigh()?;
        search.found = search.candidates.len();
        // The question's own order decides what the first hop starts from.
        search.sets = (0..search.found).map(|page| search.set(vec![page])).collect();
        Ok(search)
    }

    /// The sets that grow.
    fn beam(&self) -> &[Set] {
        &self.sets[..self.iterative.options.beams.min(self.sets.len())]
    }

    /// What is asked next: the question joined with the last page of each set that grows.
    fn next_queries(&self) -> impl Iterator<Item = Query> {
        self.beam().iter().map(|set| {
            let last = set.pages[set.pages.len() - 1];
            self.iterative.joined(self.query, self.candidates[last].passage)
        })
    }

    /// Goes on to sets that have a page more.
    fn grow(&mut self, follow_ups: Vec<Vec<Hit>>) -> Result<()> {
        let beam = self.beam().to_vec();
        let reach = self.reach(&beam, follow_ups)?;
        let mut grown = Vec::new();
        for (set, pages) in beam.iter().zip(reach) {
            for page in pages {
                if !set.pages.contains(&page) {
                    grown.push(self.set(set.pages.iter().copied().chain([page]).collect()));
                }
            }
        }
        grown.sort_by(better);
        // The same pages in another order are the same set.
        let mut known = FxHashSet::default();
        grown.retain(|set| {
            let mut pages = set.pages.clone();
            pages.sort_unstable();
            known.insert(pages)
        });
        if !grown.is_empty() {
            self.sets = grown;
        }
        Ok(())
    }

    /// The candidate of a passage's page, which is added where it is new.
    fn add(&mut self, passage: PassageId, place: Option<usize>) -> usize {
        let Iterative { store, aliases, .. } = self.iterative;
        let page = store.page_of(passage);
        if let Some(&known) = self.pages.get(&page) {
            return known;
        }
        let links = mentions(aliases, &store.text(passage))
            .into_iter()
            .filter(|mention| mention.cased)
            .flat_map(|mention| mention.pages)
            .map(|alias| alias.page)
            .filter(|&linked| linked != page)
            .collect();
        self.pages.insert(page, self.candidates.len());
        self.candidates.push(Candidate { passage, place, links });
        self.candidates.len() - 1
    }

    /// Takes up how much of the question the candidates cover.
    fn weigh(&mut self) -> Result<()> {
        let passages: Vec<PassageId> = self.candidates.iter().map(|candidate| candidate.passage).collect();
        self.impacts = self.iterative.words.impacts(&self.query.text, &passages)?;
        Ok(())
    }

    /// The candidates that each set can grow by: those that the question alone found, those that its pages name, and what it
    /// was asked about.
    fn reach(&mut self, sets: &[Set], follow_ups: Vec<Vec<Hit>>) -> Result<Vec<Vec<usize>>> {
        let Iterative { store, words, options, .. } = self.iterative;
        let mut reach = Vec::with_capacity(sets.len());
        for (set, follow_up) in sets.iter().zip(follow_ups) {
            let mut pages: Vec<usize> = (0..self.found.min(options.candidates)).collect();
            let mut linked: Vec<PageIndex> =
                set.pages.iter().flat_map(|&page| self.candidates[page].links.iter().copied()).collect();
            linked.sort_unstable();
            linked.dedup();
            for page in linked {
                let passages: Vec<PassageId> = store.passages_of(page).map(PassageId).collect();
                let known = self.pages.get(&page).copied();
                let best = match (known, passages.as_slice()) {
                    (Some(known), _) => known,
                    (None, []) => continue,
                    (None, [only]) => self.add(*only, None),
                    (None, several) => {
                        let impacts = words.impacts(&self.query.text, several)?;
                        let best = (0..several.len()).max_by(|&a, &b| {
                            impacts.coverage(&[a]).total_cmp(&impacts.coverage(&[b])).then(b.cmp(&a))
                        });
                        self.add(several[best.unwrap_or_default()], None)
                    }
                };
                pages.push(best);
            }
            pages.extend(follow_up.iter().map(|hit| self.add(hit.passage, None)));
            pages.sort_unstable();
            pages.dedup();
            reach.push(pages);
        }
        self.weigh()?;
        Ok(reach)
    }

    /// A set with its score.
    fn set(&self, pages: Vec<usize>) -> Set {
        let IterativeOptions { link, rank, .. } = self.iterative.options;
        let place = |&page: &usize| {
            self.candidates[page].place.map_or(0.0, |place| 1.0 / (1.0 + place as f32 / PLACES))
        };
        let places = pages.iter().map(place).sum::<f32>() / pages.len() as f32;
        let page_of = |page: usize| self.iterative.store.page_of(self.candidates[page].passage);
        let named = |a: usize, b: usize| self.candidates[a].links.contains(&page_of(b));
        let linked = (1..pages.len())
            .filter(|&at| {
                pages[..at].iter().any(|&before| named(before, pages[at]) || named(pages[at], before))
            })
            .count();
        let links = linked as f32 / (pages.len() - 1).max(1) as f32;
        Set { score: self.impacts.coverage(&pages) + link * links + rank * places, pages }
    }

    /// A set's passages: as the question ranks them, then in the order of their discovery.
    fn passages(&self, set: &Set) -> impl Iterator<Item = PassageId> {
        let mut pages = set.pages.clone();
        pages.sort_by_key(|&page| (self.candidates[page].place.unwrap_or(usize::MAX), page));
        pages.into_iter().map(|page| self.candidates[page].passage)
    }
}

impl Retriever for Iterative {
    fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        let first = self.first(queries, k)?;
        let searches = self.search(queries, &first)?;
        Ok(searches.iter().zip(&first).map(|(search, first)| self.answer(search, first, k)).collect())
    }

    fn trace(&self, query: &Query, k: usize) -> Result<Trace> {
        let queries = std::slice::from_ref(query);
        let first = self.first(queries, k)?;
        let mut parts = vec![self.base.trace(query, k)?];
        if self.options.follow_up > 0 {
            for hit in first[0].iter().take(self.options.beams) {
                let mut part = self.base.trace(&self.joined(query, hit.passage), self.options.follow_up)?;
                part.step = format!("follow-up of passage {}: {}", hit.passage, part.step);
                parts.push(part);
            }
        }
        let searches = self.search(queries, &first)?;
        let search = &searches[0];
        let sets = search.sets.iter().take(k);
        Ok(Trace {
            step: "iterative".into(),
            query: query.text.clone(),
            hits: self.answer(search, &first[0], k),
            sets: sets.map(|set| (search.passages(set).collect(), set.score)).collect(),
            parts,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::{
        entity::aliases::tests::{PageText, world},
        sparse::{Bm25Options, Build},
    };

    const PAGES: [PageText<'static>; 6] = [
        ("Blue Harbour", "Blue Harbour is a novel by the writer Ann Smith.", &[]),
        ("Ann Smith", "Ann Smith, of humble origins, came from Oslo and lived by the sea.", &[]),
        ("Harbour", "A harbour is a place where ships are safe. The city has one.", &[]),
        ("Birth", "Somebody is born in a city; where one is born is on record.", &[]),
        ("Novel", "A novel is a long story that a writer wrote.", &[]),
        ("Oslo", "Oslo is a city. Writers of novels were born there.", &[]),
    ];

    const QUESTION: &str = "Where is the writer of the novel Blue Harbour from?";

    fn iterative(folder: &std::path::Path, options: IterativeOptions) -> Result<Iterative> {
        let (store, aliases) = world(folder, &PAGES);
        let index = |name: &str| {
            let passages = (0..store.len() as u32)
                .map(PassageId)
                .map(|id| Ok::<_, Infallible>((id, store.page_title(store.page_of(id)), store.text(id))));
            let path = folder.join(name);
            Bm25::build(&Bm25Options::default(), passages, store.hash(), &path, Build::new(&mut |_| {}))
                .unwrap();
            Bm25::open(&path, store.hash()).unwrap()
        };
        let (base, words) = (Box::new(index("base")), index("words"));
        Iterative::new(base, Arc::new(store), Arc::new(aliases), words, options)
    }

    fn pages(hits: &[Hit]) -> Vec<u32> {
        hits.iter().map(|hit| hit.passage.0).collect()
    }

    #[test]
    fn a_page_that_only_the_first_page_names_is_found_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let iterative = iterative(folder.path(), IterativeOptions::default()).unwrap();
        let query = Query::of_text("q", QUESTION);
        let alone = iterative.base.retrieve(std::slice::from_ref(&query), 2).unwrap();
        // The question does not name the writer; her page has nothing of it but "from".
        assert_eq!(alone[0][0].passage.0, 0);
        assert_ne!(alone[0][1].passage.0, 1);
        let found = iterative.retrieve(std::slice::from_ref(&query), 10).unwrap();
        assert_eq!(pages(&found[0])[..2], [0, 1]);
        assert!(found[0].windows(2).all(|pair| pair[0].score > pair[1].score), "{found:?}");
        let mut all = pages(&found[0]);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), found[0].len(), "a page is listed once");
    }

    #[test]
    fn a_trace_shows_what_was_asked_and_the_sets() {
        let folder = tempfile::tempdir().unwrap();
        let options = IterativeOptions { beams: 2, follow_up: 3, words: 3, ..IterativeOptions::default() };
        let iterative = iterative(folder.path(), options).unwrap();
        let query = Query::of_text("q", QUESTION);
        let trace = iterative.trace(&query, 5).unwrap();
        assert_eq!(trace.hits, iterative.retrieve(std::slice::from_ref(&query), 5).unwrap()[0]);
        assert_eq!(trace.sets[0].0, [PassageId(0), PassageId(1)]);
        // The question alone, and two pages' follow-ups with three of their words.
        assert_eq!(trace.parts.len(), 3);
        assert_eq!(trace.parts[1].query, format!("{QUESTION} Blue Harbour Blue Harbour is"));
    }

    #[test]
    fn one_hop_is_the_questions_own_ranking() {
        let folder = tempfile::tempdir().unwrap();
        let options = IterativeOptions { hops: 1, ..IterativeOptions::default() };
        let iterative = iterative(folder.path(), options).unwrap();
        let queries = [Query::of_text("q", QUESTION), Query::of_text("r", "zzz")];
        let alone = iterative.base.retrieve(&queries, 10).unwrap();
        let found = iterative.retrieve(&queries, 10).unwrap();
        assert_eq!(pages(&found[0]), pages(&alone[0]));
        assert!(found[1].is_empty());
    }

    #[test]
    fn three_hops_make_sets_of_three_pages() {
        let folder = tempfile::tempdir().unwrap();
        let options = IterativeOptions { hops: 3, ..IterativeOptions::default() };
        let iterative = iterative(folder.path(), options).unwrap();
        let trace = iterative.trace(&Query::of_text("q", QUESTION), 3).unwrap();
        assert!(trace.sets.iter().all(|(pages, _)| pages.len() == 3), "{:?}", trace.sets);
        // The writer's page names Oslo.
        assert!(trace.sets[0].0.contains(&PassageId(0)) && trace.sets[0].0.contains(&PassageId(1)));
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let refused = |options: IterativeOptions| match options.check() {
            Err(Error::Option { option, .. }) => option,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(IterativeOptions { hops: 0, ..IterativeOptions::default() }), "hops");
        assert_eq!(refused(IterativeOptions { beams: 0, ..IterativeOptions::default() }), "beams");
        assert_eq!(refused(IterativeOptions { link: -1.0, ..IterativeOptions::default() }), "link");
    }
}
