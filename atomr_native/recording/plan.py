"""Recorded plans: a program of messages that is sent as one message."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from .._support.public import public
from .._support.recorded import is_recorded, plain
from ..arrays.gpu_ref import GpuRef
from ..arrays.layout import layout_of
from ..errors import AtomrError, GpuRefStale, InvalidRequest
from ..libraries.program.attributes import ProgramAttributes, StepAttributes
from ..plans.plan import Plan
from ..plans.signature import Signature
from ..plans.spec import WRITE
from .program import Bound, Number, Program, defaults_of
from .temporaries import Temporaries

if TYPE_CHECKING:
    from ..plans.owner import PlanOwner

__all__ = ["RecordedPlan", "RecordedStep", "Replays"]

_BYTES: Final = np.dtype(np.uint8)


@public
class RecordedStep(NamedTuple):
    """One message of a recorded plan, or control flow.

    Attributes
    ----------
    operation : str
        ``"blas_lt.matmul"``; ``"if"``, ``"while"`` or ``"switch"``.
    operands : tuple of str
        What each of its operands lies in: the name of a parameter, ``"bound[i]"`` or ``"temporaries"``.
    after : tuple of int
        The steps of the same body whose results it needs, or whose operands it overwrites.
    bodies : tuple of range
        Of control flow: the steps of each body.
    """

    operation: str
    operands: tuple[str, ...]
    after: tuple[int, ...]
    bodies: tuple[range, ...] = ()


@public
class Replays(NamedTuple):
    """How the worker has run the messages of a recorded plan, since it built the plan.

    Attributes
    ----------
    stepwise : int
        Messages whose steps were launched one by one.
    launched : int
        Messages that were one launch of a CUDA graph.
    captured : int
        How often launches were captured.
    instantiated : int
        How often a graph was instantiated, instead of updated in place.
    patched : int
        Messages with other addresses or numbers for which nothing was captured: the parameters of kernels were set.
    """

    stepwise: int
    launched: int
    captured: int
    instantiated: int
    patched: int = 0


@public
class RecordedPlan(Plan):
    """A recorded program as a plan; made by `Device.graph` and `Device.record`.

    Its operands are the recording's parameters, and its numbers those that were named.  All other arrays that the
    recorded messages use are bound: kept alive, and checked and ordered by each message as if they were operands.
    Temporaries, which were made inside and are not used after, lie in one block of the plan's.

    A message runs the steps in their order, in the device's mailbox ``"program"``.  It is one message to all others: it
    waits for what its arrays wait for, fails as a whole, and then poisons every array that it would have written.
    Parameters that a step writes must share no memory with other parameters, or with bound arrays.

    After a restart of the device the plan is built anew.  Bound arrays that were not durable are stale then: each
    message raises `GpuRefStale`, which names the array, until `bind` puts another one in its place.

    Examples
    --------
    >>> x, total = device.ones(3), device.zeros(3, durable=True)
    >>> with device.record() as recording:
    ...     given = recording.operand("x", x)
    ...     device.copy(given * 2 + total, out=total)
    <GpuRef float32[3] on host>
    >>> plan = recording.plan
    >>> plan.tell(x)
    >>> plan.tell(device.full(3, 10.0))
    >>> total.numpy()
    array([22., 22., 22.], dtype=float32)
    """

    _bound: tuple[Bound, ...]
    _block: int
    _numbers: tuple[Number, ...]
    _temporaries: Temporaries

    @classmethod
    def of(cls, owner: PlanOwner, lane: int, program: Program, share: Temporaries | None = None) -> RecordedPlan:
        """Return the plan of a program; the worker builds it asynchronously, unless it has an equal one."""
        spec = program.spec
        given = spec.operands[: program.parameters]
        fixed = frozenset(o.name for o in spec.operands[program.parameters :])
        native = all(n.number.conversion is None for n in program.numbers)
        names = tuple(n.number.name for n in program.numbers)
        native = native and len(set(names)) == len(names)
        key = len(spec.scalars) - len(names)  # of a program of a communicator's rank
        signature = Signature(
            tuple(o.name for o in spec.operands),
            tuple(o.name for o in given if not o.access & WRITE),
            tuple(o.name for o in given if o.access & WRITE),
            (
                *(f"key {i}" for i in range(key)),
                *(names if native else (f"{name}, scalar {i}" for i, name in enumerate(names))),
            ),
            (0,) * key + defaults_of(program.numbers),
        )
        same = (spec, tuple(one.key for one in program.bound), share and weakref.ref(share))
        plan: RecordedPlan = cls.make(  # type: ignore[assignment]
            owner, lane, spec, signature, any_layout=fixed, key=same
        )
        plan._bound, plan._block, plan._numbers = program.bound, program.temporaries, program.numbers
        plan._temporaries = share or owner.plans.common(plan.record, lambda: Temporaries(owner.core))
        operations = ", ".join(dict.fromkeys(step.operation for step in plan.steps))
        plan.record.operation = f"{spec.op} of {operations if len(operations) < 200 else operations[:200] + '...'}"
        if not native:
            plan.expansion = _Expansion(program.numbers)
        refs = tuple(_bytes_of(one.ref, one.low, one.high) for one in program.bound)
        plan.fix((*refs, *plan._temporaries.add(plan, program.temporaries)), list(program.results))
        plan.move_temporaries()
        return plan

    @property
    def temporaries(self) -> Temporaries:
        """Where its temporaries lie."""
        return self._temporaries

    @property
    def has_temporaries(self) -> bool:
        """Whether the last operand is bytes of that block."""
        return bool(self._block)

    def move_temporaries(self) -> None:
        """Use the present block, which another plan has made larger."""
        if self._block and self.fixed is not None:
            self.put_in_place(len(self._bound), *self._temporaries.part(self._block))

    @property
    def steps(self) -> tuple[RecordedStep, ...]:
        """The recorded messages, in their order."""
        attributes: ProgramAttributes = self.spec.attributes
        names = [operand.name for operand in self.spec.operands]
        made = []
        for number, step in enumerate(attributes.steps):
            if isinstance(step, StepAttributes):
                operation = attributes.specs[step.spec].spec.op
                made.append(RecordedStep(operation, tuple(names[at] for at, _ in step.operands), step.after))
                continue
            ends = [number + 1, *(number + 1 + sum(step.bodies[: i + 1]) for i in range(len(step.bodies)))]
            bodies = tuple(range(first, end) for first, end in pairwise(ends))
            made.append(RecordedStep(step.kind, (names[step.flag[0]],), step.after, bodies))
        return tuple(made)

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that belong to the plan: its temporaries, with those of plans that share them."""
        return self._temporaries.nbytes

    @property
    def notes(self) -> tuple[str, ...]:
        """As `Plan.notes`; also why the worker could not capture a step.  Waits for the build, and for the worker."""
        notes = super().notes
        refused = self._asked().get("refused")
        return (*notes, f"launched step by step: {str(refused)[:200]}") if refused else notes

    @property
    def replays(self) -> Replays:
        """How the worker has run the plan's messages; all 0 on the host device.  Waits for the worker."""
        self.wait()
        found = self._asked()
        return Replays(*(int(found.get(name, 0)) for name in Replays._fields))

    def _asked(self) -> Mapping[str, Any]:
        owner: PlanOwner = self.core.owner
        return owner.links.submit("replays", plan=self.record.index).result().fields

    def dot(self) -> str:
        """Return the steps and their dependencies as a graph in the DOT language."""
        lines, steps = ["digraph program {"], self.steps

        def draw(numbers: range, indent: str) -> None:
            at = numbers.start
            while at < numbers.stop:
                step = steps[at]
                shape = ", shape=diamond" if step.bodies else ""
                lines.append(f'{indent}step{at} [label="{at}: {step.operation}"{shape}];')
                lines.extend(f"{indent}step{before} -> step{at};" for before in step.after)
                for number, body in enumerate(step.bodies):
                    lines.append(f"{indent}subgraph cluster_{at}_{number} {{")
                    lines.append(f'{indent}  label="{_body_name(step.operation, number)}";')
                    draw(body, f"{indent}  ")
                    lines.append(f"{indent}}}")
                    if body:
                        lines.append(f"{indent}step{at} -> step{body.start} [style=dashed];")
                at = step.bodies[-1].stop if step.bodies else at + 1

        draw(range(len(steps)), "  ")
        return "\n".join((*lines, "}"))

    def scalars_of(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the scalars of a message, after its key, for the values of recorded numbers by name."""
        return tuple(_scalar(one, values) for one in self._numbers)

    def bind(self, old: GpuRef, new: GpuRef) -> RecordedPlan:
        """Put an array in the place of a bound one, for later messages; return the plan.  Does not wait.

        Parameters
        ----------
        old : GpuRef
            The bound array; it may be stale.
        new : GpuRef
            An array of the same device with the same layout.

        Raises
        ------
        InvalidRequest
            If `old` is not bound or has another layout than `new`, or if the recorded messages use bytes of its
            allocation that are not in `old`; if `new` shares memory with another bound array and one of the two is
            written: the recording has their steps in no order.
        GpuRefStale
            If `new` is stale.
        """
        for name, ref in (("old", old), ("new", new)):
            if not isinstance(ref, GpuRef) or ref.allocation.core is not self.core:
                raise InvalidRequest(f"{name} is {ref!r:.200}; allowed: a GpuRef of {self.device.name}")
        if old.layout != new.layout:
            raise InvalidRequest(f"new is {new.layout!r} and old is {old.layout!r}; allowed: the same layout")
        key = (old.allocation.slot, old.allocation.generation)
        for at, one in enumerate(self._bound):
            if (one.ref.allocation.slot, one.ref.allocation.generation) != key:
                continue
            low, high = old.offset + old.layout.low, old.offset + old.layout.high
            if one.low < low or one.high > high:
                raise InvalidRequest(
                    f"old has bytes {low} to {high} of its allocation, and the recording uses {one.low} to {one.high}; "
                    f"allowed: an array that has all of them"
                )
            new.allocation.refuse_gone()
            if new.allocation.readonly and self.access_of(self._given + at) & WRITE:
                raise InvalidRequest(f"new is read-only, and the recording writes it: {one.label}")
            moved = new.offset - old.offset
            bound = Bound(new, one.low + moved, one.high + moved, one.label)
            self._keep_apart(at, bound)
            self.put_in_place(at, _bytes_of(new, bound.low, bound.high))
            self._bound = (*self._bound[:at], bound, *self._bound[at + 1 :])
            return self
        labels = "; ".join(one.label for one in self._bound[:8])
        raise InvalidRequest(f"old is not bound to this plan: {old!r}; bound are: {labels or 'none'}")

    def _keep_apart(self, at: int, new: Bound) -> None:
        """Refuse memory of another bound array, unless both are only read: no step waits for the other's."""
        space, low, high = new.place
        if new.place == self._bound[at].place:
            return
        for number, one in enumerate(self._bound):
            where, first, end = one.place
            if number == at or where != space or high <= first or end <= low:
                continue
            if (self.access_of(self._given + at) | self.access_of(self._given + number)) & WRITE:
                raise InvalidRequest(
                    f"new shares memory with another bound array: {one.label}; one of them is written, and the "
                    f"recording has no order for them; allowed: memory of its own, or a recording with these arrays"
                )

    @property
    def _given(self) -> int:
        return len(self.spec.operands) - len(self._bound) - bool(self._block)

    def name_fixed(self, at: int, error: AtomrError) -> AtomrError:
        """Return the error about a bound array with its name."""
        if at >= len(self._bound) or not isinstance(error, GpuRefStale):
            return error
        label = self._bound[at].label
        return GpuRefStale(f"bound array, {label}: {error.message}; plan.bind(old, new) puts another one in its place",
                           error.reason)  # fmt: skip

    def __repr__(self) -> str:
        return f"<RecordedPlan of {len(self.steps)} steps on {self.device.name}>"


def _body_name(kind: str, number: int) -> str:
    if kind == "if":
        return "else" if number else "then"
    return f"case {number}" if kind == "switch" else "round"


class _Expansion:
    """Makes the scalars of a message from the numbers that its caller names."""

    def __init__(self, numbers: tuple[Number, ...]) -> None:
        self._numbers = numbers
        self._defaults: dict[str, Any] = {}
        for one in numbers:
            _collect(one.number, self._defaults)

    @property
    def names(self) -> tuple[str, ...]:
        """What callers name."""
        return tuple(self._defaults)

    def __call__(self, named: dict[str, Any] | None) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """Return the names that are no numbers, and the scalars."""
        values = dict(self._defaults)
        rest = {}
        for name, value in (named or {}).items():
            if name in values:
                values[name] = value
            else:
                rest[name] = value
        return rest, tuple(_scalar(one, values) for one in self._numbers)


def _collect(number: Any, into: dict[str, Any]) -> None:
    if number.conversion is None:
        into[number.name] = plain(number)
        return
    for argument in number.conversion.arguments:
        if is_recorded(argument):
            _collect(argument, into)


def _scalar(one: Number, values: Mapping[str, Any]) -> Any:
    conversion = one.number.conversion
    return values[one.number.name] if conversion is None else conversion.results(values)[one.number.place]


def _bytes_of(ref: GpuRef, low: int, high: int) -> GpuRef:
    """Return a handle of some bytes of an allocation."""
    return ref.view_as(layout_of((high - low,), _BYTES), low)
