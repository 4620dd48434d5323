//! The whole model: a body and its head.

use candle_nn::VarBuilder;
use sporran_checkpoint::Result;

use super::{
    config::BertConfig, convbert::ConvBert, family::BertFamily, fnet::Fnet, heads::Head, mobile::MobileBert,
    model::Bert, nystromformer::Nystromformer, xlnet::Xlnet,
};
use crate::encoder::Encoder;

/// A body of any implementation with the head of its checkpoint, for inference.
pub struct EncoderModel {
    /// Token ids to states.
    pub body: Box<dyn Encoder>,
    /// The head of the model\'s task.
    pub head: Head,
}

impl EncoderModel {
    /// A model whose body is [apart](BertConfig::is_apart), with the weights from `vb`.
    ///
    /// # Errors
    /// As for [`Bert::new`].
    pub(crate) fn apart(config: &BertConfig, vb: &VarBuilder) -> Result<Self> {
        let (body, table): (Box<dyn Encoder>, _) = match (config.mobile, config.convolution) {
            (Some(sizes), _) => {
                let body = MobileBert::new(config, sizes, vb)?;
                let table = body.table().clone();
                (Box::new(body), table)
            }
            (None, Some(sizes)) if config.family == BertFamily::Nystromformer => {
                let body = Nystromformer::new(config, sizes.kernel, vb)?;
                let table = body.table().clone();
                (Box::new(body), table)
            }
            (None, Some(sizes)) => {
                let body = ConvBert::new(config, sizes, vb)?;
                let table = body.table().clone();
                (Box::new(body), table)
            }
            _ if config.family == BertFamily::Fnet => {
                let body = Fnet::new(config, vb)?;
                let table = body.table().clone();
                (Box::new(body), table)
            }
            _ => {
                let body = Xlnet::new(config, vb)?;
                let table = body.table().clone();
                (Box::new(body), table)
            }
        };
        Ok(Self { body, head: Head::new(config, || Ok(table), vb)? })
    }
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
