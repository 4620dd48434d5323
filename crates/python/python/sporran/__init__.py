"""Retrieve, rerank, read, reason and extract, with evidence.

The classes and functions here are those of the program ``sporran``, over the same library and with the same results.
"""

from __future__ import annotations

import json
from typing import Any

from . import _sporran, errors, evaluate
from ._sporran import (
    BM25,
    Answer,
    Asker,
    DenseIndex,
    Encoder,
    Evidence,
    Generator,
    Hit,
    Passage,
    PassageStore,
    Reranker,
)
from .errors import BusyError, ConfigError, ForkError, InputError, SporranError, WorkError
from .facts import FactExtractor
from .links import TripleScorer
from .workflows import Report, check, run, train

__all__ = [
    "BM25",
    "Answer",
    "Asker",
    "BusyError",
    "ConfigError",
    "DenseIndex",
    "Encoder",
    "Evidence",
    "FactExtractor",
    "ForkError",
    "Generator",
    "Hit",
    "InputError",
    "Passage",
    "PassageStore",
    "Report",
    "Reranker",
    "SporranError",
    "TripleScorer",
    "WorkError",
    "check",
    "errors",
    "evaluate",
    "run",
    "train",
]

__version__: str = _sporran.version()


def _again(name: str, arguments: str) -> Any:
    """Makes an unpickled object: objects are pickled as their arguments."""
    given = json.loads(arguments)
    return getattr(_sporran, name)(given.pop("model"), **given)


def _asker(arguments: str) -> Asker:
    given = json.loads(arguments)
    return Asker(given.pop("sources"), **given)


def _bm25_from_texts(texts: list[str], titles: list[str], options: str) -> BM25:
    return BM25.from_texts(texts, titles, **json.loads(options))


def _dense_index(path: str, arguments: str) -> DenseIndex:
    given = json.loads(arguments)
    options = {key.replace("-", "_"): value for key, value in given["options"].items()}
    return DenseIndex.open(path, similarity=given["similarity"], **options)
