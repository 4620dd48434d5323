// Requests to the server that this page comes from.

/** A request that failed, with what to tell. */
export class Failure extends Error {
  constructor(message, status, retryAfter) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

const KEY = "sporran-key";

function key() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** Keeps a key for this tab. */
export function keepKey(value) {
  try {
    sessionStorage.setItem(KEY, value);
  } catch {
    // Without storage the page asks for the key again.
  }
}

/** The message in the body of an error, in the forms that the server's interfaces have. */
function message(body, status) {
  const error = body?.error ?? body?.message ?? body?.detail;
  if (typeof error === "string") return error;
  if (typeof error?.message === "string") return error.message;
  return `The server answered with the status ${status}.`;
}

/** The response to a request, if the server does not refuse it. */
async function send(path, options) {
  const headers = { Accept: "application/json", ...options.headers };
  if (key()) headers.Authorization = `Bearer ${key()}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("The server cannot be reached. Is it still running?", 0);
  }
  if (response.ok) return response;
  const text = await response.text();
  let body = { error: text };
  try {
    body = text === "" ? null : JSON.parse(text);
  } catch {
    // The text itself is the message.
  }
  throw new Failure(message(body, response.status), response.status, response.headers.get("Retry-After"));
}

async function request(path, options) {
  const response = await send(path, options);
  const text = await response.text();
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    throw new Failure("The server's answer is no JSON.", response.status);
  }
}

/** The values of a response's server-sent events, while they arrive. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (true) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const whole = text.split("\n\n");
    text = whole.pop();
    for (const event of whole) {
      if (event.startsWith("data: ") && event !== "data: [DONE]") yield JSON.parse(event.slice(6));
    }
  }
}

function path(parts, query = {}) {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(pairs).toString();
  return parts.map((part, at) => (at === 0 ? part : encodeURIComponent(part))).join("/") + (search ? `?${search}` : "");
}

/** Reads a resource. The first part is a path; the others are escaped. */
export function get(parts, query, signal) {
  return request(path(parts, query), { method: "GET", signal });
}

function json(body, signal) {
  return { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal };
}

/** Sends a request with a JSON body. */
export function post(address, body, signal) {
  return request(address, json(body, signal));
}

/** Whether requests carry a key. Links cannot carry it. */
export function hasKey() {
  return Boolean(key());
}

let mounted = null;

/** What is mounted: `{mounts, runs, knowledge}`. It is read once. */
export async function mounts() {
  if (mounted === null) {
    const [{ mounts: all }, browse] = await Promise.all([get(["v1/mounts"]), get(["browse"])]);
    const answering = all.filter(({ kind }) => kind === "answer");
    const known = answering.map((mount) => ({ ...mount, generates: mount.abilities.includes("answer") }));
    mounted = { mounts: known, ...browse };
  }
  return mounted;
}

/** The answer to a question, with its steps. */
export function answer(question, mount, top, signal) {
  return post("v1/answer", { question, mount, top, trace: true }, signal);
}

/** The answer of a mount with a generator, in the same form. `write` gets its text in parts while it is written. */
export async function stream(question, mount, top, signal, write) {
  const body = { model: mount, messages: [{ role: "user", content: question }], stream: true, sporran: { top, trace: true } };
  const response = await send("v1/chat/completions", json(body, signal));
  for await (const event of events(response)) {
    if (event.error) throw new Failure(message(event), response.status);
    const part = event.choices?.[0]?.delta?.content;
    if (part) write(part);
    if (event.sporran) return { ...event.sporran, mount, question, provenance: event.citations, is_generated: true };
  }
  throw new Failure("The answer ended before it was complete.", response.status);
}

/** The best passages for a query, in the form of an answer's provenance. */
export async function search(mount, query, hits, signal) {
  const { candidates } = await get(["v1", mount, "search"], { query, hits }, signal);
  return candidates.map(({ docid, score, doc }) => ({ ...doc, id: docid, score, text: doc.contents.slice(doc.title.length + 1) }));
}
