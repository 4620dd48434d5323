"""Makes the parity fixtures of encoders that have code of their own and no class in `transformers`.

JinaBERT (Jina's embeddings, version 2), Jina's XLM-RoBERTa (their second multilingual reranker) and Alibaba's GTE with stretched
angles. The definitions here are our reading of the papers, of released configs and of the names in released weights: none of
that code is run. Jina's XLM-RoBERTa is
checked against the class of `transformers` that computes the same.

Also NomicBERT and GTE under the field names of their own code: the weights and values are those of a class of `transformers`.

The folders are in crates/transformers/tests/data/encoders, with the files that encoder_parity.py describes.

    python scripts/reference/own_code.py [NAME]..
        # torch 2.15, transformers 5.24, tokenizers 0.23
"""

import json
import math
import shutil
import sys

import torch
import transformers as t
from encoder_parity import DATA, batch, bert, byte_pairs, randomise, word_pieces
from encoder_parity import write as write_fixture
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

SIZES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24, "initializer_range": 0.3,
}


def wanted(name):
    return len(sys.argv) == 1 or name in sys.argv[1:]


def module(**parts):
    """A module with these parts; a name may have points, which say where a part is."""
    root = nn.Module()
    for name, part in parts.items():
        *path, last = name.split("/")
        at = root
        for step in path:
            if not hasattr(at, step):
                at.add_module(step, nn.Module())
            at = getattr(at, step)
        at.add_module(last, part)
    return root


def attention(queries, keys, values, biases):
    """Of heads (b, h, t, w) with biases on the scores."""
    scores = queries @ keys.transpose(-1, -2) / math.sqrt(queries.shape[-1]) + biases
    mixed = scores.softmax(-1) @ values
    return mixed.transpose(1, 2).flatten(2)


def heads_of(xs, heads):
    return xs.unflatten(-1, (heads, -1)).transpose(1, 2)


class Own(nn.Module):
    """A body under `prefix`, and a head of labels that reads the first state, or one of the vocabulary."""

    def __init__(self, config, prefix, body):
        super().__init__()
        self.config, self.prefix = config, prefix
        self.add_module(prefix, body)

    def mask(self, inputs):
        hidden = (1 - inputs["attention_mask"]).to(next(self.parameters()).dtype)
        return hidden[:, None, None, :] * -1e9

    def body(self):
        return getattr(self, self.prefix)


class JinaBert(Own):
    """BERT whose positions are biases that fall with the distance in both directions, with gated feed-forward parts."""

    def __init__(self, config, **head):
        width, inner = config["hidden_size"], config["intermediate_size"]
        parts = {
            "embeddings/word_embeddings": nn.Embedding(config["vocab_size"], width),
            "embeddings/token_type_embeddings": nn.Embedding(config["type_vocab_size"], width),
            "embeddings/LayerNorm": nn.LayerNorm(width, config["layer_norm_eps"]),
        }
        for layer in range(config["num_hidden_layers"]):
            at = f"encoder/layer/{layer}"
            parts |= {f"{at}/attention/self/{name}": nn.Linear(width, width) for name in ("query", "key", "value")}
            parts |= {
                f"{at}/attention/output/dense": nn.Linear(width, width),
                f"{at}/attention/output/LayerNorm": nn.LayerNorm(width, config["layer_norm_eps"]),
                f"{at}/mlp/gated_layers": nn.Linear(width, 2 * inner, bias=False),
                f"{at}/mlp/wo": nn.Linear(inner, width),
                f"{at}/mlp/layernorm": nn.LayerNorm(width, config["layer_norm_eps"]),
            }
        parts["pooler/dense"] = nn.Linear(width, width)
        super().__init__(config, "bert", module(**parts))
        for name, part in head.items():
            self.add_module(name, part)

    def slopes(self):
        heads = self.config["num_attention_heads"]
        whole = 2 ** int(math.log2(heads))
        of = lambda count: [2 ** (-8 * at / count) for at in range(1, count + 1)]
        return torch.tensor((of(whole) + of(2 * whole)[::2])[:heads])

    def states(self, inputs):
        config, body = self.config, self.body()
        words = body.embeddings
        xs = words.word_embeddings(inputs["input_ids"]) + words.token_type_embeddings(inputs["token_type_ids"])
        xs = words.LayerNorm(xs)
        places = torch.arange(xs.shape[1])
        far = (places[:, None] - places[None]).abs()
        biases = self.mask(inputs) - self.slopes().to(xs.dtype)[None, :, None, None] * far
        for layer in body.encoder.layer.children():
            own = getattr(layer.attention, "self")
            parts = [heads_of(part(xs), config["num_attention_heads"]) for part in (own.query, own.key, own.value)]
            out = layer.attention.output
            xs = out.LayerNorm(xs + out.dense(attention(*parts, biases)))
            first, second = layer.mlp.gated_layers(xs).chunk(2, -1)
            xs = layer.mlp.layernorm(xs + layer.mlp.wo(F.gelu(first) * second))
        return xs

    def logits(self, states):
        if hasattr(self, "classifier"):
            return self.classifier(self.body().pooler.dense(states[:, 0]).tanh())
        if not hasattr(self, "cls"):
            return None
        head = self.cls.predictions
        xs = head.transform.LayerNorm(F.gelu(head.transform.dense(states)))
        return xs @ self.body().embeddings.word_embeddings.weight.T + head.decoder.bias


class JinaXlmRoberta(Own):
    """XLM-RoBERTa with other names of the tensors."""

    def __init__(self, config):
        width, inner, eps = config["hidden_size"], config["intermediate_size"], config["layer_norm_eps"]
        parts = {
            "embeddings/word_embeddings": nn.Embedding(config["vocab_size"], width),
            "embeddings/position_embeddings": nn.Embedding(config["max_position_embeddings"], width),
            "embeddings/token_type_embeddings": nn.Embedding(config["type_vocab_size"], width),
            "emb_ln": nn.LayerNorm(width, eps),
        }
        for layer in range(config["num_hidden_layers"]):
            at = f"encoder/layers/{layer}"
            parts |= {
                f"{at}/mixer/Wqkv": nn.Linear(width, 3 * width), f"{at}/mixer/out_proj": nn.Linear(width, width),
                f"{at}/norm1": nn.LayerNorm(width, eps), f"{at}/norm2": nn.LayerNorm(width, eps),
                f"{at}/mlp/fc1": nn.Linear(width, inner), f"{at}/mlp/fc2": nn.Linear(inner, width),
            }
        super().__init__(config, "roberta", module(**parts))
        labels = len(config["id2label"])
        self.classifier = module(dense=nn.Linear(width, width), out_proj=nn.Linear(width, labels))

    def states(self, inputs):
        config, body = self.config, self.body()
        ids, pad = inputs["input_ids"], config["pad_token_id"]
        seen = (ids != pad).long()
        words = body.embeddings
        xs = words.word_embeddings(ids) + words.position_embeddings(seen.cumsum(1) * seen + pad)
        xs = body.emb_ln(xs + words.token_type_embeddings.weight[0])
        for layer in body.encoder.layers.children():
            parts = [heads_of(part, config["num_attention_heads"]) for part in layer.mixer.Wqkv(xs).chunk(3, -1)]
            xs = layer.norm1(xs + layer.mixer.out_proj(attention(*parts, self.mask(inputs))))
            xs = layer.norm2(xs + layer.mlp.fc2(F.gelu(layer.mlp.fc1(xs))))
        return xs

    def logits(self, states):
        return self.classifier.out_proj(self.classifier.dense(states[:, 0]).tanh())

    def twin(self):
        """The same as a model of `transformers`."""
        fields = {key: value for key, value in self.config.items() if key in (
            "vocab_size", "max_position_embeddings", "type_vocab_size", "pad_token_id", "layer_norm_eps", *SIZES)}
        model = t.XLMRobertaForSequenceClassification(
            t.XLMRobertaConfig(num_labels=len(self.config["id2label"]), **fields)).eval()
        own = {}
        for name, value in self.state_dict().items():
            name = name.replace("emb_ln", "embeddings.LayerNorm").replace("encoder.layers", "encoder.layer")
            for here, there in (
                ("mixer.out_proj", "attention.output.dense"), ("norm1", "attention.output.LayerNorm"),
                ("mlp.fc1", "intermediate.dense"), ("mlp.fc2", "output.dense"), ("norm2", "output.LayerNorm"),
            ):
                name = name.replace(here, there)
            if "mixer.Wqkv" in name:
                for part, piece in zip(("query", "key", "value"), value.chunk(3)):
                    own[name.replace("mixer.Wqkv", f"attention.self.{part}")] = piece
            else:
                own[name] = value
        found = model.load_state_dict(own, strict=False)
        assert not found.unexpected_keys and not found.missing_keys, found
        return model.double()


class New(Own):
    """GTE, whose angles may be stretched by a larger base."""

    def __init__(self, config, **head):
        width, inner, eps = config["hidden_size"], config["intermediate_size"], config["layer_norm_eps"]
        parts = {
            "embeddings/word_embeddings": nn.Embedding(config["vocab_size"], width),
            "embeddings/LayerNorm": nn.LayerNorm(width, eps),
        }
        if config["type_vocab_size"]:
            parts["embeddings/token_type_embeddings"] = nn.Embedding(config["type_vocab_size"], width)
        for layer in range(config["num_hidden_layers"]):
            at = f"encoder/layer/{layer}"
            parts |= {
                f"{at}/attention/qkv_proj": nn.Linear(width, 3 * width), f"{at}/attention/o_proj": nn.Linear(width, width),
                f"{at}/attn_ln": nn.LayerNorm(width, eps), f"{at}/mlp_ln": nn.LayerNorm(width, eps),
                f"{at}/mlp/up_gate_proj": nn.Linear(width, 2 * inner, bias=False),
                f"{at}/mlp/down_proj": nn.Linear(inner, width),
            }
        parts["pooler/dense"] = nn.Linear(width, width)
        super().__init__(config, "new", module(**parts))
        for name, part in head.items():
            self.add_module(name, part)

    def turned(self, heads):
        """By angles of a larger base, which are slower too (Su 2023, on mixed bases of NTK-aware positions)."""
        width, scaling = heads.shape[-1], self.config.get("rope_scaling")
        factor = scaling["factor"] if scaling else 1.0
        steps = (self.config["rope_theta"] * factor) ** (-torch.arange(0, width, 2).double() / width) / factor ** (2 / width)
        angles = torch.arange(heads.shape[2]).double()[:, None] * steps
        cos, sin = (torch.cat([of(angles)] * 2, -1).to(heads.dtype) for of in (torch.cos, torch.sin))
        first, second = heads.chunk(2, -1)
        return heads * cos + torch.cat([-second, first], -1) * sin

    def states(self, inputs):
        config, body = self.config, self.body()
        xs = body.embeddings.word_embeddings(inputs["input_ids"])
        if config["type_vocab_size"]:
            types = inputs.get("token_type_ids", torch.zeros_like(inputs["input_ids"]))
            xs = xs + body.embeddings.token_type_embeddings(types)
        xs = body.embeddings.LayerNorm(xs)
        for layer in body.encoder.layer.children():
            parts = layer.attention.qkv_proj(xs).chunk(3, -1)
            queries, keys, values = (heads_of(part, config["num_attention_heads"]) for part in parts)
            mixed = attention(self.turned(queries), self.turned(keys), values, self.mask(inputs))
            xs = layer.attn_ln(xs + layer.attention.o_proj(mixed))
            up, gate = layer.mlp.up_gate_proj(xs).chunk(2, -1)
            xs = layer.mlp_ln(xs + layer.mlp.down_proj(F.gelu(gate) * up))
        return xs

    def logits(self, states):
        return self.classifier(self.body().pooler.dense(states[:, 0]).tanh()) if hasattr(self, "classifier") else None


def write(name, model, seed, types):
    if not wanted(name):
        return
    folder = DATA / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    randomise(model, seed)
    (folder / "config.json").write_text(json.dumps(model.config, indent=2) + "\n")
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    if model.config["architectures"][0].endswith("Model"):
        weights = {name.removeprefix(f"{model.prefix}."): value for name, value in weights.items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    inputs = batch(t.PretrainedConfig(**{key: model.config[key] for key in ("pad_token_id", "vocab_size")}), types)
    with torch.no_grad():
        exact = model.eval().double()
        states = exact.states(inputs)
        tensors = {"states": states, "logits": exact.logits(states)}
        if isinstance(model, JinaXlmRoberta):
            twin = exact.twin()
            out = twin(**inputs)
            states = twin.roberta(**inputs).last_hidden_state
            seen = inputs["attention_mask"][:, :, None]
            assert ((states - tensors["states"]) * seen).abs().max() < 1e-6 and (out.logits - tensors["logits"]).abs().max() < 1e-6
    tensors = {key: value.float().contiguous() for key, value in tensors.items() if value is not None}
    tensors |= {key: value.int() for key, value in inputs.items()}
    save_file(tensors, folder / "expected.safetensors")


def renamed(name, model, seed, types, rename):
    """A model of `transformers` whose config has the fields of its own code."""
    if not wanted(name):
        return
    write_fixture(name, model, seed, None, types)
    path = DATA / name / "config.json"
    path.write_text(json.dumps(rename(json.loads(path.read_text())), indent=2) + "\n")


def nomic(fields):
    return {
        "activation_function": "swiglu", "architectures": fields["architectures"], "attn_pdrop": 0.0, "causal": False,
        "embd_pdrop": 0.0, "id2label": fields.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"}), "layer_norm_epsilon": 1e-12,
        "max_trained_positions": 20, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "model_type": "nomic_bert",
        "n_embd": fields["hidden_size"], "n_head": fields["num_attention_heads"], "n_inner": fields["intermediate_size"],
        "n_layer": fields["num_hidden_layers"], "n_positions": fields["max_position_embeddings"], "pad_token_id": 0,
        "parallel_block": False, "prenorm": False, "qkv_proj_bias": False, "resid_pdrop": 0.0,
        "rotary_emb_base": fields["rope_parameters"]["rope_theta"], "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "rotary_scaling_factor": None,
        "type_vocab_size": fields["type_vocab_size"], "vocab_size": fields["vocab_size"],
    }


def main():
    words, pieces = len(word_pieces()), len(byte_pairs())
    eps = {"layer_norm_eps": 1e-12}
    jina = SIZES | eps | {
        "model_type": "bert", "position_embedding_type": "alibi", "feed_forward_type": "geglu", "hidden_act": "gelu",
        "vocab_size": words, "max_position_embeddings": 40, "type_vocab_size": 2, "pad_token_id": 0,
    }
    width = SIZES["hidden_size"]
    # Heads that are no power of two.
    six = {"architectures": ["JinaBertModel"], "num_attention_heads": 6, "hidden_size": 24}
    write("jina-bert-states", JinaBert(jina | six), 131, True)
    labels = {"0": "LABEL_0"}
    write("jina-bert-sequence", JinaBert(
        jina | {"architectures": ["JinaBertForSequenceClassification"], "id2label": labels},
        classifier=nn.Linear(width, 1)), 132, True)
    predictions = module(**{"transform/dense": nn.Linear(width, width), "transform/LayerNorm": nn.LayerNorm(width, 1e-12)})
    decoder = nn.Module()
    decoder.bias = nn.Parameter(torch.zeros(words))
    predictions.add_module("decoder", decoder)
    write("jina-bert-mlm", JinaBert(jina | {"architectures": ["JinaBertForMaskedLM"]}, cls=module(predictions=predictions)),
          133, True)

    flash = SIZES | {
        "model_type": "xlm-roberta", "architectures": ["XLMRobertaForSequenceClassification"], "use_flash_attn": True,
        "position_embedding_type": "absolute", "hidden_act": "gelu", "vocab_size": pieces, "max_position_embeddings": 42,
        "type_vocab_size": 1, "pad_token_id": 1, "layer_norm_eps": 1e-5, "id2label": labels,
        "auto_map": {"AutoConfig": "configuration_xlm_roberta.XLMRobertaFlashConfig"},
    }
    write("jina-xlm-roberta-sequence", JinaXlmRoberta(flash), 134, False)

    new = SIZES | eps | {
        "model_type": "new", "architectures": ["NewModel"], "position_embedding_type": "rope", "layer_norm_type": "layer_norm",
        "hidden_act": "gelu", "vocab_size": words, "max_position_embeddings": 40, "type_vocab_size": 0, "pad_token_id": 0,
        "rope_theta": 50.0, "rope_scaling": {"type": "ntk", "factor": 2.0}, "pack_qkv": True, "logn_attention_scale": False,
    }
    write("new-states", New(new), 135, False)
    reranker = {"architectures": ["NewForSequenceClassification"], "type_vocab_size": 1, "pad_token_id": 1, "id2label": labels,
                "rope_theta": 20.0, "rope_scaling": {"type": "ntk", "factor": 8.0}}
    write("new-sequence", New(new | reranker, classifier=nn.Linear(width, 1)), 136, False)

    small = {"vocab_size": words, "max_position_embeddings": 40}
    small["rope_parameters"] = {"rope_type": "default", "rope_theta": 50.0}
    renamed("nomic-own-states", t.NomicBertModel(bert(t.NomicBertConfig, **small)), 137, True, nomic)
    renamed("nomic-own-sequence", t.NomicBertForSequenceClassification(bert(t.NomicBertConfig, num_labels=1, **small)), 138,
            True, nomic)


if __name__ == "__main__":
    main()
