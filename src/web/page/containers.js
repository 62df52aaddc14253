// The workspace's containers, the newest first.
import { get } from "./api.js";
import { announce, button, confirm, empty, field, fill, h, row, table } from "./dom.js";
import { time } from "./format.js";

const PAGE = 100;
const COLUMNS = [
  { head: "Container", class: "id", heads: true },
  { head: "Status" },
  { head: "Last used", class: "nowrap" },
  { head: "Made", class: "nowrap" },
  { head: "Memory", numeric: true },
  { head: "CPUs", numeric: true },
  { head: "Image" },
  { head: "Network", class: "path" },
];

export function stateMark(c) {
  return h("span", { class: `mark ${c.status === "running" ? "live" : c.status === "deleting" ? "bad" : "fine"}` }, c.status);
}

export function networkText(policy) {
  if (policy?.type !== "allowlist") return "none";
  const names = policy.allowed_domains ?? [];
  return names.length > 3 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");
}

function cells(c) {
  const link = h("a", { href: `#/containers/${encodeURIComponent(c.id)}` }, c.id);
  return [c.name && c.name !== c.id ? [link, " ", h("span", { class: "dim" }, c.name)] : link,
    stateMark(c), time(c.last_active_at * 1000), time(c.created_at * 1000), c.memory_limit, c.cpus, c.image, networkText(c.network_policy)];
}

export async function containersView({ place, signal }) {
  const t = table("Containers", COLUMNS);
  const nothing = h("div", {});
  let last = null;
  const more = button("Older", async () => {
    await load();
    announce(`${t.body.children.length} containers`);
  });

  async function load() {
    const answer = await get("containers", { limit: PAGE, after: last ?? undefined }, signal);
    t.body.append(...answer.data.map((c) => row(COLUMNS, cells(c))));
    last = answer.last_id;
    more.hidden = !answer.has_more;
    if (!t.body.children.length) fill(nothing, empty("There is none. The first command of a request makes one."));
  }

  const open = h("form", { class: "filters" }, field("Open by id", h("input", { name: "id", required: true, autocomplete: "off", spellcheck: "false" }), { wide: true }),
    h("div", { class: "actions" }, h("button", { type: "submit" }, "Open")));
  open.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = `#/containers/${encodeURIComponent(open.elements.id.value.trim())}`;
  });
  await load();
  place.append(open, t.element, nothing, h("div", { class: "pager" }, more));
}
