// An answer with its citations, its passages and its steps.

import { duration, h, many, marked, shortened, slice } from "./dom.js";
import { highlightOf, openDocument, placeOf, scoreBar } from "./parts.js";

/** A number that opens its passage. */
function citation(number, answer, mount) {
  const item = answer.provenance[number - 1];
  if (!item) return null;
  const title = item.title || item.file || item.id;
  const open = () => openDocument(mount, item, answer.provenance);
  return h("button", { type: "button", class: "cite", "aria-haspopup": "dialog", "aria-label": `Passage ${number}: ${title}`, title: `${title}: open the passage`, onclick: open }, String(number));
}

/** The text of an answer: its sentences with citations. Without a generator it is the best sentence of the first passage. */
function textOf(answer, mount) {
  if (answer.is_generated) {
    const sentences = answer.sentences?.length ? answer.sentences : [{ text: answer.answer, citations: [], supported: true }];
    if (sentences.every((sentence) => !sentence.text.trim())) return h("p", { class: "muted" }, "The generator gave no answer.");
    return h(
      "p",
      { class: "answer-text" },
      sentences.map((sentence) => {
        const isBare = sentence.supported === false;
        // The last word and the citations stay on one line.
        const [, begin, end] = /^(.*?)(\S*)$/su.exec(sentence.text.trim());
        return [
          h("span", { class: isBare ? "unsupported" : false }, begin, sentence.citations.length === 0 && end),
          sentence.citations.length > 0 && h("span", { class: "together" }, end, sentence.citations.map((number) => citation(number, answer, mount))),
          isBare && h("span", { class: "doubt", title: "No passage supports this sentence" }, "no passage supports this"),
          " ",
        ];
      }),
    );
  }
  const first = answer.provenance[0];
  if (!first) return null;
  const [start, end] = first.highlight ?? [0, 0];
  const quote = end > start ? slice(first.text, start, end) : shortened(first.text, 280);
  return h("blockquote", { class: "answer-text" }, quote, citation(1, answer, mount));
}

function source(item, number, answer, mount, note) {
  const best = Math.max(...answer.provenance.map(({ score }) => score));
  const title = item.title || item.file || item.id;
  const open = () => openDocument(mount, item, answer.provenance);
  return h(
    "li",
    { class: "source" },
    h("div", { class: "source-head" }, h("span", { class: "cite-number", "aria-hidden": "true" }, String(number)), h("h3", {}, h("button", { type: "button", class: "link", "aria-haspopup": "dialog", onclick: open }, title)), scoreBar(item.score, best)),
    h("p", { class: "muted small place" }, placeOf(item)),
    h("p", { class: "passage" }, marked(item.text, highlightOf(item))),
    note && h("p", { class: "small note" }, note),
  );
}

/** What makes two items of steps the same passage. */
function keyOf(item) {
  return item.id ?? item.title;
}

/** The items of a step: passages with scores, or texts. `before` is the ranking of the step before. */
function itemsOf(step, before) {
  const { items } = step;
  const query = step.query && h("p", { class: "muted small" }, `Query: ${step.query}`);
  if (items.length === 0) return [query, h("p", { class: "muted small" }, "No result.")];
  if (!isRanking(step)) return [query, items.map(({ text }) => h("pre", {}, text ?? ""))];
  const best = Math.max(...items.map(({ score }) => score));
  const earlier = before && new Map(before.map((item, at) => [keyOf(item), at + 1]));
  const row = (item, at) => {
    const was = earlier?.get(keyOf(item));
    const moved = was === undefined || was === at + 1 ? null : was > at + 1 ? `up ${was - at - 1}` : `down ${at + 1 - was}`;
    return h("li", {}, h("span", { class: "rank", "aria-hidden": "true" }, String(at + 1)), h("span", { class: "name" }, item.title || item.id, moved && h("span", { class: `moved ${moved.startsWith("up") ? "up" : ""}` }, moved)), scoreBar(item.score, best));
  };
  return [query, h("ol", { class: "ranking" }, items.map(row))];
}

/** Whether a step ranks passages. */
function isRanking({ items }) {
  return items.length > 0 && items.every(({ score }) => score !== undefined);
}

/** The names of steps as people read them. */
const NAMES = { search: "Search", hybrid: "Fuse the rankings", iterative: "Follow links", mentions: "Join the names' rankings", reranked: "Rerank", prompt: "Write the prompt", answer: "Write the answer" };

/** The steps from the question to the answer, with their times. */
export function steps(answer, id = "answer", of = "") {
  const list = answer.trace?.steps ?? [];
  if (list.length === 0) return null;
  const total = list.reduce((sum, step) => sum + (step.seconds ?? 0), 0);
  let before = null;
  const rows = list.map((step) => {
    const content = itemsOf(step, before);
    if (isRanking(step)) before = step.items;
    const size = step.tokens !== undefined ? many(step.tokens, "token") : many(step.items.length, isRanking(step) ? "passage" : "text");
    const summary = [duration(step.seconds), size].filter(Boolean).join(" · ");
    const share = total > 0 ? (100 * (step.seconds ?? 0)) / total : 0;
    return h(
      "li",
      {},
      h("details", {}, h("summary", {}, h("span", { class: "step-name" }, NAMES[step.name] ?? step.name), h("span", { class: "muted small" }, summary), step.seconds !== undefined && h("span", { class: "time", "--share": `${share}%`, "aria-hidden": "true" })), h("div", { class: "step-body" }, content)),
    );
  });
  return h("section", { class: "steps", "aria-labelledby": `${id}-steps` }, h("h2", { id: `${id}-steps` }, "How this answer was made", of && h("span", { class: "hidden" }, ` by ${of}`)), h("ol", {}, rows));
}

/** What is known of an answer in one line. */
export function summary(answer) {
  const parts = [many(answer.provenance.length, "passage"), answer.seconds === undefined ? null : duration(answer.seconds), answer.is_generated ? "written by the generator" : "the best sentence; no generator is mounted"];
  return parts.filter(Boolean).join(" · ");
}

/** The answer and its passages. `note(item)` gives more about a passage; `id` makes the ids of its parts. */
export function answerBlock(answer, mount, note = () => null, id = "answer") {
  return [
    h("div", { class: "answer" }, textOf(answer, mount), h("p", { class: "muted small" }, summary(answer))),
    answer.provenance.length > 0 &&
      h(
        "section",
        { class: "sources", "aria-labelledby": `${id}-sources` },
        h("h2", { id: `${id}-sources` }, "Passages", id !== "answer" && h("span", { class: "hidden" }, ` of ${mount}`)),
        h("ol", {}, answer.provenance.map((item, at) => source(item, at + 1, answer, mount, note(item, at)))),
      ),
  ];
}
