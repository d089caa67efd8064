"""The kernels around the library's calls: copies of matrices, pivots, info numbers, determinants.

Extents and strides are arguments, so that there is one module for each dtype.
"""

from __future__ import annotations

from string import Template
from typing import Final

__all__ = ["AXES", "MODES", "THREADS", "TILE", "preamble", "source"]

#: Axes of a batch that kernels step along.
AXES: Final = 3
THREADS: Final = 256
#: What `move` does to an element, by its bits: conjugate it; keep a triangle, zeros elsewhere; ones on the diagonal and
#: zeros elsewhere; NaN in matrices whose info is not 0; leave other matrices alone; note matrices in which it reads a
#: NaN; NaN in matrices that were noted; also note those with an infinity; ones on the diagonal of matrices that were
#: noted, and zeros elsewhere; write nothing but notes; leave alone what would be written where it is.
MODES: Final = {
    "conj": 1, "lower": 2, "upper": 4, "eye": 8, "guard": 16, "only_bad": 32, "note": 64, "noted": 128, "infinite": 256,
    "blank": 512, "only_note": 1024, "in_place": 2048,
}  # fmt: skip
#: Rows and columns of the tiles of the kernel `tiles`, and of the smallest matrix that it gets.
TILE: Final = 32

_PREAMBLE: Final = Template("""\
typedef $T elem;
typedef $R real;
#define NOT_A_NUMBER ((real)bits_float(0x7fc00000u))
$complex
DEVICE u64 place(u64 b, u64 e1, u64 e2, u64 s0, u64 s1, u64 s2) {
  return b == 0 ? 0 : b / (e1 * e2) * s0 + b / e2 % e1 * s1 + b % e2 * s2;
}
""")
_SOURCE: Final = Template("""\
/* The parts of a copy by its mode: whether an element is of the triangle that stays; whether it is read; its new value,
 * of which NaN, or what is not finite, is noted. */
DEVICE bool stays(u64 i, u64 j, u64 mode) { return !((mode & 2u) && i < j) && !((mode & 4u) && i > j); }
DEVICE bool reads(u64 i, u64 j, u64 mode, bool bad, bool blank) {
  return !bad && !(mode & 8u) && !blank && stays(i, j, mode);
}
DEVICE elem changed(elem x, u64 i, u64 j, u64 mode, bool bad, bool blank, int *note) {
  if (bad) return make_elem(NOT_A_NUMBER, IS_COMPLEX ? NOT_A_NUMBER : 0);
  if ((mode & 8u) || blank) return make_elem(i == j ? 1 : 0, 0);
  if (!stays(i, j, mode)) return make_elem(0, 0);
  if (mode & 64u) {
    const bool odd = (mode & 256u) ? RE(x) * 0 != 0 || IM(x) * 0 != 0 : RE(x) != RE(x) || IM(x) != IM(x);
    if (odd) *note = 1; /* by any thread, the same */
  }
  return mode & 1u ? make_elem(RE(x), -IM(x)) : x;
}
/* out[b, i, j] = in[b, i, j]; strides are in elements, i is the axis along which threads go first. */
KERNEL move(elem *out, const elem *in, const int *info, int *notes, u64 rows, u64 columns, u64 count, u64 e1, u64 e2,
            u64 o_row, u64 o_column, u64 o0, u64 o1, u64 o2,
            u64 s_row, u64 s_column, u64 s0, u64 s1, u64 s2, u64 mode) {
  AWAIT_LAUNCH();
  const u64 each = rows * columns, total = each * count, step = thread_count();
  u64 t = thread_index();
  if (t >= total) return;
  /* An index is divided once; from one element to the next of a thread it is carried. */
  u64 b = t / each, j = t % each / rows, i = t % each % rows;
  const u64 b_step = step / each, j_step = step % each / rows, i_step = step % each % rows;
  for (;;) {
    const bool bad = ((mode & 16u) && info[b] != 0) || ((mode & 128u) && notes[b] != 0);
    const bool leaves_alone = (mode & 32u) && !bad, blank = (mode & 512u) && notes[b] != 0;
    if (leaves_alone && count == 1) return;
    const elem *const from = in + place(b, e1, e2, s0, s1, s2);
    elem *const to = out + place(b, e1, e2, o0, o1, o2);
    u64 ahead = 0;
    do {
      if (!leaves_alone && !((mode & 2048u) && !bad && stays(i, j, mode))) {
        elem x = make_elem(0, 0);
        if (reads(i, j, mode, bad, blank)) x = from[i * s_row + j * s_column];
        x = changed(x, i, j, mode, bad, blank, notes + b);
        if (!(mode & 1024u)) to[i * o_row + j * o_column] = x;
      }
      t += step;
      if (t >= total) return;
      i += i_step;
      j += j_step + (i >= rows);
      if (i >= rows) i -= rows;
      ahead = b_step + (j >= columns);
      if (j >= columns) j -= columns;
    } while (!ahead);
    b += ahead;
  }
}
/* As `move`, of matrices that are not small: a block has a tile, of which a thread has some columns of one row.  It
 * reads along the axis that is dense in memory, by way of shared memory where that is the other one than in `out`. */
KERNEL tiles(elem *out, const elem *in, const int *info, int *notes, u64 rows, u64 columns, u64 count, u64 e1, u64 e2,
             u64 o_row, u64 o_column, u64 o0, u64 o1, u64 o2,
             u64 s_row, u64 s_column, u64 s0, u64 s1, u64 s2, u64 mode) {
  AWAIT_LAUNCH();
  enum { SIDE = $tile, DOWN = $threads / SIDE, EACH = SIDE / DOWN };
  SHARED elem kept[SIDE][SIDE + 1];
  const unsigned int high = (unsigned int)((rows + SIDE - 1) / SIDE);
  const unsigned int wide = (unsigned int)((columns + SIDE - 1) / SIDE);
  const unsigned int each = high * wide, total = each * (unsigned int)count;
  const unsigned int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
  const bool turned = s_row > s_column;
  for (unsigned int t = blockIdx.x; t < total; t += gridDim.x) {
    const unsigned int b = t / each, rest = t - b * each, column = rest / high;
    const u64 i0 = (u64)(rest - column * high) * SIDE, j0 = (u64)column * SIDE, i = i0 + x;
    const bool bad = ((mode & 16u) && info[b] != 0) || ((mode & 128u) && notes[b] != 0);
    const bool blank = (mode & 512u) && notes[b] != 0;
    if ((mode & 32u) && !bad) continue;
    const bool above = i0 + SIDE <= j0, below = i0 >= j0 + SIDE; /* the diagonal */
    const bool whole = !((mode & 6u) && !above && !below), kept_half = whole && stays(i0, j0, mode);
    if ((mode & 2048u) && !bad && kept_half) continue;
    const elem *const from = in + place(b, e1, e2, s0, s1, s2);
    elem *const to = out + place(b, e1, e2, o0, o1, o2);
    const bool loads = !bad && !(mode & 8u) && !blank && (!whole || kept_half);
    elem part[EACH];
    for (int k = 0; k < EACH; k++) part[k] = make_elem(0, 0);
    if (loads && turned) {
      for (int k = 0; k < EACH; k++) {
        const u64 row = i0 + y + (u64)k * DOWN, across = j0 + x;
        if (row < rows && across < columns && reads(row, across, mode, bad, blank))
          kept[y + k * DOWN][x] = from[row * s_row + across * s_column];
      }
      SYNC();
      for (int k = 0; k < EACH; k++)
        if (reads(i, j0 + y + (u64)k * DOWN, mode, bad, blank)) part[k] = kept[x][y + k * DOWN];
      SYNC();
    } else if (loads) {
      for (int k = 0; k < EACH; k++) {
        const u64 j = j0 + y + (u64)k * DOWN;
        if (i < rows && j < columns && reads(i, j, mode, bad, blank)) part[k] = from[i * s_row + j * s_column];
      }
    }
    for (int k = 0; k < EACH; k++) {
      const u64 j = j0 + y + (u64)k * DOWN;
      if (i >= rows || j >= columns || ((mode & 2048u) && !bad && stays(i, j, mode))) continue;
      const elem made = changed(part[k], i, j, mode, bad, blank, notes + b);
      if (!(mode & 1024u)) to[i * o_row + j * o_column] = made;
    }
  }
}
/* The lower triangles of matrices with dense columns become the upper ones, in place, and leave zeros; `mode` as in
 * `move`: a block has a tile and that on the other side of the diagonal. */
KERNEL flip(elem *at, const int *info, const int *notes, u64 n, u64 count, u64 e1, u64 e2, u64 column, u64 s0, u64 s1,
            u64 s2, u64 mode) {
  AWAIT_LAUNCH();
  enum { SIDE = $tile, DOWN = $threads / SIDE };
  SHARED elem kept[SIDE][SIDE + 1];
  const u64 high = (n + SIDE - 1) / SIDE, each = high * high, x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
  for (u64 t = blockIdx.x; t < each * count; t += gridDim.x) {
    const u64 b = t / each, i0 = t % each % high * SIDE, j0 = t % each / high * SIDE;
    if (i0 < j0) continue;
    const bool bad = ((mode & 16u) && info[b] != 0) || ((mode & 128u) && notes[b] != 0);
    const elem none = make_elem(bad ? NOT_A_NUMBER : 0, bad && IS_COMPLEX ? NOT_A_NUMBER : 0);
    elem *const of = at + place(b, e1, e2, s0, s1, s2);
    for (u64 k = y; k < SIDE; k += DOWN) {
      const u64 i = i0 + x, j = j0 + k;
      elem found = none;
      if (!bad && i < n && j < n && i >= j) found = of[i + j * column];
      kept[k][x] = mode & 1u ? make_elem(RE(found), -IM(found)) : found;
    }
    SYNC();
    for (u64 k = y; k < SIDE; k += DOWN) {
      const u64 i = j0 + x, j = i0 + k;
      if (i < n && j < n) of[i + j * column] = i <= j ? kept[x][k] : none;
      if (i0 > j0 && i0 + x < n && j0 + k < n) of[i0 + x + (j0 + k) * column] = none;
    }
    SYNC();
  }
}
/* Zeros, before `move` makes notes. */
KERNEL clear(int *notes, u64 count) {
  AWAIT_LAUNCH();
  for (u64 b = thread_index(); b < count; b += thread_count()) notes[b] = 0;
}
/* Pivots of the library, from 1, to ours, from 0. */
KERNEL pivots_out(int *out, const void *from, u64 wide, u64 n, u64 count, u64 e1, u64 e2, u64 step, u64 o0, u64 o1,
                  u64 o2) {
  AWAIT_LAUNCH();
  for (u64 t = thread_index(); t < n * count; t += thread_count())
    out[place(t / n, e1, e2, o0, o1, o2) + t % n * step] =
        (int)(wide ? ((const long long *)from)[t] : ((const int *)from)[t]) - 1;
}
/* Ours to those of the library. What is no row of the matrix becomes its own row, so that nothing else is written. */
KERNEL pivots_in(void *to, const int *from, u64 wide, u64 n, u64 count, u64 e1, u64 e2, u64 step, u64 s0, u64 s1,
                 u64 s2) {
  AWAIT_LAUNCH();
  for (u64 t = thread_index(); t < n * count; t += thread_count()) {
    long long row = from[place(t / n, e1, e2, s0, s1, s2) + t % n * step];
    if (row < 0 || (u64)row >= n) row = (long long)(t % n);
    if (wide) ((long long *)to)[t] = row + 1;
    else ((int *)to)[t] = (int)row + 1;
  }
}
/* The place, from 1, of the first zero on each diagonal; 0: there is none. */
KERNEL zeros(const elem *in, int *info, u64 n, u64 count, u64 e1, u64 e2, u64 step, u64 s0, u64 s1, u64 s2) {
  AWAIT_LAUNCH();
  SHARED unsigned int first[$threads];
  for (u64 b = blockIdx.x; b < count; b += gridDim.x) {
    unsigned int mine = 0xffffffffu;
    for (u64 i = threadIdx.x; i < n && mine == 0xffffffffu; i += blockDim.x) {
      const elem x = in[place(b, e1, e2, s0, s1, s2) + i * step];
      if (RE(x) == 0 && IM(x) == 0) mine = (unsigned int)i;
    }
    first[threadIdx.x] = mine;
    SYNC();
    if (threadIdx.x == 0) {
      for (unsigned int t = 1; t < blockDim.x && t < n; t++) mine = first[t] < mine ? first[t] : mine;
      info[b] = mine == 0xffffffffu ? 0 : (int)mine + 1;
    }
    SYNC();
  }
}
/* Info numbers to where they are wanted. */
KERNEL infos(int *out, const int *from, u64 count, u64 e1, u64 e2, u64 o0, u64 o1, u64 o2) {
  AWAIT_LAUNCH();
  for (u64 b = thread_index(); b < count; b += thread_count()) out[place(b, e1, e2, o0, o1, o2)] = from[b];
}
/* Real vectors of the library to where they are wanted; mode as `move`'s. */
KERNEL reals(real *out, const real *from, const int *info, const int *notes, u64 n, u64 count, u64 e1, u64 e2,
             u64 step, u64 o0, u64 o1, u64 o2, u64 jump, u64 mode) {
  AWAIT_LAUNCH();
  for (u64 t = thread_index(); t < n * count; t += thread_count()) {
    const u64 b = t / n;
    const bool bad = ((mode & 16u) && info[b] != 0) || ((mode & 128u) && notes[b] != 0);
    out[place(b, e1, e2, o0, o1, o2) + t % n * step] = bad ? NOT_A_NUMBER : from[b * jump + t % n];
  }
}
/* How many eigenvalues of a range were found, and none of matrices that failed. */
KERNEL counts(int *out, const int *found, const int *info, const int *notes, u64 count, u64 e1, u64 e2, u64 o0, u64 o1,
              u64 o2) {
  AWAIT_LAUNCH();
  for (u64 b = thread_index(); b < count; b += thread_count())
    out[place(b, e1, e2, o0, o1, o2)] = info[b] != 0 || notes[b] != 0 ? 0 : found[b];
}
/* NaN after the last that was found, in n values, and in as many columns of `rows`. */
KERNEL beyond(real *w, elem *v, const int *found, u64 n, u64 rows, u64 count, u64 e1, u64 e2, u64 w_step, u64 w0,
              u64 w1, u64 w2, u64 row, u64 column, u64 v0, u64 v1, u64 v2) {
  AWAIT_LAUNCH();
  const u64 high = rows ? rows : 1;
  for (u64 t = thread_index(); t < n * high * count; t += thread_count()) {
    const u64 b = t / (n * high), j = t / high % n, i = t % high;
    if ((long long)j < found[b]) continue;
    if (i == 0) w[place(b, e1, e2, w0, w1, w2) + j * w_step] = NOT_A_NUMBER;
    if (rows)
      v[place(b, e1, e2, v0, v1, v2) + i * row + j * column] = make_elem(NOT_A_NUMBER, IS_COMPLEX ? NOT_A_NUMBER : 0);
  }
}
/* Info of refined solves: the place of a zero on the diagonal of factors in full precision, which those with less than
 * 0 iterations have; n where X is not finite although A, whose notes are of NaN, and B are. */
KERNEL refined_infos(int *info, const int *iterations, const int *zero, const int *of_a, const int *of_b,
                     const int *of_x, u64 n, u64 count) {
  AWAIT_LAUNCH();
  for (u64 b = thread_index(); b < count; b += thread_count()) {
    if (info[b] != 0 || of_a[b] != 0) continue;
    if (iterations[b] < 0 && zero[b] != 0) info[b] = zero[b];
    else if (of_x[b] != 0 && of_b[b] == 0) info[b] = (int)n;
  }
}
/* Complex numbers of the library to where they are wanted, as pairs of reals. */
KERNEL pairs(real *out, const real *from, const int *info, const int *notes, u64 n, u64 count, u64 e1, u64 e2,
             u64 step, u64 o0, u64 o1, u64 o2) {
  AWAIT_LAUNCH();
  for (u64 t = thread_index(); t < 2 * n * count; t += thread_count()) {
    const u64 b = t / (2 * n), at = t % (2 * n);
    const bool bad = info[b] != 0 || notes[b] != 0;
    out[2 * (place(b, e1, e2, o0, o1, o2) + at / 2 * step) + at % 2] = bad ? NOT_A_NUMBER : from[t];
  }
}
/* Complex eigenvectors of a real matrix from LAPACK's columns: of a pair of values, the real and the imaginary part. */
KERNEL vectors(real *out, const real *in, const real *values, const int *info, const int *notes, u64 n, u64 count,
               u64 e1, u64 e2, u64 row, u64 column, u64 o0, u64 o1, u64 o2, u64 s_column, u64 jump) {
  AWAIT_LAUNCH();
  for (u64 t = thread_index(); t < n * n * count; t += thread_count()) {
    const u64 b = t / (n * n), rest = t % (n * n), j = rest / n, i = rest % n;
    const bool bad = info[b] != 0 || notes[b] != 0;
    const real imaginary = values[2 * (b * n + j) + 1], *x = in + b * jump + i;
    const u64 at = 2 * (place(b, e1, e2, o0, o1, o2) + i * row + j * column);
    real re = x[j * s_column], im = 0;
    if (imaginary > 0 && j + 1 < n) im = x[(j + 1) * s_column];
    else if (imaginary < 0 && j > 0) re = x[(j - 1) * s_column], im = -x[j * s_column];
    out[at] = bad ? NOT_A_NUMBER : re;
    out[at + 1] = bad ? NOT_A_NUMBER : im;
  }
}
/* In one block, to host memory: whether any info is not 0, the first of them, its number, and how many there are. */
KERNEL summary(int *words, const int *info, u64 count) {
  AWAIT_LAUNCH();
  SHARED unsigned int first[$threads], bad[$threads];
  unsigned int mine = 0xffffffffu, found = 0;
  for (u64 b = threadIdx.x; b < count; b += blockDim.x)
    if (info[b] != 0) {
      if (!found) mine = (unsigned int)b;
      found++;
    }
  first[threadIdx.x] = mine;
  bad[threadIdx.x] = found;
  SYNC();
  if (threadIdx.x != 0) return;
  for (unsigned int t = 1; t < blockDim.x && t < count; t++) { /* the other threads have seen no matrix */
    mine = first[t] < mine ? first[t] : mine;
    found += bad[t];
  }
  words[0] = found != 0;
  words[1] = found ? (int)mine : 0;
  words[2] = found ? info[mine] : 0;
  words[3] = (int)found;
  FENCE();
}
/* A product as a number near 1 and a power of two, so that nothing overflows. */
typedef struct { double re, im; long long power; } scaled;
DEVICE scaled normalised(scaled x) {
  const double a = fabs(x.re), b = fabs(x.im), size = a > b ? a : b;
  int power = 0;
  if (!(size > 0) || size * 0 != 0) return x;
  frexp(size, &power);
  x.re = ldexp(x.re, -power);
  x.im = ldexp(x.im, -power);
  x.power += power;
  return x;
}
DEVICE scaled times(scaled x, scaled y) {
  scaled z;
  z.re = IS_COMPLEX ? x.re * y.re - x.im * y.im : x.re * y.re;
  z.im = IS_COMPLEX ? x.re * y.im + x.im * y.re : 0;
  z.power = x.power + y.power;
  return normalised(z);
}
/* Whether column i is the first of a block of two rows of D, whose pivots are negative. */
DEVICE bool begins_block(const int *pivots, u64 i) {
  u64 before = 0;
  while (before < i && pivots[i - 1 - before] < 0) before++;
  return before % 2 == 0;
}
/* The determinant of the block [d, e^H; e, f], or with `turns` [d, e; e, f]. */
DEVICE scaled block_of(elem d, elem e, elem f, bool turns) {
  scaled by = {RE(e), IM(e), 0};
  by = normalised(by);
  const int power = by.power > 3000 ? 3000 : by.power < -3000 ? -3000 : (int)by.power;
  const double dr = ldexp((double)RE(d), -power), di = turns ? 0 : ldexp((double)IM(d), -power);
  const double fr = ldexp((double)RE(f), -power), fi = turns ? 0 : ldexp((double)IM(f), -power);
  scaled made;
  made.re = dr * fr - di * fi - (turns ? by.re * by.re + by.im * by.im : by.re * by.re - by.im * by.im);
  made.im = dr * fi + di * fr - (turns ? 0 : 2 * by.re * by.im);
  made.power = 2 * by.power;
  return normalised(made);
}
/* Determinants from factors; mode 1: squared, of Cholesky; 2: sign and logarithm; 4: there are notes; 8: of blocks,
 * whose pivots have 32 bits; 16: of Hermitian ones. */
KERNEL determinant(elem *out, real *logs, const elem *in, const void *pivots, const int *info, const int *notes,
                   u64 wide, u64 n, u64 count, u64 e1, u64 e2, u64 o0, u64 o1, u64 o2, u64 l0, u64 l1, u64 l2, u64 step,
                   u64 jump, u64 mode) {
  AWAIT_LAUNCH();
  SHARED scaled parts[$threads];
  SHARED unsigned int exchanges[$threads];
  for (u64 b = blockIdx.x; b < count; b += gridDim.x) {
    scaled mine = {1, 0, 0};
    unsigned int odd = 0;
    for (u64 i = threadIdx.x; i < n; i += blockDim.x) {
      const elem x = in[b * jump + i * step];
      scaled y = {RE(x), IM(x), 0};
      if (mode & 17u) y.im = 0;
      if ((mode & 8u) && ((const int *)pivots)[b * n + i] < 0) {
        if (!begins_block((const int *)pivots + b * n, i)) continue;
        const elem *const block = in + b * jump + i * step;
        mine = times(mine, block_of(x, block[1], block[step], (mode & 16u) != 0));
        continue;
      }
      mine = times(mine, normalised(y));
      if (!(mode & 9u))
        odd += (u64)(wide ? ((const long long *)pivots)[b * n + i] : ((const int *)pivots)[b * n + i]) != i + 1;
    }
    parts[threadIdx.x] = mine;
    exchanges[threadIdx.x] = odd;
    SYNC();
    if (threadIdx.x == 0) {
      for (unsigned int t = 1; t < blockDim.x && t < n; t++) {
        mine = times(mine, parts[t]);
        odd += exchanges[t];
      }
      if (mode & 1u) mine = times(mine, mine);
      if (odd & 1u) { mine.re = -mine.re; mine.im = -mine.im; }
      if (((mode & 1u) && info[b] != 0) || ((mode & 4u) && notes[b] != 0)) mine.re = mine.im = NOT_A_NUMBER;
      const u64 at = place(b, e1, e2, o0, o1, o2);
      if (mode & 2u) {
        const double size = IS_COMPLEX ? hypot(mine.re, mine.im) : fabs(mine.re);
        out[at] = size == 0 ? make_elem(0, 0) : make_elem((real)(mine.re / size), (real)(mine.im / size));
        logs[place(b, e1, e2, l0, l1, l2)] = (real)(log(size) + (double)mine.power * 0.693147180559945309417);
      } else {
        const int power = mine.power > 1000000 ? 1000000 : mine.power < -1000000 ? -1000000 : (int)mine.power;
        out[at] = make_elem((real)ldexp(mine.re, power), (real)ldexp(mine.im, power));
      }
    }
    SYNC();
  }
}
""")
_COMPLEX: Final = """\
#define IS_COMPLEX 1
#define RE(x) ((x).re)
#define IM(x) ((x).im)
DEVICE elem make_elem(real re, real im) { elem x; x.re = re; x.im = im; return x; }
"""
_REAL: Final = """\
#define IS_COMPLEX 0
#define RE(x) (x)
#define IM(x) ((real)0)
DEVICE elem make_elem(real re, real im) { (void)im; return re; }
"""


def preamble(dtype: str) -> str:
    """Return what kernels for matrices of a dtype share: elements, and places in a batch."""
    types = {
        "float32": ("float", "float"), "float64": ("double", "double"), "complex64": ("c64", "float"),
        "complex128": ("c128", "double"),
    }  # fmt: skip
    element, real = types[dtype]
    is_complex = dtype.startswith("complex")
    return _PREAMBLE.substitute(T=element, R=real, complex=_COMPLEX if is_complex else _REAL)


def source(dtype: str) -> str:
    """Return the kernels for matrices of a dtype, without their prelude."""
    return preamble(dtype) + _SOURCE.substitute(threads=THREADS, tile=TILE)
