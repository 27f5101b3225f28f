// @ts-check
/** Compose: write a script, watch it become a video, put it among the videos. */
import { followLiveJob, get, isAway, onConnection, post, raw } from "../api.js";
import { card, field, pageHead } from "../components/layout.js";
import { empty, note, trouble } from "../components/states.js";
import { toast, toastError } from "../components/toast.js";
import { button, fill, h, icon, link } from "../dom.js";
import { go, setQuery } from "../router.js";
import { may } from "../session.js";
import { progressView, warningNote } from "./compose/progress.js";
import { uploadVideo } from "./media/upload.js";

const KEPT = "callsheet-script";
/** Steps that can be gone on from, and what is shown for them. @type {Record<string, string>} */
const STEPS = { Script: "the script", Voice: "the voice", Visuals: "the pictures" };
const SAMPLE = `---
size: 720p
theme: dark
---
# The call sheet

One page, every day.

## What stands on it

- Call times for each department
- Scenes in the order of the day

## Why it works

Everybody reads the same page.
`;

/** @param {import("../router.js").View} view */
export default async function compose(view) {
  const writer = may(view.session, "jobs:write");
  const script = h("textarea", { class: "input script", rows: "22", spellcheck: true, maxlength: "200000", readOnly: !writer, value: localStorage.getItem(KEPT) ?? SAMPLE, oninput: () => localStorage.setItem(KEPT, script.value) });
  const make = button("Make the video", { icon: "play", tone: "first", disabled: !writer, onclick: () => begin() });
  let watching = new AbortController();
  const stage = h("div", { class: "stack stage", tabindex: "-1", role: "group", "aria-label": "What comes of the script" }, empty("Nothing yet", "Write a script: # is the title, each ## a scene. Sentences appear as the voice says them."));
  view.main.append(
    pageHead("Compose", "A script becomes a narrated video, with a voice, captions and a poster.", make),
    h("div", { class: "halves" }, card("Script", { aside: "Markdown" }, field("What is said and shown", script, "One picture in a scene: ![name](object:…). The guide “compose” has all settings.")), card("Video", {}, stage)));

  /** Show something instead of what is there; whoever stood in it still does. @param {...import("../dom.js").Children} content */
  function put(...content) {
    const stood = stage.contains(document.activeElement);
    fill(stage, ...content);
    if (stood) stage.focus();
  }

  async function begin() {
    make.disabled = true;
    try {
      const made = await post("/api/jobs", { task: "compose", payload: { script: script.value } });
      await watch(made.jobId);
    } catch (error) {
      if (!view.signal.aborted) put(trouble(error, begin));
    } finally {
      make.disabled = !writer;
    }
  }

  /** Follow a job to its end, instead of the one before. @param {string} jobId */
  async function watch(jobId) {
    watching.abort();
    watching = new AbortController();
    const signal = AbortSignal.any([view.signal, watching.signal]);
    setQuery({ job: jobId });
    const stop = button("Cancel", { icon: "stop", data: { act: "cancel" }, onclick: () => cancel(jobId, stop, shown) });
    const shown = progressView(view.announce, h("div", { class: "row" }, writer ? stop : null, link(`/studio/jobs/${jobId}`, { class: "small" }, "Its job")));
    put(shown.element);
    stage.scrollIntoView({ block: "nearest" }); // on a phone it is below the script
    try {
      await followLiveJob(jobId, shown.take, { signal, onLost: shown.lost });
      const job = await get(`/api/jobs/${jobId}`, { signal });
      if (job.status === "Done") show(jobId, shown.state.warnings);
      else end(job, shown);
    } catch (error) {
      if (!signal.aborted) away(error, () => watch(jobId), signal);
    }
  }

  /** The stream was refused or lost for good: it begins again on demand, or when the server is back. @param {unknown} error @param {() => unknown} again @param {AbortSignal} signal */
  function away(error, again, signal) {
    put(trouble(error, again));
    if (!isAway(error)) return;
    signal.addEventListener("abort", onConnection((isGone) => isGone || again()));
  }

  /** @param {string} jobId @param {HTMLButtonElement} pressed @param {{stop(now: boolean): void}} shown */
  async function cancel(jobId, pressed, shown) {
    pressed.disabled = true;
    stage.focus();
    shown.stop(true);
    try {
      await post(`/api/jobs/${jobId}/cancel`, {});
    } catch (error) {
      toastError(error, "It was not canceled");
      pressed.disabled = false;
      shown.stop(false);
    }
  }

  /** What came of a job that made no video, and the way on. @param {any} job @param {{element: HTMLElement, draw(): void, state: import("../live.js").LiveState}} shown */
  function end(job, shown) {
    const failed = job.status === "Failed";
    const why = job.errors.at(-1)?.message ?? shown.state.message;
    const resume = button("Resume", { icon: "play", tone: "first", data: { act: "resume" }, onclick: () => goOn(job.jobId, resume) });
    const next = job.canResume
      ? `Resume goes on after ${STEPS[job.lastCompletedStep] ?? job.lastCompletedStep}: what was made before is not made again.`
      : failed ? "Nothing was made that could be kept. Change the script, and make the video anew." : "Nothing was made before. Make the video anew.";
    shown.draw();
    shown.element.lastChild?.remove();
    put(
      note(failed ? "bad" : "", failed ? "It could not be made" : "It was canceled", why, next), shown.element,
      h("div", { class: "row" }, writer && job.canResume ? resume : null, link(`/studio/jobs/${job.jobId}`, { class: "small" }, "Look at the job")));
    view.announce(failed ? "It could not be made" : "It was canceled");
  }

  /** @param {string} jobId @param {HTMLButtonElement} pressed */
  async function goOn(jobId, pressed) {
    pressed.disabled = true;
    stage.focus();
    try {
      const made = await post(`/api/jobs/${jobId}/resume`);
      toast(`Goes on after ${STEPS[made.lastCompletedStep] ?? made.lastCompletedStep}`, "good");
      await watch(made.jobId);
    } catch (error) {
      toastError(error, "It was not resumed");
      pressed.disabled = false;
    }
  }

  /** @param {string} jobId @param {string[]} warnings */
  function show(jobId, warnings) {
    const base = `/v1/jobs/${jobId}/artifacts`;
    const add = button("Make it searchable", { icon: "search", onclick: () => toLibrary(`${base}/video.mp4`, add) });
    put(
      h("video", { class: "player", controls: true, src: `${base}/video.mp4`, poster: `${base}/poster.jpg`, preload: "metadata" }),
      h("div", { class: "row" }, writer ? add : null, h("a", { class: "button", href: `${base}/video.mp4`, download: "video.mp4" }, icon("download"), "MP4"), h("a", { class: "button", href: `${base}/captions.vtt`, download: "captions.vtt" }, icon("download"), "Captions"), link(`/studio/jobs/${jobId}`, { class: "small" }, "Its job")), warningNote(warnings));
    view.announce("The video is made");
  }

  /** @param {string} url @param {HTMLButtonElement} pressed */
  async function toLibrary(url, pressed) {
    pressed.disabled = true;
    try {
      const title = /^#\s+(.+)$/m.exec(script.value)?.[1] ?? "Composed video";
      const content = await (await raw(url, { signal: view.signal })).blob();
      const videoId = await uploadVideo(new File([content], `${title}.mp4`, { type: "video/mp4" }), { title, signal: view.signal });
      go(`/studio/videos/${videoId}`);
    } catch (error) {
      if (!view.signal.aborted) toastError(error, "It was not added");
      pressed.disabled = false;
    }
  }

  const earlier = view.query.get("job");
  if (earlier) await watch(earlier);
}
