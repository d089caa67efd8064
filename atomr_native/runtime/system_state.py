"""The internal state of a System, shared by its devices, actors and observers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..arrays.owner import owner_of
from ..errors import Unsupported
from .addresses import Address
from .choice import Chooser
from .config import SystemConfig
from .dead_letters import DeadLetters
from .listing import machine_gpus
from .placement import worker_environment

__all__ = ["SystemState"]


class SystemState:
    """The parts of one System.

    Parameters
    ----------
    config : SystemConfig
        Its options.
    """

    def __init__(self, config: SystemConfig) -> None:
        self.config = config
        self.environment = worker_environment()  # of workers, taken once
        self.gpus: int | None = None  # how many of those that workers see may be devices; None: all
        self.dead_letters = DeadLetters()
        self.devices: dict[str, Any] = {}  # used devices, by name
        self.lock = threading.RLock()  # guards devices and the tree; held while a device starts
        self.closing = threading.RLock()  # held while everything ends
        self.closed = False
        self.tree: Any = None  # the tree of actors, made with the first one
        self.chooser = Chooser()
        self.communicators: Any = None  # made with the first one
        self.stepper: Any = None  # the scheduler of `atomr_native.testing`, which runs actors instead of their threads
        self.closers: list[Callable[[], object]] = []  # called at the end of each `close`; they must not raise

    def see_all_gpus(self, own: int) -> None:
        """Have workers see all GPUs of the machine, so that the first `own` ones reach the memory of the others.

        Only the first ones can be devices.  Call it before a device starts.
        """
        self.gpus = own
        visible = [each.strip() for each in self.environment.get("CUDA_VISIBLE_DEVICES", "").split(",")]
        if own and all(map(str.isdigit, visible)):
            others = [str(n) for n in range(machine_gpus()) if str(n) not in visible]
            self.environment["CUDA_VISIBLE_DEVICES"] = ",".join([*visible, *others])

    def check(self, address: Address) -> None:
        """Raise `Unsupported` for a GPU that is not this System's."""
        if self.gpus is not None and address.kind == "cuda" and address.number >= self.gpus:
            raise Unsupported(f"{self.gpus} GPUs are assigned to this process", rule="cuda.assigned")

    def states(self) -> list[Any]:
        """Return the internal states of the devices."""
        return [owner_of(device) for device in list(self.devices.values())]

    def abandon(self) -> None:
        """In a forked child: release the parent's objects, which must not be used or ended from here."""
        self.closed = True
        self.lock = threading.RLock()
        self.dead_letters.abandon()
        for device in self.devices.values():
            device.abandon()
