"""Retriever, embeddings and reranker for LlamaIndex (``pip install llama-index-core``)."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode

from .. import Encoder, Hit, InputError, Reranker
from ._parts import best

__all__ = ["SporranEmbedding", "SporranReranker", "SporranRetriever"]


def _node(hit: Hit) -> NodeWithScore:
    passage = hit.passage
    if passage is None:
        raise InputError("expected an index that knows its texts, such as BM25")
    about = {"page_id": passage.page_id, "title": passage.title, "section": passage.section}
    return NodeWithScore(node=TextNode(id_=str(hit.id), text=passage.text, metadata=about), score=hit.score)


class SporranRetriever(BaseRetriever):
    """The ``k`` best passages of an index with texts, such as :class:`sporran.BM25`."""

    def __init__(self, index: Any, k: int = 10, **arguments: Any) -> None:
        self.index = index
        self.k = k
        super().__init__(**arguments)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(hit) for hit in self.index.search(query_bundle.query_str, k=self.k)]


class SporranEmbedding(BaseEmbedding):
    """Vectors of texts by :class:`sporran.Encoder`. ``query_encoder`` encodes queries, for models with other prompts for them."""

    _encoder: Encoder = PrivateAttr()
    _query_encoder: Encoder = PrivateAttr()

    def __init__(self, encoder: Encoder, query_encoder: Encoder | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._encoder = encoder
        self._query_encoder = query_encoder or encoder

    def _get_text_embedding(self, text: str) -> list[float]:
        row: list[float] = self._encoder.encode(text).tolist()
        return row

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = self._encoder.encode(texts).tolist()
        return rows

    def _get_query_embedding(self, query: str) -> list[float]:
        row: list[float] = self._query_encoder.encode(query).tolist()
        return row

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


class SporranReranker(BaseNodePostprocessor):
    """The ``k`` best nodes by :class:`sporran.Reranker`, with its scores."""

    k: int = 5
    _reranker: Reranker = PrivateAttr()

    def __init__(self, reranker: Reranker, k: int = 5, **arguments: Any) -> None:
        super().__init__(**{"k": k, **arguments})
        self._reranker = reranker

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise InputError("expected a query")
        if not nodes:
            return []
        texts = [node.node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes]
        scores = self._reranker.score(query_bundle.query_str, texts)
        return [NodeWithScore(node=nodes[at].node, score=float(scores[at])) for at in best(scores, self.k)]
