"""Verbs in shards and the server on a Ray cluster of two nodes on this machine."""

import fcntl
import hashlib
import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")

import sporran  # noqa: E402
import sporran.ray as verbs  # noqa: E402
from sporran import _sporran  # noqa: E402
from sporran.ray.shards import _when_free  # noqa: E402

# Files that have times or the paths of the run in them.
UNEQUAL = {"manifest.json", "report.html", "lock", "config.toml"}


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def folder(root, tmp_path, monkeypatch):
    """The working folder, with the bundled data."""
    for name in ("examples", "configs", "models"):
        (tmp_path / name).symlink_to(root / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def hashes(folder):
    """The hash of each file of a folder whose bytes have to be equal."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in UNEQUAL)
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if not path.name.startswith(".")
    }


def command(*arguments):
    done = subprocess.run([sys.executable, "-m", "sporran", "-q", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def a_config(root, **source):
    lines = [f"{key} = {json.dumps(value)}" for key, value in source.items()]
    model = root / "crates/transformers/tests/data/encoders/sentence"
    retriever = ['[retriever]', 'kind = "hybrid"', '[[retriever.parts]]', 'kind = "bm25"']
    retriever += ['[[retriever.parts]]', 'kind = "dense"', f'model = "{model}"']
    with open("both.toml", "w") as file:
        file.write("\n".join(['workflow = "answer"', 'name = "both"', "[source]", *lines, *retriever]))
    return "both.toml"


def test_an_index_in_shards_has_the_bytes_of_the_whole(cluster, folder, root):
    config = a_config(root, path="examples/minikilt/knowledge_source.jsonl.gz")
    report = verbs.build_index(config, {"source.indexes": "parts"}, shards=3)
    command("index", config, "source.indexes=whole")
    whole = hashes(folder / "whole")
    assert len(whole) > 5 and hashes(folder / "parts") == whole
    assert report["pages"] == 2056 and "passages" in report.summary

    # The same call finds every part complete.
    stores = {path: path.stat().st_ino for path in (folder / "runs").glob("*.shard-*/store.*/*")}
    assert len(stores) >= 3
    again = verbs.build_index(config, {"source.indexes": "parts"}, shards=3)
    assert again["hash"] == report["hash"]
    assert {path: path.stat().st_ino for path in (folder / "runs").glob("*.shard-*/store.*/*")} == stores


def test_the_rows_of_a_dataset_are_the_source(cluster, folder, root):
    items = [{"id": str(at), "title": f"Page {at}", "text": f"The number {at} and é."} for at in range(3000)]
    dataset = ray.data.from_items(items, override_num_blocks=20)
    config = a_config(root, path="elsewhere.jsonl")
    report = verbs.build_index(
        config, {"source.indexes": "parts"}, shards=2, source=dataset, source_file="data/rows.jsonl"
    )
    assert [json.loads(line) for line in open("data/rows.jsonl", encoding="utf-8")] == items
    assert report["pages"] == 3000
    command("index", config, "source.path=data/rows.jsonl", "source.indexes=whole")
    assert hashes(folder / "parts") == hashes(folder / "whole")

    # The dataset first.
    report = verbs.build_index(dataset, config, {"source.indexes": "again"}, shards=2)
    assert report["pages"] == 3000
    assert (folder / "both.source.jsonl").read_bytes() == (folder / "data/rows.jsonl").read_bytes()
    for wrong, message in [((dataset,), "after the dataset"), ((3, config), "or a dataset before it"), ((config, {}, {}), "found two")]:
        with pytest.raises(sporran.InputError, match=message):
            verbs.build_index(*wrong, shards=2)

    with pytest.raises(sporran.InputError, match="row 2 of the dataset: a value of type bytes"):
        rows = ray.data.from_items([{"text": b"1", "at": 1}, {"text": b"2", "at": 2}]).map(
            lambda row: {"text": row["text"] if row["at"] == 2 else None}
        )
        verbs.build_index(config, shards=2, source=rows, source_file="data/rows.jsonl")
    assert [path.name for path in (folder / "data").iterdir()] == ["rows.jsonl"]
    assert sum(1 for _ in open("data/rows.jsonl")) == 3000


def test_runs_and_facts_in_shards(cluster, folder):
    report = verbs.run("configs/quickstart.toml", {"then": []}, shards=3, limit=10)
    command("run", "configs/quickstart.toml", "then=[]", "tasks.limit=10", "output=whole", "source.indexes=others")
    assert hashes(folder / "runs/quickstart") == hashes(folder / "whole/quickstart")
    assert len(report["tasks"]) == 11

    verbs.populate("configs/quickstart-kbp.toml", shards=2)
    command("populate", "configs/quickstart-kbp.toml", "output=whole")
    found = hashes(folder / "runs/quickstart-kbp")
    assert any(name.startswith("triples") for name in found)
    assert found == hashes(folder / "whole/quickstart-kbp")


def test_a_wrong_config_is_an_error(cluster, folder):
    with pytest.raises(sporran.ConfigError, match="k1"):
        verbs.build_index("configs/quickstart.toml", {"retriever.k1": -1}, shards=2)
    with pytest.raises(sporran.InputError, match="expected at least 1, found 0"):
        verbs.build_index("configs/quickstart.toml", shards=0)
    with pytest.raises(sporran.ConfigError, match="does not apply"):
        verbs.build_index("configs/quickstart-kbp.toml", shards=2)


def test_a_shard_waits_for_a_process_that_ends(folder, root):
    config = a_config(root, path="examples/minikilt/knowledge_source.jsonl.gz")
    lock = folder / "runs/both-index.shard-0-of-2/work/lock"
    lock.parent.mkdir(parents=True)

    def shard():
        return _sporran.shard("index", config, [], 0, 2)

    with open(lock, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(sporran.BusyError, match="both-index.shard-0-of-2"):
            shard()
        threading.Timer(0.3, lambda: fcntl.flock(held, fcntl.LOCK_UN)).start()
        assert _when_free(shard) == Path("runs/both-index.shard-0-of-2")
    with pytest.raises(sporran.InputError, match="found 2 of 2"):
        _sporran.shard("index", config, [], 2, 2)
    with pytest.raises(sporran.InputError, match="expected index, run or populate, found train"):
        _sporran.shard("train", config, [], 0, 2)


def test_a_node_that_is_killed_costs_no_byte(folder, root):
    with open("pages.jsonl", "w") as file:
        for at in range(30_000):
            words = " ".join(f"word{(at * step) % 997}" for step in range(1, 40))
            file.write(json.dumps({"wikipedia_id": str(at), "wikipedia_title": f"T{at}", "text": [f"T{at}", words]}))
            file.write("\n")
    script = [sys.executable, str(root / "scripts/ray-test"), "pages.jsonl"]
    done = subprocess.run(script, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\ninterrupted and done again: " in done.stdout and "\nsame: " in done.stdout


def get(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers["content-type"], answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["content-type"], error.read()


def test_replicas_answer_as_the_server(cluster, folder, root):
    pytest.importorskip("ray.serve")
    from ray import serve

    (folder / "notes").mkdir()
    (folder / "notes/tea.md").write_text("# Tea\n\nTea is a hot drink.\n")
    (folder / "notes/sea.md").write_text("# Sea\n\nWhales sing in the sea.\n")
    encoder = root / "crates/transformers/tests/data/encoders/sentence"
    chat = {"model": "quickstart", "stream": True, "messages": [{"role": "user", "content": "Who wrote the song?"}]}
    requests = [
        ("/v1/notes/search?query=drink%20tea&hits=1", None),
        ("/v1/notes/doc/tea.md%231", None),
        ("/v1/mounts", None),
        ("/embed", {"inputs": ["the cat sat", "a dog ran"]}),
        ("/embed", {"inputs": 7}),
        ("/v1/chat/completions", chat),
        ("/", None),
    ]
    arguments = ["serve", "notes", "configs/quickstart.toml", f"--embed={encoder}", "--port", "0"]
    direct = subprocess.Popen(
        [sys.executable, "-m", "sporran._child", *arguments],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for line in direct.stderr:
            if "listening on " in line:
                address = line.split("listening on ")[1].strip()
                break
        expected = [get(address + path, body) for path, body in requests]
    finally:
        direct.stdin.close()
        assert direct.wait(20) is not None
    with pytest.raises(sporran.InputError, match="port: expected the options of Ray Serve"):
        verbs.serve("notes", port=8080)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(proxy_location="HeadOnly", http_options={"port": port})
    verbs.serve("notes", "configs/quickstart.toml", embed=encoder, replicas=2, route_prefix="/sporran")
    try:
        # The proxy learns the routes a moment after the replicas have started.
        until = time.monotonic() + 60
        while get(f"http://127.0.0.1:{port}/sporran/health")[0] != 200:
            assert time.monotonic() < until
            time.sleep(0.1)
        for _ in range(3):
            found = [get(f"http://127.0.0.1:{port}/sporran{path}", body) for path, body in requests]
            assert [_plain(answer) for answer in found] == [_plain(answer) for answer in expected]
        assert expected[0][0] == 200 and expected[4][0] in (400, 422)
        assert len(servers(folder)) == 2
    finally:
        serve.shutdown()
    assert ends(lambda: not servers(folder))


def servers(folder):
    """The processes of servers in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"sporran._child" in (process / "cmdline").read_bytes() and (process / "cwd").readlink() == folder:
                found.append(process.name)
        except OSError:
            continue
    return found


def ends(condition):
    """Whether a condition holds within 20 seconds."""
    until = time.monotonic() + 20
    while not condition() and time.monotonic() < until:
        time.sleep(0.1)
    return condition()


def test_a_server_ends_with_its_replica(folder):
    (folder / "tea.md").write_text("# Tea\n\nTea is a hot drink.\n")
    code = "import os, signal, sys; from sporran.ray.serving import _Server; server = _Server(['tea.md'], sys.argv[1], 1); "
    kill = "print(server.address); sys.stdout.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    done = subprocess.run([sys.executable, "-c", code + kill, folder], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("http://127.0.0.1:"), done.stderr
    assert ends(lambda: not servers(folder))

    wrong = "import sys; from sporran.ray.serving import _Server; _Server(['absent'], sys.argv[1], 1)"
    done = subprocess.run([sys.executable, "-c", wrong, folder], capture_output=True, text=True, timeout=60)
    assert "WorkError: sporran serve ended: " in done.stderr and "absent" in done.stderr


def _plain(answer):
    """An answer without the id and the times of a chat. The texts of a stream are joined: where it is cut depends on the time."""
    status, kind, body = answer
    body = re.sub(rb'"(id|created|seconds)":("[^"]*"|[\d.e-]+)', b"", body)
    texts = re.findall(rb'"delta":\{"content":"([^"]*)"', body)
    others = [event for event in body.split(b"\n\n") if b'"delta":{"content":' not in event]
    return status, kind, b"".join(texts), others
