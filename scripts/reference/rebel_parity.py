"""Makes a fixture in the layout of a released REBEL checkpoint, crates/extractor/tests/data/rebel.

A tiny BART whose tokenizer has REBEL's added tokens, trained for a minute to generate the facts of sentences of three templates,
and `expected.json`: for some texts, the unconstrained beams of the `transformers` library, and the facts with their confidences
when a prefix function, implemented here in a simple way, constrains the same search to spans of the text and to two relations.

    python scripts/reference/rebel_parity.py                   # torch 2.15, transformers 5.23, tokenizers 0.23
"""

import json
import pathlib
import random
import re

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast

OUT = pathlib.Path(__file__).resolve().parents[2] / "crates" / "extractor" / "tests" / "data" / "rebel"
FIRST = "Ann Bob Cleo Dan Eve Finn Gus Hal Ivy Jon".split()
LAST = "Lee Moss Nash Orr Pike Quinn Ross Stone".split()
CITIES = "Rome Paris Oslo Berlin Lima Cairo Quito Bern".split()
RELATIONS = ["place of birth", "spouse"]
TEXTS = [
    "Ann Lee was born in Oslo.",
    "Bob Ross married Eve Stone in Lima.",
    "Cleo Nash, the spouse of Dan Orr, was born in Bern.",
    "Zoë Żak left Kraków.",
]
BEAMS, LENGTH = 3, 60
torch.set_num_threads(1)
torch.manual_seed(7)
rng = random.Random(7)


def example():
    a, b = (f"{rng.choice(FIRST)} {rng.choice(LAST)}" for _ in range(2))
    city = rng.choice(CITIES)
    return rng.choice(
        [
            (f"{a} was born in {city}.", f"<triplet> {a} <subj> {city} <obj> place of birth"),
            (f"{a} married {b} in {city}.", f"<triplet> {a} <subj> {b} <obj> spouse"),
            (
                f"{a}, the spouse of {b}, was born in {city}.",
                f"<triplet> {a} <subj> {b} <obj> spouse <subj> {city} <obj> place of birth",
            ),
        ]
    )


def tokenizer(pairs):
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator([text for pair in pairs for text in pair], trainer)
    bpe.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"bos": "<s>", "eos": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bpe, **{f"{name}_token": token for name, token in names.items()}
    )
    # All tokens that REBEL adds, in its order.
    added = ["<obj>", "<subj>", "<triplet>", "<head>", "</head>", "<tail>", "</tail>"]
    fast.add_special_tokens({"additional_special_tokens": added})
    return fast


def trained(tok, pairs):
    config = BartConfig(
        vocab_size=len(tok),
        d_model=32,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=96,
        decoder_start_token_id=0,
        forced_bos_token_id=0,
        forced_eos_token_id=2,
        dropout=0.0,
        num_labels=3,
    )
    model = BartForConditionalGeneration(config)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(700):
        batch = rng.sample(pairs, 24)
        read = tok([source for source, _ in batch], padding=True, return_tensors="pt")
        written = tok([target for _, target in batch], padding=True, return_tensors="pt").input_ids
        begun = torch.cat([torch.zeros(len(batch), 1, dtype=torch.long), written[:, :-1]], 1)
        labels = written.masked_fill(written == tok.pad_token_id, -100)
        loss = model(
            input_ids=read.input_ids, attention_mask=read.attention_mask, decoder_input_ids=begun, labels=labels
        ).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", loss.item())
    return model.eval()


class Held:
    """The allowed outputs for a text, from a list of all token sequences."""

    def __init__(self, tok, text):
        self.tok = tok
        words = [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]
        spans = {text[a[0] : b[1]] for i, a in enumerate(words) for b in words[i:]}
        encode = lambda piece: tuple(tok(f" {piece}", add_special_tokens=False).input_ids)
        self.spans = {encode(span): span for span in spans}
        self.relations = {encode(relation): relation for relation in RELATIONS}
        self.gap = tok(" ", add_special_tokens=False).input_ids[0]
        self.obj, self.subj, self.triplet = tok.convert_tokens_to_ids(["<obj>", "<subj>", "<triplet>"])

    def follow(self, pieces, piece, then):
        allowed = {other[len(piece)] for other in pieces if len(other) > len(piece) and other[: len(piece)] == piece}
        if piece in pieces:
            allowed |= {self.gap, *then}
        if piece and piece[-1] == self.gap and piece[:-1] in pieces:
            allowed |= set(then)
        return sorted(allowed)

    def __call__(self, _, tokens):
        # The first tokens in transformers: the decoder's start, then the `<s>` of the text.
        rest = tokens.tolist()[1:]
        if not rest:
            return [0]
        rest = rest[1:]
        places = [i for i, token in enumerate(rest) if token in (self.obj, self.subj, self.triplet)]
        if not places:
            return [self.triplet, 2] if not rest else [2]
        piece = tuple(rest[places[-1] + 1 :])
        mark = rest[places[-1]]
        if mark == self.triplet:
            allowed = self.follow(self.spans, piece, [self.subj])
        elif mark == self.subj:
            allowed = self.follow(self.spans, piece, [self.obj])
        else:
            allowed = self.follow(self.relations, piece, [self.subj, self.triplet, 2])
        # transformers also calls this function for finished sequences.
        return allowed or [2]

    def facts(self, tokens):
        text = self.tok.decode(tokens).split("</s>")[0].replace("<s>", "")
        found = set()
        for part in text.split("<triplet>")[1:]:
            head, *tails = part.split("<subj>")
            for tail in tails:
                tail, relation = tail.split("<obj>")
                found.add((head.strip(), relation.strip(), tail.strip()))
        return found


def main():
    pairs = [example() for _ in range(1200)]
    tok = tokenizer(pairs)
    model = trained(tok, pairs)
    OUT.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(OUT)
    tok.save_pretrained(OUT)
    (OUT / "tokenizer_config.json").unlink()
    cases = []
    for text in TEXTS:
        read = tok([text], return_tensors="pt")
        asked = dict(
            num_beams=BEAMS,
            num_return_sequences=BEAMS,
            length_penalty=0.0,
            max_new_tokens=LENGTH,
            return_dict_in_generate=True,
            output_scores=True,
        )
        free = model.generate(**read, **asked)
        held = Held(tok, text)
        bound = model.generate(**read, **asked, prefix_allowed_tokens_fn=held)
        beams = [
            {"tokens": [token for token in row.tolist()[1:] if token != 1], "score": score}
            for row, score in zip(free.sequences, free.sequences_scores.tolist())
        ]
        shares = torch.softmax(bound.sequences_scores, 0).tolist()
        facts = {}
        for row, share in zip(bound.sequences, shares):
            for fact in held.facts(row):
                facts[fact] = facts.get(fact, 0.0) + share
        cases.append({"text": text, "beams": beams, "facts": [[*fact, share] for fact, share in sorted(facts.items())]})
        print(text, tok.decode(free.sequences[0]), cases[-1]["facts"])
    (OUT / "expected.json").write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n")


main()
