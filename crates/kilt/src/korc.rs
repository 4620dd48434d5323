//! KoRC: questions that need both a text and a knowledge base (Yao et al., 2023).

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Error, Id, Provenance, Result, jsonl, open_record::open_record};

/// A question about a text whose topic entity is not named in the question.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Unique in its file.
    pub id: Id,
    /// The question, written by a person.
    pub question: String,
    /// The document's title.
    pub title: Option<String>,
    /// The document.
    pub context: Option<String>,
    /// The document, as older files name it.
    pub text: Option<String>,
    /// The best question written by a language model.
    pub gpt_best_question: Option<String>,
    /// The question from a template.
    pub template_question: Option<String>,
    /// Labels of the gold answers.
    pub answers: Option<Vec<String>>,
    /// Wikidata ids of the gold answers.
    pub answer_ids: Option<Vec<String>>,
    /// Wikidata ids of the gold answers, as older files name them.
    pub ans_ids: Option<Vec<String>>,
    /// The Wikidata ids of the topic entities.
    pub topic_entity: Option<TopicEntity>,
    /// The source of the document in the knowledge source, in KILT's evidence layout. KoRC lacks it;
    /// benchmarks that Sporran builds from pages have it.
    pub provenance: Option<Vec<Provenance>>,
    /// Fields that KoRC does not define.
    pub extra: Map<String, Value>,
}

open_record!(Question, required { id = "id", question = "question" }, optional {
    title = "title",
    context = "context",
    text = "text",
    gpt_best_question = "gpt_best_question",
    template_question = "template_question",
    answers = "answers",
    answer_ids = "answer_ids",
    ans_ids = "ans_ids",
    topic_entity = "topic_entity",
    provenance = "provenance"
});

/// Wikidata ids: a list, or in older files one string.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TopicEntity {
    /// A list of ids.
    Many(Vec<String>),
    /// One id.
    One(String),
}

impl Question {
    /// The document under either of its names, empty without one.
    pub fn document(&self) -> &str {
        self.context.as_deref().or(self.text.as_deref()).unwrap_or_default()
    }

    /// The labels of the gold answers.
    pub fn labels(&self) -> &[String] {
        self.answers.as_deref().unwrap_or_default()
    }

    /// The Wikidata ids of the gold answers under either of their names.
    pub fn ids(&self) -> &[String] {
        self.answer_ids.as_deref().or(self.ans_ids.as_deref()).unwrap_or_default()
    }

    /// The Wikidata ids of the topic entities.
    pub fn topics(&self) -> &[String] {
        match &self.topic_entity {
            Some(TopicEntity::Many(ids)) => ids,
            Some(TopicEntity::One(id)) => std::slice::from_ref(id),
            None => &[],
        }
    }
}

/// Reads a file: one list of questions.
///
/// # Errors
/// Read errors, with line and field; the same id twice.
pub fn load(path: impl AsRef<Path>) -> Result<Vec<Question>> {
    let path = path.as_ref();
    let questions: Vec<Question> = jsonl::read_json(path)?;
    let mut seen = rustc_hash::FxHashSet::default();
    for (at, question) in questions.iter().enumerate() {
        if !seen.insert(&question.id) {
            let message = format!("expected different ids, found `{}` twice", question.id);
            return Err(Error::record(path, 1, format!("[{at}].id"), message));
        }
    }
    Ok(questions)
}

/// Writes a file.
///
/// # Errors
/// [`Error::Io`] if writing fails; then no file appears.
pub fn save(path: impl AsRef<Path>, questions: &[Question]) -> Result<()> {
    let mut writer = jsonl::Writer::create(path)?;
    writer.record(questions)?;
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_and_old_files_are_read_and_written_as_they_came() {
        let json = r#"[{"id":"1","question":"Where?","title":"T","context":"C","gpt_best_question":"g","template_question":"t","answers":["Rome"],"answer_ids":["Q220"],"topic_entity":["Q1"],"x":1},
            {"id":2,"text":"D","question":"Who?","answers":[],"ans_ids":["Q5"],"topic_entity":"Q2"}]"#;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("valid.json");
        jsonl::write(&path, json.as_bytes()).unwrap();
        let questions = load(&path).unwrap();
        assert_eq!((questions[0].document(), questions[1].document()), ("C", "D"));
        assert_eq!(
            (questions[0].topics(), questions[1].topics()),
            (&["Q1".to_owned()][..], &["Q2".to_owned()][..])
        );
        assert_eq!(
            (questions[1].ids(), questions[0].labels()),
            (&["Q5".to_owned()][..], &["Rome".to_owned()][..])
        );
        save(&path, &questions).unwrap();
        assert_eq!(jsonl::read_json::<Value>(&path).unwrap(), serde_json::from_str::<Value>(json).unwrap());
    }

    #[test]
    fn ids_must_differ() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), r#"[{"id":1,"question":"a"},{"id":"1","question":"b"}]"#).unwrap();
        let message = load(file.path()).unwrap_err().to_string();
        assert!(message.contains("field `[1].id`") && message.contains("`1` twice"), "{message}");
    }
}
