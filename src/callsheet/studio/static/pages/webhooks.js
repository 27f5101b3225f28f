// @ts-check
/** Webhooks: endpoints with their health, deliveries with their log, replay, and what is left alone for now. */
import { del, get, poll, post } from "../api.js";
import { badge } from "../components/badge.js";
import { changes } from "../components/changes.js";
import { codeBlock, copyButton } from "../components/code.js";
import { confirm, openDialog } from "../components/dialog.js";
import { card, facts, field, pageHead, select } from "../components/layout.js";
import { moment } from "../components/moment.js";
import { empty, note, skeleton } from "../components/states.js";
import { makeTable } from "../components/table.js";
import { toast, toastError } from "../components/toast.js";
import { button, fill, h, link } from "../dom.js";
import { clock, plural, shortId } from "../format.js";
import { setQuery } from "../router.js";
import { may } from "../session.js";

/**
 * @typedef {{state: "closed" | "open" | "half_open", failures: number, failing_since: number | null, next_probe_at: number | null}} Health
 * @typedef {{endpoint_id: string, url: string, description: string, created_at: number, disabled_at: number | null, disabled_reason: string, secrets: {secret_id: string, created_at: number, expires_at: number | null}[], health: Health, secret?: string | null}} Endpoint
 * @typedef {{event_id: string, job_id: string, endpoint: string, status: string, attempts: number, created_at: number, next_attempt_at: number | null, ended_at: number | null, reason: string | null, log: Record<string, any>[], response: string | null}} Delivery
 */

const LOOK_MS = 3000;
/** @type {[string, string][]} */
const STATUSES = [["", "All"], ["pending", "Waiting"], ["delivering", "Under way"], ["delivered", "Delivered"], ["dead_letter", "Given up"]];

/** @param {import("../router.js").View} view */
export default async function webhooks(view) {
  const writer = may(view.session, "jobs:write");
  const endpoints = h("div", { class: "stack" }, skeleton(3));
  const trouble = h("div", { class: "stack" });
  const list = h("div", null, h("div", { class: "pad" }, skeleton(4)));
  const status = select(STATUSES, view.query.get("status") ?? "", { name: "status", onchange: () => (setQuery({ status: status.value }), again()) });
  const table = makeTable("Deliveries", columns((delivery) => look(delivery, writer, again)), (/** @type {Delivery} */ delivery) => delivery.event_id);
  const sendAll = button("Send all that were given up again", { icon: "retry", onclick: () => replayAll(again) });
  const make = button("New endpoint", { icon: "plus", tone: "first", onclick: () => create(again) });
  view.main.append(
    pageHead("Webhooks", "What this server tells others, and whether they heard it.", ...(writer ? [make] : [])),
    trouble, card("Endpoints", {}, endpoints),
    h("section", { class: "card flush", "aria-label": "Deliveries" }, h("div", { class: "pad row between" }, field("Deliveries", status), writer ? sendAll : null), list));
  const [newEndpoints, newDeliveries, newTrouble] = [changes(), changes(), changes()];

  async function load() {
    const { signal } = view;
    const [own, deliveries, destinations] = await Promise.all([
      get("/v1/webhooks/endpoints", { signal }),
      get("/v1/webhooks/deliveries", { query: { status: status.value, limit: 50 }, signal }),
      get("/v1/webhooks/destinations", { signal }),
    ]);
    if (newEndpoints(own)) fill(endpoints, own.endpoints.length ? own.endpoints.map((/** @type {Endpoint} */ one) => endpoint(one, writer, again)) : empty("No endpoints yet", "An endpoint is a URL of yours that is told of jobs, signed with a secret of its own."));
    if (newDeliveries(deliveries)) {
      table.rows(deliveries.deliveries);
      fill(list, deliveries.deliveries.length ? table.element : status.value ? empty("None of these", "Choose another status.") : empty("Nothing was sent", "Deliveries stand here as soon as a job has something to tell."));
    }
    if (newTrouble(destinations)) fill(trouble, destinations.destinations.map((/** @type {{destination: string, health: Health}} */ one) => note(one.health.state === "closed" ? "warn" : "bad", one.destination, `${plural(one.health.failures, "failure")} in a row. ${words(one.health)}`)));
  }
  const again = () => load().catch(() => undefined); // what is wrong, the next look tells
  await poll(load, LOOK_MS, view.signal);
}

/** @param {Health} health */
function words(health) {
  if (health.state === "closed") return "It is still tried.";
  return health.next_probe_at ? `It is left alone until ${clock(health.next_probe_at)}, then tried with one event.` : "It is being tried with one event.";
}

/** @param {Endpoint} one @param {boolean} writer @param {() => unknown} changed */
function endpoint(one, writer, changed) {
  const state = one.disabled_at ? "disabled" : one.health.state === "closed" ? "enabled" : "open";
  const path = `/v1/webhooks/endpoints/${one.endpoint_id}`;
  /** @param {Promise<any>} what @param {string} said */
  const act = (what, said) => what.then((told) => (told?.secret ? showSecret(told.secret) : toast(said, "good"), changed()), (error) => toastError(error, "Nothing was changed"));
  return h("div", { class: "endpoint", data: { endpoint: one.endpoint_id } },
    h("div", { class: "row" }, badge(state), h("code", { class: "wrap" }, one.url)),
    h("div", { class: "small quiet" }, one.description || "", one.description ? " · " : "", "made ", moment(one.created_at), one.disabled_at ? ` · disabled: ${one.disabled_reason || "by hand"}` : one.health.failures ? ` · ${plural(one.health.failures, "failure")} in a row. ${words(one.health)}` : ""),
    writer ? h("div", { class: "row" },
      button("New secret", { tone: "tiny", onclick: async () => (await confirm("Make a new secret?", "For 24 hours both the old and the new one sign, so that you can change it without a gap.", "Make it")) && act(post(`${path}/rotate`, {}), "Rotated") }),
      one.disabled_at ? button("Enable", { tone: "tiny", onclick: () => act(post(`${path}/enable`, {}), "Enabled; what was given up is sent again") }) : button("Disable", { tone: "tiny", onclick: () => act(post(`${path}/disable`, {}), "Disabled") }),
      button("Delete", { tone: "tiny danger", onclick: async () => (await confirm("Delete this endpoint?", one.url, "Delete it", "danger")) && act(del(path), "Deleted") })) : null);
}

/** @param {string} secret */
function showSecret(secret) {
  openDialog("The secret", [h("p", null, "Keep it now: it is shown this once. Verify every request with it."), h("div", { class: "row" }, h("code", { class: "wrap secret" }, secret), copyButton("Copy", () => secret))]);
}

/** @param {() => unknown} changed */
function create(changed) {
  const url = h("input", { class: "input", type: "url", required: true, placeholder: "https://hooks.example.org/callsheet", maxlength: "2000" });
  const about = h("input", { class: "input", maxlength: "255", placeholder: "What it is for" });
  const fault = h("p", { class: "film-error", role: "alert" });
  const form = h("form", { class: "stack", onsubmit: async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      const made = await post("/v1/webhooks/endpoints", { url: url.value.trim(), description: about.value.trim() });
      box.close();
      changed();
      showSecret(made.secret);
    } catch (error) {
      fault.textContent = error instanceof Error ? error.message : String(error);
    }
  } }, field("URL", url), field("Description", about), fault, h("div", { class: "actions" }, button("Back", { onclick: () => box.close() }), button("Make it", { tone: "first", type: "submit" })));
  const box = openDialog("New endpoint", form);
}

/** @param {(delivery: Delivery) => unknown} open @returns {import("../components/table.js").Column<Delivery>[]} */
function columns(open) {
  return [
    { name: "Status", cell: (delivery) => badge(delivery.status) },
    { name: "Event", cell: (delivery) => h("button", { type: "button", class: "aslink open mono small", onclick: () => open(delivery) }, shortId(delivery.event_id)) },
    { name: "To", cell: (delivery) => delivery.endpoint, class: "clip extra" },
    { name: "Job", cell: (delivery) => link(`/studio/jobs/${delivery.job_id}`, { class: "mono small" }, shortId(delivery.job_id)), class: "extra" },
    { name: "Attempts", cell: (delivery) => String(delivery.attempts), class: "num" },
    { name: "Next", cell: (delivery) => (delivery.next_attempt_at && !delivery.ended_at ? moment(delivery.next_attempt_at) : "–"), class: "nowrap extra" },
    { name: "Made", cell: (delivery) => moment(delivery.created_at), class: "nowrap" },
  ];
}

/** @param {Delivery} delivery @param {boolean} writer @param {() => unknown} changed */
async function look(delivery, writer, changed) {
  const whole = await get(`/v1/webhooks/deliveries/${delivery.event_id}`).catch((error) => (toastError(error, "It cannot be read"), null));
  if (!whole) return;
  const log = whole.log.map((/** @type {Record<string, any>} */ line) => h("li", { class: "small" }, h("span", { class: "mono" }, line.at_ms ? clock(line.at_ms) : ""), ` attempt ${line.attempt ?? ""}: ${line.code ?? ""}`, line.timing ? `, ${line.timing}` : ""));
  const box = openDialog("Delivery", [
    h("div", { class: "row" }, badge(whole.status), h("code", { class: "wrap" }, whole.event_id)),
    facts([["To", h("code", { class: "wrap" }, whole.endpoint)], ["Reason", whole.reason], ["Attempts", String(whole.attempts)], ["Made", moment(whole.created_at)], ["Answer", whole.response]]),
    log.length ? h("ol", { class: "tries", "aria-label": "Attempts" }, log) : null,
    codeBlock(whole.body, "Body"),
    writer ? h("div", { class: "actions" }, button("Send it again", { icon: "retry", tone: "first", onclick: () => post(`/v1/webhooks/deliveries/${delivery.event_id}/replay`).then(() => (toast("It is sent again", "good"), box.close(), changed()), (error) => toastError(error, "It was not sent")) })) : null,
  ], { class: "wide" });
}

/** @param {() => unknown} changed */
async function replayAll(changed) {
  if (!(await confirm("Send them again?", "All deliveries that were given up are sent again, twenty in a second.", "Send them"))) return;
  try {
    const told = await post("/v1/webhooks/deliveries/replay", { status: "dead_letter" });
    toast(`${plural(told.replayed, "delivery", "deliveries")} on their way${told.more ? "; there are more" : ""}`, "good");
    changed();
  } catch (error) {
    toastError(error, "Nothing was sent");
  }
}
