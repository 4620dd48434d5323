//! LLaMA (Touvron et al. 2023) and decoders of its shape, from Hugging Face's folders and from GGUF files.

mod alternating;
mod architecture;
mod attention;
mod beside;
mod by_layer;
mod checks;
mod config;
mod convolution;
mod defaults;
mod delta;
mod derived;
mod expert_defaults;
mod experts;
mod feed_forward;
mod fields;
mod gemma3n;
mod gemma4;
mod gguf;
mod kind;
mod latent;
mod layer;
mod layer_inputs;
mod lfm2;
mod linear_attention;
mod mamba;
mod mixture;
mod model;
mod names;
mod norm;
mod norms;
mod numbers;
mod positions;
mod recurrent_defaults;
mod rope;
mod state_space;
mod text_part;

pub use config::{LlamaConfig, MptAttention};
pub(crate) use delta::LENGTH_EPS as DELTA_LENGTH_EPS;
pub(crate) use derived::{Gate, SLOPES};
pub(crate) use experts::Experts;
pub(crate) use gemma3n::StreamSizes;
pub use gguf::Gguf;
pub use kind::LlamaKind;
pub(crate) use latent::{LATENT, LATENT_EPS, LatentSizes};
pub(crate) use linear_attention::{CONVOLUTION, ConvolutionSizes, DELTA, DeltaSizes, Recurrence};
pub(crate) use mamba::{GatedNorm, STATE_SPACE, StateSpaceSizes};
pub use model::Llama;
pub(crate) use names::{
    ALTERNATING, BESIDE, ExpertTensors, Inner, Inputs, LAYER_INPUTS, LAYER_SCALE, PROJECTIONS, PartNames,
    SHARED_GATE, SINKS,
};
pub(crate) use norms::{HeadNorms, NormKind, OwnWeights, PartNorms};
pub(crate) use positions::QueryGrowth;
pub(crate) use rope::Rope;
pub(crate) use text_part::{
    GEMMA_3, GEMMA_3N, GEMMA_4, MISTRAL_3, QWEN_2_5_VL, QWEN_2_VL, QWEN_3_5, QWEN_3_5_MOE, QWEN_3_VL,
};
