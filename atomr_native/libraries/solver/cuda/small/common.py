"""What the kernels for small matrices share: groups of lanes, numbers, and copies between memory and tiles.

Extents of matrices are constants of a module, so that a row or a column is in registers; strides and the batch are
arguments.  A block copies all matrices of its groups at once, so that its loads are of consecutive elements.
"""

from __future__ import annotations

from string import Template
from typing import Final

from ....._lib.sender import MAX_LANES

__all__ = ["LARGEST", "common", "lanes_for", "threads_for"]

#: Rows and columns of the largest matrix: those of the lanes of a warp.
LARGEST: Final = 32
#: Threads of a block, unless its tiles would take more shared memory than a block has without asking.
_THREADS: Final = 128
_SHARED: Final = 40 * 1024
#: Registers of a multiprocessor, and those of a thread for anything but rows.
_REGISTERS: Final = 65536
_OTHERS: Final = 60
#: Statements of the longest loop that is unrolled as a whole; longer ones have their rows in local memory.
_UNROLLED: Final = 2200

_SOURCE: Final = Template("""\
typedef $T elem;
typedef $R real;
#define NOT_A_NUMBER ((real)bits_float(0x7fc00000u))
#define EPSILON ((real)$epsilon)
#define TINY ((real)$tiny)
#if defined(__CUDA_ARCH__)
#define FUSED __${fused}_rn
#else
#define FUSED __builtin_${fused}
#endif
#define WHOLE _Pragma("unroll")
#define OUTER _Pragma("$outer")
enum { M = $m, N = $n, LEAST = M < N ? M : N, LANES = $lanes, THREADS = $threads, GROUPS = THREADS / LANES };
/* What is read from shared memory at once, by lanes that all read the same. */
enum { PACK = 16 / sizeof(elem) };
#define IN_PACKS(n) (((n) + PACK - 1) / PACK * PACK)
typedef struct ALIGNED(16) { elem x[PACK]; } pack;
#if defined(__CUDA_ARCH__)
$bounds#define GROUP_SYNC() __syncwarp()
DEVICE real swapped(real x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
DEVICE int swapped_int(int x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
DEVICE bool any_lane(bool x) { return __any_sync(0xffffffffu, x); }
DEVICE void count_bad(u64 *first, int *count, u64 word) { atomicMax(first, word); atomicAdd(count, 1); }
DEVICE bool is_last(unsigned int *ended) { return atomicInc(ended, gridDim.x - 1) == gridDim.x - 1; }
DEVICE u64 taken(u64 *first) { return atomicExch(first, 0); }
DEVICE int taken_count(int *count) { return atomicExch(count, 0); }
#else
#define GROUP_SYNC() SYNC()
SHARED real lane_reals[THREADS];
SHARED int lane_ints[THREADS];
DEVICE real swapped(real x, int mask) {
  lane_reals[threadIdx.x] = x;
  SYNC();
  x = lane_reals[threadIdx.x ^ (unsigned int)mask];
  SYNC();
  return x;
}
DEVICE int swapped_int(int x, int mask) {
  lane_ints[threadIdx.x] = x;
  SYNC();
  x = lane_ints[threadIdx.x ^ (unsigned int)mask];
  SYNC();
  return x;
}
DEVICE bool any_lane(bool x) {
  bool found = false;
  lane_ints[threadIdx.x] = x;
  SYNC();
  for (int i = 0; i < THREADS; i++) found |= lane_ints[i] != 0;
  SYNC();
  return found;
}
DEVICE void count_bad(u64 *first, int *count, u64 word) {
  if (word > *first) *first = word;
  *count += 1;
}
DEVICE bool is_last(unsigned int *ended) {
  *ended = *ended == gridDim.x - 1 ? 0 : *ended + 1;
  return *ended == 0;
}
DEVICE u64 taken(u64 *first) {
  const u64 found = *first;
  *first = 0;
  return found;
}
DEVICE int taken_count(int *count) {
  const int found = *count;
  *count = 0;
  return found;
}
#endif
$numbers
DEVICE bool is_odd(elem x, bool infinite) {
  return infinite ? RE(x) * 0 != 0 || IM(x) * 0 != 0 : RE(x) != RE(x) || IM(x) != IM(x);
}
DEVICE real real_sum(real x) {
  for (int mask = LANES / 2; mask; mask /= 2) x += swapped(x, mask);
  return x;
}
DEVICE real real_max(real x) {
  for (int mask = LANES / 2; mask; mask /= 2) {
    const real other = swapped(x, mask);
    x = other > x ? other : x;
  }
  return x;
}
/* The power of two by which a matrix is divided, so that no square overflows or is lost; 0 for ordinary numbers. */
DEVICE int power_of(real most) {
  int power = 0;
  if (most > 0 && most * 0 == 0) frexp((double)most, &power);
  return power > -20 && power < 20 ? 0 : power;
}
DEVICE real scaled(real x, int power) { return power ? (real)ldexp((double)x, power) : x; }
/* The matrices of an operand, and those of the batch: strides are in elements. */
typedef struct { u64 row, column, s0, s1, s2; } layout;
typedef struct { u64 count, e1, e2; } batch;
DEVICE layout layout_of(u64 row, u64 column, u64 s0, u64 s1, u64 s2) {
  layout made;
  made.row = row, made.column = column, made.s0 = s0, made.s1 = s1, made.s2 = s2;
  return made;
}
DEVICE batch batch_of(u64 count, u64 e1, u64 e2) {
  batch made;
  made.count = count, made.e1 = e1, made.e2 = e2;
  return made;
}
DEVICE u64 place(u64 b, batch all, layout x) {
  if (all.e2 == all.count) return b * x.s2;
  const u64 rest = b / all.e2;
  return rest / all.e1 * x.s0 + rest % all.e1 * x.s1 + b % all.e2 * x.s2;
}
/* Whether matrices lie one after the other without gaps, so that the number of an element is its offset. */
DEVICE bool is_dense(int rows, int columns, batch all, layout x) {
  const bool inside = x.row == 1 ? x.column == (u64)rows : x.column == 1 && x.row == (u64)columns;
  return inside && rows > 1 && columns > 1 && all.e2 == all.count && x.s2 == (u64)(rows * columns);
}
/* What of a matrix is read: all of it, or the lower or upper triangle of a Hermitian one, which fills the tile. */
enum { ALL = 0, LOWER = 1, UPPER = 2, HELD = IS_COMPLEX ? 4 : 8 };
/* Puts an element into its tile; `odd` notes what is no number. */
DEVICE void put(elem *tile, int lead, int i, int j, elem found, int part, int *odd, bool infinite) {
  if (part && i == j) found = make_elem(RE(found), 0);
  if (odd && is_odd(found, infinite)) *odd = 1; /* by any thread, the same */
  tile[i * lead + j] = found;
  if (part && i != j) tile[j * lead + i] = CONJ(found);
}
/* Elements of tiles are apart by 1 along columns, and by `lead` along rows; of the columns there are only `width`.  Of
 * matrices without gaps a thread has several loads under way before it uses the first. */
DEVICE void take(elem *tiles, int each, int lead, const elem *in, int rows, int columns, int width, u64 first,
                 batch all, layout x, int part, int *odd, bool infinite) {
  const bool down = x.row < x.column;
  const int total = GROUPS * rows * columns;
  if (first + GROUPS <= all.count && width == columns && is_dense(rows, columns, all, x)) {
    const elem *const base = in + first * x.s2;
    for (int begin = (int)threadIdx.x; begin < total; begin += HELD * THREADS) {
      elem held[HELD];
      WHOLE
      for (int k = 0; k < HELD; k++)
        if (begin + k * THREADS < total) held[k] = base[begin + k * THREADS];
      WHOLE
      for (int k = 0; k < HELD; k++) {
        const int t = begin + k * THREADS, g = t / (rows * columns), rest = t % (rows * columns);
        const int i = down ? rest % rows : rest / columns, j = down ? rest / rows : rest % columns;
        if (t >= total || (part == LOWER && j > i) || (part == UPPER && j < i)) continue;
        put(tiles + g * each, lead, i, j, held[k], part, odd ? odd + g : odd, infinite);
      }
    }
    return;
  }
  for (int t = (int)threadIdx.x; t < total; t += THREADS) {
    const int g = t / (rows * columns), rest = t % (rows * columns);
    const int i = down ? rest % rows : rest / columns, j = down ? rest / rows : rest % columns;
    const u64 b = first + (u64)g;
    if (j >= width || (part == LOWER && j > i) || (part == UPPER && j < i)) continue;
    elem found = make_elem(i == j ? 1 : 0, 0); /* where there is no matrix */
    if (b < all.count) found = in[place(b, all, x) + (u64)i * x.row + (u64)j * x.column];
    put(tiles + g * each, lead, i, j, found, part, odd ? odd + g : odd, infinite);
  }
}
/* `part`: the triangle that is kept, with zeros elsewhere; `bad`: matrices whose result is NaN. */
DEVICE void give(elem *out, const elem *tiles, int each, int lead, int rows, int columns, int width, u64 first,
                 batch all, layout x, int part, bool conj, const int *bad) {
  const bool down = x.row < x.column, dense = width == columns && is_dense(rows, columns, all, x);
  elem *const base = out + first * x.s2;
  for (int t = (int)threadIdx.x; t < GROUPS * rows * columns; t += THREADS) {
    const int g = t / (rows * columns), rest = t % (rows * columns);
    const int i = down ? rest % rows : rest / columns, j = down ? rest / rows : rest % columns;
    const u64 b = first + (u64)g;
    if (b >= all.count || j >= width) continue;
    elem found = tiles[g * each + i * lead + j];
    if ((part == LOWER && j > i) || (part == UPPER && j < i)) found = make_elem(0, 0);
    if (conj) found = CONJ(found);
    if (bad[g]) found = make_elem(NOT_A_NUMBER, IS_COMPLEX ? NOT_A_NUMBER : 0);
    if (dense) base[t] = found;
    else out[place(b, all, x) + (u64)i * x.row + (u64)j * x.column] = found;
  }
}
/* Whether the columns of a matrix lie one after the other, none shorter than what memory moves: then each lane reads or
 * writes its own row, and no tile is needed. */
DEVICE bool is_upright(layout x) { return x.row == 1 && x.column == M && M * sizeof(elem) >= 32; }
/* Waits for the group alone where no tiles are shared. */
DEVICE void meet(bool apart) {
  if (apart) GROUP_SYNC();
  else SYNC();
}
/* The row of each lane, zeros where there is no matrix; `odd` notes what is no number. */
DEVICE void take_row(elem *r, const elem *in, int lane, u64 b, batch all, layout x, int *odd) {
  const bool there = lane < M && b < all.count;
  const elem *const from = in + (there ? place(b, all, x) + (u64)lane : 0);
  bool found = false;
  WHOLE
  for (int j = 0; j < N; j++) r[j] = make_elem(0, 0);
  if (there) {
    WHOLE
    for (int j = 0; j < N; j++) r[j] = from[j * M];
  }
  WHOLE
  for (int j = 0; j < N; j++) found |= is_odd(r[j], false);
  if (found) *odd = 1; /* by any lane, the same */
}
/* The row of each lane to row `row`: `width` elements, of which there are up to `most`. */
DEVICE void give_row(elem *out, const elem *r, int most, int width, int lane, int row, u64 b, batch all, layout x,
                     bool bad) {
  if (lane >= M || b >= all.count) return;
  elem *const to = out + place(b, all, x) + (u64)row;
  WHOLE
  for (int j = 0; j < most; j++)
    if (j < width) to[j * M] = bad ? make_elem(NOT_A_NUMBER, IS_COMPLEX ? NOT_A_NUMBER : 0) : r[j];
}
/* The failures of a message: the first, counted down, with its info number; how many; and the blocks that have ended,
 * of which the last leaves zeros.  A lane has one launch of a module after the other, so each lane has its own. */
typedef struct { u64 first; int count; unsigned int ended; } record;
__device__ record records[$mailboxes];
/* The info number of a matrix, to where it is wanted, and among those that failed; by one lane of its group. */
DEVICE void tell(int *out, u64 mailbox, int info, u64 b, batch all, layout x) {
  record *const of = records + mailbox;
  if (out) out[place(b, all, x)] = info;
  if (info) count_bad(&of->first, &of->count, (0xffffffffu - b) << 32 | (unsigned int)info);
}
/* The end of a block: the last one writes the info words of the message, which are in host memory. */
DEVICE void report(int *words, u64 mailbox) {
  record *const of = records + mailbox;
  SYNC();
  if (threadIdx.x) return;
  __threadfence();
  if (!is_last(&of->ended)) return;
  const u64 first = taken(&of->first);
  words[0] = (int)(unsigned int)first;
  words[1] = (int)(unsigned int)(first >> 32);
  words[2] = taken_count(&of->count);
  FENCE();
}
""")
_BOUNDS: Final = Template("""\
#undef KERNEL
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, $blocks)
""")
_COMPLEX: Final = """\
#define IS_COMPLEX 1
#define RE(x) ((x).re)
#define IM(x) ((x).im)
#define CONJ(x) make_elem((x).re, -(x).im)
DEVICE elem make_elem(real re, real im) { elem x; x.re = re; x.im = im; return x; }
DEVICE real size1(elem x) { return (real)fabs(x.re) + (real)fabs(x.im); }
DEVICE real square(elem x) { return x.re * x.re + x.im * x.im; }
DEVICE elem times(elem a, elem b) { return make_elem(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re); }
/* c + a b and c - a b */
DEVICE elem plus(elem c, elem a, elem b) {
  c.re += a.re * b.re;
  c.re -= a.im * b.im;
  c.im += a.re * b.im;
  c.im += a.im * b.re;
  return c;
}
DEVICE elem minus(elem c, elem a, elem b) { return plus(c, make_elem(-a.re, -a.im), b); }
DEVICE elem divided(elem a, elem b) { /* as Smith has it */
  if (fabs(b.re) >= fabs(b.im)) {
    const real r = b.im / b.re, d = b.re + b.im * r;
    return make_elem((a.re + a.im * r) / d, (a.im - a.re * r) / d);
  }
  const real r = b.re / b.im, d = b.re * r + b.im;
  return make_elem((a.re * r + a.im) / d, (a.im * r - a.re) / d);
}
DEVICE elem less(elem a, elem b) { return make_elem(a.re - b.re, a.im - b.im); }
DEVICE elem by_real(elem a, real b) { return make_elem(a.re * b, a.im * b); }
DEVICE elem over_real(elem a, real b) { return make_elem(a.re / b, a.im / b); }
"""
_REAL: Final = """\
#define IS_COMPLEX 0
#define RE(x) (x)
#define IM(x) ((real)0)
#define CONJ(x) (x)
DEVICE elem make_elem(real re, real im) { (void)im; return re; }
DEVICE real size1(elem x) { return (real)fabs(x); }
DEVICE real square(elem x) { return x * x; }
DEVICE elem times(elem a, elem b) { return a * b; }
DEVICE elem plus(elem c, elem a, elem b) { return FUSED(a, b, c); }
DEVICE elem minus(elem c, elem a, elem b) { return FUSED(-a, b, c); }
DEVICE elem divided(elem a, elem b) { return a / b; }
DEVICE elem less(elem a, elem b) { return a - b; }
DEVICE elem by_real(elem a, real b) { return a * b; }
DEVICE elem over_real(elem a, real b) { return a / b; }
"""
_TYPES: Final = {
    "float32": ("float", "float"), "float64": ("double", "double"), "complex64": ("c64", "float"),
    "complex128": ("c128", "double"),
}  # fmt: skip


def lanes_for(extent: int) -> int:
    """Return the lanes of a group: the least power of two with a lane for each row or column, and at least 2."""
    return max(2, 1 << (extent - 1).bit_length())


def threads_for(lanes: int, shared: int) -> int:
    """Return the threads of a block, whole warps, whose groups need `shared` bytes each."""
    threads = _THREADS
    while threads > LARGEST and threads // lanes * shared > _SHARED:
        threads //= 2
    return threads


def common(dtype: str, rows: int, columns: int, lanes: int, threads: int, work: int, held: int = 0) -> str:
    """Return the source that kernels of these extents begin with.

    Parameters
    ----------
    dtype : str
    rows, columns : int
        Extents of A.
    lanes, threads : int
        Of a group, and of a block.
    work : int
        Statements of the longest loop for each pair of an element and a number of it.
    held : int
        Bytes that a thread should have in registers, by which all of its registers are bounded; 0: they are not.
    """
    element, real = _TYPES[dtype]
    is_complex = dtype.startswith("complex")
    double = real == "double"
    return _SOURCE.substitute(
        T=element, R=real, m=rows, n=columns, lanes=lanes, threads=threads,
        numbers=_COMPLEX if is_complex else _REAL,
        bounds=_BOUNDS.substitute(blocks=max(1, _REGISTERS // (threads * (held // 4 + _OTHERS)))) if held else "",
        epsilon="2.220446049250313e-16" if double else "1.1920929e-7f",
        tiny="1e-150" if double else "1e-17f", fused="fma" if double else "fmaf", mailboxes=MAX_LANES,
        outer="unroll" if rows * columns * work * (4 if is_complex else 1) <= _UNROLLED else "unroll 1",
    )  # fmt: skip
