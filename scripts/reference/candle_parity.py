"""Tiny decoder-only models of architectures that candle-transformers has, with the logits and greedy tokens of `transformers`.

    python3 scripts/reference/candle_parity.py crates/transformers/tests/data/candle [MODEL_TYPE ..]

Needs `torch` and `transformers` 5. Each folder gets a seeded model's `config.json` and `model.safetensors`, and
`expected.json`: `prompt`, `logits` at every position of the prompt, and `tokens`, the next ones by greedy search.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

SEED = 11
# Seeds of models that would repeat a token or end at once.
SEEDS = {"mamba": 48, "mamba2": 12, "recurrent_gemma": 15}
PROMPT = [0, 7, 31, 4, 19, 22, 5]
NEW_TOKENS = 8
COMMON = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}
GEMMA = {"head_dim": 8, "sliding_window": 32, "query_pre_attn_scalar": 8}
EXPERTS = {"moe_intermediate_size": 12, "num_experts": 3, "num_experts_per_tok": 2}
LATENT = {
    "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 6, "num_key_value_heads": 4,
}
RECURRENT = {"max_position_embeddings": ..., "num_attention_heads": ..., "num_key_value_heads": ...}
# Fields that are `...` are not set.
MODELS = {
    "deepseek_v2": {
        **EXPERTS, **LATENT, "first_k_dense_replace": 1, "q_lora_rank": 12, "n_shared_experts": 1,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 4.0,
            "beta_slow": 1.0, "mscale": 0.7, "mscale_all_dim": 0.8,
        },
    },
    "falcon": {},
    "gemma": {"head_dim": 8},
    "gemma2": GEMMA,
    "gemma3_text": {**GEMMA, "num_hidden_layers": 6},
    "glm4": {"head_dim": 8},
    # Candle has no multipliers, and divides scores by the root of a head's width.
    "granite": {"attention_multiplier": 0.5},
    "gpt_bigcode": {"n_inner": 24, "intermediate_size": ..., "num_key_value_heads": ...},
    "helium": {"head_dim": 4},
    "mamba": {**RECURRENT, "intermediate_size": ...},
    # Candle's model ties the head, and normalises all groups together.
    "mamba2": {
        **RECURRENT, "num_heads": 4, "head_dim": 8, "n_groups": 1, "state_size": 8, "tie_word_embeddings": True,
    },
    "mistral": {"sliding_window": None},
    "mixtral": {"num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": None},
    "olmo": {},
    "olmo2": {},
    "phi": {"partial_rotary_factor": 0.5},
    "phi3": {},
    "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 12},
    "qwen3": {"head_dim": 8},
    "qwen3_moe": {**EXPERTS, "head_dim": 8},
    "stablelm": {"partial_rotary_factor": 0.5},
    "recurrent_gemma": {
        "num_hidden_layers": 3, "intermediate_size": 48, "num_key_value_heads": 1, "attention_window_size": 64,
        "max_position_embeddings": ...,
    },
    "starcoder2": {"sliding_window": None},
}


def model(name: str) -> torch.nn.Module:
    torch.manual_seed(SEEDS.get(name, SEED))
    fields = {field: value for field, value in (COMMON | MODELS[name]).items() if value is not ...}
    config = AutoConfig.for_model(name, **fields)
    made = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for _, values in sorted(made.named_parameters()):
            if values.dim() > 1:
                values.normal_(0, 0.3)
            else:
                values.add_(torch.randn_like(values) * 0.1)
    return made


def main() -> None:
    out = Path(sys.argv[1])
    for name in sys.argv[2:] or MODELS:
        made, folder = model(name), out / name
        made.save_pretrained(folder)
        shutil.rmtree(folder / ".cache", ignore_errors=True)
        ids, tokens = torch.tensor([PROMPT]), []
        with torch.no_grad():
            logits = made(ids).logits[0]
            for _ in range(NEW_TOKENS):
                token = int(made(ids).logits[0, -1].argmax())
                tokens.append(token)
                ids = torch.cat([ids, torch.tensor([[token]])], 1)
                if token == COMMON["eos_token_id"]:
                    break
        rows = [[round(value, 6) for value in row] for row in logits.tolist()]
        expected = {"prompt": PROMPT, "logits": rows, "tokens": tokens}
        (folder / "expected.json").write_text(json.dumps(expected) + "\n")
        print(name, tokens)


if __name__ == "__main__":
    main()
