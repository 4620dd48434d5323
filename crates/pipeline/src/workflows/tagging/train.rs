//! Training of taggers.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::Serialize;
use sporran_extractor::{
    Annotated, Document,
    tagger::{Computing, Tagger, TaggerTraining},
};
use sporran_kilt::{
    Page, counted, docred, jsonl,
    observe::{Event, Observer, Unit, begin},
};
use sporran_training::session::Trained;

use super::{
    Tested,
    options::{TaggingOptions, TestOptions},
    scores::{test_docred, test_knowledgenet},
};
use crate::{Result, run_dir::training::TrainingFolder, workflows::folds::documents_of};

/// The result of a training.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TrainedTagger {
    /// The folder of the tagger.
    pub model: PathBuf,
    /// The number of optimizer steps.
    pub steps: u64,
    /// The step and the F1 of the best evaluation; `None` without validation documents.
    pub best: Option<(u64, f64)>,
    /// The scores of `[test]`.
    pub tests: Vec<Tested>,
}

impl fmt::Display for TrainedTagger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(self.steps, "step"))?;
        if let Some((step, f1)) = self.best {
            write!(f, ", best step {step}: validation F1 {:.1}", 100.0 * f1)?;
        }
        self.tests.iter().try_for_each(|tested| write!(f, "{tested}"))
    }
}

/// Trains the tagger of a config and scores it. A stopped training resumes from its newest checkpoint.
///
/// # Errors
/// Errors of files, models or training.
pub fn train(options: &TaggingOptions, observe: &mut Observer<'_>) -> Result<TrainedTagger> {
    let mut underway = TrainingFolder::begin(options.folder(), options, &["test"])?;
    let tests = tests(&options.test)?;
    let (documents, validation) = annotations(options, observe)?;
    underway.verify()?;
    let folder = options.folder();
    let training = TaggerTraining {
        documents: &documents,
        validation: &validation,
        seed: options.seed,
        checkpoints: &folder.join("training"),
        model: &folder.join("model"),
    };
    let trained = options.tagger.train(&training, observe)?;
    underway.finish((&trained).into())?;
    let Trained { model, steps, best } = trained;
    let tagger = Tagger::open(&model, Computing::default())?;
    let tests: Result<Vec<Tested>> =
        tests.iter().map(|(test, path, documents)| test(&tagger, path, documents)).collect();
    Ok(TrainedTagger { model, steps, best, tests: tests? })
}

/// A test, its file and its documents.
type Test<'a> = (fn(&Tagger, &Path, &[Annotated]) -> Result<Tested>, &'a PathBuf, Vec<Annotated>);

/// The test data, which is read before a training, so that a wrong file is reported then.
fn tests(options: &TestOptions) -> Result<Vec<Test<'_>>> {
    let mut tests: Vec<Test<'_>> = Vec::new();
    for path in &options.docred {
        let documents = docred::load(path)?.iter().map(Annotated::from_docred).collect();
        tests.push((test_docred, path, documents));
    }
    for path in &options.knowledgenet {
        let documents = documents_of(path, &options.folds, "test.folds")?;
        tests.push((test_knowledgenet, path, documents.iter().map(Annotated::from_knowledgenet).collect()));
    }
    Ok(tests)
}

/// The training documents and the validation documents.
fn annotations(
    options: &TaggingOptions,
    observe: &mut Observer<'_>,
) -> Result<(Vec<Annotated>, Vec<Annotated>)> {
    let from = &options.annotations;
    let (mut training, mut validation) = (Vec::new(), Vec::new());
    for path in &from.docred {
        for (at, record) in docred::load(path)?.iter().enumerate() {
            let is_validation =
                from.validation_every > 0 && at % from.validation_every == from.validation_every - 1;
            if is_validation { &mut validation } else { &mut training }.push(Annotated::from_docred(record));
        }
    }
    for path in &from.knowledgenet {
        let documents = documents_of(path, &from.folds, "annotations.folds")?;
        training.extend(documents.iter().map(Annotated::from_knowledgenet));
    }
    if let Some(weak) = &from.weak_labels {
        let pages: Vec<Page> =
            jsonl::open(&weak.pages)?.records().take(weak.limit).collect::<Result<_, _>>()?;
        let teacher = Tagger::open(&weak.teacher, Computing::default())?;
        begin(observe, format!("mark {}", weak.pages.display()), pages.len() as u64, Unit::Records);
        let mut done = 0;
        for pages in pages.chunks(256) {
            let text = |page: &Page| {
                page.text.iter().skip(1).map(|text| text.trim()).collect::<Vec<_>>().join("\n\n")
            };
            let documents: Vec<Document> =
                pages.iter().map(|page| Document::new(page.wikipedia_title.clone(), text(page))).collect();
            for (document, tagged) in documents.iter().zip(teacher.tag(&documents)?) {
                let mentions = tagged.into_iter().map(|name| (name.tokens, name.kind)).collect();
                training.push(Annotated { document: document.clone(), mentions, complete: true });
            }
            done += pages.len() as u64;
            observe(Event::Advance { done, note: None });
        }
        observe(Event::End);
    }
    Ok((training, validation))
}
