"""The uses of the package, and the extra that each one lacks."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from .._support.extras import CUDA, command
from ..libraries import LIBRARIES
from .model import Driver, Library, Purpose

__all__ = ["PURPOSES", "find_purposes"]

#: Use: display title, extra, and the pip packages that it needs.
PURPOSES: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "kernels": ("Numba kernels and custom epilogues on host", "kernels", ("numba-cuda",)),
    "demo": ("the demo", "demo", ("matplotlib", "scikit-learn")),
    "examples": ("the examples", "examples", ("matplotlib", "numba-cuda", "scikit-learn", "uvicorn")),
    "observe": ("Prometheus, OpenTelemetry, NVTX", "observe", ("nvtx", "opentelemetry-api", "prometheus-client")),
}
#: The packages that a GPU needs beside NVIDIA's libraries.
_GPU: Final = ("cuda-bindings", "cuda-core", "numba-cuda")
#: NVIDIA's libraries without an actor that kernels of all kinds need.
_COMPILERS: Final = ("NVRTC", "nvJitLink")


def find_purposes(driver: Driver, libraries: tuple[Library, ...]) -> tuple[Purpose, ...]:
    """Return each use with the packages that it lacks; imports none of them.

    Parameters
    ----------
    driver
        From `find_driver`; it decides between the extras for CUDA 12 and 13.
    libraries
        From `find_libraries`.
    """
    found = [
        _purpose(name, title, extra, [package for package in packages if not _installed(package)])
        for name, (title, extra, packages) in PURPOSES.items()
    ]
    driven = {native.title for library in LIBRARIES.values() for native in library.native}
    missing = [package for package in _GPU if not _installed(package)]
    missing += [library.name for library in libraries if not library.found and library.name in {*driven, *_COMPILERS}]
    newest, *older = CUDA
    extra = older[0] if (driver.version or "").startswith("12.") else newest
    return (*found, _purpose("gpu", "a GPU with its driver", extra, missing))


def _purpose(name: str, title: str, extra: str, missing: list[str]) -> Purpose:
    return Purpose(name, title, extra, tuple(missing), command(extra) if missing else None)


def _installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
