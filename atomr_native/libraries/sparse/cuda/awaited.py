"""C of kernels whose threads wait for elements that other threads compute.

An element that is not there yet is a NaN with bits of its own, so the value itself tells.  Groups of threads take
groups of elements in ascending order; an element may wait only for those before it, which threads that run have taken.
"""

from __future__ import annotations

from string import Template
from typing import Final

from .arithmetic import arithmetic

__all__ = ["GROUP", "TAKEN_BLOCKS", "awaited", "turn_bytes"]

#: Threads of a block, and blocks of a multiprocessor: as many threads as it holds.
GROUP: Final = 64
TAKEN_BLOCKS: Final = 32

_SOURCE: Final = Template("""\
#if defined(__CUDA_ARCH__)
#define TAKE(p) atomicAdd(p, 1ull)
#else
#define TAKE(p) ((*(p))++) /* blocks run one after the other, and so do threads between two SYNC() */
#endif
$bits
/* An element, if it is there. */
DEVICE bool there(const elem *at, elem *x) {
  const volatile word *const p = (const volatile word *)at;
  const word first = p[0], second = p[$parts - 1];
  if (first == ABSENT || second == ABSENT) return false;
  $read
  return true;
}
/* A result, whose bits are never those of an absent element. */
DEVICE void put(elem *at, elem x) {
  volatile word *const p = (volatile word *)at;
  $write
}
DEVICE void clear(elem *at) {
  word *const p = (word *)at;
  p[0] = ABSENT;
  p[$parts - 1] = ABSENT;
}
""")
_SINGLE: Final = """\
typedef unsigned int word;
#define ABSENT 0x7fdeadedu
#define BITS(x) float_bits(x)
#define REAL(w) bits_float(w)
"""
_DOUBLE: Final = """\
typedef u64 word;
#define ABSENT 0x7ffdeadeddeadeddull
#define BITS(x) ((u64)__double_as_longlong(x))
#define REAL(w) __longlong_as_double((long long)(w))
"""
_PUT: Final = "const word w{i} = BITS({x}); p[{i}] = w{i} == ABSENT ? ABSENT + 1 : w{i};"


def turn_bytes(batch: int) -> int:
    """Return the bytes of the workspace, for the numbers of groups that are taken of each matrix of a batch."""
    return -(-8 * batch // 256) * 256


def awaited(dtype: str) -> str:
    """Return the arithmetic of a dtype, with ``there``, ``put`` and ``clear`` of its elements, and ``TAKE``."""
    parts = ("x.re", "x.im") if dtype.startswith("complex") else ("x",)
    return arithmetic(dtype) + _SOURCE.substitute(
        bits=_SINGLE if dtype in ("float32", "complex64") else _DOUBLE,
        parts=len(parts),
        read="*x = REAL(first);" if len(parts) == 1 else "x->re = REAL(first); x->im = REAL(second);",
        write=" ".join(_PUT.format(i=i, x=part) for i, part in enumerate(parts)),
    )
