"""Interrupts, signal handlers and destructors at random moments of public calls."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import functools
import gc
import os
import random
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from actions import eventually
from interrupts import Calls, Interrupter
from leaks import Baseline

import atomr_native as an
from atomr_native._lib import guard
from atomr_native._support import syntax

pytestmark = [
    pytest.mark.host_only,
    # An interrupt in a destructor is lost, and one in an event loop leaves the loop's own parts behind.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]

_PATIENCE = 120.0


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """End the process, with every thread's stack, if a call hangs: an interrupt could not end it."""
    faulthandler.dump_traceback_later(6 * _PATIENCE, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path))
    with an.System(timeout=_PATIENCE) as system:
        yield Calls(system)


def _durations(calls: Calls) -> dict[str, float]:
    """Seconds of each call, the second time that it is made."""
    took = {}
    for name, make in calls.makes.items():
        make()
        began = time.perf_counter()
        make()
        took[name] = time.perf_counter() - began
    return took


# ---- exceptions


@pytest.mark.parametrize(
    ("seed", "interrupts"), [(1, 600), *(pytest.param(seed, 10_000, marks=pytest.mark.slow) for seed in (2, 3, 4))]
)
def test_an_exception_at_any_moment_of_any_call(calls: Calls, seed: int, interrupts: int) -> None:
    chance = random.Random(seed)
    took = _durations(calls)
    names = list(calls.makes)
    with Interrupter(chance) as interrupter:
        while interrupter.count < interrupts:
            name = chance.choice(names)
            interrupter.call(calls.makes[name], 1.5 * took[name])
    calls.check()


@pytest.mark.parametrize("isolation", ["process", "thread"])
@pytest.mark.parametrize("interrupts", [6, pytest.param(300, marks=pytest.mark.slow)])
def test_an_exception_while_a_device_starts_or_closes(isolation: str, interrupts: int) -> None:
    chance = random.Random(interrupts)
    began = time.perf_counter()
    with an.System(isolation=isolation) as system:
        system.device("host")
    took = time.perf_counter() - began
    del system
    baseline = Baseline()
    with Interrupter(chance) as interrupter:
        while interrupter.count < interrupts:
            system = an.System(isolation=isolation)
            interrupter.call(lambda system=system: system.device("host"), took)
            interrupter.call(lambda system=system: system.close(0.5), took)
            system.close()
            del system
    baseline.check()


def test_ctrl_c_in_close_while_the_worker_hangs() -> None:
    with an.System() as first:
        first.device("host")
    del first
    baseline = Baseline()
    system = an.System()
    device = system.device("host")
    os.kill(device.worker_pid or 0, signal.SIGSTOP)
    with Interrupter(random.Random(1)) as interrupter:
        assert interrupter.call(functools.partial(system.close, _PATIENCE), 0.3)
        system.close()  # it waits for the first
    assert system.closed
    del device, system
    baseline.check()


def test_what_waits_for_the_worker_ends_with_an_interrupted_close() -> None:
    """A thread opens a lane; an interrupted `close` still tells it that nobody will answer, long before a minute."""
    with an.System(timeout=_PATIENCE) as system:
        device = system.device("host")
        client = device._state.links.current.worker.client  # type: ignore[union-attr]

        def use() -> None:
            with contextlib.suppress(an.AtomrError):
                device.lane("new")

        os.kill(device.worker_pid or 0, signal.SIGSTOP)
        thread = threading.Thread(target=use)
        thread.start()
        eventually(lambda: any(pending.op == "open_lane" for pending in list(client._pending.values())))
        with Interrupter(random.Random(1)) as interrupter:
            assert interrupter.call(functools.partial(device.close, _PATIENCE), 0.3)
            eventually(lambda: not thread.is_alive(), 30.0)  # though nobody closes it again


def test_an_exception_that_another_thread_raises() -> None:
    """`PyThreadState_SetAsyncExc` in a thread that is inside a shielded function: the function runs to its end."""
    inside, go, done, caught = threading.Event(), threading.Event(), [], []

    @guard.shielded
    def work() -> None:
        inside.set()
        go.wait(_PATIENCE)
        done.append(True)

    def main() -> None:
        try:
            work()
            while True:
                time.sleep(0.001)
        except KeyboardInterrupt as error:
            caught.append(error)

    thread = threading.Thread(target=main)
    thread.start()
    assert inside.wait(_PATIENCE)
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(KeyboardInterrupt)
    )
    go.set()
    thread.join(_PATIENCE)
    assert done == [True]
    assert len(caught) == 1


# ---- signal handlers that use the library


def test_a_signal_handler_makes_calls(calls: Calls) -> None:
    chance = random.Random(5)
    took = _durations(calls)
    plain = [name for name in calls.makes if "async" not in name]  # an event loop cannot run inside another
    with Interrupter(chance, lambda: calls.makes[chance.choice(plain)]()) as interrupter:
        while interrupter.count < 150:
            name = chance.choice(list(calls.makes))
            interrupter.call(calls.makes[name], 1.5 * took[name])
    calls.check()


def test_a_copy_in_the_middle_of_a_copy_of_its_thread(calls: Calls) -> None:
    """The interrupted copy may hold all pieces of staging memory, and goes on only after the handler."""
    window = calls.device._memory.transfers.window
    free, held = window.free, []
    while (piece := window.take(first=False)) is not None:
        held.append(piece)
    assert window.free == 0
    try:
        calls.makes["put_large"]()
        others: list[object] = []
        other = threading.Thread(target=lambda: others.append(window.take(first=True, blocks=True)))
        other.start()
        other.join(30)
        assert others == [None]  # a thread that holds nothing waits for a piece
    finally:
        for piece in held:
            piece.put_back()

    def all_are_free() -> bool:
        if (piece := window.take(first=True)) is not None:  # which first takes back those that have arrived
            piece.put_back()
        return bool(window.free == free)

    eventually(all_are_free)


def test_a_signal_handler_closes_the_system() -> None:
    chance = random.Random(6)
    for _ in range(5):
        with an.System(timeout=_PATIENCE) as system:
            calls = Calls(system)
            with Interrupter(chance, lambda system=system: system.close(0.5)) as interrupter:
                while not interrupter.count:
                    name = chance.choice(list(calls.makes))
                    with contextlib.suppress(an.AtomrError):
                        interrupter.call(calls.makes[name], 0.01)
            assert system.closed


# ---- destructors and the garbage collector


def test_callbacks_of_the_collector_make_calls(calls: Calls) -> None:
    """At random allocations; a call that would wait for its own thread is refused at once."""
    chance = random.Random(7)
    plain = [name for name in calls.makes if "async" not in name and "large" not in name]
    made: list[str] = []
    busy = threading.local()

    def collected(phase: str, _info: dict[str, int]) -> None:
        if phase != "stop" or getattr(busy, "inside", False):
            return
        busy.inside = True
        try:
            name = chance.choice(plain)
            with contextlib.suppress(an.NestedCall):
                calls.makes[name]()
                made.append(name)
        finally:
            busy.inside = False

    before = gc.get_threshold()
    gc.callbacks.append(collected)
    try:
        while len(made) < 300:
            gc.set_threshold(chance.randrange(1, 60), 1000, 1000)
            calls.makes[chance.choice(list(calls.makes))]()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collected)
    calls.check()


def test_nobody_waits_for_an_actor_inside_of_what_waits_for_nobody(calls: Calls) -> None:
    """A callback of the collector there could wait for the very actor that waits for that call."""
    unlock = threading.Event()

    class Slow(an.Actor):
        def receive(self, message: object) -> object:
            unlock.wait(60)
            return message

    slow = calls.system.spawn(Slow)
    answer = slow.ask(1)
    try:
        with pytest.raises(an.NestedCall):
            guard.shielded_service(lambda: answer.result(timeout=30))()
    finally:
        unlock.set()
    assert answer.result(timeout=60) == 1
    assert guard.shielded_service(lambda: answer.result(timeout=60))() == 1, "there is nothing to wait for"
    slow.stop()


class _Cycle:
    def __init__(self) -> None:
        self.me = self


def test_callbacks_of_weak_references_and_destructors_make_calls(calls: Calls) -> None:
    made = []

    class Late(_Cycle):
        def __del__(self) -> None:
            with contextlib.suppress(an.NestedCall):
                made.append(calls.fresh_plan())

    def gone(_: object) -> None:
        with contextlib.suppress(an.NestedCall):
            made.append(calls.convert())

    before = gc.get_threshold()
    gc.set_threshold(5, 2, 2)
    try:
        for _ in range(30):
            cycle = _Cycle()
            watch = weakref.ref(cycle, gone)
            Late()
            del cycle
            calls.fresh_plan()
            del watch
    finally:
        gc.set_threshold(*before)
    assert made
    calls.check()


def test_a_lock_refuses_its_holder() -> None:
    lock = guard.Lock()
    with lock:
        with pytest.raises(an.NestedCall, match="inside another call"):
            lock.acquire()
        assert not lock.acquire(blocking=False)
    assert not lock.locked()
    again = guard.Lock(reentrant=True)
    with again, again:
        assert again.locked()
    assert not again.locked()
    with pytest.raises(RuntimeError, match="does not hold"):
        again.release()


def test_a_lock_excludes_other_threads() -> None:
    lock, inside, most = guard.Lock(), [0], [0]

    def work() -> None:
        for _ in range(200):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0)
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_PATIENCE)
    assert most == [1]
    with lock:
        got: list[bool] = []
        other = threading.Thread(target=lambda: got.append(lock.acquire(timeout=0.05)))
        other.start()
        other.join(_PATIENCE)
    assert got == [False]


def test_python_parses_one_text_at_a_time() -> None:
    """A callback of the collector inside of the parser is refused there; Python 3.11 would fail the outer call."""
    with syntax._parsing:
        for parse in (syntax.parse_expression, syntax.parse_statements):
            with pytest.raises(an.NestedCall):
                parse("a + 1")
    package = Path(an.__file__).parent
    direct = [file.name for file in package.rglob("*.py") if "ast.parse(" in file.read_text()]
    assert direct == ["syntax.py"]


# ---- event loops


def _stopped(device: an.Device) -> contextlib.AbstractContextManager[None]:
    @contextlib.contextmanager
    def stop() -> Iterator[None]:
        pid = device.worker_pid or 0
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    return stop()


@pytest.mark.parametrize("elements", [1000, 8_000_000])
def test_a_closed_event_loop_leaves_nothing_to_wait_for(elements: int) -> None:
    with an.System() as system:
        device = system.device("host")
        x = device.put(np.ones(elements, np.float32))
        asyncio.run(device.get_async(x))
        loop = asyncio.new_event_loop()

        async def begin() -> asyncio.Task[np.ndarray]:
            task = asyncio.ensure_future(device.get_async(x))
            await asyncio.sleep(0.05)
            return task

        with _stopped(device):
            kept = loop.run_until_complete(begin())
            loop.close()

        async def again() -> np.ndarray:
            return await asyncio.wait_for(device.get_async(x), _PATIENCE)

        assert asyncio.run(again()).sum() == elements
        kept._log_destroy_pending = False  # on a fast machine it was done before the worker stopped


def test_a_new_event_loop_does_not_wait_for_the_worker() -> None:
    with an.System() as system:
        device = system.device("host")
        x = device.put(np.ones(1000, np.float32))
        x.wait()
        turned = threading.Event()

        async def main() -> float:
            task = asyncio.ensure_future(device.get_async(x))
            await asyncio.sleep(0)
            await asyncio.sleep(0.01)
            turned.set()
            return float((await task).sum())

        with _stopped(device):
            resume = threading.Thread(
                target=lambda: (turned.wait(_PATIENCE), os.kill(device.worker_pid or 0, signal.SIGCONT))
            )
            resume.start()
            assert asyncio.run(main()) == 1000
            resume.join(_PATIENCE)


# ---- shielded functions


def test_an_interrupted_wait_ends_at_its_next_check() -> None:
    ended: list[object] = []

    @guard.shielded
    def work() -> None:
        try:
            while True:
                time.sleep(0.001)
                guard.check()
        except BaseException as error:
            ended.append(type(error))
            raise

    with Interrupter(random.Random(8)) as interrupter:
        assert interrupter.call(work, 0.05)
    eventually(lambda: ended == [guard.Abandoned])


def test_steps_that_belong_together_are_not_abandoned() -> None:
    ended: list[bool] = []

    @guard.shielded
    def work() -> None:
        with guard.Persisting():
            while not guard.abandoned():
                time.sleep(0.001)
            guard.check()
            ended.append(True)

    with Interrupter(random.Random(9)) as interrupter:
        assert interrupter.call(work, 0.05)
    eventually(lambda: ended == [True])


def test_a_shielded_function_returns_raises_and_nests() -> None:
    @guard.shielded
    def inner(x: int) -> int:
        """Divide."""
        return 6 // x

    @guard.shielded
    def outer(x: int) -> tuple[int, int]:
        return inner(x), threading.get_ident()

    value, ident = outer(2)
    assert value == 3
    assert ident != threading.get_ident()
    assert inner.__doc__ == "Divide."
    with pytest.raises(ZeroDivisionError):
        outer(0)
    assert sys.exc_info()[1] is None


def test_shielded_functions_of_many_threads() -> None:
    @guard.shielded
    def work(x: int) -> int:
        time.sleep(0.001)
        return x

    got: list[bool] = []
    threads = [
        threading.Thread(target=lambda i=i: got.append(all(work(i * 100 + k) == i * 100 + k for k in range(20))))
        for i in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_PATIENCE)
    assert got == [True] * 10


def test_a_finalizer_does_not_take_a_lock_that_its_thread_holds() -> None:
    lock, by = guard.Lock(), []

    def work() -> None:
        with lock:
            by.append(threading.get_ident())

    with lock:
        guard.finish(work)
        assert not by
    eventually(lambda: by)
    guard.finish(work)  # at once
    assert by[0] != by[1] == threading.get_ident()
