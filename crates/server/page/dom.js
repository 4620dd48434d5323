// Elements, and texts with marks.

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element. Attributes whose name starts with `on` are listeners; `false`, `null` and `undefined` leave an attribute out.
 * Children are nodes, texts, arrays of these, or nothing.
 */
export function h(tag, attributes = {}, ...children) {
  const isSvg = ["svg", "path", "circle", "line", "rect"].includes(tag);
  const element = isSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Replaces what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** Announces a change to screen readers. */
export function say(text) {
  document.getElementById("status").textContent = text;
}

/** A part of a text. Offsets count code points, as everywhere in the program; JavaScript counts UTF-16 units. */
export function slice(text, start, end) {
  return [...text].slice(start, end).join("");
}

/**
 * A text with marks, `{start, end, kind}` in code points. The kinds are `passage` and `sentence`; a sentence inside a passage
 * is marked as both.
 */
export function marked(text, marks) {
  const points = [...text];
  const cuts = new Set([0, points.length]);
  for (const { start, end } of marks) cuts.add(Math.min(start, points.length)).add(Math.min(end, points.length));
  const edges = [...cuts].sort((a, b) => a - b);
  return edges.slice(0, -1).map((from, at) => {
    const to = edges[at + 1];
    const part = points.slice(from, to).join("");
    const is = (kind) => marks.some((mark) => mark.kind === kind && mark.start <= from && to <= mark.end);
    if (is("sentence")) return h("mark", {}, part);
    if (is("passage")) return h("span", { class: "in-passage" }, part);
    return document.createTextNode(part);
  });
}

/** The first characters of a text, up to the end of a word. */
export function shortened(text, most) {
  const points = [...text];
  if (points.length <= most) return text;
  return `${points.slice(0, most).join("").replace(/\s+\S*$/u, "")} …`;
}

/** A number with a few digits. */
export function figure(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 100) return value.toFixed(1);
  if (size >= 1) return value.toFixed(2);
  return value.toFixed(3);
}

/** A share in percent. */
export function percent(value) {
  return value === null || value === undefined ? "–" : (100 * value).toFixed(1);
}

/** A whole number with separators. */
export function count(value) {
  return value.toLocaleString("en");
}

/** A count with its noun. */
export function many(value, noun, plural = `${noun}s`) {
  return `${count(value)} ${value === 1 ? noun : plural}`;
}

/** A duration. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 120) return `${seconds.toFixed(1)} s`;
  return `${Math.round(seconds / 60)} min`;
}

/** A number of bytes. */
export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${at === 0 ? value : value.toFixed(1)} ${units[at]}`;
}

/** The name of a section without the marks of KILT's format. */
export function heading(section) {
  const name = (section ?? "").trim();
  if (name === "Section::::Abstract.") return "";
  return name.replace(/^(Section|Heading)::::/u, "").replace(/\.$/u, "").replaceAll(" > ", " › ");
}
