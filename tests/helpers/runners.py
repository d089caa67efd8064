"""Plans run over NumPy arrays: by the builders of the host device in this process, or through a device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import placements
import pytest
from placements import GPU
from plan_builds import build_host

import atomr_native as an
from atomr_native.arrays.layout import layout_from
from atomr_native.dtypes import dtype_name
from atomr_native.plans.spec import WRITE, PlanSpec

__all__ = ["ENGINES", "Runner", "make"]

#: Parameters of a fixture that calls `make`.
ENGINES = ("host", "fake", *GPU)

#: Rules of addresses that libraries of CUDA devices do not read.
_REFUSED = ("blas_lt.alignment",)

Arrays = tuple[np.ndarray[Any, Any], ...]


class Runner(Protocol):
    """Runs plans."""

    #: ``"host"``, ``"fake"`` or ``"gpu"``.
    engine: str

    def run(self, spec: PlanSpec, arrays: Arrays, scalars: tuple[Any, ...] = ()) -> None:
        """Run a plan, whose outputs are written in place."""


class HostRunner:
    """The host device's builders, without a device."""

    engine = "host"

    def run(self, spec: PlanSpec, arrays: Arrays, scalars: tuple[Any, ...] = ()) -> None:
        """Run a plan in this thread."""
        built = build_host(spec)
        assert callable(built.run)
        built.run(arrays, scalars)


class DeviceRunner:
    """A device: the bytes that an array spans go there, strides and all, and come back.

    An address that a CUDA device refuses, and the host takes, skips the test; no other Unsupported does.
    """

    def __init__(self, device: an.Device, engine: str) -> None:
        self.device = device
        self.engine = engine

    def run(self, spec: PlanSpec, arrays: Arrays, scalars: tuple[Any, ...] = ()) -> None:
        """Run a plan as a message, and wait for it."""
        placed = [self._put(array) for array in arrays]
        actor: Any = self.device.blas_lt if spec.op.startswith("blas_lt") else self.device.elementwise
        try:
            plan = actor._plan(spec, any_layout=True)
            plan.send(tuple(ref for ref, _ in placed), scalars, True).result(60)
        except an.Unsupported as error:
            if error.rule not in _REFUSED:
                raise
            pytest.skip(str(error))
        for operand, array, (_, buffer) in zip(spec.operands, arrays, placed, strict=True):
            if operand.access & WRITE and array.size:
                _bytes(array)[...] = buffer.numpy()

    def _put(self, array: np.ndarray[Any, Any]) -> tuple[an.GpuRef, an.GpuRef]:
        layout = layout_from(array.shape, array.strides, dtype_name(array.dtype))
        if not array.size:
            buffer = self.device.empty((1,), "uint8")
            return buffer.view_as(layout, 0), buffer
        buffer = self.device.put(_bytes(array))
        return buffer.view_as(layout, 0), buffer


def _bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the bytes from the first to the last that belongs to an array; no stride is negative."""
    first, end = np.lib.array_utils.byte_bounds(array)
    assert first == array.__array_interface__["data"][0]
    return np.asarray(_Memory(array, first, end - first))


class _Memory:
    """Memory of an array, for NumPy."""

    def __init__(self, owner: np.ndarray[Any, Any], address: int, nbytes: int) -> None:
        self.owner = owner
        interface = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}
        self.__array_interface__ = interface


def make(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """Make the runner that a fixture's parameter names; skips where it cannot be."""
    if request.param == "host":
        yield HostRunner()
        return
    with placements.resolve(request).system(standby="off") as system:
        yield DeviceRunner(system.device(), request.param)
