"""The CUDA driver, its devices, and what their memory can do; all of it asked in other processes."""

from __future__ import annotations

from .model import Check, Device, Driver
from .subprocesses import ProbeError, run_probe

__all__ = ["cuda_checks", "find_driver"]

_CHECKS = {
    "cuda_memfd_register": ("memfd page registered with CUDA", "register"),
    "cuda_export_import": ("CUDA memory exported and imported", "export"),
}


def find_driver() -> Driver:
    """Return what the CUDA driver says of itself and its devices; this process loads nothing."""
    try:
        answer = run_probe("cuda_driver")
    except ProbeError as error:
        return Driver(found=False, file=None, version=None, error=str(error))
    devices = tuple(Device(**device) for device in answer.pop("devices"))
    return Driver(**answer, devices=devices)


def cuda_checks(driver: Driver, ordinal: int) -> list[Check]:
    """Try what the runtime needs of a device's memory, or say why it was not tried.

    Parameters
    ----------
    driver
        From `find_driver`.
    ordinal
        The device to try; it is left as it was, apart from a context made and given up.
    """
    checks = []
    for name, (title, action) in _CHECKS.items():
        if not driver.devices:
            checks.append(Check(name, title, "skipped", "no CUDA device"))
            continue
        if ordinal >= len(driver.devices):
            checks.append(Check(name, title, "skipped", f"no device cuda:{ordinal}; {len(driver.devices)} found"))
            continue
        try:
            answer = run_probe("cuda_memory", action, str(ordinal))
            checks.append(Check(name, title, answer["status"], answer["detail"]))
        except ProbeError as error:
            checks.append(Check(name, title, "failed", str(error)))
    return checks
