"""Attributes of the elementwise operations in plan specifications."""

from typing import Annotated, Final, TypeAlias

from ...plans.spec import Attributes, DtypeName, Extent
from ...protocol.typed import one_of

__all__ = [
    "REDUCTIONS",
    "LossAttributes",
    "ProgramAttributes",
    "ReduceAttributes",
    "ScanAttributes",
    "SearchAttributes",
    "SortAttributes",
    "TakeAttributes",
]

#: What a reduction computes.
REDUCTIONS: Final = ("sum", "mean", "max", "argmax", "min", "argmin", "prod", "any", "all")
#: A node of `expressions.Program`.
NodeParts: TypeAlias = tuple[str | int, ...]


class ProgramAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``elementwise.program``.

    Attributes
    ----------
    shape : tuple of int
        Of what is assigned.
    nodes : tuple of tuple
    stores : tuple of (str, int)
        As `expressions.Program` has them.
    scalar_names : tuple of str
        Names of the message's scalars.
    """

    shape: tuple[Extent, ...]
    nodes: tuple[NodeParts, ...]
    stores: tuple[tuple[str, Extent], ...]
    scalar_names: tuple[str, ...]


class ReduceAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``elementwise.reduce``.

    Attributes
    ----------
    reduction : str
        See `REDUCTIONS`.
    axes : tuple of int
        Axes of x that vanish, in order.
    accumulate : str
        Dtype of sums.
    """

    reduction: Annotated[str, one_of(*REDUCTIONS)]
    axes: tuple[Extent, ...]
    accumulate: DtypeName


class TakeAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``elementwise.take``.

    Attributes
    ----------
    axis : int
        Axis of x that the indices go through, from 0.
    along : bool
        Whether each index belongs to one element of the result.
    """

    axis: Extent
    along: bool


class SortAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``elementwise.sort``.

    Attributes
    ----------
    descending : bool
        Whether the largest element comes first.
    places : bool
        Whether indices are stored, and not elements.
    """

    descending: bool
    places: bool


class ScanAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``elementwise.scan``.

    Attributes
    ----------
    op : str
        ``"sum"`` or ``"prod"``.
    accumulate : str
        Dtype of what is computed.
    """

    op: Annotated[str, one_of("sum", "prod")]
    accumulate: DtypeName


class SearchAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``elementwise.search``.

    Attributes
    ----------
    right : bool
        Whether a value goes behind its equals.
    """

    right: bool


class LossAttributes(Attributes, frozen=True):
    """Of ``elementwise.softmax_cross_entropy``.

    Attributes
    ----------
    compute : str
        Dtype of what is computed.
    """

    compute: Annotated[str, one_of("float32", "float64")]
