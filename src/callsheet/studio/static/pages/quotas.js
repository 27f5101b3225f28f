// @ts-check
/** Quotas: what each tenant may have and what it uses; operators set others for one. */
import { del, get, poll, put } from "../api.js";
import { changes } from "../components/changes.js";
import { confirm, openDialog } from "../components/dialog.js";
import { field, pageHead } from "../components/layout.js";
import { empty, skeleton } from "../components/states.js";
import { makeTable } from "../components/table.js";
import { toast, toastError } from "../components/toast.js";
import { button, fill, h } from "../dom.js";
import { bytes, number } from "../format.js";
import { may } from "../session.js";

/** @typedef {Record<string, number | null>} Numbers @typedef {{tenant: string, limits: Numbers, used: Numbers, own: Record<string, number>, scope: Record<string, string>}} Quota */

const LOOK_MS = 5000;
/** @type {[string, string][]} */
const KINDS = [["queued", "Queued jobs"], ["running", "Running jobs"], ["bytes", "Stored bytes"], ["streams", "Open streams"], ["rate", "Requests a second"], ["uploads", "Open uploads"]];

/** @param {import("../router.js").View} view */
export default async function quotas(view) {
  const admin = may(view.session, "admin");
  const list = h("div", null, h("div", { class: "pad" }, skeleton(4)));
  const again = () => load().catch(() => undefined);
  const table = makeTable("Quotas", columns(admin, again), (/** @type {Quota} */ quota) => quota.tenant);
  view.main.append(
    pageHead("Quotas", "What a tenant may have, and what it uses. Streams and requests are counted by each server process.", admin ? button("Set for a tenant", { icon: "plus", tone: "first", onclick: () => change(null, again) }) : ""),
    h("section", { class: "card flush", "aria-label": "Quotas" }, list));
  const isNew = changes();
  async function load() {
    const told = await get("/v1/quotas?limit=200", { signal: view.signal });
    if (!isNew(told)) return;
    table.rows(told.quotas);
    fill(list, told.quotas.length ? table.element : empty("No tenants", "Give a key a requester: its jobs are then counted for that tenant."));
  }
  await poll(load, LOOK_MS, view.signal);
}

/** @param {string} kind @param {number} value */
const shown = (kind, value) => (kind === "bytes" ? bytes(value) : number(value));

/** @param {boolean} admin @param {() => unknown} changed @returns {import("../components/table.js").Column<Quota>[]} */
function columns(admin, changed) {
  return [
    { name: "Tenant", cell: (quota) => h("strong", { class: "clip" }, quota.tenant || "(operators)") },
    ...KINDS.map(([kind, title], at) => ({ name: title, class: at ? "num extra nowrap" : "num nowrap", cell: (/** @type {Quota} */ quota) => use(kind, quota) })),
    ...(admin ? [{ name: "Actions", hidden: true, class: "num nowrap", cell: (/** @type {Quota} */ quota) => h("div", { class: "row" },
      button("Change", { tone: "tiny", onclick: () => change(quota, changed) }),
      Object.keys(quota.own).length ? button("Reset", { tone: "tiny", onclick: async () => {
        if (!(await confirm(`Give ${quota.tenant || "operators"} the defaults?`, "Limits that were set for this tenant alone are gone.", "Reset"))) return;
        await del(path(quota.tenant)).then(() => (toast("The defaults hold", "good"), changed()), (error) => toastError(error, "Nothing was changed"));
      } }) : "") }] : []),
  ];
}

/** @param {string} kind @param {Quota} quota */
function use(kind, quota) {
  const [used, limit] = [quota.used[kind] ?? null, quota.limits[kind] ?? null];
  const full = used !== null && limit !== null && used >= limit;
  const most = limit === null ? "no limit" : shown(kind, limit);
  const text = used === null ? most : limit === null ? `${shown(kind, used)}, ${most}` : `${shown(kind, used)} of ${most}`;
  return h("span", { class: full ? "used-up" : "", title: kind in quota.own ? "Set for this tenant" : "The default" }, text, kind in quota.own ? " *" : "");
}

/** @param {string} tenant */
const path = (tenant) => `/v1/quotas/${tenant ? encodeURIComponent(tenant) : "~"}`;

/** @param {Quota | null} quota @param {() => unknown} changed */
function change(quota, changed) {
  const tenant = h("input", { class: "input", required: true, maxlength: "255", value: quota?.tenant ?? "", disabled: quota !== null });
  const inputs = KINDS.map(([kind]) => h("input", { class: "input", type: "number", min: "0", name: kind, value: String(quota?.own[kind] ?? "") }));
  const form = h("form", { class: "stack", onsubmit: async (/** @type {Event} */ event) => {
    event.preventDefault();
    const asked = Object.fromEntries(inputs.map((input) => [input.name, input.value === "" ? null : Number(input.value)]));
    await put(path(tenant.value.trim()), asked).then(() => (box.close(), toast("It holds now", "good"), changed()), (error) => toastError(error, "Nothing was changed"));
  } }, field("Tenant", tenant), inputs.map((input, at) => field(KINDS[at]?.[1] ?? "", input, at ? "" : "Empty is the default, 0 is any number.")), h("div", { class: "actions" }, button("Back", { onclick: () => box.close() }), button("Set", { tone: "first", type: "submit" })));
  const box = openDialog("Quotas", form);
}
