//! An encoder with a head under training: its states, and the gradients of any loss of them.

use std::collections::BTreeMap;

use candle_core::{Device, Tensor, Var};
use sporran_checkpoint::{Error, Result};
use sporran_transformers::{
    Batch, BertTask, Checkpoint, EncoderRow, Head, Mode, ModelConfig, TunableEncoder, fused,
};

use crate::{
    gradients::{Gradients, add_backward},
    packed::{PackedBody, Seeds, Workspace},
    variables::Variables,
};

/// Which tokens' states a head reads.
#[derive(Clone, Copy, Debug)]
pub enum Pick<'a> {
    /// The first of each row, or what the head of labels reads of each.
    First,
    /// All, row after row, without padding.
    All,
    /// These, counted over all rows without padding.
    Tokens(&'a [usize]),
}

/// A body and a head over variables.
///
/// On a CPU the body runs packed, without padding and with gradients by hand. On other devices, and where it is not
/// [plain](sporran_transformers::BertConfig::is_plain), it runs over candle's tape, padded. The head runs over the tape on the picked states alone.
#[derive(Debug)]
pub struct TunedEncoder {
    config: ModelConfig,
    variables: Variables,
    /// In the order of the gradients.
    all: Vec<Var>,
    model: TunableEncoder,
    packed: Option<PackedBody>,
    device: Device,
}

impl TunedEncoder {
    /// A model of `config` over `variables`, which initialise missing parameters.
    ///
    /// # Errors
    /// [`Error::Config`] where the config names something unsupported, and a tensor error.
    pub fn new(config: impl Into<ModelConfig>, variables: Variables, device: &Device) -> Result<Self> {
        let config = config.into();
        let model = TunableEncoder::new(&config, &variables.builder(device))?;
        let all: Vec<Var> = variables.all().into_iter().map(|(_, var)| var).collect();
        let packs = all.first().is_some_and(|var| fused::applies(var.as_tensor()));
        let packed = match &config {
            ModelConfig::Bert(config) if packs && config.is_plain() => {
                Some(PackedBody::new(config, &variables)?)
            }
            _ => None,
        };
        Ok(Self { config, variables, all, model, packed, device: device.clone() })
    }

    /// Starts from the body of a folder, and from its head where that fits `task` and `labels`. Other heads are drawn
    /// from `seed`.
    ///
    /// # Errors
    /// Those of [`Checkpoint`], and [`Error::Architecture`] where the folder is not that of an encoder that can be
    /// [trained](ModelConfig::with_task) for the task.
    pub fn open(
        checkpoint: &Checkpoint,
        task: BertTask,
        labels: usize,
        seed: u64,
        device: &Device,
    ) -> Result<Self> {
        let (config, tensors) = Self::start(checkpoint, task, labels)?;
        Self::new(&config, Variables::with_initial(seed, tensors), device)
    }

    /// The config of a folder with another head, and those of its weights that fit.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn start(
        checkpoint: &Checkpoint,
        task: BertTask,
        labels: usize,
    ) -> Result<(ModelConfig, BTreeMap<String, Tensor>)> {
        let Some(mut config) = checkpoint.config().with_task(task, labels) else {
            return Err(Error::Architecture {
                path: checkpoint.folder().join("config.json"),
                expected: "an encoder that can be tuned for the task (see the table of models)",
                found: format!("`{}`", checkpoint.config().model_type()),
            });
        };
        let tensors = checkpoint.stored().tensors_for(config.architecture_mut())?;
        Ok((config, tensors))
    }

    /// The config, with the head that is trained.
    #[must_use]
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The trained variables.
    #[must_use]
    pub fn variables(&self) -> &Variables {
        &self.variables
    }

    /// The head, over the variables.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.model.head
    }

    /// The states (tokens, d) that `pick` takes, for inference with the current weights.
    ///
    /// # Errors
    /// [`Error::Batch`] where a row is empty or too long, or holds a token that does not exist; a tensor error.
    pub fn states(&self, rows: &[&EncoderRow], pick: Pick<'_>) -> Result<Tensor> {
        match &self.packed {
            Some(packed) => {
                let mut workspace = packed.workspace();
                packed.forward(rows, Seeds::none(), false, &mut workspace)?;
                let states = picked(packed, &mut workspace, pick, &self.device);
                packed.give_back(workspace);
                states
            }
            None => Ok(self.taped(rows, pick, &mut Mode::Inference)?.detach()),
        }
    }

    /// Adds the gradients of a loss of the states (tokens, d) that `pick` takes to `gradients`, which have the order
    /// of the variables' names; returns the loss. `loss` makes a scalar of the states, with the mode that its head is to
    /// run in.
    ///
    /// # Errors
    /// As for [`states`](Self::states), and those of `loss`.
    pub fn learn(
        &self,
        rows: &[&EncoderRow],
        pick: Pick<'_>,
        seed: u64,
        gradients: &mut Gradients,
        loss: impl FnOnce(&Tensor, &mut Mode) -> Result<Tensor>,
    ) -> Result<f64> {
        self.learn_with(rows, pick, seed, gradients, (&[], &mut Gradients::default()), loss)
    }

    /// The same for a loss that depends on further variables, whose gradients are added to theirs.
    ///
    /// # Errors
    /// As for [`learn`](Self::learn).
    pub(crate) fn learn_with(
        &self,
        rows: &[&EncoderRow],
        pick: Pick<'_>,
        seed: u64,
        gradients: &mut Gradients,
        (others, of_others): (&[Var], &mut Gradients),
        loss: impl FnOnce(&Tensor, &mut Mode) -> Result<Tensor>,
    ) -> Result<f64> {
        let mut mode = Mode::training(seed);
        let Some(packed) = &self.packed else {
            let states = self.taped(rows, pick, &mut mode)?;
            let loss = loss(&states, &mut mode)?;
            add_backward(&loss, [(&self.all, gradients), (others, of_others)])?;
            return Ok(f64::from(loss.to_scalar::<f32>()?));
        };
        let seeds = Seeds::new(seed);
        let mut workspace = packed.workspace();
        packed.forward(rows, seeds, true, &mut workspace)?;
        let states = Var::from_tensor(&picked(packed, &mut workspace, pick, &self.device)?)?;
        let loss = loss(states.as_tensor(), &mut mode)?;
        let store = add_backward(&loss, [(&self.all, &mut *gradients), (others, of_others)])?;
        if let Some(gradient) = store.get(&states) {
            let width = packed.width();
            let values = gradient.flatten_all()?.to_vec1::<f32>()?;
            let places = places(workspace.lengths(), pick);
            let back = workspace.states(width);
            back.fill(0.0);
            for (place, values) in places.zip(values.chunks_exact(width)) {
                let sum = &mut back[place * width..][..width];
                sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            }
            drop(store);
            packed.backward(seeds, &mut workspace, gradients)?;
        }
        packed.give_back(workspace);
        Ok(f64::from(loss.to_scalar::<f32>()?))
    }

    /// The picked states over candle's tape.
    fn taped(&self, rows: &[&EncoderRow], pick: Pick<'_>, mode: &mut Mode) -> Result<Tensor> {
        let batch = Batch::for_encoder(rows, self.model.encoder())?;
        let states = self.model.forward(&batch, mode)?;
        if let (Pick::First, Head::Sequence(head)) = (pick, self.head()) {
            return Ok(head.pool(&states, &batch, mode)?.squeeze(1)?);
        }
        let (size, length, width) = states.dims3()?;
        let lengths: Vec<usize> = rows.iter().map(|row| row.ids.len()).collect();
        // The places in the padded batch of all tokens.
        let padded: Vec<u32> = lengths
            .iter()
            .enumerate()
            .flat_map(|(row, count)| (0..*count).map(move |at| (row * length + at) as u32))
            .collect();
        let chosen: Vec<u32> = places(&lengths, pick).map(|place| padded[place]).collect();
        let chosen = Tensor::new(chosen, states.device())?;
        Ok(states.reshape((size * length, width))?.index_select(&chosen, 0)?)
    }
}

/// The numbers of the picked tokens.
fn places(lengths: &[usize], pick: Pick<'_>) -> std::vec::IntoIter<usize> {
    let places: Vec<usize> = match pick {
        Pick::First => lengths
            .iter()
            .scan(0, |next, length| {
                let first = *next;
                *next += length;
                Some(first)
            })
            .collect(),
        Pick::All => (0..lengths.iter().sum()).collect(),
        Pick::Tokens(places) => places.to_vec(),
    };
    places.into_iter()
}

fn picked(packed: &PackedBody, workspace: &mut Workspace, pick: Pick<'_>, device: &Device) -> Result<Tensor> {
    let width = packed.width();
    let places = places(workspace.lengths(), pick);
    let count = places.len();
    let states = workspace.states(width);
    let mut values = Vec::with_capacity(count * width);
    for place in places {
        let row = states.get(place * width..(place + 1) * width).ok_or_else(|| Error::Batch {
            expected: format!("tokens below {}", states.len() / width),
            found: format!("token {place}"),
        })?;
        values.extend_from_slice(row);
    }
    Ok(Tensor::from_vec(values, (count, width), device)?)
}

#[cfg(test)]
pub(crate) mod tests {
    use sporran_kernels::TrainingPrecision;

    use super::*;
    use sporran_transformers::{BertConfig, BertFamily, fused::in_precision};

    /// A small BERT of `labels` labels, the same at every call.
    pub(crate) fn tiny(labels: usize, rate: f64) -> TunedEncoder {
        tiny_for(BertTask::SequenceClassification, labels, rate)
    }

    pub(crate) fn tiny_for(task: BertTask, labels: usize, rate: f64) -> TunedEncoder {
        TunedEncoder::new(&config(BertFamily::Bert, task, labels, rate), Variables::new(3), &Device::Cpu)
            .unwrap()
    }

    fn config(family: BertFamily, task: BertTask, labels: usize, rate: f64) -> BertConfig {
        BertConfig {
            family,
            task,
            vocab_size: 50,
            hidden_size: 24,
            num_hidden_layers: 2,
            num_attention_heads: 3,
            intermediate_size: 40,
            hidden_dropout_prob: rate,
            attention_probs_dropout_prob: rate,
            head_dropout: rate,
            max_position_embeddings: 32,
            type_vocab_size: if family == BertFamily::DistilBert { 0 } else { 2 },
            // Large enough for attention to be far from even.
            initializer_range: 0.3,
            layer_norm_eps: 1e-5,
            pad_token_id: 1,
            labels: (0..labels).map(|at| format!("LABEL_{at}")).collect(),
            ..BertConfig::default()
        }
    }

    /// Rows of three to nine tokens.
    pub(crate) fn rows(count: usize, salt: u32) -> Vec<EncoderRow> {
        let row = |i: u32| {
            let length = 3 + (i * 5 + salt) % 7;
            EncoderRow {
                ids: (0..length).map(|j| 4 + (i * 11 + j * 7 + salt * 3) % 46).collect(),
                types: (0..length).map(|j| u32::from(j * 2 > length)).collect(),
            }
        };
        (0..count as u32).map(row).collect()
    }

    const FAMILIES: [BertFamily; 3] = [BertFamily::Bert, BertFamily::Roberta, BertFamily::DistilBert];

    /// A weighted sum of the picked states and of the head's outputs, so that all states have a gradient.
    fn loss(encoder: &TunedEncoder, states: &Tensor, mode: &mut Mode) -> Result<Tensor> {
        let (count, width) = states.dims2()?;
        let wave: Vec<f32> = (0..count * width).map(|i| ((i as f32 + 0.5) * 1.3).sin()).collect();
        let wave = Tensor::from_vec(wave, (count, width), states.device())?;
        let Head::Sequence(head) = encoder.head() else { unreachable!() };
        let logits = head.forward(&states.unsqueeze(1)?, mode)?;
        Ok(((states * wave)?.sum_all()? + logits.sqr()?.sum_all()?)?)
    }

    fn gradients(
        encoder: &TunedEncoder,
        rows: &[&EncoderRow],
        pick: Pick<'_>,
        seed: u64,
    ) -> (f64, Gradients) {
        let mut gradients: Gradients = encoder.all.iter().map(|var| vec![0.0; var.elem_count()]).collect();
        let value = encoder
            .learn(rows, pick, seed, &mut gradients, |states, mode| loss(encoder, states, mode))
            .unwrap();
        (value, gradients)
    }

    #[test]
    fn the_packed_body_has_the_loss_and_gradients_of_candles_tape() {
        for family in FAMILIES {
            let config = config(family, BertTask::SequenceClassification, 2, 0.0);
            let packed = TunedEncoder::new(&config, Variables::new(3), &Device::Cpu).unwrap();
            let taped = TunedEncoder {
                packed: None,
                ..TunedEncoder::new(&config, Variables::new(3), &Device::Cpu).unwrap()
            };
            let rows = rows(7, 1);
            let rows: Vec<&EncoderRow> = rows.iter().collect();
            for pick in [Pick::First, Pick::All, Pick::Tokens(&[0, 5, 5, 17])] {
                let states = |encoder: &TunedEncoder| {
                    encoder.states(&rows, pick).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap()
                };
                for (a, b) in states(&packed).iter().zip(states(&taped)) {
                    assert!((a - b).abs() < 2e-5, "{family:?}: {a} {b}");
                }
                let (value, found) = gradients(&packed, &rows, pick, 0);
                let (expected, wanted) = gradients(&taped, &rows, pick, 0);
                assert!((value - expected).abs() < 1e-3 * expected.abs().max(1.0), "{value} {expected}");
                for ((name, _), (a, b)) in packed.variables.all().iter().zip(found.iter().zip(&wanted)) {
                    let size = b.iter().map(|x| x.abs()).fold(0.0, f32::max);
                    // Keys' biases shift all scores of a query equally, so their gradient is only rounding.
                    let bound = 2e-4 * size.max(0.5);
                    for (x, y) in a.iter().zip(b) {
                        assert!((x - y).abs() < bound, "{family:?} {name}: {x} {y}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_variable_has_the_gradient_that_differences_show_with_dropout_too() {
        for family in FAMILIES {
            for rate in [0.0, 0.3] {
                let config = config(family, BertTask::SequenceClassification, 1, rate);
                let encoder = TunedEncoder::new(&config, Variables::new(3), &Device::Cpu).unwrap();
                let rows = rows(4, 2);
                let rows: Vec<&EncoderRow> = rows.iter().collect();
                let (_, found) = gradients(&encoder, &rows, Pick::All, 9);
                for ((name, var), gradient) in encoder.variables.all().iter().zip(&found) {
                    let norm = gradient.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
                    if name.contains("key.bias") || name.contains("k_lin.bias") {
                        assert!(norm < 1e-3, "{name}: {norm}");
                        continue;
                    }
                    assert!(norm > 1e-3, "{family:?} {name} has no gradient");
                    // The slope along the gradient's own direction is its norm.
                    let before = var.as_tensor().copy().unwrap();
                    let direction = Tensor::from_slice(gradient, var.shape(), &Device::Cpu).unwrap();
                    let at = |step: f64| {
                        let moved = (&before + (&direction * (step / norm)).unwrap()).unwrap();
                        var.set(&moved).unwrap();
                        gradients(&encoder, &rows, Pick::All, 9).0
                    };
                    // Large enough to exceed rounding errors, small enough for a steep slope.
                    let step = if norm < 20.0 { 4e-3 } else { 1e-3 };
                    let slope = (at(step) - at(-step)) / (2.0 * step);
                    var.set(&before).unwrap();
                    // The rectifier of DistilBERT's head has kinks, which a difference steps over.
                    let share = if family == BertFamily::DistilBert { 0.1 } else { 0.02 };
                    assert!((slope - norm).abs() < share * norm + 0.02, "{family:?} {name}: {slope} {norm}");
                }
            }
        }
    }

    #[test]
    fn a_family_without_a_packed_form_trains_over_the_tape() {
        let config = config(BertFamily::Mpnet, BertTask::SequenceClassification, 1, 0.1);
        let encoder = TunedEncoder::new(&config, Variables::new(3), &Device::Cpu).unwrap();
        assert!(encoder.packed.is_none());
        let rows = rows(4, 2);
        let rows: Vec<&EncoderRow> = rows.iter().collect();
        let (before, found) = gradients(&encoder, &rows, Pick::All, 9);
        assert_eq!(before, gradients(&encoder, &rows, Pick::All, 9).0);
        let named = encoder.variables.all();
        let (at, var) = named
            .iter()
            .enumerate()
            .find(|(_, (name, _))| name.ends_with("relative_attention_bias.weight"))
            .map(|(at, (_, var))| (at, var))
            .unwrap();
        let norm = found[at].iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        assert!(norm > 1e-3, "{norm}");
        // A small step against the gradient lowers the loss by the step's length times the gradient's norm.
        let step = 1e-2 / norm;
        let gradient = Tensor::from_slice(&found[at], var.shape(), &Device::Cpu).unwrap();
        var.set(&(var.as_tensor().copy().unwrap() - (gradient * step).unwrap()).unwrap()).unwrap();
        let after = gradients(&encoder, &rows, Pick::All, 9).0;
        assert!(after < before, "{after} {before}");
    }

    #[test]
    fn a_batch_has_the_summed_gradients_of_its_rows() {
        let encoder = tiny(1, 0.0);
        let rows = rows(5, 3);
        let rows: Vec<&EncoderRow> = rows.iter().collect();
        let first = |rows: &[&EncoderRow]| {
            let mut gradients: Gradients =
                encoder.all.iter().map(|var| vec![0.0; var.elem_count()]).collect();
            let Head::Sequence(head) = encoder.head() else { unreachable!() };
            encoder
                .learn(rows, Pick::First, 0, &mut gradients, |states, mode| {
                    Ok(head.forward(&states.unsqueeze(1)?, mode)?.sqr()?.sum_all()?)
                })
                .unwrap();
            gradients
        };
        let together = first(&rows);
        let mut apart: Gradients = encoder.all.iter().map(|var| vec![0.0; var.elem_count()]).collect();
        for row in &rows {
            apart.add_all(&first(&[row])).unwrap();
        }
        for (a, b) in together.iter().flatten().zip(apart.iter().flatten()) {
            assert!((a - b).abs() < 2e-3, "{a} {b}");
        }
    }

    #[test]
    fn the_number_of_threads_does_not_change_the_gradients() {
        let encoder = tiny(1, 0.2);
        // More tokens than one portion.
        let rows = rows(60, 3);
        let rows: Vec<&EncoderRow> = rows.iter().collect();
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let (loss, gradients) = pool.install(|| gradients(&encoder, &rows, Pick::All, 5));
            (loss, gradients.to_vec())
        };
        assert_eq!(on(1), on(3));
    }

    #[test]
    fn products_in_bf16_give_nearly_the_same_gradients() {
        let encoder = tiny(1, 0.2);
        let rows = rows(20, 3);
        let rows: Vec<&EncoderRow> = rows.iter().collect();
        let of = |precision| in_precision(precision, || gradients(&encoder, &rows, Pick::All, 5)).1.to_vec();
        let (exact, rounded) = (of(TrainingPrecision::F32), of(TrainingPrecision::Bf16));
        let norm = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>().sqrt();
        for (exact, rounded) in exact.iter().zip(&rounded) {
            let error = norm(&mut exact.iter().zip(rounded).map(|(a, b)| a - b));
            // A value that is rounded to eight bits is off by 2^-9 of itself at most; two layers forth and back add that up.
            assert!(error <= 0.03 * norm(&mut exact.iter().copied()) + 1e-4, "{error}");
        }
        assert_eq!(exact != rounded, TrainingPrecision::Bf16.rounds());
        // The next caller is not affected.
        assert_eq!(exact, gradients(&encoder, &rows, Pick::All, 5).1.to_vec());
    }

    #[test]
    fn rows_that_cannot_be_read_are_refused() {
        let encoder = tiny(1, 0.0);
        let row = |ids: Vec<u32>, types: Vec<u32>| EncoderRow { ids, types };
        let states =
            |row: &EncoderRow| encoder.states(&[row], Pick::First).err().map(|error| error.to_string());
        assert!(states(&row(vec![], vec![])).unwrap().contains("no token"));
        assert!(states(&row(vec![4; 33], vec![0; 33])).unwrap().contains("33"));
        assert!(states(&row(vec![4, 50], vec![0, 0])).unwrap().contains("50"));
        assert!(states(&row(vec![4, 5], vec![0, 2])).unwrap().contains("types below 2"));
        let ok = row(vec![4, 5], vec![0, 1]);
        assert!(encoder.states(&[&ok], Pick::Tokens(&[2])).is_err());
    }
}
