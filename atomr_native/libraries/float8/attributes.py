"""Attributes of the float8 operations in plan specifications."""

from typing import Annotated, TypeAlias

from msgspec import Meta

from ...plans.spec import Extent, ShippedAttributes
from ...protocol.typed import one_of
from .._scaling import BLOCK

__all__ = ["DequantizeAttributes", "QuantizeAttributes"]

#: How many rows or columns share a scale; 0 for all.
Sharing: TypeAlias = Annotated[Extent, Meta(le=BLOCK)]


class QuantizeAttributes(ShippedAttributes, frozen=True, kw_only=True):
    """Of ``float8.quantize``.

    Attributes
    ----------
    dtype, scaling : str
        Format of the codes, and what shares a scale, as `QuantizeRequest` has them.
    saturate : bool
        Whether what is beyond the largest number becomes that.
    amax : str
        Where scales come from: ``"given"``, ``"now"`` from the array, or ``"recorded"`` in a history.
    latest : bool
        With a history, whether its last entry alone counts.
    margin : int
        With a history, powers of two by which the scale is larger than it need be.
    """

    dtype: Annotated[str, one_of("float8_e4m3fn", "float8_e5m2")]
    scaling: Annotated[str, one_of("tensor", "outer", "vec128", "blk128")]
    saturate: bool
    amax: Annotated[str, one_of("given", "now", "recorded")]
    latest: bool = False
    margin: int = 0


class DequantizeAttributes(ShippedAttributes, frozen=True, kw_only=True):
    """Of ``float8.dequantize``.

    Attributes
    ----------
    blocks : tuple of int
        How many rows and columns share a scale; 0 for all.
    """

    blocks: tuple[Sharing, Sharing]
