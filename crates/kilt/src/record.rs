//! KILT's task record: a query with its gold, or a query with a prediction.

use serde_json::{Map, Value};

use crate::{Id, open_record::open_record};

/// One line of a task or prediction file.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Unique in its file.
    pub id: Id,
    /// The input; TriviaQA's files lack it.
    pub input: Option<String>,
    /// Gold or predicted outputs; test files lack them.
    pub output: Option<Vec<Output>>,
    /// Fields of the dataset, such as `template_questions`.
    pub meta: Option<Value>,
    /// Fields that KILT does not define.
    pub extra: Map<String, Value>,
}

open_record!(Record, required { id = "id" }, optional { input = "input", output = "output", meta = "meta" });

impl Record {
    /// The outputs, none if the field is missing.
    pub fn outputs(&self) -> &[Output] {
        self.output.as_deref().unwrap_or_default()
    }
}

/// One gold or predicted output: an answer, evidence, or both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The answer's text.
    pub answer: Option<String>,
    /// The evidence.
    pub provenance: Option<Vec<Provenance>>,
    /// Fields that KILT does not define.
    pub extra: Map<String, Value>,
}

open_record!(Output, required {}, optional { answer = "answer", provenance = "provenance" });

impl Output {
    /// The evidence, none if the field is missing.
    pub fn evidence(&self) -> &[Provenance] {
        self.provenance.as_deref().unwrap_or_default()
    }
}

/// A span of a page of the knowledge source.
///
/// Paragraphs count from 0 (the title); characters count Unicode scalar values, the end is exclusive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Provenance {
    /// The page.
    pub wikipedia_id: Option<Id>,
    /// The page's title.
    pub title: Option<String>,
    /// The header above the span.
    pub section: Option<String>,
    /// The paragraph in which it starts.
    pub start_paragraph_id: Option<Id>,
    /// Its first character in that paragraph.
    pub start_character: Option<Id>,
    /// The paragraph in which it ends.
    pub end_paragraph_id: Option<Id>,
    /// The character after its last in that paragraph.
    pub end_character: Option<Id>,
    /// How well the span matches the dataset's own evidence, 0 to 1.
    pub bleu_score: Option<f64>,
    /// Fields of the dataset.
    pub meta: Option<Value>,
    /// Fields that KILT does not define, `text` and `score` of a prediction among them.
    pub extra: Map<String, Value>,
}

open_record!(Provenance, required {}, optional {
    wikipedia_id = "wikipedia_id",
    title = "title",
    section = "section",
    start_paragraph_id = "start_paragraph_id",
    start_character = "start_character",
    end_paragraph_id = "end_paragraph_id",
    end_character = "end_character",
    bleu_score = "bleu_score",
    meta = "meta"
});

impl Provenance {
    /// The span's text, if the item has it.
    pub fn text(&self) -> Option<&str> {
        self.extra.get("text")?.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_null_fields_survive_a_round_trip() {
        let line = r#"{"id":7,"input":"q","output":[{"answer":null,"provenance":[{"wikipedia_id":"3","title":"T","start_paragraph_id":1,"bleu_score":1.0,"strange":[1,{"a":2}]}],"rank":1}],"meta":{},"split":"dev"}"#;
        let record: Record = serde_json::from_str(line).unwrap();
        assert_eq!(record.outputs()[0].answer, None);
        let again: Value = serde_json::to_value(&record).unwrap();
        assert_eq!(again, serde_json::from_str::<Value>(line).unwrap());
    }

    #[test]
    fn a_record_needs_an_id_only() {
        assert!(serde_json::from_str::<Record>(r#"{"id":"x"}"#).is_ok());
        let message = serde_json::from_str::<Record>(r#"{"input":"q"}"#).unwrap_err().to_string();
        assert!(message.contains("missing field `id`"), "{message}");
    }
}
