//! `sporran serve`.

use std::{
    net::{IpAddr, Ipv4Addr},
    num::NonZeroUsize,
    path::PathBuf,
    time::Duration,
};

use clap::{Args, ValueHint};
use sporran_server::{Key, Limits, Named, ServedModels, Server, ServerOptions, Stop};

use super::{models, served::Served};
use crate::{
    error::{Error, Result},
    interrupt::{self, Kept},
    outcome::{Context, Outcome, stderr},
    paths,
};

/// The greatest number of connections.
const MOST_CONNECTIONS: usize = 1 << 20;
/// Heading of the options that limit a server.
const LIMITS: &str = "Limits";

/// `sporran serve`
#[derive(Args)]
#[command(
    override_usage = "sporran serve [OPTIONS] [CONFIG|SOURCE]...",
    after_help = "Examples:\n  \
        sporran serve notes --model SmolLM2-360M-Instruct\n  \
        sporran serve --model SmolLM2-360M-Instruct\n  \
        sporran serve configs/quickstart.toml --port 0\n  \
        sporran serve --embed all-MiniLM-L6-v2 --rerank ms-marco-MiniLM-L-6-v2 --port 3000\n  \
        sporran serve configs/quickstart.toml --run quickstart=runs/quickstart --kb facts=examples/minikilt/kb\n\
        \n\
        It listens on 127.0.0.1 and prints the address to standard error. `GET /` is a page to ask, compare and browse; \
        `GET /openapi.json` lists the endpoints: those of text-embeddings-inference, of OpenAI, Jina and Cohere, of Pyserini and \
        Search-R1, and our own. Standard error has a line for each request, with --json in JSON.\n\
        \n\
        Ctrl-C and SIGTERM end it after the requests that were begun. SIGHUP opens configs and documents again, and so serves an \
        index that was rebuilt."
)]
pub(crate) struct Serve {
    #[command(flatten)]
    served: Served,
    /// Classifier of texts or of pairs of texts to serve: a folder, an imported model's name, or hf:ID[@REV]
    #[arg(long, value_name = "MODEL", value_hint = ValueHint::DirPath)]
    classify: Option<PathBuf>,
    /// Knowledge base to show on the page, a folder or a file of triples, under a name; can be given several times
    #[arg(long, value_name = "NAME=PATH")]
    kb: Vec<Named>,
    /// File of mined rules that complete the knowledge base of a name
    #[arg(long, value_name = "NAME=FILE", requires = "kb")]
    rules: Vec<Named>,
    /// Address to listen on; only this machine reaches a loopback address
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS", value_parser = address)]
    host: IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 8080, value_name = "PORT")]
    port: u16,
    /// File whose first line is the key that requests need, as `authorization: Bearer KEY` or `x-api-key: KEY`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    api_key_file: Option<PathBuf>,
    /// MiB of the longest body
    #[arg(long, default_value = "2", value_name = "MIB", help_heading = LIMITS)]
    max_body: NonZeroUsize,
    /// Seconds of the longest request without a stream
    #[arg(long, default_value = "120", value_name = "SECONDS", help_heading = LIMITS)]
    max_seconds: NonZeroUsize,
    /// Seconds of the longest stream
    #[arg(long, default_value = "600", value_name = "SECONDS", help_heading = LIMITS)]
    max_stream_seconds: NonZeroUsize,
    /// Tokens of an answer that a request may ask for
    #[arg(long, default_value = "4096", value_name = "N", help_heading = LIMITS)]
    max_answer_tokens: NonZeroUsize,
    /// Hits of a search, and results of other requests, that a request may ask for
    #[arg(long, default_value = "1000", value_name = "N", help_heading = LIMITS)]
    max_hits: NonZeroUsize,
    /// Hits of all searches of a request to /retrieve: queries times `topk`
    #[arg(long, default_value = "20000", value_name = "N", help_heading = LIMITS)]
    max_all_hits: NonZeroUsize,
    /// Tokens that may wait for a model; further requests get 429 with Retry-After
    #[arg(long, default_value = "262144", value_name = "N", help_heading = LIMITS)]
    max_waiting_tokens: NonZeroUsize,
    /// Tokens of a batch
    #[arg(long, default_value = "16384", value_name = "N", help_heading = LIMITS)]
    max_batch_tokens: NonZeroUsize,
    /// Milliseconds for which a batch waits for more requests
    #[arg(long, default_value_t = 2, value_name = "MS", help_heading = LIMITS)]
    batch_window: u64,
    /// Answers that a generator writes together
    #[arg(long, default_value = "32", value_name = "N", help_heading = LIMITS)]
    max_answers: NonZeroUsize,
    /// Open connections; further ones wait
    #[arg(long, default_value = "1024", value_name = "N", help_heading = LIMITS)]
    max_connections: NonZeroUsize,
}

/// An address; `localhost` is 127.0.0.1.
fn address(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        _ => text.parse().map_err(|_| "expected an IP address, such as 127.0.0.1 or 0.0.0.0".to_owned()),
    }
}

impl Serve {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        let stop = Stop::new();
        let options = self.options(context)?;
        if !options.host.is_loopback() && options.key.is_none() {
            tracing::warn!(
                "{} is reachable from other machines, and requests need no key; see --api-key-file",
                options.host
            );
        }
        // The temporary folder of a cache that may only be read stays until the end.
        let (server, _spare) = self.served.with_cache(options, context, |options| {
            Ok(Server::open(options, &stop, &mut context.observer())?)
        })?;
        interrupt::keep(Kept::Nothing);
        interrupt::stop_with(move || stop.now());
        stderr(&format!("listening on http://{}\n", server.address()));
        server.run()?;
        Ok(Outcome::default())
    }

    fn options(&self, context: &Context) -> Result<ServerOptions> {
        let options = self.served.options(context)?;
        if let Some(file) = &self.api_key_file {
            paths::file(file)?;
        }
        let key = self.api_key_file.as_deref().map(Key::read).transpose()?;
        let classifier =
            self.classify.as_ref().map(|model| models::resolve(model, context.quiet)).transpose()?;
        let models = ServedModels { classifier, ..self.served.models(context)? };
        let browse = self.served.browse(&self.kb, &self.rules)?;
        let limits = Limits {
            body: self.max_body.get().saturating_mul(1 << 20),
            time: Duration::from_secs(self.max_seconds.get() as u64),
            stream_time: Duration::from_secs(self.max_stream_seconds.get() as u64),
            answer_tokens: self.max_answer_tokens.get(),
            hits: self.max_hits.get(),
            all_hits: self.max_all_hits.get(),
            connections: self.max_connections.get(),
            waiting: self.max_waiting_tokens.get(),
            batch_tokens: self.max_batch_tokens.get(),
            window: Duration::from_millis(self.batch_window),
            running: self.max_answers.get(),
            ..Limits::default()
        };
        if limits.connections > MOST_CONNECTIONS {
            return Err(Error::Usage(format!("--max-connections: expected at most {MOST_CONNECTIONS}")));
        }
        Ok(ServerOptions { host: self.host, port: self.port, key, models, browse, limits, ..options })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_or_localhost() {
        assert_eq!(address("localhost").unwrap(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert!(address("::1").unwrap().is_loopback());
        assert!(address("example.org").is_err());
    }
}
