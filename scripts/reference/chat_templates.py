"""Renders the conversations of crates/checkpoint/tests/data/chat/templates.json with `transformers` and writes the results.

    pip install transformers jinja2
    chat_templates.py [templates.json]

Each case gets the output of `apply_chat_template`, or the error that the template raises. The date for templates is 26 July
2024, as in Sporran.
"""

import datetime
import json
import pathlib
import sys

import transformers.utils.chat_template_utils as rendering


class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26)


def main(path):
    rendering.datetime = Fixed
    fixtures = json.loads(path.read_text(encoding="utf8"))
    for case in fixtures["cases"]:
        template = fixtures["templates"][case["template"]]
        case.pop("expected", None)
        case.pop("error", None)
        try:
            texts, _ = rendering.render_jinja_template(
                conversations=[[{"role": role, "content": content} for role, content in case["messages"]]],
                chat_template=template["text"],
                add_generation_prompt=case["add_generation_prompt"],
                tools=None,
                documents=None,
                **template["tokens"],
            )
            case["expected"] = texts[0]
        except Exception as error:
            case["error"] = str(error)
    path.write_text(json.dumps(fixtures, indent=1, ensure_ascii=False), encoding="utf8")


if __name__ == "__main__":
    data = pathlib.Path(__file__).parents[2] / "crates/checkpoint/tests/data/chat/templates.json"
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else data)
