// @ts-check
/**
 * Small charts as SVG, drawn at the size they are shown in, with axes and units. They are pictures: what they say stands
 * in their label too, and colours are told apart by the legend's words.
 *
 *   const chart = timeChart();  box.append(chart.element)
 *   chart.draw({ unit: "jobs/s", from, to, series: [{ name: "Done", tone: "c2", points: [[ms, value], …] }], stacked: true })
 *   rowChart({ unit: "jobs", rows: [{ name: "default", parts: [{ name: "Ready", tone: "c6", value: 12 }] }] })
 *   legend([["Done", "c2"], ["Failed", "c3"]])
 *
 * @typedef {{name: string, tone: string, points: [number, number][]}} Series
 * @typedef {{unit: string, from: number, to: number, spanMs: number, series: Series[], label: string}} TimeData
 * @typedef {{name: string, parts: {name: string, tone: string, value: number}[], note?: string}} Row
 */
import { fill, h, s } from "./dom.js";
import { clock, compact, number } from "./format.js";

const [LEFT, RIGHT, TOP, BOTTOM, HEIGHT] = [38, 6, 16, 22, 176];

/**
 * The marks of an axis: few round steps up to at least `most`, each with a text of its own; of counts, whole ones.
 * @param {number} most @param {boolean} [whole] @returns {{at: number, text: string}[]}
 */
export function axis(most, whole = false) {
  const rough = Math.max(most > 0 ? most / 4 : 1, whole ? 1 : 0);
  const size = 10 ** Math.floor(Math.log10(rough));
  const fits = (/** @type {number} */ n) => n >= rough && (!whole || n % 1 === 0);
  const step = [1, 2, 2.5, 5, 10].map((n) => n * size).find(fits) ?? size * 10;
  const digits = [0, 1, 2, 3, 4, 5, 6].find((n) => Number(step.toFixed(n)) === Number(step.toPrecision(6))) ?? 6;
  const text = (/** @type {number} */ at) => (at < 10_000 ? number(at, at ? digits : 0) : compact(at));
  const marks = Array.from({ length: Math.max(1, Math.ceil(most / step)) + 1 }, (_, n) => Number((n * step).toPrecision(6)));
  return marks.map((at) => ({ at, text: text(at) }));
}

/** Stacked bars over time; drawn anew when its box changes its width. */
export function timeChart() {
  const element = h("div", { class: "chart-box" });
  /** @type {TimeData | null} */
  let last = null;
  let width = 0;
  const redraw = () => last && width > 0 && fill(element, drawTime(last, width));
  const watch = new ResizeObserver((entries) => {
    const now = Math.floor(entries[0]?.contentRect.width ?? 0);
    if (now === width) return;
    width = now;
    redraw();
  });
  watch.observe(element);
  return {
    element,
    /** @param {TimeData} data */
    draw(data) {
      last = data;
      redraw();
    },
  };
}

/** @param {TimeData} data @param {number} width */
function drawTime({ unit, from, to, spanMs, series, label }, width) {
  const inner = width - LEFT - RIGHT;
  /** @type {Map<number, number>} */
  const totals = new Map();
  for (const { points } of series) for (const [ms, value] of points) totals.set(ms, (totals.get(ms) ?? 0) + value);
  const scale = axis(Math.max(...totals.values(), 0));
  const most = scale[scale.length - 1]?.at ?? 1;
  const x = (/** @type {number} */ ms) => LEFT + ((ms - from) / (to - from)) * inner;
  const y = (/** @type {number} */ value) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - TOP - BOTTOM);
  const made = s("svg", { class: "chart", width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label });
  for (const { at, text } of scale) made.append(s("line", { class: at ? "grid" : "axis", x1: LEFT, x2: width - RIGHT, y1: y(at), y2: y(at) }), s("text", { x: LEFT - 6, y: y(at) + 3.5, "text-anchor": "end" }, text));
  made.append(s("text", { x: 0, y: 8 }, unit));
  for (const ms of minutes(from, to, width < 420 ? 5 : 3)) made.append(s("line", { class: "axis", x1: x(ms), x2: x(ms), y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4 }), s("text", { x: x(ms), y: HEIGHT - 5, "text-anchor": "middle" }, clock(ms).slice(0, 5)));
  const bar = Math.max(1, (spanMs / (to - from)) * inner - (width > 500 ? 1.5 : 0.75));
  /** @type {Map<number, number>} */
  const below = new Map();
  for (const { tone, points, name } of series) {
    const group = s("g", { class: tone });
    for (const [ms, value] of points) {
      if (!(value > 0)) continue;
      const base = below.get(ms) ?? 0;
      below.set(ms, base + value);
      group.append(s("rect", { class: "shape", x: x(ms), y: y(base + value), width: bar, height: Math.max(0.75, y(base) - y(base + value)), rx: bar > 4 ? 1 : 0 }, s("title", {}, `${clock(ms)} · ${name} ${compact(value)} ${unit}`)));
    }
    made.append(group);
  }
  return made;
}

/** Whole minutes within a time. @param {number} from @param {number} to @param {number} every */
function minutes(from, to, every) {
  const step = every * 60_000;
  const ticks = [];
  for (let ms = Math.ceil(from / step) * step; ms <= to; ms += step) ticks.push(ms);
  return ticks;
}

/** Bars beside names, one row each, on one scale with its unit below. @param {{unit: string, rows: Row[], label: string}} data */
export function rowChart({ unit, rows, label }) {
  const element = h("div", { class: "chart-box" });
  let width = 0;
  const watch = new ResizeObserver((entries) => {
    const now = Math.floor(entries[0]?.contentRect.width ?? 0);
    if (now === width || now === 0) return;
    width = now;
    fill(element, drawRows(unit, rows, label, width));
  });
  watch.observe(element);
  return element;
}

/** @param {string} unit @param {Row[]} rows @param {string} label @param {number} width */
function drawRows(unit, rows, label, width) {
  const left = Math.min(150, Math.max(104, width * 0.28));
  const right = 52;
  const [rowHeight, foot] = [26, 30];
  const height = rows.length * rowHeight + foot;
  const total = (/** @type {Row} */ row) => row.parts.reduce((sum, part) => sum + part.value, 0);
  const scale = axis(Math.max(...rows.map(total), 0), true);
  const shown = width < 420 ? scale.filter((_, n) => n % 2 === 0) : scale;
  const most = scale[scale.length - 1]?.at ?? 1;
  const x = (/** @type {number} */ value) => left + (value / most) * (width - left - right);
  const made = s("svg", { class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const { at, text } of shown) made.append(s("line", { class: at ? "grid" : "axis", x1: x(at), x2: x(at), y1: 0, y2: height - foot + 4 }), s("text", { x: x(at), y: height - foot + 17, "text-anchor": "middle" }, text));
  made.append(s("text", { x: width, y: height - foot + 17, "text-anchor": "end" }, unit));
  rows.forEach((row, n) => {
    const top = n * rowHeight;
    const most = Math.floor((left - 8) / 7);
    made.append(s("text", { class: "name", x: left - 8, y: top + 17, "text-anchor": "end" }, row.name.length > most ? `${row.name.slice(0, most - 1)}…` : row.name, s("title", {}, row.name)));
    let sum = 0;
    for (const part of row.parts) {
      if (part.value <= 0) continue;
      made.append(s("g", { class: part.tone }, s("rect", { class: "shape", x: x(sum), y: top + 6, width: Math.max(1.5, x(sum + part.value) - x(sum) - 1), height: 14, rx: 1.5 }, s("title", {}, `${row.name} · ${part.name} ${part.value}`))));
      sum += part.value;
    }
    made.append(s("text", { class: "value", x: x(sum) + 6, y: top + 17 }, row.note ?? compact(sum)));
  });
  return made;
}

/** @param {[string, string][]} names Word and tone. */
export function legend(names) {
  return h("div", { class: "legend" }, names.map(([name, tone]) => h("span", { class: tone }, h("i", null), name)));
}
