//! The default values of a config of each kind.

use super::{config::LlamaConfig, gemma3n, gemma4, kind::LlamaKind, rope::RopeParameters};

impl LlamaKind {
    /// The config of this kind in `transformers`.
    pub(crate) fn defaults(self) -> LlamaConfig {
        let of = |vocab_size, most_positions| self.sized(vocab_size, most_positions);
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
            Self::Gemma3n => gemma3n::defaults(),
            Self::Gemma4 => gemma4::defaults(),
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
                original_max_position_embeddings: Some(4096),
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
            Self::Cohere => LlamaConfig {
                hidden_size: 8192,
                intermediate_size: 22_528,
                num_hidden_layers: 40,
                num_attention_heads: 64,
                tie_word_embeddings: true,
                pad_token_id: Some(0),
                bos_token_id: Some(5),
                eos_token_id: vec![255_001],
                ..of(256_000, 8192)
            },
            Self::Gemma => LlamaConfig {
                hidden_size: 3072,
                intermediate_size: 24_576,
                num_hidden_layers: 28,
                num_attention_heads: 16,
                num_key_value_heads: Some(16),
                head_dim: Some(256),
                hidden_act: "gelu_pytorch_tanh".into(),
                tie_word_embeddings: true,
                pad_token_id: Some(0),
                eos_token_id: vec![1],
                bos_token_id: Some(2),
                ..of(256_000, 8192)
            },
            Self::GptNeox => LlamaConfig {
                hidden_size: 6144,
                intermediate_size: 24_576,
                num_hidden_layers: 44,
                num_attention_heads: 64,
                hidden_act: "gelu".into(),
                attention_bias: true,
                bos_token_id: Some(0),
                eos_token_id: vec![2],
                ..of(50_432, 2048)
            },
            Self::Olmo => {
                LlamaConfig { pad_token_id: Some(1), eos_token_id: vec![50_279], ..of(50_304, 2048) }
            }
            Self::Opt => LlamaConfig {
                hidden_size: 768,
                intermediate_size: 3072,
                num_hidden_layers: 12,
                num_attention_heads: 12,
                hidden_act: "relu".into(),
                resid_pdrop: Some(0.1),
                tie_word_embeddings: true,
                pad_token_id: Some(1),
                bos_token_id: Some(2),
                eos_token_id: vec![2],
                ..of(50_272, 2048)
            },
            Self::Phi => LlamaConfig {
                hidden_size: 2048,
                intermediate_size: 8192,
                num_hidden_layers: 24,
                hidden_act: "gelu_new".into(),
                bos_token_id: Some(1),
                eos_token_id: vec![2],
                ..of(51_200, 2048)
            },
            Self::StableLm => LlamaConfig {
                hidden_size: 2560,
                intermediate_size: 6912,
                num_key_value_heads: Some(32),
                bos_token_id: Some(0),
                eos_token_id: vec![0],
                ..of(50_304, 4096)
            },
            Self::Starcoder2 => LlamaConfig {
                hidden_size: 3072,
                intermediate_size: 12_288,
                num_hidden_layers: 30,
                num_attention_heads: 24,
                num_key_value_heads: Some(2),
                hidden_act: "gelu_pytorch_tanh".into(),
                initializer_range: 0.018_042,
                tie_word_embeddings: true,
                bos_token_id: Some(50_256),
                eos_token_id: vec![50_256],
                ..of(49_152, 4096)
            },
            Self::Arcee => LlamaConfig {
                hidden_size: 2560,
                intermediate_size: 18_432,
                hidden_act: "relu2".into(),
                rms_norm_eps: 1e-5,
                bos_token_id: Some(128_000),
                eos_token_id: vec![128_001],
                ..of(32_000, 4096)
            },
            // There is no bound of positions.
            Self::Bloom => LlamaConfig {
                hidden_size: 64,
                num_hidden_layers: 2,
                num_attention_heads: 8,
                hidden_act: "gelu_new".into(),
                tie_word_embeddings: true,
                bos_token_id: Some(1),
                eos_token_id: vec![2],
                ..of(250_880, 2048)
            },
            Self::CodeGen | Self::GptJ => LlamaConfig {
                num_hidden_layers: 28,
                num_attention_heads: 16,
                rotary_dim: Some(64),
                hidden_act: "gelu_new".into(),
                bos_token_id: Some(50_256),
                eos_token_id: vec![50_256],
                ..of(50_400, 2048)
            },
            Self::Cohere2 => LlamaConfig { sliding_window: Some(4096), ..Self::Cohere.defaults_as(self) },
            Self::Exaone4 => LlamaConfig {
                intermediate_size: 16_384,
                num_key_value_heads: Some(32),
                rms_norm_eps: 1e-5,
                sliding_window: Some(4096),
                bos_token_id: Some(0),
                eos_token_id: vec![2],
                ..of(102_400, 2048)
            },
            Self::Falcon => LlamaConfig {
                hidden_size: 4544,
                num_attention_heads: 71,
                hidden_act: "gelu".into(),
                tie_word_embeddings: true,
                bos_token_id: Some(11),
                eos_token_id: vec![11],
                ..of(65_024, 2048)
            },
            Self::Glm | Self::Glm4 => LlamaConfig {
                intermediate_size: 13_696,
                num_hidden_layers: 40,
                num_key_value_heads: Some(2),
                head_dim: Some(128),
                rms_norm_eps: 1.5625e-7,
                attention_bias: true,
                pad_token_id: Some(151_329),
                eos_token_id: vec![151_329, 151_336, 151_338],
                ..of(151_552, 131_072)
            },
            Self::GptBigCode => LlamaConfig {
                hidden_size: 768,
                num_hidden_layers: 12,
                num_attention_heads: 12,
                hidden_act: "gelu_pytorch_tanh".into(),
                attention_dropout: 0.1,
                resid_pdrop: Some(0.1),
                embd_pdrop: Some(0.1),
                tie_word_embeddings: true,
                bos_token_id: Some(50_256),
                eos_token_id: vec![50_256],
                ..of(50_257, 1024)
            },
            Self::Helium => LlamaConfig {
                hidden_size: 2560,
                intermediate_size: 7040,
                num_hidden_layers: 24,
                num_attention_heads: 20,
                num_key_value_heads: Some(20),
                head_dim: Some(128),
                rms_norm_eps: 1e-8,
                pad_token_id: Some(3),
                eos_token_id: vec![2],
                bos_token_id: Some(1),
                ..of(48_000, 4096)
            },
            Self::HunYuan => LlamaConfig {
                rms_norm_eps: 1e-5,
                pad_token_id: Some(0),
                bos_token_id: Some(1),
                eos_token_id: vec![2],
                ..of(290_943, 2048)
            },
            Self::Ministral => Self::Mistral.defaults_as(self),
            Self::Mpt => LlamaConfig {
                hidden_size: 2048,
                num_hidden_layers: 24,
                num_attention_heads: 16,
                hidden_act: "gelu".into(),
                tie_word_embeddings: true,
                ..of(50_368, 2048)
            },
            Self::Nemotron => LlamaConfig {
                hidden_size: 6144,
                intermediate_size: 24_576,
                num_attention_heads: 48,
                hidden_act: "relu2".into(),
                initializer_range: 0.0134,
                bos_token_id: Some(2),
                eos_token_id: vec![3],
                ..of(256_000, 4096)
            },
            Self::Olmo3 => LlamaConfig { sliding_window: Some(4096), ..Self::Olmo2.defaults_as(self) },
            Self::Ernie45 => LlamaConfig {
                hidden_size: 1024,
                intermediate_size: 3072,
                num_hidden_layers: 18,
                num_attention_heads: 16,
                num_key_value_heads: Some(2),
                head_dim: Some(128),
                rms_norm_eps: 1e-5,
                tie_word_embeddings: true,
                pad_token_id: Some(0),
                bos_token_id: Some(1),
                eos_token_id: vec![2],
                ..of(103_424, 131_072)
            },
            Self::EuroBert => LlamaConfig {
                hidden_size: 768,
                intermediate_size: 3072,
                num_hidden_layers: 12,
                num_attention_heads: 12,
                rms_norm_eps: 1e-5,
                pad_token_id: Some(128_001),
                bos_token_id: Some(128_000),
                eos_token_id: vec![128_001],
                ..of(128_256, 8192)
            },
            Self::UltraBert => LlamaConfig {
                sliding_window: Some(128),
                pad_token_id: Some(0),
                bos_token_id: Some(0),
                eos_token_id: vec![0],
                ..of(32_000, 32_768)
            },
            Self::GptNeo => LlamaConfig {
                hidden_size: 2048,
                num_hidden_layers: 24,
                num_attention_heads: 16,
                hidden_act: "gelu_new".into(),
                sliding_window: Some(256),
                tie_word_embeddings: true,
                bos_token_id: Some(50_256),
                eos_token_id: vec![50_256],
                ..of(50_257, 2048)
            },
            Self::Apertus => LlamaConfig {
                intermediate_size: 14_336,
                hidden_act: "xielu".into(),
                rms_norm_eps: 1e-5,
                rope_parameters: Some(RopeParameters {
                    rope_type: Some("llama3".into()),
                    factor: Some(8.0),
                    original_max_position_embeddings: Some(8192),
                    low_freq_factor: Some(1.0),
                    high_freq_factor: Some(4.0),
                    ..RopeParameters::default()
                }),
                pad_token_id: Some(3),
                bos_token_id: Some(1),
                eos_token_id: vec![2],
                ..of(131_072, 65_536)
            },
            Self::BioGpt => LlamaConfig {
                hidden_size: 1024,
                intermediate_size: 4096,
                num_hidden_layers: 24,
                num_attention_heads: 16,
                hidden_act: "gelu".into(),
                attention_dropout: 0.1,
                resid_pdrop: Some(0.1),
                tie_word_embeddings: true,
                pad_token_id: Some(1),
                bos_token_id: Some(0),
                eos_token_id: vec![2],
                ..of(42_384, 1024)
            },
            Self::MiniCpm3 => LlamaConfig {
                hidden_size: 2560,
                intermediate_size: 6400,
                num_hidden_layers: 62,
                num_attention_heads: 40,
                rms_norm_eps: 1e-5,
                initializer_range: 0.1,
                tie_word_embeddings: true,
                q_lora_rank: Some(768),
                kv_lora_rank: Some(256),
                qk_rope_head_dim: Some(32),
                qk_nope_head_dim: Some(64),
                scale_emb: Some(12.0),
                scale_depth: Some(1.4),
                dim_model_base: Some(256),
                bos_token_id: Some(1),
                eos_token_id: vec![2],
                ..of(73_448, 32_768)
            },
            Self::Ministral3 => LlamaConfig {
                intermediate_size: 14_336,
                num_hidden_layers: 34,
                num_key_value_heads: Some(8),
                head_dim: Some(128),
                rms_norm_eps: 1e-5,
                rope_parameters: Some(RopeParameters {
                    old_type: Some("yarn".into()),
                    rope_theta: Some(1e6),
                    factor: Some(16.0),
                    original_max_position_embeddings: Some(16_384),
                    beta_fast: Some(32.0),
                    beta_slow: Some(1.0),
                    mscale: Some(1.0),
                    mscale_all_dim: Some(1.0),
                    llama_4_scaling_beta: Some(0.1),
                    ..RopeParameters::default()
                }),
                pad_token_id: Some(11),
                bos_token_id: Some(1),
                eos_token_id: vec![2],
                ..of(131_072, 262_144)
            },
            Self::Persimmon => LlamaConfig {
                intermediate_size: 16_384,
                num_hidden_layers: 36,
                num_attention_heads: 64,
                hidden_act: "relu2".into(),
                bos_token_id: Some(1),
                eos_token_id: vec![2],
                ..of(262_144, 16_384)
            },
            Self::Xglm => LlamaConfig {
                hidden_size: 1024,
                intermediate_size: 4096,
                num_hidden_layers: 24,
                num_attention_heads: 16,
                hidden_act: "gelu".into(),
                attention_dropout: 0.1,
                resid_pdrop: Some(0.1),
                tie_word_embeddings: true,
                pad_token_id: Some(1),
                bos_token_id: Some(0),
                eos_token_id: vec![2],
                ..of(256_008, 2048)
            },
            Self::InternLm3 => LlamaConfig {
                intermediate_size: 10_240,
                num_hidden_layers: 48,
                num_key_value_heads: Some(2),
                head_dim: Some(128),
                rms_norm_eps: 1e-5,
                pad_token_id: Some(2),
                bos_token_id: Some(1),
                eos_token_id: vec![2],
                ..of(128_512, 32_768)
            },
            Self::NanoChat => LlamaConfig {
                hidden_size: 768,
                intermediate_size: 8192,
                num_hidden_layers: 12,
                num_attention_heads: 6,
                hidden_act: "relu2".into(),
                final_logit_softcapping: Some(15.0),
                bos_token_id: Some(0),
                eos_token_id: vec![1],
                pad_token_id: Some(1),
                ..of(50_304, 2048)
            },
            Self::Jais2 => LlamaConfig {
                hidden_size: 3328,
                intermediate_size: 26_624,
                num_attention_heads: 26,
                hidden_act: "relu2".into(),
                attention_bias: true,
                mlp_bias: true,
                bos_token_id: Some(0),
                eos_token_id: vec![150_024],
                ..of(150_272, 8192)
            },
            Self::Cwm => LlamaConfig {
                hidden_size: 6144,
                intermediate_size: 21_504,
                num_hidden_layers: 64,
                num_attention_heads: 48,
                num_key_value_heads: Some(8),
                head_dim: Some(128),
                rms_norm_eps: 1e-5,
                rope_parameters: Some(RopeParameters {
                    rope_type: Some("llama3".into()),
                    factor: Some(16.0),
                    original_max_position_embeddings: Some(8192),
                    low_freq_factor: Some(1.0),
                    high_freq_factor: Some(4.0),
                    ..RopeParameters::default()
                }),
                sliding_window: Some(8192),
                bos_token_id: Some(128_000),
                eos_token_id: vec![128_001, 128_008, 128_009],
                ..of(128_256, 131_072)
            },
            Self::VaultGemma => Self::Gemma2.defaults_as(self),
            Self::GraniteSwa => LlamaConfig {
                hidden_size: 2560,
                intermediate_size: 8192,
                num_hidden_layers: 24,
                num_attention_heads: 20,
                num_key_value_heads: Some(4),
                rms_norm_eps: 1e-5,
                sliding_window: Some(128),
                tie_word_embeddings: true,
                bos_token_id: Some(100_257),
                eos_token_id: vec![100_257],
                ..of(100_352, 8192)
            },
            Self::HyperClovaX => Self::Granite.defaults_as(self),
            Self::Bamba | Self::FalconH1 | Self::GraniteHybrid | Self::Lfm2 | Self::Qwen35 => {
                self.defaults_with_states()
            }
            Self::DeepSeekV2
            | Self::DeepSeekV3
            | Self::Dots1
            | Self::Ernie45Moe
            | Self::FlexOlmo
            | Self::Glm4Moe
            | Self::GptOss
            | Self::GraniteMoe
            | Self::GraniteMoeShared
            | Self::HunYuanMoe
            | Self::Lfm2Moe
            | Self::MiniMaxM2
            | Self::Mistral4
            | Self::Mixtral
            | Self::Olmoe
            | Self::PhiMoe
            | Self::Qwen2Moe
            | Self::Qwen35Moe
            | Self::Qwen3Moe
            | Self::Qwen3Next
            | Self::SolarOpen => self.defaults_with_experts(),
            Self::SeedOss => LlamaConfig {
                intermediate_size: 27_648,
                num_hidden_layers: 64,
                num_attention_heads: 80,
                num_key_value_heads: Some(8),
                head_dim: Some(128),
                attention_bias: true,
                attention_dropout: 0.1,
                resid_pdrop: Some(0.1),
                pad_token_id: Some(1),
                bos_token_id: Some(0),
                eos_token_id: vec![2],
                ..of(155_136, 524_288)
            },
        }
    }

    /// LLaMA's config as one of this kind, with these sizes.
    pub(super) fn sized(self, vocab_size: usize, max_position_embeddings: usize) -> LlamaConfig {
        LlamaConfig { kind: self, vocab_size, max_position_embeddings, ..LlamaConfig::default() }
    }

    /// The config of this kind, as one of `kind`.
    pub(super) fn defaults_as(self, kind: Self) -> LlamaConfig {
        LlamaConfig { kind, ..self.defaults() }
    }
}
