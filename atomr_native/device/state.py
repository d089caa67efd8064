"""The internal state of a device: its parts, and the interfaces between them.

`Device` is its public face.  Objects of the package get the state when they are made, or by `arrays.owner.owner_of`.
Each layer sees it through its own protocol (`arrays.owner`, `plans.owner`, `runtime.owner`, `interop.owner`,
`memory.owner`).
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, Literal

from .._lib.guard import shielded, shielded_service
from .._lib.sender import OPEN, Core
from .._support.timeouts import deadline_of
from ..errors import AtomrError, DeviceLost, InvalidRequest, Unsupported
from ..interop.exports import Exports
from ..interop.imports import Imports
from ..libraries import MAILBOXES, Operation, find_operation
from ..memory.device_memory import DeviceMemory
from ..memory.groups import Groups
from ..plans.failures import MessageErrors
from ..plans.table import PlanTable
from ..plans.workspaces import Workspaces
from ..runtime.addresses import address_of
from ..runtime.dead_letters import DeadLetter
from ..runtime.meetings import Meetings
from ..runtime.statistics import UNKNOWN, DeviceFacts, checked_facts, checked_memory
from ..runtime.supervisor import Supervisor
from ..runtime.wakers import Wakers
from ..runtime.watchers import LifeWatch

if TYPE_CHECKING:
    from .._lib.sender import Layout
    from ..arrays.owner import ArrayFunctions
    from ..interop.quick_copies import QuickCopy
    from ..libraries.elementwise.actor import ElementwiseActor
    from ..libraries.kernel.actor import KernelActor
    from ..runtime.system_state import SystemState
    from . import Device

__all__ = ["DeviceState"]


class DeviceState:
    """The parts of one device.

    Parameters
    ----------
    device : Device
        The public face; `open` creates the parts that need it.
    system : SystemState
        The System that owns the device.
    name : str
        The device's name, such as ``"cuda:0"``.
    """

    #: The memory actor.  `open` creates it, since an actor needs the device.
    memory: DeviceMemory
    #: The actor of operators, which opens with the device.
    elementwise: ElementwiseActor
    #: `atomr_native.array_api` for this device; made by it.
    namespace: Any = None

    def __init__(self, device: Device, system: SystemState, name: str) -> None:
        self.device = device
        self.name = name
        self.address = address_of(name)
        self.kind: Literal["host", "cuda"] = self.address.kind
        self.config = config = system.config
        self._system = system
        self.core = Core(config.cells)
        self.core.owner = self
        self.errors = MessageErrors(self)
        self.core.errors = self.errors.make
        self.core.stale = self.errors.stale
        self.core.lane_names = {}
        self.core.timeout_ns = config.block_ns
        self.core.spin_ns = config.spin_us * 1000
        self.closed = self.abandoned = self.ended = False
        self.lock = threading.RLock()  # of lanes and actors
        self._collecting = threading.RLock()
        self.closing = threading.RLock()  # held while the device closes
        self._facts: DeviceFacts | None = None
        self._kernel_actors: dict[str, KernelActor] = {}
        self.watch = LifeWatch(name)
        self.wakers = Wakers(self.core, self._subscribe)
        self.exports = Exports(self)
        self.imports = Imports(self)
        self.supervisor = Supervisor(self, system.environment)
        self.links = self.supervisor.links
        self.meetings = Meetings()
        self.plans = PlanTable(self)
        self.core.sent_from = self.plans.note_place
        self.workspaces = Workspaces(self, config.workspace_limit)
        self.groups = Groups(self)
        #: Copies from other devices, by layout and the other device's native part.
        self.quick_copies: dict[tuple[Layout, Core], QuickCopy] = {}

    def open(self) -> None:
        """Make the memory actor."""
        self.memory = DeviceMemory(self, self.config.memory_limit_for(self.kind))

    # ---- the protocols of the layers

    @property
    def array_functions(self) -> ArrayFunctions:
        """Functions of arrays, loaded at first use."""
        from .. import array_api

        return array_api

    @property
    def generation(self) -> int:
        """1 for the first worker, and one more with each restart."""
        return self.core.epoch

    @property
    def blocking(self) -> bool:
        """Whether each send waits for its completion."""
        return self.config.blocking

    @property
    def located(self) -> bool:
        """Whether errors name the place in the program that sent their message."""
        return self.config.located

    @property
    def timeout(self) -> float | None:
        """Seconds that calls wait for a restarting device; None: no limit."""
        return self.config.timeout

    @property
    def facts(self) -> DeviceFacts:
        """Facts about the device."""
        return self._facts or UNKNOWN

    def peer(self, name: str) -> DeviceState | None:
        """Return another device of the System, by name; None if it is not in use."""
        return next((state for state in self._system.states() if state.name == name), None)

    def pair(self, other: Device) -> Any:
        """Return the communicator of this device and another one of its System, made on first use."""
        made = None if self._system.closed else self._system.communicators
        if made is None:
            made = self.device.system._communicators()  # noqa: SLF001 - its registry
        return made.pair(self.device, other)

    def wait_ready(self, timeout: float | None) -> None:
        """Wait until the device is open; see `Device.wait_ready`."""
        if self.core.state != OPEN:
            self.supervisor.await_open(timeout)
        else:
            deadline_of(timeout)  # this checks it

    def operation(self, op: str) -> Operation:
        """Return the descriptor of an operation, by its name in plan specifications."""
        return find_operation(op)

    def open_lane(self, name: str) -> int:
        """Open a mailbox, notify the worker, and return the mailbox's number.

        Raises
        ------
        InvalidRequest
            If all mailboxes of the device are in use.
        """
        with self.lock:
            try:
                lane = self.core.open_lane()
            except InvalidRequest as error:
                raise InvalidRequest(f"no mailbox for {name!r}: {error}") from None
            self.core.lane_names[lane] = name
        self.links.tell("lane", lane)
        return lane

    def lane_name(self, lane: int) -> str:
        """Return the name of a mailbox."""
        return self.core.lane_names.get(lane, str(lane))

    def compute_capability(self) -> tuple[int, int]:
        """Return the compute capability that kernels of this device are compiled for.

        Raises
        ------
        Unsupported
            On the host device.
        """
        found = self.facts["compute_capability"]
        if found is None:
            raise Unsupported(f"{self.name} has no compute capability: kernels are compiled for GPUs")
        return found[0], found[1]

    def kernel_actor(self, name: str) -> KernelActor:
        """Return the actor of this name that runs users' kernels, made on first use."""
        if not isinstance(name, str) or not name or name in MAILBOXES:
            raise InvalidRequest(f"actor {name!r}; it must be a non-empty string other than {', '.join(MAILBOXES)}")
        from ..libraries.kernel.actor import KernelActor

        return self._kernel_actors.get(name) or self._make_kernel_actor(KernelActor, name)

    @shielded
    def _make_kernel_actor(self, kind: type[KernelActor], name: str) -> KernelActor:
        with self.lock:
            found = self._kernel_actors.get(name)
            if found is None:
                found = self._kernel_actors[name] = kind(self.device, name)
            return found

    def know(self, fields: dict[str, Any]) -> None:
        """Record the first worker's device; `DeviceLost` if a later worker reports another one."""
        found = checked_facts(fields.get("facts"))
        if self._facts is None:
            self._facts = found
            if self.kind == "cuda":
                self.memory.segments.limit = self.config.gpu_limit(checked_memory(fields), found["total_memory"])
        elif found["uuid"] != self._facts["uuid"]:
            raise DeviceLost(
                f"the worker of {self.name} has opened {found['name']} {found['uuid']} instead of "
                f"{self._facts['name']} {self._facts['uuid']}"
            )

    def collect_failures(self) -> None:
        """Add failed messages without a holder of their reply to the dead letters."""
        if self.abandoned:  # in a forked child, where a vanished thread may hold the lock
            return
        for letter, total in self._collect():
            self._system.dead_letters.report(letter, total)

    @shielded_service
    def _collect(self) -> list[tuple[DeadLetter, int]]:
        letters = self._system.dead_letters
        with self._collecting:  # a second thread finds the remainder
            return [
                letters.of_device(self.name, self.lane_name(lane), ticket, error)
                for lane, ticket, error in self.core.orphans()
            ]

    def tidy(self) -> None:
        """Do the callback thread's work after each round."""
        self.collect_failures()
        self.imports.collect()

    @shielded
    def give_back(self, segment: int | None) -> None:
        """Make all devices unmap a segment (None: all segments) whose memory returns to the system."""
        if segment is not None:
            self.exports.forget(segment)
        for other in self._system.states():
            if other is not self:
                other.imports.segments.forget_peer(self, segment)

    def _subscribe(self, number: int) -> None:
        """Notify the worker of a subscriber, in another thread: an event loop must not wait for a worker."""

        def tell() -> None:
            with contextlib.suppress(AtomrError):
                self.links.tell("subscriber", number)
            self.wakers.kick()  # completions before the worker knew it have not rung

        self.plans.wait_pool.start(tell)
