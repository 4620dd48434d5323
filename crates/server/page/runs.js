// The view of finished runs: scores with intervals, cost, and examples right and wrong with their evidence.

import { get, hasKey } from "./api.js";
import { bytes, count, duration, fill, h, heading, many, percent, say } from "./dom.js";
import { choice, emptyBox, errorBox, go, labelled, named, openDocument, pager, waiting } from "./parts.js";

export const title = "Runs";
const LIMIT = 20;

/** The names of scores as people read them. */
const METRICS = { accuracy: "Accuracy", em: "Exact match", f1: "F1", rougel: "ROUGE-L" };

export async function show(main, values, { mounted, signal, isFirst }) {
  const { runs } = mounted;
  const head = h("h1", { tabindex: "-1" }, "Runs");
  if (runs.length === 0) {
    fill(main, h("div", { class: "page narrow" }, head, emptyBox("No run is mounted", "Runs are named when the server starts:", h("pre", {}, "sporran serve CONFIG --run mine=runs/mine"))));
    return;
  }
  const { name } = named(runs, values.get("run"), "run");
  const body = h("div", {}, waiting("Reading the run"));
  const select = choice("run", runs.map((run) => [run.name, run.name]), name, () => go("runs", { run: select.value }));
  fill(main, h("div", { class: "page" }, head, runs.length === 1 && h("p", { class: "muted" }, name), runs.length > 1 && h("div", { class: "tools" }, labelled("Run", select)), body));
  if (!isFirst) head.focus({ preventScroll: true });
  const load = async () => {
    try {
      const run = await get(["browse/runs", name], {}, signal);
      const list = h("div", {});
      fill(body, ...overview(run), examplesTools(run, values), list);
      await examples(list, run, values, signal);
    } catch (error) {
      if (error.name !== "AbortError") fill(body, errorBox(error, load));
    }
  };
  await load();
}

/** A score on a scale from 0 to 100 with its interval. */
function scale(score) {
  if (!score) return h("span", { class: "muted" }, "–");
  const text = score.low === undefined ? percent(score.mean) : `${percent(score.mean)}, 95 % interval ${percent(score.low)} to ${percent(score.high)}`;
  return h(
    "span",
    { class: "scale", role: "img", "aria-label": text, title: text },
    score.low !== undefined && h("span", { class: "range", "--low": `${100 * score.low}%`, "--high": `${100 * score.high}%` }),
    h("span", { class: "dot", "--at": `${100 * score.mean}%` }),
  );
}

function overview(run) {
  const facts = [
    ["Workflow", run.workflow],
    ["Program", run.program],
    ["Records", count(run.records)],
    ["Time", run.seconds > 0 ? duration(run.seconds) : null],
    ["Peak memory", run.peak_memory_bytes ? bytes(run.peak_memory_bytes) : null],
    ["Threads", run.threads || null],
    ["Seed", run.seed],
    ["Tokens", run.tokens ? count(run.tokens) : null],
    ["Cost", run.cost === null ? null : run.cost.toFixed(4)],
    ["Finished", run.finished ? new Date(1000 * run.finished).toISOString().slice(0, 16).replace("T", " ") : null],
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");
  const scored = run.files.filter((file) => file.scores);
  const row = (file) => {
    const { answer, kilt, Rprec, "recall@5": recall } = file.scores;
    const number = (score) => h("td", { class: "number" }, percent(score?.mean));
    return h("tr", {}, h("th", { scope: "row" }, file.dataset ?? file.file), h("td", { class: "muted" }, METRICS[file.metric] ?? file.metric ?? ""), h("td", { class: "number" }, count(file.records)), h("td", { class: "wide" }, scale(answer ?? Rprec)), number(answer), number(kilt), number(Rprec), number(recall));
  };
  const columns = ["Dataset", "Metric", "Records", "Answer, 0 to 100, with 95 % interval", "Answer", "KILT", "R-precision", "Recall at 5"];
  return [
    h("dl", { class: "facts" }, facts.map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, String(value))))),
    run.has_report && !hasKey() && h("p", {}, h("a", { href: `browse/runs/${encodeURIComponent(run.name)}/report`, target: "_blank", rel: "noopener" }, "The run's report"), h("span", { class: "muted small" }, " (opens in a new tab)")),
    run.config && h("details", { class: "config" }, h("summary", {}, "Config"), h("pre", { tabindex: "0", role: "region", "aria-label": "Config" }, run.config)),
    scored.length > 0 && h("section", { "aria-labelledby": "scores" }, h("h2", { id: "scores" }, "Scores"), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of scores" }, h("table", { class: "scores" }, h("thead", {}, h("tr", {}, columns.map((name, at) => h("th", { scope: "col", class: at === 2 || at > 3 ? "number" : false }, name)))), h("tbody", {}, scored.map(row))))),
  ].filter(Boolean);
}

const VERDICTS = [["", "All"], ["right", "Right"], ["wrong", "Wrong"]];

function examplesTools(run, values) {
  const file = choice("file", [["", "All"], ...run.files.map((file) => [file.file, file.dataset ?? file.file])], values.get("file") ?? "", () => send());
  const answer = choice("answer", VERDICTS, values.get("answer") ?? "", () => send());
  const evidence = choice("evidence", VERDICTS, values.get("evidence") ?? "", () => send());
  const text = h("input", { type: "search", id: "text", value: values.get("text") ?? "", placeholder: "Words of the input or the answer", autocomplete: "off" });
  const send = (event) => {
    event?.preventDefault();
    go("runs", { run: run.name, file: file.value, answer: answer.value, evidence: evidence.value, text: text.value.trim() });
  };
  return h("section", { "aria-labelledby": "examples" }, h("h2", { id: "examples" }, "Predictions"), h("form", { class: "tools", role: "search", "aria-label": "Filter the predictions", onsubmit: send }, labelled("Dataset", file), labelled("Answer", answer), labelled("Evidence", evidence), labelled("Text", text), h("button", {}, "Filter")));
}

async function examples(list, run, values, signal) {
  fill(list, waiting("Reading the predictions"));
  const offset = Number(values.get("from") ?? 0) || 0;
  const filter = Object.fromEntries(["file", "answer", "evidence", "text"].map((key) => [key, values.get(key) ?? ""]));
  const { total, examples: rows } = await get(["browse/runs", run.name, "examples"], { ...filter, offset, limit: LIMIT }, signal);
  if (total === 0) {
    fill(list, emptyBox("No prediction passes the filter", "Fewer conditions may help."));
    say("No prediction passes the filter.");
    return;
  }
  const turn = (from) => go("runs", { run: run.name, ...filter, from });
  fill(list, h("ol", { class: "examples", start: offset + 1 }, rows.map((row) => example(row, run))), pager(total, offset, LIMIT, turn, "prediction"));
  say(`${many(total, "prediction")}.`);
}

/** Whether something is right, as a word with a sign. */
function verdict(what, score, isRight) {
  if (isRight === null || isRight === undefined) return null;
  const shown = score === 0 || score === 1 || score === undefined || score === null ? "" : ` (${percent(score)})`;
  return h("span", { class: `verdict ${isRight ? "good" : "bad"}` }, `${isRight ? "✓" : "✗"} ${what} ${isRight ? "right" : "wrong"}${shown}`);
}

function evidenceRow(item, run) {
  const name = item.title || item.document;
  const place = [heading(item.section), item.paragraph === undefined ? null : `paragraph ${item.paragraph}`].filter(Boolean).join(" · ");
  const open = run.mount && item.document ? () => openDocument(run.mount, item) : null;
  return h("li", { class: item.is_gold ? "gold" : false }, open ? h("button", { type: "button", class: "link", "aria-haspopup": "dialog", onclick: open }, name) : name, place && h("span", { class: "muted small" }, ` ${place}`), item.is_gold && h("span", { class: "verdict good" }, "✓ gold page"));
}

function example(row, run) {
  return h(
    "li",
    { class: "example" },
    h("div", { class: "example-head" }, h("p", { class: "input" }, row.input || row.id), h("p", { class: "muted small" }, `${row.dataset ?? row.file} · ${row.id}`)),
    h("dl", { class: "pair" }, h("dt", {}, "Answer"), h("dd", {}, row.answer || h("span", { class: "muted" }, "none"), " "), row.gold.length > 0 && [h("dt", {}, "Gold"), h("dd", {}, row.gold.join(" · "))]),
    h("p", { class: "verdicts" }, verdict("answer", row.answer_score, row.answer_right), verdict("evidence", row.evidence_score, row.evidence_right)),
    (row.provenance.length > 0 || row.gold_provenance.length > 0) &&
      h("details", {}, h("summary", {}, "Evidence"), h("div", { class: "columns even" }, h("div", {}, h("h3", {}, "Predicted"), row.provenance.length > 0 ? h("ol", {}, row.provenance.map((item) => evidenceRow(item, run))) : h("p", { class: "muted" }, "None.")), h("div", {}, h("h3", {}, "Gold"), row.gold_provenance.length > 0 ? h("ul", {}, row.gold_provenance.map((item) => evidenceRow(item, run))) : h("p", { class: "muted" }, "None.")))),
  );
}
