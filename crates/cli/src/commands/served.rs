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
    /// Encoder for the retrieval of documents, which `serve` serves by itself too: a folder, an imported model's name, or hf:ID[@REV]
    #[arg(long, value_name = "MODEL", value_hint = ValueHint::DirPath)]
    embed: Option<PathBuf>,
    /// Reranker for passages of documents, which `serve` serves by itself too: a folder, an imported model's name, or hf:ID[@REV]
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
    /// The runs of the command line, with knowledge bases and their rules.
    ///
    /// # Errors
    /// Paths that do not exist, and names that are given twice.
    pub(crate) fn browse(&self, bases: &[Named], rules: &[Named]) -> Result<BrowseOptions> {
        let named = self.run.iter().chain(bases).chain(rules).map(|named| &named.path);
        named.into_iter().try_for_each(|path| paths::file_or_folder(path))?;
        BrowseOptions::new(self.run.clone(), bases.to_vec(), rules.to_vec()).map_err(Error::Usage)
    }

    /// The models of the command line that are served by themselves. The user's defaults are for documents alone.
    ///
    /// # Errors
    /// Models that cannot be found.
    pub(crate) fn models(&self, context: &Context) -> Result<ServedModels> {
        let resolve =
            |model: Option<&PathBuf>| model.map(|model| models::resolve(model, context.quiet)).transpose();
        let (embedder, reranker) = (resolve(self.embed.as_ref())?, resolve(self.rerank.as_ref())?);
        let (precision, device) = (self.precision, self.device);
        Ok(ServedModels { embedder, reranker, precision, device, ..ServedModels::default() })
    }

    /// The options of a server with these sources, and with the defaults otherwise.
    ///
    /// # Errors
    /// Paths that do not exist, and models that cannot be found.
    pub(crate) fn options(&self, context: &Context) -> Result<ServerOptions> {
        self.sources.iter().try_for_each(|path| paths::file_or_folder(path))?;
        let user = settings::user()?;
        let cache = settings::cache(&user)?;
        let named = |source: &PathBuf| AskOptions::new(vec![source.clone()], cache.clone());
        let sources: Vec<AskOptions> = self.sources.iter().map(named).collect();
        let has_documents = sources.iter().any(|source| source.config().is_none());
        let resolve = |model: Option<&PathBuf>| {
            model.filter(|_| has_documents).map(|model| models::resolve(model, context.quiet)).transpose()
        };
        let embedder = resolve(self.embed.as_ref().or(user.embedder.as_ref()))?;
        let reranker = resolve(self.rerank.as_ref().or(user.reranker.as_ref()))?;
        let endpoint = self.llm.clone().map(|url| Endpoint {
            url,
            model: self.llm_model.clone(),
            key_variable: self.llm_key_env.clone(),
        });
        let own = self.model.as_ref().map(|model| models::resolve(model, context.quiet)).transpose()?;
        let default = resolve(user.model.as_ref().filter(|_| own.is_none() && endpoint.is_none()))?;
        let mount = |options: AskOptions| {
            // A config has its own retriever, and its own generator unless the command line names one.
            let is_config = options.config().is_some();
            AskOptions {
                embedder: embedder.clone().filter(|_| !is_config),
                reranker: reranker.clone().filter(|_| !is_config),
                generator: own.clone().or_else(|| default.clone().filter(|_| !is_config)),
                endpoint: endpoint.clone(),
                passages: self.passages,
                max_new_tokens: self.max_new_tokens,
                precision: self.precision,
                device: self.device,
                ..options
            }
        };
        let mounts = sources.into_iter().map(mount).collect();
        Ok(ServerOptions { mounts, ..ServerOptions::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_of_a_server_are_only_what_its_call_names() {
        let served = Served {
            sources: Vec::new(),
            model: None,
            llm: None,
            llm_model: "default".into(),
            llm_key_env: None,
            embed: Some(".".into()),
            rerank: None,
            passages: 5,
            max_new_tokens: 200,
            precision: Precision::default(),
            device: DeviceName::default(),
            run: Vec::new(),
        };
        let context = Context { quiet: true, json: false, verbose: 0 };
        // Models are served by themselves only where a call asks for them.
        let models = served.models(&context).unwrap();
        assert_eq!((models.embedder, models.reranker), (Some(".".into()), None));
    }
}
