//! Zero-shot slot filling on sentences (Levy et al., 2017). A question asks for a relation; the answer is a
//! span of the sentence, or none. Test relations are not in the training data.

mod model;
mod options;
mod train;
pub(crate) mod workflow;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
};

use serde::Serialize;
use sporran_kilt::{
    Output, Record, counted, jsonl,
    scores::Measure,
    zsre::{self, SlotQuestion},
};

pub use options::{SlotFillingOptions, SlotsOptions, SlotsTraining};
pub use train::{TrainedSlots, train};

use crate::{
    Result,
    run_dir::{key::StepKey, step::Lines},
    source::pages::Pages,
    workflows::file_run::HashedInputs,
};
use model::{Candidate, SlotReader, candidates, is_right};
use sporran_kilt::observe::Observer;

/// The report of a run: `report.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlotsReport {
    /// The name of the run.
    pub name: String,
    /// The scores of each file, by its name without extension.
    pub files: BTreeMap<String, FileScores>,
    /// The duration in seconds, without loading.
    pub seconds: f64,
}

impl fmt::Display for SlotsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (file, scores) in &self.files {
            for (what, scores) in [("unseen", &scores.unseen), ("seen", &scores.seen)] {
                writeln!(
                    f,
                    "{file}, {}: {} of {} answered, {} correctly: precision {:.3}, recall {:.3}, \
                     F1 {:.3}",
                    counted(scores.relations as u64, &format!("{what} relation")),
                    scores.answered,
                    counted(scores.questions as u64, "question"),
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

/// The scores of a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FileScores {
    /// Questions of relations that are neither training nor validation relations.
    pub unseen: SlotScores,
    /// Questions of the other relations.
    pub seen: SlotScores,
    /// The F1 of each unseen relation.
    pub by_relation: BTreeMap<String, Measure>,
}

/// Scores after Levy et al. (2017): any answer to a question without a gold answer is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SlotScores {
    /// The number of relations.
    pub relations: usize,
    /// The number of questions.
    pub questions: usize,
    /// The number of questions with a gold answer.
    pub answerable: usize,
    /// The number of answered questions.
    pub answered: usize,
    /// The number of correct answers.
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

/// The number of questions in a portion.
const PORTION: usize = 256;

/// Answers the questions of the config's files. Writes `predictions/NAME.jsonl`, `report.json`, `config.toml`
/// and `manifest.json` into the run's folder. Each question has a record in the layout of KILT's slot
/// filling, with an empty answer if it has none. A killed run resumes at the first missing portion.
///
/// # Errors
/// [`Error::Config`](crate::Error::Config) without an input file; errors of files and the model;
/// [`Error::Busy`](crate::Error::Busy) if another process uses the run's folder.
pub fn fill(options: &SlotsOptions, observe: &mut Observer<'_>) -> Result<SlotsReport> {
    let (own, model) = (&options.slot_filling, options.model());
    let hashed =
        HashedInputs::of(options, ("slot-filling", own.files.as_slice()), &model, slots_key(options)?)?;
    let questions = hashed.load(|path| zsre::load(path))?;
    let reader = SlotReader::load(&model, own.device, own.precision)?;
    let (place, source) = ((options.folder(), options), options.source.as_ref());
    let path_of = |name: &str| vec![Path::new("predictions").join(format!("{name}.jsonl"))];
    let mut run = hashed.open(place, source, path_of, PORTION, observe)?;
    let mut report = SlotsReport { name: options.name.clone(), files: BTreeMap::new(), seconds: 0.0 };
    for (file, questions) in questions.iter().enumerate() {
        let (name, written) = (run.name(file).to_owned(), run.outputs(file).swap_remove(0));
        let make = |first: usize, portion: &[SlotQuestion]| -> Result<Vec<Record>> {
            let questions: Vec<&SlotQuestion> = portion.iter().collect();
            let found =
                candidates(reader.reader.as_ref(), &reader.input, &questions, reader.model.answer_tokens)?;
            let answers = found.into_iter().map(|one| one.filter(|one| one.margin > reader.model.threshold));
            let each = portion.iter().zip(answers).enumerate();
            let of = |(at, (question, answer)): (usize, (&SlotQuestion, Option<Candidate>))| {
                record(&format!("{name}:{}", first + at + 1), question, answer.as_ref(), &run.pages)
            };
            Ok(each.map(of).collect())
        };
        let mut work = Lines { inputs: questions, portion: PORTION, make, path: &written };
        let completed = run.complete(file, &mut work, observe)?;
        run.record(completed)?;
        let answers = answers_in(&run.folder.root.join(&written))?;
        report.files.insert(name, scores(questions, &answers, &reader.model.seen));
    }
    report.seconds = run.seconds;
    run.finish(&report)?;
    Ok(report)
}

/// Options that are not in the key: output folders; the files, each of which is a step; the training, because the
/// key has the content of the model; and the source, because the key has the hash of its pages.
const WITHOUT: [&str; 9] = [
    "name",
    "output",
    "seed",
    "source.path",
    "source.redirects",
    "source.indexes",
    "slot-filling.model",
    "slot-filling.files",
    "slot-filling.training",
];

fn slots_key(options: &impl Serialize) -> Result<StepKey> {
    Ok(StepKey::new("fill slots", options)?.without(&WITHOUT))
}

/// The answers in a file of predictions; `None` for an empty answer.
fn answers_in(predictions: &Path) -> Result<Vec<Option<String>>> {
    let each = jsonl::open(predictions)?.records::<Record>().map(|record| {
        let answer = record?.output.unwrap_or_default().into_iter().next().and_then(|output| output.answer);
        Ok(answer.filter(|answer| !answer.is_empty()))
    });
    each.collect()
}

fn scores(questions: &[SlotQuestion], answers: &[Option<String>], seen: &[String]) -> FileScores {
    let seen: BTreeSet<&str> = seen.iter().map(String::as_str).collect();
    let mut by_relation: BTreeMap<&str, SlotScores> = BTreeMap::new();
    let mut counts = [SlotScores::default(); 2];
    for (question, answer) in questions.iter().zip(answers) {
        let answer = answer.as_deref();
        by_relation.entry(&question.relation).or_default().add(question, answer);
        counts[usize::from(seen.contains(question.relation.as_str()))].add(question, answer);
    }
    let known = by_relation.keys().filter(|relation| seen.contains(**relation)).count();
    let [unseen, of_seen] = counts;
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

/// The prediction for a question. The provenance is the sentence on the page of the entity. `meta` has the
/// sentence, and the offsets of the answer in it in code points. Without an answer, the answer is empty.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Config, run_dir::key::tests::assert_complete};

    #[test]
    fn every_option_is_in_the_key_but_those_that_change_no_answer() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("c.toml");
        let text = "workflow = 'slot-filling'\nname = 's'\n[source]\npath = 'pages'\nredirects = 'r'\n\
                    [slot-filling]\nmodel = 'm'\nfiles = ['f']\n\
                    [slot-filling.training]\nfrom = 'e'\nfiles = ['t']\n";
        std::fs::write(&path, text).unwrap();
        let options = SlotsOptions::parse(&path, &[]).unwrap();
        let tree = toml::Value::try_from(&options).unwrap();
        assert_complete(&tree, |tree| slots_key(tree).unwrap(), &WITHOUT);
    }
}
