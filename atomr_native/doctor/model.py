"""The doctor's findings as plain data; `Report.to_json` is the documented form."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Check", "Device", "Driver", "Library", "Purpose", "Report", "Status", "Verdict"]

#: ``ok`` and ``failed``: tested.  ``skipped``: not testable, with the reason.  ``info``: a fact.
Status = Literal["ok", "failed", "skipped", "info"]

#: Version of the JSON form; it changes when a key is removed or changes its meaning.
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Check:
    """One test or fact.

    Attributes
    ----------
    name
        A stable key such as ``"memfd_share"``.
    title
        Display title.
    status, detail
        The outcome, and the value or the reason.
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
        Display name, such as ``"cuBLAS"``.
    file, version, cuda_major
        Its file, its version, and its CUDA major; None if missing or unknown.
    packages
        Its pip package, by extra: ``{"cu12": ..., "cu13": ...}``.
    error
        The reason why it is missing or unusable; None if it is fine.
    """

    name: str
    found: bool
    file: str | None
    version: str | None
    cuda_major: int | None
    packages: dict[str, str]
    error: str | None


@dataclass(frozen=True, slots=True)
class Purpose:
    """A use of the package, and the packages that it lacks here.

    Attributes
    ----------
    name
        A stable key: ``"kernels"``, ``"demo"``, ``"examples"``, ``"observe"`` or ``"gpu"``.
    title
        Display title.
    extra
        The extra that brings its packages.
    missing
        The missing packages and libraries; empty if it has all.
    install
        The command that installs them, in a clone of the repository; None if nothing is missing.
    """

    name: str
    title: str
    extra: str
    missing: tuple[str, ...]
    install: str | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the chosen device and isolation can run here, with the reason in one line."""

    ok: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """All findings of the doctor; see `to_json`."""

    device: str
    isolation: str
    versions: dict[str, str]
    driver: Driver
    libraries: tuple[Library, ...]
    purposes: tuple[Purpose, ...]
    checks: tuple[Check, ...]
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        """Return the documented form.

        Returns
        -------
        dict
            ``schema``: 1.  ``device``, ``isolation``: the subject of the verdict.  ``versions``: atomr_native, python,
            executable, platform. ``driver``: `Driver`, with ``devices``. ``libraries``: a list of `Library`.
            ``purposes``: a list of `Purpose`. ``checks``: a list of `Check`. ``verdict``: `Verdict`. The keys of each
            are the attributes of its class.
        """
        return {"schema": SCHEMA, **asdict(self)}
