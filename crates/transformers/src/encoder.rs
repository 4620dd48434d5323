//! The seam that every encoder shares.

use candle_core::{Device, Tensor};
use sporran_checkpoint::{Error, Result};

use crate::batch::Batch;

/// The body of an encoder-only transformer: token ids to states, without a head.
pub trait Encoder: Send + Sync {
    /// The last hidden states of the inputs, shape (b, s, d). Padding has no influence on the states of tokens; its
    /// own states mean nothing. Token types are 0 where the batch has none.
    ///
    /// # Errors
    /// A tensor error, or [`Error::Batch`](sporran_checkpoint::Error::Batch) where an input is longer than the model has
    /// positions for.
    fn states(&self, input: &Batch) -> Result<Tensor>;

    /// The last hidden states of some tokens, each named by its input and its position there, shape (n, d). The last layer
    /// may skip other tokens.
    ///
    /// # Errors
    /// As for [`states`](Self::states), and [`Error::Batch`](sporran_checkpoint::Error::Batch) where there is no such token.
    fn states_at(&self, input: &Batch, tokens: &[(usize, usize)]) -> Result<Tensor> {
        let (size, length) = (input.size(), input.length());
        if let Some((row, position)) =
            tokens.iter().find(|(row, position)| *row >= size || *position >= length)
        {
            return Err(no_such_token((size, length), (*row, *position)));
        }
        let places: Vec<u32> =
            tokens.iter().map(|(row, position)| (row * length + position) as u32).collect();
        let states = self.states(input)?;
        let places = Tensor::new(places.as_slice(), states.device())?;
        Ok(states.reshape(((), self.width()))?.index_select(&places, 0)?)
    }

    /// The last hidden state of each input's first token, shape (b, 1, d): all that heads of whole inputs read.
    ///
    /// # Errors
    /// As for [`states_at`](Self::states_at).
    fn first_states(&self, input: &Batch) -> Result<Tensor> {
        let tokens: Vec<_> = (0..input.size()).map(|row| (row, 0)).collect();
        Ok(self.states_at(input, &tokens)?.unsqueeze(1)?)
    }

    /// The hidden states of every layer, each of shape (b, s, d): the embeddings first, [`states`](Self::states) last.
    ///
    /// # Errors
    /// As for [`states`](Self::states).
    fn layers(&self, input: &Batch) -> Result<Vec<Tensor>>;

    /// The width of the states, d.
    fn width(&self) -> usize;

    /// The most tokens of an input, special ones included.
    fn max_input_length(&self) -> usize;

    /// Whether the model was trained with its tokenizer's token types; other models do not get them.
    fn takes_types(&self) -> bool;

    /// The token that fills rows up to one length.
    fn pad_token(&self) -> u32;

    /// The device of the weights.
    fn device(&self) -> &Device;
}

/// The error of asking for the state of a token that a batch of this shape (b, s) does not have.
pub(crate) fn no_such_token(shape: (usize, usize), token: (usize, usize)) -> Error {
    Error::Batch {
        expected: format!("a token of {} inputs of at most {} tokens", shape.0, shape.1),
        found: format!("token {} of input {}", token.1, token.0),
    }
}
