"""Schedules determined by a seed, in one thread."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import AtomrError
from ..system import System, state_of
from .clock import FakeClock

if TYPE_CHECKING:
    from types import TracebackType

    from .._lib.actor_cell import CellBase

__all__ = ["Deterministic"]

_MAX_STEPS = 1_000_000


class Deterministic:
    """A System whose actors have no threads: the test runs them, and a seed selects the next one.

    The same seed gives the same schedule, so a failure can be reproduced; other seeds try other orders.  A wait for an
    answer, or a probe's `expect`, runs actors until it arrives.  Time stands still until `clock` is moved.  A context
    manager; it cannot run actors with coroutines.

    Parameters
    ----------
    seed : int
        Seed of the schedule and of the System.
    **options
        Of the System.

    Attributes
    ----------
    system : System
    clock : FakeClock
    """

    def __init__(self, seed: int = 0, **options: Any) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a schedule, no secret
        self._ready: dict[CellBase, None] = {}
        self._at_work: set[CellBase] = set()  # several, if actors wait for each other
        self.clock = FakeClock()
        self.system = System(clock=self.clock, seed=seed, spin_us=0, **options)
        state_of(self.system).stepper = self
        self.steps = 0

    def ready(self, cell: CellBase) -> None:
        """Mark a cell as ready; called by the cells."""
        self._ready[cell] = None

    def step(self) -> bool:
        """Let one actor, selected by the seed, handle one message; return False if all are idle."""
        while choices := [cell for cell in self._ready if cell not in self._at_work]:
            cell = self._random.choice(choices)
            self._at_work.add(cell)
            try:
                if not cell.finished and cell.step():
                    self.steps += 1
                    return True
            finally:
                self._at_work.discard(cell)
            self._ready.pop(cell, None)
        return False

    def run(self, *, max_steps: int = _MAX_STEPS) -> int:
        """Run until all actors are idle; return the number of handled messages.

        Raises
        ------
        AtomrError
            If actors are not idle after `max_steps` messages.
        """
        for done in range(max_steps):
            if not self.step():
                return done
        raise AtomrError(f"the actors did not come to rest within {max_steps} messages")

    def run_until(self, condition: Callable[[], object], seconds: float | None = None) -> bool:  # noqa: ARG002
        """Run until a condition is true; return False if it is not when all actors are idle.

        Waiting changes nothing, so `seconds` has no effect.
        """
        for _ in range(_MAX_STEPS):
            if condition():
                return True
            if not self.step():
                return bool(condition())
        raise AtomrError(f"the actors did not come to rest within {_MAX_STEPS} messages")

    def advance(self, seconds: float) -> int:
        """Move the clock, then run until all actors are idle; return the number of handled messages."""
        self.clock.advance(seconds)
        return self.run()

    def __enter__(self) -> Deterministic:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.system.close(1.0)
