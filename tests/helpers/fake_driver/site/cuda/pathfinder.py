"""A stand-in for cuda.pathfinder: of all libraries there is the fake cuBLASLt, so that no real one is loaded."""

from __future__ import annotations

import os
from dataclasses import dataclass

__version__ = "1.7.0"


class DynamicLibNotFoundError(RuntimeError):
    """A library is not installed."""


class DynamicLibUnknownError(RuntimeError):
    """There is no library of this name."""


class DynamicLibNotAvailableError(DynamicLibNotFoundError):
    """A library is not made for this platform."""


@dataclass
class LoadedDL:
    """A library, as the real module describes it."""

    abs_path: str | None
    was_already_loaded_from_elsewhere: bool = False
    found_via: str = "fake"


def load_nvidia_dynamic_lib(libname: str) -> LoadedDL:
    if libname != "cublasLt":
        raise DynamicLibNotFoundError(f"there is no {libname} on the fake device")
    return LoadedDL(os.environ["ATOMR_NATIVE_CUBLASLT"])
