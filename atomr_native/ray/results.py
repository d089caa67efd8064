"""Arrays in results of plain Ray actors: the part that is there without Ray.

Its import makes the transport known to Ray, which looks for it when a class with such methods is defined.
"""

from __future__ import annotations

from .._support.extras import how_to_install
from ..device import Device
from ..errors import InvalidRequest, Unsupported

try:
    from . import transport
except ImportError as error:
    _missing: str | None = str(error)
else:
    _missing = None

__all__ = ["use_device"]


def use_device(device: Device, /) -> None:
    """Let arrays in results of Ray actors arrive on a device of this process, by ``tensor_transport="ATOMR"``.

    The import of this name makes the transport known to Ray, so it comes before the classes with such methods.  Each of
    their actors calls the function in its constructor, also after Ray has restarted it, and so does a program that gets
    such results.  Then handles anywhere in the result of a method with ``@ray.method(tensor_transport="ATOMR")`` stay
    where they are, and whoever uses the result gets handles of its own device: the same handles in the process that
    returned them, copies elsewhere.  A transfer waits for the last writer.  A result that is only passed on copies
    nothing.  Does not wait.

    Parameters
    ----------
    device : Device
        For the arrays of other processes; a later call changes it.

    Raises
    ------
    InvalidRequest
        If it is no device of this process.
    Unsupported
        If Ray is missing, or too old.

    Notes
    -----
    A transfer that fails raises `GpuRefStale` where the result is used, with ``reason="node lost"`` if the process that
    returned it has ended; it ends no other process.  The memory is freed with Ray's last reference to the result.

    Examples
    --------
    A method of a Ray actor whose result stays on its device, and another actor that uses it::

        @ray.remote(enable_tensor_transport=True)
        class Worker:
            def __init__(self):
                self.system = an.System()
                self.device = self.system.device()
                atomr_native.ray.use_device(self.device)

            @ray.method(tensor_transport="ATOMR")
            def make(self):
                return {"weights": self.device.zeros((1024, 1024))}

            def total(self, found):
                return float(found["weights"].sum().numpy())

        first, second = Worker.remote(), Worker.remote()
        ray.get(second.total.remote(first.make.remote()))
    """
    if not isinstance(device, Device):
        raise InvalidRequest(f"device={device!r}; allowed: a Device of this process, as system.device() gives it")
    if _missing is not None:
        raise Unsupported(f"Ray cannot be imported ({_missing}): {how_to_install('ray')}", rule="ray.missing")
    transport.use_device(device)
