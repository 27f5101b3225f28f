// @ts-check
/** Numbers, times and sizes as people read them. Times are milliseconds. */

const NUMBER = new Intl.NumberFormat("en");
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZoneName: "short" });
const FINE = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 });
const DATE = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium" });
const WHOLE = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });

/** 12,345, or with so many digits behind the point 0.50 @param {number} value @param {number} [digits] */
export const number = (value, digits) => (digits === undefined ? NUMBER : new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })).format(value);

/** 12.3K @param {number} value */
export const compact = (value) => (value < 10_000 ? number(Math.round(value * 10) / 10) : COMPACT.format(value));

/** 14:05:09 @param {number} ms */
export const clock = (ms) => CLOCK.format(ms);

/** 3 May, 14:05 UTC @param {number} ms */
export const day = (ms) => DAY.format(ms);

/** The zone that times are shown in: UTC, CET, GMT+2 */
export const zone = () => DAY.formatToParts(0).find(({ type }) => type === "timeZoneName")?.value ?? "local time";

/** Both ends of a time, as finely as it takes to tell them apart. @param {number} from @param {number} to @returns {[string, string]} */
export function clockRange(from, to) {
  if (DATE.format(from) !== DATE.format(to)) return [`${DATE.format(from)}, ${clock(from)}`, `${DATE.format(to)}, ${clock(to)}`];
  return clock(from) === clock(to) ? [FINE.format(from), FINE.format(to)] : [clock(from), clock(to)];
}

/** The whole moment, for titles. @param {number} ms */
export const moment = (ms) => WHOLE.format(ms);

/** 850 ms, 12.3 s, 4 min 12 s, 3 h 5 min, 2 d 4 h @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return "–";
  const s = Math.max(0, ms) / 1000;
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 59.95) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 3600) return two(s / 60, 60, "min", "s");
  if (s < 86_400) return two(s / 3600, 60, "h", "min");
  return two(s / 86_400, 24, "d", "h");
}

/** @param {number} value @param {number} parts @param {string} large @param {string} small */
function two(value, parts, large, small) {
  const whole = Math.floor(value);
  const rest = Math.floor((value - whole) * parts);
  return rest ? `${whole} ${large} ${rest} ${small}` : `${whole} ${large}`;
}

/** 5 s ago, in 3 min, 12 May, 10:00 UTC @param {number} ms @param {number} [now] */
export function ago(ms, now = Date.now()) {
  const away = now - ms;
  if (Math.abs(away) < 1500) return "now";
  if (Math.abs(away) > 36 * 3_600_000) return day(ms);
  const text = rough(Math.abs(away));
  return away > 0 ? `${text} ago` : `in ${text}`;
}

/** In one unit, for where there is little room: 12 s, 4 min, 3 h @param {number} ms */
export function rough(ms) {
  const s = ms / 1000;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  return `${Math.floor(s / 3600)} h`;
}

/** 4.2 MB @param {number | null | undefined} count */
export function bytes(count) {
  if (count === null || count === undefined) return "–";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let [value, unit] = [count, 0];
  while (value >= 1000 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** 42 % @param {number} value */
export const percent = (value) => `${Math.floor(value)} %`;

/** Seconds into a video: 1:02:03.4 @param {number} s */
export function timecode(s) {
  const [hours, minutes, rest] = [Math.floor(s / 3600), Math.floor(s / 60) % 60, s % 60];
  const seconds = rest.toFixed(1).padStart(4, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${seconds}` : `${minutes}:${seconds}`;
}

/** 1 job, 3 jobs @param {number} count @param {string} one @param {string} [many] */
export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

/** Both ends of an id, for tables (its beginning is its time); the whole stands in a title. @param {string} id */
export const shortId = (id) => (id.length > 16 ? `${id.slice(0, 8)}…${id.slice(-6)}` : id);

/** JSON for reading. @param {unknown} value */
export const json = (value) => JSON.stringify(value, null, 2) ?? "";
