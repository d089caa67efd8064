"""Load one NVIDIA library and ask its version; its argument is the library's key; writes one JSON object.

One process per library, so two CUDA majors never meet in one process.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

Version = tuple[int, ...]


class Loaded(NamedTuple):
    """A loaded library, its version and its file."""

    lib: ctypes.CDLL
    version: Version
    path: str | None


def by_property(symbol: str) -> Callable[[ctypes.CDLL], Version]:
    """Version through an ``xGetProperty(libraryPropertyType, int*)``."""

    def read(lib: ctypes.CDLL) -> Version:
        parts = []
        for number in range(3):
            value = ctypes.c_int()
            if status := getattr(lib, symbol)(number, ctypes.byref(value)):
                raise OSError(f"{symbol} returned {status}")
            parts.append(value.value)
        return tuple(parts)

    return read


def by_number(symbol: str) -> Callable[[ctypes.CDLL], Version]:
    """Version through a ``size_t xGetVersion(void)`` that returns major * 10000 + minor * 100 + patch."""

    def read(lib: ctypes.CDLL) -> Version:
        function = getattr(lib, symbol)
        function.restype = ctypes.c_size_t
        return split(function())

    return read


def by_pair(symbol: str) -> Callable[[ctypes.CDLL], Version]:
    """Version through an ``xVersion(int* major, int* minor)``."""

    def read(lib: ctypes.CDLL) -> Version:
        major, minor = ctypes.c_int(), ctypes.c_int()
        if status := getattr(lib, symbol)(ctypes.byref(major), ctypes.byref(minor)):
            raise OSError(f"{symbol} returned {status}")
        return major.value, minor.value

    return read


def by_pointer(symbol: str, read_number: Callable[[int], Version]) -> Callable[[ctypes.CDLL], Version]:
    """Version through an ``xGetVersion(int*)``."""

    def read(lib: ctypes.CDLL) -> Version:
        value = ctypes.c_int()
        if status := getattr(lib, symbol)(ctypes.byref(value)):
            raise OSError(f"{symbol} returned {status}")
        return read_number(value.value)

    return read


def split(number: int) -> Version:
    """Split major * 10000 + minor * 100 + patch."""
    return number // 10000, number // 100 % 100, number % 100


def split_cuda(number: int) -> Version:
    """Split major * 1000 + minor * 10."""
    return number // 1000, number // 10 % 100


def own(loaded: Loaded) -> int | None:
    """Return the library's major version, which is CUDA's."""
    return loaded.version[0]


def untold(_loaded: Loaded) -> int | None:
    """Return nothing: both CUDA majors have libraries of the same version and file name."""
    return None


def from_version(first_of_13: Version, first_of_12: Version) -> Callable[[Loaded], int | None]:
    """Derive CUDA's major from the library's version numbers."""

    def read(loaded: Loaded) -> int | None:
        if loaded.version >= first_of_13:
            return 13
        return 12 if loaded.version >= first_of_12 else None

    return read


def by_cudart(symbol: str) -> Callable[[Loaded], int | None]:
    """Derive CUDA's major from the CUDA runtime that the library was built with."""

    def read(loaded: Loaded) -> int | None:
        function = getattr(loaded.lib, symbol)
        function.restype = ctypes.c_size_t
        return int(function()) // 1000

    return read


def by_text(loaded: Loaded) -> int | None:
    """Derive CUDA's major from the ``+cuda13.0`` in the library's version text."""
    if loaded.path is None:
        return None
    with Path(loaded.path).open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
        found = content.find(b"+cuda")
        digits = content[found + 5 : found + 7] if found >= 0 else b""
    return int(digits) if digits.isdigit() else None


#: Key: cuda-pathfinder's name, fallback sonames, version, CUDA major.
LIBRARIES = {
    "cublas": ("cublas", ("libcublas.so.13", "libcublas.so.12"), by_property("cublasGetProperty"), own),
    "cublaslt": ("cublasLt", ("libcublasLt.so.13", "libcublasLt.so.12"), by_number("cublasLtGetVersion"), own),
    "cudnn": ("cudnn", ("libcudnn.so.9",), by_number("cudnnGetVersion"), by_cudart("cudnnGetCudartVersion")),
    "cudss": ("cudss", ("libcudss.so.1",), by_property("cudssGetProperty"), untold),
    "cufft": (
        "cufft", ("libcufft.so.12", "libcufft.so.11"), by_property("cufftGetProperty"), from_version((12,), (11,)),
    ),
    "cusolver": (
        "cusolver", ("libcusolver.so.12", "libcusolver.so.11"), by_property("cusolverGetProperty"),
        from_version((12,), (11,)),
    ),
    "cusparse": (
        "cusparse", ("libcusparse.so.12",), by_property("cusparseGetProperty"), from_version((12, 6), (12,)),
    ),
    "cusparselt": ("cusparseLt", ("libcusparseLt.so.0",), by_property("cusparseLtGetProperty"), untold),
    "cutensor": (
        "cutensor", ("libcutensor.so.2",), by_number("cutensorGetVersion"), by_cudart("cutensorGetCudartVersion"),
    ),
    "curand": ("curand", ("libcurand.so.10",), by_property("curandGetProperty"), from_version((10, 4), (10, 3))),
    "nccl": ("nccl", ("libnccl.so.2",), by_pointer("ncclGetVersion", split), by_text),
    "nvrtc": ("nvrtc", ("libnvrtc.so.13", "libnvrtc.so.12"), by_pair("nvrtcVersion"), own),
    "nvjitlink": ("nvJitLink", ("libnvJitLink.so.13", "libnvJitLink.so.12"), by_pair("nvJitLinkVersion"), own),
    "cudart": (
        "cudart", ("libcudart.so.13", "libcudart.so.12"), by_pointer("cudaRuntimeGetVersion", split_cuda), own,
    ),
}  # fmt: skip


def mapped_file(soname: str) -> str | None:
    """Return the mapped file of a soname."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.partition("/")[2]
        if f"/{path}".rpartition("/")[2].startswith(soname):
            return f"/{path}"
    return None


def load(name: str, sonames: tuple[str, ...]) -> tuple[ctypes.CDLL, str | None]:
    """Load a library from cuda-pathfinder's path, or by soname; return it and its file."""
    reason = f"not installed: looked for {', '.join(sonames)}"
    try:
        from cuda import pathfinder
    except ImportError:
        reason = f"{reason}; cuda-pathfinder is not installed"
    else:
        try:
            path = pathfinder.load_nvidia_dynamic_lib(name).abs_path
            if path is not None:
                return ctypes.CDLL(path), path
        except (pathfinder.DynamicLibNotFoundError, pathfinder.DynamicLibUnknownError) as error:
            # It looks for the library's dependencies first, and names a missing one.
            reason = f"not installed, or a library that it needs is not: {(str(error).splitlines() or ['?'])[0]}"
    for soname in sonames:
        try:
            return ctypes.CDLL(soname), mapped_file(soname)
        except OSError:
            continue
    raise LookupError(reason)


def main() -> None:
    """Write the findings."""
    name, sonames, version_of, major_of = LIBRARIES[sys.argv[1]]
    found: dict[str, object] = {"found": False, "file": None, "version": None, "cuda_major": None, "error": None}
    try:
        lib, path = load(name, sonames)
        found.update(found=True, file=path)
        version = version_of(lib)
        found.update(version=".".join(map(str, version)), cuda_major=major_of(Loaded(lib, version, path)))
    except LookupError as error:
        found["error"] = str(error)
    except (OSError, AttributeError) as error:
        found["error"] = str(error)
    sys.stdout.write("\n" + json.dumps(found))
