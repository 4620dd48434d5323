//! Queries for systems, their predictions, and examples with gold for scoring only.

use serde_json::{Map, Value, json};

use crate::{Dataset, Id, Output, Provenance, Record};

/// A query for a system. It cannot hold gold, so gold cannot leak into a prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// The record's id.
    pub id: Id,
    /// The input, or another form of it for retrieval; never empty.
    pub text: String,
    /// The input, if `text` is another form of it.
    pub original: Option<String>,
    /// The dataset, if known.
    pub dataset: Option<Dataset>,
    /// The mention of an entity-linking query, between `[START_ENT]` and `[END_ENT]`.
    pub mention: Option<String>,
    /// Zero-shot RE's template questions, which test files also have.
    pub template_questions: Vec<String>,
    /// What a client tells the model for this query alone, after the generator's own instruction. Generators without an
    /// instruction do not read it.
    pub instruction: Option<String>,
}

/// Splits an input into the text before, in and after its tagged mention.
pub fn split_mention(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("[START_ENT]")?;
    let (mention, after) = rest.split_once("[END_ENT]")?;
    Some((before, mention.trim(), after))
}

impl Query {
    /// A query from a text alone.
    pub fn of_text(id: impl Into<Id>, text: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            text: text.into(),
            original: None,
            dataset: None,
            mention: None,
            template_questions: Vec::new(),
            instruction: None,
        }
    }
}

impl Query {
    /// The record's input.
    pub fn input(&self) -> &str {
        self.original.as_deref().unwrap_or(&self.text)
    }

    /// The query of a record.
    ///
    /// # Errors
    /// The name of the wrong field and the problem: a missing or blank `input` (TriviaQA before its questions are joined).
    pub fn from_record(record: &Record, dataset: Option<Dataset>) -> Result<Self, (&'static str, String)> {
        let text = record.input.as_deref().unwrap_or_default();
        if text.trim().is_empty() {
            let what = if record.input.is_none() { "is missing" } else { "is empty" };
            let hint = if dataset == Some(Dataset::TriviaQa) {
                "; join TriviaQA's questions first: `sporran convert files --from kilt --to kilt --triviaqa QUESTIONS --output OUT IN`"
            } else {
                ""
            };
            return Err(("input", format!("expected the query's text, but it {what}{hint}")));
        }
        let templates =
            record.meta.as_ref().and_then(|meta| meta.get("template_questions")).and_then(Value::as_array);
        let template_questions =
            templates.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        let mention = split_mention(text).map(|(_, mention, _)| mention.to_owned());
        let (id, text) = (record.id.clone(), text.to_owned());
        Ok(Self { id, text, original: None, dataset, mention, template_questions, instruction: None })
    }
}

/// A query with its gold, for training and scoring only.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// The query.
    pub query: Query,
    /// The gold outputs.
    pub gold: Vec<Output>,
}

impl Example {
    /// The distinct gold answers: trimmed, not empty, in the file's order.
    pub fn answers(&self) -> Vec<&str> {
        let mut answers: Vec<&str> = Vec::new();
        for answer in self.gold.iter().filter_map(|output| output.answer.as_deref()).map(str::trim) {
            if !answer.is_empty() && !answers.contains(&answer) {
                answers.push(answer);
            }
        }
        answers
    }
}

/// A system's answer to one query, with its evidence, best first.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The record's id.
    pub id: Id,
    /// The answer; possibly empty.
    pub answer: String,
    /// The evidence, best first.
    pub provenance: Vec<Provenance>,
}

impl Prediction {
    /// The record for KILT's scorers: exactly one output.
    pub fn into_record(self, input: Option<String>) -> Record {
        let output =
            Output { answer: Some(self.answer), provenance: Some(self.provenance), extra: Map::new() };
        Record { id: self.id, input, output: Some(vec![output]), meta: None, extra: Map::new() }
    }
}

/// Adds the retriever's score and the passage's text to a provenance item, as KILT's `*_in_context` scores
/// require.
pub fn with_context(mut item: Provenance, text: &str, score: f32) -> Provenance {
    item.extra.insert("score".into(), json!(score));
    item.extra.insert("text".into(), json!(text));
    item
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_input_is_an_error_that_names_the_field() {
        let record: Record = serde_json::from_str(r#"{"id":"tc_1","output":[{"answer":"a"}]}"#).unwrap();
        let (field, message) = Query::from_record(&record, Some(Dataset::TriviaQa)).unwrap_err();
        assert_eq!(field, "input");
        assert!(message.contains("--triviaqa"), "{message}");
    }

    #[test]
    fn a_prediction_has_exactly_one_output() {
        let prediction = Prediction { id: 3i64.into(), answer: "a".into(), provenance: vec![] };
        let line = serde_json::to_string(&prediction.into_record(None)).unwrap();
        assert_eq!(line, r#"{"id":3,"output":[{"answer":"a","provenance":[]}]}"#);
    }
}
