//! Zero-shot slot filling on sentences: a relation is asked for by a question, the answer is a span of the sentence or none, and
//! relations are asked for that were not learned (Levy et al., 2017).

mod model;
mod options;
mod train;
pub(crate) mod workflow;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::Path,
    time::Instant,
};

use serde::Serialize;
use sporran_kilt::{
    Output, Record, jsonl,
    scores::Measure,
    zsre::{self, SlotQuestion},
};

pub use options::{SlotFillingOptions, SlotsOptions, SlotsTraining};
pub use train::{TrainedSlots, train};

use crate::{
    Error, Result,
    config::Diagnostic,
    observe::{Event, Observer, Unit, advance, begin},
    run_dir::folder::{AnswerFile, Folder},
    source::pages::Pages,
};
use model::{Candidate, SlotReader, candidates, is_right};

/// What came of a config's files: `report.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlotsReport {
    /// The config's name.
    pub name: String,
    /// Each file's scores, by its name without its ending.
    pub files: BTreeMap<String, FileScores>,
    /// Seconds without loading.
    pub seconds: f64,
}

impl fmt::Display for SlotsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (file, scores) in &self.files {
            for (what, scores) in [("unseen", &scores.unseen), ("seen", &scores.seen)] {
                writeln!(
                    f,
                    "{file}, {} {what} relations: {} of {} questions answered, {} correctly: precision {:.3}, recall {:.3}, \
                     F1 {:.3}",
                    scores.relations,
                    scores.answered,
                    scores.questions,
                    scores.right,
                    scores.precision,
                    scores.recall,
                    scores.f1
                )?;
            }
        }
        write!(f, "{:.1} s", self.seconds)
    }
}

/// How the questions of a file were answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FileScores {
    /// Questions of relations that the model neither learned nor was judged by.
    pub unseen: SlotScores,
    /// Questions of the others.
    pub seen: SlotScores,
    /// F1 of each unseen relation.
    pub by_relation: BTreeMap<String, Measure>,
}

/// How questions were answered, after Levy et al. (2017): an answer to a question without one is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SlotScores {
    /// Relations.
    pub relations: usize,
    /// Questions.
    pub questions: usize,
    /// Those that have an answer.
    pub answerable: usize,
    /// Those that were answered.
    pub answered: usize,
    /// Those that were answered rightly.
    pub right: usize,
    /// `right / answered`.
    pub precision: Measure,
    /// `right / answerable`.
    pub recall: Measure,
    /// Their harmonic mean.
    pub f1: Measure,
}

impl SlotScores {
    fn add(&mut self, question: &SlotQuestion, answer: Option<&str>) {
        self.questions += 1;
        self.answerable += usize::from(!question.answers.is_empty());
        self.answered += usize::from(answer.is_some());
        self.right += usize::from(answer.is_some_and(|answer| is_right(question, answer)));
    }

    fn finish(mut self, relations: usize) -> Self {
        self.relations = relations;
        self.precision = Measure::share(self.right, self.answered);
        self.recall = Measure::share(self.right, self.answerable);
        self.f1 = Measure::share(2 * self.right, self.answered + self.answerable);
        self
    }
}

/// Questions that are read together.
const PORTION: usize = 256;

/// Answers the questions of the config's files, and writes `predictions/NAME.jsonl` (a record a question, in the layout of KILT's
/// slot filling; one that is not answered has an empty answer), `report.json` and `config.toml` into the run's folder.
///
/// # Errors
/// [`Error::Config`] where there is no file to read; whatever is wrong with files and the model; [`Error::Busy`] where another
/// process works in the run's folder.
pub fn fill(options: &SlotsOptions, observe: &mut Observer<'_>) -> Result<SlotsReport> {
    let own = &options.slot_filling;
    if own.files.is_empty() {
        let message = "expected at least one file";
        return Err(Error::Config(vec![Diagnostic::of_config("slot-filling.files", message)]));
    }
    let mut files = Vec::new();
    for path in &own.files {
        files.push((path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), zsre::load(path)?));
    }
    let reader = SlotReader::load(&options.model(), own.device, own.precision)?;
    let folder = Folder::open(options.folder())?;
    let answers = |(name, _): &(String, _)| AnswerFile {
        name: name.clone(),
        paths: vec![Path::new("predictions").join(format!("{name}.jsonl"))],
    };
    let mark = folder.begin_answers("run", files.iter().map(answers).collect())?;
    let pages = Pages::open(options.source.as_ref(), None, observe)?;
    let predictions = folder.root.join("predictions");
    fs::create_dir_all(&predictions).map_err(Error::io(&predictions, "write"))?;
    let mut report = SlotsReport { name: options.name.clone(), files: BTreeMap::new(), seconds: 0.0 };
    for (name, questions) in files {
        begin(observe, format!("read {name}"), questions.len() as u64, Unit::Records);
        let start = Instant::now();
        let mut answers: Vec<Option<Candidate>> = Vec::with_capacity(questions.len());
        for portion in questions.chunks(PORTION) {
            let asked: Vec<&SlotQuestion> = portion.iter().collect();
            let found =
                candidates(reader.reader.as_ref(), &reader.input, &asked, reader.model.answer_tokens)?;
            answers.extend(
                found.into_iter().map(|found| found.filter(|one| one.margin > reader.model.threshold)),
            );
            advance(observe, answers.len() as u64);
        }
        report.seconds += start.elapsed().as_secs_f64();
        observe(Event::End);
        let mut writer = jsonl::Writer::create(predictions.join(format!("{name}.jsonl")))?;
        for (at, (question, answer)) in questions.iter().zip(&answers).enumerate() {
            writer.record(&record(&format!("{name}:{}", at + 1), question, answer.as_ref(), &pages))?;
        }
        writer.finish()?;
        report.files.insert(name, scores(&questions, &answers, &reader.model.seen));
    }
    folder.write_config(options)?;
    jsonl::write_json(folder.root.join("report.json"), &report)?;
    mark.finish()?;
    Ok(report)
}

fn scores(questions: &[SlotQuestion], answers: &[Option<Candidate>], seen: &[String]) -> FileScores {
    let seen: BTreeSet<&str> = seen.iter().map(String::as_str).collect();
    let mut by_relation: BTreeMap<&str, SlotScores> = BTreeMap::new();
    let mut sides = [SlotScores::default(); 2];
    for (question, answer) in questions.iter().zip(answers) {
        let answer = answer.as_ref().map(|answer| &question.sentence[answer.start..answer.end]);
        by_relation.entry(&question.relation).or_default().add(question, answer);
        sides[usize::from(seen.contains(question.relation.as_str()))].add(question, answer);
    }
    let known = by_relation.keys().filter(|relation| seen.contains(**relation)).count();
    let [unseen, of_seen] = sides;
    FileScores {
        unseen: unseen.finish(by_relation.len() - known),
        seen: of_seen.finish(known),
        by_relation: by_relation
            .into_iter()
            .filter(|(relation, _)| !seen.contains(*relation))
            .map(|(relation, scores)| (relation.to_owned(), scores.finish(1).f1))
            .collect(),
    }
}

/// A question as a record: the answer, and the sentence on the page of the entity as provenance. `meta` has the sentence, with
/// the answer's place in it in code points. A question that is not answered has an empty answer.
fn record(id: &str, question: &SlotQuestion, answer: Option<&Candidate>, pages: &Pages) -> Record {
    let mut meta = serde_json::json!({
        "template_questions": [question.question()],
        "evidence_span": [question.sentence],
    });
    let (mut text, mut provenance) = (String::new(), Vec::new());
    if let Some(answer) = answer {
        let characters = |bytes: usize| question.sentence[..bytes].chars().count();
        meta["start"] = characters(answer.start).into();
        meta["end"] = characters(answer.end).into();
        meta["margin"] = answer.margin.into();
        question.sentence[answer.start..answer.end].clone_into(&mut text);
        let page = pages.titled(&question.entity);
        provenance.extend(page.map(|page| pages.provenance(&page, Some(&question.sentence))));
    }
    let output = Output { answer: Some(text), provenance: Some(provenance), ..Output::default() };
    Record {
        id: id.into(),
        input: Some(format!("{} [SEP] {}", question.entity, question.relation)),
        output: Some(vec![output]),
        meta: Some(meta),
        extra: serde_json::Map::new(),
    }
}
