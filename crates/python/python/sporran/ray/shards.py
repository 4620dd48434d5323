"""Verbs in shards: a Ray task for each shard, then one for the merge.

All nodes need one shared folder: the working folder of the caller, at the same path, with the config, the source, the models and the
folders ``output`` and ``source.indexes``. The results have the bytes of the verb without shards.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, overload

from .. import _sporran
from ..errors import BusyError, InputError
from ..workflows import Report, reported, texts_of
from . import cpus

__all__ = ["build_index", "populate", "run"]

_PATIENCE = 60.0
"""Seconds for which a shard waits for another process in its folder: one that ends with its node."""

_ROWS = 1024
"""Rows of a dataset that are written together."""

T = TypeVar("T")


def _enter(folder: str) -> None:
    """Makes the working folder of the caller that of a task's process."""
    try:
        os.chdir(folder)
    except OSError as error:
        message = f"{folder}: expected the caller's working folder on every node, found none here ({error.strerror})"
        raise InputError(message) from None


def _when_free(work: Callable[[], T]) -> T:
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return work()
        except BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def _shard(verb: str, config: str, overrides: list[str], index: int, of: int, folder: str) -> Path:
    """Does a shard of a verb. Gives the shard's folder."""
    _enter(folder)
    cpus.use_assigned()
    return _when_free(lambda: _sporran.shard(verb, config, overrides, index, of))


def _merge(shards: list[Path], folder: str) -> list[tuple[str, str]]:
    """Merges shards. Gives the summary and the JSON report of each config."""
    _enter(folder)
    cpus.use_assigned()
    return _when_free(lambda: _sporran.merge(shards))


def _in_shards(
    verb: str,
    config: str | os.PathLike[str],
    overrides: Mapping[str, Any],
    shards: int,
    num_cpus: float,
    max_retries: int,
) -> Report:
    """Does a verb in shards and merges them. A shard that fails ends the others; what they have finished stays."""
    import ray

    if shards < 1:
        raise InputError(f"shards: expected at least 1, found {shards}")
    folder = os.getcwd()

    def task(work: Callable[..., Any], name: str) -> Any:
        # The library's threads are those of a process, so each task has a separate process.
        options = {"num_cpus": num_cpus, "max_retries": max_retries, "scheduling_strategy": "SPREAD"}
        return ray.remote(max_calls=1)(work).options(name=f"sporran {verb} {name}", **options)

    given = os.fspath(config), texts_of(overrides)
    begun = [
        task(_shard, f"{index}/{shards}").remote(verb, *given, index, shards, folder) for index in range(shards)
    ]
    try:
        made = ray.get(begun)
        begun = [task(_merge, "merge").remote(made, folder)]
        (reports,) = ray.get(begun)
    except BaseException:
        for one in begun:
            ray.cancel(one)
        raise
    return reported(reports)


def _plain(value: Any) -> Any:
    """A value of a row as one that JSON has."""
    for name in ("isoformat", "tolist"):
        if hasattr(value, name):
            return getattr(value, name)()
    raise TypeError(f"a value of type {type(value).__name__} cannot be written as JSON")


def _write_rows(dataset: Any, path: Path) -> None:
    """Writes the rows of a dataset as JSON lines, in their order."""
    options = dataset.context.execution_options
    before, options.preserve_order = options.preserve_order, True
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        row = 0
        with open(part, "w", encoding="utf-8") as file:
            for batch in dataset.iter_batches(batch_size=_ROWS, batch_format="pyarrow"):
                for values in batch.to_pylist():
                    row += 1
                    try:
                        file.write(json.dumps(values, ensure_ascii=False, default=_plain) + "\n")
                    except TypeError as error:
                        raise InputError(f"row {row} of the dataset: {error}") from None
        os.replace(part, path)
    finally:
        options.preserve_order = before
        part.unlink(missing_ok=True)


@overload
def build_index(
    config: str | os.PathLike[str],
    overrides: Mapping[str, Any] | None = None,
    *,
    shards: int,
    num_cpus: float = 1,
    max_retries: int = 3,
    source: Any = None,
    source_file: str | os.PathLike[str] | None = None,
) -> Report: ...
@overload
def build_index(
    dataset: Any,
    config: str | os.PathLike[str],
    overrides: Mapping[str, Any] | None = None,
    /,
    *,
    shards: int,
    num_cpus: float = 1,
    max_retries: int = 3,
    source_file: str | os.PathLike[str] | None = None,
) -> Report: ...
def build_index(
    config: Any,
    overrides: Any = None,
    more: Mapping[str, Any] | None = None,
    *,
    shards: int,
    num_cpus: float = 1,
    max_retries: int = 3,
    source: Any = None,
    source_file: str | os.PathLike[str] | None = None,
) -> Report:
    """Builds the passage store and the indexes of a config, as ``sporran index``, in shards on the nodes of a Ray cluster.

    ``build_index(config, overrides)``, or ``build_index(dataset, config, overrides)`` with a ``ray.data.Dataset``. Its rows are
    written to ``source_file`` as JSON lines, in their order, and ``source_file`` is the source of the config. By default it is the
    config's path with the ending ``.source.jsonl``. ``source=dataset`` is the same with a ``source_file``.

    Each shard and the merge is a task with ``num_cpus`` CPUs and as many threads. A task is repeated on another node, up to
    ``max_retries`` times, when its process or its node ends. The same call continues from the shards' folders in ``output``, and
    keeps what is complete.

    All nodes need the working folder of the caller, at the same path.
    """
    if not isinstance(config, (str, os.PathLike)):
        if not hasattr(config, "iter_batches"):
            found = type(config).__name__
            raise InputError(f"config: expected the path of a config, or a dataset before it, found a value of type {found}")
        if not isinstance(overrides, (str, os.PathLike)):
            found = type(overrides).__name__
            raise InputError(f"config: expected the path of a config after the dataset, found a value of type {found}")
        if source is not None:
            raise InputError("source: expected none besides a dataset, found another one")
        source, config, overrides = config, overrides, more
        source_file = source_file or Path(config).with_suffix(".source.jsonl")
    elif more is not None:
        raise InputError("overrides: expected one table of overrides, found two")
    given = dict(overrides or {})
    if (source is None) != (source_file is None):
        raise InputError("source, source_file: expected both or neither: a dataset, and the file for its rows")
    if source_file is not None:
        if "source.path" in given:
            raise InputError("source.path: expected no override besides a dataset")
        given["source.path"] = os.fspath(source_file)
        _write_rows(source, Path(source_file))
    return _in_shards("index", config, given, shards, num_cpus, max_retries)


def run(
    config: str | os.PathLike[str],
    overrides: Mapping[str, Any] | None = None,
    *,
    shards: int,
    num_cpus: float = 1,
    max_retries: int = 3,
    limit: int | None = None,
) -> Report:
    """Runs a config, as :func:`sporran.run`, in shards of the records of its task files. The other arguments are those of
    :func:`build_index`. The configs of the key ``then`` are run after the merge, in its task.
    """
    given = dict(overrides or {})
    if limit is not None:
        given["tasks.limit"] = limit
    return _in_shards("run", config, given, shards, num_cpus, max_retries)


def populate(
    config: str | os.PathLike[str],
    overrides: Mapping[str, Any] | None = None,
    *,
    shards: int,
    num_cpus: float = 1,
    max_retries: int = 3,
) -> Report:
    """Extracts facts, as ``sporran populate``, in shards of the documents of the input files. The arguments are those of
    :func:`build_index`.
    """
    return _in_shards("populate", config, overrides or {}, shards, num_cpus, max_retries)
