// A request to any model, with the shell, and its stream as it comes. It is an ordinary request of this key: it has a row, a
// cost and a timeline.
import { ask, events, get } from "./api.js";
import { announce, button, field, fill, h, problem } from "./dom.js";
import { count, money, seconds } from "./format.js";
import { commandBlock, endOf, longText, terminalNodes } from "./terminal.js";

const EXAMPLE = `Show the system and count to five.

\`\`\`
cat /etc/os-release | head -n 4
\`\`\`
\`\`\`
for i in 1 2 3 4 5; do printf '\\033[3%dmline %d\\033[0m\\n' $i $i; done
\`\`\`
`;

/* What is kept while the tab lives, so that going to a timeline and back loses nothing. */
const kept = { model: "", text: EXAMPLE, shell: true, session: "" };

/* One item of the answer, drawn again with each of its events. */
class Item {
  constructor(place) {
    this.element = h("div", {});
    place.append(this.element);
    this.pre = null;
  }

  shell(item) {
    const commands = item.action?.commands ?? [];
    const done = item.status !== "in_progress";
    fill(this.element, h("div", { class: "answer" },
      h("div", { class: "line" }, h("h3", {}, item.type), item.container_id ? h("a", { href: `#/containers/${encodeURIComponent(item.container_id)}` }, item.container_id) : null),
      item.error ? h("p", { class: "error" }, String(item.error.message ?? item.error)) : null,
      commands.map((command, i) => {
        const out = item.output?.[i];
        return commandBlock({ command, stdout: out?.stdout, stderr: out?.stderr, stdout_truncated: out?.stdout_truncated, stderr_truncated: out?.stderr_truncated,
          outcome: out?.outcome ?? (done ? { type: "exit", exit_code: "?" } : null) });
      })));
  }

  write(delta, title, plain) {
    if (!this.pre) {
      this.pre = h("pre", {});
      fill(this.element, h("div", { class: plain ? "said plainly" : "said" }, h("span", { class: "role" }, title), this.pre));
    }
    this.pre.append(...terminalNodes(delta));
  }

  whole(text, title) {
    this.pre = null;
    fill(this.element, h("div", { class: "said" }, h("span", { class: "role" }, title), longText(text, { terminal: true })));
  }

  other(item) {
    fill(this.element, h("details", {}, h("summary", {}, item.type ?? "item"), longText(JSON.stringify(item, null, 2), { className: "mono" })));
  }
}

class Answer {
  items = new Map();

  constructor(place) {
    this.place = place;
  }

  item(index) {
    if (!this.items.has(index)) this.items.set(index, new Item(this.place));
    return this.items.get(index);
  }

  take(event) {
    const index = event.output_index;
    switch (event.type) {
      case "response.output_item.added":
      case "response.output_item.done":
        this.takeItem(this.item(index), event.item, event.type.endsWith("done"));
        break;
      case "response.output_text.delta":
      case "response.refusal.delta":
        this.item(index).write(event.delta, "assistant");
        break;
      case "response.reasoning_summary_text.delta":
      case "response.reasoning_text.delta":
        this.item(index).write(event.delta, "reasoning", true);
        break;
      default:
    }
  }

  takeItem(place, item, done) {
    if (item.type?.endsWith(":shell") || item.type === "shell_call") {
      place.shell(item);
      announce(done ? "The commands have ended." : `Running ${item.action?.commands?.length ?? 0} commands.`);
    } else if (item.type === "message") {
      if (done) place.whole((item.content ?? []).map((c) => c.text ?? c.refusal ?? "").join("\n"), "assistant");
    } else if (item.type !== "reasoning") place.other(item);
  }
}

function modelList(select, models) {
  const byName = models.map((m) => m.id).sort((a, b) => (a === "brig/script" ? 1 : b === "brig/script" ? -1 : a < b ? -1 : 1));
  fill(select, byName.map((id) => h("option", { value: id }, id)));
  select.value = byName.includes(kept.model) ? kept.model : byName[0] ?? "";
}

export async function playgroundView({ place, signal }) {
  const model = h("select", { name: "model" });
  const text = h("textarea", { name: "text", rows: "14", spellcheck: "false", value: kept.text });
  const shell = h("input", { type: "checkbox", id: "with-shell", checked: kept.shell });
  const sessionId = h("input", { name: "session", value: kept.session, autocomplete: "off", spellcheck: "false" });
  const go = h("button", { type: "submit", class: "primary", disabled: true }, "Send");
  const cancel = button("Cancel", () => running?.abort("cancelled"), { disabled: true });
  const state = h("div", { class: "head" }, h("span", { class: "dim" }, "Nothing sent yet."));
  const out = h("div", { class: "answer" });
  let running = null;

  const keep = () => Object.assign(kept, { model: model.value || kept.model, text: text.value, shell: shell.checked, session: sessionId.value });

  function body() {
    const all = { model: model.value, input: text.value, stream: true };
    if (shell.checked) all.tools = [{ type: "openrouter:shell" }];
    if (sessionId.value.trim()) all.session_id = sessionId.value.trim();
    return all;
  }

  async function run() {
    const began = performance.now();
    const answer = new Answer(out);
    let last = null;
    fill(out);
    fill(state, h("span", { class: "mark live" }, "running"));
    const response = await ask("responses", { method: "POST", json: body(), signal: running.signal });
    const id = response.headers.get("x-generation-id");
    const link = id ? h("a", { href: `#/requests/${encodeURIComponent(id)}` }, "Open the timeline") : null;
    const clock = h("span", { class: "dim" });
    fill(state, h("span", { class: "mark live" }, "running"), clock, link);
    const timer = setInterval(() => fill(clock, seconds(performance.now() - began)), 100);
    try {
      for await (const { data } of events(response)) {
        if (data === "[DONE]") break;
        const event = JSON.parse(data);
        if (["response.completed", "response.incomplete", "response.failed", "error"].includes(event.type)) last = event;
        else answer.take(event);
      }
    } finally {
      clearInterval(timer);
      fill(state, running.signal.aborted ? h("span", { class: "mark odd" }, "cancelled") : null, h("span", { class: "dim" }, seconds(performance.now() - began)), link);
    }
    ended(last, link, performance.now() - began);
  }

  function ended(last, link, ms) {
    const r = last?.response;
    const error = r?.error ?? last?.error ?? (last ? null : { message: "The stream broke off." });
    const usage = r?.usage;
    const good = r?.status === "completed";
    fill(state, h("span", { class: good ? "mark fine" : "mark bad" }, r?.status ?? "failed"), h("span", { class: "dim" }, seconds(ms)),
      usage ? h("span", { class: "dim" }, `${count(usage.input_tokens)} tokens in, ${count(usage.output_tokens)} out`) : null,
      usage ? h("span", {}, money(usage.cost ?? null)) : null, link);
    if (error) out.append(h("p", { class: "error", role: "alert" }, error.message ?? String(error)));
    announce(good ? `The answer is complete. It cost ${money(usage?.cost ?? null)}.` : "The request failed.");
  }

  const form = h("form", { class: "full" },
    field("Model", model),
    field("Message", text, { hint: "brig/script is no model: it runs the fenced blocks of the message." }),
    h("div", { class: "check" }, shell, h("label", { for: "with-shell" }, "Offer the shell (openrouter:shell)")),
    field("Session", sessionId, { hint: "The same name, the same container. Empty: a new one." }),
    h("div", { class: "actions" }, go, cancel, h("span", { class: "hint" }, "Ctrl+Enter sends")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (running || !model.value) return;
    keep();
    running = new AbortController();
    go.disabled = true;
    cancel.disabled = false;
    try {
      await run();
    } catch (error) {
      if (running.signal.aborted) announce("Cancelled.");
      else {
        fill(state, h("span", { class: "mark bad" }, "failed"));
        out.append(problem(error, "The request"));
      }
    }
    running = null;
    cancel.disabled = true;
    go.disabled = false;
    if (document.activeElement === document.body) go.focus();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  form.addEventListener("input", keep);
  // A request whose page is left ends, as for any client that goes away.
  signal.addEventListener("abort", () => running?.abort("left"));

  place.append(h("div", { class: "split" }, form, h("section", { "aria-labelledby": "answer" }, h("h2", { id: "answer" }, "Answer"), state, out)));
  modelList(model, (await get("models", null, signal)).data);
  go.disabled = !model.value;
  keep();
}
