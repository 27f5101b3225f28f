// @ts-check
/**
 * Keys of the whole studio. `/` goes to the search field, `j` and `k` move through rows marked `data-row`, Enter opens
 * the row's first link, `x` ticks it, `g` and a letter goes to a page, `?` shows all of this.
 * A page adds its own with `keys({ r: retry }, signal)`.
 */
import { go } from "./router.js";

/** @type {Map<string, () => void>} */
const own = new Map();
let waitingForG = 0;

/** Keys of a page, until its signal. @param {Record<string, () => void>} added @param {AbortSignal} signal */
export function keys(added, signal) {
  for (const [key, action] of Object.entries(added)) own.set(key, action);
  signal.addEventListener("abort", () => Object.keys(added).forEach((key) => own.delete(key)), { once: true });
}

/** @param {readonly import("./router.js").PageEntry[]} pages @param {() => void} help */
export function listen(pages, help) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (isTyping(event.target)) {
      if (event.key === "Escape" && event.target instanceof HTMLElement) event.target.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    if (act(event.key, pages, help)) event.preventDefault();
  });
}

/** @param {string} key @param {readonly import("./router.js").PageEntry[]} pages @param {() => void} help */
function act(key, pages, help) {
  if (Date.now() - waitingForG < 1200) {
    waitingForG = 0;
    const page = pages.find((entry) => entry.nav?.key === key);
    if (page) go(page.path);
    return page !== undefined;
  }
  const action = own.get(key);
  if (action) return action(), true;
  switch (key) {
    case "g":
      waitingForG = Date.now();
      return true;
    case "/":
      return focusOn(document.querySelector("main [data-search]") ?? document.querySelector("[data-search]"));
    case "?":
      return help(), true;
    case "j":
      return move(1);
    case "k":
      return move(-1);
    case "x":
      return tick();
    case "Enter":
      return open();
    default:
      return false;
  }
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) && !(target instanceof HTMLInputElement && target.type === "checkbox");
}

/** @param {Element | null} field */
function focusOn(field) {
  if (!(field instanceof HTMLElement)) return false;
  field.focus();
  if (field instanceof HTMLInputElement) field.select();
  return true;
}

const current = () => document.querySelector("main [data-row].current");

/** @param {number} step */
function move(step) {
  const rows = [...document.querySelectorAll("main [data-row]")];
  if (!rows.length) return false;
  const now = current();
  const at = now ? rows.indexOf(now) + step : step > 0 ? 0 : rows.length - 1;
  const next = rows[Math.max(0, Math.min(rows.length - 1, at))];
  now?.classList.remove("current");
  next?.classList.add("current");
  next?.scrollIntoView({ block: "nearest" });
  const target = next?.querySelector("a[href]");
  if (target instanceof HTMLElement) target.focus({ preventScroll: true });
  return true;
}

function tick() {
  const box = current()?.querySelector("input[type=checkbox]");
  if (!(box instanceof HTMLInputElement)) return false;
  box.click();
  return true;
}

function open() {
  const active = document.activeElement;
  if (active && active !== document.body && active.matches("a, button, summary, input, [role=tab]")) return false; // its own Enter
  const target = current()?.querySelector("a[href]");
  if (!(target instanceof HTMLElement)) return false;
  target.click();
  return true;
}
