//! The kinds of decoders of LLaMA's shape, and their names in `transformers`.

use crate::architectures::decoder::{EURO_BERT, EncoderClasses, ULTRA_BERT};

/// Makes the list of kinds, each with its `model_type` and what its classes begin with.
macro_rules! kinds {
    ($($(#[$about:meta])* $kind:ident = $model_type:literal, $class:literal;)*) => {
        /// The kinds of models of this shape.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub enum LlamaKind {
            $($(#[$about])* $kind,)*
        }

        const ALL: &[LlamaKind] = &[$(LlamaKind::$kind),*];

        impl LlamaKind {
            /// The `model_type` of a `config.json`.
            #[must_use]
            pub const fn model_type(self) -> &'static str {
                match self {
                    $(Self::$kind => $model_type,)*
                }
            }

            /// The class of `transformers`.
            pub(crate) fn class(self) -> &'static str {
                match self {
                    $(Self::$kind => concat!($class, "ForCausalLM"),)*
                }
            }

            /// The class of `transformers` with a head of labels. Some kinds have none there.
            pub(crate) fn class_of_labels(self) -> &'static str {
                match self {
                    Self::Gemma3 => return "Gemma3TextForSequenceClassification",
                    Self::Qwen35 => return "Qwen3_5TextForSequenceClassification",
                    _ => {}
                }
                match self {
                    $(Self::$kind => concat!($class, "ForSequenceClassification"),)*
                }
            }
        }
    };
}

kinds! {
    /// LLaMA and models with its `model_type`.
    #[default]
    Llama = "llama", "Llama";
    /// Qwen 2 and 2.5, whose queries, keys and values have a bias.
    Qwen2 = "qwen2", "Qwen2";
    /// Qwen 3, which normalises each head's queries and keys.
    Qwen3 = "qwen3", "Qwen3";
    /// Mistral, whose layers attend to a sliding window (Jiang et al. 2023).
    Mistral = "mistral", "Mistral";
    /// Gemma 2 (Gemma Team 2024): norms around each part, soft caps, and a sliding window in every other layer.
    Gemma2 = "gemma2", "Gemma2";
    /// Gemma 3 for text (Gemma Team 2025): norms around each part and of queries and keys, and two bases of angles.
    Gemma3 = "gemma3_text", "Gemma3";
    /// Gemma 3n for text (Gemma Team 2025): streams of states, of which layers read one, and embeddings of layers.
    Gemma3n = "gemma3n_text", "Gemma3n";
    /// Gemma 4 for text (Gemma Team 2026): layers with heads, keys, values and embeddings of their own.
    Gemma4 = "gemma4_text", "Gemma4";
    /// SmolLM 3, some of whose layers do not turn queries and keys.
    SmolLm3 = "smollm3", "SmolLM3";
    /// Phi 3 (Abdin et al. 2024), whose projections are stored in one tensor.
    Phi3 = "phi3", "Phi3";
    /// OLMo 2 (OLMo Team 2025), which normalises the result of each part instead of its input.
    Olmo2 = "olmo2", "Olmo2";
    /// Granite 3, which scales embeddings, parts, scores and logits.
    Granite = "granite", "Granite";
    /// Cohere's Command R, whose parts both read the states before a layer.
    Cohere = "cohere", "Cohere";
    /// Gemma 1 (Gemma Team 2024), which scales embeddings.
    Gemma = "gemma", "Gemma";
    /// GPT-NeoX (Black et al. 2022) and Pythia, whose parts both read the states before a layer.
    GptNeox = "gpt_neox", "GPTNeoX";
    /// OLMo 1 (Groeneveld et al. 2024), whose norms have no weights.
    Olmo = "olmo", "Olmo";
    /// OPT (Zhang et al. 2022), which has learned positions.
    Opt = "opt", "OPT";
    /// Phi 1 and 2, whose parts both read the states before a layer.
    Phi = "phi", "Phi";
    /// StableLM.
    StableLm = "stablelm", "StableLm";
    /// StarCoder 2 (Lozhkov et al. 2024), whose layers attend to a sliding window.
    Starcoder2 = "starcoder2", "Starcoder2";
    /// Arcee's AFM, whose feed-forward parts have no gate and square a rectifier.
    Arcee = "arcee", "Arcee";
    /// BLOOM (BigScience 2022), whose positions are biases of scores.
    Bloom = "bloom", "Bloom";
    /// CodeGen (Nijkamp et al. 2023), whose projections are stored in four blocks.
    CodeGen = "codegen", "CodeGen";
    /// Cohere's Command R7B and Command A. Layers with a sliding window turn queries and keys; the others do not.
    Cohere2 = "cohere2", "Cohere2";
    /// EXAONE 4, which normalises results, queries and keys.
    Exaone4 = "exaone4", "Exaone4";
    /// Falcon (Almazrouei et al. 2023), whose heads share keys and values.
    Falcon = "falcon", "Falcon";
    /// GLM-4 of 2024, half of whose heads are turned.
    Glm = "glm", "Glm";
    /// GLM-4 of 2025, with norms around each part.
    Glm4 = "glm4", "Glm4";
    /// GPT-BigCode: SantaCoder (Ben Allal et al. 2023) and StarCoder 1.
    GptBigCode = "gpt_bigcode", "GPTBigCode";
    /// GPT-J, whose parts both read the states before a layer.
    GptJ = "gptj", "GPTJ";
    /// Helium of Kyutai.
    Helium = "helium", "Helium";
    /// Hunyuan without experts, which normalises queries and keys after they are turned.
    HunYuan = "hunyuan_v1_dense", "HunYuanDenseV1";
    /// Ministral, some of whose layers attend to a sliding window.
    Ministral = "ministral", "Ministral";
    /// Mixtral (Jiang et al. 2024), a mixture of experts.
    Mixtral = "mixtral", "Mixtral";
    /// MPT (MosaicML 2023), whose positions are biases of scores.
    Mpt = "mpt", "Mpt";
    /// Nemotron 3 and 4 and Minitron.
    Nemotron = "nemotron", "Nemotron";
    /// OLMo 3, which is OLMo 2 with sliding windows.
    Olmo3 = "olmo3", "Olmo3";
    /// OLMoE (Muennighoff et al. 2024), a mixture of experts.
    Olmoe = "olmoe", "Olmoe";
    /// Qwen 1.5 and 2 with experts, one of which every token reads.
    Qwen2Moe = "qwen2_moe", "Qwen2Moe";
    /// Qwen 3 with experts.
    Qwen3Moe = "qwen3_moe", "Qwen3Moe";
    /// Seed-OSS of ByteDance.
    SeedOss = "seed_oss", "SeedOss";
    /// ERNIE 4.5 without experts.
    Ernie45 = "ernie4_5", "Ernie4_5";
    /// GPT-Neo (Black et al. 2021), which has learned positions and does not scale scores.
    GptNeo = "gpt_neo", "GPTNeo";
    /// EuroBERT (Boizard et al. 2025), an encoder.
    EuroBert = "eurobert", "EuroBert";
    /// Apertus (Swiss AI 2025), whose feed-forward parts have no gate and an activation with learned slopes.
    Apertus = "apertus", "Apertus";
    /// BioGPT (Luo et al. 2022), which has learned positions.
    BioGpt = "biogpt", "BioGpt";
    /// DeepSeek V2 (DeepSeek-AI 2024), whose keys and values are made of a narrow vector, with experts in groups.
    DeepSeekV2 = "deepseek_v2", "DeepseekV2";
    /// DeepSeek V3 (DeepSeek-AI 2024), which chooses experts with corrections of their scores.
    DeepSeekV3 = "deepseek_v3", "DeepseekV3";
    /// dots.llm1, whose experts are those of DeepSeek V3.
    Dots1 = "dots1", "Dots1";
    /// ERNIE 4.5 with experts.
    Ernie45Moe = "ernie4_5_moe", "Ernie4_5_Moe";
    /// GLM-4.5 and GLM-4.6, whose experts are those of DeepSeek V3.
    Glm4Moe = "glm4_moe", "Glm4Moe";
    /// gpt-oss (OpenAI 2025), whose heads may attend to nothing, with experts whose gates are bounded.
    GptOss = "gpt_oss", "GptOss";
    /// Granite 3 with experts.
    GraniteMoe = "granitemoe", "GraniteMoe";
    /// The same with a part that every token reads.
    GraniteMoeShared = "granitemoeshared", "GraniteMoeShared";
    /// MiniCPM 3 (OpenBMB 2024): DeepSeek's keys and values, with factors of embeddings, parts and logits.
    MiniCpm3 = "minicpm3", "MiniCPM3";
    /// Ministral 3, which scales queries by their positions.
    Ministral3 = "ministral3", "Ministral3";
    /// Persimmon (Adept 2023), whose parts have no gate and square a rectifier.
    Persimmon = "persimmon", "Persimmon";
    /// Phi 3.5 with experts (Abdin et al. 2024), whose weights leave out experts with much smaller scores.
    PhiMoe = "phimoe", "Phimoe";
    /// XGLM (Lin et al. 2022), whose positions are sinusoids.
    Xglm = "xglm", "XGLM";
    /// InternLM 3, which is a LLaMA.
    InternLm3 = "internlm3", "Llama";
    /// Nanochat, whose norms have no weights, and which turns queries and keys the other way round.
    NanoChat = "nanochat", "NanoChat";
    /// Jais 2, whose parts have no gate and square a rectifier.
    Jais2 = "jais2", "Jais2";
    /// CWM (Meta FAIR 2025), three quarters of whose layers attend to a sliding window.
    Cwm = "cwm", "Cwm";
    /// VaultGemma, which is Gemma 2 without the norms of results.
    VaultGemma = "vaultgemma", "VaultGemma";
    /// Granite with sliding windows, whose heads may attend to nothing.
    GraniteSwa = "granite_swa", "GraniteSWA";
    /// HyperCLOVA X, which has Granite's factors and norms around each part.
    HyperClovaX = "hyperclovax", "HyperCLOVAX";
    /// FlexOlmo (Shi et al. 2025), which is OLMo 2 with experts.
    FlexOlmo = "flex_olmo", "FlexOlmo";
    /// Hunyuan with experts, one of which every token reads.
    HunYuanMoe = "hunyuan_v1_moe", "HunYuanMoEV1";
    /// MiniMax M2, which chooses experts with corrections of their scores.
    MiniMaxM2 = "minimax_m2", "MiniMaxM2";
    /// Solar Open, whose experts are those of DeepSeek V3.
    SolarOpen = "solar_open", "SolarOpen";
    /// UltraBERT, an encoder with sliding windows.
    UltraBert = "ultrabert", "Ultrabert";
    /// Bamba (IBM 2025), most of whose layers are Mamba 2.
    Bamba = "bamba", "Bamba";
    /// Falcon-H1 (TII 2025), whose layers attend and are Mamba 2 at once, with factors of most projections.
    FalconH1 = "falcon_h1", "FalconH1";
    /// Granite 4, most of whose layers are Mamba 2.
    GraniteHybrid = "granitemoehybrid", "GraniteMoeHybrid";
    /// LFM2 of Liquid AI, most of whose layers are short convolutions.
    Lfm2 = "lfm2", "Lfm2";
    /// The same with experts.
    Lfm2Moe = "lfm2_moe", "Lfm2Moe";
    /// Qwen 3.5 for text, most of whose layers are gated delta rules (Yang et al. 2025).
    Qwen35 = "qwen3_5_text", "Qwen3_5";
    /// The same with experts, one of which every token reads.
    Qwen35Moe = "qwen3_5_moe_text", "Qwen3_5Moe";
    /// Qwen3-Next, which has such layers and experts.
    Qwen3Next = "qwen3_next", "Qwen3Next";
    /// Mistral 4: DeepSeek's keys and values and experts, with queries that grow with their positions.
    Mistral4 = "mistral4", "Mistral4";
}

impl LlamaKind {
    /// The kind whose `model_type` is `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ALL.iter().copied().find(|kind| kind.model_type() == name)
    }

    /// Whether it is Gemma 2, or made like it.
    pub(crate) fn is_new_gemma(self) -> bool {
        matches!(self, Self::Gemma2 | Self::Gemma3 | Self::Gemma3n | Self::Gemma4 | Self::VaultGemma)
    }

    /// Whether it scales embeddings, parts, scores and logits as Granite 3 does.
    pub(crate) fn is_granite(self) -> bool {
        matches!(
            self,
            Self::Granite
                | Self::GraniteHybrid
                | Self::GraniteMoe
                | Self::GraniteMoeShared
                | Self::GraniteSwa
                | Self::HyperClovaX
        )
    }

    /// Whether it is a Hunyuan, which normalises queries and keys after they are turned.
    pub(crate) fn is_hunyuan(self) -> bool {
        matches!(self, Self::HunYuan | Self::HunYuanMoe)
    }

    /// Whether keys and values are made of a narrow vector.
    pub(crate) fn is_latent(self) -> bool {
        matches!(self, Self::DeepSeekV2 | Self::DeepSeekV3 | Self::MiniCpm3 | Self::Mistral4)
    }

    /// Whether its experts are those of DeepSeek V3: chosen by groups and by sigmoids with corrections, beside a part that every
    /// token reads.
    pub(crate) fn has_deepseek_experts(self) -> bool {
        matches!(self, Self::DeepSeekV3 | Self::Dots1 | Self::Glm4Moe | Self::SolarOpen)
    }

    /// Whether it is the part for text of models with images.
    pub(crate) fn may_have_images(self) -> bool {
        matches!(
            self,
            Self::Gemma3
                | Self::Gemma3n
                | Self::Gemma4
                | Self::Ministral3
                | Self::Mistral
                | Self::Mistral4
                | Self::Qwen2
                | Self::Qwen3
                | Self::Qwen35
                | Self::Qwen35Moe
        )
    }

    /// Whether some of its layers are gated delta rules, and its attention has a gate.
    pub(crate) fn has_delta_rule(self) -> bool {
        matches!(self, Self::Qwen35 | Self::Qwen35Moe | Self::Qwen3Next)
    }

    /// Whether some of its layers are Mamba 2.
    pub(crate) fn has_state_space(self) -> bool {
        matches!(self, Self::Bamba | Self::FalconH1 | Self::GraniteHybrid)
    }

    /// Whether it is an LFM2, some of whose layers are short convolutions.
    pub(crate) fn is_lfm2(self) -> bool {
        matches!(self, Self::Lfm2 | Self::Lfm2Moe)
    }

    /// Whether layers may have embeddings of their own, and the keys and values of earlier ones.
    pub(crate) fn has_layer_inputs(self) -> bool {
        matches!(self, Self::Gemma3n | Self::Gemma4)
    }

    /// Whether a config may set the width of a head.
    pub(crate) fn has_head_dim(self) -> bool {
        !matches!(
            self,
            Self::BioGpt
                | Self::Bloom
                | Self::CodeGen
                | Self::Cohere
                | Self::Cohere2
                | Self::Falcon
                | Self::GptBigCode
                | Self::GptJ
                | Self::GptNeo
                | Self::GptNeox
                | Self::Mpt
                | Self::Olmo
                | Self::Opt
                | Self::Persimmon
                | Self::Phi
                | Self::StableLm
                | Self::Starcoder2
                | Self::Xglm
        )
    }

    /// The classes of an encoder; none for decoders.
    pub(crate) fn encoder_classes(self) -> Option<&'static EncoderClasses> {
        match self {
            Self::EuroBert => Some(&EURO_BERT),
            Self::UltraBert => Some(&ULTRA_BERT),
            _ => None,
        }
    }

    /// Whether layers with a sliding window have angles of their own.
    pub(crate) fn has_two_ropes(self) -> bool {
        matches!(self, Self::Gemma3 | Self::Gemma3n | Self::Gemma4 | Self::Olmo3 | Self::UltraBert)
    }

    /// The number of rows before that of position 0 in the table of positions; none where positions turn queries and
    /// keys or are biases.
    pub(crate) fn position_offset(self) -> Option<usize> {
        match self {
            Self::BioGpt | Self::Opt | Self::Xglm => Some(2),
            Self::GptBigCode | Self::GptNeo => Some(0),
            _ => None,
        }
    }

    /// Whether the table of positions has sinusoids, and is not learned.
    pub(crate) fn has_sinusoids(self) -> bool {
        self == Self::Xglm
    }

    /// The norm of the embeddings.
    pub(crate) fn embedding_norm(self) -> Option<&'static str> {
        match self {
            Self::Bloom => Some("word_embeddings_layernorm"),
            Self::NanoChat => Some("norm"),
            _ => None,
        }
    }

    /// The base of the angles of a config that has none.
    pub(crate) fn theta(self) -> f64 {
        match self {
            Self::Apertus => 1.2e7,
            Self::UltraBert => 2.56e6,
            Self::MiniMaxM2 => 5e6,
            Self::SmolLm3 => 2e6,
            Self::Cwm
            | Self::Gemma3
            | Self::Gemma3n
            | Self::Lfm2
            | Self::Lfm2Moe
            | Self::Ministral3
            | Self::Mixtral
            | Self::PhiMoe
            | Self::SolarOpen => 1e6,
            Self::Cohere | Self::Ernie45 | Self::Ernie45Moe | Self::FlexOlmo | Self::Olmo3 => 5e5,
            Self::GptOss => 1.5e5,
            Self::Helium => 1e5,
            _ => 1e4,
        }
    }

    /// The part of a head that is turned, of a config that does not say it; none where all of it always is.
    pub(crate) fn turned_part(self) -> Option<f64> {
        match self {
            Self::MiniMaxM2 | Self::Phi3 => Some(1.0),
            Self::Bamba
            | Self::Glm
            | Self::Glm4
            | Self::Glm4Moe
            | Self::Nemotron
            | Self::Persimmon
            | Self::Phi => Some(0.5),
            Self::GptNeox | Self::Qwen35 | Self::Qwen35Moe | Self::Qwen3Next | Self::StableLm => Some(0.25),
            _ => None,
        }
    }
}
