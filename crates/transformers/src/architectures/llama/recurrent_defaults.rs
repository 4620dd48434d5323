//! The default values of a config of each kind with recurrent layers and without experts.

use super::{config::LlamaConfig, kind::LlamaKind};

impl LlamaKind {
    /// The config of this kind in `transformers`, where some of its layers keep a state.
    pub(super) fn defaults_with_states(self) -> LlamaConfig {
        match self {
            Self::Bamba => LlamaConfig {
                intermediate_size: 14_336,
                num_key_value_heads: Some(8),
                rms_norm_eps: 1e-5,
                pad_token_id: Some(0),
                ..self.with_state_space(128_000, 262_144)
            },
            Self::FalconH1 => LlamaConfig {
                intermediate_size: 14_336,
                num_key_value_heads: Some(8),
                rms_norm_eps: 1e-5,
                pad_token_id: Some(0),
                mamba_d_ssm: Some(1024),
                linear_value_head_dim: Some(8),
                ..self.with_state_space(128_000, 8192)
            },
            Self::GraniteHybrid => LlamaConfig {
                num_experts: Some(8),
                num_experts_per_tok: Some(2),
                shared_expert_intermediate_size: Some(1024),
                ..self.with_state_space(32_000, 2048)
            },
            Self::Lfm2 => LlamaConfig {
                hidden_size: 2560,
                intermediate_size: 12_288,
                num_key_value_heads: Some(8),
                ..self.with_convolutions()
            },
            Self::Qwen35 => LlamaConfig {
                intermediate_size: 12_288,
                num_attention_heads: 16,
                num_key_value_heads: Some(4),
                head_dim: Some(256),
                ..self.with_delta_rule(248_320)
            },
            other => other.sized(32_000, 2048),
        }
    }

    /// A config with these sizes and Mamba 2.
    fn with_state_space(self, vocab_size: usize, max_position_embeddings: usize) -> LlamaConfig {
        LlamaConfig {
            linear_conv_kernel_dim: Some(4),
            linear_key_head_dim: Some(256),
            linear_value_head_dim: Some(64),
            linear_num_key_heads: Some(1),
            linear_num_value_heads: Some(128),
            bos_token_id: Some(1),
            eos_token_id: vec![2],
            ..self.sized(vocab_size, max_position_embeddings)
        }
    }

    /// A config with short convolutions.
    pub(super) fn with_convolutions(self) -> LlamaConfig {
        LlamaConfig {
            rms_norm_eps: 1e-5,
            linear_conv_kernel_dim: Some(3),
            tie_word_embeddings: true,
            pad_token_id: Some(0),
            bos_token_id: Some(1),
            eos_token_id: vec![2],
            ..self.sized(65_536, 128_000)
        }
    }

    /// A config with delta rules.
    pub(super) fn with_delta_rule(self, vocab_size: usize) -> LlamaConfig {
        LlamaConfig {
            linear_conv_kernel_dim: Some(4),
            linear_key_head_dim: Some(128),
            linear_value_head_dim: Some(128),
            linear_num_key_heads: Some(16),
            linear_num_value_heads: Some(32),
            ..self.sized(vocab_size, 32_768)
        }
    }
}
