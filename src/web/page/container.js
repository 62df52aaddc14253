// One container: its files, what it reached over the network, and what can be done with it.
import { ask, get, maybe, send } from "./api.js";
import { announce, button, confirm, empty, field, fill, h, problem, row, save, table } from "./dom.js";
import { bytes, count, time } from "./format.js";
import { networkText, stateMark } from "./containers.js";
import { commandBlock, longText } from "./terminal.js";

const PAGE = 200;
const VIEW_MOST = 1 << 20;
const PICTURES = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" };

const FILES = [{ head: "Path", class: "path", heads: true }, { head: "Size", numeric: true }, { head: "Changed", class: "nowrap" }, { head: "Actions", class: "act" }];
const NETWORK = [
  { head: "Time", class: "nowrap" }, { head: "Verdict" }, { head: "Name", class: "path" }, { head: "Address" }, { head: "Port", numeric: true },
  { head: "In", numeric: true }, { head: "Out", numeric: true }, { head: "Why" },
];

/* ---- files ---- */

function base64(data) {
  let text = "";
  for (let i = 0; i < data.length; i += 8192) text += String.fromCharCode(...data.subarray(i, i + 8192));
  return btoa(text);
}

/* Text as text; a picture, told by its name and shown from its bytes alone; anything else is only to be downloaded. */
async function showFile(where, file, place, signal) {
  const response = await ask(`${where}/${file.id}/content`, { signal, headers: { range: `bytes=0-${VIEW_MOST - 1}` } })
    .catch((error) => { if (error.status === 416) return null; throw error; });
  const data = response ? new Uint8Array(await response.arrayBuffer()) : new Uint8Array();
  const picture = PICTURES[file.path.split(".").at(-1).toLowerCase()];
  const title = h("h3", { tabindex: "-1" }, file.path);
  let body;
  if (picture && data.length === file.bytes) body = h("img", { alt: file.path, src: `data:${picture};base64,${base64(data)}` });
  else if (data.subarray(0, 8192).includes(0)) body = h("p", { class: "dim" }, "Not a text. It can be downloaded.");
  else {
    body = longText(new TextDecoder().decode(data), { className: "mono", label: `Content of ${file.path}` });
    if (file.bytes > data.length) body = h("div", {}, body, h("p", { class: "cut" }, `The first ${bytes(data.length)} of ${bytes(file.bytes)}.`));
  }
  fill(place, h("div", { class: "terminal" }, h("div", { class: "head" }, title, h("div", { class: "actions" }, button("Close", () => fill(place), { class: "small" }))), body));
  title.focus();
}

function filesSection(id, signal) {
  const where = `containers/${encodeURIComponent(id)}/files`;
  const t = table("Files", FILES);
  const nothing = h("div", {});
  const viewer = h("div", { "aria-live": "off" });
  const said = h("p", { role: "status" });
  const tell = (text) => {
    fill(said, text);
  };
  const trying = (what) => async () => {
    try {
      await what();
    } catch (error) {
      if (!signal.aborted) fill(said, h("span", { class: "error" }, error.message));
    }
  };
  let last = null;

  function cells(file) {
    const small = (label, what, extra = {}) => button(label, trying(what), { class: "small", "aria-label": `${label} ${file.path}`, ...extra });
    return [file.path, bytes(file.bytes), time(file.created_at * 1000), h("div", { class: "actions" },
      small("View", () => showFile(where, file, viewer, signal)),
      small("Download", async () => save(await (await ask(`${where}/${file.id}/content`, { signal })).blob(), file.path.split("/").at(-1))),
      small("Promote", async () => {
        const kept = await send("POST", `${where}/${file.id}/promote`, undefined, signal);
        tell(`A copy of ${file.path} is kept in the workspace: ${kept.id}`);
      }),
      small("Delete", async () => {
        if (!(await confirm("Delete this file?", file.path, "Delete"))) return;
        await send("DELETE", `${where}/${file.id}`, undefined, signal);
        tell(`${file.path} is deleted.`);
        await reload();
      }))];
  }

  async function load() {
    const answer = await get(where, { limit: PAGE, after: last ?? undefined }, signal);
    t.body.append(...answer.data.map((file) => row(FILES, cells(file))));
    last = answer.last_id;
    more.hidden = !answer.has_more;
    fill(nothing, t.body.children.length ? null : empty("Its home is empty."));
  }

  const reload = async () => {
    last = null;
    fill(t.body);
    await load();
  };
  const more = button("More", trying(load));
  const input = h("input", { type: "file", name: "file", required: true });
  const path = h("input", { name: "path", autocomplete: "off", spellcheck: "false" });
  const form = h("form", { class: "filters" }, field("Upload a file", input, { wide: true }), field("To the path", path), h("div", { class: "actions" }, h("button", { type: "submit" }, "Upload")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    trying(async () => {
      const body = new FormData();
      if (path.value.trim()) body.append("path", path.value.trim());
      body.append("file", input.files[0]);
      const made = await (await ask(where, { method: "POST", body, signal })).json();
      form.reset();
      tell(`${made.path} is there.`);
      await reload();
    })();
  });
  const element = h("section", { "aria-labelledby": "files" }, h("div", { class: "head" }, h("h2", { id: "files" }, "Files"), h("div", { class: "actions" }, button("Reload", trying(reload), { class: "small", "aria-label": "Reload files" }))),
    t.element, nothing, h("div", {}, more), said, viewer, form);
  return { element, load: trying(load), reload: trying(reload) };
}

/* ---- commands ---- */

function execSection(id, signal, after) {
  const line = h("input", { name: "command", autocomplete: "off", spellcheck: "false", required: true, class: "mono" });
  const out = h("div", { class: "answer" });
  const go = h("button", { type: "submit" }, "Run");
  const form = h("form", { class: "filters" }, field("Command", line, { wide: true }), h("div", { class: "actions" }, go));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    const command = line.value;
    try {
      const answer = await send("POST", `containers/${encodeURIComponent(id)}/exec`, { commands: [command], timeout_ms: 300_000 }, signal);
      out.prepend(commandBlock({ command, ...answer.output[0] }));
      announce("The command has ended.");
      line.value = "";
      await after();
    } catch (error) {
      if (!signal.aborted) out.prepend(problem(error, "The command"));
    }
    go.disabled = false;
    line.focus();
  });
  return h("section", { "aria-labelledby": "exec" }, h("h2", { id: "exec" }, "Run a command"), h("p", { class: "hint" }, "It wakes the container and costs what any command costs."), form, out);
}

/* ---- network ---- */

async function networkSection(id, signal) {
  const place = h("section", { "aria-labelledby": "network" }, h("h2", { id: "network" }, "Network"));
  const list = await maybe(`containers/${encodeURIComponent(id)}/network`, { limit: 200 }, signal);
  if (!list?.data.length) {
    place.append(empty("It has tried to reach nothing."));
    return place;
  }
  const t = table("Network", NETWORK);
  for (const n of list.data) {
    t.body.append(row(NETWORK, [time(n.time_ms), h("span", { class: `mark ${n.verdict === "deny" ? "bad" : "fine"}` }, n.verdict), n.name ?? "–", n.address ?? "–",
      n.port, bytes(n.bytes_in), bytes(n.bytes_out), [n.reason, n.more ? ` and ${count(n.more)} more` : ""]]));
  }
  place.append(t.element);
  return place;
}

export async function containerView({ place, id, setTitle, signal }) {
  const where = `containers/${encodeURIComponent(id)}`;
  setTitle(id);
  place.querySelector("h1").before(h("p", { class: "crumb" }, h("a", { href: "#/containers" }, "Containers")));
  const facts = h("dl", { class: "facts" });
  const said = h("p", { role: "status" });

  async function load() {
    const c = await get(where, null, signal);
    const fact = (name, value) => (value === null || value === undefined ? null : h("div", {}, h("dt", {}, name), h("dd", {}, value)));
    fill(facts, fact("Status", stateMark(c)), fact("Name", c.name === c.id ? null : c.name), fact("Last used", time(c.last_active_at * 1000)), fact("Made", time(c.created_at * 1000)),
      fact("Memory", c.memory_limit), fact("CPUs", c.cpus), fact("Image", c.image), fact("Network", networkText(c.network_policy)),
      fact("Kept running until", c.keep_running_until ? time(c.keep_running_until * 1000) : null),
      fact("Requests", h("a", { href: `#/requests?container_id=${encodeURIComponent(id)}` }, "of this container")));
    sleep.disabled = c.status === "asleep";
  }

  const sleep = button("Put to sleep", async () => {
    if (!(await confirm("Put it to sleep?", "What runs in it ends. Its files stay.", "Put to sleep"))) return;
    try {
      await send("POST", `${where}/sleep`, undefined, signal);
      fill(said, "It is asleep.");
      await load();
    } catch (error) {
      fill(said, h("span", { class: "error" }, error.status === 404 ? "This server cannot put containers to sleep on request (404)." : error.message));
    }
  });
  const remove = button("Delete", async () => {
    if (!(await confirm("Delete this container?", "Its files go with it, for ever.", "Delete"))) return;
    try {
      await send("DELETE", where, undefined, signal);
      announce("The container is deleted.");
      location.hash = "#/containers";
    } catch (error) {
      fill(said, h("span", { class: "error" }, error.message));
    }
  }, { class: "danger" });

  await load();
  const files = filesSection(id, signal);
  place.append(h("div", { class: "top" }, sleep, remove), facts, said, files.element,
    execSection(id, signal, async () => {
      await Promise.all([files.reload(), load()]);
    }));
  await files.load();
  place.append(await networkSection(id, signal));
}
