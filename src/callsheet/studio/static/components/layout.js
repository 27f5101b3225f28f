// @ts-check
/**
 * The frame of a page.
 *
 *   pageHead("Jobs", "Everything that was asked for.", button(…))
 *   card("Queues", { aside: "now" }, content)           .card with a heading
 *   figure("Running", "12", "on 3 workers")             a large number
 *   facts([["Queue", "default"], ["Worker", null]])     pairs; null ones are left out
 *   field("Status", select, "hint")                     a label and its input
 */
import { h } from "../dom.js";

let count = 0;

/** @param {string} title @param {import("../dom.js").Children} text @param {...import("../dom.js").Child} actions */
export function pageHead(title, text, ...actions) {
  return h("header", { class: "head" }, h("div", { class: "titles" }, h("h1", { id: "title" }, title), text ? h("p", null, text) : null), actions.length ? h("div", { class: "actions" }, ...actions) : null);
}

/** @param {string} title @param {{aside?: import("../dom.js").Children, flush?: boolean, class?: string}} options @param {...import("../dom.js").Children} content */
export function card(title, { aside, flush = false, class: more = "" }, ...content) {
  const id = `card-${(count += 1)}`;
  const head = title ? h("header", null, h("h2", { id }, title), aside ? h("span", { class: "aside" }, aside) : null) : null;
  return h("section", { class: `card ${flush ? "flush" : ""} ${more}`, ...(title && { "aria-labelledby": id }) }, head, ...content);
}

/** @param {string} name @param {import("../dom.js").Child} value @param {import("../dom.js").Children} [note] @param {string} [tone] */
export function figure(name, value, note, tone = "") {
  return h("div", { class: `card figure ${tone}` }, h("div", { class: "name" }, name), h("div", { class: "value" }, value), h("div", { class: "remark" }, note ?? "\u00a0"));
}

/** @param {[string, import("../dom.js").Children][]} pairs */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, known.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

/** @param {string} label @param {HTMLElement} input @param {string} [hint] */
export function field(label, input, hint) {
  input.id ||= `field-${(count += 1)}`;
  if (hint) input.setAttribute("aria-describedby", `${input.id}-hint`);
  return h("div", { class: "field" }, h("label", { for: input.id }, label), input, hint ? h("span", { class: "hint", id: `${input.id}-hint` }, hint) : null);
}

/** @param {[string, string][]} options Value and text. @param {string} chosen @param {Record<string, any>} [props] */
export function select(options, chosen, props = {}) {
  return h("select", { class: "input", ...props }, options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
}
