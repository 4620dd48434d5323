//! The fields of the `config.json` of BERT and its kin, by their names there.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sporran_checkpoint::{Result, json::parse};

use super::{
    adapter::{AdapterNorm, LanguageAdapters},
    config::{AttentionBlocks, BertConfig, BertTask, FamilySettings, LayerGroups, LayerSharing},
    convbert::ConvSizes,
    disentangled::DebertaFields,
    family::BertFamily,
    mobile::MobileSizes,
    model::MPNET_BUCKETS,
    own_code::GATED,
    rotary::RotaryFields,
};
use crate::architectures::{
    bart::{deserialize_windows, serialize_windows},
    wrong::wrong,
};

/// DistilBERT's normalisation; no config field sets it.
const DISTIL_EPSILON: f64 = 1e-12;

/// The fields of all families but DistilBERT.
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct BertFields {
    vocab_size: Option<usize>,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    hidden_act: String,
    hidden_dropout_prob: f64,
    attention_probs_dropout_prob: f64,
    classifier_dropout: Option<f64>,
    max_position_embeddings: usize,
    type_vocab_size: usize,
    initializer_range: f64,
    layer_norm_eps: f64,
    pad_token_id: Option<i64>,
    position_embedding_type: String,
    is_decoder: bool,
    add_cross_attention: bool,
    projection_dim: usize,
    tie_word_embeddings: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    embedding_size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_embedding_size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_embedding_size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    use_task_id: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_type_vocab_size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    classifier_dropout_prob: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_hidden_groups: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inner_group_num: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rotary_value: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    relative_attention_num_buckets: Option<usize>,
    /// Of BigBird.
    #[serde(skip_serializing_if = "Option::is_none")]
    attention_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_random_blocks: Option<usize>,
    /// Of Longformer.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "deserialize_windows",
        serialize_with = "serialize_windows"
    )]
    attention_window: Option<Vec<usize>>,
    /// Of ConvBERT.
    #[serde(skip_serializing_if = "Option::is_none")]
    head_ratio: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conv_kernel_size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_groups: Option<usize>,
    /// Of Nyströmformer.
    #[serde(skip_serializing_if = "Option::is_none")]
    num_landmarks: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    segment_means_seq_len: Option<usize>,
    /// Of FNet.
    #[serde(skip_serializing_if = "Option::is_none")]
    use_tpu_fourier_optimizations: Option<bool>,
    /// Of MobileBERT.
    #[serde(skip_serializing_if = "Option::is_none")]
    trigram_input: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    use_bottleneck: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    intra_bottleneck_size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    use_bottleneck_attention: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_query_shared_bottleneck: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_feedforward_networks: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    normalization_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    classifier_activation: Option<bool>,
    /// Of SqueezeBERT.
    #[serde(skip_serializing_if = "Option::is_none")]
    q_groups: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    k_groups: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    v_groups: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    post_attention_groups: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    intermediate_groups: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_groups: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    use_bias: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rescale_embeddings: Option<bool>,
    /// Of I-BERT.
    #[serde(skip_serializing_if = "Option::is_none")]
    quant_mode: Option<bool>,
    /// Of X-MOD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pre_norm: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    adapter_reduction_factor: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    adapter_layer_norm: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    adapter_reuse_layer_norm: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ln_before_adapter: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    languages: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_language: Option<String>,
    /// Only of models of Jina's own code.
    #[serde(skip_serializing_if = "Option::is_none")]
    use_flash_attn: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    feed_forward_type: Option<String>,
    /// DeBERTa's, which are among the others in the file.
    #[serde(skip)]
    deberta: Option<DebertaFields>,
    /// Those of rotary positions, likewise.
    #[serde(skip)]
    rotary: Option<RotaryFields>,
}

impl Default for BertFields {
    fn default() -> Self {
        Self {
            vocab_size: None,
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            hidden_act: "gelu".into(),
            hidden_dropout_prob: 0.1,
            attention_probs_dropout_prob: 0.1,
            classifier_dropout: None,
            max_position_embeddings: 512,
            type_vocab_size: 2,
            initializer_range: 0.02,
            layer_norm_eps: 1e-12,
            pad_token_id: None,
            position_embedding_type: "absolute".into(),
            is_decoder: false,
            add_cross_attention: false,
            projection_dim: 0,
            tie_word_embeddings: true,
            embedding_size: None,
            input_embedding_size: None,
            output_embedding_size: None,
            use_task_id: None,
            task_type_vocab_size: None,
            classifier_dropout_prob: None,
            num_hidden_groups: None,
            inner_group_num: None,
            rotary_value: None,
            relative_attention_num_buckets: None,
            attention_type: None,
            block_size: None,
            num_random_blocks: None,
            attention_window: None,
            head_ratio: None,
            conv_kernel_size: None,
            num_groups: None,
            num_landmarks: None,
            segment_means_seq_len: None,
            use_tpu_fourier_optimizations: None,
            trigram_input: None,
            use_bottleneck: None,
            intra_bottleneck_size: None,
            use_bottleneck_attention: None,
            key_query_shared_bottleneck: None,
            num_feedforward_networks: None,
            normalization_type: None,
            classifier_activation: None,
            q_groups: None,
            k_groups: None,
            v_groups: None,
            post_attention_groups: None,
            intermediate_groups: None,
            output_groups: None,
            use_bias: None,
            rescale_embeddings: None,
            quant_mode: None,
            pre_norm: None,
            adapter_reduction_factor: None,
            adapter_layer_norm: None,
            adapter_reuse_layer_norm: None,
            ln_before_adapter: None,
            languages: None,
            default_language: None,
            use_flash_attn: None,
            feed_forward_type: None,
            deberta: None,
            rotary: None,
        }
    }
}

/// The attention of BigBird in blocks.
const BLOCKS: &str = "block_sparse";

/// The defaults of `transformers` that differ from BERT's.
fn defaults(family: BertFamily) -> Option<Value> {
    match family {
        BertFamily::Electra => Some(json!({
            "embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024,
        })),
        BertFamily::Albert => Some(json!({
            "embedding_size": 128, "hidden_size": 4096, "num_attention_heads": 64, "intermediate_size": 16384,
            "num_hidden_groups": 1, "inner_group_num": 1, "hidden_act": "gelu_new", "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0, "classifier_dropout_prob": 0.1,
        })),
        BertFamily::Deberta => Some(json!({
            "hidden_size": 1536, "num_hidden_layers": 24, "num_attention_heads": 24, "intermediate_size": 6144,
            "type_vocab_size": 0, "layer_norm_eps": 1e-7,
        })),
        BertFamily::FirstDeberta => Some(json!({ "type_vocab_size": 0, "layer_norm_eps": 1e-7 })),
        BertFamily::BigBird => Some(json!({
            "hidden_act": "gelu_new", "max_position_embeddings": 4096, "attention_type": BLOCKS, "block_size": 64,
            "num_random_blocks": 3,
        })),
        BertFamily::MobileBert => Some(json!({
            "embedding_size": 128, "hidden_size": 512, "num_hidden_layers": 24, "num_attention_heads": 4,
            "intermediate_size": 512, "hidden_act": "relu", "hidden_dropout_prob": 0.0,
        })),
        BertFamily::ConvBert => Some(json!({ "embedding_size": 768 })),
        BertFamily::Nystromformer => Some(json!({
            "hidden_act": "gelu_new", "max_position_embeddings": 510, "layer_norm_eps": 1e-5, "num_landmarks": 64,
            "segment_means_seq_len": 64, "conv_kernel_size": 65,
        })),
        // Nothing attends.
        BertFamily::Fnet => {
            Some(json!({ "num_attention_heads": 1, "hidden_act": "gelu_new", "type_vocab_size": 4 }))
        }
        BertFamily::Longformer => Some(json!({ "attention_window": 512 })),
        BertFamily::XlmRobertaXl => Some(json!({
            "hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32, "intermediate_size": 10240,
            "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
        })),
        BertFamily::MegatronBert => Some(json!({
            "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
        })),
        BertFamily::RoFormer => Some(json!({ "max_position_embeddings": 1536 })),
        BertFamily::NomicBert => Some(json!({
            "hidden_act": "silu", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
            "max_position_embeddings": 2048,
        })),
        BertFamily::Gte => Some(json!({
            "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 8192, "type_vocab_size": 1,
        })),
        BertFamily::New => Some(json!({
            "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 2048, "type_vocab_size": 1,
            "position_embedding_type": "rope",
        })),
        BertFamily::JinaEmbeddingsV3 => Some(json!({
            "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
            "max_position_embeddings": 8194, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
        })),
        BertFamily::RemBert => Some(json!({
            "input_embedding_size": 256, "output_embedding_size": 1664, "hidden_size": 1152,
            "num_hidden_layers": 32, "num_attention_heads": 18, "intermediate_size": 4608,
            "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout_prob": 0.1,
            "tie_word_embeddings": false,
        })),
        _ => None,
    }
}

impl BertFields {
    /// The fields of a `config.json`, with the defaults of its family.
    pub(crate) fn read(family: BertFamily, path: &Path, text: &str) -> Result<Self> {
        let Some(Value::Object(defaults)) = defaults(family) else { return parse(path, text) };
        let mut fields: Map<String, Value> = parse(path, text)?;
        for (name, value) in defaults {
            fields.entry(name).or_insert(value);
        }
        let text = Value::Object(fields).to_string();
        let deberta = family.reads_distances().then(|| parse(path, &text)).transpose()?;
        let rotary = family.is_rotary().then(|| parse(path, &text)).transpose()?;
        Ok(Self { deberta, rotary, ..parse(path, &text)? })
    }

    pub(crate) fn supported(&self, family: BertFamily, task: BertTask) -> Result<()> {
        if let (BertFamily::Mpnet, Some(buckets)) = (family, self.relative_attention_num_buckets)
            && buckets != MPNET_BUCKETS
        {
            let expected = MPNET_BUCKETS.to_string();
            return Err(wrong("relative_attention_num_buckets", &expected, &buckets.to_string()));
        }
        if let Some(deberta) = self.deberta.as_ref().filter(|deberta| !deberta.legacy)
            && task == BertTask::MaskedLm
        {
            let expected = "true: the other head for masked tokens is not supported";
            return Err(wrong("legacy", expected, &deberta.legacy.to_string()));
        }
        // RoBERTa counts positions from after the padding token.
        if family.counts_from_padding()
            && let Some(id) = self.pad_token_id.filter(|id| *id < 0)
        {
            return Err(wrong(
                "pad_token_id",
                "a token's id, from which positions are counted",
                &id.to_string(),
            ));
        }
        // `transformers` does not read it where positions are rotary.
        if self.position_embedding_type != "absolute" && !family.is_rotary() && family != BertFamily::JinaBert
        {
            return Err(wrong("position_embedding_type", "absolute", &self.position_embedding_type));
        }
        if family == BertFamily::MobileBert {
            for (field, value, only) in [
                ("trigram_input", self.trigram_input, true),
                ("use_bottleneck", self.use_bottleneck, true),
                ("use_bottleneck_attention", self.use_bottleneck_attention, false),
                ("key_query_shared_bottleneck", self.key_query_shared_bottleneck, true),
            ] {
                if let Some(found) = value.filter(|found| *found != only) {
                    return Err(wrong(field, &only.to_string(), &found.to_string()));
                }
            }
            if let Some(kind) = self.normalization_type.as_deref().filter(|kind| *kind != "no_norm") {
                return Err(wrong("normalization_type", "`no_norm`", &format!("`{kind}`")));
            }
        }
        if family == BertFamily::Nystromformer && self.num_landmarks != self.segment_means_seq_len {
            let expected = "segment_means_seq_len, which is complete attention";
            return Err(wrong("num_landmarks", expected, &self.num_landmarks.unwrap_or(64).to_string()));
        }
        if family == BertFamily::SqueezeBert
            && let Some(size) = self.embedding_size.filter(|size| *size != self.hidden_size)
        {
            let expected = format!("hidden_size, {}", self.hidden_size);
            return Err(wrong("embedding_size", &expected, &size.to_string()));
        }
        // It has no other.
        if family == BertFamily::IBert && self.hidden_act != "gelu" {
            return Err(wrong("hidden_act", "`gelu`", &format!("`{}`", self.hidden_act)));
        }
        if family == BertFamily::BigBird {
            if let Some(kind) =
                self.attention_type.as_deref().filter(|kind| ![BLOCKS, "original_full"].contains(kind))
            {
                return Err(wrong(
                    "attention_type",
                    "`block_sparse` or `original_full`",
                    &format!("`{kind}`"),
                ));
            }
            if self.use_bias == Some(false) {
                return Err(wrong("use_bias", "true", "false"));
            }
        }
        for (field, set) in [
            ("is_decoder", self.is_decoder),
            ("add_cross_attention", self.add_cross_attention),
            // Values are turned too.
            ("rotary_value", self.rotary_value == Some(true) && family == BertFamily::RoFormer),
            (
                "use_tpu_fourier_optimizations",
                self.use_tpu_fourier_optimizations == Some(true) && family == BertFamily::Fnet,
            ),
            ("quant_mode", self.quant_mode == Some(true) && family == BertFamily::IBert),
            ("rescale_embeddings", self.rescale_embeddings == Some(true) && family == BertFamily::BigBird),
        ] {
            if set {
                return Err(wrong(field, "false", "true"));
            }
        }
        Ok(())
    }

    /// X-MOD's adapters of its default language, or of the only one.
    fn adapters(&self) -> Result<LanguageAdapters> {
        const FIELD: &str = "default_language";
        let english = ["en_XX".into()];
        let all = self.languages.as_deref().unwrap_or(&english);
        let known = || format!("one of languages, {}", all.join(", "));
        let language = match (&self.default_language, all) {
            (Some(own), _) if all.contains(own) => own,
            (Some(other), _) => return Err(wrong(FIELD, &known(), &format!("`{other}`"))),
            (None, [only]) => only,
            (None, _) => return Err(wrong(FIELD, &known(), "none")),
        };
        Ok(LanguageAdapters {
            language: language.clone(),
            reduction: self.adapter_reduction_factor.unwrap_or(2),
            norm: match (self.adapter_layer_norm, self.adapter_reuse_layer_norm) {
                (Some(true), _) => AdapterNorm::Own,
                (_, Some(false)) => AdapterNorm::None,
                _ => AdapterNorm::Shared,
            },
            adds_to_normed: self.ln_before_adapter.unwrap_or(true),
            norms_first: self.pre_norm.unwrap_or(false),
        })
    }

    /// What the family alone has.
    fn own(&self, family: BertFamily) -> Result<FamilySettings> {
        let or = |value: Option<usize>, usual| value.unwrap_or(usual);
        Ok(match family {
            BertFamily::Albert => FamilySettings::Sharing(LayerSharing {
                groups: or(self.num_hidden_groups, 1),
                inner: or(self.inner_group_num, 1),
            }),
            BertFamily::BigBird if self.attention_type.as_deref() == Some(BLOCKS) => {
                FamilySettings::Blocks(AttentionBlocks {
                    size: or(self.block_size, 64),
                    random: or(self.num_random_blocks, 3),
                })
            }
            BertFamily::Longformer => {
                FamilySettings::Windows(self.attention_window.clone().unwrap_or_default())
            }
            BertFamily::MobileBert => FamilySettings::Mobile(MobileSizes {
                narrow: or(self.intra_bottleneck_size, 128),
                parts: or(self.num_feedforward_networks, 4),
                has_pooler: self.classifier_activation.unwrap_or(true),
            }),
            BertFamily::ConvBert => FamilySettings::Convolution(ConvSizes {
                ratio: or(self.head_ratio, 2),
                kernel: or(self.conv_kernel_size, 9),
                groups: or(self.num_groups, 1),
            }),
            BertFamily::Nystromformer => {
                let kernel = or(self.conv_kernel_size, 65);
                FamilySettings::Convolution(ConvSizes { ratio: 1, kernel, groups: 1 })
            }
            BertFamily::SqueezeBert => FamilySettings::Groups(LayerGroups {
                inputs: [or(self.q_groups, 4), or(self.k_groups, 4), or(self.v_groups, 4)],
                output: or(self.post_attention_groups, 1),
                feed_forward: [or(self.intermediate_groups, 4), or(self.output_groups, 4)],
            }),
            BertFamily::Xmod => FamilySettings::Adapters(self.adapters()?),
            BertFamily::RemBert => {
                FamilySettings::OutputEmbedding(self.output_embedding_size.unwrap_or_default())
            }
            BertFamily::Ernie if self.use_task_id == Some(true) => {
                FamilySettings::Tasks(or(self.task_type_vocab_size, 3))
            }
            _ => match (&self.deberta, &self.rotary) {
                (Some(deberta), _) => {
                    let sizes = (self.hidden_size, self.num_attention_heads, self.max_position_embeddings);
                    FamilySettings::Disentangled(deberta.settings(family, sizes)?)
                }
                (None, Some(rotary)) => {
                    let width = self.hidden_size.checked_div(self.num_attention_heads).unwrap_or(0);
                    FamilySettings::Rotary(rotary.settings(family, width)?)
                }
                (None, None) => FamilySettings::None,
            },
        })
    }

    pub(crate) fn config(
        self,
        family: BertFamily,
        task: BertTask,
        labels: Vec<String>,
    ) -> Result<BertConfig> {
        let (vocabulary, pad) = match family {
            BertFamily::Roberta
            | BertFamily::XlmRoberta
            | BertFamily::JinaXlmRoberta
            | BertFamily::RobertaPreLayerNorm => (50265, 1),
            BertFamily::Camembert
            | BertFamily::Data2VecText
            | BertFamily::Longformer
            | BertFamily::IBert
            | BertFamily::Xmod => (30522, 1),
            BertFamily::Luke => (50267, 1),
            BertFamily::XlmRobertaXl => (250_880, 1),
            BertFamily::MegatronBert => (29056, 0),
            BertFamily::RemBert => (250_300, 0),
            BertFamily::RoFormer => (50_000, 0),
            BertFamily::NomicBert | BertFamily::New => (30528, 0),
            BertFamily::Gte => (250_048, 1),
            BertFamily::JinaEmbeddingsV3 => (250_002, 1),
            BertFamily::Mpnet => (30527, 1),
            BertFamily::Albert => (30000, 0),
            BertFamily::Deberta => (128_100, 0),
            BertFamily::FirstDeberta => (50_265, 0),
            BertFamily::BigBird => (50_358, 0),
            BertFamily::Bert
            | BertFamily::DistilBert
            | BertFamily::Dpr
            | BertFamily::Electra
            | BertFamily::Ernie
            | BertFamily::SqueezeBert
            | BertFamily::MobileBert
            | BertFamily::Xlnet
            | BertFamily::JinaBert => (30522, 0),
            BertFamily::ConvBert => (30522, 1),
            BertFamily::Nystromformer => (30000, 1),
            BertFamily::Fnet => (32000, 3),
        };
        let head_dropout = match family {
            // Only the head of whole inputs has its own rate.
            BertFamily::Deberta | BertFamily::FirstDeberta if task == BertTask::SequenceClassification => {
                self.deberta.as_ref().and_then(|deberta| deberta.cls_dropout)
            }
            BertFamily::Deberta
            | BertFamily::FirstDeberta
            | BertFamily::Mpnet
            | BertFamily::MegatronBert
            | BertFamily::Longformer
            | BertFamily::IBert
            | BertFamily::SqueezeBert
            | BertFamily::RoFormer => None,
            BertFamily::Albert | BertFamily::RemBert => self.classifier_dropout_prob,
            _ => self.classifier_dropout,
        };
        // ALBERT and RemBERT project embeddings of any width.
        let embedding_size = match family {
            BertFamily::Albert => Some(self.embedding_size.unwrap_or(self.hidden_size)),
            BertFamily::RemBert => self.input_embedding_size,
            BertFamily::MobileBert => self.embedding_size,
            BertFamily::Electra | BertFamily::RoFormer | BertFamily::ConvBert => {
                self.embedding_size.filter(|size| *size != self.hidden_size)
            }
            _ => None,
        };
        let own = self.own(family)?;
        Ok(BertConfig {
            family,
            task,
            vocab_size: self.vocab_size.unwrap_or(vocabulary),
            hidden_size: self.hidden_size,
            num_hidden_layers: self.num_hidden_layers,
            num_attention_heads: self.num_attention_heads,
            intermediate_size: self.intermediate_size,
            hidden_act: self.hidden_act,
            hidden_dropout_prob: self.hidden_dropout_prob,
            attention_probs_dropout_prob: self.attention_probs_dropout_prob,
            head_dropout: head_dropout.unwrap_or(self.hidden_dropout_prob),
            max_position_embeddings: self.max_position_embeddings,
            type_vocab_size: if family == BertFamily::Mpnet { 0 } else { self.type_vocab_size },
            initializer_range: self.initializer_range,
            layer_norm_eps: self.layer_norm_eps,
            pad_token_id: padding(self.pad_token_id, pad),
            projection_dim: if family == BertFamily::Dpr { self.projection_dim } else { 0 },
            embedding_size,
            own,
            labels,
            tie_word_embeddings: self.tie_word_embeddings,
        })
    }

    /// The fields of the `config.json` of a model.
    pub(crate) fn json(config: &BertConfig) -> Value {
        let mut fields = json!(Self::of(config));
        if let (Some(settings), Value::Object(fields)) = (config.disentangled(), &mut fields)
            && let Value::Object(further) = json!(DebertaFields::of(settings, config.head_dropout))
        {
            fields.extend(further);
        }
        if let (Some(settings), Value::Object(fields)) = (config.rotary(), &mut fields)
            && let Value::Object(further) = json!(RotaryFields::of(config.family, settings))
        {
            fields.extend(further);
        }
        fields
    }

    fn of(config: &BertConfig) -> Self {
        Self {
            vocab_size: Some(config.vocab_size),
            hidden_size: config.hidden_size,
            num_hidden_layers: config.num_hidden_layers,
            num_attention_heads: config.num_attention_heads,
            intermediate_size: config.intermediate_size,
            hidden_act: config.hidden_act.clone(),
            hidden_dropout_prob: config.hidden_dropout_prob,
            attention_probs_dropout_prob: config.attention_probs_dropout_prob,
            classifier_dropout: Some(config.head_dropout),
            max_position_embeddings: config.max_position_embeddings,
            type_vocab_size: config.type_vocab_size,
            initializer_range: config.initializer_range,
            layer_norm_eps: config.layer_norm_eps,
            pad_token_id: Some(config.pad_token_id.into()),
            projection_dim: config.projection_dim,
            position_embedding_type: match config.family {
                BertFamily::New => "rope",
                BertFamily::JinaBert => "alibi",
                _ => "absolute",
            }
            .into(),
            use_flash_attn: (config.family == BertFamily::JinaXlmRoberta).then_some(false),
            feed_forward_type: (config.family == BertFamily::JinaBert).then(|| GATED.into()),
            tie_word_embeddings: config.tie_word_embeddings,
            embedding_size: match config.family {
                BertFamily::Electra
                | BertFamily::Albert
                | BertFamily::RoFormer
                | BertFamily::MobileBert
                | BertFamily::ConvBert
                | BertFamily::SqueezeBert => Some(config.embedding_width()),
                _ => None,
            },
            input_embedding_size: config.embedding_size.filter(|_| config.family == BertFamily::RemBert),
            classifier_dropout_prob: match config.family {
                BertFamily::Albert | BertFamily::RemBert => Some(config.head_dropout),
                _ => None,
            },
            relative_attention_num_buckets: (config.family == BertFamily::Mpnet).then_some(MPNET_BUCKETS),
            attention_type: (config.family == BertFamily::BigBird).then(|| match config.own {
                FamilySettings::Blocks(_) => BLOCKS.into(),
                _ => "original_full".into(),
            }),
            ..Self::of_own(&config.own)
        }
    }

    /// The fields of what one family alone has, with the defaults of all others.
    fn of_own(own: &FamilySettings) -> Self {
        let none = Self::default();
        match own {
            FamilySettings::None | FamilySettings::Disentangled(_) | FamilySettings::Rotary(_) => none,
            FamilySettings::Sharing(LayerSharing { groups, inner }) => {
                Self { num_hidden_groups: Some(*groups), inner_group_num: Some(*inner), ..none }
            }
            FamilySettings::Blocks(AttentionBlocks { size, random }) => {
                Self { block_size: Some(*size), num_random_blocks: Some(*random), ..none }
            }
            FamilySettings::Windows(windows) => Self { attention_window: Some(windows.clone()), ..none },
            FamilySettings::Mobile(MobileSizes { narrow, parts, has_pooler }) => Self {
                intra_bottleneck_size: Some(*narrow),
                num_feedforward_networks: Some(*parts),
                classifier_activation: Some(*has_pooler),
                ..none
            },
            FamilySettings::Convolution(ConvSizes { ratio, kernel, groups }) => Self {
                head_ratio: Some(*ratio),
                conv_kernel_size: Some(*kernel),
                num_groups: Some(*groups),
                ..none
            },
            FamilySettings::Groups(LayerGroups { inputs: [query, key, value], output, feed_forward }) => {
                Self {
                    q_groups: Some(*query),
                    k_groups: Some(*key),
                    v_groups: Some(*value),
                    post_attention_groups: Some(*output),
                    intermediate_groups: Some(feed_forward[0]),
                    output_groups: Some(feed_forward[1]),
                    ..none
                }
            }
            FamilySettings::Adapters(adapters) => Self {
                pre_norm: Some(adapters.norms_first),
                adapter_reduction_factor: Some(adapters.reduction),
                adapter_layer_norm: Some(adapters.norm == AdapterNorm::Own),
                adapter_reuse_layer_norm: Some(adapters.norm != AdapterNorm::None),
                ln_before_adapter: Some(adapters.adds_to_normed),
                languages: Some(vec![adapters.language.clone()]),
                default_language: Some(adapters.language.clone()),
                ..none
            },
            FamilySettings::OutputEmbedding(width) => Self { output_embedding_size: Some(*width), ..none },
            FamilySettings::Tasks(count) => {
                Self { use_task_id: Some(true), task_type_vocab_size: Some(*count), ..none }
            }
        }
    }
}

/// The padding token of a config. A negative id, or one beyond 32 bits, names none; then the `default` fills rows, which no
/// model sees.
fn padding(id: Option<i64>, default: u32) -> u32 {
    id.and_then(|id| u32::try_from(id).ok()).unwrap_or(default)
}

/// The fields of DistilBERT, which have different names.
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DistilFields {
    vocab_size: usize,
    max_position_embeddings: usize,
    n_layers: usize,
    n_heads: usize,
    dim: usize,
    hidden_dim: usize,
    dropout: f64,
    attention_dropout: f64,
    activation: String,
    initializer_range: f64,
    qa_dropout: f64,
    seq_classif_dropout: f64,
    pad_token_id: Option<i64>,
    tie_word_embeddings: bool,
}

impl Default for DistilFields {
    fn default() -> Self {
        Self {
            vocab_size: 30522,
            max_position_embeddings: 512,
            n_layers: 6,
            n_heads: 12,
            dim: 768,
            hidden_dim: 3072,
            dropout: 0.1,
            attention_dropout: 0.1,
            activation: "gelu".into(),
            initializer_range: 0.02,
            qa_dropout: 0.1,
            seq_classif_dropout: 0.2,
            pad_token_id: Some(0),
            tie_word_embeddings: true,
        }
    }
}

impl DistilFields {
    pub(crate) fn config(self, task: BertTask, labels: Vec<String>) -> BertConfig {
        BertConfig {
            family: BertFamily::DistilBert,
            task,
            vocab_size: self.vocab_size,
            hidden_size: self.dim,
            num_hidden_layers: self.n_layers,
            num_attention_heads: self.n_heads,
            intermediate_size: self.hidden_dim,
            hidden_act: self.activation,
            hidden_dropout_prob: self.dropout,
            attention_probs_dropout_prob: self.attention_dropout,
            head_dropout: match task {
                BertTask::SequenceClassification => self.seq_classif_dropout,
                BertTask::Span => self.qa_dropout,
                _ => self.dropout,
            },
            max_position_embeddings: self.max_position_embeddings,
            type_vocab_size: 0,
            initializer_range: self.initializer_range,
            layer_norm_eps: DISTIL_EPSILON,
            pad_token_id: padding(self.pad_token_id, 0),
            projection_dim: 0,
            embedding_size: None,
            own: FamilySettings::None,
            labels,
            tie_word_embeddings: self.tie_word_embeddings,
        }
    }

    pub(crate) fn of(config: &BertConfig) -> Self {
        Self {
            vocab_size: config.vocab_size,
            max_position_embeddings: config.max_position_embeddings,
            n_layers: config.num_hidden_layers,
            n_heads: config.num_attention_heads,
            dim: config.hidden_size,
            hidden_dim: config.intermediate_size,
            dropout: config.hidden_dropout_prob,
            attention_dropout: config.attention_probs_dropout_prob,
            activation: config.hidden_act.clone(),
            initializer_range: config.initializer_range,
            qa_dropout: config.head_dropout,
            seq_classif_dropout: config.head_dropout,
            pad_token_id: Some(config.pad_token_id.into()),
            tie_word_embeddings: config.tie_word_embeddings,
        }
    }
}
