//! The kinds of decoders of LLaMA's shape, and how their layers differ.

use super::config::LlamaConfig;

/// The kinds of models of this shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LlamaKind {
    /// LLaMA and models with its `model_type`.
    #[default]
    Llama,
    /// Qwen 2 and 2.5, whose queries, keys and values have a bias.
    Qwen2,
    /// Qwen 3, which normalises each head's queries and keys.
    Qwen3,
    /// Mistral, whose layers attend to a sliding window (Jiang et al. 2023).
    Mistral,
    /// Gemma 2 (Gemma Team 2024): norms around each part, soft caps, and a sliding window in every other layer.
    Gemma2,
    /// Gemma 3 for text (Gemma Team 2025): norms around each part and of queries and keys, and two bases of angles.
    Gemma3,
    /// SmolLM 3, some of whose layers do not turn queries and keys.
    SmolLm3,
    /// Phi 3 (Abdin et al. 2024), whose projections are stored in one tensor.
    Phi3,
    /// OLMo 2 (OLMo Team 2025), which normalises the result of each part instead of its input.
    Olmo2,
    /// Granite 3, which scales embeddings, parts, scores and logits.
    Granite,
}

/// The norms of the queries and keys of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadNorms {
    /// There are none.
    None,
    /// Each head is normalised.
    Each,
    /// All heads are normalised as one vector.
    All,
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
}

impl PartNorms {
    /// The norm of the input.
    pub(crate) fn before(self) -> Option<&'static str> {
        match self {
            Self::Before(name) | Self::Around(name, _) => Some(name),
            Self::After(_) => None,
        }
    }

    /// The norm of the result.
    pub(crate) fn after(self) -> Option<&'static str> {
        match self {
            Self::After(name) | Self::Around(_, name) => Some(name),
            Self::Before(_) => None,
        }
    }
}

const ALL: [LlamaKind; 10] = [
    LlamaKind::Llama,
    LlamaKind::Qwen2,
    LlamaKind::Qwen3,
    LlamaKind::Mistral,
    LlamaKind::Gemma2,
    LlamaKind::Gemma3,
    LlamaKind::SmolLm3,
    LlamaKind::Phi3,
    LlamaKind::Olmo2,
    LlamaKind::Granite,
];

impl LlamaKind {
    /// The kind whose `model_type` is `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|kind| kind.model_type() == name)
    }

    /// The `model_type` of a `config.json`.
    #[must_use]
    pub fn model_type(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Mistral => "mistral",
            Self::Gemma2 => "gemma2",
            Self::Gemma3 => "gemma3_text",
            Self::SmolLm3 => "smollm3",
            Self::Phi3 => "phi3",
            Self::Olmo2 => "olmo2",
            Self::Granite => "granite",
        }
    }

    /// The class of `transformers` with a head of labels.
    pub(crate) fn class_of_labels(self) -> &'static str {
        match self {
            Self::Llama => "LlamaForSequenceClassification",
            Self::Qwen2 => "Qwen2ForSequenceClassification",
            Self::Qwen3 => "Qwen3ForSequenceClassification",
            Self::Mistral => "MistralForSequenceClassification",
            Self::Gemma2 => "Gemma2ForSequenceClassification",
            Self::Gemma3 => "Gemma3TextForSequenceClassification",
            Self::SmolLm3 => "SmolLM3ForSequenceClassification",
            Self::Phi3 => "Phi3ForSequenceClassification",
            Self::Olmo2 => "Olmo2ForSequenceClassification",
            Self::Granite => "GraniteForSequenceClassification",
        }
    }

    /// The class of `transformers`.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Llama => "LlamaForCausalLM",
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
            Self::Mistral => "MistralForCausalLM",
            Self::Gemma2 => "Gemma2ForCausalLM",
            Self::Gemma3 => "Gemma3ForCausalLM",
            Self::SmolLm3 => "SmolLM3ForCausalLM",
            Self::Phi3 => "Phi3ForCausalLM",
            Self::Olmo2 => "Olmo2ForCausalLM",
            Self::Granite => "GraniteForCausalLM",
        }
    }

    pub(crate) fn is_gemma(self) -> bool {
        matches!(self, Self::Gemma2 | Self::Gemma3)
    }

    /// The norms of attention.
    pub(crate) fn attention_norms(self) -> PartNorms {
        match self {
            Self::Olmo2 => PartNorms::After("post_attention_layernorm"),
            Self::Gemma2 | Self::Gemma3 => PartNorms::Around("input_layernorm", "post_attention_layernorm"),
            _ => PartNorms::Before("input_layernorm"),
        }
    }

    /// The norms of the feed-forward part.
    pub(crate) fn feed_forward_norms(self) -> PartNorms {
        match self {
            Self::Olmo2 => PartNorms::After("post_feedforward_layernorm"),
            Self::Gemma2 | Self::Gemma3 => {
                PartNorms::Around("pre_feedforward_layernorm", "post_feedforward_layernorm")
            }
            _ => PartNorms::Before("post_attention_layernorm"),
        }
    }

    /// The norms of queries and keys.
    pub(crate) fn head_norms(self) -> HeadNorms {
        match self {
            Self::Qwen3 | Self::Gemma3 => HeadNorms::Each,
            Self::Olmo2 => HeadNorms::All,
            _ => HeadNorms::None,
        }
    }

    /// What a norm adds to its stored weights.
    pub(crate) fn norm_offset(self) -> f32 {
        if self.is_gemma() { 1.0 } else { 0.0 }
    }

    /// Whether queries, keys and values are one stored tensor, and both inner projections of the feed-forward part
    /// another.
    pub(crate) fn is_fused(self) -> bool {
        self == Self::Phi3
    }

    /// The base of the angles of a config that has none.
    pub(crate) fn theta(self) -> f64 {
        match self {
            Self::SmolLm3 => 2e6,
            Self::Gemma3 => 1e6,
            _ => 1e4,
        }
    }

    /// The config of this kind in `transformers`.
    pub(crate) fn defaults(self) -> LlamaConfig {
        let of = |vocab_size, max_position_embeddings| LlamaConfig {
            kind: self,
            vocab_size,
            max_position_embeddings,
            ..LlamaConfig::default()
        };
        match self {
            Self::Llama => of(32_000, 2048),
            Self::Qwen2 | Self::Qwen3 => LlamaConfig {
                intermediate_size: 22_016,
                num_key_value_heads: Some(32),
                head_dim: (self == Self::Qwen3).then_some(128),
                sliding_window: Some(4096),
                ..of(151_936, 32_768)
            },
            Self::Mistral => LlamaConfig {
                intermediate_size: 14_336,
                num_key_value_heads: Some(8),
                sliding_window: Some(4096),
                bos_token_id: Some(1),
                eos_token_id: vec![2],
                ..of(32_000, 131_072)
            },
            Self::Gemma2 | Self::Gemma3 => LlamaConfig {
                hidden_size: 2304,
                intermediate_size: 9216,
                num_hidden_layers: 26,
                num_attention_heads: 8,
                num_key_value_heads: Some(4),
                head_dim: Some(256),
                sliding_window: Some(4096),
                final_logit_softcapping: (self == Self::Gemma2).then_some(30.0),
                attn_logit_softcapping: (self == Self::Gemma2).then_some(50.0),
                tie_word_embeddings: true,
                pad_token_id: Some(0),
                eos_token_id: vec![1],
                bos_token_id: Some(2),
                ..if self == Self::Gemma2 { of(256_000, 8192) } else { of(262_208, 131_072) }
            },
            Self::SmolLm3 => LlamaConfig {
                hidden_size: 2048,
                num_hidden_layers: 36,
                num_attention_heads: 16,
                num_key_value_heads: Some(4),
                tie_word_embeddings: true,
                pad_token_id: Some(128_004),
                bos_token_id: Some(128_000),
                eos_token_id: vec![128_001],
                ..of(128_256, 32_768)
            },
            Self::Phi3 => LlamaConfig {
                hidden_size: 3072,
                intermediate_size: 8192,
                rms_norm_eps: 1e-5,
                bos_token_id: Some(1),
                eos_token_id: vec![32_000],
                pad_token_id: Some(32_000),
                ..of(32_064, 4096)
            },
            Self::Olmo2 => LlamaConfig {
                rms_norm_eps: 1e-5,
                eos_token_id: vec![50_279],
                pad_token_id: Some(1),
                ..of(50_304, 2048)
            },
            Self::Granite => LlamaConfig { bos_token_id: Some(1), eos_token_id: vec![2], ..of(32_000, 2048) },
        }
    }
}
