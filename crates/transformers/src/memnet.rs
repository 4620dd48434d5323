//! The generative transformer memory network (Dinan et al. 2019, "Wizard of Wikipedia: Knowledge-Powered Conversational
//! Agents", section 4.2): one encoder reads a dialogue and each piece of knowledge separately, the dialogue's vector
//! attends to theirs, and the decoder reads the hidden states of the dialogue and of the piece with the highest weight.
//!
//! The network has only the weights of an encoder-decoder. A text's vector is the sum of its hidden states, divided by the
//! square root of their number (Cer et al. 2018, "Universal Sentence Encoder") and by the square root of their width.

use candle_core::{D, DType, Tensor};
use sporran_checkpoint::Result;

use crate::{fid::EncodedTexts, layers::hidden_score};

/// How much a dialogue attends to each piece of knowledge, before the softmax. `dialogue` (length, d) and each of
/// `pieces` (length, d) are the encoder's states without padding.
///
/// # Errors
/// A tensor error.
pub fn attend_to_pieces(dialogue: &Tensor, pieces: &[Tensor]) -> Result<Vec<f32>> {
    let vector = |states: &Tensor| -> Result<Vec<f32>> {
        let (length, width) = states.dims2()?;
        let scale = ((length * width) as f64).sqrt().recip();
        Ok((states.to_dtype(DType::F32)?.sum(0)? * scale)?.to_vec1()?)
    };
    let asked = vector(dialogue)?;
    let score = |piece: &Tensor| Ok(asked.iter().zip(vector(piece)?).map(|(a, b)| a * b).sum());
    pieces.iter().map(score).collect()
}

/// The same for a batch in training: (dialogues, most pieces), `dialogues[i]` and `pieces[i]` being texts of `encoded`.
/// Where a dialogue has fewer pieces, the score is next to minus infinity.
///
/// # Errors
/// A tensor error.
pub fn piece_attention(encoded: &EncodedTexts, dialogues: &[usize], pieces: &[&[usize]]) -> Result<Tensor> {
    let sums = encoded.sums()?;
    let (_, width) = sums.dims2()?;
    let most = pieces.iter().map(|pieces| pieces.len()).max().unwrap_or(0);
    let (mut places, mut bias) = (Vec::new(), Vec::new());
    for pieces in pieces {
        places.extend(pieces.iter().map(|&at| at as u32));
        places.resize(places.len() + most - pieces.len(), 0);
        bias.resize(bias.len() + pieces.len(), 0f32);
        bias.resize(places.len(), hidden_score(sums.dtype())? as f32);
    }
    let (rows, device) = (dialogues.len(), sums.device());
    let dialogues: Vec<u32> = dialogues.iter().map(|&at| at as u32).collect();
    let asked = sums.index_select(&Tensor::new(dialogues, device)?, 0)?.unsqueeze(D::Minus1)?;
    let keys = sums.index_select(&Tensor::new(places, device)?, 0)?.reshape((rows, most, width))?;
    let scores = (keys.matmul(&asked)?.squeeze(D::Minus1)? / width as f64)?;
    Ok((scores + Tensor::from_vec(bias, (rows, most), device)?)?)
}
