// @ts-check
/**
 * Tabs, by the rules for them: arrow keys move, one panel is shown, the panel is made when it is first looked at.
 *
 *   tabs("Details", [["events", "Events", () => node], ["log", "Log", () => node]], "events", (id) => setQuery({ tab: id }))
 */
import { h } from "../dom.js";

let count = 0;

/**
 * @param {string} label @param {[string, string, () => Node][]} parts @param {string} first @param {(id: string) => void} [onChange]
 */
export function tabs(label, parts, first, onChange) {
  const id = `tabs-${(count += 1)}`;
  const panels = h("div", { class: "stack" });
  const chosen = parts.some(([name]) => name === first) ? first : parts[0]?.[0] ?? "";
  const buttons = parts.map(([name, text]) => h("button", { type: "button", role: "tab", id: `${id}-${name}`, "aria-controls": `${id}-panel`, data: { tab: name }, onclick: () => show(name, true) }, text));
  const panel = h("div", { role: "tabpanel", id: `${id}-panel`, tabindex: "0", class: "stack" });
  panels.append(panel);
  /** @type {Map<string, Node>} */
  const made = new Map();
  /** @param {string} name @param {boolean} [told] */
  const show = (name, told = false) => {
    for (const one of buttons) {
      const here = one.dataset.tab === name;
      one.setAttribute("aria-selected", String(here));
      one.tabIndex = here ? 0 : -1;
      if (here) panel.setAttribute("aria-labelledby", one.id);
    }
    const content = made.get(name) ?? parts.find(([other]) => other === name)?.[2]() ?? document.createTextNode("");
    made.set(name, content);
    panel.replaceChildren(content);
    if (told) onChange?.(name);
  };
  const list = h("div", { class: "tablist", role: "tablist", "aria-label": label, onkeydown: (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = buttons.findIndex((one) => one.getAttribute("aria-selected") === "true");
    const next = buttons[(at + step + buttons.length) % buttons.length];
    next?.click();
    next?.focus();
  } }, buttons);
  show(chosen);
  return { element: h("div", { class: "stack" }, list, panels), show };
}
