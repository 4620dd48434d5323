//! Making a reader that answers the questions of relations it has not seen.

use std::{collections::BTreeSet, fmt};

use candle_core::DType;
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::Serialize;
use sporran_extractor::best_threshold;
use sporran_generator::ReaderInput;
use sporran_kilt::{
    StagedFolder, jsonl,
    zsre::{self, SlotQuestion},
};
use sporran_training::{EvaluationError, ReadQuestion, ReaderObjective, TrainingOptions, TunedEncoder};
use sporran_transformers::Checkpoint;

use super::{
    model::{SLOT_FILLING, SlotModel, candidates, is_right, row},
    options::{SlotsOptions, SlotsTraining},
};
use crate::{
    Error, Result,
    observe::Observer,
    run_dir::training::TrainingFolder,
    training::{
        outcome::Trained,
        reader::ReaderInTraining,
        session::{Learning, encoder_files},
    },
};
use sporran_config::Diagnostic;

/// What a training made.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TrainedSlots {
    /// The model, the steps, and the best evaluation: F1 on the relations that judge.
    #[serde(flatten)]
    pub trained: Trained,
    /// Relations that were learned, that judged, and that were left alone.
    pub relations: [usize; 3],
    /// How much better than no answer an answer must be.
    pub threshold: f32,
}

impl fmt::Display for TrainedSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [train, validation, unseen] = self.relations;
        write!(
            f,
            "relations: {train} for training, {validation} for validation, {unseen} unseen\n{} steps",
            self.trained.steps
        )?;
        match self.trained.best {
            Some((step, f1)) => write!(f, ", best step {step}: validation F1 {:.1}", 100.0 * f1),
            None => Ok(()),
        }
    }
}

/// The relations of questions, drawn apart by the seed.
struct Split {
    learned: BTreeSet<String>,
    judged: BTreeSet<String>,
    unseen: usize,
}

impl Split {
    fn of(questions: &[SlotQuestion], training: &SlotsTraining, seed: u64) -> Self {
        let all: BTreeSet<&str> = questions.iter().map(|question| question.relation.as_str()).collect();
        let mut order: Vec<&str> = all.into_iter().collect();
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let share = |share: f64| (share * order.len() as f64).round() as usize;
        let (unseen, judged) = (share(training.unseen), share(training.judged));
        let set = |part: &[&str]| part.iter().map(ToString::to_string).collect();
        Self { learned: set(&order[unseen + judged..]), judged: set(&order[unseen..unseen + judged]), unseen }
    }
}

/// The options that no training depends on: where the model goes, and what it reads then.
const WITHOUT: [&str; 3] = ["slot-filling.model", "slot-filling.files", "slot-filling.precision"];

/// Trains `[slot-filling]`. A sentence that does not tell what is asked teaches the reader to answer with the row's first token.
/// A training that was stopped goes on from its newest checkpoint.
///
/// # Errors
/// [`Error::Config`] where the config does not say what to learn from; whatever is wrong with files, models or training.
pub fn train(options: &SlotsOptions, observe: &mut Observer<'_>) -> Result<TrainedSlots> {
    let own = &options.slot_filling;
    let fault = |key: &str, message: &str| Error::Config(vec![Diagnostic::of_config(key, message)]);
    let Some(training) = &own.training else {
        return Err(fault("slot-filling.training", "is missing; training needs it"));
    };
    let mut underway = TrainingFolder::begin(options.folder(), options, &WITHOUT)?;
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
    let learned: Vec<ReadQuestion> = questions
        .par_iter()
        .filter(|question| split.learned.contains(&question.relation))
        .map(|question| taught(&input, question))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect();
    if learned.is_empty() {
        return Err(fault("slot-filling.training.files", "expected relations to learn, found none"));
    }
    let judged: Vec<&SlotQuestion> =
        questions.iter().filter(|question| split.judged.contains(&question.relation)).collect();
    tracing::info!(learned = learned.len(), judged = judged.len(), "questions");

    let optimizer = TrainingOptions { seed: options.seed, ..training.optimizer.clone() };
    let of_epoch = |_: u64| learned.clone();
    let objective = ReaderObjective::new(&encoder, &of_epoch, &optimizer)?;
    let judge = |encoder: &TunedEncoder| -> Result<(f32, f64)> {
        let reader = ReaderInTraining { encoder, tokens: 4096 };
        let found = candidates(&reader, &input, &judged, training.answer_tokens)?;
        let each = judged.iter().zip(found);
        let scored = each.filter_map(|(question, found)| {
            let found = found?;
            Some((found.margin, is_right(question, &question.sentence[found.start..found.end])))
        });
        let all = judged.iter().filter(|question| !question.answers.is_empty()).count();
        Ok(best_threshold(scored.collect(), all))
    };
    let evaluate = || -> Result<f64, EvaluationError> { Ok(judge(&encoder)?.1) };
    let seen = split.learned.iter().chain(&split.judged).cloned().collect();
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
    let learning = Learning {
        variables: encoder.variables(),
        options: &optimizer,
        folder: options.folder().join("training"),
        model: &folder,
        dtype: DType::F32,
        companions: &files,
        score: "F1",
    };
    let trained = learning.run(&objective, (!judged.is_empty()).then_some(&evaluate), observe)?;
    // The threshold is that of the weights that were kept.
    let best = TunedEncoder::open_reader(&Checkpoint::open(&folder)?, options.seed, &device)?;
    model.threshold = judge(&best)?.0;
    jsonl::write(folder.join(SLOT_FILLING), &model.json()?)?;
    staged.commit()?;
    underway.finish(trained.entry())?;
    let trained = Trained { model: options.model(), ..trained };
    let relations = [split.learned.len(), split.judged.len(), split.unseen];
    Ok(TrainedSlots { trained, relations, threshold: model.threshold })
}

/// What a question teaches; nothing where none of its answers stands in what is read of the sentence.
fn taught(input: &ReaderInput, question: &SlotQuestion) -> Result<Option<ReadQuestion>> {
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
    fn relations_are_drawn_apart_by_the_seed() {
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
        assert_eq!((split.learned.len(), split.judged.len(), split.unseen), (14, 2, 4));
        assert!(split.learned.is_disjoint(&split.judged));
        assert_eq!(Split::of(&questions, &training, 3).learned, split.learned);
        assert_ne!(Split::of(&questions, &training, 4).learned, split.learned);
    }
}
