//! Training of the generator of responses: teacher forcing with the gold sentence and the human's response (Eric et al.,
//! 2021, section 4.2).

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_generator::{
    GeneratorOptions, GeneratorTrainer, GeneratorTraining, RetrievedExample, Target, TrainOptions, untrained,
};
use sporran_kilt::{
    Dataset, Example, Output,
    observe::Observer,
    wowpp::{self, Dialogue, repaired},
};
use sporran_reranker::training::GradedQuery;
use sporran_training::session::Trained;

use super::{
    data::{gold_passage, graded},
    respond::ResponseOptions,
};
use crate::{Diagnostic, Error, Result, run_dir::training::TrainingFolder};

/// `[train.examples]`: dialogues with the fields `gold_sentence` and `response`, in WOW++'s layout. `sporran convert` makes them
/// from Wizard of Wikipedia.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ResponseExamples {
    /// The training files.
    pub files: Vec<PathBuf>,
    /// The validation files; `train.validation-records` is the number of dialogues. Without them, the last weights are kept.
    #[serde(default)]
    pub validation: Vec<PathBuf>,
    /// The number of training dialogues to use, the first ones. The default is all.
    #[schemars(range(min = 1))]
    pub limit: Option<usize>,
}

/// Options that do not change a training: the input and the reranker of a run, and folders of models.
const WITHOUT: [&str; 6] =
    ["dialogues", "reranker", "source", "train.model", "generator.model", "generator.precision"];

/// Trains the generator of a config on `[train.examples]`. The generator reads the gold sentence, as a run reads the best one.
/// A stopped training resumes from its newest checkpoint.
///
/// # Errors
/// [`Error::Config`] without `[train]` and for a generator that cannot be trained; errors of files, model or training.
pub fn train_generator(options: &ResponseOptions, observe: &mut Observer<'_>) -> Result<Trained> {
    let fault = |key: &str, message: &str| Error::Config(vec![Diagnostic::of_config(key, message)]);
    let train = options.train.as_ref().ok_or_else(|| fault("train", MISSING))?;
    let trainer = options.generator.trainer().ok_or_else(|| fault("generator.kind", &untrained()))?;
    let mut underway = TrainingFolder::begin(options.folder(), options, &WITHOUT)?;
    let examples = examples(&train.examples.files, train.examples.limit)?;
    let validation = match &train.examples.validation[..] {
        [] => Vec::new(),
        files => self::examples(files, Some(train.validation_records))?,
    };
    underway.verify()?;
    let training = GeneratorTraining {
        settings: train.settings(),
        examples,
        validation,
        store: None,
        name: &options.name,
        seed: train.optimizer.seed,
        folder: options.folder(),
        live: None,
        score: None,
    };
    let trained = trainer.train(training, observe)?;
    underway.finish((&trained).into())?;
    Ok(trained)
}

const MISSING: &str = "is missing; training needs `[train]`";

/// Reports mistakes of `[train]`.
pub(super) fn check(
    train: &TrainOptions<ResponseExamples>,
    generator: &GeneratorOptions,
    document: &mut Document<'_>,
) {
    match generator.trainer() {
        None => document.report_key("generator.kind", untrained()),
        Some(trainer) if GeneratorTrainer::is_live(trainer) => {
            document.report_key("generator.kind", "expected a kind that is trained without a retriever");
        }
        Some(_) => {}
    }
    if train.target == Target::Title {
        document.report_key("train.target", "expected `answer`: dialogues have no titles to generate");
    }
    if train.examples.files.is_empty() {
        document.report_key("train.examples.files", "expected at least one file, found none");
    }
    for (key, files) in [("files", &train.examples.files), ("validation", &train.examples.validation)] {
        for file in files.iter().filter(|file| !file.is_file()) {
            document.report_key(&format!("train.examples.{key}"), format!("no file {}", file.display()));
        }
    }
    train.check("train", Some(generator), document);
}

/// Reports that `[train]` is missing.
pub(super) fn report_missing(document: &mut Document<'_>) {
    document.report_key("train", MISSING);
}

/// The first `limit` dialogues with a gold sentence and a response, each with that sentence as its passage.
fn examples(files: &[PathBuf], limit: Option<usize>) -> Result<Vec<RetrievedExample>> {
    let limit = limit.unwrap_or(usize::MAX);
    let mut examples = Vec::new();
    for file in files {
        let dialogues = wowpp::load(file)?.0;
        let found = dialogues.iter().filter_map(|(id, dialogue)| example(id, dialogue));
        examples.extend(found.take(limit - examples.len()));
    }
    if examples.is_empty() {
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        let message = format!(
            "{}: expected dialogues with `gold_sentence` and `response`, found none",
            names.join(", ")
        );
        return Err(sporran_kilt::Error::Argument(message).into());
    }
    Ok(examples)
}

fn example(id: &str, dialogue: &Dialogue) -> Option<RetrievedExample> {
    let sentence = gold_passage(dialogue)?;
    let response = repaired(dialogue.response()?.trim());
    if response.is_empty() {
        return None;
    }
    let GradedQuery { mut query, .. } = graded(id, dialogue);
    query.dataset = Some(Dataset::Wow);
    let output = Output { answer: Some(response), ..Output::default() };
    Some(RetrievedExample { example: Example { query, gold: vec![output] }, passages: vec![(sentence, 1.0)] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, mistakes};

    fn write(folder: &std::path::Path, dialogues: &serde_json::Value) -> PathBuf {
        let file = folder.join("wow.json");
        std::fs::write(&file, dialogues.to_string()).unwrap();
        file
    }

    fn dialogues() -> serde_json::Value {
        let dialogue = |turns: &[&str], extra: serde_json::Value| {
            let mut dialogue = serde_json::json!({
                "turns": turns, "topic": "Tea",
                "annotated_sentences": [
                    {"label": "Tea <knowledge_separator> Tea is hot.", "confidence": 0.0},
                    {"label": "Milk <knowledge_separator> Milk is white.", "confidence": 1.0},
                ],
            });
            dialogue.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            dialogue
        };
        let gold = "Milk <knowledge_separator> Milk is white.";
        serde_json::json!({
            "a": dialogue(&["Hi.", "Caf\u{c3}\u{a9}?"], serde_json::json!({"gold_sentence": gold, "response": " White. "})),
            "b": dialogue(&["No response."], serde_json::json!({"gold_sentence": gold})),
            "c": dialogue(&["No gold."], serde_json::json!({"response": "Yes."})),
            "d": dialogue(&["Two."], serde_json::json!({"gold_sentence": gold, "response": "Second."})),
        })
    }

    #[test]
    fn an_example_is_a_dialogue_with_its_gold_sentence_and_response() {
        let place = tempfile::tempdir().unwrap();
        let file = write(place.path(), &dialogues());
        let found = examples(std::slice::from_ref(&file), None).unwrap();
        let parts: Vec<_> = found
            .iter()
            .map(|found| {
                let texts: Vec<&str> =
                    found.passages.iter().map(|(passage, _)| passage.text.as_str()).collect();
                (found.example.query.text.as_str(), texts, found.example.answers())
            })
            .collect();
        assert_eq!(
            parts,
            [
                ("Hi.\nCafé?", vec!["Milk is white."], vec!["White."]),
                ("Two.", vec!["Milk is white."], vec!["Second."]),
            ]
        );
        assert_eq!(examples(&[file.clone(), file.clone()], Some(3)).unwrap().len(), 3);
        let only = serde_json::json!({"c": dialogues()["c"]});
        let error = examples(&[write(place.path(), &only)], None).err().unwrap().to_string();
        assert!(error.contains("wow.json: expected dialogues with `gold_sentence`"), "{error}");
    }

    #[test]
    fn mistakes_of_a_training_are_found() {
        let check = |keys: &str| {
            let text = format!(
                "workflow = 'dialogue'\nname = 'd'\n[dialogues]\nfile = 'f'\nsentence = 'gold'\n{keys}"
            );
            mistakes(&text, &[], ResponseOptions::load)
        };
        let train = "[train]\nmodel = 't'\ntarget = 'title'\n[train.examples]\nfiles = ['none.json']\n";
        let found = check(&format!("[generator]\nkind = 'causal'\nmodel = 'm'\n{train}"));
        assert!(found.contains("`train.target`: expected `answer`"), "{found}");
        assert!(found.contains("`train.examples.files`: no file none.json"), "{found}");
        // The model is what the training writes.
        assert!(!found.contains("generator.model"), "{found}");
        let added = train.replace("target = 'title'", "added-tokens = ['<a>', ' ']");
        let found = check(&format!("[generator]\nkind = 'seq2seq'\nmodel = 'm'\n{added}"));
        assert!(
            found.contains("`train.added-tokens`: expected it only with a generator of kind `causal`"),
            "{found}"
        );
        assert!(found.contains("`train.added-tokens`: expected tokens that are not blank"), "{found}");
        let found = check(&format!("[generator]\nkind = 'title'\n{train}"));
        assert!(found.contains("`generator.kind`: expected `seq2seq`"), "{found}");
        let found = check(&format!("[generator]\nkind = 'rag-token'\nmodel = 'm'\n{train}"));
        assert!(found.contains("expected a kind that is trained without a retriever"), "{found}");
    }

    #[test]
    fn a_training_needs_its_table_and_no_reranker() {
        let place = tempfile::tempdir().unwrap();
        let (path, file) = (place.path().join("c.toml"), write(place.path(), &dialogues()));
        let text = "workflow = 'dialogue'\nname = 'd'\n[dialogues]\nfile = 'none'\n\
                    [reranker]\nkind = 'tfidf'\nmodel = 'none'\n[generator]\nkind = 'causal'\nmodel = 'm'\n";
        std::fs::write(&path, text).unwrap();
        let error = ResponseOptions::load_for_training(&path, &[]).unwrap_err().to_string();
        assert!(error.contains("`train`: is missing"), "{error}");
        assert!(!error.contains("dialogues.file") && !error.contains("reranker"), "{error}");
        let train =
            |from: &str| format!("{text}[train]\nmodel = 't'\n{from}[train.examples]\nfiles = [{file:?}]\n");
        std::fs::write(&path, train("")).unwrap();
        let error = ResponseOptions::load_for_training(&path, &[]).unwrap_err().to_string();
        assert!(error.contains("`train.from`: is missing"), "{error}");
        let gpt2 = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/gpt2");
        std::fs::write(&path, train(&format!("from = {gpt2:?}\n"))).unwrap();
        let options = ResponseOptions::load_for_training(&path, &[]).unwrap();
        assert_eq!(options.train.unwrap().examples.files, [file]);
    }
}
