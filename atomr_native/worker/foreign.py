"""Requests to map foreign memory: of this process, of other processes, of other GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidRequest, Unsupported
from .contracts import LanesLike

__all__ = ["open_foreign"]


def open_foreign(lanes: LanesLike, fields: dict[str, Any], fds: Sequence[int], *, in_process: bool) -> None:
    """Serve ``open_foreign``: make a segment represent foreign memory.  The driver may wait for running work.

    Parameters
    ----------
    fields
        ``segment``, its number; ``kind``: ``"window"`` for this process's memory, ``"shared"`` for an allocation that
        the driver exported as ``handle``, ``"peer"`` for a segment of the device ``uuid``, ``"own"`` for memory that
        the worker makes, and that ends with it; ``nbytes``.
    fds
        For a peer, the descriptor of its segment; the caller keeps it.
    in_process
        Whether this is a worker process, which does not see the memory of the program.
    """
    segment, kind = int(fields["segment"]), fields.get("kind")
    if kind == "window":
        if in_process:
            raise Unsupported("a worker process does not see the memory of the program")
        lanes.open_window(segment)
    elif kind == "shared":
        lanes.open_shared(segment, int(fields["nbytes"]), bytes.fromhex(fields["handle"]))
    elif kind == "peer":
        if len(fds) != 1:
            raise InvalidRequest(f"'open_foreign' of a peer needs one descriptor, got {len(fds)}")
        lanes.open_peer(segment, int(fields["nbytes"]), fds[0], bytes.fromhex(fields["uuid"]))
    elif kind == "own":
        lanes.open_own(segment, int(fields["nbytes"]))
    else:
        raise InvalidRequest(f"unknown kind of foreign memory {kind!r}; allowed: window, shared, peer, own")
