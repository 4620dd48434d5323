//! Answers questions. Writes answers with their evidence, as predictions in KILT's layout and as answer sets.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::Serialize;
use sporran_config::Diagnostic;
use sporran_kilt::{
    Record, counted, jsonl,
    kb::KnowledgeBase,
    korc::Question,
    observe::Observer,
    scores::answer_set::{self, Scores},
};
use sporran_reasoner::question::{Answers, Background, PassageFinder, QuestionTraining, Reasoner};
use sporran_training::session::Trained;

use super::{
    answers::{self, Test},
    data,
    options::ReasonOptions,
    prediction::{Known, answers_of},
    retrieval::{Passages, TrainedRetrieval},
    texts::outside,
};
use crate::{
    Error, Result,
    run_dir::{
        folder::{AnswerFile, Mark, RunDir},
        inputs::Inputs,
        key::StepKey,
        manifest::{Account, TaskEntry, TrainingEntry},
        step::FileStep,
        training::TrainingFolder,
    },
    source::{pages::Pages, store::PartHash},
};

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct ReasonReport {
    /// The model.
    pub model: PathBuf,
    /// The number of training steps, after training.
    pub steps: Option<u64>,
    /// The best P-F1 on the validation questions, after training.
    pub valid: Option<f64>,
    /// The results of the tests.
    pub tests: Vec<Tested>,
}

impl fmt::Display for ReasonReport {
    /// Scores are in percent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        if let Some(steps) = self.steps {
            let valid =
                self.valid.map_or_else(String::new, |f1| format!(", validation P-F1 {:.1}", 100.0 * f1));
            lines.push(counted(steps, "step") + &valid);
        }
        for tested in &self.tests {
            let scores = tested.scores.map_or_else(String::new, |scores| {
                format!("P-ACC {:.1}, P-F1 {:.1}, ", 100.0 * scores.p_acc, 100.0 * scores.p_f1)
            });
            let (test, questions) = (&tested.test, tested.questions);
            lines.push(format!(
                "{test}: {scores}{}, {}",
                counted(questions as u64, "question"),
                tested.predictions.display()
            ));
        }
        f.write_str(&lines.join("\n"))
    }
}

/// The result of one test.
#[derive(Clone, Debug, Serialize)]
pub struct Tested {
    /// `iid` or `ood`.
    pub test: String,
    /// The predictions in KILT's layout.
    pub predictions: PathBuf,
    /// The number of questions.
    pub questions: usize,
    /// The mean scores; `None` without gold answers.
    pub scores: Option<Scores>,
}

/// Trains the model of a config, then answers its tests.
///
/// # Errors
/// Errors of files, model or training; [`Error::Config`] without training questions.
pub fn train(options: &ReasonOptions, observe: &mut Observer<'_>) -> Result<ReasonReport> {
    if options.data.train.is_empty() {
        let missing = Diagnostic::of_config("data.train", "is missing; training needs questions");
        return Err(Error::Config(vec![missing]));
    }
    data::check(&options.data, true)?;
    let mut inputs = Inputs::default();
    let reads_tests = options.reasoner.reads_tests();
    let mut untrained: Vec<&str> =
        UNTRAINED.into_iter().filter(|path| !(reads_tests && TESTS.contains(path))).collect();
    let encoder = options.reasoner.question_encoder();
    if encoder.is_some() {
        // Training writes the question encoder there.
        untrained.push("retriever.model");
    }
    let key = answers::with_runs(StepKey::training(options)?.without(&untrained), options, &mut inputs)?;
    let live = encoder.map(|from| TrainedRetrieval::open(options, from, observe)).transpose()?;
    let passages = if live.is_some() { None } else { Passages::open(options, observe)? };
    let key = match &live {
        Some(live) => key.input("passages", live.hash()),
        None => with_passages(key, passages.as_ref()),
    };
    let folder = RunDir::open(options.folder())?;
    if options.reasoner.is_trained() {
        folder.check_foreign(options.reasoner.model())?;
    }
    let mut underway = TrainingFolder::begin_with(folder, inputs, key, options)?;
    let (kb, _) = data::knowledge(options)?;
    underway.verify()?;
    let trained = learn(options, &kb, (passages.as_ref(), live.as_ref()), observe)?;
    let (steps, valid) = (trained.steps, trained.best.map(|(_, score)| score));
    underway.finish(TrainingEntry { steps, best: valid })?;
    let folder = RunDir::open(options.folder())?;
    drop(kb);
    let passages = match live {
        Some(_) => Passages::open(options, observe)?,
        None => passages,
    };
    let Answered { tests, account, mark } =
        answer(options, &folder, passages.as_ref(), observe, &mut |_| {})?;
    let reasoned =
        ReasonReport { model: options.reasoner.model().to_owned(), steps: Some(steps), valid, tests };
    report(options, &reasoned)?;
    account.finish(&folder, mark)?;
    Ok(reasoned)
}

/// Trains the model of a config and saves it.
fn learn(
    options: &ReasonOptions,
    kb: &KnowledgeBase,
    (passages, live): (Option<&Passages>, Option<&TrainedRetrieval>),
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let [questions, valid] = data::training(options, kb)?;
    let tests = if options.reasoner.reads_tests() { data::all_tests(options, kb)? } else { Vec::new() };
    let training = QuestionTraining {
        kb,
        passages: passages.map(|passages| passages as &dyn PassageFinder),
        live: live.map(TrainedRetrieval::live),
        questions: &questions,
        valid: &valid,
        tests: &tests,
        max_answers: options.most_answers(),
        seed: options.seed,
        config: &options.name,
        folder: &options.folder().join("training"),
    };
    Ok(options.reasoner.train(&training, observe)?)
}

/// Adds the content of the passages that a reasoner reads.
fn with_passages(key: StepKey, passages: Option<&Passages>) -> StepKey {
    match passages {
        Some(passages) => key.input("passages", passages.hash()),
        None => key,
    }
}

/// The files of the tests, which a few reasoners read in training.
const TESTS: [&str; 2] = ["data.iid", "data.ood"];

/// Options that do not change the training: the model's folder, and options of the tests.
const UNTRAINED: [&str; 6] =
    ["reasoner.model", "data.iid", "data.ood", "data.limit", "populated.runs", "reasoner.answer-tokens"];

/// Answers the tests of a config. Calls `take` with each prediction, in the order of its file. Reuses the
/// answers of earlier and of killed runs.
///
/// # Errors
/// Errors of files or the model; [`Error::Busy`] if another process uses the run's folder.
pub fn reason(
    options: &ReasonOptions,
    observe: &mut Observer<'_>,
    take: &mut dyn FnMut(&Record),
) -> Result<ReasonReport> {
    data::check(&options.data, false)?;
    let folder = RunDir::open(options.folder())?;
    let passages = Passages::open(options, observe)?;
    let Answered { tests, account, mark } = answer(options, &folder, passages.as_ref(), observe, take)?;
    let reasoned =
        ReasonReport { model: options.reasoner.model().to_owned(), steps: None, valid: None, tests };
    report(options, &reasoned)?;
    account.finish(&folder, mark)?;
    Ok(reasoned)
}

/// The knowledge base of a config, with the names of entities and relations, and the facts of `[populated]`.
///
/// # Errors
/// Errors of files.
pub fn knowledge_base(options: &ReasonOptions) -> Result<KnowledgeBase> {
    Ok(data::knowledge(options)?.0)
}

fn report(options: &ReasonOptions, reasoned: &ReasonReport) -> Result<()> {
    Ok(jsonl::write_json(options.folder().join("report.json"), reasoned)?)
}

/// The results of the tests before the report.
struct Answered {
    tests: Vec<Tested>,
    account: Account,
    mark: Mark,
}

/// Answers all tests in a folder.
fn answer(
    options: &ReasonOptions,
    folder: &RunDir,
    passages: Option<&Passages>,
    observe: &mut Observer<'_>,
    take: &mut dyn FnMut(&Record),
) -> Result<Answered> {
    let mut account = Account::begin(options)?;
    let mut inputs = Inputs::default();
    let key = answers::key(options, &mut inputs)?;
    let hash =
        |path: &Option<PathBuf>, inputs: &mut Inputs| path.as_ref().map(|path| inputs.file(path)).transpose();
    let contents = [hash(&options.data.iid, &mut inputs)?, hash(&options.data.ood, &mut inputs)?];
    let (kb, evidence) = data::knowledge(options)?;
    let pages = Pages::open(options.source.as_ref(), None, observe)?;
    let key = with_passages(key.input("pages", pages.hash()), passages);
    let known = Known { kb: &kb, evidence: &evidence, pages: &pages };
    let tests = data::tests(options, &kb)?;
    inputs.verify()?;
    account.read(&inputs);
    account.parts(pages.parts());
    if let Some(passages) = passages {
        let is_new = |part: &&PartHash| !pages.parts().contains(part);
        account.parts(&passages.parts().iter().filter(is_new).cloned().collect::<Vec<_>>());
    }
    account.took("load");
    let files = tests.iter().map(|(_, path, _)| {
        let name = answers::stem(path);
        AnswerFile { paths: answers::paths_of(&name).into(), name }
    });
    let mut mark = folder.begin_answers("reason", files.collect())?;
    // The comparison of runs reads it.
    folder.write_config(options)?;
    let read = |path: &Path| {
        data::questions(&options.data, options.data.learned_version(), &kb, path).map_err(outside)
    };
    let background = Background {
        kb: &kb,
        passages: passages.map(|passages| passages as &dyn PassageFinder),
        read: &read,
    };
    let mut system: Option<Box<dyn Reasoner + '_>> = None;
    let mut tested = Vec::new();
    for ((test, path, questions), content) in tests.into_iter().zip(contents.into_iter().flatten()) {
        let file = answers::stem(path);
        let outputs = answers::paths_of(&file);
        let mut answer = |portion: &[Question]| {
            let system = match &mut system {
                Some(system) => system,
                None => {
                    let opened = options.reasoner.open(background)?;
                    inputs.verify()?;
                    system.insert(opened)
                }
            };
            predictions_of(&**system, portion, known, options.most_answers())
        };
        let mut work = Test { questions: &questions, outputs: &outputs, answer: &mut answer };
        let step = FileStep {
            title: format!("answer {file}"),
            name: &file,
            key: key.clone().input("content", content.as_str()),
            outputs: outputs.to_vec(),
            inputs: &inputs,
        };
        let finished = folder.complete(step, &mut work, observe)?;
        account.took(file.as_str());
        tested.push(score(test, &questions, folder.root.join(&outputs[0]), take)?);
        mark.done(&file)?;
        account.took(format!("score {file}"));
        account.answered(TaskEntry::new(path, content, outputs.into(), &finished));
    }
    Ok(Answered { tests: tested, account, mark })
}

/// Scores the predictions of a test.
fn score(
    test: &str,
    questions: &[Question],
    predictions: PathBuf,
    take: &mut dyn FnMut(&Record),
) -> Result<Tested> {
    let mut scores = Vec::new();
    for (record, question) in jsonl::open(&predictions)?.records::<Record>().zip(questions) {
        let record = record?;
        if question.answers.is_some() {
            let answers = answers_of(&record);
            scores.push(answer_set::score(&answers, question.labels(), answer_set::words));
        }
        take(&record);
    }
    let count = scores.len() as f64;
    let mean = |of: fn(&Scores) -> f64| scores.iter().map(of).sum::<f64>() / count;
    Ok(Tested {
        test: test.to_owned(),
        predictions,
        questions: questions.len(),
        scores: (!scores.is_empty())
            .then(|| Scores { p_acc: mean(|scores| scores.p_acc), p_f1: mean(|scores| scores.p_f1) }),
    })
}

/// The predictions of a reasoner.
fn predictions_of(
    reasoner: &dyn Reasoner,
    questions: &[Question],
    known: Known<'_>,
    max_answers: usize,
) -> Result<Vec<Record>> {
    let record = |(question, found): (&Question, &Answers)| match found {
        Answers::Entities(answered) => known.by_model(question, answered),
        Answers::Texts(texts) => known.by_text(question, texts),
    };
    Ok(questions.iter().zip(&reasoner.answer(questions, max_answers)?).map(record).collect())
}
