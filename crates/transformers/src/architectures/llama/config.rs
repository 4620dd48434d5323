//! The `config.json` of a model of LLaMA's shape.

use serde::{Deserialize, Serialize};
use sporran_checkpoint::json::{deserialize_id, deserialize_ids, serialize_ids};

use super::{
    kind::LlamaKind,
    numbers::{number, same_number},
    rope::RopeParameters,
};
use crate::architectures::decoder::DecoderHead;

/// The fields of the `config.json`, with the defaults of `transformers` for LLaMA.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LlamaConfig {
    /// The kind of model, from `model_type`.
    #[serde(skip)]
    pub kind: LlamaKind,
    /// The head.
    #[serde(skip)]
    pub head: DecoderHead,
    /// Whether the weights have the tensors of all experts as one.
    #[serde(skip)]
    pub experts_are_together: bool,
    /// The number of logits and of embeddings.
    pub vocab_size: usize,
    /// The width of the hidden states.
    pub hidden_size: usize,
    /// The inner width of the feed-forward part.
    pub intermediate_size: usize,
    /// The number of layers.
    pub num_hidden_layers: usize,
    /// The number of attention heads.
    pub num_attention_heads: usize,
    /// The number of heads that keys and values have; as many as there are heads where it is not set.
    pub num_key_value_heads: Option<usize>,
    /// The width of a head; the heads' part of the width where it is not set.
    pub head_dim: Option<usize>,
    /// The activation of the gate.
    pub hidden_act: String,
    /// The most tokens of a sequence.
    pub max_position_embeddings: usize,
    /// Added to the mean square before its root is taken.
    pub rms_norm_eps: f64,
    /// The base of the angles, in older files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_theta: Option<f64>,
    /// How positions turn queries and keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_parameters: Option<RopeParameters>,
    /// How angles are stretched, in older files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_scaling: Option<RopeParameters>,
    /// The base of the angles of each layer; 0 for one that turns nothing (Granite with sliding windows).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer_rope_theta: Option<Vec<f64>>,
    /// The base of the angles of layers with a sliding window, in older files (Gemma 3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_local_base_freq: Option<f64>,
    /// The part of a head that is turned, in older files (GLM, GPT-NeoX, Nemotron, Phi, StableLM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial_rotary_factor: Option<f64>,
    /// The longest sequence of the first training, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_max_position_embeddings: Option<usize>,
    /// The divisors of the steps of the angles, which a GGUF file has for each pair.
    #[serde(skip)]
    pub rope_divisors: Option<Vec<f32>>,
    /// For each layer, whether it turns queries and keys: 1 or 0 (SmolLM 3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_rope_layers: Option<Vec<u32>>,
    /// Every layer at a multiple of this does not turn them, where `no_rope_layers` is not set; 4 where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_rope_layer_interval: Option<usize>,
    /// Whether layers attend to a sliding window (Qwen, SmolLM 3).
    pub use_sliding_window: bool,
    /// The tokens that a layer with a sliding window attends to, the own one included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sliding_window: Option<usize>,
    /// The first layer with a sliding window (Qwen), where `layer_types` is not set; 28 where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_window_layers: Option<usize>,
    /// Every layer at a multiple of this attends to everything, where `layer_types` is not set; 6 (Gemma 3) or 4 (Cohere 2,
    /// EXAONE 4, OLMo 3) where it is not set. A text such as `LLLG` stands for its length.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number")]
    pub sliding_window_pattern: Option<usize>,
    /// For each layer, `full_attention`, `sliding_attention`, `linear_attention` or `conv`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer_types: Option<Vec<String>>,
    /// Types of layers, each list as often as the number beside it says: `global` and `local` (GPT-Neo).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_types: Option<Vec<(Vec<String>, usize)>>,
    /// Whether tokens attend to later ones, in encoders (Gemma 3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_bidirectional_attention: Option<bool>,
    /// Whether tokens see those before them only; `false` makes an encoder (Qwen).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_causal: Option<bool>,
    /// The activation of the gate (Gemma); `gelu_pytorch_tanh` where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden_activation: Option<String>,
    /// Scores are divided by its square root (Gemma); 256 where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_pre_attn_scalar: Option<f64>,
    /// The bound of the scores of attention (Gemma 2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attn_logit_softcapping: Option<f64>,
    /// The bound of the logits (Gemma).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_logit_softcapping: Option<f64>,
    /// The factor of embeddings (Granite).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_multiplier: Option<f64>,
    /// The factor of what a part adds to the states (Granite).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub residual_multiplier: Option<f64>,
    /// The factor of the products of queries and keys (Granite).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_multiplier: Option<f64>,
    /// Logits are divided by it (Granite), or multiplied by it (HyperCLOVA X).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logits_scaling: Option<f64>,
    /// The factor of the logits (Cohere); 0.0625 where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logit_scale: Option<f64>,
    /// Added to the variance before its root is taken, in layer norms; 1e-5 where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer_norm_eps: Option<f64>,
    /// The bound of the values of queries, keys and values (OLMo 1, OLMoE).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_qkv: Option<f64>,
    /// Whether both parts of a layer read the states before it (GPT-NeoX, StableLM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_parallel_residual: Option<bool>,
    /// Whether queries and keys are normalised (Persimmon, Phi, StableLM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qk_layernorm: Option<bool>,
    /// The same of Cohere and GLM-4.5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_qk_norm: Option<bool>,
    /// Whether the results of parts are normalised too (HyperCLOVA X); they are where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_post_norm: Option<bool>,
    /// The width of embeddings (OPT); that of the states where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub word_embed_proj_dim: Option<usize>,
    /// Whether parts read normalised states (OPT), or the states after a part are normalised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub do_layer_norm_before: Option<bool>,
    /// Whether norms have weights (OPT); they have where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer_norm_elementwise_affine: Option<bool>,
    /// Whether there is no last norm (OPT).
    #[serde(rename = "_remove_final_layer_norm", skip_serializing_if = "Option::is_none")]
    pub remove_final_layer_norm: Option<bool>,
    /// The width of the part of a head that is turned (GPT-J, CodeGen, MiniMax M2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotary_dim: Option<usize>,
    /// Whether all heads share one key and one value (Falcon, GPT-BigCode); they do where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multi_query: Option<bool>,
    /// Whether groups of heads share them (Falcon 40B).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_decoder_architecture: Option<bool>,
    /// Whether both parts of a layer read the states before it (Falcon); they do where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_attn: Option<bool>,
    /// The number of norms of such parts (Falcon).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_ln_in_parallel_attn: Option<usize>,
    /// Whether positions are biases of scores (Falcon).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alibi: Option<bool>,
    /// Whether residuals are normalised states (BLOOM); not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apply_residual_connection_post_layernorm: Option<bool>,
    /// Whether scores are divided by the root of a head's width (GPT-BigCode); they are where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_attn_weights: Option<bool>,
    /// The settings of attention (MPT).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attn_config: Option<MptAttention>,
    /// Whether embeddings are multiplied by the root of their width (BioGPT, XGLM); they are where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_embedding: Option<bool>,
    /// Whether the model attends to another one's states (XGLM); not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_cross_attention: Option<bool>,
    /// Whether the head that scores words has a bias (Phi 3.5 MoE).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lm_head_bias: Option<bool>,
    /// The width of the vector that queries are made of (DeepSeek); they are made of the states where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub q_lora_rank: Option<usize>,
    /// The width of the vector that keys and values are made of (DeepSeek).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_lora_rank: Option<usize>,
    /// The width of the part of a head's queries and keys that is turned (DeepSeek).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qk_rope_head_dim: Option<usize>,
    /// The width of the part that is not (DeepSeek).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qk_nope_head_dim: Option<usize>,
    /// The width of a head's values (DeepSeek).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v_head_dim: Option<usize>,
    /// Whether the two of a pair that is turned together lie side by side (DeepSeek V3); they do where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_interleave: Option<bool>,
    /// The factor of embeddings (MiniCPM); 1 where it is null.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_emb: Option<f64>,
    /// What a part adds to the states is multiplied by it over the root of the number of layers (MiniCPM); by 1 where it is null.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_depth: Option<f64>,
    /// Logits are multiplied by it over the width of the states (MiniCPM); by 1 where it is null.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dim_model_base: Option<usize>,
    /// The number of experts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_experts: Option<usize>,
    /// The number of groups of experts (DeepSeek and models with its experts).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_group: Option<usize>,
    /// The number of groups whose experts can read a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topk_group: Option<usize>,
    /// How experts are chosen (DeepSeek): `greedy` or `group_limited_greedy` (V2), `noaux_tc` (V3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topk_method: Option<String>,
    /// How scores become weights of experts (DeepSeek): `softmax` (V2), `sigmoid` (V3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scoring_func: Option<String>,
    /// The factor of the weights of experts (DeepSeek and models with its experts).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routed_scaling_factor: Option<f64>,
    /// The layers before those with experts (DeepSeek and models with its experts).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_k_dense_replace: Option<usize>,
    /// The number of experts that read every token, which are one part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_shared_experts: Option<usize>,
    /// The first layer with experts (ERNIE 4.5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moe_layer_start_index: Option<usize>,
    /// The last layer with experts (ERNIE 4.5); -1 stands for the last layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moe_layer_end_index: Option<i64>,
    /// Layers at multiples of this have experts (ERNIE 4.5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moe_layer_interval: Option<usize>,
    /// The least sum that the weights of experts are divided by (ERNIE 4.5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moe_norm_min: Option<f64>,
    /// Experts whose scores are smaller by twice this part are left out of a softmax (Phi 3.5 MoE).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_jitter_noise: Option<f64>,
    /// The factor inside the sigmoid of experts' gates (gpt-oss).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swiglu_alpha: Option<f64>,
    /// The bound of experts' inner values (gpt-oss).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swiglu_limit: Option<f64>,
    /// The number of experts that read a token. A list has it for each layer.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "same_number")]
    pub num_experts_per_tok: Option<usize>,
    /// Whether the weights of a token's experts have the sum 1 (Qwen, OLMoE, DeepSeek V3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm_topk_prob: Option<bool>,
    /// The inner width of an expert (Qwen). A list has it for each layer.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "same_number")]
    pub moe_intermediate_size: Option<usize>,
    /// The inner width of the expert that reads every token (Qwen 2, Granite).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_expert_intermediate_size: Option<usize>,
    /// Layers at multiples of this have experts (Qwen); 1 where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder_sparse_step: Option<usize>,
    /// Layers without experts (Qwen).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mlp_only_layers: Option<Vec<usize>>,
    /// The width of a head in layers that attend to everything (Gemma 4); 512 where a file does not set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_head_dim: Option<usize>,
    /// The number of heads that keys have in these layers, where values are keys (Gemma 4); that of others where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_global_key_value_heads: Option<usize>,
    /// Whether values are keys in layers that attend to everything (Gemma 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_k_eq_v: Option<bool>,
    /// The number of last layers that have the keys and values of an earlier one (Gemma 3n, Gemma 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_kv_shared_layers: Option<usize>,
    /// Whether the feed-forward parts of these are twice as wide (Gemma 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_double_wide_mlp: Option<bool>,
    /// The width of the embeddings that each layer has of its own (Gemma 3n, Gemma 4); 0 for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden_size_per_layer_input: Option<usize>,
    /// The number of these embeddings (Gemma 3n, Gemma 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vocab_size_per_layer_input: Option<usize>,
    /// Whether layers have experts beside the feed-forward part (Gemma 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_moe_block: Option<bool>,
    /// The number of streams of states (Gemma 3n).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub altup_num_inputs: Option<usize>,
    /// The stream that layers read (Gemma 3n).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub altup_active_idx: Option<usize>,
    /// Whether the states that embeddings of a layer are multiplied with are scaled (Gemma 3n).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub altup_correct_scale: Option<bool>,
    /// The width of the learned part of residuals (Gemma 3n).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub laurel_rank: Option<usize>,
    /// For each layer, the part of the inner values that are 0 (Gemma 3n); 0.95 in the first 10 of more layers where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation_sparsity_pattern: Option<Vec<f64>>,
    /// Whether queries, keys and values have a bias (Qwen 2 with experts); they have where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qkv_bias: Option<bool>,
    /// Whether the output of attention has a bias (Seed-OSS).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_out_bias: Option<bool>,
    /// The tokens that a short convolution reads, the own one included (LFM2, Qwen3-Next, Qwen 3.5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linear_conv_kernel_dim: Option<usize>,
    /// The width of a head's queries and keys in a delta rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linear_key_head_dim: Option<usize>,
    /// The width of a head's values in a delta rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linear_value_head_dim: Option<usize>,
    /// The heads of queries and keys in a delta rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linear_num_key_heads: Option<usize>,
    /// The heads of values in a delta rule; each head of keys serves as many of them as any other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linear_num_value_heads: Option<usize>,
    /// Every layer at a multiple of this attends, where `layer_types` is not set; 4 where it is not set (Qwen3-Next, Qwen 3.5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_attention_interval: Option<usize>,
    /// The layers that attend (Bamba); none does where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attn_layer_indices: Option<Vec<usize>>,
    /// The width of a state space layer by that of the states; 2 where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mamba_expand: Option<usize>,
    /// The width of a state space layer itself (Falcon-H1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mamba_d_ssm: Option<usize>,
    /// Whether the projections of state space layers have biases; in Falcon-H1 those of their inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mamba_proj_bias: Option<bool>,
    /// Whether those of their results have biases (Falcon-H1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projectors_bias: Option<bool>,
    /// Whether results of state space layers are normalised (Falcon-H1); they are not where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mamba_rms_norm: Option<bool>,
    /// Whether they are before they are multiplied by their gates (Falcon-H1); they are where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mamba_norm_before_gate: Option<bool>,
    /// The factor of what attention reads (Falcon-H1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_in_multiplier: Option<f64>,
    /// The factor of its results (Falcon-H1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_out_multiplier: Option<f64>,
    /// The factor of keys (Falcon-H1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_multiplier: Option<f64>,
    /// The factor of what a state space layer reads (Falcon-H1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssm_in_multiplier: Option<f64>,
    /// The factor of its results (Falcon-H1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssm_out_multiplier: Option<f64>,
    /// The factors of its gates, its inputs, the vectors that write and read matrices, and its steps (Falcon-H1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssm_multipliers: Option<[f64; 5]>,
    /// The factors of the gates and of the results of feed-forward parts (Falcon-H1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mlp_multipliers: Option<[f64; 2]>,
    /// The bounds of steps in state space layers; others than 0 and infinity are not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_step_limit: Option<[f64; 2]>,
    /// `rope` where positions turn queries and keys (Granite 4); nothing does where it is another name or not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position_embedding_type: Option<String>,
    /// Whether experts are chosen with corrections of their weights (LFM2); they are where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_expert_bias: Option<bool>,
    /// Whether the inner width follows from `intermediate_size` by a rule (LFM2). It has been applied, so that it is `false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_auto_adjust_ff_dim: Option<bool>,
    /// Whether projections have a bias (ERNIE 4.5, Falcon, LFM2, OPT, StarCoder 2), or those to queries, keys and values
    /// (StableLM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_bias: Option<bool>,
    /// Whether the projections of attention have a bias.
    pub attention_bias: bool,
    /// Whether those of the feed-forward part have one.
    pub mlp_bias: bool,
    /// The dropout rate of the attention weights in training.
    pub attention_dropout: f64,
    /// The dropout rate before labels, in training (UltraBERT).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classifier_dropout: Option<f64>,
    /// The dropout rate of what a part adds to the states, in training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resid_pdrop: Option<f64>,
    /// The dropout rate of the embeddings, in training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embd_pdrop: Option<f64>,
    /// The standard deviation of fresh weights.
    pub initializer_range: f64,
    /// Whether the head is the embedding table.
    pub tie_word_embeddings: bool,
    /// The token that begins a sequence.
    #[serde(deserialize_with = "deserialize_id")]
    pub bos_token_id: Option<u32>,
    /// The end token or tokens.
    #[serde(deserialize_with = "deserialize_ids", serialize_with = "serialize_ids")]
    pub eos_token_id: Vec<u32>,
    /// The padding token; the end token where it is not set.
    #[serde(deserialize_with = "deserialize_id")]
    pub pad_token_id: Option<u32>,
}

impl Default for LlamaConfig {
    fn default() -> Self {
        Self {
            kind: LlamaKind::Llama,
            head: DecoderHead::LanguageModel,
            experts_are_together: false,
            vocab_size: 32000,
            hidden_size: 4096,
            intermediate_size: 11008,
            num_hidden_layers: 32,
            num_attention_heads: 32,
            num_key_value_heads: None,
            head_dim: None,
            hidden_act: "silu".into(),
            max_position_embeddings: 2048,
            rms_norm_eps: 1e-6,
            rope_theta: None,
            rope_parameters: None,
            rope_scaling: None,
            layer_rope_theta: None,
            rope_local_base_freq: None,
            partial_rotary_factor: None,
            original_max_position_embeddings: None,
            rope_divisors: None,
            no_rope_layers: None,
            no_rope_layer_interval: None,
            use_sliding_window: false,
            sliding_window: None,
            max_window_layers: None,
            sliding_window_pattern: None,
            layer_types: None,
            attention_types: None,
            use_bidirectional_attention: None,
            is_causal: None,
            hidden_activation: None,
            query_pre_attn_scalar: None,
            attn_logit_softcapping: None,
            final_logit_softcapping: None,
            embedding_multiplier: None,
            residual_multiplier: None,
            attention_multiplier: None,
            logits_scaling: None,
            logit_scale: None,
            layer_norm_eps: None,
            clip_qkv: None,
            use_parallel_residual: None,
            qk_layernorm: None,
            use_qk_norm: None,
            use_post_norm: None,
            word_embed_proj_dim: None,
            do_layer_norm_before: None,
            layer_norm_elementwise_affine: None,
            remove_final_layer_norm: None,
            rotary_dim: None,
            multi_query: None,
            new_decoder_architecture: None,
            parallel_attn: None,
            num_ln_in_parallel_attn: None,
            alibi: None,
            apply_residual_connection_post_layernorm: None,
            scale_attn_weights: None,
            attn_config: None,
            scale_embedding: None,
            add_cross_attention: None,
            lm_head_bias: None,
            q_lora_rank: None,
            kv_lora_rank: None,
            qk_rope_head_dim: None,
            qk_nope_head_dim: None,
            v_head_dim: None,
            rope_interleave: None,
            scale_emb: None,
            scale_depth: None,
            dim_model_base: None,
            num_experts: None,
            n_group: None,
            topk_group: None,
            topk_method: None,
            scoring_func: None,
            routed_scaling_factor: None,
            first_k_dense_replace: None,
            n_shared_experts: None,
            moe_layer_start_index: None,
            moe_layer_end_index: None,
            moe_layer_interval: None,
            moe_norm_min: None,
            router_jitter_noise: None,
            swiglu_alpha: None,
            swiglu_limit: None,
            num_experts_per_tok: None,
            norm_topk_prob: None,
            moe_intermediate_size: None,
            shared_expert_intermediate_size: None,
            decoder_sparse_step: None,
            mlp_only_layers: None,
            global_head_dim: None,
            num_global_key_value_heads: None,
            attention_k_eq_v: None,
            num_kv_shared_layers: None,
            use_double_wide_mlp: None,
            hidden_size_per_layer_input: None,
            vocab_size_per_layer_input: None,
            enable_moe_block: None,
            altup_num_inputs: None,
            altup_active_idx: None,
            altup_correct_scale: None,
            laurel_rank: None,
            activation_sparsity_pattern: None,
            qkv_bias: None,
            attention_out_bias: None,
            linear_conv_kernel_dim: None,
            linear_key_head_dim: None,
            linear_value_head_dim: None,
            linear_num_key_heads: None,
            linear_num_value_heads: None,
            full_attention_interval: None,
            attn_layer_indices: None,
            mamba_expand: None,
            mamba_d_ssm: None,
            mamba_proj_bias: None,
            projectors_bias: None,
            mamba_rms_norm: None,
            mamba_norm_before_gate: None,
            attention_in_multiplier: None,
            attention_out_multiplier: None,
            key_multiplier: None,
            ssm_in_multiplier: None,
            ssm_out_multiplier: None,
            ssm_multipliers: None,
            mlp_multipliers: None,
            time_step_limit: None,
            position_embedding_type: None,
            use_expert_bias: None,
            block_auto_adjust_ff_dim: None,
            use_bias: None,
            attention_bias: false,
            mlp_bias: false,
            attention_dropout: 0.0,
            classifier_dropout: None,
            resid_pdrop: None,
            embd_pdrop: None,
            initializer_range: 0.02,
            tie_word_embeddings: false,
            bos_token_id: None,
            eos_token_id: Vec::new(),
            pad_token_id: None,
        }
    }
}

/// The settings of MPT's attention, as its `config.json` has them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MptAttention {
    /// `multihead_attention`; other types are not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attn_type: Option<String>,
    /// The dropout rate of the attention weights in training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attn_pdrop: Option<f64>,
    /// The bound of the values of queries, keys and values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_qkv: Option<f64>,
    /// The factor of the products of queries and keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub softmax_scale: Option<f64>,
    /// Whether tokens of a prefix see each other; not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix_lm: Option<bool>,
    /// Whether queries and keys are normalised; not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qk_ln: Option<bool>,
    /// Whether positions are biases of scores; `false` is not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alibi: Option<bool>,
    /// The exponent of the least slope of these; 8 where it is not set. A `config.json` does not set it, as `transformers` does not read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alibi_bias_max: Option<f64>,
}
