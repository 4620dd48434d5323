"""Dense retrieval in LanceDB (``pip install lancedb``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .. import Encoder, Hit, InputError
from .._sporran import text_hit
from ._parts import encoded_rows

__all__ = ["Lance"]

_METRICS = {"inner-product": "dot", "cosine": "cosine", "euclidean": "l2"}


class Lance:
    """Passages with their vectors in a table of LanceDB. ``search`` is that of :class:`sporran.BM25`.

    The table has the columns ``id``, ``title``, ``text`` and ``vector``. The search is exact unless the table has an index.
    Scores are inner products, cosines, or negative distances.
    """

    def __init__(self, database: Any, table: str, encoder: Encoder, similarity: str = "inner-product") -> None:
        if similarity not in _METRICS:
            raise InputError(f"similarity: expected one of {', '.join(_METRICS)}, found {similarity!r}")
        self.database, self.name, self.encoder = database, table, encoder
        self.similarity = similarity

    def create(self) -> None:
        """Creates an empty table."""
        vector = pa.list_(pa.float32(), self.encoder.dimensions)
        fields = [("id", pa.int64()), ("title", pa.string()), ("text", pa.string()), ("vector", vector)]
        self.database.create_table(self.name, schema=pa.schema(fields))

    def add(
        self,
        texts: Sequence[str],
        titles: Sequence[str] | None = None,
        vectors: NDArray[np.float32] | None = None,
        first: int = 0,
    ) -> None:
        """Adds texts with the ids ``first``, ``first + 1`` .., and their vectors, which are computed unless they are given."""
        rows = encoded_rows(self.encoder, texts, titles, vectors, first)
        names = ("id", "title", "text", "vector")
        self.database.open_table(self.name).add([dict(zip(names, row)) for row in rows])

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The ``k`` best passages, best first; ties by id."""
        table = self.database.open_table(self.name)
        found = table.search(self.encoder.encode(query), vector_column_name="vector")
        rows = found.distance_type(_METRICS[self.similarity]).limit(k).to_list()
        hits = [text_hit(row["id"], self._score(row["_distance"]), row["title"], row["text"]) for row in rows]
        return sorted(hits, key=lambda hit: (-hit.score, hit.id))

    def _score(self, distance: float) -> float:
        """The score of LanceDB's distance, which is 1 less the similarity, or the square of the euclidean distance."""
        return -math.sqrt(max(distance, 0.0)) if self.similarity == "euclidean" else 1.0 - distance
