"""Builds the store and the indexes of a whole Wikipedia on one machine, and compares them with the program's estimate.

    python benches/full_size.py --program target/release/sporran --folder DIR [--pages 5900000] [--vectors 64 [--vectors-only]]

The pages are synthetic, from seed 1: words `w0` to `w99999`, of which the n-th is about n times as rare as the first, 321 words a page
on average in six paragraphs, which makes 22 million passages of at most 100 words from 5.9 million pages. With `--vectors D`, as many
vectors of D values around 4,096 centres are indexed by the Python package (`sporran`) in int8 and by product quantisation. Prints
a row a step: elapsed and CPU seconds, disk, and the peak of anonymous memory. What is in DIR already is not made again. Needs numpy
and zstd; DIR needs about 30 GB.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import threading
import time

import numpy

PARAGRAPHS = 6
QUERIES = 1000
CONFIG = """workflow = "answer"
name = "{name}"
output = "{folder}/runs"
[source]
path = "{folder}/pages.jsonl.zst"
indexes = "{folder}/indexes"
[tasks]
files = ["{folder}/queries.jsonl"]
[retriever]
kind = "{kind}"
"""
INDEX = """
import sys
import numpy, sporran
vectors = numpy.load(sys.argv[1], mmap_mode="r")
options = {"int8": {"kind": "flat", "storage": "int8"}, "pq": {"kind": "pq"}}[sys.argv[2]]
print(len(sporran.DenseIndex.build(vectors, path=sys.argv[3], **options)))
"""


def ranks(random, count):
    """Numbers of words; that of the n-th is about 1/n as frequent as that of the first."""
    return (100_000.0 ** random.random(count, dtype=numpy.float32) - 1).astype(numpy.int32)


def make_source(folder, pages):
    """Writes the pages, and queries of eight rarer words each."""
    random = numpy.random.default_rng(1)
    words = numpy.array([f"w{number}" for number in range(100_000)], dtype=object)
    target = folder / "pages.jsonl.zst"
    unfinished = folder / "pages.unfinished"
    with unfinished.open("wb") as file:
        packer = subprocess.Popen(["zstd", "-1", "-q", "-T1"], stdin=subprocess.PIPE, stdout=file)
        for first in range(0, pages, 2000):
            count = min(2000, pages - first)
            lengths = random.integers(28, 80, count * PARAGRAPHS)
            ends = numpy.cumsum(lengths)
            drawn = words[ranks(random, int(ends[-1]))].tolist()
            paragraphs = [" ".join(drawn[end - length : end]) for end, length in zip(ends.tolist(), lengths.tolist())]
            lines = []
            for page in range(count):
                text = '","'.join(paragraphs[page * PARAGRAPHS : (page + 1) * PARAGRAPHS])
                number = first + page
                lines.append(
                    f'{{"wikipedia_id":"{number}","wikipedia_title":"Page {number}","text":["Page {number}","{text}"]}}\n'
                )
            packer.stdin.write("".join(lines).encode())
        packer.stdin.close()
        if packer.wait() != 0:
            sys.exit("error: zstd failed")
    unfinished.rename(target)
    with (folder / "queries.jsonl").open("w") as file:
        for number in range(QUERIES):
            query = " ".join(words[numpy.minimum(ranks(random, 8) + 50, 99_999)].tolist())
            file.write(json.dumps({"id": str(number), "input": query}) + "\n")


def make_vectors(path, count, values):
    random = numpy.random.default_rng(2)
    centres = random.standard_normal((4096, values), dtype=numpy.float32)
    vectors = numpy.lib.format.open_memmap(path, "w+", numpy.float32, (count, values))
    for first in range(0, count, 1 << 18):
        part = min(1 << 18, count - first)
        near = centres[random.integers(0, 4096, part)]
        near += 0.3 * random.standard_normal((part, values), dtype=numpy.float32)
        vectors[first : first + part] = near
    vectors.flush()


def size(path):
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_blocks * 512 for file in files if file.is_file())


def measured(command):
    """Runs a command. Gives its output, elapsed seconds, CPU seconds, and the peak of its anonymous memory in MiB."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peak, cpu = 0, 0.0

    def watch():
        nonlocal peak, cpu
        while process.poll() is None:
            try:
                status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
                fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            except (OSError, IndexError):
                break
            found = re.search(r"RssAnon:\s+(\d+) kB", status)
            peak = max(peak, int(found[1]) if found else 0)
            cpu = (int(fields[11]) + int(fields[12])) / 100
            time.sleep(0.1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, errors = process.communicate()
    watcher.join()
    if process.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, command))}: {errors}")
    return output + errors, time.perf_counter() - start, cpu, peak / 1024


def row(step, timed, disk):
    _, elapsed, cpu, memory = timed
    print(f"| {step} | {elapsed:.0f} | {cpu:.0f} | {disk / 1e9:.2f} | {memory:.0f} |", flush=True)


def index_pages(program, folder, pages):
    """Builds and measures the store, the indexes of words and names, and a retrieval."""
    if not (folder / "pages.jsonl.zst").exists():
        make_source(folder, pages)
    indexes = folder / "indexes"
    for kind in ["bm25", "entity"]:
        config = folder / f"{kind}.toml"
        config.write_text(CONFIG.format(name=f"full-size-{kind}", folder=folder, kind=kind))
        plan = measured([program, "index", str(config), "--plan"])
        print(plan[0].strip(), file=sys.stderr)
        row(f"estimate of `{kind}`", plan, 0)
        before = size(indexes) if indexes.exists() else 0
        built = measured([program, "-v", "index", str(config)])
        print(built[0].strip(), file=sys.stderr)
        row(f"store and `{kind}`" if before == 0 else f"`{kind}`", built, size(indexes) - before)
    found = measured([program, "retrieve", str(folder / "bm25.toml")])
    print(found[0].strip(), file=sys.stderr)
    row(f"{QUERIES} queries", found, size(folder / "runs"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", help="the binary; needed for pages")
    parser.add_argument("--folder", required=True, type=pathlib.Path)
    parser.add_argument("--pages", type=int, default=5_900_000)
    parser.add_argument("--vectors", type=int, default=0, help="values of a vector; none without it")
    parser.add_argument("--vectors-only", action="store_true", help="no pages")
    arguments = parser.parse_args()
    if arguments.program is None and not arguments.vectors_only:
        parser.error("--program is needed for pages")
    if arguments.vectors_only and not arguments.vectors:
        parser.error("--vectors-only needs --vectors")
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    print("| step | elapsed s | CPU s | disk, GB | anonymous memory, MiB |\n|---|---:|---:|---:|---:|")
    if not arguments.vectors_only:
        index_pages(arguments.program, folder, arguments.pages)
    if arguments.vectors:
        path = folder / "vectors.npy"
        if not path.exists():
            passages = int(arguments.pages * 3.73)
            make_vectors(path, passages, arguments.vectors)
        for kind in ["int8", "pq"]:
            target = folder / f"vectors-{kind}"
            row(f"vectors, {kind}", measured([sys.executable, "-c", INDEX, str(path), kind, str(target)]), size(target))


if __name__ == "__main__":
    main()
