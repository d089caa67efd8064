"""The verdict on the chosen device and isolation; its final test is to run them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..runtime.addresses import address_of
from .model import Check, Driver, Verdict
from .subprocesses import ProbeError, run_probe

__all__ = ["judge", "needs", "round_trip"]

#: The folder from which this package was imported.
_FOLDER = Path(__file__).resolve().parents[2]
_THREAD = ("seals", "eventfd")
_PROCESS = ("memfd_share", "seals", "futex", "pidfd", "eventfd")
_CUDA = {"thread": ("cuda_memfd_register",), "process": ("cuda_memfd_register", "cuda_export_import")}


def needs(device: str, isolation: str) -> tuple[str, ...]:
    """Return the names of the checks that a device and isolation require."""
    kernel = _THREAD if isolation == "thread" else _PROCESS
    return kernel if address_of(device).kind == "host" else kernel + _CUDA[isolation]


def _first_obstacle(device: str, isolation: str, driver: Driver, checks: Iterable[Check]) -> str | None:
    address = address_of(device)
    if address.kind == "cuda":
        ordinal = address.number
        if ordinal >= len(driver.devices):
            found = ", ".join(f"cuda:{d.index} ({d.name})" for d in driver.devices) or "none"
            return f"no device {device}; CUDA devices found: {found}" + (f" ({driver.error})" if driver.error else "")
    by_name = {check.name: check for check in checks}
    for name in needs(device, isolation):
        check = by_name[name]
        if check.status != "ok":
            return f"{check.title}: {check.detail}"
    return None


def round_trip(device: str, isolation: str, driver: Driver, checks: Iterable[Check]) -> Check:
    """Start a System in another process and send an array there and back, unless a check has failed."""
    name, title = "round_trip", f"an array to {device} and back, isolation={isolation}"
    if obstacle := _first_obstacle(device, isolation, driver, checks):
        return Check(name, title, "skipped", obstacle)
    try:
        answer = run_probe("round_trip", device, isolation, str(_FOLDER))
    except ProbeError as error:
        return Check(name, title, "failed", str(error))
    return Check(name, title, answer["status"], answer["detail"])


def judge(device: str, isolation: str, trip: Check) -> Verdict:
    """Return the verdict from the round trip, which depends on every other check."""
    if trip.status == "ok":
        return Verdict(True, f"{device} with isolation={isolation} runs here")
    return Verdict(False, f"{device} with isolation={isolation} cannot run here: {trip.detail}")
