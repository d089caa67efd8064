"""Immediate calls: how a request becomes a message, and how that is remembered.

A call gives values by position, as its `Form` says.  What a request makes of them depends on the form, on layouts,
on options, on classes of numbers (`class_of` in sender_calls.pxi: type, sign, whether it is 0 or 1, ...) and on which
arrays share memory, and on nothing else: the key of `Calls` holds all of these.  So the checks of a request may look at
numbers by those classes only.  What depends on more, and whatever a handle is refused for, is checked by every send.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ._lib.sender import Form, Layout, Recipe
from .gpu_ref import GpuRef, layout_of
from .plan import Plan

__all__ = ["Form", "Message", "New", "form_of", "new", "recipe_of"]


class New(NamedTuple):
    """An array that a message allocates: one of layout `whole`, of which it takes the view `view`, if that is not None.

    Each is one operand, and is known by its identity.
    """

    whole: Layout
    view: Layout | None = None


def new(shape: tuple[int, ...], dtype: np.dtype[Any]) -> New:
    """Return a C-contiguous array that is to be allocated."""
    return New(layout_of(shape, dtype))


class Message(NamedTuple):
    """What a request comes to.

    Attributes
    ----------
    plan : Plan
    operands : tuple
        In message order: the request's own handles, and `New` arrays.
    result : object
        What the sender gets: a handle or `New` array, or a tuple (list) of them and of None.
    numbers : tuple of str or int
        Names, or places among the call's values, of the numbers that travel, in the order of the plan's scalars.
    convert : callable, optional
        From these numbers to the plan's scalars, where they differ.
    """

    plan: Plan
    operands: tuple[Any, ...]
    result: Any
    numbers: tuple[str | int, ...] = ()
    convert: Callable[..., tuple[float | int, ...]] | None = None


def form_of(request: Any, arrays: str, options: str = "", numbers: str = "") -> Form:
    """Return the form of a request class: fields that are arrays, options and numbers, in this order."""
    kinds = {name: kind for names, kind in ((arrays, "a"), (options, "o"), (numbers, "n")) for name in names.split()}
    defaults = {f.name: None if f.default is MISSING else f.default for f in fields(request)}
    names = tuple(kinds)
    return Form(
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


def recipe_of(message: Message, form: Form, values: tuple[Any, ...]) -> Recipe:
    """Return how calls of the structure of these values, of which the message was made, become messages."""

    def place(handle: Any) -> int:
        return next(i for i, value in enumerate(values) if value is handle)

    def part(one: Any) -> int | None:
        if isinstance(one, New):
            return -1 - next(i for i, operand in enumerate(message.operands) if operand is one)
        return None if one is None else place(one)

    several = isinstance(message.result, tuple | list) and not isinstance(message.result, New)
    return Recipe(
        message.plan,
        GpuRef,
        tuple((one.whole, one.view) if isinstance(one, New) else place(one) for one in message.operands),
        tuple(form.names.index(number) if isinstance(number, str) else number for number in message.numbers),
        message.convert,
        tuple(map(part, message.result if several else (message.result,))),
        type(message.result) if several else None,
    )
