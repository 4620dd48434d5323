"""Tests of the package on bundled data. `pytest crates/python/tests` runs them against the installed package."""

import gzip
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import sporran

TEXTS = ["the cat sat", "a dog ran", "a dog barked at a cat", "rain fell"]


def test_search_finds_the_texts_of_a_list():
    index = sporran.BM25.from_texts(["the cat sat", "a dog ran"])
    (hit,) = index.search("dog", k=1)
    assert (hit.id, hit.passage.text) == (1, "a dog ran")
    rows = index.search(["dog", "cat", "bird"], k=5)
    assert [[hit.id for hit in row] for row in rows] == [[1], [0], []]


def test_options_are_those_of_a_config():
    flat = sporran.BM25.from_texts(TEXTS, b=0.0, k1=0.0)
    scores = [hit.score for hit in flat.search("dog")]
    assert scores == pytest.approx([np.log(1 + 2.5 / 2.5)] * 2, rel=1e-6)
    with pytest.raises(sporran.InputError, match="k2"):
        sporran.BM25.from_texts(TEXTS, k2=1.0)
    with pytest.raises(sporran.InputError, match="number from 0 to 1"):
        sporran.BM25.from_texts(TEXTS, b=2.0)


@pytest.mark.parametrize("texts", [[], [1], ["a", None]])
def test_wrong_texts_are_errors(texts):
    with pytest.raises((TypeError, sporran.InputError)):
        sporran.BM25.from_texts(texts)


def test_an_index_is_pickled_as_its_texts():
    index = sporran.BM25.from_texts(TEXTS, k1=1.2)
    again = pickle.loads(pickle.dumps(index))
    expected = [(hit.id, hit.score) for hit in index.search("dog cat")]
    assert [(hit.id, hit.score) for hit in again.search("dog cat")] == expected


def test_a_store_gives_passages_with_their_place(root, tmp_path):
    source = root / "examples/minikilt/knowledge_source.jsonl.gz"
    events = []
    store = sporran.PassageStore.build(source, tmp_path / "store", progress=events.append)
    assert events[0]["event"] == "begin" and events[-1]["event"] == "end"
    index = sporran.BM25.build(store, tmp_path / "bm25")
    (best, *_) = index.search("Where did John Kenneth Galbraith work", k=3)
    assert "Galbraith" in best.passage.title
    place = json.loads(best.passage.provenance_json)
    assert place["wikipedia_id"] == best.passage.page_id
    assert best.passage.id in [passage.id for passage in store.passages_of(best.passage.page_id)]
    again = pickle.loads(pickle.dumps(index))
    assert again.search("Galbraith")[0].id == index.search("Galbraith")[0].id
    copied = pickle.loads(pickle.dumps(best))
    assert (copied.id, copied.score) == (best.id, best.score)
    for name in ("id", "page_id", "title", "section", "text", "provenance_json"):
        assert getattr(copied.passage, name) == getattr(best.passage, name)
    assert [passage.id for passage in store] == list(range(len(store)))
    assert store[-1].id == len(store) - 1
    sporran.DenseIndex.build(np.eye(2, dtype=np.float32), path=tmp_path / "dense")
    with pytest.raises(sporran.InputError, match="dense: expected nothing, or a folder of the same kind"):
        sporran.BM25.build(store, tmp_path / "dense")
    assert len(sporran.DenseIndex.open(tmp_path / "dense")) == 2
    with pytest.raises(sporran.InputError, match="bm25: expected nothing, or a folder of the same kind"):
        sporran.DenseIndex.build(np.eye(2, dtype=np.float32), path=tmp_path / "bm25")
    with pytest.raises(IndexError):
        store[len(store)]
    with pytest.raises(sporran.InputError, match="nowhere"):
        sporran.PassageStore.open(tmp_path / "nowhere")


def test_dense_search_equals_numpy(tmp_path):
    random = np.random.default_rng(5)
    vectors = random.standard_normal((500, 24), dtype=np.float32)
    queries = random.standard_normal((7, 24), dtype=np.float32)
    index = sporran.DenseIndex.build(vectors, kind="flat", path=tmp_path / "index")
    scores, ids = index.search(queries, k=10)
    products = queries @ vectors.T
    expected = np.argsort(-products, axis=1, kind="stable")[:, :10]
    assert (ids == expected).all()
    np.testing.assert_allclose(scores, np.take_along_axis(products, expected, axis=1), rtol=1e-5, atol=1e-5)
    again = pickle.loads(pickle.dumps(index))
    assert (again.search(queries, k=10)[1] == ids).all()
    assert index.search(queries[:, ::1], k=600)[1][0, -1] == -1
    # Rows that are not contiguous are copied.
    wide = np.zeros((7, 48), dtype=np.float32)
    wide[:, ::2] = queries
    assert (index.search(wide[:, ::2], k=10)[1] == ids).all()


def test_a_great_k_needs_no_more_memory_than_the_vectors():
    vectors = np.eye(3, dtype=np.float32)
    for kind in ["flat", "hnsw"]:
        index = sporran.DenseIndex.build(vectors, kind=kind)
        scores, ids = index.search(vectors[:1], k=65_536)
        assert (ids[0, :3] == [0, 1, 2]).all() and (ids[0, 3:] == -1).all() and scores[0, 3] == -np.inf
        for k in [65_537, 10**12]:
            with pytest.raises(sporran.InputError, match="^k: expected a number from 1 to 65536, found"):
                index.search(vectors, k=k)
    texts = sporran.BM25.from_texts(["a cat", "a dog"])
    assert [hit.id for hit in texts.search("dog", k=2**63)] == [1]


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_ends_a_build_and_a_search():
    script = """
import os, signal, sys, threading, time
import numpy as np, sporran
vectors = np.random.default_rng(7).standard_normal((60_000, 64), dtype=np.float32)
index = sporran.DenseIndex.build(vectors)
for work in [lambda: sporran.DenseIndex.build(vectors, kind="hnsw"), lambda: index.search(np.tile(vectors, (20, 1)), k=10)]:
    sent = []
    def send():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    threading.Timer(0.5, send).start()
    try:
        work()
        sys.exit("the work ended")
    except KeyboardInterrupt:
        assert time.monotonic() - sent[0] < 10, time.monotonic() - sent[0]
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)


def test_wrong_arguments_are_errors_of_the_package(root):
    index = sporran.BM25.from_texts(TEXTS)
    with pytest.raises(sporran.InputError, match="^k: expected a whole number from 0 to .*, found -1"):
        index.search("dog", k=-1)
    with pytest.raises(sporran.InputError, match="^k: .*, found 100000000000000000000$"):
        index.search("dog", k=10**20)
    with pytest.raises(sporran.InputError, match="keyword arguments: expected plain values"):
        sporran.BM25.from_texts(TEXTS, k1={1, 2})
    with pytest.raises(sporran.InputError, match="without a path cannot be pickled"):
        pickle.dumps(sporran.DenseIndex.build(np.eye(2, dtype=np.float32)))
    with pytest.raises(sporran.InputError, match="^batch_tokens: "):
        sporran.Encoder(root / "crates/transformers/tests/data/encoders/sentence", batch_tokens=-1)
    assert issubclass(sporran.ForkError, (sporran.WorkError, RuntimeError))


def test_arrays_at_any_address_are_read():
    vectors = np.random.default_rng(6).standard_normal((300, 24), dtype=np.float32)
    shifted = np.frombuffer(b"\0" + vectors.tobytes(), dtype=np.float32, offset=1).reshape(vectors.shape)
    assert not shifted.flags.aligned
    index = sporran.DenseIndex.build(shifted)
    assert len(index) == 300
    scores, ids = index.search(shifted[:5], k=4)
    expected = sporran.DenseIndex.build(vectors).search(vectors[:5], k=4)
    assert (scores == expected[0]).all() and (ids == expected[1]).all()
    fortran = np.asfortranarray(vectors)
    assert (sporran.DenseIndex.build(fortran).search(vectors[:5], k=4)[1] == ids).all()
    with pytest.raises(sporran.InputError, match="float32"):
        sporran.DenseIndex.build(vectors.astype(">f4"))


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (np.zeros((2, 3)), "float32"),
        (np.zeros(3, dtype=np.float32), "shape"),
        (np.zeros((0, 3), dtype=np.float32), "shape"),
        (np.array([[1.0, np.nan]], dtype=np.float32), "row 0, column 1"),
        ([[1.0]], "array of float32"),
        (None, "array of float32"),
    ],
)
def test_wrong_vectors_are_errors(vectors, message):
    with pytest.raises(sporran.InputError, match=message):
        sporran.DenseIndex.build(vectors)


def test_an_encoder_gives_a_row_for_each_text(root):
    folder = root / "crates/transformers/tests/data/encoders/sentence"
    encoder = sporran.Encoder(folder)
    one = encoder.encode("a cat")
    rows = encoder.encode(["a cat", "", "a dog in the rain"])
    assert rows.shape == (3, encoder.dimensions) and rows.dtype == np.float32
    np.testing.assert_allclose(rows[0], one, atol=1e-5)
    assert encoder.encode([]).shape == (0, encoder.dimensions)
    again = pickle.loads(pickle.dumps(encoder))
    np.testing.assert_array_equal(again.encode("a cat"), one)
    with pytest.raises(sporran.InputError, match="int16"):
        sporran.Encoder(folder, precision="int16")
    with pytest.raises(sporran.InputError, match="texts\\[1\\]"):
        encoder.encode(["a", 3])


def test_an_encoder_has_the_names_of_sentence_transformers(root, monkeypatch):
    encoders = root / "crates/transformers/tests/data/encoders"
    folder = encoders / "gemma3-embedding"
    encoder = sporran.Encoder(folder)
    texts = ["a cat", "a dog in the rain", "moss"]
    for given, name in [(encoder.encode_query, "query"), (encoder.encode_document, "document")]:
        expected = sporran.Encoder(folder, prompt_name=name).encode(texts)
        np.testing.assert_allclose(given(texts, batch_size=2), expected, atol=1e-5)
        np.testing.assert_allclose(encoder.encode(texts, prompt_name=name), expected, atol=1e-5)
        assert not np.allclose(encoder.encode(texts), expected, atol=1e-3)
    own = sporran.Encoder(folder, prompt="own: ")
    np.testing.assert_array_equal(own.encode_query(texts), own.encode(texts))
    np.testing.assert_allclose(encoder.encode(texts, prompt="own: "), own.encode(texts), atol=1e-5)
    with pytest.raises(sporran.InputError, match="^batch_size: "):
        encoder.encode(texts, batch_size=0)
    with pytest.raises(sporran.InputError, match="one of the folder's prompts"):
        encoder.encode(texts, prompt_name="none")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(root / "nowhere"))
    with pytest.raises(sporran.InputError, match="no model all-none.*; hf:sentence-transformers/all-none: "):
        sporran.Encoder("all-none")


def test_a_reranker_scores_each_passage(root):
    folder = root / "crates/transformers/tests/data/settings/cross/one"
    reranker = sporran.Reranker(folder)
    scores = reranker.score("a cat", ["a dog", "the cat sat"])
    assert scores.shape == (2,) and ((scores > 0) & (scores < 1)).all()
    raw = sporran.Reranker(folder, raw_scores=True).score("a cat", ["a dog", "the cat sat"])
    np.testing.assert_allclose(1 / (1 + np.exp(-raw)), scores, rtol=1e-5)
    assert pickle.loads(pickle.dumps(reranker)).score("a cat", "a dog") == scores[0]


def test_a_bundled_reader_answers(root):
    generator = sporran.Generator(root / "models/minikilt-reader", max_new_tokens=8)
    one = generator.generate("Where was Ada Lovelace born?")
    assert isinstance(one, str)
    assert generator.generate(["Where was Ada Lovelace born?", ""]) == [one, ""]
    with pytest.raises(sporran.InputError, match="no model"):
        sporran.Generator("no-such-model")


def test_triples_are_completed(root, tmp_path):
    scorer = sporran.TripleScorer(root / "examples/minikilt/kb", root / "models/minikilt-kb")
    with gzip.open(root / "examples/minikilt/kb/triples.tsv.gz", "rt") as triples:
        kb = next(triples).split("\t")
    answers = scorer.complete(kb[0], kb[1], k=5, known=True)
    assert len(answers) == 5
    scores = [answer["score"] for answer in answers]
    assert scores == sorted(scores, reverse=True)
    assert set(answers[0]) == {"entity", "label", "score", "chains"}
    with pytest.raises(sporran.InputError, match="Q-none"):
        scorer.complete("Q-none", kb[1])
    # The config of a training names the knowledge base and the model.
    (tmp_path / "runs/trained").mkdir(parents=True)
    (tmp_path / "runs/trained/model").symlink_to(root / "models/minikilt-kb")
    config = tmp_path / "links.toml"
    config.write_text(
        f"""workflow = "link-prediction"
name = "trained"
output = "{tmp_path / 'runs'}"
[data]
folder = "{root / 'examples/minikilt/kb'}"
[embedding]
model = "complex"
dim = 256
"""
    )
    assert sporran.TripleScorer(config).complete(kb[0], kb[1], k=5, known=True) == answers


def test_a_run_is_that_of_the_program(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    overrides = {"output": tmp_path / "runs", "then": []}
    report = sporran.run("configs/quickstart.toml", overrides, limit=5)
    assert len(report["tasks"]) == 11 and "mean" in str(report)
    task = "nq-dev-kilt.jsonl"
    guess = tmp_path / "runs/quickstart/predictions" / task
    gold = tmp_path / task
    lines = (root / "examples/minikilt/kilt" / task).read_text().splitlines()[:5]
    gold.write_text("\n".join(lines) + "\n")
    scores = sporran.evaluate.kilt(gold, guess)
    assert set(scores) == {"downstream", "kilt", "retrieval"}
    each = sporran.evaluate.kilt(gold, guess, per_record=True)["per_record"]
    assert len(each) == 5
    assert sum(row["f1"] for row in each.values()) / 5 == pytest.approx(scores["downstream"]["f1"])


def test_mistakes_of_a_config_are_listed(root, monkeypatch):
    monkeypatch.chdir(root)
    (mistake,) = sporran.check("configs/quickstart.toml", {"retriever.k3": 1})
    assert "k3" in mistake
    with pytest.raises(sporran.ConfigError, match="k3"):
        sporran.run("configs/quickstart.toml", {"retriever.k3": 1})


def test_an_exception_of_progress_ends_the_run(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)

    def stop(_event):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        sporran.run("configs/quickstart.toml", {"output": tmp_path, "then": []}, limit=5, progress=stop)
    # The lock of the run's folder is free again.
    sporran.run("configs/quickstart.toml", {"output": tmp_path, "then": []}, limit=5)


def test_control_c_ends_a_call(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    # A shell starts background processes with the signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        for number in range(100):
            sporran.run("configs/quickstart.toml", {"output": tmp_path / str(number), "then": []})
    timer.join()


def _search(_number):
    index = sporran.BM25.from_texts(TEXTS)
    return [hit.id for hit in index.search("dog")]


def test_threads_share_an_index():
    index = sporran.BM25.from_texts(TEXTS)
    expected = [hit.id for hit in index.search("dog")]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: [hit.id for hit in index.search("dog")], range(64)))
    assert found == [expected] * 64


def test_spawned_processes_work():
    expected = _search(0)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(_search, range(4)) == [expected] * 4


def test_a_fork_after_the_first_call_is_refused():
    _search(0)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        with pytest.raises(sporran.ForkError, match="spawn"):
            pool.map(_search, range(1))


def test_the_program_is_installed(root):
    program = Path(sys.executable).with_name("sporran")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.split()[1] == sporran.__version__
    wrong = subprocess.run([program, "run", "nowhere.toml"], capture_output=True, text=True, cwd=root)
    assert wrong.returncode == 2 and "nowhere.toml" in wrong.stderr
