"""Which steps of a program run side by side on a GPU, and which part of the workspace each of them has."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from ...builders.context import Built
from ...errors import Unsupported
from .attributes import ControlAttributes, ProgramAttributes, bodies_of

__all__ = ["Workspaces", "assign", "check_driver", "count_branches", "shared"]

_CONDITIONAL_NODES: Final = 12040  # CUDA 12.4, as drivers number it
_ALIGNMENT: Final = 256
#: Parts of the workspace for steps that run side by side; further ones wait for one of them.
_PARTS: Final = 4


@dataclass(frozen=True, slots=True)
class Workspaces:
    """What steps depend on, by data and by their use of workspaces, and the first byte of the workspace of each.

    Steps of a graph are behind the last ones that they depend on; those before them are over then.

    Attributes
    ----------
    after : list of tuple of int
    offsets : list of int
    nbytes : int
        Of the workspace as a whole.
    """

    after: list[tuple[int, ...]]
    offsets: list[int]
    nbytes: int = 0


def check_driver(context: Any) -> None:
    """Refuse control flow on drivers without conditional nodes.

    Raises
    ------
    Unsupported
    """
    version = context.facts.get("driver_version", 0)
    if version < _CONDITIONAL_NODES:
        raise Unsupported(
            f"control flow in a recording needs conditional nodes of CUDA graphs, as drivers have from CUDA 12.4 on; "
            f"this driver is for CUDA {version // 1000}.{version % 1000 // 10}",
            rule="program.conditional_nodes",
            lifted_by=("driver 12.4",),
        )


def shared(attributes: ProgramAttributes) -> Workspaces:
    """Return the dependencies by data, and one workspace for all steps, which run one after the other."""
    return Workspaces([step.after for step in attributes.steps], [0] * len(attributes.steps))


def _stays_apart(run: Any) -> bool:
    """Whether a run has no memory but its operands and its workspace: others keep some with a library's handle."""
    kind = getattr(run, "kind", "")
    if kind == "sequence":
        return all(_stays_apart(step.run) for step in run.steps)
    return isinstance(run, str) or kind == "kernels" or bool(getattr(run, "stays_apart", False))


def assign(attributes: ProgramAttributes, built: list[Built], limit: int) -> Workspaces:
    """Give steps that may run side by side parts of the workspace of their own, and let others wait for each other.

    Runs that use memory of a library's handle run one after the other.  A step of control flow has all parts.  Together
    they have at most `limit` bytes, unless one has more.
    """
    steps = attributes.steps
    after = [set(step.after) for step in steps]
    offsets = [0] * len(steps)
    part = max((-(-one.workspace // _ALIGNMENT) * _ALIGNMENT for one in built), default=0)
    parts = min(_PARTS, max(1, limit // part)) if part else 1

    def needs(number: int) -> tuple[bool, bool]:
        """Return whether a step, or one inside, uses the workspace, and a handle's memory."""
        step = steps[number]
        if isinstance(step, ControlAttributes):
            inside = [needs(at) for at in range(number + 1, number + 1 + sum(step.bodies))]
            return any(one for one, _ in inside), any(other for _, other in inside)
        run = built[step.spec]
        return run.workspace > 0, not _stays_apart(run.run)

    used = 1
    for _, bodies in bodies_of(steps):
        for numbers in bodies:
            earlier: dict[int, int] = {}
            holders: list[set[int]] = [set() for _ in range(parts)]  # the last steps that used each part
            handle: set[int] = set()
            for at in numbers:
                workspace, exclusive = needs(at)
                if exclusive:
                    after[at] |= handle
                    handle = {at}
                before = _over(after[at], earlier)
                if workspace and isinstance(steps[at], ControlAttributes):
                    for holder in holders:
                        after[at] |= holder
                    holders = [{at} for _ in range(parts)]
                elif workspace:
                    free = [i for i, holder in enumerate(holders) if all(before >> one & 1 for one in holder)]
                    chosen = free[0] if free else at % parts
                    after[at] |= holders[chosen]
                    holders[chosen] = {at}
                    offsets[at] = chosen * part
                    used = max(used, chosen + 1)
                earlier[at] = _over(after[at], earlier)
                after[at] = _nearest(after[at], earlier)
    return Workspaces([tuple(sorted(one)) for one in after], offsets, used * part)


def _over(after: set[int], earlier: dict[int, int]) -> int:
    """Return the steps that are over when those are, as bits."""
    found = 0
    for number in after:
        found |= earlier[number] | 1 << number
    return found


def _nearest(after: set[int], earlier: dict[int, int]) -> set[int]:
    """Return the steps that are not over anyway when others of them are: each is an edge of the graph.

    A step whose temporaries take over the bytes of many would have as many edges, of which a launch costs the more.
    """
    over = 0
    for number in after:
        over |= earlier[number]
    return {number for number in after if not over >> number & 1}


def count_branches(attributes: ProgramAttributes, after: list[tuple[int, ...]]) -> int:
    """Return how many steps of one body may run side by side, by the depths at which they become ready."""
    most = 1
    for _, bodies in bodies_of(attributes.steps):
        for numbers in bodies:
            depths: dict[int, int] = {}
            for at in numbers:
                depths[at] = max((depths[number] + 1 for number in after[at]), default=0)
            most = max(most, *Counter(depths.values()).values(), 1)
    return most
