//! Texts that are encoded separately and read together: Fusion-in-Decoder (Izacard and Grave 2021, "Leveraging Passage
//! Retrieval with Generative Models for Open Domain Question Answering").
//!
//! The decoder attends to the states of all passages of an input, one after the other. Neither T5 nor BART has
//! positions in cross-attention, so padding between passages is left out and nothing else changes.

use candle_core::{DType, Tensor};
use sporran_checkpoint::{Error, Result};

use crate::{
    batch::Batch,
    mode::Mode,
    seq2seq::{Memory, Seq2Seq, Trainable},
};

/// The encoder's last hidden states of every row without padding, each of shape (length, d). Rows of like length are
/// encoded together, as many as make `tokens` tokens with padding, or one, so that memory stays bounded.
///
/// # Errors
/// As for [`Seq2Seq::encode`], and [`Error::Batch`] for a row without tokens.
pub fn encode_separately<R: AsRef<[u32]>>(
    model: &dyn Seq2Seq,
    rows: &[R],
    tokens: usize,
) -> Result<Vec<Tensor>> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    let length = |at: &usize| rows[*at].as_ref().len();
    order.sort_by_key(|at| (std::cmp::Reverse(length(at)), *at));
    let mut states = vec![None; rows.len()];
    let mut rest = order.as_slice();
    while let Some(longest) = rest.first() {
        let count = (tokens / length(longest).max(1)).clamp(1, rest.len());
        let (portion, after) = rest.split_at(count);
        let inputs: Vec<&[u32]> = portion.iter().map(|at| rows[*at].as_ref()).collect();
        let batch = Batch::new(&inputs, model.special_tokens().pad, model.device())?;
        let memory = model.encode(&batch)?;
        for (row, at) in portion.iter().enumerate() {
            // A copy, so that the padded states can go.
            states[*at] = Some(memory.hidden().get(row)?.narrow(0, 0, length(at))?.copy()?);
        }
        rest = after;
    }
    Ok(states.into_iter().flatten().collect())
}

/// One memory for inputs of several texts each: the states of input `i` are those of `texts[i]`, one after the other,
/// each of shape (length, d).
///
/// # Errors
/// [`Error::Batch`] where there is no input, or an input has no text.
pub fn fuse(texts: &[&[Tensor]]) -> Result<Memory> {
    if texts.is_empty() || texts.iter().any(|texts| texts.is_empty()) {
        let found = format!("{} inputs, one of them without a text", texts.len());
        return Err(Error::Batch { expected: "inputs of at least one text each".into(), found });
    }
    let joined: Vec<Tensor> = texts.iter().map(|texts| Ok(Tensor::cat(texts, 0)?)).collect::<Result<_>>()?;
    let lengths: Vec<usize> = joined.iter().map(|states| states.dims()[0]).collect();
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let device = joined[0].device().clone();
    let padded = joined.iter().zip(&lengths).map(|(states, length)| {
        Ok(if *length < longest { states.pad_with_zeros(0, 0, longest - length)? } else { states.clone() })
    });
    let hidden = Tensor::stack(&padded.collect::<Result<Vec<_>>>()?, 0)?;
    let mask: Vec<f32> = lengths
        .iter()
        .flat_map(|length| (0..longest).map(move |at| if at < *length { 1.0 } else { 0.0 }))
        .collect();
    let mask = Tensor::from_vec(mask, (texts.len(), longest), &device)?.to_dtype(DType::F32)?;
    Memory::new(hidden, mask)
}

/// Texts shorter than this share of a portion's longest are encoded with the next portion, so that padding stays small.
const LEAST_SHARE: f64 = 0.75;

/// The hidden states of texts that are encoded separately, for a loss with gradients through them.
pub struct EncodedTexts {
    /// The states of all texts and of their padding, (tokens, d).
    states: Tensor,
    /// The start and the number of the states of each text.
    places: Vec<(usize, usize)>,
}

impl EncodedTexts {
    /// Encodes rows of tokens, those of like length together.
    ///
    /// # Errors
    /// As for [`Trainable::encode_in`], and [`Error::Batch`] where there is no row or a row has no token.
    pub fn encode<R: AsRef<[u32]>>(model: &dyn Trainable, rows: &[R], mode: &mut Mode) -> Result<Self> {
        let length = |at: &usize| rows[*at].as_ref().len();
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|at| (std::cmp::Reverse(length(at)), *at));
        let mut places = vec![(0, 0); rows.len()];
        let (mut parts, mut begin) = (Vec::new(), 0);
        let mut rest = order.as_slice();
        while let Some(longest) = rest.first().map(length) {
            let like = |at: &usize| length(at) as f64 >= LEAST_SHARE * longest as f64;
            let count = rest.iter().take_while(|at| like(at)).count();
            let (portion, after) = rest.split_at(count);
            let inputs: Vec<&[u32]> = portion.iter().map(|at| rows[*at].as_ref()).collect();
            let batch = Batch::new(&inputs, model.special_tokens().pad, model.device())?;
            parts.push(model.encode_in(&batch, mode)?.hidden().flatten(0, 1)?);
            for at in portion {
                places[*at] = (begin, length(at));
                begin += longest;
            }
            rest = after;
        }
        if parts.is_empty() {
            return Err(Error::Batch { expected: "at least one text".into(), found: "none".into() });
        }
        Ok(Self { states: Tensor::cat(&parts, 0)?, places })
    }

    /// One memory for inputs of several texts each, as [`fuse`] makes it: the states of input `i` are those of the texts
    /// `inputs[i]`, one after the other.
    ///
    /// # Errors
    /// [`Error::Batch`] where there is no input, or an input has no text.
    pub fn fuse(&self, inputs: &[Vec<usize>]) -> Result<Memory> {
        let rows: Vec<Vec<u32>> = inputs
            .iter()
            .map(|texts| {
                let tokens = texts.iter().flat_map(|&at| {
                    let (begin, length) = self.places[at];
                    begin as u32..(begin + length) as u32
                });
                tokens.collect()
            })
            .collect();
        // Padding takes the first state, which the mask hides.
        let chosen = Batch::new(&rows, 0, self.states.device())?;
        let hidden = self.states.index_select(&chosen.ids.flatten_all()?, 0)?;
        Memory::new(hidden.reshape((rows.len(), chosen.length(), ()))?, chosen.mask)
    }

    /// The sum of each text's states, divided by the root of their number: (texts, d).
    pub fn sums(&self) -> Result<Tensor> {
        let (tokens, _) = self.states.dims2()?;
        let mut shares = vec![0f32; self.places.len() * tokens];
        for (shares, &(begin, length)) in shares.chunks_exact_mut(tokens).zip(&self.places) {
            shares[begin..][..length].fill((length as f32).sqrt().recip());
        }
        let shares = Tensor::from_vec(shares, (self.places.len(), tokens), self.states.device())?;
        Ok(shares.matmul(&self.states)?)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn states_are_concatenated_and_padding_comes_last() {
        let states = |values: &[f32]| Tensor::from_slice(values, (values.len(), 1), &Device::Cpu).unwrap();
        let (a, b, c) = (states(&[1.0, 2.0]), states(&[3.0]), states(&[4.0]));
        let memory = fuse(&[&[a, b], &[c]]).unwrap();
        assert_eq!(
            memory.hidden().squeeze(2).unwrap().to_vec2::<f32>().unwrap(),
            [[1., 2., 3.], [4., 0., 0.]]
        );
        assert_eq!(memory.mask().to_vec2::<f32>().unwrap(), [[1., 1., 1.], [1., 0., 0.]]);
        assert!(fuse(&[]).is_err());
        assert!(fuse(&[&[]]).unwrap_err().to_string().contains("at least one text"));
    }
}
