"""Folders of sentence-transformers' modules with random weights, and what sentence-transformers makes of texts with them.

Writes crates/transformers/tests/data/encoders/: `static-embedding` as sentence-transformers saves it, `model2vec` as model2vec
does, with rows that tokens share and a factor for each token, and `pooled-scores`, a cross-encoder whose head is modules.
Needs sentence-transformers, transformers, torch, safetensors, tokenizers.

    python scripts/reference/sentence_modules.py
"""

import json
import pathlib
import shutil
import tempfile

import torch
import transformers
from safetensors.torch import save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Dense, LayerNorm, Normalize, Pooling, StaticEmbedding, Transformer,
)
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

DATA = pathlib.Path(__file__).parents[2] / "crates/transformers/tests/data/encoders"
WORDS = "a the king queen wrote song in of london film query : is capital country ##s ##ed play , . ?".split()
TEXTS = ["The king wrote the song.", "queens", "a film of the country, in London? unseen words", "capital is London"]


def tokenizer():
    """WordPiece with special tokens around a text, which static embeddings leave out."""
    vocabulary = {word: at for at, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    words = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    words.normalizer = normalizers.BertNormalizer()
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    words.enable_padding()
    return words


def expect(folder, prompts):
    """The vectors with each prompt, in 64 bits."""
    whole = SentenceTransformer(str(folder), device="cpu").double()
    cases = []
    for role, prompt in prompts.items():
        vectors = whole.encode(TEXTS, batch_size=3, prompt=prompt)
        rounded = [[round(float(x), 9) for x in row] for row in vectors]
        cases.append({"role": role, "prompt": prompt, "vectors": rounded})
    (folder / "expected.json").write_text(json.dumps({"texts": TEXTS, "cases": cases}, separators=(",", ":")) + "\n")


def pooled_scores():
    folder = DATA / "pooled-scores"
    shutil.rmtree(folder, ignore_errors=True)
    words = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer(), pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]"
    )
    torch.manual_seed(8)
    config = transformers.ModernBertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=64, pad_token_id=0, local_attention=8, global_attn_every_n_layers=2,
    )
    body = transformers.ModernBertModel(config)
    for parameter in body.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    with tempfile.TemporaryDirectory() as plain:
        body.save_pretrained(plain)
        words.save_pretrained(plain)
        layers = [
            Dense(16, 16, bias=False, activation_function=torch.nn.GELU()),
            LayerNorm(16),
            Dense(16, 1, activation_function=torch.nn.Identity(), module_output_name="scores"),
        ]
        for parameter in layers[1].parameters():
            torch.nn.init.normal_(parameter)
        pooled = Pooling(16, pooling_mode="cls")
        CrossEncoder(modules=[Transformer(plain), pooled, *layers], device="cpu").save(str(folder))
    (folder / "README.md").unlink(missing_ok=True)
    pairs = [[TEXTS[0], TEXTS[1]], ["king", TEXTS[2]], [TEXTS[3], "London"]]
    scorer = CrossEncoder(str(folder), device="cpu").double()
    scores = scorer.predict(pairs, activation_fn=torch.nn.Identity(), batch_size=2)
    expected = {"pairs": pairs, "scores": [round(float(score), 9) for score in scores]}
    (folder / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


def main():
    pooled_scores()
    torch.manual_seed(7)
    folder = DATA / "static-embedding"
    shutil.rmtree(folder, ignore_errors=True)
    prompts = {"query": "query: ", "document": ""}
    table = StaticEmbedding(tokenizer(), embedding_dim=16)
    SentenceTransformer(modules=[table, Normalize()], device="cpu", prompts=prompts).save(
        str(folder), create_model_card=False
    )
    expect(folder, prompts)

    folder = DATA / "model2vec"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    words = tokenizer()
    count, rows, width = words.get_vocab_size(), 11, 12
    weights = {
        "embeddings": torch.randn(rows, width).half(),
        "mapping": torch.randint(rows, (count,)),
        "weights": torch.rand(count),
    }
    save_file(weights, folder / "model.safetensors")
    words.save(str(folder / "tokenizer.json"))
    config = {"model_type": "model2vec", "architectures": ["StaticModel"], "normalize": True, "hidden_dim": width}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    kinds = ["StaticEmbedding", "Normalize"]
    modules = [
        {"idx": at, "name": str(at), "path": "." if at == 0 else "1_Normalize",
         "type": f"sentence_transformers.models.{kind}"}
        for at, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules, indent=2) + "\n")
    expect(folder, {"query": "", "document": ""})


if __name__ == "__main__":
    main()
