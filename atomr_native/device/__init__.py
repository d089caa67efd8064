"""Devices: a stable address for memory and library actors, while workers behind it come and go."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._lib.guard import TICK, Persisting, abandoned, shielded
from .._lib.sender import OPEN, RESTARTING
from .._support.process_bound import ProcessBound
from .._support.public import public
from .._support.timeouts import seconds_of
from ..errors import ActorStopped, AtomrError, InvalidRequest
from ..libraries import LIBRARIES, MAILBOXES, load_actor
from ..plans.actor import Lane
from ..runtime.fault_injection import inject_fault
from ..runtime.statistics import DeviceFacts, DeviceStats, device_stats
from .arrays import MemoryMethods
from .kernels import KernelMethods
from .libraries import DeviceLibraries
from .recordings import RecordingMethods
from .state import DeviceState

if TYPE_CHECKING:
    from ..runtime.system_state import SystemState
    from ..system import System

__all__ = ["Device"]


@public
class Device(MemoryMethods, KernelMethods, RecordingMethods, DeviceLibraries, ProcessBound):
    """One device of a System; made by `System.device`.

    Its worker may die and be replaced; the device, its actors, and handles of durable memory remain valid.  All methods
    may be called from any thread.

    Attributes
    ----------
    name : str
        Such as ``"host"``, ``"cuda:0"``.
    kind : {"host", "cuda"}
        The kind of memory that it uses: host or GPU memory.
    index : int
        Its number among the devices of its kind.
    number : int
        Its place in the order in which the System made its devices.
    system : System
        The System that owns the device.
    facts : DeviceFacts
        Name, UUID, compute capability and total memory.
    """

    def __init__(self, system: System, name: str, shared: SystemState) -> None:
        self.name = name
        self.system = system
        self._state = state = DeviceState(self, shared, name)
        self.kind, self.index = state.address
        self.number = len(shared.devices)
        self._core = state.core
        self._lanes: dict[str, Lane] = {}
        self._actors: dict[str, Any] = {}
        state.open()
        self._memory = state.memory
        for library in LIBRARIES.values():
            if library.actor and library.opens == "with the device":
                self._library(library.name)
        state.elementwise = self._actors["elementwise"]
        try:
            state.supervisor.start()
            state.memory.segments.growth.start()
        except BaseException:
            self.close(0.0)
            raise

    # ---- actors

    def _library(self, name: str) -> Any:
        """Return a library's actor, made on first use."""
        return self._actors.get(name) or self._make_library(name)

    @shielded
    def _make_library(self, name: str) -> Any:
        with self._state.lock:
            found = self._actors.get(name)
            if found is None:
                found = self._actors[name] = load_actor(name)(self)
            return found

    def lane(self, name: str) -> Lane:
        """Return the plain actor of this name, made on first use: a mailbox with its own stream.

        Raises
        ------
        InvalidRequest
            For the name of a library actor, or if all mailboxes of the device are in use.
        """
        if not isinstance(name, str) or not name or name in MAILBOXES:
            raise InvalidRequest(f"lane name {name!r}; it must be a non-empty string other than {', '.join(MAILBOXES)}")
        return self._lanes.get(name) or self._make_lane(name)

    @shielded
    def _make_lane(self, name: str) -> Lane:
        with self._state.lock:
            found = self._lanes.get(name)
            if found is None:
                found = self._lanes[name] = Lane(self, name)
            return found

    # ---- life

    @property
    def generation(self) -> int:
        """1 for the first worker, and one more with each restart."""
        return self._core.epoch

    @property
    def worker_pid(self) -> int | None:
        """Process id of the worker; None in thread placement, and while there is none."""
        return self._state.supervisor.pid

    @property
    def restarts(self) -> int:
        """Number of restarts."""
        return self._state.supervisor.count

    def restart_timeline(self) -> dict[str, float]:
        """Return the seconds of each step of the last restart, and ``total``, counted from detection."""
        return self._state.supervisor.timeline

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until the device is open; at once if it is.

        Raises
        ------
        AskTimeout
            When `timeout` (seconds) passes.
        DeviceLost, ActorStopped
            If it will not open again.
        """
        self._state.wait_ready(timeout)

    def on_generation(self, callback: Callable[[int], object]) -> None:
        """Call ``callback(generation)`` after each restart, in the thread that runs the device's callbacks.

        The callback may use the device and wait for it; other callbacks wait meanwhile.  Its exceptions are logged.
        """
        self._state.watch.on_generation(callback)

    def on_end(self, callback: Callable[[AtomrError], object]) -> None:
        """Call ``callback(error)`` once, when the device is lost or closed; at once if it is.

        It runs in the thread of the device's callbacks, or in the thread that closes the device.  Its exceptions are
        logged.
        """
        self._state.watch.on_end(callback)

    def forget(self, callback: Callable[..., object]) -> None:
        """Remove a callback of `on_generation` or `on_end`.  Idempotent."""
        self._state.watch.forget(callback)

    def inject_fault(self, how: str) -> None:
        """Make the worker crash, or the GPU fault, for tests of your program's recovery.

        Needs ``System(allow_crash=True)``.  A GPU fault is a message in the device's own mailbox; the first of each
        kind waits until its kernel is compiled.

        Parameters
        ----------
        how : str
            ``"segfault"``, ``"abort"``, ``"exit"``, ``"hang"`` or ``"raise"``; on CUDA devices also
            ``"illegal address"``, ``"misaligned address"``, ``"trap"``, ``"assert"``, ``"endless"`` (a kernel that
            never ends: see `System`'s watchdog) or ``"illegal address while idle"`` (outside any message).

        Raises
        ------
        InvalidRequest
            For another `how`.
        Unsupported
            If the System does not allow crashes, or the fault would end this process.
        """
        inject_fault(self._state, how)

    @property
    def facts(self) -> DeviceFacts:
        """Name, UUID, compute capability and total memory of the device; see `DeviceFacts`."""
        return self._state.facts

    def stats(self, *, timeout: float = 1.0) -> DeviceStats:
        """Return statistics of memory, actors and restarts; see `DeviceStats` for the keys.

        Parameters
        ----------
        timeout : float
            Seconds to wait for the worker to report free device memory; without its report, ``device_free`` and
            ``device_total`` are None.  No other figure is waited for.
        """
        timeout = seconds_of(timeout, limited=True)
        return device_stats(self._state, timeout)

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """The device in DLPack: (type, number), with this process's numbering of GPUs.

        Raises
        ------
        Unsupported
            If this process does not see the GPU.
        """
        return self._state.exports.dlpack_device

    def close(self, timeout: float = 5.0) -> None:
        """Wait up to `timeout` seconds for sent messages, then end the worker.  Idempotent.

        An interrupt (Ctrl-C) ends the wait for messages; the device still closes completely, in another thread, and
        the next `close` waits for that.
        """
        self._close(seconds_of(timeout, limited=True))

    @shielded
    def _close(self, timeout: float) -> None:
        with Persisting(), self._state.closing:
            if self._state.closed:  # a destructor that runs inside calls it again
                return
            self._state.closed = True
            began = time.monotonic()
            if self._core.state in (OPEN, RESTARTING):
                self._drain(timeout)
            self._shut(0.0 if abandoned() else max(0.0, timeout - (time.monotonic() - began)))

    def _shut(self, timeout: float) -> None:
        state = self._state
        with contextlib.ExitStack() as stack:  # last in, first out; each of them even if another fails
            stack.callback(state.watch.clear)  # this breaks reference cycles through the device's native part
            stack.callback(state.watch.end, ActorStopped(f"{self.name} was closed"))
            stack.callback(setattr, state, "ended", True)
            stack.callback(self._memory.close)
            stack.callback(state.give_back, None)
            stack.callback(lambda: state.imports.close(left_behind=state.supervisor.left_behind))
            stack.callback(state.exports.close)
            stack.callback(state.workspaces.close)
            stack.callback(state.plans.wait_pool.close)
            stack.callback(state.plans.retry_pool.close)
            stack.callback(state.wakers.close)
            stack.callback(state.collect_failures)
            stack.callback(state.supervisor.close, timeout)

    def _drain(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for lane in list(self._core.lane_names):
            sent = self._core.lane_stats(lane)["sent"]
            while not self._core.wait_ticket(lane, sent, max(0.0, min(deadline - time.monotonic(), TICK))):
                if abandoned() or time.monotonic() >= deadline:
                    return

    def abandon(self) -> None:
        """In a forked child: release everything without touching the worker.  Idempotent."""
        if self._state.abandoned:
            return
        self._state.closed = self._state.abandoned = True
        # First: afterwards no call takes the native lock, which a vanished thread may have held.
        self._core.abandon(self._memory.segments.descriptors())
        if self._state.ended:
            return
        self._state.supervisor.abandon()
        self._state.wakers.abandon()
        self._state.plans.wait_pool.abandon()
        self._state.plans.retry_pool.abandon()
        self._state.workspaces.close()
        self._memory.abandon()

    def __repr__(self) -> str:
        return f"<Device {self.name!r}, {'closed' if self._state.closed else f'generation {self.generation}'}>"
