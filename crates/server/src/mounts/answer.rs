//! Questions and answers in JSON.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::PassageStore;
use sporran_pipeline::{
    kbqa::QuestionAnswer,
    workflows::answer::{CitedAnswer, CitedPassage, CitedSentence},
};
use sporran_retriever::Trace;

use super::document::document_id;

/// A question.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerRequest {
    /// The question.
    pub(crate) question: String,
    /// The mount that answers; the first one that can by default.
    #[serde(default)]
    pub(crate) mount: Option<String>,
    /// The document that the question is about, for a mount of questions over a knowledge base.
    #[serde(default)]
    pub(crate) document: Option<String>,
    /// The ids of the entities that the question is about, for a mount whose model is given them.
    #[serde(default)]
    pub(crate) topics: Vec<String>,
    /// The largest number of passages in the provenance, or of entities.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub(crate) top: Option<usize>,
    /// Whether the response has the steps that led to the answer.
    #[serde(default)]
    pub(crate) trace: bool,
}

/// An answer with its provenance.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct AnswerResponse {
    /// The mount that answered.
    pub(crate) mount: String,
    /// The question.
    pub(crate) question: String,
    /// The answer with its citations, such as `[1]`; empty without a generator. `[?]` follows a sentence that no passage
    /// supports. Of a knowledge base, the labels of the entities with commas between them.
    pub(crate) answer: String,
    /// Whether a generator wrote the answer.
    pub(crate) is_generated: bool,
    /// The sentences of the answer.
    pub(crate) sentences: Vec<AnswerSentence>,
    /// The best passages, best first. Of a knowledge base, the passages that the model read.
    pub(crate) provenance: Vec<ProvenanceItem>,
    /// The answers of a mount of questions over a knowledge base, best first, each with the triples that support it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) entities: Option<Vec<QuestionAnswer>>,
    /// The steps that led to the answer, if the request asks for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<AnswerTrace>,
    /// The time of the answer.
    pub(crate) seconds: f64,
}

/// A sentence of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct AnswerSentence {
    /// The text, without citations.
    pub(crate) text: String,
    /// The numbers of the passages that support it.
    pub(crate) citations: Vec<usize>,
    /// Whether a passage supports it. A sentence without content words needs no support.
    pub(crate) supported: bool,
}

impl From<CitedSentence> for AnswerSentence {
    fn from(CitedSentence { text, citations, supported }: CitedSentence) -> Self {
        Self { text, citations, supported }
    }
}

/// A passage as provenance. All offsets count Unicode scalar values.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct ProvenanceItem {
    /// The number by which citations name it, from 1.
    pub(crate) number: usize,
    /// The id of the passage: `GET /v1/{index}/doc/{id}` has it.
    pub(crate) id: String,
    /// The id of the document: `GET /v1/{index}/doc/{document}` has all its paragraphs.
    pub(crate) document: String,
    /// The title of the document.
    pub(crate) title: String,
    /// The file, if the document comes from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    /// The page of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) page: Option<u64>,
    /// The line of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u64>,
    /// The row of a table whose file has no lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) row: Option<u64>,
    /// The id of the page, if the document comes from a knowledge source and not from a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wikipedia_id: Option<String>,
    /// The section; empty for the text before the first heading.
    pub(crate) section: String,
    /// The paragraph in which the passage starts.
    pub(crate) paragraph: u32,
    /// The first character in that paragraph.
    pub(crate) start: u32,
    /// The paragraph in which the passage ends.
    pub(crate) end_paragraph: u32,
    /// The character after the last one in the paragraph in which the passage ends.
    pub(crate) end: u32,
    /// The text.
    pub(crate) text: String,
    /// The sentence of the text that supports the answer best: its first character and the one after its last.
    pub(crate) highlight: [usize; 2],
    /// The score of the retriever or the reranker.
    pub(crate) score: f32,
}

impl ProvenanceItem {
    /// Passages of a store, numbered in their order.
    pub(super) fn all(found: Vec<CitedPassage>, store: Option<&PassageStore>) -> Vec<Self> {
        let item = |(at, found)| Some(Self::new(at + 1, found, store?));
        found.into_iter().enumerate().filter_map(item).collect()
    }

    fn new(number: usize, found: CitedPassage, store: &PassageStore) -> Self {
        let CitedPassage {
            file,
            page,
            section,
            paragraph,
            start,
            end,
            text,
            score,
            title,
            line,
            row,
            highlight,
            ..
        } = found;
        let document = store.page_id(store.page_of(found.id)).into_owned();
        let characters = |bytes: usize| text.get(..bytes).map_or(0, |text| text.chars().count());
        let highlight = [characters(highlight.start), characters(highlight.end)];
        let (file, wikipedia_id) = match found.has_file {
            true => (Some(file), None),
            false => (None, Some(document.clone())),
        };
        let (id, end_paragraph) = (document_id(store, found.id), found.end_paragraph);
        Self {
            number,
            id,
            document,
            title,
            file,
            page,
            line,
            row,
            wikipedia_id,
            section,
            paragraph,
            start,
            end_paragraph,
            end,
            text,
            highlight,
            score,
        }
    }
}

impl AnswerResponse {
    /// The response of an answer, without a trace and its time. Without a store there is no provenance.
    pub(crate) fn new(mount: &str, answer: CitedAnswer, store: Option<&PassageStore>) -> Self {
        let CitedAnswer { question, answer, evidence, sentences, is_generated } = answer;
        let provenance = ProvenanceItem::all(evidence, store);
        let sentences = sentences.into_iter().map(AnswerSentence::from).collect();
        Self {
            mount: mount.to_owned(),
            question,
            answer,
            is_generated,
            sentences,
            provenance,
            entities: None,
            trace: None,
            seconds: 0.0,
        }
    }
}

/// The steps that led to an answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct AnswerTrace {
    /// The steps, in their order: searches, reranking, the prompt, the answer; or the relations of a knowledge base.
    pub(crate) steps: Vec<TraceStep>,
}

/// A step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct TraceStep {
    /// The name, such as `search`, `reranked`, `prompt` or `answer`.
    pub(crate) name: String,
    /// The time of this step. The steps of questions over a knowledge base have the time of all questions that were answered
    /// together.
    pub(crate) seconds: f64,
    /// The query of a search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) query: Option<String>,
    /// The number of tokens that a generator wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tokens: Option<usize>,
    /// The results, best first.
    pub(crate) items: Vec<TraceItem>,
}

/// A result of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct TraceItem {
    /// The id of a passage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    /// The title of its document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    /// The score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) score: Option<f32>,
    /// The text of a prompt or an answer, or the label of a relation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
}

impl AnswerTrace {
    /// The steps of a search of `seconds`. The searches that others build on come first.
    pub(crate) fn of_search(trace: Trace, most: usize, seconds: f64, store: &PassageStore) -> Self {
        let mut steps: Vec<TraceStep> = Vec::new();
        add(trace, most, store, &mut steps);
        let rest = seconds - steps.iter().map(|step| step.seconds).sum::<f64>();
        // The time between the steps is that of the last.
        if let Some(last) = steps.last_mut() {
            last.seconds += rest.max(0.0);
        }
        Self { steps }
    }

    /// Adds the answer of a generator as a step.
    pub(crate) fn wrote(&mut self, text: &str, tokens: usize, seconds: f64) {
        let items = vec![TraceItem { text: Some(text.to_owned()), ..TraceItem::default() }];
        let tokens = Some(tokens);
        self.steps.push(TraceStep { name: "answer".into(), seconds, query: None, tokens, items });
    }
}

fn add(trace: Trace, most: usize, store: &PassageStore, steps: &mut Vec<TraceStep>) {
    for part in trace.parts {
        add(part, most, store, steps);
    }
    let item = |hit: &sporran_kilt::Hit| TraceItem {
        id: Some(document_id(store, hit.passage)),
        title: Some(store.page_title(store.page_of(hit.passage)).to_owned()),
        score: Some(hit.score),
        text: None,
    };
    let items = trace.hits.iter().take(most).map(item).collect();
    let Trace { step, query, seconds, .. } = trace;
    steps.push(TraceStep { name: step, query: Some(query), seconds, items, ..TraceStep::default() });
}
