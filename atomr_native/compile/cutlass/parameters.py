"""Parameters of CUTLASS's kernels: built by CUTLASS's own code, on the CPU, for addresses that are not known yet.

Addresses are markers, and so are numbers that a message decides.  The bytes that come out are a template: it says where
each of them belongs, and which tensor maps the driver must encode.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ...errors import InvalidRequest, Unsupported
from .ptx import Function

__all__ = ["Built", "TensorMapRecord", "parameters"]

_HEAD: Final = struct.Struct("<i9I2I2Q")
_DATA: Final = 256
_SIZE: Final = _DATA + 4096
_MAP: Final = struct.Struct("<QQ5Q4Q5I5B3B12x")
_MARK: Final = 0x50414D524D4F5441
_ADDRESS: Final = 0x5A5A
_FORMATS: Final = {"int32": "i", "int64": "q", "float32": "f", "float64": "d"}
_RANGES: Final = {"int32": 1 << 31, "int64": 1 << 63}
#: Patterns of numbers that a message decides: negative NaNs with a number of their own.
_SCALARS: Final = {"float32": ("<I", 0xFFB5A500, 4), "float64": ("<Q", 0xFFF5A5A5B5B5A500, 8)}


class TensorMapRecord(NamedTuple):
    """Arguments of ``cuTensorMapEncodeTiled``, for a map at an offset of the parameters.

    Attributes
    ----------
    offset : int
        Bytes.
    pointer : str
    addend : int
        Bytes between the pointer and the map's first element.
    dtype : int
        ``CUtensorMapDataType``, and so for `swizzle`, `interleave`, `l2_promotion` and `oob_fill`.
    rank : int
    dims : tuple of int
        Extents, of the contiguous axis first.
    strides : tuple of int
        Bytes, of the second axis first.
    box, element_strides : tuple of int
    swizzle, interleave, l2_promotion, oob_fill : int
    """

    offset: int
    pointer: str
    addend: int
    dtype: int
    rank: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: int
    interleave: int = 0
    l2_promotion: int = 2
    oob_fill: int = 0


class Built(NamedTuple):
    """Parameters of a launch, but for addresses and numbers of the message.

    Attributes
    ----------
    can_implement : bool
        Whether CUTLASS accepts the problem: extents and strides fit the kernel's alignments.
    data : bytes
        With zeros where the following belong.
    relocations : tuple of (int, str, int)
        Offset in bytes, name of the pointer, bytes to add.
    scalars : tuple of (int, str, str)
        Offset in bytes, name, dtype.
    maps : tuple of TensorMapRecord
    grid, block, cluster : tuple of int
    shared_bytes, workspace_bytes : int
    zeroed_bytes : int
        Of the workspace, from its start: they must be 0 when the kernel begins.
    """

    can_implement: bool
    data: bytes
    relocations: tuple[tuple[int, str, int], ...]
    scalars: tuple[tuple[int, str, str], ...]
    maps: tuple[TensorMapRecord, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int
    workspace_bytes: int
    zeroed_bytes: int = 0


@functools.lru_cache(maxsize=64)
def _function(builder: bytes, name: str) -> Function:
    return Function(builder.decode("latin-1"), name)


def parameters(
    builder: bytes,
    fields: Sequence[tuple[str, str]],
    pointers: Sequence[str],
    scalars: Sequence[str],
    values: Mapping[str, float],
    *,
    name: str = "atomr_build",
) -> Built:
    """Return the parameters for a problem.  Takes milliseconds, and needs no GPU.

    Parameters
    ----------
    builder : bytes
        PTX of the function that builds them.
    fields : sequence of (str, str)
        Numbers that it takes, in order: name and dtype.
    pointers : sequence of str
        Addresses that it takes before them.
    scalars : sequence of str
        Fields that a message decides.
    values : mapping of str to number
        The other fields.
    name : str
        The function's name.

    Raises
    ------
    InvalidRequest
        If a number is missing, or does not fit its type.
    Unsupported
        If the builder contains an instruction that only a GPU can run, or an address or a number has no place in the
        parameters.
    """
    decided = dict(fields)
    given = bytearray(b"".join(struct.pack("<Q", _marker(i)) for i in range(len(pointers))))
    for field, dtype in fields:
        if field in scalars:
            layout, pattern, _ = _SCALARS[dtype]
            given += struct.pack(layout, pattern + scalars.index(field))
        else:
            given += struct.pack(f"<{_FORMATS[dtype]}", _checked(values, field, dtype))
    result = _function(builder, name)(bytes(given) + bytes(8), _SIZE)
    accepted, *head = _HEAD.unpack_from(result)
    shared, size, workspace, zeroed = head[9:]
    data = bytearray(result[_DATA : _DATA + size])
    maps = _take_maps(data, pointers)
    relocations = _take_addresses(data, pointers)
    places = [place for field in scalars for place in _take_scalar(data, field, decided[field], scalars.index(field))]
    return Built(
        bool(accepted), bytes(data), relocations, tuple(places), maps, tuple(head[0:3]), tuple(head[3:6]),
        tuple(head[6:9]), shared, workspace, zeroed,
    )  # fmt: skip


def _marker(index: int) -> int:
    return _ADDRESS << 48 | (index + 1) << 40


def _checked(values: Mapping[str, float], field: str, dtype: str) -> float:
    if field not in values:
        raise InvalidRequest(f"the parameters lack {field!r}; given: {', '.join(sorted(values))}")
    value = values[field]
    most = _RANGES.get(dtype)
    if most is not None and not -most <= value < most:
        raise InvalidRequest(f"{field}={value}; allowed: {-most} to {most - 1}")
    return value


def _pointer(address: int, pointers: Sequence[str]) -> tuple[str, int] | None:
    """Return the name of a marked address, and its distance from the marker."""
    index = (address >> 40 & 0xFF) - 1
    if address >> 48 != _ADDRESS or not 0 <= index < len(pointers):
        return None
    return pointers[index], address & (1 << 40) - 1


def _take_maps(data: bytearray, pointers: Sequence[str]) -> tuple[TensorMapRecord, ...]:
    """Return the tensor maps, and clear their places."""
    found = []
    for offset in range(0, len(data) - _MAP.size + 1, 64):
        mark, address, *rest = _MAP.unpack_from(data, offset)
        if mark != _MARK:
            continue
        pointer = _pointer(address, pointers)
        if pointer is None:
            raise Unsupported(f"a tensor map of the kernel has an address that is not known, {address:#x}")
        dtype, rank, swizzle = rest[19:22]
        found.append(
            TensorMapRecord(
                offset, *pointer, dtype, rank, tuple(rest[0:rank]), tuple(rest[5 : 4 + rank]),
                tuple(rest[9 : 9 + rank]),
                tuple(rest[14 : 14 + rank]), swizzle,
            )
        )  # fmt: skip
        data[offset : offset + _MAP.size] = bytes(_MAP.size)
    return tuple(found)


def _take_addresses(data: bytearray, pointers: Sequence[str]) -> tuple[tuple[int, str, int], ...]:
    """Return the places of addresses, and clear them."""
    found = []
    for offset in range(0, len(data) - 7, 8):
        pointer = _pointer(int.from_bytes(data[offset : offset + 8], "little"), pointers)
        if pointer is not None:
            found.append((offset, *pointer))
            data[offset : offset + 8] = bytes(8)
    return tuple(found)


def _take_scalar(data: bytearray, field: str, dtype: str, index: int) -> list[tuple[int, str, str]]:
    """Return the places of a number that a message decides, and clear them."""
    layout, pattern, size = _SCALARS[dtype]
    wanted = struct.pack(layout, pattern + index)
    places = [offset for offset in range(0, len(data) - size + 1, size) if data[offset : offset + size] == wanted]
    if not places:
        raise Unsupported(f"the kernel's parameters have no place for {field!r}")
    for offset in places:
        data[offset : offset + size] = bytes(size)
    return [(offset, field, dtype) for offset in places]
