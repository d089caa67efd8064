"""The operands and numbers that all random requests have: where numbers come from, and where they go."""

from __future__ import annotations

from typing import Any

from ...arrays.operands import Fresh, check_disjoint, check_output
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Operand, read, written
from .generator import STREAMS
from .spec import check_counters, check_offset, is_array

__all__ = ["check_range", "output"]


def check_range(
    seed: Any, stream: Any, offset: Any, count: int, streams: int = STREAMS
) -> tuple[dict[str, Any], list[Operand]]:
    """Return those of seed, stream and offset that are numbers, and the offset as an operand if it is an array.

    Raises
    ------
    InvalidRequest
        For numbers beyond their limits, and an array that is no offset.
    """
    if is_array(offset):
        check_offset(offset)
        check_counters(count, seed, stream, streams=streams)
        return {"seed": seed, "stream": stream}, [read("offset", offset)]
    check_counters(count, seed, stream, offset, streams=streams)
    return {"seed": seed, "stream": stream, "offset": offset}, []


def output(out: Any, dtype: str, shape: tuple[int, ...], inputs: list[Operand]) -> Operand:
    """Return the operand that is written: the given array, after checks, or a new one."""
    if out is not None:
        check_output("out", out)
        found = dtype_name(as_dtype(out.dtype))
        if found != dtype or tuple(out.shape) != shape:
            raise InvalidRequest(
                f"out has dtype {found} and shape {tuple(out.shape)}; allowed here: {dtype} of {shape}"
            )
        check_disjoint([("out", out)], [(o.name, o.given) for o in inputs])
    return written("out", out, Fresh(shape, DTYPES[dtype]))
