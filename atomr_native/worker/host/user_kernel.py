"""Launches of users' kernels on the host device: by Numba's simulator, one at a time."""

from __future__ import annotations

import base64
import collections
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

    def run(arrays: tuple[np.ndarray[Any, Any], ...], words: tuple[float | int, ...]) -> None:
        def value(kind: str, *what: Any, inner: bool = False) -> Any:
            if kind == "array":
                index, record = what
                array = arrays[index]
                array = array if record is None else array.view(record_dtype(record))[..., 0]
                return _numba_simulator.simulated_array(array, inner=inner)
            if kind == "record":
                return arrays[what[0]].view(record_dtype(what[1]))[0]
            if kind == "tuple":
                items, named = what
                members = [value(*one, inner=True) for one in items]
                return collections.namedtuple(*named)(*members) if named else tuple(members)
            return _value(words, *what)

        arguments = [value(*one) for one in spec["parameters"]]
        try:
            with _one:
                kernel[grid, block, 0, shared](*arguments)  # type: ignore[index]
        except Exception as error:
            place = _numba_simulator.place(kernel, error)
            raise (type(error)(f"{error}, at {place}") if place else error) from None

    return run
