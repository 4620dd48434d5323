//! An opened config that answers questions over a knowledge base, for servers and other programs. It needs no run folder.

use std::{
    path::Path,
    sync::mpsc::{Receiver, Sender, channel},
    thread::{self, JoinHandle},
};

use sporran_kilt::{
    kb::KnowledgeBase,
    korc::{Question, TopicEntity},
    observe::Observer,
};
use sporran_reasoner::question::{Answers, Background, PassageFinder, Reasoner};

use super::{
    data,
    options::ReasonOptions,
    populated::Evidence,
    prediction::{Known, QuestionAnswer, SEPARATOR, WeighedRelation},
    retrieval::Passages,
    texts::outside,
};
use crate::{Error, Result, source::pages::Pages};

/// A question that is not in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AskedQuestion {
    /// The question.
    pub question: String,
    /// The document that it is about.
    pub document: Option<String>,
    /// The ids of the entities that the question is about, for a model that is given them.
    pub topics: Vec<String>,
    /// The largest number of answers; that of the config by default.
    pub most: Option<usize>,
}

/// The answers to a question.
#[derive(Clone, Debug, PartialEq)]
pub struct QuestionAnswers {
    /// The answers, best first.
    pub answers: Vec<QuestionAnswer>,
    /// The relations with the largest weights at each step; empty for a model without steps.
    pub steps: Vec<Vec<WeighedRelation>>,
    /// Whether a generator wrote the answers.
    pub is_generated: bool,
}

impl QuestionAnswers {
    /// The answers as one text, as in predictions.
    #[must_use]
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self.answers.iter().map(|answer| answer.answer.as_str()).collect();
        texts.join(SEPARATOR)
    }
}

/// Questions for the thread of a system, and where their answers go.
struct Job {
    asked: Vec<AskedQuestion>,
    reply: Sender<Result<Vec<QuestionAnswers>>>,
}

/// The knowledge base and the model of a config, ready to answer questions. They live in a separate thread, because the model
/// borrows the knowledge base.
pub struct QuestionSystem {
    name: String,
    reads_documents: bool,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl QuestionSystem {
    /// Opens the knowledge base, the passages and the model of a config. Builds a missing index. The files of `[data]` are not
    /// read.
    ///
    /// # Errors
    /// Errors of the knowledge base, the source, an index or the model.
    pub fn open(options: &ReasonOptions, observe: &mut Observer<'_>) -> Result<Self> {
        let passages = Passages::open(options, observe)?;
        let (kb, evidence) = data::knowledge(options)?;
        let (jobs, waiting) = channel();
        let (opened, is_open) = channel();
        let own = options.clone();
        let work = move || serve(&own, (&kb, &evidence), passages.as_ref(), &waiting, &opened);
        let thread = thread::Builder::new()
            .name(format!("reason {}", options.name))
            .spawn(work)
            .map_err(Error::io(Path::new(&options.name), "start of a thread"))?;
        is_open.recv().unwrap_or_else(|_| Err(ended()))?;
        Ok(Self {
            name: options.name.clone(),
            reads_documents: options.data.document,
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// The name of the config.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a question needs a document.
    #[must_use]
    pub fn reads_documents(&self) -> bool {
        self.reads_documents
    }

    /// Answers questions. Result `i` is that of `asked[i]`, independently of the others. A document is read as it is, and not at
    /// all if the config asks without documents.
    ///
    /// # Errors
    /// Errors of the model.
    pub fn answer(&self, asked: Vec<AskedQuestion>) -> Result<Vec<QuestionAnswers>> {
        let (reply, answers) = channel();
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(Job { asked, reply }).is_ok());
        if sent { answers.recv().unwrap_or_else(|_| Err(ended())) } else { Err(ended()) }
    }
}

impl Drop for QuestionSystem {
    fn drop(&mut self) {
        self.jobs = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::warn!("{}: the thread of the model panicked", self.name);
        }
    }
}

/// The error of a thread that panicked.
fn ended() -> Error {
    Error::io(Path::new("reasoner"), "answer")(std::io::Error::other("its thread has ended"))
}

/// Answers questions until their sender is gone. `opened` gets the result of the opening.
fn serve(
    options: &ReasonOptions,
    (kb, evidence): (&KnowledgeBase, &Evidence),
    passages: Option<&Passages>,
    jobs: &Receiver<Job>,
    opened: &Sender<Result<()>>,
) {
    let read = |path: &Path| {
        data::questions(&options.data, options.data.learned_version(), kb, path).map_err(outside)
    };
    let passages = passages.map(|passages| passages as &dyn PassageFinder);
    let reasoner = match options.reasoner.open(Background { kb, passages, read: &read }) {
        Ok(reasoner) => reasoner,
        Err(error) => {
            let _ = opened.send(Err(error.into()));
            return;
        }
    };
    let _ = opened.send(Ok(()));
    let pages = Pages::default();
    let known = Known { kb, evidence, pages: &pages };
    for Job { asked, reply } in jobs {
        // A caller that is gone needs no answer.
        let _ = reply.send(answer(options, known, &*reasoner, asked));
    }
}

fn answer(
    options: &ReasonOptions,
    known: Known<'_>,
    reasoner: &dyn Reasoner,
    asked: Vec<AskedQuestion>,
) -> Result<Vec<QuestionAnswers>> {
    let most: Vec<usize> = asked.iter().map(|asked| asked.most.unwrap_or(options.most_answers())).collect();
    let questions: Vec<Question> = asked.into_iter().map(|asked| question(options, asked)).collect();
    let found = reasoner.answer(&questions, most.iter().copied().max().unwrap_or_default())?;
    let answers = questions.iter().zip(found).zip(most).map(|((question, found), most)| {
        let mut answers = match &found {
            Answers::Entities(answered) => QuestionAnswers {
                answers: known.entities(question.document(), answered),
                steps: known.steps(answered),
                is_generated: false,
            },
            Answers::Texts(texts) => {
                QuestionAnswers { answers: known.texts(texts), steps: Vec::new(), is_generated: true }
            }
        };
        answers.answers.truncate(most);
        answers
    });
    Ok(answers.collect())
}

/// A question as one of a file.
fn question(options: &ReasonOptions, asked: AskedQuestion) -> Question {
    let AskedQuestion { question, document, topics, .. } = asked;
    Question {
        id: "question".into(),
        question,
        title: None,
        context: document.filter(|_| options.data.document),
        text: None,
        gpt_best_question: None,
        template_question: None,
        answers: None,
        answer_ids: None,
        ans_ids: None,
        topic_entity: (!topics.is_empty()).then_some(TopicEntity::Many(topics)),
        provenance: None,
        extra: serde_json::Map::new(),
    }
}
