//! Training examples of retrievers and rerankers: queries with positive and negative passages.

/// The title and the text of a passage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TitledText {
    /// The title, or an empty string.
    pub title: String,
    /// The text.
    pub text: String,
}

impl TitledText {
    /// The title and the text with a space between them. Without a title it is the text.
    #[must_use]
    pub fn joined(&self) -> String {
        let Self { title, text } = self;
        if title.is_empty() { text.clone() } else { format!("{title} {text}") }
    }
}

/// A query with its positive and negative passages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContrastExample {
    /// The text of the query.
    pub query: String,
    /// The positive passages, the best first. There is at least one.
    pub positives: Vec<TitledText>,
    /// The negative passages, the hardest first.
    pub negatives: Vec<TitledText>,
}

impl ContrastExample {
    /// All passages: the positive passages, then the negative passages.
    pub fn passages(&self) -> impl Iterator<Item = &TitledText> {
        self.positives.iter().chain(&self.negatives)
    }
}
