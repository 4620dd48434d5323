//! The whole model: a body and its head.

use candle_nn::VarBuilder;
use sporran_checkpoint::Result;

use super::{config::BertConfig, heads::Head, model::Bert};
use crate::encoder::Encoder;

/// A body of any implementation with the head of its checkpoint, for inference.
pub struct EncoderModel {
    /// Token ids to states.
    pub body: Box<dyn Encoder>,
    /// The head of the model\'s task.
    pub head: Head,
}

/// A body and a head over the weights of one builder, for training and inference.
#[derive(Debug, Clone)]
pub struct BertModel {
    /// Token ids to states.
    pub body: Bert,
    /// The head of the model\'s task.
    pub head: Head,
}

impl BertModel {
    /// Takes the weights from `vb`, by their names in `transformers`.
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
