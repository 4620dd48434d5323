//! Training of a reader for questions of unseen relations.

use std::{collections::BTreeSet, fmt};

use candle_core::DType;
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::Serialize;
use sporran_config::Diagnostic;
use sporran_extractor::best_threshold;
use sporran_generator::{ReaderInTraining, ReaderInput};
use sporran_kilt::{
    StagedFolder, counted, jsonl,
    observe::Observer,
    zsre::{self, SlotQuestion},
};
use sporran_training::{
    EvaluationError, ReadQuestion, ReaderObjective, TrainingOptions, TunedEncoder,
    session::{Trained, TrainingSession, encoder_files},
};
use sporran_transformers::Checkpoint;

use super::{
    model::{SLOT_FILLING, SlotModel, candidates, is_right, row},
    options::{SlotsOptions, SlotsTraining},
};
use crate::{Error, Result, run_dir::training::TrainingFolder};

/// The result of a training.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TrainedSlots {
    /// The model, the steps, and the best evaluation: F1 on the validation relations.
    #[serde(flatten)]
    pub trained: Trained,
    /// The numbers of training, validation and unseen relations.
    pub relations: [usize; 3],
    /// The smallest margin of an answer over no answer.
    pub threshold: f32,
}

impl fmt::Display for TrainedSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [train, validation, unseen] = self.relations;
        write!(
            f,
            "relations: {train} for training, {validation} for validation, {unseen} unseen\n{}",
            counted(self.trained.steps, "step")
        )?;
        match self.trained.best {
            Some((step, f1)) => write!(f, ", best step {step}: validation F1 {:.1}", 100.0 * f1),
            None => Ok(()),
        }
    }
}

/// A random split of the relations.
struct Split {
    training: BTreeSet<String>,
    validation: BTreeSet<String>,
    unseen: usize,
}

impl Split {
    fn of(questions: &[SlotQuestion], training: &SlotsTraining, seed: u64) -> Self {
        let all: BTreeSet<&str> = questions.iter().map(|question| question.relation.as_str()).collect();
        let mut order: Vec<&str> = all.into_iter().collect();
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let share = |share: f64| (share * order.len() as f64).round() as usize;
        let (unseen, validation) = (share(training.unseen), share(training.validation_share));
        let set = |part: &[&str]| part.iter().map(ToString::to_string).collect();
        Self {
            training: set(&order[unseen + validation..]),
            validation: set(&order[unseen..unseen + validation]),
            unseen,
        }
    }
}

/// Options that do not change the training: the model's folder, and options of `sporran run`.
const WITHOUT: [&str; 3] = ["slot-filling.model", "slot-filling.files", "slot-filling.precision"];

/// Trains `[slot-filling]`. If a sentence has no answer, the target is the first token of the row.
/// A stopped training resumes from its newest checkpoint.
///
/// # Errors
/// [`Error::Config`] without a table of the training; errors of files, models or training.
pub fn train(options: &SlotsOptions, observe: &mut Observer<'_>) -> Result<TrainedSlots> {
    let own = &options.slot_filling;
    let fault = |key: &str, message: &str| Error::Config(vec![Diagnostic::of_config(key, message)]);
    let Some(training) = &own.training else {
        return Err(fault("slot-filling.training", "is missing; training needs it"));
    };
    let mut underway = TrainingFolder::begin(options.folder(), options, &WITHOUT)?.writing(&options.model());
    let mut questions = Vec::new();
    for path in &training.files {
        questions.extend(zsre::load(path)?);
    }
    underway.verify()?;
    let split = Split::of(&questions, training, options.seed);
    let checkpoint = Checkpoint::open(&training.from)?;
    let device = own.device.open()?;
    let encoder = TunedEncoder::open_reader(&checkpoint, options.seed, &device)?;
    let max_tokens = training.max_tokens.min(encoder.config().max_input_length());
    let input = ReaderInput::new(checkpoint.tokenizer()?, max_tokens)?;
    let training_questions: Vec<ReadQuestion> = questions
        .par_iter()
        .filter(|question| split.training.contains(&question.relation))
        .map(|question| training_example(&input, question))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect();
    if training_questions.is_empty() {
        return Err(fault("slot-filling.training.files", "expected training relations, found none"));
    }
    let validation: Vec<&SlotQuestion> =
        questions.iter().filter(|question| split.validation.contains(&question.relation)).collect();
    tracing::info!(training = training_questions.len(), validation = validation.len(), "questions");

    let optimizer = TrainingOptions { seed: options.seed, ..training.optimizer.clone() };
    let of_epoch = |_: u64| training_questions.clone();
    let objective = ReaderObjective::new(&encoder, &of_epoch, &optimizer)?;
    let evaluate_with = |encoder: &TunedEncoder| -> Result<(f32, f64)> {
        let reader = ReaderInTraining { encoder, tokens: 4096 };
        let found = candidates(&reader, &input, &validation, training.answer_tokens)?;
        let each = validation.iter().zip(found);
        let scored = each.filter_map(|(question, found)| {
            let found = found?;
            Some((found.margin, is_right(question, &question.sentence[found.start..found.end])))
        });
        let all = validation.iter().filter(|question| !question.answers.is_empty()).count();
        Ok(best_threshold(scored.collect(), all))
    };
    let evaluate = || -> Result<f64, EvaluationError> { Ok(evaluate_with(&encoder)?.1) };
    let seen = split.training.iter().chain(&split.validation).cloned().collect();
    let mut model = SlotModel {
        version: SlotModel::VERSION,
        seen,
        threshold: 0.0,
        max_tokens,
        answer_tokens: training.answer_tokens,
    };
    let mut files = encoder_files(&checkpoint, encoder.config())?;
    files.push((SLOT_FILLING.to_owned(), model.json()?));
    let staged = StagedFolder::create(options.model())?;
    let folder = staged.path();
    let session = TrainingSession {
        variables: encoder.variables(),
        options: &optimizer,
        folder: options.folder().join("training"),
        model: &folder,
        dtype: DType::F32,
        extra_files: &files,
        score: "F1",
    };
    let trained = session.run(&objective, (!validation.is_empty()).then_some(&evaluate), observe)?;
    // Tunes the threshold for the best weights.
    let best = TunedEncoder::open_reader(&Checkpoint::open(&folder)?, options.seed, &device)?;
    model.threshold = evaluate_with(&best)?.0;
    jsonl::write(folder.join(SLOT_FILLING), &model.json()?)?;
    staged.commit()?;
    underway.finish((&trained).into())?;
    let trained = Trained { model: options.model(), ..trained };
    let relations = [split.training.len(), split.validation.len(), split.unseen];
    Ok(TrainedSlots { trained, relations, threshold: model.threshold })
}

/// The training example of a question; `None` if no answer is in the sentence within the token limit.
fn training_example(input: &ReaderInput, question: &SlotQuestion) -> Result<Option<ReadQuestion>> {
    let row = row(input, question)?;
    let mut spans: Vec<(u32, u32)> =
        question.answers.iter().flat_map(|answer| row.find(&question.sentence, answer)).collect();
    if question.answers.is_empty() {
        spans.push((0, 0));
    }
    spans.sort_unstable();
    spans.dedup();
    Ok((!spans.is_empty()).then(|| ReadQuestion { rows: vec![row.row], spans }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_are_split_by_the_seed() {
        let question = |relation: usize| SlotQuestion {
            relation: format!("r{relation:02}"),
            template: "XXX?".into(),
            entity: "e".into(),
            sentence: "s".into(),
            answers: vec![],
        };
        let questions: Vec<SlotQuestion> = (0..60).map(|at| question(at % 20)).collect();
        let training: SlotsTraining =
            serde_json::from_value(serde_json::json!({"from": "m", "files": ["f"]})).unwrap();
        let split = Split::of(&questions, &training, 3);
        assert_eq!((split.training.len(), split.validation.len(), split.unseen), (14, 2, 4));
        assert!(split.training.is_disjoint(&split.validation));
        assert_eq!(Split::of(&questions, &training, 3).training, split.training);
        assert_ne!(Split::of(&questions, &training, 4).training, split.training);
    }
}
