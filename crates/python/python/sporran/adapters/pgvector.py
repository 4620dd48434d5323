"""Dense retrieval in PostgreSQL with the extension ``pgvector`` (``pip install psycopg``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import Connection, sql

from .. import Encoder, Hit, InputError
from .._sporran import text_hit
from ._parts import encoded_rows

__all__ = ["PgVector"]

_OPERATORS = {"inner-product": "<#>", "cosine": "<=>", "euclidean": "<->"}
_CLASSES = {"inner-product": "vector_ip_ops", "cosine": "vector_cosine_ops", "euclidean": "vector_l2_ops"}
_MOST_CANDIDATES = 1000
"""The greatest ``hnsw.ef_search``."""


class PgVector:
    """Passages with their vectors in a table of PostgreSQL. ``search`` is that of :class:`sporran.BM25`.

    The table has the columns ``id``, ``title``, ``text`` and ``vector``. The search is exact unless the table has an index of
    pgvector, which :meth:`create_index` makes. Scores are inner products, cosines, or negative distances.
    """

    def __init__(
        self,
        connection: Connection[Any],
        table: str,
        encoder: Encoder,
        similarity: str = "inner-product",
    ) -> None:
        if similarity not in _OPERATORS:
            raise InputError(f"similarity: expected one of {', '.join(_OPERATORS)}, found {similarity!r}")
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
        rows = encoded_rows(self.encoder, texts, titles, vectors, first)
        copy = sql.SQL("COPY {} (id, title, text, vector) FROM STDIN").format(self.table)
        with self.connection.transaction(), self.connection.cursor() as cursor, cursor.copy(copy) as out:
            for at, title, text, vector in rows:
                out.write_row((at, title, text, _written(vector)))

    def create_index(self, kind: str = "hnsw", **options: int) -> None:
        """Creates an index of pgvector, ``hnsw`` or ``ivfflat``; a search is approximate then, if PostgreSQL uses the index.

        ``options`` are those of the index: ``m=16``, ``ef_construction=64``, ``lists=100``.
        """
        if kind not in ("hnsw", "ivfflat"):
            raise InputError(f"kind: expected hnsw or ivfflat, found {kind!r}")
        given = [sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(value)) for name, value in options.items()]
        create = sql.SQL("CREATE INDEX ON {} USING {} (vector {})").format(
            self.table, sql.SQL(kind), sql.SQL(_CLASSES[self.similarity])
        )
        with self.connection.transaction():
            self.connection.execute(create + sql.SQL(" WITH ({})").format(sql.SQL(", ").join(given)) if given else create)

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The ``k`` best passages, best first; ties by id."""
        values = {"vector": _written(self.encoder.encode(query)), "k": k}
        with self.connection.transaction():
            # An index gives at most this many passages.
            self.connection.execute(
                "SELECT set_config('hnsw.ef_search',"
                " greatest(current_setting('hnsw.ef_search', true)::integer, 40, %s)::text, true)",
                (min(k, _MOST_CANDIDATES),),
            )
            found = self.connection.execute(self._nearest(), values).fetchall()
        offset = 1.0 if self.similarity == "cosine" else 0.0
        return [text_hit(at, offset - float(far), title, text) for at, title, text, far in found]

    def _nearest(self) -> sql.Composed:
        """The statement of a search. PostgreSQL uses an index only for an order by the distance alone."""
        far = sql.SQL("vector {} %(vector)s::vector").format(sql.SQL(_OPERATORS[self.similarity]))
        return sql.SQL(
            "SELECT id, title, text, far FROM (SELECT id, title, text, {far} AS far FROM {table} ORDER BY {far} LIMIT %(k)s)"
            " AS nearest ORDER BY far, id"
        ).format(far=far, table=self.table)


def _written(vector: NDArray[np.float32]) -> str:
    """A vector as pgvector reads it. Every f32 has the same value when it is read again."""
    return "[" + ",".join(repr(float(value)) for value in vector) + "]"
