//! Retrieval of the pages that a query names, or that its tagged mention can mean.

use std::sync::Arc;

use rayon::prelude::*;
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::{Hit, PassageId, PassageStore, Query, store::PageIndex};

use super::{Alias, Aliases, mentions};
use crate::{Error, PassageScorer, Result, Retriever, fusion};

/// The ranking of named pages.
///
/// A page's score is `context * fit + prior * share + salience * ln(1 + count)`. `fit` is the score of its
/// best passage for the query, `share` the share of the name's uses for the page, and `count` the number of
/// occurrences in the query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct EntityOptions {
    /// The weight of the fit, from `[retriever.context]`; 0 without it.
    #[schemars(range(min = 0))]
    pub context: f32,
    /// The weight of the share of a name's uses for the page.
    #[schemars(range(min = 0))]
    pub prior: f32,
    /// The weight of the number of occurrences of a name in the query.
    #[schemars(range(min = 0))]
    pub salience: f32,
    /// The factor for a name without any capital letter or digit; 0 ignores such names.
    #[schemars(range(min = 0))]
    pub lowercase: f32,
    /// The largest number of pages that a name can mean, most frequent first.
    #[schemars(range(min = 1), extend("x-unit" = "pages"))]
    pub senses: usize,
}

impl Default for EntityOptions {
    fn default() -> Self {
        Self { context: 1.0, prior: 0.2, salience: 0.2, lowercase: 0.3, senses: 50 }
    }
}

impl EntityOptions {
    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::Option`] for weights that are no numbers, or no senses.
    pub fn check(&self) -> Result<()> {
        let Self { context, prior, salience, lowercase, senses } = *self;
        for (option, value) in
            [("context", context), ("prior", prior), ("salience", salience), ("lowercase", lowercase)]
        {
            if !(value.is_finite() && value >= 0.0) {
                return Err(Error::Option { option, expected: "a number from 0", found: value.to_string() });
            }
        }
        if senses == 0 {
            return Err(Error::Option { option: "senses", expected: "at least 1", found: "0".into() });
        }
        Ok(())
    }
}

/// Finds pages by their names.
///
/// For a query with a tagged mention, only that mention counts; otherwise all names in the query do. A page's
/// hit is its best passage for the query, or the first one without a passage scorer.
pub struct EntityRetriever {
    store: Arc<PassageStore>,
    aliases: Arc<Aliases>,
    context: Option<Box<dyn PassageScorer>>,
    options: EntityOptions,
}

impl EntityRetriever {
    /// Finds the pages of `store` by `aliases`; `context` scores their passages.
    ///
    /// # Errors
    /// [`Error::Option`] for weights that are no numbers, or no senses.
    pub fn new(
        store: Arc<PassageStore>,
        aliases: Arc<Aliases>,
        context: Option<Box<dyn PassageScorer>>,
        options: EntityOptions,
    ) -> Result<Self> {
        options.check()?;
        Ok(Self { store, aliases, context, options })
    }

    /// The pages that a query names, each with its best score.
    fn named(&self, query: &Query) -> FxHashMap<PageIndex, f32> {
        let names: Vec<(f32, Vec<Alias>)> = match &query.mention {
            Some(mention) => vec![(1.0, self.aliases.find(mention))],
            None => {
                let mut counts: FxHashMap<String, (f32, Vec<Alias>)> = FxHashMap::default();
                for mention in mentions(&self.aliases, &query.text) {
                    let count = if mention.cased { 1.0 } else { self.options.lowercase };
                    let name = query.text[mention.range].to_lowercase();
                    counts.entry(name).or_insert_with(|| (0.0, mention.pages)).0 += count;
                }
                counts.into_values().filter(|(count, _)| *count > 0.0).collect()
            }
        };
        let mut pages: FxHashMap<PageIndex, f32> = FxHashMap::default();
        for (count, senses) in names {
            for alias in senses.iter().take(self.options.senses) {
                let score = self.options.prior * alias.prior + self.options.salience * count.ln_1p();
                let best = pages.entry(alias.page).or_insert(score);
                *best = best.max(score);
            }
        }
        pages
    }

    /// A hit for each page, at its best passage.
    fn fitting(&self, passages: &[(PassageId, f32)], fits: &[f32]) -> Vec<Hit> {
        let mut best: FxHashMap<PageIndex, Hit> = FxHashMap::default();
        for (&(passage, score), fit) in passages.iter().zip(fits) {
            let hit = Hit { passage, score: score + self.options.context * fit };
            let kept = best.entry(self.store.page_of(passage)).or_insert(hit);
            // Passages of a page are in order, so the first of equals stays.
            if hit.score > kept.score {
                *kept = hit;
            }
        }
        best.into_values().collect()
    }
}

impl Retriever for EntityRetriever {
    fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        // Every passage of every named page, with the score of the name.
        let named: Vec<Vec<(PassageId, f32)>> = queries
            .par_iter()
            .map(|query| {
                let passages = |(page, score)| {
                    let ids = self.store.passages_of(page);
                    let ids = if self.context.is_some() { ids } else { ids.start..ids.start + 1 };
                    ids.map(move |id| (PassageId(id), score))
                };
                self.named(query).into_iter().flat_map(passages).collect()
            })
            .collect();
        let fits = match &self.context {
            None => named.iter().map(|passages| vec![0.0; passages.len()]).collect(),
            Some(context) => {
                let ids: Vec<Vec<PassageId>> =
                    named.iter().map(|passages| passages.iter().map(|&(id, _)| id).collect()).collect();
                context.score(queries, &ids)?
            }
        };
        let rank = |(passages, fits): (&Vec<(PassageId, f32)>, &Vec<f32>)| {
            let mut hits = self.fitting(passages, fits);
            fusion::sort(&mut hits);
            hits.truncate(k);
            hits
        };
        Ok(named.iter().zip(&fits).map(rank).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::aliases::tests::world, *};

    /// Scores a passage by its number.
    struct ByNumber;

    impl PassageScorer for ByNumber {
        fn score(&self, _: &[Query], passages: &[Vec<PassageId>]) -> Result<Vec<Vec<f32>>> {
            Ok(passages.iter().map(|ids| ids.iter().map(|id| id.0 as f32 / 10.0).collect()).collect())
        }
    }

    fn retriever(context: bool) -> (tempfile::TempDir, EntityRetriever) {
        let folder = tempfile::tempdir().unwrap();
        let (store, aliases) = world(
            folder.path(),
            &[
                ("Paris", "a city", &[]),
                ("Paris (film)", "a film", &[("Paris", "Paris")]),
                ("Red", "a colour", &[]),
            ],
        );
        let context: Option<Box<dyn PassageScorer>> = if context { Some(Box::new(ByNumber)) } else { None };
        let retriever =
            EntityRetriever::new(Arc::new(store), Arc::new(aliases), context, EntityOptions::default())
                .unwrap();
        (folder, retriever)
    }

    fn ask(retriever: &EntityRetriever, query: Query) -> Vec<(u32, f32)> {
        let hits = retriever.retrieve(&[query], 10).unwrap();
        hits[0].iter().map(|hit| (hit.passage.0, hit.score)).collect()
    }

    #[test]
    fn names_count_by_share_and_number_and_case() {
        let (_folder, retriever) = retriever(false);
        let found = ask(&retriever, Query::of_text("q", "Red, red roses in Paris"));
        // Paris: the title counts 10 and a link 1, the film's bare title 1. Red occurs twice, once in lower
        // case.
        let score = |share: f32, count: f32| 0.2 * share + 0.2 * count.ln_1p();
        let expected = [(2, score(1.0, 1.3)), (0, score(11.0 / 12.0, 1.0)), (1, score(1.0 / 12.0, 1.0))];
        assert_eq!(found.iter().map(|hit| hit.0).collect::<Vec<_>>(), [2, 0, 1]);
        for (found, expected) in found.iter().zip(expected) {
            assert!((found.1 - expected.1).abs() < 1e-6, "{found:?} is not {expected:?}");
        }
        assert!(ask(&retriever, Query::of_text("q", "nothing of that")).is_empty());
    }

    #[test]
    fn a_tagged_mention_is_all_that_is_looked_for() {
        let (_folder, retriever) = retriever(false);
        let mention = Some("Paris".to_owned());
        let found = ask(&retriever, Query { mention, ..Query::of_text("q", "Red roses in Paris") });
        assert_eq!(found.iter().map(|hit| hit.0).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn context_decides_between_the_pages_of_a_name() {
        let (_folder, retriever) = retriever(true);
        let found = ask(&retriever, Query::of_text("q", "Paris"));
        // The film is one passage later, worth 0.1, which the shares outweigh by 0.2 * 10 / 12; two more would not.
        assert_eq!(found.iter().map(|hit| hit.0).collect::<Vec<_>>(), [0, 1]);
        let close = EntityOptions { context: 10.0, ..EntityOptions::default() };
        let retriever = EntityRetriever { options: close, ..retriever };
        let found = ask(&retriever, Query::of_text("q", "Paris"));
        assert_eq!(found.iter().map(|hit| hit.0).collect::<Vec<_>>(), [1, 0]);
    }
}
