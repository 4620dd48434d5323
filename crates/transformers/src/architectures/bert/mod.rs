//! BERT (Devlin et al. 2019) and its kin: RoBERTa, XLM-RoBERTa, DistilBERT and DPR.

mod config;
mod fields;
mod heads;
mod model;
mod with_head;

pub use config::{BertConfig, BertFamily, BertTask};
pub use heads::{
    Head, MaskedLmHead, ReaderHead, ReaderLogits, SequenceHead, SpanHead, SpanLogits, TokenHead, VectorHead,
};
pub use model::{BERT_NAMES, Bert, BertNames, DISTIL_NAMES};
pub use with_head::{BertModel, EncoderModel};
