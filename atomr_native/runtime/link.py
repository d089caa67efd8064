"""The connection to a device's worker: its knowledge of lanes and memory, and requests from any thread.

Lanes, segments and event loops come and go at any time, also while the next worker starts.  So notifications are sent
under one lock: a thread that adds an object notifies the serving worker, if there is one.  A starting worker is told of
all objects, the last of them under the same lock under which it becomes the serving worker.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from .._lib.guard import Persisting, Promise, shielded, shielded_service
from ..protocol.binaries import SentBinaries
from ..protocol.messages import Answer, WorkerGone

if TYPE_CHECKING:
    from ..plans.spec import PlanRequest
    from ..protocol.binaries import Binary
    from .owner import ServedDevice
    from .placement import Worker

__all__ = ["REQUEST_TIMEOUT", "Link", "Links"]

#: Seconds that a worker may take to answer one request.
REQUEST_TIMEOUT = 60.0


class Link:
    """A worker, its generation, and the objects that it has been told of."""

    def __init__(self, worker: Worker, epoch: int) -> None:
        self.worker = worker
        self.epoch = epoch
        self.known: set[tuple[str, int]] = set()
        self._binaries = SentBinaries()

    def build(self, request: PlanRequest) -> Answer:
        """Make the worker build a plan, and wait for the result."""
        with self._sending(request) as (fields, _):
            return self.ask("build_plan", **fields)

    def submit_build(self, request: PlanRequest) -> Promise[Answer]:
        """Request a plan.  Does not wait."""
        with self._sending(request) as (fields, sending):
            future = self.worker.client.submit("build_plan", **fields)
        if sending:
            digests = [binary.digest for binary in sending]
            future.add_done_callback(lambda done: self._binaries.doubt(digests) if done.exception() else None)
        return future

    @contextlib.contextmanager
    def _sending(self, request: PlanRequest) -> Iterator[tuple[dict[str, Any], list[Binary]]]:
        """Yield the parts of a request for a plan, with the binaries that the worker lacks."""
        fields: dict[str, Any] = {"plan": request.plan, "lane": request.lane, "spec": request.spec}
        if request.suspect:
            fields["suspect"] = True
        if request.workspace is not None:
            fields["workspace"] = request.workspace
        if not request.binaries:
            yield fields, []
            return
        with self._binaries.lock:
            sending, forgotten = self._binaries.prepare(request.binaries)
            fields |= {"binaries": [binary.reference for binary in sending], "forgotten": forgotten}
            fields["blob"] = sending[0].data if len(sending) == 1 else b"".join(binary.data for binary in sending)
            try:
                yield fields, sending
            except BaseException:
                self._binaries.doubt([*forgotten, *(binary.digest for binary in sending)])
                raise

    def ask(self, op: str, fds: Sequence[int] = (), **fields: Any) -> Answer:
        """Send a request and wait for the answer."""
        return self.worker.client.request(op, fds, timeout=REQUEST_TIMEOUT, **fields)


class Links:
    """The serving link of a device, if there is one; any thread may use it.

    The holder of the lock waits for the worker's answers, so the thread that reads them takes it only while no worker
    serves.
    """

    def __init__(self, owner: ServedDevice) -> None:
        self._owner = owner
        self._lock = threading.RLock()
        self.current: Link | None = None

    def serving(self) -> Link:
        """Return the serving link; raise `WorkerGone` while there is none."""
        link = self.current
        if link is None:
            raise WorkerGone(f"{self._owner.name} has no worker at the moment")
        return link

    @shielded_service
    def submit(self, op: str, fds: Sequence[int] = (), **fields: Any) -> Promise[Answer]:
        """Send a request; raise `WorkerGone` while there is no worker.  Does not wait."""
        with Persisting():
            return self.serving().worker.client.submit(op, fds, **fields)

    @shielded
    def submit_build(self, request: PlanRequest) -> tuple[int, Promise[Answer]]:
        """Ask for a plan; returns also the generation of the worker that was asked.  Does not wait."""
        with Persisting():
            link = self.serving()
            return link.epoch, link.submit_build(request)

    @shielded
    def create_segment(self, number: int, nbytes: int, pool: int) -> int:
        """Make the worker create memory, and wait for it; the caller owns the descriptor."""
        with Persisting(), self._lock:
            link = self.serving()
            fd = link.ask("create_segment", segment=number, nbytes=nbytes, pool=pool).take_fd()
            link.known.add(("segment", number))
            return fd

    @shielded
    def forget_segment(self, number: int, segments: MutableMapping[int, Any]) -> None:
        """Remove a segment from the device, and make the worker unmap it; waits for that."""
        with Persisting(), self._lock:
            segments.pop(number, None)  # no starting worker maps it, now or later
            link = self.current
            if link is not None and ("segment", number) in link.known:
                with contextlib.suppress(WorkerGone):
                    self._unmap(link, number)

    @shielded
    def open_foreign(self, number: int, fds: Sequence[int], **fields: Any) -> int:
        """Make the worker map foreign memory, and wait for it; return that worker's generation."""
        with Persisting():
            link = self.serving()
            link.ask("open_foreign", fds, segment=number, **fields).close()
            return link.epoch

    @shielded
    def close_foreign(self, number: int, epoch: int) -> Promise[Answer]:
        """Make the worker of that generation unmap foreign memory; raise `WorkerGone` if it died.  Does not wait."""
        link = self.serving()
        if link.epoch != epoch:
            raise WorkerGone(f"{self._owner.name} has restarted")
        with Persisting():
            return link.worker.client.submit("close_foreign", timeout=0.0, segment=number)

    @shielded
    def tell(self, kind: str, number: int) -> None:
        """Notify the worker of a new ``"lane"``, ``"meeting"``, ``"segment"`` or ``"subscriber"``.

        Waits for its answer.  Does nothing while there is no worker: the next one is told before it opens.
        """
        with Persisting(), self._lock:
            link = self.current
            if link is not None:
                with contextlib.suppress(WorkerGone):
                    self._tell(link, kind, number)

    def tell_all(self, link: Link) -> None:
        """Tell a starting worker of all objects.  Threads that add more are delayed by at most one request."""
        wanted = [("segment", number) for number in self._owner.memory.segments.numbers()]
        wanted += [("subscriber", number) for number in self._owner.wakers.numbers()]
        wanted += [("meeting", number) for number in self._owner.meetings.numbers()]
        wanted += [("lane", number) for number in list(self._owner.core.lane_names)]
        wanted += [("workspace", number) for number in self._owner.workspaces.lanes()]  # workspaces of lanes just sent
        for kind, number in wanted:
            with self._lock:
                self._tell(link, kind, number)
        for kind, number in link.known.difference(wanted):
            if kind == "segment":
                self._unmap(link, number)
            elif kind == "meeting":
                self._leave(link, number)

    def switch(self, link: Link, attach: Callable[[], object]) -> None:
        """Make a starting worker the serving one; `attach` may still refuse."""
        with self._lock:
            self.tell_all(link)  # objects that came meanwhile
            attach()
            self.current = link

    def _tell(self, link: Link, kind: str, number: int) -> None:
        if (kind, number) in link.known:
            return
        if kind == "lane":
            link.ask("open_lane", lane=number).close()
        elif kind == "meeting":
            seat = self._owner.meetings.find(number)
            if seat is None:  # closed meanwhile
                return
            page = seat.page
            where = {"rank": seat.rank, "uuids": list(seat.uuids)}
            link.ask("open_meeting", [page.fd], number=number, nbytes=page.nbytes, **where).close()
        elif kind == "workspace":
            place = self._owner.workspaces.place(number)
            if place is not None:
                link.ask("set_workspace", lane=number, segment=place[0], offset=place[1], nbytes=place[2]).close()
        elif kind == "segment":
            segment = self._owner.memory.segments.find(number)
            if segment is None:  # returned to the system meanwhile
                return
            link.ask("map_segment", [segment.fd], segment=number, nbytes=segment.nbytes, pool=segment.pool).close()
        else:
            found = self._owner.wakers.duplicate(number)
            if found is None:  # its event loop is closed
                return
            index, fd = found
            try:
                link.ask("subscribe", [fd], index=index).close()
            finally:
                os.close(fd)
        link.known.add((kind, number))

    @shielded
    def close_meeting(self, number: int) -> None:
        """Make the worker forget a communicator that no message names any more; waits for that."""
        with Persisting(), self._lock:
            self._owner.meetings.leave(number)
            link = self.current
            if link is not None and ("meeting", number) in link.known:
                with contextlib.suppress(WorkerGone):
                    self._leave(link, number)

    @staticmethod
    def _leave(link: Link, number: int) -> None:
        link.ask("close_meeting", number=number).close()
        link.known.discard(("meeting", number))

    @staticmethod
    def _unmap(link: Link, number: int) -> None:
        link.ask("unmap_segment", segment=number).close()
        link.known.discard(("segment", number))
