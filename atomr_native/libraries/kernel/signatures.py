"""Kernels with signatures, ``@cuda.jit("void(float32[:], float32)")``: the choice of the signature for arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...compile.numba import api
from ...compile.numba.api import types
from ...errors import InvalidRequest, Unsupported
from ...plans.spec import signed_word
from . import spec
from .spec import Members, Scalar

__all__ = ["fitted", "types_of"]


def fitted(
    kernel: str, signatures: Sequence[Sequence[Any]], names: Sequence[str], arguments: Sequence[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """Return arguments with numbers of the types of the matching signature that converts the fewest arguments.

    As in Numba, integers become floating-point numbers where a signature says so, and these never integers.  An array
    fits one of its dtype and rank whose layout it has, ``[:]`` being any.

    Parameters
    ----------
    kernel : str
        Its name, for the message.
    signatures : sequence of sequence of Numba's types
    names, arguments
        Parameters, and the result of `NumbaKernel.classify` for each argument.

    Raises
    ------
    InvalidRequest
        If they fit none.
    """
    given = types_of(names, arguments)
    best: tuple[int, list[tuple[Any, ...]]] | None = None
    for signature in signatures:
        found = [_fit(argument, has, wants) for argument, has, wants in zip(arguments, given, signature, strict=True)]
        if all(fitted is not None for fitted in found):
            changed = sum(fitted != argument for fitted, argument in zip(found, arguments, strict=True))
            if best is None or changed < best[0]:
                best = changed, [fitted for fitted in found if fitted is not None]
    if best is None:
        allowed = "; ".join(f"({', '.join(map(str, signature))})" for signature in signatures)
        raise InvalidRequest(
            f"kernel {kernel} has no signature for ({', '.join(map(str, given))}); it was decorated with: {allowed}"
        )
    return best[1]


def types_of(names: Sequence[str], arguments: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return Numba's types of arguments as `spec.classify` describes them."""
    found: list[Any] = []
    for name, (kind, value) in zip(names, arguments, strict=True):
        if kind == "array":
            try:
                found.append(api.array_type(value.dtype, value.ndim, spec.order_of(value)))
            except Unsupported as error:
                raise Unsupported(f"argument {name}: {error}") from None
        elif kind == "records":
            found.append(api.record_array_type(value.dtype, len(value.shape)))
        elif kind == "record":
            found.append(api.record_type(value.dtype))
        elif kind == "tuple":
            members = types_of([f"{name}[{i}]" for i in range(len(value.items))], value.items)
            found.append(api.tuple_type(members, value.named))
        else:
            found.append(api.scalar_type(value.type))
    return tuple(found)


def _fit(argument: tuple[Any, ...], has: Any, wants: Any) -> tuple[Any, ...] | None:
    """Return an argument as a signature wants it, or None."""
    kind, value = argument
    if kind in ("array", "records"):
        # One axis, or less than two elements, has both orders.
        layouts = {"A", has.layout} | ({"C", "F"} if has.layout == "C" and _is_both(value) else set())
        same = isinstance(wants, types.Array) and (wants.dtype, wants.ndim) == (has.dtype, has.ndim)
        return argument if same and wants.layout in layouts else None
    if kind == "scalar":
        made = _number(value, wants)
        return None if made is None else (kind, made)
    if kind == "tuple":
        if not isinstance(wants, types.BaseTuple) or len(wants) != len(has):
            return None
        if getattr(wants, "instance_class", None) is not value.named:
            return None
        items = tuple(map(_fit, value.items, has, wants))
        return None if None in items else (kind, Members(items, value.named))  # type: ignore[arg-type]
    return argument if has == wants else None


def _is_both(value: Any) -> bool:
    shape = value.shape if isinstance(value, spec.Records) else spec.ref_of(value).shape
    return sum(n != 1 for n in shape) <= 1


def _number(value: Scalar, wants: Any) -> Scalar | None:
    """Return a number as another type, or None if that type cannot hold every value of the number's own type."""
    if wants == api.scalar_type(value.type):
        return value
    words, is_real = value.words, value.type.startswith("float")
    if isinstance(wants, types.Complex):
        numbers = (float(words[0]), float(words[1]) if len(words) > 1 else 0.0)
        return Scalar(str(wants), numbers)
    if len(words) > 1:
        return None
    number = words[0] % 2**64 if value.type == "uint64" else words[0]
    if isinstance(wants, types.Float):
        return Scalar(str(wants), (float(number),))
    integer = int(number)
    if is_real or not isinstance(wants, types.Integer) or not wants.minval <= integer <= wants.maxval:
        return None
    return Scalar(str(wants), (signed_word(integer),))
