//! ELMo (Peters et al., 2018): vectors of words in their sentence, from their characters and a language model's LSTMs in
//! both directions. The weights have AllenNLP's names.

use std::collections::HashMap;

use candle_core::{D, Device, Tensor};
use candle_nn::{Linear, Module};
use sporran_checkpoint::Result;

use super::stored::Stored;

/// The characters of a word, including its two marks. Longer words are truncated.
const CHARACTERS: usize = 50;
/// Ids that are not bytes. The table's row of an id is the id plus one; row 0 is padding.
const SENTENCE_BEGINS: u32 = 256;
const SENTENCE_ENDS: u32 = 257;
const WORD_BEGINS: u32 = 258;
const WORD_ENDS: u32 = 259;
const PADDING: u32 = 260;
/// Bounds of memory cells and of states.
const CLIP: f32 = 3.0;

/// A word's vector from its characters: convolutions, highway layers (Srivastava et al., 2015) and a projection.
#[derive(Debug)]
struct Characters {
    /// (ids, width)
    table: Tensor,
    /// Each of (filters, width * characters), characters before values, and how many characters it reads.
    convolutions: Vec<(Linear, usize)>,
    highways: Vec<Linear>,
    projection: Linear,
}

/// One direction of one layer: an LSTM whose states are projections of its cells' outputs.
#[derive(Debug)]
struct Direction {
    from_below: Linear,
    from_before: Linear,
    projection: Linear,
}

/// The language model and how its three layers are mixed.
#[derive(Debug)]
pub(crate) struct Elmo {
    characters: Characters,
    /// The forward and the backward LSTM of each layer.
    layers: Vec<[Direction; 2]>,
    /// The weight of each layer.
    mixture: Vec<f32>,
}

fn ids(word: &str) -> Vec<u32> {
    let bytes = word.bytes().take(CHARACTERS - 2).map(u32::from);
    of_characters(bytes)
}

fn of_characters(characters: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut found = vec![WORD_BEGINS];
    found.extend(characters);
    found.push(WORD_ENDS);
    found.resize(CHARACTERS, PADDING);
    found.iter_mut().for_each(|id| *id += 1);
    found
}

impl Characters {
    fn open(stored: &Stored<'_>) -> Result<Self> {
        let table = stored.matrix("_char_embedding_weights", Some(PADDING as usize + 2), None)?;
        let width = table.dim(1)?;
        let mut convolutions = Vec::new();
        while stored.has(&format!("char_conv_{}.weight", convolutions.len())) {
            let name = format!("char_conv_{}", convolutions.len());
            let weight = stored.tensor(&format!("{name}.weight"), &[None, Some(width), None])?;
            let (filters, _, reads) = weight.dims3()?;
            if reads > CHARACTERS {
                // No word is so long.
                stored.tensor(&format!("{name}.weight"), &[Some(filters), Some(width), Some(CHARACTERS)])?;
            }
            let weight = weight.transpose(1, 2)?.reshape((filters, reads * width))?;
            let bias = stored.tensor(&format!("{name}.bias"), &[Some(filters)])?;
            convolutions.push((Linear::new(weight, Some(bias)), reads));
        }
        let filters =
            convolutions.iter().map(|(layer, _)| layer.weight().dim(0)).sum::<Result<usize, _>>()?;
        let mut highways = Vec::new();
        while stored.has(&format!("_highways._layers.{}.weight", highways.len())) {
            let name = format!("_highways._layers.{}", highways.len());
            highways.push(stored.linear(&name, Some(2 * filters), filters)?);
        }
        let projection = stored.linear("_projection", None, filters)?;
        Ok(Self { table, convolutions, highways, projection })
    }

    /// (words, projection) of words as [`CHARACTERS`] ids each.
    fn vectors(&self, words: &[Vec<u32>]) -> Result<Tensor> {
        let width = self.table.dim(1)?;
        let ids = Tensor::new(words.concat().as_slice(), &Device::Cpu)?;
        let letters = self.table.index_select(&ids, 0)?.reshape((words.len(), CHARACTERS, width))?;
        let mut found = Vec::new();
        for (layer, reads) in &self.convolutions {
            let places = CHARACTERS + 1 - reads;
            let windows: Result<Vec<Tensor>, _> =
                (0..*reads).map(|at| letters.narrow(1, at, places)).collect();
            let windows = Tensor::cat(&windows?, D::Minus1)?.contiguous()?;
            found.push(layer.forward(&windows)?.max(1)?.relu()?);
        }
        let mut states = Tensor::cat(&found, D::Minus1)?;
        let filters = states.dim(1)?;
        for layer in &self.highways {
            let both = layer.forward(&states)?;
            let changed = both.narrow(1, 0, filters)?.relu()?;
            let gate = candle_nn::ops::sigmoid(&both.narrow(1, filters, filters)?)?;
            states = (&changed + (gate * (states - &changed)?)?)?;
        }
        Ok(self.projection.forward(&states)?)
    }
}

impl Direction {
    fn open(stored: &Stored<'_>, name: &str, width: usize) -> Result<Self> {
        let projection = stored.matrix(&format!("{name}.state_projection.weight"), Some(width), None)?;
        let gates = Some(4 * projection.dim(1)?);
        let from_below = stored.matrix(&format!("{name}.input_linearity.weight"), gates, Some(width))?;
        let from_before = stored.linear(&format!("{name}.state_linearity"), gates, width)?;
        let bare = |weight| Linear::new(weight, None);
        Ok(Self { from_below: bare(from_below), from_before, projection: bare(projection) })
    }

    /// The states of sequences that all begin at step 0: `xs` (steps, sequences, width) gives (steps, sequences, width).
    fn states(&self, xs: &Tensor) -> Result<Tensor> {
        let (steps, sequences, width) = xs.dims3()?;
        let below = self.from_below.forward(&xs.reshape((steps * sequences, width))?)?;
        let below = below.reshape((steps, sequences, ()))?;
        let cells = below.dim(2)? / 4;
        let mut state = Tensor::zeros((sequences, width), xs.dtype(), &Device::Cpu)?;
        let mut memory = Tensor::zeros((sequences, cells), xs.dtype(), &Device::Cpu)?;
        let mut states = Vec::with_capacity(steps);
        for step in 0..steps {
            let gates = (below.get(step)? + self.from_before.forward(&state)?)?;
            let gate = |at: usize| gates.narrow(1, at * cells, cells);
            let open = |at: usize| candle_nn::ops::sigmoid(&gate(at)?);
            memory = ((open(0)? * gate(2)?.tanh()?)? + (open(1)? * memory)?)?.clamp(-CLIP, CLIP)?;
            let out = (open(3)? * memory.tanh()?)?;
            state = self.projection.forward(&out)?.clamp(-CLIP, CLIP)?;
            states.push(state.clone());
        }
        Ok(Tensor::stack(&states, 0)?)
    }
}

impl Elmo {
    /// Takes the tensors of AllenNLP's module.
    pub(crate) fn open(stored: &Stored<'_>) -> Result<Self> {
        let characters = Characters::open(&stored.under("_elmo_lstm._token_embedder"))?;
        let lstm = stored.under("_elmo_lstm._elmo_lstm");
        let width = characters.projection.weight().dim(0)?;
        let mut layers = Vec::new();
        while lstm.has(&format!("forward_layer_{}.state_projection.weight", layers.len())) {
            let at = layers.len();
            layers.push([
                Direction::open(&lstm, &format!("forward_layer_{at}"), width)?,
                Direction::open(&lstm, &format!("backward_layer_{at}"), width)?,
            ]);
        }
        let mix = stored.under("scalar_mix_0");
        let scale = mix.number("gamma")?;
        let logits: Result<Vec<f32>> =
            (0..=layers.len()).map(|at| mix.number(&format!("scalar_parameters.{at}"))).collect();
        let exponents: Vec<f32> = logits?.into_iter().map(f32::exp).collect();
        let total: f32 = exponents.iter().sum();
        let mixture = exponents.into_iter().map(|value| scale * value / total).collect();
        Ok(Self { characters, layers, mixture })
    }

    /// Values of a word's vector.
    pub(crate) fn width(&self) -> Result<usize> {
        Ok(2 * self.characters.projection.weight().dim(0)?)
    }

    /// The vectors of the words of each text, (words, width), texts one after the other. Every text starts from zero
    /// states; AllenNLP continues from the states of the previous batch.
    pub(crate) fn vectors(&self, texts: &[&[String]]) -> Result<Tensor> {
        // Words that are equal have equal characters.
        let mut places: HashMap<&str, u32> = HashMap::new();
        let mut words = vec![of_characters([SENTENCE_BEGINS]), of_characters([SENTENCE_ENDS])];
        for word in texts.iter().copied().flatten() {
            places.entry(word).or_insert_with(|| {
                words.push(ids(word));
                words.len() as u32 - 1
            });
        }
        let vectors = self.characters.vectors(&words)?;
        let width = vectors.dim(1)?;
        let steps = texts.iter().map(|text| text.len()).max().unwrap_or(0) + 2;
        // Step by step in the order of the forward and the backward LSTM. Outputs after a text's end are ignored.
        let (mut forth, mut back) = (vec![1; steps * texts.len()], vec![0; steps * texts.len()]);
        for (column, text) in texts.iter().enumerate() {
            let mut row = |step: usize, word: u32| {
                forth[step * texts.len() + column] = word;
                back[(text.len() + 1 - step) * texts.len() + column] = word;
            };
            row(0, 0);
            for (at, word) in text.iter().enumerate() {
                row(at + 1, places[word.as_str()]);
            }
            row(text.len() + 1, 1);
        }
        let inputs = |places: &[u32]| -> Result<Tensor> {
            let places = Tensor::new(places, &Device::Cpu)?;
            Ok(vectors.index_select(&places, 0)?.reshape((steps, texts.len(), width))?)
        };
        let mut ways = [inputs(&forth)?, inputs(&back)?];
        let mut mixed = Vec::new();
        for way in &ways {
            mixed.push((way * f64::from(self.mixture[0]))?);
        }
        for (number, (layer, share)) in self.layers.iter().zip(&self.mixture[1..]).enumerate() {
            for ((direction, way), mixed) in layer.iter().zip(&mut ways).zip(&mut mixed) {
                let states = direction.states(way)?;
                // All but the first layer add their input (a residual connection).
                *way = if number == 0 { states } else { (states + &*way)? };
                *mixed = (&*mixed + (&*way * f64::from(*share))?)?;
            }
        }
        let (mut at_forth, mut at_back) = (Vec::new(), Vec::new());
        for (column, text) in texts.iter().enumerate() {
            for at in 1..=text.len() {
                at_forth.push((at * texts.len() + column) as u32);
                at_back.push(((text.len() + 1 - at) * texts.len() + column) as u32);
            }
        }
        let mut found = Vec::new();
        for (mixed, places) in mixed.into_iter().zip([at_forth, at_back]) {
            let rows = mixed.reshape((steps * texts.len(), width))?;
            found.push(rows.index_select(&Tensor::new(places.as_slice(), &Device::Cpu)?, 0)?);
        }
        Ok(Tensor::cat(&found, 1)?)
    }
}
