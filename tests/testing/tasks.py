"""An app for tests of the harness, and a log of its tasks' actions."""

from __future__ import annotations

import asyncio

from callsheet import Callsheet, Context, Snooze

app = Callsheet("sqlite:///never-opened.db")
done: list[str] = []


@app.task
async def double(number: int) -> int:
    done.append(f"double {number}")
    return number * 2


@app.task(retry=["1m", "5m"])
async def stubborn() -> None:
    done.append("stubborn")
    raise RuntimeError("no luck")


@app.task
async def film(ctx: Context, title: str) -> str:
    async with ctx.step("voice") as step:
        if not step.done:
            done.append("voice")
            step.result = f"{title}.wav"
    await ctx.stage("drawing")
    done.append("pictures")
    await ctx.progress(40)
    done.append("cut")
    await ctx.progress(80)
    ctx.enqueue(double, number=7)
    done.append("end")
    return str(step.result)


@app.task
def film_in_a_thread(ctx: Context) -> str:
    with ctx.step("voice") as step:
        if not step.done:
            done.append("voice")
            step.result = "wav"
    done.append("after")
    return str(step.result)


@app.task(max_attempts=20)
async def shy(ctx: Context) -> None:
    done.append("shy")
    if len(done) < 3:
        raise Snooze("1h")
    await ctx.stage("ready")


@app.task
async def endless(ctx: Context) -> None:
    ctx.enqueue(endless)


@app.task
async def patient() -> None:
    done.append("waiting")
    await asyncio.sleep(3600)


@app.task
def asks_for_more(number: int) -> None:
    """A plain function that enqueues from its thread, without a context."""
    job = app.sync(double.enqueue(number=number))
    done.append(app.sync(job.status()))


@app.task(executor="process")
def film_in_a_process(ctx: Context, title: str) -> str:
    with ctx.step("voice") as step:
        if not step.done:
            step.result = f"{title} by {ctx.attempt}"
    return f"{step.result}, ended by {ctx.attempt}"
