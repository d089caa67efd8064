"""Products of the namespace, by ``device.blas_lt``; each enqueues, and casts first where dtypes differ."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.gpu_ref import GpuRef
from ..dtypes import dtype_name
from ..errors import InvalidRequest, Unsupported
from ._manipulation import broadcast_arrays, moveaxis, reshape
from ._operands import as_axis, as_type, cast_to, forward, handle

__all__ = ["matmul", "outer", "tensordot", "vecdot"]

_DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
#: Products of integers up to which they are made one by one, and then summed: 128 MiB of int64.
_PRODUCTS = 1 << 24


def matmul(x1: GpuRef, x2: GpuRef, /) -> GpuRef:
    """Return the matrix product, as NumPy's: vectors are rows or columns, leading axes are batches.

    Raises
    ------
    InvalidRequest
        For arrays without axes, shapes that do not fit, Booleans and float8.
    Unsupported
        For large products of integers, which no matrix routine of the device takes: ``x.astype("float64") @ y``, or
        ``device.blas_lt.matmul`` for int8 with sums in int32.
    """
    a, b = handle("matmul", x1), handle("matmul", x2)
    if not a.ndim or not b.ndim:
        raise InvalidRequest(f"matmul of shapes {a.shape} and {b.shape}; allowed: one axis or more; x * y for numbers")
    dtype = as_type(a, b)
    if dtype_name(dtype) not in _DTYPES and dtype.kind not in "iu":
        allowed = f"{', '.join(_DTYPES)}, integers"
        raise InvalidRequest(f"matmul of {dtype_name(a.dtype)} and {dtype_name(b.dtype)}; allowed: {allowed}")
    rows, columns = a.ndim == 1, b.ndim == 1
    if a.shape[-1] != b.shape[0 if columns else -2]:
        raise InvalidRequest(f"matmul of shapes {a.shape} and {b.shape}; allowed: the last extent of the first, "
                             f"{a.shape[-1]}, in the second")  # fmt: skip
    a, b = forward(cast_to(a, dtype)), forward(cast_to(b, dtype))
    made = _product(a[None] if rows else a, b[:, None] if columns else b)
    shape = made.shape[: made.ndim - 2]
    shape += () if rows else made.shape[-2:-1]
    shape += () if columns else made.shape[-1:]
    return made if shape == made.shape else made.reshape(shape)


def _product(a: GpuRef, b: GpuRef) -> GpuRef:
    """Return the product of matrices, also of none."""
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise InvalidRequest(f"matmul of shapes {a.shape} and {b.shape}: their leading axes do not broadcast") from None
    shape = (*batch, a.shape[-2], b.shape[-1])
    if not math.prod(shape) or not a.shape[-1]:
        return a.device.full(shape, 0, a.dtype)
    if a.dtype.kind in "iu":
        return _integers(a, b, math.prod(shape) * a.shape[-1])
    made: GpuRef = a.device.blas_lt.matmul(a, b)
    return made


def _integers(a: GpuRef, b: GpuRef, count: int) -> GpuRef:
    """Return the product of small matrices of integers, by all products of elements and their sums."""
    if count > _PRODUCTS:
        raise Unsupported(
            f"matmul of shapes {a.shape} and {b.shape} of {dtype_name(a.dtype)} is {count} products of integers, for "
            f"which there is no matrix routine; allowed: {_PRODUCTS}, x.astype('float64') @ y, or for int8 "
            f"device.blas_lt.matmul",
            rule="array_api.integers",
        )
    products = a[..., None] * b[..., None, :, :]
    made: GpuRef = a.device.elementwise.reduce("sum", products, products.ndim - 2)
    return cast_to(made, a.dtype)


def vecdot(x1: GpuRef, x2: GpuRef, /, *, axis: int = -1) -> GpuRef:
    """Return the dot products of vectors along an axis, the first conjugated if complex.  Two messages."""
    a, b = handle("vecdot", x1), handle("vecdot", x2)
    shared = min(a.ndim, b.ndim)
    if shared < 1 or isinstance(axis, bool) or not -shared <= axis < shared:
        raise InvalidRequest(f"vecdot with axis={axis!r} of shapes {a.shape} and {b.shape}; allowed: -1 to {-shared}")
    if a.shape[axis] != b.shape[axis]:
        raise InvalidRequest(f"vecdot of shapes {a.shape} and {b.shape}; allowed: equal extents along axis {axis}")
    dtype = as_type(a, b)
    a, b = broadcast_arrays(moveaxis(a, axis, -1), moveaxis(b, axis, -1))
    products: GpuRef = a.device.elementwise.run("conj(x) * y" if a.dtype.kind == "c" else "x * y", x=a, y=b)
    return cast_to(a.device.elementwise.reduce("sum", products, products.ndim - 1), dtype)


def tensordot(x1: GpuRef, x2: GpuRef, /, *, axes: Any = 2) -> GpuRef:
    """Return the sum of products over pairs of axes, as one matrix product."""
    a, b = handle("tensordot", x1), handle("tensordot", x2)
    if isinstance(axes, int):
        if not 0 <= axes <= min(a.ndim, b.ndim):
            raise InvalidRequest(f"tensordot with axes={axes!r} of shapes {a.shape} and {b.shape}; allowed: 0 to "
                                 f"{min(a.ndim, b.ndim)}")  # fmt: skip
        left, right = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        left, right = ([as_axis("tensordot", i, x.ndim) for i in given] for x, given in zip((a, b), axes, strict=True))
    if [a.shape[i] for i in left] != [b.shape[i] for i in right]:
        raise InvalidRequest(f"tensordot with axes={axes!r} of shapes {a.shape} and {b.shape}; allowed: equal extents")
    kept_a, kept_b = [i for i in range(a.ndim) if i not in left], [i for i in range(b.ndim) if i not in right]
    count = math.prod(a.shape[i] for i in left)
    rows, columns = tuple(a.shape[i] for i in kept_a), tuple(b.shape[i] for i in kept_b)
    first = reshape(a.transpose(*kept_a, *left) if a.ndim else a, (math.prod(rows), count))
    second = reshape(b.transpose(*right, *kept_b) if b.ndim else b, (count, math.prod(columns)))
    return matmul(first, second).reshape(rows + columns)


def outer(x1: GpuRef, x2: GpuRef, /) -> GpuRef:
    """Return the products of all pairs of elements of two vectors."""
    return reshape(handle("outer", x1), (-1, 1)) * reshape(handle("outer", x2), (1, -1))
