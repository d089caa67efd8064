"""Requests of communicators, their checks, and how they become one message a rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from .._support.checks import is_integer, is_real
from .._support.public import public
from .._support.recorded import is_recorded
from ..arrays.gpu_ref import GpuRef
from ..arrays.operands import memory_span
from ..dtypes import as_dtype, dtype_name
from ..errors import InvalidRequest
from ..libraries.collective.attributes import OPERATIONS, Step
from ..libraries.collective.reductions import REDUCIBLE

if TYPE_CHECKING:
    from ..device import Device

__all__ = ["KINDS", "CollectiveRequest", "Lowered", "Use", "lower"]

Kind: TypeAlias = Literal[
    "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "send",
    "barrier",
]  # fmt: skip
KINDS: Final = (
    "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "send",
    "barrier",
)  # fmt: skip
_REDUCTIONS: Final = ("all_reduce", "reduce", "reduce_scatter")


@public
@dataclass(frozen=True, slots=True)
class CollectiveRequest:
    """One collective of a communicator, for `Communicator.tell`, `ask` and `plan`; the methods make one each.

    Attributes
    ----------
    kind : str
        The method: ``"all_reduce"``, ``"reduce"``, ``"broadcast"``, ``"all_gather"``, ``"reduce_scatter"``,
        ``"all_to_all"``, ``"gather"``, ``"scatter"``, ``"send"`` or ``"barrier"``.
    arrays : GpuRef or sequence of GpuRef
        As the method takes them.
    out : GpuRef or sequence of GpuRef, optional
    op : {"sum", "prod", "min", "max", "avg"}
        Of reductions.
    factor : float, int or sequence of GpuRef, optional
        Of sums.
    root : int
        Of ``reduce`` and ``gather``; of ``send`` the receiving rank.
    counts : sequence of sequence of int, optional
        Of ``all_to_all``.

    Examples
    --------
    >>> comm = device.system.communicator(["host"])
    >>> x = device.put([1.0, 2.0])
    >>> comm.ask(an.CollectiveRequest("all_reduce", [x], out=[x])).result(timeout=60)[0].numpy()
    array([1., 2.])
    >>> comm.close()
    """

    kind: Kind
    arrays: Any = ()
    out: Any = None
    op: str = "sum"
    factor: Any = None
    root: int = 0
    counts: Any = None


@dataclass(frozen=True, slots=True)
class Use:
    """An operand of one rank: given, or of a shape and dtype to be allocated."""

    name: str
    writes: bool
    ref: GpuRef | None
    shape: tuple[int, ...] = ()
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class Lowered:
    """A request as one message a rank.

    Attributes
    ----------
    kind : str
    step : Step
        What all ranks have in common.
    uses : list of list of Use
        Operands of each rank, ``x``, ``out`` and ``factor``.
    numbers : tuple of (int or float)
        Scalars.
    result : callable
        From the outputs by rank (None: there is none) to what the method returns.
    inside : dict of int to int
        Ranks whose output may lie in place: bytes from the beginning of the larger of ``x`` and ``out`` to the other.
    calls : tuple of Lowered
        The calls of a group.
    """

    kind: str
    step: Step
    uses: list[list[Use]]
    result: Callable[[list[GpuRef | None]], Any]
    numbers: tuple[int | float, ...] = ()
    inside: dict[int, int] = field(default_factory=dict)
    calls: tuple[Lowered, ...] = ()

    def steps_of(self, rank: int) -> tuple[Step, ...]:
        """Return the steps of the message as one rank sees them, with the places of its operands and scalars."""
        steps, place, number = [], 0, 2
        for call in self.calls or (self,):
            names = {use.name: place + i for i, use in enumerate(call.uses[rank])}
            place += len(names)
            factor = number if call.numbers else -1
            number += len(call.numbers)
            steps.append(
                replace_step(
                    call.step,
                    x=names.get("x", -1),
                    out=names.get("out", -1),
                    factor=names.get("factor", -1),
                    number=factor,
                )
            )
        return tuple(steps)


class _Ranks:
    """The checks of arrays against the ranks of a communicator."""

    def __init__(self, kind: str, devices: Sequence[Device]) -> None:
        self.kind = kind
        self.devices = devices
        self.size = len(devices)

    def refuse(self, text: str) -> InvalidRequest:
        return InvalidRequest(f"{self.kind}: {text}")

    def root(self, name: str, value: object) -> int:
        if not is_integer(value) or not 0 <= value < self.size:  # type: ignore[operator]
            raise self.refuse(f"{name}={value!r}; allowed: ranks 0 to {self.size - 1}")
        return int(value)  # type: ignore[call-overload, no-any-return]

    def one(self, name: str, ref: object, rank: int | None = None) -> GpuRef:
        """Check an array on its own; `rank` is where it must be."""
        if not isinstance(ref, GpuRef):
            raise self.refuse(f"{name} must be a GpuRef, not {type(ref).__name__}; device.put() makes one")
        if rank is not None and ref.device is not self.devices[rank]:
            raise self.refuse(
                f"{name} lies on {ref.device.name}; allowed for rank {rank}: {self.devices[rank].name} of this System"
            )
        if not ref.layout.contiguous:
            raise self.refuse(
                f"{name} is {ref.layout!r}, which is not contiguous; device.copy({name}) makes a contiguous array"
            )
        ref.allocation.refuse_gone()
        return ref

    def rank_of(self, name: str, ref: object) -> int:
        """Return the rank on whose device an array lies."""
        found = self.one(name, ref).device
        if found not in self.devices:
            names = ", ".join(device.name for device in self.devices)
            raise self.refuse(f"{name} lies on {found.name}; allowed: a device of this communicator ({names})")
        return self.devices.index(found)

    def each(self, name: str, refs: object) -> list[GpuRef]:
        """Check one array a rank."""
        if isinstance(refs, GpuRef) or not isinstance(refs, Sequence) or len(refs) != self.size:
            given = f"{len(refs)} arrays" if isinstance(refs, Sequence) else f"a {type(refs).__name__}"
            raise self.refuse(f"{name} is {given}; allowed: {self.size} arrays, one for each rank")
        return [self.one(f"{name}[{rank}]", ref, rank) for rank, ref in enumerate(refs)]

    def alike(self, name: str, refs: list[GpuRef]) -> GpuRef:
        """Check that all have one shape and dtype, and return the first."""
        for rank, ref in enumerate(refs):
            if (ref.shape, ref.dtype) != (refs[0].shape, refs[0].dtype):
                raise self.refuse(
                    f"{name}[{rank}] is {ref.layout!r} and {name}[0] is {refs[0].layout!r}; they must agree"
                )
        return refs[0]

    def output(self, name: str, ref: object, rank: int, shape: tuple[int, ...], dtype: str) -> Use:
        """Return the use of an output, which is checked if it is given."""
        if ref is None:
            return Use("out", writes=True, ref=None, shape=shape, dtype=dtype)
        found = self.one(name, ref, rank)
        if found.shape != shape or found.dtype != as_dtype(dtype):
            raise self.refuse(f"{name} is {found.layout!r}; allowed: {dtype}{list(shape)}")
        return Use("out", writes=True, ref=found, shape=shape, dtype=dtype)

    def outputs(self, out: object, shapes: Sequence[tuple[int, ...]], dtype: str) -> list[Use]:
        """Return the uses of one output a rank."""
        given = [None] * self.size if out is None else self.each("out", out)
        return [
            self.output(f"out[{rank}]", ref, rank, shape, dtype)
            for rank, (ref, shape) in enumerate(zip(given, shapes, strict=True))
        ]

    def parts(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of one of the equal parts of an array along its first axis, one for each rank."""
        if not shape or shape[0] % self.size:
            raise self.refuse(
                f"{name} has shape {shape}; allowed: a first axis that is a multiple of the {self.size} ranks"
            )
        return (shape[0] // self.size, *shape[1:])

    def joined(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of one array a rank, joined along the first axis."""
        return (self.size * shape[0], *shape[1:]) if shape else (self.size,)


def _read(name: str, ref: GpuRef) -> Use:
    return Use(name, writes=False, ref=ref)


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def _whole(outs: list[GpuRef | None]) -> Any:
    return outs


def _reduction(ranks: _Ranks, request: CollectiveRequest) -> Lowered:
    """Lower all_reduce, reduce and reduce_scatter."""
    refs = ranks.each("arrays", request.arrays)
    first = ranks.alike("arrays", refs)
    dtype = dtype_name(first.dtype)
    if dtype not in REDUCIBLE:
        raise ranks.refuse(f"arrays are {dtype}, which cannot be reduced; allowed: {', '.join(REDUCIBLE)}")
    if request.op not in OPERATIONS:
        raise ranks.refuse(f"op={request.op!r}; allowed: {', '.join(OPERATIONS)}")
    uses = [[_read("x", ref)] for ref in refs]
    step = Step(ranks.kind, dtype, first.size, request.op)
    inside: dict[int, int] = {}
    result: Callable[[list[GpuRef | None]], Any] = _whole
    if ranks.kind == "all_reduce":
        outs: list[Use | None] = [*ranks.outputs(request.out, [first.shape] * ranks.size, dtype)]
        inside = dict.fromkeys(range(ranks.size), 0)
    elif ranks.kind == "reduce":
        root = ranks.root("root", request.root)
        outs = [None] * ranks.size
        outs[root] = ranks.output("out", request.out, root, first.shape, dtype)
        step = replace_step(step, root=root)
        inside = {root: 0}
        result = lambda found: found[root]  # noqa: E731
    else:
        part = ranks.parts("arrays", first.shape)
        outs = [*ranks.outputs(request.out, [part] * ranks.size, dtype)]
        step = replace_step(step, count=_size(part))
        inside = {rank: rank * _size(part) * first.dtype.itemsize for rank in range(ranks.size)}
    for mine, out in zip(uses, outs, strict=True):
        if out is not None:
            mine.append(out)
    numbers: tuple[int | float, ...] = ()
    if request.factor is not None:
        numbers = _add_factor(ranks, request, dtype, uses)
    return Lowered(ranks.kind, step, uses, result, numbers, inside)


def replace_step(step: Step, **changes: Any) -> Step:
    """Return a step with other values of some fields."""
    fields = {name: getattr(step, name) for name in step.__struct_fields__}
    return Step(**{**fields, **changes})


def _add_factor(
    ranks: _Ranks, request: CollectiveRequest, dtype: str, uses: list[list[Use]]
) -> tuple[int | float, ...]:
    """Check the factor; a number becomes a scalar, arrays become operands."""
    factor = request.factor
    if request.op != "sum":
        raise ranks.refuse(f"factor={factor!r} with op={request.op!r}; allowed with a factor: op='sum'")
    if is_recorded(factor) and as_dtype(dtype).kind not in "iu":
        return (factor,)
    if is_real(factor) or is_integer(factor):
        if as_dtype(dtype).kind in "iu" and not float(factor).is_integer():
            raise ranks.refuse(f"factor={factor!r} of {dtype} arrays; allowed: integers")
        return (float(factor),)
    if isinstance(factor, GpuRef) or not isinstance(factor, Sequence):
        raise ranks.refuse(f"factor={factor!r}; allowed: a number, or one array of one element for each rank")
    for rank, ref in enumerate(ranks.each("factor", factor)):
        if ref.size != 1 or ref.dtype != as_dtype(dtype):
            raise ranks.refuse(f"factor[{rank}] is {ref.layout!r}; allowed: one element of {dtype}")
        uses[rank].append(_read("factor", ref))
    return ()


def _gathering(ranks: _Ranks, request: CollectiveRequest) -> Lowered:
    """Lower all_gather and gather."""
    refs = ranks.each("arrays", request.arrays)
    first = ranks.alike("arrays", refs)
    dtype, shape = dtype_name(first.dtype), ranks.joined(first.shape)
    uses = [[_read("x", ref)] for ref in refs]
    step = Step(ranks.kind, dtype, first.size)
    inside = {rank: rank * first.nbytes for rank in range(ranks.size)}
    if ranks.kind == "all_gather":
        for mine, out in zip(uses, ranks.outputs(request.out, [shape] * ranks.size, dtype), strict=True):
            mine.append(out)
        return Lowered(ranks.kind, step, uses, _whole, inside=inside)
    root = ranks.root("root", request.root)
    uses[root].append(ranks.output("out", request.out, root, shape, dtype))
    return Lowered(ranks.kind, replace_step(step, root=root), uses, lambda found: found[root], inside=inside)


def _from_root(ranks: _Ranks, request: CollectiveRequest) -> Lowered:
    """Lower broadcast and scatter."""
    root = ranks.rank_of("array", request.arrays)
    ref: GpuRef = request.arrays
    dtype = dtype_name(ref.dtype)
    uses: list[list[Use]] = [[] for _ in ranks.devices]
    uses[root].append(_read("x", ref))
    if ranks.kind == "broadcast":
        given = request.out
        if given is None:  # the root has it already
            outs = [ranks.output("out", None, rank, ref.shape, dtype) for rank in range(ranks.size)]
            outs[root] = Use("out", writes=True, ref=ref, shape=ref.shape, dtype=dtype)
        else:
            outs = ranks.outputs(given, [ref.shape] * ranks.size, dtype)
        count, inside = ref.size, {root: 0}
    else:
        part = ranks.parts("array", ref.shape)
        outs = ranks.outputs(request.out, [part] * ranks.size, dtype)
        count = _size(part)
        inside = {root: root * count * ref.dtype.itemsize}
    for mine, out in zip(uses, outs, strict=True):
        # Broadcast in place: the root only reads.
        if not (ranks.kind == "broadcast" and mine and out.ref is not None and _same(mine[0].ref, out.ref)):
            mine.append(out)
    step = Step(ranks.kind, dtype, count, root=root)

    def result(found: list[GpuRef | None]) -> list[GpuRef | None]:
        return [ref if rank == root and out is None else out for rank, out in enumerate(found)]

    return Lowered(ranks.kind, step, uses, result, inside=inside)


def _same(x: GpuRef | None, y: GpuRef | None) -> bool:
    return x is not None and y is not None and memory_span(x) == memory_span(y)


def _send(ranks: _Ranks, request: CollectiveRequest) -> Lowered:
    source, target = ranks.rank_of("array", request.arrays), ranks.root("to", request.root)
    if source == target:
        raise ranks.refuse(f"to={target} is the rank of the array; allowed: another rank (device.copy copies in one)")
    ref: GpuRef = request.arrays
    dtype = dtype_name(ref.dtype)
    uses: list[list[Use]] = [[] for _ in ranks.devices]
    uses[source].append(_read("x", ref))
    uses[target].append(ranks.output("out", request.out, target, ref.shape, dtype))
    step = Step("send", dtype, ref.size, root=source, target=target)
    return Lowered(ranks.kind, step, uses, lambda found: found[target])


def _all_to_all(ranks: _Ranks, request: CollectiveRequest) -> Lowered:
    refs = ranks.each("arrays", request.arrays)
    n = ranks.size
    tails = {ref.shape[1:] if ref.ndim else None for ref in refs} | {None for ref in refs if not ref.ndim}
    if len(tails) != 1 or None in tails or len({ref.dtype for ref in refs}) != 1:
        found = ", ".join(repr(ref.layout) for ref in refs)
        raise ranks.refuse(f"arrays are {found}; allowed: one dtype, and shapes that differ in the first axis only")
    dtype, tail = dtype_name(refs[0].dtype), refs[0].shape[1:]
    if request.counts is None:
        first = ranks.alike("arrays", refs)
        rows = [[ranks.parts("arrays", first.shape)[0]] * n for _ in range(n)]
    else:
        rows = [list(row) for row in request.counts]
        if len(rows) != n or any(len(row) != n or not all(is_integer(k) and k >= 0 for k in row) for row in rows):
            raise ranks.refuse(f"counts={request.counts!r}; allowed: {n} rows of {n} numbers that are at least 0")
        for rank, ref in enumerate(refs):
            if sum(rows[rank]) != ref.shape[0]:
                raise ranks.refuse(
                    f"counts[{rank}] sum to {sum(rows[rank])} and arrays[{rank}] has {ref.shape[0]} rows; they must be "
                    f"equal"
                )
    shapes = [(sum(row[rank] for row in rows), *tail) for rank in range(n)]
    uses = [[_read("x", ref)] for ref in refs]
    for mine, out in zip(uses, ranks.outputs(request.out, shapes, dtype), strict=True):
        mine.append(out)
    width = _size(tail)
    step = Step(
        ranks.kind, dtype, sum(map(sum, rows)) * width, counts=tuple(tuple(int(k) * width for k in row) for row in rows)
    )
    return Lowered(ranks.kind, step, uses, _whole)


def _barrier(ranks: _Ranks, _request: CollectiveRequest) -> Lowered:
    return Lowered("barrier", Step("barrier", "uint8", 0), [[] for _ in ranks.devices], lambda _: None)


_LOWERINGS: Final[dict[str, Callable[[_Ranks, CollectiveRequest], Lowered]]] = {
    "all_reduce": _reduction,
    "reduce": _reduction,
    "reduce_scatter": _reduction,
    "all_gather": _gathering,
    "gather": _gathering,
    "broadcast": _from_root,
    "scatter": _from_root,
    "send": _send,
    "all_to_all": _all_to_all,
    "barrier": _barrier,
}


def lower(request: CollectiveRequest, devices: Sequence[Device]) -> Lowered:
    """Check a request against the ranks of a communicator, and return it as one message a rank.

    Raises
    ------
    InvalidRequest
        With the offending value and the allowed ones.
    GpuRefStale
    """
    if not isinstance(request, CollectiveRequest):
        raise InvalidRequest(f"a communicator takes a CollectiveRequest, not {type(request).__name__}")
    if request.kind not in _LOWERINGS:
        raise InvalidRequest(f"kind={request.kind!r}; allowed: {', '.join(_LOWERINGS)}")
    if request.kind not in _REDUCTIONS:
        request = replace(request, op="sum", factor=None)
    lowered = _LOWERINGS[request.kind](_Ranks(request.kind, devices), request)
    for rank, uses in enumerate(lowered.uses):
        _check_overlaps(lowered, rank, uses)
    return lowered


def _check_overlaps(lowered: Lowered, rank: int, uses: list[Use]) -> None:
    """Refuse an output that shares memory with another operand, unless it lies in place."""
    known = [(use, *memory_span(use.ref)) for use in uses if use.ref is not None and use.ref.size]
    for i, (one, place, first, end) in enumerate(known):
        for other, where, start, stop in known[:i]:
            if place != where or first >= stop or start >= end or not (one.writes or other.writes):
                continue
            offset = lowered.inside.get(rank)
            names = {one.name, other.name}
            if offset is not None and names == {"x", "out"} and abs(first - start) == offset:
                small, large = sorted(((first, end), (start, stop)), key=lambda span: span[1] - span[0])
                if large[0] <= small[0] and small[1] <= large[1]:
                    continue
            raise InvalidRequest(
                f"{lowered.kind}: {one.name} of rank {rank} overlaps its {other.name}: bytes {first} to {end} and "
                f"{start} to {stop} of one allocation; allowed: separate memory"
                + (
                    ""
                    if offset is None
                    else f", or the smaller one {offset} bytes from the beginning of the larger one"
                )
            )
