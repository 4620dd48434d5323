//! A thread that generates answers. Requests join its running batch at the next step, where the generator has one.

use std::{
    collections::{HashMap, VecDeque},
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Instant,
};

use sporran_generator::{
    BarePrompt, Candidate, Conversation, Counted, EndpointInput, Finished, Generator, Request, RunningBatch,
    Sink,
};
use sporran_kilt::{Passage, Query};
use sporran_pipeline::workflows::answer::Asker;
use sporran_transformers::GenerationOptions;

use super::{
    pieces::{Generated, PieceReceiver, PieceSender, PieceSink, pieces},
    queue::{Bounds, Queue},
};
use crate::{Failure, metrics::WorkerMetrics};

/// What a generator continues or answers.
#[derive(Debug)]
pub(crate) enum Prompted {
    /// A query with its passages, in the generator's own prompt.
    Query {
        /// The query.
        query: Query,
        /// The passages with their scores, best first.
        passages: Vec<(Passage, f32)>,
    },
    /// A text that the bare model continues.
    Text(String),
    /// A conversation whose last turn the bare model answers.
    Turns {
        /// The system's turn; may be empty.
        system: String,
        /// Earlier questions with their answers.
        turns: Vec<(String, String)>,
        /// The question.
        asked: String,
    },
}

struct Job {
    prompted: Prompted,
    options: GenerationOptions,
    /// The size of the prompt in the queue.
    tokens: usize,
    pieces: PieceSender,
}

/// A thread that generates answers. It ends when the worker is dropped, after the answers that were begun.
pub(crate) struct GeneratorWorker {
    queue: Arc<Queue<Job>>,
}

impl GeneratorWorker {
    /// Starts a thread for the generator of an asker, which must have one. `most`: the number of answers that it writes
    /// together.
    pub(crate) fn start(
        name: &str,
        asker: Arc<Asker>,
        (bounds, most): (Bounds, usize),
        metrics: WorkerMetrics,
    ) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::new(bounds, metrics));
        let jobs = Arc::clone(&queue);
        thread::Builder::new().name(format!("work {name}")).spawn(move || {
            let Some(generator) = asker.system().generator() else { return };
            while !jobs.is_over() {
                // After a panic the batch is lost, and its clients are told so because their senders are dropped.
                let ended = catch_unwind(AssertUnwindSafe(|| match generator.running_batch() {
                    Ok(batch) => Running::over(batch, &jobs, most).run(),
                    Err(error) => {
                        tracing::debug!("answers are written in whole batches: {error}");
                        whole(generator, &jobs, most);
                    }
                }));
                if ended.is_ok() {
                    break;
                }
                tracing::error!("a generator panicked");
            }
        })?;
        Ok(Self { queue })
    }

    /// Begins an answer. `tokens` is the size of the prompt. The generation ends early when the receiver is dropped.
    ///
    /// # Errors
    /// Those of the queue.
    pub(crate) fn begin(
        &self,
        prompted: Prompted,
        options: GenerationOptions,
        tokens: usize,
    ) -> Result<PieceReceiver, Failure> {
        let ((pieces, received), tokens) = (pieces(), tokens.max(1));
        let job = Job { prompted, options, tokens, pieces };
        self.queue.push(VecDeque::from([(job, tokens)]))?;
        Ok(received)
    }
}

impl Drop for GeneratorWorker {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// A batch that requests join and leave.
struct Running<'a> {
    batch: RunningBatch<'a>,
    /// The clients of the requests, with the sizes of their prompts.
    open: HashMap<usize, (PieceSender, usize)>,
    jobs: &'a Queue<Job>,
    most: usize,
    /// When the batch began, or when requests were last over.
    since: Instant,
}

impl<'a> Running<'a> {
    fn over(batch: RunningBatch<'a>, jobs: &'a Queue<Job>, most: usize) -> Self {
        Self { batch, open: HashMap::new(), jobs, most, since: Instant::now() }
    }

    fn run(&mut self) {
        let mut late: VecDeque<Job> = VecDeque::new();
        loop {
            let room = self.most.saturating_sub(self.batch.len());
            if late.is_empty() && self.batch.is_empty() {
                match self.jobs.batch() {
                    Some((jobs, _)) => late.extend(jobs),
                    None => return,
                }
                self.since = Instant::now();
            } else if late.len() < room {
                late.extend(self.jobs.ready(room - late.len()));
            }
            let room = room.min(late.len());
            late.drain(..room).for_each(|job| self.join(job));
            if !self.batch.is_empty() {
                self.step();
            }
        }
    }

    fn join(&mut self, job: Job) {
        if job.pieces.is_gone() {
            self.jobs.metrics().cancelled.inc();
            return;
        }
        let sink = Box::new(job.pieces.sink(None, self.jobs.metrics()));
        let added = match &job.prompted {
            Prompted::Query { query, passages } => {
                let passages: Vec<Candidate<'_>> = candidates(passages);
                self.batch.add(&Request { query, passages: &passages }, &job.options, sink)
            }
            Prompted::Text(text) => self.batch.add_bare(&BarePrompt::Text(text), &job.options, sink),
            Prompted::Turns { system, turns, asked } => {
                let conversation = Conversation { system, turns, asked, answer: "" };
                self.batch.add_bare(&BarePrompt::Conversation(conversation), &job.options, sink)
            }
        };
        match added {
            Ok(number) => {
                self.open.insert(number, (job.pieces, job.tokens));
            }
            Err(error) => {
                let field =
                    if matches!(job.prompted, Prompted::Turns { .. }) { "messages" } else { "prompt" };
                job.pieces.end(Err(refusal(error, field)));
            }
        }
    }

    fn step(&mut self) {
        let rows = self.batch.len();
        self.jobs.metrics().batches.observe(rows as f64);
        match self.batch.step() {
            Ok(over) => {
                let mut worked = 0;
                for Finished { request, generation, read, is_cut } in over {
                    let Some((pieces, tokens)) = self.open.remove(&request) else { continue };
                    worked += tokens;
                    let result = generation.map_err(Failure::internal);
                    pieces.end(result.map(|generation| Generated { generation, read, is_cut }));
                }
                // The rate at which requests leave is that at which those in the queue will.
                if worked > 0 {
                    self.jobs.worked(worked, self.since.elapsed());
                    self.since = Instant::now();
                }
            }
            Err(error) => {
                let failure = Failure::internal(error);
                self.open.drain().for_each(|(_, (pieces, _))| pieces.end(Err(failure.clone())));
            }
        }
        self.jobs.metrics().tokens.inc_by(rows as u64);
    }
}

fn candidates(passages: &[(Passage, f32)]) -> Vec<Candidate<'_>> {
    passages.iter().map(|(passage, score)| Candidate { passage, score: *score }).collect()
}

/// Options that a generator cannot take, and prompts that it cannot read, are the client's; other errors are the server's. The
/// prompt is in the `field` of a request.
fn refusal(error: sporran_generator::Error, field: &str) -> Failure {
    use sporran_checkpoint::Error as Model;
    match &error {
        sporran_generator::Error::PromptLength { .. } => {
            Failure::invalid(field, format!("`{field}`: {error}"))
        }
        sporran_generator::Error::Option { option, .. } => Failure::invalid(option, error.to_string()),
        sporran_generator::Error::Transformers(Model::Options { .. } | Model::Batch { .. }) => {
            Failure::invalid(field, error.to_string())
        }
        _ => Failure::internal(error),
    }
}

/// The sinks of several requests.
struct Each(Vec<PieceSink>);

impl Sink for Each {
    fn write(&self, request: usize, text: &str) -> ControlFlow<()> {
        self.0.get(request).map_or(ControlFlow::Continue(()), |pieces| pieces.write(request, text))
    }
}

/// Answers batches as a whole, for generators without a running batch.
fn whole(generator: &dyn Generator, jobs: &Queue<Job>, most: usize) {
    let mut late: VecDeque<Job> = VecDeque::new();
    let is_endpoint = generator.endpoint().is_some();
    loop {
        if late.is_empty() {
            match jobs.batch() {
                Some((batch, _)) => late.extend(batch),
                None => return,
            }
        }
        let count = most.max(1).min(late.len());
        let (mut queries, begin) = (Vec::new(), Instant::now());
        for job in late.drain(..count) {
            match refused(generator, &job) {
                _ if job.pieces.is_gone() => {
                    jobs.metrics().cancelled.inc();
                }
                Some(failure) => job.pieces.end(Err(failure)),
                None => queries.push(job),
            }
        }
        if queries.is_empty() {
            continue;
        }
        jobs.metrics().batches.observe(queries.len() as f64);
        let worked = queries.iter().map(|job| job.tokens).sum();
        let answered = answer(generator, jobs, &queries);
        let tokens = match answered {
            Ok(answers) => {
                queries.into_iter().zip(answers).map(|(job, answer)| done(job, answer, is_endpoint)).sum()
            }
            Err(failure) if queries.len() == 1 => {
                queries.into_iter().for_each(|job| job.pieces.end(Err(failure.clone())));
                0
            }
            // One request does not fail the others.
            Err(_) => {
                let alone = |job: Job| match answer(generator, jobs, std::slice::from_ref(&job))
                    .map(|mut found| found.pop())
                {
                    Ok(Some(answer)) => done(job, answer, is_endpoint),
                    Ok(None) => 0,
                    Err(failure) => {
                        job.pieces.end(Err(failure));
                        0
                    }
                };
                queries.into_iter().map(alone).sum()
            }
        };
        jobs.metrics().tokens.inc_by(tokens as u64);
        jobs.worked(worked, begin.elapsed());
    }
}

/// Ends a job. Returns the tokens of its answer. An endpoint counts them, and ends the answer itself.
fn done(job: Job, counted: Counted, is_endpoint: bool) -> usize {
    let Counted { generation, read, is_cut } = counted;
    let (tokens, most) = (generation.tokens, job.options.max_new_tokens.filter(|_| !is_endpoint));
    job.pieces.end(match most {
        // The generator wrote the answer as a whole, and it was not cut.
        Some(most) if tokens > most => {
            let message = format!(
                "`max_tokens`: this generator writes answers as a whole; expected at least {tokens} for this one, found {most}"
            );
            Err(Failure::invalid("max_tokens", message))
        }
        most => Ok(Generated { generation, read, is_cut: is_cut || most == Some(tokens) }),
    });
    tokens
}

/// What an endpoint is asked for a job.
fn input<'a>(job: &'a Job, passages: &'a [Candidate<'a>]) -> EndpointInput<'a> {
    match &job.prompted {
        Prompted::Query { query, .. } => EndpointInput::Request(Request { query, passages }),
        Prompted::Text(text) => EndpointInput::Bare(BarePrompt::Text(text)),
        Prompted::Turns { system, turns, asked } => {
            let conversation = Conversation { system, turns, asked, answer: "" };
            EndpointInput::Bare(BarePrompt::Conversation(conversation))
        }
    }
}

/// The answers to jobs.
fn answer(generator: &dyn Generator, queue: &Queue<Job>, jobs: &[Job]) -> Result<Vec<Counted>, Failure> {
    let endpoint = generator.endpoint();
    let passages: Vec<Vec<Candidate<'_>>> = jobs
        .iter()
        .map(|job| match &job.prompted {
            Prompted::Query { passages, .. } => candidates(passages),
            Prompted::Text(_) | Prompted::Turns { .. } => Vec::new(),
        })
        .collect();
    // An endpoint ends an answer by its own count of tokens.
    let most = |job: &Job| job.options.max_new_tokens.filter(|_| endpoint.is_none());
    let sinks = Each(jobs.iter().map(|job| job.pieces.sink(most(job), queue.metrics())).collect());
    let found = catch_unwind(AssertUnwindSafe(|| {
        let inputs = jobs.iter().zip(&passages).map(|(job, passages)| input(job, passages));
        if let Some(endpoint) = endpoint {
            let asked: Vec<_> = inputs.zip(jobs).map(|(input, job)| (input, &job.options)).collect();
            return endpoint.generate_each(&asked, &sinks);
        }
        let request = |input| match input {
            EndpointInput::Request(request) => Some(request),
            EndpointInput::Bare(_) => None,
        };
        generator.generate_counted(&inputs.filter_map(request).collect::<Vec<_>>(), &sinks)
    }));
    match found {
        Ok(Ok(answers)) => Ok(answers),
        Ok(Err(error)) => Err(Failure::internal(error)),
        Err(_) => Err(Failure::internal("a generator panicked")),
    }
}

/// What a generator without a running batch cannot do.
fn refused(generator: &dyn Generator, job: &Job) -> Option<Failure> {
    if generator.endpoint().is_some() {
        return None;
    }
    if !matches!(job.prompted, Prompted::Query { .. }) {
        let message =
            "this generator answers questions over passages only; its model cannot be asked without them";
        return Some(Failure::invalid("sporran.retrieve", message));
    }
    let GenerationOptions {
        do_sample,
        temperature,
        top_p,
        top_k,
        min_p,
        repetition_penalty,
        min_new_tokens,
        seed,
        ..
    } = &job.options;
    let field = match do_sample {
        Some(false) if generator.samples() => Some("temperature"),
        _ if top_p.is_some() => Some("top_p"),
        _ if top_k.is_some() => Some("top_k"),
        // Some clients always send the values that ask for nothing.
        _ if min_p.is_some_and(|least| least != 0.0) => Some("min_p"),
        _ if repetition_penalty.is_some_and(|penalty| penalty != 1.0) => Some("repetition_penalty"),
        _ if min_new_tokens.is_some_and(|least| least != 0) => Some("min_tokens"),
        Some(true) if temperature.is_some() => Some("temperature"),
        // Without sampling a seed changes nothing.
        _ => seed.filter(|_| generator.samples()).map(|_| "seed"),
    }?;
    let message = format!("`{field}`: this generator has the settings of its own config; expected none");
    Some(Failure::invalid(field, message))
}
