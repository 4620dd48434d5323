"""Compares TREC runs of `sparse_run` (kind tfidf) with DrQA's tf-idf, computed here from its definition with sparse matrices.

    pip install numpy scipy scikit-learn regex
    bm25_tfidf.py [--k 20] PAGES.jsonl.gz TASK.jsonl=RUN.trec ..

Definition: Chen et al., ACL 2017, section 3.1, and the weights of the published retriever: unigrams and bigrams of the simple
tokenizer over text in normal form D, without those that contain a stop word or punctuation, hashed with scikit-learn's
MurmurHash3 into 2^24 buckets; ln(1 + tf) * max(0, ln((N - df + 0.5) / (df + 0.5))); dot product. The exit code is 1 if a
score differs by more than 1e-4 or a ranking by more than ties.
"""

import argparse
import collections
import gzip
import json
import sys
import unicodedata

import numpy as np
import regex
import scipy.sparse
from sklearn.utils import murmurhash3_32

from bm25_bm25s import gold_sets, r_precision, read_run, recall_at, same_but_for_ties

BUCKETS = 2**24
TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")
PUNCTUATION = regex.compile(r"\p{P}+")
STOP = set(
    "i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it its "
    "itself they them their theirs themselves what which who whom this that these those am is are was were be been being have "
    "has had having do does did doing a an the and but if or because as until while of at by for with about against between "
    "into through during before after above below to from up down in out on off over under again further then once here there "
    "when where why how all any both each few more most other some such no nor not only own same so than too very s t can will "
    "just don should now d ll m o re ve y ain aren couldn didn doesn hadn hasn haven isn ma mightn mustn needn shan shouldn "
    "wasn weren won wouldn 'll 're 've n't 's 'd 'm '' ``".split()
)


def buckets(text):
    tokens = [token.lower() for token in TOKEN.findall(unicodedata.normalize("NFD", text))]
    keep = [token not in STOP and not PUNCTUATION.fullmatch(token) for token in tokens]
    grams = [token for token, kept in zip(tokens, keep) if kept]
    grams += [" ".join(tokens[i : i + 2]) for i in range(len(tokens) - 1) if keep[i] and keep[i + 1]]
    return collections.Counter(murmurhash3_32(gram, positive=True) % BUCKETS for gram in grams)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--k", type=int, default=20)
    parser.add_argument("pages")
    parser.add_argument("runs", nargs="+", metavar="TASK=RUN")
    options = parser.parse_args()

    pages = [json.loads(line) for line in gzip.open(options.pages, "rt", encoding="utf8")]
    rows, columns, counts = [], [], []
    for row, page in enumerate(pages):
        for bucket, count in buckets(" ".join(page["text"])).items():
            rows.append(row)
            columns.append(bucket)
            counts.append(count)
    matrix = scipy.sparse.csr_matrix((np.log1p(counts), (rows, columns)), shape=(len(pages), BUCKETS))
    df = np.bincount(columns, minlength=BUCKETS)
    idf = np.maximum(np.log((len(pages) - df + 0.5) / (df + 0.5)), 0.0)

    failed = False
    for pair in options.runs:
        task, path = pair.split("=")
        records = [json.loads(line) for line in open(task, encoding="utf8")]
        run = read_run(path)
        equal = tied = different = 0
        worst, precision, recall = 0.0, 0.0, 0.0
        for record in records:
            asked = buckets(record["input"])
            query = np.zeros(BUCKETS)
            for bucket, count in asked.items():
                query[bucket] = np.log1p(count) * idf[bucket] ** 2
            scores = matrix @ query
            order = np.lexsort((np.arange(len(pages)), -scores))[: options.k]
            theirs = [(pages[i]["wikipedia_id"], scores[i]) for i in order if scores[i] > 0]
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
            ids = [page for page, _ in ours]
            precision += r_precision(gold_sets(record), ids)
            recall += recall_at(gold_sets(record), ids, 5)
        n = len(records)
        print(f"{task.split('/')[-1]}: {n} queries, same ranking {equal}, same but for ties {tied}, different {different}, "
              f"greatest relative difference of scores {worst:.2e}; Rprec {precision / n:.4f} recall@5 {recall / n:.4f}")
        failed |= worst > 1e-4 or different > 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
