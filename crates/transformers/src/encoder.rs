//! The seam that every encoder shares, and the whole model: a body and its head.

use candle_core::{Device, Tensor};
use candle_nn::VarBuilder;

use crate::{batch::Batch, bert::Bert, bert_config::BertConfig, bert_heads::Head, error::Result};

/// The body of an encoder-only transformer: token ids to states, without a head.
pub trait Encoder: Send + Sync {
    /// The last hidden states of the inputs, shape (b, s, d). Padding has no influence on the states of tokens; its
    /// own states mean nothing. Token types are 0 where the batch has none.
    ///
    /// # Errors
    /// A tensor error, or [`Error::Batch`](crate::Error::Batch) where an input is longer than the model has
    /// positions for.
    fn states(&self, input: &Batch) -> Result<Tensor>;

    /// The hidden states of every layer, each of shape (b, s, d): the embeddings first, [`states`](Self::states) last.
    ///
    /// # Errors
    /// As for [`states`](Self::states).
    fn layers(&self, input: &Batch) -> Result<Vec<Tensor>>;

    /// The width of the states, d.
    fn width(&self) -> usize;

    /// The most tokens of an input, special ones included.
    fn max_input_length(&self) -> usize;

    /// Whether the model was trained with the token types that its tokenizer gives; others are not shown them.
    fn takes_types(&self) -> bool;

    /// The token that fills rows up to one length.
    fn pad_token(&self) -> u32;

    /// Where the weights lie.
    fn device(&self) -> &Device;
}

/// A body, whichever computes it, with the head of its checkpoint, for inference.
pub struct EncoderModel {
    /// Token ids to states.
    pub body: Box<dyn Encoder>,
    /// States to what the model was trained for.
    pub head: Head,
}

/// A body and a head over the weights of one builder, for training and inference.
#[derive(Debug, Clone)]
pub struct BertModel {
    /// Token ids to states.
    pub body: Bert,
    /// States to what the model was trained for.
    pub head: Head,
}

impl BertModel {
    /// Takes the weights from `vb`, by the names that `transformers` gives them.
    ///
    /// # Errors
    /// As for [`Bert::new`].
    pub fn new(config: &BertConfig, vb: &VarBuilder) -> Result<Self> {
        let body = Bert::new(config, vb)?;
        let head = Head::new(config, || Ok(body.table().clone()), vb)?;
        Ok(Self { body, head })
    }
}

impl From<BertModel> for EncoderModel {
    fn from(model: BertModel) -> Self {
        Self { body: Box::new(model.body), head: model.head }
    }
}
