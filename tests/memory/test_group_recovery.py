"""Commits, restores and recovery of durable groups on memory of this process, case by case."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from atomr_native.errors import InvalidRequest
from atomr_native.libraries.memory.attributes import GroupAttributes
from atomr_native.libraries.memory.host import groups
from atomr_native.libraries.memory.recovery import BEGUN, DONE, TAG_BEGUN, WORDS

pytestmark = pytest.mark.plain

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
