"""PyTorch's side of benches/training.rs: whole training steps of a cross-encoder on given rows, or of a decoder-only model.

    python scripts/reference/training.py FOLDER ROWS.json STEPS THREADS f32|bf16 cpu|cuda
    python scripts/reference/training.py gpt2 ROWS.json STEPS THREADS f32|bf16 cpu|cuda     # GPT-2 small, random weights
    python scripts/reference/training.py llama ROWS.json STEPS THREADS f32|bf16 cpu|cuda    # SmolLM2-135M, random weights
        # torch 2.15, transformers 5.23

bf16 is autocast: products in bf16, weights and steps in f32. Prints {"seconds": the median of STEPS steps after one,
"peak": the highest resident set in MiB}.
"""

import json
import resource
import statistics
import sys
import time

import torch
from transformers import AutoModelForSequenceClassification, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

folder, given, steps, threads, precision, device = sys.argv[1:]
torch.set_num_threads(int(threads))
torch.manual_seed(7)
rows = json.load(open(given))
IGNORED = -100


def padded(values, fill=0):
    longest = max(map(len, values))
    return torch.tensor([list(value) + [fill] * (longest - len(value)) for value in values], device=device)


def cross_encoder():
    """The model of the folder, and its loss."""
    batch = {
        "input_ids": padded([row["ids"] for row in rows]),
        "token_type_ids": padded([row["types"] for row in rows]),
        "attention_mask": padded([[1] * len(row["ids"]) for row in rows]),
    }
    labels = torch.tensor([float(at % 2) for at in range(len(rows))], device=device)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1, dtype=torch.float32)

    def loss(logits):
        return torch.nn.functional.binary_cross_entropy_with_logits(logits.squeeze(-1).float(), labels)

    return model, batch, loss


def causal():
    """A decoder-only model with random weights, and the loss of the target tokens."""
    whole = [row["prompt"] + row["target"] for row in rows]
    batch = {"input_ids": padded(whole), "attention_mask": padded([[1] * len(row) for row in whole])}
    labels = padded([[IGNORED] * len(row["prompt"]) + row["target"] for row in rows], IGNORED)[:, 1:]

    def loss(logits):
        logits = logits[:, :-1].float()
        return torch.nn.functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), ignore_index=IGNORED
        )

    if folder == "gpt2":
        return GPT2LMHeadModel(GPT2Config(use_cache=False)), batch, loss
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
        use_cache=False,
    )
    return LlamaForCausalLM(config), batch, loss


model, batch, loss_of = causal() if folder in ("gpt2", "llama") else cross_encoder()
model = model.to(device)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01)
seconds = []
for step in range(int(steps) + 1):
    began = time.perf_counter()
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bf16"):
        logits = model(**batch).logits
    loss_of(logits).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if device != "cpu":
        torch.cuda.synchronize()
    if step > 0:
        seconds.append(time.perf_counter() - began)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": statistics.median(seconds), "peak": peak}))
