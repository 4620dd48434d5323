//! KoRC-L: a language model writes the questions (Yao et al. 2023, section 3.3).
//!
//! A prompt has an instruction, demonstrations, the anonymised document and the question triple. A second prompt
//! inspects the question.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_generator::{
    CausalGenerator, CausalOptions, Chat, Demonstration, Demonstrations, Generator, PromptOptions, Request,
    check_generator,
};
use sporran_kilt::{
    Error as FileError, Query, jsonl,
    korc::{INVERSE, Question},
    observe::{Event, Observer, Unit, begin},
};
use sporran_reasoner::korc::{Built, Entities, names_in};
use sporran_transformers::{DeviceName, Engine, GenerationOptions, Precision};

use crate::Result;

/// The questions that a model works on together.
const PORTION: usize = 64;
/// The instruction for questions.
const ASK: &str = "The text describes an entity under the name in square brackets. Write one question whose answers have \
                   the relation to that entity. Use the name in square brackets. Do not use the words of the answers.";
/// The instruction for the inspection.
const INSPECT: &str =
    "Does the question ask for the relation of the entity, in good English? Answer yes or no.";

/// `[phrasing]`: a decoder-only model that writes `gpt_best_question`.
///
/// A question is rejected if it lacks the mark of its entity, if it has a name of the entity or an answer, or if the
/// model says that it is wrong. Then `gpt_best_question` is the question from the template, and `rejected_question` has
/// the model's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PhrasingOptions {
    /// The model's folder in the Hugging Face layout, or a GGUF file.
    pub model: PathBuf,
    /// A JSON list of demonstrations; the paper has two. Each has `document` and `entity` (its mark in the document),
    /// `relation`, and `question`.
    pub demonstrations: PathBuf,
    /// The data type of the weights.
    #[serde(default)]
    pub precision: Precision,
    /// Where the model computes: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// How turns are marked: `auto`, `none`, `template` or `chatml`.
    #[serde(default)]
    pub chat: Chat,
    /// `[phrasing.generation]`: how a question is searched for.
    #[serde(default)]
    pub generation: GenerationOptions,
    /// The largest number of tokens of a prompt.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 2), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// The largest number of prompts in a batch.
    #[serde(default = "batch_size")]
    #[schemars(range(min = 1))]
    pub batch_size: usize,
}

fn max_tokens() -> usize {
    1024
}

fn batch_size() -> usize {
    8
}

/// A demonstration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shown {
    document: String,
    entity: String,
    relation: String,
    question: String,
}

impl PhrasingOptions {
    /// Reports missing files and wrong values.
    pub(super) fn check(&self, document: &mut Document<'_>) {
        if !self.demonstrations.is_file() {
            let message = format!("no file {}", self.demonstrations.display());
            document.report_key("phrasing.demonstrations", message);
        }
        check_generator(&self.prompt("", ""), ("phrasing", true), None, document);
    }

    /// The generator of a prompt.
    fn prompt(&self, instruction: &str, answer: &str) -> CausalOptions {
        CausalOptions {
            model: self.model.clone(),
            engine: Engine::Auto,
            precision: self.precision,
            device: self.device,
            chat: self.chat,
            instruction: instruction.to_owned(),
            prompt: PromptOptions { passages: 0, max_tokens: self.max_tokens, ..PromptOptions::default() },
            answer: answer.to_owned(),
            demonstrations: None,
            choose: false,
            generation: self.generation.clone(),
            stops: vec!["\n".to_owned()],
            max_tokens: self.max_tokens,
            batch_size: self.batch_size,
            batch_tokens: self.batch_size * self.max_tokens,
        }
    }

    fn shown(&self) -> Result<Demonstrations> {
        let shown: Vec<Shown> = jsonl::read_json(&self.demonstrations)?;
        if shown.is_empty() {
            let message = "expected at least one demonstration, found none";
            return Err(FileError::record(&self.demonstrations, 1, ".", message).into());
        }
        let mut examples = Vec::new();
        for (at, Shown { document, entity, relation, question }) in shown.into_iter().enumerate() {
            for (field, text) in [("document", &document), ("question", &question)] {
                if !text.contains(&entity) {
                    let message = format!("expected the entity `{entity}` in the text, found `{text}`");
                    let field = format!("[{at}].{field}");
                    return Err(FileError::record(&self.demonstrations, 1, field, message).into());
                }
            }
            let query = Query::of_text(format!("shown {at}"), asking(&document, &entity, &relation));
            examples.push(Demonstration { query, answer: question });
        }
        let count = examples.len();
        Ok(Demonstrations::of_examples(examples, count, None)?)
    }

    /// The files that it reads.
    pub(super) fn files(&self) -> [&Path; 2] {
        [&self.model, &self.demonstrations]
    }
}

/// The text of a prompt for a question.
fn asking(document: &str, mark: &str, relation: &str) -> String {
    format!("Text: {document}\nEntity: {mark}\n{}", relation_of(mark, relation))
}

/// The relation in words; an inverse one has the entity as its object.
fn relation_of(mark: &str, relation: &str) -> String {
    match relation.strip_prefix(INVERSE) {
        None => format!("Relation: {relation} of {mark}"),
        Some(relation) => format!("Relation: what has {mark} as its {relation}"),
    }
}

/// The mark of a question's entity.
fn mark_of(question: &Question) -> Option<&str> {
    let asked = &question.question;
    let start = asked.find('[')?;
    let end = start + asked[start..].find(']')?;
    Some(&asked[start..=end])
}

/// Whether a text can be the question: it has the mark, and neither a name of the entity nor an answer.
fn is_sound(text: &str, question: &Question, names: &[String]) -> bool {
    let has_mark = mark_of(question).is_some_and(|mark| text.contains(mark));
    has_mark && !names.iter().chain(question.labels()).any(|name| names_in(text, name))
}

/// The texts that a model generates for prompts.
fn generate(generator: &CausalGenerator, prompts: Vec<String>) -> Result<Vec<String>> {
    let query = |(at, text): (usize, String)| Query::of_text(at.to_string(), text);
    let queries: Vec<Query> = prompts.into_iter().enumerate().map(query).collect();
    let requests: Vec<Request<'_>> = queries.iter().map(|query| Request { query, passages: &[] }).collect();
    Ok(generator.generate(&requests)?.into_iter().map(|generation| generation.text).collect())
}

/// Writes `gpt_best_question` of all questions. Returns the number of questions that passed the inspection.
///
/// # Errors
/// Errors of the model or of the demonstrations.
pub(super) fn phrase(
    options: &PhrasingOptions,
    built: &mut Built,
    entities: &Entities,
    observe: &mut Observer<'_>,
) -> Result<usize> {
    let total: usize = built.questions.iter().map(Vec::len).sum();
    let names: Vec<&[String]> =
        built.origins.iter().flatten().map(|origin| entities.names(origin.entity)).collect();
    let mut questions: Vec<(&mut Question, &[String])> =
        built.questions.iter_mut().flatten().zip(names).collect();
    let label = |question: &Question| question.relation_label().unwrap_or_default().to_owned();
    let mark = |question: &Question| mark_of(question).unwrap_or_default().to_owned();
    begin(observe, "phrase questions", total as u64, Unit::Records);
    let model = CausalGenerator::showing(&options.prompt(ASK, "Question:"), Some(options.shown()?))?;
    let mut written = Vec::with_capacity(total);
    for portion in questions.chunks(PORTION) {
        let prompt = |(question, _): &(&mut Question, &[String])| {
            asking(question.document(), &mark(question), &label(question))
        };
        written.extend(generate(&model, portion.iter().map(prompt).collect())?);
        observe(Event::Advance { done: written.len() as u64, note: None });
    }
    observe(Event::End);
    drop(model);
    begin(observe, "inspect questions", total as u64, Unit::Records);
    let model = CausalGenerator::showing(&options.prompt(INSPECT, "Answer:"), None)?;
    let (mut passed, mut done) = (0, 0);
    for (portion, texts) in questions.chunks_mut(PORTION).zip(written.chunks(PORTION)) {
        let prompts = portion.iter().zip(texts).map(|((question, _), text)| {
            let relation = relation_of(&mark(question), &label(question));
            format!("{relation}\nQuestion: {text}")
        });
        let verdicts = generate(&model, prompts.collect())?;
        for (((question, names), text), verdict) in portion.iter_mut().zip(texts).zip(verdicts) {
            let approves = verdict.trim_start().to_lowercase().starts_with("yes");
            if approves && is_sound(text, question, names) {
                question.gpt_best_question = Some(text.clone());
                passed += 1;
            } else {
                question.gpt_best_question = question.template_question.clone();
                question.extra.insert("rejected_question".into(), text.clone().into());
            }
            done += 1;
        }
        observe(Event::Advance { done, note: Some(format!("{passed} pass")) });
    }
    observe(Event::End);
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question {
        serde_json::from_str(
            r#"{"id":"1","question":"Who heads [country 0042]?","context":"c","answers":["Jean Castex","art"]}"#,
        )
        .unwrap()
    }

    #[test]
    fn a_question_needs_the_mark_and_reveals_nothing() {
        let names = ["France".to_owned()];
        for (text, expected) in [
            ("Who leads [country 0042]?", true),
            ("In which part does [country 0042] end?", true),
            ("Who leads the country?", false),
            ("Who leads [country 0042], or france?", false),
            ("Does jean castex lead [country 0042]?", false),
        ] {
            assert_eq!(is_sound(text, &question(), &names), expected, "{text}");
        }
    }

    #[test]
    fn a_prompt_names_the_relation_in_its_direction() {
        assert_eq!(mark_of(&question()), Some("[country 0042]"));
        assert_eq!(
            asking("It is big.", "[a]", "capital"),
            "Text: It is big.\nEntity: [a]\nRelation: capital of [a]"
        );
        assert_eq!(relation_of("[a]", "Inv: capital"), "Relation: what has [a] as its capital");
    }

    #[test]
    fn a_demonstration_needs_its_entity_in_both_texts() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let options: PhrasingOptions =
            serde_json::from_value(serde_json::json!({ "model": "m", "demonstrations": file.path() }))
                .unwrap();
        let message = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            options.shown().err().map(|error| error.to_string()).unwrap_or_default()
        };
        let good = r#"{"document":"[a] is big.","entity":"[a]","relation":"capital","question":"What is [a]'s capital?"}"#;
        assert_eq!(message(&format!("[{good},{good}]")), "");
        assert!(message("[]").contains("at least one demonstration"));
        let wrong = message(&format!("[{good},{}]", good.replace("What is [a]'s", "Which")));
        assert!(wrong.contains("[1].question") && wrong.contains("expected the entity `[a]`"), "{wrong}");
    }
}
