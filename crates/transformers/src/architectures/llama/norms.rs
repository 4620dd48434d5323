//! The norms of each kind: what they do, where they are and what they are called.

use super::{config::LlamaConfig, kind::LlamaKind};

/// The norms of the queries and keys of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadNorms {
    /// There are none.
    None,
    /// Each head is normalised.
    Each,
    /// All heads are normalised as one vector.
    All,
    /// Each head is normalised around its mean, and has weights of its own.
    Own(OwnWeights),
}

/// How the weights of heads that each have their own are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnWeights {
    /// As one tensor (heads, width).
    Together,
    /// As a tensor for each head, under `norms`.
    Apart,
}

/// What the norms of hidden states do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NormKind {
    /// They divide by the root of the mean square.
    Root,
    /// The same, where weights are stored without their 1.
    RootAroundOne,
    /// The same without weights: they store nothing.
    RootWithoutWeights,
    /// They subtract the mean, divide by the deviation, scale and shift.
    Layer,
    /// The same, where weights are stored without their 1.
    LayerAroundOne,
    /// The same without the shift.
    LayerWithoutShift,
    /// The same without scale and shift: they store nothing.
    LayerWithoutWeights,
}

/// The names of the norms of a part of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartNorms {
    /// The part's input is normalised.
    Before(&'static str),
    /// The part's result is, before it is added to the states.
    After(&'static str),
    /// Both are.
    Around(&'static str, &'static str),
    /// The states are, after the part's result is added to them.
    Sum(&'static str),
}

impl PartNorms {
    /// The norm of the input.
    pub(crate) fn before(self) -> Option<&'static str> {
        match self {
            Self::Before(name) | Self::Around(name, _) => Some(name),
            Self::After(_) | Self::Sum(_) => None,
        }
    }

    /// The norm of the result, or of the states that it is added to.
    pub(crate) fn after(self) -> Option<&'static str> {
        match self {
            Self::After(name) | Self::Around(_, name) | Self::Sum(name) => Some(name),
            Self::Before(_) => None,
        }
    }

    /// The first of its norms.
    pub(crate) fn first(self) -> &'static str {
        match self {
            Self::Before(name) | Self::After(name) | Self::Around(name, _) | Self::Sum(name) => name,
        }
    }
}

impl LlamaKind {
    /// Whether the results of parts are normalised.
    pub(crate) fn norms_results(self) -> bool {
        matches!(
            self,
            Self::Exaone4
                | Self::FlexOlmo
                | Self::Gemma2
                | Self::Gemma3
                | Self::Gemma3n
                | Self::Gemma4
                | Self::Glm4
                | Self::HyperClovaX
                | Self::Olmo2
                | Self::Olmo3
        )
    }

    /// What the norms of hidden states do.
    pub(crate) fn norm_kind(self) -> NormKind {
        match self {
            kind if kind.has_delta_rule() => NormKind::RootAroundOne,
            Self::Gemma | Self::Gemma2 | Self::Gemma3 | Self::VaultGemma => NormKind::RootAroundOne,
            Self::NanoChat => NormKind::RootWithoutWeights,
            Self::BioGpt
            | Self::Bloom
            | Self::CodeGen
            | Self::Falcon
            | Self::GptBigCode
            | Self::GptJ
            | Self::GptNeo
            | Self::GptNeox
            | Self::Jais2
            | Self::Opt
            | Self::Persimmon
            | Self::Phi
            | Self::PhiMoe
            | Self::StableLm
            | Self::Starcoder2
            | Self::Xglm => NormKind::Layer,
            Self::Nemotron => NormKind::LayerAroundOne,
            Self::Cohere | Self::Cohere2 | Self::Mpt => NormKind::LayerWithoutShift,
            Self::Olmo => NormKind::LayerWithoutWeights,
            _ => NormKind::Root,
        }
    }
}

impl LlamaConfig {
    /// The norms of attention.
    pub(crate) fn attention_norms(&self) -> PartNorms {
        match self.kind {
            LlamaKind::Exaone4 | LlamaKind::FlexOlmo | LlamaKind::Olmo2 | LlamaKind::Olmo3 => {
                PartNorms::After("post_attention_layernorm")
            }
            LlamaKind::HyperClovaX if self.use_post_norm.unwrap_or(true) => {
                PartNorms::Around("input_layernorm", "post_norm1")
            }
            LlamaKind::Gemma2 | LlamaKind::Gemma3 | LlamaKind::Gemma3n | LlamaKind::Gemma4 => {
                PartNorms::Around("input_layernorm", "post_attention_layernorm")
            }
            LlamaKind::Glm4 => PartNorms::Around("input_layernorm", "post_self_attn_layernorm"),
            LlamaKind::Opt if self.norms_sums() => PartNorms::Sum("self_attn_layer_norm"),
            LlamaKind::Apertus => PartNorms::Before("attention_layernorm"),
            LlamaKind::BioGpt | LlamaKind::Opt | LlamaKind::Xglm => PartNorms::Before("self_attn_layer_norm"),
            LlamaKind::CodeGen | LlamaKind::GptBigCode | LlamaKind::GptJ | LlamaKind::GptNeo => {
                PartNorms::Before("ln_1")
            }
            LlamaKind::Lfm2 | LlamaKind::Lfm2Moe => PartNorms::Before("operator_norm"),
            LlamaKind::Mpt => PartNorms::Before("norm_1"),
            LlamaKind::Falcon if self.has_two_parallel_norms() => PartNorms::Before("ln_attn"),
            _ => PartNorms::Before("input_layernorm"),
        }
    }

    /// The norms of the feed-forward part, where it has its own.
    pub(crate) fn feed_forward_norms(&self) -> PartNorms {
        match self.kind {
            LlamaKind::Exaone4 | LlamaKind::FlexOlmo | LlamaKind::Olmo2 | LlamaKind::Olmo3 => {
                PartNorms::After("post_feedforward_layernorm")
            }
            LlamaKind::HyperClovaX if self.use_post_norm.unwrap_or(true) => {
                PartNorms::Around("post_attention_layernorm", "post_norm2")
            }
            LlamaKind::VaultGemma => PartNorms::Before("pre_feedforward_layernorm"),
            LlamaKind::Gemma2 | LlamaKind::Gemma3 | LlamaKind::Gemma3n | LlamaKind::Gemma4 => {
                PartNorms::Around("pre_feedforward_layernorm", "post_feedforward_layernorm")
            }
            LlamaKind::Glm4 => PartNorms::Around("post_attention_layernorm", "post_mlp_layernorm"),
            LlamaKind::Opt if self.norms_sums() => PartNorms::Sum("final_layer_norm"),
            LlamaKind::Apertus => PartNorms::Before("feedforward_layernorm"),
            LlamaKind::BioGpt | LlamaKind::Opt | LlamaKind::Xglm => PartNorms::Before("final_layer_norm"),
            LlamaKind::Bamba | LlamaKind::FalconH1 => PartNorms::Before("pre_ff_layernorm"),
            LlamaKind::GptBigCode | LlamaKind::GptNeo => PartNorms::Before("ln_2"),
            LlamaKind::Lfm2 | LlamaKind::Lfm2Moe => PartNorms::Before("ffn_norm"),
            LlamaKind::Mpt => PartNorms::Before("norm_2"),
            LlamaKind::Falcon if self.has_two_parallel_norms() => PartNorms::Before("ln_mlp"),
            _ => PartNorms::Before("post_attention_layernorm"),
        }
    }

    /// The norms of queries and keys.
    pub(crate) fn head_norms(&self) -> HeadNorms {
        match self.kind {
            LlamaKind::Apertus
            | LlamaKind::Dots1
            | LlamaKind::Exaone4
            | LlamaKind::Gemma3
            | LlamaKind::Gemma3n
            | LlamaKind::Gemma4
            | LlamaKind::HunYuan
            | LlamaKind::HunYuanMoe
            | LlamaKind::Lfm2
            | LlamaKind::Lfm2Moe
            | LlamaKind::NanoChat
            | LlamaKind::Qwen3
            | LlamaKind::Qwen35
            | LlamaKind::Qwen35Moe
            | LlamaKind::Qwen3Moe
            | LlamaKind::Qwen3Next => HeadNorms::Each,
            LlamaKind::FlexOlmo
            | LlamaKind::MiniMaxM2
            | LlamaKind::Olmo2
            | LlamaKind::Olmo3
            | LlamaKind::Olmoe => HeadNorms::All,
            LlamaKind::Cohere if self.use_qk_norm == Some(true) => HeadNorms::Own(OwnWeights::Together),
            LlamaKind::Glm4Moe if self.use_qk_norm == Some(true) => HeadNorms::Each,
            LlamaKind::Persimmon if self.qk_layernorm.unwrap_or(true) => HeadNorms::Each,
            LlamaKind::Phi if self.qk_layernorm == Some(true) => HeadNorms::Each,
            LlamaKind::StableLm if self.qk_layernorm == Some(true) => HeadNorms::Own(OwnWeights::Apart),
            _ => HeadNorms::None,
        }
    }

    /// The names of the norms of queries and of keys.
    pub(crate) fn head_norm_names(&self) -> [&'static str; 2] {
        match self.kind {
            LlamaKind::HunYuan | LlamaKind::HunYuanMoe => {
                ["self_attn.query_layernorm", "self_attn.key_layernorm"]
            }
            LlamaKind::Lfm2
            | LlamaKind::Lfm2Moe
            | LlamaKind::Persimmon
            | LlamaKind::Phi
            | LlamaKind::StableLm => ["self_attn.q_layernorm", "self_attn.k_layernorm"],
            _ => ["self_attn.q_norm", "self_attn.k_norm"],
        }
    }

    /// Whether queries and keys are turned before they are normalised.
    pub(crate) fn turns_first(&self) -> bool {
        self.kind.is_hunyuan() || self.kind == LlamaKind::NanoChat
    }

    /// Whether states are normalised after a part is added to them (OPT 350M).
    pub(crate) fn norms_sums(&self) -> bool {
        self.kind == LlamaKind::Opt && self.do_layer_norm_before == Some(false)
    }

    /// Whether there is a norm after the last layer.
    pub(crate) fn has_last_norm(&self) -> bool {
        !self.norms_sums() && self.remove_final_layer_norm != Some(true)
    }

    /// Whether both parts of a layer read the states before it, normalised by norms of their own (Falcon 40B).
    fn has_two_parallel_norms(&self) -> bool {
        let is_new = self.new_decoder_architecture == Some(true);
        self.kind == LlamaKind::Falcon
            && self.is_parallel()
            && self.num_ln_in_parallel_attn.unwrap_or(if is_new { 2 } else { 1 }) == 2
    }

    /// Whether both parts of a layer read the states before it.
    pub(crate) fn is_parallel(&self) -> bool {
        match self.kind {
            LlamaKind::CodeGen
            | LlamaKind::Cohere
            | LlamaKind::Cohere2
            | LlamaKind::GptJ
            | LlamaKind::Phi => true,
            LlamaKind::Falcon => self.parallel_attn.unwrap_or(true),
            LlamaKind::GptNeox => self.use_parallel_residual.unwrap_or(true),
            LlamaKind::StableLm => self.use_parallel_residual.unwrap_or(false),
            _ => false,
        }
    }

    /// Whether both parts of a layer read the states that one norm gives.
    pub(crate) fn shares_norm(&self) -> bool {
        self.is_parallel() && self.kind != LlamaKind::GptNeox && !self.has_two_parallel_norms()
    }

    /// What the norms of hidden states do.
    pub(crate) fn norm_kind(&self) -> NormKind {
        match self.kind {
            LlamaKind::Opt if self.layer_norm_elementwise_affine == Some(false) => {
                NormKind::LayerWithoutWeights
            }
            kind => kind.norm_kind(),
        }
    }

    /// What norms add before they take the root.
    pub(crate) fn norm_eps(&self) -> f64 {
        match self.norm_kind() {
            _ if matches!(self.kind, LlamaKind::BioGpt | LlamaKind::Xglm) => 1e-5,
            _ if self.kind == LlamaKind::PhiMoe => self.rms_norm_eps,
            NormKind::Root | NormKind::RootAroundOne | NormKind::RootWithoutWeights => self.rms_norm_eps,
            NormKind::Layer | NormKind::LayerAroundOne | NormKind::LayerWithoutShift => {
                self.layer_norm_eps.unwrap_or(1e-5)
            }
            NormKind::LayerWithoutWeights => 1e-5,
        }
    }
}
