"""What several adapters share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .. import Encoder, InputError


def passage_rows(
    texts: Sequence[str],
    titles: Sequence[str] | None,
    vectors: NDArray[np.float32],
    first: int = 0,
) -> Iterator[tuple[int, str, str, NDArray[np.float32]]]:
    """The id, the title, the text and the vector of each passage. Ids count from ``first``; titles are empty unless they are given.

    Raises ``InputError`` for other numbers of titles or vectors than of texts.
    """
    names = titles if titles is not None else [""] * len(texts)
    if not len(vectors) == len(names) == len(texts):
        raise InputError(f"expected {len(texts)} titles and vectors, found {len(names)} and {len(vectors)}")
    each = enumerate(zip(names, texts, vectors), first)
    return ((at, title, text, vector) for at, (title, text, vector) in each)


def encoded_rows(
    encoder: Encoder,
    texts: Sequence[str],
    titles: Sequence[str] | None,
    vectors: NDArray[np.float32] | None,
    first: int,
) -> Iterator[tuple[int, str, str, NDArray[np.float32]]]:
    """As :func:`passage_rows`, with the vectors of an encoder unless they are given."""
    return passage_rows(texts, titles, encoder.encode(texts) if vectors is None else vectors, first)


def best(scores: NDArray[np.float32], k: int) -> list[int]:
    """The places of the ``k`` greatest scores, best first; ties by place."""
    return sorted(range(len(scores)), key=lambda at: (-scores[at], at))[:k]
