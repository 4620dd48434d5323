"""Tests the page of `sporran serve` in a headless Chromium, with axe-core's rules of accessibility.

`scripts/page-test` makes the environment and calls this file.
"""

import argparse
import contextlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect, sync_playwright

QUESTION = "Where was Franz Kafka born?"
KEY = "0123456789abcdef0123"
SIZES = {"light": (1280, 860), "dark": (1280, 860), "phone": (390, 844)}
ROOT = pathlib.Path(__file__).resolve().parents[3]
MINIKILT = "examples/minikilt"

CONFIG = """
workflow = "answer"
name = "{name}"
output = "{output}"
[source]
path = "examples/minikilt/knowledge_source.jsonl.gz"
split = "{split}"
indexes = "{output}/indexes"
[tasks]
files = ["examples/minikilt/kilt/nq-dev-kilt.jsonl"]
[retriever]
kind = "bm25"
"""
READER = """
[generator]
kind = "seq2seq"
model = "models/minikilt-reader"
[generator.prompt]
passages = 2
passage-words = 60
input = "{task}: {input}"
passage = "{title}: {text}"
separator = " | "
max-tokens = 200
[generator.generation]
max-new-tokens = 64
"""
RULES = """
workflow = "rules"
name = "rules"
output = "{output}"
kb = "{kb}"
model = "{output}/rules.tsv"
[rules]
cyclic-length = 2
acyclic-length = 1
batches = 5
"""


@contextlib.contextmanager
def server(program, arguments):
    """A server on a free port; its address. It ends with the block."""
    command = [program, "serve", *arguments, "--port", "0"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            found = re.search(r"listening on (http://\S+)", line)
            if found:
                break
        else:
            raise SystemExit(f"error: the server ended before it listened:\n{''.join(lines)}")
        # Its further messages must not fill the pipe.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield found.group(1)
    finally:
        process.terminate()
        process.wait(timeout=30)


def prepare(program, folder):
    """Makes two configs, a run and rules in a folder; the arguments of the server."""
    plain, reader = folder / "plain.toml", folder / "reader.toml"
    plain.write_text(CONFIG.format(name="plain", output=folder, split="paragraph"))
    reader.write_text(CONFIG.format(name="reader", output=folder, split="words") + READER)
    rules = folder / "mine.toml"
    kb = ROOT / MINIKILT / "kb"
    rules.write_text(RULES.format(output=folder, kb=kb))
    for verb, config in [("run", reader), ("train", rules)]:
        ended = subprocess.run([program, verb, config], cwd=ROOT, capture_output=True, text=True)
        if ended.returncode != 0:
            raise SystemExit(f"error: sporran {verb} {config}:\n{ended.stderr}")
    return [
        str(plain),
        str(reader),
        "--run",
        f"reader={folder / 'reader'}",
        "--kb",
        f"facts={kb}",
        "--rules",
        f"facts={folder / 'rules.tsv'}",
    ]


# A question is answered in parts where a generator is mounted, and else as a whole.
ANSWERS = re.compile(r"/v1/(answer|chat/completions)$")


class Check:
    """The page in one theme and size, with its screenshots and what axe-core finds."""

    def __init__(self, page: Page, base, locked, name, folder):
        self.page, self.base, self.locked, self.name, self.folder = page, base, locked, name, folder
        self.errors, self.strange = [], []
        page.on("request", self.request)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self.console)

    def console(self, message):
        # A request that the server refuses is part of the tests; a violation of the policy is none.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    def request(self, request):
        if not request.url.startswith(tuple(filter(None, (self.base, self.locked)))):
            self.strange.append(request.url)

    def open(self, fragment, base=None):
        # Another document first, so that the page loads again.
        self.page.goto("about:blank")
        self.page.goto(f"{base or self.base}/{fragment}")
        expect(self.page.locator("h1").first).to_be_visible()

    def ready(self):
        """Waits until nothing is loading."""
        expect(self.page.locator("[aria-busy]")).to_have_count(0)

    def shot(self, view, whole=False):
        self.ready()
        # Animations have ended, and fonts are there.
        self.page.wait_for_timeout(100)
        if self.folder:
            self.page.screenshot(path=self.folder / f"{view}-{self.name}.png", full_page=whole)
        width = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1], f"{view} ({self.name}): {width[0]} pixels are wider than the window's {width[1]}"
        found = Axe().run(self.page).response["violations"]
        serious = [v for v in found if v["impact"] in ("serious", "critical")]
        for violation in found:
            places = "; ".join(node["html"][:160] for node in violation["nodes"][:3])
            print(f"  axe ({view}, {self.name}): {violation['impact']}: {violation['id']}: {places}")
        assert not serious, f"{view} ({self.name}): axe-core reports serious issues"

    def done(self):
        assert not self.errors, f"{self.name}: errors in the console: {self.errors}"
        assert not self.strange, f"{self.name}: requests to other places: {self.strange}"


def ask(check: Check):
    page = check.page
    check.open("#/ask")
    check.shot("home")
    # The key `/` goes to the question; Enter sends it.
    page.keyboard.press("/")
    expect(page.get_by_role("textbox", name="Question")).to_be_focused()
    page.keyboard.type(QUESTION)
    if page.get_by_label("Answer from").count():
        page.get_by_label("Answer from").select_option("reader")
        page.get_by_role("textbox", name="Question").focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1.question")).to_have_text(QUESTION)
    expect(page.locator(".source")).to_have_count(5)
    check.shot("answer", whole=True)
    # The steps open with the keyboard.
    step = page.locator(".steps summary").first
    step.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".steps .ranking").first).to_be_visible()
    check.shot("steps", whole=True)


def cite_and_open(check: Check):
    page = check.page
    check.open(f"#/ask?q={QUESTION}&mount=reader")
    citation = page.locator(".source button.link").first
    expect(citation).to_be_visible()
    citation.focus()
    page.keyboard.press("Enter")
    sheet = page.get_by_role("dialog")
    expect(sheet.locator(".document mark").first).to_be_in_viewport()
    expect(sheet.locator("#sheet-title")).to_be_focused()
    marked = "".join(sheet.locator(".document mark").all_inner_texts())
    shown = "".join(page.locator(".source").first.locator("mark").all_inner_texts())
    bare = lambda text: re.sub(r"\s+", "", text)
    assert bare(marked) == bare(shown), f"the document marks {marked!r}, the passage {shown!r}"
    check.shot("document")
    sheet.get_by_role("button", name="Next passage").click()
    expect(sheet.get_by_text("2 of 5")).to_be_visible()
    page.keyboard.press("Escape")
    expect(sheet).to_have_count(0)
    # The focus is back where the document was opened.
    expect(citation).to_be_focused()
    number = page.locator("button.cite").first
    if number.count():
        number.click()
        expect(sheet.locator(".document mark").first).to_be_visible()
        page.keyboard.press("Escape")


def stream(check: Check):
    """The answer is written in parts; a stream that fails says why."""
    page = check.page
    part = lambda text: "data: " + json.dumps({"choices": [{"delta": {"content": text}}]}) + "\n\n"
    failure = "data: " + json.dumps({"error": {"message": "the stream took longer than 1 s"}}) + "\n\n"

    def answer(body):
        page.unroute_all()
        page.route(ANSWERS, lambda route: route.fulfill(status=200, content_type="text/event-stream", body=body))
        check.open(f"#/ask?q={QUESTION}&mount=reader")

    answer(part("Franz ") + part("Kafka") + failure)
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The stream took longer than 1 s.")
    answer(part("Franz "))
    expect(alert).to_contain_text("ended before it was complete")
    page.unroute_all()
    # The real one: the text while it is written is what the server sent, and the passages follow.
    with page.expect_request(re.compile("/v1/chat/completions$")):
        alert.get_by_role("button", name="Try again").click()
    expect(page.locator(".source")).to_have_count(5)
    expect(page.locator(".answer-text")).not_to_be_empty()
    expect(page.locator(".steps summary").last).to_contain_text("Write the answer")
    check.ready()


def compare(check: Check):
    page = check.page
    check.open("#/compare")
    page.get_by_role("textbox", name="Question").fill(QUESTION)
    page.get_by_role("button", name="Compare").click()
    expect(page.locator(".side")).to_have_count(2)
    expect(page.locator(".side .answer")).to_have_count(2)
    expect(page.locator("main").get_by_text(re.compile("in common"))).to_be_visible()
    check.shot("compare", whole=True)


def browse(check: Check):
    page = check.page
    check.open("#/browse")
    expect(page.locator("tbody tr").first).to_be_visible()
    check.shot("documents")
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text(re.compile("^51–100 of"))).to_be_visible()
    page.get_by_role("searchbox").fill("Franz Kafka")
    page.keyboard.press("Enter")
    expect(page.locator(".source").first).to_be_visible()
    check.shot("search")
    page.locator(".source button.link").first.click()
    expect(page.get_by_role("dialog").locator(".document")).to_be_visible()
    page.keyboard.press("Escape")
    check.open("#/browse?q=zzzyzx")
    expect(page.get_by_role("heading", name="No passage matches")).to_be_visible()
    check.shot("nothing-found")


def runs(check: Check):
    page = check.page
    check.open("#/runs")
    expect(page.locator("table.scores tbody tr").first).to_be_visible()
    expect(page.locator(".example").first).to_be_visible()
    check.shot("run", whole=True)

    def total():
        check.ready()
        text = page.locator(".pager .muted").text_content() if page.locator(".pager").count() else "of 0"
        return int(re.search(r"of ([\d,]+)", text).group(1).replace(",", ""))

    everything, counts = total(), {}
    for verdict in ("right", "wrong"):
        page.get_by_label("Answer", exact=True).select_option(verdict)
        expect(page).to_have_url(re.compile(f"answer={verdict}"))
        counts[verdict] = total()
        expect(page.locator(f".example .verdict:has-text('answer {verdict}')").first).to_be_visible()
    assert counts["right"] + counts["wrong"] == everything, (counts, everything)
    page.get_by_label("Evidence", exact=True).select_option("right")
    expect(page).to_have_url(re.compile("evidence=right"))
    check.ready()
    page.locator(".example summary").first.click()
    check.shot("predictions")
    # An address that names another run shows none of this one.
    for view, values, what in [
        ("runs", "run=gone", "run gone"),
        ("browse", "index=gone", "index gone"),
        ("kb", "kb=gone", "knowledge base gone"),
        ("ask", "mount=gone", "mount gone"),
        ("compare", "left=gone", "mount gone"),
    ]:
        check.open(f"#/{view}?{values}")
        expect(page.get_by_role("alert")).to_contain_text(f"There is no {what} on this server.")
        assert page.locator(".example, tbody tr").count() == 0, view


def knowledge(check: Check):
    page = check.page
    check.open("#/kb")
    expect(page.locator("tbody tr").first).to_be_visible()
    page.get_by_role("searchbox").fill("Prague")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Prague", exact=True).click()
    expect(page.locator("h2.entity")).to_contain_text("Prague")
    expect(page.locator(".triples").first).to_be_visible()
    check.shot("entity", whole=True)
    page.get_by_role("searchbox").fill("Franz Kafka")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("q=Franz"))
    check.ready()
    # The entity before has links of the same name.
    expect(page.locator("h2.entity")).to_have_count(0)
    page.get_by_role("link", name="Franz Kafka", exact=True).click()
    expect(page.locator("h2.entity")).to_contain_text("Franz Kafka")
    page.get_by_label("Relation").select_option(label="country of citizenship")
    page.get_by_role("button", name="Predict").click()
    expect(page.locator(".answers > li").first).to_be_visible()
    check.shot("rules", whole=True)


def errors(check: Check):
    page = check.page

    def refuse(status, body, headers=None):
        page.unroute_all()
        page.route(ANSWERS, lambda route: route.fulfill(status=status, body=json.dumps(body), headers=headers or {}))
        check.open(f"#/ask?q={QUESTION}")

    refuse(429, {"error": {"message": "too many requests are waiting"}}, {"Retry-After": "3"})
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("Too many requests are waiting. Try again in 3 seconds.")
    check.shot("error")
    # The same request works once the server answers again.
    page.unroute_all()
    alert.get_by_role("button", name="Try again").click()
    expect(page.locator(".source").first).to_be_visible()
    refuse(401, {"error": {"message": "expected a key"}})
    expect(alert.get_by_label("Key")).to_be_visible()
    check.shot("key")
    page.unroute_all()
    page.route(ANSWERS, lambda route: route.abort())
    check.open(f"#/ask?q={QUESTION}")
    expect(alert).to_contain_text("cannot be reached")
    page.unroute_all()
    # A request that takes its time can be cancelled.
    held = []
    page.route(ANSWERS, lambda route: held.append(route))
    check.open(f"#/ask?q={QUESTION}")
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    if check.folder:
        page.screenshot(path=check.folder / f"waiting-{check.name}.png")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("heading", name="Cancelled")).to_be_visible()
    for route in held:
        with contextlib.suppress(Exception):
            route.abort()
    page.unroute_all()
    # An empty question is not sent.
    check.open("#/ask")
    page.get_by_role("button", name="Ask").click()
    expect(page).to_have_url(re.compile(r"#/ask$"))
    # A question of markup is text.
    check.open("#/ask?q=" + "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    expect(page.locator("h1.question")).to_have_text("<img src=x onerror=alert(1)>")
    assert page.locator("main img").count() == 0


def key(check: Check):
    """A server with a key asks for it once."""
    if check.locked is None:
        return
    page = check.page
    check.open(f"#/ask?q={QUESTION}", check.locked)
    page.get_by_label("Key").fill("wrong")
    page.get_by_role("button", name="Use this key").click()
    expect(page.get_by_role("alert")).to_contain_text("The key is wrong.")
    page.get_by_label("Key").fill(KEY)
    page.keyboard.press("Enter")
    expect(page.locator(".source").first).to_be_visible()
    page.reload()
    expect(page.locator(".source").first).to_be_visible()


def report(check: Check):
    """The page of a run's report."""
    page = check.page
    check.open("#/runs")
    link = page.get_by_role("link", name="The run's report")
    page.goto(f"{check.base}/{link.get_attribute('href')}")
    expect(page.get_by_role("heading", level=1)).to_have_text("reader")
    expect(page.locator("svg circle").first).to_be_visible()
    expect(page.locator("section.example .wrong").first).to_be_visible()
    check.shot("report", whole=True)


def theme(check: Check):
    page = check.page
    check.open("#/ask")
    button = page.get_by_role("button", name="Dark theme")
    ground = lambda: page.evaluate("getComputedStyle(document.body).backgroundColor")
    before, pressed = ground(), button.get_attribute("aria-pressed")
    assert pressed == ("true" if check.name == "dark" else "false"), pressed
    button.click()
    assert ground() != before, "the button does not change the ground"
    page.reload()
    assert ground() != before, "the theme is not kept"
    page.evaluate("localStorage.clear()")


def keyboard(check: Check):
    """The skip link is first, and every view is reached with the keyboard."""
    page = check.page
    check.open("#/browse")
    check.ready()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    check.open("#/browse")
    for _ in range(4):
        page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Compare")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare")


TESTS = [ask, cite_and_open, stream, compare, browse, runs, report, knowledge, errors, key, theme, keyboard]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", help="the program sporran")
    parser.add_argument("--chromium", required=True, help="the browser")
    parser.add_argument("--screenshots", type=pathlib.Path, help="a folder for screenshots")
    parser.add_argument("--url", help="a running server, instead of starting one")
    parser.add_argument("--only", nargs="*", help="the names of tests")
    options = parser.parse_args()
    if options.screenshots:
        options.screenshots.mkdir(parents=True, exist_ok=True)
    failed = 0
    with contextlib.ExitStack() as stack:
        base, locked = options.url, None
        if base is None:
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            arguments = prepare(options.program, folder)
            base = stack.enter_context(server(options.program, arguments))
            (folder / "key").write_text(KEY)
            locked = stack.enter_context(server(options.program, [arguments[0], "--api-key-file", str(folder / "key")]))
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=options.chromium, args=["--no-sandbox"]
        )
        for name, (width, height) in SIZES.items():
            context = browser.new_context(
                color_scheme="dark" if name == "dark" else "light",
                viewport={"width": width, "height": height},
                reduced_motion="reduce",
                base_url=base,
            )
            context.set_default_timeout(20_000)
            expect.set_options(timeout=20_000)
            for test in TESTS:
                if options.only and test.__name__ not in options.only:
                    continue
                page = context.new_page()
                check = Check(page, base, locked, name, options.screenshots)
                try:
                    test(check)
                    check.done()
                    print(f"ok {test.__name__} ({name})")
                except Exception as error:
                    failed += 1
                    print(f"FAILED {test.__name__} ({name}): {error}", file=sys.stderr)
                    if options.screenshots:
                        page.screenshot(path=options.screenshots / f"failed-{test.__name__}-{name}.png")
                page.close()
            context.close()
        browser.close()
    if failed:
        raise SystemExit(f"error: {failed} tests of the page failed")


if __name__ == "__main__":
    main()
