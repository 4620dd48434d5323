// The views by the address's fragment, the theme, and the keys.

import { mounts } from "./api.js";
import { fill, h, say } from "./dom.js";
import { errorBox } from "./parts.js";
import * as ask from "./ask.js";
import * as compare from "./compare.js";
import * as browse from "./browse.js";
import * as runs from "./runs.js";
import * as kb from "./knowledge.js";

const VIEWS = { ask, compare, browse, runs, kb };
const main = document.getElementById("main");
let running = null;
let isFirst = true;

/** The view and its values in a fragment such as `#/ask?q=tea`. */
function place() {
  const [, path, query] = /^#?\/?([^?]*)\??(.*)$/su.exec(location.hash);
  const name = Object.hasOwn(VIEWS, path) ? path : "ask";
  return { name, values: new URLSearchParams(query) };
}

async function show() {
  // A link to the content, such as the one that skips the head, is no view.
  if (location.hash === "#main") return;
  const { name, values } = place();
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  document.getElementById("sheet").close();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const view = VIEWS[name];
  document.title = `${view.title} · Sporran`;
  const wasFirst = isFirst;
  isFirst = false;
  try {
    const mounted = await mounts();
    // Another view may have been opened meanwhile.
    if (!signal.aborted) await view.show(main, values, { mounted, signal, isFirst: wasFirst });
  } catch (error) {
    if (signal.aborted) return;
    fill(main, h("div", { class: "page" }, h("h1", {}, view.title), errorBox(error, show)));
    say(error.message);
  }
}

function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

const button = document.getElementById("theme");

function showTheme() {
  button.setAttribute("aria-pressed", String(isDark()));
}

button.addEventListener("click", () => {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // The choice holds until the page is left.
  }
  showTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
showTheme();

// `/` goes to the first field of the view.
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, textarea, select, dialog") !== null;
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const field = main.querySelector("textarea, input[type=search]");
  if (field) {
    event.preventDefault();
    field.focus();
    field.select();
  }
});

addEventListener("hashchange", show);
show();
