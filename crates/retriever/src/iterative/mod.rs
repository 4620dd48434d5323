//! Iterative retrieval for questions that need several pages: results extend the next query, and sets of
//! pages are ranked.
//!
//! As in multi-hop retrieval (W. Xiong et al., "Answering complex open-domain questions with multi-hop dense
//! retrieval", ICLR 2021; A. Asai et al., "Learning to retrieve reasoning paths over Wikipedia graph", ICLR
//! 2020), a beam holds sets of pages that grow by one page a hop. Candidates are the results of the question,
//! pages named in a page of the set, and results of the question joined with the set's last page. There is no
//! trained scorer. The score of a set combines the share of the question that its pages cover, the links
//! between them, and their ranks for the question alone.

mod options;

use std::{cmp::Ordering, sync::Arc, time::Instant};

pub use options::IterativeRetrieverOptions;
use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::{Hit, PassageId, PassageStore, Query, store::PageIndex};

use crate::{
    Error, Result, Retriever, Trace,
    entity::{Aliases, mentions},
    sparse::{Bm25, Impacts},
};

/// How sets of pages grow and are scored: `coverage + link * links + rank * places`, each of the three from 0
/// to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct IterativeOptions {
    /// The number of pages of a set.
    #[schemars(range(min = 1), extend("x-unit" = "pages"))]
    pub hops: usize,
    /// The beam size.
    #[schemars(range(min = 1))]
    pub beams: usize,
    /// The number of results of the question alone that can extend any set.
    #[schemars(extend("x-unit" = "pages"))]
    pub candidates: usize,
    /// The number of results of the question joined with a set's last page that can extend this set; 0
    /// disables this.
    #[schemars(extend("x-unit" = "pages"))]
    pub follow_up: usize,
    /// The number of words of a page that are joined to the question.
    #[schemars(range(min = 1), extend("x-unit" = "words"))]
    pub words: usize,
    /// The weight of links: the share of a set's pages, except its first, that name an earlier page or are
    /// named by one.
    #[schemars(range(min = 0))]
    pub link: f32,
    /// The weight of ranks: the mean over a set's pages of `1 / (1 + rank / 5)`, with rank 0 for the
    /// question's best result. Pages that are not results of the question count 0.
    #[schemars(range(min = 0))]
    pub rank: f32,
}

impl Default for IterativeOptions {
    fn default() -> Self {
        Self { hops: 2, beams: 10, candidates: 30, follow_up: 10, words: 60, link: 0.2, rank: 0.2 }
    }
}

/// The scale of rank decay.
const PLACES: f32 = 5.0;

impl IterativeOptions {
    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::Option`] naming the wrong option.
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

/// Retrieves iteratively with another retriever.
///
/// The ranking has the pages of the best set, then new pages of the next sets, and then the results of the
/// question alone. Within a set the question's order counts. A page has one passage in the ranking: its
/// result for the question, or the passage that covers most of the question.
pub struct Iterative {
    base: Box<dyn Retriever>,
    store: Arc<PassageStore>,
    aliases: Arc<Aliases>,
    words: Bm25,
    options: IterativeOptions,
}

/// A candidate page.
struct Candidate {
    passage: PassageId,
    /// Its rank for the question alone.
    place: Option<usize>,
    /// The pages that it names.
    links: FxHashSet<PageIndex>,
}

/// A set of pages, by their candidate indices.
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
    /// Of each candidate, in order.
    impacts: Impacts,
    /// The number of candidates from the question alone.
    found: usize,
    /// The sets of the last hop, best first.
    sets: Vec<Set>,
    /// The passages whose follow-up queries were asked, each once, in their order.
    asked: Vec<PassageId>,
}

impl Iterative {
    /// Extends sets of pages from the results of `base`. `words` is an index of the same passages, which
    /// measures the coverage of the question.
    ///
    /// # Errors
    /// [`Error::Option`] for wrong options.
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

    /// The question joined with words of a page.
    fn joined(&self, query: &Query, passage: PassageId) -> Query {
        let title = self.store.page_title(self.store.page_of(passage));
        let text = self.store.text(passage);
        let words = text.split_whitespace().take(self.options.words);
        let text = [query.text.as_str(), title].into_iter().chain(words).collect::<Vec<_>>().join(" ");
        Query { text, ..query.clone() }
    }

    /// For each query all sets of the last hop, best first. Queries proceed hop by hop together, so that
    /// follow-up queries are batched.
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

    /// The results of each set's follow-up query; empty if disabled.
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
        // Pages of one set stay in order although they share its score: each gets the next smaller number.
        for at in 1..hits.len() {
            if hits[at].score >= hits[at - 1].score {
                hits[at].score = hits[at - 1].score.next_down();
            }
        }
        hits
    }

    /// The depth of the first search for `k` passages.
    fn depth(&self, k: usize) -> usize {
        k.max(self.options.candidates)
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
            asked: Vec::new(),
        };
        for (place, hit) in first.iter().enumerate() {
            search.add(hit.passage, Some(place));
        }
        search.weigh()?;
        search.found = search.candidates.len();
        // The question's order decides the first hop.
        search.sets = (0..search.found).map(|page| search.set(vec![page])).collect();
        Ok(search)
    }

    /// The sets that grow.
    fn beam(&self) -> &[Set] {
        &self.sets[..self.iterative.options.beams.min(self.sets.len())]
    }

    /// The next queries: the question joined with the last page of each growing set.
    fn next_queries(&self) -> impl Iterator<Item = Query> {
        let passages = self.beam().iter().filter_map(|set| self.passage_of(set));
        passages.map(|passage| self.iterative.joined(self.query, passage))
    }

    /// The passage of the last page of a set, which its follow-up query has words of.
    fn passage_of(&self, set: &Set) -> Option<PassageId> {
        set.pages.last().map(|&last| self.candidates[last].passage)
    }

    /// Extends all sets by one page.
    fn grow(&mut self, follow_ups: Vec<Vec<Hit>>) -> Result<()> {
        let beam = self.beam().to_vec();
        if self.iterative.options.follow_up > 0 {
            for set in &beam {
                let Some(passage) = self.passage_of(set) else { continue };
                if !self.asked.contains(&passage) {
                    self.asked.push(passage);
                }
            }
        }
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

    /// The candidate of a passage's page, added if it is new.
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

    /// Computes the candidates' coverage of the question.
    fn weigh(&mut self) -> Result<()> {
        let passages: Vec<PassageId> = self.candidates.iter().map(|candidate| candidate.passage).collect();
        self.impacts = self.iterative.words.impacts(&self.query.text, &passages)?;
        Ok(())
    }

    /// The candidates that can extend each set: those of the question alone, those that its pages name, and
    /// those of its follow-up query.
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

    /// A set's passages, in the order of the question's ranking, then of discovery.
    fn passages(&self, set: &Set) -> impl Iterator<Item = PassageId> {
        let mut pages = set.pages.clone();
        pages.sort_by_key(|&page| (self.candidates[page].place.unwrap_or(usize::MAX), page));
        pages.into_iter().map(|page| self.candidates[page].passage)
    }
}

impl Retriever for Iterative {
    fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        let first = self.base.retrieve(queries, self.depth(k))?;
        let searches = self.search(queries, &first)?;
        Ok(searches.iter().zip(&first).map(|(search, first)| self.answer(search, first, k)).collect())
    }

    fn trace(&self, query: &Query, k: usize) -> Result<Trace> {
        let queries = std::slice::from_ref(query);
        let begun = self.base.trace(query, self.depth(k))?;
        let first = vec![begun.hits.clone()];
        let mut parts = vec![begun];
        let begin = Instant::now();
        let searches = self.search(queries, &first)?;
        let search = &searches[0];
        let hits = self.answer(search, &first[0], k);
        // The searches that follow are part of it; their own traces are searches once more.
        let seconds = begin.elapsed().as_secs_f64();
        for &passage in &search.asked {
            let mut part = self.base.trace(&self.joined(query, passage), self.options.follow_up)?;
            part.step = format!("follow-up of passage {passage}: {}", part.step);
            parts.push(part);
        }
        let sets = search.sets.iter().take(k);
        Ok(Trace {
            step: "iterative".into(),
            query: query.text.clone(),
            seconds,
            hits,
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
        // The question does not name the writer; her page shares only "from" with it.
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
    fn a_trace_has_each_follow_up_once() {
        let queries = |hops: usize, beams: usize| {
            let folder = tempfile::tempdir().unwrap();
            let options = IterativeOptions { hops, beams, ..IterativeOptions::default() };
            let iterative = iterative(folder.path(), options).unwrap();
            let trace = iterative.trace(&Query::of_text("q", QUESTION), 5).unwrap();
            trace.parts.into_iter().map(|part| part.query).collect::<Vec<_>>()
        };
        for hops in [1, 2, 3, 4] {
            let asked = queries(hops, 10);
            let different: FxHashSet<&String> = asked.iter().collect();
            assert_eq!(different.len(), asked.len(), "{hops} hops: {asked:#?}");
            assert_eq!(asked[0], QUESTION);
        }
        // Without another hop nothing follows. A third one asks with the page that the second found.
        assert_eq!([1, 2, 3].map(|hops| queries(hops, 1).len()), [1, 2, 3]);
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
