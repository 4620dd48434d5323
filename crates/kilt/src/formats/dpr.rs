//! The JSON of DPR (Karpukhin et al., 2020) and FiD (Izacard and Grave, 2021): training data and retrieval results.
//!
//! Both are arrays, read element by element with [`elements`](super::elements); results come as JSON lines too.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Number, Value};

use super::Document;
use crate::{Id, open_record::open_record};

/// A score: a number, or a number in quotes as in DPR's results.
#[derive(Clone, Debug, PartialEq)]
pub enum Score {
    /// A JSON number.
    Number(Number),
    /// A number in quotes.
    Text(String),
}

impl Score {
    /// The value; finite.
    pub fn value(&self) -> f64 {
        match self {
            // serde_json's numbers have a value, and `Text` was validated by parsing.
            Self::Number(number) => number.as_f64().unwrap_or_default(),
            Self::Text(text) => text.trim().parse().unwrap_or_default(),
        }
    }
}

impl TryFrom<f64> for Score {
    type Error = String;

    fn try_from(value: f64) -> Result<Self, String> {
        Number::from_f64(value)
            .map(Self::Number)
            .ok_or_else(|| format!("expected a finite score, found {value}"))
    }
}

impl Serialize for Score {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => number.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for Score {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Score;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a finite number, bare or in quotes")
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Score, E> {
                Ok(Score::Number(value.into()))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Score, E> {
                Ok(Score::Number(value.into()))
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Score, E> {
                Score::try_from(value).map_err(E::custom)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Score, E> {
                match text.trim().parse::<f64>() {
                    Ok(value) if value.is_finite() => Ok(Score::Text(text.to_owned())),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// A question of DPR's training data, `{biencoder-..}-{train,dev}.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingExample {
    /// The text of the query.
    pub question: String,
    /// All right answers, if known: trainings of a retriever do not read them.
    pub answers: Option<Vec<String>>,
    /// Passages that hold the answer.
    pub positive_ctxs: Vec<TrainingContext>,
    /// Passages of other questions.
    pub negative_ctxs: Option<Vec<TrainingContext>>,
    /// Highly ranked passages of a retriever without the answer.
    pub hard_negative_ctxs: Option<Vec<TrainingContext>>,
    /// Fields beyond these, such as `dataset`.
    pub extra: Map<String, Value>,
}

open_record!(TrainingExample,
    required { question = "question" },
    optional { answers = "answers" },
    required { positive_ctxs = "positive_ctxs" },
    optional { negative_ctxs = "negative_ctxs", hard_negative_ctxs = "hard_negative_ctxs" }
);

/// A passage of DPR's training data.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingContext {
    /// The page's title.
    pub title: String,
    /// The text.
    pub text: String,
    /// The retriever's score.
    pub score: Option<Score>,
    /// The passage's id in the corpus.
    pub passage_id: Option<Id>,
    /// The same in files made from DPR's results.
    pub psg_id: Option<Id>,
    /// Fields beyond these, such as `title_score`.
    pub extra: Map<String, Value>,
}

open_record!(TrainingContext,
    required { title = "title", text = "text" },
    optional { score = "score", passage_id = "passage_id", psg_id = "psg_id" }
);

impl TrainingContext {
    /// The passage as a document of its corpus; none without an id.
    pub fn document(&self) -> Option<Document> {
        document(self.passage_id.as_ref().or(self.psg_id.as_ref()), &self.title, &self.text)
    }
}

impl TrainingExample {
    /// All passages, each with the name of its list and its index there, from 0.
    pub fn contexts(&self) -> impl Iterator<Item = (&'static str, usize, &TrainingContext)> {
        let lists = [
            ("positive_ctxs", Some(&self.positive_ctxs)),
            ("negative_ctxs", self.negative_ctxs.as_ref()),
            ("hard_negative_ctxs", self.hard_negative_ctxs.as_ref()),
        ];
        lists.into_iter().flat_map(|(list, contexts)| {
            contexts.into_iter().flatten().enumerate().map(move |(at, context)| (list, at, context))
        })
    }
}

/// A question with retrieved passages: DPR's results, FiD's input.
#[derive(Clone, Debug, PartialEq)]
pub struct RetrievedExample {
    /// The question's id; DPR writes none.
    pub id: Option<Id>,
    /// The text of the query.
    pub question: String,
    /// All right answers; none for a test set.
    pub answers: Option<Vec<String>>,
    /// The passages, best first.
    pub ctxs: Vec<RetrievedContext>,
    /// Fields beyond these, such as FiD's `target`.
    pub extra: Map<String, Value>,
}

open_record!(RetrievedExample,
    required { question = "question", ctxs = "ctxs" },
    optional { id = "id", answers = "answers" }
);

/// A retrieved passage.
#[derive(Clone, Debug, PartialEq)]
pub struct RetrievedContext {
    /// The passage's id in the corpus.
    pub id: Option<Id>,
    /// The page's title.
    pub title: String,
    /// The text.
    pub text: String,
    /// The retriever's score.
    pub score: Option<Score>,
    /// Whether the text contains an answer.
    pub has_answer: Option<bool>,
    /// Fields beyond these.
    pub extra: Map<String, Value>,
}

open_record!(RetrievedContext,
    required { title = "title", text = "text" },
    optional { id = "id", score = "score", has_answer = "has_answer" }
);

impl RetrievedExample {
    /// The question's id. In a file without ids, as DPR writes it, it is the place of the question, from 0.
    pub fn id_at(&self, place: usize) -> Id {
        self.id.clone().unwrap_or_else(|| Id::Text(place.to_string()))
    }
}

impl RetrievedContext {
    /// The passage as a document of its corpus; none without an id.
    pub fn document(&self) -> Option<Document> {
        document(self.id.as_ref(), &self.title, &self.text)
    }
}

fn document(id: Option<&Id>, title: &str, text: &str) -> Option<Document> {
    let id = id?.text().into_owned();
    let (title, text) = (title.to_owned(), text.to_owned());
    (!id.is_empty()).then(|| Document { id, title, text, metadata: Map::new() })
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use super::*;
    use crate::formats::elements;

    fn survives<T: Serialize + DeserializeOwned>(text: &str) -> T {
        let value: T = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_value(&value).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        value
    }

    const TRAINING: &str = r#"{"dataset":"nq_train","question":"big little lies how many episodes","answers":["seven"],
        "positive_ctxs":[{"title":"T","text":"x","score":1000,"title_score":1,"passage_id":"18768923"}],
        "negative_ctxs":[{"title":"U","text":"y","score":0.5,"title_score":0,"passage_id":7}],
        "hard_negative_ctxs":[{"title":"V","text":"z","score":"81.30","psg_id":"3"}]}"#;

    #[test]
    fn unknown_fields_and_the_form_of_scores_survive() {
        let example: TrainingExample = survives(TRAINING);
        let ids: Vec<String> =
            example.contexts().map(|(_, _, context)| context.document().unwrap().id).collect();
        assert_eq!(ids, ["18768923", "7", "3"]);
        let score = example.hard_negative_ctxs.unwrap()[0].score.clone().unwrap();
        assert_eq!((score.value(), score), (81.3, Score::Text("81.30".into())));
        let found: RetrievedExample = survives(
            r#"{"id":"q1","question":"q","target":"a","answers":["a"],"ctxs":[{"id":"wiki:12","title":"T","text":"x","score":"1.5","has_answer":true,"x":null}]}"#,
        );
        assert_eq!(found.ctxs[0].document().unwrap().id, "wiki:12");
        survives::<RetrievedExample>(r#"{"question":"q","answers":null,"ctxs":[{"title":"","text":""}]}"#);
    }

    #[test]
    fn errors_name_file_line_and_field() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.json");
        let message = |text: String, training: bool| {
            std::fs::write(&path, text).unwrap();
            let elements = elements::open(&path).unwrap();
            let error = if training {
                elements.records::<TrainingExample>().find_map(Result::err)
            } else {
                elements.records::<RetrievedExample>().find_map(Result::err)
            };
            error.expect("an error").to_string()
        };
        // Trainings of retrievers have no answers.
        survives::<TrainingExample>(r#"{"question":"q","positive_ctxs":[{"title":"T","text":"x"}]}"#);
        let cases = [
            (r#""score":1000"#, r#""score":"high""#, "train.json:2: field `[0].positive_ctxs[0].score`: "),
            (r#""score":0.5"#, r#""score":"inf""#, "train.json:3: field `[0].negative_ctxs[0].score`: "),
            (
                r#""psg_id":"3""#,
                r#""psg_id":[3]"#,
                "train.json:4: field `[0].hard_negative_ctxs[0].psg_id`: ",
            ),
            (r#""title":"T","#, "", "field `[0].positive_ctxs[0]`: missing field `title`"),
            (r#""answers":["seven"]"#, r#""answers":"seven""#, "field `[0].answers`: "),
        ];
        for (good, bad, expected) in cases {
            assert!(TRAINING.contains(good));
            let message = message(format!("[{}]", TRAINING.replace(good, bad)), true);
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
        let cases = [
            (r#"[{"question":"q"}]"#, "field `[0]`: missing field `ctxs`"),
            (r#"{"question":"q","ctxs":[{"title":"T"}]}"#, "field `ctxs[0]`: missing field `text`"),
            (
                r#"{"question":"q","ctxs":[{"title":"T","text":"x","has_answer":1}]}"#,
                "field `ctxs[0].has_answer`: ",
            ),
        ];
        for (text, expected) in cases {
            let message = message(text.to_owned(), false);
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
    }
}
