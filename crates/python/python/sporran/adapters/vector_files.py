"""Files of vectors for other programs: FAISS's flat indexes, and bulk files of OpenSearch and Qdrant."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .. import InputError
from ._parts import passage_rows

__all__ = ["read_faiss", "write_faiss", "write_opensearch", "write_qdrant"]

_FAISS = {b"IxFI": "inner-product", b"IxF2": "euclidean"}
_HEADER = struct.Struct("<4siqqqBi")


def write_faiss(
    path: str | os.PathLike[str], vectors: NDArray[np.float32], similarity: str = "inner-product"
) -> None:
    """Writes vectors with the shape (vectors, values) as an ``IndexFlat`` of FAISS."""
    kinds = {name: kind for kind, name in _FAISS.items()}
    if similarity not in kinds:
        raise InputError(f"similarity: expected one of {', '.join(kinds)}, found {similarity!r}")
    rows = np.ascontiguousarray(vectors, dtype="<f4")
    if rows.ndim != 2:
        raise InputError(f"vectors: expected the shape (vectors, values), found {rows.shape}")
    count, width = rows.shape
    metric = 0 if similarity == "inner-product" else 1
    # FAISS writes two unused numbers before the byte of a trained index.
    header = _HEADER.pack(kinds[similarity], width, count, 1 << 20, 1 << 20, 1, metric)
    partial = Path(f"{os.fspath(path)}.partial")
    with open(partial, "wb") as out:
        out.write(header)
        out.write(struct.pack("<Q", rows.size))
        out.write(rows.tobytes())
    os.replace(partial, path)


def read_faiss(path: str | os.PathLike[str]) -> tuple[NDArray[np.float32], str]:
    """The vectors of an ``IndexFlat`` of FAISS, mapped from the file, and its similarity."""
    size = os.path.getsize(path)
    begin = _HEADER.size + 8
    with open(path, "rb") as file:
        start = file.read(begin)
    if len(start) < begin or start[:4] not in _FAISS:
        raise InputError(f"{os.fspath(path)}: expected a flat index of FAISS (IxFI or IxF2), found {start[:4]!r}")
    kind, width, count, *_ = _HEADER.unpack(start[: _HEADER.size])
    (values,) = struct.unpack("<Q", start[_HEADER.size :])
    if width <= 0 or count < 0 or values != width * count or size != begin + 4 * values:
        raise InputError(f"{os.fspath(path)}: expected {count} vectors of {width} values, found {size} bytes")
    if count == 0:
        return np.zeros((0, width), np.float32), _FAISS[kind]
    rows = np.memmap(path, dtype="<f4", mode="r", offset=begin, shape=(count, width))
    return rows, _FAISS[kind]


def write_opensearch(
    path: str | os.PathLike[str],
    index: str,
    texts: Sequence[str],
    vectors: NDArray[np.float32],
    titles: Sequence[str] | None = None,
) -> None:
    """Writes the lines of a request to ``_bulk`` of OpenSearch. It has not been tried against a server."""
    rows = passage_rows(texts, titles, vectors)
    with open(path, "w", encoding="utf-8") as out:
        for at, title, text, vector in rows:
            action = {"index": {"_index": index, "_id": str(at)}}
            document = {"title": title, "text": text, "vector": vector.tolist()}
            out.write(f"{json.dumps(action)}\n{json.dumps(document, ensure_ascii=False)}\n")


def write_qdrant(
    path: str | os.PathLike[str],
    texts: Sequence[str],
    vectors: NDArray[np.float32],
    titles: Sequence[str] | None = None,
) -> None:
    """Writes a point of Qdrant a line: ``id``, ``vector``, ``payload``. It has not been tried against a server."""
    rows = passage_rows(texts, titles, vectors)
    with open(path, "w", encoding="utf-8") as out:
        for at, title, text, vector in rows:
            point = {"id": at, "vector": vector.tolist(), "payload": {"title": title, "text": text}}
            out.write(json.dumps(point, ensure_ascii=False) + "\n")
