"""Scores a run with `pytrec_eval` and prints the means as JSON: the peer of benches/trec.rs.

    pip install pytrec-eval-terrier
    python scripts/reference/trec_peer.py QRELS RUN ndcg_cut_10,recall_100
"""

import json
import resource
import sys

import pytrec_eval


def main():
    qrels, run, measures = sys.argv[1:]
    measures = measures.split(",")
    with open(qrels, encoding="utf-8") as file:
        judged = pytrec_eval.parse_qrel(file)
    with open(run, encoding="utf-8") as file:
        ranked = pytrec_eval.parse_run(file)
    found = pytrec_eval.RelevanceEvaluator(judged, set(measures)).evaluate(ranked)
    means = {name: sum(row[name] for row in found.values()) / len(found) for name in measures}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"means": means, "peak_memory_bytes": peak}))


if __name__ == "__main__":
    main()
