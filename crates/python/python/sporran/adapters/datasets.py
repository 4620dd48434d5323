"""Tables of Hugging Face's ``datasets`` in and out (``pip install datasets``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import datasets

from .. import BM25, PassageStore

__all__ = ["bm25", "passages"]


def bm25(rows: datasets.Dataset, text: str = "text", title: str | None = None, **options: Any) -> BM25:
    """An index of the column ``text``, with titles from the column ``title``. The id of a hit is the number of the row."""
    titles = None if title is None else list(rows[title])
    return BM25.from_texts(list(rows[text]), titles, **options)


def passages(store: PassageStore) -> datasets.Dataset:
    """The passages of a store: the columns ``id``, ``page_id``, ``title``, ``section``, ``text`` and ``provenance_json``.

    They are written to the cache of ``datasets`` one by one, so a store may exceed memory.
    """
    names = ["id", "page_id", "title", "section", "text", "provenance_json"]

    def rows() -> Iterator[dict[str, Any]]:
        for number in range(len(store)):
            passage = store[number]
            yield {name: getattr(passage, name) for name in names}

    types = {name: datasets.Value("int64" if name == "id" else "string") for name in names}
    made = datasets.Dataset.from_generator(rows, features=datasets.Features(types))
    assert isinstance(made, datasets.Dataset)
    return made
