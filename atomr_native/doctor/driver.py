"""The CUDA driver, its devices, and the capabilities of their memory; all queried in other processes."""

from __future__ import annotations

from .model import Check, Device, Driver
from .subprocesses import ProbeError, run_probe

__all__ = ["cuda_checks", "find_driver"]

_CHECKS = {
    "cuda_memfd_register": ("memfd page registered with CUDA", "register"),
    "cuda_export_import": ("CUDA memory exported and imported", "export"),
}


def find_driver() -> Driver:
    """Return the CUDA driver's description of itself and its devices; this process loads no library."""
    try:
        answer = run_probe("cuda_driver")
    except ProbeError as error:
        return Driver(found=False, file=None, version=None, error=str(error))
    devices = tuple(Device(**device) for device in answer.pop("devices"))
    return Driver(**answer, devices=devices)


def cuda_checks(driver: Driver, ordinal: int) -> list[Check]:
    """Test the runtime's requirements for device memory, or give the reason for skipping the tests.

    Parameters
    ----------
    driver
        From `find_driver`.
    ordinal
        The device to test; a context is created and released on it.
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
