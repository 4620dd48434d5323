"""Components for Haystack 2 (``pip install haystack-ai``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from haystack import Document, component

from .. import Encoder, Hit, InputError, Reranker
from ._parts import best

__all__ = ["SporranDocumentEmbedder", "SporranRanker", "SporranRetriever", "SporranTextEmbedder"]


def _document(hit: Hit) -> Document:
    passage = hit.passage
    if passage is None:
        raise InputError("expected an index that knows its texts, such as BM25")
    about = {"page_id": passage.page_id, "title": passage.title, "section": passage.section}
    return Document(id=str(hit.id), content=passage.text, meta=about, score=hit.score)


@component
class SporranRetriever:
    """The ``top_k`` best passages of an index with texts, such as :class:`sporran.BM25`."""

    def __init__(self, index: Any, top_k: int = 10) -> None:
        self.index = index
        self.top_k = top_k

    @component.output_types(documents=list[Document])
    def run(self, query: str, top_k: int | None = None) -> dict[str, list[Document]]:
        hits = self.index.search(query, k=top_k or self.top_k)
        return {"documents": [_document(hit) for hit in hits]}


@component
class SporranTextEmbedder:
    """The vector of a text, such as a query."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, list[float]]:
        return {"embedding": self.encoder.encode(text).tolist()}


@component
class SporranDocumentEmbedder:
    """The vectors of documents."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        rows = self.encoder.encode([document.content or "" for document in documents]).tolist()
        each = zip(documents, rows)
        return {"documents": [replace(document, embedding=row) for document, row in each]}


@component
class SporranRanker:
    """The ``top_k`` best documents by :class:`sporran.Reranker`, with its scores."""

    def __init__(self, reranker: Reranker, top_k: int = 5) -> None:
        self.reranker = reranker
        self.top_k = top_k

    @component.output_types(documents=list[Document])
    def run(self, query: str, documents: list[Document]) -> dict[str, list[Document]]:
        if not documents:
            return {"documents": []}
        scores = self.reranker.score(query, [document.content or "" for document in documents])
        return {"documents": [replace(documents[at], score=float(scores[at])) for at in best(scores, self.top_k)]}
