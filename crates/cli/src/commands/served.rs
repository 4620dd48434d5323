//! What `sporran serve` and `sporran mcp` serve.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use sporran_pipeline::workflows::answer::AskOptions;
use sporran_server::{BrowseOptions, Named, ServedModels, ServerOptions};

use super::{answer_model::AnswerModel, models};
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
    #[command(flatten)]
    model: AnswerModel,
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
        let mut mounts = Vec::with_capacity(self.sources.len());
        for source in &self.sources {
            let options = AskOptions::new(vec![source.clone()], settings::cache(&user)?);
            // A config has its own retriever, and its own generator unless the command line names one.
            let is_config = options.config().is_some();
            let options = AskOptions {
                embedder: embedder.clone().filter(|_| !is_config),
                reranker: reranker.clone().filter(|_| !is_config),
                passages: self.passages,
                max_new_tokens: self.max_new_tokens,
                ..options
            };
            let default = user.model.as_deref().filter(|_| !is_config);
            mounts.push(self.model.of(options, default, context)?);
        }
        if self.sources.is_empty() && self.model.is_named() {
            let options = AskOptions::new(Vec::new(), settings::cache(&user)?);
            let options = AskOptions { max_new_tokens: self.max_new_tokens, ..options };
            mounts.push(self.model.of(options, None, context)?);
        }
        let (precision, device) = (self.model.precision, self.model.device);
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
