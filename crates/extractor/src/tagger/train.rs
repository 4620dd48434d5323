//! Training of a conditional random field over the scores of any model.

use sporran_config::Document;
use sporran_kilt::{observe::Observer, scores::Measure};
use sporran_training::{
    CrfVariables, Emitter, EvaluationError, TaggedRow, TaggingObjective, TrainingOptions, Variables,
    session::{Evaluate, Trained, TrainingSession, WeightDtype},
};

use super::TaggerTraining;
use crate::{
    Annotated, Result,
    tags::{allowed_tags, tag_spans},
};

/// Reports wrong values of `optimizer` in the table `key`.
pub(super) fn check_optimizer(optimizer: &TrainingOptions, key: &str, document: &mut Document<'_>) {
    if let Err(error) = optimizer.check() {
        document.report_key(&format!("{key}.optimizer"), error.to_string());
    }
}

/// The sentences of documents as rows. `rows` makes the inputs of a sentence, each with its number of words.
pub(super) fn sentences<I>(
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
    // The numbers of gold spans, of predicted spans, and of correct predictions.
    let (mut all_gold, mut all_found, mut all_both) = (0, 0, 0);
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
            all_both += gold.iter().filter(|name| found.contains(name)).count();
            all_gold += gold.len();
            all_found += found.len();
        }
    }
    Ok(Measure::share(2 * all_both, all_gold + all_found).or_zero())
}

/// A training with any emitter.
pub(super) struct CrfTraining<'a, E> {
    pub(super) emitter: &'a E,
    pub(super) crf: &'a CrfVariables,
    pub(super) variables: &'a Variables,
    /// The options of the optimizer, with the seed of the training.
    pub(super) optimizer: TrainingOptions,
    pub(super) dtype: WeightDtype,
    /// The names and contents of the other files of the model.
    pub(super) files: &'a [(String, Vec<u8>)],
    pub(super) training: &'a TaggerTraining<'a>,
}

impl<E: Emitter> CrfTraining<'_, E> {
    /// Trains, and saves the best weights.
    pub(super) fn run(
        self,
        documents: Vec<TaggedRow<E::Input>>,
        validation: &[TaggedRow<E::Input>],
        observe: &mut Observer<'_>,
    ) -> Result<Trained> {
        let objective = TaggingObjective::new(self.emitter, self.crf, documents, &self.optimizer)?;
        let evaluate = || validation_f1(self.emitter, self.crf, validation).map_err(EvaluationError::from);
        let session = TrainingSession {
            variables: self.variables,
            options: &self.optimizer,
            folder: self.training.checkpoints.to_path_buf(),
            model: self.training.model,
            dtype: self.dtype.into(),
            extra_files: self.files,
            score: "F1",
        };
        let evaluate = (!validation.is_empty()).then_some(&evaluate as Evaluate<'_>);
        Ok(session.run(&objective, evaluate, observe)?)
    }
}
