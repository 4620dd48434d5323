//! A model at an HTTP endpoint, with the prompts of decoder-only models: an instruction, examples, passages, the input.

mod options;
mod response;

use std::{ops::ControlFlow, sync::Mutex};

use serde_json::{Value, json};
use sporran_checkpoint::Tokenizer;
use sporran_remote::{Call, Client, Endpoint, Route, Streamed};

pub use options::{Api, RemoteGenerationOptions, RemoteOptions};

use self::response::{Parts, Written, answer, read, streamed};
use crate::{
    Demonstration, Demonstrations, EstimatedTokens, Generation, Generator, Prompt, Request, Result, Sink,
    TokenCounter,
    in_context::{Turn, lines, quoted, turns},
    one_model::Asked,
    short_answer::cleaned,
    text_stream::ready,
};

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
    fn messages(&self, examples: &[Turn], asked: &str) -> Vec<(&'static str, String)> {
        let mut messages = Vec::with_capacity(2 + 2 * examples.len());
        if !self.options.instruction.is_empty() {
            messages.push(("system", self.options.instruction.clone()));
        }
        for (input, output) in examples {
            messages.push(("user", self.message(input)));
            messages.push(("assistant", quoted(output)));
        }
        messages.push(("user", self.message(asked)));
        messages
    }

    /// The texts of a prompt: one text, or messages with their roles.
    fn texts(&self, examples: &[Turn], asked: &str) -> Vec<(&'static str, String)> {
        match self.options.api {
            Api::Chat => self.messages(examples, asked),
            Api::Completions => {
                vec![("", lines((&self.options.instruction, &self.options.answer), examples, asked))]
            }
        }
    }

    fn prompt(&self, request: &Request<'_>, shown: &[&Demonstration]) -> Result<Vec<(&'static str, String)>> {
        let fits = |examples: &[Turn], asked: &str| -> Result<bool> {
            let texts = self.texts(examples, asked);
            let counts = texts.iter().map(|(_, text)| self.tokens.count(text)).sum::<Result<usize>>()?;
            Ok(counts <= self.options.max_tokens)
        };
        let (examples, asked) = turns(
            (request, shown),
            |request| self.prompt.text(request, &*self.tokens),
            |shown| shown.answer.clone(),
            fits,
        )?;
        Ok(self.texts(&examples, &asked))
    }

    fn call(&self, request: &Request<'_>, shown: &[&Demonstration]) -> Result<Call> {
        let RemoteOptions { model, api, generation, .. } = &self.options;
        let mut body = json!({ "model": model });
        let prompt = self.prompt(request, shown)?;
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
        if !generation.extra.contains_key("max_completion_tokens") {
            body["max_tokens"] = generation.max_new_tokens.into();
        }
        body["temperature"] = generation.temperature.into();
        let stops = (!self.stops.is_empty()).then(|| self.stops.clone().into());
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
        Ok(Call { route, body })
    }

    fn calls(&self, requests: &[Request<'_>]) -> Result<Vec<Call>> {
        let shown = self.shown(requests)?;
        requests.iter().zip(&shown).map(|(request, shown)| self.call(request, shown)).collect()
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
        Ok(counted.into_iter().map(|(generation, _)| generation).collect())
    }

    fn generate_counted(
        &self,
        requests: &[Request<'_>],
        sink: &dyn Sink,
    ) -> Result<Vec<(Generation, usize)>> {
        let (calls, api) = (self.calls(requests)?, self.options.api);
        let written = self.client.each(calls.len(), |request, stop| {
            let pen = Pen { sink, request, written: Mutex::default() };
            let write = |text: &str| {
                let settled = self.client.settled(text);
                let shown = streamed(&settled, &self.stops);
                pen.write(&shown[..ready(shown, &self.stops).0])
            };
            let begin = || Parts::new(api, &write);
            let read = |response: &Value| read(api, response);
            match self.client.stream(&calls[request], &read, &begin, stop)? {
                Streamed::Whole(whole) => {
                    // The answer is complete, so a stop has no effect, and neither has a text that cannot be taken back.
                    let _ = pen.write(answer(&whole.text, &self.stops));
                    Ok(whole)
                }
                Streamed::Ended(parts) => {
                    use sporran_remote::Assembly as _;
                    // The parts have a text, so they are an answer.
                    let nothing = || Written { text: String::new(), score: None, tokens: 0, read: 0 };
                    let whole = read(&parts.response()).unwrap_or_else(|_| nothing());
                    Ok(Written { text: self.client.settled(&whole.text), ..whole })
                }
            }
        })?;
        let counted = |(request, written): (&Request<'_>, Written)| {
            let read = written.read;
            (self.generation(request, written), read)
        };
        Ok(requests.iter().zip(written).map(counted).collect())
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
