"""Attributes of sparse operations in plan specifications."""

from typing import Annotated, TypeAlias

from ...plans.spec import Attributes, DtypeName, Extent, ShippedAttributes
from ...protocol.binaries import Binary
from ...protocol.typed import one_of

__all__ = [
    "BasisAttributes", "CombineAttributes", "CompiledAttributes", "DirectAttributes", "FactorAttributes", "FormatName",
    "ProductAttributes", "PruneAttributes", "SemiringAttributes", "SolveAttributes", "StructuredAttributes",
]  # fmt: skip

FormatName = Annotated[str, one_of("csr", "csc", "coo", "bsr", "sliced_ell", "blocked_ell")]


#: A node of `traced.Tree`.
NodeParts: TypeAlias = tuple[str | int, ...]


class BasisAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``sparse.basis`` and ``sparse.solution``.

    Attributes
    ----------
    rounds : int
        Rounds of GMRES until it begins anew.
    """

    rounds: Extent


class CombineAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``sparse.product`` and ``sparse.sum``.

    Attributes
    ----------
    compute : str
        Dtype of sums.
    """

    compute: DtypeName


class DirectAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``sparse.direct``.

    Attributes
    ----------
    number : int
        Of the solver.
    phase : str
    n : int
        Rows of the matrix.
    batch : int or None
        Matrices, if their values have an axis for them.
    dtype : str
    kind, triangle : str
        As `Sparse.direct` has them.
    room : int
        Right sides that the analysis makes room for.
    check, deterministic : bool
    """

    number: Extent
    phase: Annotated[str, one_of("analyse", "factor", "refactor", "solve")]
    n: Extent
    batch: Extent | None
    dtype: DtypeName
    kind: Annotated[str, one_of("general", "symmetric", "hermitian", "positive")]
    triangle: Annotated[str, one_of("full", "lower", "upper")]
    room: Extent
    check: bool
    deterministic: bool


class FactorAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``sparse.ilu0`` and ``sparse.ic0``.

    Attributes
    ----------
    n : int
        Rows of the matrix.
    dtype : str
        Of values and factors.
    batch : int or None
        Matrices, if their values have an axis for them.
    """

    n: Extent
    dtype: DtypeName
    batch: Extent | None = None


class ProductAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``sparse.spmv``, ``sparse.spmm`` and ``sparse.sddmm``; flags are those of `SparseProductRequest`.

    Attributes
    ----------
    format : str
    shape : tuple of int
        Rows and columns of the sparse matrix.
    compute : str
        Dtype of sums and factors.
    adds : bool
        Whether beta is not 0.
    factors : bool
        Whether alpha and beta are operands.
    batch : int or None
        Matrices, if their values have an axis for them.
    longest : int or None
        The most stored elements of a row, or a column of ``csc``, if it is known.
    """

    format: FormatName
    shape: tuple[Extent, Extent]
    compute: DtypeName
    adds: bool
    factors: bool
    trans: bool
    conj: bool
    deterministic: bool
    batch: Extent | None = None
    longest: Extent | None = None


class PruneAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``sparse.prune_24`` and ``sparse.broken_24``.

    Attributes
    ----------
    method : str
    """

    method: Annotated[str, one_of("strip", "tile")]


class SemiringAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``sparse.semiring``.

    Attributes
    ----------
    shape : tuple of int
        Rows and columns of the sparse matrix.
    compute : str
        Dtype in which the functions compute.
    multiply, add, on_sum : tuple of tuple
        Functions, as `traced.Tree` has them.
    start : str
        The sum of nothing, hexadecimal.
    """

    shape: tuple[Extent, Extent]
    compute: DtypeName
    multiply: tuple[NodeParts, ...]
    add: tuple[NodeParts, ...]
    on_sum: tuple[NodeParts, ...]
    start: str


class CompiledAttributes(ShippedAttributes, frozen=True, kw_only=True):
    """Of ``sparse.semiring_compiled``.

    Attributes
    ----------
    shape, compute, start
        As `SemiringAttributes` has them.
    functions : tuple of (str, Binary)
        ``"multiply"``, ``"add"`` and ``"on_sum"``, pickled, on the host device.
    """

    shape: tuple[Extent, Extent]
    compute: DtypeName
    start: str
    functions: tuple[tuple[str, Binary], ...] = ()


class SolveAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``sparse.solve``; flags are those of `SparseSolveRequest`.

    Attributes
    ----------
    format : str
    n : int
        Rows of the matrix.
    dtype : str
        Of all arrays but indices.
    batch : int or None
        Matrices, if their values have an axis for them.
    """

    format: FormatName
    n: Extent
    dtype: DtypeName
    lower: bool
    trans: bool
    conj: bool
    unit: bool
    batch: Extent | None = None


class StructuredAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``sparse.linear_24``.

    Attributes
    ----------
    shape : tuple of int
        Rows and columns of the compressed matrix.
    dtype : str
        Of its elements, and of x.
    adds : bool
        Whether beta is not 0.
    activation : str
    tune : str
    """

    shape: tuple[Extent, Extent]
    dtype: DtypeName
    adds: bool
    activation: Annotated[str, one_of("none", "relu", "gelu")]
    tune: Annotated[str, one_of("", "known", "measure")]
