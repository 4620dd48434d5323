// The view of an index: its documents, and search in it.

import { get, search as request } from "./api.js";
import { fill, h, many, marked, say } from "./dom.js";
import { choice, emptyBox, errorBox, go, highlightOf, labelled, named, openDocument, pager, placeOf, scoreBar, waiting } from "./parts.js";
import { describe } from "./ask.js";

export const title = "Browse";
const LIMIT = 50;

export async function show(main, values, { mounted, signal, isFirst }) {
  const { mounts: all } = mounted;
  const indexes = all.filter((mount) => mount.documents !== undefined);
  const head = h("h1", { tabindex: "-1" }, "Browse");
  if (indexes.length === 0) {
    fill(main, h("div", { class: "page narrow" }, head, emptyBox("No index is mounted", "Start the server with documents or a config to browse them here.")));
    return;
  }
  const mount = named(indexes, values.get("index"), "index");
  const query = values.get("q") ?? "";
  const offset = Number(values.get("from") ?? 0) || 0;
  const field = h("input", { type: "search", id: "query", value: query, placeholder: "Words to search for", autocomplete: "off" });
  const select = choice("index", indexes.map(({ name }) => [name, name]), mount.name, () => go("browse", { index: select.value, q: field.value.trim() }));
  const send = (event) => {
    event.preventDefault();
    go("browse", { index: mount.name, q: field.value.trim() });
  };
  const form = h("form", { class: "tools", role: "search", "aria-label": "Search the index", onsubmit: send }, indexes.length > 1 && labelled("Index", select), labelled("Search", field), h("button", { class: "primary" }, "Search"), query && h("button", { type: "button", onclick: () => go("browse", { index: mount.name }) }, "All documents"));
  const list = h("div", {});
  fill(main, h("div", { class: "page" }, head, h("p", { class: "muted" }, `${mount.name}: ${describe(mount)}`), form, list));
  if (!isFirst) head.focus({ preventScroll: true });
  const load = async () => {
    fill(list, waiting(query ? "Searching" : "Reading the list of documents"));
    try {
      if (query) await search(list, mount, query, signal);
      else await documents(list, mount, offset, signal);
    } catch (error) {
      if (error.name !== "AbortError") fill(list, errorBox(error, load));
    }
  };
  await load();
}

async function search(list, mount, query, signal) {
  const hits = await request(mount.name, query, 20, signal);
  if (hits.length === 0) {
    fill(list, emptyBox("No passage matches", "No passage has one of these words."));
    say("No passage matches.");
    return;
  }
  const best = Math.max(...hits.map(({ score }) => score));
  const hit = (item, at) =>
    h(
      "li",
      { class: "source" },
      h("div", { class: "source-head" }, h("span", { class: "cite-number", "aria-hidden": "true" }, String(at + 1)), h("h3", {}, h("button", { type: "button", class: "link", "aria-haspopup": "dialog", onclick: () => openDocument(mount.name, item, hits) }, item.title || item.file || item.id)), scoreBar(item.score, best)),
      h("p", { class: "muted small place" }, placeOf(item)),
      h("p", { class: "passage" }, marked(item.text, highlightOf(item))),
    );
  fill(list, h("section", { class: "sources", "aria-labelledby": "hits" }, h("h2", { id: "hits" }, many(hits.length, "passage")), h("ol", {}, hits.map(hit))));
  say(`${many(hits.length, "passage")} found.`);
}

async function documents(list, mount, offset, signal) {
  const { total, documents: rows } = await get(["browse/documents"], { mount: mount.name, offset, limit: LIMIT }, signal);
  const row = (item) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, h("button", { type: "button", class: "link", "aria-haspopup": "dialog", onclick: () => openDocument(mount.name, item) }, item.title || item.file || item.id)),
      h("td", { class: "muted" }, item.file ?? item.id),
      h("td", { class: "number" }, String(item.passages)),
    );
  fill(
    list,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Documents" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Document"), h("th", { scope: "col" }, rows.some((item) => item.file) ? "File" : "Id"), h("th", { scope: "col", class: "number" }, "Passages"))), h("tbody", {}, rows.map(row)))),
    pager(total, offset, LIMIT, (from) => go("browse", { index: mount.name, from }), "document"),
  );
}
