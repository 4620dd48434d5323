//! The options of questions over documents, and the config that they stand for.

use std::path::{Component, Path, PathBuf};

use sporran_config::Diagnostic;
use sporran_retriever::FilterOptions;
use sporran_transformers::{DeviceName, Precision};

use crate::{
    Error, Result,
    source::{cache, options::SourceOptions},
    tasks::options::{QueryOptions, TasksOptions},
    workflows::answer::options::{EvaluationOptions, EvidenceOptions, General, Options},
};

/// The number of words of a passage, and of those that it shares with the one before it.
const WINDOW: u32 = 120;
const OVERLAP: u32 = 30;
/// A generator behind an HTTP endpoint in the form of OpenAI's API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address, such as `http://localhost:8000/v1`.
    pub url: String,
    /// The name of the model at the endpoint.
    pub model: String,
    /// The name of the environment variable with the key; `None` for an endpoint without keys.
    pub key_variable: Option<String>,
}

/// The sources and models of an [`Asker`](super::Asker).
#[derive(Clone, Debug)]
pub struct AskOptions {
    /// Files and folders, or one config of the workflow `answer`, whose name ends in `.toml`.
    pub sources: Vec<PathBuf>,
    /// The folder of cached indexes, and of the responses of `endpoint`. A config names its own folders.
    pub cache: PathBuf,
    /// The folder of an encoder. With it, retrieval fuses the rankings of BM25 and of dense vectors by reciprocal ranks.
    pub embedder: Option<PathBuf>,
    /// The folder of a reranker.
    pub reranker: Option<PathBuf>,
    /// The folder or the GGUF file of a generator: a decoder-only model, an encoder-decoder or DPR's reader.
    pub generator: Option<PathBuf>,
    /// A generator at an endpoint, instead of `generator`.
    pub endpoint: Option<Endpoint>,
    /// Whether the responses of `endpoint` are kept in the cache, and a question that is asked again has the same answer. A server
    /// would fill the disk with them.
    pub keep_responses: bool,
    /// The folder of a verifier, which decides whether a passage supports a sentence. Without it, their words decide.
    pub verifier: Option<PathBuf>,
    /// Conditions on the metadata of passages; all must be met.
    pub filters: Vec<FilterOptions>,
    /// Whether a file that cannot be read is an error. Otherwise the other files are read.
    pub strict: bool,
    /// The number of passages that are evidence and that a generator reads. At least 1.
    pub passages: usize,
    /// The largest number of tokens of an answer. At least 1.
    pub max_new_tokens: usize,
    /// The data type of the models' weights.
    pub precision: Precision,
    /// The device of the models.
    pub device: DeviceName,
}

impl AskOptions {
    /// BM25 over sources, without a model: five passages.
    #[must_use]
    pub fn new(sources: Vec<PathBuf>, cache: PathBuf) -> Self {
        Self {
            sources,
            cache,
            embedder: None,
            reranker: None,
            generator: None,
            endpoint: None,
            keep_responses: true,
            verifier: None,
            filters: Vec::new(),
            strict: false,
            passages: 5,
            max_new_tokens: 200,
            precision: Precision::default(),
            device: DeviceName::default(),
        }
    }

    /// The one config among the sources, if it is one.
    #[must_use]
    pub fn config(&self) -> Option<&Path> {
        match &self.sources[..] {
            [path] if path.extension().is_some_and(|ending| ending == "toml") => Some(path),
            _ => None,
        }
    }

    /// The config that these options stand for. It has no task files.
    ///
    /// # Errors
    /// [`Error::Config`] with every mistake: sources and models that are missing or do not fit, and numbers below 1.
    pub fn resolve(&self) -> Result<Options> {
        let mut mistakes = Vec::new();
        let mut report = |option: &str, message: String| {
            mistakes.push(Diagnostic { origin: "ask".into(), line: 0, key: option.into(), message });
        };
        for (option, value) in [("--passages", self.passages), ("--max-new-tokens", self.max_new_tokens)] {
            if value == 0 {
                report(option, "expected at least 1, found 0".into());
            }
        }
        let models = [
            ("--embed", &self.embedder),
            ("--rerank", &self.reranker),
            ("--model", &self.generator),
            ("--verify", &self.verifier),
        ];
        for (option, model) in models.iter().filter_map(|(option, model)| Some((option, model.as_ref()?))) {
            if !model.exists() {
                report(option, format!("no model {}", model.display()));
            }
        }
        if !mistakes.is_empty() {
            return Err(Error::Config(mistakes));
        }
        let options = match self.config() {
            Some(path) => self.of_config(path)?,
            None => self.of_sources()?,
        };
        self.filters.iter().try_fold(options, |options, filter| options.filtered(filter.clone()))
    }

    /// The config that these options stand for, as a user would write it: with the paths of the sources as they are.
    ///
    /// # Errors
    /// Those of [`resolve`](Self::resolve).
    pub fn shown(&self) -> Result<Options> {
        let mut options = self.resolve()?;
        options.general.source = options.general.source.map(SourceOptions::into_written);
        Ok(options)
    }

    /// The options of a config, with another generator if these options have one.
    fn of_config(&self, path: &Path) -> Result<Options> {
        for (option, model) in [("--embed", &self.embedder), ("--rerank", &self.reranker)] {
            if model.is_some() {
                let message =
                    format!("expected documents as the source; {} has its own `[retriever]`", path.display());
                return Err(Error::Config(vec![mistake(option, message)]));
            }
        }
        let mut options = Options::load_without_tasks(path, &[])?;
        if let Some(source) = &mut options.general.source {
            // A collection in another system's format has no files to leave out.
            source.strict |= self.strict && source.format.is_none();
        }
        let generator = self.own_generator()?.or(options.generator);
        Ok(Options { generator, ..options })
    }

    /// The options for documents; without any, those of the model alone.
    fn of_sources(&self) -> Result<Options> {
        let generator = self.own_generator()?;
        let (source, retriever) = match self.sources.is_empty() {
            true if generator.is_none() => {
                return Err(Error::Config(vec![mistake("SOURCE", "expected documents or a model".into())]));
            }
            true => (None, None),
            false => (Some(self.source()?), Some(self.retriever()?)),
        };
        let general = General {
            name: "ask".into(),
            seed: 0,
            output: crate::config::runs(),
            then: Vec::new(),
            source,
            pages: None,
            tasks: TasksOptions::default(),
            query: QueryOptions::default(),
            evidence: EvidenceOptions { one_per_page: false, ..EvidenceOptions::default() },
            evaluation: EvaluationOptions::default(),
            train: None,
        };
        Ok(Options { general, encoder_training: None, retriever, generator })
    }

    /// The sources as passages name them: `notes/` and `./notes` are `notes`.
    #[must_use]
    pub fn plain_sources(&self) -> Vec<PathBuf> {
        self.sources.iter().map(|path| plain(path)).collect()
    }

    /// The `[source]` of files and folders: windows of words that cross no heading. They overlap, so that a sentence at an
    /// edge is whole in one of them. Its paths are absolute; passages name files as [`sources`](Self::sources) do.
    ///
    /// # Errors
    /// [`Error::Config`] for sources that do not exist.
    pub fn source(&self) -> Result<SourceOptions> {
        let missing: Vec<Diagnostic> = self
            .sources
            .iter()
            .filter(|path| !path.exists())
            .map(|path| mistake("SOURCE", format!("no file or folder {}", path.display())))
            .collect();
        if !missing.is_empty() {
            return Err(Error::Config(missing));
        }
        let shown = self.plain_sources();
        let indexes = cache::folder_of(&self.cache, &shown)?;
        // The same files under another name have the same store.
        let sources = cache::absolute(&shown)?;
        let (size, overlap) = (Some(WINDOW), Some(OVERLAP));
        let strict = self.strict;
        Ok(SourceOptions { size, overlap, strict, indexes, shown, ..SourceOptions::new(sources) })
    }
}

/// A path without `.` in it and without a slash at its end. The current folder is `.`.
fn plain(path: &Path) -> PathBuf {
    let parts: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
    if parts.as_os_str().is_empty() { path.components().collect() } else { parts }
}

/// A mistake of an option.
pub(super) fn mistake(option: &str, message: String) -> Diagnostic {
    Diagnostic { origin: "ask".into(), line: 0, key: option.into(), message }
}

#[cfg(test)]
mod tests {
    use sporran_generator::GeneratorOptions;

    use super::*;
    use crate::workflows::answer::retrieval::{CombinedRetriever, RetrieverOptions};

    /// The folder of a model of the tests.
    fn model(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data").join(name)
    }

    /// Options over one page, in a folder of their own.
    fn options() -> (tempfile::TempDir, AskOptions) {
        let folder = tempfile::tempdir().unwrap();
        let pages = folder.path().join("pages.jsonl");
        std::fs::write(&pages, r#"{"wikipedia_id":"1","wikipedia_title":"Tea","text":["Tea","It is hot."]}"#)
            .unwrap();
        let options = AskOptions::new(vec![pages], folder.path().join("cache"));
        (folder, options)
    }

    fn message(options: &AskOptions) -> String {
        options.resolve().map(|_| String::new()).unwrap_or_else(|error| {
            assert!(error.is_input());
            error.to_string()
        })
    }

    #[test]
    fn the_models_decide_the_stages() {
        let (_folder, options) = options();
        let plain = options.resolve().unwrap();
        assert!(matches!(plain.retriever, Some(RetrieverOptions::Bm25(_))) && plain.generator.is_none());
        let embedder = Some(model("encoders/sentence"));
        let hybrid = AskOptions { embedder, ..options.clone() }.resolve().unwrap();
        assert!(matches!(hybrid.retriever, Some(RetrieverOptions::Hybrid(_))));
        let reranker = Some(model("encoders/bert-sequence"));
        let reranked = AskOptions { reranker, ..options.clone() }.resolve().unwrap();
        assert!(matches!(reranked.retriever, Some(RetrieverOptions::Outer(CombinedRetriever::Reranked(_)))));
        let reader = tempfile::tempdir().unwrap();
        for (from, file) in [
            ("encoders/dpr-reader", "config.json"),
            ("encoders/dpr-reader", "model.safetensors"),
            ("encoders/bert-sequence", "tokenizer.json"),
        ] {
            std::fs::copy(model(from).join(file), reader.path().join(file)).unwrap();
        }
        for (generator, kind) in [
            (model("llama"), "causal"),
            (model("t5-relu"), "seq2seq"),
            (reader.path().to_owned(), "extractive"),
        ] {
            let found = AskOptions { generator: Some(generator), ..options.clone() }.resolve().unwrap();
            assert_eq!(sporran_config::Kinds::kind(&found.generator.unwrap()), kind);
        }
    }

    #[test]
    fn names_of_the_same_file_share_their_indexes() {
        for (path, expected) in
            [("notes/", "notes"), ("./notes/./a", "notes/a"), ("./", "."), ("../n", "../n")]
        {
            assert_eq!(plain(Path::new(path)).as_os_str(), expected, "{path}");
        }
        let (folder, options) = options();
        let other = AskOptions { sources: vec![folder.path().join("./pages.jsonl")], ..options.clone() };
        assert_eq!(other.source().unwrap().indexes, options.source().unwrap().indexes);
    }

    #[test]
    fn responses_are_in_the_cache() {
        let (folder, options) = options();
        let endpoint =
            Endpoint { url: "http://localhost:1/v1".into(), model: "m".into(), key_variable: None };
        let options = AskOptions { endpoint: Some(endpoint), ..options };
        for keep_responses in [true, false] {
            let found = AskOptions { keep_responses, ..options.clone() }.resolve().unwrap();
            let Some(GeneratorOptions::Remote(remote)) = found.generator else { panic!("no endpoint") };
            assert_eq!(remote.requests.cache, folder.path().join("cache/responses"));
            assert_eq!(remote.requests.use_cache, keep_responses);
        }
    }

    #[test]
    fn a_model_without_a_chat_template_has_stops() {
        let (folder, options) = options();
        let stops = |generator: PathBuf| {
            let found = AskOptions { generator: Some(generator), ..options.clone() }.resolve().unwrap();
            match found.generator {
                Some(GeneratorOptions::Causal(causal)) => (causal.answer, causal.stops),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(stops(model("llama")), ("Answer:".to_owned(), vec!["\n".to_owned()]));
        let chat = folder.path().join("chat");
        std::fs::create_dir(&chat).unwrap();
        for file in ["config.json", "merges.txt", "model.safetensors", "tokenizer_config.json", "vocab.json"]
        {
            std::fs::copy(model("llama").join(file), chat.join(file)).unwrap();
        }
        std::fs::write(chat.join("chat_template.jinja"), "{{ messages[0].content }}").unwrap();
        assert_eq!(stops(chat), (String::new(), Vec::new()));
    }

    #[test]
    fn the_config_round_trips_through_toml() {
        let (folder, options) = options();
        let options = AskOptions {
            embedder: Some(model("encoders/sentence")),
            generator: Some(model("llama")),
            ..options
        };
        let resolved = options.shown().unwrap();
        let path = folder.path().join("shown.toml");
        std::fs::write(&path, resolved.to_toml().unwrap()).unwrap();
        let again = AskOptions::new(vec![path], options.cache.clone()).resolve().unwrap();
        assert_eq!(again.to_toml().unwrap(), resolved.to_toml().unwrap());
        // The config has the path as it is written, although the cache knows its other names.
        let link = folder.path().join("x/../pages.jsonl");
        std::fs::create_dir(folder.path().join("x")).unwrap();
        let options = AskOptions { sources: vec![link.clone()], ..options };
        assert_eq!(options.shown().unwrap().general.source.unwrap().path.single(), Some(&link));
        assert_ne!(options.resolve().unwrap().general.source.unwrap().path.single(), Some(&link));
    }

    #[test]
    fn mistakes_name_their_options() {
        let (folder, options) = options();
        let wrong = AskOptions { passages: 0, generator: Some("none".into()), ..options.clone() };
        assert_eq!(
            message(&wrong),
            "ask: `--passages`: expected at least 1, found 0\nask: `--model`: no model none"
        );
        let wrong = AskOptions { generator: Some(model("encoders/sentence")), ..options.clone() };
        assert!(message(&wrong).starts_with("ask: `--model`: expected"), "{}", message(&wrong));
        let wrong = AskOptions { embedder: Some(model("t5-relu")), ..options.clone() };
        assert!(message(&wrong).starts_with("ask: `--embed`: "), "{}", message(&wrong));
        let wrong = AskOptions { reranker: Some(model("encoders/sentence")), ..options.clone() };
        assert!(message(&wrong).starts_with("ask: `--rerank`: expected"), "{}", message(&wrong));
        let endpoint = Endpoint { url: "nowhere".into(), model: "m".into(), key_variable: None };
        let wrong = AskOptions { endpoint: Some(endpoint), ..options.clone() };
        assert!(message(&wrong).starts_with("ask: `--llm`: expected an address"), "{}", message(&wrong));
        let wrong = AskOptions { sources: vec![folder.path().join("none")], ..options };
        assert!(message(&wrong).starts_with("ask: `SOURCE`: no file or folder"), "{}", message(&wrong));
    }

    #[test]
    fn a_config_has_its_own_retriever_and_needs_no_tasks() {
        let (folder, options) = options();
        let path = folder.path().join("own.toml");
        let pages = &options.sources[0];
        let text = format!(
            "workflow = \"answer\"\nname = \"own\"\n[source]\npath = {pages:?}\n[retriever]\nkind = \"tfidf\"\n"
        );
        std::fs::write(&path, &text).unwrap();
        let own = AskOptions { sources: vec![path.clone()], ..options };
        assert!(matches!(own.resolve().unwrap().retriever, Some(RetrieverOptions::TfIdf(_))));
        let wrong = AskOptions { embedder: Some(model("encoders/sentence")), ..own.clone() };
        assert!(message(&wrong).contains("has its own `[retriever]`"), "{}", message(&wrong));
        std::fs::write(&path, text.replace("tfidf", "tf-idf")).unwrap();
        assert!(message(&own).contains("own.toml:6"), "{}", message(&own));
        std::fs::write(&path, text.replace("pages.jsonl", "none.jsonl")).unwrap();
        assert!(message(&own).contains("no file"), "{}", message(&own));
    }
}
