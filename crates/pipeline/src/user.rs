//! The config of a user: defaults of options of the command line.

use std::{
    num::NonZeroUsize,
    path::{Component, Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Diagnostic, Document, Text, schema};
use sporran_kilt::jsonl;

use crate::{Error, Result};

/// The largest number of threads of a command. With many more, a program hangs while it starts them.
pub const MOST_THREADS: usize = 1024;

/// The home folder at the start of a path.
const HOME: &str = "~";

/// Whether a path starts as the name of a home folder does: `~` or `~user`.
fn starts_with_tilde(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with(HOME))
}

/// `[llm]`: a generator at an HTTP endpoint in the form of OpenAI's API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct UserEndpoint {
    /// The address, such as `http://localhost:8000/v1`.
    pub url: String,
    /// The name of the model at the endpoint.
    #[serde(default = "default_model")]
    pub model: String,
    /// The environment variable with the key. Without it requests have no key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
}

/// The name of the model at an endpoint that serves only one.
fn default_model() -> String {
    "default".to_owned()
}

/// The config of a user. Options of the command line override it.
///
/// A model is a folder, a file, the name of an imported model, or `hf:ID[@REV]`. A relative path with a folder in it starts
/// at the folder of the config, and `~/` at the home folder of the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct UserOptions {
    /// The generator of `ask` and `eval-set`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<PathBuf>,
    /// The generator of `ask` and `eval-set` at an endpoint, instead of `model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llm: Option<UserEndpoint>,
    /// The encoder of `ask` for dense retrieval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedder: Option<PathBuf>,
    /// The reranker of `ask`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reranker: Option<PathBuf>,
    /// The folder of cached indexes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<PathBuf>,
    /// The number of threads of every command, at most 1024.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub threads: Option<NonZeroUsize>,
}

impl UserOptions {
    /// Reads the config of a user with the home folder `home`; the defaults if there is no such file.
    ///
    /// # Errors
    /// [`Error::Config`] with every mistake, unknown keys among them; [`Error::Kilt`] if the file cannot be read.
    pub fn load(path: &Path, home: Option<&Path>) -> Result<Self> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = Text::new(path, jsonl::read_to_string(path)?, &[]);
        let mut document = Document::parse(&text);
        let options: Option<Self> = document.read_root(&[]);
        document.check_ranges(&schema::of::<Self>());
        for (key, path) in options.iter().flat_map(Self::paths) {
            if starts_with_tilde(path)
                && (home.is_none() || path.components().next() != Some(Component::Normal(HOME.as_ref())))
            {
                let message = format!(
                    "expected a path that starts with a folder or with `~/`, the home folder, found `{}`",
                    path.display()
                );
                document.report_key(key, message);
            }
        }
        if options.as_ref().is_some_and(|options| options.model.is_some() && options.llm.is_some()) {
            document.report_key("llm", "expected `model` or `llm`, found both");
        }
        let mistakes = document.into_diagnostics();
        let options = options.filter(|_| mistakes.is_empty()).ok_or(Error::Config(mistakes))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Ok(options.placed_in(folder, home))
    }

    /// The paths, with their keys.
    fn paths(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let all = [
            ("model", &self.model),
            ("embedder", &self.embedder),
            ("reranker", &self.reranker),
            ("cache", &self.cache),
        ];
        all.into_iter().filter_map(|(key, path)| Some((key, path.as_deref()?)))
    }

    /// A mistake in the value of a key of the file `path`, with its line.
    ///
    /// # Errors
    /// [`Error::Kilt`] if the file cannot be read.
    pub fn mistake(path: &Path, key: &str, message: &str) -> Result<Diagnostic> {
        let text = Text::new(path, jsonl::read_to_string(path)?, &[]);
        let mut document = Document::parse(&text);
        document.report_key(key, message);
        let found = document.into_diagnostics().pop();
        Ok(found.unwrap_or_else(|| Diagnostic::of_config(key, message)))
    }

    /// The same options with paths that start at `folder`, or at `home` after `~/`.
    fn placed_in(self, folder: &Path, home: Option<&Path>) -> Self {
        let placed = |path: PathBuf| match (path.strip_prefix(HOME), home) {
            (Ok(below), Some(home)) => home.join(below),
            _ if path.is_relative() => folder.join(path),
            _ => path,
        };
        // A single component is the name of an imported model.
        let is_path = |model: &Path| {
            (model.components().count() > 1 || model == Path::new(HOME))
                && !model.to_str().is_some_and(|model| model.starts_with("hf:"))
        };
        let model =
            |model: Option<PathBuf>| model.map(|model| if is_path(&model) { placed(model) } else { model });
        Self {
            model: model(self.model),
            llm: self.llm,
            embedder: model(self.embedder),
            reranker: model(self.reranker),
            cache: self.cache.map(placed),
            threads: self.threads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<UserOptions, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        let home = folder.path().display().to_string();
        UserOptions::load(&path, Some(Path::new("/home/ann"))).map_err(|error| {
            assert!(error.is_input());
            error.to_string().replace(&home, "")
        })
    }

    #[test]
    fn a_missing_file_has_the_defaults() {
        assert_eq!(
            UserOptions::load(Path::new("/no/such/config.toml"), None).unwrap(),
            UserOptions::default()
        );
        assert_eq!(load("").unwrap(), UserOptions::default());
    }

    #[test]
    fn the_number_of_threads_has_an_end() {
        let most = load(&format!("threads = {MOST_THREADS}")).unwrap();
        assert_eq!(most.threads.map(NonZeroUsize::get), Some(MOST_THREADS));
        for threads in [0, MOST_THREADS + 1, 100_000] {
            let message = load(&format!("threads = {threads}")).unwrap_err();
            assert!(message.contains("threads"), "{message}");
        }
    }

    #[test]
    fn paths_start_at_the_folder_of_the_config() {
        let options = load(
            "model = \"hf:org/name\"\nembedder = \"minilm\"\nreranker = \"models/r\"\ncache = \"/var/cache/s\"\nthreads = 3\n",
        )
        .unwrap();
        assert_eq!(options.model.as_deref(), Some(Path::new("hf:org/name")));
        assert_eq!(options.embedder.as_deref(), Some(Path::new("minilm")));
        assert!(
            options.reranker.as_ref().is_some_and(|path| path.is_absolute() && path.ends_with("models/r"))
        );
        assert_eq!(options.cache.as_deref(), Some(Path::new("/var/cache/s")));
        assert_eq!(options.threads.map(NonZeroUsize::get), Some(3));
    }

    #[test]
    fn a_tilde_is_the_home_folder() {
        let options = load("cache = \"~/cc\"\nmodel = \"~/models/m.gguf\"\nreranker = \"r~\"\n").unwrap();
        assert_eq!(options.cache.as_deref(), Some(Path::new("/home/ann/cc")));
        assert_eq!(options.model.as_deref(), Some(Path::new("/home/ann/models/m.gguf")));
        assert_eq!(options.reranker.as_deref(), Some(Path::new("r~")));
        let error = load("threads = 1\ncache = \"~eve/cc\"\n").unwrap_err();
        assert!(
            error.contains("config.toml:2: `cache`: expected a path") && error.contains("`~eve/cc`"),
            "{error}"
        );
    }

    #[test]
    fn a_generator_can_be_at_an_endpoint() {
        let endpoint = |text: &str| load(text).unwrap().llm.unwrap();
        let found = endpoint("[llm]\nurl = \"http://h:1/v1\"\nmodel = \"m\"\napi-key-env = \"KEY\"\n");
        let expected =
            UserEndpoint { url: "http://h:1/v1".into(), model: "m".into(), api_key_env: Some("KEY".into()) };
        assert_eq!(found, expected);
        let found = endpoint("llm.url = \"http://h:1/v1\"\n");
        assert_eq!((found.model.as_str(), found.api_key_env), ("default", None));
        let error = load("model = \"m\"\nllm = { url = \"http://h:1/v1\" }\n").unwrap_err();
        assert!(error.contains("config.toml:2: `llm`: expected `model` or `llm`, found both"), "{error}");
        let error = load("[llm]\nmodel = \"m\"\n").unwrap_err();
        assert!(error.contains("`llm.url`: is missing"), "{error}");
        let error = load("[llm]\nurl = \"u\"\nkey-env = \"K\"\n").unwrap_err();
        assert!(error.contains("config.toml:3: `llm.key-env`"), "{error}");
    }

    #[test]
    fn every_mistake_is_named_with_its_line() {
        let error = load("modle = \"a\"\nthreads = 0\n").unwrap_err();
        assert!(
            error.contains("config.toml:1: `modle`") && error.contains("did you mean `model`?"),
            "{error}"
        );
        assert!(error.contains("config.toml:2: `threads`"), "{error}");
        assert!(error.contains("expected a whole number of at least 1"), "{error}");
        assert!(load("threads = \"two\"").unwrap_err().contains("`threads`"));
    }
}
