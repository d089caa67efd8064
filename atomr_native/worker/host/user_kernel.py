"""Launches of users' kernels on the host device: by Numba's simulator, one at a time."""

from __future__ import annotations

import base64
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._kernel_spec import record_dtype

__all__ = ["build_kernel"]

_one = threading.Lock()  # the simulator knows one launch in a process


def _value(words: tuple[float | int, ...], index: int, kind: str) -> Any:
    if kind.startswith("complex"):
        return np.dtype(kind).type(complex(words[index], words[index + 1]))
    if kind == "int64":
        return int(words[index])
    if kind == "float64":
        return float(words[index])
    if kind == "bool":
        return bool(words[index])
    if kind == "uint64":
        return np.uint64(int(words[index]) % 2**64)
    return np.dtype(kind).type(words[index])


def build_kernel(spec: dict[str, Any]) -> Callable[..., None]:
    """Build ``kernel.*`` from the pickled function."""
    from ... import _numba_simulator

    kernel = _numba_simulator.simulated(pickle.loads(base64.b64decode(spec["function"])))  # noqa: S301 - from the parent
    grid, block, shared = tuple(spec["grid"]), tuple(spec["block"]), spec["shared"]
    records = {p[1]: record_dtype(p[2]) for p in spec["parameters"] if p[0] == "array" and p[2] is not None}

    def run(arrays: tuple[np.ndarray[Any, Any], ...], words: tuple[float | int, ...]) -> None:
        arguments: list[Any] = []
        for kind, *what in spec["parameters"]:
            if kind == "array":
                array = arrays[what[0]]
                array = array.view(records[what[0]])[..., 0] if what[0] in records else array
                arguments.append(_numba_simulator.simulated_array(array))
            elif kind == "record":
                arguments.append(arrays[what[0]].view(record_dtype(what[1]))[0])
            elif kind == "tuple":
                arguments.append(tuple(_value(words, index, name) for _, index, name in what[0]))
            else:
                arguments.append(_value(words, *what))
        try:
            with _one:
                kernel[grid, block, 0, shared](*arguments)  # type: ignore[index]
        except Exception as error:
            place = _numba_simulator.place(kernel, error)
            raise (type(error)(f"{error}, at {place}") if place else error) from None

    return run
