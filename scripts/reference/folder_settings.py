"""Makes the fixtures of the settings of models' folders, crates/transformers/tests/data/settings.

`bi` is a seeded tiny encoder in the layout of sentence-transformers, with modules that its `modules.json` does not list. Its
`expected.json` is a list of variants: the JSON files that replace the folder's, the arguments of the
encoding, and the vectors by sentence-transformers. `cross` is a seeded tiny cross-encoder with the same for pairs: the scores of
`predict`, and the logits.

    python scripts/reference/folder_settings.py        # torch 2.15, transformers 5.24, sentence-transformers 6.2
"""

import json
import pathlib
import shutil
import tempfile

import torch
import transformers as t
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

DATA = pathlib.Path(__file__).resolve().parents[2] / "crates" / "transformers" / "tests" / "data" / "settings"
torch.set_num_threads(1)

WORDS = "the of in to is was river city song war king who wrote where born query passage : ?".split()
TEXTS = ["who wrote the song ?", "the king of the city was born in the river city", "war", "", "Who was [SEP] KING"]
PAIRS = [
    ["who wrote the song ?", "the king wrote the song"],
    ["where was the king born ?", "in the city of the river"],
    ["war", "the war in the city was the war of the king"],
]
MODES = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
FLAGS = ["cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"]
WIDTH = 8


def tokenizer():
    vocabulary = {piece: i for i, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    made.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return t.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=24,
    )


def config(**options):
    return t.BertConfig(
        vocab_size=len(WORDS) + 5, hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12,
        max_position_embeddings=32, **options,
    )


def randomise(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            noise = torch.randn(weight.shape, generator=generator)
            norm = "LayerNorm" in name or name.startswith("norm.")
            weight.copy_(0.2 * noise + float(name.endswith("weight")) if norm else 0.5 * noise)


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, separators=(",", ":")) + "\n")


def reading(**options):
    """A `tokenizer_config.json` that names the special tokens."""
    names = {name: f"[{name[:3].upper()}]" for name in ("pad_token", "unk_token", "cls_token", "sep_token")}
    return names | {"mask_token": "[MASK]"} | options


def rounded(rows):
    return [[round(float(x), 8) for x in row] for row in rows]


def bi():
    folder = DATA / "bi"
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as plain:
        model = t.BertModel(config())
        randomise(model, 1)
        model.save_pretrained(plain)
        tokenizer().save_pretrained(plain)
        parts = [
            modules.Transformer(plain),
            modules.Pooling(WIDTH),
            modules.Dense(WIDTH, WIDTH, use_residual=True),
            modules.Dense(WIDTH, 6, activation_function=torch.nn.GELU(), use_residual=True),
            modules.LayerNorm(6),
            modules.Normalize(),
            modules.Dropout(0.5),
        ]
        for seed, part in enumerate(parts[2:5]):
            randomise(part, 20 + seed)
        SentenceTransformer(modules=parts, device="cpu").save(str(folder), create_model_card=False)
    saved = json.loads((folder / "modules.json").read_text())

    def listed(*places):
        """The encoder, the pooling, and the modules with these numbers."""
        return [*saved[:2], *(saved[at] for at in places)]

    write(folder / "modules.json", listed())
    pooled = "1_Pooling/config.json"
    settings = "config_sentence_transformers.json"
    base = {"embedding_dimension": WIDTH}
    variants = [({pooled: base | {"pooling_mode": mode}}, {}) for mode in MODES]
    variants += [({pooled: base | {f"pooling_mode_{flag}": True}}, {}) for flag in FLAGS]
    variants += [
        ({pooled: base | {"pooling_mode": ["lasttoken", "weightedmean", "max"]}}, {}),
        ({pooled: base | {f"pooling_mode_{flag}": True for flag in FLAGS}}, {}),
        ({pooled: base | {f"pooling_mode_{flag}": False for flag in FLAGS}}, {}),
    ]
    asks = {settings: {"prompts": {"query": "query : ", "document": "passage : ", "sts": "the "}}}
    variants += [
        (asks, {"role": "query"}), (asks, {"role": "document"}), (asks, {"name": "sts"}), (asks, {}),
        (asks, {"text": "of "}),
        ({settings: asks[settings] | {"default_prompt_name": "sts"}}, {}),
        ({settings: {"prompts": {"query": "query : "}, "default_prompt_name": "query"}}, {"role": "document"}),
    ]
    # `query` and `document` always exist: `encode_query` and `encode_document` use no other prompt, and no default prompt.
    others = {settings: {"prompts": {"passage": "passage : ", "corpus": "the "}, "default_prompt_name": "passage"}}
    variants += [
        (others, {"role": "query"}), (others, {"role": "document"}), (others, {"name": "query"}),
        (others, {"name": "document"}), (others, {}),
    ]
    for mode in [*MODES, MODES]:
        without = asks | {pooled: base | {"pooling_mode": mode, "include_prompt": False}}
        variants += [(without, {"role": "query"}), (without, {})]
    variants += [
        ({settings: {"truncate_dim": 5}}, {}),
        ({settings: {"truncate_dim": 50}}, {}),
        ({settings: {"truncate_dim": 5}}, {"dimensions": 3}),
        ({"modules.json": listed(5), settings: {"truncate_dim": 3}}, {}),
        ({"sentence_bert_config.json": {"max_seq_length": 6}}, {}),
        ({"tokenizer_config.json": reading(model_max_length=5, tokenizer_class="TokenizersBackend"),
          "sentence_bert_config.json": {"max_seq_length": 8, "do_lower_case": True}}, {}),
        ({"sentence_bert_config.json": {"max_seq_length": None, "do_lower_case": True}}, {}),
    ]
    # Dense with a residual of the same width, and of another width before a LayerNorm; Dropout and Normalize.
    variants += [({"modules.json": listed(*places)}, {}) for places in ([2], [3, 4], [6, 5])]
    expected = []
    for files, how in variants:
        with tempfile.TemporaryDirectory() as place:
            place = pathlib.Path(place) / "model"
            shutil.copytree(folder, place)
            for name, value in files.items():
                write(place / name, value)
            model = SentenceTransformer(str(place), device="cpu").double()
            encode = {"query": model.encode_query, "document": model.encode_document}.get(how.get("role"), model.encode)
            options = {"prompt_name": how.get("name"), "prompt": how.get("text"), "truncate_dim": how.get("dimensions")}
            vectors = encode(TEXTS, batch_size=2, **options)
        expected.append({"files": files, "how": how, "vectors": rounded(vectors)})
    write(folder / "expected.json", {"texts": TEXTS, "variants": expected})


def cross():
    folder = DATA / "cross"
    shutil.rmtree(folder, ignore_errors=True)
    heads = {}
    for labels in (1, 2):
        model = t.BertForSequenceClassification(config(num_labels=labels))
        randomise(model, 10 + labels)
        heads[labels] = model
    one = folder / "one"
    heads[1].save_pretrained(one)
    tokenizer().save_pretrained(one)
    write(one / "tokenizer_config.json", reading(tokenizer_class="BertTokenizer", model_max_length=24))
    own = json.loads((one / "config.json").read_text())
    two = folder / "two"
    heads[2].save_pretrained(two)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(one / name, two / name)
    both = json.loads((two / "config.json").read_text())

    def activation(config, name):
        return {"config.json": config | {"sentence_transformers": {"activation_fn": f"torch.nn.modules.{name}"}}}

    names = reading(tokenizer_class="BertTokenizer", model_input_names=["input_ids", "attention_mask"])
    layout = {
        "modules.json": json.loads((DATA / "bi" / "modules.json").read_text())[:1],
        "config_sentence_transformers.json": {
            "model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.activation.Tanh",
            "prompts": {"ask": "query : "}, "default_prompt_name": "ask",
        },
        "sentence_bert_config.json": {
            "transformer_task": "sequence-classification", "max_seq_length": 12,
            "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
            "module_output_name": "scores",
        },
    }
    variants = [
        ("one", {}), ("two", {}), ("one", activation(own, "linear.Identity")), ("two", activation(both, "activation.Sigmoid")),
        ("one", {"config.json": own | {"sbert_ce_default_activation_function": "torch.nn.modules.activation.Tanh"}}),
        ("one", {"tokenizer_config.json": names}), ("two", {"tokenizer_config.json": names}),
        ("one", {"tokenizer_config.json": reading(tokenizer_class="DistilBertTokenizer")}),
        ("one", {"tokenizer_config.json": reading(tokenizer_class="TokenizersBackend")}),
        ("one", {"tokenizer_config.json": reading(tokenizer_class="BertTokenizer", model_max_length=10)}),
        ("one", layout),
    ]
    expected = []
    for name, files in variants:
        with tempfile.TemporaryDirectory() as place:
            place = pathlib.Path(place) / "model"
            shutil.copytree(folder / name, place)
            for file, value in files.items():
                write(place / file, value)
            model = CrossEncoder(str(place), device="cpu")
            model.model.double()
            scores = torch.tensor(model.predict(PAIRS)).reshape(len(PAIRS), -1)
            logits = torch.tensor(model.predict(PAIRS, activation_fn=torch.nn.Identity())).reshape(len(PAIRS), -1)
        expected.append({"model": name, "files": files, "scores": rounded(scores), "logits": rounded(logits)})
    write(folder / "expected.json", {"pairs": PAIRS, "variants": expected})


if __name__ == "__main__":
    bi()
    cross()
