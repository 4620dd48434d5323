//! Texts that are encoded apart and read together: Fusion-in-Decoder (Izacard and Grave 2021, "Leveraging Passage
//! Retrieval with Generative Models for Open Domain Question Answering").
//!
//! The decoder attends to the states of all passages of an input, one after the other. Neither T5 nor BART has
//! positions in cross-attention, so padding between passages is left out and nothing else changes.

use candle_core::{DType, Tensor};

use crate::{
    batch::Batch,
    error::{Error, Result},
    seq2seq::{Memory, Seq2Seq},
};

/// The encoder's last hidden states of every row without padding, each of shape (length, d). Rows of like length are
/// encoded together, as many as make `tokens` tokens with padding, or one, so that memory stays bounded.
///
/// # Errors
/// As for [`Seq2Seq::encode`], and [`Error::Batch`] for a row without tokens.
pub fn encode_apart<R: AsRef<[u32]>>(model: &dyn Seq2Seq, rows: &[R], tokens: usize) -> Result<Vec<Tensor>> {
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

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn states_stand_one_after_the_other_and_padding_comes_last() {
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
