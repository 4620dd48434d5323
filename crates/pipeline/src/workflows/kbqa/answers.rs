//! One test's way: answered portion by portion, journalled, written when all of it is there, and skipped where it is.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sporran_kilt::{Id, Record, jsonl, korc::Question};

use super::{options::ReasonOptions, prediction::answers_of};
use crate::{
    Result,
    observe::{Event, Observer, Unit, advance, begin},
    run_dir::{
        folder::{Folder, check_finished},
        inputs::{Inputs, hash_file},
        journal::Journal,
        key::{StepKey, hash_json},
    },
};

/// Questions that are answered and journalled together.
const PORTION: usize = 64;

/// The options that no answer depends on: where things go, which tests there are, and how the model was trained. The content of
/// the source is in the hash of its pages.
const WITHOUT: [&str; 17] = [
    "name",
    "output",
    "data.train",
    "data.valid",
    "data.iid",
    "data.ood",
    "populated.runs",
    "source.path",
    "source.redirects",
    "source.indexes",
    "reasoner.optimizer",
    "reasoner.encoder",
    "reasoner.from",
    "reasoner.shape",
    "reasoner.rank",
    "reasoner.embedding",
    "reasoner.train-entities",
];

fn options_key(options: &impl Serialize) -> Result<StepKey> {
    Ok(StepKey::new("reason", options)?.without(&WITHOUT))
}

/// All that answers depend on beside the questions.
///
/// # Errors
/// Those of reading; [`crate::Error::Unfinished`] for facts of a run that is not.
pub(super) fn key(options: &ReasonOptions, inputs: &mut Inputs) -> Result<StepKey> {
    let key = options_key(options)?.read(inputs)?;
    let key = key.input("program", env!("CARGO_PKG_VERSION")).input("portion", PORTION.to_string());
    with_runs(key, options, inputs)
}

/// Adds what `[populated]` reads of runs.
///
/// # Errors
/// As [`key`].
pub(super) fn with_runs(mut key: StepKey, options: &ReasonOptions, inputs: &mut Inputs) -> Result<StepKey> {
    for (at, run) in options.populated.runs.iter().enumerate() {
        let predictions = run.join("predictions");
        check_finished(&predictions)?;
        let content = inputs.content(&predictions)?;
        key = key.input(&format!("populated.runs[{at}]"), hash_json(&content));
    }
    Ok(key)
}

/// What is known of a test's finished predictions.
#[derive(PartialEq, Serialize, Deserialize)]
struct Done {
    key: String,
    predictions: String,
    answer_sets: String,
}

/// A line of answer sets, as `sporran evaluate answer-sets` reads it.
#[derive(Serialize)]
struct SetLine<'a> {
    id: &'a Id,
    answers: &'a [String],
    predictions: Vec<&'a str>,
}

/// A test and its files.
pub(super) struct Test<'a> {
    pub(super) folder: &'a Folder,
    /// What its files are called.
    pub(super) file: &'a str,
    /// All that its answers depend on.
    pub(super) key: StepKey,
    pub(super) questions: &'a [Question],
}

impl Test<'_> {
    /// The predictions in KILT's layout.
    pub(super) fn predictions(&self) -> PathBuf {
        self.folder.root.join("predictions").join(format!("{}.jsonl", self.file))
    }

    fn answer_sets(&self) -> PathBuf {
        self.folder.root.join("answer-sets").join(format!("{}.jsonl", self.file))
    }

    /// Answers what is not answered yet, and writes predictions and answer sets where they are not there.
    pub(super) fn complete(
        &self,
        answer: &mut dyn FnMut(&[Question]) -> Result<Vec<Record>>,
        observe: &mut Observer<'_>,
    ) -> Result<()> {
        let Self { folder, file, questions, .. } = self;
        let key = self.key.digest();
        let path = folder.work(&format!("{file}.done.json"));
        if let Ok(done) = jsonl::read_json::<Done>(&path)
            && self.done(key.clone()).is_ok_and(|found| found == done)
        {
            observe(Event::Skip { step: format!("answer {file}") });
            return Ok(());
        }
        let mut journal =
            Journal::open(&folder.work(&format!("{file}.journal")), &key, Some(questions.len()))?;
        begin(observe, format!("answer {file}"), questions.len() as u64, Unit::Records);
        for portion in questions.chunks(PORTION).skip(journal.chunks()) {
            advance(observe, journal.records() as u64);
            journal.push(&answer(portion)?, portion.len())?;
        }
        advance(observe, journal.records() as u64);
        self.write(&journal)?;
        observe(Event::End);
        jsonl::write_json(&path, &self.done(key)?)?;
        journal.remove()
    }

    fn done(&self, key: String) -> Result<Done> {
        let hash = |path: PathBuf| hash_file(&path);
        Ok(Done { key, predictions: hash(self.predictions())?, answer_sets: hash(self.answer_sets())? })
    }

    fn write(&self, journal: &Journal) -> Result<()> {
        let mut predictions = jsonl::Writer::create(self.predictions())?;
        let mut sets = jsonl::Writer::create(self.answer_sets())?;
        let mut questions = self.questions.iter();
        journal.read(|records: Vec<Record>| {
            for (record, question) in records.iter().zip(&mut questions) {
                predictions.record(record)?;
                let (id, answers) = (&question.id, question.labels());
                sets.record(&SetLine { id, answers, predictions: answers_of(record) })?;
            }
            Ok(())
        })?;
        predictions.finish()?;
        Ok(sets.finish()?)
    }
}

/// What the files of a test are called.
pub(super) fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        config::load::inspect,
        run_dir::key::tests::{assert_complete, changed},
    };

    #[test]
    fn every_option_of_reasoning_is_in_its_key_but_those_that_change_no_answer() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("c.toml");
        let mut taken: BTreeSet<&str> = BTreeSet::new();
        for reasoner in [
            "kind = 'embed-kgqa'\nrank = 8\nembedding = 'e'\nencoder = { from = 'f' }",
            "kind = 'transfer-net'\nencoder = { from = 'f' }",
            "kind = 'seq2seq'\nfrom = 'f'",
            "kind = 'causal'\ndemonstrations = { files = ['d'], count = 2 }",
        ] {
            let text = format!(
                "name = 'r'\nkb = 'kb'\nentities = 'e.tsv'\nrelations = 'r.tsv'\n[source]\npath = 's'\nredirects = 'r'\n\
                 [populated]\nruns = ['runs/p']\n\
                 [data]\ntrain = ['t']\nvalid = 'v'\niid = 'i'\nood = 'o'\nlimit = 3\n[reasoner]\nmodel = 'm'\n{reasoner}\n"
            );
            std::fs::write(&path, text).unwrap();
            let (options, mistakes) = inspect::<ReasonOptions>(&path, &[], |_, _| {}).unwrap();
            let tree = toml::Value::try_from(options.unwrap_or_else(|| panic!("{mistakes:?}"))).unwrap();
            let all = changed(&tree);
            let is_there = |outer: &&str| {
                all.iter().any(|(path, _)| path.starts_with(*outer) && !path[outer.len()..].starts_with('-'))
            };
            let exempt: Vec<&str> = WITHOUT.into_iter().filter(is_there).collect();
            assert_complete(&tree, |tree| options_key(tree).unwrap(), &exempt);
            taken.extend(exempt);
        }
        assert_eq!(taken.len(), WITHOUT.len(), "{taken:?}");
    }
}
