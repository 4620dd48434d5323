//! Predictions in KILT's layout: the answers to a question with their evidence.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use sporran_kilt::{
    Output, Provenance, Record,
    kb::{EntityId, KnowledgeBase, RelationId, Triple},
    korc::Question,
};
use sporran_reasoner::question::{Answered, TextAnswers};

use super::populated::{Evidence, Stated};
use crate::source::pages::Pages;

/// The separator of answers in a prediction's text, which is also that of the generators.
pub(super) const SEPARATOR: &str = ", ";

/// A knowledge base, the sentences of its extracted facts, and the pages of documents.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) kb: &'a KnowledgeBase,
    pub(super) evidence: &'a Evidence,
    pub(super) pages: &'a Pages,
}

/// An answer to a question over a knowledge base, with the triples that support it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct QuestionAnswer {
    /// The label of the entity, or the text of a generator.
    pub answer: String,
    /// The confidence, from 0 to 1.
    pub confidence: f32,
    /// The id of the entity in the knowledge base; `None` for a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wikidata_id: Option<String>,
    /// The mention in the document from which the model reached the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<Bridge>,
    /// The triples that support the answer; those of a model over the knowledge base are the path from the mention.
    pub triples: Vec<SupportingTriple>,
}

/// A mention in the document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Bridge {
    /// The id of its entity.
    pub entity: String,
    /// Its text.
    pub text: String,
    /// Its first character, in Unicode scalar values.
    pub start: usize,
    /// The character after its last one.
    pub end: usize,
}

/// A triple that supports an answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SupportingTriple {
    /// The labels of subject, relation and object.
    pub labels: [String; 3],
    /// Their ids.
    pub ids: [String; 3],
    /// The sentences from which `sporran populate` extracted it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Value>")]
    pub evidence: Vec<Stated>,
}

/// A relation that a model followed at a step, with its weight.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WeighedRelation {
    /// The label of the relation.
    pub relation: String,
    /// Whether it was followed from the object to the subject.
    pub backward: bool,
    /// The weight.
    pub weight: f32,
}

/// The single answers of a prediction.
pub(super) fn answers_of(record: &Record) -> Vec<&str> {
    let answers = record.meta.as_ref().and_then(|meta| meta["answers"].as_array());
    answers.into_iter().flatten().filter_map(|answer| answer["answer"].as_str()).collect()
}

impl Known<'_> {
    /// The prediction of a model over the knowledge base.
    pub(super) fn by_model(self, question: &Question, answered: &Answered) -> Record {
        let steps = self.steps(answered);
        let steps = (!steps.is_empty()).then(|| json!(steps));
        self.predicted(question, self.entities(question.document(), answered), steps)
    }

    /// The relations with the largest weights at each step of a model.
    pub(super) fn steps(self, answered: &Answered) -> Vec<Vec<WeighedRelation>> {
        let weighed = |(step, weight): &(sporran_reasoner::rules::Step, f32)| WeighedRelation {
            relation: self.kb.relation_label(RelationId(step.relation())).to_owned(),
            backward: step.is_backward(),
            weight: *weight,
        };
        answered.steps.iter().map(|step| step.iter().map(weighed).collect()).collect()
    }

    /// The answers of a model over the knowledge base.
    pub(super) fn entities(self, document: &str, answered: &Answered) -> Vec<QuestionAnswer> {
        let answers = answered.answers.iter().map(|answer| {
            let triples = answer
                .triples
                .iter()
                .map(|&(subject, relation, object)| Triple::new(subject, relation, object));
            let bridge = answer.bridge.map(|bridge| Bridge {
                entity: self.kb.entity_name(EntityId(bridge.entity)).to_owned(),
                text: document[bridge.start..bridge.end].to_owned(),
                start: document[..bridge.start].chars().count(),
                end: document[..bridge.end].chars().count(),
            });
            QuestionAnswer {
                wikidata_id: Some(self.kb.entity_name(answer.entity).to_owned()),
                bridge,
                ..self.supported_by(self.kb.label(answer.entity), answer.confidence, triples)
            }
        });
        answers.collect()
    }

    /// The answers of a model that generates them. Triples of the input with an answer as subject or object support it.
    pub(super) fn texts(self, texts: &TextAnswers) -> Vec<QuestionAnswer> {
        let answers = texts.answers.iter().map(|answer| {
            let names = |triple: &Triple| {
                [triple.subject, triple.object].iter().any(|&id| self.kb.label(id) == answer)
            };
            let read = texts.triples.iter().copied().filter(names);
            self.supported_by(answer, texts.score.exp().min(1.0), read)
        });
        answers.collect()
    }

    /// The prediction of a model that generates answers. The provenance ends with the retrieved passages.
    pub(super) fn by_text(self, question: &Question, texts: &TextAnswers) -> Record {
        let mut record = self.predicted(question, self.texts(texts), None);
        let output = record.output.iter_mut().flatten().next();
        if let Some(provenance) = output.and_then(|output| output.provenance.as_mut()) {
            for item in texts.passages.iter().map(|(passage, _)| passage.provenance()) {
                if !provenance.contains(&item) {
                    provenance.push(item);
                }
            }
        }
        record
    }

    fn supported_by(
        self,
        answer: &str,
        confidence: f32,
        triples: impl Iterator<Item = Triple>,
    ) -> QuestionAnswer {
        let Self { kb, evidence, .. } = self;
        let shown = |triple: Triple| {
            let Triple { subject, relation, object } = triple;
            let labels = [kb.label(subject), kb.relation_label(relation), kb.label(object)];
            let ids = [kb.entity_name(subject), kb.relation_name(relation), kb.entity_name(object)];
            SupportingTriple {
                labels: labels.map(str::to_owned),
                ids: ids.map(str::to_owned),
                evidence: evidence.of(triple).to_vec(),
            }
        };
        let triples = triples.map(shown).collect();
        QuestionAnswer { answer: answer.to_owned(), confidence, wikidata_id: None, bridge: None, triples }
    }

    /// A prediction with exactly one output, because KILT's scorers read only one. Its provenance is the
    /// document's page, then the pages with the sentences of the supporting triples.
    fn predicted(self, question: &Question, answers: Vec<QuestionAnswer>, steps: Option<Value>) -> Record {
        let mut provenance = self.document(question);
        let triples = answers.iter().flat_map(|answer| &answer.triples);
        for item in triples.flat_map(|triple| &triple.evidence).flat_map(|stated| &stated.provenance) {
            if !provenance.contains(item) {
                provenance.push(item.clone());
            }
        }
        let texts: Vec<String> = answers.iter().map(|answer| answer.answer.clone()).collect();
        let output =
            Output { answer: Some(texts.join(SEPARATOR)), provenance: Some(provenance), ..Output::default() };
        let mut meta = json!({ "answers": answers });
        let document = [
            ("title", question.title.as_ref().map(|title| json!(title))),
            ("id", question.extra.get("document_id").cloned()),
        ];
        let document: Map<String, Value> =
            document.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
        if !document.is_empty() {
            meta["document"] = Value::Object(document);
        }
        if let Some(steps) = steps {
            meta["steps"] = steps;
        }
        Record {
            id: question.id.clone(),
            input: Some(question.question.clone()),
            output: Some(vec![output]),
            meta: Some(meta),
            extra: Map::new(),
        }
    }

    /// The page of a question's document: the question's provenance, or the page of the document's title in the source.
    fn document(self, question: &Question) -> Vec<Provenance> {
        let given = question.provenance.iter().flatten();
        let given: Vec<Provenance> = given.filter(|item| item.wikipedia_id.is_some()).cloned().collect();
        if !given.is_empty() {
            return given;
        }
        let page = question.title.as_deref().and_then(|title| self.pages.titled(title));
        page.map(|page| self.pages.provenance(&page, Some(question.document()))).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(json: &str) -> Question {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn several_answers_are_one_output_and_none_is_an_empty_answer() {
        let (kb, evidence, pages) = Default::default();
        let known = Known { kb: &kb, evidence: &evidence, pages: &pages };
        let several = question(
            r#"{"id":"1","question":"Which?","title":"T","context":"C",
                "provenance":[{"wikipedia_id":"7","start_paragraph_id":1},{"title":"no page"}]}"#,
        );
        let texts = |answers: &[&str]| TextAnswers {
            answers: answers.iter().map(ToString::to_string).collect(),
            score: 0.0,
            triples: Vec::new(),
            passages: Vec::new(),
        };
        let made = known.by_text(&several, &texts(&["Rome", "Oslo"]));
        assert_eq!(answers_of(&made), ["Rome", "Oslo"]);
        let [output] = made.outputs() else { panic!("{made:?}") };
        assert_eq!(output.answer.as_deref(), Some("Rome, Oslo"));
        assert_eq!(output.evidence().len(), 1);
        assert_eq!(output.evidence()[0].wikipedia_id, Some("7".into()));
        let meta = made.meta.unwrap();
        assert_eq!(
            (&meta["answers"][1]["answer"], &meta["document"]["title"]),
            (&json!("Oslo"), &json!("T"))
        );
        let bare = question(r#"{"id":"1","question":"Which?"}"#);
        let made = known.by_text(&bare, &texts(&[]));
        let [output] = made.outputs() else { panic!("{made:?}") };
        assert_eq!((output.answer.as_deref(), output.provenance.as_deref()), (Some(""), Some(&[][..])));
    }
}
