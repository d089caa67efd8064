"""From recorded messages to the specification of one plan: parameters, bound arrays, packed temporaries."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, cast

from .._lib.sender import MAX_BOUND, MAX_OPERANDS
from .._support.recorded import RecordedFloat, RecordedInt, is_recorded, plain
from ..errors import InvalidRequest
from ..libraries.program.attributes import ControlAttributes, ProgramAttributes, StepAttributes
from ..plans.spec import HOST, OVERWRITE, READ, WRITE, NestedSpec, OperandSpec, PlanSpec, describe
from .recorder import KEY_WORDS, Body, Message, Recorder, Use
from .steps import FlatStep, Temporary, dependencies, flat_steps, lifetime, loops_of, pack

if TYPE_CHECKING:
    from .._lib.sender import Allocation
    from ..arrays.gpu_ref import GpuRef
    from ..libraries.program.attributes import FlagType

__all__ = ["Bound", "Number", "Program", "check_used", "program_of"]

_ALIGNMENT: Final = 256
_MAX_SCALARS: Final = 64
_TEMPORARIES: Final = "temporaries"
# The references of `Recorder.made`, of the loop's variable, and of the argument of getrefcount.
_OWN_REFERENCES: Final = 3


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound array: bytes of an allocation that each replay uses without being given it.

    Attributes
    ----------
    ref : GpuRef
        A handle of the allocation.
    low, high : int
        The bytes of the allocation that are used.
    label : str
        Where it was first used, for errors.
    """

    ref: GpuRef
    low: int
    high: int
    label: str

    @property
    def key(self) -> tuple[int, int, int, int]:
        """What makes it equal to another one."""
        return self.ref.allocation.slot, self.ref.allocation.generation, self.low, self.high

    @property
    def place(self) -> tuple[int, int, int]:
        """Where its bytes are: their space, the first, and one past the last.  Imports of one memory share a space."""
        origin = self.ref.allocation.origin
        return self.ref.allocation.space, origin + self.low, origin + self.high


@dataclass(frozen=True, slots=True)
class Number:
    """A scalar of the message: a recorded number, and the kind of word that carries it."""

    number: RecordedFloat | RecordedInt
    kind: str


@dataclass(frozen=True, slots=True)
class Program:
    """A recording as a plan.

    Attributes
    ----------
    spec : PlanSpec
        Operands: parameters, bound arrays, and the block of temporaries.
    parameters : int
        How many operands are parameters.
    bound : tuple of Bound
    temporaries : int
        Bytes of the block.
    numbers : tuple of Number
        The scalars, after the key of a program of a communicator's rank.
    results : tuple of Allocation
        Arrays that were made inside, or by a recorded plan that was sent inside, and are still in use: they are bound,
        and exist from the first message on.
    """

    spec: PlanSpec[ProgramAttributes]
    parameters: int
    bound: tuple[Bound, ...]
    temporaries: int
    numbers: tuple[Number, ...]
    results: tuple[Allocation, ...]

    @property
    def used(self) -> set[str]:
        """The names of the recorded numbers that it sends."""
        return set().union(*(_names(one.number) for one in self.numbers))


def program_of(recorder: Recorder, given: dict[str, RecordedFloat | RecordedInt], handle: Any) -> Program:
    """Return what was recorded as a plan.

    Parameters
    ----------
    recorder : Recorder
        After its end.
    given : dict
        The recorded numbers, by name.
    handle : callable
        From an allocation to a handle of all its bytes.

    Raises
    ------
    InvalidRequest
        If there is nothing to run, a number has no use, or the message would have too many arrays or numbers.  A rank
        of a communicator may have nothing to run, and no use for a number.
    """
    steps = flat_steps(recorder.body)
    key = KEY_WORDS if recorder.ranks else 0
    if not steps and not key:
        raise InvalidRequest("nothing was recorded: no message was sent to the device inside the recording")
    numbers, places = _numbers(steps, given, key)
    if not key:
        check_used(given, set().union(*(_names(one.number) for one in numbers)))
    spans: dict[Any, list[tuple[int, Use]]] = {}
    for number, step in enumerate(steps):
        for use in step.uses:
            spans.setdefault(use.root, []).append((number, use))
    escaped, temporary = _divide(recorder, spans)
    loops = loops_of(steps)
    packed = pack(
        {
            root: Temporary(
                -(-max(recorder.made[root].nbytes, 1) // _ALIGNMENT) * _ALIGNMENT,
                *lifetime(steps, loops, [number for number, _ in uses], recorder.made_in[root]),
                tuple(number for number, _ in uses),
            )
            for root, uses in spans.items()
            if root in temporary
        },
        steps,
    )
    block = packed.nbytes
    operands = [
        describe(name, ref, _access(spans.get(i, []), _Whole(ref.layout, 0), steps) or READ)
        for i, (name, ref, _) in enumerate(recorder.parameters)
    ]
    n_parameters = len(operands)
    roots: dict[Any, tuple[int, int]] = {i: (i, 0) for i in range(n_parameters)}  # operand, bytes to add
    bound, places_of_bound = [], []
    for root, uses in spans.items():
        if isinstance(root, int) or root in temporary:
            continue
        low, high = min(use.low for _, use in uses), max(use.high for _, use in uses)
        number, first = uses[0]
        label = f"operand {first.name!r} of step {number} ({steps[number].name}), {first.layout!r}"
        ref = recorder.bound[root] if root in recorder.bound else handle(recorder.made[root])
        roots[root] = len(operands), -low
        bound.append(Bound(ref, low, high, label))
        places_of_bound.append((*bound[-1].place, root))
        size, whole = high - low, ref.allocation.nbytes
        operands.append(
            OperandSpec(
                f"bound[{len(bound) - 1}]", "uint8", (size,), (1,), _access(uses, _Whole(None, 0, whole), steps)
            )
        )
    if block:
        for root, offset in packed.offsets.items():
            roots[root] = len(operands), offset
        operands.append(OperandSpec(_TEMPORARIES, "uint8", (block,), (1,), WRITE))
    if n_parameters > MAX_OPERANDS or len(bound) > MAX_BOUND:
        raise InvalidRequest(
            f"the recording uses {n_parameters} parameters and {len(bound)} other arrays; allowed: {MAX_OPERANDS} and "
            f"{MAX_BOUND}. Put small arrays into one allocation, and use views of it"
        )
    one_for_all = _roots_of_shared_bytes(places_of_bound)
    spec = PlanSpec(
        "program.replay",
        tuple(operands),
        ("int64",) * key + tuple(number.kind for number in numbers),
        _attributes(steps, roots, places, dependencies(steps, packed.sharing, one_for_all)),
    )
    results = (*(recorder.made[root] for root in escaped), *recorder.awaited)
    return Program(spec, n_parameters, tuple(bound), block, numbers, results)


def _roots_of_shared_bytes(places: list[tuple[int, int, int, Any]]) -> dict[Any, Any]:
    """Return one root for each set of imports that share bytes, given spaces, first and last bytes, and roots."""
    found: dict[Any, Any] = {}
    last: tuple[int, int, Any] = (-1, 0, None)
    for space, low, high, root in sorted(places, key=itemgetter(0, 1)):
        if space == last[0] and low < last[1]:
            found[root] = last[2]
            last = space, max(high, last[1]), last[2]
        else:
            last = space, high, root
    return found


@dataclass(frozen=True, slots=True)
class _Whole:
    """What counts as the whole of an operand: a parameter's layout, or all bytes of an allocation."""

    layout: Any
    low: int
    high: int = 0

    def covered_by(self, use: Use) -> bool:
        if self.layout is not None:
            return use.offset == self.low and use.layout == self.layout
        return use.layout.contiguous and (use.low, use.high) == (self.low, self.high)


def _access(uses: list[tuple[int, Use]], whole: _Whole, steps: list[FlatStep]) -> int:
    """Return how all steps together use an operand: what is overwritten first is not read.

    What is overwritten in a branch or a loop is so for the rest of it, and not after it, since it may not run.
    """
    access = 0
    overwritten: list[tuple[Body, ...]] = []
    for step, group in groupby(uses, itemgetter(0)):
        same = [use for _, use in group]
        path = steps[step].path
        covered = any(path[: len(one)] == one for one in overwritten)
        if not covered and any(use.access & READ for use in same):
            access |= READ
        for use in same:
            access |= use.access & (WRITE | HOST)
            if use.access & OVERWRITE and not access & READ and whole.covered_by(use):
                overwritten.append(path)
    return access | (OVERWRITE if () in overwritten else 0)


def _divide(recorder: Recorder, spans: dict[Any, Any]) -> tuple[list[Any], set[Any]]:
    """Return the allocations that were made inside: used ones that somebody still holds, and temporaries."""
    escaped, temporary = [], set()
    for root in recorder.made:
        allocation = recorder.made[root]
        if sys.getrefcount(allocation) > _OWN_REFERENCES:
            escaped.append(root)
        elif root in spans:
            temporary.add(root)
    return escaped, temporary


def check_used(given: dict[str, RecordedFloat | RecordedInt], used: set[str]) -> None:
    """Refuse recorded numbers that no message sends."""
    for name in given:
        if name not in used:
            raise InvalidRequest(
                f"number {name!r} is sent by no message of the recording; a value that only Python reads is the same "
                f"in each replay: give it as a static argument, or as a plain number"
            )


def _numbers(
    steps: list[FlatStep], given: dict[str, RecordedFloat | RecordedInt], first: int
) -> tuple[tuple[Number, ...], dict[tuple[int, int], int]]:
    """Return the scalars of the program, and which of them each scalar of a step is, by step and place.

    There are `first` scalars before them, the key, with which the scalars of a collective begin.
    """
    found: dict[Any, Number] = {}
    places: dict[tuple[int, int], int] = {}
    for step, flat in enumerate(steps):
        if not isinstance(flat.item, Message):
            continue
        if flat.item.spans_ranks:
            places.update(((step, word), word) for word in range(first))
        for place, (number, kind) in flat.item.numbers.items():
            _check_own(number, given)
            conversion = number.conversion
            key = (number.name, kind) if conversion is None else (id(conversion), number.place, kind)
            found.setdefault(key, Number(number, kind))
            places[step, place] = first + list(found).index(key)
    if first + len(found) > _MAX_SCALARS:
        raise InvalidRequest(f"the recording has {len(found)} numbers; allowed: {_MAX_SCALARS - first}")
    return tuple(found.values()), places


def _names(number: RecordedFloat | RecordedInt) -> set[str]:
    """Return the names of the recorded numbers that a number is computed from."""
    if number.conversion is not None:
        return set().union(*(_names(one) for one in number.conversion.arguments if is_recorded(one)))
    return {number.name}


def _check_own(number: RecordedFloat | RecordedInt, given: dict[str, RecordedFloat | RecordedInt]) -> None:
    """Refuse a number of another recording."""
    if number.conversion is not None:
        for one in number.conversion.arguments:
            if is_recorded(one):
                _check_own(one, given)
        return
    if given.get(number.name) is not number:
        raise InvalidRequest(f"{number!r} belongs to another recording; allowed: numbers of this one")


def _attributes(
    steps: list[FlatStep],
    roots: dict[Any, tuple[int, int]],
    places: dict[tuple[int, int], int],
    after: list[tuple[int, ...]],
) -> ProgramAttributes:
    specs: dict[NestedSpec, int] = {}
    made: list[StepAttributes | ControlAttributes] = []
    for number, step in enumerate(steps):
        operands = tuple((roots[use.root][0], use.offset + roots[use.root][1]) for use in step.uses)
        item = step.item
        if isinstance(item, Message):
            nested = NestedSpec(item.spec)
            scalars = tuple(
                (True, places[number, i]) if (number, i) in places else (False, word)
                for i, word in enumerate(item.words)
            )
            made.append(StepAttributes(specs.setdefault(nested, len(specs)), operands, scalars, after[number]))
        else:
            dtype = cast("FlagType", item.flag.layout.dtype_name)
            made.append(ControlAttributes(item.kind, operands[0], dtype, step.bodies, item.limit, after[number]))
    return ProgramAttributes(tuple(specs), tuple(made))


def defaults_of(numbers: tuple[Number, ...]) -> tuple[float | int, ...]:
    """Return the values of a program's scalars while recording."""
    return tuple(plain(number.number) for number in numbers)
