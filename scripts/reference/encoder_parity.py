"""Makes the parity fixtures of the encoders, crates/transformers/tests/data/encoders.

For each family and head: a seeded tiny checkpoint, `expected.safetensors` (a padded batch with token types, the hidden states
and the outputs of the head, computed by `transformers` in f64 and rounded) and, with a tokenizer, `expected.json` (texts and
pairs as token ids and types, truncated to several lengths). `sentence` is a folder in the layout of
sentence-transformers with the vectors of that library.

    python scripts/reference/encoder_parity.py
        # torch 2.15, transformers 5.23, tokenizers 0.23, sentence-transformers 6.2
"""

import json
import pathlib
import random
import shutil
import tempfile

import torch
import transformers as t
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

DATA = pathlib.Path(__file__).resolve().parents[2] / "crates" / "transformers" / "tests" / "data" / "encoders"
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
    return ["Where was the author of the book born?", "war", "", "Köln is a city.", sentence(rng, 60)]


def pairs():
    rng = random.Random(6)
    return [
        ["who wrote the song", "The band wrote the song, and the king played it."],
        ["", "river"],
        [sentence(rng, 50), "north"],
        ["capital of the country", sentence(rng, 50)],
        [sentence(rng, 30), sentence(rng, 31)],
    ]


def word_pieces():
    """A hand-made WordPiece tokenizer over words and characters, in the layout of BERT's tokenizer.json."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    letters = "abcdefghijklmnopqrstuvwxyz.,?"
    pieces += [*letters, *("##" + letter for letter in letters[:-3]), "##ed", "##er"]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(pieces[:5])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return t.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def byte_pairs():
    """A byte-level BPE in the layout of RoBERTa's tokenizer.json, trained on a few sentences."""
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    rng = random.Random(11)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = sorted(set("".join(WORDS) + "Ġ"))
    trainer = trainers.BpeTrainer(
        vocab_size=70, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([sentence(rng, 12) for _ in range(80)], trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return t.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", cls_token="<s>", sep_token="</s>",
        bos_token="<s>", eos_token="</s>", mask_token="<mask>",
    )


def bert(config=t.BertConfig, **options):
    return config(
        **{
            "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
            "initializer_range": 0.3,
        } | options,
    )


def distil(**options):
    return t.DistilBertConfig(
        dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=40, initializer_range=0.3, **options
    )


def randomise(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            noise = torch.randn(weight.shape, generator=generator)
            own = name.removeprefix("roberta_prelayernorm.").lower()
            if own.endswith("encoder.embed_positions.weight"):
                continue  # RoFormer's sines and cosines
            if any(part in own for part in ("layer_norm", "layernorm", "norm.")):
                weight.copy_(0.2 * noise + (1.0 if name.endswith("weight") else 0.0))
            elif "embeddings" in name:
                weight.copy_(0.7 * noise)
                if type(model).__name__.startswith("MobileBert") and "word" in name:
                    weight[0] = 0.0  # the neighbour of a last token is padding in a batch, and zeros alone
            else:
                # No norm of MobileBERT bounds its states.
                weight.copy_((0.1 if type(model).__name__.startswith("MobileBert") else 0.3) * noise)


def batch(config, types):
    generator = torch.Generator().manual_seed(3)
    lengths = [11, 7, 3, 9]
    pad = config.pad_token_id
    ids = torch.randint(5, config.vocab_size, (4, 11), generator=generator)
    mask = torch.tensor([[1] * length + [0] * (11 - length) for length in lengths])
    ids[mask == 0] = pad
    ids[3, 4] = pad  # a padding token that is read
    second = torch.tensor([[int(6 <= at < length) for at in range(11)] for length in lengths])
    return {"input_ids": ids, "attention_mask": mask} | ({"token_type_ids": second} if types else {})


def body(model):
    names = "bert roberta distilbert mpnet electra albert deberta ernie data2vec_text roberta_prelayernorm rembert"
    names += " roformer nomic_bert gte longformer transformer mobilebert convbert fnet nystromformer ibert luke"
    for name in names.split():
        if hasattr(model, name):
            return getattr(model, name)
    for name in ("question_encoder", "ctx_encoder"):
        if hasattr(model, name):
            return getattr(model, name).bert_model
    if isinstance(model, t.ModernBertPreTrainedModel):
        return getattr(model, "model", model)
    return model.span_predictor.encoder.bert_model if hasattr(model, "span_predictor") else model


def cuts(tokenizer, types):
    """Every text and pair, complete and truncated to several lengths on both sides; null if `transformers` raises an error."""
    found = []
    for limit in (None, 40, 12, 7):
        for truncation in (False,) if limit is None else ("longest_first", "only_second"):
            for one in [[text] for text in texts()] + pairs():
                try:
                    row = tokenizer(
                        *one, truncation=truncation, max_length=limit, return_token_type_ids=True
                    )
                    row = {"ids": row["input_ids"], "types": row["token_type_ids"]}
                except Exception:
                    row = None
                found.append({"texts": one, "length": limit, "only_second": truncation == "only_second", "row": row})
    return found


def alone(model, inputs):
    """The outputs of each row without its padding, filled up with zeros."""
    found = {}
    for row, mask in enumerate(inputs["attention_mask"].tolist()):
        length = sum(mask)
        given = {key: value[row:row + 1, :length] for key, value in inputs.items()}
        if isinstance(model.config, t.FNetConfig):
            del given["attention_mask"]
        for key, value in model(**given).items():
            whole = value
            if value.shape[1] == length:
                whole = value.new_zeros(1, len(mask), *value.shape[2:])
                whole[:, :length] = value
            found.setdefault(key, []).append(whole)
    return {key: torch.cat(rows) for key, rows in found.items()}


def write(name, model, seed, tokenizer=None, types=None):
    folder = DATA / name
    shutil.rmtree(folder, ignore_errors=True)
    randomise(model, seed)
    model.eval().save_pretrained(folder)
    types = isinstance(model.config, (t.BertConfig, t.DPRConfig)) if types is None else types
    inputs = batch(model.config, types)
    exact = model.double()
    with torch.no_grad():
        states = body(exact)(**inputs).last_hidden_state
        if isinstance(model, t.LongformerForSequenceClassification):
            # It has the first token attend to all others, and all to it.
            seen = torch.zeros_like(inputs["input_ids"])
            seen[:, 0] = 1
            states = body(exact)(**inputs, global_attention_mask=seen).last_hidden_state
        if isinstance(model, t.DPRReader):
            # The reader has no token types, so they are 0.
            del inputs["token_type_ids"]
            states = body(exact)(**inputs).last_hidden_state
        out = exact(**inputs)
        if isinstance(model.config, (t.ConvBertConfig, t.FNetConfig, t.NystromformerConfig)):
            # Padding has an influence: each text alone.
            states = alone(body(exact), inputs)["last_hidden_state"]
            out = alone(exact, inputs)
        if isinstance(model, t.XLNetForSequenceClassification):
            # It reads the state of the last token, which in a batch is padding: each text alone.
            rows = [{key: value[row:row + 1, :sum(mask)] for key, value in inputs.items()}
                    for row, mask in enumerate(inputs["attention_mask"].tolist())]
            out["logits"] = torch.cat([exact(**row).logits for row in rows])
    names = ["logits", "start_logits", "end_logits", "relevance_logits"]
    names = names[1:] if isinstance(model, t.XLNetLMHeadModel) else names
    names += ["pooler_output"] if isinstance(model.config, t.DPRConfig) else []
    tensors = {key: out[key] for key in names if out.get(key) is not None}
    tensors |= {key: value.int() for key, value in inputs.items()} | {"states": states}
    tensors = {key: value.float() if value.is_floating_point() else value for key, value in tensors.items()}
    save_file({key: value.contiguous() for key, value in tensors.items()}, folder / "expected.safetensors")
    if tokenizer is not None:
        tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
        with open(folder / "expected.json", "w") as file:
            json.dump(cuts(tokenizer, types), file, separators=(",", ":"))
            file.write("\n")


def sentences():
    """Mean and maximum pooling, concatenated, then a dense layer and normalisation."""
    # Here, because scripts/reference/encoder_families.py uses the rest of this file without that library.
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    folder = DATA / "sentence"
    shutil.rmtree(folder, ignore_errors=True)
    tokenizer = word_pieces()
    with tempfile.TemporaryDirectory() as plain:
        model = t.BertModel(bert(vocab_size=len(tokenizer), max_position_embeddings=40))
        randomise(model, 31)
        model.save_pretrained(plain)
        tokenizer.save_pretrained(plain)
        encoder = modules.Transformer(plain, max_seq_length=20)
        pooling = modules.Pooling(16, pooling_mode=("mean", "max"))
        torch.manual_seed(32)
        dense = modules.Dense(32, 12, activation_function=torch.nn.Tanh())
        whole = SentenceTransformer(modules=[encoder, pooling, dense, modules.Normalize()], device="cpu")
        whole.save(str(folder), create_model_card=False)
    inputs = [text for text in texts() if text] + [" and ".join(pair) for pair in pairs()]
    vectors = whole.double().encode(inputs, batch_size=3)
    with open(folder / "expected.json", "w") as file:
        json.dump({"texts": inputs, "vectors": [[round(float(x), 9) for x in row] for row in vectors]}, file)
        file.write("\n")


def main():
    words, bytes_ = word_pieces(), byte_pairs()
    small = {"vocab_size": len(words), "max_position_embeddings": 40}
    large = {"vocab_size": len(bytes_), "max_position_embeddings": 42, "pad_token_id": 1, "layer_norm_eps": 1e-5}
    roberta = dict(large, config=t.RobertaConfig, type_vocab_size=1)
    write("bert-states", t.BertModel(bert(**small)), 1)
    write("bert-sequence", t.BertForSequenceClassification(bert(num_labels=1, **small)), 2, words)
    write("bert-token", t.BertForTokenClassification(bert(num_labels=3, **small)), 3)
    write("bert-span", t.BertForQuestionAnswering(bert(hidden_act="gelu_new", **small)), 4)
    write("bert-mlm", t.BertForMaskedLM(bert(**small)), 5)
    write("roberta-sequence", t.RobertaForSequenceClassification(bert(num_labels=2, **roberta)), 6, bytes_)
    write("roberta-token", t.RobertaForTokenClassification(bert(num_labels=3, **roberta)), 7)
    write("roberta-span", t.RobertaForQuestionAnswering(bert(**roberta)), 8)
    write("roberta-mlm", t.RobertaForMaskedLM(bert(hidden_act="relu", **roberta)), 9)
    xlm = dict(roberta, config=t.XLMRobertaConfig)
    write("xlm-roberta-sequence", t.XLMRobertaForSequenceClassification(bert(num_labels=1, **xlm)), 10)
    tiny = {"vocab_size": len(words)}
    write("distilbert-sequence", t.DistilBertForSequenceClassification(distil(num_labels=3, **tiny)), 11)
    write("distilbert-token", t.DistilBertForTokenClassification(distil(num_labels=2, activation="relu", **tiny)), 12)
    write("distilbert-span", t.DistilBertForQuestionAnswering(distil(**tiny)), 13)
    write("distilbert-mlm", t.DistilBertForMaskedLM(distil(**tiny)), 14)
    write("dpr-question", t.DPRQuestionEncoder(bert(t.DPRConfig, **small)), 15, words)
    write("dpr-context", t.DPRContextEncoder(bert(t.DPRConfig, projection_dim=7, **small)), 16, words)
    write("dpr-reader", t.DPRReader(bert(t.DPRConfig, **small)), 17)
    sentences()


if __name__ == "__main__":
    main()
