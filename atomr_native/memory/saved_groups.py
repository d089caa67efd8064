"""The last commit of a durable group, outside of its device: in a file, or in the memory of another device."""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .._support.public import public
from ..arrays.layout import layout_of
from ..dtypes import as_dtype
from ..errors import InvalidRequest

if TYPE_CHECKING:
    from ..arrays.gpu_ref import GpuRef

__all__ = ["SavedGroup", "read_file", "write_file"]

_MAGIC = b"atomr_native group 1\n"
_LENGTH = 8  # bytes of the header's length, little-endian
_LONGEST = 1 << 24


class _Array(Protocol):
    def numpy(self) -> np.ndarray[Any, Any]: ...


@public
@dataclass(frozen=True, eq=False)
class SavedGroup:
    """A commit of a durable group that `DurableGroup.save` has copied; `DurableGroup.load` takes it.

    Attributes
    ----------
    tag : int
        The tag of the commit.
    members : dict of str to tuple
        The shape and the dtype's name of each member.
    data : pathlib.Path, GpuRef or RemoteRef
        Where the bytes are.  Those on a device are freed with the handle.
    checksum : int
        CRC-32 of the bytes.

    Examples
    --------
    >>> group = device.durable_group({"w": device.put([1.0, 2.0], durable=True)})
    >>> _ = group.commit(tag=7)
    >>> saved: an.SavedGroup = group.save(device)
    >>> saved.members
    {'w': ((2,), 'float64')}
    """

    tag: int
    members: dict[str, tuple[tuple[int, ...], str]]
    data: Path | _Array
    checksum: int

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Read the members, as NumPy arrays.  Waits.

        Raises
        ------
        InvalidRequest
            If the bytes are not those that were saved.
        GpuRefStale
            If the memory with the bytes is gone.
        OSError
            If the file cannot be read.
        """
        blob = _blob_of(self.data) if isinstance(self.data, Path) else self.data.numpy()
        if zlib.crc32(blob.data) != self.checksum:
            raise InvalidRequest(f"{self!r} is damaged: its bytes have another checksum")
        found, at = {}, 0
        for name, (shape, dtype) in self.members.items():
            layout = layout_of(tuple(shape), as_dtype(dtype))
            found[name] = blob[at : at + layout.nbytes].view(layout.dtype).reshape(layout.shape)
            at += layout.nbytes
        return found

    def check(self, members: Mapping[str, GpuRef]) -> None:
        """Raise `InvalidRequest` unless a group has the same members."""
        theirs = {name: (tuple(ref.shape), ref.layout.dtype_name) for name, ref in members.items()}
        mine = {name: (tuple(shape), dtype) for name, (shape, dtype) in self.members.items()}
        for name in {**theirs, **mine}:
            if theirs.get(name) != mine.get(name):
                raise InvalidRequest(
                    f"member {name!r} is {_text(theirs.get(name))} in the group, and {_text(mine.get(name))} in what "
                    f"was saved; they must be equal"
                )

    def __repr__(self) -> str:
        return f"<SavedGroup of {', '.join(self.members)}; tag {self.tag}, {self.data!r}>"


def _text(member: tuple[tuple[int, ...], str] | None) -> str:
    return "missing" if member is None else f"{member[1]}{list(member[0])}"


def write_file(path: str | os.PathLike[str], saved: SavedGroup, blob: np.ndarray[Any, Any]) -> SavedGroup:
    """Write a commit to a file, which is replaced at once or not at all; return where it is."""
    target = Path(path).absolute()
    header = json.dumps({"tag": saved.tag, "members": saved.members, "checksum": saved.checksum}).encode()
    half = target.with_name(f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with half.open("xb") as file:
            file.write(_MAGIC + len(header).to_bytes(_LENGTH, "little") + header)
            file.write(blob.data)
            file.flush()
            os.fsync(file.fileno())
        half.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            half.unlink()
        raise
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return SavedGroup(saved.tag, saved.members, target, saved.checksum)


def read_file(path: str | os.PathLike[str]) -> SavedGroup:
    """Return what a file has, without its bytes.

    Raises
    ------
    InvalidRequest
        If it is not a file that `write_file` wrote.
    OSError
        If it cannot be read.
    """
    target = Path(path).absolute()
    try:
        header, _ = _header_of(target)
        members = {
            str(name): (tuple(map(int, shape)), str(dtype)) for name, (shape, dtype) in header["members"].items()
        }
        return SavedGroup(int(header["tag"]), members, target, int(header["checksum"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidRequest(f"{str(target)!r} is not a file of a saved group, or is damaged") from None


def _header_of(path: Path) -> tuple[dict[str, Any], int]:
    """Return the header, and where the bytes begin."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ValueError
        length = int.from_bytes(file.read(_LENGTH), "little")
        if length > _LONGEST:
            raise ValueError
        found: dict[str, Any] = json.loads(file.read(length))
        return found, file.tell()


def _blob_of(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    try:
        _, begin = _header_of(path)
    except ValueError:
        raise InvalidRequest(f"{str(path)!r} is not a file of a saved group, or is damaged") from None
    # Not `numpy.fromfile`: it looks for interrupts where it does not expect them, and raises SystemError then.
    with path.open("rb") as file:
        file.seek(begin)
        blob = np.empty(max(os.fstat(file.fileno()).st_size - begin, 0), np.uint8)
        return blob[: file.readinto(blob.data)]
