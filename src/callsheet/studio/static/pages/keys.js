// @ts-check
/** API keys: who may do what; made here, shown once, revoked. */
import { del, get, poll, post } from "../api.js";
import { badge } from "../components/badge.js";
import { changes } from "../components/changes.js";
import { copyButton } from "../components/code.js";
import { confirm, openDialog } from "../components/dialog.js";
import { field, pageHead, select } from "../components/layout.js";
import { moment } from "../components/moment.js";
import { empty, skeleton } from "../components/states.js";
import { makeTable } from "../components/table.js";
import { toast, toastError } from "../components/toast.js";
import { button, fill, h } from "../dom.js";

/** @typedef {{key_id: string, name: string, requester_id: string, scopes: string[], teams: string[], created_at: number, expires_at: number | null, revoked_at: number | null}} Key */

const LOOK_MS = 5000;
/** @type {[string, string][]} */
const ROLES = [["viewer", "Viewer: looks"], ["operator", "Operator: looks, creates and changes jobs"], ["admin", "Admin: everything, of everybody"]];
/** @type {Record<string, string[]>} */
const SCOPES = { viewer: ["jobs:read"], operator: ["jobs:read", "jobs:write"], admin: ["admin"] };
/** @type {[string, string][]} */
const LIVES = [["", "For ever"], ["604800", "7 days"], ["7776000", "90 days"], ["31536000", "A year"]];

/** @param {import("../router.js").View} view */
export default async function keys(view) {
  const list = h("div", null, h("div", { class: "pad" }, skeleton(4)));
  const again = () => load().catch(() => undefined);
  const table = makeTable("Keys", columns(again), (/** @type {Key} */ key) => key.key_id);
  view.main.append(
    pageHead("Keys", "Who may do what. A key sees the jobs of its requester alone.", button("New key", { icon: "plus", tone: "first", onclick: () => create(again) })),
    h("section", { class: "card flush", "aria-label": "Keys" }, list));
  const isNew = changes();
  async function load() {
    const told = await get("/v1/keys", { signal: view.signal });
    if (!isNew(told)) return;
    table.rows(told.keys);
    fill(list, told.keys.length ? table.element : empty("No keys are kept", "The server was started with a key of its own. Make one for each person and each program."));
  }
  await poll(load, LOOK_MS, view.signal);
}

/** @param {Key} key */
const stateOf = (key) => (key.revoked_at ? "revoked" : key.expires_at && key.expires_at < Date.now() ? "expired" : "active");

/** @param {() => unknown} changed @returns {import("../components/table.js").Column<Key>[]} */
function columns(changed) {
  return [
    { name: "State", cell: (key) => badge(stateOf(key)) },
    { name: "Key", cell: (key) => h("div", { class: "jobcell" }, h("strong", { class: "clip" }, key.name), h("span", { class: "mono small quiet" }, key.key_id)) },
    { name: "Requester", cell: (key) => key.requester_id || "–", class: "clip extra" },
    { name: "May", cell: (key) => key.scopes.map((scope) => h("span", { class: "chip small" }, scope)), class: "extra" },
    { name: "Teams", cell: (key) => key.teams.join(", ") || "–", class: "extra clip" },
    { name: "Until", cell: (key) => (key.expires_at ? moment(key.expires_at) : "for ever"), class: "nowrap extra" },
    { name: "Made", cell: (key) => moment(key.created_at), class: "nowrap extra" },
    { name: "Actions", hidden: true, class: "num", cell: (key) => stateOf(key) === "active" ? button("Revoke", { tone: "tiny danger", onclick: async () => {
      if (!(await confirm(`Revoke “${key.name}”?`, "Whoever uses it is shut out within half a minute, and its sessions at once.", "Revoke it", "danger"))) return;
      await del(`/v1/keys/${key.key_id}`).then(() => (toast("Revoked", "good"), changed()), (error) => toastError(error, "It was not revoked"));
    } }) : "" },
  ];
}

/** @param {() => unknown} changed */
function create(changed) {
  const name = h("input", { class: "input", required: true, maxlength: "255", placeholder: "Anna's laptop" });
  const requester = h("input", { class: "input", maxlength: "255", placeholder: "acme" });
  const teams = h("input", { class: "input", maxlength: "500", placeholder: "red,blue" });
  const role = select(ROLES, "operator");
  const life = select(LIVES, "");
  const form = h("form", { class: "stack", onsubmit: async (/** @type {Event} */ event) => {
    event.preventDefault();
    const named = teams.value.split(",").map((one) => one.trim()).filter(Boolean);
    try {
      const made = await post("/v1/keys", { name: name.value.trim(), requester_id: requester.value.trim(), scopes: SCOPES[role.value], teams: named, ...(life.value && { ttl_s: Number(life.value) }) });
      box.close();
      changed();
      openDialog("The key", [h("p", null, "Keep it now: it is shown this once, and kept nowhere."), h("div", { class: "row" }, h("code", { class: "wrap secret" }, made.key), copyButton("Copy", () => made.key))]);
    } catch (error) {
      toastError(error, "No key was made");
    }
  } }, field("Name", name), field("Role", role), field("Requester", requester, "The tenant whose jobs it sees."), field("Teams", teams, "Whose videos it sees, too."), field("Good for", life), h("div", { class: "actions" }, button("Back", { onclick: () => box.close() }), button("Make it", { tone: "first", type: "submit" })));
  const box = openDialog("New key", form);
}
