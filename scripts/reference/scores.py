"""Makes crates/kilt/tests/data/scores: seeded gold and prediction files with edge cases, and their scores.

    pip install rouge==1.0.1 pytrec-eval-terrier scipy
    python scripts/reference/scores.py

ROUGE-L comes from `rouge`, ranking scores from `pytrec_eval`, the matching of answer sets from SciPy. The other scores
come from the definitions, implemented here and in scores_peer.py in plain Python.
"""

import json
import random
from pathlib import Path

import pytrec_eval
import scores_peer
from scipy.optimize import linear_sum_assignment

DATA = Path(__file__).resolve().parents[2] / "crates/kilt/tests/data/scores"
KEYS = ["wikipedia_id", "wikipedia_id,section", "wikipedia_id,start_paragraph_id,end_paragraph_id", "title"]
KS = [1, 3, 5, 10]


def lines(name, records):
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    (DATA / name).write_text(text, encoding="utf-8")


# KILT

WORDS = (
    "the The a A an An THE rome Rome oslo Oslo paris x y z 1984 U.S. e.g. don't it's co-op under_score --- ... . !? "
    "Straße ÉCOLE école e\u0301cole a\u0301 \u0130stanbul ΟΔΟΣ ὀδός 東京 東京都 ٣ ½ \u24d0 क\u093e а the\u0301 \U0001f600 "
    "na\u00efve \u2013 \u201cquote\u201d (a) a.b an.the \u0345a Ǆ ﬁn"
).split(" ")
BLANKS = [" ", " ", " ", "  ", "\t", "\n", "\u00a0", "\u3000", "\x1f", "\u2028", "\u200b", " . ", "."]


def phrase(rng, most):
    parts = []
    for _ in range(rng.randint(1, most)):
        parts += [rng.choice(WORDS), rng.choice(BLANKS)]
    return "".join(parts)


def variant(rng, text):
    """The text, or a variant of it."""
    change = rng.randrange(7)
    if change == 0:
        return text.upper()
    if change == 1:
        return "The " + text + "!"
    if change == 2:
        words = text.split()
        rng.shuffle(words)
        return " ".join(words)
    if change == 3:
        return text.replace(" ", ". ")
    if change == 4:
        return " ".join(text.split()[: rng.randint(1, 4)])
    return text


def page(rng):
    number = rng.randrange(9)
    return rng.choice([number, str(number), f" {number} ", f"{number}\n"])


def item(rng, with_text):
    out = {}
    if rng.random() < 0.93:
        out["wikipedia_id"] = page(rng)
    if rng.random() < 0.9:
        out["title"] = rng.choice(["Rome", "The", " ", "", "Oslo (city)", "École", "A", "x y", None])
    if rng.random() < 0.8:
        out["section"] = rng.choice(["S", " S", "T", None, ""])
    if rng.random() < 0.8:
        out["start_paragraph_id"] = rng.choice([0, 1, "1", -1])
        if rng.random() < 0.9:
            out["end_paragraph_id"] = rng.choice([1, 2])
    if with_text and rng.random() < 0.4:
        out["text"] = phrase(rng, 8)
    if rng.random() < 0.1:
        out["meta"] = {"deep": [1, None]}
    return out


def kilt(rng, count):
    gold, guess, evidence = [], [], []
    for number in range(count):
        name = rng.choice([number, str(number), f" {number}", f"r{number}\u00a0", f"id \"{number}\""])
        outputs = []
        for _ in range(rng.randint(1, 5)):
            output = {}
            if rng.random() < 0.8:
                output["answer"] = rng.choice([phrase(rng, 4), phrase(rng, 9), "", "  ", None, "..."])
            if rng.random() < 0.8:
                output["provenance"] = [item(rng, False) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
            outputs.append(output)
            if rng.random() < 0.2:  # an equal set, in another order and form
                copied = [dict(one) for one in output.get("provenance", [])]
                rng.shuffle(copied)
                outputs.append({"provenance": copied + copied[:1]})
        known = sorted(scores_peer.gold_answers({"output": outputs}))
        if not known and rng.random() < 0.9:
            outputs[0]["answer"] = phrase(rng, 30 if number % 20 == 0 else 5)
            known = sorted(scores_peer.gold_answers({"output": outputs}))
        titles = [one.get("title") or "" for output in outputs for one in output.get("provenance", [])]
        question = phrase(rng, 6) + (rng.choice(titles) if titles and rng.random() < 0.5 else "")
        gold.append({"id": name, "input": question, "output": outputs, "meta": {"a": 1}})

        answer = variant(rng, rng.choice(known)) if known and rng.random() < 0.7 else phrase(rng, 6)
        if number % 37 == 0:
            answer = rng.choice(["the", "...", ".", "a .", "!"])
        # The public scorer stops at a record without gold answers unless the prediction is empty.
        if not known or rng.random() < 0.05:
            answer = rng.choice(["", " \u00a0\n"])
        if number % 41 == 0 and known:
            answer = rng.randint(0, 2000)
        predicted = [item(rng, True) for _ in range(rng.choice([0, 1, 2, 3, 4, 6, 6, 40 if number % 4 == 0 else 5]))]
        if rng.random() < 0.5:  # find some gold set whole, among others
            found = [dict(one) for output in outputs for one in output.get("provenance", [])]
            predicted = rng.sample(found, min(len(found), 4)) + predicted
            if rng.random() < 0.3:
                rng.shuffle(predicted)
        name = rng.choice([str(name), f"{name} "])
        output = {"answer": answer, "provenance": predicted}
        if rng.random() < 0.05:
            del output["provenance"]
        guess.append({"id": name, "output": [output]})
        others = [{"answer": "x"} for _ in range(rng.choice([0, 0, 1, 2]))]
        several = others + [{"provenance": predicted}]
        rng.shuffle(several)
        evidence.append({"id": name, "output": several})
    unknown = [{"id": "nobody", "output": [{"answer": "x"}, {"answer": "y"}]}, {"id": -5, "output": []}]
    for records in (guess, evidence):
        records += unknown
        rng.shuffle(records)
    lines("gold.jsonl", gold)
    lines("guess.jsonl", guess)
    lines("guess_evidence.jsonl", evidence)
    report, rows = scores_peer.evaluate(DATA / "gold.jsonl", DATA / "guess.jsonl")
    levels = {}
    for keys in KEYS:
        found = scores_peer.evaluate_retrieval(DATA / "gold.jsonl", DATA / "guess_evidence.jsonl", KS, keys.split(","))
        levels[keys] = {"report": found[0], "Rprec": [row["Rprec"] for row in found[1]]}
    return {"report": report, "names": scores_peer.NAMES, "rows": rows, "levels": levels}


# Ranking


def ranking(rng, count):
    queries, qrels, graded, run = [], {}, {}, {}
    for number in range(count):
        scores = [0.0, 0.25, 1.0, 1.0 + 1e-9, -3.5, 1e-9, rng.random()]
        candidates = []
        for place in range(rng.choice([0, 1, 2, 8, 15, 40])):
            name = rng.choice([f"d{place}", f"{place}", f"D{place}", f"é{place}"])
            confidence = rng.choice([0.0, 0.2, 0.4, 0.6, 0.6, 0.59999, 1.0]) if rng.random() < 0.4 else 0.0
            candidates.append({"id": name, "confidence": confidence, "score": rng.choice(scores)})
        queries.append({"id": number, "candidates": candidates})
        if candidates:
            qrels[str(number)] = {one["id"]: int(one["confidence"] >= 0.6) for one in candidates}
            # trec_eval's gains are whole numbers, and nDCG does not depend on their scale.
            graded[str(number)] = {one["id"]: round(one["confidence"] * 100000) for one in candidates}
            run[str(number)] = {one["id"]: one["score"] for one in candidates}
    lines("ranking.jsonl", queries)
    names = {"map_cut.5,10", "ndcg_cut.5,10", "recip_rank"}
    found = pytrec_eval.RelevanceEvaluator(qrels, names).evaluate(run)
    by_share = pytrec_eval.RelevanceEvaluator(graded, {"ndcg_cut.5,10"}).evaluate(run)
    rows = []
    for number, judgements in qrels.items():
        if any(judgements.values()):
            one = found[number]
            first = one["recip_rank"]
            rows.append(
                {
                    "mrr@1": first if first == 1 else 0.0,
                    "mrr@5": first if first >= 0.2 else 0.0,
                    "map@5": one["map_cut_5"],
                    "map@10": one["map_cut_10"],
                    # Divided by min(relevant, k) instead of by all relevant ones.
                    "map_norm@5": one["map_cut_5"] * sum(judgements.values()) / min(sum(judgements.values()), 5),
                    "map_norm@10": one["map_cut_10"] * sum(judgements.values()) / min(sum(judgements.values()), 10),
                    "ndcg@5": one["ndcg_cut_5"],
                    "ndcg@10": one["ndcg_cut_10"],
                    "ndcg_graded@5": by_share[number]["ndcg_cut_5"],
                    "ndcg_graded@10": by_share[number]["ndcg_cut_10"],
                    "recip_rank": first,
                }
            )
    report = {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
    return report | {"queries": count, "queries_with_relevant": len(rows)}


# KnowledgeNet

PROPERTIES = {"1": "BORN", "5": "DATE", "14": "NAME", "3": "SPOUSE", "50": "CHILD", "34": "EMPLOYER"}


def fact(rng):
    start, other = rng.randrange(12), rng.randrange(12)
    uris = ["", "Q1", "http://w/Q1", "http://w/Q1/", "http://w/Q2", "Q2//", "http://v/Q3"]
    return {
        "propertyId": rng.choice(list(PROPERTIES)),
        "subjectStart": start,
        "subjectEnd": start + rng.choice([0, 1, 2, 5]),
        "objectStart": other,
        "objectEnd": other + rng.choice([0, 1, 3, 6]),
        "subjectUri": rng.choice(uris),
        "objectUri": rng.choice(uris),
    }


def described(names):
    return [{"propertyId": name, "propertyName": PROPERTIES[name], "propertyDescription": ""} for name in names]


def knowledgenet(rng, count):
    gold, guess = [], []
    for number in range(count):
        ours, theirs = [], []
        for place in range(rng.randint(1, 3)):
            annotated = sorted(rng.sample(list(PROPERTIES), rng.randint(1, 4)))
            if number < 6 and place == 0:
                annotated = list(PROPERTIES)
            facts = [one for one in (fact(rng) for _ in range(rng.randrange(12))) if one["propertyId"] in annotated]
            if number % 5:  # a property without linked gold facts in most documents
                facts = [one if one["propertyId"] != "50" else one | {"objectUri": ""} for one in facts]
            base = {"passageId": f"{number}:{place}", "passageStart": 0, "passageEnd": 20, "passageText": "p"}
            ours.append(base | {"exhaustivelyAnnotatedProperties": described(annotated), "facts": facts})
            found = [dict(one) for one in facts if rng.random() < 0.4] + [fact(rng) for _ in range(rng.randrange(6))]
            for one in found:
                if rng.random() < 0.3:
                    one["subjectStart"] = max(0, one["subjectStart"] - 1)
            theirs.append(base | {"exhaustivelyAnnotatedProperties": described(PROPERTIES), "facts": found})
        rng.shuffle(theirs)
        document = {"fold": [4, 4, 3, 2, 4, 5][number % 6], "documentId": str(number), "documentText": "t" * 40}
        gold.append(document | {"source": "s", "passages": ours})
        guess.append(document | {"source": "s", "passages": theirs})
    rng.shuffle(guess)
    lines("knowledgenet_gold.jsonl", gold)
    lines("knowledgenet_guess.jsonl", guess)
    found = {}
    for method in ("span_exact", "span_overlap", "uri"):
        for fold in (4, 3, -1):
            found[f"{method} {fold}"] = count_facts(gold, guess, method, fold)
    return found


def touches(one, other):
    """Either end of either span lies within the other span."""
    a, b = one
    c, d = other
    return c <= a < d or a <= c < b or c < b <= d or a < d <= b


def same(method, one, other):
    if one["propertyId"] != other["propertyId"]:
        return False
    if method == "uri":
        last = lambda uri: uri.rstrip("/").split("/")[-1]
        return all(last(one[key]) == last(other[key]) for key in ("subjectUri", "objectUri"))
    spans = [((one[f"{key}Start"], one[f"{key}End"]), (other[f"{key}Start"], other[f"{key}End"])) for key in ("subject", "object")]
    return all(a == b if method == "span_exact" else touches(a, b) for a, b in spans)


def linked(facts):
    kept = {}
    for one in facts:
        if one["subjectUri"] and one["objectUri"] and one["propertyId"] not in ("5", "14", "15"):
            kept.setdefault((one["subjectUri"], one["propertyId"], one["objectUri"]), one)
    return list(kept.values())


def count_facts(gold, guess, method, fold):
    pick = linked if method == "uri" else list
    predicted = {
        (document["documentId"], passage["passageId"]): pick(passage["facts"])
        for document in guess
        for passage in document["passages"]
    }
    passages = [
        (document["documentId"], passage)
        for document in gold
        if fold in (-1, document["fold"])
        for passage in document["passages"]
    ]
    known = {one["propertyId"] for _, passage in passages for one in pick(passage["facts"])} if method == "uri" else set(PROPERTIES)
    counts = {}

    def add(one, kind):
        counts.setdefault(PROPERTIES[one["propertyId"]], {"tp": 0, "fp": 0, "fn": 0})[kind] += 1

    for document, passage in passages:
        ours = predicted[document, passage["passageId"]]
        right = []
        for one in pick(passage["facts"]):
            matched = [other for other in ours if same(method, one, other)]
            add(one, "tp" if matched else "fn")
            right += matched
        annotated = {one["propertyId"] for one in passage["exhaustivelyAnnotatedProperties"]} & known
        for one in ours:
            if one["propertyId"] in annotated and not any(same(method, one, other) for other in right):
                add(one, "fp")

    def figures(parts):
        tp, fp, fn = (sum(part[kind] for part in parts) for kind in ("tp", "fp", "fn"))
        precision = tp / (tp + fp) if tp + fp else 0.0
        recall = tp / (tp + fn) if tp + fn else 0.0
        f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        return {"precision": precision, "recall": recall, "f1": f1}

    total = figures(list(counts.values()))
    return total | {"properties": {name: figures([part]) for name, part in counts.items()}}


# KoRC


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (left != right))
    return row[-1]


def answer_set(predictions, answers):
    if not predictions:
        return (1.0, 1.0) if answers in ([], [""]) else (0.0, 0.0)
    if not answers:
        return 0.0, 0.0
    cost = [[distance(ours, theirs) for theirs in answers] for ours in predictions]
    pairs = list(zip(*linear_sum_assignment(cost)))
    equal = sum(predictions[i] == answers[j] for i, j in pairs)
    ours = [predictions[i].split() for i, _ in pairs]
    theirs = [answers[j].split() for _, j in pairs]
    shared = sum(token in gold for one, gold in zip(ours, theirs) for token in one)
    precision = shared / (sum(map(len, ours)) + 0.001)
    recall = shared / (sum(map(len, theirs)) + 0.001)
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    penalty = min(len(predictions), len(answers)) / max(len(predictions), len(answers))
    return equal / (len(pairs) + 0.001) * penalty, f1 * penalty


def answer_sets(rng, count):
    """Short answers over few letters, so many matchings have the same cost."""
    text = lambda: " ".join("".join(rng.choice("abé") for _ in range(rng.randint(1, 3))) for _ in range(rng.randint(0, 3)))
    sets = []
    for number in range(count):
        answers = [text() for _ in range(rng.choice([0, 1, 2, 3, 5, 9]))]
        predictions = [text() for _ in range(rng.choice([0, 1, 2, 4, 9]))] + rng.sample(answers, len(answers) // 2)
        rng.shuffle(predictions)
        sets.append({"id": f"s{number}", "answers": answers, "predictions": predictions})
    lines("answer_sets.jsonl", sets)
    rows = [answer_set(one["predictions"], one["answers"]) for one in sets]
    p_acc, p_f1 = (sum(column) / len(rows) for column in zip(*rows))
    return {"p_acc": p_acc, "p_f1": p_f1, "rows": rows}


def main():
    DATA.mkdir(parents=True, exist_ok=True)
    rng = random.Random(20190624)
    expected = {
        "kilt": kilt(rng, 120),
        "ranking": ranking(rng, 60),
        "knowledgenet": knowledgenet(rng, 18),
        "answer_sets": answer_sets(rng, 150),
    }
    (DATA / "expected.json").write_text(json.dumps(expected) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
