//! Relation extraction as reading comprehension (Levy et al., 2017): a relation's question about an entity, a
//! sentence, and the answers in the sentence, if it has any.

use std::path::Path;

use crate::{Error, Result, jsonl};

/// The placeholder of the entity in a question.
const ENTITY: &str = "XXX";

/// A line: relation, question, entity, sentence and answers, separated by tabs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotQuestion {
    /// The relation.
    pub relation: String,
    /// The question, with `XXX` for the entity.
    pub template: String,
    /// The entity.
    pub entity: String,
    /// The sentence.
    pub sentence: String,
    /// The answers; empty if the sentence does not contain any.
    pub answers: Vec<String>,
}

impl SlotQuestion {
    /// The question about the entity.
    #[must_use]
    pub fn question(&self) -> String {
        self.template.replace(ENTITY, &self.entity)
    }
}

/// Reads a file.
///
/// # Errors
/// [`Error::Record`] for a line with fewer than four columns, an empty one, or a question without the placeholder;
/// [`Error::Empty`] for a file without lines.
pub fn load(path: impl AsRef<Path>) -> Result<Vec<SlotQuestion>> {
    let path = path.as_ref();
    let mut questions = Vec::new();
    for line in jsonl::open(path)?.lines() {
        let (number, line) = line?;
        let mut columns = line.split('\t');
        let mut column = |name: &str| match columns.next() {
            Some(text) if !text.trim().is_empty() => Ok(text.to_owned()),
            found => {
                let found = if found.is_some() { "nothing in it" } else { "none" };
                Err(Error::record(
                    path,
                    number,
                    name,
                    format!("expected a column between tabs, found {found}"),
                ))
            }
        };
        let (relation, template) = (column("relation")?, column("question")?);
        let (entity, sentence) = (column("entity")?, column("sentence")?);
        if !template.contains(ENTITY) {
            let message = format!("expected {ENTITY} where the entity stands, found {template:?}");
            return Err(Error::record(path, number, "question", message));
        }
        let answers = columns.filter(|answer| !answer.trim().is_empty()).map(Into::into).collect();
        questions.push(SlotQuestion { relation, template, entity, sentence, answers });
    }
    if questions.is_empty() {
        return Err(Error::Empty { path: path.into(), what: "question" });
    }
    Ok(questions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<SlotQuestion>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        load(file.path())
    }

    #[test]
    fn questions_are_read_with_and_without_answers() {
        let text = "author\tWho wrote XXX?\tEmma\tJane Austen wrote Emma.\tJane Austen\tAusten\n\
                    author\tWho wrote XXX?\tEmma\tEmma is long.\n";
        let found = read(text).unwrap();
        assert_eq!(found[0].question(), "Who wrote Emma?");
        assert_eq!((found[0].answers.len(), found[1].answers.len()), (2, 0));
    }

    #[test]
    fn lines_that_are_no_questions_are_refused_with_their_column() {
        for (text, expected) in [
            ("author\tWho wrote XXX?\tEmma\n", "`sentence`"),
            ("author\t\tEmma\tIt is.\n", "`question`"),
            ("author\tWho wrote it?\tEmma\tIt is.\n", "expected XXX"),
            ("", "question"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
