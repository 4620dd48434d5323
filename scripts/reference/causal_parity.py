"""Makes the fixtures of decoder-only models, crates/transformers/tests/data/{gpt2,llama,qwen2}.

For each architecture it writes a seeded tiny checkpoint, `expected.safetensors` (prompts padded on the left and on the right,
with the logits of the latter, computed in f64) and `expected.json` (generations by `transformers` in f32 on one CPU thread, from
prompts padded on the left, as `transformers` requires).

    python scripts/reference/causal_parity.py                  # torch 2.15, transformers 5.23, gguf; after checkpoint_parity.py
"""

import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import save_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

DATA = pathlib.Path(__file__).resolve().parents[2] / "crates" / "transformers" / "tests" / "data"
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)

TEXTS = ["Where was the author of the book born?", "東京は", "Don't you", "emoji and flags, a zero width and a line", "x"]
END = 0

CASES = {
    "greedy": {"max_new_tokens": 16},
    "greedy, least 9, no bigram twice": {"max_new_tokens": 16, "min_new_tokens": 9, "no_repeat_ngram_size": 2},
    "beam 4": {"max_new_tokens": 16, "num_beams": 4},
    "beam 3, length 2, all returned": {
        "max_new_tokens": 12, "num_beams": 3, "length_penalty": 2.0, "num_return_sequences": 3,
    },
    "beam 4, early": {"max_new_tokens": 16, "num_beams": 4, "early_stopping": True, "num_return_sequences": 2},
}


def gpt2(seed):
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=401, n_positions=64, n_embd=24, n_layer=3, n_head=3, bos_token_id=END, eos_token_id=END,
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
    )
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "ln_" in name or name.endswith("bias"):
                weight.add_(0.2 * torch.randn_like(weight))
            else:
                weight.copy_((0.15 if "wte" in name else 0.5) * torch.randn_like(weight))
        model.transformer.wte.weight[END].mul_(3.0)  # so that the end token comes up
    return model


def rotary(build, config, **fields):
    def make(seed):
        torch.manual_seed(seed)
        model = build(config(
            vocab_size=401, max_position_embeddings=64, hidden_size=24, intermediate_size=40, num_hidden_layers=3,
            num_attention_heads=6, num_key_value_heads=2, bos_token_id=END, eos_token_id=END, **fields,
        ))
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "norm" in name or name.endswith("bias"):
                    weight.add_(0.3 * torch.randn_like(weight))
                else:
                    weight.copy_((0.2 if "embed" in name else 0.4) * torch.randn_like(weight))
            model.get_output_embeddings().weight[END].mul_(3.0)
        return model

    return make


def pad(rows, left):
    longest = max(map(len, rows))
    fill = [[0] * (longest - len(row)) for row in rows]
    ids = [f + row if left else row + f for f, row in zip(fill, rows, strict=True)]
    mask = [f + [1] * len(row) if left else [1] * len(row) + f for f, row in zip(fill, rows, strict=True)]
    return torch.tensor(ids), torch.tensor(mask)


def generate(model, rows, options):
    ids, mask = pad(rows, True)
    out = model.generate(
        input_ids=ids, attention_mask=mask, pad_token_id=END, return_dict_in_generate=True, output_scores=True,
        do_sample=False, **options,
    )
    greedy = options.get("num_beams", 1) == 1
    if greedy:
        steps = model.compute_transition_scores(out.sequences, out.scores, normalize_logits=True)
    found = []
    for i, row in enumerate(out.sequences[:, ids.shape[1] :].tolist()):
        row = row[: next((at + 1 for at, token in enumerate(row) if token == END), None)]
        score = steps[i, : len(row)].double().sum().item() if greedy else out.sequences_scores[i].item()
        found.append({"tokens": row, "score": score})
    count = options.get("num_return_sequences", 1)
    return [found[i : i + count] for i in range(0, len(found), count)]


def write(name, build):
    folder = DATA / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in ("vocab.json", "merges.txt"):
        shutil.copy(DATA / "tokenizers" / "gpt2" / file, folder / file)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}\n')
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = [tokenizer(text)["input_ids"] for text in TEXTS]
    for seed in range(3000):
        model = build(seed).eval()
        first = [row[0]["tokens"] for row in generate(model, rows, {"max_new_tokens": 16})]
        ended = sum(len(row) < 16 for row in first)
        if 1 <= ended < len(rows) and sum(len(set(row)) >= 4 for row in first) >= 3:
            break
    else:
        sys.exit(f"{name}: no seed gives varied outputs")
    model.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    cases = [
        {"name": case, "options": {k.replace("_", "-"): v for k, v in options.items()},
         "outputs": generate(model, rows, options)}
        for case, options in CASES.items()
    ]
    tensors = {}
    exact = model.double()
    for side in ("left", "right"):
        ids, mask = pad(rows, side == "left")
        places = (mask.cumsum(1) - 1).clamp(min=0)
        with torch.no_grad():
            logits = exact(input_ids=ids, attention_mask=mask, position_ids=places).logits
        tensors |= {f"{side}.ids": ids.int(), f"{side}.mask": mask.float()}
    tensors["right.logits"] = logits.float().contiguous()
    save_file(tensors, folder / "expected.safetensors")
    decoded = [tokenizer.decode(row[0]["tokens"], skip_special_tokens=True) for row in cases[0]["outputs"]]
    expected = {"texts": TEXTS, "rows": rows, "decoded": decoded, "seed": seed, "cases": cases}
    (folder / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")
    print(name, "seed", seed, "lengths", [[len(h["tokens"]) for row in c["outputs"] for h in row] for c in cases])


def gguf():
    """The tiny LLaMA as a llama.cpp file in f32, with adjacent pairs of each rotation."""
    from gguf import GGUFWriter
    from safetensors.torch import load_file

    config = json.loads((DATA / "llama" / "config.json").read_text())
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    writer = GGUFWriter(str(DATA / "llama" / "model.gguf"), "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    vocabulary = json.loads((DATA / "llama" / "vocab.json").read_text())
    tokens = sorted(vocabulary, key=vocabulary.get) + ["<pad>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] + [1] * (len(tokens) - 2) + [3])
    merges = (DATA / "llama" / "merges.txt").read_text().splitlines()
    writer.add_token_merges([line for line in merges if line and not line.startswith("#version")])
    writer.add_bos_token_id(END)
    writer.add_eos_token_id(END)
    names = {
        "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
        "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    }
    for name, weight in load_file(DATA / "llama" / "model.safetensors").items():
        if "q_proj" in name or "k_proj" in name:
            count = heads if "q_proj" in name else groups
            weight = weight.reshape(count, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
        stem = name.removesuffix(".weight")
        if stem.startswith("model.layers."):
            layer, inner = stem.removeprefix("model.layers.").split(".", 1)
            stem = f"blk.{layer}.{names[inner]}"
        else:
            stem = names[stem]
        writer.add_tensor(stem + ".weight", weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    write("gpt2", gpt2)
    write("llama", rotary(LlamaForCausalLM, LlamaConfig, tie_word_embeddings=False, pad_token_id=None))
    write("qwen2", rotary(Qwen2ForCausalLM, Qwen2Config, tie_word_embeddings=True))
    gguf()
