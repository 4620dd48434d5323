//! The kinds of decoders of LLaMA's shape, and how their layers differ.

use sporran_checkpoint::Error;

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
    /// Cohere's Command R, whose parts both read the states before a layer.
    Cohere,
    /// Gemma 1 (Gemma Team 2024), which scales embeddings.
    Gemma,
    /// GPT-NeoX (Black et al. 2022) and Pythia, whose parts both read the states before a layer.
    GptNeox,
    /// OLMo 1 (Groeneveld et al. 2024), whose norms have no weights.
    Olmo,
    /// OPT (Zhang et al. 2022), which has learned positions.
    Opt,
    /// Phi 1 and 2, whose parts both read the states before a layer.
    Phi,
    /// StableLM.
    StableLm,
    /// StarCoder 2 (Lozhkov et al. 2024), whose layers attend to a sliding window.
    Starcoder2,
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

/// What the norms of hidden states do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NormKind {
    /// They divide by the root of the mean square.
    Root,
    /// The same, where weights are stored without their 1.
    RootAroundOne,
    /// They subtract the mean, divide by the deviation, scale and shift.
    Layer,
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

const ALL: [LlamaKind; 18] = [
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
    LlamaKind::Cohere,
    LlamaKind::Gemma,
    LlamaKind::GptNeox,
    LlamaKind::Olmo,
    LlamaKind::Opt,
    LlamaKind::Phi,
    LlamaKind::StableLm,
    LlamaKind::Starcoder2,
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
            Self::Cohere => "cohere",
            Self::Gemma => "gemma",
            Self::GptNeox => "gpt_neox",
            Self::Olmo => "olmo",
            Self::Opt => "opt",
            Self::Phi => "phi",
            Self::StableLm => "stablelm",
            Self::Starcoder2 => "starcoder2",
        }
    }

    /// The class of `transformers` with a head of labels. Cohere has none there.
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
            Self::Cohere => "CohereForSequenceClassification",
            Self::Gemma => "GemmaForSequenceClassification",
            Self::GptNeox => "GPTNeoXForSequenceClassification",
            Self::Olmo => "OlmoForSequenceClassification",
            Self::Opt => "OPTForSequenceClassification",
            Self::Phi => "PhiForSequenceClassification",
            Self::StableLm => "StableLmForSequenceClassification",
            Self::Starcoder2 => "Starcoder2ForSequenceClassification",
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
            Self::Cohere => "CohereForCausalLM",
            Self::Gemma => "GemmaForCausalLM",
            Self::GptNeox => "GPTNeoXForCausalLM",
            Self::Olmo => "OlmoForCausalLM",
            Self::Opt => "OPTForCausalLM",
            Self::Phi => "PhiForCausalLM",
            Self::StableLm => "StableLmForCausalLM",
            Self::Starcoder2 => "Starcoder2ForCausalLM",
        }
    }

    /// Whether it is Gemma 2 or 3.
    pub(crate) fn is_new_gemma(self) -> bool {
        matches!(self, Self::Gemma2 | Self::Gemma3)
    }

    /// Whether a config may set the width of a head.
    pub(crate) fn has_head_dim(self) -> bool {
        !matches!(
            self,
            Self::Cohere
                | Self::GptNeox
                | Self::Olmo
                | Self::Opt
                | Self::Phi
                | Self::StableLm
                | Self::Starcoder2
        )
    }

    /// What the norms of hidden states do.
    pub(crate) fn norm_kind(self) -> NormKind {
        match self {
            Self::Gemma | Self::Gemma2 | Self::Gemma3 => NormKind::RootAroundOne,
            Self::GptNeox | Self::Opt | Self::Phi | Self::StableLm | Self::Starcoder2 => NormKind::Layer,
            Self::Cohere => NormKind::LayerWithoutShift,
            Self::Olmo => NormKind::LayerWithoutWeights,
            _ => NormKind::Root,
        }
    }

    /// Whether the two of a pair that is turned together lie side by side, and not half a head apart.
    pub(crate) fn turns_neighbours(self) -> bool {
        self == Self::Cohere
    }

    /// The number of rows before that of position 0 in the table of learned positions; none where positions turn queries and
    /// keys.
    pub(crate) fn position_offset(self) -> Option<usize> {
        (self == Self::Opt).then_some(2)
    }

    /// Whether the head that scores words has a bias.
    pub(crate) fn head_has_bias(self) -> bool {
        self == Self::Phi
    }

    /// The norms of attention.
    pub(crate) fn attention_norms(self) -> PartNorms {
        match self {
            Self::Olmo2 => PartNorms::After("post_attention_layernorm"),
            Self::Gemma2 | Self::Gemma3 => PartNorms::Around("input_layernorm", "post_attention_layernorm"),
            Self::Opt => PartNorms::Before("self_attn_layer_norm"),
            _ => PartNorms::Before("input_layernorm"),
        }
    }

    /// The norms of the feed-forward part, where it has its own.
    pub(crate) fn feed_forward_norms(self) -> PartNorms {
        match self {
            Self::Olmo2 => PartNorms::After("post_feedforward_layernorm"),
            Self::Gemma2 | Self::Gemma3 => {
                PartNorms::Around("pre_feedforward_layernorm", "post_feedforward_layernorm")
            }
            Self::Opt => PartNorms::Before("final_layer_norm"),
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

    /// The base of the angles of a config that has none.
    pub(crate) fn theta(self) -> f64 {
        match self {
            Self::SmolLm3 => 2e6,
            Self::Gemma3 => 1e6,
            Self::Cohere => 5e5,
            _ => 1e4,
        }
    }

    /// The part of a head that is turned, of a config that does not say it; none where all of it always is.
    pub(crate) fn turned_part(self) -> Option<f64> {
        match self {
            Self::Phi3 => Some(1.0),
            Self::Phi => Some(0.5),
            Self::GptNeox | Self::StableLm => Some(0.25),
            _ => None,
        }
    }

    /// The names of fields in this kind's `config.json`, and those that they have here.
    pub(crate) fn field_names(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::GptNeox => &[
                ("hidden_dropout", "resid_pdrop"),
                ("rotary_pct", "partial_rotary_factor"),
                ("rotary_emb_base", "rope_theta"),
            ],
            Self::Opt => &[
                ("activation_function", "hidden_act"),
                ("dropout", "resid_pdrop"),
                ("enable_bias", "use_bias"),
                ("ffn_dim", "intermediate_size"),
                ("init_std", "initializer_range"),
            ],
            Self::StableLm => &[("hidden_dropout", "resid_pdrop"), ("use_qkv_bias", "use_bias")],
            Self::Starcoder2 => &[
                ("embedding_dropout", "embd_pdrop"),
                ("norm_epsilon", "layer_norm_eps"),
                ("residual_dropout", "resid_pdrop"),
            ],
            _ => &[],
        }
    }

    /// The error with its field as this kind's `config.json` calls it.
    pub(super) fn with_own_field(self, error: Error) -> Error {
        let own = |field: String| match self.field_names().iter().find(|(_, here)| *here == field) {
            Some((own, _)) => (*own).into(),
            None => field,
        };
        match error {
            Error::Config { path, field, expected, found } => {
                Error::Config { path, field: own(field), expected, found }
            }
            Error::Json { path, field, source } => Error::Json { path, field: own(field), source },
            other => other,
        }
    }
}
