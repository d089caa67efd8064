"""Products and sums of two sparse matrices: a pattern first, then values by messages of one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..._support.checks import check_choice, check_factor
from ..._support.public import public
from ...arrays.operands import check_input
from ...dtypes import dtype_name
from ...errors import InvalidRequest
from ...plans.calls import form_of
from ...plans.lowering import Lowered, Request, read, written
from .._factors import FACTORS, factor_scalars, split_factors
from .attributes import CombineAttributes
from .batches import refuse_batch
from .conversions import Conversions
from .matrix import SparseMatrix
from .places import Groups, group, key_of, offsets_of, places_of, ramp
from .spec import check_out, compute_dtype

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["COMBINE", "Combinations", "CombineRequest", "SparsePattern"]

_DTYPES: Final = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineRequest(Request[Any]):
    """Values of a combination of two matrices, by its pattern.

    Parameters
    ----------
    routine : str
        ``product``: out[k] is alpha times the sum of ``a[left[p]] * b[right[p]]``; ``sum``: the sum of ``alpha
        a[left[p]] + beta b[right[p]]``, where an index of -1 stands for 0; p goes from ``starts[k]`` to
        ``starts[k + 1]``.
    a, b
        Values of one dtype.
    left, right, starts
        int64.
    out
        The values.
    """

    routine: str
    a: Any
    b: Any
    left: Any
    right: Any
    starts: Any
    out: Any = None
    alpha: complex = 1.0
    beta: complex = 0.0

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        check_choice("routine", self.routine, ("product", "sum"))
        dtype = check_input("a", self.a).dtype
        for name in FACTORS:
            check_factor(name, getattr(self, name), imaginary=dtype.kind == "c")
        names = ("a", "b", "left", "right", "starts")
        out = check_out(self, (self.starts.shape[0] - 1,), [dtype], names)
        is_complex = dtype.kind == "c"
        return Lowered(
            op=f"sparse.{self.routine}",
            operands=(*(read(name, getattr(self, name)) for name in names), written("out", self.out, out)),
            collect=itemgetter("out"),
            attributes=CombineAttributes(compute=dtype_name(compute_dtype(dtype))),
            scalars=factor_scalars(self.alpha, self.beta, is_complex=is_complex),
            numbers=FACTORS,
            convert=split_factors if is_complex else None,
        )


COMBINE: Final = form_of(CombineRequest, "a b left right starts out", "routine", numbers="alpha beta")


class _Terms(NamedTuple):
    """Which values each element of a result is the sum of; int64."""

    left: Any
    right: Any
    starts: Any


@public
class SparsePattern:
    """The pattern of a product or a sum of two sparse matrices, and how its values follow from theirs.

    Made by `Sparse.matmul_pattern` and `Sparse.add_pattern`, which wait for the number of elements; messages with new
    values do not.  It is a function of the index arrays as they were then; index arrays that are written later do not
    change it.

    Attributes
    ----------
    nnz : int
        Elements of the result, zeros by cancellation included.
    offsets, indices : GpuRef
        Of the result in csr, in order.
    terms : int
        Products, or elements of both matrices, that are added up.

    Examples
    --------
    >>> a = device.sparse.matrix(np.array([[1.0, 2.0], [0.0, 3.0]]))
    >>> pattern = device.sparse.matmul_pattern(a, a)
    >>> pattern.nnz, pattern.terms
    (3, 4)
    >>> pattern.tell(a.values, a.values).scipy().toarray()
    array([[1., 8.],
           [0., 9.]])
    """

    def __init__(
        self, send: Any, routine: str, shape: tuple[int, int], sizes: tuple[int, int], dtype: Any, terms: _Terms,
        offsets: GpuRef, indices: GpuRef,
    ) -> None:  # fmt: skip
        self._send, self._routine, self._sizes, self._terms = send, routine, sizes, terms
        self.shape, self.dtype, self.offsets, self.indices = shape, dtype, offsets, indices

    @property
    def nnz(self) -> int:
        """Elements of the result."""
        return self.indices.size

    @property
    def terms(self) -> int:
        """Terms that are added up."""
        return int(self._terms.left.size)

    def tell(
        self, a: GpuRef, b: GpuRef, *, alpha: complex = 1.0, beta: complex = 1.0, out: GpuRef | None = None
    ) -> SparseMatrix:
        """Send the values of the result: ``alpha A B``, or ``alpha A + beta B``.  Enqueues; equal bits each time.

        Parameters
        ----------
        a, b
            Values of both matrices, in the order in which they had them when the pattern was made.
        out
            The values of the result; allocated if missing.

        Raises
        ------
        InvalidRequest
            For values of another number or dtype.
        """
        for name, array, size in zip("ab", (a, b), self._sizes, strict=True):
            found = check_input(name, array)
            if tuple(found.shape) != (size,) or found.dtype != self.dtype:
                raise InvalidRequest(
                    f"{name} has shape {tuple(found.shape)} and dtype {dtype_name(found.dtype)}; allowed: ({size},) of "
                    f"{dtype_name(self.dtype)}, as the pattern was made for"
                )
        values = self._send(self._routine, a, b, self._terms, alpha, beta, out)
        return SparseMatrix("csr", self.shape, values, self.indices, self.offsets)

    def __repr__(self) -> str:
        return f"<SparsePattern of a {self._routine}, {self.shape}, {self.nnz} stored from {self.terms} terms>"


def _check_pair(a: SparseMatrix, b: SparseMatrix, what: str) -> None:
    for name, one in (("a", a), ("b", b)):
        refuse_batch(name, one.batch, what)
        if one.format != "csr":
            raise InvalidRequest(f"{name} is {one.format}; {what} takes csr, which device.sparse.convert makes")
    if a.dtype != b.dtype or dtype_name(a.dtype) not in _DTYPES:
        raise InvalidRequest(
            f"{what} of {dtype_name(a.dtype)} and {dtype_name(b.dtype)}; allowed: one dtype of {', '.join(_DTYPES)}"
        )


class Combinations(Conversions):
    """Methods of the sparse actor that combine two sparse matrices."""

    def _combine(
        self, routine: str, a: GpuRef, b: GpuRef, terms: _Terms, alpha: complex, beta: complex, out: GpuRef | None
    ) -> GpuRef:
        made: GpuRef = self._calls.send(self, COMBINE, (a, b, *terms, out, routine, alpha, beta))
        return made

    def matmul_pattern(self, a: SparseMatrix, b: SparseMatrix) -> SparsePattern:
        """Return the pattern of ``A B``, both csr (SpGEMM).  Waits for its numbers of terms and of elements.

        It holds two int64 numbers for each product of elements.  Only the sender waits; the device goes on.

        Raises
        ------
        InvalidRequest
            For other formats, and shapes or dtypes that do not fit.
        OutOfMemory
            If there is no memory for the terms.
        """
        _check_pair(a, b, "a product")
        if a.shape[1] != b.shape[0]:
            raise InvalidRequest(f"a product of {a.shape} and {b.shape}; allowed: b of ({a.shape[1]}, any)")
        xp, shape = self._xp, (a.shape[0], b.shape[1])
        total = 0
        if a.nnz and b.nnz:
            first = xp.astype(b.offsets, xp.int64)
            inner = xp.astype(a.indices, xp.int64)
            begins = xp.take(first, inner, axis=0)
            lengths = xp.take(first[1:], inner, axis=0) - begins
            ends = xp.cumulative_sum(lengths)
            total = int(ends[-1])
        if not total:
            none = ramp(self.device, 0)
            return self._pattern("product", shape, a, b, none, none, group(none, xp))
        each = ramp(self.device, total)
        left = xp.searchsorted(ends, each, side="right")
        right = each - xp.take(ends - lengths - begins, left, axis=0)
        rows = xp.take(places_of(a, xp).rows, left, axis=0)
        columns = xp.take(xp.astype(b.indices, xp.int64), right, axis=0)
        return self._pattern("product", shape, a, b, left, right, group(key_of(rows, columns, shape), xp))

    def add_pattern(self, a: SparseMatrix, b: SparseMatrix) -> SparsePattern:
        """Return the pattern of ``A + B``, both csr.  Waits for its number of elements.

        Raises
        ------
        InvalidRequest
            For other formats, and shapes or dtypes that do not fit.
        """
        _check_pair(a, b, "a sum")
        if a.shape != b.shape:
            raise InvalidRequest(f"a sum of {a.shape} and {b.shape}; allowed: equal shapes")
        xp = self._xp
        key = xp.concat((self._keys(a), self._keys(b)))
        each = ramp(self.device, key.size)
        left = xp.where(each < a.nnz, each, -1)
        right = xp.where(each < a.nnz, -1, each - a.nnz)
        return self._pattern("sum", a.shape, a, b, left, right, group(key, xp))

    def _pattern(
        self, routine: str, shape: tuple[int, int], a: SparseMatrix, b: SparseMatrix, left: Any, right: Any,
        groups: Groups,
    ) -> SparsePattern:  # fmt: skip
        xp, across = self._xp, max(shape[1], 1)
        wide = a.index_dtype.itemsize == 8 or b.index_dtype.itemsize == 8 or groups.number > 2**31 - 1
        index = xp.int64 if wide else xp.int32
        if groups.number:
            left, right = (xp.take(one, groups.order, axis=0) for one in (left, right))
            offsets = offsets_of(groups.keys // across, shape[0], xp)
        else:
            offsets = self.device.zeros(shape[0] + 1, "int64")
        return SparsePattern(
            self._combine, routine, shape, (a.nnz, b.nnz), a.dtype, _Terms(left, right, groups.starts),
            xp.astype(offsets, index), xp.astype(groups.keys % across, index),
        )  # fmt: skip

    def matmul(self, a: SparseMatrix, b: SparseMatrix, *, alpha: complex = 1.0) -> SparseMatrix:
        """Send ``alpha A B`` of two matrices in csr.  Waits as `matmul_pattern`, whose result serves new values."""
        return self.matmul_pattern(a, b).tell(a.values, b.values, alpha=alpha)

    def add(self, a: SparseMatrix, b: SparseMatrix, *, alpha: complex = 1.0, beta: complex = 1.0) -> SparseMatrix:
        """Send ``alpha A + beta B`` of two matrices in csr.  Waits as `add_pattern`, whose result serves new values."""
        return self.add_pattern(a, b).tell(a.values, b.values, alpha=alpha, beta=beta)
