"""Runs and trainings of configs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import _sporran

Progress = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Report:
    """The outcome of a run or a training.

    ``data`` is the report as the command prints it with ``--json``; ``report["name"]`` reads it. ``summary`` is the text that
    the command prints. ``then`` has the reports of the configs that the config names in ``then``, and ``models`` the folders of
    trained models.
    """

    data: dict[str, Any]
    summary: str
    then: list[Report] = field(default_factory=list)
    models: list[Path] = field(default_factory=list)

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def __str__(self) -> str:
        return self.summary

    def to_pandas(self) -> Any:
        """The rows of the report as a ``pandas.DataFrame``: one row for each task file, or one row for the whole report."""
        import pandas

        rows = self.data.get("tasks")
        return pandas.json_normalize(rows if isinstance(rows, list) else [self.data])


def texts_of(overrides: Mapping[str, Any]) -> list[str]:
    """Overrides as the command line has them: ``{"tasks.limit": 20}`` is ``tasks.limit=20``, ``{"input.pages": None}`` is
    ``~input.pages``."""
    return [f"~{key}" if value is None else f"{key}={_value(value)}" for key, value in overrides.items()]


def _value(value: Any) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    # A JSON value is a TOML value too, tables excepted.
    return json.dumps(value, ensure_ascii=False)


def reported(outcomes: Sequence[tuple[str, str]]) -> Report:
    """The report of a config, with those of the configs after it, of their summaries and their JSON."""
    (summary, data), *rest = outcomes
    return Report(json.loads(data), summary, [Report(json.loads(data), summary) for summary, data in rest])


def _bars() -> Progress | None:
    """Progress bars by tqdm, where it is installed."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    bars: list[Any] = []

    def show(event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "begin":
            bars.append(tqdm(desc=event["step"], total=event["total"] or None, unit=f" {event['unit']}", leave=False))
        elif kind == "advance" and bars:
            bars[-1].update(event["done"] - bars[-1].n)
            if event["note"]:
                bars[-1].set_postfix_str(event["note"])
        elif kind == "end" and bars:
            bars.pop().close()
        elif kind == "note":
            tqdm.write(event["text"])

    return show


def _observer(progress: Progress | bool | None) -> Progress | None:
    if progress is True:
        return _bars()
    return progress or None


def run(
    config: str | os.PathLike[str],
    overrides: Mapping[str, Any] | None = None,
    *,
    limit: int | None = None,
    progress: Progress | bool | None = None,
) -> Report:
    """Runs a config, as ``sporran run``.

    ``overrides`` replace keys of the config: ``{"retriever.k1": 1.2}``. ``None`` takes a key out. ``limit`` is
    ``tasks.limit``: the records of each task file. ``progress=True`` shows bars by tqdm, where it is installed; a function gets
    every event as a dict.
    Ctrl-C ends the run. What is finished stays, and the next call goes on from there.
    """
    given = dict(overrides or {})
    if limit is not None:
        given["tasks.limit"] = limit
    return reported(_sporran.run(config, texts_of(given), _observer(progress)))


def train(
    config: str | os.PathLike[str],
    overrides: Mapping[str, Any] | None = None,
    *,
    progress: Progress | bool | None = None,
) -> Report:
    """Trains the model of a config, as ``sporran train``. The arguments are those of :func:`run`."""
    summary, data, models = _sporran.train(config, texts_of(overrides or {}), _observer(progress))
    return Report(json.loads(data), summary, models=[Path(model) for model in models])


def check(config: str | os.PathLike[str], overrides: Mapping[str, Any] | None = None) -> list[str]:
    """The mistakes of a config, as ``sporran config check`` finds them: an empty list if there are none."""
    return _sporran.check(config, texts_of(overrides or {}))
