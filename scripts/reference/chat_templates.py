"""Renders the conversations of crates/checkpoint/tests/data/chat/templates.json with `transformers` and writes the results, and those of
the expressions below to expressions.json beside it.

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


# Expressions of templates, whose values Jinja2 and MiniJinja could have differently.
EXPRESSIONS = [
    *(f"{value} is {test}"
      for test in ["iterable", "sequence", "mapping", "callable", "string"]
      for value in ["tools", "documents", "missing", "messages", "messages[0]", "'ab'", "''", "[]", "(1, 2)", "{}", "3", "1.5", "true",
                    "messages[0].tool_calls", "range", "range(2)", "namespace"]),
    "tools is iterable and tools | length > 0",
    "'a,b,c'.rsplit(',', 1)", "'a,b,c'.rsplit(',')", "' a b  c '.rsplit()", "' a b  c '.rsplit(none, 1)", "'abc'.rsplit('x', 1)",
    "'a,b,c'.split(',', 1)", "' a b  c '.split(none, 1)",
    "'a,b,c'.partition(',')|join('/')", "'abc'.partition(',')|join('/')", "'a,b,c'.rpartition(',')|join('/')", "'abc'.rpartition(',')|join('/')",
    "'w9'.removeprefix('w')", "'w9'.removeprefix('x')", "'w9'.removesuffix('9')", "'w9'.removesuffix('')",
    "'w5'.zfill(4)", "'-5'.zfill(4)", "'w5555'.zfill(3)", "'ab'.center(5, '*')", "'ab'.center(4)", "'abc'.center(6, '.')",
    "'ab'.ljust(4, '.')", "'ab'.rjust(4)", "'aB'.swapcase()", "'Straße'.casefold()", "'abcb'.index('b')", "'abcb'.rindex('b')",
    "'a b'|wordcount", "'one, two-three four_five'|wordcount", "'a'|center(4)", "'ab'|center(5)", "'abc'|center(2)",
    "{'a': 1, 'b': none, 'c': '<&\"'}|xmlattr", "{'a': 1}|xmlattr(false)", "{}|xmlattr",
    "cycler('a', 'b') is defined", "joiner is defined",
]


def expressions(path):
    cases = []
    for expression in EXPRESSIONS:
        texts, _ = rendering.render_jinja_template(
            conversations=[[{"role": "user", "content": "w5 w6"}]],
            chat_template="{{ (" + expression + ")|string }}",
            tools=None,
            documents=None,
        )
        cases.append({"expression": expression, "expected": texts[0]})
    used = "{% set j = joiner(', ') %}{% for x in [1, 2] %}{{ j() }}{{ x }}{% endfor %}{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}"
    texts, _ = rendering.render_jinja_template(conversations=[[]], chat_template=used)
    cases.append({"template": used, "expected": texts[0]})
    path.write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n", encoding="utf8")


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
    expressions(path.parent / "expressions.json")


if __name__ == "__main__":
    data = pathlib.Path(__file__).parents[2] / "crates/checkpoint/tests/data/chat/templates.json"
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else data)
