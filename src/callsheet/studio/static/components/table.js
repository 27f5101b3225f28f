// @ts-check
/**
 * A table of rows that keep their place: a row is found by its key and changed where it stands.
 *
 *   const table = makeTable("Jobs", [
 *     { name: "Job", cell: (job) => link(…) },
 *     { name: "Age", cell: (job) => moment(job.created_ts), class: "num extra" },   extra: not on a phone
 *   ], (job) => job.job_id);
 *   table.rows(jobs);          all of them, in this order
 *   table.change(job);         one, if it is there; it flashes
 *   table.append(jobs);        more at the end
 *
 * Each row is a `data-row`, for j and k. `table.element` goes into a `.card.flush`.
 *
 * @template T @typedef {{name: string, cell: (item: T) => import("../dom.js").Children, class?: string, hidden?: boolean}} Column
 */
import { fill, h } from "../dom.js";

/**
 * @template T
 * @param {string} label @param {Column<T>[]} columns @param {(item: T) => string} keyOf
 */
export function makeTable(label, columns, keyOf) {
  /** @type {Map<string, HTMLTableRowElement>} */
  const known = new Map();
  const body = h("tbody");
  const heads = columns.map((column) => h("th", { scope: "col", class: column.class ?? "" }, column.hidden ? h("span", { class: "visually-hidden" }, column.name) : column.name));
  const element = h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `${label}, scrolls` }, h("table", { class: "table", "aria-label": label }, h("thead", null, h("tr", null, heads)), body));

  /** @param {T} item */
  const cells = (item) => columns.map((column) => h("td", { class: column.class ?? "" }, column.cell(item)));
  /** @param {T} item */
  const row = (item) => {
    const key = keyOf(item);
    const made = known.get(key) ?? h("tr", { data: { row: key }, onanimationend: () => made.classList.remove("changed") });
    known.set(key, made);
    return fill(made, cells(item));
  };
  return {
    element,
    body,
    /** @param {T[]} items */
    rows(items) {
      const keep = new Set(items.map(keyOf));
      for (const key of known.keys()) if (!keep.has(key)) known.delete(key);
      body.replaceChildren(...items.map(row));
    },
    /** @param {T[]} items */
    append(items) {
      body.append(...items.map(row));
    },
    /** @param {T[]} items */
    prepend(items) {
      body.prepend(...items.map(row));
    },
    /** @param {T} item */
    change(item) {
      const shownRow = known.get(keyOf(item));
      if (!shownRow) return false;
      const held = shownRow.contains(document.activeElement) ? document.activeElement : null;
      const place = held ? [...shownRow.querySelectorAll("a, button, input")].indexOf(held) : -1;
      fill(shownRow, cells(item));
      shownRow.classList.add("changed");
      if (place >= 0) /** @type {HTMLElement | undefined} */ ([...shownRow.querySelectorAll("a, button, input")][place])?.focus();
      return true;
    },
    /** @param {string} key */
    drop(key) {
      known.get(key)?.remove();
      known.delete(key);
    },
  };
}
