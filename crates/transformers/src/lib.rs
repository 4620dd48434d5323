//! Transformer architectures over candle, exact against the `transformers` library.
//!
//! A [`Checkpoint`] is a Hugging Face folder. It gives a [`Tokenizer`](sporran_checkpoint::Tokenizer) and a model: a
//! [`Seq2Seq`], a [`CausalLm`], or an [`Encoder`] with its [`Head`]. The crate `sporran-checkpoint` reads the folder's files.
//! The crate `sporran-training` trains the models.
//! Each architecture has one definition, built from a `candle_nn::VarBuilder`: over a checkpoint for inference, over
//! a `candle_nn::VarMap` for training.

mod architectures;
mod attention;
mod batch;
mod cache;
mod candle_models;
mod causal;
mod checkpoint;
mod crf;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod decode;
mod device;
mod encoder;
mod encoder_input;
mod fid;
pub mod fused;
pub mod layers;
mod lstm;
mod memnet;
mod mode;
mod model_type;
mod packed;
mod pair_head;
mod pairs;
mod sentence;
mod seq2seq;
mod tunable;
mod word_input;

pub use architectures::{
    ModelConfig,
    bart::{Bart, BartClassifierConfig, BartConfig, BartFamily},
    bert::{
        AdapterNorm, AttentionBlocks, BERT_NAMES, Bert, BertConfig, BertFamily, BertModel, BertNames,
        BertTask, ConvSizes, ConvolutionSettings, DISTIL_NAMES, Disentangled, EncoderModel, FamilySettings,
        Head, LanguageAdapters, LayerGroups, LayerSharing, MaskedLmHead, MobileSizes, ReaderHead,
        ReaderLogits, RotaryPositions, SequenceHead, SpanHead, SpanLogits, TokenHead, VectorHead,
    },
    decoder::{DecoderHead, LabelPooling},
    gpt2::{Gpt2, Gpt2Config},
    llama::{Gguf, Llama, LlamaConfig, LlamaKind, MptAttention},
    modernbert::{ModernBert, ModernBertConfig},
    registry::{ARCHITECTURES, ArchitectureEntry, ModelTask},
    static_embedding::StaticConfig,
    t5::{T5, T5Config, T5Encoder, T5EncoderConfig, T5Family},
};
pub use batch::{Batch, each_batch, length_batches};
pub use cache::Cache;
pub use candle_models::{CandleLm, Engine};
pub use causal::{CausalCache, CausalLm, TrainableCausal, generate_causal, generate_causal_until};
pub use checkpoint::{Checkpoint, import, import_parlai, import_part};
pub use crf::{CRF_WEIGHTS, Crf, CrfGradients, CrfGrammar};
pub use decode::{
    Constraint, EarlyStopping, GenerationOptions, Hypothesis, Inputs, RunningBatch, Sequences, generate,
    generate_from, generate_with, search,
};
pub use device::{DeviceName, Precision};
pub use encoder::Encoder;
pub use encoder_input::{EncoderInput, EncoderRow, Text, Truncation, folder_max_tokens};
pub use fid::{EncodedTexts, encode_separately, fuse};
pub use lstm::{LstmGradients, LstmOptions, LstmPass, PackedBiLstm};
pub use memnet::{attend_to_pieces, piece_attention};
pub use mode::{Dropout, Mode};
pub use model_type::{ModelType, Takers, TakesModel, has_model_type, wrong_model_type};
pub use packed::{
    PackedDecoder, PackedEncoder, PackedLlama, PackedModernBert, PackedSeq2Seq, PackedT5Encoder,
};
pub use pair_head::{PAIR_HEAD, PairHead, PairHeadConfig, StatePair};
pub use pairs::{PairClassifier, PairOptions};
pub use sentence::{Pooling, Sentences, TextEncoder, TextEncoderOptions};
pub use seq2seq::{Memory, Seq2Seq, Trainable, too_long};
pub use sporran_kernels::Isa;
pub use tunable::TunableEncoder;
pub use word_input::{WordInput, WordRow};
