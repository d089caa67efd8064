"""Awaiting replies, handles, plans and room, with event loops of all kinds."""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from actions import Gate, building_plan, eventually, fail, failing_build, poison
from leaks import Baseline, descriptors

import atomr_native as an
from atomr_native._lib.sender import MAX_SUBSCRIBERS
from atomr_native._lib.waiting import Ticket
from atomr_native.runtime.wakers import Subscriber

Make = Callable[..., an.System]


async def goes_on(end: Callable[[], object], *works: Any) -> None:
    """Await what `end` ends, and call that when the loop has come around meanwhile; a loop that is blocked cannot."""
    tasks = [asyncio.ensure_future(work) for work in works]
    late = threading.Timer(60, end)  # so that a test that fails ends
    late.start()
    for _ in range(3):
        await asyncio.sleep(0.001)
        assert not any(task.done() for task in tasks)
    late.cancel()
    end()
    await asyncio.gather(*tasks)


def test_await_replies_handles_and_plans(device: an.Device) -> None:
    x = device.put(np.eye(2))

    async def main() -> None:
        out = device.empty((2, 2), "float64")
        plan = await device.blas_lt.plan(x, x)
        assert isinstance(plan, an.Plan)
        assert await plan.ask(x, x, out=out) is out
        assert await x is x
        assert await device.lane("a").noop().ask() is None
        assert (await device.get_async(out)).tolist() == np.eye(2).tolist()
        assert (await device.get_async(out.T[:1])).tolist() == [[1, 0]]

    asyncio.run(main())


def test_await_what_is_not_resolved_yet(device: an.Device) -> None:
    lane = device.lane("a")

    async def main() -> None:
        gate = Gate(lane)
        reply, x = lane.noop().ask(), device.put([3.0])
        await goes_on(gate.open, reply.settled())
        assert await reply is None
        assert (await x).numpy() == [3]

    asyncio.run(main())


def test_many_awaits_at_once(device: an.Device) -> None:
    lanes = [device.lane(f"lane {i}") for i in range(4)]

    async def one(i: int) -> int:
        await lanes[i % 4].noop().ask()
        return i

    async def main() -> None:
        assert await asyncio.gather(*[one(i) for i in range(400)]) == list(range(400))
        replies = [lanes[i % 4].noop().ask() for i in range(100)]
        assert await asyncio.gather(*reversed(replies)) == [None] * 100
        assert await asyncio.gather(*[replies[0]] * 5) == [None] * 5

    asyncio.run(main())


def test_errors_are_raised_where_awaited(device: an.Device) -> None:
    lane = device.lane("a")
    bad = poison(lane, device.empty(3), text="awaited")

    async def main() -> None:
        with pytest.raises(an.LibraryError, match="awaited"):
            await bad
        with pytest.raises(an.LibraryError, match="awaited"):
            await device.get_async(bad)
        with pytest.raises(an.LibraryError, match="other"):
            await fail(lane, device.empty(3), text="other")
        with pytest.raises(an.Unsupported, match="never built"):
            await failing_build(lane, device.empty(3), text="never built")
        with pytest.raises(an.Unsupported, match="never built"):
            await failing_build(lane, device.empty(3), text="never built").send_async(out=device.empty(3))
        results = await asyncio.gather(fail(lane, device.empty(1)), lane.noop().ask(), return_exceptions=True)
        assert isinstance(results[0], an.LibraryError)
        assert results[1] is None
        x = device.put([1.0])
        x.free()
        with pytest.raises(an.GpuRefStale):
            await x
        with pytest.raises(an.GpuRefStale):
            await device.get_async(x)
        for wrong in (None, 3, np.zeros(2)):
            with pytest.raises(an.InvalidRequest, match="GpuRef"):
                await device.get_async(wrong)  # type: ignore[arg-type]

    asyncio.run(main())


def test_a_cancelled_wait_cancels_nothing(device: an.Device) -> None:
    lane, x = device.lane("a"), device.put([1.0])

    async def main() -> None:
        with Gate(lane), Gate(device.elementwise):
            reply = lane.noop().ask()
            y = device.elementwise.run("x + 1", x=x)
            for waitable in (reply, y):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(asyncio.ensure_future(_of(waitable)), 0.01)
            task = asyncio.ensure_future(_of(reply))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await reply is None
        assert (await device.get_async(y)).tolist() == [2]

    asyncio.run(main())


async def _of(waitable: Any) -> Any:
    return await waitable


def test_a_loop_goes_on_while_a_plan_is_built(device: an.Device, tmp_path: Path) -> None:
    ref = device.put(np.ones(1, "u1"))

    async def main() -> None:
        gates = [tmp_path / name for name in ("a", "b")]
        lane = device.lane("a")
        await goes_on(gates[0].touch, _of(building_plan(lane, gates[0], ref)))
        sending = building_plan(lane, gates[1], ref).send_async(ref)
        asyncio.get_running_loop().call_later(0.01, gates[1].touch)
        await (await sending)

    asyncio.run(main())


def test_loop_after_loop_leaks_nothing(device: an.Device) -> None:
    lane = device.lane("a")

    async def main() -> None:
        gate = Gate(lane)
        reply = lane.noop().ask()
        asyncio.get_running_loop().call_soon(gate.open)
        await reply

    asyncio.run(main())
    before = descriptors()
    for _ in range(40):
        asyncio.run(main())
    # The last loop's are closed with the next loop, and a worker that is a thread takes its own a moment later.
    eventually(lambda: (descriptors() - before).total() < 10)


def test_loops_in_many_threads_more_than_there_are_subscribers(device: an.Device) -> None:
    lane, n = device.lane("a"), MAX_SUBSCRIBERS + 6
    barrier, done = threading.Barrier(n + 1), []

    async def main() -> None:
        reply = lane.noop().ask()
        barrier.wait()
        for _ in range(10):
            await reply
            reply = lane.noop().ask()
        done.append(1)

    gate = Gate(lane)
    threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(n)]
    for thread in threads:
        thread.start()
    barrier.wait()
    gate.open()
    for thread in threads:
        thread.join(60)
    assert len(done) == n


class NoReaders(asyncio.SelectorEventLoop):
    """Like a loop that cannot watch descriptors."""

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> Any:
        raise NotImplementedError


def test_a_loop_that_cannot_watch_descriptors(device: an.Device) -> None:
    lane = device.lane("a")

    async def main() -> None:
        gate = Gate(lane)
        replies = [lane.noop().ask() for _ in range(5)]
        asyncio.get_running_loop().call_later(0.01, gate.open)
        assert await asyncio.gather(*replies) == [None] * 5

    loop = NoReaders()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def test_a_reply_awaited_in_two_loops(device: an.Device) -> None:
    lane, found = device.lane("a"), []
    gate = Gate(lane)
    reply = lane.noop().ask()

    async def main() -> None:
        found.append(await reply)

    threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    gate.open()
    for thread in threads:
        thread.join(30)
    assert found == [None] * 3


def test_no_wake_up_is_lost(device: an.Device) -> None:
    """A message may complete at the very moment at which its reply is awaited."""
    plan = device.lane("quick").noop().wait()

    async def main() -> None:
        async with asyncio.timeout(120):
            for _ in range(20_000):
                await plan.ask()

    asyncio.run(main())


def test_a_callback_that_stands_still_holds_no_event_loop_up(device: an.Device) -> None:
    """Failures come through few places, which the thread of callbacks is not the only one to empty."""
    lane, out = device.lane("a"), device.zeros(1)
    called, arrived, waited = threading.Event(), threading.Event(), []

    def callback(_: object) -> None:
        called.set()
        waited.append(arrived.wait(10))

    with Gate(lane):
        lane.noop().ask().add_done_callback(callback)

    async def main() -> None:
        await asyncio.to_thread(called.wait, 30)
        for _ in range(100):
            fail(lane, out)
        await lane.noop().ask()
        arrived.set()

    asyncio.run(main())
    eventually(lambda: waited == [True])
    out.clear_error()


class _Counter:
    """Counts completions as a device's native part does, and never rings."""

    completed = 0

    def resolved(self, lane: int, ticket: int) -> bool:
        del lane
        return ticket <= self.completed

    def want(self, lane: int, index: int, ticket: int) -> bool:
        del index
        return self.resolved(lane, ticket)


def test_who_comes_too_late_wakes_those_before() -> None:
    """A wish for a ticket that is resolved takes the place of earlier wishes, whose ring may not have come."""
    core: Any = _Counter()
    subscriber = Subscriber(core, 1)
    called: list[str] = []
    try:
        ticket = Ticket(core, 0, 5)
        assert subscriber.add(ticket, lambda _: called.append("early"))
        assert subscriber.add(Ticket(core, 0, 9), lambda _: called.append("later"))
        core.completed = 5
        assert not subscriber.add(ticket, lambda _: called.append("late"))
        assert select.select(subscriber.fds, [], [], 0)[0]
        subscriber.serve()
        assert called == ["early"]
        core.completed = 9
        assert not subscriber.add(ticket, lambda _: called.append("late"))
        assert select.select(subscriber.fds, [], [], 0)[0]
        subscriber.serve()
        assert called == ["early", "later"]
        assert not subscriber.add(ticket, lambda _: called.append("late"))
        assert not select.select(subscriber.fds, [], [], 0)[0]
    finally:
        subscriber.close()


def test_a_bell_is_not_closed_while_it_is_rung(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number would be another descriptor's by then."""
    subscriber, ring, rung = Subscriber(cast("Any", _Counter()), 1), os.eventfd_write, []

    def late(fd: int, value: int) -> None:
        subscriber.close()
        other = os.eventfd(0)
        rung.append((fd, other != fd))
        ring(fd, value)
        os.close(other)

    monkeypatch.setattr(os, "eventfd_write", late)
    subscriber.kick()
    subscriber.kick()
    ((fd, apart),) = rung
    assert apart
    assert subscriber.fds == ()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


@pytest.mark.parametrize("inside", [True, False])
def test_closing_answers_those_who_await(make_system: Make, isolation: str, inside: bool) -> None:
    before = Baseline()

    async def main(system: an.System) -> list[Any]:
        device = system.device()
        lane = device.lane("a")
        gate = Gate(lane)
        tasks = [asyncio.ensure_future(_of(lane.noop().ask())) for _ in range(5)]
        await asyncio.sleep(0.01)
        if inside:
            system.close(0.01)
        else:
            await asyncio.to_thread(system.close, 0.01)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        gate.open()
        return found

    system = make_system(isolation=isolation)
    found = asyncio.run(main(system))
    assert [type(error) for error in found] == [an.ActorStopped] * 5
    del found
    eventually(lambda: not before.extra().get("children"))
    eventually(lambda: not (descriptors() - before.descriptors)["eventfd"])  # a thread leaves when its operation ends


# ---- room in a full mailbox


@pytest.mark.parametrize("mailbox", ["block", "reject"])
def test_coroutines_await_room(make_system: Make, isolation: str, mailbox: str) -> None:
    device = make_system(isolation=isolation, mailbox=mailbox, mailbox_size=32, timeout=0.0).device()
    x = device.zeros(1, "int64")
    plan = device.elementwise.plan("x + 1", x=x, out=x).wait()

    async def send(n: int) -> None:
        for _ in range(n):
            await plan.send_async(*[x] * len(plan.names))

    async def main() -> None:
        await x
        with Gate(device.elementwise) as gate:
            asyncio.get_running_loop().call_later(0.02, gate.open)
            await asyncio.gather(*[send(20) for _ in range(10)])
        assert (await device.get_async(x)).tolist() == [200]

    asyncio.run(main())


def test_awaiting_a_handle_never_blocks_the_loop(make_system: Make, isolation: str) -> None:
    device = make_system(isolation=isolation, mailbox="reject", mailbox_size=32).device()
    x = device.put([1.0])
    x.wait()
    device.copy(x).wait()

    async def main() -> None:
        gate = Gate(device._memory)
        with pytest.raises(an.MailboxFull):  # noqa: PT012
            for _ in range(100):
                x.fill(2)
        await goes_on(gate.open, _of(x), device.get_async(x))
        assert (await device.get_async(x)).tolist() == [2]

    asyncio.run(main())


def test_what_awaits_room_hears_of_the_end(make_system: Make, isolation: str) -> None:
    system = make_system(isolation=isolation, mailbox_size=32)
    device = system.device()
    lane = device.lane("a")
    plan = lane.noop().wait()

    async def main() -> None:
        gate = Gate(lane)
        tasks = [asyncio.ensure_future(plan.send_async()) for _ in range(100)]
        await asyncio.sleep(0.01)
        await asyncio.to_thread(system.close, 0.01)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        stopped = [error for error in found if isinstance(error, an.ActorStopped)]
        sent = [reply for reply in found if isinstance(reply, an.Reply)]
        assert len(stopped) + len(sent) == 100
        assert stopped
        for reply in sent:
            assert isinstance(reply.exception(), an.ActorStopped)
        gate.open()

    asyncio.run(main())
