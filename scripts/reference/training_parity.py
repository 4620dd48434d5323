"""Makes the parity fixture of training, crates/training/tests/data/tuned.

For tiny cross-encoders of encoder_parity.py, encoder_families.py and decoder_encoders.py: the binary log-loss of a batch against soft targets without
dropout, the gradients of all weights, and the weights after three steps of AdamW, by PyTorch in f64, rounded.

    python scripts/reference/training_parity.py
        # torch 2.15, transformers 5.23
"""

import pathlib

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

CRATES = pathlib.Path(__file__).resolve().parents[2] / "crates"
DATA = CRATES / "transformers" / "tests" / "data"
torch.set_num_threads(1)
RATE, DECAY, STEPS = 1e-2, 0.1, 3
NAMES = (
    "bert-sequence", "roberta-sequence", "modernbert-sequence", "modernbert-first", "eurobert-sequence", "eurobert-mean",
)


def decayed(name, weight):
    return weight.dim() >= 2


def main():
    out = CRATES / "training" / "tests" / "data" / "tuned"
    out.mkdir(exist_ok=True)
    for name in NAMES:
        folder = DATA / "encoders" / name
        model = AutoModelForSequenceClassification.from_pretrained(folder).double().eval()
        given = load_file(folder / "expected.safetensors")
        inputs = {key: given[key].long() for key in ("input_ids", "attention_mask", "token_type_ids") if key in given}
        # PyTorch does not train the padding token's embedding, and no text has this token; here a word replaces it.
        inputs["input_ids"][(inputs["input_ids"] == model.config.pad_token_id) & (inputs["attention_mask"] == 1)] = 5
        targets = torch.tensor([0.9, 0.0, 0.6, 0.3], dtype=torch.float64)
        groups = [
            {"params": [w for n, w in model.named_parameters() if decayed(n, w)], "weight_decay": DECAY},
            {"params": [w for n, w in model.named_parameters() if not decayed(n, w)], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.999), eps=1e-8)
        tensors = {}
        for step in range(STEPS):
            optimizer.zero_grad()
            logits = model(**inputs).logits
            scores = logits[:, -1] - (logits[:, 0] if logits.shape[1] == 2 else 0.0)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, targets)
            loss.backward()
            if step == 0:
                tensors["loss"] = loss.detach().reshape(1)
                tensors |= {f"gradient.{n}": w.grad.clone() for n, w in model.named_parameters()}
            optimizer.step()
        tensors |= {f"weight.{n}": w.detach().clone() for n, w in model.named_parameters()}
        tensors = {key: value.float().contiguous() for key, value in tensors.items()}
        save_file(tensors, out / f"{name}.safetensors")


if __name__ == "__main__":
    main()
