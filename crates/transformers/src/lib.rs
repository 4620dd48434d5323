//! Transformer architectures over candle, exact against the `transformers` library.
//!
//! A [`Checkpoint`] is a Hugging Face folder: it gives a [`Tokenizer`] and a model behind the [`Seq2Seq`] seam, or an
//! [`Encoder`] with its [`Head`].
//! Each architecture has one definition, built from a `candle_nn::VarBuilder`: over a checkpoint for inference, over
//! a `candle_nn::VarMap` for training.

mod attention;
mod bart;
mod bart_config;
mod batch;
mod bert;
mod bert_config;
mod bert_fields;
mod bert_heads;
mod cache;
mod causal;
mod checkpoint;
mod crf;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod decode;
mod device;
mod encoder;
mod encoder_input;
mod engine;
pub mod fused;
mod fusion;
pub mod layers;
mod lstm;
mod memnet;
mod mode;
mod model_config;
mod pair_head;
mod pairs;
mod sentence;
mod seq2seq;
mod t5;
mod t5_config;
mod word_input;

pub use bart::Bart;
pub use bart_config::BartConfig;
pub use batch::{Batch, each_batch, length_batches};
pub use bert::{BERT_NAMES, Bert, BertNames, DISTIL_NAMES};
pub use bert_config::{BertConfig, BertFamily, BertTask};
pub use bert_heads::{
    Head, MaskedLmHead, ReaderHead, ReaderLogits, SequenceHead, SpanHead, SpanLogits, TokenHead, VectorHead,
};
pub use cache::Cache;
pub use causal::{
    CausalCache, CausalLm, Gguf, Gpt2, Gpt2Config, Llama, LlamaConfig, LlamaKind, generate_causal,
    generate_causal_until,
};
pub use checkpoint::{Checkpoint, import, import_parlai, import_part};
pub use crf::{CRF_WEIGHTS, Crf, CrfGradients, CrfGrammar};
pub use decode::{
    Constraint, EarlyStopping, GenerationOptions, Hypothesis, Inputs, Sequences, generate, generate_from,
    generate_with, search,
};
pub use device::{DeviceName, Precision};
pub use encoder::{BertModel, Encoder, EncoderModel};
pub use encoder_input::{EncoderInput, EncoderRow, Text, Truncation, folder_max_tokens};
pub use engine::{FastEncoder, FastLlama, FastSeq2Seq};
pub use fusion::{Apart, encode_apart, fuse};
pub use lstm::{LstmGradients, LstmOptions, LstmPass, PackedBiLstm};
pub use memnet::{attend_to_pieces, piece_attention};
pub use mode::{Dropout, Mode};
pub use model_config::ModelConfig;
pub use pair_head::{PAIR_HEAD, PairHead, PairHeadConfig, StatePair};
pub use pairs::{PairClassifier, PairOptions};
pub use sentence::{Pooling, Sentences, TextEncoder, TextEncoderOptions};
pub use seq2seq::{Memory, Seq2Seq, Trainable, too_long};
pub use sporran_checkpoint::{
    ChatMessage, ChatTemplate, CrossEncoderFolder, Error, Hub, ModelId, Parameter, Part, PlacedToken,
    Progress, Result, Role, ScoreActivation, SentenceSettings, SpecialTokens, Tokenizer, TruncationSide,
    VectorSimilarity, find_gguf, initialise, is_parlai, parameters, save, weight_types,
};
pub use t5::T5;
pub use t5_config::T5Config;
pub use word_input::{WordInput, WordRow};
