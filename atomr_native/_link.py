"""What a device's worker has been told of, and how every thread talks to it.

Lanes, segments and event loops come and go at any time, also while the next worker comes up.  So a worker is told
under one lock: a thread that adds something tells the worker that serves, if there is one; a worker that comes up is
told all there is, the last of it under the very lock under which it becomes the one that serves.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, MutableMapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from .control import Answer, WorkerGone

if TYPE_CHECKING:
    from .device import Device
    from .placement import Worker

__all__ = ["REQUEST_TIMEOUT", "Link", "Links"]

#: Seconds that a worker may take to answer one request.
REQUEST_TIMEOUT = 60.0


class Link:
    """A worker, the generation that it serves, and what it has been told of."""

    def __init__(self, worker: Worker, epoch: int) -> None:
        self.worker = worker
        self.epoch = epoch
        self.known: set[tuple[str, int]] = set()

    def ask(self, op: str, fds: Sequence[int] = (), **fields: Any) -> Answer:
        """Send a request and wait for the answer."""
        return self.worker.client.request(op, fds, timeout=REQUEST_TIMEOUT, **fields)


class Links:
    """The link that serves a device, if there is one; any thread may use it.

    Whoever holds the lock waits for the worker's answers, so the thread that reads them takes it only while no worker
    serves.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.RLock()
        self.current: Link | None = None

    def serving(self) -> Link:
        """Return the link that serves; `WorkerGone` while there is none."""
        link = self.current
        if link is None:
            raise WorkerGone(f"{self._device.name} has no worker at the moment")
        return link

    def submit(self, op: str, fds: Sequence[int] = (), **fields: Any) -> Future[Answer]:
        """Send a request; `WorkerGone` while there is no worker.  Does not wait."""
        return self.serving().worker.client.submit(op, fds, **fields)

    def submit_build(self, plan: int, spec: dict[str, Any]) -> tuple[int, Future[Answer]]:
        """Ask for a plan; returns also the generation of the worker that was asked.  Does not wait."""
        link = self.serving()
        return link.epoch, link.worker.client.submit("build_plan", plan=plan, spec=spec)

    def create_segment(self, number: int, nbytes: int, pool: int) -> int:
        """Have the worker make memory, and wait for it; the descriptor becomes the caller's."""
        with self._lock:
            link = self.serving()
            fd = link.ask("create_segment", segment=number, nbytes=nbytes, pool=pool).take_fd()
            link.known.add(("segment", number))
            return fd

    def forget_segment(self, number: int, segments: MutableMapping[int, Any]) -> None:
        """Take a segment out of the device's, and have the worker unmap it; waits for that."""
        with self._lock:
            segments.pop(number, None)  # no worker that comes up is mapping it now, nor will be
            link = self.current
            if link is not None and ("segment", number) in link.known:
                with contextlib.suppress(WorkerGone):
                    self._unmap(link, number)

    def open_foreign(self, number: int, fds: Sequence[int], **fields: Any) -> int:
        """Have the worker map memory of others, and wait for it; returns the generation of the worker that did."""
        link = self.serving()
        link.ask("open_foreign", fds, segment=number, **fields).close()
        return link.epoch

    def close_foreign(self, number: int, epoch: int) -> Future[Answer]:
        """Have the worker of that generation forget such memory; `WorkerGone` if it is gone.  Does not wait."""
        link = self.serving()
        if link.epoch != epoch:
            raise WorkerGone(f"{self._device.name} has restarted")
        return link.worker.client.submit("close_foreign", timeout=0.0, segment=number)

    def tell(self, kind: str, number: int) -> None:
        """Tell the worker of a new ``"lane"``, ``"segment"`` or ``"subscriber"``, and wait until it knows.

        While there is no worker this does nothing: the next one is told before it opens.
        """
        with self._lock:
            link = self.current
            if link is not None:
                with contextlib.suppress(WorkerGone):
                    self._tell(link, kind, number)

    def tell_all(self, link: Link) -> None:
        """Tell a worker that comes up of all there is.  Threads that add more are held up for one request at most."""
        wanted = [("segment", number) for number in self._device._memory.segments()]
        wanted += [("subscriber", number) for number in self._device._wakers.numbers()]
        wanted += [("lane", number) for number in list(self._device._core.lane_names)]
        wanted += [("workspace", number) for number in self._device._workspaces.lanes()]  # of lanes just told
        for kind, number in wanted:
            with self._lock:
                self._tell(link, kind, number)
        for kind, number in link.known.difference(wanted):
            if kind == "segment":
                self._unmap(link, number)

    def switch(self, link: Link, attach: Callable[[], object]) -> None:
        """Make a worker that comes up the one that serves; `attach` may still refuse."""
        with self._lock:
            self.tell_all(link)  # what came meanwhile
            attach()
            self.current = link

    def _tell(self, link: Link, kind: str, number: int) -> None:
        if (kind, number) in link.known:
            return
        if kind == "lane":
            link.ask("open_lane", lane=number).close()
        elif kind == "workspace":
            place = self._device._workspaces.place(number)
            if place is not None:
                link.ask("set_workspace", lane=number, segment=place[0], offset=place[1], nbytes=place[2]).close()
        elif kind == "segment":
            segment = self._device._memory.segment(number)
            if segment is None:  # given back meanwhile
                return
            link.ask("map_segment", [segment.fd], segment=number, nbytes=segment.nbytes, pool=segment.pool).close()
        else:
            found = self._device._wakers.duplicate(number)
            if found is None:  # its event loop is closed
                return
            index, fd = found
            try:
                link.ask("subscribe", [fd], index=index).close()
            finally:
                os.close(fd)
        link.known.add((kind, number))

    @staticmethod
    def _unmap(link: Link, number: int) -> None:
        link.ask("unmap_segment", segment=number).close()
        link.known.discard(("segment", number))
