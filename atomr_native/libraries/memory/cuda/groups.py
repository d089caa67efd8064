"""Durable groups on CUDA: commit and restore as kernels.

The header is that of `libraries.memory.recovery`.  A commit is three launches, in order on one stream: "begun", the
copy of the members into the shadow, and tag, checksum and "done".  The checksum is a sum, modulo 2**64, of one mixed
number for each 8-byte word of the members (the last one padded with zeros), which depends on the word and on its place
in the shadow; so it has no order of its own.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final, cast

import numpy as np

from ....builders.context import Built
from ....builders.cuda.codegen import THREADS, kernels
from ....builders.cuda.context import CudaContext
from ....builders.cuda.target import Argument, KernelProgram, Launch, Target
from ....dtypes import as_dtype
from ....errors import InvalidRequest
from ....plans.spec import PlanSpec
from ..attributes import GroupAttributes
from ..recovery import BEGUN, CHECKSUM, DONE, TAG, TAG_BEGUN

__all__ = ["build_checksum", "build_commit", "build_restore", "checksum", "committed", "signed"]

_ALIGN: Final = 16
_GOLDEN, _MIX = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
_LACKING: Final = "no commit of this group is complete, so there is nothing to restore"
#: Blocks of a copy, per multiprocessor.
_BLOCKS: Final = 8

_COPY = f"""\
typedef struct ALIGNED(16) {{ u64 low, high; }} words;
DEVICE u64 mixed(u64 word, u64 place) {{
  u64 z = word ^ ((place + 1) * {_GOLDEN:#x}ull);
  z = (z ^ (z >> 32)) * {_MIX:#x}ull;
  z = (z ^ (z >> 32)) * {_MIX:#x}ull;
  return z ^ (z >> 32);
}}
/* Copies all of it, if there is a target, by all threads of the grid; returns this thread's part of the checksum. */
OUTLINE u64 copy(const unsigned char *from, unsigned char *to, u64 nbytes, u64 place) {{
  u64 sum = 0, step = thread_count(), vectors = nbytes / 16;
  for (u64 v = thread_index(); v < vectors; v += step) {{
    const words w = ((const words *)from)[v];
    if (to) ((words *)to)[v] = w;
    sum += mixed(w.low, place + 2 * v) + mixed(w.high, place + 2 * v + 1);
  }}
  if (thread_index() == 0)
    for (u64 start = vectors * 16; start < nbytes; start += 8) {{
      u64 word = 0;
      for (u64 i = start; i < nbytes && i < start + 8; i++) {{
        if (to) to[i] = from[i];
        word |= (u64)from[i] << (8 * (i - start));
      }}
      sum += mixed(word, place + start / 8);
    }}
  return sum;
}}
"""
_TOTAL = f"""\
SHARED u64 all[{THREADS}];
all[threadIdx.x] = sum;
SYNC();
for (unsigned int half = {THREADS // 2}; half; half >>= 1) {{
  if (threadIdx.x < half) all[threadIdx.x] += all[threadIdx.x + half];
  SYNC();
}}
"""


def _sizes(spec: PlanSpec[GroupAttributes]) -> list[int]:
    """Return the bytes of each member; refuse what the kernels cannot copy in vectors."""
    sizes = []
    for member, offset in zip(spec.operands[:-2], spec.attributes.offsets, strict=True):
        step = as_dtype(member.dtype).itemsize
        for extent, stride in zip(reversed(member.shape), reversed(member.strides), strict=True):
            if extent > 1 and stride != step:
                raise InvalidRequest(
                    f"{member.name} has strides {member.strides}; allowed in a group: C-contiguous arrays"
                )
            step *= extent
        if offset % _ALIGN:
            raise InvalidRequest(f"{member.name} has offset {offset} in the shadow; allowed: multiples of {_ALIGN}")
        sizes.append(step)
    return sizes


def _grid(total: int, target: Target) -> int:
    return max(1, min(-(-total // (_ALIGN * THREADS)), target.sm_count * _BLOCKS))


def _build(
    spec: PlanSpec[GroupAttributes], lines: list[str], launches: list[Launch], workspace: int, target: Target
) -> Built:
    count = len(spec.operands) - 2
    source = _COPY + "\n".join(lines) + "\n"
    alignments = [*[_ALIGN] * count, _ALIGN, 8]
    built = kernels(source, launches, target, dtypes=(), alignments=alignments, workspace=workspace)
    mark = committed(spec.attributes.number)
    marks: dict[str, Any] = {"sets": mark} if spec.op == "group.commit" else {"needs": mark, "lacking": _LACKING}
    return dataclasses.replace(built, run=dataclasses.replace(cast("KernelProgram", built.run), **marks))


def committed(number: int) -> str:
    """Return the name of the mark that says of a group that there is something to restore."""
    return f"group {number} is committed"


def build_commit(spec: PlanSpec[GroupAttributes], context: CudaContext) -> Built:
    """Build ``group.commit``: operands are the members, the shadow, the header; scalars ``sequence, tag``.

    Whole allocations, as members and shadow are, have the alignment of 16 bytes that the kernels need.
    """
    sizes, checked = _sizes(spec), spec.attributes.checksum
    count, blocks = len(sizes), _grid(sum(sizes), context.target)
    members: tuple[Argument, ...] = tuple(("operand", i) for i in range(count))
    shadow: Argument = ("operand", count)
    header: Argument = ("operand", count + 1)
    sums: Argument = ("workspace", 0)
    parameters = "".join(f"const unsigned char *m{i}, " for i in range(count))
    lines = [
        "KERNEL begin(volatile long long *header, long long sequence, long long tag) {",
        "AWAIT_LAUNCH();",
        "if (thread_index()) return;",
        f"header[{TAG_BEGUN}] = tag;",
        "FENCE();",
        f"header[{BEGUN}] = sequence;",
        "}",
        f"KERNEL save({parameters}unsigned char *shadow, u64 *sums) {{",
        "AWAIT_LAUNCH();",
        "u64 sum = 0;",
        *(f"sum += copy(m{i}, shadow + {offset}u, {size}u, {offset // 8}u);"
          for i, (size, offset) in enumerate(zip(sizes, spec.attributes.offsets, strict=True))),
        *([_TOTAL, "if (threadIdx.x == 0) sums[blockIdx.x] = all[0];"] if checked else ["(void)sums; (void)sum;"]),
        "}",
        "KERNEL finish(volatile long long *header, const u64 *sums, long long sequence, long long tag) {",
        "AWAIT_LAUNCH();",
        "u64 sum = 0;",
        *([f"for (unsigned int i = threadIdx.x; i < {blocks}u; i += {THREADS}u) sum += sums[i];", _TOTAL,
           "sum = all[0];"] if checked else ["(void)sums;"]),
        "if (thread_index()) return;",
        f"header[{CHECKSUM}] = (long long)sum;",
        f"header[{TAG}] = tag;",
        "FENCE();",
        f"header[{DONE}] = sequence;",
        "}",
    ]  # fmt: skip
    one = (1, 1, 1)
    threads = (THREADS, 1, 1)
    launches = [
        Launch("begin", one, one, 0, (header, ("int64", 0), ("int64", 1))),
        Launch("save", (blocks, 1, 1), threads, 0, (*members, shadow, sums)),
        Launch("finish", one, threads, 0, (header, sums, ("int64", 0), ("int64", 1))),
    ]
    if checked:
        build_checksum(context.target)  # so that no restart waits for the compiler
    return _build(spec, lines, launches, 8 * blocks, context.target)


def build_restore(spec: PlanSpec[GroupAttributes], context: CudaContext) -> Built:
    """Build ``group.restore``: operands are the members, the shadow, the header.

    Its message fails where no commit has been enqueued before.
    """
    sizes = _sizes(spec)
    count = len(sizes)
    parameters = "".join(f"unsigned char *m{i}, " for i in range(count))
    lines = [
        f"KERNEL load({parameters}const unsigned char *shadow, const long long *header) {{",
        "AWAIT_LAUNCH();",
        f"if (header[{DONE}] == 0 || header[{BEGUN}] != header[{DONE}]) return;",
        *(f"copy(shadow + {offset}u, m{i}, {size}u, {offset // 8}u);"
          for i, (size, offset) in enumerate(zip(sizes, spec.attributes.offsets, strict=True))),
        "}",
    ]  # fmt: skip
    arguments: tuple[Argument, ...] = tuple(("operand", i) for i in range(count + 2))
    launch = Launch("load", (_grid(sum(sizes), context.target), 1, 1), (THREADS, 1, 1), 0, arguments)
    return _build(spec, lines, [launch], 0, context.target)


def build_checksum(target: Target) -> tuple[KernelProgram, int]:
    """Build what adds up a checksum on the device; also returns its number of blocks.

    Operands are an address (a multiple of 16), the number of bytes, the offset in the shadow divided by 8, and the
    address of as many 64-bit words as there are blocks, which get a part of the sum each.
    """
    blocks = target.sm_count * _BLOCKS
    lines = [
        "KERNEL add_up(const unsigned char *from, u64 nbytes, u64 place, u64 *sums) {",
        "AWAIT_LAUNCH();",
        "u64 sum = copy(from, (unsigned char *)0, nbytes, place);",
        _TOTAL,
        "if (threadIdx.x == 0) sums[blockIdx.x] = all[0];",
        "}",
    ]
    arguments: tuple[Argument, ...] = tuple(("operand", i) for i in range(4))
    launch = Launch("add_up", (blocks, 1, 1), (THREADS, 1, 1), 0, arguments)
    built = kernels(_COPY + "\n".join(lines) + "\n", [launch], target, dtypes=(), alignments=[])
    return cast("KernelProgram", built.run), blocks


def checksum(data: bytes | memoryview, offset: int) -> int:
    """Return what bytes at `offset` of the shadow (a multiple of 8) add to the checksum of a group, modulo 2**64."""
    padded = np.zeros(-(-len(data) // 8), np.uint64)
    padded.view(np.uint8)[: len(data)] = np.frombuffer(data, np.uint8)
    with np.errstate(over="ignore"):
        place = np.arange(offset // 8 + 1, offset // 8 + 1 + len(padded), dtype=np.uint64)
        z = padded ^ (place * np.uint64(_GOLDEN))
        for _ in range(2):
            z = (z ^ (z >> np.uint64(32))) * np.uint64(_MIX)
        return int((z ^ (z >> np.uint64(32))).sum(dtype=np.uint64))


def signed(total: int) -> int:
    """Return a sum of checksums as the header has it: an int64."""
    return (total + 2**63) % 2**64 - 2**63
