//! Answers over a knowledge base.

use std::{path::Path, sync::Arc, time::Instant};

use sporran_kilt::{PassageStore, observe::Observer};
use sporran_pipeline::kbqa::{
    AskedQuestion, QuestionAnswer, QuestionAnswers, QuestionSystem, ReasonOptions, WeighedRelation,
};

use super::answer::{AnswerRequest, AnswerResponse, AnswerTrace, ProvenanceItem, TraceItem, TraceStep};
use crate::{
    Failure, Limits, Result,
    work::{Setting, Worker, size},
};

/// Answers questions over a knowledge base, with a thread.
pub(crate) struct Questioning {
    name: String,
    reads_documents: bool,
    store: Option<Arc<PassageStore>>,
    worker: Worker<AskedQuestion, QuestionAnswers>,
    limits: Limits,
}

impl Questioning {
    /// Opens the knowledge base and the model of a config of the workflow `kbqa`, after its training, and starts a thread.
    ///
    /// # Errors
    /// Errors of the config, the knowledge base and the model, and a system without threads.
    pub(crate) fn open(config: &Path, setting: &Setting, observe: &mut Observer<'_>) -> Result<Self> {
        let options = ReasonOptions::load_for_questions(config, &[])?;
        let system = QuestionSystem::open(&options, observe)?;
        let (name, reads_documents) = (system.name().to_owned(), system.reads_documents());
        let store = system.store().map(Arc::clone);
        let worker = setting.worker(&format!("reason {name}"), move |items: &[AskedQuestion]| {
            system.answer(items.to_vec()).map_err(Failure::internal)
        })?;
        Ok(Self { name, reads_documents, store, worker, limits: setting.limits })
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Answers a question.
    ///
    /// # Errors
    /// A blank question, a document that is missing or not read, too many answers, a full queue, and errors of the model.
    pub(crate) async fn answer(&self, request: &AnswerRequest) -> Result<AnswerResponse, Failure> {
        let begin = Instant::now();
        let AnswerRequest { question, document, topics, top, trace, mount: _ } = request;
        if question.trim().is_empty() {
            return Err(Failure::invalid("question", "`question`: expected a question, found a blank text"));
        }
        let name = &self.name;
        let document_is_wrong = |message| Err(Failure::invalid("document", message));
        match document {
            None if self.reads_documents => {
                return document_is_wrong(format!(
                    "`document`: is missing; `{name}` answers questions about a document"
                ));
            }
            Some(_) if !self.reads_documents => {
                return document_is_wrong(format!(
                    "`document`: expected none, as `{name}` reads no document"
                ));
            }
            _ => {}
        }
        let most = self.limits.checked("top", *top)?;
        let asked = AskedQuestion {
            question: question.clone(),
            document: document.clone(),
            topics: topics.clone(),
            most,
        };
        let tokens = size(question) + document.as_deref().map_or(0, size);
        let found = self.worker.one(asked, tokens).await?;
        let trace = trace.then(|| AnswerTrace { steps: steps(&found) });
        Ok(AnswerResponse {
            mount: name.clone(),
            question: question.clone(),
            answer: found.text(),
            is_generated: found.is_generated,
            sentences: Vec::new(),
            provenance: ProvenanceItem::all(found.passages, self.store.as_deref()),
            entities: Some(found.answers),
            trace,
            seconds: begin.elapsed().as_secs_f64(),
        })
    }
}

/// The relations of each step of the model, those with the largest weights first, and the answers with the rest of the time.
fn steps(found: &QuestionAnswers) -> Vec<TraceStep> {
    let relation = |WeighedRelation { relation, backward, weight }: &WeighedRelation| {
        let text = if *backward { format!("{relation} (backward)") } else { relation.clone() };
        TraceItem { text: Some(text), score: Some(*weight), ..TraceItem::default() }
    };
    let times = found.step_seconds.iter().copied().chain(std::iter::repeat(0.0));
    let relations = found.steps.iter().zip(times).enumerate().map(|(at, (relations, seconds))| TraceStep {
        name: format!("relation {}", at + 1),
        seconds,
        items: relations.iter().map(relation).collect(),
        ..TraceStep::default()
    });
    let mut steps: Vec<TraceStep> = relations.collect();
    let rest = found.seconds - steps.iter().map(|step| step.seconds).sum::<f64>();
    let answer = |QuestionAnswer { answer, confidence, .. }: &QuestionAnswer| TraceItem {
        text: Some(answer.clone()),
        score: Some(*confidence),
        ..TraceItem::default()
    };
    steps.push(TraceStep {
        name: "answer".into(),
        seconds: rest.max(0.0),
        items: found.answers.iter().map(answer).collect(),
        ..TraceStep::default()
    });
    steps
}
