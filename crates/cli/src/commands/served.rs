//! What `sporran serve` and `sporran mcp` serve.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use sporran_pipeline::workflows::answer::AskOptions;
use sporran_server::{BrowseOptions, Named, ServedModels, ServerOptions};
use tempfile::TempDir;

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
    /// Encoder for the retrieval of documents, which `serve` also serves as a model: a folder, an imported model's name, or hf:ID[@REV]
    #[arg(long, value_name = "MODEL", value_hint = ValueHint::DirPath)]
    embed: Option<PathBuf>,
    /// Reranker for passages of documents, which `serve` also serves as a model: a folder, an imported model's name, or hf:ID[@REV]
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
        let (precision, device) = (self.model.precision, self.model.device);
        Ok(ServedModels { embedder, reranker, precision, device, ..ServedModels::default() })
    }

    /// The keys of the user's config that name models of a served source.
    pub(crate) fn users_keys(&self) -> Vec<&'static str> {
        let mut keys = self.model.users_keys();
        keys.extend(self.embed.is_none().then_some("embedder"));
        keys.extend(self.rerank.is_none().then_some("reranker"));
        keys
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
        let resolve = |option: &Option<PathBuf>, own: &Option<PathBuf>, key| match has_documents {
            true => settings::resolve(option.as_deref(), own.as_deref(), key, context),
            false => Ok(None),
        };
        let embedder = resolve(&self.embed, &user.embedder, "embedder")?;
        let reranker = resolve(&self.rerank, &user.reranker, "reranker")?;
        let mut mounts = Vec::with_capacity(sources.len());
        for options in sources {
            // A config has its own retriever, and its own generator unless the command line names one.
            let is_config = options.config().is_some();
            let options = AskOptions {
                embedder: embedder.clone().filter(|_| !is_config),
                reranker: reranker.clone().filter(|_| !is_config),
                passages: self.passages,
                max_new_tokens: self.max_new_tokens,
                ..options
            };
            mounts.push(self.model.of(options, Some(&user).filter(|_| !is_config), context)?);
        }
        if mounts.is_empty() && self.model.is_named() {
            let options =
                AskOptions { max_new_tokens: self.max_new_tokens, ..AskOptions::new(Vec::new(), cache) };
            mounts.push(self.model.of(options, None, context)?);
        }
        Ok(ServerOptions { mounts, ..ServerOptions::new() })
    }

    /// Serves or opens what the options name. If the cache of documents may only be read, and lacks what is needed, a temporary
    /// folder is the cache, as for `sporran ask`; it is removed when the second value is dropped.
    ///
    /// # Errors
    /// Those of `work`. A mistake of the user's config has its file, line and key.
    pub(crate) fn with_cache<T>(
        &self,
        options: ServerOptions,
        context: &Context,
        mut work: impl FnMut(ServerOptions) -> Result<T>,
    ) -> Result<(T, Option<TempDir>)> {
        let mut work = |options| work(options).map_err(|error| settings::blame(error, &self.users_keys()));
        let cache =
            options.mounts.iter().find(|mount| mount.config().is_none()).map(|mount| mount.cache.clone());
        let (error, cache) = match (work(options.clone()), cache) {
            (Ok(done), _) => return Ok((done, None)),
            (Err(error), Some(cache)) => (error, cache),
            (Err(error), None) => return Err(error),
        };
        let spare = settings::spare_cache(error, &cache, context)?;
        let moved = |mount| AskOptions { cache: spare.path().to_owned(), ..mount };
        let mounts = options.mounts.into_iter().map(moved).collect();
        let done = work(ServerOptions { mounts, ..options })?;
        Ok((done, Some(spare)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_of_a_server_are_only_what_its_call_names() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            served: Served,
        }
        let Line { served } = clap::Parser::parse_from(["serve", "--embed", "."]);
        let context = Context { quiet: true, json: false, verbose: 0 };
        // Models are served by themselves only where a call asks for them.
        let models = served.models(&context).unwrap();
        assert_eq!((models.embedder, models.reranker), (Some(".".into()), None));
    }
}
