"""Copies between devices of one System."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._lib.sender import VOLATILE
from ..arrays.gpu_ref import GpuRef
from ..arrays.layout import layout_of
from ..arrays.operands import broadcast_shapes
from ..dtypes import as_dtype, dtype_name
from ..errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from .owner import SharingDevice

__all__ = ["copy_across"]


def copy_across(target: SharingDevice, source: GpuRef, out: GpuRef | None, dtype: object, pool: int) -> GpuRef:
    """Copy an array of another device to `target`; see `Device.copy`."""
    _check(target, source, out, dtype)
    owner: SharingDevice = source.allocation.core.owner
    if target.kind == owner.kind == "host":
        return _between_hosts(target, source, out, dtype, pool)
    source.wait()
    made = _between_gpus(target, source, out, dtype, pool)
    if made is None:
        made = target.memory.put(_on_host(source, out), dtype, out, pool)
    return made.wait()


def _check(target: SharingDevice, source: GpuRef, out: GpuRef | None, dtype: object) -> None:
    """Refuse impossible copies, before any wait."""
    wanted = as_dtype(dtype) if dtype is not None else None
    source.allocation.refuse_gone()
    if out is not None:
        if not hasattr(out, "allocation") or out.allocation.core is not target.core:
            raise InvalidRequest(f"out must be a GpuRef of {target.name}, to which the copy goes")
        out.allocation.refuse_gone()
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


def _between_hosts(target: SharingDevice, source: GpuRef, out: GpuRef | None, dtype: object, pool: int) -> GpuRef:
    """Enqueue a copy that both workers meet for.  Contiguous bytes cross; each side arranges its own memory."""
    owner: SharingDevice = source.allocation.core.owner
    if not source.layout.contiguous:
        source = owner.memory.copy(source, None, None, VOLATILE)
    pair = target.pair(owner.device)
    to = pair.rank_of(target.device)
    layout = layout_of(source.shape, source.dtype)
    if out is not None and out.layout == layout:
        near: GpuRef = pair.send(source, to, out)
        return near
    same = out is None and (dtype is None or as_dtype(dtype) == source.dtype)
    near = pair.send(source, to, target.core.empty(GpuRef, layout, pool if same else VOLATILE))
    return near if same else target.memory.copy(near, out, dtype, pool)


def _between_gpus(target: SharingDevice, source: GpuRef, out: GpuRef | None, dtype: object, pool: int) -> GpuRef | None:
    """Send a copy that reads the other GPU's memory; return None if that is impossible."""
    owner: SharingDevice = source.allocation.core.owner
    if not (target.exports.on_gpu and owner.exports.on_gpu and source.size):
        return None
    try:
        near = target.imports.borrow(source)
    except Unsupported:
        return None
    return target.memory.copy(near, out, dtype, pool)


def _on_host(source: GpuRef, out: GpuRef | None) -> np.ndarray[Any, Any]:
    """Return an array in host memory: the source itself if it is mapped here, otherwise a copy."""
    owner: SharingDevice = source.allocation.core.owner
    exports = owner.exports
    array = source.numpy() if exports.on_gpu else exports.array(source)
    return array if out is None else np.broadcast_to(array, out.shape)
