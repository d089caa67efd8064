"""Durable groups: state that survives a fault as of its last commit, all of it or none."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ._lib.sender import DURABLE, MAX_OPERANDS
from ._process_bound import ProcessBound
from ._signature import Signature
from .errors import AtomrError, GpuRefStale, InvalidRequest
from .gpu_ref import GpuRef, layout_of
from .plan_spec import OVERWRITE, READ, WRITE, OperandSpec, PlanSpec

if TYPE_CHECKING:
    from .device import Device
    from .reply import Reply

__all__ = ["DurableGroup", "Groups"]

_log = logging.getLogger("atomr_native")
_HEADER_WORDS = 8  # begun, done, tag begun, tag done, checksum; see worker/groups.py
_ALIGN = 256


class DurableGroup(ProcessBound):
    """Durable arrays that are committed together; made by `Device.durable_group`.

    `commit` copies the members into a shadow on the device, in order with the messages around it, and then counts it
    as done.  When the device restarts, members with writes after the last commit go back to it, all of them.  Messages
    that were queued for such members are refused with `GpuRefStale` (``"rolled back"``), and so is whatever reads
    them later, until the program says that it knows: with `restore`.  The handles stay valid.

    Attributes
    ----------
    members : dict of str to GpuRef
        The arrays by name.
    """

    def __init__(self, device: Device, number: int, members: Mapping[str, GpuRef], *, checksum: bool) -> None:
        if not isinstance(members, Mapping) or not members:
            raise InvalidRequest(f"members {members!r}; a durable group takes a mapping of names to durable arrays")
        if len(members) > MAX_OPERANDS - 2:
            raise InvalidRequest(f"{len(members)} members; a group has at most {MAX_OPERANDS - 2}")
        for name, ref in members.items():
            if not isinstance(name, str):
                raise InvalidRequest(f"member {name!r} is named by a {type(name).__name__}; allowed: strings")
            if not isinstance(ref, GpuRef) or not ref.durable or not ref.is_whole or ref.device is not device:
                raise InvalidRequest(
                    f"member {name!r} must be a whole durable array of {device.name}: device.put(..., durable=True)"
                )
        self.device = device
        self.members = dict(members)
        self.number = number
        self._sending = threading.Lock()  # orders commits; may be held while the device restarts
        self._lock = threading.Lock()  # guards what follows; never held while anything waits
        self._open: deque[tuple[int, int, Reply]] = deque()
        self._begun = 0
        self._done = (0, 0)  # sequence and tag of the last commit known to be complete
        self._damaged = 0  # sequence of a commit whose shadow is lost
        self._checksum = checksum
        offsets, total = [], 0
        for ref in self.members.values():
            offsets.append(total)
            total += -(-ref.nbytes // _ALIGN) * _ALIGN
        self._offsets = offsets
        memory = device._memory
        self._shadow = memory.new(layout_of((max(total, 1),), np.dtype(np.uint8)), DURABLE)
        self._header = memory.new(layout_of((_HEADER_WORDS,), np.dtype(np.int64)), DURABLE)
        memory.fill(self._header, 0)
        self._header.wait()
        core = device._core
        weakref.finalize(self, core.group_dissolve, number)  # also if what follows fails
        for name, ref in self.members.items():
            try:
                core.group_add(number, ref.allocation, False)
            except InvalidRequest as error:
                raise InvalidRequest(f"member {name!r} is {ref!r}: {error}") from None
        core.group_add(number, self._shadow.allocation, True)
        core.group_add(number, self._header.allocation, True)
        self._commit = self._plan("group.commit", READ)
        self._commit.group = number
        self._restore = self._plan("group.restore", WRITE | OVERWRITE)

    def _plan(self, op: str, member_access: int) -> Any:
        operands = tuple(
            OperandSpec(f"member_{i}", r.layout.dtype_name, r.shape, r.strides, member_access)
            for i, r in enumerate(self.members.values())
        )
        # Shadow and header are used by this one mailbox only, whose order protects them; declared as read, so that
        # a commit which is refused does not poison the last good one.
        own = (
            OperandSpec("shadow", "uint8", self._shadow.shape, self._shadow.strides, READ),
            OperandSpec("header", "int64", self._header.shape, self._header.strides, READ),
        )
        spec = PlanSpec(
            op, operands + own, ("int64", "int64") if op == "group.commit" else (),
            (("offsets", tuple(self._offsets)), ("checksum", self._checksum), ("number", self.number)),
        )  # fmt: skip
        names = tuple(o.name for o in spec.operands)
        signature = Signature(names, names, (), ("sequence", "tag") if spec.scalars else (), (None, None))
        return self.device._memory._plan(spec, signature)

    @property
    def _refs(self) -> tuple[GpuRef, ...]:
        return (*self.members.values(), self._shadow, self._header)

    def commit(self, tag: int = 0) -> Reply:
        """Send a commit of the members as they are at this point of the order.

        Parameters
        ----------
        tag : int
            A number of yours to remember with it (a step, an epoch), 64 bits.

        Returns
        -------
        Reply
            Its value is the sequence number of the commit.
        """
        self._settle()  # what is complete need not be remembered
        with self._sending:
            sequence = self._begun + 1
            reply = cast("Reply", self._commit.send(self._refs, (sequence, tag), True, sequence))
            with self._lock:
                self._begun = sequence
                self._open.append((sequence, tag, reply))
        return reply

    def restore(self) -> Reply:
        """Send the way back: members become what the last commit holds, in order with the messages around it.

        After a restart that rolled the group back, this is also how the program acknowledges it.
        """
        if self.sequence == 0 and not self._open:
            raise InvalidRequest("nothing has been committed yet, so there is nothing to restore")
        if self._damaged and self.sequence <= self._damaged:
            raise GpuRefStale(
                f"commit {self._damaged} of this group is lost: something wrote into its shadow, says the checksum; "
                f"write the members anew, and commit",
                "torn",
            )
        return cast("Reply", self._restore.send(self._refs, (), True))

    def _settle(self) -> tuple[int, int]:
        with self._lock:
            while self._open and self._open[0][2].done():
                sequence, tag, reply = self._open.popleft()
                if reply.exception() is None and sequence > self._done[0]:
                    self._done = (sequence, tag)
            return self._done

    @property
    def sequence(self) -> int:
        """Number of the last commit that is complete; 0 before the first.  Does not wait."""
        return self._settle()[0]

    @property
    def tag(self) -> int:
        """The tag of the last commit that is complete.  Does not wait."""
        return self._settle()[1]

    def describe(self, *, dirty: bool) -> dict[str, Any]:
        """Return where everything lies, for the recovery in a new worker."""

        def place(ref: GpuRef) -> list[int]:
            return [ref.allocation.segment, ref.allocation.offset]

        return {
            "number": self.number,
            "header": place(self._header),
            "shadow": [*place(self._shadow), self._shadow.nbytes],
            "members": [[*place(r), r.nbytes, offset]
                        for r, offset in zip(self.members.values(), self._offsets, strict=True)],
            "dirty": dirty,  # it must go back to its last commit
            "checksum": self._checksum,
        }  # fmt: skip

    def recovered(self, sequence: int, tag: int, *, damaged: bool) -> None:
        """Note what a new worker found.  Commits that are still queued stay so."""
        with self._lock:
            self._done = max(self._done, (sequence, tag))
            self._begun = max(self._begun, sequence)
            if damaged:
                self._damaged = sequence

    def __repr__(self) -> str:
        return f"<DurableGroup of {', '.join(self.members)}; sequence {self.sequence}>"


class Groups:
    """The groups of one device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._next = 1
        self._groups: weakref.WeakValueDictionary[int, DurableGroup] = weakref.WeakValueDictionary()

    def make(self, members: Mapping[str, GpuRef], *, checksum: bool) -> DurableGroup:
        """Make a group."""
        with self._lock:
            number = self._next
            self._next += 1
        group = DurableGroup(self._device, number, members, checksum=checksum)
        with self._lock:
            self._groups[number] = group
        return group

    def descriptions(self, dirty: set[int]) -> list[dict[str, Any]]:
        """Return what a new worker must know of every group that is whole."""
        found = []
        with self._lock:
            groups = list(self._groups.values())
        for group in groups:
            try:
                if all(ref.allocation.status() in ("", "torn", "rolled back") for ref in group._refs):
                    found.append(group.describe(dirty=group.number in dirty))
            except GpuRefStale:
                continue
        return found

    def recovered(self, asked: list[dict[str, Any]], answers: object) -> None:
        """Take what the new worker found; an answer that makes no sense fails the restart."""
        if (
            not isinstance(answers, list)
            or len(answers) != len(asked)
            or not all(isinstance(answer, dict) for answer in answers)
        ):
            raise AtomrError("the worker's answer about the durable groups makes no sense")
        torn = []
        for question, answer in zip(asked, answers, strict=True):
            group = self._groups.get(question["number"])
            if group is None:
                continue
            sequence, tag = int(answer["sequence"]), int(answer["tag"])
            damaged, strayed = bool(answer.get("damaged")), bool(answer.get("strayed"))
            group.recovered(sequence, tag, damaged=damaged)
            if sequence and not damaged:
                self._device._core.group_recovered(group.number)
            if damaged or strayed:
                torn.append((group, damaged))
        if torn:
            self._tear(torn)

    def _tear(self, groups: list[tuple[DurableGroup, bool]]) -> None:
        """Have nobody read the members of groups into which something has written; no worker runs yet."""
        core = self._device._core
        for group, damaged in groups:
            for ref in group.members.values():
                core.tear(ref.allocation)
            if damaged:  # a restore that is queued would read it
                core.tear(group._shadow.allocation)
            _log.error(
                "durable group %d of %s: %s, by its checksum; its members are torn",
                group.number, self._device.name,
                "the shadow of its last commit is damaged" if damaged
                else "the members are not what was committed, although no message has written them since: "
                "group.restore() brings them back",
            )  # fmt: skip
        core.judge_again()
        for group, _ in groups:
            group._shadow.allocation.untear()  # the next commit writes all of it
