//! A decoder-only model with demonstrations of other questions in its prompt. It generates answers separated by commas.

use sporran_generator::{
    CausalGenerator, CausalOptions, Demonstration, Demonstrations, Generation, Generator, Request,
};
use sporran_kilt::{
    Query,
    korc::{Question, load},
};

use crate::Result;

/// Loads the model, and the questions of `[reasoner.demonstrations]` that have answers.
pub(super) fn generator(options: &CausalOptions) -> Result<CausalGenerator> {
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
pub(super) fn generate(generator: &CausalGenerator, questions: &[Question]) -> Result<Vec<Generation>> {
    let queries: Vec<Query> = questions.iter().map(query).collect();
    let requests: Vec<Request<'_>> = queries.iter().map(|query| Request { query, passages: &[] }).collect();
    Ok(generator.generate(&requests)?)
}
