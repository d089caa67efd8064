"""Sorts, searches and running sums: requests of the functions of arrays, and their rules."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from ...arrays.operands import Fresh, check_input, check_size
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.calls import form_of
from ...plans.lowering import Lowered, Request, read, written
from .attributes import ScanAttributes, SearchAttributes, SortAttributes

__all__ = ["SCAN", "SEARCH", "SORT", "ScanRequest", "SearchRequest", "SortRequest"]

#: Kernels number the elements of a row by 32 bits.
_LONGEST: Final = 2**32 - 1


def _rows(name: str, given: Any) -> Any:
    """Return an array of rows that follow each other in memory."""
    x = check_input(name, given)
    steps = (x.shape[1] * x.dtype.itemsize, x.dtype.itemsize) if len(x.shape) == 2 else ()
    apart = [n > 1 and s != step for n, s, step in zip(x.shape, x.strides, steps, strict=False)]
    if not steps or (any(apart) and 0 not in x.shape):
        raise InvalidRequest(f"{name} has shape {tuple(x.shape)} and strides {tuple(x.strides)}; allowed: C order")
    return x


@dataclass(frozen=True, slots=True, kw_only=True)
class SortRequest(Request[Any]):
    """The elements of each row of `x` in order, or their places in it; equal ones stay in order, and NaN is largest.

    Parameters
    ----------
    x
        Rows that follow each other in memory; real.
    descending
        Whether the largest element comes first.
    places
        Whether int64 indices are the result, and not the elements.
    """

    x: Any
    descending: bool = False
    places: bool = False

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        x = _rows("x", self.x)
        dtype = as_dtype(x.dtype)
        if dtype.kind == "c":
            raise InvalidRequest(f"sort of x, which has dtype {dtype_name(dtype)}; allowed: real dtypes")
        if x.shape[1] > _LONGEST:
            raise InvalidRequest(f"sort of {x.shape[1]} elements; allowed: up to {_LONGEST}")
        fresh = Fresh(tuple(x.shape), DTYPES["int64"] if self.places else dtype)
        check_size("out", *fresh)
        return Lowered(
            op="elementwise.sort",
            operands=(read("x", self.x), written("out", None, fresh)),
            collect=itemgetter("out"),
            attributes=SortAttributes(descending=self.descending, places=self.places),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest(Request[Any]):
    """Running sums or products of the rows of `x`.

    Parameters
    ----------
    x
        Rows that follow each other in memory.
    op
        ``"sum"`` or ``"prod"``.
    dtype
        Of the result.
    """

    x: Any
    op: str
    dtype: str

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        x = _rows("x", self.x)
        fresh = Fresh(tuple(x.shape), DTYPES[self.dtype])
        check_size("out", *fresh)
        wide = "float32" if fresh.dtype.kind in "fV" and self.dtype != "float64" else self.dtype
        return Lowered(
            op="elementwise.scan",
            operands=(read("x", self.x), written("out", None, fresh)),
            collect=itemgetter("out"),
            attributes=ScanAttributes(op=self.op, accumulate=wide),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest(Request[Any]):
    """The places in a sorted row where values would go, as int64.

    Parameters
    ----------
    row, values
        Of shape (1, n) and (1, m), and of one real dtype.
    right
        Whether a value goes behind its equals.
    """

    row: Any
    values: Any
    right: bool = False

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        row, values = _rows("row", self.row), _rows("values", self.values)
        kinds = [dtype_name(as_dtype(x.dtype)) for x in (row, values)]
        if kinds[0] != kinds[1] or kinds[0].startswith("complex"):
            raise InvalidRequest(f"a search of {kinds[1]} in {kinds[0]}; allowed: one real dtype")
        fresh = Fresh(tuple(values.shape), DTYPES["int64"])
        check_size("out", *fresh)
        return Lowered(
            op="elementwise.search",
            operands=(read("row", self.row), read("values", self.values), written("out", None, fresh)),
            collect=itemgetter("out"),
            attributes=SearchAttributes(right=self.right),
        )


SORT: Final = form_of(SortRequest, "x", "descending places")
SCAN: Final = form_of(ScanRequest, "x", "op dtype")
SEARCH: Final = form_of(SearchRequest, "row values", "right")
