// The view of a knowledge base: entities, their triples, and what rules or a model predict with the reason.

import { get } from "./api.js";
import { count, figure, fill, h, many, say } from "./dom.js";
import { choice, emptyBox, errorBox, go, labelled, named, pager, waiting } from "./parts.js";

export const title = "Knowledge";
const LIMIT = 30;

export async function show(main, values, { mounted, signal, isFirst }) {
  const { knowledge: kbs } = mounted;
  const head = h("h1", { tabindex: "-1" }, "Knowledge");
  if (kbs.length === 0) {
    fill(main, h("div", { class: "page narrow" }, head, emptyBox("No knowledge base is mounted", "Knowledge bases are named when the server starts:", h("pre", {}, "sporran serve CONFIG --kb facts=examples/minikilt/kb"))));
    return;
  }
  const kb = named(kbs, values.get("kb"), "knowledge base");
  const query = values.get("q") ?? "";
  const entity = values.get("entity");
  const field = h("input", { type: "search", id: "query", value: query, placeholder: "A name or an id", autocomplete: "off" });
  const select = choice("kb", kbs.map(({ name }) => [name, name]), kb.name, () => go("kb", { kb: select.value }));
  const send = (event) => {
    event.preventDefault();
    go("kb", { kb: kb.name, q: field.value.trim() });
  };
  const form = h("form", { class: "tools", role: "search", "aria-label": "Search entities", onsubmit: send }, kbs.length > 1 && labelled("Knowledge base", select), labelled("Entity", field), h("button", { class: "primary" }, "Search"));
  const body = h("div", {});
  const size = [many(kb.entities, "entity", "entities"), many(kb.relations.length, "relation"), many(kb.triples, "triple"), kb.has_rules ? "with rules" : null];
  fill(main, h("div", { class: "page" }, head, h("p", { class: "muted" }, `${kb.name}: ${size.filter(Boolean).join(" · ")}`), form, body));
  if (!isFirst) head.focus({ preventScroll: true });
  const load = async () => {
    fill(body, waiting("Reading the knowledge base"));
    try {
      if (entity) await showEntity(body, kb, entity, values.get("relation"), signal);
      else await showEntities(body, kb, query, Number(values.get("from") ?? 0) || 0, signal);
    } catch (error) {
      if (error.name !== "AbortError") fill(body, errorBox(error, load));
    }
  };
  await load();
}

function entityLink(kb, { id, label }) {
  return h("a", { href: `#/kb?${new URLSearchParams({ kb: kb.name, entity: id })}` }, label || id);
}

async function showEntities(body, kb, query, offset, signal) {
  const { total, entities } = await get(["browse/kb", kb.name, "entities"], { query, offset, limit: LIMIT }, signal);
  if (total === 0) {
    fill(body, emptyBox("No entity has this name", "A part of the name is enough; an id such as Q42 works too."));
    say("No entity has this name.");
    return;
  }
  const row = (entity) => h("tr", {}, h("th", { scope: "row" }, entityLink(kb, entity)), h("td", { class: "muted" }, entity.id), h("td", { class: "number" }, count(entity.triples)));
  fill(
    body,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Entities" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Entity"), h("th", { scope: "col" }, "Id"), h("th", { scope: "col", class: "number" }, "Triples"))), h("tbody", {}, entities.map(row)))),
    pager(total, offset, LIMIT, (from) => go("kb", { kb: kb.name, q: query, from }), "entity"),
  );
  say(`${many(total, "entity", "entities")}.`);
}

async function showEntity(body, kb, id, relation, signal) {
  const found = await get(["browse/kb", kb.name, "entity"], { id }, signal);
  const head = h("h2", { class: "entity", tabindex: "-1" }, found.label, " ", h("span", { class: "muted small" }, found.id));
  const group = (row, isIncoming) => {
    const more = row.total - row.entities.length;
    return h("div", {}, h("dt", {}, isIncoming ? ["whose ", h("em", {}, row.relation.label), " this is"] : row.relation.label), h("dd", {}, row.entities.map((entity, at) => [at > 0 ? ", " : "", entityLink(kb, entity)]), more > 0 && h("span", { class: "muted" }, ` and ${count(more)} more`)));
  };
  const block = (name, rows, isIncoming) => rows.length > 0 && h("section", { "aria-label": name }, h("h3", {}, name), h("dl", { class: "triples" }, rows.map((row) => group(row, isIncoming))));
  const prediction = h("div", {});
  fill(
    body,
    head,
    found.aliases.length > 0 && h("p", { class: "muted" }, `Also called ${found.aliases.join(", ")}`),
    found.outgoing.length + found.incoming.length === 0 && h("p", { class: "muted" }, "No triple has this entity."),
    h("div", { class: "columns even" }, block("Facts", found.outgoing, false), block("Facts of others", found.incoming, true)),
    kb.has_rules && predictionForm(kb, found, relation),
    prediction,
  );
  say(`${found.label}: ${many(found.outgoing.length, "relation")}.`);
  if (kb.has_rules && relation) await predict(prediction, kb, id, relation, signal);
}

/** The side that is asked for and the id of the relation, which may have colons itself. */
function parts(relation) {
  const at = relation.indexOf(":");
  return [relation.slice(0, Math.max(at, 0)), relation.slice(at + 1)];
}

function predictionForm(kb, entity, relation) {
  const [side, name] = parts(relation ?? "");
  const options = kb.relations.map(({ id, label }) => [id, label]);
  const select = choice("relation", options, name);
  const direction = choice("side", [["object", `${entity.label} → ?`], ["subject", `? → ${entity.label}`]], side);
  const send = (event) => {
    event.preventDefault();
    go("kb", { kb: kb.name, entity: entity.id, relation: `${direction.value}:${select.value}` });
  };
  return h("section", { "aria-labelledby": "predict" }, h("h3", { id: "predict" }, "What follows"), h("p", { class: "muted small" }, "Entities that the rules add, with their reasons."), h("form", { class: "tools", onsubmit: send }, labelled("Relation", select), labelled("Direction", direction), h("button", { class: "primary" }, "Predict")));
}

async function predict(list, kb, id, relation, signal) {
  const load = async () => {
    fill(list, waiting("Applying the rules"));
    const [side, name] = parts(relation);
    const query = { relation: name, [side === "subject" ? "object" : "subject"]: id };
    try {
      const { answers } = await get(["browse/kb", kb.name, "complete"], query, signal);
      if (answers.length === 0) {
        fill(list, emptyBox("Nothing follows", "No rule predicts an entity for this relation."));
        return;
      }
      const reason = ({ rule, weight, triples }) =>
        h("li", {}, h("code", {}, rule), h("span", { class: "muted small" }, ` ${figure(weight)}`), triples.length > 0 && h("p", { class: "small" }, triples.map((triple, at) => [at > 0 ? "; " : "because ", triple.join(" – ")])));
      const row = (answer) => h("li", {}, entityLink(kb, answer), h("span", { class: "muted small" }, ` ${figure(answer.score)}`), answer.reasons.length > 0 && h("ul", {}, answer.reasons.map(reason)));
      fill(list, h("ol", { class: "answers" }, answers.map(row)));
      say(`${many(answers.length, "entity", "entities")} follow.`);
    } catch (error) {
      if (error.name !== "AbortError") fill(list, errorBox(error, load));
    }
  };
  await load();
}
