"""Immediate calls: how a request becomes a message, and how the result is cached.

A call is a tuple of values in the order of its `CallForm`.  Its structure is the key of `CallCache`: the form, layouts,
options, classes of numbers (`class_of` in sender_calls.pxi: type, sign, whether it is 0 or 1, ...) and which arrays
share memory.  A request's checks may depend on nothing else, and may distinguish numbers by their classes only.  Every
send checks the rest, such as stale handles, also those that are no operands of the message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .._lib.sender import CallForm, CallTemplate, Layout
from ..arrays.gpu_ref import GpuRef
from ..arrays.layout import layout_from, layout_of
from ..dtypes import DTYPES
from .lowering import Operand, Request
from .plan import Plan

__all__ = ["CallForm", "Forms", "LoweredCall", "NewArray", "form_of", "new_array", "new_operand", "template_of"]

#: Request classes of an actor, and the form of their calls.
Forms: TypeAlias = Mapping[type[Request[Any]], CallForm]


class NewArray(NamedTuple):
    """An array that a message allocates, with layout `whole`; the operand is its view `view`, if that is not None.

    Each object is one operand, and is compared by identity.
    """

    whole: Layout
    view: Layout | None = None


def new_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NewArray:
    """Return a C-contiguous array for the message to allocate."""
    return NewArray(layout_of(shape, dtype))


def new_operand(operand: Operand) -> NewArray:
    """Return the new array for an operand."""
    spec = operand.spec
    whole = layout_of(spec.shape if operand.whole is None else operand.whole, DTYPES[spec.dtype])
    view = layout_from(spec.shape, spec.strides, spec.dtype)
    return NewArray(whole, None if view == whole else view)


class LoweredCall(NamedTuple):
    """A request as a message of a plan.

    Attributes
    ----------
    plan : Plan
    operands : tuple
        In message order: the request's own handles, and `NewArray` objects.
    result : object
        The sender's result: a handle or a `NewArray`, or a tuple (list) of these and None.
    numbers : tuple of str or int
        Names, or indices among the call's values, of the numbers that travel, in the order of the plan's scalars.
    convert : callable, optional
        Converts these numbers to the plan's scalars, if they differ.
    """

    plan: Plan
    operands: tuple[Any, ...]
    result: Any
    numbers: tuple[str | int, ...] = ()
    convert: Callable[..., tuple[float | int, ...]] | None = None


def form_of(request: Any, arrays: str, options: str = "", numbers: str = "") -> CallForm:
    """Return the form of a request class: its arrays, options and numbers, in this order."""
    kinds = {name: kind for names, kind in ((arrays, "a"), (options, "o"), (numbers, "n")) for name in names.split()}
    defaults = {f.name: None if f.default is MISSING else f.default for f in fields(request)}
    names = tuple(kinds)
    return CallForm(
        lambda values: request(**dict(zip(names, values, strict=True))),
        _attributes(names),
        names,
        "".join(kinds.values()).encode(),
        tuple(defaults[name] for name in names),
    )


def _attributes(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) == 1:
        return lambda request: (getattr(request, names[0]),)
    return attrgetter(*names)


def template_of(message: LoweredCall, form: CallForm, values: tuple[Any, ...]) -> CallTemplate:
    """Return the template for calls with the structure of these values, from which the message was made."""

    def index_of(handle: Any) -> int:
        return next(i for i, value in enumerate(values) if value is handle)

    def part(one: Any) -> int | None:
        if isinstance(one, NewArray):
            return -1 - next(i for i, operand in enumerate(message.operands) if operand is one)
        return None if one is None else index_of(one)

    several = isinstance(message.result, tuple | list) and not isinstance(message.result, NewArray)
    return CallTemplate(
        message.plan,
        GpuRef,
        tuple((one.whole, one.view) if isinstance(one, NewArray) else index_of(one) for one in message.operands),
        tuple(form.names.index(number) if isinstance(number, str) else number for number in message.numbers),
        message.convert,
        tuple(map(part, message.result if several else (message.result,))),
        type(message.result) if several else None,
        tuple(
            place
            for place, value in enumerate(values)
            if isinstance(value, GpuRef) and not any(value is operand for operand in message.operands)
        ),
    )
