"""Devices: a stable address for memory and library actors, whatever happens to the worker behind it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._inject import inject_fault
from ._kernel_methods import LIBRARY_ACTORS, KernelMethods
from ._lib.sender import OPEN, RESTARTING, Core
from ._life_watch import LifeWatch
from ._memory_methods import MemoryMethods
from ._message_errors import MessageErrors
from ._process_bound import ProcessBound
from ._timeouts import deadline_of
from ._wakers import Wakers
from .blas import Blas
from .blas_lt import BlasLt
from .elementwise import ElementwiseActor
from .errors import ActorStopped, AtomrError, DeviceLost, InvalidRequest
from .exports import Exports
from .foreign import Foreign
from .groups import Groups
from .lane import Lane
from .memory import DeviceMemory
from .plan import PlanTable
from .statistics import UNKNOWN, DeviceFacts, DeviceStats, checked_facts, checked_memory, device_stats
from .supervisor import Supervisor
from .system_config import number
from .workspaces import Workspaces

if TYPE_CHECKING:
    from .float8 import Float8
    from .fused import Fused
    from .system import System

__all__ = ["Device"]

_log = logging.getLogger("atomr_native")


class Device(MemoryMethods, KernelMethods, ProcessBound):
    """One device of a System; made by `System.device`.

    Its worker may die and be replaced; the device, its actors, and handles of durable memory stay.  All methods may
    be called from any thread.

    Attributes
    ----------
    name : str
        Such as ``"host"``.
    system : System
        Whose device it is.
    facts : DeviceFacts
        What the device is: name, UUID, compute capability, total memory.
    blas_lt : BlasLt
        Matrix products with fused epilogues.
    elementwise : ElementwiseActor
        Expressions over arrays, reductions.
    """

    def __init__(self, system: System, name: str, environment: dict[str, str]) -> None:
        self.name = name
        self.system = system
        self._core = Core(system.config.cells)
        self._core.device = self
        self._errors = MessageErrors(self)
        self._core.errors = self._errors.make
        self._core.stale = self._errors.stale
        self._core.lane_names = {}
        self._core.timeout_ns = system.config.block_ns
        self._core.spin_ns = system.config.spin_us * 1000
        self._closed = self._abandoned = self._ended = False
        self._facts: DeviceFacts | None = None
        self._lanes_lock = threading.RLock()
        self._collecting = threading.RLock()
        self._lanes: dict[str, Lane] = {}
        self._kernel_actors = {}
        self._watch = LifeWatch(name)
        self._wakers = Wakers(self._core, self._subscribe)
        self._exports = Exports(self)
        self._foreign = Foreign(self)
        self._supervisor = Supervisor(self, environment)
        self._plans = PlanTable(self)
        self._workspaces = Workspaces(self, system.config.workspace_limit)
        self._groups = Groups(self)
        self._memory = DeviceMemory(self, system.config.memory_limit_for(name))
        self.blas_lt = BlasLt(self)
        self._blas: Blas | None = None
        self._float8: Float8 | None = None
        self._fused: Fused | None = None
        self.elementwise = ElementwiseActor(self)
        try:
            self._supervisor.start()
            self._memory.growth.start()
        except BaseException:
            self.close(0.0)
            raise

    # ---- actors

    @property
    def blas(self) -> Blas:
        """Vectors and matrices by the classic BLAS routines; an actor of its own, made on first use."""
        with self._lanes_lock:
            if self._blas is None:
                self._blas = Blas(self)
            return self._blas

    @property
    def float8(self) -> Float8:
        """Quantisation to float8 and back; an actor of its own, made on first use."""
        with self._lanes_lock:
            if self._float8 is None:
                from .float8 import Float8

                self._float8 = Float8(self)
            return self._float8

    @property
    def fused(self) -> Fused:
        """Activations, norms, optimizer steps and more, each one pass over memory; an actor made on first use."""
        with self._lanes_lock:
            if self._fused is None:
                from .fused import Fused

                self._fused = Fused(self)
            return self._fused

    def lane(self, name: str) -> Lane:
        """Return the plain actor of this name, made on first use: a mailbox and a stream of its own.

        Raises
        ------
        InvalidRequest
            For a name that a library actor has, or when all mailboxes of the device are in use.
        """
        if not isinstance(name, str) or not name or name in LIBRARY_ACTORS:
            raise InvalidRequest(
                f"lane name {name!r}; it must be a string that is not empty and not one of {', '.join(LIBRARY_ACTORS)}"
            )
        with self._lanes_lock:
            found = self._lanes.get(name)
            if found is None:
                found = self._lanes[name] = Lane(self, name)
            return found

    # ---- life

    @property
    def generation(self) -> int:
        """1, and one more with each restart."""
        return self._core.epoch

    @property
    def worker_pid(self) -> int | None:
        """Process id of the worker; None in thread placement, and while there is none."""
        return self._supervisor.pid

    @property
    def restarts(self) -> int:
        """How often the device has restarted."""
        return self._supervisor.count

    def restart_timeline(self) -> dict[str, float]:
        """Return the seconds that each step of the last restart took, and ``total``, from the death being known."""
        return self._supervisor.timeline

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until the device is open; at once if it is.

        Raises
        ------
        AskTimeout
            When `timeout` (seconds) passes.
        DeviceLost, ActorStopped
            If it will not open again.
        """
        if self._core.state != OPEN:
            self._supervisor.await_open(timeout)
        else:
            deadline_of(timeout)  # which checks it

    def on_generation(self, callback: Callable[[int], object]) -> None:
        """Call ``callback(generation)`` after each restart, in the thread that runs the device's callbacks.

        It may use the device, and wait for it; other callbacks wait meanwhile.  What it raises is logged.
        """
        self._watch.on_generation(callback)

    def on_end(self, callback: Callable[[AtomrError], object]) -> None:
        """Call ``callback(error)`` once, when the device is lost or closed; at once if it is.

        In the thread that runs the device's callbacks, or that closes it.  What it raises is logged.
        """
        self._watch.on_end(callback)

    def forget(self, callback: Callable[..., object]) -> None:
        """Do not call what was given to `on_generation` or `on_end` any more.  Idempotent."""
        self._watch.forget(callback)

    def inject_fault(self, how: str) -> None:
        """Make the worker crash, or the GPU fault, for tests of your program's recovery.

        Needs ``System(allow_crash=True)``.  A fault of the GPU is a message of the device's own mailbox: the first of
        its kind waits for its kernel to be compiled.

        Parameters
        ----------
        how : str
            ``"segfault"``, ``"abort"``, ``"exit"``, ``"hang"`` or ``"raise"``; on CUDA devices also ``"illegal
            address"``, ``"misaligned address"``, ``"trap"``, ``"assert"``, ``"endless"`` (a kernel that never ends: see
            `System`'s watchdog) or ``"illegal address while idle"`` (of no message, so that nobody waits for it).

        Raises
        ------
        InvalidRequest
            For another `how`.
        Unsupported
            If the System was not made for that, or the fault would end this very process.
        """
        inject_fault(self, how)

    @property
    def facts(self) -> DeviceFacts:
        """What the device is: name, UUID, compute capability, total memory; see `DeviceFacts`."""
        return self._facts or UNKNOWN

    def stats(self, *, timeout: float = 1.0) -> DeviceStats:
        """Return true figures of memory, actors and life; see `DeviceStats` for the keys.

        Parameters
        ----------
        timeout : float
            Seconds to wait for the worker's word on what the device has free; without it, ``device_free`` and
            ``device_total`` are None.  Nothing else waits.
        """
        timeout = number("timeout", timeout, 0, 1e9)
        return device_stats(self, timeout)

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """Name of this device in DLPack: (type, number), as this process numbers its GPUs.

        Raises
        ------
        Unsupported
            If this process does not see the GPU.
        """
        return self._exports.dlpack_device

    def close(self, timeout: float = 5.0) -> None:
        """Wait up to `timeout` seconds for what was sent, then end the worker.  Idempotent."""
        timeout = number("timeout", timeout, 0, 1e9)
        if self._closed:
            return
        self._closed = True
        began = time.monotonic()
        try:
            if self._core.state in (OPEN, RESTARTING):
                self._drain(timeout)
            timeout = max(0.0, timeout - (time.monotonic() - began))
        except BaseException:
            timeout = 0.0  # Ctrl-C: no more waiting, and nothing left behind
            raise
        finally:
            self._shut(timeout)

    def _shut(self, timeout: float) -> None:
        try:
            self._supervisor.close(timeout)
        finally:
            self._collect_failures()
            self._wakers.close()
            self._plans.aside.close()
            self._workspaces.close()
            self._exports.close()
            self._foreign.close(left_behind=self._supervisor.left_behind)
            self._give_back(None)
            self._memory.close()
            self._ended = True
            self._watch.end(ActorStopped(f"{self.name} was closed"))
            self._watch.clear()  # with them go cycles that lead through this device's native part

    def _drain(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for lane in list(self._core.lane_names):
            sent = self._core.lane_stats(lane)["sent"]
            self._core.wait_ticket(lane, sent, max(0.0, deadline - time.monotonic()))

    def abandon(self) -> None:
        """In a forked child: let go of everything without touching the worker.  Idempotent."""
        if self._abandoned:
            return
        self._closed = self._abandoned = True
        self._core.abandon()  # first: from here on nothing takes the native lock, which a lost thread may have held
        if self._ended:
            return
        self._supervisor.abandon()
        self._wakers.abandon()
        self._plans.aside.abandon()
        self._workspaces.close()
        self._memory.abandon()

    # ---- what the other modules call

    def _open_lane(self, name: str) -> int:
        with self._lanes_lock:
            try:
                lane = self._core.open_lane()
            except InvalidRequest as error:
                raise InvalidRequest(f"{name!r} gets no mailbox: {error}") from None
            self._core.lane_names[lane] = name
        self._supervisor.links.tell("lane", lane)
        return lane

    def _know(self, fields: dict[str, Any]) -> None:
        """Note what the first worker says of its device; every later one must have the same."""
        found = checked_facts(fields.get("facts"))
        if self._facts is None:
            self._facts = found
            if self.name != "host":
                self._memory.limit = self.system.config.gpu_limit(checked_memory(fields), found["total_memory"])
        elif found["uuid"] != self._facts["uuid"]:
            raise DeviceLost(
                f"the worker of {self.name} has opened {found['name']} {found['uuid']} instead of "
                f"{self._facts['name']} {self._facts['uuid']}"
            )

    def _lane_name(self, lane: int) -> str:
        return self._core.lane_names.get(lane, str(lane))

    def _subscribe(self, number: int) -> None:
        self._supervisor.links.tell("subscriber", number)

    def _collect_failures(self) -> None:
        """Give failed messages that nobody holds a reply of to the dead letters."""
        if self._abandoned:  # in a forked child, where somebody who is gone may hold the lock
            return
        with self._collecting:  # whoever comes second finds what the first has taken
            taken = [
                self.system._dead_letter(self.name, self._lane_name(lane), ticket, error)
                for lane, ticket, error in self._core.orphans()
            ]
        for letter, total in taken:
            self.system._report(letter, total)

    def _tidy(self) -> None:
        """Do what the device's own thread does each time that it goes round."""
        self._collect_failures()
        self._foreign.collect()

    def _give_back(self, segment: int | None) -> None:
        """Have nobody map a segment any more (None: all of them), whose memory goes back to the system."""
        if segment is not None:
            self._exports.forget(segment)
        for other in list(self.system._devices.values()):
            if other is not self:
                other._foreign.segments.forget_peer(self, segment)

    def __repr__(self) -> str:
        return f"<Device {self.name!r}, {'closed' if self._closed else f'generation {self.generation}'}>"
