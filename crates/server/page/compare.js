// The view that asks two mounts the same question.

import { answer as request } from "./api.js";
import { fill, h, say } from "./dom.js";
import { answerBlock, steps } from "./answer.js";
import { describe, isComplete, questionField } from "./ask.js";
import { choice, emptyBox, errorBox, go, labelled, named, waiting } from "./parts.js";

export const title = "Compare";

/** What makes two passages the same: their document and where they are in it. Their ids depend on how an index is split. */
function keyOf(item) {
  return [item.document, item.paragraph, item.start, item.end_paragraph, item.end].join(":");
}

/** What two rankings share, in words. */
function overlap(left, right) {
  const keys = new Set(left.provenance.map(keyOf));
  const shared = right.provenance.filter((item) => keys.has(keyOf(item))).length;
  const most = Math.max(left.provenance.length, right.provenance.length);
  const [one, other] = [left, right].map(({ provenance }) => new Set(provenance.map(({ document }) => document)));
  const both = [...one].filter((document) => other.has(document)).length;
  return `${shared} of ${most} passages and ${both} of ${new Set([...one, ...other]).size} documents in common.`;
}

export async function show(main, values, { mounted, signal, isFirst }) {
  const { mounts: all } = mounted;
  const answering = all.filter((mount) => mount.generates || mount.documents !== undefined);
  const head = h("h1", { tabindex: "-1" }, "Compare");
  if (answering.length < 2) {
    const command = h("pre", {}, "sporran serve bm25.toml hybrid.toml");
    fill(main, h("div", { class: "page narrow" }, head, emptyBox("A comparison needs two mounts", answering.length === 1 ? `Only ${answering[0].name} is mounted. Start the server with another config as well: ` : "Start the server with two configs: ", command)));
    return;
  }
  const question = values.get("q") ?? "";
  const left = named(answering, values.get("left"), "mount");
  const right = named(answering, values.get("right"), "mount", answering.find(({ name }) => name !== left.name));
  const options = answering.map(({ name }) => [name, name]);
  const field = questionField(question, "Question");
  const [one, two] = [choice("left", options, left.name), choice("right", options, right.name)];
  const send = (event) => {
    event.preventDefault();
    if (!isComplete(field)) return;
    const before = location.hash;
    go("compare", { q: field.value.trim(), left: one.value, right: two.value });
    if (location.hash === before) show(main, new URLSearchParams(before.slice(before.indexOf("?"))), { mounted, signal, isFirst: false });
  };
  const form = h(
    "form",
    { class: "ask", role: "search", "aria-label": "Question to both", novalidate: true, onsubmit: send },
    h("div", { class: "ask-box" }, field, h("button", { class: "primary" }, "Compare")),
    h("div", { class: "ask-options" }, labelled("Left", one), labelled("Right", two)),
  );
  if (question === "") {
    fill(main, h("div", { class: "page hero" }, head, h("p", { class: "lead" }, "The same question to two mounts, side by side: their answers, their passages and what these have in common."), form));
    if (!isFirst) field.focus();
    return;
  }
  const common = h("p", { class: "muted" });
  const sides = [left, right].map((mount, at) => {
    const body = h("div", {});
    const id = `side-${at}`;
    const column = h("section", { class: "side", "aria-labelledby": id }, h("h2", { id }, mount.name), h("p", { class: "muted small" }, describe(mount)), body);
    return { mount, body, column, id };
  });
  fill(main, h("div", { class: "page ask-page" }, form, h("h1", { class: "question", tabindex: "-1" }, question), common, h("div", { class: "sides" }, sides.map(({ column }) => column))));
  if (!isFirst) main.querySelector("h1").focus({ preventScroll: true });
  const load = async () => {
    for (const { body, mount } of sides) fill(body, waiting(`Asking ${mount.name}`));
    const found = await Promise.allSettled(sides.map(({ mount }) => request(question, mount.name, 5, signal)));
    if (signal.aborted) return;
    const answers = found.map(({ value }) => value);
    const ranks = answers.map((answer) => new Map(answer?.provenance.map((item, at) => [keyOf(item), at + 1])));
    found.forEach(({ reason }, at) => {
      const { body, mount, id } = sides[at];
      if (reason) {
        fill(body, errorBox(reason, load));
        return;
      }
      const other = answers[1 - at];
      const note = (item, rank) => {
        if (!other) return null;
        const there = ranks[1 - at].get(keyOf(item));
        if (there === undefined) return `Only in ${mount.name}`;
        return there === rank + 1 ? "The same rank in both" : `Rank ${there} in ${sides[1 - at].mount.name}`;
      };
      const answer = answers[at];
      if (answer.provenance.length === 0 && !answer.answer) fill(body, emptyBox("No passage matches", "No passage has a word of this question."));
      else fill(body, answerBlock(answer, mount.name, note, id), steps(answer, id, mount.name));
    });
    if (answers[0] && answers[1]) {
      common.textContent = overlap(...answers);
      say(`Both answers are ready. ${common.textContent}`);
    }
  };
  await load();
}
