"""Tests the Model Context Protocol of sporran with the official Python SDK, over standard input and output and over HTTP.

`scripts/mcp-test` makes the environment and calls this file.
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import re
import subprocess
import tempfile

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

# The way to begin of clients before and since the protocol of 2026-07-28.
MODES = ["legacy", "auto"]

ROOT = pathlib.Path(__file__).resolve().parents[3]
NOTES = {
    "kilt.md": "# The kilt\n\nA kilt is a garment of Scotland.\n\n## The sporran\n\nThe sporran is a pouch that is worn with the kilt.\n",
    "tea.md": "# Tea\n\nTea from Çay is a hot drink. People drink it in the morning.\n",
}


def prepare(program, folder):
    """Makes documents and a run in a folder; the arguments of the server."""
    notes = folder / "notes"
    notes.mkdir()
    for name, text in NOTES.items():
        (notes / name).write_text(text)
    tasks = folder / "nq-dev-kilt.jsonl"
    gold = {"id": "1", "input": "What is worn with the kilt?", "output": [{"answer": "sporran", "provenance": [{"wikipedia_id": "kilt.md"}]}]}
    tasks.write_text(json.dumps(gold) + "\n")
    config = folder / "found.toml"
    config.write_text(
        f'workflow = "answer"\nname = "found"\noutput = "{folder}"\n[source]\npath = "{notes}"\nindexes = "{folder}/indexes"\n'
        f'[tasks]\nfiles = ["{tasks}"]\n[retriever]\nkind = "bm25"\n'
    )
    subprocess.run([program, "run", config], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    facts = ROOT / "configs/quickstart-kbp.toml"
    return [str(notes), str(facts), "--run", f"found={folder / 'found'}"]


async def use(session, how):
    """What an agent does with the server, and what it does wrong."""
    assert session.server_info.name == "sporran", session.server_info
    assert "search" in session.instructions

    tools = {tool.name: tool for tool in (await session.list_tools()).tools}
    assert set(tools) == {"search", "get_document", "answer", "extract_facts", "evaluate_run"}, set(tools)
    assert all(tool.annotations.read_only_hint and tool.output_schema for tool in tools.values())
    assert "`notes` (2 documents)" in tools["search"].description, tools["search"].description
    assert "`found`" in tools["evaluate_run"].description

    async def call(name, **arguments):
        result = await session.call_tool(name, arguments)
        assert not result.is_error, result.content
        # The text is the same as the structured content, for clients that know only texts.
        assert json.loads(result.content[0].text) == result.structured_content
        return result.structured_content

    async def refused(name, **arguments):
        result = await session.call_tool(name, arguments)
        assert result.is_error, result
        return result.content[0].text

    found = await call("search", query="pouch worn with the kilt", hits=3)
    best = found["candidates"][0]
    assert "pouch" in best["doc"]["contents"], found
    whole = await call("get_document", id=best["doc"]["document"])
    passage = await call("get_document", id=best["docid"])
    assert passage["doc"]["contents"] == best["doc"]["contents"]
    # The place of the passage leads to its text in the document.
    doc = passage["doc"]
    paragraph = whole["doc"]["paragraphs"][doc["end_paragraph"]]
    assert paragraph[: doc["end"]].endswith("worn with the kilt."), (paragraph, doc)

    answer = await call("answer", question="Where does tea come from?", top=1)
    assert not answer["is_generated"] and len(answer["provenance"]) == 1
    item = answer["provenance"][0]
    start, end = item["highlight"]
    assert "Çay" in item["text"][start:end], item

    text = "The salary of J. M. Coetzee was paid by the University of Chicago and Harvard University."
    facts = (await call("extract_facts", text=text))["results"][0]["facts"]
    assert any(fact["property"] == "EMPLOYEE_OR_MEMBER_OF" for fact in facts), facts

    run = await call("evaluate_run", run="found")
    scores = run["files"][0]["scores"]
    assert scores["Rprec"]["mean"] == scores["Rprec"]["low"] == 1.0, scores

    assert "expected 1 to 100, found 1000" in await refused("search", query="tea", hits=1000)
    assert "no index `/etc`" in await refused("search", query="tea", index="/etc")
    assert "unknown field `path`" in await refused("get_document", id="x", path="/etc/passwd")
    assert "no document `../../etc/passwd`" in await refused("get_document", id="../../etc/passwd")
    assert "no run `/tmp`" in await refused("evaluate_run", run="/tmp")
    assert "question" in await refused("answer", question="  ")
    assert "question" in await refused("answer")
    try:
        await session.call_tool("delete", {})
    except MCPError as error:
        assert "no tool `delete`" in str(error), error
    else:
        raise AssertionError("a tool that does not exist was called")

    resources = (await session.list_resources()).resources
    assert len(resources) == 2, resources
    text = (await session.read_resource(resources[0].uri)).contents[0].text
    # The paragraphs of the document without its headings' signs, with empty lines between.
    parts = text.split("\n\n")
    assert parts[-1] == "The sporran is a pouch that is worn with the kilt." and "A kilt is a garment of Scotland." in parts, text
    assert (await session.list_resource_templates()).resource_templates[0].uri_template == "sporran://{index}/{id}"
    for wrong in ("file:///etc/passwd", "sporran://notes/none.md", "sporran://other/kilt.md"):
        try:
            await session.read_resource(wrong)
        except MCPError as error:
            assert "there is no" in str(error), error
        else:
            raise AssertionError(f"{wrong} was read")
    # Requests at the same time are answered each by its own.
    words = ["kilt", "tea", "pouch", "drink"] * 4
    results = await asyncio.gather(*(session.call_tool("search", {"query": word}) for word in words))
    for word, result in zip(words, results):
        assert result.structured_content["query"]["text"] == word
    print(f"ok {how}, protocol {session.protocol_version}")


async def over_stdio(program, arguments):
    # The client passes only a few variables on by itself, and not those of the folders of indexes and configs.
    parameters = StdioServerParameters(command=program, args=["mcp", *arguments], cwd=ROOT, env=dict(os.environ))
    for mode in MODES:
        async with Client(parameters, mode=mode) as session:
            await use(session, "standard input and output")


async def over_http(address, key=None):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    for mode in MODES:
        async with httpx2.AsyncClient(headers=headers, timeout=30) as client:
            transport = streamable_http_client(f"{address}/mcp", http_client=client)
            async with Client(transport, mode=mode) as session:
                await use(session, "HTTP with a key" if key else "HTTP")


@contextlib.contextmanager
def server(program, arguments):
    """A server on a free port; its address."""
    process = subprocess.Popen([program, "serve", *arguments, "--port", "0"], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(r"listening on (http://\S+)", line):
                break
        else:
            raise SystemExit(f"error: the server ended before it listened:\n{''.join(lines)}")
        yield found.group(1)
    finally:
        process.terminate()
        process.communicate(timeout=30)


def only_the_protocol(program, arguments):
    """Standard output has one message a line and nothing else, and the program ends with its input."""
    initialize = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    process = subprocess.Popen([program, "mcp", *arguments], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for message in messages:
        process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()
    answers = [json.loads(process.stdout.readline()) for _ in range(2)]
    assert [answer["id"] for answer in answers] == [1, 2], answers
    rest, _ = process.communicate(timeout=30)
    assert rest == "" and process.returncode == 0, (rest, process.returncode)
    print("ok only the protocol")


def wrong_lines(program, arguments):
    """Lines that are no requests have the answers of JSON-RPC, and the server goes on."""
    process = subprocess.Popen([program, "mcp", *arguments], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    call = {"jsonrpc": "2.0", "id": 9, "method": "tools/call"}
    initialize = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    for text, code, id in [
        ("hello", -32700, None),
        ('{"jsonrpc": "2.0", "id": 1,', -32700, None),
        ("[]", -32600, None),
        ('{"jsonrpc": "2.0", "id": 4}', -32600, 4),
        (json.dumps({"jsonrpc": "2.0", "id": 5, "method": "initialize", "params": initialize}), None, 5),
        ("{", -32700, None),
        (json.dumps({**call, "params": 3}), -32600, 9),
        (json.dumps({**call, "params": {}}), -32602, 9),
        (json.dumps({**call, "params": {"name": "none"}}), -32602, 9),
        (json.dumps({**call, "method": "none"}), -32601, 9),
    ]:
        process.stdin.write(text + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        assert (answer.get("error", {}).get("code"), answer.get("id")) == (code, id), (text, answer)
    rest, _ = process.communicate(timeout=30)
    assert rest == "" and process.returncode == 0, (rest, process.returncode)
    print("ok wrong lines")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="the program sporran")
    program = parser.parse_args().program
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        arguments = prepare(program, folder)
        only_the_protocol(program, arguments)
        wrong_lines(program, arguments)
        asyncio.run(over_stdio(program, arguments))
        with server(program, arguments) as address:
            asyncio.run(over_http(address))
        key = "0123456789abcdef0123"
        (folder / "key").write_text(key)
        with server(program, [*arguments, "--api-key-file", str(folder / "key")]) as address:
            asyncio.run(over_http(address, key))
            refused = httpx2.post(f"{address}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
            assert refused.status_code == 401, refused.status_code


if __name__ == "__main__":
    main()
