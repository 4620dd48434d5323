"""Makes the parity fixture of LSTMs, crates/training/tests/data/lstm.safetensors: a seeded `nn.LSTM` of two layers in two
directions, packed sequences of several lengths, its hidden states, and the gradients of a weighted sum of them, in f64 and rounded.

    python scripts/reference/lstm_parity.py
        # torch 2.15
"""

import pathlib

import torch
from safetensors.torch import save_file

DATA = pathlib.Path(__file__).resolve().parents[2] / "crates" / "training" / "tests" / "data"
LENGTHS = [4, 9, 1, 6]
INPUTS, HIDDEN, LAYERS = 6, 10, 2


def main():
    torch.manual_seed(11)
    lstm = torch.nn.LSTM(INPUTS, HIDDEN, LAYERS, bidirectional=True, batch_first=True).double()
    sequences = [torch.randn(length, INPUTS, dtype=torch.float64, requires_grad=True) for length in LENGTHS]
    packed = torch.nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False)
    padded, _ = torch.nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)
    states = torch.cat([padded[at, :length] for at, length in enumerate(LENGTHS)])
    to_states = torch.randn_like(states)
    (states * to_states).sum().backward()
    made = {"lengths": torch.tensor(LENGTHS), "states": states, "to_states": to_states}
    made |= {"xs": torch.cat(sequences), "to_xs": torch.cat([sequence.grad for sequence in sequences])}
    for name, weight in lstm.named_parameters():
        made |= {f"lstm.{name}": weight, f"lstm.{name}.gradient": weight.grad}
    made = {name: tensor.detach().float().contiguous() for name, tensor in made.items()}
    save_file(made, DATA / "lstm.safetensors")


if __name__ == "__main__":
    main()
