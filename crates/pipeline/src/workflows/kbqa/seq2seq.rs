//! The encoder-decoder. Its input is a question, its document, and optionally related triples. It generates
//! answers separated by commas.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use candle_core::{DType, Device};
use rayon::prelude::*;
use rustc_hash::FxHashSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_generator::{GeneratedText, ModelOptions, TextGenerator};
use sporran_kilt::{
    kb::{EntityId, KnowledgeBase, Part, Triple, TripleIndex},
    korc::{Question, Version},
    observe::Observer,
    scores::answer_set,
};
use sporran_reasoner::question::{Answers, Linker, QuestionTraining, Reasoner, ReasonerKind, TextAnswers};
use sporran_training::{
    Row, Seq2SeqObjective, TrainingOptions, Variables,
    session::{InitialModel, ShapeOptions, TrainableModel, Trained, TrainingSession},
};
use sporran_transformers::GenerationOptions;

use super::texts::{answers, outside};
use crate::Result;

/// `kind = "seq2seq"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Seq2SeqQuestions {
    /// The folder of the model, which training writes.
    pub model: PathBuf,
    /// The folder of the initial T5 or BART. Without it, training starts from a T5 of `shape` with random
    /// weights, and trains its vocabulary.
    pub from: Option<PathBuf>,
    /// `[reasoner.shape]`: the sizes of a T5 with random weights.
    #[serde(default)]
    pub shape: ShapeOptions,
    /// The largest number of tokens of question and document.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// The largest number of tokens of the answers.
    #[serde(default = "answer_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub answer_tokens: usize,
    /// The number of triples to add to the input. They are about entities of the document, and their
    /// relation's names share most words with the question.
    #[serde(default)]
    #[schemars(extend("x-unit" = "triples"))]
    pub retrieved: usize,
    /// `[reasoner.optimizer]`: steps, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

fn max_tokens() -> usize {
    256
}

fn answer_tokens() -> usize {
    48
}

impl ReasonerKind for Seq2SeqQuestions {
    fn model(&self) -> &Path {
        &self.model
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        if let Err(error) = self.optimizer.check() {
            document.report_key(&format!("{key}.optimizer"), error.to_string());
        }
    }

    fn train(
        &self,
        training: &QuestionTraining<'_>,
        observe: &mut Observer<'_>,
    ) -> sporran_reasoner::Result<Trained> {
        train(self, training, observe).map_err(outside)
    }

    fn open<'a>(
        &self,
        kb: &'a KnowledgeBase,
        _: Version,
    ) -> sporran_reasoner::Result<Box<dyn Reasoner + 'a>> {
        Ok(Box::new(Seq2SeqReasoner::load(self, kb).map_err(outside)?))
    }
}

/// Makes the inputs of the model.
struct Prompts<'a> {
    kb: &'a KnowledgeBase,
    linker: Linker,
    index: TripleIndex,
    retrieved: usize,
}

impl<'a> Prompts<'a> {
    fn new(kb: &'a KnowledgeBase, retrieved: usize) -> Self {
        Self { kb, linker: Linker::new(kb), index: kb.index(&[Part::Train]), retrieved }
    }

    /// The question, the triples, the document.
    fn text(&self, question: &Question) -> String {
        let triples: Vec<String> =
            self.triples(question).into_iter().map(|triple| self.triple_text(triple)).collect();
        let context = if triples.is_empty() { String::new() } else { format!(" | {}", triples.join("; ")) };
        format!("{}{context} | {}", question.question, question.document())
    }

    fn triple_text(&self, triple: Triple) -> String {
        let Triple { subject, relation, object } = triple;
        format!("{} {} {}", self.kb.label(subject), self.kb.relation_label(relation), self.kb.label(object))
    }

    /// The triples about entities of the document, ranked by the number of words that the relation's names
    /// share with the question, then by the order of the entities in the document.
    fn triples(&self, question: &Question) -> Vec<Triple> {
        if self.retrieved == 0 {
            return Vec::new();
        }
        let words = |text: &str| -> FxHashSet<String> {
            text.split(|c: char| !c.is_alphanumeric())
                .filter(|word| word.len() > 3)
                .map(|word| word.to_lowercase().chars().take(5).collect())
                .collect()
        };
        let question_words = words(&question.question);
        let mut seen = FxHashSet::default();
        let mut found: Vec<(usize, Triple)> = Vec::new();
        for name in self.linker.link(question.document()) {
            let subject = EntityId(name.entity);
            for (relation, objects) in self.index.relations_of(subject) {
                let of_label = |label: &String| words(label).intersection(&question_words).count();
                let labels = self.kb.relation_labels(relation);
                let shared = labels.iter().map(of_label).max().unwrap_or_default();
                for &object in objects {
                    let triple = Triple { subject, relation, object };
                    if seen.insert(triple) {
                        found.push((shared, triple));
                    }
                }
            }
        }
        found.sort_by_key(|(shared, _)| std::cmp::Reverse(*shared));
        found.into_iter().map(|(_, triple)| triple).take(self.retrieved).collect()
    }
}

/// The model with the inputs that it reads.
struct Seq2SeqReasoner<'a> {
    generator: TextGenerator,
    prompts: Prompts<'a>,
}

impl<'a> Seq2SeqReasoner<'a> {
    /// Loads the model over a knowledge base.
    fn load(options: &Seq2SeqQuestions, kb: &'a KnowledgeBase) -> Result<Self> {
        let generator = TextGenerator::load(&generator(options))?;
        Ok(Self { generator, prompts: Prompts::new(kb, options.retrieved) })
    }
}

impl Reasoner for Seq2SeqReasoner<'_> {
    fn answer(&self, questions: &[Question], most: usize) -> sporran_reasoner::Result<Vec<Answers>> {
        let texts: Vec<String> = questions.iter().map(|question| self.prompts.text(question)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let generated = self.generator.generate(&texts).map_err(|error| outside(error.into()))?;
        let found = |(question, outputs): (&Question, Vec<GeneratedText>)| {
            let (text, score) = outputs.first().map_or(("", 0.0), |output| (&output.text, output.score));
            let (answers, triples) = (answers(text, most), self.prompts.triples(question));
            Answers::Texts(TextAnswers { answers, score, triples })
        };
        Ok(questions.iter().zip(generated).map(found).collect())
    }
}

/// The generator of a model with these options.
fn generator(options: &Seq2SeqQuestions) -> ModelOptions {
    let generation =
        GenerationOptions { max_new_tokens: Some(options.answer_tokens), ..GenerationOptions::default() };
    ModelOptions { max_tokens: options.max_tokens, ..ModelOptions::new(options.model.clone(), generation) }
}

/// Trains a model and saves it. The score is the P-F1 on the validation questions.
fn train(
    system: &Seq2SeqQuestions,
    training: &QuestionTraining<'_>,
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let &QuestionTraining { kb, questions, valid, .. } = training;
    let prompts = Prompts::new(kb, system.retrieved);
    let pair = |question: &Question| (prompts.text(question), question.labels().join(", "));
    let pairs: Vec<(String, String)> = questions.par_iter().map(pair).collect();
    let start = match &system.from {
        Some(from) => InitialModel::of_folder(from, training.seed)?,
        None => {
            let texts: Vec<&str> =
                pairs.iter().flat_map(|(source, target)| [source.as_str(), target.as_str()]).collect();
            InitialModel::fresh(&system.shape, &texts, &[], training.seed)?
        }
    };
    let card = |variables: &Variables| training.card(variables);
    let TrainableModel { model, tokenizer, variables, extra_files } = start.build(&Device::Cpu, card)?;
    let rows: Result<Vec<Row>> = pairs
        .par_iter()
        .map(|(source, target)| {
            Ok(Row {
                source: tokenizer.encode(source, Some(system.max_tokens))?,
                target: tokenizer.encode(target, Some(system.answer_tokens))?,
            })
        })
        .collect();
    let rows = Arc::new(rows?);
    let inputs: Vec<String> = valid.iter().map(|question| prompts.text(question)).collect();
    let generator = TextGenerator::new(model.clone(), tokenizer.clone(), generator(system))?;
    let evaluate = || {
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let score = |(texts, question): (Vec<GeneratedText>, &Question)| {
            let text = texts.first().map_or("", |text| &text.text);
            answer_set::score(&answers(text, training.max_answers), question.labels(), answer_set::words).p_f1
        };
        let total: f64 = generator.generate(&inputs)?.into_iter().zip(valid).map(score).sum();
        Ok(total / valid.len().max(1) as f64)
    };
    let of_epoch = |_| Ok(rows.clone());
    let objective = Seq2SeqObjective::new(model.as_ref(), &variables, &system.optimizer, &of_epoch);
    let session = TrainingSession {
        variables: &variables,
        options: &system.optimizer,
        folder: training.folder.to_owned(),
        model: &system.model,
        dtype: DType::F16,
        extra_files: &extra_files,
        score: "validation P-F1",
    };
    Ok(session.run(&objective, (!valid.is_empty()).then_some(&evaluate), observe)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triples_of_named_entities_are_in_the_input() {
        let mut kb = KnowledgeBase::default();
        for (id, label) in [("Q1", "Austria"), ("Q2", "German"), ("Q3", "Europe")] {
            let id = kb.add_entity(id).unwrap();
            kb.set_label(id, label);
        }
        for (id, label) in [("P1", "continent"), ("P2", "official language")] {
            let id = kb.add_relation(id).unwrap();
            kb.set_relation_label(id, label);
        }
        kb.add(Part::Train, Triple::new(0, 0, 2)).unwrap();
        kb.add(Part::Train, Triple::new(0, 1, 1)).unwrap();
        let question: Question = serde_json::from_str(
            r#"{"id":1,"question":"Which languages does [x] speak?","context":"[x] is of Austria."}"#,
        )
        .unwrap();
        let text = Prompts::new(&kb, 1).text(&question);
        assert_eq!(
            text,
            "Which languages does [x] speak? | Austria official language German | [x] is of Austria."
        );
        assert_eq!(
            Prompts::new(&kb, 0).text(&question),
            "Which languages does [x] speak? | [x] is of Austria."
        );
    }
}
