"""Makes the fixtures of SentencePiece's and tiktoken's files, crates/checkpoint/tests/data/sentence-piece.

Tiny vocabularies in the layouts of T5, mT5, XLM-RoBERTa, mBART, NLLB, M2M100, Pegasus, Marian, Blenderbot, LLaMA and Qwen 2, of folders whose tokenizer has no class of its own,
and of tiktoken, and the tokens by `transformers` of the sentences of `checkpoint_parity.py`.

    python scripts/reference/sentence_piece.py [NAME]..     # transformers 5.24, sentencepiece 0.2, tiktoken 0.14, protobuf
"""

import base64
import io
import json
import pathlib
import shutil
import sys

import sentencepiece
from checkpoint_parity import SENTENCES, byte_pairs
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, MBartTokenizer, NllbTokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as LANGUAGES

DATA = pathlib.Path(__file__).resolve().parents[2] / "crates" / "checkpoint" / "tests" / "data" / "sentence-piece"

MORE = [
    "<extra_id_0> walks <extra_id_1> park <sep>and <extra_id_99>",
    "\u2581a mark, \u2581\u2581two marks and a full-width \uff21\uff22 \ufb01 \u3000 space",
    "new\nline, <sep> and<sep>sep  <s>begin</s> <|end|> x",
    "   ",
    "token\U0001f600 <0x41> 12345",
]
CODES = [">>deu<< Where is the river?", ">>fra<<Who wrote it", "Straße ß über ßß", ">>deu<<", "  the  river "]
TEXT = """The river runs through the old town and past the castle on the hill. In the year 1788 a poet wrote a song about
old friends, and people still sing it when the new year begins. What is the name of the poem? Who wrote the words, and
where was the writer born? The bridge over the water was opened by the king in 1890, and trains cross it every day. He
was born in the north and she was born in the south. They read the news, the letters and the books of the library."""
# Full-width letters, a ligature, a tab, and an ideographic space: nmt_nfkc's rules are far longer.
RULES = "FF21\t41\nFF22\t42\nFB01\t66 69\n9\t20\n3000\t20\nA0\t20\nE9\t65\n"


GERMAN = """Die Straße führt über den Fluss und an der alten Mühle vorbei. Im Jahr 1788 schrieb ein Dichter ein Lied über alte
Freunde, und die Leute singen es noch immer. Wie heißt das Gedicht? Wer schrieb die Wörter, und wo wurde er geboren?"""


def marian(folder, codes):
    """The two models' pieces in one vocabulary in Marian's order, without a few of the source's, which are unknown."""
    train(folder / "source.spm", "unigram", 120)
    train(folder / "target.spm", "unigram", 90, text=GERMAN.split("\n"))
    pieces = {}
    for name in ("source.spm", "target.spm"):
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / name))
        for at in range(3, model.get_piece_size()):
            pieces.setdefault(model.id_to_piece(at))
    source = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    for piece in source.encode("where the river?", out_type=str)[:2]:
        del pieces[piece]
    tokens = ["</s>", "<unk>", *sorted(pieces), *codes, "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({token: at for at, token in enumerate(tokens)}) + "\n")


def m2m100(folder, kind):
    """The ids of fairseq's four tokens and of the model's pieces."""
    train(folder / "sentencepiece.bpe.model", kind, 200)
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *(model.id_to_piece(at) for at in range(3, model.get_piece_size()))]
    (folder / "vocab.json").write_text(json.dumps({token: at for at, token in enumerate(tokens)}) + "\n")


def with_language(folder, build, kind, languages):
    """A tokenizer.json whose template has the first language at the end of a text."""
    path = folder / "sentencepiece.bpe.model"
    train(path, kind, 200 if kind == "bpe" else 120)
    (folder / "config.json").write_text("{}")
    tokenizer = build.from_pretrained(folder, additional_special_tokens=languages)
    path.unlink()
    backend = tokenizer._tokenizer
    special = [(token, backend.token_to_id(token)) for token in ("</s>", languages[0])]
    backend.post_processor = processors.TemplateProcessing(
        single=f"$A </s> {languages[0]}", pair=f"$A $B </s> {languages[0]}", special_tokens=special
    )
    backend.save(str(folder / "tokenizer.json"), pretty=False)


SMALL = ["Don't!\nWhat's that?\n\n'\n The Fluss (river).", "__start__ hello __end__river  __unk__", "ONE\ttwo\x1cthree", "walk'"]


def blenderbot_small(folder):
    """Byte pairs of lowercased words; a few of the pieces that the merges make are unknown."""
    folder.mkdir(parents=True)
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(vocab_size=260, end_of_word_suffix="</w>", show_progress=False)
    tokenizer.train_from_iterator((TEXT.split("\n") + SENTENCES[:4]) * 3, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{merge}\n" for merge in merges))
    texts = sorted(model["vocab"], key=model["vocab"].get)
    texts = [text for at, text in enumerate(texts) if at % 9 != 4]
    pieces = [text[:-4] if text.endswith("</w>") else f"{text}@@" for text in texts]
    pieces += ["__end__", "__start__", "__unk__", "__null__"]
    (folder / "vocab.json").write_text(json.dumps({piece: at for at, piece in enumerate(pieces)}) + "\n")


def train(path, kind, size, text=None, **options):
    model = io.BytesIO()
    # The model has the name of this file, which must not be a machine's path.
    rules = pathlib.Path("rules.tsv")
    if "normalization_rule_name" not in options:
        rules.write_text(RULES)
        options["normalization_rule_tsv"] = str(rules)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter((text or TEXT.split("\n") + SENTENCES[:4]) * 3), model_writer=model, model_type=kind, vocab_size=size,
        minloglevel=2, hard_vocab_limit=False, character_coverage=1.0, **options,
    )
    rules.unlink(missing_ok=True)
    path.write_bytes(model.getvalue())


def tiktoken(path, folder):
    """The vocabulary of byte pairs in the folder, as a file of tiktoken."""
    decode = {character: byte for byte, character in bytes_to_unicode().items()}
    vocab = json.loads((folder / "vocab.json").read_text())
    ranks = {bytes(decode[character] for character in token): rank for token, rank in vocab.items()}
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in sorted(ranks.items(), key=lambda x: x[1])]
    path.write_text("".join(lines))


def token(content, **flags):
    plain = {"content": content, "lstrip": False, "rstrip": False, "single_word": False, "normalized": False, "special": True}
    return plain | flags


CONFIGS = {
    "t5": ("spiece.model", "t5", {"tokenizer_class": "T5Tokenizer"}),
    "t5-few": ("spiece.model", "t5", {"extra_ids": 3, "additional_special_tokens": ["<extra_id_0>", "<extra_id_1>", "<extra_id_2>"]}),
    "xlm-roberta": ("sentencepiece.bpe.model", "xlm-roberta", {"tokenizer_class": "XLMRobertaTokenizer", "mask_token": {"__type": "AddedToken"} | token("<mask>", lstrip=True)}),
    "mt5": ("spiece.model", "mt5", {"tokenizer_class": "T5Tokenizer", "extra_ids": 0}),
    "mbart": ("sentencepiece.bpe.model", "mbart", {"tokenizer_class": "MBartTokenizer", "src_lang": "ro_RO"}),
    "mbart-bare": ("sentencepiece.bpe.model", "mbart", {}),
    "mbart50": ("sentencepiece.bpe.model", "mbart", {"tokenizer_class": "MBart50Tokenizer", "src_lang": "de_DE", "tgt_lang": None}),
    "mbart-json": (None, "mbart", {"tokenizer_class": "MBartTokenizer", "src_lang": "ro_RO"}),
    "nllb": (None, "m2m_100", {"tokenizer_class": "NllbTokenizer", "src_lang": "fra_Latn"}),
    "nllb-legacy": (None, "m2m_100", {"tokenizer_class": "NllbTokenizerFast", "legacy_behaviour": True}),
    "m2m100": ("sentencepiece.bpe.model", "m2m_100", {"src_lang": None, "additional_special_tokens": [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]}),
    "m2m100-wmt21": ("sentencepiece.bpe.model", "m2m_100", {"tokenizer_class": "M2M100Tokenizer", "src_lang": "de", "language_codes": "wmt21", "additional_special_tokens": [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["wmt21"]]}),
    "blenderbot": (None, "blenderbot", {}),
    "blenderbot-ends": (None, "blenderbot", {"tokenizer_class": "BlenderbotTokenizer", "add_prefix_space": False, "add_eos_token": True}),
    "blenderbot-small": (None, "blenderbot-small", {}),
    "pegasus": ("spiece.model", "pegasus", {"tokenizer_class": "PegasusTokenizer", "mask_token": "<mask_2>", "mask_token_sent": "<mask_1>"}),
    "pegasus-few": ("spiece.model", "pegasus", {"offset": 5}),
    "marian": ("source.spm", "marian", {"source_lang": "en", "target_lang": "de", "separate_vocabs": False}),
    "marian-codes": ("source.spm", "marian", {"tokenizer_class": "MarianTokenizer"}),
    "llama": ("tokenizer.model", "llama", {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False, "legacy": False, "pad_token": "[PAD]"}),
    "llama-legacy": ("tokenizer.model", "llama", {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True, "add_eos_token": True, "legacy": True}),
    "llama-bare": ("tokenizer.model", "llama", {"tokenizer_class": "LlamaTokenizer"}),
    "plain-bpe": ("tokenizer.model", "llama", {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": True}),
    "plain-unigram": ("tokenizer.model", "unknown", {"tokenizer_class": "PreTrainedTokenizerFast", "legacy": False}),
    "tiktoken": ("tokenizer.model", "llama", {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "added_tokens_decoder": {"400": token("<s>"), "402": token("<|end|>")}}),
    "qwen2": (None, "qwen2", {"tokenizer_class": "Qwen2Tokenizer", "pad_token": "<|endoftext|>"}),
}


def main():
    names = sys.argv[1:] or list(CONFIGS)
    for name, (file, kind, config) in ((name, CONFIGS[name]) for name in names):
        folder = DATA / name
        shutil.rmtree(folder, ignore_errors=True)
        if name not in ("tiktoken", "qwen2") and not name.startswith("blenderbot"):
            folder.mkdir(parents=True)
        if name.startswith("t5"):
            train(folder / file, "unigram", 120, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, user_defined_symbols=["<sep>"])
        elif name == "mt5":
            train(folder / file, "unigram", 400, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, byte_fallback=True)
        elif name.startswith("marian"):
            marian(folder, [">>deu<<", ">>fra<<"] if name == "marian-codes" else [])
        elif name.startswith("pegasus"):
            train(folder / file, "unigram", 120, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
        elif name == "mbart-json":
            with_language(folder, MBartTokenizer, "unigram", ["en_XX", "ro_RO"])
        elif name.startswith("nllb"):
            with_language(folder, NllbTokenizer, "bpe", ["eng_Latn", *(code for code in LANGUAGES if code != "eng_Latn")])
        elif name.startswith("m2m100"):
            m2m100(folder, "bpe" if name == "m2m100" else "unigram")
        elif name == "blenderbot-small":
            blenderbot_small(folder)
        elif name.startswith("blenderbot"):
            byte_pairs(folder, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], 400)
        elif name == "xlm-roberta" or name.startswith("mbart"):
            train(folder / file, "unigram", 120)
        elif name.startswith("llama"):
            train(folder / file, "bpe", 400, byte_fallback=True, normalization_rule_name="identity",
                  remove_extra_whitespaces=False, split_digits=True, user_defined_symbols=["<sep>"])
        elif name == "plain-bpe":
            train(folder / file, "bpe", 400, byte_fallback=True, user_defined_symbols=["<sep>", "the"])
        elif name == "plain-unigram":
            train(folder / file, "unigram", 400, byte_fallback=True, add_dummy_prefix=False)
        else:
            byte_pairs(folder, ["<|endoftext|>"], 400)
        if name == "tiktoken":
            vocab = json.loads((folder / "vocab.json").read_text())
            vocab.pop("<|endoftext|>")
            (folder / "vocab.json").write_text(json.dumps({t: i - 1 for t, i in vocab.items()}))
            tiktoken(folder / file, folder)
            (folder / "vocab.json").unlink()
            (folder / "merges.txt").unlink()
        (folder / "config.json").write_text(json.dumps({"model_type": kind}) + "\n")
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
        tokenizer = AutoTokenizer.from_pretrained(folder)
        cases = []
        more = CODES if name.startswith("marian") else []
        if name.startswith(("m2m100", "nllb")):
            more = ["__en__ Where is __fr__ the __river__?", "fra_Latn Where</s> is eng_Latn", "<unk> a <pad><mask>b"]
        if name == "blenderbot-small":
            more = SMALL
        for text in SENTENCES + MORE + more:
            ids = tokenizer(text)["input_ids"]
            plain = tokenizer(text, add_special_tokens=False)["input_ids"]
            decoded = tokenizer.decode(plain, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            cases.append({"text": text, "ids": ids, "decoded": decoded})
        tokens = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        expected = {"class": type(tokenizer).__name__, "vocabulary": len(tokens), "last": tokens[-1], "cases": cases}
        (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n")
        print(name, type(tokenizer).__name__, len(tokens), cases[0]["ids"])


if __name__ == "__main__":
    main()
