"""The calls of NCCL that make up a rank's part of a collective.

NCCL has gather, scatter and all-to-all only from 2.28 on, and no uneven ones.  Here they are sends and receives, which
every version has: each pair of ranks agrees on its bytes, so a pair without any makes no call.  All-to-all of equal
parts is NCCL's own where the library has it: that can use copy engines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from ...._lib.nccl import CONSTANTS, ENGINES_VERSION
from ....builders.cuda.native import NativeStruct
from ....dtypes import as_dtype
from ....errors import InvalidRequest
from ..attributes import Step

__all__ = ["NcclCall", "calls_of", "is_even"]

_TYPES = {
    "int8": "Int8", "uint8": "Uint8", "int32": "Int32", "uint32": "Uint32", "int64": "Int64", "uint64": "Uint64",
    "float16": "Float16", "bfloat16": "Bfloat16", "float32": "Float32", "float64": "Float64",
    "float8_e4m3fn": "Float8e4m3", "float8_e5m2": "Float8e5m2",
}  # fmt: skip
_BYTES = CONSTANTS["ncclUint8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclCall(NativeStruct):
    """A call with the members of ``atomr_nccl_call``."""

    kind: int
    dtype: int = _BYTES
    op: int = 0
    count: int
    peer: int = 0
    x: int = -1
    x_offset: int = 0
    out: int = -1
    out_offset: int = 0
    factor: int = -1
    number: int = -1


def _reduction(kind: str, step: Step) -> NcclCall:
    return NcclCall(
        kind=CONSTANTS[f"ATOMR_NCCL_{kind}"],
        dtype=CONSTANTS[f"nccl{_TYPES[step.dtype]}"],
        op=CONSTANTS[f"nccl{step.op.capitalize()}"],
        count=step.count,
        peer=step.root,
        x=step.x,
        out=step.out,
        factor=step.factor,
        number=step.number,
    )


def _moves(step: Step, rank: int, sizes: list[list[int]]) -> Iterator[NcclCall]:
    """Yield the sends and receives of a rank; `sizes` are bytes from each rank to each rank."""
    given = [0, *accumulate(sizes[rank])]
    taken = [0, *accumulate(row[rank] for row in sizes)]
    for peer in range(len(sizes)):
        if n := sizes[rank][peer]:
            yield NcclCall(kind=CONSTANTS["ATOMR_NCCL_SEND"], count=n, peer=peer, x=step.x, x_offset=given[peer])
        if n := sizes[peer][rank]:
            yield NcclCall(
                kind=CONSTANTS["ATOMR_NCCL_RECEIVE"], count=n, peer=peer, out=step.out, out_offset=taken[peer]
            )


def _sizes(step: Step, size: int) -> list[list[int]]:
    """Return the bytes that go from each rank to each rank."""
    nbytes = step.count * as_dtype(step.dtype).itemsize
    ranks = range(size)
    if step.kind == "gather":
        return [[nbytes if target == step.root else 0 for target in ranks] for _ in ranks]
    if step.kind == "scatter":
        return [[nbytes if source == step.root else 0 for _ in ranks] for source in ranks]
    if step.kind == "send":
        return [[nbytes if (i, j) == (step.root, step.target) else 0 for j in ranks] for i in ranks]
    return [[n * as_dtype(step.dtype).itemsize for n in row] for row in step.counts]


def is_even(step: Step) -> bool:
    """Whether every rank sends as much to every rank."""
    return len({n for row in step.counts for n in row}) == 1


def calls_of(step: Step, rank: int, size: int, version: int = 0) -> list[NcclCall]:
    """Return a rank's calls of a step, to a version of NCCL; none, on all ranks, if nothing moves."""
    if step.kind in ("barrier", "connect") or not step.count:
        return []
    if step.kind in ("all_reduce", "reduce", "reduce_scatter"):
        return [_reduction(step.kind.upper(), step)]
    nbytes = step.count * as_dtype(step.dtype).itemsize
    if step.kind == "broadcast":
        return [NcclCall(kind=CONSTANTS["ATOMR_NCCL_BROADCAST"], count=nbytes, peer=step.root, x=step.x, out=step.out)]
    if step.kind == "all_gather":
        return [NcclCall(kind=CONSTANTS["ATOMR_NCCL_ALL_GATHER"], count=nbytes, x=step.x, out=step.out)]
    if step.kind in ("open_window", "close_window"):
        return [NcclCall(kind=CONSTANTS[f"ATOMR_NCCL_{step.kind.upper()}"], count=nbytes, x=step.x)]
    if step.kind == "all_to_all" and version >= ENGINES_VERSION and is_even(step):
        count = nbytes // size**2
        return [NcclCall(kind=CONSTANTS["ATOMR_NCCL_ALL_TO_ALL"], count=count, x=step.x, out=step.out)]
    if step.kind in ("gather", "scatter", "send", "all_to_all"):
        return list(_moves(step, rank, _sizes(step, size)))
    raise InvalidRequest(f"unknown collective {step.kind!r}")
