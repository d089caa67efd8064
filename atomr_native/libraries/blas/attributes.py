"""Attributes of the BLAS routines in plan specifications."""

from typing import Annotated

from ...plans.spec import Attributes, Extent
from ...protocol.typed import one_of

__all__ = ["BlasAttributes"]


class BlasAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``blas.*``; transposes, sides and triangles are those of `BlasRequest`.

    Attributes
    ----------
    dtype : str
        Of the operands.
    batch : tuple of int
        Extents of the batch.
    adds : bool
        Whether beta times out, or times B in ``geam``, is added.
    """

    dtype: Annotated[str, one_of("float32", "float64", "complex64", "complex128")]
    batch: tuple[Extent, ...]
    adds: bool
    trans: bool
    conj: bool
    trans_b: bool
    conj_b: bool
    side: Annotated[str, one_of("left", "right")]
    lower: bool
    unit: bool
