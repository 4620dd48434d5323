//! The outputs of a test: predictions and answer sets.

use std::path::{Path, PathBuf};

use serde::Serialize;
use sporran_kilt::{Id, Record, hash_json, jsonl, korc::Question};

use super::{options::ReasonOptions, prediction::answers_of};
use crate::{
    Result,
    run_dir::{
        folder::check_finished,
        inputs::Inputs,
        journal::Journal,
        key::StepKey,
        step::{Chunks, FileWork},
    },
};

/// The number of questions in a portion of the journal.
const PORTION: usize = 64;

/// Options that do not change an answer: output folders, the list of tests, and the training. The hash of the pages covers the
/// content of the source.
const WITHOUT: [&str; 22] = [
    "name",
    "output",
    "data.train",
    "data.train-share",
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
    "reasoner.question-encoder",
    "reasoner.shape",
    "reasoner.rank",
    "reasoner.embedding",
    "reasoner.train-entities",
    "reasoner.batch-normalisation",
    "reasoner.objective",
    "reasoner.with-tests",
];

fn options_key(options: &impl Serialize) -> Result<StepKey> {
    Ok(StepKey::new("reason", options)?.without(&WITHOUT))
}

/// The key of the answers, without the questions.
///
/// # Errors
/// Those of reading; [`crate::Error::Unfinished`] for facts of an unfinished run.
pub(super) fn key(options: &ReasonOptions, inputs: &mut Inputs) -> Result<StepKey> {
    let key = options_key(options)?.read(inputs)?;
    with_runs(key.input("portion", PORTION.to_string()), options, inputs)
}

/// Adds the content of the runs of `[populated]`.
///
/// # Errors
/// Those of [`key`].
pub(super) fn with_runs(mut key: StepKey, options: &ReasonOptions, inputs: &mut Inputs) -> Result<StepKey> {
    for (at, run) in options.populated.runs.iter().enumerate() {
        let predictions = run.join("predictions");
        check_finished(&predictions)?;
        let content = inputs.content(&predictions)?;
        key = key.input(&format!("populated.runs[{at}]"), hash_json(&content));
    }
    Ok(key)
}

/// A line of answer sets, as `sporran evaluate answer-sets` reads it.
#[derive(Serialize)]
struct SetLine<'a> {
    id: &'a Id,
    answers: &'a [String],
    predictions: Vec<&'a str>,
}

/// A test and its model.
pub(super) struct Test<'a> {
    pub(super) questions: &'a [Question],
    /// The files of predictions and answer sets, relative to the run's folder.
    pub(super) outputs: &'a [PathBuf; 2],
    pub(super) answer: &'a mut dyn FnMut(&[Question]) -> Result<Vec<Record>>,
}

/// The output files of a test: predictions in KILT's layout, and answer sets.
pub(super) fn paths_of(file: &str) -> [PathBuf; 2] {
    ["predictions", "answer-sets"].map(|folder| Path::new(folder).join(format!("{file}.jsonl")))
}

impl FileWork for Test<'_> {
    type Chunk = Vec<Record>;
    type Summary = ();

    fn load(&mut self) -> Result<Option<usize>> {
        Ok(Some(self.questions.len()))
    }

    fn make(&mut self, chunks: &mut Chunks<'_, Vec<Record>>) -> Result<()> {
        for portion in self.questions.chunks(PORTION) {
            chunks.add(portion.len(), || (self.answer)(portion))?;
        }
        Ok(())
    }

    fn write(&mut self, root: &Path, journal: &Journal) -> Result<()> {
        let [predictions, sets] = self.outputs.each_ref().map(|path| jsonl::Writer::create(root.join(path)));
        let (mut predictions, mut sets) = (predictions?, sets?);
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

/// The name of the output files of a test.
pub(super) fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        config::inspect,
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
            "kind = 'embed-kgqa-star'\nrank = 8\nreach = 1",
            "kind = 'rag-sequence'\nfrom = 'f'\nquestion-encoder = 'q'",
            "kind = 'causal'\ndemonstrations = { files = ['d'], count = 2 }",
        ] {
            let text = format!(
                "workflow = 'kbqa'\nname = 'r'\nkb = 'kb'\nentities = 'e.tsv'\nrelations = 'r.tsv'\n[source]\npath = 's'\nredirects = 'r'\n\
                 [populated]\nruns = ['runs/p']\n\
                 [data]\ntrain = ['t']\nvalid = 'v'\niid = 'i'\nood = 'o'\nlimit = 3\nversion = 'llm'\ntrain-version = 'template'\ntrain-share = 0.5\n[reasoner]\nmodel = 'm'\n{reasoner}\n"
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
