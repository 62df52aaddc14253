// What the guardrails found; marks of false positives with the phrase that would let such a text through; the rules that hold.
import { get, maybe, send } from "./api.js";
import { announce, button, confirm, empty, field, fill, h, problem, row, table } from "./dom.js";
import { count, time } from "./format.js";

const PAGE = 50;

const HIT = [
  { head: "Found", class: "nowrap" },
  { head: "Action" },
  { head: "Guardrail" },
  { head: "Rule" },
  { head: "Text", class: "path" },
  { head: "Model" },
  { head: "Actions", class: "act" },
];

const action = (name) => h("span", { class: name === "block" ? "mark bad" : "mark fine" }, name);

/* The offer that comes with a mark. */
function offer(answer, place) {
  const entry = answer.allowlist_entry;
  if (!entry) {
    fill(place, h("span", { class: "dim" }, answer.reason ?? "There is no phrase to allow."));
    return;
  }
  const add = button("Allow this phrase", async () => {
    add.disabled = true;
    try {
      await send("POST", "guardrails/allowlist", entry);
      fill(place, h("span", { class: "dim" }, "Allowed from now on: "), h("code", {}, entry.phrase));
      announce("The phrase is on the allowlist.");
    } catch (error) {
      add.disabled = false;
      place.append(h("p", { class: "error", role: "alert" }, error.message));
    }
  }, { class: "small" });
  fill(place, h("span", { class: "dim" }, "Not looked at from now on, if you allow it: "), h("code", {}, entry.phrase), " ", add);
  add.focus();
}

function markCell(hit, place) {
  const cell = h("div", {});
  const draw = (wrong) => {
    const label = wrong ? "Undo" : "False positive";
    const change = button(label, async () => {
      change.disabled = true;
      try {
        const { data } = await send("POST", `generations/${encodeURIComponent(hit.generation_id)}/guardrail_hits/${hit.n}/false_positive`, { false_positive: !wrong });
        draw(!wrong);
        announce(wrong ? "The mark is taken back." : "Marked as a false positive.");
        if (wrong) fill(place);
        else offer(data, place);
      } catch (error) {
        change.disabled = false;
        fill(place, h("p", { class: "error", role: "alert" }, error.status === 404 ? "This server cannot mark hits (404)." : error.message));
      }
    }, { class: "small", "aria-label": `${label}: ${hit.rule ?? hit.pattern ?? "hit"}` });
    fill(cell, wrong ? h("span", { class: "dim" }, "false positive ") : null, change);
  };
  draw(hit.false_positive);
  return cell;
}

/** A table of hits; those of a single request need not say which. */
export function hitList(hits, { single = false } = {}) {
  const columns = single ? HIT.filter((c) => c.head !== "Found" && c.head !== "Model") : HIT;
  const t = table("Guardrail hits", columns);
  const append = (list) => {
    for (const hit of list) {
      const place = h("div", { class: "offer" });
      const cells = [
        single ? null : h("a", { href: `#/requests/${encodeURIComponent(hit.generation_id)}` }, time(hit.created_at_ms)),
        action(hit.action),
        hit.guardrail,
        hit.rule ?? hit.pattern,
        [hit.matched === null || hit.matched === undefined ? h("span", { class: "dim" }, "not stored") : h("code", {}, hit.matched), place],
        single ? null : hit.model || "–",
        markCell(hit, place),
      ];
      t.body.append(row(columns, single ? cells.filter((_, i) => i !== 0 && i !== 5) : cells));
    }
  };
  append(hits);
  return Object.assign(t.element, { append });
}

async function hitsSection(signal) {
  const place = h("section", { "aria-labelledby": "found" }, h("h2", { id: "found" }, "Hits"));
  try {
    const first = await get("guardrails/hits", { limit: PAGE }, signal);
    if (!first.data.length) {
      place.append(empty("Nothing was found in this workspace's requests."));
      return place;
    }
    const t = hitList([]);
    const { append } = t;
    append(first.data);
    place.append(t);
    let last = first;
    const more = button("Older", async () => {
      last = await get("guardrails/hits", { limit: PAGE, after: last.last_id }, signal);
      append(last.data);
      more.disabled = !last.has_more;
      announce(`${last.data.length} more hits`);
    });
    if (first.has_more) place.append(h("div", {}, more));
  } catch (error) {
    place.append(problem(error, "Hits"));
  }
  return place;
}

/* ---- rules ---- */

const RULES = [{ head: "Name", heads: true }, { head: "Holds for" }, { head: "Rules", class: "path" }, { head: "Kept" }];

function ruleText(g) {
  const builtins = (g.content_filter_builtins ?? []).map((f) => `${f.slug}: ${f.action}`);
  const own = (g.content_filters ?? []).map((f) => `${f.label ?? f.pattern}: ${f.action}`);
  const models = [["only models", g.allowed_models], ["not models", g.ignored_models], ["only providers", g.allowed_providers], ["not providers", g.ignored_providers]]
    .filter(([, list]) => list?.length).map(([words, list]) => `${words} ${list.join(", ")}`);
  return [...builtins, ...own, ...models].join("; ") || "none";
}

async function rulesSection(signal) {
  const place = h("section", { "aria-labelledby": "rules" }, h("h2", { id: "rules" }, "Guardrails"));
  try {
    const list = await get("guardrails", { limit: 100 }, signal);
    if (!list.data.length) place.append(empty("There are none. They are made in brig.yaml or with POST /guardrails."));
    else {
      const t = table("Guardrails", RULES);
      for (const g of list.data) {
        t.body.append(row(RULES, [g.name, g.read_only ? g.workspace_id ?? "all workspaces" : g.workspace_default ? `workspace ${g.workspace_id}` : "assigned keys",
          ruleText(g), g.read_only ? "brig.yaml" : "store"]));
      }
      place.append(t.element);
    }
  } catch (error) {
    place.append(problem(error, "Guardrails"));
  }
  return place;
}

/* ---- phrases ---- */

const PHRASES = [{ head: "Phrase", class: "path" }, { head: "Since", class: "nowrap" }, { head: "Actions", class: "act" }];

async function phrasesSection(signal) {
  const place = h("section", { "aria-labelledby": "phrases" });
  const list = h("div", {});
  const said = h("p", { class: "error", role: "alert" });

  async function load() {
    const { data } = await get("guardrails/allowlist", null, signal);
    if (!data.length) {
      fill(list, empty("No phrase is allowed."));
      return;
    }
    const t = table("Allowed phrases", PHRASES);
    for (const p of data) {
      t.body.append(row(PHRASES, [h("code", {}, p.phrase), time(p.created_at_ms ?? Date.parse(p.created_at)), button("Remove", async () => {
        if (!(await confirm("Remove this phrase?", p.phrase, "Remove"))) return;
        await send("DELETE", `guardrails/allowlist/${encodeURIComponent(p.id)}`);
        announce("The phrase is removed.");
        await load();
      }, { class: "small", "aria-label": `Remove ${p.phrase}` })]));
    }
    fill(list, t.element);
  }

  const phrase = h("input", { name: "phrase", maxlength: "1000", required: true });
  const form = h("form", { class: "filters" }, field("Phrase", phrase, { wide: true }), h("div", { class: "actions" }, h("button", { type: "submit" }, "Allow")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    fill(said);
    try {
      await send("POST", "guardrails/allowlist", { phrase: phrase.value });
      phrase.value = "";
      await load();
      announce("The phrase is on the allowlist.");
    } catch (error) {
      fill(said, error.message);
    }
  });
  place.append(h("h2", { id: "phrases" }, "Allowed phrases"));
  try {
    await load();
    place.append(h("p", { class: "hint" }, "Guardrails do not look at these in requests of this workspace, whatever their case."), list, form, said);
  } catch (error) {
    place.append(problem(error, "Allowed phrases"));
  }
  return place;
}

export async function guardrailsView({ place, signal }) {
  const sections = await Promise.all([hitsSection(signal), rulesSection(signal), phrasesSection(signal)]);
  place.append(...sections);
}
