"""Makes the fixtures of weights, crates/transformers/tests/data/weights, and of tokenizers, crates/checkpoint/tests/data.

`weights/`: one seeded tiny T5 as safetensors, as a PyTorch archive, as a plain file from before PyTorch 1.6, in f16 and
bf16, in shards, and two files whose pickles call a function when Python loads them.
`tokenizers/`: tiny vocabularies in the layouts of BERT, RoBERTa, BART and GPT-2, and the tokens by `transformers` of sentences
in several languages.

    python scripts/reference/checkpoint_parity.py              # torch 2.15, transformers 5.23, tokenizers 0.23
"""

import json
import os
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, T5Config, T5ForConditionalGeneration

CRATES = pathlib.Path(__file__).resolve().parents[2] / "crates"
DATA = CRATES / "transformers" / "tests" / "data"

SENTENCES = [
    "Where was the author of the book born?",
    "  two  spaces, a\ttab and\na line ",
    "Don't you think they're what we've (almost) wanted... isn't it 1,234.5%?",
    "Élan naïve façade Ångström İstanbul Straße ﬁne",
    "Привет, мир! Как дела?",
    "東京は日本の首都です。北京市",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "안녕하세요 세계",
    "emoji 👩‍👩‍👧 and 🏴 flags, a zero\u200bwidth and a soft\u00adhyphen",
    "UPPER lower MiXeD CamelCase_snake-case e-mail@example.org",
    "[MASK] and <mask> and <|endoftext|> and [SEP] </s> inside",
    "a\u0301 combining, \u00a0 no-break, \ufffd replacement",
    "averyveryveryveryveryverylongwordwithoutanyspacethatgoesonandonandonandonandonandonandonandonandonuntilitends x",
    "",
]


class Call:
    """Pickles to a call of `os.system`."""

    def __reduce__(self):
        return os.system, ("touch called-by-pickle",)


def weights():
    folder = DATA / "weights"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.manual_seed(7)
    config = T5Config(
        vocab_size=24, d_model=8, d_kv=4, d_ff=12, num_layers=1, num_heads=2, decoder_start_token_id=0,
        relative_attention_num_buckets=4, relative_attention_max_distance=16, architectures=["T5ForConditionalGeneration"],
    )
    model = T5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.5)
    config.to_json_file(folder / "config.json")
    # Tied tensors are one storage under several names, as PyTorch saves them.
    state = dict(model.state_dict())
    name = "encoder.block.0.layer.1.DenseReluDense.wi.weight"
    save_file({k: v.contiguous() for k, v in model.state_dict().items() if k != "lm_head.weight" and "embed_tokens" not in k},
              folder / "model.safetensors", metadata={"format": "pt"})
    # A transposed view, a part of a longer storage, and a parameter.
    state[name] = state[name].t().contiguous().t()
    norm = "encoder.final_layer_norm.weight"
    state[norm] = torch.cat([torch.zeros(3), state[norm], torch.ones(2)])[3:11]
    other = "decoder.final_layer_norm.weight"
    state[other] = torch.nn.Parameter(state[other])
    torch.save(state, folder / "archive.bin")
    torch.save(state, folder / "plain.bin", _use_new_zipfile_serialization=False)
    for dtype in (torch.float16, torch.bfloat16):
        torch.save({k: v.detach().to(dtype) for k, v in state.items()}, folder / f"{str(dtype).removeprefix('torch.')}.bin")
    names = sorted(state)
    shards = {f"pytorch_model-0000{i + 1}-of-00002.bin": names[i::2] for i in range(2)}
    for file, part in shards.items():
        torch.save({k: state[k] for k in part}, folder / file)
    index = {"metadata": {}, "weight_map": {k: file for file, part in shards.items() for k in part}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=1) + "\n")
    torch.save({"shared.weight": Call()}, folder / "calls.bin")
    torch.save({"shared.weight": Call()}, folder / "calls-plain.bin", _use_new_zipfile_serialization=False)


def word_pieces(folder, lower, size):
    folder.mkdir(parents=True)
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES * 3, trainer)
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    (folder / "vocab.txt").write_text("".join(token + "\n" for token, _ in vocabulary), encoding="utf-8")


def byte_pairs(folder, special, size):
    folder.mkdir(parents=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(SENTENCES * 3, trainer)
    tokenizer.model.save(str(folder))


def tokenizers():
    folder = CRATES / "checkpoint" / "tests" / "data" / "tokenizers"
    shutil.rmtree(folder, ignore_errors=True)
    word_pieces(folder / "bert-uncased", True, 260)
    word_pieces(folder / "bert-cased", False, 260)
    roberta = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    byte_pairs(folder / "roberta", roberta, 420)
    byte_pairs(folder / "bart", roberta, 400)
    byte_pairs(folder / "gpt2", ["<|endoftext|>"], 400)
    mask = {"__type": "AddedToken", "content": "<mask>", "lstrip": True, "normalized": False, "special": True}
    configs = {
        "bert-uncased": ("bert", {"tokenizer_class": "BertTokenizer", "do_lower_case": True}),
        "bert-cased": ("distilbert", {"tokenizer_class": "DistilBertTokenizer", "do_lower_case": False,
                                      "tokenize_chinese_chars": False}),
        "roberta": ("roberta", {"tokenizer_class": "RobertaTokenizerFast", "mask_token": mask, "add_prefix_space": True}),
        "bart": ("bart", None),
        "gpt2": ("gpt2", {"tokenizer_class": "GPT2Tokenizer", "pad_token": "<|pad|>"}),
    }
    for name, (kind, config) in configs.items():
        (folder / name / "config.json").write_text(json.dumps({"model_type": kind}) + "\n")
        if config is not None:
            (folder / name / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
        tokenizer = AutoTokenizer.from_pretrained(folder / name)
        cases = []
        for text in SENTENCES:
            ids = tokenizer(text)["input_ids"]
            plain = tokenizer(text, add_special_tokens=False)["input_ids"]
            decoded = tokenizer.decode(plain, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            cases.append({"text": text, "ids": ids, "decoded": decoded})
        tokens = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        expected = {"class": type(tokenizer).__name__, "vocabulary": len(tokens), "last": tokens[-1], "cases": cases}
        (folder / name / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    weights()
    tokenizers()
