//! Tag scores by a BiLSTM over hashed embeddings of words and their parts (after Lample et al. 2016, with
//! hashing instead of a vocabulary).

mod options;

use std::collections::HashMap;

use candle_core::{Device, Tensor, Var};
use candle_nn::Init;
use sporran_checkpoint::stored_values;
use sporran_kernels::{Dropout, Isa, Machine, Matrix, Precision, Product, Rows};
use sporran_training::{BiLstm, Emitter, Gradients, ScoreLoss, Variables};
use sporran_transformers::{LstmOptions, PackedBiLstm};

pub use options::BiLstmOptions;

use super::features::{FLAGS, GROUPS, WordFeatures, WordRows};

type Model<T> = sporran_checkpoint::Result<T>;

const TABLE: &str = "words.weight";
const LSTM: &str = "lstm";
const HEAD: [&str; 2] = ["classifier.weight", "classifier.bias"];

/// The tagger during training.
pub struct BiLstmEmitter {
    features: WordFeatures,
    variables: Variables,
    table: Var,
    lstm: BiLstm,
    head: [Var; 2],
    labels: usize,
    dropout: f64,
}

impl BiLstmEmitter {
    /// A model over `variables`. Missing variables are initialised at random. `dropout` applies to groups of
    /// words, to inputs and to hidden states.
    ///
    /// # Errors
    /// A size of 0, or variables of another shape.
    pub fn new(
        features: WordFeatures,
        hidden: usize,
        layers: usize,
        labels: usize,
        dropout: f64,
        variables: &Variables,
    ) -> Model<Self> {
        let options = LstmOptions { inputs: features.inputs(), hidden, layers, dropout };
        let lstm = BiLstm::new(options, LSTM, variables)?;
        let builder = variables.builder(&Device::Cpu);
        let take = |name: &str, shape: Vec<usize>, init: Init| -> Model<Var> {
            builder.get_with_hints(shape, name, init)?;
            variables.named(name).ok_or_else(|| sporran_checkpoint::Error::Training {
                what: format!("variable `{name}`"),
                expected: "one of the tagger".into(),
                found: "none".into(),
            })
        };
        let normal = |stdev: f64| Init::Randn { mean: 0.0, stdev };
        Ok(Self {
            table: take(TABLE, vec![features.buckets, features.width], normal(0.3))?,
            head: [
                take(HEAD[0], vec![labels, options.width()], normal((options.width() as f64).powf(-0.5)))?,
                take(HEAD[1], vec![labels], Init::Const(0.0))?,
            ],
            features,
            variables: variables.clone(),
            lstm,
            labels,
            dropout,
        })
    }

    /// The shape of the LSTM.
    #[must_use]
    pub fn lstm(&self) -> &LstmOptions {
        self.lstm.options()
    }

    fn forward_head(&self, states: &[f32]) -> Model<Vec<f32>> {
        let weights = self.head[0].flatten_all()?.to_vec1::<f32>()?;
        let bias = self.head[1].flatten_all()?.to_vec1::<f32>()?;
        Ok(head(&Matrix::pack(&[&weights], self.lstm().width(), Precision::F32), &bias, states))
    }

    fn gradient<'a>(&self, name: &str, gradients: &'a mut Gradients) -> Model<&'a mut Vec<f32>> {
        let place = self.variables.place(name).filter(|place| *place < gradients.len());
        place.map(|place| &mut gradients[place]).ok_or_else(|| sporran_checkpoint::Error::Training {
            what: format!("the gradient of `{name}`"),
            expected: "one in the order of the variables".into(),
            found: "none".into(),
        })
    }
}

/// The outputs of a linear layer: (rows, outputs) for `states` (rows, inputs).
pub(crate) fn head(weights: &Matrix, bias: &[f32], states: &[f32]) -> Vec<f32> {
    let tokens = states.len() / weights.inputs();
    let mut input = Rows::new(tokens, weights.inputs());
    for (at, state) in states.chunks_exact(weights.inputs()).enumerate() {
        input.row_mut(at).copy_from_slice(state);
    }
    let product = Product { bias: Some(bias), ..Product::new(weights) };
    product.values(&mut Machine::alone(), &input)
}

/// A separate seed for each use of dropout.
pub(crate) fn seed_of(seed: u64, which: u64) -> u64 {
    let x = seed.wrapping_add((which + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Emitter for BiLstmEmitter {
    type Input = Vec<WordRows>;

    fn words(&self, input: &Vec<WordRows>) -> usize {
        input.len()
    }

    fn tokens(&self, input: &Vec<WordRows>) -> usize {
        input.len()
    }

    fn scores(&self, inputs: &[&Vec<WordRows>]) -> Model<Vec<f32>> {
        let words: Vec<&WordRows> = inputs.iter().flat_map(|input| input.iter()).collect();
        let lengths: Vec<usize> = inputs.iter().map(|input| input.len()).collect();
        let table = self.table.flatten_all()?.to_vec1::<f32>()?;
        let xs = self.features.vectors(&table, &words, None);
        self.forward_head(&self.lstm.pack()?.states(&xs, &lengths)?)
    }

    fn learn(
        &self,
        inputs: &[&Vec<WordRows>],
        seed: u64,
        gradients: &mut Gradients,
        loss: &mut ScoreLoss<'_>,
    ) -> Model<f64> {
        let isa = Isa::detected();
        let words: Vec<&WordRows> = inputs.iter().flat_map(|input| input.iter()).collect();
        let lengths: Vec<usize> = inputs.iter().map(|input| input.len()).collect();
        let table = self.table.flatten_all()?.to_vec1::<f32>()?;
        // Dropout of whole groups, so that the model uses all of them.
        let mut kept = vec![1.0; words.len() * GROUPS];
        Dropout::new(self.dropout / 2.0, seed_of(seed, 0)).apply(isa, 0, &mut kept);
        let mut xs = self.features.vectors(&table, &words, Some(&kept));
        let drop_inputs = Dropout::new(self.dropout, seed_of(seed, 1));
        drop_inputs.apply(isa, 0, &mut xs);
        let pass = self.lstm.forward(&xs, &lengths, Some(seed_of(seed, 2)))?;
        let drop_states = Dropout::new(self.dropout, seed_of(seed, 3));
        let mut states = pass.states().to_vec();
        drop_states.apply(isa, 0, &mut states);
        let (value, to_scores) = loss(&self.forward_head(&states)?)?;

        let width = self.lstm().width();
        let weights = self.head[0].flatten_all()?.to_vec1::<f32>()?;
        let mut to_states = vec![0.0; states.len()];
        let mut to_weights = vec![0.0; weights.len()];
        let mut to_bias = vec![0.0; self.labels];
        let each = to_scores.chunks_exact(self.labels).zip(states.chunks_exact(width));
        for ((to_score, state), to_state) in each.zip(to_states.chunks_exact_mut(width)) {
            for (label, slope) in to_score.iter().enumerate() {
                to_bias[label] += slope;
                let row = label * width..(label + 1) * width;
                to_weights[row.clone()].iter_mut().zip(state).for_each(|(sum, x)| *sum += slope * x);
                to_state.iter_mut().zip(&weights[row]).for_each(|(sum, w)| *sum += slope * w);
            }
        }
        for (name, sums) in HEAD.iter().zip([&to_weights, &to_bias]) {
            let gradient = self.gradient(name, gradients)?;
            gradient.iter_mut().zip(sums).for_each(|(gradient, sum)| *gradient += sum);
        }
        drop_states.apply(isa, 0, &mut to_states);
        let mut to_xs = self.lstm.backward(pass, &to_states, gradients)?;
        drop_inputs.apply(isa, 0, &mut to_xs);
        let to_table = self.gradient(TABLE, gradients)?;
        self.features.add_gradient(&words, &kept, (&to_xs, self.features.inputs()), to_table);
        Ok(value)
    }
}

/// The tagger for inference.
#[derive(Debug)]
pub(super) struct BiLstmTagger {
    features: WordFeatures,
    table: Vec<f32>,
    lstm: PackedBiLstm,
    head: Matrix,
    bias: Vec<f32>,
}

impl BiLstmTagger {
    pub(super) fn open(
        features: WordFeatures,
        lstm: LstmOptions,
        labels: usize,
        tensors: &HashMap<String, Tensor>,
    ) -> Model<Self> {
        let take = |name: &str, shape: &[usize]| stored_values(tensors, name, shape);
        if features.inputs() != lstm.inputs {
            return Err(sporran_checkpoint::Error::Options {
                option: "lstm.inputs",
                expected: format!("{}, {GROUPS} groups and {FLAGS} flags", features.inputs()),
                found: lstm.inputs.to_string(),
            });
        }
        let head = take(HEAD[0], &[labels, lstm.width()])?;
        Ok(Self {
            table: take(TABLE, &[features.buckets, features.width])?,
            head: Matrix::pack(&[&head], lstm.width(), Precision::F32),
            bias: take(HEAD[1], &[labels])?,
            lstm: PackedBiLstm::open(lstm, LSTM, tensors)?,
            features,
        })
    }

    /// The scores of the words of some sentences, sentence by sentence.
    pub(super) fn scores(&self, sentences: &[Vec<&str>]) -> Model<Vec<f32>> {
        let rows: Vec<WordRows> = sentences
            .iter()
            .flat_map(|words| words.iter().enumerate().map(|(at, word)| self.features.rows(word, at == 0)))
            .collect();
        let words: Vec<&WordRows> = rows.iter().collect();
        let lengths: Vec<usize> = sentences.iter().map(Vec::len).collect();
        let xs = self.features.vectors(&self.table, &words, None);
        Ok(head(&self.head, &self.bias, &self.lstm.states(&xs, &lengths)?))
    }
}

/// The field in a tagger's file that determines a tensor's shape.
pub(super) fn field_of(tensor: &str, expected: &[usize], found: Option<&[usize]>) -> &'static str {
    let differs = |at: usize| found.is_none_or(|found| found.get(at) != expected.get(at));
    match tensor {
        TABLE if differs(0) => "features.buckets",
        TABLE => "features.width",
        name if HEAD.contains(&name) => {
            if differs(0) {
                "labels"
            } else {
                "lstm.hidden"
            }
        }
        name if name.starts_with(LSTM) => match found {
            None => "lstm.layers",
            Some(_) if !differs(0) => "lstm.inputs",
            Some(_) => "lstm.hidden",
        },
        _ => "labels",
    }
}

#[cfg(test)]
mod tests {
    use sporran_training::{CrfVariables, Objective, TaggedRow, TaggingObjective, TrainingOptions};

    use super::*;
    use crate::tags::tag_grammar;

    fn row(features: &WordFeatures, words: &str, label: u32) -> TaggedRow<Vec<WordRows>> {
        let input: Vec<WordRows> =
            words.split(' ').enumerate().map(|(at, word)| features.rows(word, at == 0)).collect();
        let mut allowed = vec![1; input.len()];
        allowed[1] = 1 << label;
        // An unconstrained word affects the loss only through its neighbours.
        allowed[0] = u32::MAX;
        TaggedRow { input, allowed }
    }

    #[test]
    fn a_shape_that_does_not_fit_belongs_to_a_field() {
        for (tensor, expected, found, field) in [
            (TABLE, &[9, 4][..], Some(&[8, 4][..]), "features.buckets"),
            (TABLE, &[8, 5], Some(&[8, 4]), "features.width"),
            (HEAD[0], &[7, 12], Some(&[7, 10]), "lstm.hidden"),
            (HEAD[1], &[8], Some(&[7]), "labels"),
            ("lstm.weight_ih_l0", &[24, 9], Some(&[20, 9]), "lstm.hidden"),
            ("lstm.weight_ih_l0", &[20, 9], Some(&[20, 8]), "lstm.inputs"),
            ("lstm.weight_ih_l2", &[20, 9], None, "lstm.layers"),
            ("crf.start", &[7], None, "labels"),
        ] {
            assert_eq!(field_of(tensor, expected, found), field, "{tensor}");
        }
    }

    #[test]
    fn every_variable_has_the_gradient_that_differences_show_with_dropout_too() {
        let features = WordFeatures { buckets: 40, width: 5 };
        for dropout in [0.0, 0.3] {
            let variables = Variables::new(4);
            let crf = CrfVariables::new(tag_grammar(), "crf", &variables).unwrap();
            let emitter = BiLstmEmitter::new(features, 6, 2, 11, dropout, &variables).unwrap();
            let rows = vec![row(&features, "in London today", 5), row(&features, "by Ann", 1)];
            let options = TrainingOptions::default();
            let objective = TaggingObjective::new(&emitter, &crf, rows.clone(), &options).unwrap();
            let learn = || {
                let mut gradients: Gradients =
                    variables.all().iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect();
                let value = objective.learn(&rows, 3.0, 7, &mut gradients).unwrap();
                (value, gradients)
            };
            let (_, found) = learn();
            for ((name, var), gradient) in variables.all().iter().zip(&found) {
                let norm = gradient.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
                assert!(norm > 1e-4, "{name} has no gradient");
                let before = var.as_tensor().copy().unwrap();
                let direction = Tensor::from_slice(gradient, var.shape(), &Device::Cpu).unwrap();
                let at = |step: f64| {
                    var.set(&(&before + (&direction * (step / norm)).unwrap()).unwrap()).unwrap();
                    learn().0
                };
                let slope = (at(1e-2) - at(-1e-2)) / 2e-2;
                var.set(&before).unwrap();
                assert!((slope - norm).abs() < 0.02 * norm + 2e-4, "{name}: {slope} {norm}");
            }
        }
    }
}
