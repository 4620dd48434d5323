"""Stores and files of vectors; each test needs its package."""

import numpy as np
import pytest

import sporran
from sporran.adapters import vector_files

TEXTS = ["the cat sat", "a dog ran", "a dog barked at a cat", "rain fell", "snow fell on the dog"]


@pytest.fixture(scope="module")
def encoder(root):
    return sporran.Encoder(root / "crates/transformers/tests/data/encoders/sentence")


def _ours(encoder, similarity, query, k):
    index = sporran.DenseIndex.build(encoder.encode(TEXTS), similarity=similarity)
    scores, ids = index.search(encoder.encode([query]), k=k)
    return ids[0].tolist(), scores[0].tolist()


@pytest.mark.parametrize("similarity", ["inner-product", "cosine", "euclidean"])
def test_pgvector_ranks_as_we_do(encoder, tmp_path, similarity):
    pgserver = pytest.importorskip("pgserver")
    psycopg = pytest.importorskip("psycopg")
    from sporran.adapters.pgvector import PgVector

    server = pgserver.get_server(tmp_path / "postgres")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            store = PgVector(connection, "passages", encoder, similarity)
            store.create()
            store.add(TEXTS)
            hits = store.search("a cat", k=4)
    finally:
        server.cleanup()
    ids, scores = _ours(encoder, similarity, "a cat", 4)
    assert [hit.id for hit in hits] == ids
    assert [hit.passage.text for hit in hits] == [TEXTS[at] for at in ids]
    assert [hit.score for hit in hits] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("similarity", ["inner-product", "cosine", "euclidean"])
def test_a_search_uses_an_index_of_pgvector(encoder, tmp_path, similarity):
    pgserver = pytest.importorskip("pgserver")
    psycopg = pytest.importorskip("psycopg")
    from sporran.adapters.pgvector import PgVector

    texts = [f"{text} {number}" for number in range(40) for text in TEXTS]
    server = pgserver.get_server(tmp_path / "postgres")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            store = PgVector(connection, "passages", encoder, similarity)
            store.create()
            store.add(texts)
            exact = store.search("a cat", k=100)
            with pytest.raises(ValueError, match="expected hnsw or ivfflat, found 'flat'"):
                store.create_index("flat")
            store.create_index(m=32, ef_construction=200)
            connection.execute("SET enable_seqscan = off")
            vector = "[" + ",".join(map(str, encoder.encode("a cat").tolist())) + "]"
            lines = connection.execute(
                b"EXPLAIN " + store._nearest().as_bytes(connection), {"vector": vector, "k": 100}
            ).fetchall()
            found = store.search("a cat", k=100)
    finally:
        server.cleanup()
    assert any("Index Scan using passages_vector_idx" in line for (line,) in lines), lines
    # The index finds 9 of 10 passages; equal vectors have equal scores.
    assert len({hit.id for hit in found}) == 100
    assert sum(hit.score >= exact[-1].score - 1e-6 for hit in found) >= 90


@pytest.mark.parametrize("similarity", ["inner-product", "cosine", "euclidean"])
def test_lancedb_ranks_as_we_do(encoder, tmp_path, similarity):
    lancedb = pytest.importorskip("lancedb")
    from sporran.adapters.lancedb import Lance

    store = Lance(lancedb.connect(tmp_path), "passages", encoder, similarity)
    store.create()
    store.add(TEXTS)
    hits = store.search("a cat", k=4)
    ids, scores = _ours(encoder, similarity, "a cat", 4)
    assert [hit.id for hit in hits] == ids
    assert [hit.score for hit in hits] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("similarity", ["inner-product", "euclidean"])
def test_flat_files_are_those_of_faiss(encoder, tmp_path, similarity):
    vectors = encoder.encode(TEXTS)
    path = tmp_path / "flat.faiss"
    vector_files.write_faiss(path, vectors, similarity)
    again, kind = vector_files.read_faiss(path)
    assert kind == similarity
    np.testing.assert_array_equal(again, vectors)
    faiss = pytest.importorskip("faiss")
    index = faiss.read_index(str(path))
    _, theirs = index.search(encoder.encode(["a cat"]), 4)
    assert theirs[0].tolist() == _ours(encoder, similarity, "a cat", 4)[0]
    faiss.write_index(index, str(tmp_path / "theirs.faiss"))
    assert (tmp_path / "theirs.faiss").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("damage", [b"", b"IxPQ" + bytes(60), None])
def test_damaged_files_are_errors(encoder, tmp_path, damage):
    path = tmp_path / "flat.faiss"
    vector_files.write_faiss(path, encoder.encode(TEXTS))
    path.write_bytes(path.read_bytes()[:-4] if damage is None else damage)
    with pytest.raises(ValueError, match="flat.faiss"):
        vector_files.read_faiss(path)


def test_bulk_files_have_a_line_for_each_passage(encoder, tmp_path):
    vectors = encoder.encode(TEXTS)
    vector_files.write_qdrant(tmp_path / "points.jsonl", TEXTS, vectors)
    vector_files.write_opensearch(tmp_path / "bulk.jsonl", "passages", TEXTS, vectors)
    assert len((tmp_path / "points.jsonl").read_text().splitlines()) == len(TEXTS)
    assert len((tmp_path / "bulk.jsonl").read_text().splitlines()) == 2 * len(TEXTS)
    with pytest.raises(ValueError, match="expected 5 titles and vectors"):
        vector_files.write_qdrant(tmp_path / "points.jsonl", TEXTS, vectors[:2])
    assert len((tmp_path / "points.jsonl").read_text().splitlines()) == len(TEXTS)
