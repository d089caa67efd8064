"""Copies between devices of one System: a message of both, ordered by data on each.

Bytes cross as they are, and each device arranges its own memory.  A GPU that reaches the other one's memory copies
them from there; between all others they pass through shared memory in pieces.  The sender waits for neither device, but
for a worker that maps a segment of the other GPU for the first time.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from .._lib.sender import VOLATILE
from ..arrays.gpu_ref import GpuRef
from ..arrays.layout import layout_of
from ..arrays.operands import broadcast_shapes
from ..dtypes import as_dtype, dtype_name
from ..errors import InvalidRequest, Unsupported
from .quick_copies import QuickCopy

if TYPE_CHECKING:
    from .owner import SharingDevice

__all__ = ["copy_across"]

_QUICK: Final = 256  # that a device remembers


def copy_across(target: SharingDevice, source: GpuRef, out: GpuRef | None, dtype: object, pool: int) -> GpuRef:
    """Copy an array of another device to `target`; see `Device.copy`."""
    if out is not None and dtype is None:
        quick = target.quick_copies.get((source.layout, source.allocation.core))
        if quick is not None:
            quick.send(source, out)
            return out
    return _copy(target, source, out, dtype, pool)


def _copy(target: SharingDevice, source: GpuRef, out: GpuRef | None, dtype: object, pool: int) -> GpuRef:
    if (
        dtype is not None
        or type(out) is not GpuRef
        or out.layout is not source.layout
        or out.allocation.core is not target.core
    ):
        _check(target, source, out, dtype)
    else:
        source.allocation.refuse_gone()
        out.allocation.refuse_gone()
    owner: SharingDevice = source.allocation.core.owner
    if not source.layout.contiguous:
        source = owner.memory.copy(source, None, None, VOLATILE)
    pair = target.pair(owner.device)
    layout = layout_of(source.shape, source.dtype)
    same = out is None and (dtype is None or as_dtype(dtype) == source.dtype)
    if out is not None and out.layout == layout:
        near = out
    else:
        near = target.core.empty(GpuRef, layout, pool if same else VOLATILE)
    if source.nbytes:
        reached = _reached(target, source)
        pair.copy(source, reached, near)
        if near is out and pool == VOLATILE:
            _remember(target, source, pair, reached is not None)
    return near if same or near is out else target.memory.copy(near, out, dtype, pool)


def _remember(target: SharingDevice, source: GpuRef, pair: Any, direct: bool) -> None:
    known, key = target.quick_copies, (source.layout, source.allocation.core)
    if key in known:
        return
    if len(known) >= _QUICK:
        known.clear()
    slowly = partial(_copy, target, dtype=None, pool=VOLATILE)
    known[key] = QuickCopy(target, source, pair, direct, slowly)


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


def _reached(target: SharingDevice, source: GpuRef) -> GpuRef | None:
    """Return the source's memory as the target's GPU reaches it; None if it does not."""
    owner: SharingDevice = source.allocation.core.owner
    if not (target.exports.on_gpu and owner.exports.on_gpu):
        return None
    try:
        return target.imports.reach(source)
    except Unsupported:
        return None
