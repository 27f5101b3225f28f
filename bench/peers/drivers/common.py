# mypy: ignore-errors
# ruff: noqa: ANN001, ANN202
"""What the Python drivers share: the scenarios, written with the verbs of a `Peer`. Standard library only.

`python <driver>.py drain|latency|steady|kill|zombie --url URL --count N` prints one line of JSON. The role `worker` is
for drivers that start themselves as a second process.
"""

import argparse
import asyncio
import json
import os
import statistics
import time
from importlib.metadata import version
from pathlib import Path

BATCH = 1000
GAP_S = 0.01
NAP_S = 0.001
POLL_S = 0.002
LINE = 31  # bytes of a line in a tally


class Peer:
    """One job queue. Its single task calls `hit` (after `pause` when `pausing` is true) and returns `result()`."""

    packages = ()
    waits_s = 60.0
    external = False  # the worker is a process of its own, and counts in a file

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.url = options.url
        self.nap = NAP_S if options.scenario == "steady" or options.nap else 0.0
        self.pausing = bool(self.nap or options.journal)
        self._waits = []
        self._file = os.open(options.tally, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if options.tally else None

    # what a driver fills in

    async def open(self) -> None:
        """Connect, and create the schema when there is none."""

    async def bulk(self, count: int) -> None:
        """Enqueue no-op jobs, the fastest way."""

    async def one(self, stamp: float) -> None:
        """Enqueue one job."""

    async def start(self) -> None:
        """Start a worker that runs beside us."""

    async def stop(self) -> None:
        """Stop the workers."""

    def close(self) -> None:
        """Remove what the driver itself put on the disk."""

    async def left(self) -> int:
        """Return the number of jobs that are not completed in the store."""
        return 0

    async def work(self) -> None:
        """Be the worker of another process, with the shortest sensible recovery, until killed."""

    async def state(self) -> object:
        """Return the store's state of the zombie scenario's job, as any comparable value."""
        return None

    # for handlers

    def hit(self, stamp: float = 0.0) -> None:
        now = time.time()
        if self._file is not None:
            os.write(self._file, f"{now:017.6f} {now - stamp if stamp else 0:012.6f}\n".encode())
        else:
            self._waits.append(now - stamp if stamp else 0.0)

    async def pause(self) -> None:
        self.note("start")
        await asyncio.sleep(self.nap or self.options.sleep)
        self.note("end")

    def pause_blocking(self) -> None:
        self.note("start")
        time.sleep(self.nap or self.options.sleep)
        self.note("end")

    def result(self) -> int | None:
        """Return the name of the worker that ran the job, where a peer reports it."""
        return os.getpid() if self.options.journal else None

    def note(self, word: str) -> None:
        """Write a line that the supervisor of a fault scenario reads."""
        if self.options.journal:
            with Path(self.options.journal).open("a") as file:
                file.write(f"{word} {self.options.name} {time.time():.4f}\n")

    # for scenarios

    @property
    def hits(self) -> int:
        return len(self._waits)

    def waits(self) -> list[float]:
        return [wait for wait in self._waits if wait > 0]

    def forget(self) -> None:
        self._waits.clear()

    def first_hit(self) -> float | None:
        return None

    def cpu(self) -> float:
        """Seconds of processor that the worker has used so far."""
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system

    def rss_mb(self) -> float:
        return peak_rss_mb()

    async def until(self, count: int, seconds: float = 600.0) -> bool:
        """Wait until `count` jobs have run; return False after the time limit."""
        deadline = time.monotonic() + seconds
        while self.hits < count:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(POLL_S)
        return True


async def drain(peer: Peer, options: argparse.Namespace) -> dict:
    await peer.open()
    figures = {"count": options.count}
    if options.singles:
        began = time.perf_counter()
        for _ in range(options.singles):
            await peer.one(0.0)
        figures["single_per_s"] = round(options.singles / (time.perf_counter() - began))
    rounds = []
    for number in range(options.rounds):
        began = time.perf_counter()
        await peer.bulk(options.count)
        bulk = options.count / (time.perf_counter() - began)
        expected_jobs = options.count + (0 if number else options.singles)
        rounds.append((bulk, *await _drain_times(peer, expected_jobs)))
    figures["bulk_per_s"] = round(statistics.median(bulk for bulk, _, _ in rounds))
    figures["drain_per_s"] = [round(rate, 1) for _, rate, _ in rounds]
    figures["cpu_us_per_job"] = round(statistics.median(cpu for _, _, cpu in rounds) * 1e6)
    figures["rss_mb"] = round(peer.rss_mb())
    return figures


async def _drain_times(peer: Peer, count: int) -> tuple[float, float]:
    """Drain once: jobs in a second and seconds of the worker's processor for each."""
    peer.forget()
    cpu, began = peer.cpu(), time.time()
    await peer.start()
    if peer.external:  # its start, imports included, is not counted
        await peer.until(1)
        cpu = peer.cpu()
    seen = peer.hits
    if not await peer.until(count):
        raise SystemExit(f"only {peer.hits} of {count} jobs ran within ten minutes")
    while await peer.left():  # noqa: ASYNC110 - the store is asked
        await asyncio.sleep(POLL_S)
    took = time.time() - (peer.first_hit() or began)
    busy = (peer.cpu() - cpu) / (count - seen)
    await peer.stop()
    return count / took, busy


async def latency(peer: Peer, options: argparse.Namespace) -> dict:
    await peer.open()
    await peer.start()
    await _warm_up(peer)
    for _ in range(options.count):
        await peer.one(time.time())
        await asyncio.sleep(GAP_S)
    return await _wait_figures(peer, options.count)


async def steady(peer: Peer, options: argparse.Namespace) -> dict:
    await peer.open()
    await peer.start()
    await _warm_up(peer)
    count = int(options.rate * options.seconds)
    began = time.perf_counter()
    calls = set()
    for number in range(count):
        ahead = began + number / options.rate - time.perf_counter()
        await asyncio.sleep(max(0.0, ahead))
        call = asyncio.ensure_future(peer.one(time.time()))
        calls.add(call)
        call.add_done_callback(calls.discard)
    await asyncio.gather(*calls)
    offered_per_s = count / (time.perf_counter() - began)
    return {"offered_per_s": round(offered_per_s), **await _wait_figures(peer, count)}


async def _warm_up(peer: Peer, count: int = 20) -> None:
    for _ in range(count):
        await peer.one(0.0)
    if not await peer.until(count, peer.waits_s):
        raise SystemExit(f"only {peer.hits} of {count} first jobs ran")
    await asyncio.sleep(1.0)
    peer.forget()


async def _wait_figures(peer: Peer, count: int) -> dict:
    await peer.until(count, peer.waits_s)
    waits = sorted(wait * 1000 for wait in peer.waits())
    await peer.stop()
    if not waits:
        raise SystemExit("no job ran")
    return {
        "count": count,
        "ran": len(waits),
        "p50_ms": round(waits[len(waits) // 2], 2),
        "p99_ms": round(waits[min(len(waits) - 1, int(len(waits) * 0.99))], 2),
    }


def peak_rss_mb(pid: int | str = "self") -> float:
    """Return the peak memory of this process; getrusage may return the peak of the process that forked it."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    try:
        children = [
            child for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
        ]
    except OSError:
        return []
    return [pid, *(below for child in children for below in family(int(child)))]


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", choices=("drain", "latency", "steady", "kill", "zombie", "worker"))
    parser.add_argument("--url", required=True)
    parser.add_argument("--count", type=int, help="jobs: 2000 to drain, 200 for latency")
    parser.add_argument("--rounds", type=int, default=1, help="fill and drain so often, in one database")
    parser.add_argument("--singles", type=int, default=300, help="jobs enqueued one by one before a drain")
    parser.add_argument("--rate", type=float, default=300.0, help="steady: jobs in a second")
    parser.add_argument("--seconds", type=float, default=10.0, help="steady: for so long")
    parser.add_argument("--patience", type=float, default=90.0, help="kill, zombie: wait so long for the second run")
    parser.add_argument("--sleep", type=float, default=4.0, help="kill, zombie: how long the job takes")
    parser.add_argument("--journal", help="worker: where its handler notes starts and ends")
    parser.add_argument("--name", default="W", help="worker: its name in the journal")
    parser.add_argument("--tally", help="worker: the file in which its handler counts")
    parser.add_argument("--nap", action="store_true", help="worker: its handler sleeps a millisecond")
    options = parser.parse_args(arguments)
    options.count = options.count or (200 if options.scenario == "latency" else 2000)
    return options


def main(make: type[Peer], scenarios: dict | None = None) -> None:
    """Run the scenario that the command line names, and end the process whatever threads the peer left behind."""
    import faults  # noqa: PLC0415 - it needs this module

    options = options_of()
    ours = os.dup(1)  # what the peer prints goes to standard error
    os.dup2(2, 1)
    common_scenarios = {
        "drain": drain,
        "latency": latency,
        "steady": steady,
        "kill": faults.kill,
        "zombie": faults.zombie,
    }
    peer = make(options)
    if options.scenario == "worker":
        _run(faults.work(peer))
        return
    figures = _run({**common_scenarios, **(scenarios or {})}[options.scenario](peer, options))
    versions = {name: version(name) for name in make.packages}
    line = json.dumps({"scenario": options.scenario, "versions": versions, **figures})
    os.write(ours, f"{line}\n".encode())
    peer.close()
    os._exit(0)


def _run(work):
    try:
        import uvloop  # noqa: PLC0415 - where the peer's environment has it
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)
