// @ts-check
/** Compose: write a script, watch it become a video, put it among the videos. */
import { get, pause, post, raw } from "../api.js";
import { bar } from "../components/badge.js";
import { card, field, pageHead } from "../components/layout.js";
import { stageTrack } from "../components/stage_track.js";
import { empty, note, trouble } from "../components/states.js";
import { toastError } from "../components/toast.js";
import { button, fill, h, icon, link } from "../dom.js";
import { go, setQuery } from "../router.js";
import { may } from "../session.js";
import { uploadVideo } from "./media/upload.js";

const LOOK_MS = 400;
const KEPT = "callsheet-script";
/** The contract's phases, and what is shown for them. @type {Record<string, string>} */
const PHASES = { plan: "Script", tts: "Voice", visuals: "Pictures", compose: "Put together", render: "Render" };
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
  const stage = h("div", { class: "stack" }, empty("Nothing yet", "Write a script: # is the title, each ## a scene. Sentences appear as the voice says them."));
  view.main.append(
    pageHead("Compose", "A script becomes a narrated video, with a voice, captions and a poster.", make),
    h("div", { class: "halves" }, card("Script", { aside: "Markdown" }, field("What is said and shown", script, "One picture in a scene: ![name](object:…). The guide “compose” has all settings.")), card("Video", {}, stage)));

  async function begin() {
    make.disabled = true;
    try {
      const made = await post("/api/jobs", { task: "compose", payload: { script: script.value } });
      setQuery({ job: made.jobId });
      stage.scrollIntoView({ block: "nearest" }); // on a phone it is below the script
      await watch(made.jobId);
    } catch (error) {
      if (!view.signal.aborted) fill(stage, trouble(error, begin));
    } finally {
      make.disabled = !writer;
    }
  }

  /** @param {string} jobId */
  async function watch(jobId) {
    const track = h("div");
    const progress = h("div");
    const stop = button("Cancel", { tone: "plain", onclick: () => post(`/api/jobs/${jobId}/cancel`, {}).catch((error) => toastError(error, "It was not canceled")) });
    const foot = h("div", { class: "row" }, link(`/studio/jobs/${jobId}`, { class: "small" }, "Its job"), writer ? stop : null);
    for (;;) {
      const job = await get(`/api/jobs/${jobId}`, { signal: view.signal });
      if (job.status === "Done") return show(jobId);
      if (job.status === "Failed" || job.status === "Canceled") {
        fill(stage, note("bad", job.status === "Failed" ? "It could not be made" : "It was canceled", job.errors.at(-1)?.message ?? "", link(`/studio/jobs/${jobId}`, {}, "Look at the job")));
        return undefined;
      }
      fill(track, stageTrack(Object.values(PHASES), PHASES[job.phase] ?? "", "running"));
      fill(progress, bar(job.percent ?? 0, "run", "Progress of the video"));
      fill(stage, track, progress, foot);
      await pause(LOOK_MS, view.signal);
      if (view.signal.aborted) return undefined;
    }
  }

  /** @param {string} jobId */
  function show(jobId) {
    const base = `/v1/jobs/${jobId}/artifacts`;
    const add = button("Make it searchable", { icon: "search", onclick: () => toLibrary(`${base}/video.mp4`, add) });
    fill(stage,
      h("video", { class: "player", controls: true, src: `${base}/video.mp4`, poster: `${base}/poster.jpg`, preload: "metadata" }),
      h("div", { class: "row" }, writer ? add : null, h("a", { class: "button", href: `${base}/video.mp4`, download: "video.mp4" }, icon("download"), "MP4"), h("a", { class: "button", href: `${base}/captions.vtt`, download: "captions.vtt" }, icon("download"), "Captions"), link(`/studio/jobs/${jobId}`, { class: "small" }, "Its job")));
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
  if (earlier) await watch(earlier).catch((error) => view.signal.aborted || fill(stage, trouble(error)));
}
