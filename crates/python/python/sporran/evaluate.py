"""Scores of files of predictions."""

from __future__ import annotations

import json
import os
from typing import Any

from . import _sporran

__all__ = ["kilt"]


def kilt(gold: str | os.PathLike[str], guess: str | os.PathLike[str]) -> dict[str, dict[str, float]]:
    """KILT's scores of a file of predictions against a gold file.

    The result has the tables ``downstream`` (accuracy, em, f1, rougel), ``kilt`` (the same, where the evidence is right) and
    ``retrieval`` (Rprec, recall@5). Values are means from 0 to 1.
    """
    report: dict[str, Any] = json.loads(_sporran.evaluate_kilt(gold, guess))
    return report
