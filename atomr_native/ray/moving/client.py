"""The taking side: arrays of other processes of the cluster."""

from __future__ import annotations

import logging
import mmap
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...arrays.layout import layout_of
from ...dtypes import as_dtype
from ...errors import Unsupported
from .channel import PATIENCE, Bytes, Call, Channel, Copied, End, Offer, Push, Refused, Result, Take
from .landing import Found, Target, from_host, from_stream, lent_copy
from .nixl import NixlFailed, agent, is_wanted
from .server import bytes_of

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef
    from ...device import Device
    from .way import Way

__all__ = ["Broken", "Client"]

T = TypeVar("T")

_log = logging.getLogger("atomr_native.ray")

IDLE = 30.0  # seconds after which a connection that nobody uses is ended


class Broken(Exception):
    """The connection cannot be made, or has ended: the other process may have ended, too.

    Attributes
    ----------
    never : bool
        Whether it could not be made.
    """

    def __init__(self, message: str, *, never: bool = False) -> None:
        super().__init__(message)
        self.never = never


class _Told(Exception):
    """The other process has refused, and waits for the next question."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class _Connection:
    """A connection, with the memory of the other process that is mapped here."""

    def __init__(self, way: Way) -> None:
        self.way = way
        near = way.near
        made = socket.socket(socket.AF_UNIX if near else socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            made.settimeout(PATIENCE)
            made.connect(way.local if near else (way.host, way.port))
            self.channel = Channel(made)
            if not self.channel.greet(way.secret, first=True):
                raise ConnectionRefusedError("the process at this address is another one")
        except BaseException:
            made.close()
            raise
        self.used = time.monotonic()
        self._near = near
        self._nixl = way.nixl and is_wanted()
        self._files: dict[int, int] = {}  # descriptors of segments
        self._host: dict[int, mmap.mmap] = {}
        self._mapped: dict[tuple[int, str], GpuRef] = {}  # whole segments, for devices of this process
        self._refused: set[tuple[str, str]] = set()  # GPUs of the other process, and GPUs here that do not reach them

    def take(self, key: str, target: Target, part: tuple[int, int] | None) -> Found:
        """Return an array of the other process."""
        how = "bytes"
        if self._near:
            how = "memory" if target.kind == "cuda" else "host"
        elif self._nixl and target.kind != "cuda":
            how = "nixl"
        steady = False
        while True:
            self.channel.send(Take(key, how, steady, part))
            offer = self._offer()
            if not offer.segment and offer.kind != "nixl":
                found = from_stream(offer.shape, offer.dtype, target, self.channel.receive_into)
            else:
                found = self._read(offer, target) if offer.kind == "nixl" else self._copied(offer, target)
                self.channel.send(Copied())
            end, _ = self.channel.receive()
            if not isinstance(end, End):
                raise ConnectionAbortedError(f"{type(end).__name__} where the end of a transfer belongs")
            if found is None:
                how = "host" if self._near else "bytes"
            elif end.whole:
                return found
            else:
                steady = True

    def call(self, data: bytes) -> bytes:
        """Return the result of a call."""
        self.channel.send(Call(data))
        return self._result()

    def push(self, data: bytes, array: np.ndarray[Any, Any]) -> bytes:
        """Return the result of a call with the bytes of an array."""
        if self._near and array.nbytes:
            fd = lent_copy(array)
            try:
                self.channel.send(Push(data, array.nbytes), fd)
            finally:
                os.close(fd)
        else:
            self.channel.send(Push(data, array.nbytes))
            self.channel.send_bytes(bytes_of(array))
        return self._result()

    def _result(self) -> bytes:
        result, _ = self.channel.receive()
        if not isinstance(result, Result):
            raise ConnectionAbortedError(f"{type(result).__name__} where a result belongs")
        return result.data

    def _read(self, offer: Offer, target: Target) -> Found:
        """Read the other machine's memory by NIXL; None if that does not succeed."""

        def read(view: Bytes) -> None:
            address = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
            agent().read(offer.agent, offer.start, address, len(view))

        try:
            return from_stream(offer.shape, offer.dtype, target, read)
        except NixlFailed as error:
            _log.warning("bytes of %s go by TCP: %s", self.way.host, error)
            self._nixl = False
            return None

    def _offer(self) -> Offer:
        offer, fd = self.channel.receive()
        if fd is not None and not (isinstance(offer, Offer) and offer.segment not in self._files):
            os.close(fd)
            raise ConnectionAbortedError(f"a descriptor with {type(offer).__name__}")
        if isinstance(offer, Refused):
            raise _Told(pickle.loads(offer.error))  # noqa: S301 - it knows the secret of the cluster
        if not isinstance(offer, Offer):
            raise ConnectionAbortedError(f"{type(offer).__name__} where an array belongs")
        for number in offer.gone:
            self._forget(number)
        if fd is not None:
            self._files[offer.segment] = fd
        return offer

    def _copied(self, offer: Offer, target: Target) -> Found:
        """Copy from the other process's memory; None if the device does not reach it."""
        try:
            if offer.kind == "cuda":
                return self._from_gpu(offer, target)
            memory = self._host.get(offer.segment)
            if memory is None:
                memory = mmap.mmap(self._fd(offer.segment), offer.nbytes, prot=mmap.PROT_READ)
                self._host[offer.segment] = memory
            layout = layout_of(offer.shape, as_dtype(offer.dtype))
            raw = np.frombuffer(memory, np.uint8, layout.nbytes, offer.start)
            return from_host(raw.view(layout.dtype).reshape(offer.shape), target)
        finally:
            if offer.once:
                self._forget(offer.segment)

    def _from_gpu(self, offer: Offer, target: Target) -> GpuRef | None:
        device = target.device
        pair = offer.uuid, device.name
        if pair in self._refused:
            return None
        place = offer.segment, device.name
        whole = self._mapped.get(place)
        if whole is None or not whole.valid:
            try:
                whole = self._mapped[place] = self._map(offer, device)
            except Unsupported:
                self._refused.add(pair)
                return None
        view = whole.view_as(layout_of(offer.shape, as_dtype(offer.dtype)), offer.start)
        return device.copy(view, target.out).wait()

    def _map(self, offer: Offer, device: Device) -> GpuRef:
        owner: Any = device.empty((), "uint8").allocation.core.owner
        fd, key = self._fd(offer.segment), (self.way.ident, offer.segment, id(self))
        segments = owner.imports.segments
        made: GpuRef = owner.imports.hold(
            lambda: segments.open_shared(key, fd, offer.nbytes, 0, offer.uuid), 0, offer.nbytes, None
        )  # fmt: skip
        return made

    def _fd(self, segment: int) -> int:
        found = self._files.get(segment)
        if found is None:
            raise ConnectionAbortedError(f"no descriptor of segment {segment} has come")
        return found

    def _forget(self, segment: int) -> None:
        fd = self._files.pop(segment, None)
        if fd is not None:
            os.close(fd)
        self._host.pop(segment, None)
        for place in [each for each in self._mapped if each[0] == segment]:
            del self._mapped[place]

    def close(self) -> None:
        """End it, with what is mapped."""
        self.channel.close()
        for number in list(self._files):
            self._forget(number)


class Client:
    """Takes arrays from the servers of other processes.  All methods may be called by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[str, list[_Connection]] = {}
        self._busy: dict[str, set[_Connection]] = {}
        self._closed = False
        self._timer: threading.Timer | None = None

    def take(
        self, way: Way, key: str, device: Device | None, out: GpuRef | None = None, part: tuple[int, int] | None = None
    ) -> Found:
        """Return a copy of an array: on a device, or a NumPy array.  Waits for its last writer, and for the bytes.

        Parameters
        ----------
        way : Way
            To its process.
        key : str
            Its name there.
        device : Device, optional
            Where the copy is to be; None: a NumPy array.
        out : GpuRef, optional
            A contiguous array of that device, of the same shape and dtype, which is written instead.
        part : tuple of int, optional
            The first element, and the number of elements, in C order; by default all, in their shape.

        Raises
        ------
        Broken
            If the other process cannot be reached, or the connection ends meanwhile.
        AtomrError
            That of the array: it is gone, or was not written.
        """
        return self._with(way, lambda connection: connection.take(key, Target(device, out), part))

    def call(self, way: Way, data: bytes) -> bytes:
        """Return the result of a call of a process.  Waits.

        A call that ends with `Broken` may have been made, or even twice.

        Raises
        ------
        Broken
            As `take`.
        """
        return self._with(way, lambda connection: connection.call(data))

    def push(self, way: Way, data: bytes, array: np.ndarray[Any, Any]) -> bytes:
        """Return the result of a call of a process with the bytes of a contiguous array.  Waits.

        On one machine they go by a descriptor of host memory.  As `call` otherwise.
        """
        return self._with(way, lambda connection: connection.push(data, array))

    def _with(self, way: Way, work: Callable[[_Connection], T]) -> T:
        while True:
            connection, fresh = self._connected(way)
            try:
                found = work(connection)
            except OSError as error:
                self._end(connection)
                if fresh:
                    raise Broken(str(error)) from None
                continue  # an old connection, which the other process may have ended
            except _Told as told:
                self._put_back(connection)
                raise told.error from None
            except BaseException:
                self._end(connection)  # the other end waits for a word about the memory
                raise
            self._put_back(connection)
            return found

    def forget(self, way: Way) -> None:
        """End the connections to a process that has ended; transfers from it fail."""
        with self._lock:
            idle, busy = self._idle.pop(way.ident, []), list(self._busy.get(way.ident, ()))
        for each in idle:
            each.close()
        for each in busy:  # the rest of it is its thread's, whose wait ends
            each.channel.close()

    def close(self) -> None:
        """End all connections.  Idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
            busy = [each for found in self._busy.values() for each in found]
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        for found in idle.values():
            for each in found:
                each.close()
        for each in busy:
            each.channel.close()

    def _connected(self, way: Way) -> tuple[_Connection, bool]:
        with self._lock:
            if self._closed:
                raise Broken("this process has left the cluster")
            found = self._idle.get(way.ident)
            if found:
                connection = found.pop()
                self._busy.setdefault(way.ident, set()).add(connection)
                return connection, False
        try:
            connection = _Connection(way)
        except OSError as error:
            raise Broken(str(error), never=True) from None
        with self._lock:
            self._busy.setdefault(way.ident, set()).add(connection)
        return connection, True

    def _put_back(self, connection: _Connection) -> None:
        connection.used = time.monotonic()
        with self._lock:
            self._busy[connection.way.ident].discard(connection)
            if not self._closed:
                self._idle.setdefault(connection.way.ident, []).append(connection)
                self._tidy_later()
                return
        connection.close()

    def _end(self, connection: _Connection) -> None:
        with self._lock:
            self._busy[connection.way.ident].discard(connection)
        connection.close()

    def _tidy_later(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(IDLE, self._tidy)
            self._timer.daemon = True
            self._timer.start()

    def _tidy(self) -> None:
        """End connections that nobody has used for long."""
        now, ended = time.monotonic(), []
        with self._lock:
            self._timer = None
            for ident, found in list(self._idle.items()):
                ended += [each for each in found if now - each.used >= IDLE]
                found[:] = [each for each in found if now - each.used < IDLE]
                if not found:
                    del self._idle[ident]
            if self._idle and not self._closed:
                self._tidy_later()
        for each in ended:
            each.close()
