"""A sparse matrix as a value: its format, its shape, and handles of its arrays."""

from __future__ import annotations

import importlib
import warnings
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from ..._support.checks import as_integer, check_choice, check_flag, is_integer
from ..._support.public import public
from ...arrays.operands import check_input, is_contiguous
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest
from .batches import check_batch, refuse_batch
from .padded import PADDED, check_padded, padded_places, refuse_padded

__all__ = ["DTYPES_OF_VALUES", "FORMATS", "SparseMatrix", "check_longest"]

FORMATS: Final = ("csr", "csc", "coo", "bsr")
DTYPES_OF_VALUES: Final = (
    "int8", "int32", "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
_INDICES: Final = ("int32", "int64")


def _check_shape(shape: object) -> tuple[int, int]:
    if not isinstance(shape, tuple | list) or len(shape) != 2 or not all(is_integer(n) and n >= 0 for n in shape):
        raise InvalidRequest(f"shape={shape!r}; allowed: two integers of 0 or more, rows and columns")
    return int(shape[0]), int(shape[1])


def _vector(name: str, array: Any, length: int | None, why: str) -> None:
    shape = tuple(check_input(name, array).shape)
    if len(shape) != 1 or (length is not None and shape[0] != length):
        allowed = "one axis" if length is None else f"({length},), {why}"
        raise InvalidRequest(f"{name} has shape {shape}; allowed: {allowed}")


class Parts(NamedTuple):
    """Shape of a matrix, the number of its stored elements or blocks, and of the matrices if it is a batch."""

    shape: tuple[int, int]
    stored: int
    batch: int | None


def _check_lines(
    form: str, shape: tuple[int, int], values: Any, indices: Any, offsets: Any, rows: Any
) -> tuple[int, int | None]:
    """Check the shapes of the arrays of a matrix without padding; return its stored elements or blocks, and batch."""
    block, found = 1, tuple(check_input("values", values).shape)
    if form == "bsr":
        if len(found) not in (3, 4) or found[-2] != found[-1] or found[-1] == 0:
            raise InvalidRequest(
                f"values has shape {found}; allowed: (blocks, b, b) for the format bsr, or (batch, blocks, b, b)"
            )
        block, count = found[-1], found[-3]
        if shape[0] % block or shape[1] % block:
            raise InvalidRequest(f"shape={shape} with blocks of {block} x {block}; allowed: multiples of {block}")
    else:
        if len(found) not in (1, 2):
            raise InvalidRequest(f"values has shape {found}; allowed: one axis, or (batch, stored elements)")
        count = found[-1]
    batch = check_batch(found[0] if len(found) in (2, 4) else None)
    lines = {"csr": shape[0], "csc": shape[1], "bsr": shape[0] // block, "coo": 0}[form]
    if batch is not None and len(check_input("indices", indices).shape) != 1:
        raise InvalidRequest(
            f"indices has shape {tuple(indices.shape)}; allowed: ({count},), since the matrices of a batch have one "
            f"pattern; make a matrix for each other pattern"
        )
    _vector("indices", indices, count, "one for each stored element")
    wanted, other = ("rows", "offsets") if form == "coo" else ("offsets", "rows")
    second, absent = (rows, offsets) if form == "coo" else (offsets, rows)
    if second is None or absent is not None:
        raise InvalidRequest(f"the format {form} takes {wanted} and no {other}")
    if form == "coo":
        _vector("rows", rows, count, "one for each stored element")
    else:
        _vector("offsets", offsets, lines + 1, f"one more than the {lines} lines of the format")
    return count, batch


def check_parts(form: Any, shape: Any, values: Any, indices: Any, offsets: Any, rows: Any) -> Parts:
    """Check the arrays of a matrix; return what follows from them.

    Raises
    ------
    InvalidRequest
        As `SparseMatrix` says.
    """
    check_choice("format", form, (*FORMATS, *PADDED))
    shape = _check_shape(shape)
    if form in PADDED:
        count, batch = check_padded(form, shape, values, indices, offsets, rows), None
    else:
        count, batch = _check_lines(form, shape, values, indices, offsets, rows)
    wanted, second = ("rows", rows) if form == "coo" else ("offsets", offsets)
    kind = dtype_name(as_dtype(values.dtype))
    if kind not in DTYPES_OF_VALUES:
        raise InvalidRequest(f"values has dtype {kind}; allowed: {', '.join(DTYPES_OF_VALUES)}")
    arrays = [("indices", indices), *([(wanted, second)] if second is not None else [])]
    kinds = [dtype_name(as_dtype(array.dtype)) for _, array in arrays]
    if len(set(kinds)) > 1 or kinds[0] not in _INDICES:
        if second is None:
            raise InvalidRequest(f"indices has dtype {kinds[0]}; allowed: {', '.join(_INDICES)}")
        raise InvalidRequest(
            f"indices has dtype {kinds[0]} and {wanted} {kinds[1]}; allowed: both int32, or both int64"
        )
    if kinds[0] == "int32" and max(*shape, count) > 2**31 - 1:
        raise InvalidRequest(f"shape={shape} with {count} stored elements and int32 indices; allowed: int64 indices")
    for name, array in (("values", values), *arrays):
        if not is_contiguous(array):
            raise InvalidRequest(f"{name} has strides {tuple(array.strides)}; allowed: C order")
    return Parts(shape, count, batch)


def check_longest(value: object) -> None:
    """Refuse what is no length of a line."""
    if value is not None:
        as_integer("longest", value, 0, 2**63 - 1)


@public
@dataclass(frozen=True, slots=True, eq=False)
class SparseMatrix:
    """A sparse matrix on a device.

    It owns nothing but handles: its arrays are ordinary `GpuRef` objects, with all that holds for them.  After a
    restart of the device a matrix with volatile arrays is stale, one with durable arrays lives on.  The content of the
    arrays is not looked at here; `Sparse.validate` does that on the device.

    Parameters
    ----------
    format : str
        ``"csr"``, ``"csc"``, ``"coo"``, ``"bsr"`` with square blocks, or a format with padding: ``"sliced_ell"`` or
        ``"blocked_ell"``.
    shape : tuple of int
        Rows and columns.
    values : GpuRef
        (nnz,) of int8, int32, float16, bfloat16, float32, float64, complex64 or complex128; (blocks, b, b) of ``bsr``.
        Of a batch of matrices with one pattern (batch, nnz) or (batch, blocks, b, b).  Of ``sliced_ell`` (columns of
        all slices, rows of a slice): a slice has as many columns as its longest row has elements.  Of ``blocked_ell``
        (rows / b, b, blocks of a row, b): the memory of a dense matrix.
    indices : GpuRef
        (nnz,) of int32 or int64: columns; rows of ``csc``; columns of blocks of ``bsr``.  Of the shape of
        `values` for ``sliced_ell``, (rows / b, blocks of a row) for ``blocked_ell``; -1 is padding.
    offsets : GpuRef, optional
        (lines + 1,) of the dtype of `indices`: where each row (column of ``csc``, row of blocks of ``bsr``) begins.
        Of ``sliced_ell`` (slices + 1,): where each slice begins in `values`, in elements.  None for ``coo`` and
        ``blocked_ell``.
    rows : GpuRef, optional
        (nnz,), of ``coo`` only.
    ordered : bool
        Of ``coo``: whether `rows` are in ascending order, which products need.  A promise: `Sparse.sort` keeps it.
    longest : int, optional
        The most stored elements of a row of ``csr``, or a column of ``csc``, if it is known: products choose kernels by
        it.  `Sparse.matrix` knows it of matrices on the host.  Results are right also where it is not.

    Attributes
    ----------
    nnz, dtype, index_dtype, block
        Stored elements of a matrix, padding included, dtype of values and of indices, and edge of a block (1 if there
        are none).
    batch : int or None
        Matrices of one pattern, if `values` has an axis more, in front: ``(batch, nnz)``.
    T : SparseMatrix
        The transpose of ``csr``, ``csc`` and ``coo``, with the same arrays: ``csr`` becomes ``csc``.  Sends nothing.

    Raises
    ------
    InvalidRequest
        For shapes or dtypes that do not fit, and for int32 indices where int64 are needed.

    Examples
    --------
    >>> a = device.sparse.matrix(np.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> a
    <SparseMatrix csr (2, 2) float64, 2 stored>
    >>> a.indices.numpy()
    array([1, 0], dtype=int32)
    """

    format: str
    shape: tuple[int, int]
    values: Any
    indices: Any
    offsets: Any = None
    rows: Any = None
    ordered: bool = False
    longest: int | None = None

    def __post_init__(self) -> None:
        check_flag("ordered", self.ordered)
        check_longest(self.longest)
        parts = check_parts(self.format, self.shape, self.values, self.indices, self.offsets, self.rows)
        object.__setattr__(self, "shape", parts.shape)

    @property
    def nnz(self) -> int:
        """Stored elements, explicit zeros, duplicates and padding included."""
        if self.format in PADDED:
            return int(self.values.size)
        return int(self.indices.size) * self.block**2

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values."""
        return as_dtype(self.values.dtype)

    @property
    def index_dtype(self) -> np.dtype[Any]:
        """Dtype of the indices."""
        return as_dtype(self.indices.dtype)

    @property
    def block(self) -> int:
        """Edge of a block; 1 for formats without blocks."""
        return self.values.shape[-1] if self.format in ("bsr", "blocked_ell") else 1

    @property
    def batch(self) -> int | None:
        """Matrices of a batch; None for a single matrix."""
        if self.format in PADDED:
            return None
        return self.values.shape[0] if len(self.values.shape) in (2, 4) else None

    @property
    def arrays(self) -> dict[str, Any]:
        """The arrays by name."""
        second = {"rows": self.rows} if self.format == "coo" else {"offsets": self.offsets}
        if self.format == "blocked_ell":
            second = {}
        return {"values": self.values, "indices": self.indices, **second}

    @property
    def T(self) -> SparseMatrix:  # noqa: N802  (NumPy's name)
        """The transpose, of the same arrays."""
        if self.format == "bsr" or self.format in PADDED:
            raise InvalidRequest(
                f"the transpose of {self.format} is no {self.format} of the same arrays; allowed: csr, csc, coo, by "
                f"convert"
            )
        if self.format == "coo":
            return SparseMatrix("coo", self.shape[::-1], self.values, self.rows, rows=self.indices)
        other = "csc" if self.format == "csr" else "csr"
        return replace(self, format=other, shape=self.shape[::-1])

    def with_values(self, values: Any) -> SparseMatrix:
        """Return a matrix of the same pattern with other values, of any allowed dtype."""
        return replace(self, values=values)

    def scipy(self) -> Any:
        """Return a copy as a sparse array of SciPy.  Waits for the device; 16-bit values become float32."""
        import scipy.sparse

        refuse_batch("a", self.batch, "scipy")
        values = self.values.numpy()
        if dtype_name(self.dtype) in ("float16", "bfloat16"):
            values = values.astype(np.float32)
        if self.format in PADDED:
            offsets = None if self.offsets is None else self.offsets.numpy()
            at = padded_places(self.shape, self.indices.numpy(), offsets, self.block)
            places = (at.rows[at.stored], at.columns[at.stored])
            made = scipy.sparse.coo_array((values[at.stored], places), shape=self.shape)
        elif self.format == "coo":
            made = scipy.sparse.coo_array((values, (self.rows.numpy(), self.indices.numpy())), shape=self.shape)
        else:
            kind = getattr(scipy.sparse, f"{self.format}_array")
            made = kind((values, self.indices.numpy(), self.offsets.numpy()), shape=self.shape)
        return made

    def torch(self) -> Any:
        """Return a sparse tensor of PyTorch over the arrays, by DLPack: shared where the device allows it."""
        refuse_batch("a", self.batch, "torch")
        refuse_padded("a", self.format, "torch")
        torch = importlib.import_module("torch")

        parts = {name: torch.from_dlpack(array) for name, array in self.arrays.items()}
        with warnings.catch_warnings():
            # torch warns where it reads its own setting, before it looks at `check_invariants`.
            warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly disabled")
            if self.format == "coo":
                places = torch.stack((parts["rows"], parts["indices"]))
                return torch.sparse_coo_tensor(places, parts["values"], self.shape, check_invariants=False)
            make = getattr(torch, f"sparse_{self.format}_tensor")
            return make(parts["offsets"], parts["indices"], parts["values"], self.shape, check_invariants=False)

    def cupy(self) -> Any:
        """Return a sparse matrix of CuPy (csr, csc or coo) over the arrays, by DLPack."""
        refuse_batch("a", self.batch, "cupy")
        refuse_padded("a", self.format, "cupy")
        cupy, theirs = importlib.import_module("cupy"), importlib.import_module("cupyx.scipy.sparse")

        if self.format == "bsr":
            raise InvalidRequest("CuPy has no bsr; allowed: csr, csc, coo, by convert")
        parts = {name: cupy.from_dlpack(array) for name, array in self.arrays.items()}
        if self.format == "coo":
            places = (parts["rows"], parts["indices"])
            return theirs.coo_matrix((parts["values"], places), shape=self.shape)
        kind = getattr(theirs, f"{self.format}_matrix")
        return kind((parts["values"], parts["indices"], parts["offsets"]), shape=self.shape)

    def __repr__(self) -> str:
        batch = "" if self.batch is None else f", batch of {self.batch}"
        return f"<SparseMatrix {self.format} {self.shape} {dtype_name(self.dtype)}, {self.nnz} stored{batch}>"
