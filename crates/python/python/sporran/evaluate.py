"""Scores of files of predictions."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from . import _sporran

__all__ = ["kilt", "trec"]


def kilt(
    gold: str | os.PathLike[str], guess: str | os.PathLike[str], *, per_record: bool = False
) -> dict[str, Any]:
    """KILT's scores of a file of predictions against a gold file.

    The result has the tables ``downstream`` (accuracy, em, f1, rougel), ``kilt`` (the same, where the evidence is right) and
    ``retrieval`` (Rprec, recall@5). Values are means from 0 to 1. With ``per_record``, the key ``per_record`` has the values of
    each record by its id.
    """
    found = json.loads(_sporran.evaluate_kilt(gold, guess))
    report: dict[str, Any] = found["report"]
    if per_record:
        rows = zip(found["ids"], found["values"])
        report["per_record"] = {record: dict(zip(found["measures"], values)) for record, values in rows}
    return report


def trec(
    qrels: str | os.PathLike[str],
    run: str | os.PathLike[str],
    measures: Sequence[str] = ("nDCG@10", "AP", "RR", "P@10", "R@100"),
    *,
    complete: bool = False,
    exclude_self: bool = False,
    per_query: bool = False,
) -> dict[str, Any]:
    """The figures of a TREC run against judgements, as ``sporran evaluate trec``.

    ``measures`` has names of ir_measures. The result has a mean from 0 to 1 under each name, and ``queries``, the number of scored
    queries. Judged queries that the run lacks do not count, or count 0 with ``complete``. With ``per_query``, the key
    ``per_query`` has the values of each query by its id.
    """
    names = [measures] if isinstance(measures, str) else list(measures)
    found = json.loads(_sporran.evaluate_trec(qrels, run, names, complete, exclude_self))
    report: dict[str, Any] = {name: found["means"][name] for name in found["measures"]}
    report["queries"] = len(found["queries"])
    report["missing"] = found["missing"]
    if per_query:
        report["per_query"] = {
            row["query"]: dict(zip(found["measures"], row["values"])) for row in found["queries"]
        }
    return report
