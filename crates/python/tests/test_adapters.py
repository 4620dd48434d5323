"""Adapters against the packages that they adapt to; each test needs its package."""

import pytest

import sporran

TEXTS = ["the cat sat", "a dog ran", "a dog barked at a cat", "rain fell"]


@pytest.fixture(scope="module")
def index():
    return sporran.BM25.from_texts(TEXTS)


@pytest.fixture(scope="module")
def encoder(root):
    return sporran.Encoder(root / "crates/transformers/tests/data/encoders/sentence")


@pytest.fixture(scope="module")
def reranker(root):
    return sporran.Reranker(root / "crates/transformers/tests/data/settings/cross/one")


def test_langchain(index, encoder, reranker):
    pytest.importorskip("langchain_core")
    from sporran.adapters.langchain import SporranEmbeddings, SporranReranker, SporranRetriever

    found = SporranRetriever(index=index, k=2).invoke("dog")
    assert [document.metadata["id"] for document in found] == [hit.id for hit in index.search("dog", k=2)]
    assert found[0].page_content == TEXTS[found[0].metadata["id"]]
    embeddings = SporranEmbeddings(encoder)
    assert embeddings.embed_query("a cat") == encoder.encode("a cat").tolist()
    assert embeddings.embed_documents(TEXTS) == encoder.encode(TEXTS).tolist()
    best = SporranReranker(reranker=reranker, k=1).compress_documents(found, "dog")
    scores = reranker.score("dog", [document.page_content for document in found])
    assert len(best) == 1 and best[0].metadata["rerank_score"] == max(scores)


def test_langchain_vector_store(encoder):
    pytest.importorskip("langchain_core")
    from langchain_core.vectorstores import InMemoryVectorStore

    from sporran.adapters.langchain import SporranEmbeddings

    store = InMemoryVectorStore.from_texts(TEXTS, SporranEmbeddings(encoder))
    assert store.similarity_search(TEXTS[1], k=1)[0].page_content == TEXTS[1]


def test_llama_index(index, encoder, reranker):
    pytest.importorskip("llama_index.core")
    from llama_index.core.schema import QueryBundle

    from sporran.adapters.llama_index import SporranEmbedding, SporranReranker, SporranRetriever

    found = SporranRetriever(index, k=2).retrieve("dog")
    assert [(int(node.node.node_id), node.score) for node in found] == [
        (hit.id, hit.score) for hit in index.search("dog", k=2)
    ]
    embedding = SporranEmbedding(encoder)
    assert embedding.get_query_embedding("a cat") == encoder.encode("a cat").tolist()
    assert embedding.get_text_embedding_batch(TEXTS) == encoder.encode(TEXTS).tolist()
    best = SporranReranker(reranker, k=1).postprocess_nodes(found, query_bundle=QueryBundle("dog"))
    scores = reranker.score("dog", [node.node.get_content() for node in found])
    assert len(best) == 1 and best[0].score == max(scores)


def test_haystack(index, encoder, reranker):
    pytest.importorskip("haystack")
    from haystack import Pipeline

    from sporran.adapters.haystack import (
        SporranDocumentEmbedder,
        SporranRanker,
        SporranRetriever,
        SporranTextEmbedder,
    )

    pipeline = Pipeline()
    pipeline.add_component("retriever", SporranRetriever(index, top_k=2))
    pipeline.add_component("ranker", SporranRanker(reranker, top_k=1))
    pipeline.connect("retriever.documents", "ranker.documents")
    (best,) = pipeline.run({"retriever": {"query": "dog"}, "ranker": {"query": "dog"}})["ranker"]["documents"]
    texts = [hit.passage.text for hit in index.search("dog", k=2)]
    assert best.score == max(reranker.score("dog", texts)) and best.content in texts
    assert SporranTextEmbedder(encoder).run("a cat")["embedding"] == encoder.encode("a cat").tolist()
    (embedded,) = SporranDocumentEmbedder(encoder).run([best])["documents"]
    assert embedded.embedding == encoder.encode([best.content])[0].tolist() and best.embedding is None


def test_datasets(root, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    from sporran.adapters.datasets import bm25, passages

    rows = datasets.Dataset.from_dict({"text": TEXTS, "name": ["", "", "", "dog"]})
    assert [hit.id for hit in bm25(rows).search("dog")] == [1, 2]
    assert 3 in [hit.id for hit in bm25(rows, title="name").search("dog")]
    source = tmp_path / "source.jsonl"
    source.write_text('{"wikipedia_id": "7", "wikipedia_title": "Tea", "text": ["Tea", "It is hot."]}\n')
    table = passages(sporran.PassageStore.build(source, tmp_path / "store"))
    assert table.num_rows == 1 and table[0]["title"] == "Tea" and table[0]["page_id"] == "7"


def test_ir_measures(tmp_path):
    ir_measures = pytest.importorskip("ir_measures")
    from ir_measures import AP, P, nDCG

    from sporran.adapters.ir_measures import provider

    qrels = [ir_measures.Qrel("1", "a", 2), ir_measures.Qrel("1", "b", 0), ir_measures.Qrel("2", "c", 1)]
    run = [
        ir_measures.ScoredDoc("1", "b", 2.0),
        ir_measures.ScoredDoc("1", "a", 1.0),
        ir_measures.ScoredDoc("2", "c", 1.0),
    ]
    measures = [nDCG @ 10, AP, P @ 1]
    ours = provider.calc_aggregate(measures, qrels, run)
    assert ours == pytest.approx(ir_measures.calc_aggregate(measures, qrels, run))
    each = {(metric.query_id, str(metric.measure)): metric.value for metric in provider.iter_calc(measures, qrels, run)}
    assert each["1", "AP"] == 0.5 and each["2", "P@1"] == 1.0
