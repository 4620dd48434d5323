//! Training of DPR's reader, which selects a passage and a span in it.

use candle_core::DType;
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_generator::{
    Extractive, ExtractiveOptions, ReadRow, ReaderInTraining, ReaderInput, reader_question,
};
use sporran_kilt::{Passage, PassageId, PassageStore, observe::Observer};
use sporran_training::{
    EvaluationError, ReadQuestion, ReaderObjective, TunedEncoder,
    session::{Trained, TrainingSession, encoder_files},
};
use sporran_transformers::{Checkpoint, EncoderRow};

use crate::{
    Error, Result,
    run_dir::training::TrainingFolder,
    workflows::answer::{
        options::{Options, TrainOptions},
        train::{
            examples::{RetrievedExample, mean_score, retrieved_examples},
            remembered::assemble_remembering,
            start::training_session,
        },
    },
};

/// A question with positive and negative passages.
struct Question {
    /// Passages with the spans of the answer.
    positives: Vec<(EncoderRow, Vec<(u32, u32)>)>,
    negatives: Vec<EncoderRow>,
}

/// Trains the model of an `extractive` generator on those records of `[train.examples]` whose answer occurs in a passage.
/// Validates its answers on `[tasks]`.
///
/// # Errors
/// [`Error::Config`] without `train.from`, the folder of a BERT; errors of files, index or training.
pub(crate) fn train_reader(
    options: &Options,
    train: &TrainOptions,
    reader: &ExtractiveOptions,
    underway: &TrainingFolder,
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let fault = |key: &str, message: &str| {
        let diagnostic = sporran_config::Diagnostic {
            origin: "config".into(),
            line: 0,
            key: key.into(),
            message: message.into(),
        };
        Error::Config(vec![diagnostic])
    };
    let from = train
        .from
        .as_ref()
        .ok_or_else(|| fault("train.from", "is missing; a reader is fine-tuned from a BERT"))?;
    let seed = options.general.seed;
    let assembly = assemble_remembering(options, underway, observe)?;
    let Some(store) = &assembly.store else {
        return Err(fault("source", "is missing; a reader extracts answers from its passages"));
    };
    let examples = (&train.examples, "train.examples", None);
    let validation = (&options.general.tasks, "tasks", Some(train.validation_records));
    let [examples, validation] = [examples, validation].map(|(files, table, limit)| {
        retrieved_examples(options, files, table, limit, reader.passages, false, &assembly, observe)
    });
    let (examples, validation) = (examples?, validation?);

    let checkpoint = Checkpoint::open(from)?;
    let encoder = TunedEncoder::open_reader(&checkpoint, seed, &train.device.open()?)?;
    let max_tokens = reader.max_tokens.min(encoder.config().max_input_length());
    let input = || -> Result<ReaderInput> { Ok(ReaderInput::new(checkpoint.tokenizer()?, max_tokens)?) };
    let rows = input()?;
    let questions: Vec<Question> = examples
        .iter()
        .map(|retrieved| question(retrieved, store, &rows, seed))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect();
    if questions.is_empty() {
        return Err(fault("train.examples", "expected records whose answer occurs in a passage, found none"));
    }
    tracing::info!(questions = questions.len(), records = examples.len(), "answers that occur in a passage");
    let of_epoch = |epoch: u64| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x4ead);
        rng.set_stream(epoch);
        questions.iter().map(|question| question.sample(train.negatives, &mut rng)).collect()
    };
    let objective = ReaderObjective::new(&encoder, &of_epoch, &train.optimizer)?;
    let tokens = train.optimizer.tokens_per_batch;
    let evaluate = || -> Result<f64, EvaluationError> {
        let answers = || -> Result<f64> {
            let generator =
                Extractive::new(ReaderInTraining { encoder: &encoder, tokens }, input()?, reader, seed)?;
            mean_score(&generator, &validation)
        };
        answers().map_err(EvaluationError::from)
    };
    let extra_files = encoder_files(&checkpoint, encoder.config())?;
    let session = TrainingSession {
        dtype: DType::F32,
        ..training_session(&options.general, train, encoder.variables(), &extra_files)
    };
    session.run(&objective, (!validation.is_empty()).then_some(&evaluate), observe)
}

/// The training example of a record; `None` if no passage contains the answer. If the record has gold pages, only their
/// passages are positive: others can contain the answer by chance.
fn question(
    retrieved: &RetrievedExample,
    store: &PassageStore,
    input: &ReaderInput,
    seed: u64,
) -> Result<Option<Question>> {
    let question = reader_question(&retrieved.example.query, seed);
    let answers = retrieved.example.answers();
    let row = |passage: &Passage| -> Result<(ReadRow, Vec<(u32, u32)>)> {
        let row = input.row(&question, &passage.title, &passage.text)?;
        let mut spans: Vec<(u32, u32)> =
            answers.iter().flat_map(|answer| row.find(&passage.text, answer)).collect();
        spans.sort_unstable();
        spans.dedup();
        Ok((row, spans))
    };
    let (mut positives, mut negatives) = (Vec::new(), Vec::new());
    let gold = retrieved.example.gold.iter().flat_map(|output| output.evidence());
    let mut pages: Vec<_> =
        gold.filter_map(|item| store.page_by_id(&item.wikipedia_id.as_ref()?.text())).collect();
    pages.sort_unstable();
    pages.dedup();
    for passage in pages.iter().flat_map(|page| store.passages_of(*page)) {
        let (row, spans) = row(&store.passage(PassageId(passage)))?;
        if !spans.is_empty() {
            positives.push((row.row, spans));
        }
    }
    for (passage, _) in &retrieved.passages {
        let (row, spans) = row(passage)?;
        if spans.is_empty() {
            negatives.push(row.row);
        } else if pages.is_empty() {
            positives.push((row.row, spans));
        }
    }
    Ok((!positives.is_empty()).then_some(Question { positives, negatives }))
}

impl Question {
    /// A random positive passage and `negatives` random others.
    fn sample(&self, negatives: usize, rng: &mut ChaCha8Rng) -> ReadQuestion {
        let mut order: Vec<usize> = (0..self.negatives.len()).collect();
        order.shuffle(rng);
        let mut positives: Vec<usize> = (0..self.positives.len()).collect();
        positives.shuffle(rng);
        let (row, spans) = &self.positives[positives[0]];
        let others = order.into_iter().take(negatives).map(|at| self.negatives[at].clone());
        ReadQuestion { rows: std::iter::once(row.clone()).chain(others).collect(), spans: spans.clone() }
    }
}
