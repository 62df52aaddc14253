// Making elements. Everything that comes from the server gets into the page as text, through text(): there is no other way.
import { visible } from "./words.js";

export function text(value) {
  return document.createTextNode(visible(String(value)));
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : text(child));
  }
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    else if (["value", "checked", "disabled", "selected", "open"].includes(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : visible(String(value)));
  }
}

/** h("p", {class: "dim"}, "text", element, …) */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  append(element, children);
  set(element, attributes);
  return element;
}

export function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  append(element, children);
  set(element, attributes);
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

/** Says it to those who listen to the page; a repeated text is said again. */
export function announce(message) {
  const place = document.getElementById("announcer");
  place.replaceChildren();
  setTimeout(() => place.replaceChildren(text(message)), 50);
}

let ids = 0;

/** A label with its control below it. */
export function field(label, control, { hint, wide, narrow } = {}) {
  const id = (control.id ||= `field-${++ids}`);
  const note = hint ? h("span", { class: "hint", id: `${id}-hint` }, hint) : null;
  if (note) control.setAttribute("aria-describedby", note.id);
  return h("div", { class: `field${wide ? " wide" : ""}${narrow ? " narrow" : ""}` }, h("label", { for: id }, label), control, note);
}

export function button(label, onClick, attributes = {}) {
  return h("button", { type: "button", ...attributes, on: { click: onClick } }, label);
}

/** A select of [value, label] pairs. */
export function choice(options, value, onChange) {
  const element = h("select", { on: onChange ? { change: () => onChange(element.value) } : {} },
    options.map(([v, label]) => h("option", { value: v }, label)));
  element.value = value;
  return element;
}

/**
 * A table of [{head, numeric, class}] columns in a box that scrolls sideways; body() of it takes rows of cells.
 * Cells are texts or elements.
 */
export function table(caption, columns, { shown = false } = {}) {
  const head = h("tr", {}, columns.map((c) => h("th", { scope: "col", class: c.numeric ? "num" : c.class, title: c.title },
    c.class === "act" ? h("span", { class: "unseen" }, c.head) : c.head)));
  const body = h("tbody", {});
  const element = h("table", {}, h("caption", { class: shown ? "" : "unseen" }, caption), h("thead", {}, head), body);
  return { element: h("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" }, element), body, table: element, columns };
}

export function row(columns, cells, attributes = {}) {
  return h("tr", attributes, cells.map((cell, i) => {
    const c = columns[i];
    return h(c.heads ? "th" : "td", { class: [c.numeric ? "num" : "", c.class ?? ""].join(" ").trim() || null, scope: c.heads ? "row" : null }, cell);
  }));
}

/** A question with a button that does it; resolves to true or false. */
export function confirm(question, detail, action) {
  return new Promise((done) => {
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" },
      h("h2", { id: "dialog-title" }, question),
      detail ? h("p", {}, detail) : null,
      h("div", { class: "actions" },
        button("Cancel", () => dialog.close("")),
        button(action, () => dialog.close("yes"), { class: "danger" })));
    dialog.addEventListener("close", () => {
      dialog.remove();
      done(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** A notice in place of what could not be shown. */
export function problem(error, what = "This") {
  const title = error.status === 403 ? `${what}: not for this key (403)`
    : error.status === 404 ? `${what}: not there (404)`
    : error.status ? `${what}: the server answered ${error.status}` : `${what}: could not be shown`;
  // What the server says of an address that it does not know at all is meant for who wrote the address.
  const unknown = error.status === 404 && error.message.startsWith("There is nothing at this path");
  return h("div", { class: "notice", role: "alert" }, h("strong", {}, title), h("p", {}, unknown ? "This server does not offer it." : error.message));
}

export function empty(message) {
  return h("p", { class: "empty" }, message);
}

/** Saves bytes as a file of the user's. */
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
