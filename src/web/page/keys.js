// Keys: made here and shown once, listed, revoked. For admin keys; others see what the server lets them see of themselves.
import { get, maybe, send } from "./api.js";
import { announce, button, choice, confirm, empty, field, fill, h, problem, row, table } from "./dom.js";
import { money, shortHash, time } from "./format.js";

const COLUMNS = [
  { head: "Name", heads: true }, { head: "Key", class: "id" }, { head: "Workspace" }, { head: "State" }, { head: "Used", numeric: true }, { head: "Limit", numeric: true },
  { head: "Requests a minute", numeric: true }, { head: "Made", class: "nowrap" }, { head: "Expires", class: "nowrap" }, { head: "Actions", class: "act" },
];

const when = (t) => (t === null || t === undefined ? "–" : time(typeof t === "number" ? t : Date.parse(t)));

function stateOf(k) {
  if (k.revoked) return h("span", { class: "mark odd" }, "revoked");
  if (k.disabled) return h("span", { class: "mark bad" }, "disabled");
  if (k.expires_at && Date.parse(k.expires_at) < Date.now()) return h("span", { class: "mark bad" }, "expired");
  return h("span", { class: "mark fine" }, k.admin ? "admin" : "in use");
}

async function ownKey(signal) {
  const own = (await maybe("key", null, signal))?.data;
  if (!own) return null;
  const fact = (name, value) => (value === null || value === undefined ? null : h("div", {}, h("dt", {}, name), h("dd", {}, value)));
  return h("section", { "aria-labelledby": "own" }, h("h2", { id: "own" }, "This key"), h("dl", { class: "facts" },
    fact("Name", own.name || own.label), fact("Workspace", own.workspace ?? own.workspace_id), fact("Used", typeof own.usage === "number" ? money(own.usage) : null),
    fact("Limit", typeof own.limit === "number" ? `${money(own.limit)}${own.limit_reset ? ` ${own.limit_reset}` : ""}` : "none"),
    fact("Left", typeof own.limit_remaining === "number" ? money(own.limit_remaining) : null), fact("Expires", own.expires_at ? when(own.expires_at) : "never")));
}

/* The new key, in a dialog that says it is seen once. */
function showKey(key, name) {
  const text = h("input", { value: key, readonly: true, class: "mono", "aria-label": "The new key" });
  const copied = h("span", { class: "hint", role: "status" });
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, h("h2", { id: "dialog-title" }, `The key “${name}”`),
    h("p", {}, "It is shown this once. The server keeps only its hash."), text,
    h("div", { class: "actions" }, copied, button("Copy", async () => {
      text.select();
      await navigator.clipboard?.writeText(key).then(() => fill(copied, "Copied."), () => fill(copied, "Press Ctrl+C."));
    }), button("Done", () => dialog.close(), { class: "primary" })));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  text.select();
}

function makeForm(reload) {
  const input = (name, attributes = {}) => h("input", { name, autocomplete: "off", spellcheck: "false", ...attributes });
  const said = h("p", { class: "error", role: "alert" });
  const reset = choice([["", "Never"], ["daily", "Daily"], ["weekly", "Weekly"], ["monthly", "Monthly"]], "");
  reset.name = "limit_reset"; // not "reset", which would hide the form's own function
  const admin = h("input", { type: "checkbox", id: "key-admin" });
  const form = h("form", { class: "filters" },
    field("Name", input("name", { required: true, maxlength: "100" })),
    field("Workspace", input("workspace")),
    field("Limit in dollars", input("limit", { inputmode: "decimal", pattern: "[0-9]+(\\.[0-9]+)?" }), { narrow: true }),
    field("Limit resets", reset, { narrow: true }),
    field("Requests a minute", input("rpm", { inputmode: "numeric", pattern: "[0-9]+" }), { narrow: true }),
    field("Expires", input("expires", { type: "datetime-local" })),
    h("div", { class: "check" }, admin, h("label", { for: "key-admin" }, "Admin")),
    h("div", { class: "actions" }, h("button", { type: "submit" }, "Create key")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    fill(said);
    const v = (name) => form.elements[name].value.trim();
    const body = { name: v("name") };
    if (v("workspace")) body.workspace = v("workspace");
    if (v("limit")) body.limit = Number(v("limit"));
    if (v("limit") && v("limit_reset")) body.limit_reset = v("limit_reset");
    if (v("rpm")) body.requests_per_minute = Number(v("rpm"));
    if (v("expires")) body.expires_at = new Date(v("expires")).toISOString();
    if (admin.checked) body.admin = true;
    try {
      const made = await send("POST", "keys", body);
      form.reset();
      showKey(made.key ?? made.data?.key, body.name);
      await reload();
    } catch (error) {
      fill(said, error.message);
    }
  });
  return h("section", { "aria-labelledby": "make" }, h("h2", { id: "make" }, "New key"), form, said);
}

export async function keysView({ place, signal }) {
  const t = table("Keys", COLUMNS);
  const own = await ownKey(signal);
  if (own) place.append(own);

  function cells(k) {
    const revoke = k.read_only || k.source === "config" ? h("span", { class: "dim" }, "brig.yaml") : k.revoked ? null : button("Revoke", async () => {
      if (!(await confirm(`Revoke “${k.name || shortHash(k.hash)}”?`, "Requests with it are refused from now on. This cannot be taken back.", "Revoke"))) return;
      try {
        await send("DELETE", `keys/${encodeURIComponent(k.hash)}`);
        announce("The key is revoked.");
        await load();
      } catch (error) {
        place.append(problem(error, "Revoking"));
      }
    }, { class: "small danger", "aria-label": `Revoke ${k.name || shortHash(k.hash)}` });
    const limit = typeof k.limit === "number" ? `${money(k.limit)}${k.limit_reset ? ` ${k.limit_reset}` : ""}` : "–";
    return [h("a", { href: `#/requests?key=${encodeURIComponent(k.hash)}` }, k.name || k.label || "unnamed"), h("span", { title: k.hash }, shortHash(k.hash)), k.workspace ?? k.workspace_id ?? "–", stateOf(k),
      typeof k.usage === "number" ? money(k.usage) : "–", limit, k.requests_per_minute || "–", when(k.created_at), k.expires_at ? when(k.expires_at) : "never", revoke];
  }

  async function load() {
    const list = await get("keys", null, signal);
    fill(t.body, list.data.map((k) => row(COLUMNS, cells(k))));
    return list.data.length;
  }

  try {
    const n = await load();
    place.append(h("section", { "aria-labelledby": "all" }, h("h2", { id: "all" }, "Keys"), n ? t.element : empty("There is none in the store.")), makeForm(load));
  } catch (error) {
    place.append(problem(error, "Keys"));
  }
}
