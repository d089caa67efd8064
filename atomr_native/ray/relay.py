"""How the pages of a communicator's processes have the same words: connections that pass on what ranks write.

The process of rank 0 is the hub, to which the others connect.  It passes on the words of each to all others.  When one
connection ends, all do: the ranks of other processes are then lost to each of them, and their messages fail.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field

from .._lib import mirrors
from .._lib.seats import Page
from .._lib.sender import ACTOR_STOPPED
from ..errors import InvalidRequest
from .moving.channel import PATIENCE, Call, Channel

__all__ = ["Meet", "Relay"]

_log = logging.getLogger("atomr_native.ray")

_PAUSE = 0.05  # seconds before a process that could not be served is served
_LOOK = 0.5  # seconds between looks at a page that does not change
_ALWAYS = (1 << 64) - 1  # a sequence number after all others


@dataclass(frozen=True)
class Meet:
    """Where a hub is reached, and the secret that both ends prove to know."""

    host: str
    port: int
    secret: bytes = field(repr=False)


class Relay:
    """Passes the words of this process's ranks to the other processes, and theirs to the page of this one.

    Parameters
    ----------
    page : Page
    size : int
        Number of ranks.
    mine : collection of int
        The ranks of this process.
    ended : callable
        Called once, in a thread of the relay or of `close`, when the other processes' ranks are lost.
    """

    def __init__(self, page: Page, size: int, mine: Collection[int], ended: Callable[[], object]) -> None:
        self._page, self._size, self._mine, self._ended = page, size, frozenset(mine), ended
        self._lock = threading.Lock()  # of what is sent, and so of its order
        self._channels: list[Channel] = []
        self._listening: socket.socket | None = None
        self._closed = False
        self._sent: dict[int, bytes] = {}
        if len(self._mine) < size:
            threading.Thread(target=self._pump, name="atomr_native-relay", daemon=True).start()

    def listen(self, host: str) -> Meet:
        """Be the hub; return where it is reached.

        Raises
        ------
        OSError
            If this machine does not have the address.
        """
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            made.bind((host, 0))
            made.listen()
            meet = Meet(host, made.getsockname()[1], os.urandom(32))
        except BaseException:
            made.close()
            raise
        with self._lock:
            self._listening = made
            if self._closed:
                made.close()
        threading.Thread(target=self._accept, args=(made, meet.secret), name="atomr_native-relay", daemon=True).start()
        return meet

    def connect(self, meet: Meet) -> None:
        """Connect to the hub.

        Raises
        ------
        OSError
            If it cannot be reached, or is another process.
        """
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            made.settimeout(PATIENCE)
            made.connect((meet.host, meet.port))
            channel = Channel(made)
            if not channel.greet(meet.secret, first=True):
                raise ConnectionRefusedError("the process at this address is another one")
            channel.send(Call(bytes(sorted(self._mine))))
        except BaseException:
            made.close()
            raise
        if self._add(channel):
            others = frozenset(range(self._size)) - self._mine
            threading.Thread(
                target=self._follow, args=(channel, others), name="atomr_native-relay", daemon=True
            ).start()  # fmt: skip

    def close(self) -> None:
        """End the connections, and take the other processes' ranks for lost.  Idempotent; does not wait."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            channels, listening = self._channels, self._listening
        for rank in range(self._size):
            if rank not in self._mine:
                self._page.lose(rank, _ALWAYS, ACTOR_STOPPED, 0)
                self._page.bury(rank, ACTOR_STOPPED, 0)
        for channel in channels:
            channel.close()
        if listening is not None:
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()
        self._ended()

    # ---- threads

    def _accept(self, listening: socket.socket, secret: bytes) -> None:
        while True:
            connection: socket.socket | None = None
            try:
                connection, _ = listening.accept()
                threading.Thread(
                    target=self._serve, args=(connection, secret), name="atomr_native-relay", daemon=True
                ).start()  # fmt: skip
            except (OSError, RuntimeError) as error:  # no descriptors, or no threads: the process waits, or is told
                if connection is not None:
                    connection.close()
                if self._closed:
                    return
                _log.debug("a process that connects to a communicator waits: %s", error)
                time.sleep(_PAUSE)

    def _serve(self, connection: socket.socket, secret: bytes) -> None:
        """Serve one of the other processes."""
        try:
            channel = Channel(connection)
            if not channel.greet(secret, first=False):
                channel.close()
                return
            message, _ = channel.receive()
        except OSError:
            connection.close()
            return
        theirs = frozenset(message.data) if isinstance(message, Call) else frozenset()
        if theirs and max(theirs) < self._size and not theirs & self._mine and self._add(channel):
            self._follow(channel, theirs)
        else:
            channel.close()

    def _add(self, channel: Channel) -> bool:
        """Send a process what is known, and from now on all that changes."""
        try:
            with self._lock:
                if self._closed:
                    channel.close()
                    return False
                for rank in range(self._size):
                    self._send(channel, rank, mirrors.read(self._page, rank))
                self._channels.append(channel)
        except OSError:
            self.close()
            return False
        return True

    @staticmethod
    def _send(channel: Channel, rank: int, words: bytes) -> None:
        channel.send(Call(bytes((rank,)) + words))

    def _follow(self, channel: Channel, theirs: frozenset[int]) -> None:
        """Take the words of another process's ranks, and pass them on, until one of the two ends."""
        try:
            while True:
                message, _ = channel.receive()
                if not isinstance(message, Call) or not message.data:
                    raise ConnectionAbortedError("something else than the words of a rank")
                rank, words = message.data[0], message.data[1:]
                with self._lock:
                    if self._closed:
                        return
                    if rank in theirs:
                        mirrors.write(self._page, rank, words)
                        for other in self._channels:
                            if other is not channel:
                                self._send(other, rank, words)
        except (OSError, InvalidRequest):
            self.close()

    def _pump(self) -> None:
        """Pass on what this process's ranks write."""
        mirrors.follow(self._page)
        try:
            while not self._closed:
                bell = mirrors.bell(self._page)
                with self._lock:
                    for rank in self._mine:
                        words = mirrors.read(self._page, rank)
                        if words != self._sent.get(rank):
                            self._sent[rank] = words
                            for channel in self._channels:
                                self._send(channel, rank, words)
                mirrors.wait(self._page, bell, _LOOK)
        except OSError:
            self.close()
        finally:
            mirrors.leave(self._page)
