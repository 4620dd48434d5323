"""Facts of texts."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import _sporran
from .workflows import texts_of


class FactExtractor(_sporran.FactExtractor):
    """Extracts linked facts from texts by the models of a config of the workflow ``population``.

    ``FactExtractor(config, overrides=None)``; its tables ``[input]`` and ``[annotations]`` are not read.
    """

    def __new__(
        cls, config: str | os.PathLike[str], overrides: Mapping[str, Any] | Sequence[str] | None = None
    ) -> FactExtractor:
        given = texts_of(overrides) if isinstance(overrides, Mapping) else list(overrides or ())
        return super().__new__(cls, config, given)

    def extract(self, texts: Sequence[str]) -> list[list[dict[str, Any]]]:
        """The facts of each text.

        A fact has ``subject`` and ``object`` with ``mention`` and ``name`` (dicts of ``start``, ``end`` and ``text``, in code
        points), ``entity`` and ``link_confidence``; ``property``, ``relation``, ``confidence`` and ``sentence``.
        """
        return [json.loads(facts) for facts in self.extract_json(texts)]
