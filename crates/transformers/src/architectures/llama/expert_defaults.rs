//! The default values of a config of each kind with experts.

use super::{config::LlamaConfig, kind::LlamaKind, rope::RopeParameters};

impl LlamaKind {
    /// The config of this kind in `transformers`, where it has experts.
    pub(super) fn defaults_with_experts(self) -> LlamaConfig {
        let of = |vocab_size, most_positions| self.sized(vocab_size, most_positions);
        match self {
            Self::Mixtral => LlamaConfig {
                rms_norm_eps: 1e-5,
                sliding_window: None,
                num_experts: Some(8),
                num_experts_per_tok: Some(2),
                ..Self::Mistral.defaults_as(self)
            },
            Self::Olmoe => LlamaConfig {
                hidden_size: 2048,
                intermediate_size: 2048,
                num_hidden_layers: 16,
                num_attention_heads: 16,
                rms_norm_eps: 1e-5,
                num_experts: Some(64),
                num_experts_per_tok: Some(8),
                eos_token_id: vec![50_279],
                pad_token_id: Some(1),
                ..of(50_304, 4096)
            },
            Self::Qwen2Moe => LlamaConfig {
                hidden_size: 2048,
                intermediate_size: 5632,
                num_hidden_layers: 24,
                num_attention_heads: 16,
                num_key_value_heads: Some(16),
                sliding_window: Some(4096),
                num_experts: Some(60),
                num_experts_per_tok: Some(4),
                moe_intermediate_size: Some(1408),
                shared_expert_intermediate_size: Some(5632),
                ..of(151_936, 32_768)
            },
            Self::Qwen3Moe => LlamaConfig {
                hidden_size: 2048,
                intermediate_size: 6144,
                num_hidden_layers: 24,
                num_key_value_heads: Some(4),
                sliding_window: Some(4096),
                num_experts: Some(128),
                num_experts_per_tok: Some(8),
                moe_intermediate_size: Some(768),
                ..of(151_936, 32_768)
            },
            Self::Lfm2Moe => LlamaConfig {
                hidden_size: 2048,
                intermediate_size: 7168,
                num_key_value_heads: Some(8),
                num_experts: Some(32),
                num_experts_per_tok: Some(4),
                norm_topk_prob: Some(true),
                moe_intermediate_size: Some(1792),
                first_k_dense_replace: Some(2),
                ..self.with_convolutions()
            },
            Self::Qwen35Moe | Self::Qwen3Next => {
                let is_next = self == Self::Qwen3Next;
                LlamaConfig {
                    hidden_size: 2048,
                    intermediate_size: 5632,
                    num_hidden_layers: if is_next { 48 } else { 40 },
                    num_attention_heads: 16,
                    num_key_value_heads: Some(2),
                    head_dim: Some(256),
                    num_experts: Some(if is_next { 512 } else { 256 }),
                    num_experts_per_tok: Some(if is_next { 10 } else { 8 }),
                    norm_topk_prob: is_next.then_some(true),
                    moe_intermediate_size: Some(512),
                    shared_expert_intermediate_size: Some(512),
                    ..self.with_delta_rule(if is_next { 151_936 } else { 248_320 })
                }
            }
            Self::DeepSeekV2 => LlamaConfig {
                q_lora_rank: Some(1536),
                kv_lora_rank: Some(512),
                qk_rope_head_dim: Some(64),
                qk_nope_head_dim: Some(128),
                v_head_dim: Some(128),
                num_experts: Some(64),
                n_shared_experts: Some(2),
                moe_intermediate_size: Some(1407),
                bos_token_id: Some(1),
                eos_token_id: vec![2],
                ..of(102_400, 2048)
            },
            Self::DeepSeekV3 => LlamaConfig {
                hidden_size: 7168,
                intermediate_size: 18_432,
                num_hidden_layers: 61,
                num_attention_heads: 128,
                q_lora_rank: Some(1536),
                kv_lora_rank: Some(512),
                qk_rope_head_dim: Some(64),
                qk_nope_head_dim: Some(128),
                v_head_dim: Some(128),
                num_experts: Some(256),
                num_experts_per_tok: Some(8),
                n_group: Some(8),
                topk_group: Some(4),
                n_shared_experts: Some(1),
                moe_intermediate_size: Some(2048),
                routed_scaling_factor: Some(2.5),
                first_k_dense_replace: Some(3),
                norm_topk_prob: Some(true),
                bos_token_id: Some(0),
                eos_token_id: vec![1],
                ..of(129_280, 4096)
            },
            Self::Dots1 => LlamaConfig {
                hidden_size: 4608,
                intermediate_size: 10_944,
                num_hidden_layers: 62,
                num_key_value_heads: Some(32),
                sliding_window: Some(4096),
                moe_intermediate_size: Some(1408),
                ..of(152_064, 2048)
            },
            Self::Ernie45Moe => LlamaConfig {
                hidden_size: 2560,
                intermediate_size: 12_288,
                num_hidden_layers: 28,
                num_attention_heads: 20,
                num_key_value_heads: Some(4),
                rms_norm_eps: 1e-5,
                tie_word_embeddings: true,
                num_experts: Some(64),
                num_experts_per_tok: Some(6),
                n_shared_experts: Some(2),
                moe_intermediate_size: Some(1536),
                moe_layer_start_index: Some(1),
                pad_token_id: Some(0),
                bos_token_id: Some(1),
                eos_token_id: vec![2],
                ..of(103_424, 131_072)
            },
            Self::Glm4Moe => LlamaConfig {
                intermediate_size: 10_944,
                num_hidden_layers: 46,
                num_attention_heads: 96,
                num_key_value_heads: Some(8),
                rms_norm_eps: 1e-5,
                num_experts: Some(128),
                num_experts_per_tok: Some(8),
                n_shared_experts: Some(1),
                moe_intermediate_size: Some(1408),
                first_k_dense_replace: Some(1),
                norm_topk_prob: Some(true),
                ..of(151_552, 131_072)
            },
            Self::GptOss => LlamaConfig {
                hidden_size: 2880,
                intermediate_size: 2880,
                num_hidden_layers: 36,
                num_attention_heads: 64,
                num_key_value_heads: Some(8),
                head_dim: Some(64),
                rms_norm_eps: 1e-5,
                rope_parameters: Some(RopeParameters {
                    rope_type: Some("yarn".into()),
                    factor: Some(32.0),
                    beta_fast: Some(32.0),
                    beta_slow: Some(1.0),
                    truncate: Some(false),
                    original_max_position_embeddings: Some(4096),
                    ..RopeParameters::default()
                }),
                sliding_window: Some(128),
                attention_bias: true,
                num_experts: Some(128),
                num_experts_per_tok: Some(4),
                ..of(201_088, 131_072)
            },
            Self::GraniteMoe | Self::GraniteMoeShared => LlamaConfig {
                num_experts: Some(8),
                num_experts_per_tok: Some(2),
                ..Self::Granite.defaults_as(self)
            },
            Self::PhiMoe => LlamaConfig {
                intermediate_size: 6400,
                num_key_value_heads: Some(8),
                rms_norm_eps: 1e-5,
                num_experts: Some(16),
                num_experts_per_tok: Some(2),
                bos_token_id: Some(1),
                eos_token_id: vec![2],
                ..of(32_064, 131_072)
            },
            Self::FlexOlmo => LlamaConfig {
                num_experts: Some(7),
                num_experts_per_tok: Some(5),
                pad_token_id: Some(100_277),
                eos_token_id: vec![100_257],
                ..of(100_352, 4096)
            },
            Self::HunYuanMoe => LlamaConfig {
                num_experts: Some(1),
                num_experts_per_tok: Some(1),
                ..Self::HunYuan.defaults_as(self)
            },
            Self::MiniMaxM2 => LlamaConfig {
                hidden_size: 3072,
                intermediate_size: 1536,
                num_hidden_layers: 62,
                num_attention_heads: 48,
                num_key_value_heads: Some(8),
                head_dim: Some(128),
                num_experts: Some(256),
                num_experts_per_tok: Some(8),
                bos_token_id: Some(200_034),
                eos_token_id: vec![200_020],
                ..of(200_064, 196_608)
            },
            Self::Mistral4 => LlamaConfig {
                intermediate_size: 12_288,
                num_hidden_layers: 36,
                q_lora_rank: Some(1024),
                kv_lora_rank: Some(256),
                qk_rope_head_dim: Some(64),
                qk_nope_head_dim: Some(64),
                v_head_dim: Some(128),
                rope_parameters: Some(RopeParameters {
                    old_type: Some("yarn".into()),
                    rope_theta: Some(1e4),
                    factor: Some(128.0),
                    original_max_position_embeddings: Some(8192),
                    beta_fast: Some(32.0),
                    beta_slow: Some(1.0),
                    mscale: Some(1.0),
                    mscale_all_dim: Some(1.0),
                    llama_4_scaling_beta: Some(0.1),
                    ..RopeParameters::default()
                }),
                num_experts: Some(128),
                num_experts_per_tok: Some(4),
                n_group: Some(1),
                topk_group: Some(1),
                n_shared_experts: Some(1),
                moe_intermediate_size: Some(2048),
                norm_topk_prob: Some(true),
                pad_token_id: Some(11),
                bos_token_id: Some(1),
                eos_token_id: vec![2],
                ..of(131_072, 1_048_576)
            },
            Self::SolarOpen => LlamaConfig {
                num_hidden_layers: 48,
                num_attention_heads: 64,
                num_key_value_heads: Some(8),
                head_dim: Some(128),
                rms_norm_eps: 1e-5,
                num_experts: Some(128),
                num_experts_per_tok: Some(8),
                n_shared_experts: Some(1),
                moe_intermediate_size: Some(1280),
                norm_topk_prob: Some(true),
                ..of(196_608, 131_072)
            },
            _ => of(32_000, 2048),
        }
    }
}
