"""Numba's simulator, which runs kernels on the CPU: for the host device, and for tests of shipped kernels.

One launch runs at a time in a process.  Threads of a block that may wait for each other are system threads; otherwise
one system thread runs them one after the other, which is several times as fast.
"""

from __future__ import annotations

import linecache
import sys
import threading
import traceback
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

import numpy as np

from ..bytecode import all_code, all_names
from .api import (
    FakeCUDAArray,
    FakeCUDAKernel,
    FakeWithinKernelCUDAArray,
    cuda,
    kernelapi,
    libdevice,
    numba,
    simulator,
)
from .copies import members, simulated_copy
from .simulated_block import Block
from .simulated_cuda import MEETING, GpuOnly, SimulatedModule

__all__ = ["SharedMemory", "place", "simulated", "simulated_array"]

#: Members of `cuda` by which threads may wait for each other; a loop around an atomic operation is a lock.
_MEETING: Final = frozenset(
    {
        "atomic", "cg", "shared", "syncthreads", "syncthreads_and", "syncthreads_count", "syncthreads_or",
        "threadfence", "threadfence_block", "threadfence_system",
    }
).union(MEETING)  # fmt: skip


def simulated(function: FunctionType) -> Callable[..., Any]:
    """Return a kernel that the simulator runs: ``simulated(f)[grid, block, 0, shared](*arguments)``.

    The function is copied with its device functions, so neither it nor its module changes.
    """
    kernel, functions = simulated_copy(function, _inside)
    kernel.__dict__["meets"] = any(map(_meets, functions))
    kernel.__dict__["codes"] = {part for one in functions for part in all_code(one.__code__)}
    return FakeCUDAKernel(kernel, device=False)  # type: ignore[no-any-return]


def place(kernel: Any, error: BaseException) -> str:
    """Return the line of a simulated kernel or its device functions that raised an error, or ""."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code in kernel.fn.codes:
            file = frame.f_code.co_filename
            found = f"{file}:{line}: {linecache.getline(file, line).strip()}".rstrip(": ")
    return found


def simulated_array(array: np.ndarray[Any, Any], *, inner: bool = False) -> Any:
    """Return an array for a simulated kernel: the memory itself, with any strides.

    The simulator wraps each argument; `inner` arrays, in tuples, need their own wrapper.
    """
    made = FakeCUDAArray(array)
    return FakeWithinKernelCUDAArray(made) if inner else made


class _Inside:
    """`cuda`, or a member of it, for the threads of the running launch.

    Numba's simulator replaces the module `cuda` only among a kernel's globals, not in closures, and not members
    imported from it.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def _found(self) -> Any:
        context = simulator._get_kernel_context()
        return getattr(context, self._name) if self._name else context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found(), name)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._found()(*arguments, **options)


class _Numba:
    """The module `numba`, for kernels that use `numba.cuda.grid`."""

    cuda = _Inside("")

    def __getattr__(self, name: str) -> Any:
        return getattr(numba, name)


_module: Final = _Numba.cuda
_numba_module: Final = _Numba()
_members: Final = {identity: _Inside(name) for identity, name in members.items()}


def _inside(value: Any) -> Any:
    if value is cuda:
        return _module
    if value is numba:
        return _numba_module
    if value is libdevice:
        return GpuOnly("cuda.libdevice")
    if isinstance(value, FunctionType) and value.__module__ == libdevice.__name__:
        return GpuOnly(f"cuda.libdevice.{value.__name__}")
    return _members.get(id(value), value)


def _meets(function: FunctionType) -> bool:
    """Whether the threads that run a copied function may depend on each other."""
    names = all_names(function.__code__)
    if not _MEETING.isdisjoint(names):
        return True
    values = [function.__globals__.get(name) for name in names]
    values += [cell.cell_contents for cell in function.__closure__ or ()]
    # A replacement of a GPU object that uses `cuda` is called by all threads.
    return any(
        isinstance(value, FakeCUDAKernel) or (isinstance(value, _Inside) and value._name in _MEETING)
        for value in values
    )


class SharedMemory(kernelapi.FakeCUDAShared):  # type: ignore[misc]
    """The shared memory of a simulated block.

    Numba's version looks up and creates an array in two steps, so two threads could get two arrays, and uses one array
    for all calls on a line.
    """

    def __init__(self, dynamic: int) -> None:
        super().__init__(dynamic)
        self._one = threading.Lock()

    def array(self, shape: Any, dtype: Any, alignment: int | None = None) -> np.ndarray[Any, Any]:  # noqa: ARG002 - of GPUs
        """Return the array of the calling place in the source."""
        dtype = _numpy_dtype(dtype)
        if shape == 0:  # dynamic shared memory, which already exists
            whole = self._dynshared_size // dtype.itemsize
            return _with_fields(np.frombuffer(self._dynshared.data, dtype, whole))
        frame = sys._getframe(1)
        place = frame.f_code, frame.f_lasti
        with self._one:
            made: np.ndarray[Any, Any] | None = self._allocations.get(place)
            if made is None:
                made = self._allocations[place] = _with_fields(np.empty(shape, dtype))
            return made


class LocalMemory(kernelapi.FakeCUDALocal):  # type: ignore[misc]
    """The local memory of a simulated thread."""

    def array(self, shape: Any, dtype: Any, alignment: int | None = None) -> np.ndarray[Any, Any]:  # noqa: ARG002 - of GPUs
        """Return a new array."""
        return _with_fields(np.empty(shape, _numpy_dtype(dtype)))


def _bare(value: Any) -> Any:
    """Return the object inside the simulator's wrapper of arrays and structs."""
    return value._item._ary if isinstance(value, FakeWithinKernelCUDAArray) else value


def _assign(array: Any, index: Any, value: Any) -> None:
    """Assign to elements, also a struct or an array of the simulator."""
    array._ary[index] = _bare(value)


class _Structs(np.recarray[Any, Any]):
    """Structs in shared or local memory."""

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(index, _bare(value))


def _with_fields(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array of structs with fields as attributes of its elements; other arrays unchanged."""
    return array.view(_Structs) if array.dtype.names else array


def _numpy_dtype(given: Any) -> np.dtype[Any]:
    """Return a dtype from Numba's type, NumPy's type, or its name."""
    found: Any = kernelapi.numpy_support.as_dtype(given) if isinstance(given, kernelapi.types.Type) else given
    made: np.dtype[Any] = np.dtype(found)
    return made


FakeCUDAArray.__setitem__ = _assign
kernelapi.FakeCUDAShared = SharedMemory
kernelapi.FakeCUDALocal = LocalMemory
simulator.BlockManager = Block
simulator.FakeCUDAModule = SimulatedModule
