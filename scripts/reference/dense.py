"""The peers of benches/dense.rs: faiss-cpu and hnswlib on the same vectors.

    dense.py FOLDER flat|pq|hnsw OPTIONS     prints a JSON object per index (for graphs, per recall)

FOLDER has `rows` and `queries`, contiguous f32 values. OPTIONS is a JSON object {"dim", "k", "single", "runs",
"widths", "recalls", "threads"}. Needs faiss-cpu, hnswlib, numpy.
"""

import json
import os
import sys
import tempfile
import time

import faiss
import numpy


def load(folder, name, dim):
    return numpy.fromfile(os.path.join(folder, name), dtype=numpy.float32).reshape(-1, dim)


def seconds(call):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def recall(found, exact):
    return sum(len(set(a) & set(b)) for a, b in zip(found.tolist(), exact.tolist())) / exact.size


def stored(write):
    """The seconds for writing an index, and its size. Our build time includes the writing."""
    with tempfile.NamedTemporaryFile() as file:
        took, _ = seconds(lambda: write(file.name))
        return took, os.path.getsize(file.name)


def measure(name, search, queries, singles, options, exact, build, size, rows, aim=None):
    single = batch = float("inf")
    for _ in range(options["runs"]):
        start = time.perf_counter()
        for at in range(singles):
            search(queries[at : at + 1])
        single = min(single, (time.perf_counter() - start) / singles)
        took, found = seconds(lambda: search(queries))
        batch = min(batch, took / len(queries))
    figures = {"name": name, "aim": aim, "build": build, "bytes": size / rows, "single": single, "batch": batch}
    print(json.dumps(figures | {"recall": recall(found, exact)}), flush=True)


def exact_results(rows, queries, k):
    index = faiss.IndexFlatIP(rows.shape[1])
    index.add(rows)
    return index.search(queries, k)[1]


def fill(index, rows):
    index.train(rows)
    index.add(rows)


def compared(kinds, rows, queries, options, exact):
    k = options["k"]
    for name, index in kinds:
        build, _ = seconds(lambda: fill(index, rows))
        writing, size = stored(lambda path: faiss.write_index(index, path))
        search = lambda batch: index.search(batch, k)[1]
        measure(name, search, queries, options["single"], options, exact, build + writing, size, len(rows))


def flat(rows, queries, options, exact):
    dim, metric = rows.shape[1], faiss.METRIC_INNER_PRODUCT
    quantizer = faiss.ScalarQuantizer
    compared(
        [
            ("faiss flat", faiss.IndexFlatIP(dim)),
            ("faiss sq fp16", faiss.IndexScalarQuantizer(dim, quantizer.QT_fp16, metric)),
            ("faiss sq 8bit", faiss.IndexScalarQuantizer(dim, quantizer.QT_8bit, metric)),
        ],
        rows,
        queries,
        options,
        exact,
    )


def pq(rows, queries, options, exact):
    dim, metric = rows.shape[1], faiss.METRIC_INNER_PRODUCT
    compared(
        [
            ("faiss pq 8 bits", faiss.IndexPQ(dim, dim // 8, 8, metric)),
            ("faiss pq 4 bits, fast scan", faiss.IndexPQFastScan(dim, dim // 4, 4, metric)),
        ],
        rows,
        queries,
        options,
        exact,
    )


def sweep(name, search_at, queries, options, exact, build, size, rows):
    aims = list(options["recalls"])
    for width in options["widths"]:
        search = search_at(width)
        reached = recall(search(queries), exact)
        while aims and reached >= aims[0]:
            label = f"{name}, width {width}"
            measure(label, search, queries, len(queries), options, exact, build, size, rows, aims.pop(0))


def hnsw(rows, queries, options, exact):
    import hnswlib

    dim, k = rows.shape[1], options["k"]
    index = hnswlib.Index("ip", dim)
    index.init_index(len(rows), M=16, ef_construction=200, random_seed=100)
    index.set_num_threads(options["threads"])
    build, _ = seconds(lambda: index.add_items(rows))
    writing, size = stored(index.save_index)

    def with_hnswlib(width):
        index.set_ef(width)
        return lambda batch: index.knn_query(batch, k)[0]

    sweep("hnswlib", with_hnswlib, queries, options, exact, build + writing, size, len(rows))

    graph = faiss.IndexHNSWFlat(dim, 16, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = 200
    build, _ = seconds(lambda: graph.add(rows))
    writing, size = stored(lambda path: faiss.write_index(graph, path))

    def with_faiss(width):
        graph.hnsw.efSearch = width
        return lambda batch: graph.search(batch, k)[1]

    sweep("faiss", with_faiss, queries, options, exact, build + writing, size, len(rows))


def main(folder, kind, options):
    options = json.loads(options)
    faiss.omp_set_num_threads(options["threads"])
    rows, queries = load(folder, "rows", options["dim"]), load(folder, "queries", options["dim"])
    exact = exact_results(rows, queries, options["k"])
    {"flat": flat, "pq": pq, "hnsw": hnsw}[kind](rows, queries, options, exact)


if __name__ == "__main__":
    main(*sys.argv[1:])
