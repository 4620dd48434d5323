"""Stages on a Ray cluster of two nodes on this machine."""

import json

import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")

import sporran  # noqa: E402
import sporran.ray as stages  # noqa: E402

TEXTS = ["the cat sat", "a dog ran", "a dog barked at a cat", "rain fell"]


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def test_vectors_are_those_of_the_encoder(cluster, root):
    folder = str(root / "crates/transformers/tests/data/encoders/sentence")
    rows = ray.data.from_items([{"id": at, "text": TEXTS[at % 4]} for at in range(40)])
    done = stages.map(rows, stages.Encode, model=folder, actors=2, batch_size=8).take_all()
    expected = sporran.Encoder(folder).encode(TEXTS)
    assert sorted(row["id"] for row in done) == list(range(40))
    for row in done:
        assert row["error"] == ""
        assert row["vector"] == pytest.approx(expected[row["id"] % 4], abs=1e-5)


def test_a_wrong_row_has_an_error(cluster, root):
    folder = str(root / "models/minikilt-reader")
    rows = ray.data.from_items([{"prompt": "Where was Ada Lovelace born?"}, {"prompt": None}])
    done = stages.map(rows, stages.Generate, model=folder, max_new_tokens=4, batch_size=2).take_all()
    by_error = {bool(row["error"]): row for row in done}
    assert by_error[False]["generated"] == sporran.Generator(folder, max_new_tokens=4).generate(
        "Where was Ada Lovelace born?"
    )
    assert by_error[True]["error"] == "TypeError: column prompt: expected a text, found NoneType"


def test_wrong_rows_do_not_end_the_job_and_types_stay(cluster, root, monkeypatch):
    monkeypatch.chdir(root)
    # A relative path, integers beside an empty value, and wrong rows among right ones.
    folder = "crates/transformers/tests/data/encoders/sentence"
    items = [{"id": 2**60 + 1, "text": "a cat"}, {"id": None, "text": None}, {"id": 7, "text": "a dog"}]
    done = stages.map(ray.data.from_items(items), stages.Encode, model=folder, batch_size=3).take_all()
    by_id = {row["id"]: row for row in done}
    assert set(by_id) == {2**60 + 1, None, 7}
    assert by_id[None]["vector"] is None and by_id[None]["error"].startswith("TypeError: column text: ")
    assert by_id[7]["vector"] == pytest.approx(sporran.Encoder(folder).encode("a dog"), abs=1e-5)
    with pytest.raises(sporran.InputError, match="column: expected one of the columns id, text, found 'txt'"):
        stages.map(ray.data.from_items(items).materialize(), stages.Encode, model=folder, column="txt")
    model = "crates/transformers/tests/data/encoders/bert-sequence"
    pairs = [
        {"query": "a cat", "passages": ["a", "b"]},
        {"query": "a cat", "passages": None},
        {"query": "a cat", "passages": ["a", None]},
        {"query": None, "passages": ["a"]},
    ]
    done = stages.map(ray.data.from_items(pairs), stages.Rerank, model=model, batch_size=4).take_all()
    assert sorted(row["error"] for row in done) == [
        "",
        "",
        "TypeError: column passages[1]: expected a text, found NoneType",
        "TypeError: column query: expected a text, found NoneType",
    ]


def test_passages_and_facts(cluster, root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    source = root / "examples/minikilt/knowledge_source.jsonl.gz"
    store = sporran.PassageStore.build(source, tmp_path / "store")
    index = sporran.BM25.build(store, tmp_path / "bm25")
    rows = ray.data.from_items([{"query": "Where did John Kenneth Galbraith work"}])
    places = {"store": str(tmp_path / "store"), "index": str(tmp_path / "bm25")}
    (row,) = stages.map(rows, stages.Retrieve, k=3, **places).take_all()
    hits = index.search("Where did John Kenneth Galbraith work", k=3)
    assert list(row["ids"]) == [hit.id for hit in hits]
    assert list(row["texts"]) == [hit.passage.text for hit in hits]
    text = "Ada Lovelace was born in London."
    config = "configs/quickstart-kbp.toml"
    (row,) = stages.map(
        ray.data.from_items([{"text": text}]),
        stages.Extract,
        config=str(root / config),
        overrides={"relations.model": str(root / "models/knowledgenet-distilled")},
    ).take_all()
    assert row["error"] == ""
    assert json.loads(row["facts"]) == sporran.FactExtractor(config).extract([text])[0]


def test_answers_are_scored_by_row(cluster):
    rows = [
        {"answer": "the oslo", "pages": ["1"], "gold": ["Oslo", "Kristiania"], "gold_pages": [["1"], ["2", "3"]]},
        {"answer": "Bergen", "pages": ["9", "3", "2"], "gold": ["Bergen"], "gold_pages": [["2", "3"]]},
        {"answer": None, "pages": ["1"], "gold": ["Oslo"], "gold_pages": [["1"]]},
    ]
    done = stages.map(ray.data.from_items(rows), stages.Evaluate, batch_size=3).take_all()
    by_answer = {row["answer"]: row for row in done}
    first, second, wrong = by_answer["the oslo"], by_answer["Bergen"], by_answer[None]
    assert (first["error"], first["accuracy"], first["em"], first["KILT-em"]) == ("", 0.0, 1.0, 1.0)
    # One of the two pages is among the first two.
    assert (second["em"], second["Rprec"], second["KILT-em"], second["recall@5"]) == (1.0, 0.5, 0.0, 1.0)
    assert wrong["em"] is None and wrong["error"] == "TypeError: column answer: expected a text, found NoneType"
