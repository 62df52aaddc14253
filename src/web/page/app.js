// The frame: log-in, navigation, themes, and which view is shown. The address's fragment says which: #/requests/gen-…?filters.
import { ApiError, get, maybe, session } from "./api.js";
import { announce, button, choice, field, fill, h, problem } from "./dom.js";
import { containerView } from "./container.js";
import { containersView } from "./containers.js";
import { guardrailsView } from "./guardrails.js";
import { keysView } from "./keys.js";
import { playgroundView } from "./playground.js";
import { requestView } from "./request.js";
import { requestsView } from "./requests.js";
import { spendingView } from "./spending.js";

const VIEWS = [
  { name: "requests", title: "Requests", view: requestsView, one: requestView },
  { name: "playground", title: "Playground", view: playgroundView },
  { name: "containers", title: "Containers", view: containersView, one: containerView },
  { name: "spending", title: "Spending", view: spendingView },
  { name: "guardrails", title: "Guardrails", view: guardrailsView },
  { name: "keys", title: "Keys", view: keysView },
];

const app = document.getElementById("app");
let leaving = null; // ends what the view that is shown does
let main = null;
let links = new Map();

/* ---- themes ---- */

function themeNow() {
  return document.documentElement.dataset.theme ?? "auto";
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("brig.theme", theme);
  } catch {
    // It holds for this page only, then.
  }
}

function themeSwitch() {
  return field("Theme", choice([["auto", "System"], ["light", "Light"], ["dark", "Dark"]], themeNow(), setTheme));
}

/* ---- log-in ---- */

async function about(key) {
  // Any key may list its requests: the cheapest question that a wrong key fails.
  const { ask } = await import("./api.js");
  await ask("generations", { query: { limit: 1 }, as: key });
}

async function learn() {
  const own = (await maybe("key").catch(() => null))?.data ?? {};
  session.about = own;
}

function showLogin(reason = "") {
  leaving?.abort();
  main = null;
  const input = h("input", { type: "password", name: "key", autocomplete: "off", spellcheck: "false", required: true });
  const said = h("p", { class: "error", role: "alert" }, reason);
  const go = h("button", { type: "submit", class: "primary" }, "Log in");
  const form = h("form", {
    on: {
      submit: async (event) => {
        event.preventDefault();
        const key = input.value.trim();
        if (!key) return;
        go.disabled = true;
        fill(said);
        try {
          await about(key);
          session.key = key;
          await showApp();
        } catch (error) {
          go.disabled = false;
          const text = error instanceof ApiError && error.status === 401 ? "The server does not take this key." : error.message;
          fill(said, text);
          input.select();
        }
      },
    },
  }, field("API key", input, { hint: "It stays in this tab and is forgotten when the tab is closed." }), go, said);
  document.title = "Log in – brig";
  fill(app, h("main", { class: "login", id: "main" },
    h("h1", {}, "brig"),
    h("p", { class: "dim" }, "What ran, what it cost, what was stopped."),
    form,
    h("p", { class: "hint" }, "A server without keys in its configuration has made one: the file ", h("code", {}, "key"),
      " in its data folder. ", h("code", {}, "brig keys create"), " makes more.")));
  input.focus();
}

function logOut(reason = "") {
  session.key = null;
  session.about = {};
  showLogin(reason);
}

/* ---- the frame ---- */

function whoAmI() {
  const { name, label, workspace, workspace_id: id, is_admin: isAdmin, admin } = session.about;
  const words = [name ?? label, workspace ?? id, isAdmin ?? admin ? "admin" : null].filter(Boolean);
  return words.length ? h("p", { class: "who" }, words.join(" · ")) : null;
}

async function showApp() {
  await learn();
  links = new Map(VIEWS.map((v) => [v.name, h("a", { href: `#/${v.name}` }, v.title)]));
  main = h("main", { id: "main", tabindex: "-1" });
  fill(app,
    h("a", { class: "skip", href: "#main", on: { click: (e) => { e.preventDefault(); main.focus(); } } }, "Skip to content"),
    h("header", { class: "side" },
      h("a", { class: "brand", href: "#/requests" }, "brig"),
      h("nav", { "aria-label": "Views" }, h("ul", {}, [...links.values()].map((a) => h("li", {}, a)))),
      h("div", { class: "foot" }, whoAmI(), themeSwitch(), button("Log out", () => logOut()))),
    main);
  await route(true);
}

function parse() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, id] = path.split("/");
  let decoded = null;
  try {
    decoded = id ? decodeURIComponent(id) : null;
  } catch {
    // A broken escape: as if there was none.
  }
  return { view: VIEWS.find((v) => v.name === name), id: decoded, query: new URLSearchParams(query) };
}

let shown = null;

async function route(first = false) {
  if (session.key === null || main === null) return;
  const { view = VIEWS[0], id, query } = parse();
  const where = `${view.name}/${id ?? ""}`;
  leaving?.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  for (const [name, link] of links) {
    if (name === view.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const place = h("div", { class: "view" });
  const title = h("h1", { tabindex: "-1" }, view.title);
  const context = {
    place, query, id, signal, title,
    /** The view's name for what it shows. */
    setTitle(name) {
      fill(title, name);
      document.title = `${name} – brig`;
    },
  };
  context.setTitle(view.title);
  fill(main, place);
  place.append(title);
  // Only a change of view moves the focus, not one of filters in it.
  if (!first && where !== shown) title.focus({ preventScroll: true });
  if (where !== shown) scrollTo(0, 0);
  shown = where;
  try {
    await (id !== null && view.one ? view.one : view.view)(context);
  } catch (error) {
    if (!signal.aborted) {
      place.append(problem(error, view.title));
      announce(`${view.title}: ${error.message}`);
    }
  }
}

addEventListener("hashchange", () => route());
session.onRefused = () => logOut("The server does not take this key any more.");

if (session.key === null) showLogin();
else {
  get("generations", { limit: 1 }).then(showApp, (error) => {
    if (session.key !== null) showLogin(error.message);
  });
}
