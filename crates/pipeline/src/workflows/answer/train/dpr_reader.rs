//! Training DPR's reader: of a question's passages, which one holds the answer, and where.

use candle_core::DType;
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_generator::{Extractive, ExtractiveOptions, ReadRow, ReaderInput, reader_question};
use sporran_kilt::{Passage, PassageId, PassageStore};
use sporran_training::{EvaluationError, ReadQuestion, ReaderObjective, TunedEncoder};
use sporran_transformers::{Checkpoint, EncoderRow};

use crate::{
    Error, Result,
    observe::Observer,
    training::{
        outcome::Trained,
        reader::ReaderInTraining,
        session::{Learning, encoder_files},
    },
    workflows::answer::{
        assemble::assemble_retrieval,
        options::{Options, TrainOptions},
        train::{
            examples::{Reading, judged_score, readings},
            start::learning,
        },
    },
};

/// A question with passages that hold its answer and others.
struct Question {
    /// Rows with the places of the answer.
    holding: Vec<(EncoderRow, Vec<(u32, u32)>)>,
    others: Vec<EncoderRow>,
}

/// Trains the model of an `extractive` generator on the records of `[train.examples]` whose answer stands in a passage, and
/// judges it by its answers on `[tasks]`.
///
/// # Errors
/// [`Error::Config`] without `train.from`, a BERT to start from; whatever is wrong with files, index or training.
pub(crate) fn train_reader(
    options: &Options,
    train: &TrainOptions,
    reader: &ExtractiveOptions,
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
    let from =
        train.from.as_ref().ok_or_else(|| fault("train.from", "is missing; a reader starts from BERT"))?;
    let seed = options.general.seed;
    let assembly = assemble_retrieval(options, observe)?;
    let Some(store) = &assembly.store else {
        return Err(fault("source", "is missing; answers are looked for in its passages"));
    };
    let examples = (&train.examples, "train.examples", None);
    let judged = (&options.general.tasks, "tasks", Some(train.judged));
    let [examples, judged] = [examples, judged].map(|(files, table, limit)| {
        readings(options, files, table, limit, reader.passages, false, &assembly, observe)
    });
    let (examples, judged) = (examples?, judged?);

    let checkpoint = Checkpoint::open(from)?;
    let encoder = TunedEncoder::open_reader(&checkpoint, seed, &train.device.open()?)?;
    let most = reader.max_tokens.min(encoder.config().max_input_length());
    let input = || -> Result<ReaderInput> { Ok(ReaderInput::new(checkpoint.tokenizer()?, most)?) };
    let rows = input()?;
    let questions: Vec<Question> = examples
        .iter()
        .map(|reading| question(reading, store, &rows, seed))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect();
    if questions.is_empty() {
        return Err(fault("train.examples", "expected records whose answer stands in a passage, found none"));
    }
    tracing::info!(questions = questions.len(), records = examples.len(), "answers that stand in a passage");
    let of_epoch = |epoch: u64| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x4ead);
        rng.set_stream(epoch);
        questions.iter().map(|question| question.shown(train.negatives, &mut rng)).collect()
    };
    let objective = ReaderObjective::new(&encoder, &of_epoch, &train.optimizer)?;
    let tokens = train.optimizer.tokens_per_batch;
    let judge = || -> Result<f64, EvaluationError> {
        let answers = || -> Result<f64> {
            let generator =
                Extractive::new(ReaderInTraining { encoder: &encoder, tokens }, input()?, reader, seed)?;
            judged_score(&generator, &judged)
        };
        answers().map_err(EvaluationError::from)
    };
    let companions = encoder_files(&checkpoint, encoder.config())?;
    let learning =
        Learning { dtype: DType::F32, ..learning(&options.general, train, encoder.variables(), &companions) };
    learning.run(&objective, (!judged.is_empty()).then_some(&judge), observe)
}

/// What a record teaches; `None` where its answer stands in none of its passages. The gold pages' passages come before what
/// was retrieved, which may hold the answer by chance.
fn question(
    reading: &Reading,
    store: &PassageStore,
    input: &ReaderInput,
    seed: u64,
) -> Result<Option<Question>> {
    let asked = reader_question(&reading.example.query, seed);
    let answers = reading.example.answers();
    let row = |passage: &Passage| -> Result<(ReadRow, Vec<(u32, u32)>)> {
        let row = input.row(&asked, &passage.title, &passage.text)?;
        let mut spans: Vec<(u32, u32)> =
            answers.iter().flat_map(|answer| row.find(&passage.text, answer)).collect();
        spans.sort_unstable();
        spans.dedup();
        Ok((row, spans))
    };
    let (mut holding, mut others) = (Vec::new(), Vec::new());
    let gold = reading.example.gold.iter().flat_map(|output| output.evidence());
    let mut pages: Vec<_> =
        gold.filter_map(|item| store.page_by_id(&item.wikipedia_id.as_ref()?.text())).collect();
    pages.sort_unstable();
    pages.dedup();
    for passage in pages.iter().flat_map(|page| store.passages_of(*page)) {
        let (row, spans) = row(&store.passage(PassageId(passage)))?;
        if !spans.is_empty() {
            holding.push((row.row, spans));
        }
    }
    for (passage, _) in &reading.passages {
        let (row, spans) = row(passage)?;
        if spans.is_empty() {
            others.push(row.row);
        } else if pages.is_empty() {
            holding.push((row.row, spans));
        }
    }
    Ok((!holding.is_empty()).then_some(Question { holding, others }))
}

impl Question {
    /// One passage that holds the answer, and some others.
    fn shown(&self, negatives: usize, rng: &mut ChaCha8Rng) -> ReadQuestion {
        let mut order: Vec<usize> = (0..self.others.len()).collect();
        order.shuffle(rng);
        let mut held: Vec<usize> = (0..self.holding.len()).collect();
        held.shuffle(rng);
        let (row, spans) = &self.holding[held[0]];
        let others = order.into_iter().take(negatives).map(|at| self.others[at].clone());
        ReadQuestion { rows: std::iter::once(row.clone()).chain(others).collect(), spans: spans.clone() }
    }
}
