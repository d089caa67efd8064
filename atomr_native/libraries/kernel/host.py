"""Launches of users' kernels on the host device, by Numba's simulator: one launch at a time."""

from __future__ import annotations

import collections
import pickle
import threading
from typing import Any

import numpy as np

from ...builders.context import Built, HostContext
from ...errors import InvalidRequest
from ...plans.spec import PlanSpec
from .attributes import (
    ArrayParameter,
    KernelAttributes,
    Parameter,
    PickledKernel,
    RecordParameter,
    ScalarParameter,
    TupleParameter,
)
from .spec import record_dtype

__all__ = ["build_kernel"]

_simulator_lock = threading.Lock()  # the simulator runs a single launch per process


def _value(words: tuple[float | int, ...], index: int, kind: str) -> Any:
    if kind.startswith("complex"):
        return np.dtype(kind).type(complex(words[index], words[index + 1]))
    if kind == "int64":
        return int(words[index])
    if kind == "bool":
        return bool(words[index])
    if kind == "uint64":
        return np.uint64(int(words[index]) % 2**64)
    return np.dtype(kind).type(words[index])


def build_kernel(spec: PlanSpec[KernelAttributes], _context: HostContext) -> Built:
    """Build ``kernel.*`` from the pickled function."""
    from ...compile.numba import simulator

    launch = spec.attributes
    if not isinstance(launch.kernel, PickledKernel):
        raise InvalidRequest(f"{spec.op!r} comes as machine code; allowed on the host device: Python")
    kernel = simulator.simulated(pickle.loads(launch.kernel.function.data))  # noqa: S301 - from the parent
    grid, block, shared = launch.grid, launch.block, launch.shared

    def run(arrays: tuple[np.ndarray[Any, Any], ...], words: tuple[float | int, ...]) -> None:
        def value(parameter: Parameter, *, inner: bool = False) -> Any:
            match parameter:
                case ArrayParameter(operand=index, record=record):
                    array = arrays[index]
                    array = array if record is None else array.view(record_dtype(record))[..., 0]
                    return simulator.simulated_array(array, inner=inner)
                case RecordParameter(operand=index, dtype=dtype):
                    return arrays[index].view(record_dtype(dtype))[0]
                case TupleParameter(items=items, named=named):
                    members = [value(item, inner=True) for item in items]
                    return collections.namedtuple(*named)(*members) if named else tuple(members)
                case ScalarParameter(scalar=index, dtype=kind):
                    return _value(words, index, kind)
            raise InvalidRequest(f"{parameter!r} of {spec.op!r}; allowed on the host device: arrays, structs, numbers")

        arguments = [value(parameter) for parameter in launch.parameters]
        try:
            with _simulator_lock:
                kernel[grid, block, 0, shared](*arguments)  # type: ignore[index]
        except Exception as error:
            place = simulator.place(kernel, error)
            raise (type(error)(f"{error}, at {place}") if place else error) from None

    return Built(run)
