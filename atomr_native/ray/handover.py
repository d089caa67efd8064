"""GPUs that Ray hands on while the process that had them is still ending."""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Sequence
from typing import Any

__all__ = ["await_gpus", "busy"]

_log = logging.getLogger("atomr_native.ray")

_PATIENCE = 5.0  # seconds
_PAUSE = 0.02
_INSUFFICIENT_SIZE = 7  # NVML's answer where there are processes, and no room for their list


def _management() -> Any:
    """Return NVIDIA's management library, which comes with the driver; None without it."""
    try:
        found = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return found if found.nvmlInit_v2() == 0 else None


def busy(library: Any, gpus: Sequence[int]) -> list[int]:
    """Return those of some GPUs, by the driver's numbers, on which a process computes."""
    found = []
    for gpu in gpus:
        handle, count = ctypes.c_void_p(), ctypes.c_uint(0)
        if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(gpu), ctypes.byref(handle)) != 0:
            continue
        if library.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), None) == _INSUFFICIENT_SIZE:
            found.append(gpu)
    return found


def await_gpus(gpus: Sequence[Any], seconds: float = _PATIENCE) -> None:
    """Wait until nobody computes on the GPUs that Ray has assigned to this process, or the time is over.

    A process that is not Ray's may stay there, and then has its part of the memory.
    """
    numbers = [int(gpu) for gpu in gpus if str(gpu).isdigit()]
    library = _management() if numbers else None
    if library is None:
        return
    end = time.monotonic() + seconds
    while left := busy(library, numbers):
        if time.monotonic() > end:
            _log.warning("GPUs %s are still used by another process after %g s", left, seconds)
            break
        time.sleep(_PAUSE)
    library.nvmlShutdown()
