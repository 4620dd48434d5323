//! Learning of a transformer memory network (Dinan et al. 2019): which piece of knowledge a dialogue is answered with, and
//! the answer.

use candle_core::{D, Tensor, Var};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::{Error, Result};
use sporran_transformers::{EncodedTexts, Mode, Trainable, piece_attention};

use crate::{
    data::{IGNORED_LABEL, shifted, shuffled_batches},
    gradients::Gradients,
    loss::cross_entropy,
    objective::Objective,
    options::TrainingOptions,
    variables::Variables,
};

/// A dialogue with pieces of knowledge and its answer, as tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryRow {
    /// The dialogue so far.
    pub dialogue: Vec<u32>,
    /// The pieces of knowledge, one row each.
    pub pieces: Vec<Vec<u32>>,
    /// The gold piece for the answer, if known.
    pub gold: Option<usize>,
    /// Decoder tokens, without the start token.
    pub target: Vec<u32>,
}

impl MemoryRow {
    fn tokens(&self) -> usize {
        self.dialogue.len() + self.target.len() + self.pieces.iter().map(Vec::len).sum::<usize>()
    }
}

/// `[train.knowledge]`: the parts of a memory network's loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct KnowledgeOptions {
    /// The weight of the choice of knowledge in the loss; the rest is the answer's.
    #[schemars(range(min = 0, max = 1))]
    pub weight: f64,
    /// The probability that the decoder reads only the dialogue, so that it does not rely on wrong choices of knowledge.
    #[schemars(range(min = 0, max = 1))]
    pub dropout: f64,
}

impl Default for KnowledgeOptions {
    fn default() -> Self {
        Self { weight: 0.5, dropout: 0.3 }
    }
}

impl KnowledgeOptions {
    /// Checks the values.
    ///
    /// # Errors
    /// [`Error::Options`] naming the option at fault.
    pub fn check(&self) -> Result<()> {
        for (option, value) in [("knowledge.weight", self.weight), ("knowledge.dropout", self.dropout)] {
            if !(0.0..=1.0).contains(&value) {
                let found = value.to_string();
                return Err(Error::Options { option, expected: "a number from 0 to 1".into(), found });
            }
        }
        Ok(())
    }
}

/// The loss of the generative transformer memory network: `(1 - weight)` times the cross-entropy of the answer's tokens
/// and `weight` times that of the gold piece among the pieces of its dialogue, both as means over a batch.
///
/// The decoder reads the gold piece, or none where the dropout says so; where no piece is gold, it reads the one that is
/// attended to most, as in inference.
pub struct MemoryObjective<'a> {
    model: &'a dyn Trainable,
    /// In the order of the gradients.
    variables: Vec<Var>,
    rows: &'a [MemoryRow],
    knowledge: KnowledgeOptions,
    options: &'a TrainingOptions,
}

impl<'a> MemoryObjective<'a> {
    /// Trains on `rows` with the `model` that was built from `variables`.
    ///
    /// # Errors
    /// [`Error::Options`] for shares out of range, and [`Error::Training`] for a gold piece that a row does not have.
    pub fn new(
        model: &'a dyn Trainable,
        variables: &Variables,
        rows: &'a [MemoryRow],
        knowledge: KnowledgeOptions,
        options: &'a TrainingOptions,
    ) -> Result<Self> {
        knowledge.check()?;
        let wrong = |row: &&MemoryRow| row.gold.is_some_and(|gold| gold >= row.pieces.len());
        if let Some(row) = rows.iter().find(wrong) {
            return Err(Error::Training {
                what: "the gold piece of a row".into(),
                expected: format!("a number below {}", row.pieces.len()),
                found: format!("{:?}", row.gold),
            });
        }
        let variables = variables.all().into_iter().map(|(_, var)| var).collect();
        Ok(Self { model, variables, rows, knowledge, options })
    }

    fn batch(&self, members: &[usize]) -> Vec<&MemoryRow> {
        members.iter().map(|&at| &self.rows[at]).collect()
    }

    /// The summed loss of rows, counted in tokens of their targets.
    fn loss(&self, rows: &[&MemoryRow], seed: u64) -> Result<Tensor> {
        let mut mode = Mode::training(seed);
        let mut texts: Vec<&[u32]> = rows.iter().map(|row| row.dialogue.as_slice()).collect();
        let mut places: Vec<Vec<usize>> = Vec::with_capacity(rows.len());
        for row in rows {
            places.push((texts.len()..texts.len() + row.pieces.len()).collect());
            texts.extend(row.pieces.iter().map(Vec::as_slice));
        }
        let encoded = EncodedTexts::encode(self.model, &texts, &mut mode)?;
        let dialogues: Vec<usize> = (0..rows.len()).collect();
        let scores = if texts.len() > rows.len() {
            let pieces: Vec<&[usize]> = places.iter().map(Vec::as_slice).collect();
            Some(piece_attention(&encoded, &dialogues, &pieces)?)
        } else {
            None
        };

        let mut best = vec![0u32; rows.len()];
        if let Some(scores) = &scores {
            best = scores.argmax(D::Minus1)?.to_vec1()?;
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x6d65_6d6f);
        let read = rows.iter().enumerate().map(|(at, row)| {
            let dropped = rng.random_bool(self.knowledge.dropout);
            let chosen = row.gold.unwrap_or(best[at] as usize);
            let piece = places[at].get(chosen).filter(|_| !dropped);
            piece.copied().into_iter().chain([at]).collect()
        });
        let memory = encoded.fuse(&read.collect::<Vec<Vec<usize>>>())?;
        let (special, device) = (self.model.special_tokens(), self.model.device());
        let targets: Vec<&[u32]> = rows.iter().map(|row| row.target.as_slice()).collect();
        let (decoder, labels) = shifted(&targets, special.pad, special.decoder_start, device)?;
        let logits = self.model.decode_in(&decoder.ids, &decoder.mask, &memory, &mut mode)?;
        let mut loss =
            (cross_entropy(&logits, &labels, self.options.label_smoothing)? * (1.0 - self.knowledge.weight))?;

        let known = rows.iter().filter(|row| row.gold.is_some()).count();
        if let Some(scores) = scores.filter(|_| known > 0) {
            let gold = rows.iter().map(|row| row.gold.map_or(IGNORED_LABEL, |gold| gold as u32));
            let tokens: usize = targets.iter().map(|target| target.len()).sum();
            let scale = self.knowledge.weight * tokens as f64 / known as f64;
            loss = (loss + (cross_entropy(&scores, &gold.collect::<Vec<_>>(), 0.0)? * scale)?)?;
        }
        Ok(loss)
    }
}

impl Objective for MemoryObjective<'_> {
    /// The numbers of rows.
    type Batch = Vec<usize>;

    fn check(&self, _: &TrainingOptions) -> Result<()> {
        Ok(())
    }

    fn epoch(&self, number: u64) -> Result<Vec<Vec<usize>>> {
        let lengths: Vec<usize> = self.rows.iter().map(MemoryRow::tokens).collect();
        Ok(shuffled_batches(&lengths, self.options.tokens_per_batch, self.options.seed, number))
    }

    fn weight(&self, batch: &Vec<usize>) -> f64 {
        self.batch(batch).iter().map(|row| row.target.len()).sum::<usize>() as f64
    }

    fn tokens(&self, batch: &Vec<usize>) -> usize {
        self.batch(batch).iter().map(|row| row.tokens()).sum()
    }

    fn learn(&self, batch: &Vec<usize>, weight: f64, seed: u64, gradients: &mut Gradients) -> Result<f64> {
        let loss = (self.loss(&self.batch(batch), seed)? / weight)?;
        gradients.add_backward(&loss, &self.variables)?;
        Ok(f64::from(loss.to_scalar::<f32>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seq2seq::tests::{assert_gradients, build};
    use sporran_transformers::{attend_to_pieces, decode::log_probabilities, encode_separately, fuse};

    fn rows() -> Vec<MemoryRow> {
        let text = |salt: u32, length: u32| -> Vec<u32> {
            (0..length).map(|at| 5 + (salt * 17 + at * 11) % 33).chain([1]).collect()
        };
        let row = |salt: u32, pieces: u32, gold| MemoryRow {
            dialogue: text(salt, 3 + salt % 4),
            pieces: (0..pieces).map(|at| text(salt * 5 + at + 1, 1 + (at + salt) % 5)).collect(),
            gold,
            target: text(salt + 9, 1 + salt % 3),
        };
        vec![row(0, 3, Some(2)), row(1, 4, Some(0)), row(2, 0, None), row(3, 2, None)]
    }

    fn knowledge(dropout: f64) -> KnowledgeOptions {
        KnowledgeOptions { weight: 0.4, dropout }
    }

    /// The loss by its definition, in f64, by way of inference.
    fn expected(model: &dyn Trainable, rows: &[MemoryRow], dropped: bool) -> f64 {
        let (mut answers, mut choices, mut tokens, mut known) = (0.0, 0.0, 0, 0);
        for row in rows {
            let texts: Vec<&Vec<u32>> = std::iter::once(&row.dialogue).chain(&row.pieces).collect();
            let mut states = encode_separately(model, &texts, 1).unwrap();
            let dialogue = states.remove(0);
            let scores = attend_to_pieces(&dialogue, &states).unwrap();
            if let Some(gold) = row.gold {
                let sum: f64 = scores.iter().map(|score| f64::from(*score).exp()).sum();
                choices += sum.ln() - f64::from(scores[gold]);
                known += 1;
            }
            let best = (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
            let read: Vec<Tensor> = match row.gold.or(best).filter(|_| !dropped) {
                Some(piece) => vec![states[piece].clone(), dialogue],
                None => vec![dialogue],
            };
            let memory = fuse(&[&read]).unwrap();
            let target = row.target.clone();
            let found = log_probabilities(model, &memory, &[target]).unwrap();
            answers -= found[0][0].iter().map(|value| f64::from(*value)).sum::<f64>();
            tokens += row.target.len();
        }
        0.6 * answers / f64::from(tokens as u32) + 0.4 * choices / f64::from(known)
    }

    fn learned(objective: &MemoryObjective<'_>, gradients: &mut Gradients) -> f64 {
        let batch = vec![0, 1, 2, 3];
        objective.learn(&batch, objective.weight(&batch), 3, gradients).unwrap()
    }

    #[test]
    fn the_loss_is_that_of_the_answer_and_of_the_choice() {
        let (model, variables) = build(0.0);
        let (rows, options) = (rows(), TrainingOptions::default());
        for dropout in [0.0, 1.0] {
            let objective =
                MemoryObjective::new(&model, &variables, &rows, knowledge(dropout), &options).unwrap();
            let mut gradients = variables.all().iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect();
            let loss = learned(&objective, &mut gradients);
            let expected = expected(&model, &rows, dropout == 1.0);
            assert!((loss - expected).abs() < 1e-4, "{loss} {expected}");
        }
    }

    #[test]
    fn gradients_equal_numerical_ones() {
        let (model, variables) = build(0.0);
        let mut rows = rows();
        // Which piece is read where none is gold is not differentiable.
        rows.truncate(3);
        let options = TrainingOptions { label_smoothing: 0.1, ..TrainingOptions::default() };
        let objective = MemoryObjective::new(&model, &variables, &rows, knowledge(0.0), &options).unwrap();
        assert_gradients(&variables, |gradients| objective.learn(&vec![0, 1, 2], 6.0, 3, gradients).unwrap());
    }

    #[test]
    fn a_gold_piece_that_is_not_there_and_shares_out_of_range_are_refused() {
        let (model, variables) = build(0.0);
        let options = TrainingOptions::default();
        let rows = vec![MemoryRow { gold: Some(3), ..rows().remove(0) }];
        let found = MemoryObjective::new(&model, &variables, &rows, knowledge(0.0), &options).err().unwrap();
        assert!(found.to_string().contains("a number below 3"), "{found}");
        let found = MemoryObjective::new(&model, &variables, &[], knowledge(1.5), &options).err().unwrap();
        assert!(found.to_string().contains("knowledge.dropout"), "{found}");
    }
}
