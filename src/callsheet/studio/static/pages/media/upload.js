// @ts-check
/**
 * Uploads that can be gone on with: in parts, straight to the storage, by URLs that the server signs. What a broken
 * connection, or a closed page, left to send is asked for again; the same file, dropped once more, goes on.
 *
 *   const videoId = await uploadVideo(file, { title, options, onProgress, signal })
 *
 * @typedef {object} UploadOptions
 * @property {string} [title]
 * @property {Record<string, unknown>} [options] How its stages treat it; `languages` and so on.
 * @property {(done: number) => void} [onProgress] From 0 to 1.
 * @property {AbortSignal} signal
 * @typedef {{number: number, offset: number, size: number, method: string, url: string, headers: Record<string, string>}} Part
 * @typedef {{upload_id: string, received: number, status: string, todo: Part[]}} Upload
 */
import { CallsheetError, get, pause, post } from "../../api.js";

const KEPT = "callsheet-uploads";
const TRIES = 6;

/** @param {File} file @param {UploadOptions} options @returns {Promise<string>} The video's id. */
export async function uploadVideo(file, { title = file.name, options = {}, onProgress = () => undefined, signal }) {
  const name = `${file.name}:${file.size}:${file.lastModified}`;
  const known = kept()[name];
  let upload = known ? await found(known) : null;
  let videoId = known?.video_id ?? "";
  if (!upload) {
    const made = await post("/videos", { title, name: file.name, size: file.size, options }, { signal });
    [upload, videoId] = [made.upload, made.video.video_id];
    keep(name, { upload_id: made.upload.upload_id, video_id: videoId });
  }
  await sendAll(file, /** @type {Upload} */ (upload), onProgress, signal);
  await post(`/videos/${videoId}/complete`, {}, { signal });
  keep(name, null);
  return videoId;
}

/** An upload that was begun, unless it or its video is gone. @param {{upload_id: string, video_id: string}} known @returns {Promise<Upload | null>} */
async function found({ upload_id: uploadId, video_id: videoId }) {
  try {
    await get(`/videos/${videoId}`);
    return await get(`/v1/uploads/${uploadId}`);
  } catch (error) {
    if (error instanceof CallsheetError && error.status === 404) return null;
    throw error;
  }
}

/** @param {File} file @param {Upload} upload @param {(done: number) => void} onProgress @param {AbortSignal} signal */
async function sendAll(file, upload, onProgress, signal) {
  let now = upload;
  let failed = 0;
  while (now.todo.length) {
    let done = now.received;
    for (const part of now.todo) {
      try {
        await send(file, part, (sent) => onProgress((done + sent) / file.size), signal);
        done += part.size;
        failed = 0;
      } catch (error) {
        failed += 1;
        if (signal.aborted || failed >= TRIES) throw error;
        await pause(500 * 2 ** failed, signal);
        break;
      }
    }
    now = await get(`/v1/uploads/${now.upload_id}`, { signal });
  }
  onProgress(1);
}

/**
 * One part; XMLHttpRequest, because fetch does not tell how far an upload is.
 * @param {File} file @param {Part} part @param {(sent: number) => void} onProgress @param {AbortSignal} signal @returns {Promise<void>}
 */
function send(file, part, onProgress, signal) {
  return new Promise((done, refuse) => {
    const request = new XMLHttpRequest();
    const leave = () => request.abort();
    const fail = () => refuse(new CallsheetError("upload_failed", "the connection to the storage broke while a file was sent", { status: request.status }));
    request.open(part.method, part.url);
    for (const [name, value] of Object.entries(part.headers)) if (name.toLowerCase() !== "content-length") request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", (event) => onProgress(event.loaded));
    request.addEventListener("load", () => (request.status < 300 ? done() : fail()));
    request.addEventListener("error", fail);
    request.addEventListener("abort", fail);
    request.addEventListener("loadend", () => signal.removeEventListener("abort", leave));
    signal.addEventListener("abort", leave);
    request.send(file.slice(part.offset, part.offset + part.size));
  });
}

/** @returns {Record<string, {upload_id: string, video_id: string}>} */
function kept() {
  try {
    return JSON.parse(localStorage.getItem(KEPT) ?? "{}");
  } catch {
    return {};
  }
}

/** @param {string} name @param {{upload_id: string, video_id: string} | null} value */
function keep(name, value) {
  const all = kept();
  if (value) all[name] = value;
  else delete all[name];
  localStorage.setItem(KEPT, JSON.stringify(all));
}
