//! BERT (Devlin et al. 2019) and its kin, which [`BertFamily`] lists.

mod adapter;
mod architecture;
mod checks;
mod config;
mod convbert;
mod disentangled;
mod family;
mod fields;
mod fnet;
mod heads;
mod layered;
mod mobile;
mod model;
mod nystromformer;
mod own_code;
mod rotary;
mod state_convolution;
#[cfg(test)]
mod tests;
mod with_head;
mod xlnet;

pub(crate) use adapter::ADAPTER_NORM;
pub use adapter::{AdapterNorm, LanguageAdapters};
pub(crate) use config::HeadFields;
pub use config::{AttentionBlocks, BertConfig, BertTask, FamilySettings, LayerGroups, LayerSharing};
pub use convbert::ConvSizes;
pub use disentangled::Disentangled;
pub use family::BertFamily;
pub use heads::{
    Head, MaskedLmHead, ReaderHead, ReaderLogits, SequenceHead, SpanHead, SpanLogits, TokenHead, VectorHead,
};
pub(crate) use heads::{LabelledState, Transform};
pub use mobile::MobileSizes;
pub use model::{BERT_NAMES, Bert, BertNames, DISTIL_NAMES};
pub(crate) use model::{GLOBAL_NAMES, MPNET_BIASES, MPNET_BUCKETS, MPNET_DISTANCE};
pub use rotary::RotaryPositions;
pub use state_convolution::ConvolutionSettings;
pub use with_head::{BertModel, EncoderModel};
