//! Training of DPR's reader, which selects a passage and a span in it.

use candle_core::DType;
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_kilt::{Passage, PassageId, PassageStore, observe::Observer};
use sporran_training::{
    EvaluationError, ReadQuestion, ReaderObjective, TunedEncoder,
    session::{Trained, TrainingSession, encoder_files},
};
use sporran_transformers::{Checkpoint, EncoderRow};

use super::{Extractive, ExtractiveOptions, ReadRow, ReaderInput, reader_question};
use crate::{
    Error, Result,
    training::{GeneratorTrainer, GeneratorTraining, ReaderInTraining, RetrievedExample, mean_score},
};

/// A question with positive and negative passages.
struct Question {
    /// Passages with the spans of the answer.
    positives: Vec<(EncoderRow, Vec<(u32, u32)>)>,
    negatives: Vec<EncoderRow>,
}

impl GeneratorTrainer for ExtractiveOptions {
    fn passages(&self) -> usize {
        self.passages
    }

    /// Trains on the records whose answer occurs in a passage.
    fn train(&self, training: GeneratorTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained> {
        let GeneratorTraining { settings, examples, validation, store, seed, .. } = &training;
        let (settings, seed) = (*settings, *seed);
        let fault = |option, problem| Error::Training { option, problem };
        let from =
            settings.from.ok_or(fault("train.from", "is missing; a reader is fine-tuned from a BERT"))?;
        let store = store
            .as_ref()
            .ok_or(fault("source", "is missing; a reader extracts answers from its passages"))?;
        let checkpoint = Checkpoint::open(from)?;
        let encoder = TunedEncoder::open_reader(&checkpoint, seed, &settings.device.open()?)?;
        let max_tokens = self.max_tokens.min(encoder.config().max_input_length());
        let input = || -> Result<ReaderInput> { ReaderInput::new(checkpoint.tokenizer()?, max_tokens) };
        let rows = input()?;
        let questions: Vec<Question> = examples
            .iter()
            .map(|retrieved| question(retrieved, store, &rows, seed))
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .flatten()
            .collect();
        if questions.is_empty() {
            return Err(fault(
                "train.examples",
                "expected records whose answer occurs in a passage, found none",
            ));
        }
        tracing::info!(
            questions = questions.len(),
            records = examples.len(),
            "answers that occur in a passage"
        );
        let of_epoch = |epoch: u64| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x4ead);
            rng.set_stream(epoch);
            questions.iter().map(|question| question.sample(settings.negatives, &mut rng)).collect()
        };
        let objective = ReaderObjective::new(&encoder, &of_epoch, settings.optimizer)?;
        let tokens = settings.optimizer.tokens_per_batch;
        let evaluate = || -> Result<f64, EvaluationError> {
            let answers = || -> Result<f64> {
                let generator =
                    Extractive::new(ReaderInTraining { encoder: &encoder, tokens }, input()?, self, seed)?;
                mean_score(&generator, validation)
            };
            answers().map_err(EvaluationError::from)
        };
        let extra_files = encoder_files(&checkpoint, encoder.config())?;
        let session =
            TrainingSession { dtype: DType::F32, ..training.session(encoder.variables(), &extra_files) };
        Ok(session.run(&objective, (!validation.is_empty()).then_some(&evaluate), observe)?)
    }
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
