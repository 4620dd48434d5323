//! Passages and hits.

use pyo3::{prelude::*, types::PyType};
use sporran_kilt::{Hit as Found, Passage as Stored};

use crate::error::{Result, argument};

/// A passage with its place.
#[pyclass(frozen, get_all, from_py_object, module = "sporran")]
#[derive(Clone)]
pub(crate) struct Passage {
    /// Its number, from 0.
    id: u32,
    /// The id of its page; empty for a text.
    page_id: String,
    /// The title of its page.
    title: String,
    /// The header above it.
    section: String,
    /// The text.
    text: String,
    /// Its provenance as JSON, as in KILT's predictions.
    provenance_json: String,
}

impl Passage {
    /// A text without a page.
    pub(crate) fn of_text(id: u32, title: String, text: String) -> Self {
        let (page_id, section, provenance_json) = Default::default();
        Self { id, page_id, title, section, text, provenance_json }
    }

    /// A passage of a store.
    pub(crate) fn of(passage: Stored) -> Result<Self> {
        let provenance_json = serde_json::to_string(&passage.provenance())
            .map_err(|error| argument("provenance", "plain values", error))?;
        let Stored { id, page_id, title, section, text, .. } = passage;
        Ok(Self { id: id.0, page_id, title, section, text, provenance_json })
    }
}

#[pymethods]
impl Passage {
    #[new]
    fn new(
        id: u32,
        page_id: String,
        title: String,
        section: String,
        text: String,
        provenance_json: String,
    ) -> Self {
        Self { id, page_id, title, section, text, provenance_json }
    }

    #[allow(clippy::type_complexity, reason = "the arguments of the constructor")]
    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> (Bound<'py, PyType>, (u32, String, String, String, String, String)) {
        let Self { id, page_id, title, section, text, provenance_json } = slf.get().clone();
        (slf.get_type(), (id, page_id, title, section, text, provenance_json))
    }

    fn __repr__(&self) -> String {
        let start: String = self.text.chars().take(60).collect();
        format!("Passage(id={}, title={:?}, text={start:?})", self.id, self.title)
    }
}

/// A found passage.
#[pyclass(frozen, get_all, module = "sporran")]
#[derive(Clone)]
pub(crate) struct Hit {
    /// The number of the passage, from 0.
    id: u32,
    /// Its score; greater is better.
    score: f32,
    /// The passage.
    passage: Passage,
}

impl Hit {
    /// A hit with its passage.
    pub(crate) fn of(hit: Found, passage: Passage) -> Self {
        Self { id: hit.passage.0, score: hit.score, passage }
    }
}

#[pymethods]
impl Hit {
    #[new]
    fn new(id: u32, score: f32, passage: Passage) -> Self {
        Self { id, score, passage }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyType>, (u32, f32, Passage)) {
        let Self { id, score, passage } = slf.get().clone();
        (slf.get_type(), (id, score, passage))
    }

    fn __repr__(&self) -> String {
        format!("Hit(id={}, score={})", self.id, self.score)
    }
}

/// A hit with its text, of a search outside of this library.
#[pyfunction]
pub(crate) fn text_hit(id: u32, score: f32, title: String, text: String) -> Hit {
    Hit { id, score, passage: Passage::of_text(id, title, text) }
}
