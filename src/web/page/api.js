// Asking the server. The key is in this tab's session storage and in the Authorization header, never in an address.

const BASE = "/api/v1/";
const KEY = "brig.key";

let key = null;
try {
  key = sessionStorage.getItem(KEY);
} catch {
  // Storage is switched off: the key lives as long as the page.
}

export const session = {
  get key() {
    return key;
  },
  set key(value) {
    key = value;
    try {
      if (value === null) sessionStorage.removeItem(KEY);
      else sessionStorage.setItem(KEY, value);
    } catch {
      // As above.
    }
  },
  /** What is known of the key: {name, workspace, admin}; filled at log-in. */
  about: {},
  /** Called when the server takes the key no more. */
  onRefused: () => {},
};

export class ApiError extends Error {
  constructor(status, message, body = null) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.body = body;
  }
}

function address(path, query) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {}))
    if (value !== undefined && value !== null && value !== "") params.set(name, value);
  const text = params.toString();
  return BASE + path + (text ? `?${text}` : "");
}

async function refusal(response) {
  let body = null;
  const text = await response.text().catch(() => "");
  try {
    body = JSON.parse(text);
  } catch {
    // Not JSON: something between here and the server answered.
  }
  const message = body?.error?.message ?? body?.message ?? `The server answered ${response.status}.`;
  return new ApiError(response.status, String(message), body);
}

/** The answer as fetch gives it; throws ApiError for one that is no success. */
export async function ask(path, { method = "GET", query, json, body, headers = {}, signal, as = key } = {}) {
  const all = { authorization: `Bearer ${as}`, ...headers };
  if (json !== undefined) {
    all["content-type"] = "application/json";
    body = JSON.stringify(json);
  }
  let response;
  try {
    response = await fetch(address(path, query), { method, headers: all, body, signal, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "The server cannot be reached.");
  }
  if (response.ok) return response;
  const error = await refusal(response);
  if (response.status === 401 && as === key && key !== null) session.onRefused();
  throw error;
}

export async function get(path, query, signal) {
  return (await ask(path, { query, signal })).json();
}

export async function send(method, path, json, signal) {
  const response = await ask(path, { method, json, signal });
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

/** Like get(), but null where the server does not have the path or the key may not ask. */
export async function maybe(path, query, signal) {
  try {
    return await get(path, query, signal);
  } catch (error) {
    if (error instanceof ApiError && [403, 404, 405].includes(error.status)) return null;
    throw error;
  }
}

/** Server-sent events of an answer, one {event, data} after the other. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = "";
  let data = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split(/\r\n|\n|\r/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (data.length) yield { event, data: data.join("\n") };
        event = "";
        data = [];
      } else if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
      else if (line.startsWith("event:")) event = line.slice(6).trim();
    }
  }
}

/**
 * Calls what(), and again some milliseconds after it is through, until the signal; not while the tab is hidden. What it
 * throws goes to failed(), and the next try comes later.
 */
export function poll(what, ms, signal, failed = () => {}) {
  let timer = null;
  let busy = false;
  let failures = 0;
  const run = async () => {
    timer = null;
    if (signal.aborted || document.hidden || busy) return;
    busy = true;
    try {
      await what();
      failures = 0;
    } catch (error) {
      if (!signal.aborted) failed(error);
      failures += 1;
    }
    busy = false;
    if (!signal.aborted && !document.hidden) timer = setTimeout(run, ms * Math.min(1 + failures, 15));
  };
  const seen = () => {
    if (document.hidden) {
      clearTimeout(timer);
      timer = null;
    } else if (timer === null) run();
  };
  document.addEventListener("visibilitychange", seen, { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
  if (!signal.aborted) timer = setTimeout(run, ms);
}
