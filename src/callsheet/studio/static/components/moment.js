// @ts-check
/**
 * `<cs-moment>`: a time as "5 s ago", kept right by one clock for all of them; the whole time is its title.
 *
 *   moment(job.created_ts)                     5 s ago
 *   moment(lease.expires_at, "duration")       counts on from that time: 1 min 12 s
 */
import { ago, duration, moment as whole } from "../format.js";

/** @type {Set<CsMoment>} */
const shown = new Set();

export class CsMoment extends HTMLElement {
  static observedAttributes = ["ms"];

  connectedCallback() {
    shown.add(this);
    this.tell();
  }

  disconnectedCallback() {
    shown.delete(this);
  }

  attributeChangedCallback() {
    this.tell();
  }

  tell() {
    const ms = Number(this.getAttribute("ms"));
    const text = this.getAttribute("as") === "duration" ? duration(Date.now() - ms) : ago(ms);
    if (this.textContent !== text) this.textContent = text;
    this.title = whole(ms);
  }
}

customElements.define("cs-moment", CsMoment);
setInterval(() => document.hidden || shown.forEach((one) => one.tell()), 1000);

/** @param {number | null | undefined} ms @param {"ago" | "duration"} [as] @returns {Node} */
export function moment(ms, as = "ago") {
  if (ms === null || ms === undefined) return document.createTextNode("–");
  const made = document.createElement("cs-moment");
  made.setAttribute("as", as);
  made.setAttribute("ms", String(ms));
  return made;
}
