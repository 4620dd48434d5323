//! A client of an endpoint: requests with their repetitions, limits and cached responses. `attempt` sends one of them.

mod attempt;

use std::{
    collections::HashMap,
    ops::ControlFlow,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Instant,
};

use serde_json::Value;
use ureq::Agent;

use self::attempt::Received;
use crate::{
    Error, RequestOptions, Result,
    account::{record, tokens},
    base_url::BaseUrl,
    cache::{Cache, hash},
    failure::{Again, repeated},
    pace::{Pace, back_off, seconds, sleep},
    secret::Secret,
};

/// A model at an endpoint.
#[derive(Clone, Debug)]
pub struct Endpoint<'a> {
    /// The address, usually with `/v1` at its end.
    pub base_url: &'a str,
    /// The name of the model.
    pub model: &'a str,
    /// The environment variable with the key; none for an endpoint without keys.
    pub api_key_env: Option<&'a str>,
    /// How requests are sent.
    pub requests: &'a RequestOptions,
    /// The seed of the random part of waits.
    pub seed: u64,
}

/// The route of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `chat/completions`
    Chat,
    /// `completions`
    Completions,
    /// `embeddings`
    Embeddings,
    /// `rerank`
    Rerank,
    /// `rerank` next to `v1`, as TEI has it.
    RerankAtRoot,
}

/// A request: a route and a body.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The route.
    pub route: Route,
    /// The body, a JSON object, with the model's name where the route needs it.
    pub body: Value,
}

/// Joins the parts of a streamed response.
pub trait Assembly {
    /// Takes the next part. [`ControlFlow::Break`] ends the request: the connection is closed.
    ///
    /// # Errors
    /// What was expected and what was found, for a part that cannot be used. The request is repeated.
    fn part(&mut self, part: &Value) -> Result<ControlFlow<()>, String>;

    /// Whether the parts say that they are the whole response.
    fn is_whole(&self) -> bool;

    /// The response as it is without a stream.
    fn response(&self) -> Value;
}

/// The result of a streamed request.
#[derive(Clone, Debug, PartialEq)]
pub enum Streamed<T, A> {
    /// The whole response. It may come from the cache, without any parts.
    Whole(T),
    /// The request was ended before. The parts until then.
    Ended(A),
}

/// Reads a response: what was expected and found where it does not answer the request.
pub type Reading<'a, T> = &'a (dyn Fn(&Value) -> Result<T, String> + Sync);

/// A client of one model at an endpoint. Threads share it.
pub struct Client {
    agent: Agent,
    /// Without a limit for the whole response.
    streaming: Agent,
    base: BaseUrl,
    model: String,
    secret: Option<Secret>,
    cache: Option<Cache>,
    pace: Pace,
    requests: RequestOptions,
    seed: u64,
}

/// An assembly that no stream needs.
struct Unstreamed;

impl Assembly for Unstreamed {
    fn part(&mut self, _: &Value) -> Result<ControlFlow<()>, String> {
        Ok(ControlFlow::Continue(()))
    }

    fn is_whole(&self) -> bool {
        false
    }

    fn response(&self) -> Value {
        Value::Null
    }
}

impl Client {
    /// Opens a client. Sends nothing.
    ///
    /// # Errors
    /// [`Error::Option`] for an address or a variable's name that cannot be used, [`Error::Variable`] for a variable without a
    /// key.
    pub fn open(endpoint: &Endpoint<'_>) -> Result<Self> {
        let base = BaseUrl::parse(endpoint.base_url).map_err(|(expected, found)| Error::Option {
            option: "base-url",
            expected,
            found,
        })?;
        let requests = endpoint.requests.clone();
        let config = || {
            let config = Agent::config_builder()
                .max_redirects(0)
                .http_status_as_error(false)
                .max_idle_connections(requests.concurrency.max(1))
                .max_idle_connections_per_host(requests.concurrency.max(1))
                .user_agent(concat!("sporran/", env!("CARGO_PKG_VERSION")))
                .timeout_connect(Some(seconds(requests.connect_timeout)));
            if base.is_local() { config.proxy(None) } else { config }
        };
        let timeout = seconds(requests.timeout);
        Ok(Self {
            agent: config().timeout_global(Some(timeout)).build().into(),
            streaming: config()
                .timeout_recv_response(Some(timeout))
                .timeout_per_read(Some(timeout))
                .build()
                .into(),
            model: endpoint.model.to_owned(),
            secret: endpoint.api_key_env.map(Secret::of_variable).transpose()?,
            cache: requests.use_cache.then(|| Cache::new(&requests.cache)),
            pace: Pace::new(&requests),
            seed: endpoint.seed,
            base,
            requests,
        })
    }

    /// The name of the model.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// A text that grows while it is streamed, as far as it can be shown: without the key, and without an end that may be the
    /// beginning of the key.
    #[must_use]
    pub fn settled(&self, text: &str) -> String {
        self.secret.as_ref().map_or_else(|| text.to_owned(), |secret| secret.settled(text))
    }

    /// Sends requests, several at the same time. Result `i` is that of `calls[i]`. Equal requests are sent once. After an
    /// error no further request begins; finished responses stay in the cache.
    ///
    /// # Errors
    /// The error of the first request that failed, in the order of `calls`.
    pub fn ask_all<T: Clone + Send>(&self, calls: &[Call], read: Reading<'_, T>) -> Result<Vec<T>> {
        let mut firsts: HashMap<blake3::Hash, usize> = HashMap::new();
        let own: Vec<usize> = calls
            .iter()
            .enumerate()
            .map(|(at, call)| *firsts.entry(hash(&self.url(call.route), &call.body)).or_insert(at))
            .collect();
        let mut sent = own.clone();
        sent.sort_unstable();
        sent.dedup();
        let found = self.each(sent.len(), |at, stop| self.ask(&calls[sent[at]], read, stop))?;
        let found: HashMap<usize, T> = sent.into_iter().zip(found).collect();
        // Every call has its first equal one among those that were sent.
        Ok(own.iter().filter_map(|first| found.get(first).cloned()).collect())
    }

    /// Does `count` jobs, as many at the same time as requests may be. A job gets its number and the flag that stops it.
    ///
    /// # Errors
    /// The error of the first job that failed. No job begins after an error.
    pub fn each<T: Send>(
        &self,
        count: usize,
        job: impl Fn(usize, &AtomicBool) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let done: Vec<Mutex<Option<Result<T>>>> = (0..count).map(|_| Mutex::new(None)).collect();
        let work = || {
            while !stop.load(Ordering::Relaxed) {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(place) = done.get(at) else { return };
                let result = job(at, &stop);
                if result.is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.requests.concurrency.clamp(1, count.max(1)) {
                scope.spawn(work);
            }
        });
        let done = done.into_iter().map(|place| place.into_inner().unwrap_or_else(PoisonError::into_inner));
        let mut results = Vec::with_capacity(count);
        let mut given_up = None;
        for result in done {
            match result {
                Some(Ok(result)) => results.push(result),
                Some(Err(error @ Error::GivenUp { .. })) => given_up = Some(error),
                Some(Err(error)) => return Err(error),
                // The jobs after one that failed.
                None => {}
            }
        }
        given_up.map_or(Ok(results), Err)
    }

    /// Sends one request, unless the cache has its response. `stop` ends its waits.
    ///
    /// # Errors
    /// [`Error::Failed`], [`Error::Refused`] or [`Error::Response`]; [`Error::Cache`] if the response cannot be stored.
    pub fn ask<T>(&self, call: &Call, read: Reading<'_, T>, stop: &AtomicBool) -> Result<T> {
        match self.exchange::<T, Unstreamed>(call, read, None, stop)? {
            Streamed::Whole(whole) => Ok(whole),
            Streamed::Ended(_) => Err(Error::GivenUp { url: self.url(call.route) }),
        }
    }

    /// Sends one request whose response is streamed. `begin` makes an empty assembly for each attempt. A response from the cache, or
    /// of an endpoint that does not stream, has no parts. A response that was ended is not stored.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn stream<T, A: Assembly>(
        &self,
        call: &Call,
        read: Reading<'_, T>,
        begin: &dyn Fn() -> A,
        stop: &AtomicBool,
    ) -> Result<Streamed<T, A>> {
        self.exchange(call, read, Some(begin), stop)
    }

    fn url(&self, route: Route) -> String {
        match route {
            Route::Chat => self.base.join("chat/completions"),
            Route::Completions => self.base.join("completions"),
            Route::Embeddings => self.base.join("embeddings"),
            Route::Rerank => self.base.join("rerank"),
            Route::RerankAtRoot => self.base.at_root("rerank"),
        }
    }

    fn exchange<T, A: Assembly>(
        &self,
        call: &Call,
        read: Reading<'_, T>,
        begin: Option<&dyn Fn() -> A>,
        stop: &AtomicBool,
    ) -> Result<Streamed<T, A>> {
        let url = self.url(call.route);
        let account = |change: &dyn Fn(&mut crate::Usage)| record(self.base.as_str(), &self.model, change);
        if let Some(stored) = self.cache.as_ref().and_then(|cache| cache.get(&url, &call.body))
            && let Ok(found) = read(&stored)
        {
            account(&|usage| usage.cached += 1);
            return Ok(Streamed::Whole(found));
        }
        let request = hash(&url, &call.body);
        let given_up = || Error::GivenUp { url: url.clone() };
        // Rate limits are not failures: time bounds them, and the number of repetitions bounds failures.
        let (mut failures, mut limits, mut limited) = (0, 0, None);
        for attempt in 0.. {
            let permit = self.pace.begin(stop).ok_or_else(given_up)?;
            account(&|usage| {
                usage.requests += 1;
                usage.retries += u64::from(attempt > 0);
            });
            let received = self.send(&url, call, begin);
            drop(permit);
            let failure = match received {
                Ok(Received::Ended(parts)) => return Ok(Streamed::Ended(parts)),
                Ok(Received::Whole(mut response)) => {
                    self.charge(&response);
                    if let Some(secret) = &self.secret {
                        secret.hide_in(&mut response);
                    }
                    let found =
                        read(&response).map_err(|problem| Error::Response { url: url.clone(), problem })?;
                    if let Some(cache) = &self.cache {
                        cache.put(&url, &call.body, &response)?;
                    }
                    return Ok(Streamed::Whole(found));
                }
                Err(failure) => failure,
            };
            if let Some(status) = failure.refused {
                let problem = match status {
                    404 => failure.problem + &self.listed(),
                    _ => failure.problem,
                };
                return Err(Error::Refused { url, status, problem });
            }
            let failed = |problem: String| Error::Failed { url: url.clone(), attempts: attempt + 1, problem };
            if failure.again == Again::Never || (!failure.is_limit && failures >= self.requests.retries) {
                return Err(failed(failure.problem));
            }
            let count = if failure.is_limit { &mut limits } else { &mut failures };
            let wait = match failure.again {
                Again::After(asked) if asked > seconds(self.requests.longest_wait) => {
                    let most = self.requests.longest_wait;
                    let asked = asked.as_secs_f64();
                    return Err(failed(format!(
                        "{}; it asks for a wait of {asked:.0} s, and `longest-wait` is {most} s; the run can be \
                         continued then",
                        failure.problem
                    )));
                }
                Again::After(asked) if !asked.is_zero() => asked,
                _ => back_off(&self.requests, self.seed, &request, *count),
            };
            *count += 1;
            if failure.is_limit {
                let most = self.requests.rate_limit_wait;
                if limited.get_or_insert_with(Instant::now).elapsed() + wait > seconds(most) {
                    return Err(failed(format!(
                        "{}; a request waits for {most} s in all (`rate-limit-wait`); the run can be continued later",
                        failure.problem
                    )));
                }
            }
            tracing::warn!("{url}: {}", repeated(attempt + 1, &failure.problem, wait));
            if failure.is_limit {
                // The limit is that of all requests.
                self.pace.pause(wait);
            } else if !sleep(wait, stop) {
                return Err(given_up());
            }
        }
        Err(given_up())
    }

    /// Adds the tokens of a response to the account and to the pace.
    fn charge(&self, response: &Value) {
        let (input, output) = tokens(response);
        self.pace.spent(input + output);
        let RequestOptions { input_price, output_price, .. } = self.requests;
        record(self.base.as_str(), &self.model, |usage| {
            usage.input_tokens += input;
            usage.output_tokens += output;
            if input_price.is_some() || output_price.is_some() {
                let price = |tokens: u64, price: Option<f64>| tokens as f64 * price.unwrap_or(0.0) / 1e6;
                let cost = price(input, input_price) + price(output, output_price);
                usage.cost = Some(usage.cost.unwrap_or(0.0) + cost);
            }
        });
    }
}
