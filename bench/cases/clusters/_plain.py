"""An actor that asks its child, in a System without Ray: the body of a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["serve"]


def serve(connection: Connection) -> None:
    """Answer counts with microseconds, until the other end is closed."""
    import atomr_native as an  # type: ignore[import-untyped,unused-ignore]
    from bench.cases.clusters._actors import Asker

    with an.System(standby="off") as system:
        asker = system.spawn(Asker)
        while True:
            try:
                count = connection.recv()
            except EOFError:
                return
            connection.send(asker.ask(count).result(60.0))
