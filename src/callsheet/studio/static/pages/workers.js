// @ts-check
/** Workers over HTTP: who works, invite one, drain, revoke. Workers beside the store stand on the overview. */
import { del, get, poll, post } from "../api.js";
import { badge } from "../components/badge.js";
import { changes } from "../components/changes.js";
import { codeBlock, copyButton } from "../components/code.js";
import { confirm, openDialog } from "../components/dialog.js";
import { field, pageHead } from "../components/layout.js";
import { moment } from "../components/moment.js";
import { empty, skeleton } from "../components/states.js";
import { makeTable } from "../components/table.js";
import { toast, toastError } from "../components/toast.js";
import { button, fill, h } from "../dom.js";

/** @typedef {{worker_id: string, name: string, state: string, queues: string[] | null, tenants: string[] | null, labels: string[], version: string, running: number, draining: boolean, last_seen_at: number | null, token_expires_at: number | null}} Worker */

/** @typedef {{enrolment_id: string, queues: string[] | null, tenants: string[] | null, uses_left: number, expires_at: number}} Enrolment */

const LOOK_MS = 2000;

/** @param {import("../router.js").View} view */
export default async function workers(view) {
  const list = h("div", null, h("div", { class: "pad" }, skeleton(4)));
  const table = makeTable("Workers", columns(() => load().catch(() => undefined)), (/** @type {Worker} */ worker) => worker.worker_id);
  const invited = makeTable("Invitations", invitations(() => load().catch(() => undefined)), (/** @type {Enrolment} */ one) => one.enrolment_id);
  const open = h("section", { class: "card flush", "aria-label": "Invitations", hidden: true }, h("h2", { class: "pad" }, "Invitations"), invited.element);
  view.main.append(
    pageHead("Workers", "Those that get their jobs over HTTP, from anywhere.", button("Invite a worker", { icon: "plus", tone: "first", onclick: invite })),
    h("section", { class: "card flush", "aria-label": "Workers" }, list), open);
  const isNew = changes();
  async function load() {
    const [told, rights] = await Promise.all([get("/v1/workers", { signal: view.signal }), get("/v1/workers/enrolments", { signal: view.signal })]);
    if (!isNew([told, rights])) return;
    invited.rows(rights.enrolments);
    open.hidden = !rights.enrolments.length;
    table.rows(told.workers);
    fill(list, told.workers.length ? table.element : empty("No remote workers", "Invite one: it needs nothing but Python and a way out to this server. Workers beside the store need no invitation; they stand on the overview."));
  }
  await poll(load, LOOK_MS, view.signal);
}

/** @param {() => unknown} changed @returns {import("../components/table.js").Column<Worker>[]} */
function columns(changed) {
  /** @param {Promise<unknown>} what @param {string} said */
  const act = (what, said) => what.then(() => (toast(said, "good"), changed()), (error) => toastError(error, "Nothing was changed"));
  return [
    { name: "State", cell: (worker) => badge(worker.state) },
    { name: "Worker", cell: (worker) => h("div", { class: "jobcell" }, h("strong", { class: "clip" }, worker.name || worker.worker_id), h("span", { class: "mono small quiet clip" }, worker.worker_id)) },
    { name: "Queues", cell: (worker) => worker.queues?.join(", ") ?? "all", class: "extra clip" },
    { name: "Labels", cell: (worker) => worker.labels.map((label) => h("span", { class: "chip small" }, label)), class: "extra" },
    { name: "Running", cell: (worker) => String(worker.running), class: "num extra" },
    { name: "Last seen", cell: (worker) => moment(worker.last_seen_at), class: "nowrap extra" },
    { name: "Token until", cell: (worker) => moment(worker.token_expires_at), class: "nowrap extra" },
    { name: "Actions", hidden: true, class: "num nowrap", cell: (worker) => worker.state === "revoked" ? "" : h("div", { class: "row" },
      button(worker.draining ? "Take jobs again" : "Drain", { tone: "tiny", onclick: () => act(post(`/v1/workers/${encodeURIComponent(worker.worker_id)}/drain`, { drain: !worker.draining }), worker.draining ? "It takes jobs again" : "It finishes what it has, then ends") }),
      button("Revoke", { tone: "tiny danger", onclick: async () => (await confirm(`Revoke ${worker.name || worker.worker_id}?`, "Its token stops at once; jobs that it has go to others when their leases end.", "Revoke it", "danger")) && act(del(`/v1/workers/${encodeURIComponent(worker.worker_id)}`), "Revoked") })) },
  ];
}

/** @param {() => unknown} changed @returns {import("../components/table.js").Column<Enrolment>[]} */
function invitations(changed) {
  return [
    { name: "Invitation", cell: (one) => h("span", { class: "mono" }, one.enrolment_id) },
    { name: "Queues", cell: (one) => one.queues?.join(", ") ?? "all", class: "extra clip" },
    { name: "Tenants", cell: (one) => one.tenants?.join(", ") ?? "all", class: "extra clip" },
    { name: "Uses left", cell: (one) => String(one.uses_left), class: "num" },
    { name: "Until", cell: (one) => moment(one.expires_at), class: "nowrap extra" },
    { name: "Actions", hidden: true, class: "num nowrap", cell: (one) => button("Take it back", { tone: "tiny danger", onclick: () => withdraw(one.enrolment_id).then(changed) }) },
  ];
}

function invite() {
  const queues = h("input", { class: "input", placeholder: "all, or a,b", maxlength: "500" });
  const uses = h("input", { class: "input", type: "number", min: "1", max: "1000", value: "1" });
  const form = h("form", { class: "stack", onsubmit: async (/** @type {Event} */ event) => {
    event.preventDefault();
    const names = queues.value.split(",").map((name) => name.trim()).filter(Boolean);
    try {
      const made = await post("/v1/workers/enrolments", { ...(names.length && { queues: names }), uses: Number(uses.value) });
      const line = `CALLSHEET_TOKEN=${made.enrolment_token} callsheet worker --url ${location.origin}`;
      box.close();
      const told = openDialog("Start the worker", [h("p", null, "Run this on its machine within the hour. It runs the tasks that come along; for your own, name your app: callsheet worker MODULE:APP. The token is shown this once."), codeBlock(line, "Command"), h("div", { class: "actions" }, button("Take it back", { tone: "danger", onclick: () => withdraw(made.enrolment_id).then((gone) => gone && told.close()) }), copyButton("Copy", () => line))], { class: "wide" });
    } catch (error) {
      toastError(error, "No invitation was made");
    }
  } }, field("Queues it may work for", queues), field("How many workers may use it", uses), h("div", { class: "actions" }, button("Back", { onclick: () => box.close() }), button("Invite", { tone: "first", type: "submit" })));
  const box = openDialog("Invite a worker", form);
}

/** @param {string} id @returns {Promise<boolean>} whether nobody can use the invitation any more */
async function withdraw(id) {
  try {
    await del(`/v1/workers/enrolments/${encodeURIComponent(id)}`);
    toast("Nobody can use it any more", "good");
    return true;
  } catch (error) {
    toastError(error, "It was not taken back");
    return false;
  }
}
