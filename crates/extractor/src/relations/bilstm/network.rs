//! The network during training, with hand-written gradients.

use std::sync::Arc;

use candle_core::{Device, Var};
use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_checkpoint::Error;
use sporran_kernels::{Dropout, Isa};
use sporran_training::{BiLstm, Gradients, Objective, TrainingOptions, Variables};

use super::{
    BilstmShape, EncoderWords, RelationExample,
    reading::{KnownOutputs, ReadSentence},
    weights::{
        FEATURES, HEAD, LSTM, MIX, Model, Placed, SCALE, Sizes, Tokens, WORDS, WORDS_BIAS, Weights, hashed,
    },
};
use crate::tagger::{WordRows, bilstm::seed_of, features::GROUPS};

/// Two BiLSTM layers over the tokens around a pair of mentions, with pooling. Each property and direction has
/// two outputs: whether the text expresses it, and whether its links are correct (Mesquita et al. 2019).
pub struct RelationNetwork {
    sizes: Sizes,
    lstm: BiLstm,
    variables: Variables,
    weights: Vec<(&'static str, Var)>,
}

impl RelationNetwork {
    /// A network over `variables`. Missing variables are initialised at random.
    ///
    /// # Errors
    /// A size of 0, or variables of another shape.
    pub fn new(
        shape: &BilstmShape,
        encoder: Option<&EncoderWords>,
        labels: usize,
        variables: &Variables,
    ) -> Model<Self> {
        let sizes = Sizes { shape: shape.clone(), encoder: encoder.cloned(), labels };
        let lstm = BiLstm::new(shape.lstm(encoder.is_some()), LSTM, variables)?;
        let builder = variables.builder(&Device::Cpu);
        let mut weights = Vec::new();
        for (name, shape, init) in sizes.parameters() {
            builder.get_with_hints(shape, name, init)?;
            weights.push((name, variables.named(name).ok_or_else(|| missing(name))?));
        }
        Ok(Self { sizes, lstm, variables: variables.clone(), weights })
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
        self.now()?.logits(&self.lstm.pack()?, sentences)
    }

    /// The current weights.
    fn now(&self) -> Model<Weights> {
        Weights::new(self.sizes.clone(), |name, _| {
            let found = self.weights.iter().find(|(own, _)| *own == name);
            let (_, var) = found.ok_or_else(|| missing(name))?;
            Ok(var.flatten_all()?.to_vec1()?)
        })
    }

    fn gradient<'a>(&self, name: &str, gradients: &'a mut Gradients) -> Model<&'a mut Vec<f32>> {
        let place = self.variables.place(name).filter(|place| *place < gradients.len());
        place.map(|place| &mut gradients[place]).ok_or_else(|| missing(name))
    }

    /// Adds the gradients of the summed cross-entropy of the known outputs, over `weight`. Returns that sum.
    fn learn(&self, batch: &[Picked<'_>], weight: f64, seed: u64, gradients: &mut Gradients) -> Model<f64> {
        let isa = Isa::detected();
        let weights = self.now()?;
        let dropout = self.sizes.shape.dropout;
        let sentences: Vec<&ReadSentence> = batch.iter().map(|picked| picked.sentence).collect();
        let words: Vec<&WordRows> = hashed(&sentences).collect();
        // Dropout of whole groups, so that the model uses all of them.
        let mut kept = vec![1.0; words.len() * GROUPS];
        Dropout::new(dropout / 2.0, seed_of(seed, 0)).apply(isa, 0, &mut kept);
        let tokens = weights.tokens(&sentences, Some(&kept));
        let mut pairs: Vec<Placed<'_>> = Vec::new();
        let mut first = 0;
        for picked in batch {
            let pair = |(at, _): &&(usize, KnownOutputs)| Placed { first, pair: &picked.sentence.pairs[*at] };
            pairs.extend(picked.pairs.iter().map(pair));
            first += picked.sentence.slots.len();
        }
        let (mut xs, lengths) = weights.inputs(&tokens, &pairs);
        let drop_inputs = Dropout::new(dropout, seed_of(seed, 1));
        drop_inputs.apply(isa, 0, &mut xs);
        let pass = self.lstm.forward(&xs, &lengths, Some(seed_of(seed, 2)))?;
        let (mut pooled, from) = weights.pooled(pass.states(), &lengths);
        let drop_pooled = Dropout::new(dropout, seed_of(seed, 3));
        drop_pooled.apply(isa, 0, &mut pooled);
        let logits = weights.outputs(&pooled);

        let outputs = self.sizes.outputs();
        let mut to_logits = vec![0.0f32; logits.len()];
        let mut sum = 0.0;
        let known = batch.iter().flat_map(|picked| &picked.pairs).map(|(_, known)| known);
        for (pair, known) in known.enumerate() {
            for (output, value) in known {
                let logit = f64::from(logits[pair * outputs + output]);
                let value = f64::from(*value);
                // The stable form of the cross-entropy of a logit.
                sum += logit.max(0.0) - logit * value + (-logit.abs()).exp().ln_1p();
                let slope = 1.0 / (1.0 + (-logit).exp()) - value;
                to_logits[pair * outputs + output] += (slope / weight) as f32;
            }
        }

        let width = 2 * self.sizes.shape.hidden;
        let mut to_pooled = vec![0.0; pooled.len()];
        let mut to_head = vec![0.0; weights.head.len()];
        let mut to_bias = vec![0.0; outputs];
        let rows = to_logits.chunks_exact(outputs).zip(pooled.chunks_exact(width));
        for ((slopes, state), to_state) in rows.zip(to_pooled.chunks_exact_mut(width)) {
            for (output, slope) in slopes.iter().enumerate().filter(|(_, slope)| **slope != 0.0) {
                to_bias[output] += slope;
                let row = output * width..(output + 1) * width;
                to_head[row.clone()].iter_mut().zip(state).for_each(|(sum, x)| *sum += slope * x);
                to_state.iter_mut().zip(&weights.head[row]).for_each(|(sum, w)| *sum += slope * w);
            }
        }
        for (name, sums) in HEAD.iter().zip([&to_head, &to_bias]) {
            let gradient = self.gradient(name, gradients)?;
            gradient.iter_mut().zip(sums).for_each(|(gradient, sum)| *gradient += sum);
        }
        drop_pooled.apply(isa, 0, &mut to_pooled);
        let to_states = spread(&to_pooled, &from, &lengths, width);
        let mut to_xs = self.lstm.backward(pass, &to_states, gradients)?;
        drop_inputs.apply(isa, 0, &mut to_xs);
        self.learn_tokens(&weights, (&sentences, &words, &kept, &tokens), (&pairs, &to_xs), gradients)?;
        Ok(sum / weight)
    }

    /// Propagates the gradient of the LSTM's inputs to features and words.
    fn learn_tokens(
        &self,
        weights: &Weights,
        (sentences, words, kept, tokens): (&[&ReadSentence], &[&WordRows], &[f32], &Tokens),
        (pairs, to_xs): (&[Placed<'_>], &[f32]),
        gradients: &mut Gradients,
    ) -> Model<()> {
        let (token_width, width) = (self.sizes.token_width(), self.sizes.shape.width);
        let inputs = self.lstm.options().inputs;
        let mut to_vectors = vec![0.0; tokens.vectors.len()];
        let to_features = self.gradient(FEATURES, gradients)?;
        let mut add_slot = |rows: &[u32], slope: &[f32]| {
            for row in rows {
                let sums = &mut to_features[*row as usize * width..][..width];
                sums.iter_mut().zip(slope).for_each(|(sum, value)| *sum += value / rows.len() as f32);
            }
        };
        let read = pairs.iter().flat_map(|placed| placed.pair.tokens.clone().map(move |at| (placed, at)));
        for (to_x, (placed, token)) in to_xs.chunks_exact(inputs).zip(read) {
            let (own, rest) = to_x.split_at(token_width);
            let sums = &mut to_vectors[(placed.first + token) * token_width..][..token_width];
            sums.iter_mut().zip(own).for_each(|(sum, value)| *sum += value);
            for (slot, slope) in placed.pair.slots(token).iter().zip(rest.chunks_exact(width)) {
                add_slot(slot, slope);
            }
        }
        let word_width = self.sizes.word_width();
        let slots = sentences.iter().flat_map(|sentence| &sentence.slots);
        for (to_vector, slots) in to_vectors.chunks_exact(token_width).zip(slots) {
            for (slot, slope) in slots.iter().zip(to_vector[word_width..].chunks_exact(width)) {
                add_slot(slot, slope);
            }
        }
        let Some(EncoderWords { layers, width }) = self.sizes.encoder else {
            let to_table = self.gradient(WORDS, gradients)?;
            self.sizes.shape.words.add_gradient(words, kept, (&to_vectors, token_width), to_table);
            return Ok(());
        };
        let mut to_mixed = vec![0.0; tokens.mixed.len()];
        let mut to_words = vec![0.0; weights.words.len()];
        let mut to_bias = vec![0.0; word_width];
        let rows = to_vectors.chunks_exact(token_width).zip(tokens.mixed.chunks_exact(width));
        for ((to_vector, mixed), to_mixed) in rows.zip(to_mixed.chunks_exact_mut(width)) {
            for (output, slope) in to_vector[..word_width].iter().enumerate() {
                to_bias[output] += slope;
                let row = output * width..(output + 1) * width;
                to_words[row.clone()].iter_mut().zip(mixed).for_each(|(sum, x)| *sum += slope * x);
                to_mixed.iter_mut().zip(&weights.words[row]).for_each(|(sum, w)| *sum += slope * w);
            }
        }
        // The gradients of the layers' shares, which have a common factor.
        let mut to_shares = vec![0.0f64; layers];
        let states = sentences.iter().flat_map(|sentence| sentence.layers().chunks_exact(width));
        for (at, state) in states.enumerate() {
            let slope = &to_mixed[at / layers * width..][..width];
            let product: f32 = state.iter().zip(slope).map(|(x, slope)| x * slope).sum();
            to_shares[at % layers] += f64::from(product);
        }
        let shares = weights.shares();
        let mean: f64 = shares.iter().zip(&to_shares).map(|(share, slope)| f64::from(*share) * slope).sum();
        let scale = f64::from(weights.scale);
        let of = |(share, slope): (&f32, &f64)| (scale * f64::from(*share) * (slope - mean)) as f32;
        let to_mix: Vec<f32> = shares.iter().zip(&to_shares).map(of).collect();
        let sums = [(WORDS, to_words), (WORDS_BIAS, to_bias), (MIX, to_mix), (SCALE, vec![mean as f32])];
        for (name, sums) in sums {
            let gradient = self.gradient(name, gradients)?;
            gradient.iter_mut().zip(&sums).for_each(|(gradient, sum)| *gradient += sum);
        }
        Ok(())
    }
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

/// The binary cross-entropy of the known outputs of pairs.
pub struct RelationObjective<'a> {
    network: &'a RelationNetwork,
    examples: Arc<Vec<RelationExample>>,
    negatives: f64,
    tokens_per_batch: usize,
    seed: u64,
}

/// A batch of pairs.
pub struct RelationBatch {
    examples: Arc<Vec<RelationExample>>,
    /// Indices of examples, each with those of its pairs.
    members: Vec<(usize, Vec<usize>)>,
}

/// The pairs of a sentence that are trained on.
struct Picked<'a> {
    sentence: &'a ReadSentence,
    pairs: Vec<&'a (usize, KnownOutputs)>,
}

impl Picked<'_> {
    fn tokens(&self) -> usize {
        self.pairs.iter().map(|(at, _)| self.sentence.pairs[*at].tokens.len()).sum()
    }
}

fn picked<'a>(examples: &'a [RelationExample], at: usize, pairs: &[usize]) -> Picked<'a> {
    let RelationExample { sentence, pairs: all } = &examples[at];
    Picked { sentence, pairs: pairs.iter().map(|pair| &all[*pair]).collect() }
}

impl RelationBatch {
    fn members(&self) -> impl Iterator<Item = Picked<'_>> {
        self.members.iter().map(|(at, pairs)| picked(&self.examples, *at, pairs))
    }
}

impl<'a> RelationObjective<'a> {
    /// An objective over examples. Each epoch samples the share `negatives` of the pairs without property.
    /// The size of a batch is the number of its pairs' tokens.
    #[must_use]
    pub fn new(
        network: &'a RelationNetwork,
        examples: Vec<RelationExample>,
        negatives: f64,
        options: &TrainingOptions,
    ) -> Self {
        let (tokens_per_batch, seed) = (options.tokens_per_batch, options.seed);
        Self { network, examples: Arc::new(examples), negatives, tokens_per_batch, seed }
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
        let mut batches: Vec<RelationBatch> = Vec::new();
        let mut all = usize::MAX;
        for at in order {
            let known = self.examples[at].pairs.iter().map(|(_, known)| known);
            let mut is_picked = |known: &KnownOutputs| {
                known.iter().any(|(_, value)| *value > 0.5) || rng.random::<f64>() < self.negatives
            };
            let pairs: Vec<usize> =
                known.enumerate().filter(|(_, known)| is_picked(known)).map(|(pair, _)| pair).collect();
            if pairs.is_empty() {
                continue;
            }
            let more = picked(&self.examples, at, &pairs).tokens();
            if all.saturating_add(more) > self.tokens_per_batch {
                batches.push(RelationBatch { examples: self.examples.clone(), members: Vec::new() });
                all = 0;
            }
            all += more;
            if let Some(batch) = batches.last_mut() {
                batch.members.push((at, pairs));
            }
        }
        Ok(batches)
    }

    fn weight(&self, batch: &RelationBatch) -> f64 {
        batch.members().flat_map(|picked| picked.pairs).map(|(_, known)| known.len()).sum::<usize>() as f64
    }

    fn tokens(&self, batch: &RelationBatch) -> usize {
        batch.members().map(|picked| picked.tokens()).sum()
    }

    fn learn(&self, batch: &RelationBatch, weight: f64, seed: u64, gradients: &mut Gradients) -> Model<f64> {
        let members: Vec<Picked<'_>> = batch.members().collect();
        self.network.learn(&members, weight, seed, gradients)
    }
}
