"""Commits, restores and recovery of durable groups, case by case: in memory of this process, and for the parent."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from atomr_native._lib.guard import Lock
from atomr_native.errors import InvalidRequest
from atomr_native.libraries.memory.attributes import GroupAttributes
from atomr_native.libraries.memory.host import groups
from atomr_native.libraries.memory.recovery import BEGUN, DONE, TAG_BEGUN, WORDS
from atomr_native.memory.groups import DurableGroup, Groups
from atomr_native.protocol.messages import GroupAnswer

pytestmark = [pytest.mark.plain, pytest.mark.alike]

_OFFSETS = (0, 256)
_A, _B, _SHADOW, _HEADER = (0, 64), (0, 192), (1, 128), (2, 8)


class Memory:
    """Segments, and a group of two float64 members in them."""

    def __init__(self, *, checksum: bool = True) -> None:
        self.segments = [np.zeros(1024, np.uint8) for _ in range(3)]
        self.a, self.b = (self.array(*place, np.dtype(np.float64), (10,)) for place in (_A, _B))
        self.shadow = self.array(*_SHADOW, np.dtype(np.uint8), (512,))
        self.header = self.array(*_HEADER, np.dtype(np.int64), (WORDS,))
        self.checksum = checksum
        spec: Any = SimpleNamespace(attributes=GroupAttributes(_OFFSETS, checksum, 1))
        context: Any = None
        self._commit, self._restore = groups.build_commit(spec, context), groups.build_restore(spec, context)

    def array(self, segment: int, offset: int, dtype: Any, shape: tuple[int, ...], _: Any = None) -> Any:
        """Return memory as a worker's lanes do."""
        return self.segments[segment][offset : offset + dtype.itemsize * shape[0]].view(dtype)

    def fill(self, value: float) -> None:
        self.a[:], self.b[:] = value, -value

    def holds(self, value: float) -> bool:
        return bool((self.a == value).all() and (self.b == -value).all())

    def commit(self, sequence: int, tag: int) -> None:
        self._commit.run((self.a, self.b, self.shadow, self.header), (sequence, tag))

    def restore(self) -> None:
        self._restore.run((self.a, self.b, self.shadow, self.header), ())

    def recover(self, *, dirty: bool) -> dict[str, Any]:
        """Have a new worker find the group."""
        members = [[*place, 80, offset] for place, offset in zip((_A, _B), _OFFSETS, strict=True)]
        described = {"header": _HEADER, "shadow": _SHADOW, "members": members}
        [found] = groups.recover(self, [described | {"checksum": self.checksum, "dirty": dirty}])
        return dict(found)


def committed(*, checksum: bool = True) -> Memory:
    memory = Memory(checksum=checksum)
    memory.fill(1.0)
    memory.commit(4, 40)
    return memory


def answer(sequence: int = 4, tag: int = 40, *, damaged: bool = False, strayed: bool = False) -> dict[str, Any]:
    return {"sequence": sequence, "tag": tag, "damaged": damaged, "strayed": strayed}


@pytest.mark.parametrize("checksum", [False, True])
def test_a_commit_is_restored(checksum: bool) -> None:
    memory = committed(checksum=checksum)
    memory.fill(2.0)
    memory.restore()
    assert memory.holds(1.0)


def test_nothing_is_restored_without_a_complete_commit() -> None:
    memory = Memory()
    memory.fill(2.0)
    with pytest.raises(InvalidRequest, match="nothing to restore"):
        memory.restore()
    memory.commit(4, 40)
    memory.header[BEGUN] = 5
    memory.fill(3.0)
    with pytest.raises(InvalidRequest, match="nothing to restore"):
        memory.restore()
    assert memory.holds(3.0)


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("dirty", [False, True])
def test_members_that_may_be_half_written_go_back(dirty: bool, checksum: bool) -> None:
    memory = committed(checksum=checksum)
    assert memory.recover(dirty=dirty) == answer()
    memory.fill(2.0)
    assert memory.recover(dirty=dirty) == answer(strayed=checksum and not dirty)
    assert memory.holds(1.0 if dirty else 2.0)  # restore() brings back what strayed
    memory.restore()
    assert memory.holds(1.0)


@pytest.mark.parametrize("member", [0, 1])
def test_a_damaged_shadow_is_made_good_from_unchanged_members(member: int) -> None:
    memory = committed()
    memory.shadow[_OFFSETS[member]] ^= 1
    assert memory.recover(dirty=False) == answer()
    memory.fill(2.0)
    memory.restore()
    assert memory.holds(1.0)


@pytest.mark.parametrize("dirty", [False, True])
@pytest.mark.parametrize("member", [0, 1])
def test_a_damaged_shadow_is_not_loaded(member: int, dirty: bool) -> None:
    memory = committed()
    memory.shadow[_OFFSETS[member]] ^= 1
    memory.fill(2.0)
    assert memory.recover(dirty=dirty) == answer(damaged=True, strayed=not dirty)
    assert memory.holds(2.0)


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_a_commit_that_has_begun_is_completed(before: bool, checksum: bool) -> None:
    memory = committed(checksum=checksum) if before else Memory(checksum=checksum)
    memory.fill(2.0)
    memory.header[TAG_BEGUN], memory.header[BEGUN] = 50, 5
    assert memory.recover(dirty=True) == answer(5, 50)
    assert memory.header[DONE] == 5
    memory.fill(3.0)
    assert memory.recover(dirty=True) == answer(5, 50)  # its checksum is that of what it holds
    assert memory.holds(2.0)


def test_a_commit_is_done_after_it_is_saved() -> None:
    """A shadow that cannot be written leaves a commit that has begun."""
    memory = committed()
    memory.fill(2.0)
    memory.shadow.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        memory.commit(5, 50)
    assert (memory.header[BEGUN], memory.header[DONE]) == (5, 4)


def test_a_group_without_a_commit_stays() -> None:
    memory = Memory()
    memory.fill(2.0)
    assert memory.recover(dirty=True) == answer(0, 0)
    assert memory.holds(2.0)


# ---- what the parent knows


def parent(*, done: int = 0, begun: int = 0) -> DurableGroup:
    """Return a group that has sent so many commits, without a device."""
    group = object.__new__(DurableGroup)
    group._lock = Lock(leaf=True)
    group._open = deque()
    group._done, group._begun, group._damaged = (done, 10 * done), begun, 0
    return group


@pytest.mark.parametrize("sequence", range(8))
def test_only_commits_that_were_sent_are_believed(sequence: int) -> None:
    group = parent(done=3, begun=5)
    possible = 3 <= sequence <= 6  # the last: the commit that is being sent, which may have run
    assert group.recovered(GroupAnswer(sequence, 10 * sequence, False, False)) is not possible
    assert (group.sequence, group.tag) == ((sequence, 10 * sequence) if possible else (3, 30))
    assert group._damaged == (0 if possible else 5)


def test_a_commit_that_is_damaged_is_lost() -> None:
    group = parent(done=3, begun=5)
    assert group.recovered(GroupAnswer(4, 40, True, False))
    assert (group.sequence, group._damaged) == (4, 4)


def test_failed_commits_do_not_count() -> None:
    group = parent()
    for sequence, error in enumerate([None, ValueError("it failed"), None, ValueError("it failed")], 1):
        reply: Any = SimpleNamespace(done=lambda: True, exception=lambda error=error: error)
        group._open.append((sequence, 10 * sequence, reply))
        assert (group.sequence, group.tag) == ((1, 10) if sequence < 3 else (3, 30))


def test_groups_whose_memory_is_gone_are_not_recovered() -> None:
    class Known:
        def __init__(self, number: int, *, is_whole: bool) -> None:
            self.number, self.is_whole = number, is_whole

        def describe(self, *, dirty: bool) -> dict[str, Any]:
            return {"number": self.number, "dirty": dirty}

    owner: Any = None
    known: Any = {i: Known(i, is_whole=i != 2) for i in (1, 2, 3)}
    of_device = Groups(owner)
    of_device._groups.update(known)
    assert of_device.descriptions({2, 3}) == [{"number": 1, "dirty": False}, {"number": 3, "dirty": True}]
