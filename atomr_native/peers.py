"""Copies between devices of one System."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._operands import broadcast_shapes
from .dtypes import as_dtype, dtype_name
from .errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from .device import Device
    from .gpu_ref import GpuRef

__all__ = ["copy_across"]


def copy_across(target: Device, source: GpuRef, out: GpuRef | None, dtype: object, pool: int) -> GpuRef:
    """Copy an array of another device to `target`, and wait for that; see `Device.copy`."""
    _check(target, source, out, dtype)
    source.wait()
    made = _between_gpus(target, source, out, dtype, pool)
    if made is None:
        made = target._memory.transfers.put(_on_host(source, out), dtype, out, pool, blocking=True)
    return made.wait()


def _check(target: Device, source: GpuRef, out: GpuRef | None, dtype: object) -> None:
    """Refuse what no copy could do, before anything is waited for."""
    wanted = as_dtype(dtype) if dtype is not None else None
    if out is not None:
        if not hasattr(out, "allocation") or out.device is not target:
            raise InvalidRequest(f"out must be a GpuRef of {target.name}, to which the copy goes")
        shapes = (("src", source.shape), ("out", out.shape))
        if broadcast_shapes(shapes, "src and out") != out.shape:
            raise InvalidRequest(
                f"src of shape {source.shape} does not fit out of shape {out.shape}; allowed: {out.shape}"
            )
        if wanted is not None and wanted != out.dtype:
            raise InvalidRequest(f"dtype {dtype_name(wanted)} and an out of {out.layout!r}; give one of them")
        wanted = out.dtype
    if wanted is not None and source.dtype.kind == "c" and wanted.kind != "c":
        raise InvalidRequest(
            f"src is {dtype_name(source.dtype)} and the copy {dtype_name(wanted)}: the imaginary part would be lost; "
            f"allowed: complex64, complex128"
        )


def _between_gpus(target: Device, source: GpuRef, out: GpuRef | None, dtype: object, pool: int) -> GpuRef | None:
    """Send a copy that reads the other GPU's memory; None where that is not possible."""
    if not (target._exports.on_gpu and source.device._exports.on_gpu and source.size):
        return None
    try:
        near = target._foreign.borrow(source)
    except Unsupported:
        return None
    return target._memory.copy(near, out, dtype, pool)


def _on_host(source: GpuRef, out: GpuRef | None) -> np.ndarray[Any, Any]:
    """Return an array in host memory: the source's own where that is mapped here, else a copy."""
    exports = source.device._exports
    array = source.numpy() if exports.on_gpu else exports.array(source)
    return array if out is None else np.broadcast_to(array, out.shape)
