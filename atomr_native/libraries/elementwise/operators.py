"""Operators of handles: programs of one expression, each with a call form of its own, so that no text is looked at.

A number is weak: it adapts to the array that it meets.  A number that no message holds (complex, a Boolean beside
Booleans, beyond int64) becomes an array without axes, by a fill on the device.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ..._lib.sender import CallCache, Ref
from ...arrays.operands import memory_span, same_view
from ...arrays.refusals import refused_operand
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.calls import CallForm
from ...plans.lowering import Lowered
from ...plans.spec import signed_word
from .forms import plain_operands
from .gathers import SEQUENCE, TAKE
from .ordering import SCAN, SEARCH, SORT
from .request import ElementwiseRequest

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef
    from ...device import Device

__all__ = ["OperatorCalls"]

#: Operands of the expressions, in the order of the values of their calls.
_NAMES: Final = ("x", "y", "z")
_KINDS: Final = "buifc"  # NumPy's kinds: each may become those behind it
_INT64: Final = range(-(2**63), 2**63)
#: The integers that an array of a dtype takes as they are.
_FITTING: Final = {
    name: range(int(np.iinfo(dtype).min), min(int(np.iinfo(dtype).max), 2**63 - 1) + 1)
    if dtype.kind in "iu"
    else _INT64
    for name, dtype in DTYPES.items()
}
_COMPARISONS: Final = frozenset(f"x {symbol} y" for symbol in ("<", "<=", ">", ">=", "==", "!="))
_POWER: Final = "x ** y"


class _Sent(NamedTuple):
    """A request for the call cache, which reads its message only."""

    lowered: Lowered


def _kind(dtype: np.dtype[Any]) -> int:
    """Return the place of a dtype among the kinds; bfloat16 and float8 are floats."""
    return _KINDS.index("f" if dtype.kind == "V" else dtype.kind)


def _message(program: str, values: tuple[Any, ...], *, updated: bool) -> _Sent:
    """Return the message of a call; one that updates writes its first value."""
    operands = plain_operands(dict(zip(_NAMES, values, strict=False)))
    request = ElementwiseRequest(program=program, operands=operands)
    if updated:
        found, target = as_dtype(request.lowered.operands[-1].spec.dtype), as_dtype(values[0].dtype)
        if _kind(found) > _kind(target):
            raise InvalidRequest(
                f"{program!r} is {dtype_name(found)}, and x, which it would be assigned to, is {dtype_name(target)}; "
                f"allowed: a dtype of the same kind, or x = {program}"
            )
        request = ElementwiseRequest(program=program, operands=operands, out=values[0])
    return _Sent(dataclasses.replace(request.lowered, numbers=None))


class _Forms(dict[str, CallForm]):
    """Call forms by expression, made at first use; the package's own expressions, so there are few."""

    def __init__(self, count: int, *, updated: bool = False) -> None:
        super().__init__()
        self._count = count
        self._updated = updated

    def __missing__(self, program: str) -> CallForm:
        def unpack(values: tuple[Any, ...]) -> _Sent:
            return _message(program, values, updated=self._updated)

        names, kinds = _NAMES[: self._count], b"n" * self._count
        return self.setdefault(program, CallForm(unpack, tuple, names, kinds, (None,) * self._count))


_ONE: Final = _Forms(1)
_TWO: Final = _Forms(2)
_THREE: Final = _Forms(3)
_UPDATES: Final = _Forms(2, updated=True)
_MASKED: Final = _Forms(3, updated=True)


class OperatorCalls:
    """What the operators of handles send; a part of `ElementwiseActor`.

    Expressions are over ``x``, ``y`` and ``z``.  Everything enqueues, and returns the new array.
    """

    device: Device
    _calls: CallCache

    def unary(self, program: str, x: GpuRef) -> GpuRef:
        """Send an expression over an array."""
        made: GpuRef = self._calls.send(self, _ONE[program], (x,))
        return made

    def binary(self, program: str, x: GpuRef, y: Any) -> GpuRef:
        """Send an expression over an array and an array or number."""
        kind = y.__class__
        if not (kind is float or isinstance(y, Ref)) and (
            kind is not int
            or y not in (_INT64 if program in _COMPARISONS else _FITTING[x.layout.dtype_name])
            or (y < 0 and program == _POWER)
        ):
            return self._adapted(program, x, y, reflected=False)
        made: GpuRef = self._calls.send(self, _TWO[program], (x, y))
        return made

    def reflected(self, program: str, x: Any, y: GpuRef) -> GpuRef:
        """Send an expression over a number and an array."""
        kind = x.__class__
        if kind is not float and (kind is not int or x not in _FITTING[y.layout.dtype_name]):
            return self._adapted(program, y, x, reflected=True)
        made: GpuRef = self._calls.send(self, _TWO[program], (x, y))
        return made

    def update(self, program: str, x: GpuRef, y: Any) -> GpuRef:
        """Send an expression whose value replaces that of the array `x`; return `x`."""
        if isinstance(y, Ref):
            if y.allocation.space == x.allocation.space and not same_view(x, y) and _touch(x, y):
                y = self.device.copy(y)  # type: ignore[arg-type]
        elif y.__class__ is not float:
            y = self.operand(program, x, y)
        made: GpuRef = self._calls.send(self, _UPDATES[program], (x, y))
        return made

    def ternary(self, program: str, x: Any, y: Any, z: Any) -> GpuRef:
        """Send an expression over three arrays or numbers, at least one of them an array."""
        made: GpuRef = self._calls.send(self, _THREE[program], (x, y, z))
        return made

    def assign_where(self, target: GpuRef, mask: GpuRef, value: Any) -> None:
        """Write a number or an array without axes to the elements where a mask is not zero."""
        if not isinstance(value, Ref):
            value = self.operand("x[mask] = y", target, value)
        self._calls.send(self, _MASKED["where(z, y, x)"], (target, value, mask))

    def take(self, x: GpuRef, indices: GpuRef, axis: int, *, along: bool) -> GpuRef:
        """Send a gather along an axis that is counted from the front; see `TakeRequest`."""
        made: GpuRef = self._calls.send(self, TAKE, (x, indices, axis, along))
        return made

    def sequence(self, start: float, step: float, count: int, dtype: str) -> GpuRef:
        """Send the numbers from `start` on, `step` apart: two integers, or two floats."""
        if isinstance(start, int) and isinstance(step, int):  # beyond int64 they wrap around, as the result does
            start, step = signed_word(start % 2**64), signed_word(step % 2**64)
        made: GpuRef = self._calls.send(self, SEQUENCE, (count, dtype, start, step))
        return made

    def sort(self, x: GpuRef, *, descending: bool, places: bool) -> GpuRef:
        """Send the sort of rows, to elements or their places; see `SortRequest`."""
        made: GpuRef = self._calls.send(self, SORT, (x, descending, places))
        return made

    def scan(self, op: str, x: GpuRef, dtype: str) -> GpuRef:
        """Send the running sums or products of rows; see `ScanRequest`."""
        made: GpuRef = self._calls.send(self, SCAN, (x, op, dtype))
        return made

    def search(self, row: GpuRef, values: GpuRef, *, right: bool) -> GpuRef:
        """Send a search for values in a sorted row; see `SearchRequest`."""
        made: GpuRef = self._calls.send(self, SEARCH, (row, values, right))
        return made

    def _adapted(self, program: str, x: GpuRef, value: Any, *, reflected: bool) -> GpuRef:
        """Send an expression with a number that cannot travel as it is."""
        found = self.operand(program, x, value)
        if found.__class__ is int and found not in _INT64:  # a comparison, which literals answer exactly
            made: GpuRef = self.device.elementwise.run(program.replace("y", f"({found})"), x=x)
            return made
        values = (found, x) if reflected else (x, found)
        made = self._calls.send(self, _TWO[program], values)
        return made

    def operand(self, program: str, x: GpuRef, value: Any) -> Any:
        """Return the number or array without axes that stands for a value beside an array.

        Raises
        ------
        InvalidRequest
            For an integer that the array's dtype does not hold, and integers to a negative power.
        NoArrayOperator
            For what is neither a number nor a GpuRef.
        """
        if isinstance(value, np.generic):
            value = value.item()
        dtype = x.dtype
        kind = dtype.kind
        if isinstance(value, bool):
            if kind != "b":
                return int(value)
            return self.device.full((), value, "bool")
        if isinstance(value, int):
            return self._integer(program, x, int(value))
        if isinstance(value, float):
            return float(value)
        if isinstance(value, complex):
            wide = kind in "biu" or dtype.name in ("float64", "complex128")
            return self.device.full((), value, "complex128" if wide else "complex64")
        raise refused_operand(program, value)

    def _integer(self, program: str, x: GpuRef, value: int) -> Any:
        name = x.layout.dtype_name
        if program == _POWER and value < 0 and x.dtype.kind in "iu":
            raise InvalidRequest(f"{name} ** {value}: integers to a negative power; allowed: x ** {value}.0")
        if program in _COMPARISONS and x.dtype.kind in "biu":
            return value
        if value in _FITTING[name]:
            return value
        if name == "uint64" and 0 <= value < 2**64:
            return self.device.full((), value, name)
        if x.dtype.kind in "biu":
            limits = np.iinfo(x.dtype if x.dtype.kind in "iu" else np.int64)
            raise InvalidRequest(
                f"the number {value} does not fit {limits.dtype}, the dtype that it meets; "
                f"allowed: {limits.min} to {limits.max}"
            )
        try:
            return float(value)
        except OverflowError:
            raise InvalidRequest(f"the number of {value.bit_length()} bits is too large for {name}") from None


def _touch(x: object, y: object) -> bool:
    """Return whether two views share bytes."""
    where, first, end = memory_span(x)
    place, start, stop = memory_span(y)
    return where == place and first < stop and start < end
