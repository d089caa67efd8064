"""Grouped matmuls: several products of any shapes in one message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec.structs import replace

from ..._support.checks import check_choice
from ..._support.options import check_options
from ..._support.public import public
from ...arrays.operands import check_disjoint, memory_span
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Operand, Request
from ...plans.spec import PlanSpec
from .attributes import GroupedAttributes, GroupMember, MatmulAttributes
from .custom_epilogue import CustomEpilogue
from .request import GroupOptions, MatmulRequest
from .spec import is_array

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["ALIGNMENT", "WAYS", "GroupedRequest", "member_specs"]

#: Operands of a message at most.
_OPERANDS = 240
#: How a group may be computed, by what `GroupedRequest` says of it.
WAYS: Final = ("auto", "batched", "grouped", "each")
#: To what addresses of members are aligned, bytes, for the libraries' kernels that take many at once.
ALIGNMENT: Final = 16
_ARRAYS: Final = ("a", "b", "bias", "c", "out")
#: Options of all members together.
_NAMES: Final = ("alpha", "beta", *GroupOptions.__optional_keys__)


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedRequest(Request[list["GpuRef"]]):
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

    Examples
    --------
    >>> x, w = device.put(np.ones((2, 3), "float32")), device.put(np.ones((3, 3), "float32"))
    >>> request = an.GroupedRequest(a=[x, w], b=[w, w], options={"alpha": 2.0})
    >>> [float(y.numpy().max()) for y in device.blas_lt.tell(request)]
    [6.0, 6.0]
    """

    a: Sequence[Any]
    b: Sequence[Any]
    c: Sequence[Any] | None = None
    bias: Sequence[Any] | None = None
    out: Sequence[Any] | None = None
    way: str = "auto"
    options: Mapping[str, Any] | Sequence[tuple[str, Any]] = ()

    def lowering(self) -> Lowered:
        """Check the request and return its message.

        Operands are those of the members, one after the other: ``a0, b0, out0, a1, ...``.
        """
        members = _members(self)
        operands: list[Operand] = []
        attributes = []
        for i, member in enumerate(members):
            lowered = member.lowered
            indices = tuple((o.name, len(operands) + j) for j, o in enumerate(lowered.operands))
            operands += [o._replace(spec=replace(o.spec, name=f"{o.name}{i}")) for o in lowered.operands]
            attributes.append(GroupMember(indices, _attributes(member)))
        if len(operands) > _OPERANDS:
            raise InvalidRequest(
                f"{len(members)} members have {len(operands)} operands; a message holds at most {_OPERANDS}"
            )
        first = members[0].lowered
        return Lowered(
            op="blas_lt.grouped",
            operands=tuple(operands),
            collect=partial(_collect, len(members)),
            attributes=GroupedAttributes(
                members=tuple(attributes),
                tune=attributes[0].attributes.tune,
                way=self.way,
                aligned=all(_is_aligned(getattr(member, name)) for member in members for name in _ARRAYS),
            ),
            scalars=first.scalars,
            numbers=first.numbers,
            convert=first.convert,
            unread=tuple((f"{name}{i}", c) for i, member in enumerate(members) for name, c in member.lowered.unread),
        )


def _attributes(member: MatmulRequest) -> MatmulAttributes:
    return cast("MatmulAttributes", member.lowered.attributes)


def _collect(count: int, arrays: Mapping[str, Any]) -> list[Any]:
    return [arrays[f"out{i}"] for i in range(count)]


def _members(request: GroupedRequest) -> list[MatmulRequest]:
    """Check a request and return its members."""
    sequences, options = _sequences(request), _options(request)
    members: list[MatmulRequest] = []
    for i, values in enumerate(zip(*sequences.values(), strict=True)):
        try:
            member = MatmulRequest(**dict(zip(sequences, values, strict=True)), **options)
        except InvalidRequest as error:
            raise InvalidRequest(f"member {i}: {error.message}") from None
        if any(operand.name in ("aux", "bias_grad") for operand in member.lowered.operands):
            raise InvalidRequest(
                f"epilogue {member.epilogue!r} in a group; allowed: those without aux and bias gradient"
            )
        members.append(member)
        factors, others = (_attributes(one).scale for one in (member, members[0]))
        if factors != others:
            raise InvalidRequest(
                f"member {i} has factors of {factors}, member 0 of {others}; they must be of one dtype"
            )
    outputs = [(f"out[{i}]", member.out) for i, member in enumerate(members) if member.out is not None]
    inputs = [
        (f"{name}[{i}]", getattr(member, name))
        for i, member in enumerate(members)
        for name in ("a", "b", "bias", "c")
        if getattr(member, name) is not None and getattr(member, name) is not member.out
    ]
    check_disjoint(outputs, inputs)
    return members


def _sequences(request: GroupedRequest) -> dict[str, Sequence[Any]]:
    """Return the lists of arrays that were given."""
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
    return sequences


def _options(request: GroupedRequest) -> dict[str, Any]:
    """Return what is the same for all members."""
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
    return options


def _is_aligned(array: Any) -> bool:
    """Whether an array starts where the libraries' kernels for many members take it."""
    return isinstance(array, type) or not hasattr(array, "memory_span") or memory_span(array)[1] % ALIGNMENT == 0


def member_specs(spec: PlanSpec[GroupedAttributes]) -> list[tuple[PlanSpec[MatmulAttributes], list[int]]]:
    """Return the specifications of a group's members, with the indices of their operands in the message."""
    found = []
    for member in spec.attributes.members:
        operands = tuple(replace(spec.operands[index], name=name) for name, index in member.operands)
        one = PlanSpec("blas_lt.matmul", operands, spec.scalars, member.attributes)
        found.append((one, [index for _, index in member.operands]))
    return found
