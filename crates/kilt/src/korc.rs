//! KoRC: questions that need both a text and a knowledge base (Yao et al., 2023).

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Error, Id, Provenance, Result, formats::elements, jsonl, open_record::open_record};

/// The prefix of an inverse relation, such as `Inv: P527`, as figure 5 of the paper writes it.
pub const INVERSE: &str = "Inv: ";

/// The field with the text that [`Question::append`] appended.
const APPENDED: &str = "appended";

/// The version of the questions, by who wrote them (section 3.3 of the paper).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Version {
    /// KoRC-T: `template_question`, from a template.
    Template,
    /// KoRC-H: `question`, by a person.
    #[default]
    Human,
    /// KoRC-L: `gpt_best_question`, by a language model.
    Llm,
}

impl Version {
    /// All versions.
    pub const ALL: [Self; 3] = [Self::Template, Self::Human, Self::Llm];

    /// The field of a file.
    pub fn field(self) -> &'static str {
        match self {
            Self::Template => "template_question",
            Self::Human => "question",
            Self::Llm => "gpt_best_question",
        }
    }

    /// The name in configs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Template => "template",
            Self::Human => "human",
            Self::Llm => "llm",
        }
    }

    /// A question's text; `None` if it is missing or blank.
    pub fn of(self, question: &Question) -> Option<&str> {
        let text = match self {
            Self::Template => question.template_question.as_deref(),
            Self::Human => Some(question.question.as_str()),
            Self::Llm => question.gpt_best_question.as_deref(),
        };
        text.filter(|text| !text.trim().is_empty())
    }

    /// Whether this is the default.
    pub fn is_human(&self) -> bool {
        *self == Self::Human
    }
}

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

    /// Appends a text to the document, after a space. It stays where the document is cut.
    pub fn append(&mut self, text: &str) {
        let whole = format!("{} {text}", self.document());
        self.extra.insert(APPENDED.to_owned(), format!(" {text}").into());
        (self.context, self.text) = (Some(whole), None);
    }

    /// The document in two parts: the text that may be cut, and the end that stays. The end is empty but after
    /// [`append`](Self::append).
    pub fn document_parts(&self) -> (&str, &str) {
        let document = self.document();
        let appended = self.extra.get(APPENDED).and_then(Value::as_str).unwrap_or_default();
        match document.strip_suffix(appended) {
            Some(text) => document.split_at(text.len()),
            None => (document, ""),
        }
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

    /// The relation of the question triple, with [`INVERSE`] for an inverse one. KoRC's files lack it;
    /// benchmarks that Sporran builds have it.
    pub fn relation(&self) -> Option<&str> {
        self.extra.get("relation").and_then(Value::as_str)
    }

    /// The name of the relation, or else its id.
    pub fn relation_label(&self) -> Option<&str> {
        self.extra.get("relation_label").and_then(Value::as_str).or_else(|| self.relation())
    }

    /// The document before anonymisation: `document_id`, or else the title, or else the text.
    pub fn document_key(&self) -> &str {
        let id = self.extra.get("document_id").and_then(Value::as_str);
        id.or(self.title.as_deref()).unwrap_or_else(|| self.document())
    }
}

/// Reads a file: one list of questions.
///
/// # Errors
/// Read errors, with line and field; the same id twice; a blank question.
pub fn load(path: impl AsRef<Path>) -> Result<Vec<Question>> {
    load_version(path, Version::Human)
}

/// Reads a file with the questions of a version in [`Question::question`].
///
/// # Errors
/// Those of [`load`]; [`Error::Record`] for a question without this version, also a blank one.
pub fn load_version(path: impl AsRef<Path>, version: Version) -> Result<Vec<Question>> {
    let path = path.as_ref();
    let mut questions: Vec<Question> = Vec::new();
    let mut seen = rustc_hash::FxHashSet::default();
    for (at, record) in elements::open(path)?.records::<Question>().enumerate() {
        let (line, mut question) = record?;
        let wrong =
            |field: &str, message: String| Err(Error::record(path, line, format!("[{at}].{field}"), message));
        if !seen.insert(question.id.clone()) {
            return wrong("id", format!("expected different ids, found `{}` twice", question.id));
        }
        if version != Version::Human {
            let Some(text) = version.of(&question).map(str::to_owned) else {
                let message = format!("expected a question of version `{}`, found none", version.name());
                return wrong(version.field(), message);
            };
            question.question = text;
        } else if question.question.trim().is_empty() {
            return wrong("question", "expected a question, found a blank text".to_owned());
        }
        questions.push(question);
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
    fn a_version_is_read_from_its_field_and_must_be_there() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "[{\"id\":1,\"question\":\"h\",\"template_question\":\"t\",\"gpt_best_question\":\"l\"},\n\
                    {\"id\":2,\"question\":\"h\",\"template_question\":\"t\",\"gpt_best_question\":null}]";
        std::fs::write(file.path(), text).unwrap();
        let asked = |version| -> Vec<String> {
            load_version(file.path(), version)
                .unwrap()
                .into_iter()
                .map(|question| question.question)
                .collect()
        };
        assert_eq!(
            (asked(Version::Human), asked(Version::Template)),
            (vec!["h".into(); 2], vec!["t".into(); 2])
        );
        let message = load_version(file.path(), Version::Llm).unwrap_err().to_string();
        assert!(message.contains(":2: ") && message.contains("[1].gpt_best_question"), "{message}");
        assert!(message.contains("version `llm`"), "{message}");
        for version in Version::ALL {
            assert_eq!(serde_json::to_value(version).unwrap(), version.name());
        }
    }

    #[test]
    fn ids_must_differ() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), r#"[{"id":1,"question":"a"},{"id":"1","question":"b"}]"#).unwrap();
        let message = load(file.path()).unwrap_err().to_string();
        assert!(message.contains("field `[1].id`") && message.contains("`1` twice"), "{message}");
    }
}
