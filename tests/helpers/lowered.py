"""Requests without a device: their specifications, and what their messages would allocate."""

from __future__ import annotations

from typing import Any

from atomr_native.arrays.operands import Fresh
from atomr_native.dtypes import DTYPES

__all__ = ["lowered"]


def lowered(request: Any) -> tuple[Any, ...]:
    """Return a request's specification, and shape and dtype of each array that its message allocates."""
    operands = request.lowered.operands
    fresh = [Fresh(o.spec.shape, DTYPES[o.spec.dtype]) for o in operands if o.given is None]
    return request.lowered.spec(), *fresh
