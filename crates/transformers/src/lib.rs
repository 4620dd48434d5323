//! Transformer architectures over candle, exact against the `transformers` library.
//!
//! A [`Checkpoint`] is a Hugging Face folder: it gives a [`Tokenizer`] and a model behind the [`Seq2Seq`] seam, or an
//! [`Encoder`] with its [`Head`].
//! Each architecture has one definition, built from a `candle_nn::VarBuilder`: over a checkpoint for inference, over
//! a `candle_nn::VarMap` for training.

mod architecture;
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
mod chat;
mod checkpoint;
mod crf;
#[cfg(feature = "cuda")]
mod cuda;
pub mod decode;
mod device;
mod encoder;
mod encoder_input;
mod engine;
mod entity_head;
mod error;
mod fusion;
mod hub;
mod import;
mod json;
mod layers;
mod lstm;
mod memnet;
mod mode;
mod model_config;
mod nsmn;
mod pair_head;
mod pairs;
mod parlai;
mod remote;
mod save;
mod sentence;
mod seq2seq;
mod t5;
mod t5_config;
mod tokenizer;
mod tokens;
pub mod training;
mod weights;
mod word_input;

pub use bart::Bart;
pub use bart_config::BartConfig;
pub use batch::{Batch, each_batch, length_batches};
pub use bert::Bert;
pub use bert_config::{BertConfig, BertFamily, BertTask};
pub use bert_heads::{
    Head, MaskedLmHead, ReaderHead, ReaderLogits, SequenceHead, SpanHead, SpanLogits, TokenHead, VectorHead,
};
pub use cache::Cache;
pub use causal::{
    CausalCache, CausalLm, Gguf, Gpt2, Gpt2Config, Llama, LlamaConfig, LlamaKind, find_gguf, generate_causal,
    generate_causal_until,
};
pub use chat::{ChatMessage, ChatTemplate};
pub use checkpoint::{Checkpoint, Part, weight_types};
pub use crf::{Crf, CrfGradients, CrfGrammar, CrfVariables};
pub use decode::{
    Constraint, EarlyStopping, GenerationOptions, Hypothesis, Inputs, Sequences, generate, generate_from,
    generate_with, search,
};
pub use device::{DeviceName, Precision};
pub use encoder::{BertModel, Encoder, EncoderModel};
pub use encoder_input::{EncoderInput, EncoderRow, Text, Truncation, folder_max_tokens};
pub use engine::{FastEncoder, FastLlama, FastSeq2Seq};
pub use entity_head::{ENTITY_HEAD, EntityDocument, EntityHead, EntityHeadConfig, EntityScores};
pub use error::{Error, Result};
pub use fusion::{Apart, encode_apart, fuse};
pub use hub::{Hub, ModelId, Progress};
pub use import::{import, import_part};
pub use lstm::{BiLstm, LstmOptions, LstmPass, PackedBiLstm};
pub use memnet::attend_to_pieces;
pub use mode::{Dropout, Mode};
pub use model_config::ModelConfig;
pub use nsmn::{
    NSMN, Nsmn, NsmnConfig, PackedNsmn, RELEASED_NSMN, ReleasedNsmn, ReleasedNsmnConfig, TokenPair, WordPair,
    import_nsmn, is_released_nsmn, treebank_words,
};
pub use pair_head::{PAIR_HEAD, PairHead, PairHeadConfig, StatePair};
pub use pairs::{PairClassifier, PairOptions};
pub use parlai::{import_parlai, is_parlai};
pub use save::save;
pub use sentence::{
    CrossEncoderFolder, Pooling, Role, ScoreActivation, SentenceSettings, Sentences, TextEncoder,
    TextEncoderOptions, VectorSimilarity,
};
pub use seq2seq::{Memory, Seq2Seq, Trainable};
pub use t5::T5;
pub use t5_config::T5Config;
pub use tokenizer::{PlacedToken, Tokenizer, TruncationSide};
pub use tokens::SpecialTokens;
pub use weights::{Parameter, initialise, parameters, stored_values};
pub use word_input::{WordInput, WordRow};
