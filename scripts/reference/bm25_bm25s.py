"""Compares TREC runs of `sparse_run` with bm25s (method "lucene") over the same pages, and scores both.

    pip install bm25s PyStemmer
    bm25_bm25s.py [--k1 0.9] [--b 0.4] [--stemmer english|none] [--k 20] [--figures F.json] PAGES.jsonl.gz TASK=RUN.trec ..

For each task it prints how many queries have the same ranking, how many differ only among equal scores, the largest relative
difference of scores at the same rank, and page-level R-precision and recall@5 as defined by KILT.
With `--stemmer english` bm25s stems with PyStemmer, whose Snowball version differs from that of the crate rust-stemmers in
about one word in a thousand. With `--stemmer none` the rankings must be the same; the exit code is 1 if scores differ by more
than 1e-4.
"""

import argparse
import collections
import gzip
import json
import sys
import time

import bm25s
import Stemmer


def read_run(path):
    run = collections.defaultdict(list)
    for line in open(path, encoding="utf8"):
        query, _, page, _, score, _ = line.rstrip("\n").rsplit(" ", 5)
        run[query].append((page, float(score)))
    return run


def gold_sets(record):
    sets = [list(dict.fromkeys(str(p["wikipedia_id"]).strip() for p in o["provenance"])) for o in record["output"] if "provenance" in o]
    return [pages for pages in sets if pages]


def r_precision(gold, ids):
    return max((len(set(pages) & set(ids[: len(pages)])) / len(pages) for pages in gold), default=0.0)


def recall_at(gold, ids, k):
    """The rank with one point per distinct gold set, at its last page; an earlier point of the set is removed."""
    rest = [set(pages) for pages in {frozenset(pages) for pages in gold}]
    points = []
    for page in ids:
        holders = [i for i, pages in enumerate(rest) if page in pages]
        for i in holders:
            points = [point for point in points if point != ("part of", i)]
            rest[i].remove(page)
            points.append(("part of", i) if rest[i] else True)
        if not holders:
            points.append(False)
    return sum(point is True for point in points[:k]) / len(rest) if rest else 0.0


def same_but_for_ties(ours, theirs, tolerance):
    """Whether each page has an equal score in the other ranking, or is one of several pages with the last score."""
    cut = min(ours[-1][1], theirs[-1][1]) if ours and theirs else 0.0
    a, b = dict(ours), dict(theirs)
    for page in a.keys() | b.keys():
        known = [run[page] for run in (a, b) if page in run]
        close = lambda x, y: abs(x - y) <= tolerance * max(abs(x), abs(y))
        if len(known) == 2 and not close(*known):
            return False
        if len(known) == 1 and not close(known[0], cut):
            return False
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--k1", type=float, default=0.9)
    parser.add_argument("--b", type=float, default=0.4)
    parser.add_argument("--k", type=int, default=20)
    parser.add_argument("--stemmer", choices=["english", "none"], default="english")
    parser.add_argument("--figures", help="a JSON file for bm25s's seconds to index and its queries a second by task")
    parser.add_argument("pages")
    parser.add_argument("runs", nargs="+", metavar="TASK=RUN")
    options = parser.parse_args()

    pages = [json.loads(line) for line in gzip.open(options.pages, "rt", encoding="utf8")]
    stemmer = Stemmer.Stemmer("english") if options.stemmer == "english" else None
    analyse = lambda texts: bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)
    texts = [" ".join(page["text"]) for page in pages]
    start = time.perf_counter()
    index = bm25s.BM25(k1=options.k1, b=options.b, method="lucene")
    index.index(analyse(texts), show_progress=False)
    figures = {"index seconds": time.perf_counter() - start}
    print(f"bm25s     index {figures['index seconds']:8.3f} s")

    failed = False
    for pair in options.runs:
        task, path = pair.split("=")
        records = [json.loads(line) for line in open(task, encoding="utf8")]
        run = read_run(path)
        start = time.perf_counter()
        places, scores = index.retrieve(analyse([r["input"] for r in records]), k=options.k, show_progress=False)
        name = task.split("/")[-1]
        figures[name] = len(records) / (time.perf_counter() - start)
        print(f"bm25s     {name}: {figures[name]:.0f} queries/s")
        equal = tied = different = 0
        worst = 0.0
        totals = collections.Counter()
        for record, row, row_scores in zip(records, places, scores):
            # bm25s pads its results with pages that do not match.
            theirs = [(pages[i]["wikipedia_id"], float(s)) for i, s in zip(row, row_scores) if s > 0]
            ours = run[str(record["id"]).strip()]
            if [page for page, _ in ours] == [page for page, _ in theirs]:
                equal += 1
            elif same_but_for_ties(ours, theirs, 1e-5):
                tied += 1
            else:
                different += 1
            if len(ours) != len(theirs):
                worst = float("inf")
            for (_, a), (_, b) in zip(ours, theirs):
                worst = max(worst, abs(a - b) / max(abs(a), abs(b)))
            gold = gold_sets(record)
            for side, ranking in (("ours", ours), ("bm25s", theirs)):
                ids = [page for page, _ in ranking]
                totals[side, "Rprec"] += r_precision(gold, ids)
                totals[side, "recall@5"] += recall_at(gold, ids, 5)
                totals[side, "success@5"] += any(set(g) <= set(ids[:5]) for g in gold)
        n = len(records)
        print(f"    {n} queries: same ranking {equal}, same but for ties {tied}, different {different}, "
              f"greatest relative difference of scores {worst:.2e}")
        for side in ("ours", "bm25s"):
            print("   ", side.ljust(6), *(f"{score} {totals[side, score] / n:.4f}" for score in ("Rprec", "recall@5", "success@5")))
        failed |= options.stemmer == "none" and (worst > 1e-4 or different > 0)
    if options.figures:
        with open(options.figures, "w", encoding="utf8") as file:
            json.dump(figures, file)
    sys.exit(failed)


if __name__ == "__main__":
    main()
