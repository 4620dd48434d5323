"""Makes the parity fixtures of the transformers crate, crates/transformers/tests/data.

For each architecture: a seeded tiny checkpoint (config.json, generation_config.json, model.safetensors, tokenizer.json),
`expected.safetensors` (inputs, hidden states of the encoder, logits) and `expected.json` (tokenized texts, generations with scores), all
computed by the `transformers` library on one CPU thread: generations in f32, tensors in f64 and rounded.

    python scripts/reference/transformers_parity.py            # torch 2.15, transformers 5.23, tokenizers 0.23, numpy

The weights are larger than in the usual initialisation. The seed is the first one whose greedy outputs vary and reach the end
token in some rows, so the comparison does not use degenerate sequences.
"""

import json
import pathlib
import random
import shutil
import sys

import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

DATA = pathlib.Path(__file__).resolve().parents[2] / "crates" / "transformers" / "tests" / "data"
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)

WORDS = (
    "the of and in to is was born river city capital country film author wrote book song played award first "
    "king queen war year north south team league music band album president party where when who which what"
).split()


def sentence(rng, count):
    return " ".join(rng.choice(WORDS) for _ in range(count))


def texts():
    rng = random.Random(5)
    return [
        "where was the author of the book born?",
        "capital of the country in the north",
        "Which band wrote the song, and when?",
        "war",
        sentence(rng, 150),
    ]


def t5_tokenizer():
    """A hand-made unigram model over words and characters, in the layout of T5's tokenizer.json."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [("▁" + word, -3.0 - i / 16) for i, word in enumerate(WORDS)]
    pieces += [(c, -9.0 - i / 16) for i, c in enumerate("▁abcdefghijklmnopqrstuvwxyzW?,.'-0123456789")]
    pieces += [("er", -6.0), ("ing", -6.5), ("ed", -6.25), ("s", -5.5)][:3]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return tokenizer


def bart_tokenizer():
    """A byte-level BPE with the special tokens of BART, trained on a few sentences."""
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    rng = random.Random(11)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(vocab_size=160, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([sentence(rng, 12) for _ in range(80)] + texts(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


def t5(seed, gated, vocabulary):
    torch.manual_seed(seed)
    config = T5Config(
        vocab_size=vocabulary,
        d_model=24,
        d_kv=8,
        d_ff=40,
        num_layers=3 if gated else 2,
        num_decoder_layers=2 if gated else None,
        num_heads=4 if gated else 3,
        relative_attention_num_buckets=32,
        relative_attention_max_distance=128,
        feed_forward_proj="gated-gelu" if gated else "relu",
        tie_word_embeddings=not gated,
        decoder_start_token_id=0,
        layer_norm_epsilon=1e-5 if gated else 1e-6,
    )
    model = T5ForConditionalGeneration(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "relative_attention_bias" in name:
                weight.mul_(6.0)
            elif "layer_norm" in name:
                weight.add_(0.3 * torch.randn_like(weight))
            elif "Attention" in name:
                weight.mul_(2.0 if gated else 2.5)
            elif "DenseReluDense" in name:
                weight.mul_(2.0 if gated else 2.5)
            elif name == "shared.weight":
                weight.mul_(0.5)
                weight[1].mul_(1.5)  # so that the end token comes up
        if gated:
            head = torch.randn(vocabulary, config.d_model) * 0.45
            head[1].mul_(1.5)
            model.lm_head.weight = torch.nn.Parameter(head)
    return model


def bart(seed, vocabulary):
    torch.manual_seed(seed)
    config = BartConfig(
        vocab_size=vocabulary,
        d_model=24,
        encoder_layers=3,
        decoder_layers=2,
        encoder_attention_heads=3,
        decoder_attention_heads=4,
        encoder_ffn_dim=40,
        decoder_ffn_dim=36,
        max_position_embeddings=512,
        activation_function="gelu",
        scale_embedding=True,
    )
    model = BartForConditionalGeneration(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "layer_norm" in name or "layernorm" in name or name.endswith("bias"):
                weight.add_(0.15 * torch.randn_like(weight))
            elif "fc" in name:
                weight.copy_(0.5 * torch.randn_like(weight))
            elif "attn" in name:
                weight.copy_((0.25 if "encoder_attn" in name else 0.4) * torch.randn_like(weight))
            elif "embed_positions" in name:
                weight.copy_(1.0 * torch.randn_like(weight))
            else:
                weight.copy_(0.1 * torch.randn_like(weight))
        # A tied head favours the input token; the other parts need a larger weight.
        model.model.decoder.layers[-1].final_layer_norm.weight.mul_(6.0)
        model.final_logits_bias.copy_(0.5 * torch.randn_like(model.final_logits_bias))
        model.final_logits_bias[0, config.eos_token_id] = 3.0
    model.generation_config.forced_bos_token_id = None
    return model


CASES = {
    "greedy": {"max_new_tokens": 24},
    "greedy, least 12, no bigram twice": {"max_new_tokens": 24, "min_new_tokens": 12, "no_repeat_ngram_size": 2},
    "greedy, folder's length": {},
    "beam 4": {"max_new_tokens": 24, "num_beams": 4},
    "beam 4, length 0.6": {"max_new_tokens": 24, "num_beams": 4, "length_penalty": 0.6},
    "beam 4, length 2, all returned": {
        "max_new_tokens": 20, "num_beams": 4, "length_penalty": 2.0, "num_return_sequences": 4,
    },
    "beam 4, early": {"max_new_tokens": 24, "num_beams": 4, "early_stopping": True, "num_return_sequences": 3},
    "beam 3, never early": {"max_new_tokens": 16, "num_beams": 3, "early_stopping": "never", "length_penalty": 1.5},
    "beam 3, never early, short": {
        "max_new_tokens": 16, "num_beams": 3, "early_stopping": "never", "length_penalty": -0.5,
        "num_return_sequences": 3,
    },
    "beam 4, no bigram twice, least 10": {
        "max_new_tokens": 24, "num_beams": 4, "no_repeat_ngram_size": 2, "min_new_tokens": 10,
        "num_return_sequences": 2,
    },
    "beam 4, no trigram twice": {"max_length": 22, "num_beams": 4, "no_repeat_ngram_size": 3, "min_length": 5},
    "beam 5, length 0": {"max_new_tokens": 12, "num_beams": 5, "length_penalty": 0.0, "num_return_sequences": 5},
    "beam 2, forced": {
        "max_new_tokens": 9, "num_beams": 2, "forced_bos_token_id": 7, "forced_eos_token_id": "eos",
        "num_return_sequences": 2,
    },
    "greedy, two ends": {"max_new_tokens": 16, "several_ends": True},
    "beam 4, two ends": {
        "max_new_tokens": 16, "num_beams": 4, "num_return_sequences": 4, "min_new_tokens": 3, "several_ends": True,
    },
    "greedy, forced": {"max_new_tokens": 9, "forced_bos_token_id": 7, "forced_eos_token_id": "eos"},
}


def generate(model, ids, mask, options):
    out = model.generate(
        input_ids=ids, attention_mask=mask, return_dict_in_generate=True, output_scores=True, **options
    )
    eos = options.get("eos_token_id", [model.generation_config.eos_token_id])
    rows, scores = [], []
    greedy = options.get("num_beams", 1) == 1
    if greedy:
        steps = model.compute_transition_scores(out.sequences, out.scores, normalize_logits=True)
    for i, row in enumerate(out.sequences[:, 1:].tolist()):
        row = row[: next((at + 1 for at, token in enumerate(row) if token in eos), None)]
        rows.append(row)
        scores.append(steps[i, : len(row)].double().sum().item() if greedy else out.sequences_scores[i].item())
    count = options.get("num_return_sequences", 1)
    pair = [{"tokens": row, "score": score} for row, score in zip(rows, scores, strict=True)]
    return [pair[i : i + count] for i in range(0, len(pair), count)]


def varied(model, ids, mask):
    """Whether some rows reach the end token and some do not, and rows have several different tokens."""
    rows = [row[0]["tokens"] for row in generate(model, ids, mask, {"max_new_tokens": 24})]
    ended = sum(len(row) < 24 for row in rows)
    return 2 <= ended < len(rows) and sum(len(set(row)) >= 4 for row in rows) >= 4


def encode(tokenizer, pad, inputs):
    rows = [tokenizer.encode(text).ids for text in inputs]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return rows, ids, mask


def write(name, tokenizer, build, load, inputs=None, names=None):
    """Writes the fixture `name`: of all inputs and cases, or of these."""
    inputs = inputs or texts()
    folder = DATA / name
    shutil.rmtree(folder, ignore_errors=True)
    pad = tokenizer.token_to_id("<pad>")
    rows, ids, mask = encode(tokenizer, pad, inputs)
    for seed in range(2000):
        model = build(seed).eval()
        if varied(model, ids, mask):
            break
    else:
        sys.exit(f"{name}: no seed gives varied outputs")
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    generation = model.generation_config
    model = load(folder).eval()

    torch.manual_seed(seed)
    decoder_ids = torch.randint(3, model.config.vocab_size, (len(rows), 9))
    decoder_ids[:, 0] = generation.decoder_start_token_id
    decoder_mask = torch.ones_like(decoder_ids)
    decoder_mask[1, 5:] = 0
    decoder_mask[3, 2:] = 0
    decoder_ids[decoder_mask == 0] = pad
    with torch.no_grad():
        # In f64, so that the fixture has no rounding.
        exact = model.double()
        out = exact(
            input_ids=ids, attention_mask=mask, decoder_input_ids=decoder_ids, decoder_attention_mask=decoder_mask
        )
        model = exact.float()
    tensors = {
        "input_ids": ids.int(),
        "attention_mask": mask.float(),
        "decoder_input_ids": decoder_ids.int(),
        "decoder_attention_mask": decoder_mask.float(),
        "encoder_last_hidden_state": out.encoder_last_hidden_state.float(),
        "logits": out.logits.float(),
    }
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "expected.safetensors")

    cases = []
    for case, options in CASES.items():
        if names and case not in names:
            continue
        options = {key: generation.eos_token_id if value == "eos" else value for key, value in options.items()}
        ends = None
        if options.pop("several_ends", False):
            # A second end token that occurs: the one in most greedy rows.
            rows_with = [set(row[0]["tokens"]) - {generation.eos_token_id} for row in cases[0]["outputs"]]
            tokens = sorted(set().union(*rows_with))
            second = max(tokens, key=lambda token: sum(token in row for row in rows_with))
            ends = [generation.eos_token_id, second]
        outputs = generate(model, ids, mask, options | ({"eos_token_id": ends} if ends else {}))
        kebab = {key.replace("_", "-"): value for key, value in options.items()}
        cases.append({"name": case, "ends": ends, "options": kebab, "outputs": outputs})
    decoded = [tokenizer.decode(row[0]["tokens"], skip_special_tokens=True) for row in cases[0]["outputs"]]
    expected = {"texts": inputs, "rows": rows, "decoded": decoded, "seed": seed, "cases": cases}
    with open(folder / "expected.json", "w") as file:
        json.dump(expected, file, indent=None, separators=(",", ":"))
        file.write("\n")
    print(name, "seed", seed, "lengths", [[len(h["tokens"]) for row in c["outputs"] for h in row] for c in cases])


def buckets():
    """T5's bucket of every distance from -300 to 300, for both directions and one."""
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = torch.arange(-300, 301)
    table = []
    for bidirectional in (True, False):
        for count, longest in ((32, 128), (32, 256), (16, 20)):
            found = T5Attention._relative_position_bucket(distances, bidirectional, count, longest)
            table.append(
                {"bidirectional": bidirectional, "buckets": count, "max_distance": longest, "found": found.tolist()}
            )
    with open(DATA / "t5-buckets.json", "w") as file:
        json.dump(table, file, separators=(",", ":"))
        file.write("\n")


def main():
    DATA.mkdir(parents=True, exist_ok=True)
    tokenizer = t5_tokenizer()
    # More logits than tokens, as in the released models.
    vocabulary = tokenizer.get_vocab_size() + 5
    write("t5-relu", tokenizer, lambda seed: t5(seed, False, vocabulary), T5ForConditionalGeneration.from_pretrained)
    write("t5-gated", tokenizer, lambda seed: t5(seed, True, vocabulary), T5ForConditionalGeneration.from_pretrained)
    tokenizer = bart_tokenizer()
    vocabulary = tokenizer.get_vocab_size()
    write("bart", tokenizer, lambda seed: bart(seed, vocabulary), BartForConditionalGeneration.from_pretrained)
    buckets()


if __name__ == "__main__":
    main()
