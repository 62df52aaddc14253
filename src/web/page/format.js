// Numbers, money and times as the page writes them: always the same digits for the same column.
import { h } from "./dom.js";

const whole = new Intl.NumberFormat("en-US");

const compact = new Intl.NumberFormat("en-US", { notation: "compact", minimumFractionDigits: 1, maximumFractionDigits: 1 });

/** Large counts in a column: 54.1M, and all digits to whoever points at it. */
export const countCell = (n) => (n < 100_000 ? whole.format(n) : h("span", { title: whole.format(n) }, compact.format(n)));

export const count = (n) => (n === null || n === undefined ? "–" : whole.format(n));

/** Dollars: as many digits as there are, at least four. The server's sums are exact to 10^-12. */
export function money(n) {
  if (n === null || n === undefined) return "–";
  if (n === 0) return "0";
  const fixed = Number(n).toFixed(12).replace(/0+$/, "");
  const [left, right = ""] = fixed.split(".");
  return `$${whole.format(left)}.${right.padEnd(4, "0")}`;
}

/** The same in a column: six digits, and the exact sum to whoever points at it. */
export function moneyCell(n, digits = 6) {
  if (n === null || n === undefined) return "–";
  if (n === 0) return h("span", { class: "dim" }, "0");
  const least = 10 ** -digits;
  const text = n < least ? `<$${least.toFixed(digits)}` : `$${n.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })}`;
  return h("span", { title: money(n) }, text);
}

/** Sums of dollars without the errors of binary fractions. */
export const addMoney = (a, b) => Math.round((a + b) * 1e9) / 1e9;

export function seconds(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(2)} s`;
  if (ms < 100_000) return `${(ms / 1000).toFixed(1)} s`;
  const s = Math.round(ms / 1000);
  if (s < 3600) return `${Math.floor(s / 60)}m ${String(s % 60).padStart(2, "0")}s`;
  return `${Math.floor(s / 3600)}h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")}m`;
}

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  if (n < 1024) return `${n} B`;
  for (const unit of ["KiB", "MiB", "GiB"]) {
    n /= 1024;
    if (n < 1024 || unit === "GiB") return `${n.toFixed(n < 10 ? 1 : 0)} ${unit}`;
  }
}

const two = (n) => String(n).padStart(2, "0");
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

export const clock = (d) => `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;

/** The local time; with its day where that is not today. */
export function moment(ms) {
  const d = new Date(ms);
  const now = new Date();
  if (d.toDateString() === now.toDateString()) return clock(d);
  const day = `${two(d.getDate())} ${MONTHS[d.getMonth()]}`;
  return d.getFullYear() === now.getFullYear() ? `${day} ${clock(d)}` : `${day} ${d.getFullYear()} ${clock(d).slice(0, 5)}`;
}

export function time(ms) {
  if (ms === null || ms === undefined) return "–";
  const iso = new Date(ms).toISOString();
  return h("time", { datetime: iso, title: iso }, moment(ms));
}

/** "2026-11-30" as "30 Nov". */
export const day = (date) => `${date.slice(8)} ${MONTHS[Number(date.slice(5, 7)) - 1]}`;

export const shortHash = (hash) => (hash ? hash.slice(0, 8) : "–");

/** Some words for how it ended. */
// What cost without a model, or null.
export function bare(r) {
  return { exec: "exec", container: "kept running" }[r.api_type] ?? null;
}

export function outcome(r) {
  if (r.ledger_status === "open") return { text: "running", kind: "live" };
  if (r.ledger_status === "recovered") return { text: "recovered", kind: "bad" };
  if (r.cancelled) return { text: "cancelled", kind: "odd" };
  if (r.status >= 400) return { text: String(r.status), kind: "bad" };
  if (r.error) return { text: "failed", kind: "bad" };
  return { text: r.status ? String(r.status) : "done", kind: "fine" };
}

export function mark(o) {
  return h("span", { class: `mark ${o.kind}` }, o.text);
}
