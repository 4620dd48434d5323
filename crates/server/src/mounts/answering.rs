//! Answers and searches over an index.

use std::{sync::Arc, time::Instant};

use sporran_kilt::{Hit, Passage, PassageStore, Query};
use sporran_pipeline::workflows::answer::{AskOptions, Asker, CitedAnswer};
use sporran_retriever::Trace;
use sporran_transformers::GenerationOptions;
use tokio::sync::mpsc::UnboundedReceiver;

use super::{
    answer::{AnswerRequest, AnswerResponse, AnswerTrace, TraceItem, TraceStep},
    document::{Document, DocumentResponse, QueryText, SearchCandidate, SearchResponse},
};
use crate::{
    Failure, Limits, Result,
    work::{Generated, GeneratorWorker, Piece, Prompted, Setting, Worker, aside, finished, size, thread},
};

/// The results of a step of a trace, at most.
const TRACED: usize = 20;

/// Answers questions and searches, with a thread for searches, one for the generator and one for citations.
pub struct Answering {
    name: String,
    asker: Arc<Asker>,
    searching: Worker<Search, Found>,
    citing: Worker<Citing, CitedAnswer>,
    generating: Option<GeneratorWorker>,
    limits: Limits,
    is_bare: bool,
}

/// A search.
struct Search {
    query: Query,
    wanted: Wanted,
}

/// What a search is to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wanted {
    /// The best passages.
    Hits(usize),
    /// The passages of an answer.
    Answer,
    /// These, and the steps that led to them.
    Trace,
}

/// The passages of a query.
#[derive(Debug)]
pub(crate) struct Found {
    /// The query.
    pub(crate) query: Query,
    /// The passages, best first.
    pub(crate) hits: Vec<Hit>,
    trace: Option<Trace>,
    seconds: f64,
}

/// An answer whose citations are wanted.
struct Citing {
    query: Query,
    hits: Vec<Hit>,
    text: String,
    top: Option<usize>,
}

impl Answering {
    /// Opens documents or a config, and starts the threads.
    ///
    /// # Errors
    /// Those of [`Asker::open`], and a system without threads.
    pub(crate) fn open(
        name: String,
        options: &AskOptions,
        setting: &Setting,
        observe: &mut sporran_kilt::observe::Observer<'_>,
    ) -> Result<Self> {
        let asker = Arc::new(Asker::open(options, observe)?);
        let (searcher, citer) = (Arc::clone(&asker), Arc::clone(&asker));
        let searching = setting
            .worker(&format!("search {name}"), move |searches: &[Search]| find(&searcher, searches))?;
        let citing = setting.worker(&format!("cite {name}"), move |items: &[Citing]| {
            let cited = |item: &Citing| citer.cite(&item.query, &item.hits, &item.text, item.top);
            items.iter().map(cited).collect::<Result<Vec<_>, _>>().map_err(Failure::internal)
        })?;
        let generate = format!("generate {name}");
        let metrics = setting.metrics.worker(&generate);
        let start = || {
            GeneratorWorker::start(
                &generate,
                Arc::clone(&asker),
                (setting.bounds(), setting.limits.running),
                metrics,
            )
        };
        let generating = asker.generates().then(start).transpose().map_err(thread)?;
        Ok(Self {
            name,
            asker,
            searching,
            citing,
            generating,
            limits: setting.limits,
            is_bare: options.sources.is_empty(),
        })
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a generator writes the answers.
    #[must_use]
    pub fn generates(&self) -> bool {
        self.generating.is_some()
    }

    /// Whether it is a model alone, without documents and config.
    pub(crate) fn is_bare(&self) -> bool {
        self.is_bare
    }

    /// Whether there is an index.
    #[must_use]
    pub fn searches(&self) -> bool {
        self.asker.system().retriever().is_some()
    }

    /// The passages.
    #[must_use]
    pub fn store(&self) -> Option<&PassageStore> {
        self.asker.system().store().map(Arc::as_ref)
    }

    /// The passages of the index.
    ///
    /// # Errors
    /// A mount without an index.
    pub(crate) fn index(&self) -> Result<&PassageStore, Failure> {
        let store = self.store().filter(|_| self.searches());
        store.ok_or_else(|| Failure::invalid("index", format!("`{}` has no index", self.name)))
    }

    /// Answers a question.
    ///
    /// # Errors
    /// A blank question, a full queue, and errors of the index and the models.
    pub async fn answer(&self, request: &AnswerRequest) -> Result<AnswerResponse, Failure> {
        let begin = Instant::now();
        let top = self.checked("top", request.top)?;
        let mut found = self.found(&request.question, request.trace).await?;
        let mut trace = match (found.trace.take(), self.store()) {
            (Some(trace), Some(store)) => Some(AnswerTrace::of_search(trace, TRACED, found.seconds, store)),
            _ => request.trace.then(|| AnswerTrace { steps: Vec::new() }),
        };
        let mut text = String::new();
        if self.generates() {
            if let Some(AnswerTrace { steps }) = &mut trace {
                steps.push(self.prompt_step(&found).await?);
            }
            let begin = Instant::now();
            let Generated { generation, .. } =
                finished(self.begin(&found, GenerationOptions::default())?).await?;
            text = generation.text;
            if let Some(AnswerTrace { steps }) = &mut trace {
                let items = vec![TraceItem { text: Some(text.clone()), ..TraceItem::default() }];
                let seconds = Some(begin.elapsed().as_secs_f64());
                let tokens = Some(generation.tokens);
                steps.push(TraceStep { name: "answer".into(), seconds, query: None, tokens, items });
            }
        }
        let cited = self.cited(found, text, top).await?;
        Ok(AnswerResponse::new(&self.name, cited, self.store(), trace, begin.elapsed().as_secs_f64()))
    }

    /// The passages of a question.
    pub(crate) async fn found(&self, question: &str, with_trace: bool) -> Result<Found, Failure> {
        let query =
            self.asker.query(question).map_err(|error| Failure::invalid("question", error.to_string()))?;
        if !self.searches() {
            return Ok(Found { query, hits: Vec::new(), trace: None, seconds: 0.0 });
        }
        let wanted = if with_trace { Wanted::Trace } else { Wanted::Answer };
        let tokens = size(question);
        self.searching.one(Search { query, wanted }, tokens).await
    }

    /// Begins to write the answer to a question with its passages.
    pub(crate) fn begin(
        &self,
        found: &Found,
        options: GenerationOptions,
    ) -> Result<UnboundedReceiver<Piece>, Failure> {
        let passages: Vec<(Passage, f32)> = self.asker.system().read_by_generator(&found.hits);
        let tokens =
            size(&found.query.text) + passages.iter().map(|(passage, _)| size(&passage.text)).sum::<usize>();
        self.write(Prompted::Query { query: found.query.clone(), passages }, options, tokens)
    }

    /// Begins to write what the bare model says.
    pub(crate) fn begin_bare(
        &self,
        prompted: Prompted,
        options: GenerationOptions,
    ) -> Result<UnboundedReceiver<Piece>, Failure> {
        let tokens = match &prompted {
            Prompted::Query { query, .. } => size(&query.text),
            Prompted::Text(text) => size(text),
            Prompted::Turns { system, turns, asked } => {
                size(system) + size(asked) + turns.iter().map(|(a, b)| size(a) + size(b)).sum::<usize>()
            }
        };
        self.write(prompted, options, tokens)
    }

    fn write(
        &self,
        prompted: Prompted,
        options: GenerationOptions,
        tokens: usize,
    ) -> Result<UnboundedReceiver<Piece>, Failure> {
        let most = self.limits.answer_tokens;
        if let Some(tokens) = options.max_new_tokens.filter(|tokens| *tokens > most) {
            let message = format!("`max_tokens`: expected at most {most}, found {tokens}");
            return Err(Failure::invalid("max_tokens", message));
        }
        let generating = self.generating.as_ref();
        let generating = generating
            .ok_or_else(|| Failure::invalid("model", format!("`{}` has no generator", self.name)))?;
        generating.begin(prompted, options, tokens)
    }

    /// The answer with its citations. `top`: the number of passages.
    pub(crate) async fn cited(
        &self,
        found: Found,
        text: String,
        top: Option<usize>,
    ) -> Result<CitedAnswer, Failure> {
        let Found { query, hits, .. } = found;
        let tokens = size(&text);
        self.citing.one(Citing { query, hits, text, top }, tokens).await
    }

    /// The prompt of the generator, as a step of a trace.
    async fn prompt_step(&self, found: &Found) -> Result<TraceStep, Failure> {
        let (asker, query, hits) = (Arc::clone(&self.asker), found.query.clone(), found.hits.clone());
        let prompts = aside(move || asker.system().prompts(&query, &hits).map_err(Failure::internal)).await?;
        let items =
            prompts.into_iter().map(|text| TraceItem { text: Some(text), ..TraceItem::default() }).collect();
        Ok(TraceStep { name: "prompt".into(), items, ..TraceStep::default() })
    }

    /// A number of results that the server gives.
    pub(crate) fn checked(&self, field: &str, wanted: Option<usize>) -> Result<Option<usize>, Failure> {
        match wanted {
            Some(count) if count == 0 || count > self.limits.hits => {
                let message = format!("`{field}`: expected 1 to {}, found {count}", self.limits.hits);
                Err(Failure::invalid(field, message))
            }
            wanted => Ok(wanted),
        }
    }

    /// The best passages of each query.
    ///
    /// # Errors
    /// A blank query, too many hits, a mount without an index, a full queue, and errors of the index.
    pub async fn hits(&self, queries: &[&str], count: usize) -> Result<Vec<Vec<Hit>>, Failure> {
        self.index()?;
        let count = self.checked("hits", Some(count))?.unwrap_or(count);
        let (all, most) = (queries.len().saturating_mul(count), self.limits.all_hits);
        if all > most {
            let message = format!("`queries`: expected at most {most} hits in all, found {all}");
            return Err(Failure::invalid("queries", message));
        }
        let search = |text: &&str| {
            let query =
                self.asker.query(text).map_err(|error| Failure::invalid("query", error.to_string()))?;
            Ok((Search { query, wanted: Wanted::Hits(count) }, size(text)))
        };
        let searches = queries.iter().map(search).collect::<Result<Vec<_>, Failure>>()?;
        Ok(self.searching.all(searches).await?.into_iter().map(|found| found.hits).collect())
    }

    /// The best passages of a query with their texts.
    ///
    /// # Errors
    /// Those of [`hits`](Self::hits).
    pub async fn search(&self, query: &str, count: usize) -> Result<SearchResponse, Failure> {
        let hits = self.hits(&[query], count).await?.pop().unwrap_or_default();
        let candidates = SearchCandidate::of_hits(self.index()?, &hits);
        let query = QueryText { text: query.to_owned() };
        Ok(SearchResponse { api: "v1", index: self.name.clone(), query, candidates })
    }

    /// A document, or a passage of one, by its id.
    ///
    /// # Errors
    /// An id of nothing.
    pub fn document(&self, id: &str) -> Result<DocumentResponse, Failure> {
        let doc = Document::of_id(self.index()?, id).ok_or_else(|| Failure::not_found("document", id, []))?;
        Ok(DocumentResponse { api: "v1", index: self.name.clone(), docid: id.to_owned(), doc })
    }
}

/// The results of searches. Those that want the same are searched for together.
fn find(asker: &Asker, searches: &[Search]) -> Result<Vec<Found>, Failure> {
    let system = asker.system();
    let mut found: Vec<Option<Found>> = searches.iter().map(|_| None).collect();
    let mut kinds: Vec<Wanted> = searches.iter().map(|search| search.wanted).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for wanted in kinds {
        let places: Vec<usize> = (0..searches.len()).filter(|&at| searches[at].wanted == wanted).collect();
        let queries: Vec<Query> = places.iter().map(|&at| searches[at].query.clone()).collect();
        let begin = Instant::now();
        let hits: sporran_pipeline::Result<Vec<(Vec<Hit>, Option<Trace>)>> = match wanted {
            Wanted::Hits(count) => system.search(&queries, count).map(without_traces),
            Wanted::Answer => system.retrieve(&queries).map(without_traces),
            Wanted::Trace => queries.iter().map(|query| system.retrieve_with_trace(query)).collect(),
        };
        let hits = hits.map_err(Failure::internal)?;
        let seconds = begin.elapsed().as_secs_f64();
        for ((at, query), (hits, trace)) in places.into_iter().zip(queries).zip(hits) {
            found[at] = Some(Found { query, hits, trace, seconds });
        }
    }
    system.sound().map_err(Failure::internal)?;
    Ok(found.into_iter().flatten().collect())
}

fn without_traces(all: Vec<Vec<Hit>>) -> Vec<(Vec<Hit>, Option<Trace>)> {
    all.into_iter().map(|hits| (hits, None)).collect()
}
