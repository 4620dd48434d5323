"""Makes crates/kilt/tests/data/trec: seeded judgements and runs with edge cases, and their figures by trec_eval.

    pip install pytrec-eval-terrier ir-measures
    python scripts/reference/trec.py                    # writes the fixture
    python scripts/reference/trec.py --program sporran  # compares the program with both packages on random runs

The figures of single queries come from `pytrec_eval`. Means over all judged queries come from `ir_measures`.
"""

import argparse
import json
import random
import subprocess
import tempfile
from pathlib import Path

import ir_measures
import pytrec_eval

DATA = Path(__file__).resolve().parents[2] / "crates/kilt/tests/data/trec"
# The names of `ir_measures` and of `pytrec_eval`.
NAMES = {
    "nDCG": "ndcg", "nDCG@5": "ndcg_cut_5", "nDCG@10": "ndcg_cut_10", "AP": "map", "AP@10": "map_cut_10",
    "P@1": "P_1", "P@5": "P_5", "P@20": "P_20", "R@5": "recall_5", "R@100": "recall_100", "RR": "recip_rank",
    "Rprec": "Rprec", "Bpref": "bpref", "Success@1": "success_1", "Success@5": "success_5", "infAP": "infAP",
    "SetP": "set_P", "SetR": "set_recall", "SetF": "set_F",
}


def with_level(name, level):
    """A name with its relevance level."""
    base, _, cutoff = name.partition("@")
    if base == "nDCG" or level == 1:
        return name
    return f"{base}(rel={level})" + (f"@{cutoff}" if cutoff else "")


def document(rng):
    """An id: few of them, so that many are judged; some with letters beyond ASCII and percent codes."""
    number = rng.randrange(60)
    return rng.choice([f"d{number}", f"D{number}", f"é{number}", f"{number}", f"d{number}%20x", f"x%{number}"])


def score(rng, style):
    if style == 0:  # many ties
        return str(rng.randint(-2, 2))
    if style == 1:  # equal as 32-bit floats
        return repr(1 + rng.randint(0, 9) * 1e-9)
    if style == 2:
        return rng.choice(["1e300", "-1e300", "inf", "-inf", "0.0", "-0.0", "1e-300", "3", ".5", "5.", "+7", "1E2"])
    return repr(rng.gauss(0, 10))


def world(rng, queries):
    """Judgements and a run as lines; neither is grouped or sorted."""
    qrels, run = [], []
    for query in range(queries):
        name = rng.choice([f"q{query}", str(query), f"q-{query}:é"])
        judged = {document(rng) for _ in range(rng.choice([1, 2, 10, 40]))}
        grades = rng.choice([[1], [0], [0, 1], [0, 1, 2, 3], [-1, 0, 1], [-2, -1, 0, 1, 2], [-1]])
        if rng.random() < 0.9:
            qrels += [f"{name} 0 {doc} {rng.choice(grades)}" for doc in sorted(judged)]
        if rng.random() < 0.85:
            style = rng.randrange(4)
            ranked = {document(rng) for _ in range(rng.choice([1, 5, 30, 150]))}
            for rank, doc in enumerate(sorted(ranked)):
                run.append(f"{name} Q0 {doc} {rank} {score(rng, style)} tag")
    for lines in (qrels, run):
        rng.shuffle(lines)
    return qrels, run


def figures(qrels, run, level):
    """The values of each query that both files have, by trec_eval."""
    judged, ranked = pytrec_eval.parse_qrel(qrels), pytrec_eval.parse_run(run)
    # With negative grades alone trec_eval reads values of another query; no document is relevant then.
    blank = {query for query, grades in judged.items() if max(grades.values()) < 0}
    known = {query: grades for query, grades in judged.items() if query not in blank}
    found = pytrec_eval.RelevanceEvaluator(known, set(NAMES.values()), relevance_level=level).evaluate(ranked)
    values = {
        query: {with_level(name, level): row[theirs] for name, theirs in NAMES.items()} for query, row in found.items()
    }
    for query in blank & ranked.keys():
        values[query] = {with_level(name, level): 0.0 for name in NAMES}
    return values


def means(qrels, run, names):
    """The means over all judged queries, by `ir_measures`."""
    measures = [ir_measures.parse_measure(name) for name in names]
    judged = [ir_measures.Qrel(q, d, int(g)) for q, _, d, g in map(str.split, qrels)]
    ranked = [ir_measures.ScoredDoc(q, d, float(s)) for q, _, d, _, s, _ in map(str.split, run)]
    found = ir_measures.calc_aggregate(measures, judged, ranked)
    return {name: found[measure] for name, measure in zip(names, measures)}


def write(path, lines):
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def fixture():
    rng = random.Random(7)
    qrels, run = world(rng, 14)
    DATA.mkdir(parents=True, exist_ok=True)
    write(DATA / "qrels.txt", qrels)
    write(DATA / "run.trec", run)
    expected = {str(level): figures(qrels, run, level) for level in (1, 2)}
    text = json.dumps(expected, ensure_ascii=False, indent=0, sort_keys=True)
    (DATA / "expected.json").write_text(text + "\n", encoding="utf-8")


def close(ours, theirs, where):
    assert ours.keys() == theirs.keys(), (where, ours.keys() ^ theirs.keys())
    for name, value in theirs.items():
        assert abs(ours[name] - value) < 1e-6, (where, name, ours[name], value)


def compare(program, rounds):
    compared = 0
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("qrels.txt", "run.trec")]
        for seed in range(rounds):
            rng = random.Random(seed)
            qrels, run = world(rng, rng.choice([1, 3, 20]))
            write(paths[0], qrels)
            write(paths[1], run)
            for level in (1, 2, 3):
                names = [with_level(name, level) for name in NAMES]
                theirs = figures(qrels, run, level)
                call = [program, "evaluate", "trec", "--qrels", paths[0], "--run", paths[1], "--per-query", "--json"]
                call += ["--measures", ",".join(names)]
                done = subprocess.run(call, capture_output=True, text=True, check=False)
                if not theirs:
                    continue
                assert done.returncode == 0, (seed, done.stderr)
                ours = json.loads(done.stdout)
                assert ours["per_query"].keys() == theirs.keys(), seed
                for query, row in theirs.items():
                    close(ours["per_query"][query], row, (seed, level, query))
                    compared += len(row)
                judged = pytrec_eval.parse_qrel(qrels)
                if all(max(grades.values()) >= 0 for grades in judged.values()):
                    done = subprocess.run(call + ["--complete"], capture_output=True, text=True, check=True)
                    complete = json.loads(done.stdout)
                    close({name: complete[name] for name in names}, means(qrels, run, names), (seed, level))
                    compared += len(names)
    print(f"{compared} figures of {rounds} random files agree to 1e-6")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", help="the program to compare with")
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    if options.program:
        compare(options.program, options.rounds)
    else:
        fixture()


if __name__ == "__main__":
    main()
