"""Kernels on the CPU: their source is C11 as well, so gcc compiles it, and fibers stand for the threads of a block."""

from __future__ import annotations

import ctypes
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from kernel_shim import available, compile_module

from atomr_native.builders.cuda.target import KernelProgram

__all__ = ["Emulator", "available"]

_CTYPES = {
    "float64": ctypes.c_double, "float32": ctypes.c_float, "int64": ctypes.c_longlong, "uint64": ctypes.c_ulonglong,
}  # fmt: skip
_Extents = ctypes.c_uint * 3


class Emulator:
    """Compiles programs for the CPU and runs them on NumPy arrays."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _library(self, program: KernelProgram) -> ctypes.CDLL:
        path = self.folder / f"{hashlib.sha256(program.source.encode()).hexdigest()[:24]}.so"
        if not path.exists():
            # To optimise would take longer than its few launches.
            path.write_bytes(compile_module(program.source, "-O0", str(self.folder)))
        return ctypes.CDLL(str(path))

    def run(self, program: KernelProgram, arrays: tuple[np.ndarray, ...], scalars: tuple[Any, ...] = ()) -> None:
        """Run a program on arrays in place."""
        workspace = np.full(program.workspace + 1, 0xA5, np.uint8)
        library = self._library(program)
        for launch in program.launches:
            values: list[Any] = []
            for kind, value in launch.arguments:
                if kind == "operand":
                    values.append(ctypes.c_void_p(arrays[value].ctypes.data))
                elif kind == "workspace":
                    values.append(ctypes.c_void_p(workspace.ctypes.data + value))
                else:
                    values.append(_CTYPES.get(kind, ctypes.c_longlong)(value if kind == "uint64" else scalars[value]))
            pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
            getattr(library, f"launch_{launch.function}")(pointers, _Extents(*launch.grid), _Extents(*launch.block))
