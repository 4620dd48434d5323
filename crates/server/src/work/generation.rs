//! A thread that generates answers. Requests join its running batch at the next step, where the generator has one.

use std::{
    collections::{HashMap, VecDeque},
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use sporran_generator::{
    BarePrompt, Candidate, Conversation, Finished, Generation, Generator, Request, RunningBatch, Sink,
};
use sporran_kilt::{Passage, Query};
use sporran_pipeline::workflows::answer::Asker;
use sporran_transformers::GenerationOptions;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::queue::{Bounds, Queue};
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

/// A part of an answer.
#[derive(Debug)]
pub(crate) enum Piece {
    /// More text.
    Text(String),
    /// The end.
    Done(Box<Result<Generated, Failure>>),
}

/// A finished answer.
#[derive(Debug)]
pub(crate) struct Generated {
    /// The answer.
    pub(crate) generation: Generation,
    /// The number of tokens of the prompt; 0 if the generator does not tell.
    pub(crate) read: usize,
    /// Whether it ended because of its length.
    pub(crate) is_cut: bool,
}

struct Job {
    prompted: Prompted,
    options: GenerationOptions,
    pieces: UnboundedSender<Piece>,
}

impl Job {
    fn end(self, result: Result<Generated, Failure>) {
        end(&self.pieces, result);
    }
}

fn end(pieces: &UnboundedSender<Piece>, result: Result<Generated, Failure>) {
    // The client may have gone.
    let _ = pieces.send(Piece::Done(Box::new(result)));
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
                    Ok(batch) => {
                        Running { batch, open: HashMap::new(), jobs: &jobs, most, since: Instant::now() }
                            .run()
                    }
                    Err(_) => whole(generator, &jobs, most),
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
    ) -> Result<UnboundedReceiver<Piece>, Failure> {
        let (pieces, received) = unbounded_channel();
        let job = Job { prompted, options, pieces };
        self.queue.push(VecDeque::from([(job, tokens.max(1))]))?;
        Ok(received)
    }
}

impl Drop for GeneratorWorker {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// The end of an answer, without its pieces.
pub(crate) async fn finished(mut pieces: UnboundedReceiver<Piece>) -> Result<Generated, Failure> {
    while let Some(piece) = pieces.recv().await {
        if let Piece::Done(result) = piece {
            return *result;
        }
    }
    Err(Failure::internal("a generator has ended"))
}

/// Sends text on, and ends an answer whose client has gone.
struct Pieces {
    sender: UnboundedSender<Piece>,
    /// The calls of `write` that are left.
    left: AtomicUsize,
}

impl Pieces {
    fn new(sender: &UnboundedSender<Piece>, most: Option<usize>) -> Self {
        Self { sender: sender.clone(), left: AtomicUsize::new(most.unwrap_or(usize::MAX)) }
    }
}

impl Sink for Pieces {
    fn write(&self, _: usize, text: &str) -> ControlFlow<()> {
        let is_gone = match text.is_empty() {
            true => self.sender.is_closed(),
            false => self.sender.send(Piece::Text(text.to_owned())).is_err(),
        };
        let left =
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(1)));
        if is_gone || left.is_ok_and(|left| left <= 1) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// A batch that requests join and leave.
struct Running<'a> {
    batch: RunningBatch<'a>,
    open: HashMap<usize, UnboundedSender<Piece>>,
    jobs: &'a Queue<Job>,
    most: usize,
    /// When an answer ended last, or when the batch began.
    since: Instant,
}

impl Running<'_> {
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
        if job.pieces.is_closed() {
            self.jobs.metrics().cancelled.inc();
            return;
        }
        let sink = Box::new(Pieces::new(&job.pieces, None));
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
                self.open.insert(number, job.pieces);
            }
            Err(error) => job.end(Err(refusal(error))),
        }
    }

    fn step(&mut self) {
        let rows = self.batch.len();
        self.jobs.metrics().batches.observe(rows as f64);
        match self.batch.step() {
            Ok(over) => {
                let read: usize = over.iter().map(|finished| finished.read.max(1)).sum();
                if read > 0 {
                    self.jobs.worked(read, self.since.elapsed());
                    self.since = Instant::now();
                }
                for Finished { request, generation, read, is_cut } in over {
                    let Some(pieces) = self.open.remove(&request) else { continue };
                    let result = generation.map_err(Failure::internal);
                    end(&pieces, result.map(|generation| Generated { generation, read, is_cut }));
                }
            }
            Err(error) => {
                let failure = Failure::internal(error);
                self.open.drain().for_each(|(_, pieces)| end(&pieces, Err(failure.clone())));
            }
        }
        self.jobs.metrics().tokens.inc_by(rows as u64);
    }
}

fn candidates(passages: &[(Passage, f32)]) -> Vec<Candidate<'_>> {
    passages.iter().map(|(passage, score)| Candidate { passage, score: *score }).collect()
}

/// Options that a generator cannot take, and prompts that it cannot read, are the client's; other errors are the server's.
fn refusal(error: sporran_generator::Error) -> Failure {
    use sporran_checkpoint::Error as Model;
    match &error {
        sporran_generator::Error::Option { option, .. } => Failure::invalid(option, error.to_string()),
        sporran_generator::Error::Transformers(Model::Options { .. } | Model::Batch { .. }) => {
            Failure::invalid("prompt", error.to_string())
        }
        _ => Failure::internal(error),
    }
}

/// The sinks of several requests.
struct Each(Vec<Pieces>);

impl Sink for Each {
    fn write(&self, request: usize, text: &str) -> ControlFlow<()> {
        self.0.get(request).map_or(ControlFlow::Continue(()), |pieces| pieces.write(request, text))
    }
}

/// Answers batches as a whole, for generators without a running batch.
fn whole(generator: &dyn Generator, jobs: &Queue<Job>, most: usize) {
    let mut late: VecDeque<Job> = VecDeque::new();
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
            match refused(&job) {
                _ if job.pieces.is_closed() => {
                    jobs.metrics().cancelled.inc();
                }
                Some(failure) => job.end(Err(failure)),
                None => queries.push(job),
            }
        }
        if queries.is_empty() {
            continue;
        }
        jobs.metrics().batches.observe(queries.len() as f64);
        let answered = answer(generator, &queries);
        let tokens = match answered {
            Ok(generations) => {
                queries.into_iter().zip(generations).map(|(job, generation)| done(job, generation)).sum()
            }
            Err(failure) if queries.len() == 1 => {
                queries.into_iter().for_each(|job| job.end(Err(failure.clone())));
                0
            }
            // One request does not fail the others.
            Err(_) => {
                let alone = |job: Job| match answer(generator, std::slice::from_ref(&job))
                    .map(|mut found| found.pop())
                {
                    Ok(Some(generation)) => done(job, generation),
                    Ok(None) => 0,
                    Err(failure) => {
                        job.end(Err(failure));
                        0
                    }
                };
                queries.into_iter().map(alone).sum()
            }
        };
        jobs.metrics().tokens.inc_by(tokens as u64);
        jobs.worked(tokens.max(count), begin.elapsed());
    }
}

/// Ends a job. Returns its tokens.
fn done(job: Job, generation: Generation) -> usize {
    let tokens = generation.tokens;
    let is_cut = job.options.max_new_tokens.is_some_and(|most| tokens >= most);
    job.end(Ok(Generated { generation, read: 0, is_cut }));
    tokens
}

fn answer(generator: &dyn Generator, jobs: &[Job]) -> Result<Vec<Generation>, Failure> {
    let asked: Vec<(&Query, Vec<Candidate<'_>>)> = jobs
        .iter()
        .filter_map(|job| match &job.prompted {
            Prompted::Query { query, passages } => Some((query, candidates(passages))),
            Prompted::Text(_) | Prompted::Turns { .. } => None,
        })
        .collect();
    let requests: Vec<Request<'_>> =
        asked.iter().map(|(query, passages)| Request { query, passages }).collect();
    let sinks = Each(jobs.iter().map(|job| Pieces::new(&job.pieces, job.options.max_new_tokens)).collect());
    let found = catch_unwind(AssertUnwindSafe(|| generator.generate_into(&requests, &sinks)));
    match found {
        Ok(Ok(generations)) => Ok(generations),
        Ok(Err(error)) => Err(Failure::internal(error)),
        Err(_) => Err(Failure::internal("a generator panicked")),
    }
}

/// What a generator without a running batch cannot do.
fn refused(job: &Job) -> Option<Failure> {
    if !matches!(job.prompted, Prompted::Query { .. }) {
        let message =
            "this generator answers questions over passages only; its model cannot be asked without them";
        return Some(Failure::invalid("sporran.retrieve", message));
    }
    let max_new_tokens = job.options.max_new_tokens;
    let greedy = GenerationOptions { max_new_tokens, do_sample: Some(false), ..GenerationOptions::default() };
    let own = GenerationOptions { max_new_tokens, ..GenerationOptions::default() };
    (job.options != greedy && job.options != own).then(|| {
        Failure::invalid(
            "temperature",
            "this generator does not sample; expected a temperature of 0, or none",
        )
    })
}
