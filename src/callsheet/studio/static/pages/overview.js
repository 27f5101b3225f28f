// @ts-check
/** How things stand: what ends, waits and runs, what failed, and who works. Read from `/v1/overview` each two seconds. */
import { get, poll } from "../api.js";
import { legend, rowChart, timeChart } from "../charts.js";
import { badge } from "../components/badge.js";
import { card, figure, pageHead } from "../components/layout.js";
import { moment } from "../components/moment.js";
import { empty, skeleton } from "../components/states.js";
import { makeTable } from "../components/table.js";
import { fill, h, link } from "../dom.js";
import { compact, duration, number, plural, rough, zone } from "../format.js";

/** @type {[string, string, string][]} Name in the API, word, tone. */
const ENDS = [["succeeded", "Done", "c2"], ["canceled", "Canceled", "c6"], ["failed", "Failed", "c3"], ["dead_letter", "Dead letters", "c5"]];
const EVERY_MS = 2000;
const SILENT_MS = 60_000;

/** @param {import("../router.js").View} view */
export default async function overview(view) {
  const figures = h("div", { class: "cards figures" });
  const flow = timeChart();
  const queues = h("div", { class: "stack" });
  const kinds = h("div", { class: "stack" });
  const workers = workerView();
  const body = h("div", { class: "stack" }, skeleton(8));
  view.main.append(pageHead("Overview", view.session.teams ? "Your team's jobs, live." : "All jobs of all teams, live."), body);
  const changed = memory();
  await poll(async () => {
    const report = await get("/v1/overview", { signal: view.signal });
    if (!body.contains(figures)) {
      fill(body, figures,
        card("Throughput", { aside: `jobs that ended, in spans of 10 s; times in ${zone()}` }, flow.element, legend(ENDS.map(([, word, tone]) => [word, tone]))),
        h("div", { class: "halves" },
          card("Queues", { aside: "now" }, queues),
          card("Failures and dead letters by kind", { aside: "last 15 min, and kept" }, kinds)),
        card("Workers", { flush: true, aside: "who has jobs, or was heard of today" }, workers.element));
    }
    const cards = figureCards(report);
    if (changed("figures", cards.map((one) => one.textContent))) fill(figures, cards);
    drawFlow(flow, report);
    if (changed("queues", [report.queues, report.partial])) fill(queues, queueView(report));
    if (changed("kinds", report.kinds)) fill(kinds, kindView(report));
    workers.show(report);
    view.main.dataset.at = String(report.at);
  }, EVERY_MS, view.signal);
}

/** @param {any} report */
function figureCards(report) {
  const last = report.throughput.spans.slice(-7, -1); // the last whole minute
  const ended = last.reduce((/** @type {number} */ sum, /** @type {any} */ span) => sum + span.succeeded + span.failed + span.dead_letter + span.canceled, 0);
  const add = (/** @type {string} */ name, /** @type {any[]} */ rows) => rows.reduce((sum, row) => sum + row[name], 0);
  const [ready, held, running] = ["ready", "held", "running"].map((name) => add(name, report.queues));
  const oldest = Math.max(-1, ...report.queues.map((/** @type {any} */ queue) => queue.oldest_ms ?? -1));
  const failed = add("failed", report.throughput.spans) + add("dead_letter", report.throughput.spans);
  const dead = add("dead_letters", report.kinds);
  const busy = report.workers.filter((/** @type {any} */ worker) => worker.running > 0).length;
  return [
    figure("Throughput", number(ended), "jobs in the last minute"),
    figure("Running", number(running ?? 0), busy ? `on ${plural(busy, "worker")}` : "nobody is busy"),
    figure("Waiting", `${number(ready ?? 0)}${report.partial ? "+" : ""}`, held ? `and ${number(held)} held back` : "ready to run"),
    figure("Oldest", oldest < 0 ? "–" : rough(oldest), "the longest wait now"),
    figure("Failed", number(failed), "in 15 minutes", failed ? "bad" : ""),
    figure("Dead letters", number(dead), dead ? link("/studio/dead-letters", {}, "look at them") : "none to look at", dead ? "bad" : ""),
  ];
}

/** @param {{draw: (data: import("../charts.js").TimeData) => void}} flow @param {any} report */
function drawFlow(flow, report) {
  const { span_ms: spanMs, spans } = report.throughput;
  const from = spans[0].since;
  const now = spans[spans.length - 1].since;
  const rate = (/** @type {any} */ span, /** @type {string} */ name) => span[name] / (Math.max(1000, span.since === now ? report.at - now : spanMs) / 1000);
  const series = ENDS.map(([name, word, tone]) => ({ name: word, tone, points: spans.map((/** @type {any} */ span) => [span.since, rate(span, name)]) }));
  const total = spans.reduce((/** @type {number} */ sum, /** @type {any} */ span) => sum + span.succeeded, 0);
  flow.draw({ unit: "jobs/s", from, to: now + spanMs, spanMs, series, label: `Jobs that ended in each second of the last 15 minutes; ${plural(total, "job")} done in all` });
}

/** @param {any} report */
function queueView(report) {
  if (!report.queues.length) return empty("Nothing waits and nothing runs", ["Send a job with ", h("code", null, "POST /v1/jobs"), ", or compose a video."]);
  const rows = [...report.queues].sort((a, b) => b.ready + b.running + b.held - a.ready - a.running - a.held).slice(0, 12);
  const table = makeTable("Queues", [
    { name: "Queue", cell: (/** @type {any} */ queue) => [h("a", { class: "open", href: `/studio/jobs?queue=${encodeURIComponent(queue.queue)}` }, queue.queue), " ", queue.paused ? badge("draining", "Paused") : null] },
    { name: "Ready", cell: (queue) => number(queue.ready), class: "num" },
    { name: "Held", cell: (queue) => number(queue.held), class: "num" },
    { name: "Running", cell: (queue) => number(queue.running), class: "num" },
    { name: "Oldest", cell: (queue) => duration(queue.oldest_ms), class: "num nowrap" },
  ], (queue) => queue.queue);
  table.rows(rows);
  return [
    rowChart({ unit: "jobs", label: `Jobs by queue: ${rows.map((queue) => `${queue.queue} ${queue.ready} ready, ${queue.running} running`).join("; ")}`, rows: rows.slice(0, 6).map((queue) => ({ name: queue.queue, parts: [{ name: "Running", tone: "c1", value: queue.running }, { name: "Ready", tone: "c4", value: queue.ready }, { name: "Held", tone: "c6", value: queue.held }] })) }),
    legend([["Running", "c1"], ["Ready", "c4"], ["Held back", "c6"]]),
    h("div", { class: "inset" }, table.element),
  ];
}

/** @param {any} report */
function kindView(report) {
  const bad = report.kinds.filter((/** @type {any} */ kind) => kind.failed + kind.dead_letter + kind.dead_letters > 0);
  if (!bad.length) return empty("Nothing failed", "No job has failed in the last quarter of an hour, and there are no dead letters.");
  bad.sort((/** @type {any} */ a, /** @type {any} */ b) => b.dead_letters + b.failed - a.dead_letters - a.failed);
  const table = makeTable("Kinds", [
    { name: "Kind", cell: (/** @type {any} */ kind) => link(`/studio/jobs?status=error&task=${encodeURIComponent(kind.kind)}`, { class: "open" }, kind.kind) },
    { name: "Failed", cell: (kind) => number(kind.failed), class: "num" },
    { name: "Gave up", cell: (kind) => number(kind.dead_letter), class: "num extra" },
    { name: "Done", cell: (kind) => number(kind.succeeded), class: "num extra" },
    { name: "Dead letters", cell: (kind) => number(kind.dead_letters), class: "num" },
  ], (kind) => kind.kind);
  table.rows(bad.slice(0, 12));
  return [
    rowChart({ unit: "jobs", label: `Failures by kind: ${bad.map((/** @type {any} */ kind) => `${kind.kind} ${kind.failed} failed, ${kind.dead_letters} dead letters`).join("; ")}`, rows: bad.slice(0, 6).map((/** @type {any} */ kind) => ({ name: kind.kind, parts: [{ name: "Failed in 15 min", tone: "c3", value: kind.failed }, { name: "Dead letters", tone: "c5", value: kind.dead_letters }] })) }),
    legend([["Failed in 15 min", "c3"], ["Dead letters now", "c5"]]),
    h("div", { class: "inset" }, table.element),
  ];
}

/** The table of workers; it stays, and its rows change. */
function workerView() {
  let [at, most] = [0, 1];
  const table = makeTable("Workers", [
    { name: "Worker", cell: (/** @type {any} */ worker) => h("span", { class: "mono clip" }, worker.worker_id) },
    { name: "State", cell: (worker) => stateOf(worker, at) },
    { name: "Load", cell: (worker) => h("div", { class: "load" }, h("div", { class: "bar", "aria-hidden": "true" }, h("i", { style: { width: `${(100 * worker.running) / most}%` } })), h("span", null, plural(worker.running, "job"))) },
    { name: "Last heartbeat", cell: (worker) => moment(worker.last_seen_at), class: "nowrap" },
    { name: "Labels", cell: (worker) => worker.labels.map((/** @type {string} */ label) => [h("span", { class: "chip" }, label), " "]), class: "extra" },
    { name: "Version", cell: (worker) => worker.version || "–", class: "extra" },
  ], (worker) => worker.worker_id);
  const none = empty("No worker has a job", ["Workers show up here while they work; those over HTTP also while they wait. Start one with ", h("code", null, "callsheet worker"), "."]);
  const more = h("p", { class: "small quiet pad" });
  return {
    element: h("div", null, none, table.element, more),
    /** @param {any} report */
    show(report) {
      [at, most] = [report.at, Math.max(1, ...report.workers.map((/** @type {any} */ worker) => worker.running))];
      none.hidden = report.workers.length > 0;
      table.element.hidden = !report.workers.length;
      table.rows(report.workers.slice(0, 100));
      more.hidden = report.workers.length <= 100;
      more.textContent = `and ${compact(report.workers.length - 100)} more`;
    },
  };
}

/** @param {any} worker @param {number} at */
function stateOf(worker, at) {
  if (worker.last_seen_at && at - worker.last_seen_at > SILENT_MS) return badge("silent");
  if (worker.state) return badge(worker.state);
  return worker.running ? badge("running", "Busy") : badge("queued", "Idle");
}

/** Remembers values by name, and tells whether they are others now. */
function memory() {
  /** @type {Map<string, string>} */
  const known = new Map();
  return (/** @type {string} */ name, /** @type {unknown} */ value) => {
    const text = JSON.stringify(value);
    const other = known.get(name) !== text;
    known.set(name, text);
    return other;
  };
}
