"""The giving side: a process's arrays, for other processes of the cluster.

A transfer waits for the last writer.  It does not hold up later writers: when one has come meanwhile, the receiver asks
again, for a copy that is made at once, in the order of messages.  So it has the array as between two messages.
"""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
import pickle
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._lib.sender import DURABLE, VOLATILE
from ..._support.error_text import error_text
from ...actors.answer import bare
from ...arrays.layout import layout_of
from ...errors import AtomrError, GpuRefStale, InvalidRequest, LibraryError
from .channel import Bytes, Call, Channel, Copied, End, Message, Offer, Push, Refused, Result, Take
from .nixl import agent, is_wanted
from .way import Way, local_address, machine

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["PIECE", "Server", "bytes_of", "part_of", "view_of"]

_log = logging.getLogger("atomr_native.ray")

PIECE = 8 << 20  # bytes of a GPU's array that are in host memory at once, twice
_PAUSE = 0.1  # seconds, where the process is out of descriptors or threads


def bytes_of(array: np.ndarray[Any, Any]) -> Bytes:
    """Return the bytes of a contiguous array, without a copy."""
    return view_of(array.reshape(-1).view(np.uint8))


def view_of(array: np.ndarray[Any, Any]) -> Bytes:
    """Return the memory of an array of bytes."""
    return memoryview(array)  # type: ignore[arg-type,unused-ignore]  # NumPy says so since 2.1, on Python 3.12


def part_of(ref: GpuRef, first: int, count: int) -> GpuRef:
    """Return a view of some elements of a contiguous array, in C order.

    Raises
    ------
    InvalidRequest
        If it has not got them.
    """
    if not 0 <= first <= first + count <= ref.size:
        raise InvalidRequest(f"elements {first} to {first + count} of {ref!r}; allowed: 0 to {ref.size}")
    return ref.view_as(layout_of((count,), ref.dtype), ref.offset + first * ref.dtype.itemsize)


class _Segments:
    """Numbers of segments, for all connections of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def new(self) -> int:
        """Return a number for a segment that is used once."""
        with self._lock:
            self._last += 1
            return self._last

    def number(self, segment: Any) -> int:
        """Return the number of a segment."""
        with self._lock:
            found = self._numbers.get(segment)
            if found is None:
                self._last += 1
                found = self._numbers[segment] = self._last
            return found


class Server:
    """Gives arrays to whoever knows the secret of its `way`.

    Parameters
    ----------
    find : callable
        Returns the handle of a key; raises `AtomrError` for a key that has none.
    host : str
        The address of this machine for other machines.
    call : callable, optional
        Serves calls: from bytes, and an array of bytes or None, to bytes.  It raises nothing.
    """

    def __init__(
        self, find: Callable[[str], GpuRef], host: str, call: Callable[[bytes, Any], bytes] | None = None
    ) -> None:  # fmt: skip
        self._find = find
        self._call = call
        self._segments = _Segments()
        self._lock = threading.Lock()
        self._closed = False
        self._channels: set[Channel] = set()
        ident, nixl = os.urandom(16).hex(), is_wanted()
        near = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        far = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._sockets = near, far
        try:
            near.bind(local_address(ident))
            far.bind((host, 0))
            for each in self._sockets:
                each.listen()
        except BaseException:
            self.close()
            raise
        self.way = Way(ident, machine(), host, far.getsockname()[1], os.urandom(32), nixl)
        for each in self._sockets:
            threading.Thread(target=self._accept, args=(each,), name="atomr_native-give", daemon=True).start()

    def close(self) -> None:
        """End all transfers.  Idempotent."""
        with self._lock:
            self._closed = True
            channels = list(self._channels)
        for each in self._sockets:
            _end(each)
        for channel in channels:
            channel.close()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
                threading.Thread(
                    target=self._talk, args=(connection,), name="atomr_native-give", daemon=True
                ).start()  # fmt: skip
            except (OSError, RuntimeError) as error:
                if self._closed:
                    return
                _log.debug("a process that wants arrays waits: %s", error)
                time.sleep(_PAUSE)

    def _talk(self, connection: socket.socket) -> None:
        """Serve one process until it ends the connection."""
        try:
            channel = Channel(connection)
        except OSError:
            connection.close()
            return
        given: dict[int, weakref.ref[Any]] = {}
        with self._lock:
            if self._closed:
                channel.close()
                return
            self._channels.add(channel)
        try:
            if not channel.greet(self.way.secret, first=False):
                return
            while True:
                message, fd = channel.receive()
                blob = _pushed(channel, message, fd)
                if isinstance(message, Take):
                    self._give(channel, message, given)
                elif isinstance(message, Call) and self._call is not None:
                    channel.send(Result(self._call(message.data, None)))
                elif isinstance(message, Push) and self._call is not None:
                    channel.send(Result(self._call(message.data, blob)))
                    del blob
                else:
                    return
        except OSError as error:
            _log.debug("a process that had arrays from here has gone: %s", error)
        finally:
            with self._lock:
                self._channels.discard(channel)
            channel.close()

    def _give(self, channel: Channel, take: Take, given: dict[int, weakref.ref[Any]]) -> None:
        try:
            ref = self._find(take.key)
            ref.allocation.refuse_gone()
            if take.steady or not ref.layout.contiguous or not _own(ref):
                ref = ref.device.copy(ref)
            if take.part is not None:
                ref = part_of(ref, *take.part)
            whole = self._version(ref)
            ref.wait()
            if take.how == "nixl" and ref.device.kind == "host" and ref.size:
                self._lend_far(channel, ref)
            elif take.how in ("bytes", "nixl"):
                self._stream(channel, ref)
            elif ref.device.kind == "cuda" and take.how == "host":
                self._lend_copy(channel, ref)
            else:
                self._lend(channel, ref, given)
            channel.send(End(take.steady or whole == self._version(ref)))
        except OSError:
            raise
        except AtomrError as error:
            channel.send(Refused(_pickled(error)))
        except Exception as error:
            _log.exception("an array could not be given to another process")
            channel.send(Refused(_pickled(LibraryError("ray", 0, type(error).__name__, "transfer", error_text(error)))))

    @staticmethod
    def _version(ref: GpuRef) -> tuple[int, ...]:
        """Return a value that changes when a message writes the array, or its device restarts."""
        return (ref.allocation.core.epoch, *ref.allocation.last_write())

    def _lend(self, channel: Channel, ref: GpuRef, given: dict[int, weakref.ref[Any]]) -> None:
        """Have the receiver read the array where it is."""
        allocation, owner = ref.allocation, ref.allocation.core.owner
        lease = allocation.lease()
        segment = owner.memory.segments.find(allocation.segment)
        if segment is None:
            raise GpuRefStale(f"the memory of {ref!r} was returned to the system", "device closed")
        number = self._segments.number(segment)
        gone = tuple(each for each, known in given.items() if known() is None)
        for each in gone:
            del given[each]
        new = number not in given
        given[number] = weakref.ref(segment)
        offer = Offer(
            ref.shape, ref.layout.dtype_name, owner.kind, owner.exports.uuid, number, segment.nbytes,
            allocation.offset + ref.offset, gone=gone,
        )  # fmt: skip
        channel.send(offer, segment.fd if new else None)
        self._read(channel)
        del lease

    def _lend_copy(self, channel: Channel, ref: GpuRef) -> None:
        """Have the receiver read a copy in host memory."""
        nbytes = max(ref.nbytes, 1)
        fd = os.memfd_create("atomr_native-move", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.truncate(fd, nbytes)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            array = np.frombuffer(mmap.mmap(fd, nbytes), np.uint8, ref.nbytes).view(ref.dtype).reshape(ref.shape)
            ref.device.get(ref, out=array)
            number = self._segments.new()
            channel.send(Offer(ref.shape, ref.layout.dtype_name, segment=number, nbytes=nbytes, once=True), fd)
        finally:
            os.close(fd)
        self._read(channel)

    def _lend_far(self, channel: Channel, ref: GpuRef) -> None:
        """Have the receiver read the array from another machine."""
        array = ref.allocation.core.owner.exports.array(ref)
        address = array.__array_interface__["data"][0]
        with agent().lent(address, array.nbytes) as described:
            channel.send(Offer(ref.shape, ref.layout.dtype_name, "nixl", start=address, agent=described))
            self._read(channel)

    @staticmethod
    def _read(channel: Channel) -> None:
        if not isinstance(channel.receive()[0], Copied):
            raise ConnectionAbortedError("the receiver of an array says something else")

    def _stream(self, channel: Channel, ref: GpuRef) -> None:
        """Send the bytes."""
        channel.send(Offer(ref.shape, ref.layout.dtype_name))
        if not ref.size:
            return
        if ref.device.kind == "host":
            channel.send_bytes(bytes_of(ref.allocation.core.owner.exports.array(ref)))
            return
        with _staged(ref) as pieces:
            for piece in pieces:
                channel.send_bytes(piece)


@contextmanager
def _staged(ref: GpuRef) -> Iterator[Iterator[Bytes]]:
    """Give the bytes of a GPU's array in pieces: the next one is on its way while one is used."""
    device, raw, base = ref.device, np.dtype(np.uint8), ref.offset
    count = min(PIECE, ref.nbytes)
    buffers = [device.host_array((count,), raw) for _ in range(2 if ref.nbytes > count else 1)]

    def asked(at: int, number: int) -> Any:
        size = min(count, ref.nbytes - at)
        return device.get_into(ref.view_as(layout_of((size,), raw), base + at), buffers[number % 2][:size])

    def pieces() -> Iterator[Bytes]:
        reply = asked(0, 0)
        for number, at in enumerate(range(0, ref.nbytes, count)):
            found = reply.result()
            if at + count < ref.nbytes:
                reply = asked(at + count, number + 1)
            yield view_of(found)

    yield pieces()


def _pushed(channel: Channel, message: Message, fd: int | None) -> np.ndarray[Any, Any] | None:
    """Return the bytes that come with a call, in memory that nobody can make smaller; None for other messages."""
    try:
        if not isinstance(message, Push):
            return None
        if fd is None:
            array = np.empty(message.nbytes, np.uint8)
            channel.receive_into(bytes_of(array))
            return array
        sealed = fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
        if not sealed or not 0 < message.nbytes <= os.fstat(fd).st_size:
            raise ConnectionAbortedError(f"memory of {message.nbytes} bytes that is smaller, or could become smaller")
        return np.frombuffer(mmap.mmap(fd, message.nbytes, prot=mmap.PROT_READ), np.uint8)
    finally:
        if fd is not None:
            os.close(fd)


def _own(ref: GpuRef) -> bool:
    """Whether the memory is the device's own, so that its segment has a descriptor."""
    return not ref.allocation.readonly and ref.allocation.pool in (VOLATILE, DURABLE)


def _end(listening: socket.socket) -> None:
    with suppress(OSError):
        listening.shutdown(socket.SHUT_RDWR)
    listening.close()


def _pickled(error: AtomrError) -> bytes:
    try:
        return pickle.dumps(bare(error))
    except Exception:
        return pickle.dumps(LibraryError("ray", 0, type(error).__name__, "transfer", str(error)))
