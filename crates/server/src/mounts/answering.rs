//! Answers and searches over an index.

use std::{path::PathBuf, sync::Arc, time::Instant};

use sporran_kilt::{Hit, Passage, PassageStore, Query, counted};
use sporran_pipeline::workflows::answer::{AskOptions, Asker, CitedAnswer, Conversation, FollowUpQueries};
use sporran_retriever::Trace;
use sporran_transformers::GenerationOptions;

use super::{
    answer::{AnswerRequest, AnswerResponse, AnswerTrace, TraceItem, TraceStep},
    document::{Document, DocumentResponse, QueryText, SearchCandidate, SearchResponse},
};
use crate::{
    Failure, Limits, Result,
    work::{Generated, GeneratorWorker, PieceReceiver, Prompted, Setting, Worker, aside, size, thread},
};

/// The results of a step of a trace, at most.
const TRACED: usize = 20;

/// Answers questions and searches, with a thread for searches, one for the generator and one for citations.
pub(crate) struct Answering {
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
    /// The query of the search.
    pub(crate) query: Query,
    /// The query that the generator reads, if it is another one.
    read: Option<Query>,
    /// The passages, best first.
    pub(crate) hits: Vec<Hit>,
    /// Those that the generator reads, for an answer.
    passages: Vec<(Passage, f32)>,
    trace: Option<Trace>,
    seconds: f64,
}

/// A question of a request.
pub(crate) struct Asking<'a> {
    /// The field of the request that has it.
    pub(crate) field: &'static str,
    /// The question.
    pub(crate) question: &'a str,
    /// The turns before it.
    pub(crate) earlier: Conversation,
    /// What the client tells the model.
    pub(crate) instruction: Option<String>,
}

impl<'a> Asking<'a> {
    /// A question without earlier turns and without an instruction.
    pub(crate) fn alone(field: &'static str, question: &'a str) -> Self {
        Self { field, question, earlier: Conversation::default(), instruction: None }
    }
}

/// The failure of a question that cannot be asked.
fn wrong(field: &'static str) -> impl Fn(sporran_pipeline::Error) -> Failure {
    move |error| Failure::invalid(field, format!("`{field}`: {error}"))
}

/// An answer whose citations are wanted.
struct Citing {
    query: Query,
    hits: Vec<Hit>,
    text: String,
    top: Option<usize>,
}

impl Answering {
    /// Opens documents or a config, and starts the threads. Without a name it is that of the config.
    ///
    /// # Errors
    /// Those of [`Asker::open`], and a system without threads.
    pub(crate) fn open(
        name: Option<String>,
        options: &AskOptions,
        setting: &Setting,
        observe: &mut sporran_kilt::observe::Observer<'_>,
    ) -> Result<Self> {
        let asker = Arc::new(Asker::open(options, observe)?);
        let name = name.unwrap_or_else(|| asker.options().general.name.clone());
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
        let (limits, is_bare) = (setting.limits, options.sources.is_empty());
        Ok(Self { name, asker, searching, citing, generating, limits, is_bare })
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The limits of requests.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The configs that follow its own.
    pub(crate) fn then(&self) -> &[PathBuf] {
        &self.asker.options().general.then
    }

    /// Whether a generator writes the answers.
    pub(crate) fn generates(&self) -> bool {
        self.generating.is_some()
    }

    /// Whether it is a model alone, without documents and config.
    pub(crate) fn is_bare(&self) -> bool {
        self.is_bare
    }

    /// Whether there is an index.
    pub(crate) fn searches(&self) -> bool {
        self.asker.system().retriever().is_some()
    }

    /// The passages.
    pub(crate) fn store(&self) -> Option<&PassageStore> {
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
    pub(crate) async fn answer(self: &Arc<Self>, request: &AnswerRequest) -> Result<AnswerResponse, Failure> {
        let begin = Instant::now();
        if request.document.is_some() || !request.topics.is_empty() {
            let field = if request.document.is_some() { "document" } else { "topics" };
            let message =
                format!("`{field}`: expected none, as `{}` answers from its own passages", self.name);
            return Err(Failure::invalid(field, message));
        }
        let top = self.checked("top", request.top)?;
        let mut found = self.found(Asking::alone("question", &request.question), request.trace).await?;
        let mut trace = if request.trace { Some(self.steps(&mut found).await?) } else { None };
        let mut text = String::new();
        if self.generates() {
            let begin = Instant::now();
            let pieces = self.begin(&mut found, GenerationOptions::default())?;
            let Generated { generation, .. } = pieces.finished().await?;
            if let Some(trace) = &mut trace {
                trace.wrote(&generation.text, generation.tokens, begin.elapsed().as_secs_f64());
            }
            text = generation.text;
        }
        let mut response = self.cited(found, text, top).await?;
        (response.trace, response.seconds) = (trace, begin.elapsed().as_secs_f64());
        Ok(response)
    }

    /// The passages of a question. One that refers to earlier questions of a conversation is searched for together with them.
    pub(crate) async fn found(&self, asking: Asking<'_>, with_trace: bool) -> Result<Found, Failure> {
        let Asking { field, question, earlier, instruction } = asking;
        let (mut query, mut read) = match self.asker.follow_up(question, &earlier).map_err(wrong(field))? {
            Some(FollowUpQueries { search, read }) => (search, Some(read)),
            None => (self.asker.query(question).map_err(wrong(field))?, None),
        };
        read.as_mut().unwrap_or(&mut query).instruction = instruction;
        if !self.searches() {
            let (hits, passages) = (Vec::new(), Vec::new());
            return Ok(Found { query, read, hits, passages, trace: None, seconds: 0.0 });
        }
        let wanted = if with_trace { Wanted::Trace } else { Wanted::Answer };
        let tokens = size(&query.text);
        let found = self.searching.one(Search { query, wanted }, tokens).await?;
        Ok(Found { read, ..found })
    }

    /// Begins to write the answer to a question with its passages, which it takes.
    pub(crate) fn begin(
        &self,
        found: &mut Found,
        options: GenerationOptions,
    ) -> Result<PieceReceiver, Failure> {
        let passages = std::mem::take(&mut found.passages);
        let query = found.read.as_ref().unwrap_or(&found.query);
        let tokens =
            size(&query.text) + passages.iter().map(|(passage, _)| size(&passage.text)).sum::<usize>();
        self.write(Prompted::Query { query: query.clone(), passages }, options, tokens)
    }

    /// Begins to write what the bare model says.
    pub(crate) fn begin_bare(
        &self,
        prompted: Prompted,
        options: GenerationOptions,
    ) -> Result<PieceReceiver, Failure> {
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
    ) -> Result<PieceReceiver, Failure> {
        let generating = self.generating.as_ref();
        let generating = generating
            .ok_or_else(|| Failure::invalid("model", format!("`{}` has no generator", self.name)))?;
        generating.begin(prompted, options, tokens)
    }

    /// The answer with its citations, without a trace and its time. `top`: the number of passages.
    pub(crate) async fn cited(
        self: &Arc<Self>,
        found: Found,
        text: String,
        top: Option<usize>,
    ) -> Result<AnswerResponse, Failure> {
        let Found { query, hits, .. } = found;
        let tokens = size(&text);
        let cited = self.citing.one(Citing { query, hits, text, top }, tokens).await?;
        let own = Arc::clone(self);
        aside(move || Ok(AnswerResponse::new(&own.name, cited, own.store()))).await
    }

    /// The steps before the answer is written: the searches that were traced, and the prompt.
    pub(crate) async fn steps(self: &Arc<Self>, found: &mut Found) -> Result<AnswerTrace, Failure> {
        let mut trace = match found.trace.take() {
            Some(trace) => {
                let (own, seconds) = (Arc::clone(self), found.seconds);
                aside(move || Ok(AnswerTrace::of_search(trace, TRACED, seconds, own.index()?))).await?
            }
            None => AnswerTrace { steps: Vec::new() },
        };
        if self.generates() {
            trace.steps.push(self.prompt_step(found).await?);
        }
        Ok(trace)
    }

    /// The prompt of the generator, as a step of a trace.
    async fn prompt_step(&self, found: &Found) -> Result<TraceStep, Failure> {
        let begin = Instant::now();
        let query = found.read.clone().unwrap_or_else(|| found.query.clone());
        let (asker, hits) = (Arc::clone(&self.asker), found.hits.clone());
        let prompts = aside(move || asker.system().prompts(&query, &hits).map_err(Failure::internal)).await?;
        let items =
            prompts.into_iter().map(|text| TraceItem { text: Some(text), ..TraceItem::default() }).collect();
        let seconds = begin.elapsed().as_secs_f64();
        Ok(TraceStep { name: "prompt".into(), seconds, items, ..TraceStep::default() })
    }

    /// A number of results that the server gives.
    pub(crate) fn checked(&self, field: &str, wanted: Option<usize>) -> Result<Option<usize>, Failure> {
        self.limits.checked(field, wanted)
    }

    /// The best passages of each query. `names` are what the request calls the queries and their number.
    ///
    /// # Errors
    /// A blank query, too many hits, a mount without an index, a full queue, and errors of the index.
    pub(crate) async fn hits(
        &self,
        queries: &[String],
        (names, count): ([&'static str; 2], usize),
    ) -> Result<Vec<Vec<Hit>>, Failure> {
        self.index()?;
        self.checked(names[1], Some(count))?;
        let (all, most) = (queries.len().saturating_mul(count), self.limits.all_hits);
        if all > most {
            let message = format!(
                "`queries`: expected at most {most} hits of all queries, found {} with {count} hits each",
                counted(queries.len() as u64, "query")
            );
            return Err(Failure::invalid("queries", message));
        }
        let search = |text: &String| {
            let query = self.asker.query(text).map_err(wrong(names[0]))?;
            Ok((Search { query, wanted: Wanted::Hits(count) }, size(text)))
        };
        let searches = queries.iter().map(search).collect::<Result<Vec<_>, Failure>>()?;
        Ok(self.searching.all(searches).await?.into_iter().map(|found| found.hits).collect())
    }

    /// The best passages of a query with their texts.
    ///
    /// # Errors
    /// Those of [`hits`](Self::hits).
    pub(crate) async fn search(
        self: &Arc<Self>,
        query: String,
        count: usize,
    ) -> Result<SearchResponse, Failure> {
        let hits = self
            .hits(std::slice::from_ref(&query), (["query", "hits"], count))
            .await?
            .pop()
            .unwrap_or_default();
        let own = Arc::clone(self);
        aside(move || {
            let candidates = SearchCandidate::of_hits(own.index()?, &hits);
            Ok(SearchResponse {
                api: "v1",
                index: own.name.clone(),
                query: QueryText { text: query },
                candidates,
            })
        })
        .await
    }

    /// A document, or a passage of one, by its id.
    ///
    /// # Errors
    /// An id of nothing.
    pub(crate) fn document(&self, id: &str) -> Result<DocumentResponse, Failure> {
        let doc = Document::of_id(self.index()?, id).ok_or_else(|| Failure::not_found("document", id, []))?;
        Ok(DocumentResponse { api: "v1", index: self.name.clone(), docid: id.to_owned(), doc })
    }
}

/// The results of searches. Those that want the same are searched for together; a trace is a search of its own.
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
        let results = match wanted {
            Wanted::Hits(count) => system.search(&queries, count).map(untraced),
            Wanted::Answer => system.retrieve(&queries).map(untraced),
            Wanted::Trace => queries.iter().map(|query| timed(asker, query)).collect(),
        };
        let results = results.map_err(Failure::internal)?;
        let seconds = begin.elapsed().as_secs_f64();
        for ((at, query), (hits, trace)) in places.into_iter().zip(queries).zip(results) {
            let passages = match wanted {
                Wanted::Hits(_) => Vec::new(),
                Wanted::Answer | Wanted::Trace => system.read_by_generator(&hits),
            };
            let (trace, seconds) = trace.map_or((None, seconds), |(trace, own)| (Some(trace), own));
            found[at] = Some(Found { query, read: None, hits, passages, trace, seconds });
        }
    }
    system.sound().map_err(Failure::internal)?;
    Ok(found.into_iter().flatten().collect())
}

/// Hits, and the steps that led to them with their time.
type Traced = (Vec<Hit>, Option<(Trace, f64)>);

fn untraced(hits: Vec<Vec<Hit>>) -> Vec<Traced> {
    hits.into_iter().map(|hits| (hits, None)).collect()
}

fn timed(asker: &Asker, query: &Query) -> sporran_pipeline::Result<Traced> {
    let begin = Instant::now();
    let found = asker.system().traced(query)?;
    let seconds = begin.elapsed().as_secs_f64();
    Ok(found.map_or_else(Default::default, |(hits, trace)| (hits, Some((trace, seconds)))))
}
