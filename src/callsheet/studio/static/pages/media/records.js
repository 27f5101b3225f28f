// @ts-check
/**
 * What the API tells of videos, and words that several pages share.
 *
 * @typedef {object} Video
 * @property {string} video_id
 * @property {string} title
 * @property {"uploading" | "queued" | "processing" | "ready" | "failed"} status
 * @property {string} owner_id
 * @property {number | null} size_bytes
 * @property {number | null} duration_ms
 * @property {number | null} width
 * @property {number | null} height
 * @property {number | null} fps
 * @property {Record<string, any>} coverage
 * @property {Record<string, any>} options
 * @property {Record<string, string>} jobs
 * @property {{type: string, message: string, stage?: string, job_id?: string} | null} error
 * @property {number} created_at
 * @property {string | null} playlist_url
 * @property {string | null} poster_url
 *
 * @typedef {{segment_id: string, t_start: number, t_end: number, text: string, confidence: number, bounding_box: Box, language: string | null}} Segment
 * @typedef {{x: number, y: number, width: number, height: number}} Box
 * @typedef {{start: number, end: number, matched_as: string}} Mark
 * @typedef {Segment & {video_id: string, title: string, marks: Mark[], play_url: string, thumbnail_url: string}} Hit
 * @typedef {{entity_id: string, segment_id: string, entity_type: string, value: string, normalized_value: string, t_start: number, t_end: number}} Entity
 * @typedef {{clip_id: string, job_id: string, status: string, t_start: number, t_end: number, actual_start: number | null, actual_end: number | null, url: string | null, expires_at: number | null}} Clip
 */
import { get } from "../../api.js";
import { h } from "../../dom.js";

export const STAGES = ["transcode", "sample", "ocr", "segment_index"];
/** @type {Record<string, string>} */
export const STAGE_WORDS = { transcode: "Transcode", sample: "Take frames", ocr: "Read text", segment_index: "Index" };
/** @type {[string, string][]} */
export const ENTITIES = [["", "Any text"], ["mention", "@ mentions"], ["hashtag", "# hashtags"], ["url", "Links"], ["number", "Numbers"], ["emoji", "Emoji"]];

/** Whether something is still going to happen to it. @param {Video} video */
export const isMoving = (video) => video.status === "queued" || video.status === "processing";

/** The stage a video is in; '' before the first. @param {Video} video */
export const stageOf = (video) => STAGES.filter((stage) => stage in video.jobs).at(-1) ?? "";

/** How far a video is, over all its stages. @param {Video} video @param {AbortSignal} signal @returns {Promise<number>} */
export async function progressOf(video, signal) {
  const stage = stageOf(video);
  if (!stage) return 0;
  const job = await get(`/v1/jobs/${video.jobs[stage]}`, { signal }).catch(() => null);
  return (100 * STAGES.indexOf(stage) + (job?.progress ?? 0)) / STAGES.length;
}

/** Text with what met a query set off. @param {string} text @param {Mark[]} marks */
export function marked(text, marks) {
  const letters = [...text].length === text.length ? text : null;
  /** @type {import("../../dom.js").Child[]} */
  const parts = [];
  let at = 0;
  /** @param {number} from @param {number} to */
  const cut = (from, to) => (letters ? letters.slice(from, to) : [...text].slice(from, to).join(""));
  for (const mark of [...marks].sort((one, other) => one.start - other.start)) {
    if (mark.start < at) continue;
    parts.push(cut(at, mark.start), h("mark", { title: mark.matched_as === "exact" ? "" : `taken for what you wrote (${mark.matched_as})` }, cut(mark.start, mark.end)));
    at = mark.end;
  }
  parts.push(cut(at, text.length));
  return parts;
}
