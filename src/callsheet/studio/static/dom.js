// @ts-check
/**
 * Elements, made by hand. Whatever comes from the server goes in as a text node: there is no innerHTML in the studio.
 *
 *   h("a", { class: "button first", href: "/studio/jobs", onclick: open }, icon("plus"), "New job")
 *   fill(box, ...children)          replace what is in a box
 *   when(fact, () => h("p", …))     a child, or none
 *   icon("jobs")                    one of ICONS, hidden from screen readers
 *
 * A child is a node, a text, a number, or null / undefined / false for none; lists are flattened.
 * In props: `class`, `onevent` functions, `data` (dataset), `style` (custom properties and lengths: the page's policy
 * allows no style attributes, so they are set one by one), properties (`value`, `checked` …), else attributes.
 *
 * @typedef {Node | string | number | null | undefined | false} Child
 * @typedef {Child | Child[] | (Child | Child[])[]} Children
 */

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "indeterminate", "selected", "open", "readOnly", "htmlFor", "tabIndex", "files", "muted", "controls"]);
const FORBIDDEN = new Set(["innerHTML", "outerHTML", "srcdoc"]);
const LINKS = new Set(["href", "src", "action", "poster"]);
const SVG = "http://www.w3.org/2000/svg";

/**
 * An element.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag @param {Record<string, any> | null} [props] @param {...Children} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, props, ...children) {
  const made = document.createElement(tag);
  set(made, props ?? {});
  append(made, children);
  return made;
}

/**
 * An element of SVG; only attributes.
 * @param {string} tag @param {Record<string, string | number>} [attributes] @param {...Children} children @returns {SVGElement}
 */
export function s(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  append(made, children);
  return made;
}

/** Replace what is in a box; the same nodes stay where they are, with the focus. @template {Element} E @param {E} box @param {...Children} children @returns {E} */
export function fill(box, ...children) {
  const asked = /** @type {Child[]} */ (children.flat(2)).filter((child) => child !== null && child !== undefined && child !== false);
  if (asked.length === box.childNodes.length && asked.every((child, n) => child === box.childNodes[n])) return box;
  const held = document.createDocumentFragment();
  append(held, children);
  box.replaceChildren(held);
  return box;
}

/** @template {Child} C @param {unknown} fact @param {() => C} make @returns {C | null} */
export function when(fact, make) {
  return fact ? make() : null;
}

/** @param {HTMLElement} made @param {Record<string, any>} props */
export function set(made, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || FORBIDDEN.has(name)) continue;
    if (name === "class") made.className = value;
    else if (name === "data") Object.assign(made.dataset, value);
    else if (name === "style") for (const [property, text] of Object.entries(value)) made.style.setProperty(property, String(text));
    else if (name.startsWith("on")) {
      if (typeof value === "function") made.addEventListener(name.slice(2), value);
    } else if (PROPERTIES.has(name)) Object.assign(made, { [name]: value });
    else if (value === false) made.removeAttribute(name);
    else if (LINKS.has(name)) made.setAttribute(name, safeLink(String(value)));
    else made.setAttribute(name, value === true ? "" : String(value));
  }
}

/** A link that cannot run a script, whatever a user wrote in it. @param {string} text */
export function safeLink(text) {
  try {
    return ["http:", "https:", "blob:", "mailto:"].includes(new URL(text, location.href).protocol) ? text : "#";
  } catch {
    return "#";
  }
}

/** @param {Node} box @param {Children[]} children */
function append(box, children) {
  for (const child of /** @type {Child[]} */ (children.flat(2))) {
    if (child === null || child === undefined || child === false) continue;
    box.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Lines on a grid of 24 by 24. @type {Record<string, string>} */
export const ICONS = {
  callsheet: "M5 3h10l4 4v14H5z M9 7h2 M9 11h6 M9 15h6",
  overview: "M4 20V10 M10 20V4 M16 20v-7 M22 20H2",
  jobs: "M4 6h16 M4 12h16 M4 18h10",
  dead: "M12 3v10 M12 17.5v.5 M4 21h16",
  videos: "M3 6h13v12H3z M16 10l5-3v10l-5-3",
  search: "M11 4a7 7 0 1 0 0 14a7 7 0 0 0 0-14z M20 20l-4-4",
  compose: "M4 20l1-4L16 5l3 3L8 19z M14 7l3 3",
  webhooks: "M4 12h9 M10 8l4 4-4 4 M17 5v14",
  workers: "M6 6h12v12H6z M10 10h4v4h-4z M9 3v3 M15 3v3 M9 18v3 M15 18v3 M3 9h3 M3 15h3 M18 9h3 M18 15h3",
  keys: "M14 10a4 4 0 1 0-4 4a4 4 0 0 0 4-4z M13 13l7 7 M17 17l2-2",
  quotas: "M4 18a8 8 0 1 1 16 0 M12 18l4-6 M2 18h20",
  audit: "M12 3l8 3v6c0 5-4 8-8 9c-4-1-8-4-8-9V6z M9 12l2 2 4-4",
  sun: "M12 8a4 4 0 1 0 0 8a4 4 0 0 0 0-8z M12 2v2 M12 20v2 M2 12h2 M20 12h2 M5 5l1.4 1.4 M17.6 17.6L19 19 M19 5l-1.4 1.4 M6.4 17.6L5 19",
  moon: "M20 14.5A8 8 0 1 1 9.5 4A6.5 6.5 0 0 0 20 14.5z",
  help: "M9 9a3 3 0 1 1 4 2.8c-.7.3-1 .9-1 1.7v.5 M12 17.5v.2 M12 3a9 9 0 1 0 0 18a9 9 0 0 0 0-18z",
  out: "M14 4H5v16h9 M10 12h10 M17 8l4 4-4 4",
  more: "M4 12a1 1 0 1 0 2 0a1 1 0 1 0-2 0z M11 12a1 1 0 1 0 2 0a1 1 0 1 0-2 0z M18 12a1 1 0 1 0 2 0a1 1 0 1 0-2 0z",
  close: "M6 6l12 12 M18 6L6 18",
  plus: "M12 5v14 M5 12h14",
  check: "M5 13l4 4L19 7",
  alert: "M12 4l9 16H3z M12 10v4 M12 17v.2",
  empty: "M4 13l3-8h10l3 8v6H4z M4 13h5l1 3h4l1-3h5",
  retry: "M20 12a8 8 0 1 1-2.5-5.8 M20 4v4h-4",
  play: "M8 5l11 7-11 7z",
  stop: "M7 7h10v10H7z",
  copy: "M9 9h11v11H9z M5 15H4V4h11v1",
  download: "M12 4v11 M8 11l4 4 4-4 M4 20h16",
  upload: "M12 20V9 M8 13l4-4 4 4 M4 4h16",
  clock: "M12 3a9 9 0 1 0 0 18a9 9 0 0 0 0-18z M12 7v5l3 2",
  link: "M10 14l4-4 M9 7l2-2a4 4 0 0 1 6 6l-2 2 M15 17l-2 2a4 4 0 0 1-6-6l2-2",
  filter: "M4 5h16l-6 8v6l-4-2v-4z",
  trash: "M5 7h14 M10 7V4h4v3 M7 7l1 13h8l1-13",
  left: "M15 5l-7 7 7 7",
  right: "M9 5l7 7-7 7",
  down: "M5 9l7 7 7-7",
  edit: "M4 20l1-4L16 5l3 3L8 19z",
  scissors: "M6 6a2.5 2.5 0 1 0 0 .1z M6 18a2.5 2.5 0 1 0 0 .1z M8 8l12 10 M8 16L20 6",
  user: "M12 4a4 4 0 1 0 0 8a4 4 0 0 0 0-8z M4 21c1-5 4-7 8-7s7 2 8 7",
  file: "M6 3h8l4 4v14H6z M14 3v4h4",
};

/** @param {string} name One of ICONS. @returns {SVGElement} */
export function icon(name) {
  return s("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, s("path", { d: ICONS[name] ?? "" }));
}

/** A button; `tone` is first, danger, plain, or several. @param {string} text @param {Record<string, any>} [props] */
export function button(text, { icon: name, tone = "", ...props } = {}) {
  return h("button", { type: "button", class: `button ${tone}`, ...props }, name ? icon(name) : null, text);
}

/** A button that is only an icon; `text` is what it is called. @param {string} text @param {string} name @param {Record<string, any>} [props] */
export function iconButton(text, name, { tone = "plain", ...props } = {}) {
  return h("button", { type: "button", class: `button square ${tone}`, "aria-label": text, title: text, ...props }, icon(name));
}

/** A link within the studio. @param {string} path @param {Record<string, any>} props @param {...Children} children */
export function link(path, props, ...children) {
  return h("a", { href: path, ...props }, ...children);
}
