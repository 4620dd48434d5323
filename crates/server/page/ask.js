// The view that asks a question.

import { answer as request, stream } from "./api.js";
import { count, fill, h, many, say } from "./dom.js";
import { answerBlock, steps } from "./answer.js";
import { choice, emptyBox, errorBox, go, labelled, named, waiting } from "./parts.js";

export const title = "Ask";

/** What is mounted, in a few words. */
export function describe(mount) {
  const parts = [
    mount.documents === undefined ? null : many(mount.documents, "document"),
    mount.passages === undefined ? null : many(mount.passages, "passage"),
    mount.generates ? "a generator writes answers" : "no generator",
  ];
  return parts.filter(Boolean).join(" · ");
}

/** A text field that grows with its text; Enter sends it, Shift and Enter begin a line. */
export function questionField(value, label) {
  const field = h("textarea", { id: "question", rows: 1, required: true, maxlength: 4000, placeholder: "Ask a question", "aria-label": label, enterkeyhint: "search", spellcheck: "true" });
  field.value = value;
  const fit = () => {
    field.style.height = "auto";
    field.style.height = `${Math.min(field.scrollHeight + 2, 240)}px`;
  };
  field.addEventListener("input", fit);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      field.form.requestSubmit();
    }
  });
  requestAnimationFrame(fit);
  return field;
}

/** Whether a question can be sent; says what is missing if not. */
export function isComplete(field) {
  field.setCustomValidity(field.value.trim() === "" ? "Write a question first." : "");
  return field.reportValidity();
}

/** An answer while it is written; `add` takes its parts. */
function draft(cancel) {
  const text = h("p", { class: "answer-text" });
  const block = h("div", { class: "answer", "aria-busy": "true" }, text, h("p", { class: "muted small" }, h("span", { class: "dots", "aria-hidden": "true" }), "Writing", h("button", { type: "button", class: "quiet", onclick: cancel }, "Cancel")));
  return { block, add: (part) => text.append(part) };
}

const COUNTS = [3, 5, 10, 20].map((number) => [String(number), String(number)]);

export async function show(main, values, { mounted, signal, isFirst }) {
  const { mounts: all } = mounted;
  const answering = all.filter((mount) => mount.generates || mount.documents !== undefined);
  if (answering.length === 0) {
    fill(main, h("div", { class: "page narrow" }, h("h1", { tabindex: "-1" }, "Ask"), emptyBox("Nothing answers questions here", "Start the server with documents or a config: ", h("pre", {}, "sporran serve notes/"))));
    return;
  }
  const question = values.get("q") ?? "";
  const mount = named(answering, values.get("mount"), "mount", answering.find(({ generates }) => generates) ?? answering[0]);
  const top = values.get("top") ?? "5";
  const field = questionField(question, "Question");
  const select = choice("mount", answering.map(({ name }) => [name, name]), mount.name);
  const number = choice("top", COUNTS.some(([value]) => value === top) ? COUNTS : [...COUNTS, [top, top]], top);
  const send = (event) => {
    event.preventDefault();
    if (!isComplete(field)) return;
    const next = { q: field.value.trim(), mount: answering.length > 1 ? select.value : undefined, top: number.value === "5" ? undefined : number.value };
    const before = location.hash;
    go("ask", next);
    // The same question again: the address does not change.
    if (location.hash === before) show(main, new URLSearchParams(before.slice(before.indexOf("?"))), { mounted, signal, isFirst: false });
  };
  const form = h(
    "form",
    { class: "ask", role: "search", "aria-label": "Question", novalidate: true, onsubmit: send },
    h("div", { class: "ask-box" }, field, h("button", { class: "primary", "aria-label": "Ask" }, "Ask")),
    h("div", { class: "ask-options" }, answering.length > 1 && labelled("Answer from", select), labelled("Passages", number), h("p", { class: "muted small hint" }, h("kbd", {}, "/"), " to write, ", h("kbd", {}, "Enter"), " to ask")),
  );
  if (question === "") {
    fill(
      main,
      h(
        "div",
        { class: "page hero" },
        h("h1", { tabindex: "-1" }, "Ask your documents"),
        h("p", { class: "lead" }, "Every answer names the passages it rests on. A number opens its passage in the document."),
        form,
        h("h2", { class: "label" }, "Mounted"),
        h("ul", { class: "cards" }, answering.map((mounted) => h("li", {}, h("strong", {}, mounted.name), h("span", { class: "muted small" }, describe(mounted))))),
      ),
    );
    if (!isFirst) field.focus();
    return;
  }
  const result = h("div", { class: "result" });
  const aside = h("aside", { "aria-label": "Steps" });
  const head = h("h1", { class: "question", tabindex: "-1" }, question);
  fill(main, h("div", { class: "page ask-page" }, form, head, h("div", { class: "columns" }, result, aside)));
  const own = new AbortController();
  signal.addEventListener("abort", () => own.abort());
  const cancel = () => {
    own.abort();
    fill(result, emptyBox("Cancelled", "The request has ended."));
    field.focus();
  };
  const ask = async () => {
    fill(aside);
    fill(result, waiting("Looking for an answer", cancel));
    try {
      const written = draft(cancel);
      const write = (part) => {
        if (!written.block.isConnected) fill(result, written.block);
        written.add(part);
      };
      const answer = mount.generates ? await stream(question, mount.name, Number(top), own.signal, write) : await request(question, mount.name, Number(top), own.signal);
      if (answer.provenance.length === 0) {
        fill(result, answer.answer ? answerBlock(answer, mount.name) : emptyBox("No passage matches", `None of the ${count(mount.passages ?? 0)} passages of ${mount.name} has a word of this question. Other words may help.`));
      } else {
        fill(result, answerBlock(answer, mount.name));
      }
      fill(aside, steps(answer));
      say(`Answer ready: ${many(answer.provenance.length, "passage")}.`);
    } catch (error) {
      if (error.name !== "AbortError") fill(result, errorBox(error, ask));
    }
  };
  if (!isFirst) head.focus({ preventScroll: true });
  await ask();
}
