"""Makes the parity fixture of decoder-only training, crates/training/tests/data/causal.

For the tiny GPT-2, LLaMA and Qwen 2 of causal_parity.py: the mean cross-entropy of target tokens in a batch that is padded
on the right, without dropout, the norm and some values of the gradient of each weight, and the loss after three steps of
AdamW, by PyTorch in f64. Prompt tokens have no loss.

    python scripts/reference/causal_training_parity.py
        # torch 2.15, transformers 5.24
"""

import json
import pathlib

import torch
from transformers import AutoModelForCausalLM

CRATES = pathlib.Path(__file__).resolve().parents[2] / "crates"
DATA = CRATES / "transformers" / "tests" / "data"
torch.set_num_threads(1)
RATE, DECAY, STEPS, VALUES = 1e-2, 0.1, 3, 6
# Prompts and targets of several lengths.
ROWS = [
    ([17, 250, 33, 90, 7, 311], [45, 12, 0]),
    ([5], [399, 120, 64, 2, 0]),
    ([88, 201, 9, 140], [31]),
    ([301, 14, 77, 260, 19, 8, 350, 42], [66, 0]),
]
IGNORED = -100


def batch():
    longest = max(len(prompt) + len(target) for prompt, target in ROWS)
    ids, mask, labels = [], [], []
    for prompt, target in ROWS:
        row = prompt + target
        fill = longest - len(row)
        ids.append(row + [0] * fill)
        mask.append([1] * len(row) + [0] * fill)
        labels.append([IGNORED] * len(prompt) + target + [IGNORED] * fill)
    return torch.tensor(ids), torch.tensor(mask), torch.tensor(labels)


def places(count):
    """Places that are spread over a weight of `count` values."""
    return [at * (count - 1) // (VALUES - 1) for at in range(VALUES)]


def main():
    out = CRATES / "training" / "tests" / "data" / "causal"
    out.mkdir(exist_ok=True)
    ids, mask, labels = batch()
    for name in ("gpt2", "llama", "qwen2"):
        model = AutoModelForCausalLM.from_pretrained(DATA / name).double().eval()
        # Biases of one dimension and norms are not decayed.
        groups = [
            {"params": [w for w in model.parameters() if w.dim() >= 2], "weight_decay": DECAY},
            {"params": [w for w in model.parameters() if w.dim() < 2], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.999), eps=1e-8)
        losses, gradients = [], {}
        for step in range(STEPS + 1):
            optimizer.zero_grad()
            logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
            loss = torch.nn.functional.cross_entropy(
                logits.reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1), ignore_index=IGNORED
            )
            losses.append(loss.item())
            loss.backward()
            if step == 0:
                for weight_name, weight in model.named_parameters():
                    values = weight.grad.reshape(-1)
                    gradients[weight_name] = {
                        "norm": values.norm().item(),
                        "largest": values.abs().max().item(),
                        "at": [values[at].item() for at in places(len(values))],
                    }
            optimizer.step()
        expected = {
            "rows": [{"prompt": prompt, "target": target} for prompt, target in ROWS],
            "losses": losses,
            "gradients": gradients,
        }
        (out / f"{name}.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
