//! A retriever of the pages that a query mentions. A tagger finds the mentions in any input, another retriever ranks
//! passages for each mention in its context, and the rankings are merged. With BLINK's models it is the baseline
//! "BLINK + flair" of KILT (Petroni et al. 2021, section 5 and the appendix on retrieval baselines).

use std::{ops::Deref, path::PathBuf, sync::Arc, time::Instant};

use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Document as Config, FromTable, Invalid, Kinds, Overrides, Table};
use sporran_extractor::{
    Document, EntityType, Mention, MentionFinder, MentionForm, Span,
    tagger::{Computing, Tagger},
};
use sporran_kilt::{Hit, PassageStore, Query, hash_json, split_mention, store::PageIndex};
use sporran_retriever::{
    IndexPlan, PassageFilter, PlannedPassages, Result, Retriever, RetrieverKind, Site, Trace,
};

use super::retrieval::outside;

/// `kind = "mentions"`
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct MentionRetrieverOptions<R> {
    /// The keys without the base.
    #[serde(flatten)]
    pub search: MentionSearch,
    /// `[retriever.base]`: the retriever that ranks passages for each mention, of any kind.
    pub base: Box<R>,
}

/// How a query becomes a query for each of its mentions, and how their rankings are merged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MentionSearch {
    /// The folder of a tagger that `sporran train` made. Its names are the mentions; its dates are not. A query with
    /// a tagged mention, as for entity linking, has only this mention.
    pub tagger: PathBuf,
    /// The marks before and after the mention in the query for the base, such as BLINK's `["[unused0]",
    /// "[unused1]"]`. The default is no marks. The rest of this query is the whole input in lower case, as in BLINK.
    /// An input without a mention has no marks.
    #[serde(default)]
    pub mention_marks: Option<[String; 2]>,
    /// The number of passages to rank for each mention. The merged ranking has the best passage of each page, by
    /// its greatest score for any mention.
    #[serde(default = "candidates")]
    #[schemars(range(min = 1), extend("x-unit" = "passages"))]
    pub candidates: usize,
}

fn candidates() -> usize {
    100
}

impl<R: Kinds> FromTable for MentionRetrieverOptions<R> {
    fn from_table<'t>(document: &mut Config<'t>, key: &str, mut table: Table<'t>) -> Result<Self, Invalid> {
        let base = document
            .take_table_of(key, "base", &mut table)
            .and_then(|inner| R::from_stage(document, &format!("{key}.base"), inner));
        let search = document.read(key, table, &["base"]).ok_or(Invalid)?;
        Ok(Self { search, base: Box::new(base?) })
    }
}

impl<R: Deref<Target = dyn RetrieverKind>> RetrieverKind for MentionRetrieverOptions<R> {
    fn check(&self, key: &str, document: &mut Config<'_>) {
        document.check_folder(&format!("{key}.tagger"), &self.search.tagger, "tagger.json");
        self.base.check(&format!("{key}.base"), document);
    }

    fn overrides(&self, key: &str, found: &mut Overrides) -> Result<()> {
        self.base.overrides(&format!("{key}.base"), found)
    }

    fn plan(&self, passages: PlannedPassages<'_>) -> Result<Vec<IndexPlan>> {
        self.base.plan(passages)
    }

    fn bases(&self) -> Vec<&dyn RetrieverKind> {
        vec![&**self.base]
    }

    fn has_batches(&self) -> bool {
        true
    }

    fn open(&self, site: &mut dyn Site) -> Result<Box<dyn Retriever>> {
        let base = self.base.open(site)?;
        let tagger = &self.search.tagger;
        let hash = hash_json(&(&self.search, site.files(tagger)?));
        site.depends_on("mentions", Some(tagger), hash);
        let finder = Box::new(Tagger::open(tagger, Computing::default()).map_err(outside)?);
        Ok(Box::new(Mentions { base, finder, store: site.store().clone(), search: self.search.clone() }))
    }
}

/// Ranks pages for each mention in a query, and merges the rankings.
struct Mentions {
    base: Box<dyn Retriever>,
    finder: Box<dyn MentionFinder>,
    store: Arc<PassageStore>,
    search: MentionSearch,
}

/// Whether a mention is a name. Pronouns, descriptions and dates are not, as in flair's tagger of four types.
fn is_name(mention: &Mention) -> bool {
    mention.form == MentionForm::Name && mention.kind != EntityType::Date
}

/// A document's text before, in and after a span.
fn around(document: &Document, span: Span) -> Option<(&str, &str, &str)> {
    let before = document.slice(Span { start: 0, end: span.start })?;
    let after = document.slice(Span { start: span.end, end: document.len() })?;
    Some((before, document.slice(span)?, after))
}

impl Mentions {
    /// The queries of each query: one for each mention, or one without a mention.
    fn queries(&self, queries: &[Query]) -> Result<Vec<Vec<Query>>> {
        let tagged: Vec<_> = queries.iter().map(|query| split_mention(query.input())).collect();
        let plain = queries.iter().zip(&tagged).filter(|(_, tagged)| tagged.is_none());
        let documents: Vec<Document> =
            plain.map(|(query, _)| Document::new(query.id.text(), query.input())).collect();
        let found = if documents.is_empty() {
            Vec::new()
        } else {
            self.finder.mentions(&documents).map_err(outside)?
        };
        let mut found = documents.iter().zip(found);
        let of = |(query, tagged): (&Query, Option<(&str, &str, &str)>)| {
            if let Some(parts) = tagged {
                return vec![self.query(query, Some(parts))];
            }
            let Some((document, mentions)) = found.next() else { return Vec::new() };
            let names = mentions.iter().filter(|mention| is_name(mention));
            let parts: Vec<_> = names.filter_map(|mention| around(document, mention.span)).collect();
            if parts.is_empty() {
                return vec![self.query(query, None)];
            }
            parts.into_iter().map(|parts| self.query(query, Some(parts))).collect()
        };
        Ok(queries.iter().zip(tagged).map(of).collect())
    }

    /// The query of a mention for the base, or that of an input without a mention.
    fn query(&self, query: &Query, parts: Option<(&str, &str, &str)>) -> Query {
        let (before, mention, after) = parts.unwrap_or((query.input(), "", ""));
        let marks = self.search.mention_marks.as_ref().filter(|_| parts.is_some());
        let mark = |at: usize| marks.map(|marks| marks[at].clone());
        let text = |text: &str| Some(text.trim().to_lowercase()).filter(|text| !text.is_empty());
        let pieces = [text(before), mark(0), text(mention), mark(1), text(after)];
        let text = pieces.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let mention = parts.map(|(_, mention, _)| mention.to_owned());
        Query { text, original: None, mention, ..query.clone() }
    }

    /// The best passage of each page, best first.
    fn merged(&self, hits: impl Iterator<Item = Hit>, k: usize) -> Vec<Hit> {
        let order = |a: &Hit, b: &Hit| b.score.total_cmp(&a.score).then(a.passage.cmp(&b.passage));
        let mut best: FxHashMap<PageIndex, Hit> = FxHashMap::default();
        for hit in hits {
            let kept = best.entry(self.store.page_of(hit.passage)).or_insert(hit);
            if order(&hit, kept).is_lt() {
                *kept = hit;
            }
        }
        let mut merged: Vec<Hit> = best.into_values().collect();
        merged.sort_unstable_by(order);
        merged.truncate(k);
        merged
    }

    /// The merged rankings of queries, given the search of the base.
    fn ranked(
        &self,
        queries: &[Query],
        k: usize,
        search: impl FnOnce(&[Query]) -> Result<Vec<Vec<Hit>>>,
    ) -> Result<Vec<Vec<Hit>>> {
        let queries = self.queries(queries)?;
        let mut found = search(&queries.concat())?.into_iter();
        let merge = |own: &Vec<Query>| self.merged(found.by_ref().take(own.len()).flatten(), k);
        Ok(queries.iter().map(merge).collect())
    }
}

impl Retriever for Mentions {
    fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        self.ranked(queries, k, |queries| self.base.retrieve(queries, self.search.candidates))
    }

    fn retrieve_filtered(
        &self,
        queries: &[Query],
        k: usize,
        filter: &PassageFilter<'_>,
    ) -> Result<Vec<Vec<Hit>>> {
        self.ranked(queries, k, |queries| {
            self.base.retrieve_filtered(queries, self.search.candidates, filter)
        })
    }

    fn trace(&self, query: &Query, k: usize) -> Result<Trace> {
        let begin = Instant::now();
        let queries = self.queries(std::slice::from_ref(query))?.concat();
        let read = begin.elapsed();
        let parts: Result<Vec<Trace>> =
            queries.iter().map(|query| self.base.trace(query, self.search.candidates)).collect();
        let parts = parts?;
        let begin = Instant::now();
        let hits = self.merged(parts.iter().flat_map(|part| part.hits.iter().copied()), k);
        let seconds = (read + begin.elapsed()).as_secs_f64();
        Ok(Trace {
            step: "mentions".into(),
            query: query.text.clone(),
            seconds,
            hits,
            sets: Vec::new(),
            parts,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use sporran_kilt::{PassageId, PassageSplit, jsonl, store::BuildOptions};

    use super::*;

    /// Finds the words Rome and Oslo, the year 1999 and the pronoun `it`.
    struct Words;

    impl MentionFinder for Words {
        fn mentions(&self, documents: &[Document]) -> sporran_extractor::Result<Vec<Vec<Mention>>> {
            let mention = |document: &Document, at: usize| {
                let (kind, form) = match document.word(at) {
                    "Rome" | "Oslo" => (EntityType::Location, MentionForm::Name),
                    "1999" => (EntityType::Date, MentionForm::Name),
                    "it" => (EntityType::Other, MentionForm::Pronoun),
                    _ => return None,
                };
                let (tokens, span) = (at..at + 1, document.span(at..at + 1));
                Some(Mention { span, tokens, sentence: 0, kind, form, confidence: 1.0 })
            };
            let of = |document: &Document| {
                (0..document.tokens.len()).filter_map(|at| mention(document, at)).collect()
            };
            Ok(documents.iter().map(of).collect())
        }
    }

    /// The queries that a base received.
    type Received = Arc<Mutex<Vec<(String, Option<String>, usize)>>>;

    /// Ranks fixed passages for each mention.
    struct Fixed(Received);

    impl Retriever for Fixed {
        fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
            let hits = |query: &Query| {
                self.0.lock().unwrap().push((query.text.clone(), query.mention.clone(), k));
                let scores: &[(u32, f32)] = match query.mention.as_deref() {
                    Some("Rome") => &[(0, 2.0), (1, 1.5), (3, 1.0)],
                    Some("Oslo") => &[(2, 3.0), (1, 2.5)],
                    _ => &[(3, 0.5)],
                };
                let hit = |&(id, score)| Hit { passage: PassageId(id), score };
                scores.iter().take(k).map(hit).collect()
            };
            Ok(queries.iter().map(hits).collect())
        }
    }

    /// Passages 0 and 1 are of page 0, 2 of page 1, 3 of page 2.
    fn store(folder: &std::path::Path) -> PassageStore {
        let source = folder.join("pages.jsonl");
        let lines = [
            r#"{"wikipedia_id":"1","wikipedia_title":"A","text":["A","one","two"]}"#,
            r#"{"wikipedia_id":"2","wikipedia_title":"B","text":["B","one"]}"#,
            r#"{"wikipedia_id":"3","wikipedia_title":"C","text":["C","one"]}"#,
        ];
        jsonl::write(&source, lines.join("\n").as_bytes()).unwrap();
        let build = BuildOptions { source, redirects: None, split: PassageSplit::Paragraph };
        PassageStore::build(&build, folder.join("store"), &mut |_| {}).unwrap()
    }

    fn retriever(
        folder: &std::path::Path,
        marks: Option<[&str; 2]>,
        candidates: usize,
    ) -> (Mentions, Received) {
        let received = Received::default();
        let mention_marks = marks.map(|marks| marks.map(str::to_owned));
        let search = MentionSearch { tagger: PathBuf::new(), mention_marks, candidates };
        let base = Box::new(Fixed(Arc::clone(&received)));
        let store = Arc::new(store(folder));
        (Mentions { base, finder: Box::new(Words), store, search }, received)
    }

    fn found(hits: &[Hit]) -> Vec<(u32, f32)> {
        hits.iter().map(|hit| (hit.passage.0, hit.score)).collect()
    }

    #[test]
    fn rankings_of_mentions_are_merged_and_a_page_keeps_its_greatest_score() {
        let folder = tempfile::tempdir().unwrap();
        let (retriever, _) = retriever(folder.path(), None, 100);
        let query = Query::of_text("q", "From Rome to Oslo");
        let hits = retriever.retrieve(std::slice::from_ref(&query), 10).unwrap();
        assert_eq!(found(&hits[0]), [(2, 3.0), (1, 2.5), (3, 1.0)]);
        assert_eq!(
            found(&retriever.retrieve(std::slice::from_ref(&query), 2).unwrap()[0]),
            [(2, 3.0), (1, 2.5)]
        );
        let trace = retriever.trace(&query, 10).unwrap();
        assert_eq!((trace.parts.len(), trace.hits), (2, hits[0].clone()));
        // A query's ranking does not depend on the others.
        let other = Query::of_text("r", "To Rome");
        let both = retriever.retrieve(&[other, query.clone()], 10).unwrap();
        assert_eq!(found(&both[0]), [(0, 2.0), (3, 1.0)]);
        assert_eq!(both[1], hits[0]);
        // Without the first page, the other pages stay.
        let filtered = retriever.retrieve_filtered(&[query], 10, &|id| id.0 > 1).unwrap();
        assert_eq!(found(&filtered[0]), [(2, 3.0), (3, 1.0)]);
    }

    #[test]
    fn the_base_reads_each_mention_between_marks_in_the_whole_input() {
        let folder = tempfile::tempdir().unwrap();
        let (retriever, received) = retriever(folder.path(), Some(["[m]", "[/m]"]), 7);
        let query =
            Query { original: Some("Rome, it [SEP] Oslo 1999".into()), ..Query::of_text("q", "other") };
        let tagged = Query::of_text("r", "Is [START_ENT] The City [END_ENT] near Rome?");
        retriever.retrieve(&[query, tagged, Query::of_text("s", " No NAMES ")], 10).unwrap();
        let received = received.lock().unwrap();
        let expected = [
            ("[m] rome [/m] , it [sep] oslo 1999", Some("Rome")),
            ("rome, it [sep] [m] oslo [/m] 1999", Some("Oslo")),
            ("is [m] the city [/m] near rome?", Some("The City")),
            ("no names", None),
        ];
        let texts: Vec<(&str, Option<&str>)> =
            received.iter().map(|(text, mention, _)| (text.as_str(), mention.as_deref())).collect();
        assert_eq!(texts, expected);
        assert!(received.iter().all(|(_, _, k)| *k == 7));
    }
}
