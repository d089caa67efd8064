"""The interface of a device that plans, replies and library actors use; see `atomr_native.arrays.owner`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from .._lib.guard import Promise
from .._lib.sender import Core, Layout
from ..errors import AtomrError, DeviceLost
from ..protocol.messages import Answer

if TYPE_CHECKING:
    import asyncio

    from ..arrays.gpu_ref import GpuRef
    from ..device import Device
    from ..libraries.kernel.actor import KernelActor
    from .failures import MessageErrors
    from .spec import PlanRequest
    from .table import PlanTable
    from .workspaces import Workspaces

__all__ = ["OperationRules", "PlanLinks", "PlanMemory", "PlanOwner", "PlanSupervisor", "PlanWakers"]


class PlanLinks(Protocol):
    """Requests to the worker."""

    def submit(self, op: str, fds: Sequence[int] = (), **fields: Any) -> Promise[Answer]:
        """Send a request; `WorkerGone` while there is no worker.  Does not wait."""

    def submit_build(self, request: PlanRequest) -> tuple[int, Promise[Answer]]:
        """Request a plan; return also the generation of that worker.  Does not wait."""


class PlanSupervisor(Protocol):
    """Deaths of the worker."""

    @property
    def loss(self) -> DeviceLost:
        """The cause of the device's loss."""

    def fault(self, index: int) -> AtomrError:
        """Return the error of a death, by its index."""

    def await_change(self, epoch: int) -> None:
        """Wait until the supervisor has accounted for the death that broke a request."""


class PlanWakers(Protocol):
    """Notifications of resolved tickets."""

    def room(self, loop: asyncio.AbstractEventLoop, lane: int, ticket: int) -> asyncio.Future[None]:
        """Return a future of `loop` that is set when a ticket is resolved."""

    def future_of(self, loop: asyncio.AbstractEventLoop, reply: Any) -> asyncio.Future[None]:
        """Return a future of `loop` that is set when a reply is resolved."""

    def call_when_done(self, reply: Any, callback: Callable[[Any], object]) -> None:
        """Call back when a reply is resolved; at once if it is."""


class PlanMemory(Protocol):
    """The device's memory."""

    @property
    def limit(self) -> int:
        """Maximum bytes of volatile and durable segments in total."""

    def new(self, layout: Layout, pool: int) -> GpuRef:
        """Allocate memory for a layout."""


class OperationRules(Protocol):
    """The descriptor of an operation in the registry of libraries."""

    @property
    def aliasing(self) -> int:
        """Aliasing rule of its operands: an `atomr_native.libraries.Aliasing`."""

    @property
    def essential(self) -> bool:
        """Whether a device is useless without it: its plans are never quarantined."""


class PlanOwner(Protocol):
    """The device of plans and of a library actor."""

    @property
    def device(self) -> Device:
        """The public face."""

    @property
    def name(self) -> str:
        """The device's name, such as ``"cuda:0"``."""

    @property
    def kind(self) -> Literal["host", "cuda"]:
        """Kind of device, which selects the worker's builders."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Facts about the device."""

    @property
    def blocking(self) -> bool:
        """Whether each send waits for its completion."""

    @property
    def located(self) -> bool:
        """Whether errors name the place in the program that sent their message."""

    @property
    def core(self) -> Core:
        """The native part."""

    @property
    def generation(self) -> int:
        """1 for the first worker, and one more with each restart."""

    @property
    def timeout(self) -> float | None:
        """Seconds that calls wait for a restarting device; None: no limit."""

    @property
    def errors(self) -> MessageErrors:
        """The typed errors of its messages."""

    @property
    def links(self) -> PlanLinks:
        """Requests to the worker."""

    @property
    def supervisor(self) -> PlanSupervisor:
        """Deaths of the worker."""

    @property
    def wakers(self) -> PlanWakers:
        """Notifications of resolved tickets."""

    @property
    def plans(self) -> PlanTable:
        """The plans of the device."""

    @property
    def workspaces(self) -> Workspaces:
        """Scratch memory of its lanes."""

    @property
    def memory(self) -> PlanMemory:
        """The memory actor."""

    def operation(self, op: str) -> OperationRules:
        """Return the descriptor of an operation, by its name in plan specifications."""

    def peer(self, name: str) -> PlanOwner | None:
        """Return another device of the System, by name; None if it is not in use."""

    def open_lane(self, name: str) -> int:
        """Open a mailbox, notify the worker, and return the mailbox's number."""

    def lane_name(self, lane: int) -> str:
        """Return the name of a mailbox."""

    def wait_ready(self, timeout: float | None) -> None:
        """Wait until the device is open."""

    def compute_capability(self) -> tuple[int, int]:
        """Return the compute capability for kernels; `Unsupported` on the host device."""

    def kernel_actor(self, name: str) -> KernelActor:
        """Return the actor of this name that runs users' kernels, made on first use."""
