"""Makes crates/checkpoint/tests/data/tokenizer-options.json: the ids of folders whose `tokenizer_config.json` changes what their
`tokenizer.json` does, by the class of the tokenizer.

The tokenizers have a few words and no merges. A case is a tokenizer, the fields of `tokenizer_config.json`, the model's type in `config.json`, and the ids of the texts as `AutoTokenizer` gives them.

    python scripts/reference/tokenizer_options.py        # transformers 5.24, tokenizers 0.23
"""

import json
import pathlib
import tempfile

import transformers as t

OUT = pathlib.Path(__file__).resolve().parents[2] / "crates" / "checkpoint" / "tests" / "data" / "tokenizer-options.json"

TEXTS = ["The King wrote", "the kings", "Café naïve", "王国 a", "A,b  c !", " the\tking", "``a''", "e\u0301 É"]
WORDS = "the king The King café cafe Café naïve naive ##s ##ing wrote 王 国 王国 . , ! ` ' \" a b c é e É A C".split()
PIECES = "▁ ▁a ▁b ▁the ▁The ▁king ▁King the The king ▁é ▁A , , . ! ` ' \" é É".split() + list("abcdefghijklmnopqrstuvwxyzABCTKE")
BYTES = list("abcdefghijklmnopqrstuvwxyzABCEKTĠĉ.,!`'\"Ã©¯įĮ")


def numbered(tokens):
    return {token: place for place, token in enumerate(dict.fromkeys(tokens))}


def pieces(special):
    scored = [(piece, -1.0 - place / 10) for place, piece in enumerate(dict.fromkeys(PIECES))]
    return [(token, 0.0) for token in special] + scored


BERT = numbered(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
ROBERTA = numbered(["<s>", "<pad>", "</s>", "<unk>", "<mask>", *BYTES])
DEBERTA = numbered(["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", *BYTES])
XLM = ["<s>", "<pad>", "</s>", "<unk>"]
ALBERT = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]

TOKENIZERS = {
    "bert": t.BertTokenizer(vocab=dict(BERT)),
    "bert-cased": t.BertTokenizer(vocab=dict(BERT), do_lower_case=False),
    "mpnet": t.MPNetTokenizer(vocab=numbered(["<s>", "<pad>", "</s>", "[UNK]", "<mask>", *WORDS])),
    "roberta": t.RobertaTokenizer(vocab=dict(ROBERTA), merges=[]),
    "roberta-prefix": t.RobertaTokenizer(vocab=dict(ROBERTA), merges=[], add_prefix_space=True),
    "gpt2": t.GPT2Tokenizer(vocab=numbered(["<|endoftext|>", *BYTES]), merges=[]),
    "deberta": t.DebertaTokenizer(vocab=dict(DEBERTA), merges=[]),
    "blenderbot": t.BlenderbotTokenizer(vocab=dict(ROBERTA), merges=[]),
    "xlm-roberta": t.XLMRobertaTokenizer(vocab=pieces(XLM)),
    "camembert": t.CamembertTokenizer(vocab=pieces(["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>"])),
    "albert": t.AlbertTokenizer(vocab=pieces(ALBERT)),
    "rembert": t.RemBertTokenizer(vocab=pieces(["<pad>", "[CLS]", "<unk>", "[SEP]", "[MASK]"])),
    "deberta-v2": t.DebertaV2Tokenizer(vocab=pieces(["[PAD]", "[CLS]", "[SEP]", "[UNK]"])),
    "big-bird": t.BigBirdTokenizer(vocab=pieces(["<pad>", "</s>", "<s>", "<unk>", "[MASK]", "[CLS]", "[SEP]"])),
}

# Tokenizer, the fields of its config, and the model's type.
CASES = [
    ("bert", {"tokenizer_class": "BertTokenizer"}, "bert"),
    ("bert", {"tokenizer_class": "BertTokenizer", "do_lower_case": False}, "bert"),
    ("bert-cased", {"tokenizer_class": "BertTokenizer", "do_lower_case": True}, "bert"),
    ("bert-cased", {"tokenizer_class": "BertTokenizer"}, "bert"),
    ("bert", {"tokenizer_class": "BertTokenizer", "strip_accents": False}, "bert"),
    ("bert-cased", {"tokenizer_class": "BertTokenizer", "do_lower_case": False, "strip_accents": True}, "bert"),
    ("bert", {"tokenizer_class": "BertTokenizer", "strip_accents": None}, "bert"),
    ("bert", {"tokenizer_class": "BertTokenizer", "tokenize_chinese_chars": False}, "bert"),
    ("bert", {"tokenizer_class": "BertTokenizerFast", "do_lower_case": False}, "bert"),
    ("bert", {"tokenizer_class": "DistilBertTokenizer", "do_lower_case": False}, "distilbert"),
    ("bert", {"tokenizer_class": "DistilBertTokenizerFast", "do_lower_case": False}, "distilbert"),
    ("bert", {"tokenizer_class": "ElectraTokenizerFast", "do_lower_case": False}, "electra"),
    ("bert", {"tokenizer_class": "DPRQuestionEncoderTokenizer", "do_lower_case": False}, "dpr"),
    ("bert", {"tokenizer_class": "ConvBertTokenizer", "do_lower_case": False}, "convbert"),
    ("bert", {"tokenizer_class": "BertTokenizer", "do_lower_case": False}, "roberta"),
    ("bert", {"tokenizer_class": "BertTokenizer", "do_lower_case": False}, "modernbert"),
    ("bert", {"tokenizer_class": "BertTokenizer", "do_lower_case": False}, None),
    ("bert", {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": False}, "bert"),
    ("bert", {"tokenizer_class": "TokenizersBackend", "do_lower_case": False}, "bert"),
    ("bert", {"tokenizer_class": "ATokenizer", "do_lower_case": False}, "bert"),
    ("bert", {"do_lower_case": False}, "bert"),
    ("bert-cased", {}, "bert"),
    ("bert-cased", {}, "nomic_bert"),
    ("bert-cased", {}, "modernbert"),
    ("mpnet", {"tokenizer_class": "MPNetTokenizer", "do_lower_case": False}, "mpnet"),
    ("mpnet", {"tokenizer_class": "MPNetTokenizerFast", "tokenize_chinese_chars": False}, "mpnet"),
    ("roberta", {"tokenizer_class": "RobertaTokenizer"}, "roberta"),
    ("roberta", {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": True}, "roberta"),
    ("roberta-prefix", {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": False}, "roberta"),
    ("roberta-prefix", {"tokenizer_class": "RobertaTokenizer"}, "roberta"),
    ("roberta", {"tokenizer_class": "BartTokenizerFast", "add_prefix_space": True}, "bart"),
    ("roberta", {"tokenizer_class": "LEDTokenizer", "add_prefix_space": True}, "led"),
    ("roberta", {"add_prefix_space": True}, "longformer"),
    ("gpt2", {"tokenizer_class": "GPT2Tokenizer"}, "gpt2"),
    ("gpt2", {"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": True}, "gpt2"),
    ("gpt2", {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}, "granite"),
    ("gpt2", {"tokenizer_class": "CodeGenTokenizer", "add_prefix_space": True}, "codegen"),
    ("deberta", {"tokenizer_class": "DebertaTokenizer", "add_prefix_space": True}, "deberta"),
    ("blenderbot", {"tokenizer_class": "BlenderbotTokenizer"}, "blenderbot"),
    ("blenderbot", {"tokenizer_class": "BlenderbotTokenizer", "add_prefix_space": False}, "blenderbot"),
    ("xlm-roberta", {"tokenizer_class": "XLMRobertaTokenizer"}, "xlm-roberta"),
    ("xlm-roberta", {"tokenizer_class": "XLMRobertaTokenizer", "add_prefix_space": False}, "xlm-roberta"),
    ("xlm-roberta", {"tokenizer_class": "XLMRobertaTokenizer", "add_prefix_space": False}, "xlm-roberta-xl"),
    ("camembert", {"tokenizer_class": "CamembertTokenizer", "add_prefix_space": False}, "camembert"),
    ("albert", {"tokenizer_class": "AlbertTokenizer"}, "albert"),
    ("albert", {"tokenizer_class": "AlbertTokenizer", "do_lower_case": False}, "albert"),
    ("albert", {"tokenizer_class": "AlbertTokenizerFast", "keep_accents": True}, "albert"),
    ("albert", {"tokenizer_class": "AlbertTokenizer", "do_lower_case": False}, "nystromformer"),
    ("rembert", {"tokenizer_class": "RemBertTokenizer", "do_lower_case": True}, "rembert"),
    ("rembert", {"tokenizer_class": "RemBertTokenizer", "keep_accents": False}, "rembert"),
    ("deberta-v2", {"tokenizer_class": "DebertaV2Tokenizer"}, "deberta-v2"),
    ("deberta-v2", {"tokenizer_class": "DebertaV2Tokenizer", "do_lower_case": True}, "deberta-v2"),
    ("deberta-v2", {"tokenizer_class": "DebertaV2TokenizerFast", "split_by_punct": True}, "deberta-v2"),
    ("deberta-v2", {"tokenizer_class": "DebertaV2Tokenizer", "add_prefix_space": False}, "deberta-v2"),
    ("big-bird", {"tokenizer_class": "BigBirdTokenizer"}, "big_bird"),
    ("big-bird", {"tokenizer_class": "BigBirdTokenizer", "add_prefix_space": False}, "big_bird"),
]


def main():
    files, cases = {}, []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, tokenizer in TOKENIZERS.items():
            tokenizer.save_pretrained(folder / name)
            files[name] = json.loads((folder / name / "tokenizer.json").read_text())
        # `transformers` leaves this out when it writes RemBERT's, and adds it when it reads the file. The released file has it.
        template = json.dumps(files["albert"]["post_processor"])
        files["rembert"]["post_processor"] = json.loads(template.replace('"ids": [2]', '"ids": [1]'))
        for place, (name, config, kind) in enumerate(CASES):
            case = folder / f"case-{place}"
            case.mkdir()
            (case / "tokenizer.json").write_text(json.dumps(files[name]))
            (case / "tokenizer_config.json").write_text(json.dumps(config))
            if kind is not None:
                (case / "config.json").write_text(json.dumps({"model_type": kind}))
            try:
                made = t.AutoTokenizer.from_pretrained(case)
            except Exception as error:
                print(f"{name} {config} {kind}: {type(error).__name__}: {error}")
                continue
            ids = [made(text)["input_ids"] for text in TEXTS]
            cases.append({"tokenizer": name, "config": config, "model_type": kind, "ids": ids})
    OUT.write_text(json.dumps({"texts": TEXTS, "tokenizers": files, "cases": cases}, ensure_ascii=False, indent=None) + "\n")


if __name__ == "__main__":
    main()
