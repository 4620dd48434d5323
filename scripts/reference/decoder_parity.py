"""Makes the fixtures of the kinds of LLaMA's shape, crates/transformers/tests/data/{decoders,ropes}.

For each kind it writes a seeded tiny checkpoint in bf16, the same as a GGUF file, `expected.safetensors` (the logits of
prompts one by one, in f64) and `expected.json` (generations by `transformers` in f32 on one CPU thread). For each way in
which angles are stretched it writes a `config.json` for the weights of the fixture `llama`, and the same expectations.

    python scripts/reference/decoder_parity.py [NAME ..]      # torch 2.15, transformers 5.24, gguf; after causal_parity.py
"""

import copy
import json
import math
import shutil
import sys

import numpy
import torch
from causal_parity import DATA, END, generate
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

PROMPTS = [17, 3, 9, 1, 12]
CASES = {
    "greedy": {"max_new_tokens": 12},
    "beam 3, all returned": {"max_new_tokens": 10, "num_beams": 3, "num_return_sequences": 3},
}
SIZES = {
    "vocab_size": 96, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": END, "eos_token_id": END,
    "pad_token_id": END,
}
KINDS = {
    "qwen3": {
        "head_dim": 8, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 2,
        "tie_word_embeddings": True,
    },
    "mistral": {"sliding_window": 5, "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}},
    "gemma2": {"head_dim": 6, "query_pre_attn_scalar": 6, "sliding_window": 5, "attn_logit_softcapping": 1.5,
               "final_logit_softcapping": 3.0},
    "gemma3_text": {
        "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 5, "num_hidden_layers": 7,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    },
    "phi3": {"sliding_window": 7, "num_attention_heads": 2, "rope_parameters": {
        "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    "smollm3": {"tie_word_embeddings": True, "mlp_bias": True},
    "olmo2": {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
    "granite": {
        "attention_bias": True, "mlp_bias": True, "embedding_multiplier": 3.0, "logits_scaling": 0.5,
        "residual_multiplier": 0.4, "attention_multiplier": 0.3,
    },
}
# Kinds with names of their own for the sizes.
BARE = dict.fromkeys(
    ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
     "max_position_embeddings"], ...,
)
FALCON = {"intermediate_size": ..., "num_key_value_heads": ..., "num_attention_heads": 4, "ffn_hidden_size": 24}
PLAIN = {"rope_type": "default", "rope_theta": 1e4}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "beta_fast": 4.0, "original_max_position_embeddings": 16}
LONG = {"rope_type": "longrope", "rope_theta": 1e4}
# Experts that are chosen by groups.
GROUPED = {
    "n_routed_experts": 6, "num_experts_per_tok": 3, "n_group": 3, "topk_group": 2, "n_shared_experts": 2,
    "routed_scaling_factor": 1.5, "moe_intermediate_size": 12, "first_k_dense_replace": 1,
}
LATENT = GROUPED | {
    "num_key_value_heads": 4, "q_lora_rank": 12, "kv_lora_rank": 8, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4,
    "v_head_dim": 6,
}
GRANITE = {
    "num_local_experts": 5, "attention_bias": True, "embedding_multiplier": 3.0, "logits_scaling": 0.5,
    "residual_multiplier": 0.4, "attention_multiplier": 0.3,
}
# Mamba 2: three layers of four.
SPACE = {
    "rms_norm_eps": 0.01, "mamba_n_heads": 4, "mamba_n_groups": 2, "mamba_d_state": 6, "mamba_chunk_size": 8,
    "layer_types": ["mamba", "attention", "mamba", "mamba"],
}
FALCON_H1 = {
    "layer_types": ..., "num_hidden_layers": 3, "mamba_d_ssm": 24, "key_multiplier": 0.8, "lm_head_multiplier": 0.7,
    "embedding_multiplier": 2.0, "mlp_multipliers": [0.9, 1.3], "attention_out_multiplier": 1.2,
    "attention_in_multiplier": 0.7, "ssm_multipliers": [0.7, 1.2, 0.8, 1.1, 0.6], "ssm_in_multiplier": 1.3,
    "ssm_out_multiplier": 0.9}
# Gated delta rules: three layers of four, or by their own pattern.
DELTA = {
    "head_dim": 8, "rms_norm_eps": 0.01, "linear_key_head_dim": 4, "linear_value_head_dim": 6, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
# Layers that differ in their heads, and the last three of which have the keys and values of earlier ones.
GEMMA_4 = {
    "head_dim": 8, "global_head_dim": 16, "sliding_window": 5, "num_hidden_layers": 7,
    "layer_types": [f"{kind}_attention" for kind in ("sliding", "full", "sliding", "full", "sliding", "sliding", "full")],
    "num_kv_shared_layers": 3, "use_double_wide_mlp": True, "hidden_size_per_layer_input": 6,
    "vocab_size_per_layer_input": 96, "final_logit_softcapping": 3.0,
}
# Layers that read one of three streams of states, the first two of which use the greatest of their inner values.
GEMMA_3N = {
    "head_dim": 8, "sliding_window": 5, "num_hidden_layers": 6,
    "layer_types": [f"{kind}_attention" for kind in ("sliding", "full", "sliding", "full", "sliding", "full")],
    "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 6, "vocab_size_per_layer_input": 80,
    "final_logit_softcapping": 3.0, "altup_num_inputs": 3, "altup_active_idx": 1, "laurel_rank": 4,
    "activation_sparsity_pattern": [0.7, 0.5, 0.0, 0.0, 0.0, 0.0],
}
# The part for text of models with images.
TEXT = SIZES | {"num_hidden_layers": 3}
IMAGES = {
    "depth": 1, "hidden_size": 8, "out_hidden_size": 16, "num_heads": 2, "intermediate_size": 8, "patch_size": 4,
    "num_position_embeddings": 4,
}
# Kinds without a fixture of a GGUF file. Fields that are `...` are not set.
FOLDERS = {
    "cohere": {"logit_scale": 0.5, "rope_parameters": PLAIN},
    "gemma": {"head_dim": 6, "hidden_act": "gelu"},
    "gpt_neox": {"num_key_value_heads": ..., "rope_parameters": PLAIN | {"partial_rotary_factor": 0.5}},
    "olmo": {"clip_qkv": 1.0},
    # A tied head repeats a token where norms come last.
    "openai-gpt": BARE | {"n_positions": 64, "n_embd": 24, "n_layer": 3, "n_head": 4, "tie_word_embeddings": False},
    "opt": {"intermediate_size": ..., "num_key_value_heads": ..., "ffn_dim": 24},
    "phi": {"num_attention_heads": 2, "rope_parameters": PLAIN | {"partial_rotary_factor": 0.5}},
    "stablelm": {
        "use_qkv_bias": True, "use_parallel_residual": True, "rope_parameters": PLAIN | {"partial_rotary_factor": 0.5},
    },
    "starcoder2": {"sliding_window": 5},
    "arcee": {"mlp_bias": True},
    "bloom": BARE | {"n_embed": 16, "n_layer": 3, "n_head": 4},
    "codegen": BARE | {"n_positions": 64, "n_embd": 32, "n_layer": 3, "n_head": 8, "rotary_dim": 2, "n_inner": 24},
    "cohere2": {"logit_scale": 0.5, "sliding_window": 5},
    "ernie4_5": {"head_dim": 8, "use_bias": True},
    "exaone4": {"sliding_window": 5},
    "falcon": FALCON,
    "glm": {"head_dim": 8, "rope_parameters": PLAIN | {"partial_rotary_factor": 0.5}},
    "glm4": {"head_dim": 8, "attention_bias": True, "rope_parameters": PLAIN | {"partial_rotary_factor": 0.5}},
    "gpt_bigcode": BARE | {"n_positions": 64, "n_embd": 16, "n_layer": 3, "n_head": 4, "n_inner": 24},
    "gpt_neo": BARE | {
        "max_position_embeddings": 64, "hidden_size": 16, "num_layers": 4, "num_heads": 4, "intermediate_size": 24,
        "attention_types": [[["global", "local"], 1], [["local", "global"], 1]], "window_size": 5},
    "gptj": BARE | {"n_positions": 64, "n_embd": 32, "n_layer": 3, "n_head": 4, "rotary_dim": 4, "n_inner": 24},
    "helium": {"head_dim": 4, "attention_bias": True, "mlp_bias": True},
    "hunyuan_v1_dense": {"head_dim": 8, "attention_bias": True},
    "ministral": {"head_dim": 8, "layer_types": ["full_attention", "sliding_attention"] * 2, "sliding_window": 5},
    "mixtral": {"num_local_experts": 5},
    "mpt": BARE | {"max_seq_len": 64, "d_model": 24, "n_layers": 3, "n_heads": 6},
    "nemotron": {"mlp_bias": True, "attention_bias": True, "rope_parameters": PLAIN | {"partial_rotary_factor": 0.5}},
    "olmo3": {"sliding_window": 5, "rope_parameters": {
        "full_attention": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "beta_fast": 4.0,
                           "original_max_position_embeddings": 16},
        "sliding_attention": PLAIN,
    }},
    "olmoe": {"num_experts": 5, "num_experts_per_tok": 3, "clip_qkv": 1.0},
    "qwen2_moe": {
        "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 20,
        "decoder_sparse_step": 2,
    },
    "qwen3_moe": {
        "head_dim": 8, "num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 12, "norm_topk_prob": True,
        "mlp_only_layers": [1],
    },
    "seed_oss": {"head_dim": 8},
    "apertus": {"rope_parameters": {
        "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16}},
    "biogpt": {"num_key_value_heads": ..., "num_hidden_layers": 3},
    "deepseek_v2": LATENT | {"topk_method": "group_limited_greedy"},
    "deepseek_v3": LATENT | {"norm_topk_prob": True, "rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 0.8}},
    "dots1": GROUPED | {
        "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "sliding_window": 5, "max_window_layers": 2},
    "ernie4_5_moe": {
        "head_dim": 8, "moe_num_experts": 5, "moe_k": 2, "moe_intermediate_size": 12, "moe_num_shared_experts": 2,
        "use_bias": True, "tie_word_embeddings": False},
    "glm4_moe": GROUPED | {
        "head_dim": 8, "use_qk_norm": True, "attention_bias": True,
        "rope_parameters": PLAIN | {"partial_rotary_factor": 0.5}},
    "gpt_oss": {
        "head_dim": 8, "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 5, "swiglu_limit": 1.0,
        "rope_parameters": YARN | {"truncate": False}},
    "granitemoe": GRANITE,
    "granitemoeshared": GRANITE | {"shared_intermediate_size": 20},
    "minicpm3": {
        "num_key_value_heads": 4, "q_lora_rank": 12, "kv_lora_rank": 8, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4,
        "v_head_dim": 6, "scale_emb": 3.0, "dim_model_base": 8, "rope_parameters": LONG | {
            "original_max_position_embeddings": 12, "short_factor": [1.0, 1.5], "long_factor": [2.0, 6.0]}},
    "ministral3": {"head_dim": 8, "rope_parameters": YARN | {
        "original_max_position_embeddings": 8, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.5}},
    "persimmon": {
        "num_attention_heads": 2, "num_key_value_heads": ..., "rope_parameters": PLAIN | {"partial_rotary_factor": 0.5}},
    "phimoe": {"num_local_experts": 5, "attention_bias": True, "lm_head_bias": True, "router_jitter_noise": 0.3},
    "xglm": BARE | {
        "max_position_embeddings": 64, "d_model": 16, "ffn_dim": 24, "num_layers": 3, "attention_heads": 4},
    "cwm": {"head_dim": 8, "sliding_window": 5, "mlp_bias": True, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16}},
    "flex_olmo": {"num_experts": 5, "num_experts_per_tok": 3, "attention_bias": True},
    "granite_swa": {
        "sliding_window": 5, "layer_rope_theta": [1e4, 500.0, 0.0, 500.0], "attention_bias": True, "mlp_bias": True,
        "embedding_multiplier": 3.0, "logits_scaling": 0.5, "residual_multiplier": 0.4, "attention_multiplier": 0.3},
    "hunyuan_v1_moe": {"head_dim": 8, "attention_bias": True, "num_experts": 5, "moe_topk": 2},
    "hyperclovax": {
        "attention_bias": True, "mlp_bias": True, "embedding_multiplier": 3.0, "logits_scaling": 2.0,
        "residual_multiplier": 0.4},
    "internlm3": {"head_dim": 8, "attention_bias": True, "mlp_bias": True},
    "jais2": {},
    "minimax_m2": {
        "head_dim": 8, "num_local_experts": 5, "num_experts_per_tok": 2,
        "rope_parameters": PLAIN | {"partial_rotary_factor": 0.5}},
    "mistral4": LATENT | {"rope_parameters": YARN | {
        "original_max_position_embeddings": 8, "mscale": 1.0, "mscale_all_dim": 0.8, "llama_4_scaling_beta": 0.5}},
    "nanochat": {"final_logit_softcapping": 3.0, "attention_bias": True},
    "solar_open": GROUPED | {
        "head_dim": 8, "intermediate_size": ..., "first_k_dense_replace": ..., "num_hidden_layers": 2,
        "attention_bias": True, "rope_parameters": YARN},
    "vaultgemma": {
        "head_dim": 6, "query_pre_attn_scalar": 6, "sliding_window": 5, "attn_logit_softcapping": 1.5,
        "final_logit_softcapping": 3.0, "attention_bias": True},
    "bamba": SPACE | {
        "layer_types": ..., "attn_layer_indices": [1], "attention_bias": True, "mlp_bias": True, "mamba_proj_bias": True},
    "falcon_h1": SPACE | FALCON_H1 | {"mamba_rms_norm": True, "mamba_norm_before_gate": False},
    "granitemoehybrid": SPACE | GRANITE | {"shared_intermediate_size": 20},
    "lfm2": {"layer_types": ["conv", "full_attention", "conv", "full_attention"], "conv_bias": True, "block_multiple_of": 8},
    "lfm2_moe": {
        "layer_types": ["conv", "conv", "full_attention", "conv"], "conv_L_cache": 4, "num_experts": 5,
        "num_experts_per_tok": 2, "moe_intermediate_size": 12, "num_dense_layers": 1, "routed_scaling_factor": 1.5,
        "tie_word_embeddings": False},
    "qwen3_next": DELTA | {
        "num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 20,
        "mlp_only_layers": [1], "attention_bias": True},
    "qwen3_5_text": DELTA | {"linear_num_value_heads": 2, "full_attention_interval": 2},
    "qwen3_5_moe_text": DELTA | {
        "intermediate_size": ..., "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
        "shared_expert_intermediate_size": 20, "linear_conv_kernel_dim": 3,
        "layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"]},
    "gemma3n_text": GEMMA_3N,
    "gemma4_text": GEMMA_4,
    "qwen2_vl": BARE | {
        "text_config": TEXT | {"rope_parameters": PLAIN | {"rope_theta": 5e3, "mrope_section": [1, 1, 0]}},
        "vision_config": {
            "depth": 1, "embed_dim": 8, "hidden_size": 16, "num_heads": 2, "mlp_ratio": 2, "patch_size": 4}},
    "qwen2_5_vl": BARE | {
        "text_config": TEXT | {
            "num_hidden_layers": 2, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1,
            "rope_parameters": PLAIN | {"mrope_section": [1, 1, 0]}},
        "vision_config": {
            "depth": 1, "hidden_size": 8, "out_hidden_size": 16, "num_heads": 2, "intermediate_size": 8, "patch_size": 4}},
    "qwen3_vl": BARE | {
        "tie_word_embeddings": True,
        "text_config": TEXT | {
            "head_dim": 8, "attention_bias": True, "rope_parameters": PLAIN | {"mrope_section": [2, 1, 1]}},
        "vision_config": IMAGES | {"deepstack_visual_indexes": [0]}},
}
# More fixtures of these kinds: each kind, and its fields.
VARIANTS = {
    "gpt_neox-sequential": ("gpt_neox", FOLDERS["gpt_neox"] | {"use_parallel_residual": False, "attention_bias": False}),
    "stablelm-sequential": ("stablelm", FOLDERS["stablelm"] | {"use_parallel_residual": False, "use_qkv_bias": False}),
    "cohere-norms": ("cohere", {"use_qk_norm": True, "rope_parameters": PLAIN}),
    "falcon-alibi": ("falcon", FALCON | {
        "alibi": True, "bias": True, "multi_query": False, "parallel_attn": False, "hidden_size": 24,
        "num_attention_heads": 6}),
    "falcon-groups": ("falcon", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2, "bias": True}),
    "falcon-groups-one-norm": ("falcon", FALCON | {
        "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}),
    "gpt_bigcode-heads": ("gpt_bigcode", FOLDERS["gpt_bigcode"] | {"multi_query": False}),
    "opt-after": ("opt", FOLDERS["opt"] | {"do_layer_norm_before": False, "word_embed_proj_dim": 8}),
    "opt-bare": ("opt", FOLDERS["opt"] | {"layer_norm_elementwise_affine": False, "_remove_final_layer_norm": True}),
    "phi-norms": ("phi", FOLDERS["phi"] | {"qk_layernorm": True}),
    "hunyuan_v1_dense-alpha": ("hunyuan_v1_dense", {
        "head_dim": 8, "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 1.0, "alpha": 1000.0}}),
    "qwen2_moe-all": ("qwen2_moe", FOLDERS["qwen2_moe"] | {"decoder_sparse_step": 1}),
    "qwen3_moe-all": ("qwen3_moe", FOLDERS["qwen3_moe"] | {"mlp_only_layers": []}),
    "qwen2_moe-sliding": ("qwen2_moe", FOLDERS["qwen2_moe"] | {
        "decoder_sparse_step": 1, "norm_topk_prob": True, "use_sliding_window": True, "sliding_window": 5,
        "max_window_layers": 3, "qkv_bias": False}),
    "deepseek_v2-lite": ("deepseek_v2", LATENT | {
        "q_lora_rank": None, "v_head_dim": 10, "rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 0.7}}),
    "deepseek_v3-halves": ("deepseek_v3", LATENT | {"rope_interleave": False, "attention_bias": True}),
    "persimmon-plain": ("persimmon", FOLDERS["persimmon"] | {"qk_layernorm": False}),
    # Some prompts are longer than the original length, and some generations grow beyond it.
    "phi3-longrope": ("phi3", {
        "num_attention_heads": 2, "original_max_position_embeddings": 12, "rope_parameters": LONG | {
            "partial_rotary_factor": 0.5, "short_factor": [1.0, 1.5], "long_factor": [2.0, 6.0]}}),
    "phimoe-longrope": ("phimoe", FOLDERS["phimoe"] | {"rope_parameters": LONG | {
        "original_max_position_embeddings": 12, "short_factor": [1.0, 1.5], "long_factor": [2.0, 6.0],
        "short_mscale": 1.2, "long_mscale": 1.4}}),
    "qwen3_5_text-images": ("qwen3_5", BARE | {
        "text_config": TEXT | DELTA | {"num_hidden_layers": 4, "rope_parameters": PLAIN | {
            "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 0], "mrope_interleaved": True}},
        "vision_config": IMAGES}),
    "qwen3_5_moe_text-images": ("qwen3_5_moe", BARE | {
        "tie_word_embeddings": True,
        "text_config": TEXT | FOLDERS["qwen3_5_moe_text"] | {"num_hidden_layers": 4, "intermediate_size": 24},
        "vision_config": IMAGES}),
    "falcon_h1-bare": ("falcon_h1", SPACE | FALCON_H1 | {
        "attention_in_multiplier": 1.0, "attention_out_multiplier": 1.0, "ssm_in_multiplier": 1.0, "ssm_out_multiplier": 1.0,
        "mlp_multipliers": [0.9, 1.0], "attention_bias": True, "mlp_bias": True, "mamba_proj_bias": True,
        "projectors_bias": True}),
    "falcon_h1-before": ("falcon_h1", SPACE | FALCON_H1 | {"mamba_rms_norm": True, "mamba_d_ssm": None}),
    "granitemoehybrid-dense": ("granitemoehybrid", SPACE | GRANITE | {
        "num_local_experts": 0, "shared_intermediate_size": 20, "position_embedding_type": "rope", "mamba_n_groups": 1,
        "mamba_conv_bias": False, "tie_word_embeddings": True}),
    "lfm2-plain": ("lfm2", {
        "layer_types": ["full_attention", "conv", "conv", "full_attention"], "block_auto_adjust_ff_dim": False}),
    "lfm2_moe-uncorrected": ("lfm2_moe", FOLDERS["lfm2_moe"] | {
        "use_expert_bias": False, "norm_topk_prob": False, "conv_bias": True}),
    "hyperclovax-before": ("hyperclovax", {"use_post_norm": False, "attention_multiplier": 0.3}),
    # Values are keys in layers that attend to everything.
    "gemma4_text-keys": ("gemma4_text", GEMMA_4 | {
        "attention_k_eq_v": True, "num_global_key_value_heads": 1, "attention_bias": True,
        "use_double_wide_mlp": False, "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "rope_theta": 1e3, "partial_rotary_factor": 0.5, "factor": 2.0},
            "sliding_attention": PLAIN}}),
    "gemma4_text-experts": ("gemma4_text", GEMMA_4 | {
        "attention_k_eq_v": True, "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0,
        "num_kv_shared_layers": 0, "num_hidden_layers": 4, "layer_types": GEMMA_4["layer_types"][:4],
        "enable_moe_block": True, "num_experts": 5, "top_k_experts": 2, "moe_intermediate_size": 12}),
    "stablelm-norms": ("stablelm", FOLDERS["stablelm"] | {"qk_layernorm": True}),
}
# Fixtures of these with a GGUF file too.
FILES = [
    "arcee", "bloom", "cohere", "cohere-norms", "cohere2", "ernie4_5", "exaone4", "falcon", "falcon-groups-one-norm",
    "gemma", "glm4", "gpt_neox", "gpt_neox-sequential", "mixtral", "mpt", "nemotron", "olmo3", "olmoe", "phi",
    "phi3-longrope", "qwen2_moe-all", "qwen3_moe-all", "seed_oss", "stablelm", "starcoder2",
]
ROPES = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 4.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16},
    "longrope": {"original_max_position_embeddings": 16, "short_factor": [1.0, 1.25], "long_factor": [2.0, 5.0]},
}


def prompts(vocabulary):
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(3, vocabulary, (length,), generator=generator).tolist() for length in PROMPTS]


def of(config):
    """The class of a config. With images it is that of the whole model."""
    has_class = type(config) in AutoModelForCausalLM._model_mapping and not hasattr(config, "vision_config")
    return AutoModelForCausalLM if has_class else AutoModelForImageTextToText


def expect(folder, rows, has_states=False):
    """Each prompt alone with a fresh model, since angles of the kind `dynamic` follow the longest of a batch."""

    fields = json.loads((folder / "config.json").read_text())
    # The other products of experts do not take f64.
    of_text = fields.get("text_config", fields)
    has_experts = any(of_text.get(field) for field in ("num_experts_per_tok", "moe_k", "moe_topk", "top_k_experts"))
    own = {"experts_implementation": "eager"} if has_experts else {}
    # Falcon's own attention adds the biases twice: the default is the other one.
    own["attn_implementation"] = "sdpa" if fields.get("alibi") else "eager"

    def model():
        return of(AutoConfig.from_pretrained(folder)).from_pretrained(folder, dtype=torch.float32, **own).eval()

    tensors = {}
    for at, row in enumerate(rows):
        whole = model().double()
        # XGLM bounds scores by a number of the default type.
        torch.set_default_dtype(torch.float64)
        with torch.no_grad():
            found = whole(input_ids=torch.tensor([row]), output_hidden_states=True)
        torch.set_default_dtype(torch.float32)
        tensors[f"logits.{at}"] = found.logits[0].float().contiguous()
        if has_states:
            states = found.hidden_states[-1]
            if fields["model_type"] == "gemma3n_text":
                # The last ones of this list are streams.
                with torch.no_grad():
                    states = whole.model(input_ids=torch.tensor([row])).last_hidden_state
            tensors[f"states.{at}"] = states[0].float().contiguous()
    cases = [
        {"name": case, "options": {k.replace("_", "-"): v for k, v in options.items()},
         "outputs": [generate(model(), [row], options)[0] for row in rows]}
        for case, options in CASES.items()
    ]
    save_file(tensors, folder / "expected.safetensors")
    (folder / "expected.json").write_text(json.dumps({"rows": rows, "cases": cases}, separators=(",", ":")) + "\n")
    return [[len(h["tokens"]) for row in c["outputs"] for h in row] for c in cases]


def rounding(model, rows):
    """The greatest difference between logits in f32 and in f64."""
    model.set_experts_implementation("eager")
    single, double = copy.deepcopy(model).float().eval(), copy.deepcopy(model).double().eval()
    with torch.no_grad():
        return max(
            (double(torch.tensor([row])).logits - single(torch.tensor([row])).logits).abs().max().item() for row in rows
        )


def kind(name, fields, model_type=None):
    folder = DATA / "decoders" / name
    shutil.rmtree(folder, ignore_errors=True)
    fields = {field: value for field, value in (SIZES | fields).items() if value is not ...}
    config = AutoConfig.for_model(model_type or name, **fields)
    rows = prompts(config.get_text_config().vocab_size)
    for seed in range(100):
        torch.manual_seed(seed)
        model = of(config).from_config(copy.deepcopy(config), dtype=torch.float32)
        with torch.no_grad():
            for at, weight in model.named_parameters():
                if "norm" in at or at.endswith("bias") or name == "openai-gpt" and ".ln_" in at:
                    weight.add_(0.3 * torch.randn_like(weight))
                    if "q_norm" in at and (model_type or name) in ("gemma3n_text", "gemma4_text"):
                        # Its scores have no factor: weights of this size are in its norms.
                        weight.mul_(weight.shape[0] ** -0.5)
                elif name == "openai-gpt" and "_embed" in at:
                    weight.copy_(1.5 * torch.randn_like(weight))
                elif at.endswith("A_log"):
                    # Some heads forget at once, and others hardly.
                    weight.copy_(2.0 * torch.randn_like(weight) - 1.5)
                else:
                    weight.copy_((0.3 if "embed" in at else 0.5) * torch.randn_like(weight))
            for at, values in model.named_buffers():
                if at.endswith(("correction_bias", "expert_bias", "layer_scalar")):
                    values.add_(0.3 * torch.randn_like(values))
            model.get_output_embeddings().weight[END].mul_(2.0)
        model = model.to(torch.bfloat16)
        found = generate(copy.deepcopy(model).float().eval(), rows, {"max_new_tokens": 12})
        varied = sum(len(set(row[0]["tokens"])) >= 4 for row in found) >= 3
        # Norms of small results of a recurrence make much of rounding.
        recurrent = any(field in fields.get("text_config", fields) for field in ("linear_key_head_dim", "mamba_d_state"))
        whole = [row + own[0]["tokens"] for row, own in zip(rows, found, strict=True)]
        if varied and not (recurrent and rounding(model, whole) > 3e-5):
            break
    else:
        raise SystemExit(f"{name}: no seed gives varied outputs")
    model.save_pretrained(folder)
    print(name, "seed", seed, "lengths", expect(folder, rows, name not in KINDS))
    if name in KINDS or name in FILES:
        write_gguf(folder, json.loads((folder / "config.json").read_text()))


def rope(name, fields):
    """The fixture `llama` with other angles: the test puts the weights beside this config."""
    folder = DATA / "ropes" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    source = DATA / "llama"
    config = json.loads((source / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": name, "rope_theta": 1e4} | fields
    config["max_position_embeddings"] = 16 if name == "dynamic" else 64
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    shutil.copy(source / "model.safetensors", folder)
    shutil.copy(source / "generation_config.json", folder)
    print(name, "lengths", expect(folder, prompts(config["vocab_size"])))
    if name == "llama3":
        step = 1e4 ** -(numpy.arange(0, 4, 2, dtype=numpy.float32) / 4)
        stretched = AutoModelForCausalLM.from_pretrained(folder).model.rotary_emb.inv_freq.numpy()
        tensors = load_file(folder / "expected.safetensors")
        save_file(tensors | {"divisors": torch.from_numpy(step / stretched)}, folder / "expected.safetensors")
    for file in ("model.safetensors", "generation_config.json"):
        (folder / file).unlink()


def together(tensors, experts):
    """The tensors, with those of a layer's experts as one, and without the dimension of a single output."""
    names = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
    found = {}
    for name, weight in tensors.items():
        if ".experts." not in name:
            found[name] = weight[0] if name.endswith("shared_expert_gate.weight") else weight
        elif ".experts.0." in name:
            start, end = name.split(".experts.0.")
            part = end.removesuffix(".weight")
            all = [tensors[f"{start}.experts.{at}.{end}"] for at in range(experts)]
            place = start.replace("block_sparse_moe", "mlp")
            found[f"{place}.experts.{names.get(part, part)}.weight"] = torch.stack(all)
    return found


def write_gguf(folder, config):
    """The checkpoint as llama.cpp's converter writes it; names are from the table of the `gguf` package."""
    import gguf

    kind = config["model_type"]
    whole = AutoConfig.from_pretrained(folder)
    for field in ("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings",
                  "intermediate_size", "num_key_value_heads"):
        config.setdefault(field, getattr(whole, field, None))
    config["intermediate_size"] = config["intermediate_size"] or config.get("ffn_hidden_size") or 4 * config["hidden_size"]
    if kind == "falcon":
        config["num_key_value_heads"] = config["num_kv_heads"] if config["new_decoder_architecture"] else 1
    config["num_key_value_heads"] = config["num_key_value_heads"] or config["num_attention_heads"]
    # Biases of scores have no bound of positions.
    config["max_position_embeddings"] = config["max_position_embeddings"] or config.get("max_seq_len") or 2048
    name = {
        "mistral": "llama", "mixtral": "llama", "gemma3_text": "gemma3", "olmo3": "olmo2", "qwen2_moe": "qwen2moe",
        "qwen3_moe": "qwen3moe", "cohere": "command-r", "gpt_neox": "gptneox", "phi": "phi2",
    }.get(kind, kind)
    arch = next(arch for arch, own in gguf.MODEL_ARCH_NAMES.items() if own == name)
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    head = config.get("head_dim") or config["hidden_size"] // heads
    ropes = config.get("rope_parameters") or PLAIN
    ropes = ropes.get("full_attention", ropes)
    writer = gguf.GGUFWriter(str(folder / "model.gguf"), name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_key_length(head)
    writer.add_value_length(head)
    eps = next((config[field] for field in ("layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon")
                if field in config), None)
    if eps is None:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    else:
        writer.add_layer_norm_eps(eps)
    writer.add_rope_freq_base(ropes["rope_theta"])
    writer.add_rope_dimension_count(int(head * ropes.get("partial_rotary_factor", 1.0)))
    if ropes["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(ropes["factor"])
    if ropes["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(ropes["factor"])
        writer.add_rope_scaling_orig_ctx_len(ropes["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(ropes["beta_fast"])
    if ropes["rope_type"] == "longrope":
        original = config["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(original)
        longer = config["max_position_embeddings"] / original
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(longer) / math.log(original)))
        for length in ("long", "short"):
            factors = numpy.array(ropes[f"{length}_factor"], dtype=numpy.float32)
            writer.add_tensor(f"rope_factors_{length}.weight", factors)
    if kind in ("gpt_neox", "stablelm"):
        writer.add_parallel_residual(config["use_parallel_residual"])
    if kind in ("cohere", "cohere2"):
        writer.add_logit_scale(config["logit_scale"])
    if kind == "mpt":
        writer.add_max_alibi_bias(config["attn_config"]["alibi_bias_max"])
    windowed = ("mistral", "gemma2", "gemma3_text", "olmo3", "phi3", "cohere2", "exaone4", "starcoder2")
    if kind in windowed and config["sliding_window"]:
        writer.add_sliding_window(config["sliding_window"])
    experts = config.get("num_local_experts") or config.get("num_experts")
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if "moe_intermediate_size" in config:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in config:
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    if config.get("clip_qkv"):
        writer.add_clamp_kqv(config["clip_qkv"])
    if kind == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if kind == "granite":
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    tokens = [f"<{token}>" for token in range(config["vocab_size"])]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_merges([])
    for add in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_pad_token_id):
        add(END)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    for own, weight in together(load_file(folder / "model.safetensors"), experts).items():
        stem, end = own.rsplit(".", 1)
        weight = weight.float()
        if (kind.startswith("gemma") or kind == "nemotron" and end == "weight") and stem.endswith("norm"):
            weight = weight + 1
        if stem.endswith("query_key_value"):
            # Queries, keys and values one after the other.
            groups_of = weight.reshape(groups, heads // groups + 2, head, -1)
            parts = groups_of.split([heads // groups, 1, 1], dim=1)
            weight = torch.cat([part.reshape(-1, *weight.shape[1:]) for part in parts])
        if kind == "bloom" and stem.startswith("transformer."):
            stem = stem.removeprefix("transformer.")
        if name in ("llama", "smollm3", "granite", "arcee") and stem.endswith(("q_proj", "k_proj")):
            count = heads if stem.endswith("q_proj") else groups
            weight = weight.reshape(count, 2, head // 2, -1).transpose(1, 2).reshape(weight.shape)
        weight = weight.contiguous().numpy()
        if weight.ndim == 1:
            writer.add_tensor(f"{names.get_name(stem)}.{end}", weight)
        else:
            kept = gguf.GGMLQuantizationType.BF16
            packed = gguf.quants.quantize(weight, kept)
            writer.add_tensor(f"{names.get_name(stem)}.{end}", packed, raw_dtype=kept)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    chosen = sys.argv[1:]
    for name, fields in (KINDS | FOLDERS).items():
        if not chosen or name in chosen:
            kind(name, fields)
    for name, (model_type, fields) in VARIANTS.items():
        if not chosen or name in chosen:
            kind(name, fields, model_type)
    for name, fields in ROPES.items():
        if not chosen or name in chosen:
            rope(name, fields)
