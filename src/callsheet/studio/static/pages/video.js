// @ts-check
/**
 * One video: the browser's own player, the texts as marks on a timeline and in a list that follows it, clips, exports,
 * and how its stages go while it is in work.
 */
import { del, get, pause, poll, post } from "../api.js";
import { badge, bar } from "../components/badge.js";
import { changes } from "../components/changes.js";
import { confirm } from "../components/dialog.js";
import { card, facts, field, pageHead, select } from "../components/layout.js";
import { stageTrack } from "../components/stage_track.js";
import { empty, note, skeleton } from "../components/states.js";
import { toast, toastError } from "../components/toast.js";
import { button, fill, h, icon, link } from "../dom.js";
import { bytes, duration, number, timecode } from "../format.js";
import { go } from "../router.js";
import { may } from "../session.js";
import { ENTITIES, isMoving, progressOf, STAGE_WORDS, STAGES, stageOf } from "./media/records.js";

/**
 * @typedef {import("./media/records.js").Video} Video
 * @typedef {import("./media/records.js").Segment} Segment
 * @typedef {import("./media/records.js").Entity} Entity
 * @typedef {import("./media/records.js").Clip} Clip
 */

const LOOK_MS = 1000;
const SHOWN = 400;

/** @param {import("../router.js").View} view */
export default async function video(view) {
  await new Watch(view).begin();
}

class Watch {
  /** @type {Segment[]} */
  #segments = [];
  /** @type {Entity[]} */
  #entities = [];
  #drawn = "";
  #isNewState = changes();

  /** @param {import("../router.js").View} view */
  constructor(view) {
    this.view = view;
    this.id = view.params.id ?? "";
    this.writer = may(view.session, "jobs:write");
    this.player = h("video", { controls: true, class: "player", playsinline: true, preload: "metadata" });
    this.timeline = h("div", { class: "timeline", role: "group", "aria-label": "Texts on the timeline" });
    this.texts = h("ol", { class: "texts", tabindex: "0", "aria-label": "Texts by time" });
    this.words = h("input", { class: "input", type: "search", placeholder: "Within this video", maxlength: "200", "aria-label": "Search within this video", oninput: () => this.#showTexts(), data: { search: "" } });
    this.kind = select(ENTITIES, "", { "aria-label": "Only texts with", onchange: () => this.#showTexts() });
    this.state = h("div", { class: "stack" });
    this.progress = h("div");
    this.unplayable = h("div", { class: "stack" });
    this.about = h("div");
    this.clips = h("div", { class: "stack" });
    this.from = h("input", { class: "input", type: "number", min: "0", step: "0.1", value: "0" });
    this.to = h("input", { class: "input", type: "number", min: "0", step: "0.1", value: "5" });
    this.padding = h("input", { class: "input", type: "number", min: "0", max: "60", step: "0.5", value: "2" });
  }

  async begin() {
    const { view } = this;
    const head = h("div");
    const body = h("div", { class: "stack" }, skeleton(6));
    view.main.append(link("/studio/videos", { class: "crumb row" }, icon("left"), "Videos"), head, this.state, this.unplayable, body);
    let built = false;
    await poll(async () => {
      /** @type {Video} */
      const found = await get(`/videos/${this.id}`, { signal: view.signal });
      const now = JSON.stringify([found.status, found.jobs, found.playlist_url, found.coverage]);
      await this.#showState(found);
      if (now === this.#drawn) return;
      this.#drawn = now;
      view.title(found.title);
      fill(head, this.#head(found));
      if (!built && found.playlist_url) {
        built = true;
        fill(body, this.#body(found));
        this.#play(found);
      } else if (!found.playlist_url) fill(body, found.status === "uploading" ? empty("Not uploaded yet", "Drop the same file on the page Videos again, and its upload goes on.") : h("div"));
      if (built) await this.#read(found);
    }, LOOK_MS, view.signal);
  }

  /** @param {Video} video */
  #head(video) {
    const actions = this.writer ? [button("Read again", { icon: "retry", onclick: () => this.#again() }), button("Delete", { icon: "trash", tone: "danger", onclick: () => this.#delete(video) })] : [];
    return pageHead(video.title, [badge(video.status), " "], ...actions);
  }

  /** @param {Video} video */
  async #showState(video) {
    if (isMoving(video)) {
      const stage = stageOf(video);
      const done = await progressOf(video, this.view.signal);
      const job = stage ? link(`/studio/jobs/${video.jobs[stage]}`, {}, "its job") : null;
      fill(this.progress, bar(done, "run", "Progress of this video"));
      if (this.#isNewState([video.status, video.jobs])) fill(this.state, card("In work", { aside: job }, stageTrack(STAGES.map((one) => STAGE_WORDS[one] ?? one), STAGE_WORDS[stage] ?? "", "running"), this.progress));
    } else if (!this.#isNewState([video.status, video.error])) return;
    else if (video.status === "failed" && video.error) {
      const job = video.error.job_id ? link(`/studio/jobs/${video.error.job_id}`, {}, "Look at the job") : null;
      fill(this.state, note("bad", `${video.error.type}${video.error.stage ? ` in ${video.error.stage}` : ""}`, video.error.message, job));
    } else fill(this.state);
  }

  /** @param {Video} video */
  #body(video) {
    const cut = h("form", { class: "filters cut", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), this.#cut()) },
      field("From, seconds", this.from), field("To", this.to), field("Padding", this.padding), button("Cut a clip", { icon: "scissors", tone: "first", type: "submit" }));
    const exports = ["vtt", "srt", "csv", "json"].map((kind) => h("a", { class: "button tiny", href: `/videos/${this.id}/text?format=${kind}`, download: `${video.title}.${kind}` }, icon("download"), kind.toUpperCase()));
    return h("div", { class: "watch" },
      h("div", { class: "stack" },
        h("div", { class: "card flush screen" }, this.player, this.timeline),
        this.writer ? card("Cut a clip", { aside: "Exact to the frame; choose a text to fill in its times." }, cut, this.clips) : card("Clips", {}, this.clips),
        card("About", {}, this.about)),
      card("On screen", { aside: h("span", { class: "row" }, exports), class: "beside" }, h("div", { class: "halves tight" }, this.words, this.kind), this.texts));
  }

  /** @param {Video} video */
  #play(video) {
    this.player.src = video.playlist_url ?? "";
    if (video.poster_url) this.player.poster = video.poster_url;
    const at = Number(this.view.query.get("t") ?? "0") / 1000;
    if (at > 0) this.player.addEventListener("loadedmetadata", () => (this.player.currentTime = at), { once: true });
    this.player.addEventListener("timeupdate", () => this.#follow());
    this.player.addEventListener("error", () => fill(this.unplayable, note("warn", "This browser does not play it", "The video is HLS; Chromium, Edge and Safari play it by themselves. The texts and clips work all the same.")));
  }

  /** @param {Video} video */
  async #read(video) {
    const { signal } = this.view;
    const [texts, entities] = await Promise.all([get(`/videos/${this.id}/segments`, { signal }), get(`/videos/${this.id}/entities`, { signal })]);
    [this.#segments, this.#entities] = [texts.segments, entities.entities];
    this.#showTexts();
    this.#showTimeline(video);
    this.#showAbout(video);
    await this.#showClips();
  }

  #shown() {
    const words = this.words.value.trim().toLowerCase();
    const kind = this.kind.value;
    const having = new Set(this.#entities.filter((one) => !kind || one.entity_type === kind).map((one) => one.segment_id));
    return this.#segments.filter((one) => (!words || one.text.toLowerCase().includes(words)) && (!kind || having.has(one.segment_id)));
  }

  #showTexts() {
    const shown = this.#shown();
    if (!shown.length) {
      fill(this.texts, h("li", null, this.#segments.length ? empty("Nothing fits", "Change the words, or what the texts must have.") : empty("No text yet", "When it is read, the text stands here, and follows the video.")));
      return;
    }
    fill(this.texts, shown.slice(0, SHOWN).map((one) => this.#text(one)), shown.length > SHOWN ? h("li", { class: "small quiet" }, `${number(shown.length - SHOWN)} more; narrow it down.`) : null);
    this.#follow();
  }

  /** @param {Segment} one */
  #text(one) {
    const chips = this.#entities.filter((entity) => entity.segment_id === one.segment_id).map((entity) => h("span", { class: "chip small" }, entity.value));
    return h("li", { class: "text", data: { from: one.t_start, to: one.t_end, row: one.segment_id } },
      h("button", { type: "button", class: "text-words open", onclick: () => this.#choose(one) }, h("span", { class: "mono small quiet" }, timecode(one.t_start / 1000)), h("span", { class: "wrap" }, one.text)),
      chips.length ? h("div", { class: "row chips" }, chips) : null);
  }

  /** Play from a text, and offer its times to be cut. @param {Segment} one */
  #choose(one) {
    this.player.currentTime = one.t_start / 1000;
    this.from.value = String(Math.floor(one.t_start / 100) / 10);
    this.to.value = String(Math.ceil(one.t_end / 100) / 10);
  }

  /** @param {Video} video */
  #showTimeline(video) {
    const whole = video.duration_ms || Math.max(1, ...this.#segments.map((one) => one.t_end));
    const free = [0, 0, 0]; // when each lane is free again: texts that are there at once lie below one another
    const laneOf = (/** @type {Segment} */ one) => {
      const found = free.findIndex((until) => until <= one.t_start);
      const lane = found < 0 ? free.indexOf(Math.min(...free)) : found;
      free[lane] = one.t_end;
      return lane;
    };
    fill(this.timeline, this.#segments.slice(0, 2000).map((one) => h("button", {
      type: "button", class: `tick lane${laneOf(one)}`, tabindex: "-1", "aria-label": `${timecode(one.t_start / 1000)} ${one.text}`, title: `${timecode(one.t_start / 1000)} ${one.text}`,
      style: { left: `${(100 * one.t_start) / whole}%`, width: `${Math.max(0.3, (100 * (one.t_end - one.t_start)) / whole)}%` }, onclick: () => this.#choose(one),
    })), h("i", { class: "now" }));
  }

  /** Keep the list and the timeline where the player is. */
  #follow() {
    const at = this.player.currentTime * 1000;
    const now = this.timeline.querySelector(".now");
    if (now instanceof HTMLElement && this.player.duration) now.style.setProperty("left", `${(100 * this.player.currentTime) / this.player.duration}%`);
    /** @type {HTMLElement | null} */
    let first = null;
    for (const row of this.texts.querySelectorAll("li.text")) {
      if (!(row instanceof HTMLElement)) continue;
      const here = Number(row.dataset.from) <= at + 20 && at < Number(row.dataset.to);
      row.toggleAttribute("data-now", here);
      if (here) first ??= row;
    }
    if (first && !this.player.paused) first.scrollIntoView({ block: "nearest" });
  }

  /** @param {Video} video */
  #showAbout(video) {
    const of = video.coverage;
    fill(this.about, facts([
      ["Length", duration(video.duration_ms)], ["Picture", video.width ? `${video.width} × ${video.height}${video.fps ? `, ${Math.round(video.fps * 100) / 100} fps` : ""}` : null], ["Size", bytes(video.size_bytes)],
      ["Frames looked at", of.sampled === undefined ? null : `${number(of.sampled)}, ${number(of.kept)} kept`], ["Frames with text", of.frames_with_text === undefined ? null : number(of.frames_with_text)],
      ["Mean confidence", of.mean_confidence ? `${Math.round(100 * of.mean_confidence)} %` : null], ["Languages", of.languages?.join(", ")], ["Read by", of.engine], ["Never seen", of.gaps?.length ? of.gaps.map((/** @type {number[]} */ gap) => gap.map((ms) => timecode(ms / 1000)).join(" – ")).join(", ") : null],
      ["Id", h("code", { class: "wrap" }, video.video_id)],
    ]));
  }

  async #showClips() {
    /** @type {{clips: Clip[]}} */
    const { clips } = await get(`/videos/${this.id}/clips`, { signal: this.view.signal });
    fill(this.clips, clips.map((one) => h("div", { class: "row clip-row", data: { clip: one.clip_id, status: one.status } },
      h("span", { class: "mono small" }, `${timecode((one.actual_start ?? one.t_start) / 1000)} – ${timecode((one.actual_end ?? one.t_end) / 1000)}`), badge(one.status === "processing" ? "running" : one.status),
      one.url ? h("a", { class: "button tiny", href: `${one.url}?download=1`, download: `${one.clip_id}.mp4` }, icon("download"), "Download") : null,
      one.url ? h("a", { class: "button tiny plain", href: one.url, target: "_blank", rel: "noopener" }, icon("play"), "Play") : null)));
    if (!clips.length) fill(this.clips, h("p", { class: "small quiet" }, "No clips yet. They are kept for 30 days."));
  }

  async #cut() {
    const [start, end] = [Math.round(1000 * Number(this.from.value)), Math.round(1000 * Number(this.to.value))];
    try {
      const made = await post("/clips", { video_id: this.id, t_start: start, t_end: end, padding_ms: Math.round(1000 * Number(this.padding.value)) }, { signal: this.view.signal });
      for (let status = "queued"; status === "queued" || status === "processing"; ) {
        await this.#showClips();
        status = (await get(`/clips/${made.clip_id}`, { signal: this.view.signal })).status;
        await pause(300, this.view.signal);
      }
      await this.#showClips();
      this.view.announce("The clip is cut");
    } catch (error) {
      if (!this.view.signal.aborted) toastError(error, "The clip was not cut");
    }
  }

  async #again() {
    if (!(await confirm("Read this video again?", "Its frames are read anew, for instance after another language was installed. Until then the present text stays.", "Read again"))) return;
    try {
      await post(`/videos/${this.id}/again`, { stage: "ocr" });
      toast("It is being read again.", "good");
    } catch (error) {
      toastError(error, "It is not read again");
    }
  }

  /** @param {Video} video */
  async #delete(video) {
    if (!(await confirm(`Delete “${video.title}”?`, "The video, its text, its frames and its clips are removed for good.", "Delete it", "danger"))) return;
    try {
      await del(`/videos/${this.id}`);
      toast("The video is deleted.", "good");
      go("/studio/videos");
    } catch (error) {
      toastError(error, "It was not deleted");
    }
  }
}
