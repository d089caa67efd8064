"""Objects that belong to the process that made them."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["ProcessBound"]


class ProcessBound:
    """Refuses to be pickled or copied: a copy would be a second owner of one worker, mailbox or message."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} belongs to the process that made it and cannot be pickled or copied; "
            f"a GpuRef, an ActorRef and a request can"
        )
