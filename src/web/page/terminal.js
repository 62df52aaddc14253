// A command's output as a terminal would have left it: colours, carriage returns, backspaces, tabs, erased lines. What else a
// terminal can be told (moving about, titles, links, the clipboard) is left out, and nothing can be hidden: text that is told
// to be invisible is shown. All of it becomes text nodes in spans whose classes are from a fixed list.
import { h } from "./dom.js";
import { visible } from "./words.js";

const SHOWN = 100_000; // characters at first
const MORE = 1_000_000; // at each push of the button
const WIDEST = 20_000; // cells of a line that can be written over

/* Sequences that have an end; those that are cut off; single characters with a meaning. */
// eslint-disable-next-line no-control-regex
const TOKEN = /\u001b\[([0-?]*)[ -/]*([@-~])|\u009b([0-?]*)[ -/]*([@-~])|\u001b[\]PX^_][^\u0007\u001b]{0,8192}(?:\u0007|\u001b\\)?|\u001b[ -/]*[0-~]?|[\r\n\b]/g;
// eslint-disable-next-line no-control-regex
const SPECIAL = /[\u001b\u009b\r\b]/;

const PLAIN = { fg: null, bg: null, bold: false, dim: false, italic: false, under: false, strike: false, inverse: false };

/* One of the eight colours that is nearest to what is asked for. */
function nearest(r, g, b) {
  const most = Math.max(r, g, b);
  const least = Math.min(r, g, b);
  if (most - least < 48) return most < 64 ? 0 : 7;
  const half = (most + least) / 2;
  return (r > half ? 1 : 0) + (g > half ? 2 : 0) + (b > half ? 4 : 0);
}

function indexed(n) {
  if (n < 16) return n % 8;
  if (n >= 232) return n < 238 ? 0 : 7;
  const step = (k) => Math.floor((n - 16) / k) % 6 * 51;
  return nearest(step(36), step(6), step(1));
}

/* 38;5;n and 38;2;r;g;b; returns how many numbers were taken. */
function extended(style, which, codes, i) {
  if (codes[i + 1] === 5 && i + 2 < codes.length) {
    style[which] = indexed(codes[i + 2] & 255);
    return 2;
  }
  if (codes[i + 1] === 2 && i + 4 < codes.length) {
    style[which] = nearest(codes[i + 2], codes[i + 3], codes[i + 4]);
    return 4;
  }
  return 0;
}

function select(style, parameters) {
  const codes = parameters.split(/[;:]/).slice(0, 64).map((p) => Number(p) || 0);
  const next = { ...style };
  for (let i = 0; i < codes.length; i++) {
    const c = codes[i];
    if (c === 0) Object.assign(next, PLAIN);
    else if (c === 1) next.bold = true;
    else if (c === 2) next.dim = true;
    else if (c === 3) next.italic = true;
    else if (c === 4) next.under = true;
    else if (c === 7) next.inverse = true;
    else if (c === 9) next.strike = true;
    else if (c === 22) next.bold = next.dim = false;
    else if (c === 23) next.italic = false;
    else if (c === 24) next.under = false;
    else if (c === 27) next.inverse = false;
    else if (c === 29) next.strike = false;
    else if (c >= 30 && c <= 37) next.fg = c - 30;
    else if (c === 39) next.fg = null;
    else if (c >= 40 && c <= 47) next.bg = c - 40;
    else if (c === 49) next.bg = null;
    else if (c >= 90 && c <= 97) next.fg = c - 90;
    else if (c >= 100 && c <= 107) next.bg = c - 100;
    else if (c === 38) i += extended(next, "fg", codes, i);
    else if (c === 48) i += extended(next, "bg", codes, i);
  }
  return next;
}

function classOf(style) {
  const { fg, bg } = style.inverse ? { fg: style.bg, bg: style.fg ?? 7 } : style;
  const names = [fg === null ? "" : `fg${fg}`, bg === null ? "" : `bg${bg}`];
  for (const name of ["bold", "dim", "italic", "under", "strike"]) if (style[name]) names.push(`t-${name}`);
  return names.filter(Boolean).join(" ");
}

/* Runs of one class; neighbours of the same are joined. */
class Runs {
  list = [];

  add(text, name) {
    const last = this.list.at(-1);
    if (last && last.name === name) last.parts.push(text);
    else this.list.push({ name, parts: [text] });
  }

  nodes() {
    return this.list.map(({ name, parts }) => {
      const node = document.createTextNode(visible(parts.join("")));
      return name ? h("span", { class: name }, node) : node;
    });
  }
}

/* The line that is being written: characters with their classes, since what follows a carriage return goes over them. */
class Line {
  cells = [];
  names = [];
  at = 0;

  write(text, name) {
    for (const c of text) {
      if (this.at >= WIDEST) this.at = WIDEST - 1;
      while (this.cells.length < this.at) {
        this.cells.push(" ");
        this.names.push("");
      }
      this.cells[this.at] = c;
      this.names[this.at++] = name;
    }
  }

  erase(how) {
    if (how === 1) this.cells.fill(" ", 0, Math.min(this.at, this.cells.length));
    else this.cells.length = this.names.length = how === 2 ? 0 : Math.min(this.at, this.cells.length);
  }

  flush(runs) {
    for (let i = 0; i < this.cells.length; i++) runs.add(this.cells[i], this.names[i] ?? "");
    this.cells = [];
    this.names = [];
    this.at = 0;
  }
}

/** Nodes for a text with a terminal's control sequences. */
export function terminalNodes(text) {
  text = text.replaceAll("\r\n", "\n");
  if (!SPECIAL.test(text)) return [document.createTextNode(visible(text))];
  const runs = new Runs();
  const line = new Line();
  let style = PLAIN;
  let name = "";
  let from = 0;
  const plain = (piece) => {
    // A long line that nothing can go over any more needs no cells.
    if (piece.length > WIDEST) {
      line.flush(runs);
      runs.add(piece, name);
    } else line.write(piece, name);
  };
  for (const m of text.matchAll(TOKEN)) {
    if (m.index > from) plain(text.slice(from, m.index));
    from = m.index + m[0].length;
    const parameters = m[1] ?? m[3] ?? "";
    const final = m[2] ?? m[4];
    if (m[0] === "\n") {
      line.flush(runs);
      runs.add("\n", "");
    } else if (m[0] === "\r") line.at = 0;
    else if (m[0] === "\b") line.at = Math.max(0, line.at - 1);
    else if (final === "m") {
      style = select(style, parameters);
      name = classOf(style);
    } else if (final === "K") line.erase(Number(parameters) || 0);
    else if (final === "C") line.at = Math.min(WIDEST - 1, line.at + (Number(parameters) || 1));
  }
  plain(text.slice(from));
  line.flush(runs);
  return runs.nodes();
}

/* Never between the halves of a pair, nor inside a sequence. */
function cutAt(text, n) {
  if (n >= text.length) return text.length;
  const code = text.charCodeAt(n - 1);
  if (code >= 0xd800 && code < 0xdc00) n -= 1;
  const escape = text.lastIndexOf("\u001b", n);
  return escape > n - 32 && escape > 0 ? escape : n;
}

/** A <pre> of a text of any size: what is much is shown in parts. */
export function longText(text, { terminal = false, className = "", label = null } = {}) {
  const pre = h("pre", { class: className, tabindex: label ? "0" : null, role: label ? "region" : null, "aria-label": label });
  let shown = 0;
  const show = (n) => {
    const end = cutAt(text, shown + n);
    const piece = text.slice(shown, end);
    pre.append(...(terminal ? terminalNodes(piece) : [document.createTextNode(visible(piece))]));
    shown = end;
  };
  show(SHOWN);
  if (shown >= text.length) return pre;
  const more = h("button", { type: "button", class: "more" });
  const tell = () => {
    more.textContent = `Show more: ${(text.length - shown).toLocaleString("en-US")} characters are left`;
  };
  more.addEventListener("click", () => {
    show(MORE);
    if (shown >= text.length) more.remove();
    else tell();
  });
  tell();
  return h("div", { class: "long" }, pre, more);
}

/** A command with its output and how it ended, from the record or from a stream. */
export function commandBlock(c, note = null) {
  const parts = [];
  const prompt = h("div", { class: "prompt" }, h("span", { class: "sign", "aria-hidden": "true" }, "$"),
    longText(c.command ?? "(the text is not stored)", { className: c.command === null ? "command dim" : "command" }));
  if (c.stdout) parts.push(longText(c.stdout, { terminal: true, className: "out" }));
  if (c.stdout_truncated) parts.push(h("p", { class: "cut" }, "output cut"));
  if (c.stderr) {
    parts.push(h("div", { class: "stream" }, "stderr"), longText(c.stderr, { terminal: true, className: "out err" }));
  }
  if (c.stderr_truncated) parts.push(h("p", { class: "cut" }, "error output cut"));
  return h("div", { class: "terminal" }, prompt, parts, h("div", { class: "end" }, endOf(c.outcome), note));
}

export function endOf(o) {
  if (!o) return h("span", { class: "mark live" }, "running");
  if (o.type === "timeout") return h("span", { class: "mark bad" }, "timed out");
  const words = [`exit ${o.exit_code}`];
  if (o.signal) words.push(o.signal);
  if (o.reason) words.push({ memory: "out of memory", init: "the container ended", capacity: "no capacity" }[o.reason] ?? o.reason);
  return h("span", { class: `mark ${o.exit_code === 0 ? "fine" : "bad"}` }, words.join(" · "));
}
