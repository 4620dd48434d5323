"""Makes crates/transformers/tests/data/parlai: a tiny memory network in the layout of the end-to-end generator of ParlAI's
Wizard of Wikipedia project (`model`, `model.opt`, `model.dict`, `model.dict.codecs`), with seeded weights, and the outputs of
ParlAI's code for some dialogues (expected.json): tokens, attention to pieces of knowledge, and greedy answers with the
log-probabilities of their tokens.

ParlAI 1.7.2 must be importable with its `projects` and with subword-nmt (`pip install --no-deps parlai subword-nmt iopath
portalocker`); its other imports are not called here.

    python scripts/reference/parlai_parity.py
"""

import json
import pathlib
import sys

import torch
from parlai.core.dict import DictionaryAgent
from parlai.core.opt import Opt
from projects.wizard_of_wikipedia.generator.modules import EndToEndModel

OUT = pathlib.Path(__file__).resolve().parents[2] / "crates" / "transformers" / "tests" / "data" / "parlai"
torch.set_num_threads(1)

CORPUS = """the red lantern hangs over the old gate of the harbour town
lanterns are lamps that hang from a wall or a pole __knowledge__
i like lamps , do you ? yes ! lamps and old harbours
the harbour was dug in 1820 by three hundred workers
gates of old towns were closed at night and opened at dawn
workers hang red lanterns over the gates at night __knowledge__ the town is old
do you know when the gate was opened ? it was opened at dawn in 1820
"""

DIALOGUES = [
    "Do you like the red Lantern?\nYes, it hangs over the gate!\nWhen was it opened?",
    "lamps",
    "The harbour -- naïve, I know -- was dug in 1820_b by ДРУГИЕ workers;\nlanternharbours hang unclosed? @@ </w> "
    + "the old gate of the town is red and the lanterns hang over it " * 3,
]
PIECES = [
    ["Gate __knowledge__ The gate was opened at dawn in 1820.", "Lantern __knowledge__ Lanterns are lamps.",
     "Town __knowledge__ The old town's harbour was dug by three hundred workers, and its gates were closed at night,"
     " and lanterns hang over the gates, and lamps over the harbour, and workers opened it at dawn."],
    ["Lamp __knowledge__ Lamps hang from a pole or a wall."],
    ["Harbour __knowledge__ It was dug.", "no_passages_used __knowledge__ no_passages_used"],
]


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    opt = Opt(
        dict_tokenizer="bpe", dict_lower=True, dict_file=str(OUT / "model.dict"), dict_minfreq=0,
        dict_maxtokens=-1, dict_nulltoken="__null__", dict_starttoken="__start__", dict_endtoken="__end__",
        dict_unktoken="__unk__", dict_max_ngram_size=-1, dict_textfields="text", bpe_debug=False,
        model="projects.wizard_of_wikipedia.generator.agents:EndToEndAgent",
        n_layers=2, n_heads=2, embedding_size=16, ffn_size=24, dropout=0.2, attention_dropout=0.1,
        relu_dropout=0.05, activation="relu", variant="aiayn", embeddings_scale=True, n_positions=48,
        n_segments=0, learn_positional_embeddings=False, share_word_embeddings=True, output_scaling=1.0,
        truncate=48, text_truncate=48, label_truncate=48, knowledge_truncate=16, knowledge_alpha=0.95,
        max_knowledge=32, n_encoder_layers=-1, n_decoder_layers=-1, embedding_type="random", beam_size=1,
        inference="greedy", fp16=False,
    )
    for old in OUT.glob("model*"):
        old.unlink()
    words = DictionaryAgent(opt)
    for line in CORPUS.splitlines():
        words.add_to_dict(words.tokenize(line, building=True))
    words.bpe.finalize(words.freq, num_symbols=60, minfreq=1)
    # As in training: the vocabulary of subwords, without pieces that occur only as parts of longer pieces.
    words._remove_non_bpe()
    words.save(opt["dict_file"], sort=True)
    words = DictionaryAgent(opt)

    torch.manual_seed(7)
    model = EndToEndModel(opt, words).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            elif name == "embeddings.weight":
                parameter.copy_(torch.randn_like(parameter) * 0.6)
            elif "position" not in name:
                parameter.add_(torch.randn_like(parameter) * 0.15)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter) if parameter.requires_grad else None
    optimizer.step()
    saved = {
        "model": model.state_dict(), "optimizer_type": "adam", "number_training_updates": 3,
        "optimizer": optimizer.state_dict(), "lr_scheduler_type": "invsqrt", "warmup_scheduler": {"last_epoch": 3},
    }
    torch.save(saved, OUT / "model")
    (OUT / "model.dict.opt").unlink()
    kept = {key: opt[key] for key in opt if key not in ("dict_file", "bpe_debug")}
    (OUT / "model.opt").write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")

    cases = []
    for dialogue, pieces in zip(DIALOGUES, PIECES):
        context = words.txt2vec(dialogue)
        context = context[-opt["text_truncate"]:]
        read = [(words.txt2vec(piece) + [words[words.end_token]])[: opt["knowledge_truncate"]] for piece in pieces]
        longest = max(map(len, read))
        rows = torch.zeros(1, len(read), longest, dtype=torch.long)
        for at, row in enumerate(read):
            rows[0, at, longest - len(row):] = torch.tensor(row)
        rows[:, :, -1] = words[words.end_token]
        with torch.no_grad():
            states = model.encoder(
                torch.tensor([context]), rows, torch.ones(1, len(read), dtype=torch.bool), None, False
            )
            tokens, scores = [words[words.start_token]], []
            while len(tokens) <= 12 and tokens[-1] != words[words.end_token]:
                latent, _ = model.decoder(torch.tensor([tokens]), states)
                logs = torch.log_softmax(model.output(latent)[0, -1].double(), dim=-1)
                scores.append(logs.max().item())
                tokens.append(logs.argmax().item())
        answer = tokens[1:]
        ended = answer[:-1] if answer[-1] == words[words.end_token] else answer
        cases.append({
            "dialogue": dialogue, "pieces": pieces,
            "dialogue_tokens": context,
            "piece_tokens": [[token for token in row.tolist() if token != 0] for row in rows[0]],
            "attention": states[2][0].tolist(), "tokens": answer, "scores": scores,
            "text": words.vec2txt(ended),
        })
    expected = {"vocabulary": len(words), "special": [words[w] for w in ("__null__", "__start__", "__end__", "__unk__")],
                "cases": cases}
    (OUT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    print(len(words), "words", file=sys.stderr)


main()
