"""Asynchronous exceptions at random moments of calls in the main thread, and a catalogue of public calls."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType, TracebackType
from typing import Any

import numpy as np
from actions import eventually

import atomr_native as an
from atomr_native._lib import guard


class Interrupt(KeyboardInterrupt):
    """Raised by the handler: event loops let KeyboardInterrupt through, and log other exceptions."""


class Interrupter:
    """A signal handler that raises at a random moment of a call, or does something else there.

    Parameters
    ----------
    chance : random.Random
        Chooses the moments.
    action : callable, optional
        What the handler does instead of raising.
    """

    def __init__(self, chance: random.Random, action: Callable[[], object] | None = None) -> None:
        self._chance = chance
        self._action = action
        self._armed = False
        self.count = 0
        #: Seconds that each call took when it was not interrupted, by name.
        self._took: dict[str, float] = {}

    def __enter__(self) -> Interrupter:
        # An interrupt in a destructor is dropped by Python, and one in pytest's hook for that would fail the test.
        self._hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        self._before = signal.signal(signal.SIGALRM, self._ring)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)
        with warnings.catch_warnings():  # the parts of event loops that were interrupted while they were made
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        sys.unraisablehook = self._hook

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        if not self._armed:
            return
        self._armed = False
        self.count += 1
        if self._action is not None:
            self._action()
            return
        raise Interrupt

    def call(self, work: Callable[[], object], within: float) -> bool:
        """Call `work`; return whether it was interrupted, at a random moment of `within` seconds."""
        before = self.count
        try:
            try:
                self._armed = True
                signal.setitimer(signal.ITIMER_REAL, self._chance.uniform(1e-6, within))
                work()
            finally:
                self._armed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Interrupt:
            pass
        return self.count > before


def at_each_check(part: str, call: Callable[[], object]) -> Iterator[None]:
    """Make a call again and again, and raise `Interrupt` where Python 3.11 looks for it the first, second, ... time.

    That is at the beginning of a function, and after the call of a compiled one.  Yields after each call that was
    interrupted, and ends with the first that was not.

    Parameters
    ----------
    part : str
        Part of the names of the files whose functions count.
    call : callable
    """
    for number in itertools.count(1):
        left = number

        def look(frame: FrameType, event: str, _: object) -> None:
            nonlocal left
            if event in ("call", "c_return") and part in frame.f_code.co_filename:
                left -= 1
                if left == 0:
                    sys.setprofile(None)
                    raise Interrupt

        before = sys.getprofile()
        try:
            sys.setprofile(look)
            call()
        except Interrupt:
            pass
        finally:
            sys.setprofile(before)
        if left > 0:
            return
        yield  # also where the end of a generator has swallowed it


class _Echo(an.Actor):
    @an.handler
    def number(self, message: int) -> int:
        return message


class Calls:
    """Public calls on one device, each of which may be made any number of times.

    Parameters
    ----------
    system : System
        With at least one device.
    name : str
        The device's name.
    """

    def __init__(self, system: an.System, name: str = "host") -> None:
        self.system = system
        self.device = system.device(name)
        device = self.device
        self._fresh = itertools.count(1)
        self.x = device.put(np.arange(1024, dtype=np.float32))
        self.square = device.put(np.ones((16, 16), np.float32))
        self.members = {"a": device.zeros(64, durable=True), "b": device.zeros((4, 4), durable=True)}
        self.group = device.durable_group(self.members)
        self.group.commit().result(timeout=60)
        self.shared = device.host_array(1024)
        self.out = np.empty(1024, np.float32)
        self.big = np.arange(3 << 20, dtype=np.float32)
        self.host_bytes = bytearray(4096)
        self.echo = system.spawn(_Echo)
        self.called: list[object] = []
        self._pipeline = an.Pipeline([self.echo], in_flight=2)
        self._loops: list[asyncio.AbstractEventLoop] = []
        self._ending = threading.Lock()
        self.makes = {
            name: getattr(self, name) for name in dir(type(self)) if not name.startswith("_") and name != "check"
        }

    # ---- memory

    def put(self) -> object:
        return self.device.put(np.ones(next(self._fresh) % 64 + 1, np.float32))

    def put_shared(self) -> object:
        return self.device.put(self.shared)

    def put_large(self) -> object:
        return self.device.put(self.big)

    def get(self) -> object:
        return self.device.get(self.x, self.out)

    def get_large(self) -> object:
        return self.device.zeros(2 << 20).numpy()

    def get_into(self) -> object:
        return self.device.get_into(self.x, self.shared).result(timeout=60)

    def fresh_plan(self) -> object:
        return self.device.full(next(self._fresh) % 500 + 2, 1, "int16").wait()

    def convert(self) -> object:
        return self.device.copy(self.x[: next(self._fresh) % 1000 + 1], dtype="float64").wait()

    def host_array(self) -> object:
        return self.device.host_array(next(self._fresh) % 100 + 1)

    def grow(self) -> object:
        return self.device.empty(80 << 20, "uint8")

    def trim(self) -> object:
        return self.device.trim()

    def commit(self) -> object:
        return self.group.commit(1).result(timeout=60)

    def durable_group(self) -> object:
        return self.device.durable_group({"m": self.device.zeros(8, durable=True)})

    # ---- other libraries

    def asarray(self) -> object:
        return self.device.asarray(np.ones(32, np.float32))

    def export(self) -> object:
        return np.from_dlpack(self.device.ones(8) if hasattr(self.device, "ones") else self.device.zeros(8))

    # ---- messages

    def matmul(self) -> object:
        return self.device.blas_lt.matmul(self.square, self.square).wait()

    def lane(self) -> object:
        return self.device.lane(f"lane {next(self._fresh) % 6}").noop().ask().result(timeout=60)

    def callback(self) -> object:
        reply = self.device.lane("callbacks").noop().ask()
        reply.add_done_callback(self.called.append)
        self.called.clear()
        return reply.result(timeout=60)

    def gather(self) -> object:
        return an.gather(self.device.lane("gather").noop().ask(), self.x, timeout=60)

    def stats(self) -> object:
        return self.system.stats()

    def dead_letters(self) -> object:
        return len(list(self.system.dead_letters))

    def ready(self) -> object:
        return self.device.wait_ready(60)

    # ---- coroutines and actors

    def get_async(self) -> object:
        return self._run(self.device.get_async(self.x))

    def ask_async(self) -> object:
        async def ask() -> Any:
            return await self.device.lane("async").noop().send_async()

        return self._run(ask())

    def _run(self, work: Coroutine[Any, Any, Any]) -> object:
        loop = self._begin_loop()
        try:
            return loop.run_until_complete(work)
        finally:
            self._end_loop(loop)

    @guard.shielded  # an interrupt would leave sockets of the loop behind
    def _begin_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        self._loops.append(loop)
        return loop

    @guard.shielded
    def _end_loop(self, loop: Any) -> None:
        with self._ending:  # it may still run for a call that was interrupted
            if loop in self._loops:
                loop._thread_id = None  # `run_until_complete` may have been interrupted before it did that
                loop.close()
                self._loops.remove(loop)

    def spawn(self) -> object:
        actor = self.system.spawn(_Echo)
        actor.stop()
        return actor

    def ask_actor(self) -> object:
        return self.echo.ask(5).result(timeout=60)

    def submit(self) -> object:
        return self._pipeline.submit(5).result(timeout=60)

    def find(self) -> object:
        return self.system.find("/echo")

    # ---- the state afterwards

    def check(self) -> None:
        """Make every call once, and close the event loops whose end was interrupted."""
        for loop in list(self._loops):
            self._end_loop(loop)
        for make in self.makes.values():
            make()
        assert self.device.restarts == 0
        eventually(lambda: self._pipeline.inside == 0)
