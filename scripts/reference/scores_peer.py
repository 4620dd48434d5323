"""The definitions of KILT's scores in plain Python, with PyPI's `rouge` for ROUGE-L.

`scores.py` computes its expected scores with this file, and `benches/scores.rs` compares it with the Rust scorer.

    python scores_peer.py GOLD GUESS [KS [RANK_KEYS]]

It prints one JSON object with the report of the answers, with KS also that of the evidence, and the seconds of CPU time, which
other work on the machine does not increase.
"""

import json
import re
import string
import sys
import time
from collections import Counter

from rouge import Rouge

ROUGE = Rouge(metrics=["rouge-l"])


def read(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def align(gold, guess):
    """Pairs in the order of the gold file; predictions without a gold record are left out."""
    by_id = {}
    for record in guess:
        key = str(record["id"]).strip()
        if key in by_id:
            raise ValueError(f"duplicate prediction {key}")
        by_id[key] = record
    seen = set()
    pairs = []
    for record in gold:
        key = str(record["id"]).strip()
        if key in seen:
            raise ValueError(f"duplicate gold id {key}")
        seen.add(key)
        pairs.append((record, by_id[key]))
    return pairs


# Answers


def normalise(text):
    text = text.lower()
    text = "".join(c for c in text if c not in string.punctuation)
    text = re.sub(r"\b(?:the|an|a)\b", " ", text)
    return " ".join(text.split())


def gold_answers(record):
    found = (item.get("answer") for item in record["output"])
    return {answer.strip() for answer in found if answer and answer.strip()}


def f1(prediction, gold):
    ours, theirs = normalise(prediction).split(), normalise(gold).split()
    common = sum((Counter(ours) & Counter(theirs)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(ours), common / len(theirs)
    return 2 * precision * recall / (precision + recall)


def rouge_l(prediction, gold):
    try:
        return ROUGE.get_scores(prediction, gold, avg=True)["rouge-l"]["f"]
    except ValueError:  # nothing but full stops
        return 0.0


def answer_scores(gold, guess):
    prediction = str(guess["output"][0]["answer"]).strip()
    answers = gold_answers(gold)
    if not prediction or not answers:
        return [0.0] * 4
    return [
        float(prediction in answers),
        max(float(normalise(prediction) == normalise(answer)) for answer in answers),
        max(f1(prediction, answer) for answer in answers),
        max(rouge_l(prediction, answer) for answer in answers),
    ]


# Evidence


def unique(items):
    return list(dict.fromkeys(items))


def complete_keys(output, keys):
    """The rank keys of the items that have every field."""
    items = output.get("provenance", [])
    items = [item for item in items if all(key in item for key in keys)]
    return unique("+".join(str(item[key]).strip() for key in keys) for item in items)


def r_precision(gold, guess, keys):
    predicted = complete_keys(guess["output"][0], keys)
    best = 0.0
    for output in gold["output"]:
        wanted = complete_keys(output, keys)
        if wanted:
            first = predicted[: len(wanted)]
            best = max(best, sum(key in wanted for key in first) / len(wanted))
    return best


def rank(gold, guess, keys):
    """The rank, and the number of distinct gold sets."""
    predicted = complete_keys(guess["output"][0], keys)
    if not predicted:
        return [], 0
    sets = []
    for output in gold["output"]:
        if "provenance" in output:
            items = output["provenance"]
            wanted = {"+".join(str(item[key]).strip() for key in keys if key in item) for item in items}
            if wanted not in sets:
                sets.append(wanted)
    points = []
    count = len(sets)
    for key in predicted:
        known = False
        for number, wanted in enumerate(sets):
            if key in wanted:
                known = True
                if number in [mark for mark in points if type(mark) is int]:
                    points.remove(number)
                wanted.discard(key)
                points.append("done" if not wanted else number)
        if not known:
            points.append("miss")
    return points, count


def context_scores(gold, guess, k):
    answers = [normalise(answer) for answer in gold_answers(gold)]
    titles = gold_titles(gold)
    answer = entity = both = 0.0
    for item in guess["output"][0].get("provenance", [])[:k]:
        if "text" in item:
            text = normalise(item["text"])
            has_answer = any(wanted in text for wanted in answers)
            has_entity = any(title in text for title in titles)
            answer = max(answer, float(has_answer))
            entity = max(entity, float(has_entity))
            both = max(both, float(has_answer and has_entity))
    return answer, both, entity


def gold_titles(gold):
    items = [item for output in gold["output"] for item in output.get("provenance", [])]
    return [normalise(item["title"].strip()) for item in items if item.get("title") and item["title"].strip()]


def evidence_scores(gold, guess, ks, keys):
    """Names and scores, in the report's order."""
    points, count = rank(gold, guess, keys)
    text = normalise(gold["input"])
    scores = {
        "Rprec": r_precision(gold, guess, keys),
        "entity_in_input": float(any(title in text for title in gold_titles(gold))),
    }
    for k in sorted(ks):
        done = points[:k].count("done")
        scores[f"precision@{k}"] = done / k if count else 0.0
        answer, both, entity = context_scores(gold, guess, k)
        scores[f"answer_in_context@{k}"] = answer
        scores[f"answer_and_ent_in_context@{k}"] = both
        scores[f"entity_in_context@{k}"] = entity
        if k > 1:
            scores[f"recall@{k}"] = done / count if count else 0.0
            scores[f"success_rate@{k}"] = float(done > 0)
    return scores


# Files

NAMES = ["accuracy", "em", "f1", "rougel", "KILT-accuracy", "KILT-em", "KILT-f1", "KILT-rougel", "Rprec", "recall@5"]


def evaluate(gold_path, guess_path):
    """The report, and a row of `NAMES` for each record."""
    rows = []
    for gold, guess in align(read(gold_path), read(guess_path)):
        if len(guess["output"]) != 1:
            raise ValueError(f"{guess['id']}: not exactly one output")
        scores = answer_scores(gold, guess)
        share = r_precision(gold, guess, ["wikipedia_id"])
        points, count = rank(gold, guess, ["wikipedia_id"])
        recall = points[:5].count("done") / count if count else 0.0
        rows.append(scores + [score if share == 1 else 0.0 for score in scores] + [share, recall])
    means = dict(zip(NAMES, (sum(column) / len(rows) for column in zip(*rows))))
    report = {
        "downstream": {name: means[name] for name in NAMES[:4]},
        "kilt": {name: means[name] for name in NAMES[4:8]},
        "retrieval": {name: means[name] for name in NAMES[8:]},
    }
    return report, rows


def evaluate_retrieval(gold_path, guess_path, ks, keys):
    """The report, and its names and scores for each record."""
    rows = []
    for gold, guess in align(read(gold_path), read(guess_path)):
        guess["output"] = [output for output in guess["output"] if "provenance" in output]
        if len(guess["output"]) != 1:
            raise ValueError(f"{guess['id']}: not exactly one output with provenance")
        rows.append(evidence_scores(gold, guess, ks, keys))
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}, rows


def main():
    start = time.process_time()
    gold, guess, *rest = sys.argv[1:]
    out = {"answers": evaluate(gold, guess)[0]}
    out["answers_seconds"] = time.process_time() - start
    if rest:
        start = time.process_time()
        ks = [int(k) for k in rest[0].split(",")]
        keys = (rest[1] if len(rest) > 1 else "wikipedia_id").split(",")
        out["evidence"] = evaluate_retrieval(gold, guess, ks, keys)[0]
        out["evidence_seconds"] = time.process_time() - start
    print(json.dumps(out))


if __name__ == "__main__":
    main()
