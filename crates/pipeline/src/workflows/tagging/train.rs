//! Training of taggers.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::Serialize;
use sporran_extractor::{
    Annotated, Document, allowed_tags, tag_grammar, tag_names, tag_spans,
    tagger::{BiLstmEmitter, Computing, SavedTagger, Tagger, WordRows},
};
use sporran_kilt::{
    Page, docred, jsonl, knowledgenet,
    observe::{Event, Observer, Unit, begin},
};
use sporran_training::{
    CrfVariables, Emitter, EncoderEmitter, EvaluationError, TaggedRow, TaggingObjective, TrainingOptions,
    Variables,
    session::{Evaluate, Trained, TrainingSession, WeightDtype, encoder_files},
};
use sporran_transformers::{Checkpoint, WordInput, WordRow};

use super::{
    Matched, Tested,
    options::{BiLstmOptions, EncoderOptions, TaggerKind, TaggingOptions},
    scores::{test_docred, test_knowledgenet},
};
use crate::{Result, run_dir::training::TrainingFolder};

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
        write!(f, "{} steps", self.steps)?;
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
    let (training, validation) = annotations(options, observe)?;
    underway.verify()?;
    let folder = options.folder();
    let trained = match &options.tagger {
        TaggerKind::EncoderCrf(tuned) => encoder(options, tuned, &training, &validation, &folder, observe)?,
        TaggerKind::BilstmCrf(shape) => bilstm(options, shape, &training, &validation, &folder, observe)?,
    };
    underway.finish((&trained).into())?;
    let Trained { model, steps, best } = trained;
    let tagger = Tagger::open(&model, Computing::default())?;
    let mut tests = Vec::new();
    for path in &options.test.docred {
        tests.push(test_docred(&tagger, path)?);
    }
    for path in &options.test.knowledgenet {
        tests.push(test_knowledgenet(&tagger, path, &options.test.folds)?);
    }
    Ok(TrainedTagger { model, steps, best, tests })
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
        for record in knowledgenet::annotated(path)? {
            let record = record?;
            if from.folds.is_empty() || from.folds.contains(&record.fold) {
                training.push(Annotated::from_knowledgenet(&record));
            }
        }
    }
    if let Some(weak) = &from.weak_labels {
        let teacher = Tagger::open(&weak.teacher, Computing::default())?;
        let pages: Vec<Page> =
            jsonl::open(&weak.pages)?.records().take(weak.limit).collect::<Result<_, _>>()?;
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

/// The sentences of documents as rows. `rows` makes the inputs of a sentence, each with its number of words.
fn sentences<I>(
    documents: &[Annotated],
    rows: impl Fn(&[&str]) -> Result<Vec<(I, usize)>>,
) -> Result<Vec<TaggedRow<I>>> {
    let mut found = Vec::new();
    for annotated in documents {
        let allowed = allowed_tags(annotated);
        for sentence in &annotated.document.sentences {
            let words: Vec<&str> = sentence.tokens.clone().map(|at| annotated.document.word(at)).collect();
            let mut start = sentence.tokens.start;
            for (input, count) in rows(&words)? {
                let mut allowed = allowed[start..start + count].to_vec();
                start += count;
                // A window can begin within a name. Its first tag is then that of the beginning of a name.
                if let Some(set) = allowed.first_mut().filter(|set| set.count_ones() == 1) {
                    let label = set.trailing_zeros();
                    if label > 0 && label % 2 == 0 {
                        *set >>= 1;
                    }
                }
                found.push(TaggedRow { input, allowed });
            }
        }
    }
    Ok(found)
}

/// The F1 of typed spans over completely annotated rows.
fn validation_f1<E: Emitter>(emitter: &E, crf: &CrfVariables, rows: &[TaggedRow<E::Input>]) -> Result<f64> {
    let crf = crf.now()?;
    let labels = crf.grammar().labels();
    let mut matched = Matched::default();
    for rows in rows.chunks(64) {
        let inputs: Vec<&E::Input> = rows.iter().map(|row| &row.input).collect();
        let scores = emitter.scores(&inputs)?;
        let mut start = 0;
        for row in rows {
            let end = start + row.allowed.len() * labels;
            let found = tag_spans(&crf.best_path(&scores[start..end]));
            start = end;
            let path: Vec<usize> = row.allowed.iter().map(|set| set.trailing_zeros() as usize).collect();
            let gold = tag_spans(&path);
            let both = gold.iter().filter(|name| found.contains(name)).count();
            matched.add(gold.len(), found.len(), both);
        }
    }
    Ok(matched.f1.or_zero())
}

/// The options of the optimizer, with the config's seed.
fn optimizer(options: &TaggingOptions, own: &TrainingOptions) -> TrainingOptions {
    TrainingOptions { seed: options.seed, ..own.clone() }
}

fn encoder(
    options: &TaggingOptions,
    tuned: &EncoderOptions,
    training: &[Annotated],
    validation: &[Annotated],
    folder: &Path,
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let checkpoint = Checkpoint::open(&tuned.from)?;
    let device = tuned.device.open()?;
    let emitter = EncoderEmitter::open(&checkpoint, &tag_names(), tag_grammar(), options.seed, &device)?;
    let config = emitter.encoder().config();
    let marks_case = tuned.marks_case && config.type_vocab_size > 1;
    if tuned.marks_case && !marks_case {
        tracing::warn!("the encoder has no second token type, so capitals are not marked");
    }
    let max_tokens = tuned.max_tokens.min(config.max_input_length());
    let input = WordInput::new(checkpoint.tokenizer()?, max_tokens, marks_case)?;
    let rows = |words: &[&str]| -> Result<Vec<(WordRow, usize)>> {
        let windows = input.rows(words)?;
        Ok(windows.into_iter().map(|window| (window.firsts.len(), window)).map(|(n, w)| (w, n)).collect())
    };
    let saved = SavedTagger::EncoderCrf { labels: tag_names(), max_tokens, marks_case };
    let mut files = encoder_files(&checkpoint, config)?;
    files.push(saved.file());
    let (training, validation) = (sentences(training, rows)?, sentences(validation, rows)?);
    let run = Run {
        emitter: &emitter,
        crf: emitter.crf(),
        variables: emitter.encoder().variables(),
        optimizer: optimizer(options, &tuned.optimizer),
        dtype: tuned.dtype,
        files: &files,
        folder,
    };
    run.train(training, &validation, observe)
}

fn bilstm(
    options: &TaggingOptions,
    shape: &BiLstmOptions,
    training: &[Annotated],
    validation: &[Annotated],
    folder: &Path,
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let variables = Variables::new(options.seed);
    let crf = CrfVariables::new(tag_grammar(), "crf", &variables)?;
    let BiLstmOptions { features, hidden_size, layers, dropout, .. } = *shape;
    let labels = tag_names();
    let emitter = BiLstmEmitter::new(features, hidden_size, layers, labels.len(), dropout, &variables)?;
    let rows = |words: &[&str]| -> Result<Vec<(Vec<WordRows>, usize)>> {
        let read = words.iter().enumerate().map(|(at, word)| features.rows(word, at == 0)).collect();
        Ok(vec![(read, words.len())])
    };
    let files = [SavedTagger::BilstmCrf { labels, features, lstm: *emitter.lstm() }.file()];
    let (training, validation) = (sentences(training, rows)?, sentences(validation, rows)?);
    let run = Run {
        emitter: &emitter,
        crf: &crf,
        variables: &variables,
        optimizer: optimizer(options, &shape.optimizer),
        dtype: shape.dtype,
        files: &files,
        folder,
    };
    run.train(training, &validation, observe)
}

/// A training with any emitter.
struct Run<'a, E> {
    emitter: &'a E,
    crf: &'a CrfVariables,
    variables: &'a Variables,
    optimizer: TrainingOptions,
    dtype: WeightDtype,
    files: &'a [(String, Vec<u8>)],
    folder: &'a Path,
}

impl<E: Emitter> Run<'_, E> {
    /// Trains in `folder/training`, and saves the best weights in `folder/model`.
    fn train(
        self,
        training: Vec<TaggedRow<E::Input>>,
        validation: &[TaggedRow<E::Input>],
        observe: &mut Observer<'_>,
    ) -> Result<Trained> {
        let objective = TaggingObjective::new(self.emitter, self.crf, training, &self.optimizer)?;
        let evaluate = || validation_f1(self.emitter, self.crf, validation).map_err(EvaluationError::from);
        let session = TrainingSession {
            variables: self.variables,
            options: &self.optimizer,
            folder: self.folder.join("training"),
            model: &self.folder.join("model"),
            dtype: self.dtype.into(),
            extra_files: self.files,
            score: "F1",
        };
        Ok(session.run(&objective, (!validation.is_empty()).then_some(&evaluate as Evaluate<'_>), observe)?)
    }
}
