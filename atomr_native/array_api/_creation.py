"""Functions of the namespace that create arrays; each enqueues, unless it says that it waits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..arrays.gpu_ref import GpuRef
from ..arrays.layout import as_shape, layout_from
from ..arrays.owner import owner_of
from ..dtypes import as_dtype, dtype_name
from ..errors import InvalidRequest, Unsupported
from ._operands import cast_to, check_device, handle

if TYPE_CHECKING:
    from ..device import Device

__all__ = ["CREATION", "eye_of", "linspace_of", "sequence_of"]


def _dtype_of(*numbers: Any) -> np.dtype[Any]:
    """Return the default dtype of Python numbers."""
    return np.result_type(
        *(type(value) if isinstance(value, bool | int | float | complex) else value for value in numbers)
    )


def empty(shape: Any, *, dtype: Any = None, device: Device | None = None) -> GpuRef:
    """Return an uninitialised array, by default float64."""
    return check_device(device).empty(shape, "float64" if dtype is None else dtype)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Device | None = None) -> GpuRef:
    """Return an array with one value in each element, by default of the value's own type: int64, float64, ..."""
    if not isinstance(fill_value, bool | int | float | complex | np.generic):
        raise InvalidRequest(f"full with fill_value={fill_value!r}; allowed: a number of this process")
    value: Any = fill_value
    return check_device(device).full(shape, value, _dtype_of(value) if dtype is None else dtype)


def zeros(shape: Any, *, dtype: Any = None, device: Device | None = None) -> GpuRef:
    """Return an array of zeros, by default float64."""
    return full(shape, 0, dtype="float64" if dtype is None else dtype, device=device)


def ones(shape: Any, *, dtype: Any = None, device: Device | None = None) -> GpuRef:
    """Return an array of ones, by default float64."""
    return full(shape, 1, dtype="float64" if dtype is None else dtype, device=device)


def empty_like(x: GpuRef, /, *, dtype: Any = None, device: Device | None = None) -> GpuRef:
    """Return an uninitialised array with the shape of `x`, and its dtype and device unless others are given."""
    handle("empty_like", x)
    return empty(x.shape, dtype=x.dtype if dtype is None else dtype, device=device or x.device)


def full_like(x: GpuRef, /, fill_value: Any, *, dtype: Any = None, device: Device | None = None) -> GpuRef:
    """Return an array with one value in each element, otherwise as `empty_like`."""
    handle("full_like", x)
    return full(x.shape, fill_value, dtype=x.dtype if dtype is None else dtype, device=device or x.device)


def zeros_like(x: GpuRef, /, *, dtype: Any = None, device: Device | None = None) -> GpuRef:
    """Return an array of zeros, otherwise as `empty_like`."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: GpuRef, /, *, dtype: Any = None, device: Device | None = None) -> GpuRef:
    """Return an array of ones, otherwise as `empty_like`."""
    return full_like(x, 1, dtype=dtype, device=device)


def sequence_of(device: Device, start: Any, stop: Any, step: Any, dtype: Any) -> GpuRef:
    """Return the numbers from `start` to before `stop`; the standard's `arange`."""
    if stop is None:
        start, stop = 0, start
    given = (start, stop, step)
    for value in given:
        if isinstance(value, bool | GpuRef) or not isinstance(value, int | float | np.integer | np.floating):
            raise InvalidRequest(f"arange of {start!r}, {stop!r}, {step!r}; allowed: real numbers of this process")
    if step == 0:
        raise InvalidRequest("arange with step=0; allowed: any other number")
    found = as_dtype(_dtype_of(*(value for value in given)) if dtype is None else dtype)
    if found.kind in "bc":
        raise InvalidRequest(f"arange of {dtype_name(found)}; allowed: integer and floating-point dtypes")
    whole = all(isinstance(value, int | np.integer) for value in given)
    count = max(0, -((int(start) - int(stop)) // int(step)) if whole else math.ceil((stop - start) / step))
    actor = owner_of(device).elementwise
    made: GpuRef = actor.sequence(int(start) if whole else float(start), int(step) if whole else float(step), count,
                                  dtype_name(found))  # fmt: skip
    return made


def linspace_of(device: Device, start: Any, stop: Any, num: int, dtype: Any, endpoint: bool) -> GpuRef:
    """Return `num` numbers from `start` to `stop`, evenly spaced."""
    if isinstance(num, bool) or not isinstance(num, int | np.integer) or num < 0:
        raise InvalidRequest(f"linspace with num={num!r}; allowed: integers from 0")
    if isinstance(start, GpuRef) or isinstance(stop, GpuRef):
        raise InvalidRequest("linspace between arrays; allowed: numbers of this process")
    found = as_dtype(np.result_type(_dtype_of(start, stop), np.float64) if dtype is None else dtype)
    out = device.empty((int(num),), found)
    if num == 0:
        return out
    parts = num - 1 if endpoint else num
    step = (stop - start) / parts if parts else 0.0
    places = owner_of(device).elementwise.sequence(0, 1, int(num), "float64")
    if found.kind == "c":
        numbers: dict[str, Any] = {"a": device.full((), start, found), "d": device.full((), step, found)}
    else:
        numbers = {"a": float(start), "d": float(step)}
    device.elementwise.run("a + i * d", out=out, i=places, **numbers)
    if endpoint and num > 1:
        out[-1] = stop if found.kind not in "iu" else int(stop)
    return out


def eye_of(device: Device, rows: Any, columns: Any, k: Any, dtype: Any) -> GpuRef:
    """Return ones on a diagonal, and zeros."""
    n, m = as_shape((rows, rows if columns is None else columns))
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise InvalidRequest(f"eye with k={k!r}; allowed: integers")
    made = device.full((n, m), 0, dtype)
    count = min(n + min(k, 0), m - max(k, 0))
    if count > 0:
        size = made.dtype.itemsize
        layout = layout_from((int(count),), ((m + 1) * size,), dtype_name(made.dtype))
        made.view_as(layout, (k if k > 0 else -k * m) * size).fill(1)
    return made


def arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Device | None = None
) -> GpuRef:
    """Return the numbers from `start` to before `stop`, `step` apart; one number alone is `stop`."""
    return sequence_of(check_device(device), start, stop, step, dtype)


def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Device | None = None, endpoint: bool = True
) -> GpuRef:
    """Return `num` numbers from `start` to `stop`, evenly spaced; without `endpoint`, `stop` is not among them."""
    return linspace_of(check_device(device), start, stop, num, dtype, endpoint)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Device | None = None
) -> GpuRef:
    """Return ones on the diagonal `k` (above the main one if positive) and zeros elsewhere, by default float64."""
    return eye_of(check_device(device), n_rows, n_cols, k, "float64" if dtype is None else dtype)


def asarray(obj: Any, /, *, dtype: Any = None, device: Device | None = None, copy: bool | None = None) -> GpuRef:
    """Return an array on a device: numbers, lists and arrays of the host are copied there, as by `Device.put`.

    A GpuRef stays as it is, unless dtype, device or `copy` want another one.  Waits as `Device.put` does.

    Raises
    ------
    InvalidRequest
        With ``copy=False``, where only a copy is possible.
    """
    if isinstance(obj, GpuRef):
        target = check_device(device or obj.device)
        same = obj.device is target and (dtype is None or as_dtype(dtype) == obj.dtype)
        if same and copy is not True:
            return obj
        if copy is False:
            raise InvalidRequest(
                f"asarray of {obj!r} with dtype={dtype!r}, device={device!r} needs a copy, and copy=False"
            )
        return target.copy(obj, dtype=dtype)
    target = check_device(device)
    plain = isinstance(obj, bool | int | float | complex | list | tuple | np.generic)
    if copy is not True and dtype is None and not plain:
        return target.asarray(obj, copy=copy)
    if copy is False:
        raise InvalidRequest(f"asarray of a {type(obj).__name__} needs a copy, and copy=False")
    if isinstance(obj, list | tuple) and any(isinstance(item, GpuRef) for item in obj):
        raise InvalidRequest("asarray of a list of GpuRefs; stack(list) joins them on the device")
    if isinstance(obj, complex | int) and dtype is not None and not isinstance(obj, bool):
        return target.put(np.asarray(obj, as_dtype(dtype)))
    return target.put(obj, dtype=dtype)


def from_dlpack(x: Any, /, *, device: Device | None = None, copy: bool | None = None) -> GpuRef:
    """Return an array of another library on a device, without a copy where `Device.asarray` makes none."""
    if isinstance(x, GpuRef):
        return asarray(x, device=device, copy=copy)
    if not hasattr(x, "__dlpack__"):
        raise InvalidRequest(f"from_dlpack of a {type(x).__name__}; allowed: an object with __dlpack__")
    return check_device(device).asarray(x, copy=copy)


def meshgrid(*arrays: GpuRef, indexing: str = "xy") -> list[GpuRef]:
    """Return coordinate matrices of one-dimensional arrays, as views; ``indexing`` is "xy" or "ij"."""
    from ._manipulation import broadcast_to, reshape

    if indexing not in ("xy", "ij"):
        raise InvalidRequest(f"meshgrid with indexing={indexing!r}; allowed: 'xy', 'ij'")
    for x in arrays:
        if handle("meshgrid", x).ndim > 1:
            raise InvalidRequest(f"meshgrid of an array of shape {x.shape}; allowed: one axis")
    order = list(range(len(arrays)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = [1, 0]
    shape = [0] * len(order)
    for x, place in zip(arrays, order, strict=True):
        shape[place] = x.size
    found = []
    for x, place in zip(arrays, order, strict=True):
        own = tuple(x.size if i == place else 1 for i in range(len(order)))
        found.append(broadcast_to(reshape(x, own), tuple(shape)))
    return found


def _triangle(name: str, x: GpuRef, k: int, program: str) -> GpuRef:
    if handle(name, x).ndim < 2:
        raise InvalidRequest(f"{name} of an array of shape {x.shape}; allowed: two axes or more")
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise InvalidRequest(f"{name} with k={k!r}; allowed: integers")
    rows, columns = (sequence_of(x.device, 0, n, 1, "int64") for n in x.shape[-2:])
    made: GpuRef = x.device.elementwise.run(program, x=x, r=rows[:, None], c=columns, k=int(k))
    return cast_to(made, x.dtype)


def tril(x: GpuRef, /, *, k: int = 0) -> GpuRef:
    """Return a copy with zeros above the diagonal `k`."""
    return _triangle("tril", x, k, "where(c - r <= k, x, x ^ x)" if x.dtype.kind == "b" else "where(c - r <= k, x, 0)")


def triu(x: GpuRef, /, *, k: int = 0) -> GpuRef:
    """Return a copy with zeros below the diagonal `k`."""
    return _triangle("triu", x, k, "where(c - r >= k, x, x ^ x)" if x.dtype.kind == "b" else "where(c - r >= k, x, 0)")


def refuse_stream(stream: object) -> None:
    """Refuse a stream: devices order messages by the data that they touch."""
    if stream is not None:
        raise Unsupported(f"stream={stream!r}; allowed: None, since messages are ordered by the data that they touch")


#: Functions that take a device, which a namespace of a device adds.
CREATION: Final[dict[str, Callable[..., Any]]] = {
    f.__name__: f for f in (arange, asarray, empty, eye, from_dlpack, full, linspace, ones, zeros)
}
