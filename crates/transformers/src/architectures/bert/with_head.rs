//! The whole model: a body and its head.

use candle_nn::VarBuilder;
use sporran_checkpoint::Result;

use super::{
    config::{BertConfig, FamilySettings},
    convbert::ConvBert,
    family::BertFamily,
    fnet::Fnet,
    heads::Head,
    layered::{Layered, Layers},
    mobile::MobileBert,
    model::Bert,
    nystromformer::Nystromformer,
    xlnet::Xlnet,
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
        match config.own {
            FamilySettings::Mobile(sizes) => Self::layered(MobileBert::new(config, sizes, vb)?, config, vb),
            FamilySettings::Convolution(sizes) if config.family == BertFamily::Nystromformer => {
                Self::layered(Nystromformer::new(config, sizes.kernel, vb)?, config, vb)
            }
            FamilySettings::Convolution(sizes) => {
                Self::layered(ConvBert::new(config, sizes, vb)?, config, vb)
            }
            _ if config.family == BertFamily::Fnet => Self::layered(Fnet::new(config, vb)?, config, vb),
            _ => Self::layered(Xlnet::new(config, vb)?, config, vb),
        }
    }

    fn layered(body: impl Layers + 'static, config: &BertConfig, vb: &VarBuilder) -> Result<Self> {
        let head = Head::new(config, || Ok(body.table().clone()), vb)?;
        Ok(Self { body: Box::new(Layered(body)), head })
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
