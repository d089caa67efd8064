"""Messages of each library's operations, for the test that records every operation once.

A library has its own in ``tests/libraries/<name>/recorded_cases.py``: a module with ``CASES``, and where needed

``ARRAYS``
    Arrays of its own, as in `ARRAYS` here.
``NOT_ON_FAKE``, ``STEPWISE``, ``MARKS``
    Names of cases that the fake driver cannot run; of cases that are not captured; and marks of pytest by name.
``NEVER``
    Operations that no recording holds.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import atomr_native as an

__all__ = ["ARRAYS", "SEED", "Case", "case", "durable_moments", "namespace", "of_libraries", "places", "values"]

#: Arrays by name: their shapes and dtypes.
ARRAYS: dict[str, tuple[tuple[int, ...], str]] = {
    "x": ((8, 8), "float32"), "y": ((8, 8), "float32"), "row": ((8,), "float32"), "other": ((8,), "float32"),
    "wide": ((8, 8), "float64"), "column": ((8,), "float64"), "half": ((8, 2), "float16"),
    "signal": ((64,), "float32"), "heads": ((1, 8, 2, 8), "float32"), "image": ((1, 2, 4, 4), "float32"),
    "filters": ((2, 2, 3, 3), "float32"), "group": ((2, 8, 2), "float32"), "narrow": ((1, 2, 4, 8), "float16"),
    "crowd": ((32, 32), "float16"), "weights": ((4,), "float32"), "sounds": ((3, 1, 2), "float32"),
    "steps": ((2, 1, 1), "float32"), "entries": ((36,), "float64"), "definite": ((64,), "float64"),
}  # fmt: skip
PLACES = np.array([3, 0, 7, 1, 6, 2, 5, 4])


def values(name: str, seed: int) -> np.ndarray[Any, Any]:
    """Return small numbers above 0, so that every operation is defined; another seed gives others."""
    shape, dtype = ARRAYS[name]
    rng = np.random.default_rng([seed, *name.encode()])
    found = rng.integers(1, 9, shape) / 4
    if name in ("x", "y", "wide"):  # far from singular
        found = found + 8 * np.eye(len(found))
    elif name == "definite":
        found = (np.ones((8, 8)) + np.diag(8 * found[:8])).ravel()
    return found.astype(dtype)


@dataclass(frozen=True)
class Case:
    """One message, or a few: `call` gets the device, what `prepare` has made, the arrays, and the numbers by name."""

    call: Callable[..., Any]
    arrays: str
    numbers: tuple[tuple[str, tuple[float, float]], ...] = ()
    prepare: Callable[[an.Device], Any] = lambda _: None


def case(call: Callable[..., Any], arrays: str, prepare: Any = lambda _: None, **numbers: tuple[float, float]) -> Case:
    """Return a case: `arrays` are names, and numbers have their values for two messages."""
    return Case(call, arrays, tuple(numbers.items()), prepare)


#: Numbers of random operations.
SEED: dict[str, tuple[float, float]] = {"seed": (3, 2**40 + 5), "offset": (0, 7)}


def places(device: an.Device) -> an.GpuRef:
    """Return an array of indices."""
    return device.put(PLACES)


def durable_moments(device: an.Device) -> tuple[an.GpuRef, an.GpuRef]:
    """Return the state of an optimizer, which messages change."""
    return device.zeros(8, "float32", durable=True), device.zeros(8, "float32", durable=True)


def namespace(device: an.Device) -> Any:
    """Return the functions of the array API standard."""
    return device.zeros(1).__array_namespace__()


@cache
def of_libraries() -> dict[str, ModuleType]:
    """Return the modules of all libraries, by name."""
    found = {}
    for path in sorted((Path(__file__).parents[1] / "libraries").glob("*/recorded_cases.py")):
        name = path.parent.name
        spec = importlib.util.spec_from_file_location(f"recorded_cases_{name}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        ARRAYS.update(getattr(module, "ARRAYS", {}))
        found[name] = module
    return found
