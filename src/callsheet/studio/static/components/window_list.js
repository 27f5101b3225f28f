// @ts-check
/**
 * A long list of which only the part in sight is in the page: 10,000 rows cost as much as 40. Rows have one height.
 *
 *   const list = windowList("Events", 32, (event) => h("div", …));
 *   list.push(event);                  any number of times; it is drawn once in a frame
 *   list.filter((event) => …)          what is shown; null for all
 *
 * It stays at the end while one is at the end. It holds at most MOST items, and says how many older ones went.
 */
import { fill, h } from "../dom.js";
import { number } from "../format.js";

const MOST = 20_000;
const SPARE = 8;

/**
 * @template T
 * @param {string} label @param {number} rowPx @param {(item: T) => HTMLElement} row
 */
export function windowList(label, rowPx, row) {
  /** @type {T[]} */
  let items = [];
  /** @type {T[]} */
  let shown = items;
  /** @type {((item: T) => boolean) | null} */
  let wanted = null;
  let [dropped, waiting, from, to] = [0, false, -1, -1];
  const inner = h("div", { class: "window-inner" });
  const box = h("div", { class: "window", tabindex: "0", role: "log", "aria-label": label, "aria-live": "off" }, inner);
  const tell = h("p", { class: "small quiet" });

  const draw = () => {
    waiting = false;
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < rowPx * 2;
    inner.style.height = `${shown.length * rowPx}px`;
    if (atEnd) box.scrollTop = box.scrollHeight;
    const [first, last] = [Math.max(0, Math.floor(box.scrollTop / rowPx) - SPARE), Math.min(shown.length, Math.ceil((box.scrollTop + (box.clientHeight || 400)) / rowPx) + SPARE)];
    if (first !== from || last !== to) {
      [from, to] = [first, last];
      fill(inner, shown.slice(first, last).map((item, n) => {
        const made = row(item);
        made.classList.add("window-row");
        made.style.transform = `translateY(${(first + n) * rowPx}px)`;
        return made;
      }));
    }
    tell.textContent = `${number(shown.length)}${shown === items ? "" : ` of ${number(items.length)}`} shown${dropped ? `; ${number(dropped)} older ones are left out` : ""}`;
    box.dataset.count = String(items.length);
  };
  const soon = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(draw);
  };
  box.addEventListener("scroll", soon, { passive: true });
  new ResizeObserver(soon).observe(box);
  return {
    element: h("div", { class: "stack" }, box, tell),
    /** @param {T} item */
    push(item) {
      items.push(item);
      if (wanted?.(item)) shown.push(item);
      if (items.length > MOST + 1000) {
        dropped += items.length - MOST;
        items = items.slice(-MOST);
        shown = wanted ? items.filter(wanted) : items;
        from = -1;
      }
      soon();
    },
    /** @param {((item: T) => boolean) | null} fact */
    filter(fact) {
      wanted = fact;
      shown = fact ? items.filter(fact) : items;
      from = -1;
      soon();
    },
    clear() {
      items = [];
      shown = items;
      [dropped, from] = [0, -1];
      soon();
    },
  };
}
