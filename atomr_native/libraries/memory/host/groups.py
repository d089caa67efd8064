"""Durable groups on the host: commit, restore, and the memory in which a new worker recovers them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....builders.context import Built, HostContext
from ....errors import InvalidRequest
from ....plans.spec import PlanSpec
from .. import recovery
from ..attributes import GroupAttributes
from ..recovery import BEGUN, CHECKSUM, DONE, TAG, TAG_BEGUN

__all__ = ["build_commit", "build_restore", "recover"]

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Arrays = tuple[np.ndarray[Any, Any], ...]


def _bytes_of(array: np.ndarray[Any, Any]) -> _Bytes:
    return array.reshape(-1).view(np.uint8)


def _save(members: Sequence[_Bytes], offsets: Sequence[int], shadow: _Bytes) -> None:
    for member, offset in zip(members, offsets, strict=True):
        shadow[offset : offset + member.size] = member


def _load(members: Sequence[_Bytes], offsets: Sequence[int], shadow: _Bytes) -> None:
    for member, offset in zip(members, offsets, strict=True):
        member[...] = shadow[offset : offset + member.size]


def _checksum(members: Sequence[_Bytes], offsets: Sequence[int], shadow: _Bytes) -> int:
    value = 0
    for member, offset in zip(members, offsets, strict=True):
        value = zlib.crc32(shadow[offset : offset + member.size].data, value)
    return value


def build_commit(spec: PlanSpec[GroupAttributes], _context: HostContext) -> Built:
    """Return the run of ``group.commit``: operands are the members, the shadow, the header."""
    offsets, checked = spec.attributes.offsets, spec.attributes.checksum

    def run(arrays: _Arrays, scalars: tuple[float | int, ...]) -> None:
        members, shadow, header = [_bytes_of(a) for a in arrays[:-2]], arrays[-2], arrays[-1]
        header[TAG_BEGUN] = scalars[1]
        header[BEGUN] = scalars[0]
        _save(members, offsets, shadow)
        header[CHECKSUM] = _checksum(members, offsets, shadow) if checked else 0
        header[TAG] = scalars[1]
        header[DONE] = scalars[0]

    return Built(run)


def build_restore(spec: PlanSpec[GroupAttributes], _context: HostContext) -> Built:
    """Return the run of ``group.restore``."""
    offsets = spec.attributes.offsets

    def run(arrays: _Arrays, _: tuple[float | int, ...]) -> None:
        header = arrays[-1]
        if header[DONE] == 0 or header[BEGUN] != header[DONE]:
            raise InvalidRequest("no commit of this group is complete, so there is nothing to restore")
        _load([_bytes_of(a) for a in arrays[:-2]], offsets, arrays[-2])

    return Built(run)


class _Memory:
    """Device memory as the worker's lanes have mapped it."""

    def __init__(self, lanes: Any) -> None:
        self._lanes = lanes

    def _bytes(self, place: tuple[int, int], nbytes: int) -> _Bytes:
        found: _Bytes = self._lanes.array(*place, np.dtype(np.uint8), (nbytes,), (1,))
        return found

    def read(self, place: tuple[int, int], nbytes: int) -> bytes:
        return self._bytes(place, nbytes).tobytes()

    def write(self, place: tuple[int, int], data: bytes) -> None:
        self._bytes(place, len(data))[...] = np.frombuffer(data, np.uint8)

    def copy(self, source: tuple[int, int], target: tuple[int, int], nbytes: int) -> None:
        self._bytes(target, nbytes)[...] = self._bytes(source, nbytes)

    def checksum(self, total: int, place: tuple[int, int], nbytes: int, _: int, /) -> int:
        return zlib.crc32(self._bytes(place, nbytes).data, total)


def recover(lanes: Any, described: list[Any]) -> list[Any]:
    """Bring every group to its last commit before the lanes run; see `libraries.memory.recovery.recover`."""
    return recovery.recover(_Memory(lanes), described)
