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

async function request(path, options) {
  const headers = { Accept: "application/json", ...options.headers };
  if (key()) headers.Authorization = `Bearer ${key()}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("The server cannot be reached. Is it still running?", 0);
  }
  const text = await response.text();
  let body = null;
  try {
    body = text === "" ? null : JSON.parse(text);
  } catch {
    if (response.ok) throw new Failure("The server's answer is no JSON.", response.status);
    body = { error: text };
  }
  if (!response.ok) {
    throw new Failure(message(body, response.status), response.status, response.headers.get("Retry-After"));
  }
  return body;
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

/** Sends a request with a JSON body. */
export function post(address, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return request(address, { method: "POST", headers, body: JSON.stringify(body), signal });
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

/** The best passages for a query, in the form of an answer's provenance. */
export async function search(mount, query, hits, signal) {
  const { candidates } = await get(["v1", mount, "search"], { query, hits }, signal);
  return candidates.map(({ docid, score, doc }) => ({ ...doc, id: docid, score, text: doc.contents.slice(doc.title.length + 1) }));
}
