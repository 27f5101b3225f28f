// What the Node drivers share: the same scenarios as common.py and faults.py, over the same verbs of a peer.
// PEER_MODULES names the node_modules folder of the peers' environment.

import { spawn } from "node:child_process";
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";

export const load = createRequire(join(process.env.PEER_MODULES, "any.js"));
export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
export const BATCH = 1000;
const NAP_MS = 1;
const SETTLE_MS = 1000;

function optionsOf() {
  const text = (value) => ({ type: "string", default: value });
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      url: text(), count: text(), rounds: text("1"), singles: text("300"), rate: text("300"), seconds: text("10"),
      patience: text("90"), sleep: text("4"), journal: text(), name: text("W"),
    },
  });
  const options = { scenario: positionals[0], url: values.url, journal: values.journal, name: values.name };
  for (const name of ["rounds", "singles", "rate", "seconds", "patience", "sleep"]) options[name] = Number(values[name]);
  options.count = Number(values.count ?? (options.scenario === "latency" ? 200 : 2000));
  return options;
}

// A driver extends this with open, bulk, one, start, stop, left, work and state, as Peer of common.py says.
export class Peer {
  constructor(options) {
    this.options = options;
    this.url = options.url;
    this.waits = [];
    this.hits = 0;
    this.pausing = options.scenario === "steady" || options.journal;
  }

  hit(stamp) {
    this.hits += 1;
    if (stamp) this.waits.push(performance.timeOrigin + performance.now() - stamp);
  }

  async pause() {
    this.note("start");
    await sleep(this.options.journal ? this.options.sleep * 1000 : NAP_MS);
    this.note("end");
  }

  note(word) {
    const { journal, name } = this.options;
    if (journal) appendFileSync(journal, `${word} ${name} ${(Date.now() / 1000).toFixed(4)}\n`);
  }

  async until(count, seconds = 600) {
    const deadline = performance.now() + seconds * 1000;
    while (this.hits < count) {
      if (performance.now() > deadline) return false;
      await sleep(2);
    }
    return true;
  }

  async left() {
    return 0;
  }

  async state() {
    return null;
  }
}

const now = () => performance.timeOrigin + performance.now();
const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

async function drain(peer, options) {
  await peer.open();
  const figures = { count: options.count };
  if (options.singles) {
    const began = performance.now();
    for (let i = 0; i < options.singles; i++) await peer.one(0);
    figures.single_per_s = Math.round((options.singles / (performance.now() - began)) * 1000);
  }
  const bulks = [], rates = [], cpus = [];
  for (let round = 0; round < options.rounds; round++) {
    let began = performance.now();
    await peer.bulk(options.count);
    bulks.push((options.count / (performance.now() - began)) * 1000);
    const count = options.count + (round ? 0 : options.singles);
    peer.hits = 0;
    const cpu = process.cpuUsage();
    began = performance.now();
    await peer.start();
    if (!(await peer.until(count))) throw new Error(`only ${peer.hits} of ${count} jobs ran within ten minutes`);
    while (await peer.left()) await sleep(2);
    rates.push(Number(((count / (performance.now() - began)) * 1000).toFixed(1)));
    const { user, system } = process.cpuUsage(cpu);
    cpus.push((user + system) / count);
    await peer.stop();
  }
  figures.bulk_per_s = Math.round(median(bulks));
  figures.drain_per_s = rates;
  figures.cpu_us_per_job = Math.round(median(cpus));
  figures.rss_mb = Math.round(Number(/VmHWM:\s+(\d+)/.exec(readFileSync("/proc/self/status", "utf8"))[1]) / 1024);
  return figures;
}

async function warmUp(peer) {
  for (let i = 0; i < 20; i++) await peer.one(0);
  if (!(await peer.until(20, 60))) throw new Error("the first jobs did not run");
  await sleep(1000);
  peer.hits = 0;
}

async function waited(peer, count) {
  await peer.until(count, 60);
  const waits = peer.waits.sort((a, b) => a - b);
  const at = (share) => Number(waits[Math.min(waits.length - 1, Math.floor(waits.length * share))].toFixed(2));
  return { count, ran: waits.length, p50_ms: at(0.5), p99_ms: at(0.99) };
}

async function latency(peer, options) {
  await peer.open();
  await peer.start();
  await warmUp(peer);
  for (let i = 0; i < options.count; i++) {
    await peer.one(now());
    await sleep(10);
  }
  return waited(peer, options.count);
}

async function steady(peer, options) {
  await peer.open();
  await peer.start();
  await warmUp(peer);
  const count = Math.floor(options.rate * options.seconds);
  const began = performance.now();
  const calls = [];
  for (let i = 0; i < count; i++) {
    const ahead = began + (i * 1000) / options.rate - performance.now();
    if (ahead > 0) await sleep(ahead);
    calls.push(peer.one(now()));
  }
  await Promise.all(calls);
  const offered = (count / (performance.now() - began)) * 1000;
  return { offered_per_s: Math.round(offered), ...(await waited(peer, count)) };
}

// Two workers as process groups of their own, and the journal that their handlers write.
class Scene {
  constructor(url, seconds) {
    this.url = url;
    this.seconds = seconds;
    this.folder = mkdtempSync(join(tmpdir(), "callsheet-peer-"));
    this.journal = join(this.folder, "journal");
    writeFileSync(this.journal, "");
    this.workers = {};
  }

  async hire(name) {
    const given = ["--url", this.url, "--journal", this.journal, "--name", name, "--sleep", String(this.seconds)];
    const stdio = ["ignore", "ignore", process.env.PEER_DEBUG ? "inherit" : "ignore"];
    this.workers[name] = spawn(process.execPath, [process.argv[1], "worker", ...given], { detached: true, stdio });
    if ((await this.noted("up", name, 30)) === null) return false;
    await sleep(1000);
    return true;
  }

  send(name, signal) {
    process.kill(-this.workers[name].pid, signal);
    return Date.now() / 1000;
  }

  async noted(word, name, seconds) {
    const deadline = performance.now() + seconds * 1000;
    while (performance.now() < deadline) {
      for (const line of readFileSync(this.journal, "utf8").split("\n")) {
        const [said, who, when] = line.split(" ");
        if (said === word && who === name) return Number(when);
      }
      await sleep(20);
    }
    return null;
  }

  async w1RunsIt(peer) {
    if (!(await this.hire("W1"))) return false;
    await peer.one(0);
    return (await this.noted("start", "W1", 30)) !== null;
  }

  close() {
    for (const worker of Object.values(this.workers)) {
      try {
        process.kill(-worker.pid, "SIGKILL");
      } catch {} // it has ended
    }
    rmSync(this.folder, { recursive: true });
  }
}

async function kill(peer, options) {
  await peer.open();
  const scene = new Scene(peer.url, 600);
  try {
    if (!(await scene.w1RunsIt(peer))) return { not_run: "W1 did not start the job" };
    if (!(await scene.hire("W2"))) return { not_run: "W2 did not come up" };
    const killed = scene.send("W1", "SIGKILL");
    const again = await scene.noted("start", "W2", options.patience);
    return { rerun_s: again === null ? null : Number((again - killed).toFixed(2)), patience_s: options.patience };
  } finally {
    scene.close();
  }
}

async function woken(peer, options, afterTheEnd) {
  const seconds = afterTheEnd ? options.sleep : 3 * options.sleep;
  const scene = new Scene(peer.url, seconds);
  try {
    if (!(await scene.w1RunsIt(peer))) return ["n/a", "W1 did not start the job"];
    scene.send("W1", "SIGSTOP");
    await scene.hire("W2");
    const taken = await scene.noted("start", "W2", options.patience);
    if (taken === null) return ["not recovered", `W2 did not get the job within ${options.patience} s`];
    if (afterTheEnd && (await scene.noted("end", "W2", seconds + 30)) === null) return ["n/a", "W2 did not end the job"];
    await sleep(SETTLE_MS);
    const before = await peer.state();
    scene.send("W1", "SIGCONT");
    const rest = afterTheEnd ? seconds : taken + seconds - Date.now() / 1000 - (3 * SETTLE_MS) / 1000;
    const ended = await scene.noted("end", "W1", rest);
    await sleep(SETTLE_MS);
    const after = await peer.state();
    if (!afterTheEnd && (await scene.noted("end", "W2", 0.05)) !== null) return ["n/a", "W2 had ended already"];
    const said = ended ? "W1's handler ran to its end" : "W1's handler did not come to its end";
    return [before === after ? "no" : "yes", `${said}; ${before} → ${after}`];
  } finally {
    scene.close();
  }
}

async function zombie(peer, options) {
  await peer.open();
  const [changed, why] = await woken(peer, options, true);
  if (changed === "not recovered" || changed === "n/a") {
    return { changed, why, changed_running: changed, why_running: why };
  }
  const [changedRunning, whyRunning] = await woken(peer, options, false);
  return { changed, why, changed_running: changedRunning, why_running: whyRunning };
}

export async function main(Made, packages) {
  const options = optionsOf();
  const peer = new Made(options);
  if (options.scenario === "worker") {
    await peer.open();
    peer.note("up");
    await peer.work();
    return;
  }
  const scenarios = { drain, latency, steady, kill, zombie };
  const figures = await scenarios[options.scenario](peer, options);
  const versions = { node: process.versions.node };
  for (const name of packages) versions[name] = load(`${name}/package.json`).version;
  console.log(JSON.stringify({ scenario: options.scenario, versions, ...figures }));
  process.exit(0);
}
