"""A device that fails on command."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from .._support.timeouts import seconds_of
from ..errors import AskTimeout, DeviceLost, Unsupported
from ..system import System

if TYPE_CHECKING:
    from types import TracebackType

    from ..device import Device

__all__ = ["FaultyDevice"]


class FaultyDevice:
    """A real host device in a separate System, whose worker dies on command.  A context manager.

    Parameters
    ----------
    name : str
        Name of the device.
    **options
        Options of the System; by default unlimited restarts, and no standby.

    Attributes
    ----------
    system : System
    device : Device
    """

    def __init__(self, name: str = "host", **options: Any) -> None:
        given: dict[str, Any] = {"standby": "off", "within": 0.0, "allow_crash": True, **options}
        if given.get("isolation", "process") != "process":
            raise Unsupported("a device in this process cannot be restarted; use isolation='process'")
        self.system = System(**given)
        try:
            self.device: Device = self.system.device(name)
        except BaseException:
            self.system.close(0.0)
            raise

    def kill(self) -> None:
        """Kill the worker, without waiting; the consequences are those of any fault."""
        pid = self.device.worker_pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def fail(self, how: str = "segfault") -> None:
        """Make the worker crash; see `Device.inject_fault`."""
        self.device.inject_fault(how)

    def restart(self, timeout: float = 60.0) -> int:
        """Kill the worker and wait for the next one; return the new generation."""
        end = time.monotonic() + seconds_of(timeout, limited=True)
        generation = self.device.generation
        self.kill()
        while self.device.generation == generation:
            if time.monotonic() >= end:
                raise AskTimeout(f"{self.device.name} did not restart within {timeout} s")
            time.sleep(0.002)
        self.device.wait_ready(max(0.0, end - time.monotonic()))
        return self.device.generation

    def lose(self, timeout: float = 60.0) -> None:
        """Kill workers until the restart budget is spent and the device is lost."""
        if self.system.config.within <= 0:
            raise Unsupported("this device may restart without limit: make it with within=60.0, max_restarts=0")
        end = time.monotonic() + seconds_of(timeout, limited=True)
        while time.monotonic() < end:
            self.kill()
            try:
                self.device.wait_ready(0.05)
            except DeviceLost:
                return
            except AskTimeout:
                pass
            time.sleep(0.005)
        raise AskTimeout(f"{self.device.name} was not lost within {timeout} s")

    def close(self) -> None:
        """Close the System."""
        self.system.close(1.0)

    def __enter__(self) -> FaultyDevice:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
