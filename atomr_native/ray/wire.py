"""Messages as bytes, between the processes of a cluster."""

from __future__ import annotations

import dataclasses
import io
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .._support import by_value
from ..actors.answer import bare
from ..actors.ref import ActorRef
from ..arrays.gpu_ref import GpuRef
from ..device import Device
from ..errors import AtomrError, InvalidRequest, LibraryError
from ._peers import acting_as

if TYPE_CHECKING:
    from .peer import Peer

__all__ = ["Packed", "pack", "pack_error", "unpack"]

_PLAIN = (int, float, str, bytes, bool, type(None))
_DEEPEST = 6


class Packed:
    """A message as bytes.

    Attributes
    ----------
    data : bytes
        The pickle.
    holds : list
        Objects that keep device memory named in it until the receiver has its own hold.
    """

    __slots__ = ("data", "holds", "kind")

    def __init__(self, data: bytes, holds: list[Any], kind: str) -> None:
        self.data, self.holds, self.kind = data, holds, kind

    def __repr__(self) -> str:
        return f"<{self.kind}, {len(self.data)} bytes>"


class _Pickler(by_value.Pickler):
    def __init__(self, file: io.BytesIO, peer: Peer) -> None:
        super().__init__(file, protocol=5)
        self._peer = peer
        self.holds: list[Any] = []

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ActorRef) and obj.cell.tree.naming is None and not hasattr(obj.cell, "link"):
            raise InvalidRequest(
                f"{obj!r} cannot be sent to another node: its System is not one of the cluster's nodes; spawn the "
                f"actor with cluster.spawn"
            )
        if isinstance(obj, GpuRef):
            return self._peer.export(obj, self.holds)
        if isinstance(obj, Device):
            return self._peer.export_device(obj)
        held = getattr(obj, "_held", None) if type(obj).__name__ == "RemoteRef" else None
        if held is not None:
            self.holds.append(held)
        return super().reducer_override(obj)


def pack(message: object, peer: Peer) -> Packed:
    """Return an object as bytes.

    Raises
    ------
    InvalidRequest
        If it cannot be pickled; names the innermost part that cannot.
    """
    name = type(message).__name__
    if type(message) in _PLAIN:
        return Packed(pickle.dumps(message, 5), [], name)
    try:
        return _pack(message, peer, name)
    except AtomrError:
        raise
    except Exception as error:
        path, part, why = _offender(message, peer, "message", error, 0)
        raise InvalidRequest(
            f"the {name} cannot be pickled, as a message to another node must be: {path} is a {type(part).__name__}: "
            f"{why}"
        ) from None


def _pack(message: object, peer: Peer, name: str) -> Packed:
    file = io.BytesIO()
    pickler = _Pickler(file, peer)
    pickler.dump(message)
    return Packed(file.getvalue(), pickler.holds, name)


def _offender(value: Any, peer: Peer, path: str, error: Exception, depth: int) -> tuple[str, Any, Exception]:
    if depth < _DEEPEST:
        for name, part in _parts(value):
            try:
                _pack(part, peer, "")
            except Exception as inner:
                return _offender(part, peer, f"{path}{name}", inner, depth + 1)
    return path, value, error


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{at}]", part) for at, part in enumerate(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((f".{each.name}", getattr(value, each.name)) for each in dataclasses.fields(value))
    elif isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, type):
        yield from ((f".{name}", part) for name, part in vars(value).items())


def pack_error(error: BaseException, peer: Peer, path: str) -> Packed:
    """Return an error as bytes, without its frames; one that cannot be pickled becomes a `LibraryError`."""
    try:
        return _pack(bare(error), peer, type(error).__name__)
    except Exception:
        text = LibraryError("actor", 0, type(error).__name__, path, str(error))
        return _pack(text, peer, type(error).__name__)


def unpack(data: bytes, peer: Peer) -> Any:
    """Return the object of bytes that `pack` made; names of actors and arrays resolve in this peer.

    Raises
    ------
    AtomrError
        That of the object's own code, or `InvalidRequest` for its other errors.
    """
    with acting_as(peer):
        try:
            return pickle.loads(data)  # noqa: S301 - from a process of the same cluster
        except AtomrError:
            raise
        except Exception as error:
            text = f"a message cannot be unpickled on {peer.name}: {type(error).__name__}: {error}"
            raise InvalidRequest(text) from None
