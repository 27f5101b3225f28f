// @ts-check
/** The library: drop videos in, watch them become searchable, open them. */
import { get, poll } from "../api.js";
import { badge, bar } from "../components/badge.js";
import { changes } from "../components/changes.js";
import { openDialog } from "../components/dialog.js";
import { field, pageHead, select } from "../components/layout.js";
import { moment } from "../components/moment.js";
import { describe, empty, skeleton } from "../components/states.js";
import { toast, toastError } from "../components/toast.js";
import { button, fill, h, icon, link } from "../dom.js";
import { bytes, duration } from "../format.js";
import { setQuery } from "../router.js";
import { may } from "../session.js";
import { isMoving, progressOf, STAGE_WORDS, stageOf } from "./media/records.js";
import { uploadVideo } from "./media/upload.js";

/** @typedef {import("./media/records.js").Video} Video */

const PAGE = 60;
const LOOK_MS = 1500;
/** @type {[string, string][]} */
const LANGUAGES = [["eng", "English"], ["deu", "German"], ["eng,deu", "English and German"]];
/** @type {[string, string][]} */
const STATUSES = [["", "All videos"], ["ready", "Ready"], ["processing", "In work"], ["queued", "Waiting"], ["uploading", "Not uploaded"], ["failed", "Failed"]];

/** @param {import("../router.js").View} view */
export default async function videos(view) {
  const writer = may(view.session, "jobs:write");
  const grid = h("ul", { class: "library" });
  const sending = h("div", { class: "stack" });
  const more = button("Older videos", { hidden: true });
  const text = h("input", { class: "input", type: "search", name: "text", value: view.query.get("text") ?? "", placeholder: "A part of the title", maxlength: "200" });
  const status = select(STATUSES, view.query.get("status") ?? "", { name: "status" });
  const zone = h("div", { class: "dropzone", hidden: !writer }, icon("upload"), h("p", null, "Drop videos here, or "), button("Choose files", { onclick: () => choose(begin) }));
  const searchAll = link("/studio/search", { class: "button" }, icon("search"), "Search all videos");
  view.main.append(
    pageHead("Videos", "What is on screen in them can be searched, watched at that moment, and cut.", searchAll, ...(writer ? [button("Add videos", { icon: "plus", tone: "first", onclick: () => choose(begin) })] : [])),
    zone, sending,
    h("form", { class: "filters wide-filters", role: "search", "aria-label": "Filters", onsubmit: (/** @type {Event} */ event) => event.preventDefault() }, field("Title", text), field("Status", status)),
    h("div", { class: "stack" }, grid, h("div", { class: "row" }, more)));
  fill(grid, h("li", { class: "whole" }, skeleton(4)));

  /** @type {Map<string, Shown>} */
  const known = new Map();
  let asked = 0;
  /** @type {string | null} */
  let next = null;
  let older = 0;

  const query = () => ({ limit: PAGE, text: text.value.trim(), status: status.value });
  const show = async () => {
    const mine = (asked += 1);
    const told = await get("/videos", { query: query(), signal: view.signal });
    const cards = await drawn(told.videos);
    if (mine !== asked) return; // another question was asked meanwhile
    next = told.next;
    more.hidden = !next;
    for (const id of known.keys()) if (!told.videos.some((/** @type {Video} */ video) => video.video_id === id)) known.delete(id);
    if (cards.length) fill(grid, cards);
    else if (!grid.querySelector("[data-state=empty]") || isNew(query())) fill(grid, h("li", { class: "whole" }, query().text || query().status ? empty("No video fits", "Change the filters.") : empty("No videos yet", writer ? "Drop one above: its text becomes searchable within minutes." : "Somebody with the right to write adds them here, or with `callsheet video add`.")));
  };
  /** @param {Video[]} found */
  const drawn = (found) => Promise.all(found.map(async (video) => {
    const shown = known.get(video.video_id) ?? { isNew: changes(), element: h("li", { class: "card flush film" }), progress: h("div", { class: "film-progress" }) };
    known.set(video.video_id, shown);
    await drawCard(shown, video, view.signal);
    return shown.element;
  }));
  const isNew = changes();
  const showMore = async () => {
    asked += 1; // what a look brings now is too late
    const told = await get("/videos", { query: { ...query(), before: next }, signal: view.signal });
    [next, older] = [told.next, older + 1];
    more.hidden = !next;
    grid.append(...(await drawn(told.videos)));
  };
  /** @param {Promise<unknown>} what */
  const quietly = (what) => what.catch((error) => view.signal.aborted || toastError(error, "The list was not read"));
  more.addEventListener("click", () => quietly(showMore()));
  const changed = () => view.signal.aborted || (setQuery({ text: text.value.trim(), status: status.value }), (older = 0), quietly(show()));
  let typing = 0;
  text.addEventListener("input", () => (clearTimeout(typing), (typing = setTimeout(changed, 250))));
  status.addEventListener("change", changed);

  /** @param {File[]} files @param {string} languages */
  const begin = (files, languages) => {
    for (const file of files) send(file, languages, sending, view).then(() => view.signal.aborted || ((older = 0), quietly(show())));
  };
  dropping(zone, (files) => writer && begin(files, "eng"), view.signal);
  await poll(async () => {
    if (!older) await show();
  }, LOOK_MS, view.signal);
}

/** @typedef {{isNew: (value: unknown) => boolean, element: HTMLLIElement, progress: HTMLElement}} Shown A card, and what it shows. */

/** @param {Shown} shown @param {Video} video @param {AbortSignal} signal */
async function drawCard({ isNew, element, progress }, video, signal) {
  const moving = isMoving(video);
  if (moving) fill(progress, bar(await progressOf(video, signal), "run", `Progress of ${video.title}`));
  if (!isNew(video)) return;
  const picture = video.poster_url
    ? h("img", { src: video.poster_url, alt: "", loading: "lazy", class: "poster" })
    : h("div", { class: "poster blank" }, icon("videos"));
  const stage = stageOf(video);
  Object.assign(element.dataset, { video: video.video_id, status: video.status });
  fill(element,
    link(`/studio/videos/${video.video_id}`, { class: "film-link" }, picture, h("span", { class: "film-title wrap", title: video.title }, video.title)),
    h("div", { class: "film-facts" },
      video.status === "ready" ? h("span", { class: "small quiet" }, duration(video.duration_ms)) : badge(video.status, moving && stage ? STAGE_WORDS[stage] : undefined),
      h("span", { class: "small quiet" }, moment(video.created_at))),
    moving ? progress : null,
    video.error ? h("p", { class: "small wrap film-error" }, video.error.message) : null);
}

/** Ask for files, and in which languages their text is. @param {(files: File[], languages: string) => void} begin */
function choose(begin) {
  const input = h("input", { type: "file", class: "input", accept: "video/*,.mkv,.ts", multiple: true });
  const languages = select(LANGUAGES, "eng");
  const go = button("Upload", { tone: "first", onclick: () => (begin([...(input.files ?? [])], languages.value), box.close()) });
  const box = openDialog("Add videos", [field("Files", input), field("Language of the text in them", languages, "More languages: install their Tesseract data on the workers."), h("div", { class: "actions" }, button("Back", { onclick: () => box.close() }), go)]);
}

/** @param {File} file @param {string} languages @param {HTMLElement} place @param {import("../router.js").View} view */
async function send(file, languages, place, view) {
  const leave = new AbortController();
  const shown = h("div");
  /** @param {number} done */
  const tell = (done) => fill(shown, bar(100 * done, "run", `Upload of ${file.name}`));
  const row = h("div", { class: "card sending", data: { sending: file.name } }, h("div", { class: "row" }, h("strong", { class: "wrap" }, file.name), h("span", { class: "small quiet" }, bytes(file.size)), button("Stop", { tone: "plain tiny", onclick: () => leave.abort() })), shown);
  place.append(row);
  tell(0);
  try {
    if (!file.size) throw new Error("The file is empty.");
    await uploadVideo(file, { options: { languages: languages.split(",") }, onProgress: tell, signal: leave.signal });
    toast(`${file.name} is uploaded; its text is read now.`, "good");
    view.announce(`${file.name} is uploaded`);
    row.remove();
  } catch (error) {
    if (leave.signal.aborted) return row.remove();
    const told = describe(error);
    fill(shown, h("p", { class: "film-error wrap", role: "alert" }, `${told.title}. ${told.text}`), button("Go on", { icon: "retry", onclick: () => (row.remove(), send(file, languages, place, view)) }));
  }
}

/** Files that are dropped anywhere on the page. @param {HTMLElement} zone @param {(files: File[]) => unknown} take @param {AbortSignal} signal */
function dropping(zone, take, signal) {
  /** @param {DragEvent} event */
  const over = (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    zone.classList.add("over");
  };
  addEventListener("dragover", over, { signal });
  addEventListener("dragleave", () => zone.classList.remove("over"), { signal });
  addEventListener("drop", (event) => {
    zone.classList.remove("over");
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault();
    take([...event.dataTransfer.files]);
  }, { signal });
}
