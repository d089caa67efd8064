"""Grouped matmuls: several products of any shapes in one message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ._checks import check_choice, check_options
from ._custom_epilogue import CustomEpilogue
from ._matmul_spec import MatmulRequest, MatmulShape, is_array, matmul_shape, matmul_spec, scalar_names
from ._operands import check_disjoint, memory_span
from ._options import GroupOptions
from .errors import InvalidRequest
from .plan_spec import OperandSpec, PlanSpec

__all__ = ["ALIGNMENT", "WAYS", "GroupedRequest", "grouped_requests", "grouped_spec", "is_aligned", "member_specs"]

#: Operands of a message at most.
_OPERANDS = 240
#: How a group may be computed, by what `GroupedRequest` says of it.
WAYS: Final = ("auto", "batched", "grouped", "each")
#: To what addresses of members are aligned, bytes, for the libraries' kernels that take many at once.
ALIGNMENT: Final = 16
_ARRAYS: Final = ("a", "b", "bias", "c", "out")
#: Options of all members together.
_NAMES: Final = ("alpha", "beta", *GroupOptions.__optional_keys__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedRequest:
    """Products ``D[i] = epilogue(alpha * op(A[i]) @ op(B[i]) + beta * C[i])``, at any addresses, in one message.

    Parameters
    ----------
    a, b
        Sequences of matrices, of one length; shapes may differ.
    c, bias, out
        Sequences of that length, or None.
    way : str
        How a GPU computes them.  ``"batched"``: members that are alike, without epilogue, in one call of cuBLASLt.
        ``"grouped"``: members of any shapes, without epilogue, of one dtype (float64, float32, float16 or bfloat16),
        `c` only where it is `out`, in one call of cuBLAS.  ``"each"``: one after the other.  ``"auto"``: the first of
        these that can be; ``plan.notes`` says which.
    options : mapping or sequence of pairs
        What else a `MatmulRequest` takes, the same for all, by name: no operands, and no outputs but D.

    Raises
    ------
    InvalidRequest, Unsupported
        As `MatmulRequest`; the message names the member.
    """

    a: Sequence[Any]
    b: Sequence[Any]
    c: Sequence[Any] | None = None
    bias: Sequence[Any] | None = None
    out: Sequence[Any] | None = None
    way: str = "auto"
    options: Mapping[str, Any] | Sequence[tuple[str, Any]] = ()

    def __post_init__(self) -> None:
        grouped_requests(self)


def grouped_requests(request: GroupedRequest) -> list[tuple[MatmulRequest, MatmulShape]]:
    """Check a request and return its members."""
    sequences: dict[str, Sequence[Any]] = {}
    for name in ("a", "b", "c", "bias", "out"):
        value = getattr(request, name)
        if value is None and name not in ("a", "b"):
            continue
        if not isinstance(value, list | tuple):
            raise InvalidRequest(f"{name} is a {type(value).__name__}; it must be a list of arrays")
        sequences[name] = value
    check_choice("way", request.way, WAYS)
    lengths = {name: len(value) for name, value in sequences.items()}
    if len(set(lengths.values())) != 1 or not lengths["a"]:
        raise InvalidRequest(f"lists of {lengths} arrays; they must have one length, of at least 1")
    try:
        options = dict(request.options)
    except (TypeError, ValueError):
        raise InvalidRequest(f"options is {request.options!r}; allowed: pairs of a name and a value") from None
    check_options("a group", options, _NAMES)
    for name, value in options.items():
        if is_array(value):
            raise InvalidRequest(f"{name} is given for all members of a group; allowed: options that are no operands")
    if isinstance(options.get("epilogue"), CustomEpilogue):
        raise InvalidRequest("epilogue is a CustomEpilogue for all members of a group; allowed: those of the library")
    members = []
    for i, values in enumerate(zip(*sequences.values(), strict=True)):
        try:
            one = MatmulRequest(**dict(zip(sequences, values, strict=True)), **options)
        except InvalidRequest as error:
            raise InvalidRequest(f"member {i}: {error.message}") from None
        shape = matmul_shape(one)
        if shape.aux is not None or shape.bias_grad is not None:
            raise InvalidRequest(f"epilogue {one.epilogue!r} in a group; allowed: those without aux and bias gradient")
        members.append((one, shape))
        if shape.scale != members[0][1].scale:
            raise InvalidRequest(
                f"member {i} has factors of {shape.scale}, member 0 of {members[0][1].scale}; they must be of one dtype"
            )
    outputs = [(f"out[{i}]", one.out) for i, (one, _) in enumerate(members) if one.out is not None]
    reads = ("a", "b", "bias", "c")
    inputs = [
        (f"{name}[{i}]", getattr(one, name))
        for i, (one, _) in enumerate(members)
        for name in reads
        if getattr(one, name) is not None and getattr(one, name) is not one.out
    ]
    check_disjoint(outputs, inputs)
    return members


def is_aligned(array: Any) -> bool:
    """Whether an array starts where the libraries' kernels for many members take it."""
    return isinstance(array, type) or not hasattr(array, "memory_span") or memory_span(array)[1] % ALIGNMENT == 0


def grouped_spec(members: list[tuple[MatmulRequest, MatmulShape]], way: str = "auto") -> PlanSpec:
    """Return the plan specification: the members' operands one after the other, named ``a0, b0, out0, a1, ...``."""
    operands: list[OperandSpec] = []
    attributes = []
    for i, (one, shape) in enumerate(members):
        spec = matmul_spec(one, shape)
        places = []
        for o in spec.operands:
            places.append((o.name, len(operands)))
            operands.append(OperandSpec(f"{o.name}{i}", o.dtype, o.shape, o.strides, o.access))
        attributes.append((tuple(places), spec.attributes))
    if len(operands) > _OPERANDS:
        raise InvalidRequest(
            f"{len(members)} members have {len(operands)} operands; a message holds at most {_OPERANDS}"
        )
    return PlanSpec(
        op="blas_lt.grouped",
        operands=tuple(operands),
        scalars=("float64",) * len(scalar_names(members[0][1])),
        attributes=(
            ("members", tuple(attributes)),
            ("tune", dict(attributes[0][1])["tune"]),
            ("way", way),
            ("aligned", all(is_aligned(getattr(one, name)) for one, _ in members for name in _ARRAYS)),
        ),
    )


def member_specs(spec: dict[str, Any]) -> list[tuple[dict[str, Any], list[int]]]:
    """Return the members of a plan specification's JSON form, with the places of their operands in the message."""
    found = []
    for places, attributes in spec["members"]:
        operands = [{**spec["operands"][index], "name": name} for name, index in places]
        one = {"op": "blas_lt.matmul", **dict(attributes), "operands": operands, "scalars": spec["scalars"]}
        found.append((one, [index for _, index in places]))
    return found
