"""What the doctor finds, as plain data; `Report.to_json` is the documented form."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Check", "Device", "Driver", "Library", "Report", "Status", "Verdict"]

#: ``ok`` and ``failed``: it was tried.  ``skipped``: it could not be tried, for the reason given.  ``info``: a fact.
Status = Literal["ok", "failed", "skipped", "info"]

#: Version of the JSON form; it changes when a key goes or changes its meaning.
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried or read.

    Attributes
    ----------
    name
        A stable key such as ``"memfd_share"``.
    title
        The same for people.
    status, detail
        How it went, and the value or the reason.
    """

    name: str
    title: str
    status: Status
    detail: str


@dataclass(frozen=True, slots=True)
class Device:
    """A CUDA device as the driver describes it; `memory` in bytes."""

    index: int
    name: str
    uuid: str
    compute_capability: str
    memory: int
    virtual_memory: bool
    export_fd: bool
    stream_write_64: bool


@dataclass(frozen=True, slots=True)
class Driver:
    """The CUDA driver, found or not; `version` is the newest CUDA it serves, such as ``"13.0"``."""

    found: bool
    file: str | None
    version: str | None
    error: str | None
    devices: tuple[Device, ...] = ()


@dataclass(frozen=True, slots=True)
class Library:
    """One NVIDIA library, found or missing.

    Attributes
    ----------
    name
        As users know it, such as ``"cuBLAS"``.
    file, version, cuda_major
        Where it is, what it says it is, and which CUDA it belongs to; None if missing or not told.
    packages
        The pip package that brings it, by extra: ``{"cu12": ..., "cu13": ...}``.
    error
        Why it is missing or cannot be used; None if it is fine.
    """

    name: str
    found: bool
    file: str | None
    version: str | None
    cuda_major: int | None
    packages: dict[str, str]
    error: str | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the chosen device and isolation can run here, with one line of reason."""

    ok: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """Everything the doctor found; see `to_json`."""

    device: str
    isolation: str
    versions: dict[str, str]
    driver: Driver
    libraries: tuple[Library, ...]
    checks: tuple[Check, ...]
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        """Return the documented form.

        Returns
        -------
        dict
            ``schema``: 1. ``device``, ``isolation``: what was asked about. ``versions``: atomr_native, python,
            executable, platform. ``driver``: `Driver`, with ``devices``. ``libraries``: a list of `Library`.
            ``checks``: a list of `Check`. ``verdict``: `Verdict`. The keys of each are the attributes of its class.
        """
        return {"schema": SCHEMA, **asdict(self)}
