"""Arrays shared with other programs of the same user on this machine.

A program that shares arrays listens on a socket in Linux's abstract namespace, whose random name begins the names of
its arrays.  Whoever opens a name is a process of the same user: the kernel says so at both ends.  It gets the
descriptor of the segment with the array, and keeps the connection while it uses the memory.  The array is lent until
that connection has ended and the program that shares it has let go, whichever comes last: nobody's crash takes memory
from the other.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import re
import socket
import struct
import threading
import time
import weakref
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import numpy as np

from .._lib.guard import Last, Lock, shielded
from .._lib.sender import DURABLE, VOLATILE
from .._support.process_bound import ProcessBound
from .._support.public import public
from .._support.timeouts import seconds_of
from ..arrays.layout import layout_from
from ..dtypes import DTYPES
from ..errors import AtomrError, GpuRefStale, InvalidRequest, NestedCall, Unsupported

if TYPE_CHECKING:
    from ..arrays.gpu_ref import GpuRef
    from .owner import SharingDevice
    from .segments import Mapping

__all__ = ["SharedArray", "open_shared", "share"]

_NAME: Final = re.compile(r"([0-9a-f]{32})-(\d{1,18})")
_PATIENCE: Final = 10.0  # seconds for each part of a conversation
_PAUSE: Final = 0.1  # seconds, where the process is out of descriptors or threads
_MOST: Final = 1 << 16  # bytes of an answer


def _address(token: str) -> bytes:
    return b"\0atomr_native-" + token.encode()


def _user_of(connection: socket.socket) -> int:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", raw)[1])


@public
class SharedArray(ProcessBound):
    """An array that other programs of this user may open by its name; made by `GpuRef.share`, a context manager.

    Attributes
    ----------
    name : str
        For `Device.open_shared` in another program.

    Examples
    --------
    >>> x = device.put([1.0, 2.0])
    >>> with x.share() as shared:
    ...     same = device.open_shared(shared.name)  # in another program, say
    ...     _ = x.fill(3).wait()
    ...     same.numpy()
    array([3., 3.])
    """

    def __init__(self, ref: GpuRef) -> None:
        self._ref: GpuRef | None = ref
        self._lease: object = ref.allocation.lease()
        self._server = _serving()
        self.name = self._server.add(self)

    def close(self) -> None:
        """Let no further program open it.  Those that have go on; then the memory is lent no longer.  Idempotent."""
        self._server.forget(self.name)
        self._ref = self._lease = None

    def offer(self) -> tuple[dict[str, Any], int, object]:
        """Return a description of the array, a descriptor of its memory, and a lease of it.  Internal; waits."""
        ref = self._ref
        if ref is None:
            raise InvalidRequest("this array is shared no longer")
        allocation = ref.allocation
        allocation.refuse_gone()
        ref.wait()
        owner: Any = allocation.core.owner
        lease = allocation.lease()
        segment = owner.memory.segments.find(allocation.segment)
        if segment is None:
            raise GpuRefStale(f"the memory of {ref!r} was returned to the system", "device closed")
        described = {
            "kind": owner.kind, "uuid": owner.exports.uuid,
            "bytes": segment.nbytes, "start": allocation.offset, "size": allocation.nbytes, "offset": ref.offset,
            "shape": ref.shape, "strides": ref.layout.strides, "dtype": ref.layout.dtype_name,
        }  # fmt: skip
        return described, segment.fd, (lease, allocation)

    def __enter__(self) -> SharedArray:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SharedArray {self.name!r}{', closed' if self._ref is None else f' of {self._ref!r}'}>"


_Bytes = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class _Described(msgspec.Struct):
    """What a program says of an array that it shares."""

    kind: str
    uuid: str
    bytes: _Bytes
    start: _Bytes
    size: _Bytes
    offset: _Bytes
    shape: tuple[_Bytes, ...]
    strides: tuple[int, ...]
    dtype: str


class _Server:
    """The socket of this process; a thread accepts, and each connection has one of its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.token = os.urandom(16).hex()
        self._lock = Lock()
        self._shared: weakref.WeakValueDictionary[str, SharedArray] = weakref.WeakValueDictionary()
        self._count = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.bind(_address(self.token))
        self._socket.listen()
        self._accepting = threading.Thread(target=self._accept, name="atomr_native-share", daemon=True)
        self._accepting.start()

    def refuse_own_thread(self) -> None:
        """Raise `NestedCall` in the thread that accepts: it would wait for itself."""
        if threading.current_thread() is self._accepting:
            raise NestedCall(
                "open_shared in the thread that answers whoever opens arrays of this program: by a destructor, or a "
                "callback of the garbage collector; let another thread make the call"
            )

    def abandon(self) -> None:
        """In a forked child: let go of the socket, so that nobody waits for an answer when the parent has ended."""
        self._socket.close()

    def add(self, shared: SharedArray) -> str:
        """Return the name of an array from now on, until it is forgotten or gone."""
        with self._lock:
            self._count += 1
            name = f"{self.token}-{self._count}"
        self._shared[name] = shared
        return name

    def forget(self, name: str) -> None:
        """Let nobody open a name."""
        self._shared.pop(name, None)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._talk, args=(connection,), name="atomr_native-share", daemon=True).start()
            except (OSError, RuntimeError):  # no descriptors, or no threads; whoever waits is served later, or told
                time.sleep(_PAUSE)

    def _talk(self, connection: socket.socket) -> None:
        """Answer one program, and hold the lease while it is connected."""
        lease: object = None
        with connection, contextlib.suppress(OSError):
            connection.settimeout(_PATIENCE)
            if _user_of(connection) != os.getuid():
                return
            name = connection.recv(64).decode("ascii", "replace")
            shared = self._shared.get(name)
            try:
                if shared is None:
                    raise InvalidRequest("this array is shared no longer")
                described, fd, lease = shared.offer()
            except AtomrError as error:
                connection.sendall(json.dumps({"error": str(error)}).encode())
                return
            finally:
                del shared
            socket.send_fds(connection, [json.dumps(described).encode()], [fd])
            connection.settimeout(None)
            connection.recv(1)  # it says nothing: this is its end
        del lease


_lock = Lock()
_server: _Server | None = None


def _forked() -> None:
    """In a forked child: the parent alone shares, and what it keeps of others ends with it."""
    global _server
    if _server is not None:
        _server.abandon()
        _server = None
    for lent in list(_lents):
        os.close(lent.descriptor)
        _abandoned.append(lent.connection)


os.register_at_fork(after_in_child=_forked)


@shielded
def _serving() -> _Server:
    """Return this process's server, begun if necessary; a fork begins its own."""
    global _server
    with _lock:
        if _server is None or _server.pid != os.getpid():
            _server = _Server()
        return _server


def share(ref: GpuRef) -> SharedArray:
    """Serve `GpuRef.share`."""
    allocation = ref.allocation
    allocation.refuse_gone()
    if allocation.readonly or allocation.pool not in (VOLATILE, DURABLE):
        raise Unsupported(f"{ref!r} is memory of another library or program; device.copy(ref) makes memory of its own")
    ref.wait()
    return SharedArray(ref)


class _Lent:
    """What keeps memory of another program: the connection, and this process's mapping, until nothing here uses it."""

    def __init__(self) -> None:
        self.connection: Last | None = None  # closes it
        self.descriptor = -1
        self.mapping: mmap.mmap | None = None


_lents: weakref.WeakSet[_Lent] = weakref.WeakSet()
_abandoned: list[object] = []  # of a forked child, whose descriptors are closed


def _connect(name: object, timeout: float) -> socket.socket:
    parts = _NAME.fullmatch(name) if isinstance(name, str) else None
    if parts is None:
        raise InvalidRequest(f"name={name!r}; allowed: the name of a SharedArray")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    connection.settimeout(timeout)
    try:
        connection.connect(_address(parts[1]))
        if _user_of(connection) != os.getuid():
            raise InvalidRequest(f"name={name!r} is of a program of another user")
        with contextlib.suppress(BrokenPipeError):  # it has closed its end: there is no answer, or the reason
            connection.sendall(parts[0].encode())
    except OSError as error:
        connection.close()
        raise InvalidRequest(f"name={name!r}: no program on this machine shares it ({error.strerror})") from None
    except BaseException:
        connection.close()
        raise
    return connection


def _receive(connection: socket.socket, name: str) -> tuple[dict[str, Any], int]:
    try:
        data, fds, _, _ = socket.recv_fds(connection, _MOST, 1, socket.MSG_CMSG_CLOEXEC)
    except OSError as error:
        raise InvalidRequest(f"name={name!r}: the program that shares it does not answer ({error})") from None
    try:
        found = json.loads(data) if data else {"error": "the program that shares it has ended"}
    except ValueError:
        found = None
    if isinstance(found, dict) and "error" not in found and len(fds) == 1:
        return found, fds[0]
    for fd in fds:
        os.close(fd)
    why = found.get("error", "no descriptor came") if isinstance(found, dict) else f"its answer is {data[:80]!r}"
    raise InvalidRequest(f"name={name!r}: {why}")


def _check(found: dict[str, Any], fd: int, owner: SharingDevice, name: str) -> None:
    """Refuse memory of another kind, and a description that does not fit it."""
    kind = found.get("kind")
    if kind != owner.kind:
        raise Unsupported(f"name={name!r} is memory of a {kind} device, and {owner.name} is another kind")
    try:
        described = msgspec.convert(found, _Described)
        nbytes = described.bytes
        fits = described.dtype in DTYPES and described.start + described.size <= nbytes
        if kind == "host" and fits:
            seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
            fits = bool(seals & fcntl.F_SEAL_SHRINK) and os.fstat(fd).st_size >= nbytes
    except (msgspec.ValidationError, OSError):  # it is no memory that could be sealed
        fits = False
    if not fits:
        raise InvalidRequest(f"name={name!r}: the program that shares it describes it wrongly: {found!r}")


def open_shared(owner: SharingDevice, name: str, timeout: float) -> GpuRef:
    """Serve `Device.open_shared`."""
    seconds = seconds_of(timeout, limited=True)
    if _server is not None:
        _server.refuse_own_thread()
    lent = _Lent()
    with _connect(name, seconds) as connection:
        found, fd = _receive(connection, name)
        try:
            _check(found, fd, owner, name)
            held = _hold(owner, name, found, fd, lent)
        finally:
            os.close(fd)
        layout = layout_from(tuple(found["shape"]), tuple(found["strides"]), found["dtype"])
        ref = held.view_as(layout, found["offset"])
        lent.descriptor = connection.detach()
        lent.connection = Last(os.close, lent.descriptor)
        _lents.add(lent)
    return ref


def _hold(owner: SharingDevice, name: str, found: dict[str, Any], fd: int, lent: _Lent) -> GpuRef:
    """Have the worker map the segment; return a handle of the whole allocation, which keeps `lent`."""
    segments, nbytes, base = owner.imports.segments, found["bytes"], 0
    if owner.kind == "host":
        lent.mapping = mmap.mmap(fd, nbytes)
        base = np.frombuffer(lent.mapping, np.uint8).ctypes.data
    key = (name, id(lent))

    def opened() -> Mapping:
        return segments.open_shared(key, fd, nbytes, base, found["uuid"])

    return owner.imports.hold(opened, base + found["start"], found["size"], lent)
