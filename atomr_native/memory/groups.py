"""Durable groups: state that survives a fault as of its last commit, all of it or none."""

from __future__ import annotations

import logging
import os
import weakref
import zlib
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .._lib.guard import Last, Lock, shielded
from .._lib.sender import DURABLE, MAX_OPERANDS
from .._support.process_bound import ProcessBound
from .._support.public import public
from ..arrays.gpu_ref import GpuRef
from ..arrays.layout import layout_of
from ..errors import AtomrError, GpuRefStale, InvalidRequest
from ..libraries.memory.attributes import GroupAttributes
from ..plans.signature import Signature
from ..plans.spec import OVERWRITE, READ, WRITE, OperandSpec, PlanSpec
from ..protocol.messages import GroupAnswer
from ..protocol.typed import decode
from .saved_groups import SavedGroup, read_file, write_file

if TYPE_CHECKING:
    from ..device import Device
    from ..plans.reply import Reply
    from .owner import MemoryOwner

__all__ = ["DurableGroup", "Groups"]

_log = logging.getLogger("atomr_native")
_HEADER_WORDS = 8  # begun, done, tag begun, tag done, checksum; see libraries/memory/recovery.py
_ALIGN = 256


@public
class DurableGroup(ProcessBound):
    """Durable arrays that are committed together; made by `Device.durable_group`.

    `commit` copies the members into a shadow on the device, in order with other messages, and then marks the commit as
    done.  When the device restarts and a member was written after the last commit, all members return to that commit.
    Messages queued for these members are refused with `GpuRefStale` (``"rolled back"``), and so are later reads, until
    the program acknowledges it with `restore`.  The handles stay valid.

    Attributes
    ----------
    members : dict of str to GpuRef
        The arrays by name.
    """

    def __init__(self, owner: MemoryOwner, number: int, members: Mapping[str, GpuRef], *, checksum: bool) -> None:
        if not isinstance(members, Mapping) or not members:
            raise InvalidRequest(f"members {members!r}; a durable group takes a mapping of names to durable arrays")
        if len(members) > MAX_OPERANDS - 2:
            raise InvalidRequest(f"{len(members)} members; a group has at most {MAX_OPERANDS - 2}")
        for name, ref in members.items():
            if not isinstance(name, str):
                raise InvalidRequest(f"member {name!r} is named by a {type(name).__name__}; allowed: strings")
            if (
                not isinstance(ref, GpuRef)
                or not ref.durable
                or not ref.is_whole
                or ref.allocation.core is not owner.core
            ):
                raise InvalidRequest(
                    f"member {name!r} must be a whole durable array of {owner.name}: device.put(..., durable=True)"
                )
            ref.allocation.refuse_gone()
        self.device: Device = owner.device
        self._owner = owner
        self.members = dict(members)
        self.number = number
        self._sending = Lock()  # orders commits; may be held while the device restarts
        self._lock = Lock(leaf=True)  # guards what follows; never held while anything waits
        self._open: deque[tuple[int, int, Reply]] = deque()
        self._begun = 0
        self._done = (0, 0)  # sequence and tag of the last commit that is known to be complete
        self._damaged = 0  # sequence of a commit whose shadow is lost
        self._checksum = checksum
        offsets, total = [], 0
        for ref in self.members.values():
            offsets.append(total)
            total += -(-ref.nbytes // _ALIGN) * _ALIGN
        self._offsets = offsets
        memory = owner.memory
        self._shadow = memory.new(layout_of((max(total, 1),), np.dtype(np.uint8)), DURABLE)
        self._header = memory.new(layout_of((_HEADER_WORDS,), np.dtype(np.int64)), DURABLE)
        memory.fill(self._header, 0)
        self._header.wait()
        core = owner.core
        self._dissolve = Last(core.group_dissolve, number)  # also if the following code fails
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
        # Only this mailbox uses shadow and header, and its order protects them.  They are declared as read, so a
        # refused commit does not poison the last good one.
        own = (
            OperandSpec("shadow", "uint8", self._shadow.shape, self._shadow.strides, READ),
            OperandSpec("header", "int64", self._header.shape, self._header.strides, READ),
        )
        spec = PlanSpec(
            op, operands + own, ("int64", "int64") if op == "group.commit" else (),
            GroupAttributes(tuple(self._offsets), self._checksum, self.number),
        )  # fmt: skip
        names = tuple(o.name for o in spec.operands)
        signature = Signature(names, names, (), ("sequence", "tag") if spec.scalars else (), (None, None))
        return self._owner.memory.plan_of(spec, signature)

    @property
    def _refs(self) -> tuple[GpuRef, ...]:
        return (*self.members.values(), self._shadow, self._header)

    @property
    def is_whole(self) -> bool:
        """Whether the memory of the members and of the shadow still exists.  Internal."""
        try:
            return all(ref.allocation.status() in ("", "torn", "rolled back") for ref in self._refs)
        except GpuRefStale:
            return False

    def commit(self, tag: int = 0) -> Reply:
        """Send a commit of the members' state at this point of the order.

        Parameters
        ----------
        tag : int
            A 64-bit number to store with the commit (a step, an epoch).

        Returns
        -------
        Reply
            Its value is the sequence number of the commit.
        """
        self._owner.core.refuse_recording("a commit")  # here: `_send` runs in another thread
        return self._send(tag)

    @shielded
    def _send(self, tag: int) -> Reply:
        self._settle()  # completed commits need not be stored
        with self._sending:
            sequence = self._begun + 1
            reply = cast("Reply", self._commit.send(self._refs, (sequence, tag), True, sequence))
            with self._lock:
                self._begun = sequence
                self._open.append((sequence, tag, reply))
        return reply

    def restore(self) -> Reply:
        """Send a restore: the members return to the last commit, in order with other messages.

        After a restart that rolled the group back, it also acknowledges the rollback.
        """
        self._owner.core.refuse_recording("a restore")
        if self.sequence == 0 and not self._open:
            raise InvalidRequest("nothing has been committed yet, so there is nothing to restore")
        self._refuse_damaged()
        return cast("Reply", self._restore.send(self._refs, (), True))

    def save(self, where: str | os.PathLike[str] | Device) -> SavedGroup:
        """Copy the last commit to a file, or to another device, and wait.  Later commits wait meanwhile.

        Its bytes pass through memory of this process.  A file is replaced at once or not at all, and is on its disk
        when the call returns.

        Parameters
        ----------
        where : str, path or Device
            A file; or a device of this System, or of another node (`RemoteDevice`), which holds the copy while the
            result is held.

        Raises
        ------
        InvalidRequest
            If nothing has been committed, or `where` is none of these.
        GpuRefStale
            If the last commit is lost.
        OSError
            If the file cannot be written.

        Examples
        --------
        >>> group = device.durable_group({"w": device.put([1.0, 2.0], durable=True)})
        >>> _ = group.commit(tag=7)
        >>> saved = group.save(device.system.device("host:1"))
        >>> saved.tag, saved.arrays()
        (7, {'w': array([1., 2.])})
        """
        self._owner.core.refuse_recording("a save")
        if not isinstance(where, str | os.PathLike) and not callable(getattr(where, "put", None)):
            raise InvalidRequest(f"where={where!r}; allowed: the path of a file, a Device, a RemoteDevice")
        tag, blob = self._last_commit()
        members = {name: (tuple(ref.shape), ref.layout.dtype_name) for name, ref in self.members.items()}
        saved = SavedGroup(tag, members, Path(), zlib.crc32(blob.data))
        if isinstance(where, str | os.PathLike):
            return write_file(where, saved, blob)
        return replace(saved, data=where.put(blob))

    def _last_commit(self) -> tuple[int, np.ndarray[Any, Any]]:
        """Return the tag of the last commit, and the bytes of the members one after the other."""
        with self._sending:  # no commit begins
            for _, _, reply in tuple(self._open):
                reply.wait()
            if self.sequence == 0:
                raise InvalidRequest("nothing has been committed yet, so there is nothing to save")
            self._refuse_damaged()
            shadow = self._shadow.numpy()
            tag = self.tag
        parts = [shadow[at : at + ref.nbytes] for at, ref in zip(self._offsets, self.members.values(), strict=True)]
        return tag, np.concatenate(parts)

    def load(self, saved: str | os.PathLike[str] | SavedGroup) -> int:
        """Write the members as they were saved, commit them with the saved tag, and wait; return the tag.

        Parameters
        ----------
        saved : str, path or SavedGroup
            What `save` of a group with the same members has written or returned.

        Raises
        ------
        InvalidRequest
            For other members, a file that is none of a group, or bytes that are damaged.
        GpuRefStale
            If the memory with the bytes is gone.
        OSError
            If the file cannot be read.

        Examples
        --------
        >>> group = device.durable_group({"w": device.put([1.0, 2.0], durable=True)})
        >>> _ = group.commit(tag=7)
        >>> saved = group.save(device)
        >>> again = device.durable_group({"w": device.zeros((2,), "float64", durable=True)})
        >>> again.load(saved), again.members["w"].numpy()
        (7, array([1., 2.]))
        """
        self._owner.core.refuse_recording("a load")
        if isinstance(saved, str | os.PathLike):
            saved = read_file(saved)
        if not isinstance(saved, SavedGroup):
            raise InvalidRequest(f"saved={saved!r}; allowed: the path of a file, or a SavedGroup")
        saved.check(self.members)
        arrays = saved.arrays()
        if any(ref.allocation.status() == "rolled back" for ref in self.members.values()):
            self.restore().result()  # acknowledges it; the members are overwritten now
        for name, array in arrays.items():
            self.device.put(array, out=self.members[name])
        self.commit(saved.tag).result()
        return saved.tag

    def make_spare(self) -> GpuRef:
        """Allocate memory for a commit before the last.  Internal."""
        return self._owner.memory.new(self._shadow.layout, DURABLE)

    def keep(self, spare: GpuRef) -> GpuRef:
        """Send a copy of the last commit, while no other is sent.  Internal."""
        return self._owner.memory.copy(self._shadow, spare, None, DURABLE)

    def bring_back(self, spare: GpuRef, tag: int) -> Reply:
        """Send messages that write the members as `keep` copied them, and commit them.  Internal."""
        for at, ref in zip(self._offsets, self.members.values(), strict=True):
            self._owner.memory.copy(spare.view_as(ref.layout, at), ref, None, DURABLE)
        return self.commit(tag)

    def _refuse_damaged(self) -> None:
        if self._damaged and self.sequence <= self._damaged:
            raise GpuRefStale(
                f"commit {self._damaged} of this group is lost: its shadow, or its header, was overwritten; "
                f"write the members again, and commit",
                "torn",
            )

    def _settle(self) -> tuple[int, int]:
        return self._look() if self._open else self._done

    @shielded
    def _look(self) -> tuple[int, int]:
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
        """Return the addresses of all parts, for the recovery in a new worker."""

        def place(ref: GpuRef) -> list[int]:
            return [ref.allocation.segment, ref.allocation.offset]

        return {
            "number": self.number,
            "header": place(self._header),
            "shadow": [*place(self._shadow), self._shadow.nbytes],
            "members": [[*place(r), r.nbytes, offset]
                        for r, offset in zip(self.members.values(), self._offsets, strict=True)],
            "dirty": dirty,  # it must return to its last commit
            "checksum": self._checksum,
        }  # fmt: skip

    def recovered(self, found: GroupAnswer) -> bool:
        """Record the findings of a new worker; return whether the last commit is lost.  Queued commits stay queued."""
        with self._lock:
            # The commit that is being sent may have run.  With any other number, the header was overwritten.
            if not self._done[0] <= found.sequence <= self._begun + 1:
                self._damaged = self._begun
                return True
            self._done = max(self._done, (found.sequence, found.tag))
            self._begun = max(self._begun, found.sequence)
            if found.damaged:
                self._damaged = found.sequence
            return found.damaged

    def tear(self, *, damaged: bool) -> None:
        """Mark the members as torn, and if `damaged`, the shadow, too.  Internal."""
        core = self._owner.core
        for ref in self.members.values():
            core.tear(ref.allocation)
        if damaged:  # a queued restore would read it
            core.tear(self._shadow.allocation)

    def untear_shadow(self) -> None:
        """Clear the torn mark of the shadow for the next commit, which overwrites it.  Internal."""
        self._shadow.allocation.untear()

    def __repr__(self) -> str:
        return f"<DurableGroup of {', '.join(self.members)}; sequence {self.sequence}>"


class Groups:
    """The groups of one device."""

    def __init__(self, owner: MemoryOwner) -> None:
        self._owner = owner
        self._lock = Lock(leaf=True)
        self._next = 1
        self._groups: weakref.WeakValueDictionary[int, DurableGroup] = weakref.WeakValueDictionary()

    @shielded
    def make(self, members: Mapping[str, GpuRef], *, checksum: bool) -> DurableGroup:
        """Make a group."""
        with self._lock:
            number = self._next
            self._next += 1
        group = DurableGroup(self._owner, number, members, checksum=checksum)
        with self._lock:
            self._groups[number] = group
        return group

    def descriptions(self, dirty: set[int]) -> list[dict[str, Any]]:
        """Return the descriptions of all complete groups for a new worker."""
        found = []
        with self._lock:
            groups = list(self._groups.values())
        for group in groups:
            if group.is_whole:
                found.append(group.describe(dirty=group.number in dirty))
        return found

    def recovered(self, asked: list[dict[str, Any]], answers: object) -> None:
        """Process the new worker's findings; an invalid answer fails the restart."""
        if not isinstance(answers, list) or len(answers) != len(asked):
            raise AtomrError("the worker's answer about the durable groups is invalid")
        torn = []
        for question, answer in zip(asked, answers, strict=True):
            group = self._groups.get(question["number"])
            if group is None:
                continue
            found = decode(answer, GroupAnswer, f"the worker's answer about durable group {group.number}", AtomrError)
            damaged = group.recovered(found)
            if found.sequence and not damaged:
                self._owner.core.group_recovered(group.number)
            if damaged or found.strayed:
                torn.append((group, damaged))
        if torn:
            self._tear(torn)

    def _tear(self, groups: list[tuple[DurableGroup, bool]]) -> None:
        """Mark the members of overwritten groups as torn; no worker runs yet."""
        for group, damaged in groups:
            group.tear(damaged=damaged)
            _log.error(
                "durable group %d of %s: %s; its members are torn",
                group.number, self._owner.name,
                "the shadow of its last commit was overwritten, or its header" if damaged
                else "the members differ from the last commit by their checksum, although no message has written them "
                    "since: group.restore() restores them",
            )  # fmt: skip
        self._owner.core.judge_again()
        for group, _ in groups:
            group.untear_shadow()
