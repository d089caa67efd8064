"""Steps of a recording in one list: how they depend on each other, and where temporaries lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..libraries.program.attributes import bodies_of
from ..plans.spec import WRITE
from .recorder import Body, Control, Message, Use

__all__ = ["FlatStep", "Packed", "Temporary", "dependencies", "flat_steps", "lifetime", "loops_of", "pack"]

#: How large a block may be so that branches that could run side by side have temporaries of their own: bytes, and a
#: factor of what messages sent one by one need.
_SPARE: Final = (32 << 20, 4)


@dataclass(frozen=True, slots=True)
class FlatStep:
    """A message, or control flow; the steps of its bodies follow it.

    Attributes
    ----------
    item : Message or Control
    path : tuple of Body
        The bodies in which it is, the innermost last.
    bodies : tuple of int
        How many steps each of its own bodies has.
    """

    item: Message | Control
    path: tuple[Body, ...]
    bodies: tuple[int, ...] = ()

    @property
    def uses(self) -> tuple[Use, ...]:
        """What it uses itself."""
        return self.item.uses if isinstance(self.item, Message) else (self.item.flag,)

    @property
    def name(self) -> str:
        """The operation."""
        return self.item.spec.op if isinstance(self.item, Message) else self.item.kind

    @property
    def inside(self) -> int:
        """How many steps its bodies have together."""
        return sum(self.bodies)


def flat_steps(body: Body, path: tuple[Body, ...] = ()) -> list[FlatStep]:
    """Return the steps of a body and of all bodies inside; control flow without steps is left out."""
    made: list[FlatStep] = []
    for item in body.items:
        if isinstance(item, Message):
            made.append(FlatStep(item, path))
            continue
        inner = [flat_steps(one, (*path, one)) for one in item.bodies]
        if any(inner):
            made.append(FlatStep(item, path, tuple(map(len, inner))))
            made += [step for one in inner for step in one]
    return made


def loops_of(steps: list[FlatStep]) -> list[tuple[int, int, Body]]:
    """Return the loops: their steps, from the first to the last, and their bodies."""
    return [
        (number, number + step.inside, step.item.bodies[0])
        for number, step in enumerate(steps)
        if not isinstance(step.item, Message) and step.item.kind == "while"
    ]


def lifetime(
    steps: list[FlatStep], loops: list[tuple[int, int, Body]], used: list[int], made_in: tuple[Body, ...]
) -> tuple[int, int]:
    """Return the first and the last step in which an allocation has to keep its bytes.

    What a loop finds in an array from before, or from its last round, it needs until its end.
    """
    first, last = used[0], used[-1]
    local = all(steps[at].path[: len(made_in)] == made_in for at in used) if loops else True
    for begin, end, body in loops:
        if (not local or body not in made_in) and any(begin <= at <= end for at in used):
            first, last = min(first, begin), max(last, end)
    return first, last


def dependencies(
    steps: list[FlatStep], sharing: Mapping[Any, set[Any]], one_for_all: Mapping[Any, Any]
) -> list[tuple[int, ...]]:
    """Return, for each step, the steps of the same body that it depends on by data.

    Control flow uses what its bodies use.  `sharing` says whose bytes a temporary takes over, and `one_for_all` has one
    root for imports that show the same bytes.
    """
    after: list[tuple[int, ...]] = [()] * len(steps)
    uses = [_all_uses(steps, number, one_for_all) for number in range(len(steps))]

    for _, bodies in bodies_of(steps):
        for numbers in bodies:
            writers: dict[Any, int] = {}
            readers: dict[Any, set[int]] = {}
            users: dict[Any, set[int]] = {}
            for at in numbers:
                before: set[int] = set()
                for root, writes in uses[at].items():
                    if root in writers:
                        before.add(writers[root])
                    if writes:
                        before |= readers.get(root, set())
                    for other in sharing.get(root, ()):
                        before |= users.get(other, set())
                for root, writes in uses[at].items():
                    users.setdefault(root, set()).add(at)
                    if writes:
                        writers[root] = at
                        readers[root] = set()
                    else:
                        readers.setdefault(root, set()).add(at)
                after[at] = tuple(sorted(before))
    return after


def _all_uses(steps: list[FlatStep], number: int, one_for_all: Mapping[Any, Any]) -> dict[Any, bool]:
    """Return what a step and those inside use, and whether they write it."""
    found: dict[Any, bool] = {}
    for step in steps[number : number + 1 + steps[number].inside]:
        for use in step.uses:
            root = one_for_all.get(use.root, use.root)
            found[root] = found.get(root, False) or bool(use.access & WRITE)
    return found


@dataclass(frozen=True, slots=True)
class Temporary:
    """Bytes that are needed from one step to another, and the steps that use them."""

    nbytes: int
    first: int
    last: int
    used: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Packed:
    """Where each temporary lies in a block, its size, and whose bytes each takes over."""

    offsets: dict[Any, int]
    nbytes: int
    sharing: dict[Any, set[Any]]


def pack(temporaries: Mapping[Any, Temporary], steps: list[FlatStep]) -> Packed:
    """Place temporaries in a block.

    Those whose steps do not meet share bytes; unless that takes much memory, only where the steps of the one come
    before those of the other by data, so that branches can run side by side.
    """
    if not temporaries:
        return Packed({}, 0, {})
    anywhere = dict.fromkeys(temporaries, (0, 0))
    close = _place(temporaries, anywhere)
    if not close.sharing:
        return close
    earlier = _earlier(steps, dependencies(steps, {}, {}))
    by_data = {}
    for root, one in temporaries.items():
        before = earlier[one.used[0]]
        for at in one.used[1:]:
            before &= earlier[at]
        by_data[root] = sum(1 << at for at in set(one.used)), before
    wide = _place(temporaries, by_data)
    return wide if wide.nbytes <= max(_SPARE[0], _SPARE[1] * close.nbytes) else close


def _place(temporaries: Mapping[Any, Temporary], masks: Mapping[Any, tuple[int, int]]) -> Packed:
    """Place temporaries where there is room.

    Two share bytes if the steps of the one come before those of the other.  `masks` says, as bits, which steps use each
    and which are over before any of them begins: the former of the two must be used by no others.
    """
    placed: list[tuple[Any, int, int, int, int, int, int]] = []
    offsets: dict[Any, int] = {}
    sharing: dict[Any, set[Any]] = {}
    for root, one in temporaries.items():
        first, last = one.first, one.last
        users, before = masks[root]
        taken = []
        for _, begins, ends, used, over, low, high in placed:
            if not (before & used == used if ends < first else last < begins and over & users == users):
                taken.append((low, high))
        at = 0
        for low, high in sorted(taken):
            if at + one.nbytes <= low:
                break
            at = max(at, high)
        end = at + one.nbytes
        for key, _, ends, _, _, low, high in placed:
            if low < end and at < high:
                later, former = (root, key) if ends < first else (key, root)
                sharing.setdefault(later, set()).add(former)
        placed.append((root, first, last, users, before, at, end))
        offsets[root] = at
    return Packed(offsets, max((end for *_, end in placed), default=0), sharing)


def _earlier(steps: list[FlatStep], after: list[tuple[int, ...]]) -> list[int]:
    """Return the steps that are over when each step begins, as bits."""
    earlier = [0] * len(steps)
    for parent, bodies in bodies_of(steps):
        for at in (number for numbers in bodies for number in numbers):
            if parent >= 0:
                earlier[at] = earlier[parent] | 1 << parent
            for number in after[at]:
                inside = (1 << (1 + steps[number].inside)) - 1
                earlier[at] |= earlier[number] | inside << number
    return earlier
