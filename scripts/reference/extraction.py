"""Named entities by spaCy's en_core_web_sm without the rest of its pipeline: the peer of benches/extraction.rs.

Usage: extraction.py PAGES PROCESSES. PAGES has KILT's layout. Prints the seconds of a run after a warm-up, and the number of
names.
"""

import json
import sys
import time

import en_core_web_sm


def main():
    path, processes = sys.argv[1], int(sys.argv[2])
    with open(path, encoding="utf-8") as lines:
        texts = ["\n\n".join(part.strip() for part in json.loads(line)["text"][1:]) for line in lines]
    pipeline = en_core_web_sm.load()
    others = [name for name in pipeline.pipe_names if name != "ner"]
    with pipeline.disable_pipes(*others):
        found = sum(len(document.ents) for document in pipeline.pipe(texts[:64]))
        start = time.perf_counter()
        found = sum(
            len(document.ents) for document in pipeline.pipe(texts, batch_size=128, n_process=processes)
        )
        print(json.dumps({"seconds": time.perf_counter() - start, "names": found}))


if __name__ == "__main__":
    main()
