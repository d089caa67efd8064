"""Numbers that a recording gives to the messages that it records: names for values that each replay sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from ..errors import InvalidRequest

__all__ = ["KINDS", "Conversion", "RecordedFloat", "RecordedInt", "converted", "is_recorded", "plain"]


class Conversion:
    """A function from numbers of a call to the scalars of its message, to be called again for each replay."""

    def __init__(self, function: Callable[..., tuple[Any, ...]], arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments

    def results(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the scalars for the values of recorded numbers, by name."""
        return converted(self.function, tuple(_value_of(argument, values) for argument in self.arguments))


def _value_of(argument: Any, values: Mapping[str, Any]) -> Any:
    if not is_recorded(argument):
        return argument
    if argument.conversion is None:
        return values[argument.name]
    return argument.conversion.results(values)[argument.place]


def _refuse(what: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *_: Any) -> NoReturn:
        raise InvalidRequest(
            f"{what} a recorded number, {self!r}: its value changes with each replay; allowed: to pass it to a "
            f"message. Compute outside of the recording, and name the result as a number of its own"
        )

    return refuse


class _Recorded:
    """The part of a recorded number that does not depend on its type."""

    name: str
    conversion: Conversion | None
    place: int

    def __repr__(self) -> str:
        return f"<recorded number {self.name!r}>"

    def __reduce__(self) -> Any:
        raise InvalidRequest(f"{self!r} cannot be pickled: it belongs to its recording")


_ARITHMETIC: Final = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift", "rshift", "and", "or", "xor",
)  # fmt: skip
_UNARY: Final = ("neg", "pos", "abs", "invert", "round", "trunc", "floor", "ceil")
_COMPARISONS: Final = ("eq", "ne", "lt", "le", "gt", "ge", "bool", "hash")
_CONVERSIONS: Final = ("float", "int", "index", "complex", "format", "str")

for _names, _what in (
    ((*_ARITHMETIC, *(f"r{name}" for name in _ARITHMETIC), *_UNARY), "arithmetic on"),
    (_COMPARISONS, "a comparison of"),
    (_CONVERSIONS, "a conversion of"),
):
    for _name in _names:
        setattr(_Recorded, f"__{_name}__", _refuse(_what))


class RecordedFloat(_Recorded, float):
    """A recorded real number; only native code may read its value, the one while recording."""

    def __new__(cls, value: float, name: str, conversion: Conversion | None = None, place: int = 0) -> RecordedFloat:
        """Return a name for `value`, or for a result of a conversion."""
        made = float.__new__(cls, value)
        made.name, made.conversion, made.place = name, conversion, place
        return made


class RecordedInt(_Recorded, int):
    """A recorded integer; only native code may read its value, the one while recording."""

    def __new__(cls, value: int, name: str, conversion: Conversion | None = None, place: int = 0) -> RecordedInt:
        """Return a name for `value`, or for a result of a conversion."""
        made = int.__new__(cls, value)
        made.name, made.conversion, made.place = name, conversion, place
        return made


#: The types of recorded numbers.
KINDS: Final = (RecordedFloat, RecordedInt)


def is_recorded(value: object) -> bool:
    """Return whether a value is a recorded number."""
    return type(value) in KINDS


def plain(value: Any) -> Any:
    """Return the value of a recorded number while recording; any other value as it is."""
    if type(value) is RecordedFloat:
        return float.__float__(value)
    return int.__int__(value) if type(value) is RecordedInt else value


def converted(function: Callable[..., tuple[Any, ...]], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the scalars of a call that converts its numbers; they are recorded if any of its numbers is."""
    results = function(*map(plain, arguments))
    if not any(map(is_recorded, arguments)):
        return results
    conversion = Conversion(function, arguments)
    name = ", ".join(argument.name for argument in arguments if is_recorded(argument))
    return tuple(
        (RecordedInt if type(value) is int else RecordedFloat)(value, name, conversion, place)
        for place, value in enumerate(results)
    )
