// Parts that several views share: errors, waiting, passages, and the sheet with a document.

import { Failure, get, keepKey } from "./api.js";
import { fill, figure, h, heading, many, marked, say } from "./dom.js";

/** A message of the server as a sentence. */
function sentence(text) {
  const end = /[.?!]$/u.test(text) ? "" : ".";
  return text.charAt(0).toUpperCase() + text.slice(1) + end;
}

/** What went wrong, and a way on. `again` repeats what failed. */
export function errorBox(error, again) {
  const titles = { 0: "No connection", 401: "A key is needed", 403: "A key is needed", 404: "Not found", 429: "The server is busy", 503: "The server is busy" };
  const title = titles[error.status] ?? (error.status >= 400 && error.status < 500 ? "The request was refused" : "Something failed");
  const wait = error.retryAfter ? ` Try again in ${many(Number(error.retryAfter), "second")}.` : "";
  const actions = [];
  if (error.status === 401 || error.status === 403) {
    const field = h("input", { type: "password", id: "key", autocomplete: "off", required: true });
    const submit = (event) => {
      event.preventDefault();
      keepKey(field.value);
      again();
    };
    requestAnimationFrame(() => field.focus());
    actions.push(h("form", { class: "row", onsubmit: submit }, h("label", { for: "key" }, "Key"), field, h("button", { class: "primary" }, "Use this key")));
  } else if (again) {
    actions.push(h("button", { type: "button", onclick: again }, "Try again"));
  }
  return h("div", { class: "notice bad", role: "alert" }, h("h2", {}, title), h("p", {}, sentence(error.message) + wait), actions);
}

/** A view or a list without content. */
export function emptyBox(title, ...lines) {
  return h("div", { class: "notice" }, h("h2", {}, title), lines.map((line) => (typeof line === "string" ? h("p", {}, line) : line)));
}

/** A placeholder while something loads. `cancel` stops it. */
export function waiting(text, cancel) {
  say(text);
  return h(
    "div",
    { class: "waiting", "aria-busy": "true" },
    h("p", { class: "muted" }, h("span", { class: "dots", "aria-hidden": "true" }), text, cancel && h("button", { type: "button", class: "quiet", onclick: cancel }, "Cancel")),
    [92, 100, 97, 60].map((width) => h("div", { class: "bone", "--width": `${width}%`, "aria-hidden": "true" })),
  );
}

/** A field with its label. */
export function labelled(text, field, ...others) {
  return h("div", { class: "field" }, h("label", { for: field.id }, text), field, others);
}

/** The item of a name in the address, or `first` without a name. `what` is what the items are. */
export function named(items, name, what, first = items[0]) {
  if (!name) return first;
  const found = items.find((item) => item.name === name);
  if (!found) throw new Failure(`There is no ${what} ${name} on this server.`, 404);
  return found;
}

/** A list to choose from: `[value, text]` each. */
export function choice(id, options, value, listen) {
  const select = h("select", { id, onchange: listen }, options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
  return select;
}

/** The places of a passage in words: section, page, paragraph, characters. */
export function placeOf(item) {
  const isLong = item.end_paragraph !== undefined && item.end_paragraph !== item.paragraph;
  const parts = [
    item.file && item.file !== item.title ? item.file : null,
    heading(item.section) || null,
    item.page ? `page ${item.page}` : null,
    item.line ? `line ${item.line}` : null,
    item.paragraph === undefined ? null : isLong ? `paragraphs ${item.paragraph}–${item.end_paragraph}` : `paragraph ${item.paragraph}`,
    item.start === undefined || item.end === undefined || isLong ? null : `characters ${item.start}–${item.end}`,
  ];
  return parts.filter((part) => part !== null).join(" · ");
}

/** The marks of a passage's own text. */
export function highlightOf(item) {
  const [start, end] = item.highlight ?? [0, 0];
  return end > start ? [{ start, end, kind: "sentence" }] : [];
}

/** A score as a number and a bar; the bar is relative to the best of its list. */
export function scoreBar(score, best) {
  const share = best > 0 && score > 0 ? Math.min(1, score / best) : 0;
  return h("span", { class: "score" }, h("span", { class: "gauge", "--share": `${100 * share}%`, "aria-hidden": "true" }), h("span", { class: "number" }, h("span", { class: "hidden" }, "score "), figure(score)));
}

/** Opens the sheet; `content` gets its body. Focus returns to where it was when it closes. */
export function openSheet(title, subtitle, content) {
  const sheet = document.getElementById("sheet");
  const opener = document.activeElement;
  const head = h("h2", { id: "sheet-title", tabindex: "-1" }, title);
  const close = h("button", { type: "button", class: "icon", "aria-label": "Close the document", title: "Close (Esc)", onclick: () => sheet.close() }, h("svg", { viewBox: "0 0 24 24", width: 20, height: 20, "aria-hidden": "true" }, h("path", { d: "M6 6l12 12M18 6L6 18", stroke: "currentColor", "stroke-width": 2, "stroke-linecap": "round" })));
  const under = h("p", { class: "muted small" }, subtitle);
  const body = h("div", { class: "sheet-body", tabindex: "0", role: "region", "aria-labelledby": "sheet-title" });
  const tools = h("div", { class: "sheet-tools" });
  fill(sheet, h("div", { class: "sheet-head" }, h("div", {}, head, under), h("div", { class: "row" }, tools, close)), body);
  sheet.addEventListener("close", () => (opener?.isConnected ? opener.focus() : undefined), { once: true });
  // A click outside the sheet closes it.
  sheet.onclick = (event) => event.target === sheet && sheet.close();
  if (!sheet.open) sheet.showModal();
  head.focus();
  content(body, { head, under, tools });
}

/** A paragraph of a document with its marks. */
function paragraphOf({ number, kind, level, text, marks, page }) {
  const content = marked(text, marks ?? []);
  const at = { "data-number": number, class: (marks ?? []).length ? "hit" : false };
  const label = h("span", { class: "at", "aria-hidden": "true" }, page ? `p. ${page}` : String(number));
  if (kind === "title") return h("p", { ...at, class: "doc-title" }, label, content);
  if (kind === "heading") return h(`h${Math.min(6, 2 + (level ?? 1))}`, at, label, content);
  if (kind === "list") return h("p", { ...at, class: `item ${at.class || ""}` }, label, content);
  return h("p", at, label, content);
}

/**
 * Opens a document of a mount in the sheet. `item` is a passage with `id` or with `document`, `paragraph` and
 * `start`; its `highlight` is marked too. `others` are the passages to which the sheet can turn.
 */
export function openDocument(mount, item, others = [item]) {
  openSheet(item.title || item.file || item.document || item.id, "", (body, parts) => showDocument(mount, item, others, body, parts));
}

async function showDocument(mount, item, others, body, { head, under, tools }) {
  const load = async () => {
    fill(body, waiting("Opening the document"));
    const [from, to] = item.highlight ?? [];
    // The only passage of a document has the document's id; a prediction of a run has no other. The place names the passage.
    const query = { mount, id: item.id ?? item.document, paragraph: item.paragraph, start: item.start, from, to };
    try {
      const found = await get(["browse/document"], query);
      head.textContent = found.title || found.file || found.id;
            under.textContent = [found.id === found.title || found.id === found.file ? null : found.id, placeOf(item) || found.file].filter(Boolean).join(" · ");
      const fields = Object.entries(found.fields ?? {});
      fill(
        body,
        fields.length > 0 && h("dl", { class: "fields" }, fields.map(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))])),
        h("div", { class: "document" }, found.paragraphs.map(paragraphOf)),
      );
      say(`Document ${head.textContent} is open.`);
      const first = body.querySelector("mark, .in-passage");
      first?.scrollIntoView({ block: "center" });
    } catch (error) {
      fill(body, errorBox(error, load));
    }
  };
  const at = others.indexOf(item);
  const turn = (to, name, sign) =>
    h("button", { type: "button", class: "icon", "aria-label": name, title: name, disabled: !others[to], onclick: () => {
      showDocument(mount, others[to], others, body, { head, under, tools });
      head.focus();
    } }, sign);
  fill(tools, others.length > 1 && [
    turn(at - 1, "Previous passage", "←"),
    h("span", { class: "muted small" }, `${at + 1} of ${others.length}`),
    turn(at + 1, "Next passage", "→"),
  ]);
  await load();
}

/** Buttons to turn the pages of a list. `go` gets the new offset. */
export function pager(total, offset, limit, go, noun) {
  if (total === 0) return null;
  const last = Math.min(total, offset + limit);
  return h(
    "nav",
    { class: "pager", "aria-label": "Pages of the list" },
    h("button", { type: "button", disabled: offset === 0, onclick: () => go(Math.max(0, offset - limit)) }, "Previous"),
    h("span", { class: "muted small" }, `${offset + 1}–${last} of ${many(total, noun)}`),
    h("button", { type: "button", disabled: last >= total, onclick: () => go(offset + limit) }, "Next"),
  );
}

/** Changes the values of the fragment, which shows the view again. */
export function go(view, values) {
  const pairs = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(pairs).toString();
  location.hash = `#/${view}${query ? `?${query}` : ""}`;
}
