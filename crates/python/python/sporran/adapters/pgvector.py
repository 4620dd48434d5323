"""Dense retrieval in PostgreSQL with the extension ``pgvector`` (``pip install psycopg``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import Connection, sql

from .. import Encoder, Hit
from .._sporran import text_hit

__all__ = ["PgVector"]

_OPERATORS = {"inner-product": "<#>", "cosine": "<=>", "euclidean": "<->"}


class PgVector:
    """Passages with their vectors in a table of PostgreSQL. ``search`` is that of :class:`sporran.BM25`.

    The table has the columns ``id``, ``title``, ``text`` and ``vector``. The search is exact unless the table has an index of
    pgvector. Scores are inner products, cosines, or negative distances.
    """

    def __init__(
        self,
        connection: Connection[Any],
        table: str,
        encoder: Encoder,
        similarity: str = "inner-product",
    ) -> None:
        if similarity not in _OPERATORS:
            raise ValueError(f"similarity: expected one of {', '.join(_OPERATORS)}, found {similarity!r}")
        self.connection = connection
        self.table = sql.Identifier(*table.split("."))
        self.encoder = encoder
        self.similarity = similarity

    def create(self) -> None:
        """Creates the extension and an empty table."""
        with self.connection.transaction():
            self.connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            columns = sql.SQL("id integer PRIMARY KEY, title text NOT NULL, text text NOT NULL, vector vector({})")
            table = sql.SQL("CREATE TABLE {} ({})")
            made = table.format(self.table, columns.format(sql.Literal(self.encoder.dimensions)))
            self.connection.execute(made)

    def add(
        self,
        texts: Sequence[str],
        titles: Sequence[str] | None = None,
        vectors: NDArray[np.float32] | None = None,
        first: int = 0,
    ) -> None:
        """Adds texts with the ids ``first``, ``first + 1`` .., and their vectors, which are computed unless they are given."""
        rows = self.encoder.encode(texts) if vectors is None else vectors
        names = titles if titles is not None else [""] * len(texts)
        if not len(rows) == len(names) == len(texts):
            raise ValueError(f"expected {len(texts)} titles and vectors, found {len(names)} and {len(rows)}")
        copy = sql.SQL("COPY {} (id, title, text, vector) FROM STDIN").format(self.table)
        with self.connection.transaction(), self.connection.cursor() as cursor, cursor.copy(copy) as out:
            for at, (title, text, vector) in enumerate(zip(names, texts, rows), first):
                out.write_row((at, title, text, _written(vector)))

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The ``k`` best passages, best first; ties by id."""
        vector = _written(self.encoder.encode(query))
        operator = sql.SQL(_OPERATORS[self.similarity])
        select = sql.SQL(
            "SELECT id, title, text, vector {operator} %(vector)s::vector AS far FROM {table} ORDER BY far, id LIMIT %(k)s"
        ).format(operator=operator, table=self.table)
        found = self.connection.execute(select, {"vector": vector, "k": k}).fetchall()
        offset = 1.0 if self.similarity == "cosine" else 0.0
        return [text_hit(at, offset - float(far), title, text) for at, title, text, far in found]


def _written(vector: NDArray[np.float32]) -> str:
    """A vector as pgvector reads it. Every f32 has the same value when it is read again."""
    return "[" + ",".join(repr(float(value)) for value in vector) + "]"
