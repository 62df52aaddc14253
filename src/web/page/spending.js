// Dollars and sandbox time, by day and by model or key. The server sums; the page only adds up what it groups.
import { get, maybe } from "./api.js";
import { choice, empty, field, fill, h, row, table } from "./dom.js";
import { bars, legend } from "./chart.js";
import { addMoney, count, countCell, day, money, moneyCell, seconds, shortHash } from "./format.js";

const DAY = 86_400_000;
const SERIES = 4; // and one for the rest

const MEASURES = {
  cost: { title: "Cost", of: (t) => t.total_cost, add: addMoney, scale: () => ({ per: 1, unit: (v) => `$${Number(v.toPrecision(3))}` }) },
  sandbox: { title: "Sandbox time", of: (t) => t.sandbox_ms, add: (a, b) => a + b, scale: timeScale },
};

/* Seconds, minutes or hours, whichever gives the axis round numbers that can be read. */
function timeScale(most) {
  const [per, name] = most > 2 * 3_600_000 ? [3_600_000, "h"] : most > 2 * 60_000 ? [60_000, "min"] : [1000, "s"];
  return { per, unit: (v) => `${Number(v.toPrecision(3))} ${name}` };
}

const SUMS = [
  { head: "", heads: true, class: "name" }, { head: "Requests", numeric: true }, { head: "Tokens in", numeric: true }, { head: "out", numeric: true },
  { head: "Sandbox", numeric: true }, { head: "Sandbox cost", numeric: true }, { head: "Cost", numeric: true },
];

const nothing = () => ({ requests: 0, tokens_prompt: 0, tokens_completion: 0, sandbox_ms: 0, server_tool_cost: 0, total_cost: 0 });

function sum(into, t) {
  for (const name of ["requests", "tokens_prompt", "tokens_completion", "sandbox_ms"]) into[name] += t[name];
  for (const name of ["server_tool_cost", "total_cost"]) into[name] = addMoney(into[name], t[name]);
  return into;
}

function grouped(totals, keyOf) {
  const groups = new Map();
  for (const t of totals) {
    const key = keyOf(t);
    groups.set(key, sum(groups.get(key) ?? nothing(), t));
  }
  return groups;
}

const cells = (name, t) => [name, countCell(t.requests), countCell(t.tokens_prompt), countCell(t.tokens_completion), t.sandbox_ms ? seconds(t.sandbox_ms) : "–",
  moneyCell(t.server_tool_cost, 4), moneyCell(t.total_cost, 4)];

function sumTable(caption, groups) {
  const columns = SUMS.map((c, i) => (i ? c : { ...c, head: caption.replace("By ", "").replace(/^./, (x) => x.toUpperCase()) }));
  const t = table(caption, columns);
  for (const [name, sums] of groups) t.body.append(row(columns, cells(name, sums)));
  return t.element;
}

function days(range) {
  const last = Math.floor(Date.now() / DAY);
  return Array.from({ length: range }, (_, i) => new Date((last - range + 1 + i) * DAY).toISOString().slice(0, 10));
}

/* The largest, which are the same in both charts and have the same colours there, and the rest as one. */
function series(totals, dates, keyOf, measure, largest) {
  const at = new Map(dates.map((d, i) => [d, i]));
  const byName = new Map();
  for (const t of totals) {
    const i = at.get(t.date);
    if (i === undefined) continue;
    const values = byName.get(keyOf(t)) ?? dates.map(() => 0);
    values[i] = measure.add(values[i], measure.of(t));
    byName.set(keyOf(t), values);
  }
  const all = largest.filter((name) => byName.has(name)).map((name) => ({ name, values: byName.get(name) }));
  const rest = all.length > SERIES + 1 ? all.splice(SERIES) : [];
  if (rest.length) all.push({ name: `${rest.length} others`, values: dates.map((_, i) => rest.reduce((a, s) => a + s.values[i], 0)) });
  const most = Math.max(0, ...dates.map((_, i) => all.reduce((a, s) => a + s.values[i], 0)));
  const { per, unit } = measure.scale(most);
  return { list: all.map((s) => ({ ...s, values: s.values.map((v) => v / per) })), unit };
}

async function keyNames(signal) {
  const names = new Map();
  for (const k of (await maybe("keys", null, signal).catch(() => null))?.data ?? []) names.set(k.hash, k.name || k.label);
  return names;
}

export async function spendingView({ place, signal }) {
  const known = await keyNames(signal);
  const body = h("div", { class: "view" });
  const keyName = (t) => known.get(t.api_key_hash) || shortHash(t.api_key_hash);
  const by = { model: (t) => t.model || "no model", key: keyName };
  let totals = [];
  let cut = false;
  const range = choice([["7", "7 days"], ["30", "30 days"], ["90", "90 days"]], "30", () => load().catch((error) => fill(body, h("p", { class: "error" }, error.message))));
  const group = choice([["model", "Model"], ["key", "Key"]], "model", () => show());
  place.append(h("div", { class: "filters" }, field("Period", range, { narrow: true }), field("By", group, { narrow: true })), body);

  async function load() {
    const answer = await get("generations/totals", { from_ms: (Math.floor(Date.now() / DAY) - Number(range.value) + 1) * DAY }, signal);
    totals = answer.data;
    cut = answer.has_more;
    show();
  }

  function chart(measure, dates, largest) {
    const { list, unit } = series(totals, dates, by[group.value], measure, largest);
    return h("figure", {}, h("h2", {}, measure.title), bars(measure.title, dates, list, unit), legend(list));
  }

  function show() {
    if (!totals.length) {
      fill(body, empty("Nothing was asked in this time."));
      return;
    }
    const all = totals.reduce(sum, nothing());
    const dates = days(Number(range.value));
    const big = (name, value) => h("div", {}, h("dt", {}, name), h("dd", { class: "big" }, value));
    const byDay = [...grouped(totals, (t) => t.date)].sort(([a], [b]) => (a < b ? 1 : -1)).map(([d, sums]) => [day(d), sums]);
    const largest = [...grouped(totals, by[group.value])].sort(([, a], [, b]) => b.total_cost - a.total_cost);
    const names = largest.map(([name]) => name);
    fill(body,
      h("dl", { class: "facts" }, big("Cost", money(all.total_cost)), big("of it sandboxes", money(all.server_tool_cost)), big("Requests", count(all.requests)),
        big("Sandbox time", seconds(all.sandbox_ms)), big("Tokens", [countCell(all.tokens_prompt), " in, ", countCell(all.tokens_completion), " out"])),
      cut ? h("p", { class: "notice" }, "There are more sums than the server gives at once; the oldest are not here.") : null,
      h("div", { class: "charts" }, chart(MEASURES.cost, dates, names), chart(MEASURES.sandbox, dates, names)),
      h("div", { class: "charts sums" },
        h("section", {}, h("h2", {}, `By ${group.value}`), sumTable(`By ${group.value}`, largest)),
        h("section", {}, h("h2", {}, "By day (UTC)"), sumTable("By day", byDay))));
  }

  await load();
}
