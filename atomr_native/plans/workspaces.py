"""Scratch memory of plans: one workspace per lane, in the device's volatile memory, shared by the lane's messages.

The worker reports the workspace of each plan, and the lane's workspace grows to the largest one before that plan can be
sent.  A workspace changes by a message of its lane: earlier messages continue with the old memory, later ones use the
new memory, and the old memory is freed with that message as its last use.  So nothing waits, and ordering by data keeps
the ranges separate.

A workspace outlives the worker, since its bytes mean nothing; the next worker gets its address before its lanes run.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import numpy as np

from .._lib.guard import Lock, shielded, shielded_service
from .._lib.sender import VOLATILE
from ..arrays.gpu_ref import GpuRef
from ..arrays.layout import layout_of
from ..errors import AtomrError, MailboxFull
from .plan import Plan
from .signature import Signature
from .spec import OVERWRITE, WRITE, OperandSpec, PlanSpec
from .workspace_limits import WorkspaceLimits

if TYPE_CHECKING:
    from .owner import PlanOwner
    from .reply import Reply

__all__ = ["Workspaces"]

_BYTES = np.dtype(np.uint8)
_ROUND = 256
_OPERAND = (OperandSpec("workspace", "uint8", (1,), (1,), WRITE | OVERWRITE),)
#: Makes its operand the lane's workspace, with the given number of bytes.
_USE = PlanSpec("memory.workspace", _OPERAND, ("int64",))
_USE_SIGNATURE = Signature(("workspace",), ("workspace",), (), ("nbytes",), (None,))
#: Does nothing, after all earlier messages of the lane: the last use of a replaced workspace.
_RELEASE = PlanSpec("noop", _OPERAND)
_RELEASE_SIGNATURE = Signature(("workspace",), ("workspace",), ())


class _Workspace:
    """The workspace of one lane."""

    def __init__(self) -> None:
        self.lock = Lock()  # held while memory is allocated and messages are sent; never by the supervisor
        self.ref: GpuRef | None = None
        self.told = True  # whether a message that names `ref` was sent
        self.old: list[GpuRef] = []  # replaced, but not yet released by a message
        self.use: Plan | None = None
        self.release: Plan | None = None
        self.replies: list[Reply] = []  # held, so messages that a restart refuses do not become dead letters

    @property
    def nbytes(self) -> int:
        ref = self.ref
        return 0 if ref is None else ref.nbytes


class Workspaces:
    """The workspaces of a device's lanes.

    Parameters
    ----------
    owner : PlanOwner
        The device of the lanes.
    given : int, optional
        ``System(workspace_limit=)``.
    """

    def __init__(self, owner: PlanOwner, given: int | None) -> None:
        self._owner = owner
        self._given = given
        self._lanes: dict[int, _Workspace] = {}
        self._lock = Lock(leaf=True)  # guards the table; nothing waits under it

    def _of(self, lane: int) -> _Workspace:
        with self._lock:
            return self._lanes.setdefault(lane, _Workspace())

    @property
    def limits(self) -> WorkspaceLimits:
        """The limits of plans; known with the facts about the device."""
        return WorkspaceLimits.of(self._given, self._owner.facts["total_memory"])

    def check(self, nbytes: object) -> int:
        """Return the workspace size that a worker reports for a plan, if it is valid."""
        most = self.limits.most
        if type(nbytes) is not int or not 0 <= nbytes <= most:
            raise AtomrError(f"the worker requests a workspace of {nbytes!r:.100} bytes; the limit is {most}")
        return nbytes

    @shielded
    def require(self, lane: int, nbytes: int) -> None:
        """Make the lane's workspace at least this large for all messages sent from now on.

        Waits for room in the mailbox, and for memory only if the workspace must grow.

        Raises
        ------
        OutOfMemory, MailboxFull, DeviceLost
            The lane keeps its workspace.
        """
        if nbytes == 0:
            return
        mine = self._of(lane)
        with mine.lock:
            if mine.nbytes < nbytes:
                self._replace(mine, self._allocate(nbytes))
            self._tell(mine, lane, None)

    def _allocate(self, nbytes: int) -> GpuRef:
        core, layout = self._owner.core, layout_of((-(-nbytes // _ROUND) * _ROUND,), _BYTES)
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
        """Send the pending messages; those that cannot be sent within `seconds` are sent next time."""
        mine.replies = [reply for reply in mine.replies if not reply.done()]
        if mine.told and not mine.old:
            return
        if mine.use is None or mine.release is None:
            owner = self._owner
            mine.use = Plan.make(owner, lane, _USE, _USE_SIGNATURE, any_layout=True)
            mine.release = Plan.make(owner, lane, _RELEASE, _RELEASE_SIGNATURE, any_layout=True)
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
            raise MailboxFull("no room for the message that changes a workspace", str(plan.lane), plan.core.cells)
        mine.replies.append(reply)

    def trim(self, seconds: float = 0.0) -> None:
        """Free the workspaces of lanes whose plans need none; the memory is available at once, protected by order.

        A lane with a full mailbox, or with another thread sending workspace messages to it, keeps its workspace.  Waits
        up to `seconds` for that thread, and for the lanes to process the messages; afterwards nothing uses that memory.
        """
        end = time.monotonic() + seconds
        with self._lock:
            lanes = list(self._lanes.items())
        for lane, mine in lanes:
            if not mine.lock.acquire(timeout=max(0.0, end - time.monotonic())):
                continue
            try:
                if mine.ref is not None and self._owner.plans.workspace(lane) == 0:
                    self._replace(mine, None)
                with contextlib.suppress(AtomrError):
                    self._tell(mine, lane, max(0.0, end - time.monotonic()))
                replies = list(mine.replies)
            finally:
                mine.lock.release()
            for reply in replies:
                reply.wait(max(0.0, end - time.monotonic()))

    def close(self) -> None:
        """Release everything: handles would keep a device that has ended.  Takes no lock, for forked children."""
        self._lanes = {}

    @shielded_service
    def sizes(self) -> dict[int, int]:
        """Return the bytes of each lane's workspace, by lane, including replaced ones that are not yet released."""
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
