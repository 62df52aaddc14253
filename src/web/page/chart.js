// Stacked bars by day, drawn as SVG. The table beside says the same in numbers.
import { h, svg } from "./dom.js";
import { day } from "./format.js";

const WIDTH = 540;
const HEIGHT = 190;
const LEFT = 56;
const BOTTOM = 20;

/* A round number that is not less. */
function roundUp(n) {
  if (n <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 2.5, 5, 10].map((k) => k * power).find((k) => k >= n * 0.999999);
}

/** days: ["2026-11-30", …]; series: [{name, values: [one a day]}], at most five. */
export function bars(title, days, series, unit) {
  const totals = days.map((_, i) => series.reduce((sum, s) => sum + s.values[i], 0));
  const top = roundUp(Math.max(...totals, 0));
  const height = HEIGHT - BOTTOM - 8;
  const y = (v) => 8 + height * (1 - v / top);
  const slot = (WIDTH - LEFT) / days.length;
  const wide = Math.min(28, Math.max(1, slot * 0.72));
  const parts = [];
  for (let k = 0; k <= 4; k++) {
    const v = top * k / 4;
    parts.push(svg("line", { class: k ? "grid" : "axis", x1: LEFT, x2: WIDTH, y1: y(v), y2: y(v) }));
    if (k % 2 === 0) parts.push(svg("text", { x: LEFT - 8, y: y(v) + 4, "text-anchor": "end" }, unit(v)));
  }
  const every = Math.ceil(days.length / 8);
  days.forEach((date, i) => {
    const x = LEFT + slot * i + (slot - wide) / 2;
    let base = 0;
    series.forEach((s, k) => {
      const v = s.values[i];
      if (v <= 0) return;
      parts.push(svg("rect", { class: `s${k}`, x, width: wide, y: y(base + v), height: Math.max(0.75, y(base) - y(base + v)) },
        svg("title", {}, `${day(date)}, ${s.name}: ${unit(v)}`)));
      base += v;
    });
    if ((days.length - 1 - i) % every === 0) parts.push(svg("text", { x: i === days.length - 1 && every > 1 ? WIDTH : x + wide / 2, y: HEIGHT - 4, "text-anchor": i === days.length - 1 && every > 1 ? "end" : "middle" }, day(date)));
  });
  return svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title} by day; the numbers are in the table` }, parts);
}

export function legend(series) {
  return h("ul", { class: "legend" }, series.map((s, k) => h("li", {}, h("i", { class: `s${k}`, "aria-hidden": "true" }), s.name)));
}
