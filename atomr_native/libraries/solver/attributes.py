"""Attributes of the solver's routines in plan specifications."""

from typing import Annotated

from ...plans.spec import Attributes, Extent
from ...protocol.typed import one_of

__all__ = ["DecompositionAttributes", "EigenRangeAttributes", "RefinementAttributes", "SolverAttributes"]

Dtype = Annotated[str, one_of("float32", "float64", "complex64", "complex128")]
#: One kernel for all matrices, calls of the library for many, or one for each.
Route = Annotated[str, one_of("kernel", "batched", "loop")]


class SolverAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``solver.*``; triangles, flags and route are those of `SolverRequest`.

    Attributes
    ----------
    dtype : str
        Of the matrices.
    batch : tuple of int
        Extents of the batch.
    vector : bool
        Whether B and X are vectors.
    """

    dtype: Dtype
    batch: tuple[Extent, ...]
    vector: bool
    assume: Annotated[str, one_of("general", "positive_definite", "symmetric", "hermitian")]
    lower: bool
    trans: bool
    conj: bool
    unit: bool
    check: bool
    route: Route


class DecompositionAttributes(Attributes, frozen=True, kw_only=True):
    """Of orthogonal decompositions; options are those of `DecompositionRequest`.

    Attributes
    ----------
    dtype : str
        Of the matrices.
    batch : tuple of int
        Extents of the batch.
    """

    dtype: Dtype
    batch: tuple[Extent, ...]
    mode: Annotated[str, one_of("reduced", "complete", "r")]
    lower: bool
    right: bool
    adjoint: bool
    check: bool
    route: Route
    algorithm: Annotated[str, one_of("auto", "qr", "divide", "jacobi", "polar", "approximate")]
    left: bool


class EigenRangeAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``solver.eigh_range``; options are those of `EigenRangeRequest`.

    Attributes
    ----------
    dtype : str
        Of the matrices.
    batch : tuple of int
        Extents of the batch.
    by : str
        Whether `first` and `last`, or `above` and `up_to`, are the range.
    """

    dtype: Dtype
    batch: tuple[Extent, ...]
    lower: bool
    check: bool
    by: Annotated[str, one_of("index", "value")]
    first: Extent
    last: Extent
    above: float
    up_to: float


class RefinementAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``solver.solve_refined``; options are those of `RefinementRequest`.

    Attributes
    ----------
    dtype : str
        Of the matrices.
    batch : tuple of int
        Extents of the batch.
    vector : bool
        Whether B and X are vectors.
    """

    dtype: Annotated[str, one_of("float64", "complex128")]
    batch: tuple[Extent, ...]
    vector: bool
    factor: Annotated[str, one_of("float32", "tf32", "bfloat16", "float16")]
    iterations: Extent
    check: bool
