// @ts-check
/** Search over all videos: words as you type, hits with their frame, the place marked, one click to that moment. */
import { get } from "../api.js";
import { field, pageHead, select } from "../components/layout.js";
import { empty, skeleton, trouble } from "../components/states.js";
import { toastError } from "../components/toast.js";
import { button, fill, h, icon, link } from "../dom.js";
import { number, plural, timecode } from "../format.js";
import { setQuery } from "../router.js";
import { ENTITIES, marked } from "./media/records.js";

/** @typedef {import("./media/records.js").Hit} Hit */

/** @type {[string, string][]} */
const MODES = [["fuzzy", "Forgive a wrong letter"], ["exact", "Exactly these words"], ["substring", "Parts of words"]];

/** @param {import("../router.js").View} view */
export default async function search(view) {
  const words = h("input", { class: "input find-words", type: "search", name: "q", value: view.query.get("q") ?? "", placeholder: 'Words on screen, "a phrase", -without', maxlength: "2000", autocomplete: "off", list: "suggestions", "aria-label": "Words on screen", data: { search: "" } });
  const offered = h("datalist", { id: "suggestions" });
  const mode = select(MODES, view.query.get("mode") ?? "fuzzy", { name: "mode" });
  const entity = select(ENTITIES, view.query.get("entity") ?? "", { name: "entity" });
  const value = h("input", { class: "input", type: "search", name: "value", value: view.query.get("value") ?? "", placeholder: "@name, 42 …", maxlength: "200" });
  const list = h("ol", { class: "hits" });
  const told = h("p", { class: "quiet small", role: "status", "aria-live": "polite" });
  const more = button("More", { hidden: true });
  view.main.append(
    pageHead("Search", "What was on screen, in all videos that you may see."),
    h("form", { class: "stack", role: "search", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), read()) },
      h("div", { class: "find-row" }, words, offered, button("Search", { icon: "search", tone: "first", type: "submit" })),
      h("div", { class: "filters wide-filters" }, field("Match", mode), field("Only with", entity), field("Its value", value))),
    told, list, h("div", { class: "row" }, more));

  let reading = new AbortController();
  view.signal.addEventListener("abort", () => reading.abort());
  /** @type {string | null} */
  let cursor = null;

  const asked = () => ({ q: words.value.trim(), mode: mode.value, entity: entity.value, value: entity.value ? value.value.trim() : "" });
  async function read() {
    if (view.signal.aborted) return; // the last letter was typed just before the page was left
    const query = asked();
    setQuery({ ...query, mode: query.mode === "fuzzy" ? "" : query.mode });
    reading.abort();
    const mine = (reading = new AbortController());
    if (!query.q && !query.entity) {
      more.hidden = true;
      told.textContent = "";
      fill(list, h("li", { class: "whole" }, empty("Search what is on screen", "Write a word that was shown in a video: a name, a price, a line of code. A wrong letter is forgiven.")));
      return;
    }
    if (!list.querySelector("[data-hit]")) fill(list, h("li", { class: "whole" }, skeleton(5)));
    try {
      const found = await get("/search", { query: query, signal: mine.signal });
      cursor = found.next;
      more.hidden = !cursor;
      const taken = Object.entries(found.expanded).flatMap(([word, others]) => /** @type {string[]} */ (others).filter((other) => other !== word)).slice(0, 6);
      told.textContent = found.hits.length ? `${number(found.total)}${found.total_is_exact ? "" : "+"} found${cursor ? "" : ` in ${plural(Object.keys(found.per_video).length, "video")}`}${taken.length ? `; also looked for ${taken.join(", ")}` : ""}` : "";
      view.announce(found.hits.length ? `${found.total} found` : "Nothing found");
      if (found.hits.length) fill(list, found.hits.map(hitRow));
      else fill(list, h("li", { class: "whole" }, empty("Nothing found", query.mode === "exact" ? "Let a wrong letter be forgiven, or use fewer words." : "Use fewer words, or look for parts of words.")));
    } catch (error) {
      if (mine.signal.aborted) return;
      more.hidden = true;
      told.textContent = "";
      fill(list, h("li", { class: "whole" }, trouble(error, read)));
    }
  }
  more.addEventListener("click", async () => {
    const { signal } = reading;
    try {
      const found = await get("/search", { query: { ...asked(), cursor }, signal });
      cursor = found.next;
      more.hidden = !cursor;
      list.append(...found.hits.map(hitRow));
    } catch (error) {
      if (!signal.aborted) toastError(error, "No more were read");
    }
  });

  let typing = 0;
  const soon = () => (clearTimeout(typing), (typing = setTimeout(read, 250)));
  words.addEventListener("input", () => (soon(), suggest(words, offered, view.signal)));
  value.addEventListener("input", soon);
  mode.addEventListener("change", read);
  entity.addEventListener("change", read);
  await read();
}

/** @param {HTMLInputElement} words @param {HTMLElement} offered @param {AbortSignal} signal */
async function suggest(words, offered, signal) {
  const last = words.value.split(/\s+/).at(-1) ?? "";
  const before = words.value.slice(0, words.value.length - last.length);
  if (last.length < 2 || last.length > 100) return fill(offered);
  const told = await get("/search/suggestions", { query: { q: last, limit: 6 }, signal }).catch(() => ({ suggestions: [] }));
  return fill(offered, told.suggestions.map((/** @type {{word: string}} */ one) => h("option", { value: before + one.word })));
}

/** @param {Hit} hit */
function hitRow(hit) {
  const place = `/studio/videos/${hit.video_id}?t=${hit.t_start}`;
  return h("li", { class: "hit", data: { hit: hit.segment_id, row: hit.segment_id } },
    link(place, { class: "hit-picture", tabindex: "-1", "aria-hidden": "true" }, framed(hit)),
    h("div", { class: "hit-text" },
      link(place, { class: "open hit-words wrap" }, marked(hit.text, hit.marks)),
      h("div", { class: "small quiet row" }, icon("clock"), h("span", null, `${timecode(hit.t_start / 1000)} – ${timecode(hit.t_end / 1000)}`), h("span", { class: "clip" }, hit.title))));
}

/** The frame with the text's place drawn on it. @param {Hit} hit */
function framed(hit) {
  const picture = h("img", { src: hit.thumbnail_url, alt: "", loading: "lazy" });
  const frame = h("i", { class: "box", hidden: true });
  picture.addEventListener("load", () => {
    const { x, y, width, height } = hit.bounding_box;
    const [w, t] = [picture.naturalWidth / 100, picture.naturalHeight / 100];
    for (const [name, size] of Object.entries({ left: x / w, top: y / t, width: width / w, height: height / t })) frame.style.setProperty(name, `${size}%`);
    frame.hidden = false;
  });
  return h("span", { class: "frame" }, picture, frame);
}
