"""Other formats and orders of sparse matrices, and checks of their indices: methods of the sparse actor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..._support.checks import as_integer, check_choice, is_real
from ..._support.public import public
from ...arrays.operands import check_input
from ...dtypes import dtype_name
from ...errors import InvalidRequest
from ...plans.actor import LibraryActor
from .batches import refuse_batch
from .matrix import FORMATS, SparseMatrix
from .padded import PADDED, refuse_padded
from .padding import facts_of_padded, to_blocked_ell, to_sliced_ell, without_padding
from .places import Groups, Places, group, kept, key_of, lines_of, offsets_of, ordered, places_of, ramp

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["Conversions", "PatternFacts"]


@public
class PatternFacts(NamedTuple):
    """Facts about a valid pattern, from `Sparse.validate`.

    Attributes
    ----------
    sorted : bool
        Whether elements are in the order of the format: by line, and in a line by index.
    duplicates : int
        Elements whose place an earlier one has, too.

    Examples
    --------
    >>> device.sparse.validate(device.sparse.matrix(np.eye(3)))
    PatternFacts(sorted=True, duplicates=0)
    """

    sorted: bool
    duplicates: int


def _refuse(name: str, array: Any, bad: Any, allowed: str, xp: Any) -> None:
    """Raise `InvalidRequest` for the first element for which `bad` is true.  Waits."""
    if array.size and bool(xp.any(bad)):
        place = int(xp.argmax(xp.astype(bad, xp.int32)))
        raise InvalidRequest(f"{name}[{place}] is {int(array[place])}; allowed: {allowed}")


def _refuse_falling(name: str, array: Any, why: str, xp: Any) -> None:
    """Raise `InvalidRequest` for the first element that is less than the one before.  Waits."""
    if array.size > 1 and bool(xp.any(bad := array[1:] < array[:-1])):
        place = int(xp.argmax(xp.astype(bad, xp.int32))) + 1
        raise InvalidRequest(f"{name}[{place}] is {int(array[place])}; allowed: {int(array[place - 1])} or more, {why}")


def _places(extent: int) -> str:
    return f"0 to {extent - 1}" if extent else "none, since the matrix is empty"


class Conversions(LibraryActor):
    """Methods of the sparse actor that make other matrices of one."""

    if TYPE_CHECKING:
        spmv: Any

    @property
    def _xp(self) -> Any:
        return self.device.zeros(1).__array_namespace__()

    def validate(self, a: SparseMatrix) -> PatternFacts:
        """Check the indices of a matrix on the device, and wait for the result.

        Other methods trust them: cuSPARSE reads memory at whatever place they name, which may end the worker.

        Raises
        ------
        InvalidRequest
            For the first index out of range, offsets that fall or do not end at the number of elements, and rows of coo
            that `ordered` promises to be in order and are not.
        """
        if a.format in PADDED:
            return self._validate_padded(a)
        xp, block = self._xp, a.block
        rows, columns = (n // block for n in a.shape)
        if a.format == "coo":
            _refuse("rows", a.rows, (a.rows < 0) | (a.rows >= rows), _places(rows), xp)
            if a.ordered:
                _refuse_falling("rows", a.rows, "since ordered=True", xp)
        else:
            offsets, count = a.offsets, a.indices.size
            for place, wanted in ((0, 0), (offsets.size - 1, count)):
                if (found := int(offsets[place])) != wanted:
                    raise InvalidRequest(f"offsets[{place}] is {found}; allowed: {wanted}")
            _refuse_falling("offsets", offsets, "the offset before", xp)
        extent = rows if a.format == "csc" else columns
        _refuse("indices", a.indices, (a.indices < 0) | (a.indices >= extent), _places(extent), xp)
        if a.indices.size < 2:
            return PatternFacts(True, 0)
        key = self._keys(a)
        in_order = bool(xp.all(key[1:] >= key[:-1]))
        return PatternFacts(in_order, a.indices.size - group(key, xp).number)

    def _validate_padded(self, a: SparseMatrix) -> PatternFacts:
        xp, extent = self._xp, a.shape[1] // a.block
        if a.format == "sliced_ell":
            offsets, size = a.offsets, a.indices.shape[1]
            for place, wanted in ((0, 0), (offsets.size - 1, a.nnz)):
                if (found := int(offsets[place])) != wanted:
                    raise InvalidRequest(f"offsets[{place}] is {found}; allowed: {wanted}")
            _refuse_falling("offsets", offsets, "the offset before", xp)
            _refuse("offsets", offsets, offsets % size != 0, f"multiples of {size}, the rows of a slice", xp)
        flat = a.indices.reshape(a.indices.size)
        _refuse("indices", flat, (flat < -1) | (flat >= extent), f"-1, padding, and {_places(extent)}", xp)
        in_order, key = facts_of_padded(a, xp)
        return PatternFacts(in_order, (key.size - group(key, xp).number) // a.block**2)

    def _keys(self, a: SparseMatrix) -> GpuRef:
        """Return numbers in the order of the format, of elements, or of blocks."""
        pattern = a
        if a.format == "bsr":
            shape = (a.shape[0] // a.block, a.shape[1] // a.block)
            pattern = SparseMatrix("csr", shape, self.device.zeros(a.indices.size, "int8"), a.indices, a.offsets)
        places, (rows, columns) = places_of(pattern, self._xp), pattern.shape
        if a.format == "csc":
            return key_of(places.columns, places.rows, (columns, rows))  # type: ignore[no-any-return]
        return key_of(places.rows, places.columns, (rows, columns))  # type: ignore[no-any-return]

    def sort(self, a: SparseMatrix) -> SparseMatrix:
        """Send a copy whose elements are in the order of the format; duplicates stay, in their order.  Enqueues."""
        if a.format == "bsr":
            raise InvalidRequest("sort of bsr; allowed: csr, csc, coo")
        refuse_padded("a", a.format, "sort")
        return self.convert(a, a.format)

    def convert(
        self,
        a: SparseMatrix,
        format: str,
        *,
        block: int | None = None,
        slice_size: int | None = None,
        index_dtype: str | None = None,
    ) -> SparseMatrix:
        """Send a copy in another format, or the same one, with its elements in order.

        Enqueues, but for ``bsr``, which waits for the number of blocks, and formats with padding, which wait for their
        size.  In formats of blocks duplicates add up.

        Parameters
        ----------
        format : str
            ``"csr"``, ``"csc"``, ``"coo"``, ``"bsr"``, ``"sliced_ell"`` or ``"blocked_ell"``.
        block : int, optional
            Edge of the blocks of ``bsr`` and ``blocked_ell``; it divides both extents.
        slice_size : int, optional
            Rows of a slice of ``sliced_ell``; by default 32.
        index_dtype : str, optional
            ``"int32"`` or ``"int64"``; by default that of `a`.

        Raises
        ------
        InvalidRequest
            For other formats, a block that does not fit, and a matrix too large for `index_dtype`.

        Examples
        --------
        >>> device.sparse.convert(device.sparse.matrix(np.eye(4)), "bsr", block=2)
        <SparseMatrix bsr (4, 4) float64, 8 stored>
        """
        check_choice("format", format, (*FORMATS, *PADDED))
        kind = dtype_name(a.index_dtype) if index_dtype is None else index_dtype
        check_choice("index_dtype", kind, ("int32", "int64"))
        if (block is None) != (format not in ("bsr", "blocked_ell")):
            raise InvalidRequest(
                f"block={block!r} with format={format!r}; allowed: an edge for bsr and blocked_ell, and for no other"
            )
        if slice_size is not None and format != "sliced_ell":
            raise InvalidRequest(f"slice_size={slice_size!r} with format={format!r}; allowed: for sliced_ell only")
        xp = self._xp
        if a.format in PADDED:
            a = without_padding(a, xp)
        if format in PADDED:
            refuse_batch("a", a.batch, f"a conversion to {format}")
            if format == "blocked_ell":
                return to_blocked_ell(self.convert(a, "bsr", block=block, index_dtype=kind), xp)
            size = 32 if slice_size is None else as_integer("slice_size", slice_size, 1, 2**16)
            return to_sliced_ell(self.convert(a, "csr", index_dtype=kind), size, xp)
        places = places_of(a, xp)
        values = a.values.reshape(*a.values.shape[: 0 if a.batch is None else 1], a.nnz)
        if format == "bsr":
            refuse_batch("a", a.batch, "a conversion to bsr")
            return self._blocks(a, places, values, as_integer("block", block, 1, max(a.shape, default=1) or 1), kind)
        by_columns = format == "csc"
        first, second = places[::-1] if by_columns else places
        extents = a.shape[::-1] if by_columns else a.shape
        order = ordered(key_of(first, second, extents), xp) if a.nnz else ramp(self.device, 0)
        return self._assembled(
            format, a.shape, _taken(values, order, xp), _taken(first, order, xp), _taken(second, order, xp), kind
        )

    def _assembled(
        self, form: str, shape: tuple[int, int], values: GpuRef, first: GpuRef, second: GpuRef, kind: str
    ) -> SparseMatrix:
        """Return the matrix of elements in order."""
        xp = self._xp
        index = xp.astype(second, getattr(xp, kind))
        if form == "coo":
            return SparseMatrix("coo", shape, values, index, rows=xp.astype(first, getattr(xp, kind)), ordered=True)
        lines = shape[1] if form == "csc" else shape[0]
        offsets = offsets_of(first, lines, xp) if second.size else self.device.zeros(lines + 1, "int64")
        return SparseMatrix(form, shape, values, index, xp.astype(offsets, getattr(xp, kind)))

    def _summed(self, values: GpuRef, groups: Groups, count: int) -> GpuRef:
        """Send the sums of groups of values: a product with a matrix of ones."""
        ones = self.device.ones(values.size, dtype_name(values.dtype))
        sums = SparseMatrix("csr", (count, values.size), ones, groups.order, groups.starts)
        made: GpuRef = self.spmv(sums, values, deterministic=True)
        return made

    def _blocks(self, a: SparseMatrix, places: Places, values: GpuRef, b: int, kind: str) -> SparseMatrix:
        xp, (rows, columns) = self._xp, a.shape
        if rows % b or columns % b:
            raise InvalidRequest(f"block={b} of a matrix {a.shape}; allowed: divisors of both extents")
        key = key_of(places.rows // b, places.columns // b, (rows // b, columns // b))
        blocks = group(key, xp)
        total = blocks.number * b * b
        if not total:
            made = self.device.zeros((0, b, b), dtype_name(a.dtype))
        else:
            slot = xp.searchsorted(blocks.keys, key) * (b * b) + places.rows % b * b + places.columns % b
            order = ordered(slot, xp)
            starts = offsets_of(xp.take(slot, order, axis=0), total, xp)
            made = self._summed(values, Groups(order, starts, None, total), total).reshape(blocks.number, b, b)
        across = max(columns // b, 1)
        lines = blocks.keys // across
        offsets = offsets_of(lines, rows // b, xp) if blocks.number else self.device.zeros(rows // b + 1, "int64")
        index = getattr(xp, kind)
        return SparseMatrix("bsr", a.shape, made, xp.astype(blocks.keys % across, index), xp.astype(offsets, index))

    def coalesce(self, a: SparseMatrix) -> SparseMatrix:
        """Send a copy in order in which duplicates are added up.  Waits for the number of elements.

        The values must be floating or complex.  Sums are in one order, so equal messages give equal bits.
        """
        if a.format == "bsr" or a.dtype.kind == "i":
            raise InvalidRequest(f"coalesce of {a.format} and {dtype_name(a.dtype)}; allowed: csr, csc, coo of floats")
        refuse_batch("a", a.batch, "coalesce")
        refuse_padded("a", a.format, "coalesce")
        xp, (rows, columns) = self._xp, a.shape
        groups = group(self._keys(a), xp)
        across = max(rows if a.format == "csc" else columns, 1)
        values = self._summed(a.values, groups, groups.number) if groups.number else a.values
        return self._assembled(
            a.format, a.shape, values, groups.keys // across, groups.keys % across, dtype_name(a.index_dtype)
        )

    def prune(self, a: SparseMatrix, threshold: float = 0.0) -> SparseMatrix:
        """Send a copy without the elements of magnitude up to `threshold`; NaN stays.  Waits for their number.

        Elements are in order; duplicates are looked at one by one.  Of ``bsr`` the blocks go whose elements all are
        that small, and the others stay whole, in their order.
        """
        refuse_batch("a", a.batch, "prune")
        refuse_padded("a", a.format, "prune")
        if not is_real(threshold) or not threshold >= 0:
            raise InvalidRequest(f"threshold={threshold!r}; allowed: numbers of 0 or more")
        if a.format == "bsr":
            return self._pruned_blocks(a, float(threshold))
        xp, matrix = self._xp, self.sort(a)
        stay = kept(xp.logical_not(xp.abs(matrix.values) <= float(threshold)), xp) if a.nnz else ramp(self.device, 0)
        places = places_of(matrix, xp)
        first, second = places[::-1] if a.format == "csc" else places
        return self._assembled(
            a.format, a.shape, _taken(matrix.values, stay, xp), _taken(first, stay, xp), _taken(second, stay, xp),
            dtype_name(a.index_dtype),
        )  # fmt: skip

    def _pruned_blocks(self, a: SparseMatrix, threshold: float) -> SparseMatrix:
        xp, count = self._xp, a.indices.size
        rows, index = a.shape[0] // a.block, getattr(self._xp, dtype_name(a.index_dtype))
        stay = ramp(self.device, 0)
        if count:
            small = xp.astype(xp.abs(a.values).reshape(count, a.block**2) <= threshold, xp.int32)
            stay = kept(xp.min(small, axis=1) == 0, xp)
        if stay.size:
            lines = xp.take(lines_of(a.offsets, count, xp), stay, axis=0)
            offsets, values = offsets_of(lines, rows, xp), xp.take(a.values, stay, axis=0)
        else:
            offsets, values = self.device.zeros(rows + 1, "int64"), a.values[:0]
        return SparseMatrix("bsr", a.shape, values, _taken(a.indices, stay, xp), xp.astype(offsets, index))

    def from_dense(self, x: GpuRef, *, format: str = "csr", index_dtype: str = "int32") -> SparseMatrix:
        """Send the nonzeros of a dense matrix of the device, NaN included.  Waits for their number."""
        shape = tuple(check_input("x", x).shape)
        if len(shape) != 2:
            raise InvalidRequest(f"x has shape {shape}; allowed: two axes")
        check_choice("format", format, ("csr", "csc", "coo"))
        xp = self._xp
        flat = self.device.copy(x.T if format == "csc" else x).reshape(-1)
        stay = kept(flat != 0, xp)
        across = max(shape[0] if format == "csc" else shape[1], 1)
        return self._assembled(
            format, (shape[0], shape[1]), _taken(flat, stay, xp), stay // across, stay % across, index_dtype
        )

    def to_dense(self, a: SparseMatrix) -> GpuRef:
        """Send the dense matrix, in C order; duplicates add up.  Values are floating or complex.

        Enqueues; formats with padding wait for the number of their elements.
        """
        refuse_batch("a", a.batch, "to_dense")
        rows, columns = a.shape
        total = rows * columns
        if a.dtype.kind == "i":
            raise InvalidRequest(f"to_dense of {dtype_name(a.dtype)}; allowed: floating and complex dtypes")
        if a.format in PADDED:
            a = without_padding(a, self._xp)
        if not a.nnz or not total:
            return self.device.zeros(a.shape, dtype_name(a.dtype))
        xp = self._xp
        key = key_of(*places_of(a, xp), a.shape)
        order = ordered(key, xp)
        starts = offsets_of(xp.take(key, order, axis=0), total, xp)
        return self._summed(a.values.reshape(a.nnz), Groups(order, starts, None, total), total).reshape(a.shape)


def _taken(array: GpuRef, order: GpuRef, xp: Any) -> GpuRef:
    made: GpuRef = xp.take(array, order, axis=-1) if order.size else array[..., :0]
    return made
