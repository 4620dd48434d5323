"""A provider of measures for ``ir_measures`` (``pip install ir-measures``)."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ir_measures import measures
from ir_measures.providers import Evaluator, Provider
from ir_measures.providers.base import NOT_PROVIDED, Any as AnyValue, Choices
from ir_measures.util import Metric, QrelsConverter, RunConverter

from .. import _sporran

__all__ = ["SporranProvider", "provider"]


class _Evaluator(Evaluator):
    def __init__(self, wanted: list[Any], qrels: dict[str, dict[str, int]]) -> None:
        super().__init__(wanted, qrels.keys())
        self._folder = tempfile.TemporaryDirectory()
        self._qrels = Path(self._folder.name) / "qrels"
        with open(self._qrels, "w", encoding="utf-8") as lines:
            for query, grades in qrels.items():
                lines.writelines(f"{query} 0 {document} {grade}\n" for document, grade in grades.items())

    def _iter_calc(self, run: Any) -> Iterator[Metric]:
        by_query: dict[str, dict[str, float]] = RunConverter(run).as_dict_of_dict()
        path = Path(self._folder.name) / "run"
        with open(path, "w", encoding="utf-8") as lines:
            for query, scores in by_query.items():
                lines.writelines(
                    f"{query} Q0 {document} 0 {score!r} sporran\n" for document, score in scores.items()
                )
        if not by_query:
            return
        names = {str(measure): measure for measure in self.measures}
        found = json.loads(_sporran.evaluate_trec(self._qrels, path, list(names), False, False))
        for row in found["queries"]:
            for name, value in zip(found["measures"], row["values"]):
                yield Metric(query_id=row["query"], measure=names[name], value=value)


class SporranProvider(Provider):
    """The figures of ``sporran evaluate trec`` under the names of ``ir_measures``."""

    NAME = "sporran"
    SUPPORTED_MEASURES = [
        measures._nDCG(cutoff=AnyValue(), dcg=Choices("log2"), gains=Choices(NOT_PROVIDED), judged_only=Choices(False)),
        measures._AP(cutoff=AnyValue(), rel=AnyValue(), judged_only=Choices(False)),
        measures._P(cutoff=AnyValue(), rel=AnyValue(), judged_only=Choices(False)),
        measures._R(cutoff=AnyValue(), rel=AnyValue(), judged_only=Choices(False)),
        measures._RR(cutoff=AnyValue(), rel=AnyValue(), judged_only=Choices(False)),
        measures._Rprec(rel=AnyValue(), judged_only=Choices(False)),
        measures._Bpref(rel=AnyValue()),
        measures._Success(cutoff=AnyValue(), rel=AnyValue(), judged_only=Choices(False)),
        measures._infAP(rel=AnyValue()),
    ]

    def _evaluator(self, measures: Iterable[Any], qrels: Any) -> _Evaluator:
        return _Evaluator(list(measures), QrelsConverter(qrels).as_dict_of_dict())

    def is_available(self) -> bool:
        return True


provider = SporranProvider()
"""The provider."""
