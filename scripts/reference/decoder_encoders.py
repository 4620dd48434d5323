"""Makes the parity fixtures of decoder-only models as encoders, in crates/transformers/tests/data/encoders.

Bodies and heads for sequence classification, with the files that encoder_parity.py describes, UMT5's encoder alone and BART's
head of labels;
`qwen3-embedding` and `mistral-embedding`, folders of sentence-transformers that pool the last token, with the vectors of that
library; and `qwen3-reranker`, a language model that answers `yes` or `no`, with the scores of that library and of the prompt
format of Qwen 3's rerankers.

    python scripts/reference/decoder_encoders.py [NAME]..
        # torch 2.15, transformers 5.24, tokenizers 0.23, sentence-transformers 6.2
"""

import json
import shutil
import sys
import tempfile

import encoder_parity
import torch
import transformers as t
from encoder_parity import DATA, WORDS, randomise, texts
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

END = "<|endoftext|>"
SPECIAL = [END, "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
SIZES = {
    "vocab_size": 96, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3,
    "initializer_range": 0.3,
}


def batch(config, types):
    """The batch of the encoders; a row ends with a padding token that is read."""
    inputs = encoder_parity_batch(config, types)
    inputs["input_ids"][1, 6] = config.pad_token_id
    return inputs


def ended_batch(config, types):
    """The batch of the encoders; each row ends with the end token, off whose state BART reads labels."""
    inputs = encoder_parity_batch(config, types)
    for row, mask in enumerate(inputs["attention_mask"]):
        inputs["input_ids"][row, int(mask.sum()) - 1] = config.eos_token_id
    return inputs


encoder_parity_batch, encoder_parity.batch = encoder_parity.batch, batch
encoder_parity_body = encoder_parity.body


def body(model):
    for name in ("transformer", "model"):
        heads = ("score", "lm_head", "classifier", "head", "classification_head")
        if hasattr(model, name) and any(hasattr(model, head) for head in heads):
            return getattr(model, name)
    return encoder_parity_body(model)


encoder_parity.body = body


def write(name, *arguments):
    if len(sys.argv) == 1 or name in sys.argv[1:]:
        encoder_parity.write(name, *arguments)


def heads():
    own = {"head_dim": 8, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
    write("qwen3-states", t.Qwen3Model(t.Qwen3Config(**SIZES | own)), 81)
    write("qwen3-sequence", t.Qwen3ForSequenceClassification(t.Qwen3Config(num_labels=1, **SIZES | own)), 82)
    write("llama-sequence", t.LlamaForSequenceClassification(t.LlamaConfig(num_labels=3, **SIZES)), 83)
    write("qwen2-sequence", t.Qwen2ForSequenceClassification(t.Qwen2Config(num_labels=2, **SIZES)), 84)
    mistral = t.MistralConfig(num_labels=1, sliding_window=5, **SIZES)
    write("mistral-sequence", t.MistralForSequenceClassification(mistral), 85)
    gemma = {"head_dim": 6, "query_pre_attn_scalar": 6, "sliding_window": 5}
    write("gemma2-sequence", t.Gemma2ForSequenceClassification(t.Gemma2Config(num_labels=2, **SIZES | gemma)), 86)
    gemma3 = t.Gemma3TextConfig(num_labels=1, **SIZES | gemma)
    write("gemma3-sequence", t.Gemma3TextForSequenceClassification(gemma3), 87)
    gpt2 = t.GPT2Config(
        vocab_size=96, n_positions=40, n_embd=16, n_layer=2, n_head=4, num_labels=2, bos_token_id=1, eos_token_id=2,
        pad_token_id=3,
    )
    write("gpt2-sequence", t.GPT2ForSequenceClassification(gpt2), 88)
    write("gpt2-states", t.GPT2Model(gpt2), 89)
    write("eurobert-states", t.EuroBertModel(t.EuroBertConfig(**SIZES)), 94)
    write("eurobert-mlm-states", t.EuroBertForMaskedLM(t.EuroBertConfig(attention_bias=True, **SIZES)), 95)
    for at, (name, pooling) in enumerate((("sequence", "late"), ("mean", "mean"), ("first", "bos"))):
        config = t.EuroBertConfig(num_labels=at + 1, classifier_pooling=pooling, **SIZES)
        write(f"eurobert-{name}", t.EuroBertForSequenceClassification(config), 120 + at)
    write("eurobert-token", t.EuroBertForTokenClassification(t.EuroBertConfig(num_labels=3, **SIZES)), 123)
    # Windows are smaller than inputs.
    ultra = SIZES | {"num_hidden_layers": 4, "sliding_window": 2, "pad_token_id": 3}
    write("ultrabert-states", t.UltrabertModel(t.UltrabertConfig(**ultra)), 124)
    write("ultrabert-mlm-states", t.UltrabertForMaskedLM(t.UltrabertConfig(
        attention_bias=True, mlp_bias=True, prediction_head_size=8, **ultra)), 125)
    for at, pooling in enumerate(("cls", "mean")):
        config = t.UltrabertConfig(num_labels=at + 1, classifier_pooling=pooling, **ultra)
        write(f"ultrabert-{pooling}", t.UltrabertForSequenceClassification(config), 126 + at)
    write("ultrabert-token", t.UltrabertForTokenClassification(t.UltrabertConfig(num_labels=3, **ultra)), 128)
    both = gemma | {"use_bidirectional_attention": True, "sliding_window": 4, "num_hidden_layers": 3}
    both["layer_types"] = ["sliding_attention", "full_attention", "sliding_attention"]
    write("gemma3-both-states", t.Gemma3TextModel(t.Gemma3TextConfig(**SIZES | both)), 96)
    write("qwen2-both-states", t.Qwen2Model(t.Qwen2Config(is_causal=False, **SIZES)), 97)
    both = t.Qwen3Config(num_labels=1, is_causal=False, **SIZES | own)
    write("qwen3-both-sequence", t.Qwen3ForSequenceClassification(both), 98)
    falcon = {key: value for key, value in SIZES.items() if key not in ("intermediate_size", "num_key_value_heads")}
    write("falcon-sequence", t.FalconForSequenceClassification(t.FalconConfig(num_labels=2, **falcon)), 99)
    encoder_parity.batch = encoder_parity_batch
    umt5 = t.UMT5Config(
        vocab_size=90, d_model=16, d_kv=6, d_ff=24, num_layers=3, num_heads=4, relative_attention_num_buckets=8,
        relative_attention_max_distance=10,
    )
    write("umt5-encoder", t.UMT5EncoderModel(umt5), 90)
    encoder_parity.batch = ended_batch
    bart = t.BartConfig(
        vocab_size=90, max_position_embeddings=40, d_model=16, encoder_layers=2, decoder_layers=3, encoder_ffn_dim=24,
        decoder_ffn_dim=20, encoder_attention_heads=4, decoder_attention_heads=2, num_labels=3,
    )
    bart.id2label = {0: "contradiction", 1: "neutral", 2: "entailment"}
    write("bart-sequence", t.BartForSequenceClassification(bart), 129)


def tokenizer(side="left"):
    """Words and characters as a byte-level BPE without merges has them; each text ends with the end token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    whole = ["yes", "no", *("Ġ" + word for word in WORDS)]
    vocabulary = {piece: at for at, piece in enumerate([*SPECIAL, *alphabet, *whole])}
    merges = []
    for word in whole:
        for at in range(1, len(word)):
            left, right, joined = word[:at], word[at], word[: at + 1]
            vocabulary.setdefault(joined, len(vocabulary))
            if (left, right) not in merges:
                merges.append((left, right))
    backend = Tokenizer(models.BPE(vocabulary, merges))
    split = pre_tokenizers.Split(Regex(r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(SPECIAL)
    if side == "left":
        backend.post_processor = processors.TemplateProcessing(single=f"$A {END}", special_tokens=[(END, 0)])
    return t.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token=END, eos_token=END, padding_side="left", model_max_length=512
    )


def embedding(name, model, prompts, normalize, pooling="lasttoken", dense=()):
    folder = DATA / name
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as plain:
        randomise(model, 91)
        model.save_pretrained(plain)
        tokenizer().save_pretrained(plain)
        encoder = modules.Transformer(plain, max_seq_length=48)
        torch.manual_seed(92)
        steps = [modules.Dense(*sizes, bias=False, activation_function=torch.nn.Identity()) for sizes in dense]
        steps += [modules.Normalize()] if normalize else []
        pooled = modules.Pooling(16, pooling_mode=pooling)
        whole = SentenceTransformer(modules=[encoder, pooled, *steps], device="cpu", prompts=prompts)
        whole.save(str(folder), create_model_card=False)
    # As older versions write it.
    mean = pooling == "mean"
    config = {"word_embedding_dimension": 16, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": mean,
              "pooling_mode_max_tokens": False, "pooling_mode_lasttoken": not mean, "include_prompt": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    whole = SentenceTransformer(str(folder), device="cpu").double()
    inputs = [*texts()[:2], *texts()[3:]]
    cases = []
    for role, prompt in whole.prompts.items():
        vectors = whole.encode(inputs, batch_size=3, prompt_name=role)
        rounded = [[round(float(x), 9) for x in row] for row in vectors]
        cases.append({"role": role, "prompt": prompt, "vectors": rounded})
    (folder / "expected.json").write_text(json.dumps({"texts": inputs, "cases": cases}, separators=(",", ":")) + "\n")


PREFIX = (
    '<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. '
    'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
TEMPLATE = (
    "{%- set q = messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first -%}"
    "{%- set d = messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first -%}"
    "<|im_start|>user\nquery: {{ q }}\ndocument: {{ d }}<|im_end|>\n<|im_start|>assistant\n"
)


def reranker():
    """Scores by the prompt format of Qwen 3's rerankers, as its model card has it, and by a template of pairs."""
    folder = DATA / "qwen3-reranker"
    shutil.rmtree(folder, ignore_errors=True)
    words = tokenizer("right")
    config = t.Qwen3Config(**SIZES | {"vocab_size": len(words), "head_dim": 8, "tie_word_embeddings": True,
                                      "max_position_embeddings": 1024, "pad_token_id": 0, "eos_token_id": 0})
    model = t.Qwen3ForCausalLM(config)
    randomise(model, 92)
    model.eval().save_pretrained(folder)
    words.save_pretrained(folder)
    exact = model.double()
    ids = lambda text: words(text, add_special_tokens=False)["input_ids"]
    yes, no = (words.convert_tokens_to_ids(word) for word in ("yes", "no"))
    task = "Given a web search query, retrieve relevant passages that answer the query"
    pairs = [["who wrote the song", "The band wrote the song, and the king played it."], ["war", "peace"],
             ["capital of the country", texts()[4]]]
    cases = []
    around = len(ids(PREFIX)) + len(ids(SUFFIX))
    for name, instruction, most in (
        ("default", task, 1000), ("instruction", "Find the capital", 1000), ("cut", task, around + 110),
    ):
        scores = []
        for query, document in pairs:
            middle = ids(f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}")
            room = most - len(ids(PREFIX)) - len(ids(SUFFIX))
            row = ids(PREFIX) + middle[:room] + ids(SUFFIX)
            with torch.no_grad():
                logits = exact(input_ids=torch.tensor([row])).logits[0, -1]
            scores.append([float(logits[yes] - logits[no]),
                           float(torch.log_softmax(torch.stack([logits[no], logits[yes]]), 0)[1].exp())])
        cases.append({"name": name, "instruction": instruction, "max-tokens": most, "scores": scores})
    # A template that has the roles of a pair; sentence-transformers reads it.
    with tempfile.TemporaryDirectory() as plain:
        model.float().save_pretrained(plain)
        words.chat_template = TEMPLATE
        words.save_pretrained(plain)
        scorer = CrossEncoder(plain, device="cpu")
        found = scorer.predict(pairs, activation_fn=torch.nn.Identity(), batch_size=2)
    (folder / "expected.json").write_text(json.dumps({
        "pairs": pairs, "cases": cases, "template": TEMPLATE, "template-scores": [float(score) for score in found],
    }, separators=(",", ":")) + "\n")
    print(cases, found)


MXBAI = [
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n<|im_start|>user\n",
    "You are a search relevance expert who evaluates how well documents match search queries. For each query-document pair, "
    "carefully analyze the semantic relationship between them, then provide your binary relevance judgment (0 for not relevant, "
    "1 for relevant).\nRelevance:<|im_end|>\n<|im_start|>assistant\n",
]
GEMMA = (
    "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a prediction of "
    "either 'Yes' or 'No'."
)


def formats():
    """Scores of the model `qwen3-reranker` by the prompts of mxbai-rerank-v2 and of bge-reranker-v2-gemma, from the model cards.

    Both tokenise the query, the passage and what is around them apart.
    """
    folder = DATA / "qwen3-reranker"
    words = t.AutoTokenizer.from_pretrained(folder)
    model = t.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval().double()
    ids = lambda text: words(text, add_special_tokens=False)["input_ids"]
    pairs = json.loads((folder / "expected.json").read_text())["pairs"]

    def logits(before, query, passage, after, most=10_000):
        before = before + ids(query) + ids("\n")
        row = before + ids(passage)[:max(most - len(before) - len(after), 0)] + after
        with torch.no_grad():
            return model(input_ids=torch.tensor([row])).logits[0, -1]

    def mxbai(query, passage, most, instruction=None):
        query = f"query: {query}" if instruction is None else f"instruction: {instruction}\nquery: {query}"
        task, suffix = MXBAI[1].split("<|im_end|>")
        after = ids("\n") + ids(task) + ids(f"<|im_end|>{suffix}")
        found = logits(ids(MXBAI[0]), query, f"document: {passage}", after, most)
        return float(found[ids("1")[0]] - found[ids("0")[0]])

    def gemma(query, passage):
        found = logits(ids("<|im_start|>"), f"A: {query}", f"B: {passage}", ids("\n") + ids(GEMMA))
        return float(found[ids("yes")[0]])

    own = ["<|im_start|>", "A: {query}", "\n", "B: {passage}", "\n", GEMMA]
    cases = [
        {"name": "mxbai", "format": "mxbai", "max-tokens": 1000, "scores": [mxbai(*pair, 1000) for pair in pairs]},
        {"name": "mxbai, cut", "format": "mxbai", "max-tokens": 380, "scores": [mxbai(*pair, 380) for pair in pairs]},
        {"name": "mxbai, instruction", "format": "mxbai", "instruction": "Find the capital", "max-tokens": 1000,
         "scores": [mxbai(*pair, 1000, "Find the capital") for pair in pairs]},
        {"name": "one logit", "format": "folder", "prompt": own, "no-token": "", "max-tokens": 1000,
         "scores": [gemma(*pair) for pair in pairs]},
    ]
    (folder / "formats.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")


def main():
    heads()
    if "formats" in sys.argv[1:]:
        formats()
    if len(sys.argv) > 1:
        return
    small = t.Qwen3Config(**SIZES | {"vocab_size": 400, "head_dim": 8, "tie_word_embeddings": True})
    words = tokenizer()
    small.vocab_size = len(words)
    prompts = {"query": "Instruct: Given a query, find the film\nQuery:", "document": ""}
    embedding("qwen3-embedding", t.Qwen3Model(small), prompts, True)
    mistral = t.MistralConfig(**SIZES | {"vocab_size": len(words), "sliding_window": None})
    embedding("mistral-embedding", t.MistralModel(mistral), {"query": "query: ", "document": "passage: "}, False)
    gemma = t.Gemma3TextConfig(**SIZES | {
        "vocab_size": len(words), "head_dim": 6, "query_pre_attn_scalar": 6, "sliding_window": 6,
        "use_bidirectional_attention": True})
    prompts = {"query": "task: search result | query: ", "document": "title: none | text: "}
    embedding("gemma3-embedding", t.Gemma3TextModel(gemma), prompts, True, "mean", [(16, 24), (24, 16)])
    reranker()
    formats()


if __name__ == "__main__":
    main()
