//! The network during training, with hand-written gradients.

use std::sync::Arc;

use candle_core::{Device, Var};
use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_checkpoint::Error;
use sporran_kernels::{Dropout, Isa};
use sporran_training::{BiLstm, Gradients, Objective, TrainingOptions, Variables};

use super::{
    BilstmFile, EncoderWords, RelationExample, Vectors,
    reading::{KnownOutputs, ReadSentence},
    weights::{HEAD, LSTM, MIX, Model, Picked, Placed, SCALE, WORDS, Weights, hashed, parameters, placed},
};
use crate::tagger::{WordRows, bilstm::seed_of, features::GROUPS};

/// A BiLSTM over the tokens of a sentence with the features of a subject and an object. Its pooled states and features 9 and 10
/// give two outputs for each property: whether the text expresses it, and whether its links are correct (Mesquita et al. 2019).
pub struct RelationNetwork {
    file: Arc<BilstmFile>,
    vectors: Option<Arc<Vectors>>,
    lstm: BiLstm,
    variables: Variables,
    weights: Vec<(&'static str, Var)>,
}

impl RelationNetwork {
    /// A network over `variables`. Missing variables are initialised at random. `vectors` are those of the model, if it has any.
    ///
    /// # Errors
    /// A size of 0, or variables of another shape.
    pub fn new(file: &BilstmFile, vectors: Option<Arc<Vectors>>, variables: &Variables) -> Model<Self> {
        let lstm = BiLstm::new(file.lstm(), LSTM, variables)?;
        let builder = variables.builder(&Device::Cpu);
        let mut weights = Vec::new();
        for (name, shape, init) in parameters(file) {
            builder.get_with_hints(shape, name, init)?;
            weights.push((name, variables.named(name).ok_or_else(|| missing(name))?));
        }
        Ok(Self { file: Arc::new(file.clone()), vectors, lstm, variables: variables.clone(), weights })
    }

    /// The trained variables.
    #[must_use]
    pub fn variables(&self) -> &Variables {
        &self.variables
    }

    /// The logits of the pairs of each sentence with the current weights.
    ///
    /// # Errors
    /// Errors of the model.
    pub fn logits(&self, sentences: &[&ReadSentence]) -> Model<Vec<Vec<f32>>> {
        let picked: Vec<Picked<'_>> = sentences.iter().map(|sentence| Picked::all(sentence)).collect();
        self.now()?.logits(&self.lstm.pack()?, &picked)
    }

    /// The mean cross-entropy of the known outputs of examples with the current weights; 0 without any.
    ///
    /// # Errors
    /// Errors of the model.
    pub fn loss(&self, examples: &[RelationExample]) -> Model<f64> {
        const PORTION: usize = 64;
        let (weights, lstm, outputs) = (self.now()?, self.lstm.pack()?, self.file.outputs());
        let (mut sum, mut count) = (0.0, 0usize);
        for examples in examples.chunks(PORTION) {
            let pick = |example: &'_ RelationExample| example.pairs.iter().map(|(pair, _)| *pair).collect();
            let picked: Vec<Picked<'_>> = examples
                .iter()
                .map(|example| Picked { sentence: &example.sentence, pairs: pick(example) })
                .collect();
            for (example, logits) in examples.iter().zip(weights.logits(&lstm, &picked)?) {
                for ((_, known), logits) in example.pairs.iter().zip(logits.chunks_exact(outputs)) {
                    sum += known.iter().map(|(output, value)| entropy(logits[*output], *value)).sum::<f64>();
                    count += known.len();
                }
            }
        }
        Ok(sum / (count as f64).max(1.0))
    }

    /// The current weights.
    fn now(&self) -> Model<Weights> {
        Weights::new(self.file.clone(), self.vectors.clone(), |name, _| {
            let found = self.weights.iter().find(|(own, _)| *own == name);
            let (_, var) = found.ok_or_else(|| missing(name))?;
            Ok(var.flatten_all()?.to_vec1()?)
        })
    }

    /// Adds to the gradient of a variable.
    fn add(&self, name: &str, sums: &[f32], gradients: &mut Gradients) -> Model<()> {
        let place = self.variables.place(name).filter(|place| *place < gradients.len());
        let gradient = &mut gradients[place.ok_or_else(|| missing(name))?];
        gradient.iter_mut().zip(sums).for_each(|(gradient, sum)| *gradient += sum);
        Ok(())
    }

    /// Adds the gradients of the summed cross-entropy of the known outputs, over `weight`. Returns that sum.
    fn learn(
        &self,
        (picked, known): (&[Picked<'_>], &[&KnownOutputs]),
        weight: f64,
        seed: u64,
        gradients: &mut Gradients,
    ) -> Model<f64> {
        let isa = Isa::detected();
        let weights = self.now()?;
        let dropout = self.file.shape.dropout;
        let sentences: Vec<&ReadSentence> = picked.iter().map(|picked| picked.sentence).collect();
        let words: Vec<&WordRows> = hashed(&sentences).collect();
        // Dropout of whole groups, so that the model uses all of them.
        let mut kept = vec![1.0; words.len() * GROUPS];
        Dropout::new(dropout / 2.0, seed_of(seed, 0)).apply(isa, 0, &mut kept);
        let tokens = weights.tokens(&sentences, Some(&kept));
        let pairs = placed(picked);
        let (mut xs, lengths) = weights.inputs(&tokens, &pairs);
        let drop_inputs = Dropout::new(dropout, seed_of(seed, 1));
        drop_inputs.apply(isa, 0, &mut xs);
        let pass = self.lstm.forward(&xs, &lengths, Some(seed_of(seed, 2)))?;
        let (mut pooled, from) = weights.pooled(pass.states(), &lengths);
        let drop_pooled = Dropout::new(dropout, seed_of(seed, 3));
        drop_pooled.apply(isa, 0, &mut pooled);
        let joined = weights.joined(&pooled, &pairs);
        let logits = weights.outputs(&joined);

        let outputs = self.file.outputs();
        let mut to_logits = vec![0.0f32; logits.len()];
        let mut sum = 0.0;
        for (pair, known) in known.iter().enumerate() {
            for (output, value) in *known {
                let logit = logits[pair * outputs + output];
                sum += entropy(logit, *value);
                let slope = 1.0 / (1.0 + (-f64::from(logit)).exp()) - f64::from(*value);
                to_logits[pair * outputs + output] += (slope / weight) as f32;
            }
        }

        let (width, states) = (self.file.joined_width(), 2 * self.file.shape.hidden);
        let mut to_pooled = vec![0.0; pooled.len()];
        let mut to_head = vec![0.0; weights.head.len()];
        let mut to_bias = vec![0.0; outputs];
        let rows = to_logits.chunks_exact(outputs).zip(joined.chunks_exact(width));
        for ((slopes, inputs), to_state) in rows.zip(to_pooled.chunks_exact_mut(states)) {
            for (output, slope) in slopes.iter().enumerate().filter(|(_, slope)| **slope != 0.0) {
                to_bias[output] += slope;
                let row = output * width..(output + 1) * width;
                to_head[row.clone()].iter_mut().zip(inputs).for_each(|(sum, x)| *sum += slope * x);
                // The row's other inputs are features 9 and 10, which are constants.
                to_state.iter_mut().zip(&weights.head[row]).for_each(|(sum, w)| *sum += slope * w);
            }
        }
        for (name, sums) in HEAD.iter().zip([&to_head, &to_bias]) {
            self.add(name, sums, gradients)?;
        }
        drop_pooled.apply(isa, 0, &mut to_pooled);
        let to_states = spread(&to_pooled, &from, &lengths, states);
        let mut to_xs = self.lstm.backward(pass, &to_states, gradients)?;
        drop_inputs.apply(isa, 0, &mut to_xs);
        self.learn_tokens(&weights, (&sentences, &words, &kept), (&pairs, &to_xs), gradients)?;
        Ok(sum / weight)
    }

    /// Propagates the gradient of the LSTM's inputs to the word table and to the mix of an encoder's layers.
    fn learn_tokens(
        &self,
        weights: &Weights,
        (sentences, words, kept): (&[&ReadSentence], &[&WordRows], &[f32]),
        (pairs, to_xs): (&[Placed<'_>], &[f32]),
        gradients: &mut Gradients,
    ) -> Model<()> {
        if self.file.vectors.is_some() && self.file.encoder.is_none() {
            return Ok(());
        }
        let token_width = self.file.token_width();
        let inputs = self.lstm.options().inputs;
        let count: usize = sentences.iter().map(|sentence| sentence.tags.len()).sum();
        let mut to_vectors = vec![0.0; count * token_width];
        let read =
            pairs.iter().flat_map(|placed| placed.pair.tokens.clone().map(move |at| placed.first + at));
        for (to_x, token) in to_xs.chunks_exact(inputs).zip(read) {
            let sums = &mut to_vectors[token * token_width..][..token_width];
            sums.iter_mut().zip(to_x).for_each(|(sum, value)| *sum += value);
        }
        if self.file.vectors.is_none() {
            let features = &weights.file.shape.words;
            let mut to_table = vec![0.0; features.buckets * features.width];
            features.add_gradient(words, kept, (&to_vectors, token_width), &mut to_table);
            self.add(WORDS, &to_table, gradients)?;
        }
        let Some(EncoderWords { layers, width, .. }) = self.file.encoder else { return Ok(()) };
        // The gradients of the layers' shares, without the common factor.
        let mut to_shares = vec![0.0f64; layers];
        let states = sentences.iter().flat_map(|sentence| sentence.layers.chunks_exact(width));
        for (at, state) in states.enumerate() {
            let slope = &to_vectors[at / layers * token_width + self.file.word_width()..][..width];
            let product: f32 = state.iter().zip(slope).map(|(x, slope)| x * slope).sum();
            to_shares[at % layers] += f64::from(product);
        }
        let shares = weights.shares();
        let mean: f64 = shares.iter().zip(&to_shares).map(|(share, slope)| f64::from(*share) * slope).sum();
        let scale = f64::from(weights.scale);
        let of = |(share, slope): (&f32, &f64)| (scale * f64::from(*share) * (slope - mean)) as f32;
        let to_mix: Vec<f32> = shares.iter().zip(&to_shares).map(of).collect();
        self.add(MIX, &to_mix, gradients)?;
        self.add(SCALE, &[mean as f32], gradients)
    }
}

/// The cross-entropy of a logit and a value, in its stable form.
fn entropy(logit: f32, value: f32) -> f64 {
    let (logit, value) = (f64::from(logit), f64::from(value));
    logit.max(0.0) - logit * value + (-logit.abs()).exp().ln_1p()
}

/// The gradient of hidden states from that of pooled ones. `from` has the tokens of the maxima; it is empty
/// for the mean.
fn spread(to_pooled: &[f32], from: &[u32], lengths: &[usize], width: usize) -> Vec<f32> {
    let mut to_states = vec![0.0; lengths.iter().sum::<usize>() * width];
    if from.is_empty() {
        let mut rows = to_states.chunks_exact_mut(width);
        for (slopes, length) in to_pooled.chunks_exact(width).zip(lengths) {
            for row in rows.by_ref().take(*length) {
                row.iter_mut().zip(slopes).for_each(|(sum, slope)| *sum = slope / *length as f32);
            }
        }
        return to_states;
    }
    for (at, (slope, token)) in to_pooled.iter().zip(from).enumerate() {
        to_states[*token as usize * width + at % width] += slope;
    }
    to_states
}

fn missing(name: &str) -> Error {
    Error::Training {
        what: format!("`{name}`"),
        expected: "a variable of the network, with a gradient".into(),
        found: "none".into(),
    }
}

/// How the pairs of an epoch are divided into batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairBatches {
    /// The share of the pairs without property that each epoch samples.
    pub negatives: f64,
    /// The number of pairs in a batch, in any order. 0 makes batches of whole sentences, by the number of tokens of their pairs.
    pub pairs: usize,
}

/// The binary cross-entropy of the known outputs of pairs.
pub struct RelationObjective<'a> {
    network: &'a RelationNetwork,
    examples: Arc<Vec<RelationExample>>,
    batches: PairBatches,
    tokens_per_batch: usize,
    seed: u64,
}

/// A batch of pairs.
pub struct RelationBatch {
    examples: Arc<Vec<RelationExample>>,
    /// Indices of examples, each with those of its pairs.
    members: Vec<(usize, Vec<usize>)>,
}

impl RelationBatch {
    fn members(&self) -> impl Iterator<Item = Picked<'_>> {
        self.members.iter().map(|(at, pairs)| {
            let RelationExample { sentence, pairs: all } = &self.examples[*at];
            Picked { sentence, pairs: pairs.iter().map(|pair| all[*pair].0).collect() }
        })
    }

    /// The known outputs of each pair.
    fn known(&self) -> impl Iterator<Item = &KnownOutputs> {
        let of = |(at, pairs): &'_ (usize, Vec<usize>)| -> Vec<&KnownOutputs> {
            pairs.iter().map(|pair| &self.examples[*at].pairs[*pair].1).collect()
        };
        self.members.iter().flat_map(of)
    }
}

impl<'a> RelationObjective<'a> {
    /// An objective over examples.
    #[must_use]
    pub fn new(
        network: &'a RelationNetwork,
        examples: Vec<RelationExample>,
        batches: PairBatches,
        options: &TrainingOptions,
    ) -> Self {
        let (tokens_per_batch, seed) = (options.tokens_per_batch, options.seed);
        Self { network, examples: Arc::new(examples), batches, tokens_per_batch, seed }
    }

    /// Batches of a number of pairs in a random order. Pairs of one sentence in a batch are read together.
    fn by_pairs(&self, mut pairs: Vec<(usize, usize)>, rng: &mut ChaCha8Rng) -> Vec<RelationBatch> {
        pairs.shuffle(rng);
        let batch = |pairs: &[(usize, usize)]| {
            let mut pairs = pairs.to_vec();
            pairs.sort_unstable();
            let of = |part: &[(usize, usize)]| (part[0].0, part.iter().map(|(_, pair)| *pair).collect());
            let members = pairs.chunk_by(|a, b| a.0 == b.0).map(of).collect();
            RelationBatch { examples: self.examples.clone(), members }
        };
        pairs.chunks(self.batches.pairs).map(batch).collect()
    }

    /// Batches of whole sentences in the order of `pairs`, by the number of tokens of their pairs.
    fn by_tokens(&self, pairs: &[(usize, usize)]) -> Vec<RelationBatch> {
        let mut batches: Vec<RelationBatch> = Vec::new();
        let mut all = usize::MAX;
        for part in pairs.chunk_by(|a, b| a.0 == b.0) {
            let RelationExample { sentence, pairs: known } = &self.examples[part[0].0];
            let more: usize = part.iter().map(|(_, pair)| sentence.pairs[known[*pair].0].tokens.len()).sum();
            if all.saturating_add(more) > self.tokens_per_batch {
                batches.push(RelationBatch { examples: self.examples.clone(), members: Vec::new() });
                all = 0;
            }
            all += more;
            if let Some(batch) = batches.last_mut() {
                batch.members.push((part[0].0, part.iter().map(|(_, pair)| *pair).collect()));
            }
        }
        batches
    }
}

impl Objective for RelationObjective<'_> {
    type Batch = RelationBatch;

    fn check(&self, options: &TrainingOptions) -> Model<()> {
        if options.label_smoothing > 0.0 {
            return Err(Error::Options {
                option: "label-smoothing",
                expected: "0 for the training of relations".into(),
                found: options.label_smoothing.to_string(),
            });
        }
        Ok(())
    }

    fn epoch(&self, number: u64) -> Model<Vec<RelationBatch>> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(number);
        let mut order: Vec<usize> = (0..self.examples.len()).collect();
        order.shuffle(&mut rng);
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        for at in order {
            for (pair, (_, known)) in self.examples[at].pairs.iter().enumerate() {
                let is_positive = known.iter().any(|(_, value)| *value > 0.5);
                if is_positive || rng.random::<f64>() < self.batches.negatives {
                    pairs.push((at, pair));
                }
            }
        }
        Ok(if self.batches.pairs > 0 { self.by_pairs(pairs, &mut rng) } else { self.by_tokens(&pairs) })
    }

    fn weight(&self, batch: &RelationBatch) -> f64 {
        batch.known().map(Vec::len).sum::<usize>() as f64
    }

    fn tokens(&self, batch: &RelationBatch) -> usize {
        batch.members().map(|picked| picked.tokens()).sum()
    }

    fn learn(&self, batch: &RelationBatch, weight: f64, seed: u64, gradients: &mut Gradients) -> Model<f64> {
        let members: Vec<Picked<'_>> = batch.members().collect();
        let known: Vec<&KnownOutputs> = batch.known().collect();
        self.network.learn((&members, &known), weight, seed, gradients)
    }
}
