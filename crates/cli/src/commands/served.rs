//! What `sporran serve` and `sporran mcp` serve.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use sporran_pipeline::workflows::answer::{AskOptions, Endpoint};
use sporran_server::{BrowseOptions, Named, ServedModels, ServerOptions};
use sporran_transformers::{DeviceName, Precision};

use super::models;
use crate::{
    error::{Error, Result},
    outcome::Context,
    paths, settings,
};

/// The sources and models of a server.
#[derive(Args)]
pub(crate) struct Served {
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
    /// Folder of a finished run to show and to evaluate, under a name; can be given several times
    #[arg(long, value_name = "NAME=FOLDER")]
    run: Vec<Named>,
}

impl Served {
    /// The options of a server with these sources and models, and with the defaults otherwise. It shows the runs and the
    /// knowledge bases `bases` with their `rules`.
    ///
    /// # Errors
    /// Paths that do not exist, names that are given twice, and models that cannot be found.
    pub(crate) fn options(
        &self,
        (bases, rules): (&[Named], &[Named]),
        context: &Context,
    ) -> Result<ServerOptions> {
        let named = self.run.iter().chain(bases).chain(rules).map(|named| &named.path);
        self.sources.iter().chain(named).try_for_each(|path| paths::file_or_folder(path))?;
        let browse = BrowseOptions::new(self.run.clone(), bases.to_vec(), rules.to_vec());
        let browse = browse.map_err(Error::Usage)?;
        let user = settings::user()?;
        let resolve =
            |model: Option<&PathBuf>| model.map(|model| models::resolve(model, context.quiet)).transpose();
        // The user's models are for documents; by themselves, models are served if the command line names them.
        let (served_embedder, served_reranker) =
            (resolve(self.embed.as_ref())?, resolve(self.rerank.as_ref())?);
        let own_or = |own: &Option<PathBuf>, user: Option<&PathBuf>| match own {
            Some(own) => Ok(Some(own.clone())),
            None => resolve(user.filter(|_| !self.sources.is_empty())),
        };
        let embedder = own_or(&served_embedder, user.embedder.as_ref())?;
        let reranker = own_or(&served_reranker, user.reranker.as_ref())?;
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
        let (precision, device) = (self.precision, self.device);
        let models = ServedModels {
            embedder: served_embedder,
            reranker: served_reranker,
            precision,
            device,
            ..ServedModels::default()
        };
        Ok(ServerOptions { mounts, models, browse, ..ServerOptions::new() })
    }
}
