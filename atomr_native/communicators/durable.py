"""Durable groups over the ranks of a communicator: all ranks have a commit, or none has."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from .._lib.guard import TICK, Lock, Persisting, check, shielded
from .._support.process_bound import ProcessBound
from .._support.public import public
from .._support.timeouts import deadline_of
from ..arrays.gpu_ref import GpuRef
from ..arrays.owner import owner_of
from ..errors import AskTimeout, InvalidRequest
from .reply import CollectiveReply

if TYPE_CHECKING:
    from ..device import Device
    from ..memory.groups import DurableGroup
    from ..plans.reply import Reply

__all__ = ["CommunicatorGroup"]

_REMEMBERED: Final = 4  # commits that are known, with their tags: the last two are enough


@public
class CommunicatorGroup(ProcessBound):
    """Durable arrays of all ranks that are committed together; made by `Communicator.durable_group`.

    Each rank has a `DurableGroup`, and besides a copy of its commit before the last.  A commit counts when all ranks
    have it.  After a death, whichever rank died where, `restore` returns all ranks to the last one that counts.

    Methods may be called from any thread.

    Attributes
    ----------
    groups : tuple of DurableGroup
        That of each rank, to be saved; it is committed and restored by this object only.
    members : list of dict of str to GpuRef
        The arrays of each rank by name.

    Examples
    --------
    >>> comm = device.system.communicator(["host", "host:1"])
    >>> weights = [{"w": d.put([1.0, 2.0], durable=True)} for d in comm.devices]
    >>> group = comm.durable_group(weights)
    >>> _ = [ref["w"].device.elementwise.run("w = w + 1", w=ref["w"]) for ref in weights]
    >>> group.commit(tag=7).result(timeout=60)
    1
    >>> _ = weights[1]["w"].fill(0)
    >>> group.restore(), weights[1]["w"].numpy()
    (7, array([2., 3.]))
    >>> comm.close()
    """

    def __init__(
        self, devices: Sequence[Device], members: Sequence[Mapping[str, GpuRef]], *, checksum: bool, tag: int
    ) -> None:
        if isinstance(members, Mapping) or not isinstance(members, Sequence) or len(members) != len(devices):
            raise InvalidRequest(
                f"members {members!r}; allowed: {len(devices)} mappings of names to durable arrays, one for each rank"
            )
        for rank, mine in enumerate(members):
            if not isinstance(mine, Mapping) or set(mine) != set(members[0]):
                raise InvalidRequest(
                    f"members[{rank}] is {mine!r}; allowed: a mapping with the names of members[0], {list(members[0])}"
                )
        self._devices = tuple(devices)
        self.groups: tuple[DurableGroup, ...] = tuple(
            device.durable_group(mine, checksum=checksum) for device, mine in zip(devices, members, strict=True)
        )
        self.members = [dict(group.members) for group in self.groups]
        self._spares = [group.make_spare() for group in self.groups]
        self._lock = Lock()
        self._begun = 0  # the last commit that was sent
        self._tags = {0: tag}
        self._open: list[Reply] = []  # of that commit
        # The commit that each of a rank's own ones belongs to.
        self._numbers: list[dict[int, int]] = [{} for _ in self.groups]
        self._send(0, tag)
        for reply in self._open:
            reply.result()

    def _send(self, number: int, tag: int) -> list[Reply]:
        """Send a commit to each rank."""
        self._begun = number
        self._tags = {n: t for n, t in self._tags.items() if n > number - _REMEMBERED} | {number: tag}
        self._open = []
        for group, numbers in zip(self.groups, self._numbers, strict=True):
            reply = group.commit(tag)
            numbers[reply.value] = number
            while len(numbers) > _REMEMBERED:
                del numbers[min(numbers)]
            self._open.append(reply)
        return self._open

    def _held(self) -> list[int]:
        """Return the commit that each rank has."""
        held = []
        for rank, (group, numbers) in enumerate(zip(self.groups, self._numbers, strict=True)):
            sequence = group.sequence
            if sequence not in numbers:
                raise InvalidRequest(f"{group!r} of rank {rank} was committed by itself; allowed: commits of all ranks")
            held.append(numbers[sequence])
        return held

    @property
    def sequence(self) -> int:
        """Number of the last commit that all ranks have, from 0: the state at its making.  Does not wait."""
        return min(self._held())

    @property
    def tag(self) -> int:
        """The tag of the last commit that all ranks have.  Does not wait."""
        return self._tags[self.sequence]

    def commit(self, tag: int = 0) -> CollectiveReply:
        """Send a commit of the members' state at this point of the order, on each rank.

        Waits until all ranks have the commit before, and each has copied it: they may have to return to it.

        Parameters
        ----------
        tag : int
            A 64-bit number to store with the commit (a step, an epoch).

        Returns
        -------
        CollectiveReply
            Its value is the number of the commit.

        Raises
        ------
        InvalidRequest
            If a rank does not have the commit before: `restore` returns the others to the last that all have.
        GpuRefStale, DeviceFault, DeviceLost, MailboxFull
        """
        self._refuse_recording("a commit")
        return self._commit(tag)

    @shielded
    def _commit(self, tag: int) -> CollectiveReply:
        with self._lock:
            for reply in self._open:
                _is_resolved(reply)
            held = self._held()
            if set(held) != {self._begun}:
                raise InvalidRequest(
                    f"the ranks have commits {held}, and {self._begun} was sent; restore() returns all of them to "
                    f"commit {min(held)}"
                )
            for copy in [group.keep(spare) for group, spare in zip(self.groups, self._spares, strict=True)]:
                while not copy.done():
                    check()
                    with contextlib.suppress(AskTimeout):
                        copy.wait(TICK)
                copy.wait()
            with Persisting():  # the commit of each rank, and its number
                return CollectiveReply(self._send(self._begun + 1, tag), self._begun)

    def restore(self, timeout: float | None = None) -> int:
        """Return the members of all ranks to the last commit that all of them have, and wait; return its tag.

        Waits for devices that restart.  It also acknowledges rollbacks, as `DurableGroup.restore` does.

        Parameters
        ----------
        timeout : float, optional
            Seconds.

        Raises
        ------
        AskTimeout
            When `timeout` passes; call it again.
        DeviceLost, ActorStopped
            If a device will not open again.
        GpuRefStale, DeviceFault
            If a device dies meanwhile: call it again.
        """
        self._refuse_recording("a restore")
        deadline = deadline_of(timeout)
        for device in self._devices:
            device.wait_ready(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return self._restore(timeout, deadline)

    @shielded
    def _restore(self, timeout: float | None, deadline: float | None) -> int:
        with self._lock:
            for reply in self._open:
                if not _is_resolved(reply, deadline):
                    raise AskTimeout(f"a commit was not resolved within {timeout} s; call restore again")
            held = self._held()
            agreed = min(held)
            tag = self._tags[agreed]
            with Persisting():  # what each rank is told, and the numbers of its commits
                replies = [group.restore() for group in self.groups]
                for rank, group in enumerate(self.groups):
                    if held[rank] > agreed:
                        back = group.bring_back(self._spares[rank], tag)
                        self._numbers[rank][back.value] = agreed
                        replies.append(back)
            for reply in replies:
                if not _is_resolved(reply, deadline):
                    raise AskTimeout(f"a restore was not resolved within {timeout} s; call restore again")
                reply.result()
            self._begun, self._open = agreed, []
            return tag

    def _refuse_recording(self, what: str) -> None:
        """Refuse a call of the thread that records; what follows runs in another one."""
        for device in self._devices:
            owner_of(device).core.refuse_recording(what)

    def __repr__(self) -> str:
        names = ", ".join(self.members[0])
        return f"<CommunicatorGroup of {names} on {len(self.groups)} ranks; sequence {self.sequence}>"


def _is_resolved(reply: Reply, deadline: float | None = None) -> bool:
    """Wait until the deadline; return whether there is a result.  An interrupt of the caller ends the wait."""
    while True:
        left = TICK if deadline is None else max(0.0, min(deadline - time.monotonic(), TICK))
        if reply.wait(left):
            return True
        if deadline is not None and time.monotonic() >= deadline:
            return False
        check()
