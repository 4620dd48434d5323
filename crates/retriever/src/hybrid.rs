//! The fused rankings of several retrievers.

use std::{ops::Deref, time::Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Document, FromTable, Invalid, Kinds, Overrides, Table};
use sporran_kilt::{Hit, Query, hash_json};

use crate::{
    Error, PassageFilter, Result, Retriever, Trace,
    fusion::FusionOptions,
    kind::RetrieverKind,
    plan::{IndexPlan, PlannedPassages},
    site::Site,
};

/// `kind = "hybrid"`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct HybridOptions<R> {
    /// `[retriever.fusion]`: how rankings become one.
    #[schemars(default)]
    pub fusion: FusionOptions,
    /// `[[retriever.parts]]`: a retriever each, of any kind.
    pub parts: Vec<R>,
}

/// The keys without the parts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rest {
    #[serde(default)]
    fusion: FusionOptions,
}

impl<R: Kinds> FromTable for HybridOptions<R> {
    fn from_table<'t>(document: &mut Document<'t>, key: &str, mut table: Table<'t>) -> Result<Self, Invalid> {
        let tables = document.take_tables(key, "parts", &mut table)?;
        let parts: Vec<Result<R, Invalid>> = tables
            .into_iter()
            .enumerate()
            .map(|(at, part)| R::from_stage(document, &format!("{key}.parts[{at}]"), part))
            .collect();
        let Rest { fusion } = document.read(key, table, &["parts"]).ok_or(Invalid)?;
        Ok(Self { fusion, parts: parts.into_iter().collect::<Result<_, _>>()? })
    }
}

impl<R: Deref<Target = dyn RetrieverKind>> RetrieverKind for HybridOptions<R> {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        if self.parts.len() < 2 {
            document.report_key(&format!("{key}.parts"), "expected at least two retrievers");
        }
        if let Err(error) = self.fusion.check(self.parts.len()) {
            document.report_key(&format!("{key}.fusion"), error.to_string());
        }
        for (at, part) in self.parts.iter().enumerate() {
            part.check(&format!("{key}.parts[{at}]"), document);
        }
    }

    fn overrides(&self, key: &str, found: &mut Overrides) -> Result<()> {
        let mut parts = self.parts.iter().enumerate();
        parts.try_for_each(|(at, part)| part.overrides(&format!("{key}.parts[{at}]"), found))
    }

    fn plan(&self, passages: PlannedPassages<'_>) -> Result<Vec<IndexPlan>> {
        let parts: Result<Vec<_>> = self.parts.iter().map(|part| part.plan(passages)).collect();
        Ok(parts?.concat())
    }

    fn bases(&self) -> Vec<&dyn RetrieverKind> {
        self.parts.iter().map(|part| &**part).collect()
    }

    fn open(&self, site: &mut dyn Site) -> Result<Box<dyn Retriever>> {
        let parts: Result<Vec<_>> = self.parts.iter().map(|part| part.open(site)).collect();
        site.depends_on("fusion", None, hash_json(&self.fusion));
        Ok(Box::new(Hybrid::new(parts?, self.fusion.clone())?))
    }
}

/// A hybrid retriever: fused rankings of several retrievers over the same passages.
pub struct Hybrid {
    parts: Vec<Box<dyn Retriever>>,
    options: FusionOptions,
}

impl Hybrid {
    /// Fuses the rankings of `parts`.
    ///
    /// # Errors
    /// [`Error::Option`] if the options do not match the parts, or there are fewer than two.
    pub fn new(parts: Vec<Box<dyn Retriever>>, options: FusionOptions) -> Result<Self> {
        if parts.len() < 2 {
            let found = parts.len().to_string();
            return Err(Error::Option { option: "parts", expected: "at least two retrievers", found });
        }
        options.check(parts.len())?;
        Ok(Self { parts, options })
    }

    /// The fused rankings of queries, given the search of a part.
    fn fused(
        &self,
        count: usize,
        k: usize,
        search: impl Fn(&dyn Retriever, usize) -> Result<Vec<Vec<Hit>>>,
    ) -> Result<Vec<Vec<Hit>>> {
        let depth = self.options.depth.max(k);
        let rankings: Result<Vec<_>> = self.parts.iter().map(|part| search(&**part, depth)).collect();
        let rankings = rankings?;
        let of = |query: usize| rankings.iter().map(|part| part[query].as_slice()).collect::<Vec<_>>();
        Ok((0..count).map(|query| self.fuse(&of(query), k)).collect())
    }

    /// The best `k` hits of the parts' rankings of a query.
    fn fuse(&self, rows: &[&[Hit]], k: usize) -> Vec<Hit> {
        let options = FusionOptions { depth: self.options.depth.max(k), ..self.options.clone() };
        let mut hits = options.fuse(rows);
        hits.truncate(k);
        hits
    }
}

impl Retriever for Hybrid {
    fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        self.fused(queries.len(), k, |part, depth| part.retrieve(queries, depth))
    }

    /// Fuses the filtered rankings of the parts.
    fn retrieve_filtered(
        &self,
        queries: &[Query],
        k: usize,
        filter: &PassageFilter<'_>,
    ) -> Result<Vec<Vec<Hit>>> {
        self.fused(queries.len(), k, |part, depth| part.retrieve_filtered(queries, depth, filter))
    }

    fn trace(&self, query: &Query, k: usize) -> Result<Trace> {
        let depth = self.options.depth.max(k);
        let parts: Result<Vec<Trace>> = self.parts.iter().map(|part| part.trace(query, depth)).collect();
        let parts = parts?;
        let begin = Instant::now();
        let rows: Vec<&[Hit]> = parts.iter().map(|part| part.hits.as_slice()).collect();
        let (step, hits) = ("hybrid".to_owned(), self.fuse(&rows, k));
        let seconds = begin.elapsed().as_secs_f64();
        Ok(Trace { step, query: query.text.clone(), seconds, hits, sets: Vec::new(), parts })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sporran_kilt::PassageId;

    use super::*;
    use crate::fusion::{FusionMethod, sort};

    /// Returns a fixed ranking.
    #[derive(Clone)]
    struct Fixed(Vec<Hit>);

    impl Fixed {
        fn new(scores: impl Iterator<Item = (u32, f32)>) -> Self {
            let mut hits: Vec<Hit> =
                scores.map(|(id, score)| Hit { passage: PassageId(id), score }).collect();
            sort(&mut hits);
            Self(hits)
        }
    }

    impl Retriever for Fixed {
        fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
            Ok(queries.iter().map(|_| self.0.iter().copied().take(k).collect()).collect())
        }
    }

    fn filtered(parts: &[&Fixed], options: &FusionOptions, k: usize, wanted: &PassageFilter<'_>) -> Vec<Hit> {
        let parts = parts.iter().map(|&part| Box::new(part.clone()) as Box<dyn Retriever>).collect();
        let hybrid = Hybrid::new(parts, options.clone()).unwrap();
        let found = hybrid.retrieve_filtered(&[Query::of_text("q", "q")], k, wanted).unwrap();
        found.into_iter().next().unwrap()
    }

    /// The scores of some passages by two retrievers, and whether a filter accepts the passage. Whole numbers make sums
    /// exact.
    fn passages() -> impl Strategy<Value = Vec<(i8, Option<i8>, bool)>> {
        prop::collection::vec((any::<i8>(), prop::option::of(any::<i8>()), any::<bool>()), 1..60)
    }

    proptest! {
        #[test]
        fn a_filtered_fusion_is_that_of_the_filtered_full_rankings(
            passages in passages(),
            method in prop::sample::select(FusionMethod::ALL.to_vec()),
            depth in 1usize..80,
            k in 1usize..80,
        ) {
            let first = Fixed::new((0..).zip(&passages).map(|(id, passage)| (id, passage.0.into())));
            let second = Fixed::new((0..).zip(&passages).filter_map(|(id, passage)| Some((id, passage.1?.into()))));
            let wanted = |passage: PassageId| passages[passage.index()].2;
            let options = FusionOptions { method, depth, ..FusionOptions::default() };
            let rest = |part: &Fixed| -> Vec<Hit> {
                part.0.iter().copied().filter(|hit| wanted(hit.passage)).collect()
            };
            let (a, b) = (rest(&first), rest(&second));
            let mut expected = FusionOptions { depth: depth.max(k), ..options.clone() }.fuse(&[&a, &b]);
            expected.truncate(k);
            prop_assert_eq!(filtered(&[&first, &second], &options, k, &wanted), expected);
        }

        #[test]
        fn sums_of_complete_rankings_can_be_filtered_before_or_after_fusion(
            passages in passages(),
            k in 1usize..80,
        ) {
            let of = |score: fn(&(i8, Option<i8>, bool)) -> i8| {
                Fixed::new((0..).zip(&passages).map(move |(id, passage)| (id, score(passage).into())))
            };
            let (first, second) = (of(|passage| passage.0), of(|passage| passage.1.unwrap_or_default()));
            let wanted = |passage: PassageId| passages[passage.index()].2;
            let options = FusionOptions { method: FusionMethod::Sum, ..FusionOptions::default() };
            let mut expected = options.fuse(&[&first.0, &second.0]);
            expected.retain(|hit| wanted(hit.passage));
            expected.truncate(k);
            prop_assert_eq!(filtered(&[&first, &second], &options, k, &wanted), expected);
        }
    }
}
