//! A running batch: requests join and leave between the steps of greedy search and sampling.

use std::sync::Arc;

use sporran_checkpoint::{Error, Result, SpecialTokens};

use super::{
    GenerationOptions, Hypothesis,
    growing::{Growing, Growth},
    no_room,
    rules::Rules,
    sequences::Sequences,
    settings::GenerationSettings,
};
use crate::{
    batch::Batch,
    cache::Cache,
    causal::{CausalCache, CausalLm, ending_at, room},
    seq2seq::{Seq2Seq, too_long},
};

/// The number of a request in its batch. Numbers are not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What a step has done for a request.
#[derive(Debug)]
pub struct Event {
    /// The request.
    pub request: RequestId,
    /// Its new state.
    pub outcome: Outcome,
}

/// The state of a request after a step.
#[derive(Debug)]
pub enum Outcome {
    /// It has one more token, and is not over.
    Token(u32),
    /// It has one more token and is over. It has left the batch.
    Finished {
        /// The last token.
        token: u32,
        /// Why it is over.
        reason: FinishReason,
        /// The whole sequence, without its prompt.
        hypothesis: Hypothesis,
    },
    /// Its rules leave no token to go on with. It has left the batch.
    Failed(Error),
}

/// Why a request is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model's end token, or one of the request's stop tokens.
    EndToken,
    /// As many tokens as the request's options or the model's positions allow.
    Length,
}

/// A batch of requests to one model, which join and leave between steps.
///
/// Each request has its own options, and gets the tokens that it gets alone: by greedy search, or by sampling with its seed.
/// The scores are the same bits, except in f32 on processors with AMX, where the sums of large batches have another order.
/// A step reads the requests that have joined since the last step, and adds a token to every request.
///
/// The model is a packed one on a CPU: T5, BART, LLaMA and decoders of its shape.
///
/// ```no_run
/// use sporran_transformers::{
///     Checkpoint, DeviceName, GenerationOptions, Precision, RunningBatch,
///     decode::{Event, Outcome},
/// };
///
/// let checkpoint = Checkpoint::open("models/SmolLM2-135M-Instruct".as_ref())?;
/// let (tokenizer, model) = (checkpoint.tokenizer()?, checkpoint.causal(DeviceName::Cpu, Precision::F32)?);
/// let mut batch = RunningBatch::causal(model.into())?;
/// let options = GenerationOptions { max_new_tokens: Some(30), ..GenerationOptions::default() };
/// batch.add(&tokenizer.encode("The capital of Norway is", None)?, &options, &[])?;
/// while !batch.is_empty() {
///     for Event { request, outcome } in batch.step()? {
///         if let Outcome::Finished { hypothesis, .. } = outcome {
///             let text = tokenizer.decode(&hypothesis.tokens)?;
///             // Other requests may join here.
///         }
///     }
/// }
/// # Ok::<(), sporran_checkpoint::Error>(())
/// ```
pub struct RunningBatch {
    sequences: Joined,
    growth: Growth,
    /// Those that the model has read come first.
    requests: Vec<Request>,
    added: u64,
}

impl std::fmt::Debug for RunningBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids: Vec<u64> = self.requests.iter().map(|request| request.id.0).collect();
        f.debug_struct("RunningBatch").field("requests", &ids).finish_non_exhaustive()
    }
}

struct Request {
    id: RequestId,
    asked: Asked,
    growing: Growing,
}

/// What a request's rules depend on.
struct Asked {
    settings: GenerationSettings,
    special: SpecialTokens,
    /// The tokens that the model reads: a prompt, or an encoder's input.
    tokens: Vec<u32>,
    /// The number of positions for new tokens.
    room: usize,
    is_causal: bool,
}

impl Asked {
    fn prompt(&self) -> &[u32] {
        if self.is_causal { &self.tokens } else { std::slice::from_ref(&self.special.decoder_start) }
    }

    fn rules(&self) -> Rules<'_> {
        let rules = Rules::new(&self.settings, &self.special, self.prompt(), self.room);
        Rules { source: Some(&self.tokens), ..rules }
    }
}

impl RunningBatch {
    /// An empty batch of a decoder-only model, whose requests are prompts.
    ///
    /// # Errors
    /// [`Error::Batch`] for a model whose sequences cannot [join](CausalLm::joins).
    pub fn causal(model: Arc<dyn CausalLm>) -> Result<Self> {
        check(model.joins(), model.device().is_cpu())?;
        Ok(Self::over(Model::Causal(model, CausalCache::new())))
    }

    /// An empty batch of an encoder-decoder, whose requests are inputs of the encoder.
    ///
    /// # Errors
    /// [`Error::Batch`] for a model whose sequences cannot [join](Seq2Seq::joins).
    pub fn seq2seq(model: Arc<dyn Seq2Seq>) -> Result<Self> {
        check(model.joins(), model.device().is_cpu())?;
        Ok(Self::over(Model::Seq2Seq(model, Cache::new())))
    }

    fn over(model: Model) -> Self {
        let sequences = Joined { model, joining: Vec::new() };
        Self { sequences, growth: Growth::default(), requests: Vec::new(), added: 0 }
    }

    /// Adds a request: the tokens of a prompt or of an encoder's input, the options, and tokens that end the sequence in
    /// addition to the model's end tokens. Unset options are those of the model's folder. The next step reads it,
    /// together with all others that were added since the last step: its time and memory grow with their tokens.
    ///
    /// # Errors
    /// [`Error::Options`] for options that cannot be used, for beams and for several sequences a request; [`Error::Batch`]
    /// for a request without tokens, with tokens that the model does not have, or longer than the model has positions.
    pub fn add(&mut self, tokens: &[u32], options: &GenerationOptions, stops: &[u32]) -> Result<RequestId> {
        let model = &self.sequences.model;
        let options = options.or(model.generation_defaults());
        let one = |option, value: Option<usize>| match value {
            Some(value) if value > 1 => {
                let expected = "1 in a running batch".into();
                Err(Error::Options { option, expected, found: value.to_string() })
            }
            _ => Ok(()),
        };
        one("num-beams", options.num_beams)?;
        one("num-return-sequences", options.num_return_sequences)?;
        let vocabulary = model.vocab_size();
        if let Some(token) = tokens.iter().find(|token| **token as usize >= vocabulary) {
            let (expected, found) = (format!("token ids below {vocabulary}"), token.to_string());
            return Err(Error::Batch { expected, found });
        }
        if tokens.is_empty() {
            return Err(Error::Batch { expected: "at least one token".into(), found: "none".into() });
        }
        let special = ending_at(model.special_tokens(), stops);
        let (is_causal, room) = match model {
            Model::Causal(model, _) => (true, room(model.as_ref(), tokens)),
            Model::Seq2Seq(model, _) => {
                if let Some(most) = model.max_input_length().filter(|most| tokens.len() > *most) {
                    return Err(too_long("input", most, tokens.len()));
                }
                (false, model.max_output_length().unwrap_or(usize::MAX))
            }
        };
        if room == 0 {
            return Err(no_room(tokens, ""));
        }
        let prompt = if is_causal { tokens.len() } else { 1 };
        let settings = options.settings(&special, vocabulary, prompt)?;
        let asked = Asked { settings, special, tokens: tokens.to_vec(), room, is_causal };
        let id = RequestId(self.added);
        self.added += 1;
        let growing = Growing::new(&asked.rules());
        self.requests.push(Request { id, asked, growing });
        Ok(id)
    }

    /// Adds a token to every request. There is one event for each, in the order in which they were added.
    ///
    /// # Errors
    /// Errors of the model. The batch is empty then.
    pub fn step(&mut self) -> Result<Vec<Event>> {
        let events = self.grow();
        if events.is_err() {
            self.clear();
        }
        events
    }

    fn grow(&mut self) -> Result<Vec<Event>> {
        if self.requests.is_empty() {
            return Ok(Vec::new());
        }
        let joining = &self.requests[self.growth.begun()..];
        self.sequences.joining = joining.iter().map(|request| request.asked.tokens.clone()).collect();
        let mut inputs: Vec<(Rules<'_>, &mut Growing)> =
            self.requests.iter_mut().map(|request| (request.asked.rules(), &mut request.growing)).collect();
        let grown = self.growth.grow(&mut self.sequences, &mut inputs)?;
        let (mut events, mut kept) = (Vec::with_capacity(grown.len()), Vec::with_capacity(grown.len()));
        let mut going_on = Vec::with_capacity(grown.len());
        let requests = std::mem::take(&mut self.requests);
        for (at, (request, grown)) in (0u32..).zip(requests.into_iter().zip(grown)) {
            let id = request.id;
            let outcome = match (grown, request.growing.token()) {
                (Err(error), _) => Outcome::Failed(error),
                (Ok(()), Some(token)) if !request.growing.is_over() => {
                    kept.push(at);
                    going_on.push(request);
                    Outcome::Token(token)
                }
                (Ok(()), token) => {
                    let is_end = token.is_some_and(|token| request.asked.special.eos.contains(&token));
                    let is_forced = request.asked.settings.forced_eos == token;
                    let limit = request.asked.rules().limit;
                    let hypothesis = request.hypothesis();
                    // A model that has to end with its end token does so where the length ends the request.
                    let is_full = is_forced && hypothesis.tokens.len() >= limit;
                    let reason =
                        if is_end && !is_full { FinishReason::EndToken } else { FinishReason::Length };
                    Outcome::Finished { token: token.unwrap_or_default(), reason, hypothesis }
                }
            };
            events.push(Event { request: id, outcome });
        }
        self.requests = going_on;
        self.growth.keep(&mut self.sequences, &kept, 1)?;
        Ok(events)
    }

    /// Removes a request. Returns what it has so far; none where the batch has no such request.
    ///
    /// # Errors
    /// Errors of the model. The batch is empty then.
    pub fn remove(&mut self, id: RequestId) -> Result<Option<Hypothesis>> {
        let Some(at) = self.requests.iter().position(|request| request.id == id) else { return Ok(None) };
        let request = self.requests.remove(at);
        let begun = self.growth.begun();
        if at < begun {
            let kept: Vec<u32> = (0..begun as u32).filter(|other| *other as usize != at).collect();
            if let Err(error) = self.growth.keep(&mut self.sequences, &kept, 1) {
                self.clear();
                return Err(error);
            }
        }
        Ok(Some(request.hypothesis()))
    }

    /// The number of requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there is no request.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    fn clear(&mut self) {
        self.requests.clear();
        self.growth = Growth::default();
        self.sequences.clear();
    }
}

impl Request {
    fn hypothesis(self) -> Hypothesis {
        let found = self.growing.hypotheses(&self.asked.rules()).pop();
        // A request has one sequence.
        found.unwrap_or(Hypothesis { tokens: Vec::new(), score: 0.0 })
    }
}

fn check(joins: bool, is_on_cpu: bool) -> Result<()> {
    if joins {
        return Ok(());
    }
    let expected =
        "a packed model on a CPU (T5, BART, or a decoder of LLaMA's shape) for a running batch".into();
    let found = if is_on_cpu { "another model" } else { "a model on a GPU" };
    Err(Error::Batch { expected, found: found.into() })
}

/// The sequences of a running batch.
struct Joined {
    model: Model,
    /// The requests that the model reads next.
    joining: Vec<Vec<u32>>,
}

/// A model, with what it keeps of the sequences.
enum Model {
    Causal(Arc<dyn CausalLm>, CausalCache),
    Seq2Seq(Arc<dyn Seq2Seq>, Cache),
}

impl Model {
    fn special_tokens(&self) -> &SpecialTokens {
        match self {
            Self::Causal(model, _) => model.special_tokens(),
            Self::Seq2Seq(model, _) => model.special_tokens(),
        }
    }

    fn generation_defaults(&self) -> &GenerationOptions {
        match self {
            Self::Causal(model, _) => model.generation_defaults(),
            Self::Seq2Seq(model, _) => model.generation_defaults(),
        }
    }

    fn vocab_size(&self) -> usize {
        match self {
            Self::Causal(model, _) => model.vocab_size(),
            Self::Seq2Seq(model, _) => model.vocab_size(),
        }
    }
}

impl Joined {
    fn clear(&mut self) {
        self.joining.clear();
        match &mut self.model {
            Model::Causal(_, cache) => *cache = CausalCache::new(),
            Model::Seq2Seq(_, cache) => *cache = Cache::new(),
        }
    }
}

impl Sequences for Joined {
    fn inputs(&self) -> usize {
        self.joining.len()
    }

    fn prompt(&self, input: usize) -> &[u32] {
        match &self.model {
            Model::Causal(..) => &self.joining[input],
            Model::Seq2Seq(model, _) => std::slice::from_ref(&model.special_tokens().decoder_start),
        }
    }

    fn vocab_size(&self) -> usize {
        self.model.vocab_size()
    }

    fn begin(&mut self) -> Result<Vec<f32>> {
        let rows = std::mem::take(&mut self.joining);
        match &mut self.model {
            Model::Causal(model, cache) => {
                let mut own = CausalCache::new();
                let batch = Batch::new(&rows, model.special_tokens().pad, model.device())?;
                let logits = model.begin(&batch, &mut own)?;
                cache.join(own)?;
                Ok(logits)
            }
            Model::Seq2Seq(model, cache) => {
                let mut own = Cache::new();
                let batch = Batch::new(&rows, model.special_tokens().pad, model.device())?;
                let start = vec![model.special_tokens().decoder_start; rows.len()];
                let logits = model.decode(&start, rows.len(), &model.encode(&batch)?, &mut own)?;
                cache.join(own)?;
                Ok(logits)
            }
        }
    }

    fn next(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        match &mut self.model {
            Model::Causal(model, cache) => model.decode(tokens, tokens.len(), cache),
            Model::Seq2Seq(model, cache) => model.resume(tokens, tokens.len(), cache),
        }
    }

    fn reorder(&mut self, rows: &[u32]) -> Result<()> {
        match &mut self.model {
            Model::Causal(_, cache) => cache.select(rows),
            Model::Seq2Seq(_, cache) => cache.reorder(rows),
        }
    }

    fn keep(&mut self, inputs: &[u32], rows: &[u32]) -> Result<()> {
        if rows.is_empty() {
            self.clear();
            return Ok(());
        }
        match &mut self.model {
            Model::Causal(_, cache) => {
                cache.select(rows)?;
                cache.compact();
            }
            Model::Seq2Seq(_, cache) => {
                cache.keep(inputs, rows)?;
                cache.compact();
            }
        }
        Ok(())
    }
}
