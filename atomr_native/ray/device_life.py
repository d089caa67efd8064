"""Restarts and the end of a device of another node, as this process learns of them."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import AtomrError
from ..runtime.watchers import LifeWatch

__all__ = ["DeviceLife"]


class DeviceLife(LifeWatch):
    """The callbacks of a device in this process; a restart of its node is a restart of the device, too.

    Parameters
    ----------
    name : str
        The device, for the log.
    life : int
        That of the node when the watch begins; 0 if it is not known.
    run : callable
        Runs a function later, in the thread of callbacks, in the order of its calls: a callback may wait for the
        node, whose reports come meanwhile.
    """

    def __init__(self, name: str, life: int, run: Callable[[Callable[[], object]], object]) -> None:
        super().__init__(name)
        self._run = run
        self._life = life
        self._seen: tuple[int, int] | None = None  # the life of the node, and the generation
        self._over = False

    def report(self, life: int, found: int | AtomrError) -> None:
        """Note what the node reports in one of its lives: a generation, or the end of the device."""
        if isinstance(found, AtomrError):
            self.ended(found)
            return
        seen, now = self._seen, (life, found)
        if seen is None or now > seen:
            self._seen = now
            if seen is not None or 0 < self._life < life:
                self._run(lambda: self.generation(found))

    def ended(self, error: AtomrError) -> None:
        """Note the end of the device or of its node.  Idempotent."""
        if not self._over:
            self._over = True
            self._run(lambda: self.end(error))
