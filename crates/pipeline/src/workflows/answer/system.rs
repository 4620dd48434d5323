//! A loaded config that answers queries, for runs, servers and other programs. It needs no run folder.

use std::sync::Arc;

use sporran_generator::{Candidate, Generation, Generator, Request, Sink};
use sporran_kilt::{Hit, Passage, PassageStore, Prediction, Query, observe::Observer};
use sporran_retriever::{Retriever, Trace};

use super::{
    assemble::{Assembly, assemble},
    evidence::{pages, provenance, source},
    options::Options,
};
use crate::Result;

/// The retriever, the reranker and the generator of a config, ready to answer.
pub struct System {
    pub(super) options: Options,
    pub(super) assembly: Assembly,
}

/// The answer to a query with its passages.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The answer, empty without a generator, and its provenance.
    pub prediction: Prediction,
    /// The retrieved passages, best first.
    pub hits: Vec<Hit>,
    /// The number of generated tokens.
    pub tokens: usize,
}

impl System {
    /// Opens the store, the indexes and the models of a config. Builds missing indexes.
    ///
    /// # Errors
    /// Those of [`assemble`].
    pub fn open(options: Options, observe: &mut Observer<'_>) -> Result<Self> {
        let assembly = assemble(&options, observe)?;
        Ok(Self::new(options, assembly))
    }

    pub(super) fn new(options: Options, assembly: Assembly) -> Self {
        Self { options, assembly }
    }

    /// The options of the system.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Answers queries, in order. An answer does not depend on the other queries.
    ///
    /// # Errors
    /// Errors of the retriever or the generator, and damage of the passage store.
    pub fn answer(&self, queries: &[Query]) -> Result<Vec<Answered>> {
        self.answer_with(queries, None)
    }

    /// [`answer`](Self::answer), with a sink that receives the generated texts and can end them. The number of a request is
    /// that of its query.
    ///
    /// # Errors
    /// As there.
    pub fn answer_into(&self, queries: &[Query], sink: &dyn Sink) -> Result<Vec<Answered>> {
        self.answer_with(queries, Some(sink))
    }

    /// The passages, if the config has a source.
    #[must_use]
    pub fn store(&self) -> Option<&Arc<PassageStore>> {
        self.assembly.store.as_ref()
    }

    /// The retriever, if the config has one.
    #[must_use]
    pub fn retriever(&self) -> Option<&dyn Retriever> {
        self.assembly.retriever.as_deref()
    }

    /// The generator, if the config has one.
    #[must_use]
    pub fn generator(&self) -> Option<&dyn Generator> {
        self.assembly.generator.as_deref()
    }

    /// The passages for the answers to queries, best first; none without a retriever. [`answer`](Self::answer) begins with them.
    ///
    /// # Errors
    /// Errors of the retriever.
    pub fn retrieve(&self, queries: &[Query]) -> Result<Vec<Vec<Hit>>> {
        let general = &self.options.general;
        let Some(retriever) = self.retriever() else { return Ok(vec![Vec::new(); queries.len()]) };
        let shaped = self.shaped(queries);
        let hits = retriever.retrieve(&shaped, general.evidence.depth)?;
        self.deepen(retriever, &shaped, hits)
    }

    /// The best `k` passages of each query; none without a retriever.
    ///
    /// # Errors
    /// Errors of the retriever.
    pub fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        let Some(retriever) = self.retriever() else { return Ok(vec![Vec::new(); queries.len()]) };
        Ok(retriever.retrieve(&self.shaped(queries), k)?)
    }

    /// [`retrieve`](Self::retrieve) for a query, with the steps of the same search; `None` without a retriever.
    ///
    /// # Errors
    /// As there.
    pub fn traced(&self, query: &Query) -> Result<Option<(Vec<Hit>, Trace)>> {
        let Some(retriever) = self.retriever() else { return Ok(None) };
        let shaped = self.shaped(std::slice::from_ref(query));
        let trace = retriever.trace(&shaped[0], self.options.general.evidence.depth)?;
        let mut hits = self.deepen(retriever, &shaped, vec![trace.hits.clone()])?;
        Ok(Some((hits.pop().unwrap_or_default(), trace)))
    }

    /// The passages of a ranking that the generator reads, with their scores; none without a generator.
    #[must_use]
    pub fn read_by_generator(&self, hits: &[Hit]) -> Vec<(Passage, f32)> {
        let most = self.generator().map_or(0, Generator::passages);
        let read = |hit: &Hit| Some((self.store()?.passage(hit.passage), hit.score));
        hits.iter().take(most).filter_map(read).collect()
    }

    /// The prompts of the generator for a query with its ranking; none without a generator or its prompts.
    ///
    /// # Errors
    /// Errors of the tokenizer.
    pub fn prompts(&self, query: &Query, hits: &[Hit]) -> Result<Vec<String>> {
        let Some(generator) = self.generator() else { return Ok(Vec::new()) };
        let passages = self.read_by_generator(hits);
        let passages: Vec<Candidate<'_>> =
            passages.iter().map(|(passage, score)| Candidate { passage, score: *score }).collect();
        Ok(generator.prompts(&Request { query, passages: &passages })?)
    }

    /// Checks that all content read from the store so far was valid.
    ///
    /// # Errors
    /// Those of [`PassageStore::sound`].
    pub fn sound(&self) -> Result<()> {
        self.assembly.sound()
    }

    /// The queries as the retriever reads them.
    fn shaped(&self, queries: &[Query]) -> Vec<Query> {
        let general = &self.options.general;
        queries.iter().map(|query| general.for_retrieval(query)).collect()
    }

    fn answer_with(&self, queries: &[Query], sink: Option<&dyn Sink>) -> Result<Vec<Answered>> {
        let general = &self.options.general;
        let hits = self.retrieve(queries)?;
        let generations = self.generate(queries, &hits, sink)?;
        let mut answers = Vec::with_capacity(queries.len());
        for ((query, hits), generation) in queries.iter().zip(hits).zip(generations) {
            let (answer, used, tokens) = match generation {
                None => (String::new(), Vec::new(), 0),
                Some(Generation { text, evidence, tokens, .. }) => {
                    let used = evidence.iter().filter_map(|&at| Some(hits.get(at)?.passage)).collect();
                    (text, used, tokens)
                }
            };
            let provenance = self.assembly.store.as_ref().map_or_else(Vec::new, |store| {
                provenance(store, &hits, (&answer, &used), source(&self.options, query), &general.evidence)
            });
            let prediction = Prediction { id: query.id.clone(), answer, provenance };
            answers.push(Answered { prediction, hits, tokens });
        }
        self.assembly.sound()?;
        Ok(answers)
    }

    /// Retrieves more passages for queries with fewer pages than the deepest recall in the report.
    fn deepen(
        &self,
        retriever: &dyn Retriever,
        queries: &[Query],
        mut hits: Vec<Vec<Hit>>,
    ) -> Result<Vec<Vec<Hit>>> {
        let general = &self.options.general;
        let deepest = general.deepest_score().filter(|_| general.evidence.one_per_page);
        let (Some(store), Some(wanted)) = (&self.assembly.store, deepest) else {
            return Ok(hits);
        };
        let mut depth = general.evidence.depth;
        loop {
            // A ranking shorter than the depth is complete.
            let is_short =
                |hits: &[Hit]| hits.len() >= depth && pages(store, hits, &general.evidence).len() < wanted;
            let short: Vec<usize> = (0..hits.len()).filter(|&at| is_short(&hits[at])).collect();
            if short.is_empty() {
                return Ok(hits);
            }
            depth = depth.saturating_mul(2);
            let again: Vec<Query> = short.iter().map(|&at| queries[at].clone()).collect();
            for (at, found) in short.into_iter().zip(retriever.retrieve(&again, depth)?) {
                hits[at] = found;
            }
        }
    }

    /// The answers of the generator; `None` for each query without one.
    pub(super) fn generate(
        &self,
        queries: &[Query],
        hits: &[Vec<Hit>],
        sink: Option<&dyn Sink>,
    ) -> Result<Vec<Option<Generation>>> {
        let Some(generator) = &self.assembly.generator else {
            return Ok(queries.iter().map(|_| None).collect());
        };
        let passages: Vec<Vec<(Passage, f32)>> =
            hits.iter().map(|hits| self.read_by_generator(hits)).collect();
        let candidates: Vec<Vec<Candidate<'_>>> = passages
            .iter()
            .map(|row| row.iter().map(|(passage, score)| Candidate { passage, score: *score }).collect())
            .collect();
        let requests: Vec<Request<'_>> = queries
            .iter()
            .zip(&candidates)
            .map(|(query, candidates)| Request { query, passages: candidates })
            .collect();
        let generations = match sink {
            None => generator.generate(&requests)?,
            Some(sink) => generator.generate_into(&requests, sink)?,
        };
        Ok(generations.into_iter().map(Some).collect())
    }
}
