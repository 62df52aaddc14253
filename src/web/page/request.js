// One request as it went: what was said, each call of a model and each run of a tool in the order of time, what was answered.
import { ask, get, maybe, poll, send } from "./api.js";
import { announce, button, confirm, fill, h, problem, svg } from "./dom.js";
import { bare, bytes, count, mark, money, outcome, seconds, shortHash, time } from "./format.js";
import { hitList } from "./guardrails.js";
import { commandBlock, longText } from "./terminal.js";

const EVERY = 1000;

/* ---- what was said, in any of the dialects ---- */

function partText(part) {
  if (typeof part === "string") return part;
  if (typeof part?.text === "string") return part.text;
  if (typeof part?.content === "string") return part.content;
  return JSON.stringify(part);
}

function contentText(content) {
  if (typeof content === "string") return content;
  if (Array.isArray(content)) return content.map(partText).join("\n");
  return content === undefined || content === null ? "" : JSON.stringify(content, null, 1);
}

/** [{role, text}] of a request in any dialect; null where it is none of them. */
export function conversation(input) {
  if (input === null || typeof input !== "object") return null;
  const said = [];
  const system = input.instructions ?? input.system ?? input.systemInstruction?.parts ?? input.system_instruction?.parts;
  if (system) said.push({ role: "system", text: contentText(system) });
  if (typeof input.input === "string") said.push({ role: "user", text: input.input });
  else if (Array.isArray(input.input)) {
    for (const item of input.input) {
      if (item?.role) said.push({ role: item.role, text: contentText(item.content) });
      else said.push({ role: item?.type ?? "item", text: JSON.stringify(item, null, 1) });
    }
  } else if (Array.isArray(input.messages)) {
    for (const m of input.messages) said.push({ role: m?.role ?? "message", text: contentText(m?.content) });
  } else if (Array.isArray(input.contents)) {
    for (const c of input.contents) said.push({ role: c?.role ?? "user", text: contentText(c?.parts) });
  } else return null;
  return said.map(({ role, text }) => ({ role: String(role), text }));
}

function saidBlock({ role, text }, { terminal = false } = {}) {
  return h("div", { class: terminal ? "said" : "said plainly" }, h("span", { class: "role" }, role), longText(text, { terminal }));
}

function rawDetails(title, value) {
  const body = h("div", {});
  return h("details", {
    on: { toggle: (e) => { if (e.target.open && !body.firstChild) body.append(longText(JSON.stringify(value, null, 2), { className: "mono" })); } },
  }, h("summary", {}, title), body);
}

/* ---- the timeline ---- */

function falls(from, to, begin, end, name) {
  const all = Math.max(1, end - begin);
  const x = Math.min(99.6, Math.max(0, (from - begin) / all * 100));
  const width = Math.max(0.4, Math.min(100 - x, (to - from) / all * 100));
  return svg("svg", { class: "fall", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "rail", x: 0, y: 2.5, width: 100, height: 1 }),
    svg("rect", { class: name, x, y: 0, width, height: 6 }));
}

function step(at, title, facts, ...rest) {
  return h("li", {}, h("div", { class: "at" }, at),
    h("div", { class: "what" }, h("div", { class: "line" }, h("h3", {}, title), facts.filter(Boolean).map((f) => h("span", { class: "dim" }, f))), rest));
}

function modelStep(a, i, begin, end) {
  const to = a.started_at_ms + (a.generation_time ?? 0);
  const failed = a.error || a.status >= 400;
  return step(`+${seconds(a.started_at_ms - begin)}`, `Model call ${i + 1}`, [
    `${a.provider_name}/${a.model}`,
    a.status ? h("span", { class: failed ? "mark bad" : "" }, `HTTP ${a.status}`) : null,
    seconds(a.generation_time),
    a.latency === null ? null : `first byte ${seconds(a.latency)}`,
    `${count(a.tokens_prompt)} tokens in, ${count(a.tokens_completion)} out${a.usage_is_estimated ? " (estimated)" : ""}`,
    a.native_tokens_cached ? `${count(a.native_tokens_cached)} cached` : null,
    a.finish_reason ? `finish: ${a.finish_reason}` : null,
  ], falls(a.started_at_ms, to, begin, end, "model"), a.error ? h("p", { class: "error" }, a.error) : null);
}

/** What the run reached and what was refused, by host. */
function hostList({ hosts, more }) {
  if (!hosts.length) return null;
  return h("ul", { class: "hosts", "aria-label": "Network" }, hosts.map((n) => h("li", { class: "line" },
    h("span", { class: `mark ${n.verdict === "deny" ? "bad" : "fine"}` }, n.verdict), h("span", { class: "host" }, n.host || "(no name)"),
    n.count > 1 ? h("span", { class: "dim" }, `${count(n.count)} times`) : null,
    n.reason && n.reason !== "allowed" ? h("span", { class: "dim" }, n.reason) : null,
    n.bytes_in || n.bytes_out ? h("span", { class: "dim" }, `${bytes(n.bytes_in)} in, ${bytes(n.bytes_out)} out`) : null)),
  more ? h("li", { class: "dim" }, `and ${count(more)} more`) : null);
}

function runStep(run, begin, end) {
  const to = run.started_at_ms + (run.duration_ms ?? 0);
  const { allowed, denied } = run.network;
  return step(`+${seconds(run.started_at_ms - begin)}`, run.tool ?? "exec", [
    run.status && run.status !== "completed" ? h("span", { class: "mark bad" }, run.status) : null,
    run.duration_ms === null ? h("span", { class: "mark live" }, "running") : seconds(run.duration_ms),
    run.container_id ? h("a", { href: `#/containers/${encodeURIComponent(run.container_id)}` }, run.container_id) : null,
    run.started_container ? "container started" : null,
    allowed || denied ? `network: ${count(allowed)} allowed, ${count(denied)} denied` : null,
  ], falls(run.started_at_ms, to, begin, end, "tool"), run.error ? h("p", { class: "error" }, run.error) : null,
  hostList(run.network), run.commands.map((c) => commandBlock(c, c.duration_ms === null ? null : h("span", {}, seconds(c.duration_ms)))));
}

function timeline(r, runs, content) {
  const begin = r.created_at_ms;
  const end = Math.max(begin + (r.generation_time ?? 0), r.generation_time === null ? Date.now() : 0);
  const steps = [
    ...r.provider_responses.map((a, i) => ({ at: a.started_at_ms, order: 0, make: () => modelStep(a, i, begin, end) })),
    ...runs.map((run) => ({ at: run.started_at_ms, order: 1, make: () => runStep(run, begin, end) })),
  ].sort((a, b) => a.at - b.at || a.order - b.order);
  const list = h("ol", { class: "timeline" });
  const said = content && conversation(content.input);
  if (content?.input) {
    const last = said?.slice(-4) ?? [];
    list.append(step("0", "Request", [said && said.length > last.length ? `the last ${last.length} of ${said.length} messages` : null],
      last.map((m) => saidBlock(m)), rawDetails("As it came (JSON)", content.input)));
  }
  list.append(...steps.map((s) => s.make()));
  const { completion, reasoning } = content?.output ?? {};
  if (completion || reasoning) {
    list.append(step(r.generation_time === null ? "" : `+${seconds(r.generation_time)}`, "Answer", [r.finish_reason ? `finish: ${r.finish_reason}` : null],
      reasoning ? h("details", {}, h("summary", {}, "Reasoning"), saidBlock({ role: "", text: reasoning })) : null,
      completion ? saidBlock({ role: "assistant", text: completion }, { terminal: true }) : null));
  }
  return list;
}

/* ---- the facts ---- */

function fact(name, value, note = null, big = false) {
  if (value === null || value === undefined || value === "") return null;
  return h("div", {}, h("dt", {}, name), h("dd", { class: big ? "big" : null }, value), note ? h("dd", { class: "hint" }, note) : null);
}

function facts(r) {
  const exec = bare(r) !== null;
  const modelCost = r.upstream_inference_cost === null ? "model unpriced" : `model ${money(r.upstream_inference_cost)}`;
  return h("dl", { class: "facts" },
    fact("Cost", money(r.total_cost), exec ? null : `${modelCost}, sandbox ${money(r.server_tool_cost)}`, true),
    fact("Duration", r.generation_time === null ? "running" : seconds(r.generation_time), r.latency === null ? null : `first byte ${seconds(r.latency)}`, true),
    fact("Sandbox", r.sandbox_ms ? seconds(r.sandbox_ms) : "none", r.sandbox_ms ? "as billed" : null, true),
    exec ? null : fact("Tokens", `${count(r.tokens_prompt)} in, ${count(r.tokens_completion)} out`,
      [r.native_tokens_cached ? `${count(r.native_tokens_cached)} cached` : null, r.native_tokens_reasoning ? `${count(r.native_tokens_reasoning)} reasoning` : null,
        r.usage_is_estimated ? "estimated" : null].filter(Boolean).join(", "), true),
    fact("Started", time(r.created_at_ms)),
    fact("API", r.streamed ? `${r.api_type}, streamed` : r.api_type),
    fact("Asked for", r.requested_model),
    fact("Served by", r.provider_name && (r.model ?? r.provider_name)),
    fact("Finish", r.finish_reason, r.native_finish_reason),
    fact("Container", r.container_id && h("a", { class: "mono", href: `#/containers/${encodeURIComponent(r.container_id)}` }, r.container_id)),
    fact("Session", r.session_id && h("a", { href: `#/requests?session_id=${encodeURIComponent(r.session_id)}` }, r.session_id)),
    fact("Key", h("a", { href: `#/requests?key=${encodeURIComponent(r.api_key_hash)}`, title: r.api_key_hash }, r.api_key_name ?? shortHash(r.api_key_hash))),
    fact("Workspace", r.workspace_id),
    fact("User", r.user),
    fact("Client", r.user_agent),
    h("div", { class: "two" }, h("dt", {}, "Request"), h("dd", { class: "mono" }, r.id)));
}

async function contentOf(id, signal) {
  try {
    return { content: (await get("generation/content", { id }, signal)).data };
  } catch (error) {
    if (error.status === 404 || error.status === 403) return { content: null, error };
    throw error;
  }
}

export async function requestView({ place, id, setTitle, signal }) {
  const body = h("div", { class: "view" });
  const state = h("span", {});
  place.querySelector("h1").before(h("p", { class: "crumb" }, h("a", { href: "#/requests" }, "Requests")));
  place.append(body);
  let seen = "";
  let ended = false;

  async function load() {
    const [one, runs, { content, error }] = await Promise.all([
      get("generation", { id }, signal), get(`generations/${encodeURIComponent(id)}/tool_runs`, null, signal), contentOf(id, signal)]);
    const text = JSON.stringify([one, runs, content]);
    const r = one.data;
    ended = r.ledger_status !== "open";
    if (text === seen || signal.aborted) return;
    seen = text;
    show(r, runs.data, content, error);
    if (ended) announce(`Request ended: ${outcome(r).text}`);
  }

  function show(r, runs, content, error) {
    const how = outcome(r);
    setTitle(bare(r) ?? (r.model || r.requested_model || "Request"));
    fill(state, mark(how));
    fill(body,
      h("div", { class: "head" }, state, r.error ? h("span", { class: "error" }, r.error) : null,
        h("div", { class: "actions" }, button("Save as JSON", () => saveAll(r, runs, content), { class: "small" }),
          content ? button("Delete content", () => forget(), { class: "small danger" }) : null)),
      facts(r),
      r.guardrail_hits.length ? h("section", { "aria-labelledby": "hits" }, h("h2", { id: "hits" }, "Guardrails"),
        hitList(r.guardrail_hits.map((hit, n) => ({ ...hit, n, generation_id: r.id })), { single: true })) : null,
      h("section", { "aria-labelledby": "steps" }, h("h2", { id: "steps" }, "Timeline"), timeline(r, runs, content)),
      content ? null : h("p", { class: "notice" }, error?.message ?? "The content of this request is not stored."));
  }

  async function forget() {
    if (!(await confirm("Delete what was said?", "The request, its answer and the texts of its commands go. Times, tokens and costs stay.", "Delete content"))) return;
    try {
      await ask("generation/content", { method: "DELETE", query: { id } });
      announce("The content is deleted.");
      seen = "";
      await load();
    } catch (error) {
      body.prepend(problem(error, "Deleting"));
    }
  }

  await load();
  if (!ended) {
    const stop = new AbortController();
    signal.addEventListener("abort", () => stop.abort());
    poll(async () => {
      await load();
      if (ended) stop.abort();
    }, EVERY, stop.signal);
  }
}

async function saveAll(generation, toolRuns, content) {
  const { save } = await import("./dom.js");
  save(new Blob([JSON.stringify({ generation, tool_runs: toolRuns, content }, null, 2)], { type: "application/json" }), `${generation.id}.json`);
}
