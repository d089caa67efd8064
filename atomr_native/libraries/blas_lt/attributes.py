"""Attributes of matrix products in plan specifications."""

from typing import Annotated, Final, TypeAlias

from msgspec import Struct

from ...plans.spec import Attributes, DtypeName, Extent, ShippedCode
from ...protocol.binaries import Binary
from ...protocol.typed import one_of
from .epilogue import Epilogue
from .types import RULES

__all__ = ["ROUTES", "CustomAttributes", "GroupMember", "GroupedAttributes", "MatmulAttributes"]

#: Who computes a product.
ROUTES: Final = ("auto", "cublaslt", "cutlass")

ScaleKind: TypeAlias = Annotated[str, one_of("none", "tensor", "outer", "vec128", "blk128")]
OperandKind: TypeAlias = Annotated[str, one_of("matrix", "row", "column", "scalar")]
Tuning: TypeAlias = Annotated[str, one_of("", "known", "measure")]


class CustomAttributes(Struct, frozen=True, forbid_unknown_fields=True):
    """What a plan says of an epilogue of the user's.

    Attributes
    ----------
    operands : tuple of (str, str)
        Operands of the function, each with its kind: ``"matrix"``, ``"row"``, ``"column"`` or ``"scalar"``.
    acc : str
        Dtype of the function's arguments.
    stored : str
        Dtype in which products are kept for it.
    function : Binary or None
        The pickled function, on the host device.
    shipped : ShippedCode or None
        The kernel made of it, on GPUs.
    """

    operands: tuple[tuple[str, OperandKind], ...]
    acc: DtypeName
    stored: DtypeName
    function: Binary | None = None
    shipped: ShippedCode | None = None


class MatmulAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``blas_lt.matmul``.

    Attributes
    ----------
    trans_a, trans_b, conj_a, conj_b, fast_accum, reduced_precision, copies : bool
    epilogue : str
        As `MatmulRequest` has them; ``"default"`` under an epilogue of the user's.
    compute : str
        Dtype of the sums of products.
    scale : str
        Dtype in which factors and epilogue are applied.
    mode : str
        How precisely products are made, the request's `compute`.
    scaling : tuple of str
        Kinds of the scales of A and B.
    added : str
        What beta times is added: ``"none"``, ``"c"``, or what ``"out"`` holds.
    tune : str
        Whether a ``"known"`` algorithm is taken, one is ``"measure"``d, or neither, ``""``.
    custom : CustomAttributes or None
    route : str
        The request's.
    """

    trans_a: bool
    trans_b: bool
    conj_a: bool
    conj_b: bool
    epilogue: Annotated[str, one_of(*(epilogue.value for epilogue in Epilogue))]
    compute: DtypeName
    scale: DtypeName
    mode: Annotated[str, one_of(*dict.fromkeys(mode for rule in RULES.values() for mode in rule.modes))]
    fast_accum: bool
    reduced_precision: bool
    scaling: tuple[ScaleKind, ScaleKind]
    added: Annotated[str, one_of("none", "c", "out")]
    tune: Tuning
    copies: bool
    custom: CustomAttributes | None = None
    route: Annotated[str, one_of(*ROUTES)] = "auto"


class GroupMember(Struct, frozen=True, forbid_unknown_fields=True):
    """One product of a group: names of its operands with their indices in the message, and its attributes."""

    operands: tuple[tuple[str, Extent], ...]
    attributes: MatmulAttributes


class GroupedAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``blas_lt.grouped``.

    Attributes
    ----------
    members : tuple of GroupMember
    tune : str
        As `MatmulAttributes` has it.
    way : str
        As `GroupedRequest` has it.
    aligned : bool
        Whether all members start at addresses that the libraries' kernels for many take.
    """

    members: tuple[GroupMember, ...]
    tune: Tuning
    way: Annotated[str, one_of("auto", "batched", "grouped", "each")]
    aligned: bool
