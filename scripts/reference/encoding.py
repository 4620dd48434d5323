"""The peers of benches/encoding.rs: the encoding speed of transformers and onnxruntime with the same model.

    encoding.py make DIR                     writes models of these shapes with random weights from seed 0: bert-base,
                                             mpnet-base, deberta-v3-base, modernbert-base
    encoding.py run FOLDER WORK THREADS [cuda]   prints a JSON object per peer: its name, seconds, and some hidden states
    encoding.py index FOLDER TEXTS THREADS   prints the same for sentence-transformers with faiss, from texts to an index on disk

On a GPU `run` measures transformers only, in three precisions. WORK is a JSON file {"inputs": rows of token ids of one
length, "batch", "runs"}. Needs torch, transformers, onnx, onnxscript, onnxruntime; `index` needs sentence-transformers,
faiss-cpu. TEXTS has one text per line.
"""

import json
import pathlib
import sys
import tempfile
import time


def make(folder):
    import torch
    import transformers

    deberta = transformers.DebertaV2Config(
        vocab_size=128100, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072,
        type_vocab_size=0, relative_attention=True, position_buckets=256, norm_rel_ebd="layer_norm", share_att_key=True,
        pos_att_type=["p2c", "c2p"], position_biased_input=False, max_relative_positions=-1, layer_norm_eps=1e-7,
    )
    models = {
        "bert-base": (transformers.BertModel, transformers.BertConfig()),
        "mpnet-base": (transformers.MPNetModel, transformers.MPNetConfig()),
        "deberta-v3-base": (transformers.DebertaV2Model, deberta),
        "modernbert-base": (transformers.ModernBertModel, transformers.ModernBertConfig()),
    }
    for name, (model, config) in models.items():
        torch.manual_seed(0)
        model(config).save_pretrained(pathlib.Path(folder) / name)


def report(name, runs, batches, once):
    best, first = float("inf"), None
    for _ in range(runs + 1):
        start = time.perf_counter()
        states = [once(batch) for batch in batches]
        best = min(best, time.perf_counter() - start)
        first = states[0]
    # The hidden state of the first row's first token shows that all engines compute the same.
    print(json.dumps({"name": name, "seconds": best, "state": first[0, 0].tolist()}), flush=True)


def run(folder, work, threads, device="cpu"):
    import numpy
    import torch
    import transformers

    work = json.loads(pathlib.Path(work).read_text())
    torch.set_num_threads(int(threads))
    inputs = numpy.array(work["inputs"])
    batches = [inputs[at : at + work["batch"]] for at in range(0, len(inputs), work["batch"])]
    kinds = {"f32": "float32"} if device == "cpu" else {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
    for kind, dtype in kinds.items():
        model = transformers.AutoModel.from_pretrained(folder, attn_implementation="sdpa", dtype=dtype)
        model = model.eval().to(device)

        def plain(batch, model=model):
            ids = torch.tensor(batch, device=device)
            with torch.inference_mode():
                out = model(input_ids=ids, attention_mask=torch.ones_like(ids))
            return out.last_hidden_state.float().cpu().numpy()

        report(f"transformers {kind}", work["runs"], batches, plain)
    if device == "cpu":
        with_onnxruntime(folder, work, int(threads), batches)


def with_onnxruntime(folder, work, threads, batches):
    import numpy
    import onnxruntime
    import torch
    import transformers
    from onnxruntime.quantization import QuantType, quantize_dynamic

    path = pathlib.Path(folder.rstrip("/") + ".onnx")
    path.mkdir(exist_ok=True)
    exported, rounded = path / "model.onnx", path / "int8.onnx"
    if not exported.exists():

        class Body(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager")

            def forward(self, ids, mask):
                return self.model(input_ids=ids, attention_mask=mask).last_hidden_state

        ids = torch.ones((2, 8), dtype=torch.long)
        sizes = {0: "batch", 1: "length"}
        torch.onnx.export(
            Body().eval(),
            (ids, ids),
            str(exported),
            input_names=["input_ids", "attention_mask"],
            output_names=["states"],
            dynamic_axes={"input_ids": sizes, "attention_mask": sizes, "states": sizes},
            dynamo=False,
        )
    if not rounded.exists():
        quantize_dynamic(str(exported), str(rounded), weight_type=QuantType.QInt8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    for name, file in (("onnxruntime f32", exported), ("onnxruntime int8", rounded)):
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])

        def once(batch, session=session):
            feed = {"input_ids": batch.astype(numpy.int64), "attention_mask": numpy.ones_like(batch, numpy.int64)}
            return session.run(["states"], feed)[0]

        report(name, work["runs"], batches, once)


def index(folder, texts, threads, _device="cpu"):
    import faiss
    import sentence_transformers
    import torch

    torch.set_num_threads(int(threads))
    faiss.omp_set_num_threads(int(threads))
    model = sentence_transformers.SentenceTransformer(folder, device="cpu")
    lines = pathlib.Path(texts).read_text().split("\n")
    if lines[-1] == "":
        lines.pop()
    best, state = float("inf"), None
    # Two runs: the first one is a warm-up.
    for _ in range(2):
        with tempfile.TemporaryDirectory() as work:
            start = time.perf_counter()
            vectors = model.encode(lines, batch_size=32, normalize_embeddings=True, show_progress_bar=False)
            flat = faiss.IndexFlatIP(vectors.shape[1])
            flat.add(vectors)
            faiss.write_index(flat, str(pathlib.Path(work) / "index"))
            best = min(best, time.perf_counter() - start)
        state = vectors[0].tolist()
    print(json.dumps({"name": "sentence-transformers, faiss", "seconds": best, "state": state}))


if __name__ == "__main__":
    verb, *arguments = sys.argv[1:]
    {"make": make, "run": run, "index": index}[verb](*arguments)
