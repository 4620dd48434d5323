"""Retriever, embeddings and reranker for LangChain (``pip install langchain-core``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun, Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict

from .. import Encoder, Hit, InputError, Reranker
from ._parts import best

__all__ = ["SporranEmbeddings", "SporranReranker", "SporranRetriever"]


def _document(hit: Hit) -> Document:
    passage = hit.passage
    if passage is None:
        raise InputError("expected an index that knows its texts, such as BM25")
    about = {"id": hit.id, "score": hit.score, "page_id": passage.page_id}
    about |= {"title": passage.title, "section": passage.section}
    return Document(page_content=passage.text, metadata=about)


class SporranRetriever(BaseRetriever):
    """The ``k`` best passages of an index with texts, such as :class:`sporran.BM25`.

    The metadata of a document are ``id``, ``score``, ``page_id``, ``title`` and ``section``.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    index: Any
    """The index: an object with ``search(query, k)``."""
    k: int = 10

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return [_document(hit) for hit in self.index.search(query, k=self.k)]


class SporranEmbeddings(Embeddings):
    """Vectors of texts by :class:`sporran.Encoder`. ``query_encoder`` encodes queries, for models with other prompts for them."""

    def __init__(self, encoder: Encoder, query_encoder: Encoder | None = None) -> None:
        self.encoder = encoder
        self.query_encoder = query_encoder or encoder

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = self.encoder.encode(texts).tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        row: list[float] = self.query_encoder.encode(text).tolist()
        return row


class SporranReranker(BaseDocumentCompressor):
    """The ``k`` best documents by :class:`sporran.Reranker`; their metadata get ``rerank_score``."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    reranker: Reranker
    k: int = 5

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        if not documents:
            return []
        scores = self.reranker.score(query, [document.page_content for document in documents])
        return [
            Document(
                page_content=documents[at].page_content,
                metadata={**documents[at].metadata, "rerank_score": float(scores[at])},
            )
            for at in best(scores, self.k)
        ]
