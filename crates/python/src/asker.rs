//! Questions over documents.

use std::path::PathBuf;

use pyo3::{
    prelude::*,
    types::{PyDict, PyType},
};
use serde_json::{Value, json};
use sporran_pipeline::workflows::answer::{AskOptions, Asker as Inner, CitedAnswer, CitedPassage, Endpoint};
use sporran_retriever::FilterOptions;

use crate::{
    arguments::{count, options, table},
    calls::{compute, observed},
    encoder::{model_folder, parsed},
    error::{InputError, Result, argument},
};

/// A passage as evidence.
#[pyclass(frozen, get_all, from_py_object, module = "sporran")]
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

/// The fields of [`Evidence`], in their order.
type EvidenceFields = (
    String,
    Option<u64>,
    Option<u64>,
    Option<u64>,
    String,
    String,
    u32,
    u32,
    u32,
    String,
    (usize, usize),
    f32,
);

#[pymethods]
impl Evidence {
    #[new]
    #[allow(clippy::too_many_arguments, reason = "the fields")]
    fn new(
        file: String,
        page: Option<u64>,
        line: Option<u64>,
        row: Option<u64>,
        title: String,
        section: String,
        paragraph: u32,
        start: u32,
        end: u32,
        text: String,
        highlight: (usize, usize),
        score: f32,
    ) -> Self {
        Self { file, page, line, row, title, section, paragraph, start, end, text, highlight, score }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyType>, EvidenceFields) {
        let Self { file, page, line, row, title, section, paragraph, start, end, text, highlight, score } =
            slf.get().clone();
        let fields = (file, page, line, row, title, section, paragraph, start, end, text, highlight, score);
        (slf.get_type(), fields)
    }

    fn __repr__(&self) -> String {
        let start: String = self.text.chars().take(60).collect();
        format!("Evidence(file={:?}, section={:?}, text={start:?})", self.file, self.section)
    }
}

/// An answer with its evidence.
#[pyclass(frozen, get_all, module = "sporran")]
#[derive(Clone)]
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

/// The fields of [`Answer`], in their order.
type AnswerFields = (String, String, Vec<Evidence>, Vec<(String, Vec<usize>, bool)>, bool);

#[pymethods]
impl Answer {
    #[new]
    fn new(
        question: String,
        answer: String,
        evidence: Vec<Evidence>,
        sentences: Vec<(String, Vec<usize>, bool)>,
        is_generated: bool,
    ) -> Self {
        Self { question, answer, evidence, sentences, is_generated }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyType>, AnswerFields) {
        let Self { question, answer, evidence, sentences, is_generated } = slf.get().clone();
        (slf.get_type(), (question, answer, evidence, sentences, is_generated))
    }

    fn __repr__(&self) -> String {
        format!("Answer(answer={:?}, evidence={})", self.answer, self.evidence.len())
    }
}

/// Answers questions over documents.
#[pyclass(frozen, module = "sporran")]
pub(crate) struct Asker {
    asker: Inner,
    /// The arguments as JSON.
    arguments: String,
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
        let sources = paths("sources", sources)?;
        let filters: Vec<Value> =
            filters.unwrap_or_default().iter().map(|filter| table(Some(filter))).collect::<Result<_>>()?;
        let passages = count("passages", passages, 1)?;
        let max_new_tokens = count("max_new_tokens", max_new_tokens, 1)?;
        let shown = |path: Option<&PathBuf>| path.map(|path| path.to_string_lossy().into_owned());
        let arguments = json!({
            "sources": sources.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
            "model": shown(model.as_ref()), "llm": llm, "llm_model": llm_model, "llm_key_env": llm_key_env, "embed": shown(embed.as_ref()),
            "rerank": shown(rerank.as_ref()), "verify": shown(verify.as_ref()), "passages": passages, "max_new_tokens": max_new_tokens,
            "filters": filters, "cache": shown(cache.as_ref()), "precision": precision, "device": device,
        });
        let folder = |model: Option<PathBuf>| model.map(|model| model_folder(py, &model)).transpose();
        let endpoint = llm.map(|url| Endpoint { url, model: llm_model.into(), key_variable: llm_key_env });
        let filters: Vec<FilterOptions> = filters.into_iter().map(options).collect::<Result<_>>()?;
        let asked = AskOptions {
            embedder: folder(embed)?,
            reranker: folder(rerank)?,
            generator: folder(model)?,
            verifier: folder(verify)?,
            endpoint,
            filters,
            passages,
            max_new_tokens,
            precision: parsed("precision", precision)?,
            device: parsed("device", device)?,
            ..AskOptions::new(sources, cache_folder(cache)?)
        };
        let asker = observed(py, progress, |observer| Inner::open(&asked, observer))?;
        Ok(Self { asker, arguments: arguments.to_string() })
    }

    /// Answers a question.
    fn ask(&self, py: Python<'_>, question: &str) -> Result<Answer> {
        compute(py, || self.asker.ask(question)).map(Answer::of)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<(Bound<'py, PyAny>, (String,))> {
        Ok((py.import("sporran")?.getattr("_asker")?, (self.arguments.clone(),)))
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
