//! Questions over documents.

use std::path::PathBuf;

use pyo3::{prelude::*, types::PyDict};
use sporran_pipeline::workflows::answer::{AskOptions, Asker as Inner, CitedAnswer, CitedPassage, Endpoint};
use sporran_retriever::FilterOptions;

use crate::{
    arguments::{count, options, table},
    calls::{compute, observed},
    encoder::{model_folder, parsed},
    error::{InputError, Result, argument},
};

/// A passage as evidence.
#[pyclass(frozen, get_all, module = "sporran")]
#[derive(Clone)]
pub(crate) struct Evidence {
    /// The file, or the title of a page without a file.
    file: String,
    /// The page of the file.
    page: Option<u64>,
    /// The line of the file.
    line: Option<u64>,
    /// The row of a table whose file has no lines.
    row: Option<u64>,
    /// The title of the document.
    title: String,
    /// The section.
    section: String,
    /// The paragraph in which the passage starts.
    paragraph: u32,
    /// The first character in that paragraph.
    start: u32,
    /// The character after the last one.
    end: u32,
    /// The text.
    text: String,
    /// The first character of the best sentence in `text`, and the one after its last.
    highlight: (usize, usize),
    /// The score; greater is better.
    score: f32,
}

impl Evidence {
    fn of(passage: CitedPassage) -> Self {
        let characters = |end: usize| passage.text[..end].chars().count();
        let highlight = (characters(passage.highlight.start), characters(passage.highlight.end));
        let CitedPassage {
            file, page, line, row, title, section, paragraph, start, end, text, score, ..
        } = passage;
        Self { file, page, line, row, title, section, paragraph, start, end, text, highlight, score }
    }
}

#[pymethods]
impl Evidence {
    fn __repr__(&self) -> String {
        let start: String = self.text.chars().take(60).collect();
        format!("Evidence(file={:?}, section={:?}, text={start:?})", self.file, self.section)
    }
}

/// An answer with its evidence.
#[pyclass(frozen, get_all, module = "sporran")]
pub(crate) struct Answer {
    /// The question.
    question: String,
    /// The answer with citations such as `[1]`; empty without a generator.
    answer: String,
    /// The best passages, best first. `[n]` refers to the item with index `n - 1`.
    evidence: Vec<Evidence>,
    /// The sentences of the answer: the text, the numbers of the passages that support it, and whether one does.
    sentences: Vec<(String, Vec<usize>, bool)>,
    /// Whether a generator wrote the answer.
    is_generated: bool,
}

impl Answer {
    fn of(answer: CitedAnswer) -> Self {
        let CitedAnswer { question, answer, evidence, sentences, is_generated } = answer;
        let evidence = evidence.into_iter().map(Evidence::of).collect();
        let sentences =
            sentences.into_iter().map(|said| (said.text, said.citations, said.supported)).collect();
        Self { question, answer, evidence, sentences, is_generated }
    }
}

#[pymethods]
impl Answer {
    fn __repr__(&self) -> String {
        format!("Answer(answer={:?}, evidence={})", self.answer, self.evidence.len())
    }
}

/// Answers questions over documents.
#[pyclass(frozen, module = "sporran")]
pub(crate) struct Asker {
    asker: Inner,
}

#[pymethods]
impl Asker {
    #[new]
    #[pyo3(signature = (sources, *, model = None, llm = None, llm_model = "default", llm_key_env = None, embed = None, rerank = None,
                        verify = None, passages = 5, max_new_tokens = 200, filters = None, cache = None, precision = "f32",
                        device = "cpu", progress = None))]
    #[allow(clippy::too_many_arguments, reason = "Python's keyword arguments")]
    fn new(
        py: Python<'_>,
        sources: &Bound<'_, PyAny>,
        model: Option<PathBuf>,
        llm: Option<String>,
        llm_model: &str,
        llm_key_env: Option<String>,
        embed: Option<PathBuf>,
        rerank: Option<PathBuf>,
        verify: Option<PathBuf>,
        passages: i128,
        max_new_tokens: i128,
        filters: Option<Vec<Bound<'_, PyDict>>>,
        cache: Option<PathBuf>,
        precision: &str,
        device: &str,
        progress: Option<Py<PyAny>>,
    ) -> Result<Self> {
        if model.is_some() && llm.is_some() {
            return Err(argument("model", "a model or the address of one in llm", "both"));
        }
        let folder = |model: Option<PathBuf>| model.map(|model| model_folder(py, &model)).transpose();
        let endpoint = llm.map(|url| Endpoint { url, model: llm_model.into(), key_variable: llm_key_env });
        let filters: Vec<FilterOptions> = filters
            .unwrap_or_default()
            .iter()
            .map(|filter| options(table(Some(filter))?))
            .collect::<Result<_>>()?;
        let asked = AskOptions {
            embedder: folder(embed)?,
            reranker: folder(rerank)?,
            generator: folder(model)?,
            verifier: folder(verify)?,
            endpoint,
            filters,
            passages: count("passages", passages, 1)?,
            max_new_tokens: count("max_new_tokens", max_new_tokens, 1)?,
            precision: parsed("precision", precision)?,
            device: parsed("device", device)?,
            ..AskOptions::new(paths("sources", sources)?, cache_folder(cache)?)
        };
        Ok(Self { asker: observed(py, progress, |observer| Inner::open(&asked, observer))? })
    }

    /// Answers a question.
    fn ask(&self, py: Python<'_>, question: &str) -> Result<Answer> {
        compute(py, || self.asker.ask(question)).map(Answer::of)
    }
}

/// A path, or a list of paths.
pub(crate) fn paths(name: &str, value: &Bound<'_, PyAny>) -> Result<Vec<PathBuf>> {
    if let Ok(path) = value.extract::<PathBuf>() {
        return Ok(vec![path]);
    }
    let paths: Vec<PathBuf> =
        value.extract().map_err(|_| argument(name, "a path or a list of paths", value.get_type()))?;
    if paths.is_empty() {
        return Err(argument(name, "at least one path", "an empty list"));
    }
    Ok(paths)
}

/// The folder of cached indexes: the given one, or that of the command line.
pub(crate) fn cache_folder(given: Option<PathBuf>) -> Result<PathBuf> {
    match given {
        Some(folder) => Ok(folder),
        None => sporran_cli::cache_folder().map_err(InputError::new_err),
    }
}
