"""The clients that people use, against `sporran serve` over loopback. `scripts/serve-clients` runs this file."""

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import cohere
import numpy
import openai
import pytest
import requests
from huggingface_hub import InferenceClient
from openapi_spec_validator import validate
from prometheus_client.openmetrics.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[4]
FIXTURES = ROOT / "crates/transformers/tests/data/encoders"
PROGRAM = os.environ["SPORRAN"]
TEXTS = ["who wrote the song", "the band wrote the song", "capital of the country"]
QUESTION = "Where was Oberlin born?"
PAGES = [
    {"wikipedia_id": "1", "wikipedia_title": "Mira Oberlin", "text": ["Mira Oberlin", "Oberlin was born in Leipzig.", "She built bridges."]},
    {"wikipedia_id": "2", "wikipedia_title": "Tea", "text": ["Tea", "Tea is a drink of leaves and hot water."]},
]


class Server:
    """A server in a process of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        environment = {**os.environ, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "XDG_CONFIG_HOME": str(folder / "config")}
        self.process = subprocess.Popen(
            [PROGRAM, "serve", *arguments, "--port", "0"], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        for line in self.process.stderr:
            self.lines.append(line)
            if line.startswith("listening on "):
                self.url = line.split()[-1]
                break
        else:
            raise AssertionError("".join(self.lines))
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr))
        self.reader.start()

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(60)
        self.reader.join()
        return code


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    pages = folder / "pages.jsonl"
    pages.write_text("".join(json.dumps(page) + "\n" for page in PAGES))
    served = Server(
        folder, str(pages), "configs/quickstart-kbp.toml", "--model", "models/minikilt-reader", "--max-new-tokens", "8",
        "--embed", str(FIXTURES / "sentence"), "--rerank", str(FIXTURES / "bert-sequence"), "--classify", str(FIXTURES / "roberta-sequence"),
    )  # fmt: skip
    yield served
    assert served.end() == 0, "".join(served.lines)


def program(*arguments: str, lines: list[str]) -> list[dict]:
    output = subprocess.run([PROGRAM, *arguments, "--json"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    return [json.loads(line) for line in output.stdout.splitlines()]


def test_hugging_face_embeds_at_the_bare_address(server):
    client = InferenceClient(model=server.url)
    expected = [row["vector"] for row in program("embed", "--model", str(FIXTURES / "sentence"), lines=TEXTS)]
    for text, vector in zip(TEXTS, expected):
        found = numpy.asarray(client.feature_extraction(text))
        assert numpy.allclose(found[0], vector, atol=1e-5)
    scores = client.sentence_similarity(TEXTS[0], other_sentences=TEXTS[:2])
    assert abs(scores[0] - 1) < 1e-5 and scores[1] < 1


def test_openai_embeds(server):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
    expected = [row["vector"] for row in program("embed", "--model", str(FIXTURES / "sentence"), lines=TEXTS)]
    # The client asks for base64 unless it is told otherwise.
    for options in [{}, {"encoding_format": "float"}]:
        found = client.embeddings.create(model="sentence", input=TEXTS, **options)
        assert numpy.allclose([data.embedding for data in found.data], expected, atol=1e-5)
    assert found.usage.prompt_tokens > 3
    assert len(client.embeddings.create(model="sentence", input="a", dimensions=4).data[0].embedding) == 4
    with pytest.raises(openai.BadRequestError) as error:
        client.embeddings.create(model="sentence", input="a", dimensions=4000)
    assert error.value.body["param"] == "dimensions"


def test_openai_chats_over_the_index_and_with_the_bare_model(server):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
    assert {"pages.jsonl", "sentence"} <= {model.id for model in client.models.list()}
    messages = [{"role": "user", "content": QUESTION}]
    found = client.chat.completions.create(model="pages.jsonl", messages=messages)
    answer = requests.post(f"{server.url}/v1/answer", json={"question": QUESTION}).json()
    assert found.choices[0].message.content == answer["answer"]
    assert found.citations == answer["provenance"] and found.usage.completion_tokens > 0
    parts = list(client.chat.completions.create(model="pages.jsonl", messages=messages, stream=True, stream_options={"include_usage": True}))
    text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert text and parts[-1].usage.completion_tokens > 0
    assert [part for part in parts if getattr(part, "citations", None)][0].citations[0]["title"] == "Mira Oberlin"
    bare = client.completions.create(model="pages.jsonl", prompt="Where?", max_tokens=3, temperature=0, extra_body={"sporran": {"retrieve": False}})
    assert bare.usage.completion_tokens <= 3 and bare.choices[0].citations is None
    streamed = client.completions.create(model="pages.jsonl", prompt=QUESTION, stream=True)
    assert "".join(part.choices[0].text for part in streamed)
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-4o", messages=messages)


def test_cohere_reranks(server):
    client = cohere.ClientV2(api_key="none", base_url=server.url)
    found = client.rerank(model="any", query=TEXTS[0], documents=TEXTS, top_n=2)
    line = json.dumps({"query": TEXTS[0], "passages": TEXTS})
    scores = program("rerank", "--model", str(FIXTURES / "bert-sequence"), lines=[line])[0]["scores"]
    order = sorted(range(3), key=lambda at: -scores[at])
    assert [result.index for result in found.results] == order[:2]
    assert abs(found.results[0].relevance_score - scores[order[0]]) < 1e-5
    jina = requests.post(f"{server.url}/v1/rerank", json={"model": "any", "query": TEXTS[0], "documents": TEXTS}).json()
    assert [result["index"] for result in jina["results"]] == order
    tei = requests.post(f"{server.url}/rerank", json={"query": TEXTS[0], "texts": TEXTS}).json()
    assert [rank["index"] for rank in tei] == order


def test_plain_requests_classify_tokenize_and_search(server):
    post = lambda path, **body: requests.post(f"{server.url}{path}", json=body).json()
    labels = post("/predict", inputs=TEXTS[0])
    assert abs(sum(label["score"] for label in labels) - 1) < 1e-5
    tokens = post("/tokenize", inputs=TEXTS[0])[0]
    assert [token["text"] for token in tokens if not token["special"]] == TEXTS[0].split()
    info = requests.get(f"{server.url}/info").json()
    assert info["model_id"] == "sentence" and "embedding" in info["model_type"]
    search = requests.get(f"{server.url}/v1/pages.jsonl/search", params={"query": "tea leaves", "hits": 1}).json()
    best = search["candidates"][0]
    document = requests.get(f"{server.url}/v1/pages.jsonl/doc/{requests.utils.quote(best['docid'], safe='')}").json()
    assert document["doc"]["contents"] == best["doc"]["contents"]
    # As the training of Search-R1 asks.
    result = post("/retrieve", queries=["tea", QUESTION], topk=1, return_scores=True)["result"]
    assert [hits[0]["document"]["contents"].split("\n")[0] for hits in result] == ["Tea", "Mira Oberlin"]


def test_facts_have_spans_in_the_text(server):
    text = "Ada Lovelace was born in London. She married William King."
    results = requests.post(f"{server.url}/v1/facts", json={"text": text}).json()["results"]
    facts = results[0]["facts"]
    assert facts
    for fact in facts:
        for end in ("subject", "object"):
            mention = fact[end]["mention"]
            assert text[mention["start"] : mention["end"]] == mention["text"]


def test_the_description_and_the_metrics_are_valid(server):
    validate(requests.get(f"{server.url}/openapi.json").json())
    families = {family.name for family in text_string_to_metric_families(requests.get(f"{server.url}/metrics").text)}
    assert {"sporran_requests", "sporran_request_seconds", "sporran_waiting_tokens"} <= families


def test_a_key_is_needed_by_every_client(tmp_path):
    key = tmp_path / "key"
    key.write_text("0123456789abcdef\n")
    served = Server(tmp_path, "--embed", str(FIXTURES / "sentence"), "--api-key-file", str(key))
    try:
        client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="0123456789abcdef")
        assert client.embeddings.create(model="any", input="a").data
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"{served.url}/v1", api_key="wrong").embeddings.create(model="any", input="a")
        assert numpy.asarray(InferenceClient(model=served.url, token="0123456789abcdef").feature_extraction("a")).size
    finally:
        assert served.end(signal.SIGINT) == 0
    assert not any("0123456789abcdef" in line for line in served.lines)


def test_what_was_begun_is_answered_when_the_process_is_told_to_end(tmp_path):
    served = Server(tmp_path, "--embed", str(FIXTURES / "sentence"))
    statuses: list[object] = []
    stop = threading.Event()

    def call() -> None:
        while not stop.is_set():
            try:
                statuses.append(requests.post(f"{served.url}/embed", json={"inputs": TEXTS * 20}, timeout=30).status_code)
            except requests.ConnectionError as error:
                # No connection is taken after the end; one that was taken is answered.
                assert "Connection refused" in str(error) or "reset" in str(error), error
                return

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    code = served.end()
    stop.set()
    for thread in threads:
        thread.join()
    assert code == 0 and len(statuses) > 8 and set(statuses) == {200}
