from __future__ import annotations

import asyncio
from contextvars import copy_context

import pytest

from tests.simulation.loop import NODE, Node, SimLoop, Stuck


def a_run(seed: int, *, shuffles: bool = True) -> tuple[list[str], str]:
    loop, order = SimLoop(seed, shuffles=shuffles), list[str]()

    async def walk(name: str) -> None:
        for step in range(3):
            order.append(f"{name}{step}")
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(walk(name) for name in "abc"))
        assert {task.get_name() for task in asyncio.all_tasks()}

    loop.run(main())
    return order, loop.history()


def test_the_same_seed_gives_the_same_order() -> None:
    assert [a_run(seed) for seed in range(20)] == [a_run(seed) for seed in range(20)]


def test_seeds_choose_between_tasks_and_leave_the_order_of_one() -> None:
    orders = [a_run(seed)[0] for seed in range(20)]
    assert len({tuple(order) for order in orders}) > 10
    assert all(
        [step for step in order if step[0] == name] == [f"{name}{i}" for i in range(3)]
        for order in orders
        for name in "abc"
    )


def test_without_shuffling_the_order_of_a_node_is_asyncios() -> None:
    assert a_run(7, shuffles=False)[0] == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]


def test_time_jumps_to_the_next_timer() -> None:
    loop = SimLoop(1, shuffles=True)
    loop.run(asyncio.sleep(3_600))
    assert 3_600 <= loop.time() < 3_601
    assert loop.steps < 20


def test_a_dead_node_is_never_run_again() -> None:
    loop, messages = SimLoop(1, shuffles=True), list[str]()
    node = Node("n")

    async def work() -> None:
        try:
            messages.append("began")
            await asyncio.sleep(1)
            messages.append("ended")
        finally:
            messages.append("cleaned up")

    async def main() -> None:
        context = copy_context()
        context.run(NODE.set, node)
        _ = asyncio.get_running_loop().create_task(work(), context=context)
        await asyncio.sleep(0.5)
        node.is_alive = False
        await asyncio.sleep(2)
        assert messages == ["began"]

    loop.run(main())


def test_a_frozen_node_goes_on_when_its_time_has_come() -> None:
    loop, messages = SimLoop(1, shuffles=True), list[float]()
    node = Node("n")

    async def work() -> None:
        await asyncio.sleep(1)
        messages.append(loop.time())

    async def main() -> None:
        context = copy_context()
        context.run(NODE.set, node)
        _ = loop.create_task(work(), context=context)
        await asyncio.sleep(0.5)
        loop.freeze(node, 10.0)
        await asyncio.sleep(20)

    loop.run(main())
    assert 10 <= messages[0] < 10.1


def test_a_simulation_without_a_next_step_is_stuck() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck):
        SimLoop(1, shuffles=True).run(main())
