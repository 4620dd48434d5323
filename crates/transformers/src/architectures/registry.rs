//! The architectures of model folders, by the `model_type` of a `config.json`: one list for both engines.

use std::path::Path;

use sporran_checkpoint::{Error, ModelKind, Result, json::parse};

use crate::{
    architectures::{
        ModelConfig,
        bart::{BART_CLASSIFIER, BartClassifierConfig, BartConfig, BartFamily},
        bert::{BertConfig, BertFamily},
        gpt2::Gpt2Config,
        llama::{self, LlamaConfig, LlamaKind},
        modernbert::ModernBertConfig,
        static_embedding,
        t5::{T5Config, T5EncoderConfig, T5Family},
    },
    candle_models::{
        folders::{self as candle, Load},
        recurrent,
    },
};

/// What models of an architecture are used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelTask {
    /// Texts that follow from inputs.
    Generation,
    /// Vectors of texts.
    Embedding,
    /// Scores of passages.
    Reranking,
    /// Labels of texts.
    Classification,
    /// Labels of words.
    Tagging,
    /// Spans of answers.
    Reading,
}

impl ModelTask {
    /// The task in a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Generation => "generation",
            Self::Embedding => "embedding",
            Self::Reranking => "reranking",
            Self::Classification => "classification",
            Self::Tagging => "tagging",
            Self::Reading => "reading",
        }
    }
}

/// Reads the text of a `config.json`, whose path is for errors. The last argument is the class that the folder names.
type Read = fn(&Path, &str, Option<&str>) -> Result<ModelConfig>;

/// The definition of an architecture in this program.
#[derive(Debug, Clone, Copy)]
struct Own {
    read: Read,
    /// Whether weights are packed on a CPU.
    is_packed: bool,
    is_trained: bool,
}

/// An architecture, and the engines that have it.
#[derive(Clone, Copy)]
pub struct ArchitectureEntry {
    /// The `model_type` of a `config.json`.
    pub model_type: &'static str,
    /// The name in papers.
    pub name: &'static str,
    /// The tasks of its models.
    pub tasks: &'static [ModelTask],
    own: Option<Own>,
    candle: Option<Load>,
}

impl ArchitectureEntry {
    /// An architecture that is defined here, with packed weights on a CPU, and that can be trained.
    const fn own(
        model_type: &'static str,
        name: &'static str,
        tasks: &'static [ModelTask],
        read: Read,
    ) -> Self {
        let own = Own { read, is_packed: true, is_trained: true };
        Self { model_type, name, tasks, own: Some(own), candle: None }
    }

    /// One that the crate `candle-transformers` alone has.
    const fn candle(model_type: &'static str, name: &'static str, load: Load) -> Self {
        Self { model_type, name, tasks: &[ModelTask::Generation], own: None, candle: Some(load) }
    }

    /// The same, without training.
    const fn untrained(self) -> Self {
        let own = match self.own {
            Some(own) => Some(Own { is_trained: false, ..own }),
            None => None,
        };
        Self { own, ..self }
    }

    /// The same, without packed weights.
    const fn unpacked(self) -> Self {
        let own = match self.own {
            Some(own) => Some(Own { is_packed: false, ..own }),
            None => None,
        };
        Self { own, ..self }
    }

    /// The same, which the crate `candle-transformers` has too.
    const fn or_candle(self, load: Load) -> Self {
        Self { candle: Some(load), ..self }
    }

    /// The engines that have it, by their names in configs.
    #[must_use]
    pub fn engines(&self) -> Vec<&'static str> {
        let own = self.own.map(|_| "packed");
        own.into_iter().chain(self.candle.map(|_| "candle")).collect()
    }

    /// The precisions on a CPU, by their names in configs.
    #[must_use]
    pub fn cpu_precisions(&self) -> &'static [&'static str] {
        match self.own {
            Some(Own { is_packed: true, .. }) => &["f32", "int8"],
            _ => &["f32"],
        }
    }

    /// The precisions on a GPU, by their names in configs.
    #[must_use]
    pub fn gpu_precisions(&self) -> &'static [&'static str] {
        &["f32", "f16", "bf16"]
    }

    /// Whether its models can be trained.
    #[must_use]
    pub fn is_trained(&self) -> bool {
        self.own.is_some_and(|own| own.is_trained)
    }

    /// The loader of the crate `candle-transformers`.
    pub(crate) fn candle_load(&self) -> Option<Load> {
        self.candle
    }
}

use ModelTask::{Classification, Embedding, Generation, Reading, Reranking, Tagging};

const ENCODER: &[ModelTask] = &[Embedding, Reranking, Classification, Tagging, Reading];
/// Encoders that have no class with a head for spans.
const ENCODER_WITHOUT_SPANS: &[ModelTask] = &[Embedding, Reranking, Classification, Tagging];
const DECODER: &[ModelTask] = &[Generation, Embedding, Reranking, Classification];
/// Decoders that have no class with a head of labels.
const WORDS: &[ModelTask] = &[Generation, Embedding];

/// An entry of a kind of LLaMA's shape.
macro_rules! decoder {
    ($kind:ident, $name:literal, $tasks:expr) => {
        ArchitectureEntry::own(LlamaKind::$kind.model_type(), $name, $tasks, |path, text, _| {
            read_llama(LlamaKind::$kind, path, text)
        })
    };
}

/// An entry of the part for text of models with images.
macro_rules! text_part {
    ($parts:ident, $model_type:literal, $name:literal, $tasks:expr) => {
        ArchitectureEntry::own($model_type, $name, $tasks, |path, text, _| {
            LlamaConfig::of_text_part(llama::$parts, path, text).map(ModelConfig::Llama)
        })
    };
}

/// All architectures: encoder-decoders, encoders, decoders, and those of the engine `candle` alone.
pub const ARCHITECTURES: &[ArchitectureEntry] = &[
    ArchitectureEntry::own("t5", "T5 (1.0, 1.1)", &[Generation, Embedding], |path, text, class| {
        read_t5(T5Family::T5, path, text, class)
    }),
    ArchitectureEntry::own("mt5", "mT5", &[Generation, Embedding], |path, text, class| {
        read_t5(T5Family::Mt5, path, text, class)
    }),
    ArchitectureEntry::own("umt5", "UMT5", &[Generation, Embedding], |path, text, class| {
        read_t5(T5Family::Umt5, path, text, class)
    }),
    ArchitectureEntry::own("longt5", "LongT5", &[Generation, Embedding], |path, text, class| {
        read_t5(T5Family::LongT5, path, text, class)
    }),
    ArchitectureEntry::own("switch_transformers", "Switch Transformers", &[Generation], |path, text, _| {
        T5Config::from_json(T5Family::Switch, path, text).map(ModelConfig::T5)
    })
    .untrained(),
    ArchitectureEntry::own("bart", "BART", &[Generation, Classification], |path, text, class| {
        if class == Some(BART_CLASSIFIER) {
            return BartClassifierConfig::from_json(path, text).map(ModelConfig::BartClassifier);
        }
        read_bart(BartFamily::Bart, path, text)
    }),
    ArchitectureEntry::own("mbart", "mBART", &[Generation], |path, text, _| {
        read_bart(BartFamily::Mbart, path, text)
    }),
    ArchitectureEntry::own("pegasus", "Pegasus", &[Generation], |path, text, _| {
        read_bart(BartFamily::Pegasus, path, text)
    }),
    ArchitectureEntry::own("marian", "Marian (Opus-MT)", &[Generation], |path, text, _| {
        read_bart(BartFamily::Marian, path, text)
    })
    .untrained(),
    ArchitectureEntry::own("m2m_100", "M2M100, NLLB", &[Generation], |path, text, _| {
        read_bart(BartFamily::M2m100, path, text)
    }),
    ArchitectureEntry::own("blenderbot", "Blenderbot", &[Generation], |path, text, _| {
        read_bart(BartFamily::Blenderbot, path, text)
    }),
    ArchitectureEntry::own("blenderbot-small", "Blenderbot (90 million)", &[Generation], |path, text, _| {
        read_bart(BartFamily::BlenderbotSmall, path, text)
    }),
    ArchitectureEntry::own("plbart", "PLBART", &[Generation], |path, text, _| {
        read_bart(BartFamily::PlBart, path, text)
    }),
    ArchitectureEntry::own("mvp", "MVP", &[Generation], |path, text, _| {
        read_bart(BartFamily::Mvp, path, text)
    }),
    ArchitectureEntry::own("bigbird_pegasus", "BigBird-Pegasus", &[Generation], |path, text, _| {
        read_bart(BartFamily::BigBirdPegasus, path, text)
    }),
    ArchitectureEntry::own("led", "LED", &[Generation], |path, text, _| {
        read_bart(BartFamily::Led, path, text)
    }),
    ArchitectureEntry::own(
        static_embedding::MODEL_TYPE,
        "Static embeddings (model2vec, `StaticEmbedding`)",
        &[Embedding],
        |path, text, _| parse(path, text).map(ModelConfig::StaticEmbedding),
    )
    .unpacked()
    .untrained(),
    ArchitectureEntry::own("bert", "BERT, JinaBERT", ENCODER, |path, text, _| {
        read_bert(BertFamily::Bert, path, text)
    }),
    ArchitectureEntry::own("roberta", "RoBERTa", ENCODER, |path, text, _| {
        read_bert(BertFamily::Roberta, path, text)
    }),
    ArchitectureEntry::own("xlm-roberta", "XLM-RoBERTa, also Jina's", ENCODER, |path, text, _| {
        read_bert(BertFamily::XlmRoberta, path, text)
    }),
    ArchitectureEntry::own("camembert", "CamemBERT", ENCODER, |path, text, _| {
        read_bert(BertFamily::Camembert, path, text)
    }),
    ArchitectureEntry::own("distilbert", "DistilBERT", ENCODER, |path, text, _| {
        read_bert(BertFamily::DistilBert, path, text)
    }),
    ArchitectureEntry::own("dpr", "DPR", &[Embedding, Reading], |path, text, _| {
        read_bert(BertFamily::Dpr, path, text)
    }),
    ArchitectureEntry::own("mpnet", "MPNet", ENCODER, |path, text, _| {
        read_bert(BertFamily::Mpnet, path, text)
    }),
    ArchitectureEntry::own("electra", "ELECTRA", ENCODER, |path, text, _| {
        read_bert(BertFamily::Electra, path, text)
    }),
    ArchitectureEntry::own("albert", "ALBERT", ENCODER, |path, text, _| {
        read_bert(BertFamily::Albert, path, text)
    }),
    ArchitectureEntry::own("deberta-v2", "DeBERTa (v2, v3)", ENCODER, |path, text, _| {
        read_bert(BertFamily::Deberta, path, text)
    }),
    ArchitectureEntry::own("deberta", "DeBERTa (v1)", ENCODER, |path, text, _| {
        read_bert(BertFamily::FirstDeberta, path, text)
    }),
    ArchitectureEntry::own("big_bird", "BigBird", ENCODER_WITHOUT_SPANS, |path, text, _| {
        read_bert(BertFamily::BigBird, path, text)
    }),
    ArchitectureEntry::own("longformer", "Longformer", ENCODER_WITHOUT_SPANS, |path, text, _| {
        read_bert(BertFamily::Longformer, path, text)
    }),
    ArchitectureEntry::own("mobilebert", "MobileBERT", ENCODER, |path, text, _| {
        read_bert(BertFamily::MobileBert, path, text)
    })
    .unpacked()
    .untrained(),
    ArchitectureEntry::own("convbert", "ConvBERT", ENCODER, |path, text, _| {
        read_bert(BertFamily::ConvBert, path, text)
    })
    .unpacked()
    .untrained(),
    ArchitectureEntry::own("nystromformer", "Nyströmformer", ENCODER, |path, text, _| {
        read_bert(BertFamily::Nystromformer, path, text)
    })
    .unpacked()
    .untrained(),
    ArchitectureEntry::own("fnet", "FNet", ENCODER, |path, text, _| read_bert(BertFamily::Fnet, path, text))
        .unpacked()
        .untrained(),
    ArchitectureEntry::own("xlnet", "XLNet", ENCODER, |path, text, _| {
        read_bert(BertFamily::Xlnet, path, text)
    })
    .unpacked()
    .untrained(),
    ArchitectureEntry::own("squeezebert", "SqueezeBERT", ENCODER, |path, text, _| {
        read_bert(BertFamily::SqueezeBert, path, text)
    })
    .untrained(),
    ArchitectureEntry::own("ibert", "I-BERT", ENCODER, |path, text, _| {
        read_bert(BertFamily::IBert, path, text)
    }),
    ArchitectureEntry::own("luke", "LUKE without entities", ENCODER, |path, text, _| {
        read_bert(BertFamily::Luke, path, text)
    }),
    ArchitectureEntry::own("xmod", "X-MOD", ENCODER, |path, text, _| read_bert(BertFamily::Xmod, path, text)),
    ArchitectureEntry::own("ernie", "ERNIE", ENCODER, |path, text, _| {
        read_bert(BertFamily::Ernie, path, text)
    }),
    ArchitectureEntry::own("data2vec-text", "data2vec (text)", ENCODER, |path, text, _| {
        read_bert(BertFamily::Data2VecText, path, text)
    }),
    ArchitectureEntry::own("roberta-prelayernorm", "RoBERTa-PreLayerNorm", ENCODER, |path, text, _| {
        read_bert(BertFamily::RobertaPreLayerNorm, path, text)
    }),
    ArchitectureEntry::own("xlm-roberta-xl", "XLM-RoBERTa XL", ENCODER, |path, text, _| {
        read_bert(BertFamily::XlmRobertaXl, path, text)
    }),
    ArchitectureEntry::own("megatron-bert", "Megatron-BERT", ENCODER, |path, text, _| {
        read_bert(BertFamily::MegatronBert, path, text)
    }),
    ArchitectureEntry::own("rembert", "RemBERT", ENCODER, |path, text, _| {
        read_bert(BertFamily::RemBert, path, text)
    }),
    ArchitectureEntry::own("roformer", "RoFormer", ENCODER, |path, text, _| {
        read_bert(BertFamily::RoFormer, path, text)
    }),
    ArchitectureEntry::own("nomic_bert", "NomicBERT", ENCODER_WITHOUT_SPANS, |path, text, _| {
        read_bert(BertFamily::NomicBert, path, text)
    }),
    ArchitectureEntry::own("gte", "GTE", ENCODER_WITHOUT_SPANS, |path, text, _| {
        read_bert(BertFamily::Gte, path, text)
    }),
    ArchitectureEntry::own("new", "GTE by its own code", ENCODER_WITHOUT_SPANS, |path, text, _| {
        read_bert(BertFamily::New, path, text)
    }),
    ArchitectureEntry::own("jina_embeddings_v3", "Jina embeddings v3", ENCODER, |path, text, _| {
        read_bert(BertFamily::JinaEmbeddingsV3, path, text)
    }),
    ArchitectureEntry::own("modernbert", "ModernBERT", ENCODER, |path, text, _| {
        ModernBertConfig::from_json(path, text).map(ModelConfig::ModernBert)
    }),
    ArchitectureEntry::own("gpt2", "GPT-2", DECODER, |path, text, _| {
        Gpt2Config::from_json(path, text).map(ModelConfig::Gpt2)
    })
    .unpacked(),
    ArchitectureEntry::own("openai-gpt", "GPT (the first)", DECODER, |path, text, _| {
        Gpt2Config::of_first(path, text).map(ModelConfig::Gpt2)
    })
    .unpacked(),
    decoder!(Llama, "LLaMA (1 to 3)", DECODER).or_candle(candle::load_llama),
    decoder!(Mistral, "Mistral", DECODER).or_candle(candle::load_mistral),
    decoder!(Qwen2, "Qwen 2, 2.5", DECODER).or_candle(candle::load_qwen2),
    decoder!(Qwen3, "Qwen 3", DECODER).or_candle(candle::load_qwen3),
    decoder!(Gemma2, "Gemma 2", DECODER).or_candle(candle::load_gemma2),
    text_part!(GEMMA_3, "gemma3", "Gemma 3 with images, its text part", DECODER),
    text_part!(GEMMA_3N, "gemma3n", "Gemma 3n with images and audio, its text part", WORDS).untrained(),
    text_part!(GEMMA_4, "gemma4", "Gemma 4 with images and audio, its text part", WORDS),
    text_part!(MISTRAL_3, "mistral3", "Mistral 3 with images, its text part", DECODER),
    decoder!(Gemma3, "Gemma 3 for text", DECODER).or_candle(candle::load_gemma3),
    decoder!(Gemma3n, "Gemma 3n for text", WORDS).untrained(),
    decoder!(Gemma4, "Gemma 4 for text", WORDS),
    decoder!(SmolLm3, "SmolLM 3", DECODER),
    decoder!(Phi3, "Phi 3", DECODER).or_candle(candle::load_phi3),
    decoder!(Olmo2, "OLMo 2", DECODER).or_candle(candle::load_olmo2),
    decoder!(Granite, "Granite", DECODER).or_candle(candle::load_granite),
    decoder!(Cohere, "Cohere (Command R, R+)", WORDS),
    decoder!(Gemma, "Gemma 1", DECODER).or_candle(candle::load_gemma),
    decoder!(GptNeox, "GPT-NeoX, Pythia", DECODER),
    decoder!(Olmo, "OLMo 1", DECODER).or_candle(candle::load_olmo),
    decoder!(Opt, "OPT", DECODER),
    decoder!(Phi, "Phi 1, 1.5, 2", DECODER).or_candle(candle::load_phi),
    decoder!(StableLm, "StableLM", DECODER).or_candle(candle::load_stable_lm),
    decoder!(Starcoder2, "StarCoder 2", DECODER).or_candle(candle::load_starcoder2),
    decoder!(Arcee, "Arcee (AFM)", DECODER),
    decoder!(Bloom, "BLOOM", DECODER),
    decoder!(CodeGen, "CodeGen", WORDS),
    decoder!(Cohere2, "Cohere 2 (Command R7B, A)", WORDS),
    decoder!(Ernie45, "ERNIE 4.5 without experts", WORDS),
    decoder!(EuroBert, "EuroBERT", ENCODER_WITHOUT_SPANS),
    decoder!(UltraBert, "UltraBERT", ENCODER_WITHOUT_SPANS),
    decoder!(Exaone4, "EXAONE 4", DECODER),
    decoder!(Falcon, "Falcon", DECODER).or_candle(candle::load_falcon),
    decoder!(Glm, "GLM-4 of 2024", DECODER),
    decoder!(Glm4, "GLM-4 of 2025", DECODER).or_candle(candle::load_glm4),
    decoder!(GptBigCode, "GPT-BigCode, StarCoder 1", DECODER).or_candle(candle::load_bigcode),
    decoder!(GptJ, "GPT-J", DECODER),
    decoder!(GptNeo, "GPT-Neo", DECODER),
    decoder!(Helium, "Helium", DECODER).or_candle(candle::load_helium),
    decoder!(HunYuan, "Hunyuan without experts", DECODER),
    decoder!(Ministral, "Ministral", DECODER),
    decoder!(Mixtral, "Mixtral", DECODER).or_candle(candle::load_mixtral),
    decoder!(Mpt, "MPT", DECODER),
    decoder!(Nemotron, "Nemotron 3 and 4", DECODER),
    decoder!(Olmo3, "OLMo 3", DECODER),
    decoder!(Olmoe, "OLMoE", WORDS),
    decoder!(Qwen2Moe, "Qwen 2 MoE", DECODER).or_candle(candle::load_qwen2_moe),
    decoder!(Qwen3Moe, "Qwen 3 MoE", DECODER).or_candle(candle::load_qwen3_moe),
    decoder!(SeedOss, "Seed-OSS", DECODER),
    decoder!(Apertus, "Apertus", WORDS),
    decoder!(BioGpt, "BioGPT", DECODER),
    decoder!(DeepSeekV2, "DeepSeek V2", DECODER).or_candle(candle::load_deepseek2),
    decoder!(DeepSeekV3, "DeepSeek V3, R1", DECODER),
    decoder!(Dots1, "dots.llm1", WORDS),
    decoder!(Ernie45Moe, "ERNIE 4.5", WORDS),
    decoder!(Glm4Moe, "GLM-4.5, 4.6", WORDS),
    decoder!(GptOss, "gpt-oss", DECODER),
    decoder!(GraniteMoe, "Granite 3 MoE", WORDS),
    decoder!(GraniteMoeShared, "Granite 3 MoE with a shared part", WORDS),
    decoder!(MiniCpm3, "MiniCPM 3", DECODER),
    decoder!(Ministral3, "Ministral 3", DECODER),
    decoder!(Persimmon, "Persimmon", DECODER),
    decoder!(PhiMoe, "Phi 3.5 MoE", DECODER).untrained(),
    decoder!(Xglm, "XGLM", WORDS),
    decoder!(Cwm, "CWM", WORDS),
    decoder!(FlexOlmo, "FlexOlmo", WORDS),
    decoder!(GraniteSwa, "Granite with sliding windows", WORDS),
    decoder!(HunYuanMoe, "Hunyuan", DECODER),
    decoder!(HyperClovaX, "HyperCLOVA X", WORDS),
    decoder!(InternLm3, "InternLM 3", WORDS),
    decoder!(Jais2, "Jais 2", WORDS),
    decoder!(MiniMaxM2, "MiniMax M2", WORDS),
    decoder!(Mistral4, "Mistral 4", DECODER),
    decoder!(NanoChat, "nanochat", WORDS),
    decoder!(SolarOpen, "Solar Open", WORDS),
    decoder!(VaultGemma, "VaultGemma", WORDS),
    decoder!(Bamba, "Bamba", WORDS),
    decoder!(FalconH1, "Falcon-H1", WORDS),
    decoder!(GraniteHybrid, "Granite 4", WORDS),
    decoder!(Lfm2, "LFM2", WORDS),
    decoder!(Lfm2Moe, "LFM2 MoE", WORDS),
    decoder!(Qwen35, "Qwen 3.5 for text", DECODER),
    text_part!(QWEN_3_5, "qwen3_5", "Qwen 3.5 with images, its text part", DECODER),
    decoder!(Qwen35Moe, "Qwen 3.5 MoE for text", WORDS),
    text_part!(QWEN_3_5_MOE, "qwen3_5_moe", "Qwen 3.5 MoE with images, its text part", WORDS),
    decoder!(Qwen3Next, "Qwen3-Next", DECODER),
    text_part!(QWEN_2_VL, "qwen2_vl", "Qwen 2 VL, its text part", WORDS),
    text_part!(QWEN_2_5_VL, "qwen2_5_vl", "Qwen 2.5 VL, its text part", WORDS),
    text_part!(QWEN_3_VL, "qwen3_vl", "Qwen 3 VL, its text part", WORDS),
    ArchitectureEntry::candle("mamba", "Mamba", recurrent::load_mamba),
    ArchitectureEntry::candle("mamba2", "Mamba 2", recurrent::load_mamba2),
    ArchitectureEntry::candle("recurrent_gemma", "RecurrentGemma", recurrent::load_recurrent_gemma),
];

fn read_t5(family: T5Family, path: &Path, text: &str, class: Option<&str>) -> Result<ModelConfig> {
    if class == Some(family.encoder_class()) {
        return T5EncoderConfig::from_json(family, path, text).map(ModelConfig::T5Encoder);
    }
    T5Config::from_json(family, path, text).map(ModelConfig::T5)
}

fn read_bart(family: BartFamily, path: &Path, text: &str) -> Result<ModelConfig> {
    BartConfig::from_json(family, path, text).map(ModelConfig::Bart)
}

fn read_bert(family: BertFamily, path: &Path, text: &str) -> Result<ModelConfig> {
    BertConfig::from_json(family, path, text).map(ModelConfig::Bert)
}

fn read_llama(kind: LlamaKind, path: &Path, text: &str) -> Result<ModelConfig> {
    LlamaConfig::from_json(kind, path, text).map(ModelConfig::Llama)
}

/// The architecture of this `model_type`.
pub(crate) fn entry(model_type: &str) -> Option<&'static ArchitectureEntry> {
    ARCHITECTURES.iter().find(|entry| entry.model_type == model_type)
}

/// Whether the engine `candle` has the architecture of folders with this `model_type`.
pub(crate) fn is_candle_type(model_type: &str) -> bool {
    entry(model_type).is_some_and(|entry| entry.candle.is_some())
}

/// The `model_type`s that `has` holds for, in the order of the list.
fn names(has: impl Fn(&ArchitectureEntry) -> bool) -> Vec<&'static str> {
    ARCHITECTURES.iter().filter(|entry| has(entry)).map(|entry| entry.model_type).collect()
}

/// Names in backquotes, for errors.
fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The `model_type`s of the engine `candle`, for errors.
pub(crate) fn candle_names() -> String {
    let mut names = names(|entry| entry.candle.is_some());
    names.sort_unstable();
    quoted(&names)
}

/// The `model_type`s that this engine alone has, for errors.
pub(crate) fn candle_only_names() -> String {
    quoted(&names(|entry| entry.own.is_none()))
}

/// Reads the text of a `config.json` of an architecture that is defined here; `path` names it in errors. Values are not
/// checked.
///
/// # Errors
/// [`Error::Json`] where a field has the wrong type, and [`Error::Config`] for another architecture, with those that there
/// are.
pub(crate) fn read_config(path: &Path, text: &str) -> Result<ModelConfig> {
    let kind: ModelKind = parse(path, text)?;
    let class = kind.architectures.as_deref().unwrap_or_default().first().map(String::as_str);
    let found = kind.model_type.as_deref();
    if let Some(own) = found.and_then(entry).and_then(|entry| entry.own) {
        return (own.read)(path, text, class);
    }
    let (expected, found) = match found {
        Some("rag") => ("a model of one part".into(), "`rag`, whose parts are opened one by one".into()),
        found => {
            let known = quoted(&names(|entry| entry.own.is_some()));
            (format!("one of {known}"), found.map_or_else(|| "none".into(), |found| format!("`{found}`")))
        }
    };
    Err(Error::Config { path: path.into(), field: "model_type".into(), expected, found })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use super::{ARCHITECTURES, entry, is_candle_type, read_config};

    #[test]
    fn each_model_type_is_listed_once_and_read_as_itself() {
        let names: BTreeSet<&str> = ARCHITECTURES.iter().map(|entry| entry.model_type).collect();
        assert_eq!(names.len(), ARCHITECTURES.len());
        for entry in ARCHITECTURES.iter().filter(|entry| entry.own.is_some()) {
            let name = entry.model_type;
            // DPR has no model without a head.
            let classes = if name == "dpr" { r#"["DPRReader"]"# } else { "[]" };
            let text =
                format!(r#"{{"model_type": "{name}", "text_config": {{}}, "architectures": {classes}}}"#);
            let config = read_config(Path::new("config.json"), &text).unwrap();
            let expected = match name {
                "gemma3" => "gemma3_text",
                "gemma3n" => "gemma3n_text",
                "gemma4" => "gemma4_text",
                "mistral3" => "mistral",
                "qwen2_vl" | "qwen2_5_vl" => "qwen2",
                "qwen3_5" => "qwen3_5_text",
                "qwen3_5_moe" => "qwen3_5_moe_text",
                "qwen3_vl" => "qwen3",
                name => name,
            };
            assert_eq!(config.model_type(), expected);
        }
    }

    #[test]
    fn an_unknown_model_type_is_answered_with_those_that_there_are() {
        let read = |text: &str| read_config(Path::new("config.json"), text).unwrap_err().to_string();
        let error = read(r#"{"model_type": "rwkv"}"#);
        assert!(
            error.starts_with(
                "config.json: field `model_type`: found `rwkv`, which is not supported; expected one of `t5`, `mt5`, "
            ),
            "{error}"
        );
        for name in ["funnel", "flaubert"] {
            let error = read(&format!(r#"{{"model_type": "{name}"}}"#));
            assert!(
                error.contains("`big_bird`") && error.contains(&format!(": found `{name}`, ")),
                "{error}"
            );
        }
        assert!(read("{}").contains(": found none, "));
        assert!(read(r#"{"model_type": "rag"}"#).contains("opened one by one"));
        // Only the other engine has it.
        assert!(read(r#"{"model_type": "mamba"}"#).contains(": found `mamba`, "));
        assert!(is_candle_type("mamba") && is_candle_type("llama") && !is_candle_type("t5"));
    }

    #[test]
    fn engines_and_precisions_follow_from_the_entry() {
        let of = |name: &str| {
            let entry = entry(name).unwrap();
            (entry.engines(), entry.cpu_precisions(), entry.is_trained())
        };
        assert_eq!(of("llama"), (vec!["packed", "candle"], &["f32", "int8"][..], true));
        assert_eq!(of("gpt2"), (vec!["packed"], &["f32"][..], true));
        assert_eq!(of("modernbert"), (vec!["packed"], &["f32", "int8"][..], true));
        assert_eq!(of("marian"), (vec!["packed"], &["f32", "int8"][..], false));
        assert_eq!(of("mamba"), (vec!["candle"], &["f32"][..], false));
    }
}
