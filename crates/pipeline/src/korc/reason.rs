//! Answering questions: sets of answers with what they rest on, written as predictions in KILT's layout and as answer sets.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value, json};
use sporran_generator::{CausalGenerator, TextGenerator};
use sporran_kilt::{
    Id, Output, Provenance, Record, jsonl,
    kb::{EntityId, KnowledgeBase, RelationId, Triple},
    korc::Question,
    scores::answer_set::{self, Scores},
};
use sporran_reasoner::question::{Answered, Asked, QuestionKind, QuestionModel, Reasoner, Vectors};

use super::{
    causal, data, model,
    options::{ReasonOptions, ReasonerOptions},
    populated::Evidence,
    seq2seq::{self, Prompts},
};
use crate::{
    Error, Result,
    observe::{Event, Observer, Unit, begin},
};

/// Questions that are answered together.
const PORTION: usize = 64;

/// What answering gave.
#[derive(Clone, Debug, Serialize)]
pub struct Reasoned {
    /// The model.
    pub model: PathBuf,
    /// Steps of its training, where it was trained just now.
    pub steps: Option<u64>,
    /// Its best P-F1 on the validation questions, where it was trained just now.
    pub valid: Option<f64>,
    /// The tests.
    pub tests: Vec<Tested>,
}

/// What one test gave.
#[derive(Clone, Debug, Serialize)]
pub struct Tested {
    /// `iid` or `ood`.
    pub test: String,
    /// The predictions in KILT's layout.
    pub predictions: PathBuf,
    /// How many questions there were.
    pub questions: usize,
    /// Mean scores; `None` where the file has no answers.
    pub scores: Option<Scores>,
}

/// A line of answer sets, as `sporran evaluate --answer-sets` reads it.
#[derive(Serialize)]
struct SetLine<'a> {
    id: &'a Id,
    answers: &'a [String],
    predictions: Vec<&'a str>,
}

/// What answers.
enum System<'a> {
    Model(Box<QuestionModel>),
    Text { generator: Box<TextGenerator>, prompts: Box<Prompts<'a>> },
    Shown(Box<CausalGenerator>),
}

/// Trains what a config says, then answers its tests.
///
/// # Errors
/// Whatever is wrong with files, model or training; [`Error::Config`] without questions to learn from.
pub fn train(options: &ReasonOptions, observe: &mut Observer<'_>) -> Result<Reasoned> {
    let wrong = |key: &str, message: &str| {
        let (key, message) = (key.to_owned(), message.to_owned());
        Error::Config(vec![crate::Diagnostic { origin: "config".into(), line: 0, key, message }])
    };
    if options.data.train.is_empty() {
        return Err(wrong("data.train", "is missing; training needs questions"));
    }
    let (kb, evidence) = data::knowledge(options)?;
    let (steps, valid) = match &options.reasoner {
        ReasonerOptions::EmbedKgqa(system) => {
            let kind = model::vectors(system, &kb)?;
            model::train(options, kind, &system.encoder, &system.optimizer, &kb, observe)?
        }
        ReasonerOptions::TransferNet(system) => {
            let kind = QuestionKind::TransferNet { steps: system.steps };
            let kind = (kind, Vectors::Drawn);
            model::train(options, kind, &system.encoder, &system.optimizer, &kb, observe)?
        }
        ReasonerOptions::Seq2Seq(system) => seq2seq::train(options, system, &kb, observe)?,
        ReasonerOptions::Causal(_) => {
            return Err(wrong("reasoner.kind", "`causal` is not trained; `sporran reason` asks it as it is"));
        }
    };
    let tests = answer(options, (&kb, &evidence), observe, &mut |_| {})?;
    let reasoned = Reasoned { model: options.reasoner.model().to_owned(), steps: Some(steps), valid, tests };
    report(options, &reasoned)?;
    Ok(reasoned)
}

/// Answers the tests of a config. Each prediction is given to `take` as well, in the order of its file.
///
/// # Errors
/// Whatever is wrong with files or the model.
pub fn reason(
    options: &ReasonOptions,
    observe: &mut Observer<'_>,
    take: &mut dyn FnMut(&Record),
) -> Result<Reasoned> {
    let (kb, evidence) = data::knowledge(options)?;
    let tests = answer(options, (&kb, &evidence), observe, take)?;
    let reasoned = Reasoned { model: options.reasoner.model().to_owned(), steps: None, valid: None, tests };
    report(options, &reasoned)?;
    Ok(reasoned)
}

/// The knowledge base that a config's answers come from: with what its entities and relations are called, and with the facts
/// of `[populated]`.
///
/// # Errors
/// Whatever is wrong with files.
pub fn knowledge_base(options: &ReasonOptions) -> Result<KnowledgeBase> {
    Ok(data::knowledge(options)?.0)
}

fn report(options: &ReasonOptions, reasoned: &Reasoned) -> Result<()> {
    Ok(jsonl::write_json(options.folder().join("report.json"), reasoned)?)
}

/// A knowledge base, and where what was read from text is stated.
type Known<'a> = (&'a KnowledgeBase, &'a Evidence);

fn answer(
    options: &ReasonOptions,
    known: Known<'_>,
    observe: &mut Observer<'_>,
    take: &mut dyn FnMut(&Record),
) -> Result<Vec<Tested>> {
    let (kb, _) = known;
    let system = match &options.reasoner {
        ReasonerOptions::Seq2Seq(system) => System::Text {
            generator: Box::new(TextGenerator::load(&seq2seq::generator(system))?),
            prompts: Box::new(Prompts::new(kb, system.retrieved)),
        },
        ReasonerOptions::Causal(system) => System::Shown(Box::new(causal::generator(system)?)),
        _ => System::Model(Box::new(QuestionModel::load(options.reasoner.model(), kb)?)),
    };
    let mut tested = Vec::new();
    for (test, path, questions) in data::tests(options)? {
        begin(observe, format!("answer {test}"), questions.len() as u64, Unit::Records);
        let file = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let predictions = options.folder().join("predictions").join(format!("{file}.jsonl"));
        let mut writer = jsonl::Writer::create(&predictions)?;
        let mut sets =
            jsonl::Writer::create(options.folder().join("answer-sets").join(format!("{file}.jsonl")))?;
        let mut scores = Vec::new();
        for (number, portion) in questions.chunks(PORTION).enumerate() {
            for (question, record) in
                portion.iter().zip(records(&system, portion, known, options.most_answers)?)
            {
                let outputs = record.outputs().iter();
                let answers: Vec<&str> = outputs.filter_map(|output| output.answer.as_deref()).collect();
                if question.answers.is_some() {
                    scores.push(answer_set::score(&answers, question.labels(), answer_set::words));
                }
                sets.record(&SetLine { id: &question.id, answers: question.labels(), predictions: answers })?;
                writer.record(&record)?;
                take(&record);
            }
            observe(Event::Advance { done: (number * PORTION + portion.len()) as u64, note: None });
        }
        writer.finish()?;
        sets.finish()?;
        observe(Event::End);
        let count = scores.len() as f64;
        let mean = |of: fn(&Scores) -> f64| scores.iter().map(of).sum::<f64>() / count;
        tested.push(Tested {
            test: test.to_owned(),
            predictions,
            questions: questions.len(),
            scores: (!scores.is_empty())
                .then(|| Scores { p_acc: mean(|scores| scores.p_acc), p_f1: mean(|scores| scores.p_f1) }),
        });
    }
    Ok(tested)
}

fn records(
    system: &System<'_>,
    questions: &[Question],
    known: Known<'_>,
    most: usize,
) -> Result<Vec<Record>> {
    match system {
        System::Model(model) => {
            let asked: Vec<Asked<'_>> = questions
                .iter()
                .map(|question| Asked { question: &question.question, document: question.document() })
                .collect();
            let answered = model.answer(&asked, most)?;
            Ok(questions
                .iter()
                .zip(answered)
                .map(|(question, answered)| by_model(question, &answered, known))
                .collect())
        }
        System::Text { generator, prompts } => {
            let texts: Vec<String> = questions.iter().map(|question| prompts.text(question)).collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let generated = generator.generate(&texts)?;
            let record = |(question, outputs): (&Question, Vec<sporran_generator::GeneratedText>)| {
                let (text, score) = outputs.first().map_or(("", 0.0), |output| (&output.text, output.score));
                by_text(question, &seq2seq::answers(text, most), score, &prompts.triples(question), known)
            };
            Ok(questions.iter().zip(generated).map(record).collect())
        }
        System::Shown(generator) => {
            let generated = causal::generate(generator, questions)?;
            let record = |(question, found): (&Question, sporran_generator::Generation)| {
                by_text(question, &seq2seq::answers(&found.text, most), found.score, &[], known)
            };
            Ok(questions.iter().zip(generated).map(record).collect())
        }
    }
}

fn record(question: &Question, outputs: Vec<Output>, meta: Option<Value>) -> Record {
    Record {
        id: question.id.clone(),
        input: Some(question.question.clone()),
        output: Some(outputs),
        meta,
        extra: Map::new(),
    }
}

/// A triple as `[subject, relation, object]`, by labels and by ids, with the sentences that state it where it was read.
fn told(triple: Triple, (kb, evidence): Known<'_>) -> Value {
    let Triple { subject, relation, object } = triple;
    let mut told = json!({
        "labels": [kb.label(subject), kb.relation_label(relation), kb.label(object)],
        "ids": [kb.entity_name(subject), kb.relation_name(relation), kb.entity_name(object)],
    });
    if let ([_, ..], Value::Object(told)) = (evidence.of(triple), &mut told) {
        told.insert("evidence".into(), json!(evidence.of(triple)));
    }
    told
}

/// Characters, which KILT counts in, of a byte's place.
fn characters(text: &str, byte: usize) -> Id {
    Id::from(text[..byte].chars().count() as i64)
}

fn by_model(question: &Question, answered: &Answered, known: Known<'_>) -> Record {
    let (kb, _) = known;
    let document = question.document();
    let outputs = answered
        .answers
        .iter()
        .map(|answer| {
            let mut extra = Map::new();
            extra.insert("confidence".into(), json!(answer.confidence));
            extra.insert("wikidata_id".into(), json!(kb.entity_name(answer.entity)));
            let triples: Vec<Value> = answer
                .triples
                .iter()
                .map(|&(subject, relation, object)| told(Triple::new(subject, relation, object), known))
                .collect();
            let provenance = answer.bridge.map(|bridge| {
                let mut more = Map::new();
                more.insert("text".into(), json!(&document[bridge.start..bridge.end]));
                vec![Provenance {
                    title: question.title.clone(),
                    start_character: Some(characters(document, bridge.start)),
                    end_character: Some(characters(document, bridge.end)),
                    meta: Some(
                        json!({ "bridge": kb.entity_name(EntityId(bridge.entity)), "triples": triples }),
                    ),
                    extra: more,
                    ..Provenance::default()
                }]
            });
            Output { answer: Some(kb.label(answer.entity).to_owned()), provenance, extra }
        })
        .collect();
    let steps: Vec<Vec<Value>> = answered
        .steps
        .iter()
        .map(|step| {
            let tell = |(step, weight): &(sporran_reasoner::rules::Step, f32)| {
                json!({
                    "relation": kb.relation_label(RelationId(step.relation())),
                    "backward": step.is_backward(),
                    "weight": weight,
                })
            };
            step.iter().map(tell).collect()
        })
        .collect();
    let meta = (!steps.is_empty()).then(|| json!({ "steps": steps }));
    record(question, outputs, meta)
}

fn by_text(question: &Question, answers: &[String], score: f32, read: &[Triple], known: Known<'_>) -> Record {
    let (kb, _) = known;
    let outputs = answers
        .iter()
        .map(|answer| {
            // Of what was read, the triples that name the answer.
            let with_answer =
                |triple: &&Triple| [triple.subject, triple.object].iter().any(|&id| kb.label(id) == answer);
            let triples: Vec<Value> =
                read.iter().filter(with_answer).map(|&triple| told(triple, known)).collect();
            let provenance = (!triples.is_empty()).then(|| {
                vec![Provenance {
                    title: question.title.clone(),
                    meta: Some(json!({ "triples": triples })),
                    ..Provenance::default()
                }]
            });
            let mut extra = Map::new();
            // The score is the mean log-probability of the text's tokens.
            extra.insert("confidence".into(), json!(score.exp().min(1.0)));
            Output { answer: Some(answer.clone()), provenance, extra }
        })
        .collect();
    record(question, outputs, None)
}
