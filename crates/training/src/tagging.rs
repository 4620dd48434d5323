//! Training of taggers: a conditional random field over a model's scores of the labels of each word.

use std::cell::RefCell;

use candle_core::Tensor;
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_checkpoint::{Error, Result};
use sporran_transformers::{BertTask, Checkpoint, CrfGrammar, EncoderRow, Head, Mode, TokenHead, WordRow};

use crate::{
    crf::CrfVariables,
    gradients::Gradients,
    objective::Objective,
    options::TrainingOptions,
    tuned::{Pick, TunedEncoder},
    variables::Variables,
};

/// Makes the loss of scores (words, labels), and its gradient, which has their shape.
pub type ScoreLoss<'a> = dyn FnMut(&[f32]) -> Result<(f64, Vec<f32>)> + 'a;

/// Computes the scores of labels: (words, labels) for the words of its inputs, input after input.
pub trait Emitter: Sync {
    /// A sequence of words as the model reads it.
    type Input: Clone + Send + Sync;

    /// Its words.
    fn words(&self, input: &Self::Input) -> usize;

    /// The tokens that it costs.
    fn tokens(&self, input: &Self::Input) -> usize;

    /// The scores with the current weights.
    ///
    /// # Errors
    /// Where the model fails.
    fn scores(&self, inputs: &[&Self::Input]) -> Result<Vec<f32>>;

    /// Scores the inputs, with dropout sampled from `seed`. Calls `loss` for the gradient of the scores, and adds the gradients
    /// of the weights to `gradients`. Returns the value of `loss`.
    ///
    /// # Errors
    /// Where the model or `loss` fails.
    fn learn(
        &self,
        inputs: &[&Self::Input],
        seed: u64,
        gradients: &mut Gradients,
        loss: &mut ScoreLoss<'_>,
    ) -> Result<f64>;
}

/// A sequence with the set of labels that each of its words may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaggedRow<I> {
    /// The words.
    pub input: I,
    /// Bits, one set a word.
    pub allowed: Vec<u32>,
}

/// The negative log-likelihood of sets of labels under a conditional random field, summed over the words that are not free to
/// have any label.
pub struct TaggingObjective<'a, E: Emitter> {
    emitter: &'a E,
    crf: &'a CrfVariables,
    rows: Vec<TaggedRow<E::Input>>,
    options: TrainingOptions,
}

impl<'a, E: Emitter> TaggingObjective<'a, E> {
    /// Trains on `rows` with `emitter` and `crf`.
    ///
    /// # Errors
    /// [`Error::Batch`] where a row has not one set a word.
    pub fn new(
        emitter: &'a E,
        crf: &'a CrfVariables,
        rows: Vec<TaggedRow<E::Input>>,
        options: &TrainingOptions,
    ) -> Result<Self> {
        for (at, row) in rows.iter().enumerate() {
            let words = emitter.words(&row.input);
            if words != row.allowed.len() || words == 0 {
                return Err(Error::Batch {
                    expected: format!("one set of labels for each of the {words} words of row {at}"),
                    found: row.allowed.len().to_string(),
                });
            }
        }
        Ok(Self { emitter, crf, rows, options: options.clone() })
    }

    /// The words of a row that are not free.
    fn known(&self, row: &TaggedRow<E::Input>) -> usize {
        let all = self.crf.grammar().all();
        row.allowed.iter().filter(|set| **set & all != all).count()
    }
}

impl<E: Emitter> Objective for TaggingObjective<'_, E> {
    type Batch = Vec<TaggedRow<E::Input>>;

    fn check(&self, options: &TrainingOptions) -> Result<()> {
        options.refuse_smoothing("sequences are tagged")
    }

    /// Rows of similar length form batches, in an order that the seed determines.
    fn epoch(&self, number: u64) -> Result<Vec<Self::Batch>> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.options.seed);
        rng.set_stream(number);
        let mut order: Vec<usize> =
            (0..self.rows.len()).filter(|at| self.known(&self.rows[*at]) > 0).collect();
        order.shuffle(&mut rng);
        // Among a few hundred sampled at a time, so that batches differ from epoch to epoch.
        let mut batches: Vec<Self::Batch> = Vec::new();
        for portion in order.chunks_mut(512) {
            portion.sort_by_key(|at| self.emitter.tokens(&self.rows[*at].input));
            let mut tokens = usize::MAX;
            for at in portion.iter() {
                let row = &self.rows[*at];
                let more = self.emitter.tokens(&row.input);
                if tokens.saturating_add(more) > self.options.tokens_per_batch {
                    batches.push(Vec::new());
                    tokens = 0;
                }
                if let Some(batch) = batches.last_mut() {
                    batch.push(row.clone());
                }
                tokens += more;
            }
        }
        batches.shuffle(&mut rng);
        Ok(batches)
    }

    fn weight(&self, batch: &Self::Batch) -> f64 {
        batch.iter().map(|row| self.known(row)).sum::<usize>() as f64
    }

    fn tokens(&self, batch: &Self::Batch) -> usize {
        batch.iter().map(|row| self.emitter.tokens(&row.input)).sum()
    }

    fn learn(&self, batch: &Self::Batch, weight: f64, seed: u64, gradients: &mut Gradients) -> Result<f64> {
        let inputs: Vec<&E::Input> = batch.iter().map(|row| &row.input).collect();
        let crf = self.crf.now()?;
        let labels = crf.grammar().labels();
        let mut own = self.crf.zeros();
        let loss = self.emitter.learn(&inputs, seed, gradients, &mut |scores| {
            let mut to_scores = vec![0.0; scores.len()];
            let (mut sum, mut start) = (0.0, 0);
            for row in batch {
                let range = start..start + row.allowed.len() * labels;
                start = range.end;
                let (of, to) = (&scores[range.clone()], &mut to_scores[range]);
                sum += crf.learn(of, &row.allowed, weight, to, &mut own)?;
            }
            Ok((sum, to_scores))
        })?;
        self.crf.add(&own, gradients)?;
        Ok(loss)
    }
}

/// An encoder whose states of words' first pieces are scored.
pub struct EncoderEmitter {
    encoder: TunedEncoder,
    crf: CrfVariables,
}

impl EncoderEmitter {
    /// Starts from the body of a folder, with a head for the labels of `grammar` drawn from `seed`. The variables also have the
    /// field's weights, under `crf`.
    ///
    /// # Errors
    /// As for [`TunedEncoder::open`].
    pub fn open(
        checkpoint: &Checkpoint,
        labels: &[String],
        grammar: CrfGrammar,
        seed: u64,
        device: &candle_core::Device,
    ) -> Result<Self> {
        let (config, tensors) = TunedEncoder::start(checkpoint, BertTask::TokenClassification, labels.len())?;
        let variables = Variables::with_initial(seed, tensors);
        // Before the encoder, which counts the existing variables.
        let crf = CrfVariables::new(grammar, "crf", &variables)?;
        let encoder = TunedEncoder::new(config.with_labels(labels.to_vec()), variables, device)?;
        Ok(Self { encoder, crf })
    }

    /// The encoder, whose variables are all that is trained.
    #[must_use]
    pub fn encoder(&self) -> &TunedEncoder {
        &self.encoder
    }

    /// The field.
    #[must_use]
    pub fn crf(&self) -> &CrfVariables {
        &self.crf
    }

    fn head(&self) -> Result<&TokenHead> {
        match self.encoder.head() {
            Head::Token(head) => Ok(head),
            other => Err(Error::Training {
                what: "the tagger".into(),
                expected: "a head for token classification".into(),
                found: other.name().into(),
            }),
        }
    }
}

/// The rows of some windows, and the places of the words' first pieces among all tokens.
fn firsts<'a>(inputs: &[&'a WordRow]) -> (Vec<&'a EncoderRow>, Vec<usize>) {
    let mut places = Vec::new();
    let mut start = 0;
    for input in inputs {
        places.extend(input.firsts.iter().map(|first| start + first));
        start += input.row.ids.len();
    }
    (inputs.iter().map(|input| &input.row).collect(), places)
}

impl Emitter for EncoderEmitter {
    type Input = WordRow;

    fn words(&self, input: &WordRow) -> usize {
        input.firsts.len()
    }

    fn tokens(&self, input: &WordRow) -> usize {
        input.row.ids.len()
    }

    fn scores(&self, inputs: &[&WordRow]) -> Result<Vec<f32>> {
        let (rows, places) = firsts(inputs);
        let states = self.encoder.states(&rows, Pick::Tokens(&places))?;
        let scores = self.head()?.forward(&states.unsqueeze(0)?, &mut Mode::Inference)?;
        Ok(scores.flatten_all()?.to_vec1()?)
    }

    fn learn(
        &self,
        inputs: &[&WordRow],
        seed: u64,
        gradients: &mut Gradients,
        loss: &mut ScoreLoss<'_>,
    ) -> Result<f64> {
        let (rows, places) = firsts(inputs);
        let head = self.head()?;
        let found = RefCell::new(0.0);
        self.encoder.learn(&rows, Pick::Tokens(&places), seed, gradients, |states, mode| {
            let scores = head.forward(&states.unsqueeze(0)?, mode)?.squeeze(0)?;
            let (value, to_scores) = loss(&scores.flatten_all()?.to_vec1::<f32>()?)?;
            *found.borrow_mut() = value;
            // The inner product with the gradient has that gradient itself.
            let to_scores = Tensor::from_vec(to_scores, scores.shape(), scores.device())?;
            Ok((scores * to_scores)?.sum_all()?)
        })?;
        Ok(found.into_inner())
    }
}
