"""Large arrays to a device and back in event loops: the loop goes on, and nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from actions import Gate, bits, poison
from placements import Placement
from transfer_rig import all_back, data

import atomr_native as an

Make = Callable[..., an.System]


async def ticks_while(work: Any) -> tuple[Any, int]:
    """Await something, and count how often the loop came around meanwhile."""
    task, ticks = asyncio.ensure_future(work), 0
    while not task.done():
        await asyncio.sleep(0.001)
        ticks += 1
    return await task, ticks


@pytest.mark.parametrize("n", [0, 1, 63, 900, 1024, 5001])
def test_there_and_back(pieces: an.Device, n: int) -> None:
    x = data(n)

    async def main() -> None:
        ref = await pieces.put_async(x)
        assert bits(await pieces.get_async(ref)) == bits(x)
        out, target = np.zeros(2 * n, np.uint8)[::2], pieces.zeros(n, "float32", durable=True)
        assert await pieces.get_async(ref[::-1][::-1] if n < 2 else ref, out) is out
        assert bits(out) == bits(x)
        assert await pieces.put_async(x, out=target) is target
        assert bits(await pieces.get_async(target)) == bits(x.astype(np.float32))
        assert bits(await pieces.get_async(target[::2])) == bits(x[::2].astype(np.float32))
        durable = await pieces.put_async(x[::-1], "int16", durable=True)
        assert durable.durable
        assert bits(await pieces.get_async(durable)) == bits(x[::-1].astype(np.int16))

    asyncio.run(main())


def test_host_arrays(pieces: an.Device) -> None:
    host, back = pieces.host_array(5000, "uint8"), pieces.host_array((5000, 2), "uint8")
    host[...] = data(5000)

    async def main() -> None:
        ref = await pieces.put_async(host)
        assert await pieces.get_async(ref, back[:, 1]) is not None
        assert bits(back[:, 1]) == bits(host)
        assert not back[:, 0].any()
        reply = pieces.get_into(ref, back.reshape(-1)[:5000])
        assert bits(await reply) == bits(host)

    asyncio.run(main())


def test_the_loop_goes_on(pieces: an.Device) -> None:
    x = data(9000)

    async def main() -> None:
        ref = pieces.put(x)
        for work in (lambda: pieces.get_async(ref), lambda: pieces.put_async(x), lambda: pieces.put_async(x, out=ref)):
            gate = Gate(pieces._memory)
            asyncio.get_running_loop().call_later(0.05, gate.open)
            found, ticks = await ticks_while(work())
            assert ticks > 3
            assert bits(found if isinstance(found, np.ndarray) else await pieces.get_async(found)) == bits(x)
            del gate, found

    asyncio.run(main())


def test_many_at_once(pieces: an.Device) -> None:
    async def one(i: int) -> None:
        x = data(1000 + 97 * i, i)
        ref = await pieces.put_async(x, durable=bool(i % 2))
        assert bits(await pieces.get_async(ref)) == bits(x)

    async def main() -> None:
        await asyncio.gather(*[one(i) for i in range(40)])

    asyncio.run(main())


def test_a_get_is_of_one_moment(pieces: an.Device) -> None:
    x = pieces.zeros(6000, "uint8")

    async def read() -> None:
        for _ in range(15):
            assert len(set((await pieces.get_async(x)).tolist())) == 1

    async def main() -> None:
        readers = asyncio.gather(read(), read(), read())
        i = 0
        while not readers.done():
            i += 1
            if i % 2:
                x.fill(i % 251)
            else:
                await pieces.put_async(np.full(6000, i % 251, np.uint8), out=x)
            await asyncio.sleep(0)
        await readers

    asyncio.run(main())


def test_cancelled_in_the_middle(pieces: an.Device) -> None:
    x = data(9000)

    async def main() -> None:
        ref = pieces.put(x)
        target = pieces.put(x)
        for delay in (0.0, 0.01, 0.03):
            with Gate(pieces._memory):
                tasks = [
                    asyncio.ensure_future(pieces.get_async(ref)),
                    asyncio.ensure_future(pieces.put_async(x[::-1])),
                    asyncio.ensure_future(pieces.put_async(data(9000, 1), out=target)),
                    asyncio.ensure_future(pieces.get_async(ref[::2])),
                ]
                await asyncio.sleep(delay)
                for task in tasks:
                    task.cancel()
                for task in tasks:
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
                    assert task.cancelled()
        assert bits(await pieces.get_async(ref)) == bits(x)
        assert bits(await pieces.get_async(target)) == bits(x)  # a put that was not sent as a whole wrote nothing

    asyncio.run(main())


def test_a_copy_needs_no_thread_of_the_program(pieces: an.Device) -> None:
    x = np.asfortranarray(data(9000).reshape(90, 100))

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        done = threading.Event()
        waiter = asyncio.ensure_future(asyncio.to_thread(done.wait, 30))  # as for a piece that the copy has
        await asyncio.sleep(0)
        plan = pieces.elementwise.plan("x + 3.25", x=pieces.zeros(7))
        ref = await asyncio.wait_for(pieces.put_async(x), 10)
        assert bits(await asyncio.wait_for(pieces.get_async(ref.T), 10)) == bits(x.T)
        await asyncio.wait_for(plan, 10)
        done.set()
        assert await waiter

    asyncio.run(main())


def test_errors_that_are_kept_keep_no_pieces(tiny: None, make_system: Make) -> None:
    device = make_system(mailbox_size=32, mailbox="reject", isolation="thread").device("host")
    x, kept = data(9000), []

    async def main() -> None:
        ref = device.put(x)
        gate = Gate(device._memory)
        with contextlib.suppress(an.MailboxFull):
            while True:
                device.zeros(1)
        for _ in range(4):
            task = asyncio.ensure_future(device.put_async(x))
            await asyncio.sleep(0.01)  # until it waits for room in the mailbox
            task.cancel()
            try:
                await task
            except asyncio.CancelledError as error:
                kept.append(error)  # with its frames
        gate.open()
        assert bits(await asyncio.wait_for(device.get_async(ref), 20)) == bits(x)

    asyncio.run(main())
    assert len(kept) == 4
    kept.clear()
    all_back(device)


def test_errors(pieces: an.Device) -> None:
    bad = poison(pieces.lane("a"), pieces.empty(1000), text="never written")
    host = pieces.host_array((2, 500))

    async def main() -> None:
        with pytest.raises(an.LibraryError, match="never written"):
            await pieces.get_async(bad)
        with pytest.raises(an.LibraryError, match="never written"):
            await pieces.get_async(bad.reshape(500, 2).T, host)
        with pytest.raises(an.DependencyFailed, match="never written"):
            await pieces.get_into(bad, host.reshape(-1))
        await pieces.put_async(host.reshape(-1), out=bad)  # neither failure is that of the host array
        assert not (await pieces.get_async(bad)).any()
        with pytest.raises(an.InvalidRequest, match="out has shape"):
            await pieces.put_async(host, out=bad)
        with pytest.raises(an.InvalidRequest, match="out is"):
            await pieces.get_async(bad, host)
        freed = await pieces.put_async(data(5000))
        freed.free()
        with pytest.raises(an.GpuRefStale, match="freed"):
            await pieces.get_async(freed)
        with pytest.raises(an.GpuRefStale, match="freed"):
            await pieces.put_async(data(5000), out=freed)

    asyncio.run(main())


def test_a_put_without_room_says_so(tiny: None, make_system: Make) -> None:
    device = make_system(timeout=0.2).device("host")

    async def main() -> None:
        with Gate(device._memory), pytest.raises(an.MailboxFull, match="staging memory"):
            await device.put_async(data(9000))
        assert bits(await device.get_async(await device.put_async(data(9000)))) == bits(data(9000))

    asyncio.run(main())
    all_back(device)


def test_a_mailbox_without_room_is_awaited(tiny: None, make_system: Make) -> None:
    device = make_system(mailbox_size=32, mailbox="reject", isolation="thread").device("host")

    async def main() -> None:
        refs = [device.put(data(2000, i)) for i in range(3)]
        gate = Gate(device._memory)
        with contextlib.suppress(an.MailboxFull):
            while True:
                device.zeros(1)
        asyncio.get_running_loop().call_later(0.03, gate.open)
        found = await asyncio.gather(*[device.get_async(ref) for ref in refs], device.put_async(data(2000, 9)))
        assert [bits(a) for a in found[:3]] == [bits(data(2000, i)) for i in range(3)]
        assert bits(await device.get_async(found[3])) == bits(data(2000, 9))

    asyncio.run(main())
    all_back(device)


@pytest.mark.parametrize("work", ["put", "get"])
def test_close_in_the_middle(tiny: None, placement: Placement, make_system: Make, work: str) -> None:
    system = make_system()
    device = system.device()

    async def main() -> None:
        ref, gate = device.put(data(9000)), Gate(device._memory)
        task = asyncio.ensure_future(device.get_async(ref) if work == "get" else device.put_async(data(9000)))
        await asyncio.sleep(0.02)
        await asyncio.to_thread(system.close, 0.05)
        with pytest.raises((an.ActorStopped, an.GpuRefStale)):
            await asyncio.wait_for(task, 30)
        gate.open()

    asyncio.run(main())
