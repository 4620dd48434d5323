//! `sporran serve`.

use std::{
    net::{IpAddr, Ipv4Addr},
    num::NonZeroUsize,
    path::PathBuf,
    time::Duration,
};

use clap::{Args, ValueHint};
use sporran_pipeline::workflows::answer::{AskOptions, Endpoint};
use sporran_server::{Key, Limits, ServedModels, Server, ServerOptions, Stop};
use sporran_transformers::{DeviceName, Precision};

use super::models;
use crate::{
    error::{Error, Result},
    interrupt::{self, Kept},
    outcome::{Context, Outcome},
    paths, settings,
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
        sporran serve notes --model smollm2\n  \
        sporran serve configs/quickstart.toml --port 0\n  \
        sporran serve --embed minilm --rerank reranker --port 3000\n\
        \n\
        It listens on 127.0.0.1 and prints the address to standard error. `GET /` is a page to ask questions on; \
        `GET /openapi.json` lists the endpoints: those of text-embeddings-inference, of OpenAI, Jina and Cohere, of Pyserini and \
        Search-R1, and our own. Standard error has a line for each request, with --json in JSON.\n\
        \n\
        Ctrl-C and SIGTERM end it after the requests that were begun. SIGHUP opens configs and documents again, and so serves an \
        index that was rebuilt."
)]
pub(crate) struct Serve {
    /// Configs, files and folders. Each is served under a name: the `name` of the config, or that of the file or folder. The configs of a
    /// config's key `then` are served too
    #[arg(value_name = "CONFIG|SOURCE", value_hint = ValueHint::AnyPath)]
    sources: Vec<PathBuf>,
    /// Generator for documents: a GGUF file, a folder, an imported model's name, or hf:ID[@REV]
    #[arg(long, value_name = "MODEL", value_hint = ValueHint::AnyPath)]
    model: Option<PathBuf>,
    /// Generator at an HTTP endpoint in the form of OpenAI's API, such as http://localhost:8000/v1
    #[arg(long, value_name = "URL", conflicts_with = "model")]
    llm: Option<String>,
    /// Name of the model at the endpoint
    #[arg(long, value_name = "NAME", requires = "llm", default_value = "default")]
    llm_model: String,
    /// Environment variable with the key of the endpoint
    #[arg(long, value_name = "VARIABLE", requires = "llm")]
    llm_key_env: Option<String>,
    /// Encoder to serve: a folder, an imported model's name, or hf:ID[@REV]. Documents are retrieved with it too
    #[arg(long, value_name = "MODEL", value_hint = ValueHint::DirPath)]
    embed: Option<PathBuf>,
    /// Reranker to serve: a folder, an imported model's name, or hf:ID[@REV]. Passages of documents are reranked with it too
    #[arg(long, value_name = "MODEL", value_hint = ValueHint::DirPath)]
    rerank: Option<PathBuf>,
    /// Classifier of texts or of pairs of texts to serve: a folder, an imported model's name, or hf:ID[@REV]
    #[arg(long, value_name = "MODEL", value_hint = ValueHint::DirPath)]
    classify: Option<PathBuf>,
    /// Passages of documents that are evidence and that a generator reads
    #[arg(long, default_value_t = 5, value_name = "N")]
    passages: usize,
    /// Maximum number of tokens of an answer over documents
    #[arg(long, default_value_t = 200, value_name = "N")]
    max_new_tokens: usize,
    /// Data type of the models' weights: f32, or int8, which is faster and less exact; on a GPU f32, f16 or bf16
    #[arg(long, default_value = "f32", value_name = "PRECISION")]
    precision: Precision,
    /// Device: cpu, cuda or cuda:N
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    device: DeviceName,
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
        let server = Server::open(options, &stop, &mut context.observer())?;
        interrupt::keep(Kept::Nothing);
        interrupt::stop_with(move || stop.now());
        eprintln!("listening on http://{}", server.address());
        server.run()?;
        Ok(Outcome::default())
    }

    fn options(&self, context: &Context) -> Result<ServerOptions> {
        self.sources.iter().try_for_each(|source| paths::file_or_folder(source))?;
        let user = settings::user()?;
        let resolve =
            |model: Option<&PathBuf>| model.map(|model| models::resolve(model, context.quiet)).transpose();
        let embedder = resolve(self.embed.as_ref().or(user.embedder.as_ref()))?;
        let reranker = resolve(self.rerank.as_ref().or(user.reranker.as_ref()))?;
        let classifier = resolve(self.classify.as_ref())?;
        let endpoint = self.llm.clone().map(|url| Endpoint {
            url,
            model: self.llm_model.clone(),
            key_variable: self.llm_key_env.clone(),
        });
        let own = resolve(self.model.as_ref())?;
        let default = resolve(user.model.as_ref().filter(|_| own.is_none() && endpoint.is_none()))?;
        let mut mounts = Vec::with_capacity(self.sources.len());
        for source in &self.sources {
            let options = AskOptions::new(vec![source.clone()], settings::cache(&user)?);
            // A config has its own retriever, and its own generator unless the command line names one.
            let is_config = options.config().is_some();
            mounts.push(AskOptions {
                embedder: embedder.clone().filter(|_| !is_config),
                reranker: reranker.clone().filter(|_| !is_config),
                generator: own.clone().or_else(|| default.clone().filter(|_| !is_config)),
                endpoint: endpoint.clone(),
                passages: self.passages,
                max_new_tokens: self.max_new_tokens,
                precision: self.precision,
                device: self.device,
                ..options
            });
        }
        let key = self.api_key_file.as_deref().map(Key::read).transpose()?;
        let models =
            ServedModels { embedder, reranker, classifier, precision: self.precision, device: self.device };
        let limits = Limits {
            body: self.max_body.get().saturating_mul(1 << 20),
            time: Duration::from_secs(self.max_seconds.get() as u64),
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
        Ok(ServerOptions { host: self.host, port: self.port, key, mounts, models, limits })
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
