"""Numba's simulator, which runs kernels on the CPU."""

from __future__ import annotations

import sys
import threading
import types as python_types
from collections.abc import Callable
from typing import Any

import numpy as np

from ._numba import CPUDispatcher, FakeCUDAArray, FakeCUDAKernel, cuda, kernelapi
from ._numba_copies import SIMULATED, copied

__all__ = ["SharedMemory", "simulated", "simulated_array"]


def simulated(function: python_types.FunctionType) -> Callable[..., Any]:
    """Return a kernel that Numba's simulator runs on the CPU: ``simulated(f)[grid, block, 0, shared](*arguments)``.

    The function is copied with its device functions, so that neither it nor its module changes.  Slow: each thread of
    a block is a thread of the system.  One launch at a time in a process.
    """

    def again(copy: python_types.FunctionType, old: Any) -> Any:
        # What is for the CPU as well as for kernels (Numba's generators of random numbers) runs as plain Python.
        # So does what asks nothing of `cuda`, which is much quicker.
        plain = isinstance(old, CPUDispatcher) or not any(value is cuda for value in copy.__globals__.values())
        return copy if plain else FakeCUDAKernel(copy, device=True)

    return FakeCUDAKernel(copied(function, again, {}, SIMULATED), device=False)  # type: ignore[no-any-return]


def simulated_array(array: np.ndarray[Any, Any]) -> Any:
    """Return an array as a simulated kernel takes it: the memory itself, whatever its strides."""
    return FakeCUDAArray(array)


class SharedMemory(kernelapi.FakeCUDAShared):  # type: ignore[misc]
    """The shared memory of a simulated block.

    Numba's looks for an array and makes it in two steps, so that two threads could get two arrays for one.
    """

    def __init__(self, dynamic: int) -> None:
        super().__init__(dynamic)
        self._one = threading.Lock()

    def array(self, shape: Any, dtype: Any, alignment: int | None = None) -> np.ndarray[Any, Any]:
        """Return the array of the line from which this is called."""
        if alignment is not None or shape == 0:  # refused, and dynamic shared memory, which is there already
            return super().array(shape, dtype, alignment)  # type: ignore[no-any-return]
        frame = sys._getframe(1)
        line = frame.f_code.co_filename, frame.f_lineno
        if isinstance(dtype, kernelapi.types.Type):
            dtype = kernelapi.numpy_support.as_dtype(dtype)
        with self._one:
            made: np.ndarray[Any, Any] | None = self._allocations.get(line)
            if made is None:
                made = self._allocations[line] = np.empty(shape, dtype)
            return made


kernelapi.FakeCUDAShared = SharedMemory
