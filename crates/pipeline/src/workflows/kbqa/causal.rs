//! A decoder-only model with demonstrations of other questions in its prompt. It generates answers separated by commas.

use sporran_generator::{
    CausalGenerator, CausalOptions, Demonstration, Demonstrations, Generation, Generator, Request,
};
use sporran_kilt::{
    Query,
    korc::{Question, load},
};
use sporran_reasoner::question::{Answers, Reasoner, TextAnswers};

use super::{generating::outside, seq2seq::answers};
use crate::Result;

/// The model with its demonstrations.
pub(super) struct CausalReasoner(CausalGenerator);

impl CausalReasoner {
    /// Loads the model, and the questions of `[reasoner.demonstrations]` that have answers.
    pub(super) fn load(options: &CausalOptions) -> Result<Self> {
        Ok(Self(generator(options)?))
    }
}

impl Reasoner for CausalReasoner {
    fn answer(&self, questions: &[Question], most: usize) -> sporran_reasoner::Result<Vec<Answers>> {
        let generated = generate(&self.0, questions).map_err(outside)?;
        let texts = |found: Generation| {
            let answers = answers(&found.text, most);
            Answers::Texts(TextAnswers { answers, score: found.score, triples: Vec::new() })
        };
        Ok(generated.into_iter().map(texts).collect())
    }
}

fn generator(options: &CausalOptions) -> Result<CausalGenerator> {
    let Some(shown) = &options.demonstrations else {
        return Ok(CausalGenerator::showing(options, None)?);
    };
    let mut examples = Vec::new();
    for path in &shown.files {
        let questions = load(path)?.into_iter().filter(|question| !question.labels().is_empty());
        examples.extend(questions.map(|question| Demonstration {
            // Files have the same ids. The prefix keeps a demonstration different from the question.
            query: Query { id: format!("shown {}", question.id.text()).into(), ..query(&question) },
            answer: question.labels().join(", "),
        }));
    }
    let shown = Demonstrations::of_examples(examples, shown.count, shown.encoder.as_deref())?;
    Ok(CausalGenerator::showing(options, Some(shown))?)
}

/// The document, then the question.
fn query(question: &Question) -> Query {
    let text = format!("{}\nQuestion: {}", question.document(), question.question);
    Query::of_text(question.id.clone(), text)
}

/// Generates the answers to each question.
fn generate(generator: &CausalGenerator, questions: &[Question]) -> Result<Vec<Generation>> {
    let queries: Vec<Query> = questions.iter().map(query).collect();
    let requests: Vec<Request<'_>> = queries.iter().map(|query| Request { query, passages: &[] }).collect();
    Ok(generator.generate(&requests)?)
}
