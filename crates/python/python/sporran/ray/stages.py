"""Stages for Ray Data: classes for ``Dataset.map_batches`` with ``batch_format="pyarrow"``.

A stage loads its model once in each actor and uses as many threads as the actor has CPUs. Every row of a result has the columns of
its input with their types, the columns of the stage, and ``error``: empty, or why the row has no result. A row that fails does not
end the job. Ray starts an actor that has ended again and repeats its batches.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from . import cpus

__all__ = ["Encode", "Evaluate", "Extract", "Generate", "Rerank", "Retrieve", "map"]


def _texts_type(pa: Any) -> Any:
    return pa.list_(pa.string())


def _numbers_type(pa: Any) -> Any:
    return pa.list_(pa.float32())


class _Stage:
    """A stage: ``columns`` are those that it adds, and ``work`` gives their values for some rows.

    ``columns`` has a function for each column that gives its type of a value, from the module ``pyarrow``.
    """

    columns: Mapping[str, Callable[[Any], Any]] = {}
    reads: Mapping[str, str] = {}
    """The arguments that name a column that every row needs, with their defaults."""

    def __init__(self) -> None:
        cpus.use_assigned()

    def work(self, rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def __call__(self, batch: Any) -> Any:
        import pyarrow as pa
        from ray.data.block import BlockAccessor

        # Arrow keeps integers beside empty values; NumPy's and pandas' batches have made floats of them.
        table = batch if isinstance(batch, pa.Table) else BlockAccessor.batch_to_arrow_block(batch)
        rows = table.to_pylist()
        try:
            results, errors = self.work(rows), [""] * len(rows)
        except Exception:
            # One row is wrong: each is tried alone.
            results, errors = [], []
            for row in rows:
                try:
                    results.extend(self.work([row]))
                    errors.append("")
                except Exception as error:
                    results.append((None,) * len(self.columns))
                    errors.append(f"{type(error).__name__}: {error}")
        made = {
            name: pa.array([result[at] for result in results], type_(pa))
            for at, (name, type_) in enumerate(self.columns.items())
        }
        for name, values in {**made, "error": pa.array(errors, pa.string())}.items():
            at = table.schema.get_field_index(name)
            table = table.append_column(name, values) if at < 0 else table.set_column(at, name, values)
        return table


def _text(row: Mapping[str, Any], column: str) -> str:
    value = row.get(column)
    if not isinstance(value, str):
        raise TypeError(f"column {column}: expected a text, found {type(value).__name__}")
    return value


class Encode(_Stage):
    """Vectors of the texts in ``column``, in the column ``vector``. Other arguments are those of :class:`sporran.Encoder`."""

    columns = {"vector": _numbers_type}
    reads = {"column": "text"}

    def __init__(self, model: str, column: str = "text", **options: Any) -> None:
        super().__init__()
        import sporran

        self.column = column
        self.encoder = sporran.Encoder(model, **options)

    def work(self, rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        vectors = self.encoder.encode([_text(row, self.column) for row in rows])
        return [(vector,) for vector in vectors]


class Rerank(_Stage):
    """Scores of the texts in the column ``passages`` for the text in ``query``, in the column ``scores``.

    Other arguments are those of :class:`sporran.Reranker`.
    """

    columns = {"scores": _numbers_type}
    reads = {"query": "query", "passages": "passages"}

    def __init__(self, model: str, query: str = "query", passages: str = "passages", **options: Any) -> None:
        super().__init__()
        import sporran

        self.query, self.passages = query, passages
        self.reranker = sporran.Reranker(model, **options)

    def work(self, rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return [(self._scores(row),) for row in rows]

    def _scores(self, row: Mapping[str, Any]) -> Any:
        query, passages = _text(row, self.query), _items(row, self.passages)
        for at, passage in enumerate(passages):
            if not isinstance(passage, str):
                found = type(passage).__name__
                raise TypeError(f"column {self.passages}[{at}]: expected a text, found {found}")
        return self.reranker.score(query, passages) if passages else np.zeros(0, np.float32)


class Generate(_Stage):
    """A text for each prompt in ``column``, in the column ``generated``. Other arguments are those of :class:`sporran.Generator`."""

    columns = {"generated": lambda pa: pa.string()}
    reads = {"column": "prompt"}

    def __init__(self, model: str, column: str = "prompt", **options: Any) -> None:
        super().__init__()
        import sporran

        self.column = column
        self.generator = sporran.Generator(model, **options)

    def work(self, rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        texts = self.generator.generate([_text(row, self.column) for row in rows])
        return [(text,) for text in texts]


class Retrieve(_Stage):
    """The ``k`` best passages of a BM25 index for the query in ``column``: the columns ``ids``, ``scores``, ``titles`` and ``texts``.

    ``store`` and ``index`` are the folders of :class:`sporran.PassageStore` and :class:`sporran.BM25`, which every node can read.
    They are memory-mapped, so the actors of a node share them.
    """

    columns = {
        "ids": lambda pa: pa.list_(pa.int64()),
        "scores": _numbers_type,
        "titles": _texts_type,
        "texts": _texts_type,
    }
    reads = {"column": "query"}

    def __init__(self, store: str, index: str, column: str = "query", k: int = 10) -> None:
        super().__init__()
        import sporran

        self.column, self.k = column, k
        self.index = sporran.BM25.open(sporran.PassageStore.open(store), index)

    def work(self, rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        found = self.index.search([_text(row, self.column) for row in rows], k=self.k)
        return [
            (
                [hit.id for hit in hits],
                [hit.score for hit in hits],
                [hit.passage.title for hit in hits if hit.passage],
                [hit.passage.text for hit in hits if hit.passage],
            )
            for hits in found
        ]


class Extract(_Stage):
    """The facts of the texts in ``column``, as JSON in the column ``facts``. ``config`` is that of :class:`sporran.FactExtractor`."""

    columns = {"facts": lambda pa: pa.string()}
    reads = {"column": "text"}

    def __init__(self, config: str, column: str = "text", overrides: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        import sporran

        self.column = column
        self.extractor = sporran.FactExtractor(config, overrides)

    def work(self, rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        found = self.extractor.extract([_text(row, self.column) for row in rows])
        return [(json.dumps(facts, ensure_ascii=False),) for facts in found]


class Evaluate(_Stage):
    """KILT's scores of the text in ``answer`` with the pages in ``pages``, a column for each score.

    ``gold`` is the column of the right answers, a list of texts. ``gold_pages`` is that of the right evidence: a list of sets of
    page ids, each of which is enough. A row without the column of pages names no page; one without evidence counts as ``Rprec`` 0.
    """

    columns = {
        name: lambda pa: pa.float64()
        for name in (
            *("accuracy", "em", "f1", "rougel", "KILT-accuracy", "KILT-em", "KILT-f1", "KILT-rougel"),
            *("Rprec", "recall@5"),
        )
    }
    reads = {"answer": "answer", "gold": "gold"}

    def __init__(
        self, answer: str = "answer", pages: str = "pages", gold: str = "gold", gold_pages: str = "gold_pages"
    ) -> None:
        super().__init__()
        self.answer, self.pages, self.gold, self.gold_pages = answer, pages, gold, gold_pages

    def work(self, rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        import sporran

        with tempfile.TemporaryDirectory() as place:
            gold, guess = Path(place, "gold.jsonl"), Path(place, "guess.jsonl")
            _write(gold, (self._gold(row) for row in rows))
            _write(guess, ([_output(_text(row, self.answer), _items(row, self.pages))] for row in rows))
            scores = sporran.evaluate.kilt(gold, guess, per_record=True)["per_record"]
        return [tuple(scores[str(at)][name] for name in self.columns) for at in range(len(rows))]

    def _gold(self, row: Mapping[str, Any]) -> list[dict[str, Any]]:
        answers = [str(answer) for answer in _items(row, self.gold)]
        if not answers:
            raise InputError(f"column {self.gold}: expected at least one answer, found none")
        return [{"answer": answer} for answer in answers] + [
            {"provenance": _provenance(pages)} for pages in _items(row, self.gold_pages)
        ]


def _items(row: Mapping[str, Any], column: str) -> list[Any]:
    value = row.get(column)
    if value is None:
        return []
    if isinstance(value, str):
        raise TypeError(f"column {column}: expected a list, found str")
    return list(value)


def _provenance(pages: Iterable[Any]) -> list[dict[str, str]]:
    return [{"wikipedia_id": str(page)} for page in pages]


def _output(answer: str, pages: Iterable[Any]) -> dict[str, Any]:
    return {"answer": answer, "provenance": _provenance(pages)}


def _write(path: Path, outputs: Iterable[list[dict[str, Any]]]) -> None:
    """A file of KILT records, whose ids are their numbers."""
    with path.open("w", encoding="utf-8") as file:
        for at, output in enumerate(outputs):
            file.write(json.dumps({"id": str(at), "output": output}) + "\n")


class _InFolder:
    """A stage in the working folder of the caller, where the node has it, so that relative paths are the caller's."""

    def __init__(self, stage: Callable[..., _Stage], folder: str, arguments: dict[str, Any]) -> None:
        if os.path.isdir(folder):
            os.chdir(folder)
        self.stage = stage(**arguments)

    def __call__(self, batch: Any) -> Any:
        return self.stage(batch)


def map(
    dataset: Any,
    stage: Callable[..., _Stage],
    *,
    actors: int | tuple[int, int] = 1,
    num_cpus: float = 1,
    batch_size: int = 256,
    **arguments: Any,
) -> Any:
    """Runs a stage over a ``ray.data.Dataset`` in actors with ``num_cpus`` CPUs each, and gives the dataset of its results.

    ``actors`` is their number, or the smallest and the largest one. ``arguments`` are those of the stage. Relative paths in them
    are those of the caller's working folder, which a node without a folder at this path does not have. The columns that the
    stage reads are checked before it starts, where the dataset knows its columns.
    """
    import ray

    known = dataset.columns(fetch_if_missing=False)
    for name, column in getattr(stage, "reads", {}).items():
        wanted = arguments.get(name, column)
        if known is not None and wanted not in known:
            raise InputError(f"{name}: expected one of the columns {', '.join(known)}, found {wanted!r}")
    least, most = actors if isinstance(actors, Sequence) else (actors, actors)
    # Ray names the step by its class.
    name = getattr(stage, "__name__", "Stage")
    return dataset.map_batches(
        type(name, (_InFolder,), {}),
        fn_constructor_kwargs={"stage": stage, "folder": os.getcwd(), "arguments": arguments},
        batch_size=batch_size,
        batch_format="pyarrow",
        num_cpus=num_cpus,
        compute=ray.data.ActorPoolStrategy(min_size=least, max_size=most),
    )
