//! A decoder-only model with demonstrations of other questions in its prompt. It generates answers separated by commas.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Diagnostic, Document};
use sporran_generator::{
    CausalGenerator, CausalOptions, Demonstration, Demonstrations, DemonstrationsOptions, Generation,
    Generator, Request,
};
use sporran_kilt::{Query, korc::Question, observe::Observer};
use sporran_reasoner::question::{
    Answers, Background, QuestionTraining, ReadQuestions, Reasoner, ReasonerKind, TextAnswers,
};
use sporran_training::session::Trained;

use super::texts::{AnswerSplitter, outside};
use crate::{Error, Result};

/// `kind = "causal"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct CausalQuestions(pub Box<CausalOptions>);

impl ReasonerKind for CausalQuestions {
    fn model(&self) -> &Path {
        &self.0.model
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        let files = self.0.demonstrations.iter().flat_map(|shown| &shown.files);
        for path in files.filter(|path| !path.exists()) {
            document
                .report_key(&format!("{key}.demonstrations.files"), format!("no file {}", path.display()));
        }
    }

    fn is_trained(&self) -> bool {
        false
    }

    fn train(&self, _: &QuestionTraining<'_>, _: &mut Observer<'_>) -> sporran_reasoner::Result<Trained> {
        let message = "`causal` is not trained; use `sporran reason`";
        Err(outside(Error::Config(vec![Diagnostic::of_config("reasoner.kind", message)])))
    }

    fn open<'a>(&self, background: Background<'a>) -> sporran_reasoner::Result<Box<dyn Reasoner + 'a>> {
        let shown = shown(self.0.demonstrations.as_ref(), background.read)?;
        let generator = CausalGenerator::showing(&self.0, shown);
        let generator = generator.map_err(|error| outside(error.into()))?;
        Ok(Box::new(InContext { generator, splitter: AnswerSplitter::new(background.kb) }))
    }
}

/// A model with its demonstrations.
pub(super) struct InContext<G> {
    pub(super) generator: G,
    pub(super) splitter: AnswerSplitter,
}

impl<G: Generator> Reasoner for InContext<G> {
    fn answer(&self, questions: &[Question], most: usize) -> sporran_reasoner::Result<Vec<Answers>> {
        let generated = generate(&self.generator, questions).map_err(outside)?;
        let texts = |found: Generation| {
            let answers = self.splitter.answers(&found.text, most);
            Answers::Texts(TextAnswers {
                answers,
                score: found.score,
                triples: Vec::new(),
                passages: Vec::new(),
            })
        };
        Ok(generated.into_iter().map(texts).collect())
    }
}

/// The questions of `[reasoner.demonstrations]` that have answers; none without the table.
pub(super) fn shown(
    options: Option<&DemonstrationsOptions>,
    read: ReadQuestions<'_>,
) -> sporran_reasoner::Result<Option<Demonstrations>> {
    let Some(options) = options else { return Ok(None) };
    let mut examples = Vec::new();
    for path in &options.files {
        let questions = read(path)?.into_iter().filter(|question| !question.labels().is_empty());
        examples.extend(questions.map(|question| Demonstration {
            // Files have the same ids. The prefix keeps a demonstration different from the question.
            query: Query { id: format!("shown {}", question.id.text()).into(), ..query(&question) },
            answer: question.labels().join(", "),
        }));
    }
    let shown = Demonstrations::of_examples(examples, options.count, options.encoder.as_deref());
    shown.map(Some).map_err(|error: sporran_generator::Error| outside(error.into()))
}

/// The document, then the question.
pub(super) fn query(question: &Question) -> Query {
    let text = format!("{}\nQuestion: {}", question.document(), question.question);
    Query::of_text(question.id.clone(), text)
}

/// Generates the answers to each question.
fn generate(generator: &dyn Generator, questions: &[Question]) -> Result<Vec<Generation>> {
    let queries: Vec<Query> = questions.iter().map(query).collect();
    let requests: Vec<Request<'_>> = queries.iter().map(|query| Request { query, passages: &[] }).collect();
    Ok(generator.generate(&requests)?)
}
