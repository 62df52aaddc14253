// What was asked, the newest first: a hundred at a time, filtered by the server. The first page follows what happens: it asks
// only for what is newer than the oldest row that may still change.
import { get, maybe, poll } from "./api.js";
import { announce, button, choice, empty, field, fill, h, row, table } from "./dom.js";
import { bare, count, mark, moneyCell, outcome, seconds, shortHash, time } from "./format.js";

const PAGE = 100;
const EVERY = 2000;
const FILTERS = ["q", "model", "status", "provider", "key", "container_id", "session_id", "from", "until"];

const COLUMNS = [
  { head: "Started", class: "nowrap" },
  { head: "Status" },
  { head: "Model", class: "name" },
  { head: "API" },
  { head: "Tokens in", numeric: true },
  { head: "out", numeric: true },
  { head: "Sandbox", numeric: true },
  { head: "Cost", numeric: true },
  { head: "First byte", numeric: true },
  { head: "Duration", numeric: true },
  { head: "Container", class: "id" },
  { head: "Key", class: "id" },
];

/* A local "2026-11-30T12:00" as milliseconds. */
const moment = (text) => {
  const ms = Date.parse(text);
  return Number.isFinite(ms) ? ms : undefined;
};

function questions(query) {
  const q = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) || undefined]));
  const { from, until, ...rest } = q;
  return { ...rest, from_ms: from && moment(from), until_ms: until && moment(until) };
}

function cells(r) {
  const model = r.model || r.requested_model || "–";
  return [
    time(r.created_at_ms),
    mark(outcome(r)),
    h("a", { href: `#/requests/${encodeURIComponent(r.id)}` }, bare(r) ?? model),
    r.api_type,
    bare(r) ? "–" : count(r.tokens_prompt),
    bare(r) ? "–" : count(r.tokens_completion),
    r.sandbox_ms ? seconds(r.sandbox_ms) : "–",
    moneyCell(r.total_cost),
    seconds(r.latency),
    seconds(r.generation_time),
    r.container_id ? h("a", { href: `#/containers/${encodeURIComponent(r.container_id)}` }, r.container_id) : "–",
    h("span", { title: r.api_key_hash }, r.api_key_name ?? shortHash(r.api_key_hash)),
  ];
}

function filterForm(query, onChange) {
  const input = (name, attributes = {}) => h("input", { name, value: query.get(name) ?? "", autocomplete: "off", spellcheck: "false", ...attributes });
  const models = h("datalist", { id: "models" });
  const status = choice([["", "Any"], ["2", "Success"], ["4", "4xx"], ["5", "5xx"], ["401", "401"], ["403", "403"], ["429", "429"]],
    query.get("status") ?? "", () => onChange(form));
  status.name = "status";
  const further = ["provider", "key", "container_id", "session_id", "from", "until"].some((n) => query.get(n));
  const form = h("form", { class: "filters", role: "search", "aria-label": "Filter requests" },
    field("Content", input("q", { type: "search" }), { wide: true }),
    field("Model", input("model", { list: "models" })), models,
    field("Status", status, { narrow: true }),
    h("details", { open: further }, h("summary", {}, "More filters"), h("div", { class: "filters" },
      field("Provider", input("provider")),
      field("Container", input("container_id")),
      field("Session", input("session_id")),
      field("Key (hash)", input("key")),
      field("From", input("from", { type: "datetime-local" })),
      field("Until", input("until", { type: "datetime-local" })))),
    h("div", { class: "actions" }, h("button", { type: "submit" }, "Filter"),
      button("Clear", () => { location.hash = "#/requests"; })));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    onChange(form);
  });
  maybe("models").then((list) => fill(models, (list?.data ?? []).slice(0, 500).map((m) => h("option", { value: m.id })))).catch(() => {});
  return form;
}

function applyFilters(form) {
  const params = new URLSearchParams();
  for (const name of FILTERS) {
    const value = form.elements[name].value.trim();
    if (value) params.set(name, value);
  }
  const text = params.toString();
  location.hash = `#/requests${text ? `?${text}` : ""}`;
}

/* The rows that are shown, by id; those that did not change keep their elements, and so the focus in them. */
class Rows {
  list = [];
  made = new Map();

  constructor(body) {
    this.body = body;
  }

  show(list) {
    const made = new Map();
    const elements = list.map((r) => {
      const text = JSON.stringify(r);
      const known = this.made.get(r.id);
      const element = known?.text === text ? known.element : row(COLUMNS, cells(r), { class: r.ledger_status === "open" ? "open" : null });
      made.set(r.id, { text, element });
      return element;
    });
    this.list = list;
    this.made = made;
    elements.forEach((element, i) => {
      if (this.body.children[i] !== element) this.body.insertBefore(element, this.body.children[i] ?? null);
    });
    while (this.body.children.length > elements.length) this.body.lastElementChild.remove();
  }

  /** What is new or changed, into what is there. Returns how many are new. */
  merge(fresh) {
    const byId = new Map(this.list.map((r) => [r.id, r]));
    const news = fresh.filter((r) => !byId.has(r.id)).length;
    for (const r of fresh) byId.set(r.id, r);
    const list = [...byId.values()].sort((a, b) => b.created_at_ms - a.created_at_ms || (a.id < b.id ? 1 : -1));
    this.show(list.slice(0, PAGE));
    return news;
  }

  /** From when on something may have changed. */
  get since() {
    const open = this.list.filter((r) => r.ledger_status === "open").map((r) => r.created_at_ms);
    return Math.min(this.list[0]?.created_at_ms ?? 0, ...open);
  }
}

export async function requestsView({ place, query, signal }) {
  const asked = questions(query);
  const t = table("Requests", COLUMNS);
  const rows = new Rows(t.body);
  const nothing = h("div", {});
  const where = h("span", { class: "dim" });
  const older = button("Older", () => turn(1));
  const newer = button("Newer", () => turn(-1));
  const newest = button("Newest", () => turn(-Infinity));
  const live = h("button", { type: "button", class: "live", "aria-pressed": "true" }, "Live");
  const pages = [null]; // what each page that was seen comes after
  let page = 0;
  let following = true;

  const form = filterForm(query, applyFilters);
  place.querySelector("h1").after(h("div", { class: "top" }, live));
  place.append(form, t.element, nothing, h("nav", { class: "pager", "aria-label": "Pages" }, newest, newer, older, where));

  async function load() {
    const answer = await get("generations", { ...asked, limit: PAGE, after: pages[page] ?? undefined }, signal);
    rows.show(answer.data);
    pages.length = page + 1;
    if (answer.has_more) pages.push(answer.last_id);
    older.disabled = !answer.has_more;
    newer.disabled = newest.disabled = page === 0;
    live.disabled = page !== 0;
    fill(where, answer.data.length ? `${page * PAGE + 1}–${page * PAGE + answer.data.length}` : "");
    fill(nothing, answer.data.length ? null
      : empty([...query.keys()].length ? "No request is like that." : "There is no request yet. The playground sends one."));
  }

  async function turn(by) {
    page = Math.max(0, page + by);
    await load();
    t.element.scrollTop = 0;
    scrollTo(0, 0);
    announce(`Page ${page + 1}, ${rows.list.length} requests`);
  }

  async function follow() {
    if (!following || page !== 0) return;
    if (rows.list.length === 0) {
      await load();
      return;
    }
    const answer = await get("generations", { ...asked, from_ms: Math.max(rows.since, asked.from_ms ?? 0), limit: PAGE }, signal);
    if (signal.aborted || page !== 0 || !following) return;
    const news = answer.has_more ? PAGE : rows.merge(answer.data);
    if (answer.has_more) await load();
    live.classList.remove("broken");
    if (news) announce(`${news} new ${news === 1 ? "request" : "requests"}`);
  }

  live.addEventListener("click", () => {
    following = !following;
    live.setAttribute("aria-pressed", String(following));
  });
  t.body.addEventListener("click", (event) => {
    // Anywhere in a row, for the mouse; links and selected text are left alone.
    if (event.target.closest("a") || String(getSelection())) return;
    event.target.closest("tr")?.querySelector("a")?.click();
  });
  await load();
  // What ends before now does not change by waiting.
  if (asked.until_ms === undefined || asked.until_ms > Date.now()) poll(follow, EVERY, signal, () => live.classList.add("broken"));
}
