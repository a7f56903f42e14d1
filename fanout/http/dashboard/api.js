/** The endpoints, by relative addresses: the page works under any prefix. */

import { clock } from "./formats.js";
import { parse } from "./text.js";

/** What the server answered instead of what was asked for; status 0 where nothing came. */
export class Problem extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }

  /** Whether it may well be different in a moment. */
  get passing() {
    return this.status === 0 || this.status >= 500;
  }
}

async function ask(method, path, { body, signal } = {}) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
  }
  let response;
  let text;
  try {
    response = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal, cache: "no-store" });
    text = await response.text();
  } catch (error) {
    throw signal?.aborted ? error : new Problem(0, "unreachable", "The server cannot be reached.");
  }
  if (response.headers.has("Date")) {
    clock.set(response.headers.get("Date"));
  }
  if (!response.ok) {
    throw problemIn(response.status, text);
  }
  try {
    return parse(text);
  } catch {
    throw new Problem(response.status, "unknown", "What answers here is not Fanout.");
  }
}

function problemIn(status, text) {
  try {
    const { code, detail } = JSON.parse(text);
    return new Problem(status, String(code), String(detail));
  } catch {
    return new Problem(status, "unknown", `The server answered ${status}.`);
  }
}

function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length === 0 ? "" : `?${new URLSearchParams(given)}`;
}

const batchPath = (id) => `batches/${encodeURIComponent(id)}`;

export const api = {
  batches: (parameters, signal) => ask("GET", `batches${query(parameters)}`, { signal }),
  batch: (id, signal) => ask("GET", batchPath(id), { signal }),
  failures: (id, signal) => ask("GET", `${batchPath(id)}/failures`, { signal }),
  timeline: (id, signal) => ask("GET", `${batchPath(id)}/timeline`, { signal }),
  items: (id, parameters, signal) => ask("GET", `${batchPath(id)}/items${query(parameters)}`, { signal }),
  item: (id, key, signal) => ask("GET", `${batchPath(id)}/items?${new URLSearchParams({ key })}`, { signal }),
  steer: (id, verb, body = {}) => ask("POST", `${batchPath(id)}/${verb}`, { body }),
  events: (id) => new EventSource(`${batchPath(id)}/events`),
  handlers: () => ask("GET", "handlers"),
  about: () => ask("GET", "about"),
  session: () => ask("GET", "session"),
  signIn: (token) => ask("POST", "session", { body: { token } }),
  signOut: () => ask("DELETE", "session"),
};
