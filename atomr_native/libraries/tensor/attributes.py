"""Attributes of tensor operations in plan specifications."""

from typing import Annotated, TypeAlias

from msgspec import Meta

from ...plans.spec import Attributes, DtypeName
from ...protocol.typed import one_of
from .operators import BINARY, REDUCTIONS, UNARY

__all__ = [
    "ADDED",
    "EINSUM_ROUTES",
    "OTHER_ROUTES",
    "ROUTES",
    "BlockAttributes",
    "EinsumAttributes",
    "ElementwiseAttributes",
    "ReduceAttributes",
]

#: Ways to compute a step: the first leaves the choice to the library.
ROUTES = ("auto", "kernel", "blas_lt", "cutensor")
#: Those of expressions; the last is one kernel of CUTLASS, with the tail.
EINSUM_ROUTES = (*ROUTES, "cutlass")
#: Those of operations that are no products.
OTHER_ROUTES = ("auto", "kernel", "cutensor")
#: Where the tensor that beta scales comes from.
ADDED = ("none", "c", "out")

#: Whether the fastest way of a step is measured.
Tuning: TypeAlias = Annotated[str, one_of("", "known", "measure", "later")]
Mode = Annotated[int, Meta(ge=0)]
#: A node of `traced.Tree`.
NodeParts: TypeAlias = tuple[str | int, ...]


class EinsumAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``tensor.einsum`` and ``tensor.einsum_over``.

    Attributes
    ----------
    inputs : tuple of tuple of int
        Modes of the operands, numbered in the order in which they appear.
    output : tuple of int
    conj : tuple of bool
        Whether each operand is conjugated.
    steps : tuple of tuple of int
        As `Path.steps`.
    slices : tuple of int
        As `Path.slices`.
    dtype : str
        In which operands meet, and which intermediate results have.
    compute : str
        How products are computed.
    route : str
    added : str
        Where C is: nowhere, an operand of its own, or `out`.
    zero : bool
        Whether alpha is 0: operands are not read.
    tail : tuple of tuple
        The tree of a function of the result, see `atomr_native._support.traced`, whose inputs are `tail.RESULT` and
        operands by name; without a function it is empty.
    tune : str
        Whether steps are as they were measured to be the fastest: ``""``, ``"known"``: if they were measured before,
        ``"measure"``, or ``"later"``, which plans of requests alone have: the builder takes it as ``"known"``.
    tune_seconds : float
        After these no further way of a step is tried; 0: all are.
    deterministic : bool
        Whether cuTENSOR is left out, and nothing is measured.
    """

    inputs: tuple[tuple[Mode, ...], ...]
    output: tuple[Mode, ...]
    conj: tuple[bool, ...]
    steps: tuple[tuple[Mode, ...], ...]
    slices: tuple[Mode, ...]
    dtype: DtypeName
    compute: str
    route: Annotated[str, one_of(*EINSUM_ROUTES)]
    added: Annotated[str, one_of(*ADDED)]
    zero: bool
    tail: tuple[NodeParts, ...] = ()
    tune: Tuning = ""
    tune_seconds: float = 0.0
    deterministic: bool = False


class BlockAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``tensor.blocks``.

    Attributes
    ----------
    inputs, output, conj, dtype, compute, route, added, zero
        As of `EinsumAttributes`.
    sections : tuple of tuple of int
        Of each mode.
    blocks : tuple of tuple of tuple of int
        Coordinates of the blocks of A, B and the result.
    """

    inputs: tuple[tuple[Mode, ...], ...]
    output: tuple[Mode, ...]
    sections: tuple[tuple[Mode, ...], ...]
    blocks: tuple[tuple[tuple[Mode, ...], ...], tuple[tuple[Mode, ...], ...], tuple[tuple[Mode, ...], ...]]
    conj: tuple[bool, ...]
    dtype: DtypeName
    compute: str
    route: Annotated[str, one_of(*ROUTES)]
    added: Annotated[str, one_of(*ADDED)]
    zero: bool


class ReduceAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``tensor.reduce``: modes of x and of the result, and as `EinsumAttributes`."""

    inputs: tuple[tuple[Mode, ...], ...]
    output: tuple[Mode, ...]
    reduction: Annotated[str, one_of(*REDUCTIONS)]
    dtype: DtypeName
    added: Annotated[str, one_of(*ADDED)]
    zero: bool
    route: Annotated[str, one_of(*OTHER_ROUTES)]
    tail: tuple[NodeParts, ...] = ()
    tune: Tuning = ""
    tune_seconds: float = 0.0


class ElementwiseAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``tensor.elementwise``.

    Attributes
    ----------
    inputs, output, dtype
        As of `EinsumAttributes`.
    unary : tuple of str
        What is applied to each operand.
    binary : tuple of str
        What combines the first two, and the result with the third.
    unary_ab : str
        What is applied to the combination of the first two.
    zero : tuple of bool
        Whether the factor of an operand is 0: it is not read.
    padding : tuple of (int, int)
        Elements before and after the result along each mode of the output.
    route, tune : str
    """

    inputs: tuple[tuple[Mode, ...], ...]
    output: tuple[Mode, ...]
    unary: tuple[Annotated[str, one_of(*UNARY)], ...]
    binary: tuple[Annotated[str, one_of(*BINARY)], ...]
    zero: tuple[bool, ...]
    dtype: DtypeName
    padding: tuple[tuple[Mode, Mode], ...]
    route: Annotated[str, one_of(*OTHER_ROUTES)]
    tune: Tuning = ""
    tune_seconds: float = 0.0
