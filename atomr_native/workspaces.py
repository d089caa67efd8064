"""Scratch memory of plans: one workspace a lane, in the device's volatile memory, shared by the lane's messages.

A worker says with each plan how much it wants; the lane's workspace grows to the largest before that plan can be sent.
It changes by a message of the lane itself: those before it go on with the old memory, those after it use the new, and
the old is freed with that message as its last use.  So nobody waits, and ordering by data keeps the ranges apart.

A workspace outlives the worker, since its bytes mean nothing; the next worker is told of it before its lanes run.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from ._lib.sender import VOLATILE
from ._signature import Signature
from .errors import AtomrError, MailboxFull
from .gpu_ref import GpuRef, layout_of
from .plan import Plan
from .plan_spec import OVERWRITE, WRITE, OperandSpec, PlanSpec

if TYPE_CHECKING:
    from .device import Device
    from .reply import Reply

__all__ = ["Workspaces"]

_BYTES = np.dtype(np.uint8)
_ROUND = 256
_OPERAND = (OperandSpec("workspace", "uint8", (1,), (1,), WRITE | OVERWRITE),)
#: Makes its operand the lane's workspace, of so many bytes.
_USE = PlanSpec("memory.workspace", _OPERAND, ("int64",))
_USE_SIGNATURE = Signature(("workspace",), ("workspace",), (), ("nbytes",), (None,))
#: Does nothing, after all that the lane was sent before: the last use of a workspace that was replaced.
_RELEASE = PlanSpec("noop", _OPERAND)
_RELEASE_SIGNATURE = Signature(("workspace",), ("workspace",), ())


class _Workspace:
    """That of one lane."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # held while memory is got and messages are sent; not taken by the supervisor
        self.ref: GpuRef | None = None
        self.told = True  # whether a message that names `ref` was sent
        self.old: list[GpuRef] = []  # replaced, and not released by a message yet
        self.use: Plan | None = None
        self.release: Plan | None = None
        self.replies: list[Reply] = []  # held, so that what a restart refuses of them is nobody's dead letter

    @property
    def nbytes(self) -> int:
        ref = self.ref
        return 0 if ref is None else ref.nbytes


class Workspaces:
    """The workspaces of a device's lanes.

    Parameters
    ----------
    device : Device
        Whose.
    limit : int
        The most bytes that a plan may want.
    """

    def __init__(self, device: Device, limit: int) -> None:
        self._device = device
        self.limit = limit
        self._lanes: dict[int, _Workspace] = {}
        self._lock = threading.Lock()  # of the table; nothing waits under it

    def _of(self, lane: int) -> _Workspace:
        with self._lock:
            return self._lanes.setdefault(lane, _Workspace())

    def check(self, nbytes: object) -> int:
        """Return what a worker says that a plan wants, if it makes sense."""
        if type(nbytes) is not int or not 0 <= nbytes <= self.limit:
            raise AtomrError(f"the worker wants a workspace of {nbytes!r:.100} bytes; the limit is {self.limit}")
        return nbytes

    def require(self, lane: int, nbytes: int) -> None:
        """Make the lane's workspace so large for all messages that are sent to it from now on.

        Waits for memory only if it must grow, and for room in the mailbox.

        Raises
        ------
        OutOfMemory, MailboxFull, DeviceLost
            The lane goes on with what it has.
        """
        if nbytes == 0:
            return
        mine = self._of(lane)
        with mine.lock:
            if mine.nbytes < nbytes:
                self._replace(mine, self._allocate(nbytes))
            self._tell(mine, lane, None)

    def _allocate(self, nbytes: int) -> GpuRef:
        core, layout = self._device._core, layout_of((-(-nbytes // _ROUND) * _ROUND,), _BYTES)
        while True:
            ref = core.empty(GpuRef, layout, VOLATILE)
            if core.keep(ref.allocation):
                return ref

    @staticmethod
    def _replace(mine: _Workspace, ref: GpuRef | None) -> None:
        if mine.ref is not None:
            mine.old.append(mine.ref)
        mine.ref, mine.told = ref, False

    def _tell(self, mine: _Workspace, lane: int, seconds: float | None) -> None:
        """Send what there is to send; what cannot be sent within `seconds` is sent the next time."""
        mine.replies = [reply for reply in mine.replies if not reply.done()]
        if mine.told and not mine.old:
            return
        if mine.use is None or mine.release is None:
            device = self._device
            mine.use = Plan.make(device, lane, _USE, _USE_SIGNATURE, any_layout=True)
            mine.release = Plan.make(device, lane, _RELEASE, _RELEASE_SIGNATURE, any_layout=True)
        if not mine.told:
            if mine.ref is not None:
                self._send(mine, mine.use, mine.ref, seconds, nbytes=mine.nbytes)
            else:
                self._send(mine, mine.use, mine.old[-1], seconds, nbytes=0)
            mine.told = True
        while mine.old:
            self._send(mine, mine.release, mine.old[-1], seconds)
            mine.old.pop().free()

    @staticmethod
    def _send(mine: _Workspace, plan: Plan, ref: GpuRef, seconds: float | None, **scalars: int) -> None:
        reply: Reply | None
        if seconds is None:
            reply = plan.ask(ref, **scalars)
        else:
            if plan.ready_epoch != plan.core.epoch:
                plan.wait(seconds)
            reply = plan.offer(ref, **scalars)
        if reply is None:
            raise MailboxFull("no room for the change of a workspace", str(plan.lane), plan.core.cells)
        mine.replies.append(reply)

    def trim(self, seconds: float = 0.0) -> None:
        """Free the workspaces of lanes that have no plan which wants one; the memory is for others at once, by order.

        A lane whose mailbox is full, or to which another thread tells something, keeps what it has.  Waits up to
        `seconds` for that thread, and for the lanes to have taken note, from when on nobody uses that memory.
        """
        end = time.monotonic() + seconds
        with self._lock:
            lanes = list(self._lanes.items())
        for lane, mine in lanes:
            if not mine.lock.acquire(timeout=max(0.0, end - time.monotonic())):
                continue
            try:
                if mine.ref is not None and self._device._plans.workspace(lane) == 0:
                    self._replace(mine, None)
                with contextlib.suppress(AtomrError):
                    self._tell(mine, lane, max(0.0, end - time.monotonic()))
                replies = list(mine.replies)
            finally:
                mine.lock.release()
            for reply in replies:
                reply.wait(max(0.0, end - time.monotonic()))

    def close(self) -> None:
        """Let go of everything: handles would keep a device that has ended.  Takes no lock, for forked children."""
        self._lanes = {}

    def sizes(self) -> dict[int, int]:
        """Return the bytes of each lane's workspace, by lane; with replaced ones that are still to be released."""
        with self._lock:
            return {lane: mine.nbytes + sum(ref.nbytes for ref in list(mine.old)) for lane, mine in self._lanes.items()}

    def lanes(self) -> list[int]:
        """Return the lanes that have a workspace."""
        with self._lock:
            return [lane for lane, mine in self._lanes.items() if mine.ref is not None]

    def place(self, lane: int) -> tuple[int, int, int] | None:
        """Return segment, offset and bytes of a lane's workspace, for a worker that comes up."""
        with self._lock:
            mine = self._lanes.get(lane)
            ref = None if mine is None else mine.ref
        if ref is None:
            return None
        return ref.allocation.segment, ref.allocation.offset, ref.nbytes
