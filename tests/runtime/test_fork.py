"""Forked children have nothing of a System, and harm nothing of it."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from actions import Gate
from crowds import alongside

import atomr_native as an
from atomr_native._lib.guard import Lock

Make = Callable[..., an.System]


def in_child(work: Callable[[], object]) -> None:
    """Run something in a forked child; it must end well."""
    import warnings

    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python >= 3.12 warns of threads
        pid = os.fork()
    if pid == 0:
        status, text = 1, b""
        try:
            signal.alarm(30)
            work()
            status = 0
        except BaseException as error:
            text = repr(error).encode()
        finally:
            os.write(write, text)
            os._exit(status)
    os.close(write)
    _, status = os.waitpid(pid, 0)
    text = os.read(read, 10_000)
    os.close(read)
    assert status == 0, f"{status}: {text.decode()}"


def test_a_forked_child_has_nothing_and_harms_nothing(make_system: Make, isolation: str) -> None:
    from leaks import descriptors, mappings

    before, mapped = descriptors(), mappings()
    system = make_system(isolation=isolation)
    device = system.device()
    x = device.put(np.arange(3.0))
    lane = device.lane("a")
    plan, reply = lane.noop().wait(), lane.noop().ask()
    view = np.arange(3.0) if device.name != "host" else np.from_dlpack(x)  # NumPy shows no other memory
    host, group = device.host_array(3), device.durable_group({"w": device.zeros(2, durable=True)})
    gate = Gate(lane)
    late = lane.noop().ask()
    assert view.sum() == 3
    assert host.sum() == 0

    def child() -> None:
        ours = descriptors() - before - Counter(pipe=2)
        assert not ours, ours
        assert mappings() <= mapped, mappings()
        assert view.sum() == 3  # its memory can be read, and what is written is the child's own
        assert host.sum() == 0
        host[:] = 5
        assert host.sum() == 15
        uses: list[Callable[[], object]] = [
            lambda: device.put([1]), x.numpy, x.wait, lambda: x.fill(1), plan.tell, plan.ask, reply.result,
            lambda: late.result(0), lambda: device.empty(3), lambda: device.host_array(3), group.commit, x.free,
            lambda: an.gather(x), lambda: device.lane("b"), lambda: lane.noop().tell(), device.wait_ready,
            system.device, lambda: x.__dlpack__(),
        ]  # fmt: skip
        for use in uses:
            try:
                use()
            except (an.DeviceLost, an.ActorStopped) as error:
                assert "fork" in str(error) or "closed" in str(error), error  # noqa: PT017
            else:
                raise AssertionError(use)
        for thing in (x, plan, reply, late, device, system, lane, group):
            repr(thing)
        system.close()
        device.close()
        with an.System(isolation="thread", standby="off") as own:
            assert own.device("host").put([7]).numpy() == [7]
        gc.collect()

    def grandchild() -> None:
        with pytest.raises(an.DeviceLost):
            x.numpy()

    with gate:
        in_child(child)
    assert late.result(30) is None
    assert x.numpy().tolist() == [0, 1, 2]
    assert host.sum() == 0
    in_child(lambda: in_child(grandchild))
    assert group.commit().result(30) == 1


def test_fork_while_threads_send(make_system: Make, isolation: str) -> None:
    device = make_system(isolation=isolation).device()
    stop = threading.Event()
    x = device.zeros(100)

    def send(_: int) -> None:
        while not stop.is_set():
            device.copy(x).numpy()

    def child() -> None:
        with contextlib.suppress(an.DeviceLost):
            x.numpy()
        repr(x)
        gc.collect()
        device.system.close()

    with alongside(send, range(2)):
        for _ in range(4):
            in_child(child)
        stop.set()


def test_fork_after_close(make_system: Make, isolation: str) -> None:
    system = make_system(isolation=isolation)
    x = system.device().put([1.0])
    system.close()

    def child() -> None:
        with contextlib.suppress(an.DeviceLost, an.ActorStopped, an.GpuRefStale):
            x.numpy()
        repr(x)

    in_child(child)


def test_only_locks_of_the_thread_that_forks_are_held_in_the_child() -> None:
    theirs, ours = [Lock(), Lock(reentrant=True), Lock(leaf=True)], Lock()
    held, done = threading.Event(), threading.Event()

    def hold(_: int) -> None:
        with theirs[0], theirs[1], theirs[1], theirs[2]:
            held.set()
            done.wait()

    def taken_elsewhere(lock: Lock) -> bool:
        took: list[bool] = []
        with alongside(lambda _: took.append(lock.acquire(blocking=False)), range(1)):
            pass
        return not took[0]

    def child() -> None:
        assert ours.locked()
        assert taken_elsewhere(ours)
        with pytest.raises(an.NestedCall):
            ours.acquire()
        for lock in theirs:
            assert not lock.locked()
            with lock:
                assert taken_elsewhere(lock)
            assert not lock.locked()
        with theirs[0]:
            in_child(grandchild)

    def grandchild() -> None:
        assert theirs[0].locked()
        theirs[0].release()
        ours.release()
        for lock in (*theirs, ours):
            assert lock.acquire(timeout=5)

    with alongside(hold, range(1)):
        held.wait()
        try:
            with ours:
                in_child(child)
        finally:
            done.set()
    assert not any(lock.locked() for lock in (*theirs, ours))
