"""The request of a range of the eigenvalues of Hermitian matrices, as one message, and its result."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ..._support.checks import check_flag
from ..._support.public import public
from ...arrays.operands import Fresh
from ...dtypes import DTYPES, dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request, read, written
from .attributes import EigenRangeAttributes
from .checks import check_operands, check_outputs, check_size, matrix_dtype
from .decomposition import EighResult
from .layouts import new_matrix
from .spec import real_of

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["EigenRangeRequest", "EighRangeResult", "check_range"]

_OUTPUTS: Final = ("w", "v", "found", "info")
_FLAGS: Final = ("vectors", "lower", "check")


@public
class EighRangeResult(NamedTuple):
    """The eigenvalues of Hermitian matrices between two numbers, with their eigenvectors.

    Attributes
    ----------
    eigenvalues : GpuRef
        (..., n), real, in ascending order; NaN after the last that is in the range.
    eigenvectors : GpuRef
        (..., n, n): columns, orthonormal; NaN after the last.
    found : GpuRef
        int32, of the batch's shape: how many are in the range.

    Examples
    --------
    >>> a = device.put(np.diag([2.0, -3.0, 5.0]))
    >>> made = device.solver.tell(an.EigenRangeRequest(a=a, subset_by_value=(0.0, 5.0)))
    >>> made.eigenvalues.numpy(), int(made.found)
    (array([ 2.,  5., nan]), 2)
    """

    eigenvalues: GpuRef
    eigenvectors: GpuRef
    found: GpuRef


def check_range(by_index: Any, by_value: Any, rows: int) -> None:
    """Refuse a range that is none, or that matrices of so many rows do not have."""
    if by_index is not None and by_value is not None:
        raise InvalidRequest("subset_by_index and subset_by_value are given; allowed: one of them")
    for name, subset, wanted in (
        ("subset_by_index", by_index, numbers.Integral), ("subset_by_value", by_value, numbers.Real),
    ):  # fmt: skip
        if subset is not None and not (
            isinstance(subset, tuple | list) and len(subset) == 2 and all(isinstance(x, wanted) for x in subset)
        ):
            raise InvalidRequest(f"{name}={subset!r}; allowed: a pair of numbers")
    if by_index is not None and not 0 <= by_index[0] <= by_index[1] < rows:
        raise InvalidRequest(f"subset_by_index={by_index!r}; allowed: 0 <= first <= last < {rows}")
    if by_value is not None and not by_value[0] < by_value[1]:
        raise InvalidRequest(f"subset_by_value={by_value!r}; allowed: the first below the second")


def _bound(value: float, dtype: np.dtype[Any]) -> float:
    """Return a bound as a finite number of the eigenvalues' dtype."""
    limits = np.finfo(dtype)
    return float(dtype.type(min(max(float(value), float(limits.min)), float(limits.max))))


def _collect(names: tuple[str, ...], arrays: Mapping[str, Any]) -> Any:
    """Return the result; without vectors, and with info numbers, which are the last, it is a plain tuple."""
    found = [arrays[name] for name in names]
    if names == ("w", "v"):
        return EighResult(*found)
    if names == ("w", "v", "found"):
        return EighRangeResult(*found)
    return found[0] if len(found) == 1 else tuple(found)


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class EigenRangeRequest(Request[Any]):
    """A range of the eigenvalues of Hermitian matrices, checked when it is made.

    The others, and their vectors, are not computed to the end.  On a GPU this is cuSOLVER's ``Xsyevdx``, for each
    matrix of a batch, and the lane waits for it; other lanes do not.  `Solver.eigh` sends it for large matrices.

    Parameters
    ----------
    a
        float32, float64, complex64 or complex128, of shape (..., n, n), with any strides of 0 or more.  One triangle is
        read, and nothing is written.
    w, v, found, info
        Outputs with any strides; allocated where missing.  By index w has shape (..., k) and v (..., n, k) for k
        eigenvalues; by value w has shape (..., n), v (..., n, n) and found, int32, which says how many
        there are, the batch's shape.
    vectors : bool
        Whether eigenvectors are made.
    lower : bool
        Which triangle is read.
    subset_by_index : (int, int), optional
        The first and the last eigenvalue in ascending order, counted from 0.
    subset_by_value : (float, float), optional
        Eigenvalues above the first number, and up to the second; these are rounded to the eigenvalues' dtype.
        Each pair has a plan of its own.
    check : bool
        As in `DecompositionRequest`.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values, and without a range; the message names the value and the allowed ones.

    Notes
    -----
    The result by index is an `EighResult`, and by value an `EighRangeResult`; with ``vectors=False`` w alone, or the
    tuple of w and found.  With ``check=False`` info is the last of a plain tuple.  The results of a matrix with NaN or
    an infinity, in the part that is read, are NaN, and none is found.

    Examples
    --------
    >>> a = device.put(np.diag([2.0, -3.0, 5.0]))
    >>> device.solver.tell(an.EigenRangeRequest(a=a, subset_by_index=(1, 2), vectors=False)).numpy()
    array([2., 5.])
    """

    a: Any = None
    w: Any = None
    v: Any = None
    found: Any = None
    info: Any = None
    vectors: bool = True
    lower: bool = True
    check: bool = True
    subset_by_index: tuple[int, int] | None = None
    subset_by_value: tuple[float, float] | None = None

    @property
    def routine(self) -> str:
        """What errors call it."""
        return "eigh_range"

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        check_operands(self, ("a",), ("a",))
        for name in _FLAGS:
            check_flag(name, getattr(self, name), bool | np.bool)
        rows, columns = check_size("a", self.a)
        if rows != columns:
            raise InvalidRequest(f"a has shape {tuple(self.a.shape)}; eigh_range takes square matrices")
        dtype = matrix_dtype(self.a)
        if self.subset_by_index is None and self.subset_by_value is None:
            raise InvalidRequest("a range of eigenvalues needs subset_by_index or subset_by_value")
        check_range(self.subset_by_index, self.subset_by_value, rows)
        batch, fresh = tuple(self.a.shape)[:-2], self._fresh(rows, dtype)
        self._check_names(fresh)
        check_outputs(self, _OUTPUTS, ("a",), fresh)
        operands = [read("a", self.a)]
        for name, wanted in fresh.items():
            given = getattr(self, name)
            fresh_matrix = given is None and name == "v"
            operands.append(new_matrix(name, wanted) if fresh_matrix else written(name, given, wanted))
        operands.append(new_matrix("factor", Fresh((*batch, rows, rows), dtype)))
        first, last = (0, 0) if self.subset_by_index is None else map(int, self.subset_by_index)
        above, up_to = (_bound(value, real_of(dtype)) for value in self.subset_by_value or (0.0, 0.0))
        return Lowered(
            op="solver.eigh_range",
            operands=tuple(operands),
            collect=partial(_collect, tuple(fresh)),
            attributes=EigenRangeAttributes(
                dtype=dtype_name(dtype),
                batch=batch,
                lower=bool(self.lower),
                check=bool(self.check),
                by="index" if self.subset_by_value is None else "value",
                first=first,
                last=last,
                above=above,
                up_to=up_to,
            ),
        )

    def _fresh(self, rows: int, dtype: np.dtype[Any]) -> dict[str, Fresh]:
        """Return shape and dtype of each output."""
        batch = tuple(self.a.shape)[:-2]
        k = rows if self.subset_by_index is None else int(self.subset_by_index[1]) - int(self.subset_by_index[0]) + 1
        fresh = {"w": Fresh((*batch, k), real_of(dtype))}
        if self.vectors:
            fresh["v"] = Fresh((*batch, rows, k), dtype)
        if self.subset_by_value is not None:
            fresh["found"] = Fresh(batch, DTYPES["int32"])
        if not self.check:
            fresh["info"] = Fresh(batch, DTYPES["int32"])
        return fresh

    def _check_names(self, fresh: Mapping[str, Fresh]) -> None:
        for name in _OUTPUTS:
            if getattr(self, name) is not None and name not in fresh:
                raise InvalidRequest(f"eigh_range does not take {name} here; its outputs: {', '.join(fresh)}")
