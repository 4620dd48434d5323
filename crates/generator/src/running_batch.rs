//! A batch of requests that join and leave while others are answered.

use std::ops::ControlFlow;

use sporran_transformers::{
    GenerationOptions, Hypothesis,
    decode::{Event, FinishReason, Outcome, RequestId},
};

use crate::{
    ChatPrompt, Conversation, Error, Generation, Request, Result, Sink,
    one_model::{Asked, OneModel},
    text::GeneratedText,
    text_stream::TextStream,
};

/// A batch of requests to one generator, which join and leave between steps. Each is answered as it is alone.
///
/// A step adds a token to every request. The kinds `causal` and `seq2seq` have it, with a packed model on a CPU and without
/// beams: [`Generator::running_batch`](crate::Generator::running_batch).
pub struct RunningBatch<'a> {
    kind: &'a dyn OneModel,
    batch: sporran_transformers::RunningBatch,
    open: Vec<Open<'a>>,
    added: usize,
    /// The model's chat template; read when it is first needed.
    chat: Option<Option<ChatPrompt>>,
}

/// What the bare model reads: a prompt without the generator's own words, passages and examples.
#[derive(Clone, Copy, Debug)]
pub enum BarePrompt<'a> {
    /// A text that a decoder-only model continues, or that an encoder-decoder reads.
    Text(&'a str),
    /// A conversation, in the model's chat template. A model without one reads the turns as lines, and an encoder-decoder the
    /// question alone.
    Conversation(Conversation<'a>),
}

/// The end of a request.
#[derive(Debug)]
pub struct Finished {
    /// The number of the request.
    pub request: usize,
    /// The answer.
    pub generation: Result<Generation>,
    /// The number of tokens that the model read.
    pub read: usize,
    /// Whether it ended because of its length, and not by a token that ends it or by its sink.
    pub is_cut: bool,
}

/// A request that is being answered.
struct Open<'a> {
    number: usize,
    /// Its number in the model's batch; none for a request without text, which has an empty answer.
    id: Option<RequestId>,
    /// What its answer depends on; none for a bare prompt, whose answer is the model's text.
    asked: Option<Asked>,
    /// The number of tokens that the model reads.
    read: usize,
    sink: Box<dyn Sink + Send + 'a>,
    text: TextStream,
    /// Whether the sink has ended it.
    is_ended: bool,
}

impl<'a> RunningBatch<'a> {
    pub(crate) fn over(kind: &'a dyn OneModel) -> Result<Self> {
        Ok(Self { kind, batch: kind.model().running_batch()?, open: Vec::new(), added: 0, chat: None })
    }

    /// Adds a request, whose prompt is that of [`generate`](crate::Generator::generate). Options that are set take the place of
    /// the generator's. The sink receives the text, and can end the request. Returns the request's number, by which the sink
    /// knows it; numbers are not used again.
    ///
    /// # Errors
    /// Errors of the tokenizer, and options that cannot be used, such as beams. The batch is as before.
    pub fn add(
        &mut self,
        request: &Request<'_>,
        options: &GenerationOptions,
        sink: Box<dyn Sink + Send + 'a>,
    ) -> Result<usize> {
        let row = self.kind.rows(std::slice::from_ref(request))?.pop().unwrap_or_default();
        let asked = Asked::of(request, self.kind.passages());
        self.join(&row, (options, self.kind.model().ends()), Some(asked), sink)
    }

    /// Adds a prompt of the bare model. As [`add`](Self::add), but the answer is the model's text as it is, without evidence.
    ///
    /// # Errors
    /// As there, a chat template that refuses the conversation, and [`Error::PromptLength`].
    pub fn add_bare(
        &mut self,
        prompt: &BarePrompt<'_>,
        options: &GenerationOptions,
        sink: Box<dyn Sink + Send + 'a>,
    ) -> Result<usize> {
        let model = self.kind.model();
        let conversation = match prompt {
            BarePrompt::Text(text) => {
                return self.join(&whole(model.encode(text)?)?, (options, &[]), None, sink);
            }
            BarePrompt::Conversation(conversation) => conversation,
        };
        if self.chat.is_none() {
            self.chat = Some(model.chat()?);
        }
        let Some(chat) = self.chat.as_ref().and_then(Option::as_ref) else {
            let text = if model.is_causal() { lines(conversation) } else { conversation.asked.to_owned() };
            return self.join(&whole(model.encode(&text)?)?, (options, &[]), None, sink);
        };
        let row = whole(chat.encode(conversation, model.tokenizer(), model.max_tokens())?)?;
        let end: Vec<u32> = chat.end().and_then(|end| model.tokenizer().token_id(end)).into_iter().collect();
        self.join(&row, (options, &end), None, sink)
    }

    /// Adds a row of tokens, which the tokens `ends` end too.
    fn join(
        &mut self,
        row: &[u32],
        (options, ends): (&GenerationOptions, &[u32]),
        asked: Option<Asked>,
        sink: Box<dyn Sink + Send + 'a>,
    ) -> Result<usize> {
        let id = match row.is_empty() {
            true => None,
            false => Some(self.kind.model().join(&mut self.batch, row, options, ends)?),
        };
        let number = self.added;
        self.added += 1;
        let (read, text) = (row.len(), TextStream::default());
        self.open.push(Open { number, id, asked, read, sink, text, is_ended: false });
        Ok(number)
    }

    /// Adds a token to every request. Returns those that are over: by their last token, because their sink ends them, or
    /// because their options leave no token to go on with.
    ///
    /// # Errors
    /// Errors of the model. The batch is empty then.
    pub fn step(&mut self) -> Result<Vec<Finished>> {
        let mut over = Vec::new();
        for open in self.open.extract_if(.., |open| open.id.is_none()) {
            over.push(open.finished(self.kind, Ok(GeneratedText::nothing()), false));
        }
        let events = match self.batch.step() {
            Ok(events) => events,
            Err(error) => {
                self.open.clear();
                return Err(error.into());
            }
        };
        for Event { request, outcome } in events {
            let Some(at) = self.open.iter().position(|open| open.id == Some(request)) else { continue };
            let kind = self.kind;
            match outcome {
                Outcome::Token(token) => {
                    if self.open[at].write(kind, token).is_break() {
                        let open = self.open.remove(at);
                        let found = self.leave(request)?;
                        over.extend(found.map(|found| open.answered(kind, &found, false)));
                    }
                }
                Outcome::Finished { token, hypothesis, reason } => {
                    let mut open = self.open.remove(at);
                    // The request is over, so there is nothing to end.
                    let _ = open.write(kind, token);
                    over.push(open.answered(kind, &hypothesis, reason == FinishReason::Length));
                }
                Outcome::Failed(error) => {
                    over.push(self.open.remove(at).finished(kind, Err(error.into()), false));
                }
            }
        }
        Ok(over)
    }

    /// Removes a request from the model's batch, which is empty after an error: then so is this one.
    fn leave(&mut self, id: RequestId) -> Result<Option<Hypothesis>> {
        let found = self.batch.remove(id);
        if found.is_err() {
            self.open.clear();
        }
        Ok(found?)
    }

    /// Removes a request. Returns the answer that its text makes so far; none where the batch has no such request.
    ///
    /// # Errors
    /// Errors of the tokenizer, and those of the model, after which the batch is empty.
    pub fn remove(&mut self, number: usize) -> Result<Option<Generation>> {
        let Some(at) = self.open.iter().position(|open| open.number == number) else { return Ok(None) };
        let mut open = self.open.remove(at);
        open.is_ended = true;
        let found = match open.id {
            Some(id) => self.leave(id)?,
            None => None,
        };
        let found = found.unwrap_or(Hypothesis { tokens: Vec::new(), score: 0.0 });
        open.answered(self.kind, &found, false).generation.map(Some)
    }

    /// The number of requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether there is no request.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

impl Open<'_> {
    fn write(&mut self, kind: &dyn OneModel, token: u32) -> ControlFlow<()> {
        let stops = if self.asked.is_some() { kind.model().stops() } else { &[] };
        let text = self.text.push(token, kind.model().tokenizer(), stops);
        let flow = self.sink.write(self.number, &text);
        self.is_ended = flow.is_break();
        flow
    }

    /// The answer; the sink receives the rest of its text.
    fn answered(self, kind: &dyn OneModel, hypothesis: &Hypothesis, is_cut: bool) -> Finished {
        let output = match self.asked {
            Some(_) => kind.model().finished(self.read, hypothesis),
            None => kind.model().finished_bare(self.read, hypothesis),
        };
        if let Ok(output) = &output {
            let rest = self.text.rest(&output.text);
            if !rest.is_empty() && !self.is_ended {
                let _ = self.sink.write(self.number, rest);
            }
        }
        self.finished(kind, output, is_cut)
    }

    fn finished(self, kind: &dyn OneModel, output: Result<GeneratedText>, is_cut: bool) -> Finished {
        let generation = output.map(|output| match self.asked {
            Some(asked) => asked.generation(kind, vec![output]),
            None => {
                let GeneratedText { text, score, tokens } = output;
                Generation { text, score, alternatives: Vec::new(), evidence: Vec::new(), tokens }
            }
        });
        Finished { request: self.number, generation, read: self.read, is_cut }
    }
}

/// The tokens of a prompt that was not cut.
fn whole((row, tokens): (Vec<u32>, usize)) -> Result<Vec<u32>> {
    if tokens > row.len() {
        return Err(Error::PromptLength { tokens, most: row.len() });
    }
    Ok(row)
}

/// A conversation as lines, for a model without a chat template.
fn lines(conversation: &Conversation<'_>) -> String {
    let Conversation { system, turns, asked, answer } = conversation;
    let mut text = String::new();
    if !system.is_empty() {
        text.push_str(&format!("{system}\n\n"));
    }
    for (question, answer) in *turns {
        text.push_str(&format!("User: {question}\nAssistant: {answer}\n"));
    }
    let space = if answer.is_empty() { "" } else { " " };
    text + &format!("User: {asked}\nAssistant:{space}{answer}")
}
