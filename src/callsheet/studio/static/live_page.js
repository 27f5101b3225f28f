// @ts-check
/** The page that composes a video: a client of `/api/jobs` and nothing else. */
import { CallsheetError } from "./client.js";
import { backoffMs, followLive, merged, newState } from "./live.js";

const STAGES = ["Script", "Voice", "Visuals", "Compose", "Rendering"];
const EXAMPLE = "# The harbour at dawn\n\n## Boats\n\nThe boats leave before the sun is up.\n\n## Gulls\n\nGulls follow them out to sea.\n";

/** @template {HTMLElement} T @param {string} id @param {new () => T} kind @returns {T} */
function part(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`no ${id}`);
  return found;
}

const key = part("key", HTMLInputElement);
const script = part("script", HTMLTextAreaElement);
const buttons = {
  create: part("create", HTMLButtonElement),
  cancel: part("cancel", HTMLButtonElement),
  resume: part("resume", HTMLButtonElement),
};
const shown = {
  trouble: part("trouble", HTMLElement), status: part("status", HTMLElement), message: part("message", HTMLElement),
  bar: part("bar", HTMLProgressElement), track: part("track", HTMLElement), notes: part("notes", HTMLElement),
  connection: part("connection", HTMLElement), video: part("video", HTMLVideoElement),
};
let jobId = "";

/** @param {string} method @param {string} path @param {unknown} [body] */
async function ask(method, path, body) {
  const answer = await fetch(path, {
    method,
    headers: { Authorization: `Bearer ${key.value}`, "Content-Type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new CallsheetError(told.code ?? "unexpected", told.detail ?? answer.statusText, { status: answer.status });
  return told;
}

/** @param {import("./live.js").LiveState} state */
function show(state) {
  shown.status.textContent = state.status === "Running" ? `${state.stage || "Running"} · ${Math.floor(state.percent)} %` : state.status;
  shown.status.dataset.state = state.status;
  shown.message.textContent = state.message;
  shown.bar.value = state.percent;
  const at = STAGES.indexOf(state.stage);
  shown.track.replaceChildren(...STAGES.map((stage, n) => {
    const item = document.createElement("li");
    item.textContent = stage;
    item.className = state.status === "Done" || n < at ? "done" : n === at && !state.ended ? "now" : "";
    return item;
  }));
  shown.notes.replaceChildren(...state.warnings.map((text) => {
    const item = document.createElement("li");
    item.textContent = text;
    return item;
  }));
}

/** @param {number} ms */
async function pause(ms) {
  shown.connection.textContent = `Connection lost; trying again in ${ms / 1000} s.`;
  await new Promise((done) => setTimeout(done, ms));
}

/** @param {string} id */
async function watch(id) {
  jobId = id;
  document.body.dataset.job = id;
  let state = newState();
  buttons.create.disabled = true;
  buttons.cancel.disabled = false;
  buttons.resume.hidden = true;
  shown.video.hidden = true;
  shown.connection.textContent = "";
  show(state);
  for await (const event of followLive(id, { apiKey: key.value, pause })) {
    shown.connection.textContent = "";
    state = merged(state, event);
    document.body.dataset.events = String(Number(document.body.dataset.events ?? 0) + 1);
    show(state);
  }
  buttons.create.disabled = false;
  buttons.cancel.disabled = true;
  const job = await ask("GET", `/api/jobs/${id}`);
  buttons.resume.hidden = !job.canResume;
  if (state.status === "Failed") shown.trouble.textContent = job.errors[0]?.message ?? "It failed.";
  if (state.status === "Done") await play(id);
}

/** @param {string} id */
async function play(id) {
  const answer = await fetch(`/v1/jobs/${id}/artifacts/video.mp4`, { headers: { Authorization: `Bearer ${key.value}` } });
  shown.video.src = URL.createObjectURL(await answer.blob());
  shown.video.hidden = false;
}

/** @param {() => Promise<void>} what */
async function tried(what) {
  shown.trouble.textContent = "";
  try {
    await what();
  } catch (error) {
    shown.trouble.textContent = error instanceof Error ? error.message : String(error);
    buttons.create.disabled = false;
  }
}

script.value = EXAMPLE;
show(newState());
shown.status.textContent = "Nothing yet";
shown.message.textContent = "The video appears here when it is done.";
buttons.create.addEventListener("click", () => tried(async () => {
  const made = await ask("POST", "/api/jobs", { payload: { script: script.value } });
  await watch(made.jobId);
}));
buttons.cancel.addEventListener("click", () => tried(async () => {
  buttons.cancel.disabled = true;
  await ask("POST", `/api/jobs/${jobId}/cancel`, {});
}));
buttons.resume.addEventListener("click", () => tried(async () => {
  const made = await ask("POST", `/api/jobs/${jobId}/resume`);
  await watch(made.jobId);
}));
document.body.dataset.backoff = String(backoffMs(1));
