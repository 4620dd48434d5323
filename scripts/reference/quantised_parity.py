"""Makes the fixtures of quantised decoders, crates/transformers/tests/data/decoders/{*-fp8,*-mxfp4}.

For each it writes a seeded tiny checkpoint whose linear layers are in fp8 (E4M3, a scale for each 128 by 128 values, or one for
the whole tensor) or whose experts are in mxfp4 (E2M1, an exponent for each 32 values), and what `decoder_parity.py` expects of
the model that `transformers` makes of it in f32 on a CPU: it turns quantised weights into plain numbers when it loads them.

    python scripts/reference/quantised_parity.py [NAME ..]      # torch 2.15, transformers 5.24
"""

import json
import shutil
import sys

import torch
from causal_parity import DATA, generate
from decoder_parity import LATENT, SIZES, YARN, expect, prompts
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

BLOCK = 128
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]}
STATIC = {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}
MODELS = {
    "qwen3-fp8": ("qwen3", FP8, {
        "hidden_size": 256, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 64, "tie_word_embeddings": True}),
    "deepseek_v3-fp8": ("deepseek_v3", FP8, LATENT | {"norm_topk_prob": True, "num_hidden_layers": 3}),
    "ministral3-fp8": ("ministral3", STATIC, {"head_dim": 8, "num_hidden_layers": 2, "rope_parameters": YARN | {
        "original_max_position_embeddings": 8, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.5}}),
    "gpt_oss-mxfp4": ("gpt_oss", {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, {
        "hidden_size": 64, "intermediate_size": 32, "head_dim": 8, "num_hidden_layers": 2, "num_local_experts": 4,
        "num_experts_per_tok": 2, "sliding_window": 5, "swiglu_limit": 1.0, "rope_parameters": YARN | {"truncate": False}}),
}
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def fp8(weight, config):
    """The values of E4M3 and the scale of each block, so that its greatest value is E4M3's greatest."""
    rows, columns = weight.shape
    size = config["weight_block_size"] or [rows, columns]
    blocks = [part.split(size[1], dim=1) for part in weight.float().split(size[0], dim=0)]
    scales = torch.tensor([[block.abs().max() / 448.0 for block in row] for row in blocks])
    parts = [torch.cat([block / scales[i, j] for j, block in enumerate(row)], dim=1) for i, row in enumerate(blocks)]
    values = torch.cat(parts).to(torch.float8_e4m3fn)
    return values, scales if config["weight_block_size"] else scales[0, 0]


def mxfp4(weight):
    """(experts, columns, rows) as pairs of numbers of four bits for each row and group, and the groups' exponents."""
    rows = weight.float().transpose(1, 2)
    groups = rows.reshape(*rows.shape[:2], -1, 32)
    most = groups.abs().amax(-1, keepdim=True)
    power = torch.floor(torch.log2(most)) - 2
    scaled = groups / 2.0**power
    nearest = (scaled.abs().unsqueeze(-1) - E2M1).abs().argmin(-1) + 8 * (scaled < 0)
    pairs = nearest[..., 0::2] | nearest[..., 1::2] << 4
    return pairs.to(torch.uint8).contiguous(), (power.squeeze(-1) + 127).to(torch.uint8).contiguous()


def quantised(tensors, config):
    found = {}
    for name, weight in tensors.items():
        is_linear = name.endswith("_proj.weight") or name.endswith("_mqa.weight")
        if config["quant_method"] == "fp8" and is_linear:
            values, scales = fp8(weight, config)
            found |= {name: values, f"{name}_scale_inv": scales}
            if config["activation_scheme"] == "static":
                found[name.removesuffix("weight") + "activation_scale"] = torch.tensor(1.0)
        elif config["quant_method"] == "mxfp4" and name.endswith((".gate_up_proj", ".down_proj")):
            pairs, exponents = mxfp4(weight)
            found |= {f"{name}_blocks": pairs, f"{name}_scales": exponents}
        else:
            found[name] = weight
    return found


def write(name):
    model_type, quantisation, fields = MODELS[name]
    folder = DATA / "decoders" / name
    shutil.rmtree(folder, ignore_errors=True)
    config = AutoConfig.for_model(model_type, **(SIZES | fields))
    rows = prompts(config.vocab_size)
    for seed in range(100):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for at, weight in model.named_parameters():
                if "norm" in at or at.endswith("bias"):
                    weight.add_(0.3 * torch.randn_like(weight))
                else:
                    size = 0.3 if "embed" in at else 2.0 / max(weight.shape[-1], 16) ** 0.5
                    weight.copy_(size * torch.randn_like(weight))
            for at, values in model.named_buffers():
                if at.endswith("correction_bias"):
                    values.add_(0.3 * torch.randn_like(values))
        model.to(torch.bfloat16).save_pretrained(folder)
        save_file(quantised(load_file(folder / "model.safetensors"), quantisation), folder / "model.safetensors",
                  metadata={"format": "pt"})
        text = json.loads((folder / "config.json").read_text()) | {"quantization_config": quantisation}
        (folder / "config.json").write_text(json.dumps(text, indent=2, sort_keys=True) + "\n")
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        found = generate(model, rows, {"max_new_tokens": 12})
        if sum(len(set(row[0]["tokens"])) >= 4 for row in found) >= 3:
            break
    else:
        raise SystemExit(f"{name}: no seed gives varied outputs")
    print(name, "seed", seed, "lengths", expect(folder, rows, True), model.dtype)


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        write(name)
