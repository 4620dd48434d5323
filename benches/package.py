"""Measures the Python package: beside the program on a run of a config, and beside bm25s, sentence-transformers and faiss.

    python benches/package.py --program target/release/sporran --config configs/quickstart.toml \\
        --source knowledge_source.jsonl.gz --model models/minilm --queries queries.txt [--texts 2000] [--threads 2]

The program and the package have to be builds of one commit with one profile. A run's time is that of the whole process, the median
of five, the two in turn. Other times are the best of three calls after a first one. SOURCE is in KILT's layout, QUERIES has one
query a line. Needs sporran, bm25s, PyStemmer, sentence-transformers, faiss-cpu. The same threads for all.
"""

import argparse
import gzip
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ["program", "config", "source", "model", "queries"]:
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--texts", type=int, default=2000, help="passages to embed")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def seconds(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def best(work):
    """The shortest of three calls after a first one, and the result."""
    work()
    return min((seconds(work) for _ in range(3)), key=lambda timed: timed[0])


def row(what, unit, ours, peer, peers_figure, agreement):
    print(f"| {what} | {ours:.1f} {unit} | {peer} | {peers_figure:.1f} {unit} | {ours / peers_figure:.2f} | {agreement} |", flush=True)


def runs(arguments):
    """Whole processes: the program, and Python with the package."""
    code = "import sys, sporran; sporran.run(sys.argv[1], {'output': sys.argv[2], 'then': []})"
    times = {"program": [], "package": []}
    for _ in range(5):
        for name in times:
            with tempfile.TemporaryDirectory() as folder:
                command = [arguments.program, "-q", "run", arguments.config, f"output={folder}", "then=[]"]
                if name == "package":
                    command = [sys.executable, "-c", code, arguments.config, folder]
                work = lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: E731
                times[name].append(seconds(work)[0])
    program, package = (statistics.median(times[name]) for name in ("program", "package"))
    print(f"| run of {pathlib.Path(arguments.config).name} | {package:.2f} s | the program | {program:.2f} s | {package / program:.3f} | |")


def words(arguments, texts, queries):
    import bm25s
    import sporran
    import Stemmer

    stemmer = Stemmer.Stemmer("english")
    index = sporran.BM25.from_texts(texts)
    tokens = bm25s.tokenize(texts, stemmer=stemmer, show_progress=False)
    peer = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    peer.index(tokens, show_progress=False)

    def search_peer():
        terms = bm25s.tokenize(queries, stemmer=stemmer, show_progress=False)
        return peer.retrieve(terms, k=10, n_threads=arguments.threads, show_progress=False)

    ours, found = best(lambda: index.search(queries, k=10))
    theirs, (numbers, _) = best(search_peer)
    same = sum(len({hit.id for hit in hits} & set(row)) for hits, row in zip(found, numbers.tolist()))
    shared = f"{same / sum(map(len, found)):.3f} of the hits shared"
    row(f"BM25, {len(texts)} passages, 10 hits", "queries/s", len(queries) / ours, "bm25s", len(queries) / theirs, shared)


def vectors(arguments, texts, queries):
    import faiss
    import numpy
    import sentence_transformers
    import sporran
    import torch

    torch.set_num_threads(arguments.threads)
    faiss.omp_set_num_threads(arguments.threads)
    encoder = sporran.Encoder(arguments.model)
    peer = sentence_transformers.SentenceTransformer(arguments.model, device="cpu")
    some = texts[: arguments.texts]
    ours, found = best(lambda: encoder.encode(some))
    theirs, expected = best(lambda: peer.encode(some, normalize_embeddings=True, show_progress_bar=False))
    cosines = (found * expected).sum(1) / numpy.linalg.norm(found, axis=1)
    row(
        f"embedding {len(some)} passages", "texts/s", len(some) / ours, "sentence-transformers", len(some) / theirs,
        f"least cosine {cosines.min():.6f}",
    )
    asked = encoder.encode(queries)
    index = sporran.DenseIndex.build(found)
    flat = faiss.IndexFlatIP(found.shape[1])
    flat.add(found)
    ours, (_, numbers) = best(lambda: index.search(asked, k=10))
    theirs, (_, expected) = best(lambda: flat.search(asked, 10))
    equal = (numbers == expected).mean()
    row(
        f"exact search, {len(found)} vectors", "queries/s", len(queries) / ours, "faiss", len(queries) / theirs,
        f"{equal:.4f} of the hits equal",
    )


def main():
    arguments = parsed()
    os.environ.update(OMP_NUM_THREADS=str(arguments.threads), RAYON_NUM_THREADS=str(arguments.threads))
    queries = [line for line in pathlib.Path(arguments.queries).read_text().splitlines() if line]
    opened = gzip.open if arguments.source.endswith(".gz") else open
    with opened(arguments.source, "rt", encoding="utf-8") as lines:
        pages = map(json.loads, lines)
        texts = [" ".join(page["text"]).strip() for page in pages]
    print("| what | Sporran | peer | peer's | ratio | results |\n|---|---:|---|---:|---:|---|")
    runs(arguments)
    words(arguments, texts, queries)
    vectors(arguments, texts, queries)


if __name__ == "__main__":
    main()
