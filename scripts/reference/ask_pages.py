"""Asks KILT's questions about a folder of Markdown files, one for each page, as `sporran ask` does.

    python scripts/reference/ask_pages.py --pages knowledge_source.jsonl.gz --tasks hotpotqa.jsonl \\
        --folder wiki --program sporran [-- --embed MODEL]

Writes a file `NN/ID.md` for each page, and the questions with the files as their pages, then runs the config of
`sporran ask FOLDER --show-config` over the questions. Options after `--` go to `sporran ask`, such as `--embed`, and
`key=value` overrides to `sporran retrieve`.
"""

import argparse
import gzip
import json
import subprocess
import time
from pathlib import Path


def files(pages, folder):
    """Writes the pages as Markdown; returns the path of each page in the folder."""
    names = {}
    opened = gzip.open if pages.suffix == ".gz" else open
    with opened(pages, "rt", encoding="utf-8") as lines:
        for line in lines:
            page = json.loads(line)
            name = f"{len(names) % 100:02}/{page['wikipedia_id']}.md"
            names[str(page["wikipedia_id"])] = name
            path = folder / name
            if path.exists():
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            # The first paragraph repeats the title.
            text = "\n\n".join(paragraph.strip() for paragraph in page["text"][1:])
            path.write_text(f"# {page['wikipedia_title'].strip()}\n\n{text}\n", encoding="utf-8")
    return names


def questions(tasks, names, output):
    """Writes the questions with the files as their gold pages."""
    count = 0
    with open(tasks, encoding="utf-8") as lines, open(output, "w", encoding="utf-8") as out:
        for line in lines:
            record = json.loads(line)
            outputs = []
            for one in record["output"]:
                gold = list(dict.fromkeys(str(item["wikipedia_id"]) for item in one.get("provenance", [])))
                if gold and all(page in names for page in gold):
                    kept = {"provenance": [{"wikipedia_id": names[page]} for page in gold]}
                    if "answer" in one:
                        kept["answer"] = one["answer"]
                    outputs.append(kept)
            if outputs:
                out.write(json.dumps({"id": record["id"], "input": record["input"], "output": outputs}) + "\n")
                count += 1
    return count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pages", type=Path, required=True)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--program", default="sporran")
    parser.add_argument("--verb", default="retrieve", choices=["retrieve", "run"])
    parser.add_argument("rest", nargs="*")
    arguments = parser.parse_args()
    names = files(arguments.pages, arguments.folder)
    tasks = arguments.folder.with_suffix(".questions.jsonl")
    print(f"{len(names)} files, {questions(arguments.tasks, names, tasks)} questions")
    overrides = [word for word in arguments.rest if "=" in word and not word.startswith("-")]
    options = [word for word in arguments.rest if word not in overrides]
    shown = subprocess.run(
        [arguments.program, "ask", arguments.folder, "--show-config", *options],
        check=True, capture_output=True, text=True,
    ).stdout
    config = arguments.folder.with_suffix(".toml")
    config.write_text(shown, encoding="utf-8")
    start = time.time()
    call = [arguments.program, arguments.verb, config, f'tasks.files=["{tasks}"]', *overrides]
    print(subprocess.run(call, check=True, capture_output=True, text=True).stdout, end="")
    print(f"{time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
