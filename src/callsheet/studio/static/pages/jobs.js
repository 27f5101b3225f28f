// @ts-check
/**
 * All jobs: filters that stand in the address, rows that change where they stand, new ones behind a button, and many
 * canceled or retried at once. Open rows are followed over one event stream.
 */
import { CallsheetError, follow, get, poll, post } from "../api.js";
import { badge, bar, toneOf } from "../components/badge.js";
import { confirm, openDialog } from "../components/dialog.js";
import { card, field, pageHead, select } from "../components/layout.js";
import { moment } from "../components/moment.js";
import { describe, empty, skeleton, trouble } from "../components/states.js";
import { makeTable } from "../components/table.js";
import { toast } from "../components/toast.js";
import { button, fill, h, link } from "../dom.js";
import { percent, plural, shortId } from "../format.js";
import { isOpen, moved } from "../jobs_live.js";
import { setQuery } from "../router.js";
import { may } from "../session.js";

/** @typedef {import("../jobs_live.js").ListedJob} ListedJob */

const PAGE = 50;
const PAGES = 20; // that are asked for by themselves while a filter finds little; each looks at 20,000 jobs or more
const LOOK_MS = 3000;
const FLUSH_MS = 400;
const TYPING_MS = 150;
const MOST = 500; // rows that taking what is new lets grow; then the list begins anew
const FOLLOWED = 150;
const AT_ONCE = 6;
/** @type {[string, string][]} */
const STATUSES = [["", "Any"], ["queued", "Queued"], ["running", "Running"], ["done", "Done"], ["error", "Failed"], ["canceled", "Canceled"]];
/** @type {[string, string][]} */
const TIMES = [["", "Any time"], ["15m", "Last 15 minutes"], ["1h", "Last hour"], ["24h", "Last day"], ["7d", "Last week"]];
/** @type {Record<string, number>} */
const AGO_MS = { "15m": 900_000, "1h": 3_600_000, "24h": 86_400_000, "7d": 604_800_000 };
const FILTERS = ["text", "status", "task", "queue", "requester", "time"];

/** @param {import("../router.js").View} view */
export default async function jobs(view) {
  await new JobList(view).begin();
}

/** How far a job is, where there is something to tell. @param {ListedJob} job @param {string} [more] */
function progressOf(job, more = "") {
  if (job.status !== "running" && !(job.progress > 0)) return null;
  const words = job.status === "running" && job.step ? `${percent(job.progress)} · ${job.step}` : percent(job.progress);
  return h("div", { class: `progresscell ${more}` }, bar(job.progress, toneOf(job.state), `Progress of ${shortId(job.job_id)}`), h("span", { class: "small quiet clip" }, words));
}

class JobList {
  /** @type {Map<string, ListedJob>} */
  #known = new Map();
  /** @type {ListedJob[]} Those that came since the list was read. */
  #fresh = [];
  /** @type {Set<string>} */
  #ticked = new Set();
  /** @type {Map<string, ListedJob>} Changes that wait to be shown. */
  #changes = new Map();
  /** @type {string | null} */
  #next = null;
  #filter = /** @type {Record<string, string>} */ ({});
  #reading = new AbortController();
  #following = new AbortController();
  /** @type {Record<string, number>} A timer for each field. */
  #typing = {};
  #notBefore = 0;

  /** @param {import("../router.js").View} view */
  constructor(view) {
    this.view = view;
    this.writer = may(view.session, "jobs:write");
    for (const name of FILTERS) this.#filter[name] = view.query.get(name) ?? "";
    this.table = makeTable("Jobs", this.#columns(), (/** @type {ListedJob} */ job) => job.job_id);
    this.all = h("input", { type: "checkbox", class: "check", "aria-label": "Tick all shown", onchange: () => this.#tickAll() });
    this.more = button("Older jobs", { onclick: () => this.#older() });
    this.news = h("div", { class: "news", "aria-live": "polite" });
    this.bulk = h("div", { class: "bulk", hidden: true });
    this.list = h("div", { data: { list: "" } });
    this.foot = h("div", { class: "row pad" });
  }

  async begin() {
    const { view } = this;
    const first = this.table.element.querySelector("th");
    if (this.writer && first) first.append(this.all);
    view.main.append(
      pageHead("Jobs", "Newest first. The address keeps the filters: bookmark it, or send it to somebody."),
      card("", {}, this.#form()), this.bulk, this.news,
      h("section", { class: "card flush", "aria-label": "Jobs" }, this.list, this.foot));
    view.signal.addEventListener("abort", () => (this.#reading.abort(), this.#following.abort()));
    const timer = setInterval(() => this.#flush(), FLUSH_MS);
    view.signal.addEventListener("abort", () => clearInterval(timer));
    await this.#read();
    await poll(() => this.#look(), LOOK_MS, view.signal);
  }

  #columns() {
    const { session } = this.view;
    /** @type {import("../components/table.js").Column<ListedJob>[]} */
    const columns = [
      { name: "Status", cell: (job) => badge(job.state) },
      { name: "Job", cell: (job) => h("div", { class: "jobcell" }, link(`/studio/jobs/${job.job_id}`, { class: "open clip" }, job.task), h("span", { class: "mono small quiet clip", title: job.job_id }, shortId(job.job_id)), job.status === "done" ? null : progressOf(job, "phone")) },
      { name: "Progress", cell: (job) => progressOf(job) ?? h("span", { class: "quiet" }, "–"), class: "extra" },
      { name: "Queue", cell: (job) => job.queue, class: "extra clip" },
      { name: "Attempts", cell: (job) => `${job.attempts} of ${job.max_attempts}`, class: "extra num nowrap" },
      { name: "Created", cell: (job) => moment(job.created_ts), class: "nowrap" },
      { name: "Updated", cell: (job) => moment(job.updated_ts), class: "nowrap extra" },
    ];
    if (!session.teams) columns.splice(4, 0, { name: "Requester", cell: (job) => job.requester_id || h("span", { class: "quiet" }, "–"), class: "extra clip" });
    if (this.writer) columns.unshift({ name: "Tick", hidden: true, class: "tick", cell: (job) => h("input", { type: "checkbox", class: "check", checked: this.#ticked.has(job.job_id), "aria-label": `Tick ${job.task} ${shortId(job.job_id)}`, onchange: (/** @type {Event} */ event) => this.#tick(job.job_id, /** @type {HTMLInputElement} */ (event.target).checked) }) });
    return columns;
  }

  #form() {
    /** @param {string} name @param {string} placeholder @param {Record<string, any>} [more] */
    const text = (name, placeholder, more = {}) => h("input", { class: "input", type: "search", name, value: this.#filter[name], placeholder, maxlength: "200", autocomplete: "off", oninput: (/** @type {Event} */ event) => {
      clearTimeout(this.#typing[name]);
      this.#typing[name] = setTimeout(() => this.#set(name, /** @type {HTMLInputElement} */ (event.target).value.trim()), TYPING_MS);
    }, ...more });
    /** @param {string} name @param {[string, string][]} options */
    const choice = (name, options) => select(options, this.#filter[name] ?? "", { name, onchange: (/** @type {Event} */ event) => this.#set(name, /** @type {HTMLSelectElement} */ (event.target).value) });
    const form = h("form", { class: "filters", role: "search", "aria-label": "Filters", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
      field("Text", text("text", "Any words", { data: { search: "" } })), field("Status", choice("status", STATUSES)), field("Kind", text("task", "chat")),
      field("Queue", text("queue", "default")), this.view.session.teams ? null : field("Requester", text("requester", "A team")), field("Created", choice("time", TIMES)),
      button("Clear", { tone: "plain", onclick: () => (form.reset(), this.#clear(form)) }));
    return form;
  }

  /** @param {HTMLFormElement} form */
  #clear(form) {
    for (const one of form.elements) if (one instanceof HTMLInputElement || one instanceof HTMLSelectElement) one.value = "";
    for (const name of FILTERS) this.#filter[name] = "";
    setQuery(Object.fromEntries(FILTERS.map((name) => [name, ""])));
    this.#read();
  }

  /** @param {string} name @param {string} value */
  #set(name, value) {
    if (this.#filter[name] === value || this.view.signal.aborted) return;
    this.#filter[name] = value;
    setQuery({ [name]: value });
    this.#read();
  }

  #query() {
    const { time = "", ...rest } = this.#filter;
    const ago = AGO_MS[time];
    return { ...rest, ...(ago && { created_from: Date.now() - ago }), brief: true, limit: PAGE };
  }

  /** The first page by the present filters. */
  async #read() {
    this.#reading.abort();
    const reading = (this.#reading = new AbortController());
    this.#ticked.clear();
    this.#showBulk();
    this.list.setAttribute("aria-busy", "true");
    if (!this.#known.size) fill(this.list, h("div", { class: "pad" }, skeleton(6)));
    try {
      const told = await get("/v1/jobs", { query: this.#query(), signal: reading.signal });
      this.#show(told.jobs, told.next);
      for (let pages = 0; this.#next && this.#known.size < PAGE && pages < PAGES; pages += 1) await this.#older();
    } catch (error) {
      if (!reading.signal.aborted) fill(this.list, trouble(error, () => this.#read()));
      fill(this.foot);
    }
    if (reading === this.#reading) this.list.setAttribute("aria-busy", "false");
  }

  /** @param {ListedJob[]} found @param {string | null} next */
  #show(found, next) {
    this.#known = new Map(found.map((job) => [job.job_id, job]));
    this.#fresh = [];
    this.#changes.clear();
    this.#next = next;
    fill(this.news);
    this.table.rows(found);
    this.#showList();
    this.#showFoot();
    this.#followOpen();
    this.view.announce(`${plural(found.length, "job")} shown`);
    this.view.main.dataset.shown = String(found.length);
  }

  #showList() {
    if (this.#known.size) {
      if (!this.table.element.isConnected) fill(this.list, this.table.element);
    } else if (this.#next) fill(this.list, empty("Nothing yet", "Looking at older jobs …"));
    else if (FILTERS.some((name) => this.#filter[name])) fill(this.list, empty("No job fits these filters", "Take one of them away, or look at another time."));
    else fill(this.list, empty("No jobs yet", ["Send one: ", h("code", null, "curl /v1/jobs -d '{\"task\": \"chat\", …}'"), ", or compose a video."]));
  }

  #showFoot() {
    fill(this.foot, h("span", { class: "small quiet" }, `${plural(this.#known.size, "job")} shown`), this.#next ? this.more : null);
    this.foot.hidden = !this.#known.size && !this.#next;
  }

  async #older() {
    this.more.disabled = true;
    try {
      const told = await get("/v1/jobs", { query: { ...this.#query(), cursor: this.#next }, signal: this.#reading.signal });
      const added = told.jobs.filter((/** @type {ListedJob} */ job) => !this.#known.has(job.job_id));
      for (const job of added) this.#known.set(job.job_id, job);
      this.table.append(added);
      this.#next = told.next;
      this.#showList();
      if (added.length) this.#followOpen();
    } finally {
      this.more.disabled = false;
      this.#showFoot();
    }
  }

  /** What is new since; rows that are shown change, others wait behind a button. */
  async #look() {
    const begun = Date.now();
    if (begun < this.#notBefore) return;
    const told = await get("/v1/jobs", { query: this.#query(), signal: this.#reading.signal }).catch((error) => {
      if (error instanceof DOMException) return null; // other filters were chosen meanwhile
      throw error;
    });
    if (!told || this.#reading.signal.aborted) return;
    this.#notBefore = Date.now() + 10 * (Date.now() - begun); // a search that costs the store much is not repeated at once
    if (!this.#known.size && told.jobs.length) return this.#show(told.jobs, told.next);
    for (const job of told.jobs) if (this.#known.has(job.job_id)) this.#changed(job);
    this.#fresh = told.jobs.filter((/** @type {ListedJob} */ job) => !this.#known.has(job.job_id));
    const count = this.#fresh.length;
    if (count) fill(this.news, button(`${plural(count, "new job")}${count === PAGE ? " or more" : ""}`, { icon: "retry", tone: "first", onclick: () => this.#take() }));
    else fill(this.news);
  }

  /** Put what is new on top, or read anew when there is a gap or when the list has become long. */
  #take() {
    if (this.#fresh.length >= PAGE || this.#known.size + this.#fresh.length > MOST) this.#read();
    else {
      this.#known = new Map([...this.#fresh.map((job) => /** @type {[string, ListedJob]} */ ([job.job_id, job])), ...this.#known]);
      this.table.prepend(this.#fresh);
      this.#fresh = [];
      fill(this.news);
      this.#showFoot();
      this.#followOpen();
    }
    scrollTo({ top: 0 });
  }

  /** @param {ListedJob} job */
  #changed(job) {
    const before = this.#known.get(job.job_id);
    if (!before || before.updated_ts > job.updated_ts) return; // what was read before it was heard
    const same = before.state === job.state && before.progress === job.progress && before.step === job.step && before.attempts === job.attempts;
    this.#known.set(job.job_id, job);
    if (!same) this.#changes.set(job.job_id, job);
  }

  /** Changes are shown together, however many events there are. */
  #flush() {
    for (const job of this.#changes.values()) this.table.change(job);
    if (this.#changes.size) this.#showBulk();
    this.#changes.clear();
  }

  /** Follow the rows that are not over. */
  #followOpen() {
    this.#following.abort();
    const following = (this.#following = new AbortController());
    const ids = [...this.#known.values()].filter(isOpen).slice(0, FOLLOWED).map((job) => job.job_id);
    if (!ids.length) return;
    follow(ids, (event) => this.#heard(event), following.signal).catch((error) => {
      if (!following.signal.aborted && !(error instanceof CallsheetError)) throw error; // the list is read each few seconds anyhow
    });
  }

  /** @param {import("../api.js").JobEvent} event */
  #heard(event) {
    const before = this.#known.get(event.job_id);
    if (!before) return;
    const { job, ended } = moved(before, event);
    this.#changed(job);
    if (ended) get(`/v1/jobs/${job.job_id}`, { signal: this.view.signal }).then((read) => this.#changed({ ...read, payload: null, result: null }), () => undefined);
  }

  /** @param {string} id @param {boolean} ticked */
  #tick(id, ticked) {
    if (ticked) this.#ticked.add(id);
    else this.#ticked.delete(id);
    this.#showBulk();
  }

  #tickAll() {
    const ticked = this.all.checked;
    this.#ticked = new Set(ticked ? this.#known.keys() : []);
    for (const box of this.table.body.querySelectorAll(".tick input")) /** @type {HTMLInputElement} */ (box).checked = ticked;
    this.#showBulk();
  }

  #showBulk() {
    const chosen = [...this.#ticked].map((id) => this.#known.get(id)).filter((job) => job !== undefined);
    const [open, bad] = [chosen.filter(isOpen), chosen.filter((job) => job.status === "error")];
    this.bulk.hidden = !chosen.length;
    this.all.checked = chosen.length > 0 && chosen.length === this.#known.size;
    this.all.indeterminate = chosen.length > 0 && chosen.length < this.#known.size;
    fill(this.bulk, h("strong", null, `${plural(chosen.length, "job")} ticked`),
      button(`Cancel ${open.length}`, { icon: "stop", tone: "danger", disabled: !open.length, data: { act: "cancel" }, onclick: () => this.#many("Cancel", open, (job) => post(`/v1/jobs/${job.job_id}/cancel`, {})) }),
      button(`Retry ${bad.length}`, { icon: "retry", disabled: !bad.length, data: { act: "retry" }, onclick: () => this.#many("Retry", bad, (job) => post(`/v1/dead-letters/${job.job_id}/replay`)) }),
      button("Untick", { tone: "plain", onclick: () => this.#untick() }));
  }

  #untick() {
    this.#ticked.clear();
    for (const box of this.table.body.querySelectorAll(".tick input")) /** @type {HTMLInputElement} */ (box).checked = false;
    this.#showBulk();
  }

  /**
   * The same for many jobs, some at a time; what was refused is told one by one.
   * @param {string} verb @param {ListedJob[]} chosen @param {(job: ListedJob) => Promise<unknown>} act
   */
  async #many(verb, chosen, act) {
    const text = verb === "Cancel" ? "Those that wait end at once; those that run are told to stop." : "They get fresh attempts. Where a contract has no way back, a copy runs.";
    if (!(await confirm(`${verb} ${plural(chosen.length, "job")}?`, text, `${verb} ${chosen.length}`, verb === "Cancel" ? "danger" : "first"))) return;
    /** @type {[ListedJob, unknown][]} */
    const refused = [];
    const line = [...chosen];
    await Promise.all(Array.from({ length: AT_ONCE }, async () => {
      for (let job = line.pop(); job; job = line.pop()) await act(job).catch((error) => refused.push([/** @type {ListedJob} */ (job), error]));
    }));
    this.#untick();
    const done = chosen.length - refused.length;
    const summary = `${verb === "Cancel" ? "Canceled" : "Retried"} ${done} of ${plural(chosen.length, "job")}`;
    this.view.announce(summary);
    if (!refused.length) toast(summary, "good");
    else openDialog(summary, [h("p", null, `${plural(refused.length, "job")} refused:`), h("ul", { class: "stack refused" }, refused.slice(0, 50).map(([job, error]) => h("li", null, link(`/studio/jobs/${job.job_id}`, { class: "mono" }, shortId(job.job_id)), " ", describe(error).text)))]);
    await this.#look();
  }
}
