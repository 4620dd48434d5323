//! A model at an HTTP endpoint, with the prompts of decoder-only models: an instruction, examples, passages, the input.

mod options;
mod response;

use std::{ops::ControlFlow, sync::Mutex};

use serde_json::{Value, json};
use sporran_checkpoint::Tokenizer;
use sporran_remote::{Call, Client, Endpoint, Route, Streamed};
use sporran_transformers::GenerationOptions;

pub use options::{Api, RemoteGenerationOptions, RemoteOptions};

use self::response::{Parts, Written, answer, read, streamed};
use crate::{
    BarePrompt, Counted, Demonstration, Demonstrations, EstimatedTokens, Generation, Generator, Prompt,
    Request, Result, Sink, TokenCounter,
    in_context::{Turn, instruction, lines, quoted, turns},
    one_model::Asked,
    short_answer::cleaned,
    text_stream::ready,
};

/// The field of the most tokens of newer models, in `extra`.
const COMPLETION_TOKENS: &str = "max_completion_tokens";

/// What an endpoint answers.
#[derive(Clone, Copy)]
pub enum EndpointInput<'a> {
    /// A request, in the generator's own prompt.
    Request(Request<'a>),
    /// A prompt as its client wrote it.
    Bare(BarePrompt<'a>),
}

/// A model at an endpoint. Opening it sends nothing.
pub struct RemoteGenerator {
    client: Client,
    prompt: Prompt,
    tokens: Box<dyn TokenCounter>,
    demonstrations: Option<Demonstrations>,
    stops: Vec<String>,
    options: RemoteOptions,
}

impl RemoteGenerator {
    /// Opens a client and reads the examples. `seed` is that of the waits before repetitions.
    ///
    /// # Errors
    /// An error in a file of examples, the tokenizer or an option, and a variable without a key.
    pub fn open(options: &RemoteOptions, seed: u64) -> Result<Self> {
        Self::showing(options, options.demonstrations.as_ref().map(Demonstrations::load).transpose()?, seed)
    }

    /// As [`open`](Self::open), with these examples instead of those that the options name.
    ///
    /// # Errors
    /// An error in the tokenizer or an option, and a variable without a key.
    pub fn showing(
        options: &RemoteOptions,
        demonstrations: Option<Demonstrations>,
        seed: u64,
    ) -> Result<Self> {
        let client = Client::open(&Endpoint {
            base_url: &options.base_url,
            model: &options.model,
            api_key_env: options.api_key_env.as_deref(),
            requests: &options.requests,
            seed,
        })?;
        let tokens: Box<dyn TokenCounter> = match &options.tokenizer {
            Some(folder) => Box::new(Tokenizer::from_folder(folder)?),
            None => Box::new(EstimatedTokens),
        };
        let (prompt, stops) = (Prompt::new(options.prompt.clone())?, options.stops());
        Ok(Self { client, prompt, tokens, demonstrations, stops, options: options.clone() })
    }

    /// The examples of each request.
    fn shown(&self, requests: &[Request<'_>]) -> Result<Vec<Vec<&Demonstration>>> {
        let queries: Vec<_> = requests.iter().map(|request| request.query).collect();
        match &self.demonstrations {
            Some(demonstrations) => demonstrations.choose(&queries),
            None => Ok(vec![Vec::new(); queries.len()]),
        }
    }

    /// The user's message: an input and the text before its answer.
    fn message(&self, input: &str) -> String {
        let label = self.options.answer.trim_end();
        if label.is_empty() { quoted(input) } else { format!("{}\n{label}", quoted(input)) }
    }

    /// The messages of a conversation, each with its role.
    fn messages(&self, instruction: &str, examples: &[Turn], asked: &str) -> Vec<(&'static str, String)> {
        let mut messages = Vec::with_capacity(2 + 2 * examples.len());
        if !instruction.is_empty() {
            messages.push(("system", instruction.to_owned()));
        }
        for (input, output) in examples {
            messages.push(("user", self.message(input)));
            messages.push(("assistant", quoted(output)));
        }
        messages.push(("user", self.message(asked)));
        messages
    }

    /// The texts of a prompt: one text, or messages with their roles.
    fn texts(&self, instruction: &str, examples: &[Turn], asked: &str) -> Vec<(&'static str, String)> {
        match self.options.api {
            Api::Chat => self.messages(instruction, examples, asked),
            Api::Completions => vec![("", lines((instruction, &self.options.answer), examples, asked))],
        }
    }

    fn prompt(&self, request: &Request<'_>, shown: &[&Demonstration]) -> Result<Vec<(&'static str, String)>> {
        let instruction = instruction(&self.options.instruction, request.query);
        let fits = |examples: &[Turn], asked: &str| -> Result<bool> {
            let texts = self.texts(&instruction, examples, asked);
            let counts = texts.iter().map(|(_, text)| self.tokens.count(text)).sum::<Result<usize>>()?;
            Ok(counts <= self.options.max_tokens)
        };
        let (examples, asked) = turns(
            (request, shown),
            |request| self.prompt.text(request, &*self.tokens),
            |shown| shown.answer.clone(),
            fits,
        )?;
        Ok(self.texts(&instruction, &examples, &asked))
    }

    fn request(
        &self,
        request: &Request<'_>,
        shown: &[&Demonstration],
        generation: &RemoteGenerationOptions,
    ) -> Result<Call> {
        Ok(self.call((self.options.api, self.prompt(request, shown)?), generation, &self.stops))
    }

    /// The request for a prompt: one text, or messages with their roles.
    fn call(
        &self,
        (api, prompt): (Api, Vec<(&'static str, String)>),
        generation: &RemoteGenerationOptions,
        stops: &[String],
    ) -> Call {
        let mut body = json!({ "model": self.options.model });
        let route = match api {
            Api::Chat => {
                let message = |(role, content)| json!({ "role": role, "content": content });
                body["messages"] = prompt.into_iter().map(message).collect();
                Route::Chat
            }
            Api::Completions => {
                body["prompt"] = prompt.into_iter().map(|(_, text)| text).collect::<String>().into();
                Route::Completions
            }
        };
        if !generation.extra.contains_key(COMPLETION_TOKENS) {
            body["max_tokens"] = generation.max_new_tokens.into();
        }
        body["temperature"] = generation.temperature.into();
        let stops = (!stops.is_empty()).then(|| stops.into());
        let logs = generation.log_probabilities.then(|| match api {
            Api::Chat => Value::from(true),
            // The number of tokens to list at each place; the generated one is always listed.
            Api::Completions => Value::from(1),
        });
        let given = [
            ("top_p", generation.top_p.map(Value::from)),
            ("seed", generation.seed.map(Value::from)),
            ("stop", stops),
            ("logprobs", logs),
        ];
        for (name, value) in given {
            if let Some(value) = value {
                body[name] = value;
            }
        }
        for (name, value) in &generation.extra {
            body[name] = value.clone();
        }
        Call { route, body }
    }

    fn calls(&self, requests: &[Request<'_>]) -> Result<Vec<Call>> {
        let shown = self.shown(requests)?;
        let own = &self.options.generation;
        requests.iter().zip(&shown).map(|(request, shown)| self.request(request, shown, own)).collect()
    }

    /// The request for an input with options of its own.
    fn own_call(&self, input: &EndpointInput<'_>, options: &GenerationOptions) -> Result<Call> {
        let generation = self.options.generation.with(options);
        let conversation = match input {
            EndpointInput::Request(request) => {
                let shown = self.shown(std::slice::from_ref(request))?.pop().unwrap_or_default();
                return self.request(request, &shown, &generation);
            }
            EndpointInput::Bare(BarePrompt::Text(text)) => {
                return Ok(self.call((Api::Completions, vec![("", (*text).to_owned())]), &generation, &[]));
            }
            EndpointInput::Bare(BarePrompt::Conversation(conversation)) => conversation,
        };
        let mut messages = Vec::new();
        if !conversation.system.is_empty() {
            messages.push(("system", conversation.system.to_owned()));
        }
        for (question, answer) in conversation.turns {
            messages.push(("user", question.clone()));
            messages.push(("assistant", answer.clone()));
        }
        messages.push(("user", conversation.asked.to_owned()));
        Ok(self.call((Api::Chat, messages), &generation, &[]))
    }

    /// Answers requests and bare prompts, each with options of its own: the length, the settings of sampling, the penalty of
    /// repetitions and the seed take the place of the generator's where they are set. A text is sent to `completions`, a conversation to
    /// `chat/completions`, and the answer to either is what the model writes.
    ///
    /// # Errors
    /// As for [`generate`](Generator::generate).
    pub fn generate_each(
        &self,
        asked: &[(EndpointInput<'_>, &GenerationOptions)],
        sink: &dyn Sink,
    ) -> Result<Vec<Counted>> {
        let calls = asked.iter().map(|(input, options)| self.own_call(input, options));
        let calls = calls.collect::<Result<Vec<_>>>()?;
        let is_bare = |at: usize| matches!(asked[at].0, EndpointInput::Bare(_));
        let written = self.streamed(&calls, is_bare, sink)?;
        let counted = |((input, _), written): (&(EndpointInput<'_>, _), Written)| {
            let (read, is_cut) = (written.read, written.is_cut);
            let generation = match input {
                EndpointInput::Request(request) => self.generation(request, written),
                EndpointInput::Bare(_) => {
                    let Written { text, score, tokens, .. } = written;
                    let score = score.unwrap_or(0.0);
                    Generation { text, score, alternatives: Vec::new(), evidence: Vec::new(), tokens }
                }
            };
            Counted { generation, read, is_cut }
        };
        Ok(asked.iter().zip(written).map(counted).collect())
    }

    /// The responses to requests, whose texts the sink receives as they grow; a bare one with its thoughts and stops.
    fn streamed(
        &self,
        calls: &[Call],
        is_bare: impl Fn(usize) -> bool + Sync,
        sink: &dyn Sink,
    ) -> Result<Vec<Written>> {
        let written = self.client.each(calls.len(), |request, stop| {
            let (call, is_bare) = (&calls[request], is_bare(request));
            let api = match call.route {
                Route::Completions => Api::Completions,
                _ => Api::Chat,
            };
            let pen = Pen { sink, request, written: Mutex::default() };
            let write = |text: &str| {
                let settled = self.client.settled(text);
                if is_bare {
                    return pen.write(&settled);
                }
                let shown = streamed(&settled, &self.stops);
                pen.write(&shown[..ready(shown, &self.stops).0])
            };
            let begin = || Parts::new(api, &write);
            let read = |response: &Value| read(api, response);
            match self.client.stream(call, &read, &begin, stop)? {
                Streamed::Whole(whole) => {
                    let text = if is_bare { &whole.text } else { answer(&whole.text, &self.stops) };
                    // The answer is complete, so a stop has no effect, and neither has a text that cannot be taken back.
                    let _ = pen.write(text);
                    Ok(whole)
                }
                Streamed::Ended(parts) => {
                    use sporran_remote::Assembly as _;
                    // The parts have a text, so they are an answer.
                    let whole = read(&parts.response()).unwrap_or_default();
                    Ok(Written { text: self.client.settled(&whole.text), ..whole })
                }
            }
        })?;
        Ok(written)
    }

    fn generation(&self, request: &Request<'_>, written: Written) -> Generation {
        let asked = Asked::of(request, self.passages());
        let Written { text, score, tokens, .. } = written;
        let text = answer(&text, &self.stops);
        let text = cleaned(text, &self.options.answer, asked.task());
        let (text, evidence) = if self.options.choose { asked.chosen(text) } else { asked.free(text) };
        Generation { text, score: score.unwrap_or(0.0), alternatives: Vec::new(), evidence, tokens }
    }
}

/// Passes a growing text on to a sink. A request that is repeated may not change what was written already.
struct Pen<'a> {
    sink: &'a dyn Sink,
    request: usize,
    written: Mutex<String>,
}

impl Pen<'_> {
    /// Writes what `text` adds.
    ///
    /// # Errors
    /// If the text does not continue what was written.
    fn write(&self, text: &str) -> Result<ControlFlow<()>, String> {
        let mut written = self.written.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(new) = text.strip_prefix(written.as_str()) {
            let flow =
                if new.is_empty() { ControlFlow::Continue(()) } else { self.sink.write(self.request, new) };
            *written = text.to_owned();
            return Ok(flow);
        }
        if written.starts_with(text) {
            return Ok(ControlFlow::Continue(()));
        }
        Err("the repeated answer differs from the text that was streamed before".to_owned())
    }
}

impl Generator for RemoteGenerator {
    fn generate(&self, requests: &[Request<'_>]) -> Result<Vec<Generation>> {
        let api = self.options.api;
        let written = self.client.ask_all(&self.calls(requests)?, &|response| read(api, response))?;
        Ok(requests.iter().zip(written).map(|(request, written)| self.generation(request, written)).collect())
    }

    fn generate_into(&self, requests: &[Request<'_>], sink: &dyn Sink) -> Result<Vec<Generation>> {
        let counted = self.generate_counted(requests, sink)?;
        Ok(counted.into_iter().map(|counted| counted.generation).collect())
    }

    fn generate_counted(&self, requests: &[Request<'_>], sink: &dyn Sink) -> Result<Vec<Counted>> {
        let written = self.streamed(&self.calls(requests)?, |_| false, sink)?;
        let counted = |(request, written): (&Request<'_>, Written)| {
            let (read, is_cut) = (written.read, written.is_cut);
            Counted { generation: self.generation(request, written), read, is_cut }
        };
        Ok(requests.iter().zip(written).map(counted).collect())
    }

    fn endpoint(&self) -> Option<&RemoteGenerator> {
        Some(self)
    }

    fn samples(&self) -> bool {
        self.options.generation.temperature > 0.0
    }

    fn passages(&self) -> usize {
        self.prompt.options().passages
    }

    fn kind(&self) -> &'static str {
        "remote"
    }

    /// One text. The messages of a conversation have their roles before them.
    fn prompts(&self, request: &Request<'_>) -> Result<Vec<String>> {
        let shown = self.shown(std::slice::from_ref(request))?.pop().unwrap_or_default();
        let texts = self.prompt(request, &shown)?;
        let text =
            |(role, text): (&str, String)| if role.is_empty() { text } else { format!("{role}: {text}") };
        Ok(vec![texts.into_iter().map(text).collect::<Vec<_>>().join("\n\n")])
    }
}
