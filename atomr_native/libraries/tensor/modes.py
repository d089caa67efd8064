"""Modes of tensors: subscripts as text or lists, numbered in the order in which they appear.

A mode is an index with a name.  Modes are renamed to numbers, so that ``ij,jk`` and ``ab,bc`` are one expression.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...errors import InvalidRequest

__all__ = ["Modes", "Subscripts", "extents_of", "letters", "parse", "text_of"]

Modes = tuple[int, ...]

_ELLIPSIS: Final = "..."
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_NOTATION: Final = "letters, '...' once in each term, ',' between terms and '->' before the output"


@dataclass(frozen=True, slots=True)
class _Axis:
    """The mode of an axis that an ellipsis stands for, counted from its end."""

    place: int

    def __str__(self) -> str:
        return f"...[{self.place}]"


@dataclass(frozen=True, slots=True)
class Subscripts:
    """The modes of an expression.

    Attributes
    ----------
    inputs : tuple of tuple of int
        Modes of each operand, an entry for each axis; a mode may be there twice, which is a diagonal.
    output : tuple of int
        Modes of the result, each once.
    names : tuple of str
        What the caller calls each mode.
    """

    inputs: tuple[Modes, ...]
    output: Modes
    names: tuple[str, ...]


def letters(count: int) -> str:
    """Return distinct letters, beyond the alphabet those of Unicode."""
    return "".join(_ALPHABET[i] if i < len(_ALPHABET) else chr(192 + i) for i in range(count))


def text_of(inputs: Iterable[Modes], output: Modes) -> str:
    """Return subscripts as text."""
    inputs = tuple(inputs)
    names = letters(1 + max((mode for modes in (*inputs, output) for mode in modes), default=-1))
    return ",".join("".join(names[m] for m in modes) for modes in inputs) + "->" + "".join(names[m] for m in output)


def _term(text: str, whole: str) -> list[Hashable]:
    """Return the labels of one term; an ellipsis is the label ``...``."""
    found: list[Hashable] = []
    rest = text.replace(" ", "")
    while rest:
        if rest.startswith(_ELLIPSIS):
            found.append(_ELLIPSIS)
            rest = rest[3:]
        elif rest[0].isalpha():
            found.append(rest[0])
            rest = rest[1:]
        else:
            raise InvalidRequest(f"subscripts {whole!r}: {rest[0]!r} is no mode; allowed: {_NOTATION}")
    return found


def _labels(given: Any, place: str) -> list[Hashable]:
    """Return the labels of a list of modes: integers, or any other names."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidRequest(f"modes {given!r} of {place}; allowed: a sequence of integers or names, and Ellipsis")
    found: list[Hashable] = []
    for label in given:
        if label is Ellipsis:
            found.append(_ELLIPSIS)
        elif not isinstance(label, Hashable) or isinstance(label, bool):
            raise InvalidRequest(f"mode {label!r} of {place}; allowed: integers or names, and Ellipsis")
        else:
            found.append(label)
    return found


def _split(subscripts: Any, count: int) -> tuple[list[list[Hashable]], list[Hashable] | None]:
    """Return the labels of each operand, and those of the output if they are given."""
    if isinstance(subscripts, str):
        left, arrow, right = subscripts.partition("->")
        if "->" in right:
            raise InvalidRequest(f"subscripts {subscripts!r} have '->' twice; allowed: {_NOTATION}")
        return [_term(term, subscripts) for term in left.split(",")], _term(right, subscripts) if arrow else None
    if not isinstance(subscripts, Sequence) or len(subscripts) not in (count, count + 1):
        raise InvalidRequest(
            f"subscripts {subscripts!r} for {count} operands; allowed: text, or a list of modes for each operand, and "
            f"one more for the output"
        )
    terms = [_labels(modes, f"operand {i}") for i, modes in enumerate(subscripts[:count])]
    return terms, _labels(subscripts[count], "the output") if len(subscripts) > count else None


def _expanded(labels: list[Hashable], axes: int, place: str) -> list[Hashable]:
    """Return labels with the axes of the ellipsis in its place."""
    many = labels.count(_ELLIPSIS)
    if many > 1:
        raise InvalidRequest(f"{place} has {many} ellipses; allowed: one")
    named = len(labels) - many
    if named > axes or (not many and named != axes):
        raise InvalidRequest(
            f"{place} has {named} modes and {axes} axes; allowed: a mode for each axis, or fewer with an ellipsis"
        )
    if not many:
        return labels
    at, count = labels.index(_ELLIPSIS), axes - named
    return [*labels[:at], *(_Axis(i - count) for i in range(count)), *labels[at + 1 :]]


def parse(subscripts: Any, axes: Sequence[int]) -> Subscripts:
    """Return the modes of an expression, numbered in the order in which they appear.

    Parameters
    ----------
    subscripts : str or sequence
        NumPy's notation, ``"ij,jk->ik"``; or for each operand a list of modes, and one more for the output if it is
        given.  Without an output, it has the modes of the ellipsis, and then those that appear once, sorted.  Modes
        that are not in the output are summed over, those of an ellipsis too.
    axes : sequence of int
        How many axes each operand has.

    Raises
    ------
    InvalidRequest
        For subscripts that do not fit; the message names the operand and the mode.
    """
    terms, output = _split(subscripts, len(axes))
    if len(terms) != len(axes):
        raise InvalidRequest(f"subscripts {subscripts!r} have {len(terms)} terms for {len(axes)} operands")
    inputs = [_expanded(term, n, f"operand {i}") for i, (term, n) in enumerate(zip(terms, axes, strict=True))]
    dots = max((sum(isinstance(label, _Axis) for label in term) for term in inputs), default=0)
    ellipsis: list[Hashable] = [_Axis(i - dots) for i in range(dots)]
    if output is None:
        counts: dict[Hashable, int] = {}
        for label in (label for term in terms for label in term if label != _ELLIPSIS):
            counts[label] = counts.get(label, 0) + 1
        once: list[Any] = [label for label, n in counts.items() if n == 1]
        try:
            once = sorted(once)
        except TypeError:
            raise InvalidRequest(
                f"modes {once!r} have no order, and no output is given; allowed: an output, or modes of one type"
            ) from None
        result = [*ellipsis, *once]
    else:
        if output.count(_ELLIPSIS) > 1:
            raise InvalidRequest(f"the output of {subscripts!r} has several ellipses; allowed: one")
        result = []
        for label in output:
            result += ellipsis if label == _ELLIPSIS else [label]
    numbers: dict[Hashable, int] = {}
    for label in (label for term in inputs for label in term):
        numbers.setdefault(label, len(numbers))
    for label in result:
        if label not in numbers:
            raise InvalidRequest(f"mode {label!r} of the output is no mode of an operand; allowed: {_listed(numbers)}")
        if result.count(label) > 1:
            raise InvalidRequest(f"mode {label!r} is in the output {result.count(label)} times; allowed: once")
    return Subscripts(
        tuple(tuple(numbers[label] for label in term) for term in inputs),
        tuple(numbers[label] for label in result),
        tuple(map(str, numbers)),
    )


def _listed(numbers: Iterable[Hashable]) -> str:
    return ", ".join(map(str, numbers)) or "none, since no operand has axes"


def extents_of(subscripts: Subscripts, shapes: Sequence[tuple[int, ...]], named: Sequence[str]) -> tuple[int, ...]:
    """Return the extent of each mode; axes of one element broadcast to the extent that the mode has elsewhere.

    Raises
    ------
    InvalidRequest
        For different extents of one mode; the message names the mode, both operands and both extents.
    """
    found: dict[int, tuple[int, str]] = {}
    for modes, shape, name in zip(subscripts.inputs, shapes, named, strict=True):
        for mode, extent in zip(modes, shape, strict=True):
            known = found.get(mode)
            if known is None or (known[0] == 1 and extent != 1):
                found[mode] = (extent, name)
            elif extent not in (1, known[0]):
                raise InvalidRequest(
                    f"mode {subscripts.names[mode]!r} has extent {known[0]} in {known[1]} and {extent} in {name}; "
                    f"extents of a mode must be equal, or 1, which broadcasts"
                )
    return tuple(found[mode][0] for mode in range(len(found)))
