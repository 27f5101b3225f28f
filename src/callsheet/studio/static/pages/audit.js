// @ts-check
/** The audit log: who did what, newest first; by action, actor and tenant. */
import { get } from "../api.js";
import { badge } from "../components/badge.js";
import { field, pageHead } from "../components/layout.js";
import { moment } from "../components/moment.js";
import { empty, skeleton, trouble } from "../components/states.js";
import { makeTable } from "../components/table.js";
import { button, fill, h } from "../dom.js";
import { setQuery } from "../router.js";
import { may } from "../session.js";

/** @typedef {{id: string, at: number, tenant: string, actor: string, action: string, target: string, outcome: string, address: string, request_id: string, details: Record<string, unknown>}} Act */

const PAGE = 50;

/** @param {import("../router.js").View} view */
export default async function audit(view) {
  const names = may(view.session, "admin") ? ["action", "actor", "tenant"] : ["action", "actor"];
  const list = h("div", null, h("div", { class: "pad" }, skeleton(5)));
  const foot = h("div", { class: "row pad" });
  const table = makeTable("Acts", columns(), (/** @type {Act} */ act) => act.id);
  /** @type {string | null} */
  let next = null;
  let reading = new AbortController();
  view.signal.addEventListener("abort", () => reading.abort());
  const inputs = names.map((name) => h("input", { class: "input", name, maxlength: "255", value: view.query.get(name) ?? "", placeholder: name === "action" ? "key." : "", onchange: read }));

  /** @param {boolean} on */
  async function page(on) {
    const { signal } = reading;
    const filter = Object.fromEntries(inputs.map((input) => [input.name, input.value.trim()]));
    const query = new URLSearchParams({ limit: String(PAGE), ...Object.fromEntries(Object.entries({ ...filter, cursor: on ? (next ?? "") : "" }).filter(([, value]) => value)) });
    try {
      const told = await get(`/v1/audit?${query}`, { signal });
      next = told.next;
      if (on) table.append(told.entries);
      else table.rows(told.entries);
      fill(list, table.body.childElementCount ? table.element : empty("Nothing of that kind", "Keys, sign-ins, workers, replays, deletions, refusals: what matters for security is kept here."));
      fill(foot, next ? button("Older", { onclick: () => page(true) }) : "");
    } catch (error) {
      if (!signal.aborted) fill(list, trouble(error, () => void page(on)));
    }
  }
  async function read() {
    reading.abort();
    reading = new AbortController();
    setQuery(Object.fromEntries(inputs.map((input) => [input.name, input.value.trim()])));
    await page(false);
  }
  const labels = { action: "Action", actor: "Actor", tenant: "Tenant" };
  view.main.append(
    pageHead("Audit log", "Who did what. Nothing here can be changed."),
    h("form", { class: "filters", "aria-label": "Filters", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), void read()) },
      inputs.map((input) => field(labels[/** @type {keyof typeof labels} */ (input.name)], input))),
    h("section", { class: "card flush", "aria-label": "Acts" }, list, foot));
  await page(false);
}

/** @returns {import("../components/table.js").Column<Act>[]} */
function columns() {
  return [
    { name: "When", cell: (act) => moment(act.at), class: "nowrap" },
    { name: "Act", cell: (act) => h("div", { class: "jobcell" }, h("strong", null, act.action), act.outcome === "refused" ? badge("refused") : "") },
    { name: "Target", cell: (act) => h("span", { class: "mono small" }, act.target || "–"), class: "clip" },
    { name: "Actor", cell: (act) => h("span", { class: "mono small" }, act.actor || "unknown"), class: "extra clip" },
    { name: "Tenant", cell: (act) => act.tenant || "–", class: "extra clip" },
    { name: "From", cell: (act) => act.address || "–", class: "extra nowrap" },
    { name: "Details", cell: (act) => h("span", { class: "small quiet" }, told(act.details)), class: "extra clip" },
  ];
}

/** @param {Record<string, unknown>} details */
const told = (details) => Object.entries(details).filter(([name]) => name !== "operator").map(([name, value]) => `${name}: ${value}`).join(", ") || "–";
