"""LU and Cholesky factorisations of small matrices, and solves and inverses by them; each lane has a row."""

from __future__ import annotations

from string import Template
from typing import Final

from .....dtypes import as_dtype
from .common import common, lanes_for, threads_for

__all__ = ["cholesky", "lu", "solve"]

#: Columns of B that are solved at once.
_CHUNK: Final = 8
#: Bytes of the longest row of an inverse that is computed at once.
_INVERTED: Final = 128

_LU: Final = """\
/* The row with the pivot, the first of several: `size` of the elements of rows that are `able`. */
DEVICE int pivot_row(real size, bool able, int at) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if (LANES == 32 && sizeof(real) == sizeof(float)) { /* the bits of numbers above 0 are in their order */
    const unsigned int key = !able ? 0 : size > 0 ? 1 + float_bits((float)size) : 1;
    const unsigned int most = __reduce_max_sync(0xffffffffu, key);
    return (int)__reduce_min_sync(0xffffffffu, key == most ? (unsigned int)at : 0xffffffffu);
  }
#endif
  real best = !able ? (real)-1 : size > 0 ? size : 0; /* a NaN is no pivot */
  int row = at;
  for (int mask = LANES / 2; mask; mask /= 2) {
    const real other = swapped(best, mask);
    const int its = swapped_int(row, mask);
    if (other > best || (other == best && its < row)) best = other, row = its;
  }
  return row;
}
/* Factors the row of each lane, with partial pivoting; rows stay where they are, and `at` is where they would be. */
DEVICE int factor(elem *r, int lane, int *at, elem *lines, int *pivots) {
  int info = 0;
  *at = lane;
  OUTER
  for (int k = 0; k < LEAST; k++) {
    const bool able = lane < M && *at >= k;
    const int row = pivot_row(able ? size1(r[k]) : 0, able, *at);
    elem *line = lines + (k & 1) * IN_PACKS(N);
    if (*at == row) {
      WHOLE
      for (int j = 0; j < N; j += PACK) {
        pack part;
        WHOLE
        for (int i = 0; i < PACK; i++) part.x[i] = j + i < N ? r[j + i] : make_elem(0, 0);
        if (j + PACK > k) *(pack *)(line + j) = part;
      }
      pivots[k] = row;
      *at = k;
    } else if (*at == k) *at = row;
    GROUP_SYNC();
    const elem pivot = line[k];
    if (size1(pivot) == 0) info = info ? info : k + 1;
    else if (*at > k && lane < M) {
      const elem f = divided(r[k], pivot);
      r[k] = f;
      WHOLE
      for (int j = 0; j < N; j += PACK) {
        if (j + PACK <= k + 1) continue;
        const pack part = *(const pack *)(line + j);
        WHOLE
        for (int i = 0; i < PACK; i++)
          if (j + i > k && j + i < N) r[j + i] = minus(r[j + i], f, part.x[i]);
      }
    }
  }
  return info;
}
"""
_CHOLESKY: Final = """\
/* Factors the row of each lane in place: the lower triangle of L L^H. */
DEVICE int factor(elem *r, int lane, elem *lines) {
  int info = 0;
  OUTER
  for (int k = 0; k < N; k++) {
    elem *line = lines + (k & 1) * IN_PACKS(LANES);
    line[lane] = r[k];
    GROUP_SYNC();
    const real d = RE(line[k]), root = (real)sqrt(d);
    if (!(d > 0)) info = info ? info : k + 1;
    if (lane == k) r[k] = make_elem(root, 0);
    else if (lane > k) {
      r[k] = over_real(r[k], root);
      const elem f = over_real(r[k], root);
      WHOLE
      for (int j = 0; j < N; j += PACK) {
        if (j + PACK <= k + 1) continue;
        const pack part = *(const pack *)(line + j);
        WHOLE
        for (int i = 0; i < PACK; i++)
          if (j + i > k && j + i < N) r[j + i] = minus(r[j + i], f, CONJ(part.x[i]));
      }
    }
  }
  return info;
}
"""
_HEAD: Final = """\
  AWAIT_LAUNCH();
  const int lane = (int)threadIdx.x % LANES, group = (int)threadIdx.x / LANES;
  const batch all = batch_of(count, e1, e2);
  elem *const own = tiles + group * EACH, *const lines = all_lines + group * LINES;
  for (u64 first = (u64)blockIdx.x * GROUPS; first < count; first += (u64)gridDim.x * GROUPS) {
    elem r[N];
    int info = 0;
    if (lane == 0) bad[group] = 0;
    SYNC();
"""
_LU_KERNEL: Final = (
    """\
enum { LEAD = N | 1, EACH = M * LEAD, LINES = 2 * IN_PACKS(N) };
KERNEL small(const elem *a, elem *out, int *pivots_out, int *infos, int *words, u64 count, u64 e1,
             u64 e2, u64 a_row, u64 a_column, u64 a0, u64 a1, u64 a2, u64 o_row, u64 o_column, u64 o0, u64 o1, u64 o2,
             u64 p_row, u64 p0, u64 p1, u64 p2, u64 i0, u64 i1, u64 i2, u64 poison,
             u64 gives, u64 mailbox) {
  SHARED elem tiles[GROUPS * EACH];
  SHARED ALIGNED(16) elem all_lines[GROUPS * LINES];
  SHARED int pivots[GROUPS * LEAST], bad[GROUPS];
  int at;
"""
    + _HEAD
    + """\
    const layout of_a = layout_of(a_row, a_column, a0, a1, a2), of_out = layout_of(o_row, o_column, o0, o1, o2);
    const bool reads = is_upright(of_a), writes = is_upright(of_out);
    const u64 b = first + (u64)group;
    if (reads) take_row(r, a, lane, b, all, of_a, bad + group);
    else {
      take(tiles, EACH, LEAD, a, M, N, N, first, all, of_a, ALL, bad, false);
      SYNC();
      WHOLE
      for (int j = 0; j < N; j++) r[j] = lane < M ? own[lane * LEAD + j] : make_elem(0, 0);
    }
    info = factor(r, lane, &at, lines, pivots + group * LEAST);
    meet(reads && writes);
    if (!writes) {
      WHOLE
      for (int j = 0; j < N; j++)
        if (lane < M) own[at * LEAD + j] = r[j];
    }
    if (b < count) {
      if (lane < LEAST)
        pivots_out[place(b, all, layout_of(0, 0, p0, p1, p2)) + (u64)lane * p_row] = pivots[group * LEAST + lane];
      if (lane == 0) {
        if (bad[group]) info = 0;
        if (info && poison) bad[group] = 1;
        tell(gives ? infos : (int *)0, mailbox, info, b, all, layout_of(0, 0, i0, i1, i2));
      }
    }
    meet(reads && writes);
    if (writes) give_row(out, r, N, N, lane, at, b, all, of_out, bad[group] != 0);
    else give(out, tiles, EACH, LEAD, M, N, N, first, all, of_out, ALL, false, bad);
    meet(reads && writes);
  }
  report(words, mailbox);
}
"""
)
_CHOLESKY_KERNEL: Final = (
    """\
enum { LEAD = N | 1, EACH = N * LEAD, LINES = 2 * IN_PACKS(LANES) };
KERNEL small(const elem *a, elem *out, int *infos, int *words, u64 count, u64 e1, u64 e2,
             u64 a_row, u64 a_column, u64 a0, u64 a1, u64 a2, u64 o_row, u64 o_column, u64 o0, u64 o1, u64 o2, u64 i0,
             u64 i1, u64 i2, u64 lower, u64 gives, u64 mailbox) {
  SHARED elem tiles[GROUPS * EACH];
  SHARED ALIGNED(16) elem all_lines[GROUPS * LINES];
  SHARED int bad[GROUPS];
"""
    + _HEAD
    + """\
    take(tiles, EACH, LEAD, a, N, N, N, first, all, layout_of(a_row, a_column, a0, a1, a2), lower ? LOWER : UPPER,
         (int *)0, false);
    SYNC();
    WHOLE
    for (int j = 0; j < N; j++) r[j] = lane < N ? own[lane * LEAD + j] : make_elem(0, 0);
    info = factor(r, lane, lines);
    WHOLE
    for (int j = 0; j < N; j++)
      if (lane < N) own[lane * LEAD + j] = r[j];
    const u64 b = first + (u64)group;
    if (lane == 0 && b < count) {
      bad[group] = info != 0;
      tell(gives ? infos : (int *)0, mailbox, info, b, all, layout_of(0, 0, i0, i1, i2));
    }
    SYNC();
    /* U is the adjoint of L */
    give(out, tiles, EACH, LEAD, N, N, N, first, all,
         lower ? layout_of(o_row, o_column, o0, o1, o2) : layout_of(o_column, o_row, o0, o1, o2), LOWER, !lower, bad);
    SYNC();
  }
  report(words, mailbox);
}
"""
)
_SOLVE_KERNEL: Final = Template("""\
enum { LEAD = N | 1, CHUNK = $chunk, WIDE = CHUNK | 1, EACH = N * (LEAD > WIDE ? LEAD : WIDE) };
enum { LONGEST = N > LANES ? N : LANES, LINES = 2 * IN_PACKS(LONGEST > CHUNK ? LONGEST : CHUNK) };
/* The row of X of one lane to all: divided by d, by a lane for each element. */
DEVICE void spread(elem *line, elem *x, bool mine, int lane, const elem *d) {
  if (mine) {
    if (CHUNK == 1 && d) x[0] = divided(x[0], *d);
    WHOLE
    for (int c = 0; c < CHUNK; c += PACK) {
      pack part;
      WHOLE
      for (int i = 0; i < PACK; i++) part.x[i] = c + i < CHUNK ? x[c + i] : make_elem(0, 0);
      *(pack *)(line + c) = part;
    }
  }
  GROUP_SYNC();
  if (!d || CHUNK == 1) return;
  for (int c = lane; c < CHUNK; c += LANES) line[c] = divided(line[c], *d);
  GROUP_SYNC();
  if (mine) {
    WHOLE
    for (int c = 0; c < CHUNK; c++) x[c] = line[c];
  }
}
DEVICE void reduce(elem *x, elem f, const elem *line) {
  WHOLE
  for (int c = 0; c < CHUNK; c += PACK) {
    const pack part = *(const pack *)(line + c);
    WHOLE
    for (int i = 0; i < PACK; i++)
      if (c + i < CHUNK) x[c + i] = minus(x[c + i], f, part.x[i]);
  }
}
KERNEL small(const elem *a, const elem *b, elem *out, int *infos, int *words, u64 columns,
             u64 count, u64 e1, u64 e2, u64 a_row, u64 a_column, u64 a0, u64 a1, u64 a2, u64 b_row, u64 b_column,
             u64 b0, u64 b1, u64 b2, u64 o_row, u64 o_column, u64 o0, u64 o1, u64 o2, u64 i0, u64 i1, u64 i2,
             u64 lower, u64 gives, u64 mailbox) {
  SHARED elem tiles[GROUPS * EACH];
  SHARED ALIGNED(16) elem all_lines[GROUPS * LINES];
  SHARED elem diagonals[GROUPS * N];
  SHARED int pivots[GROUPS * N], bad[GROUPS];
  int at = (int)threadIdx.x % LANES;
$head\
    elem *const diagonal = diagonals + group * N;
    const layout of_a = layout_of(a_row, a_column, a0, a1, a2), of_out = layout_of(o_row, o_column, o0, o1, o2);
    const bool reads = !POSITIVE && is_upright(of_a), writes = INVERSE && is_upright(of_out), apart = reads && writes;
    const u64 which = first + (u64)group;
    if (reads) take_row(r, a, lane, which, all, of_a, bad + group);
    else {
      take(tiles, EACH, LEAD, a, N, N, N, first, all, of_a, POSITIVE ? (lower ? LOWER : UPPER) : ALL,
           POSITIVE ? (int *)0 : bad, false);
      SYNC();
      WHOLE
      for (int j = 0; j < N; j++) r[j] = lane < N ? own[lane * LEAD + j] : make_elem(0, 0);
    }
$factor
    if (lane == 0 && which < count) {
      if (bad[group]) info = 0;
      if (info) bad[group] = 1;
      tell(gives ? infos : (int *)0, mailbox, info, which, all, layout_of(0, 0, i0, i1, i2));
    }
    for (u64 from = 0; from < columns; from += CHUNK) {
      const int width = (int)(columns - from < CHUNK ? columns - from : CHUNK);
      elem x[CHUNK];
      meet(apart);
      if (!INVERSE) {
        take(tiles, EACH, WIDE, b + from * b_column, N, CHUNK, width, first, all,
             layout_of(b_row, b_column, b0, b1, b2), ALL, (int *)0, false);
        SYNC();
      }
      WHOLE
      for (int c = 0; c < CHUNK; c++)
        x[c] = INVERSE ? make_elem((u64)lane == from + (u64)c ? 1 : 0, 0)
                  : lane < N && c < width ? own[lane * WIDE + c] : make_elem(0, 0);
      int turn = 0;
      GROUP_SYNC();
      $steps
      for (int k = 0; k < N; k++) { /* L */
        elem *line = lines + (turn++ & 1) * IN_PACKS(CHUNK);
        spread(line, x, at == k, lane, POSITIVE ? diagonal + k : (const elem *)0);
        if (at > k && lane < N) reduce(x, $low, line);
      }
      $steps
      for (int k = N - 1; k >= 0; k--) { /* U, or the adjoint of L */
        elem *line = lines + (turn++ & 1) * IN_PACKS(CHUNK);
        spread(line, x, at == k, lane, diagonal + k);
        if (at < k) reduce(x, $high, line);
      }
      meet(apart);
      if (writes) {
        give_row(out + from * o_column, x, CHUNK, width, lane, at, which, all, of_out, bad[group] != 0);
        continue;
      }
      WHOLE
      for (int c = 0; c < CHUNK; c++)
        if (lane < N) own[at * WIDE + c] = x[c];
      SYNC();
      give(out + from * o_column, tiles, EACH, WIDE, N, CHUNK, width, first, all, of_out, ALL, false, bad);
    }
    meet(apart);
  }
  report(words, mailbox);
}
""")
_KEPT: Final = """
    WHOLE
    for (int j = 0; j < N; j++)
      if (lane < N) own[at * LEAD + j] = r[j];
    GROUP_SYNC();"""
_BY_LU: Final = """\
    info = factor(r, lane, &at, lines, pivots + group * N);
    WHOLE
    for (int j = 0; j < N; j++)
      if (at == j) diagonal[j] = r[j];"""
_BY_CHOLESKY: Final = """\
    info = factor(r, lane, lines);
    WHOLE
    for (int j = 0; j < N; j++)
      if (lane == j) diagonal[j] = r[j];"""
#: The adjoint of L, where it is in registers.
_TURNED: Final = """
    elem u[N];
    WHOLE
    for (int j = 0; j < N; j++) u[j] = lane < N && j >= lane ? CONJ(own[j * LEAD + lane]) : make_elem(0, 0);"""


def lu(dtype: str, rows: int, columns: int) -> tuple[str, int, int]:
    """Return the kernel that factors by LU, the lanes of a matrix and the threads of a block."""
    size = as_dtype(dtype).itemsize
    lanes = lanes_for(rows)
    threads = threads_for(lanes, size * (rows * (columns | 1) + 2 * columns))
    return common(dtype, rows, columns, lanes, threads, 1, size * columns) + _LU + _LU_KERNEL, lanes, threads


def cholesky(dtype: str, n: int) -> tuple[str, int, int]:
    """Return the kernel that factors by Cholesky, the lanes of a matrix and the threads of a block."""
    lanes = lanes_for(n)
    threads = threads_for(lanes, as_dtype(dtype).itemsize * (n * (n | 1) + 2 * lanes))
    return (
        common(dtype, n, n, lanes, threads, 1, as_dtype(dtype).itemsize * n) + _CHOLESKY + _CHOLESKY_KERNEL,
        lanes,
        threads,
    )


def solve(dtype: str, n: int, columns: int, *, positive: bool) -> tuple[str, int, int]:
    """Return the kernel that solves for matrices of `columns` columns, its lanes and threads; 0: for the inverse."""
    size = as_dtype(dtype).itemsize
    once = not columns and n * size <= _INVERTED  # the factors' place is free in the end, and they leave registers
    chunk = n if once else min(columns or n, _CHUNK)
    lanes = lanes_for(n)
    each = n * (max(n, chunk) | 1) + 2 * max(lanes, chunk) + n
    threads = threads_for(lanes, size * each)
    steps = {"steps": '_Pragma("unroll 1")' if once else "OUTER"}
    kept = _KEPT if once or positive else ""
    if positive:
        steps["factor"] = _BY_CHOLESKY + kept + ("" if once else _TURNED)
        steps["low"] = "own[at * LEAD + k]" if once else "r[k]"
        steps["high"] = "CONJ(own[k * LEAD + at])" if once else "u[k]"
    else:
        steps["factor"] = _BY_LU + kept
        steps["low"] = steps["high"] = "own[at * LEAD + k]" if once else "r[k]"
    kernel = _SOLVE_KERNEL.substitute(chunk=chunk, head=_HEAD, **steps)
    names = f"#define POSITIVE {int(positive)}\n#define INVERSE {int(columns == 0)}\n"
    factor = _CHOLESKY if positive else _LU
    held = size * (n if once else n * (1 + positive) + chunk)
    return common(dtype, n, n, lanes, threads, 2, held) + names + factor + kernel, lanes, threads
