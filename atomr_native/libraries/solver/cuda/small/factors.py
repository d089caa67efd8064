"""LU and Cholesky factorisations of small matrices, and solves and inverses by them; each lane has a row."""

from __future__ import annotations

from string import Template
from typing import Final

from .....dtypes import as_dtype
from .common import common, lanes_for, threads_for

__all__ = ["cholesky", "lu", "solve"]

#: Columns of B that are solved at once.
_CHUNK: Final = 8

_LU: Final = """\
/* Factors the row of each lane, with partial pivoting; rows stay where they are, and `at` is where they would be. */
DEVICE int factor(elem *r, int lane, int *at, elem *lines, int *pivots) {
  int info = 0;
  *at = lane;
  OUTER
  for (int k = 0; k < LEAST; k++) {
    const real mine = lane < M && *at >= k ? size1(r[k]) : (real)-1;
    real best = mine > 0 ? mine : lane < M && *at >= k ? 0 : (real)-1; /* a NaN is no pivot */
    int row = *at;
    for (int mask = LANES / 2; mask; mask /= 2) {
      const real other = swapped(best, mask);
      const int its = swapped_int(row, mask);
      if (other > best || (other == best && its < row)) best = other, row = its;
    }
    elem *line = lines + (k & 1) * N;
    if (*at == row) {
      WHOLE
      for (int j = 0; j < N; j++)
        if (j >= k) line[j] = r[j];
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
      for (int j = 0; j < N; j++)
        if (j > k) r[j] = minus(r[j], f, line[j]);
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
    elem *line = lines + (k & 1) * LANES;
    line[lane] = r[k];
    GROUP_SYNC();
    const real d = RE(line[k]), root = (real)sqrt(d);
    if (!(d > 0)) info = info ? info : k + 1;
    if (lane == k) r[k] = make_elem(root, 0);
    else if (lane > k) {
      r[k] = over_real(r[k], root);
      const elem f = over_real(r[k], root);
      WHOLE
      for (int j = 0; j < N; j++)
        if (j > k) r[j] = minus(r[j], f, CONJ(line[j]));
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
enum { LEAD = N | 1, EACH = M * LEAD, LINES = 2 * N };
KERNEL small(const elem *a, elem *out, int *pivots_out, int *infos, u64 *first_bad, int *bad_count, u64 count, u64 e1,
             u64 e2, u64 a_row, u64 a_column, u64 a0, u64 a1, u64 a2, u64 o_row, u64 o_column, u64 o0, u64 o1, u64 o2,
             u64 p_row, u64 p0, u64 p1, u64 p2, u64 i0, u64 i1, u64 i2, u64 poison,
             u64 gives) {
  SHARED elem tiles[GROUPS * EACH], all_lines[GROUPS * LINES];
  SHARED int pivots[GROUPS * LEAST], bad[GROUPS];
  int at;
"""
    + _HEAD
    + """\
    take(tiles, EACH, LEAD, a, M, N, N, first, all, layout_of(a_row, a_column, a0, a1, a2), ALL, bad, false);
    SYNC();
    WHOLE
    for (int j = 0; j < N; j++) r[j] = lane < M ? own[lane * LEAD + j] : make_elem(0, 0);
    info = factor(r, lane, &at, lines, pivots + group * LEAST);
    SYNC();
    WHOLE
    for (int j = 0; j < N; j++)
      if (lane < M) own[at * LEAD + j] = r[j];
    const u64 b = first + (u64)group;
    if (b < count) {
      if (lane < LEAST)
        pivots_out[place(b, all, layout_of(0, 0, p0, p1, p2)) + (u64)lane * p_row] = pivots[group * LEAST + lane];
      if (lane == 0) {
        if (bad[group]) info = 0;
        if (info && poison) bad[group] = 1;
        tell(gives ? infos : (int *)0, first_bad, bad_count, info, b, all, layout_of(0, 0, i0, i1, i2));
      }
    }
    SYNC();
    give(out, tiles, EACH, LEAD, M, N, N, first, all, layout_of(o_row, o_column, o0, o1, o2), ALL, false, bad);
    SYNC();
  }
}
"""
)
_CHOLESKY_KERNEL: Final = (
    """\
enum { LEAD = N | 1, EACH = N * LEAD, LINES = 2 * LANES };
KERNEL small(const elem *a, elem *out, int *infos, u64 *first_bad, int *bad_count, u64 count, u64 e1, u64 e2,
             u64 a_row, u64 a_column, u64 a0, u64 a1, u64 a2, u64 o_row, u64 o_column, u64 o0, u64 o1, u64 o2, u64 i0,
             u64 i1, u64 i2, u64 lower, u64 gives) {
  SHARED elem tiles[GROUPS * EACH], all_lines[GROUPS * LINES];
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
      tell(gives ? infos : (int *)0, first_bad, bad_count, info, b, all, layout_of(0, 0, i0, i1, i2));
    }
    SYNC();
    /* U is the adjoint of L */
    give(out, tiles, EACH, LEAD, N, N, N, first, all,
         lower ? layout_of(o_row, o_column, o0, o1, o2) : layout_of(o_column, o_row, o0, o1, o2), LOWER, !lower, bad);
    SYNC();
  }
}
"""
)
_SOLVE_KERNEL: Final = Template("""\
enum { LEAD = N | 1, CHUNK = $chunk, WIDE = CHUNK | 1, EACH = N * (LEAD > WIDE ? LEAD : WIDE) };
enum { LINE = 2 * (N > LANES ? N : LANES) > 2 * CHUNK ? 2 * (N > LANES ? N : LANES) : 2 * CHUNK, LINES = LINE };
KERNEL small(const elem *a, const elem *b, elem *out, int *infos, u64 *first_bad, int *bad_count, u64 columns,
             u64 count, u64 e1, u64 e2, u64 a_row, u64 a_column, u64 a0, u64 a1, u64 a2, u64 b_row, u64 b_column,
             u64 b0, u64 b1, u64 b2, u64 o_row, u64 o_column, u64 o0, u64 o1, u64 o2, u64 i0, u64 i1, u64 i2,
             u64 lower, u64 gives) {
  SHARED elem tiles[GROUPS * EACH], all_lines[GROUPS * LINES];
  SHARED int pivots[GROUPS * N], bad[GROUPS];
  int at = (int)threadIdx.x % LANES;
$head\
    take(tiles, EACH, LEAD, a, N, N, N, first, all, layout_of(a_row, a_column, a0, a1, a2),
         POSITIVE ? (lower ? LOWER : UPPER) : ALL, POSITIVE ? (int *)0 : bad, false);
    SYNC();
    WHOLE
    for (int j = 0; j < N; j++) r[j] = lane < N ? own[lane * LEAD + j] : make_elem(0, 0);
$factor
    const u64 which = first + (u64)group;
    if (lane == 0 && which < count) {
      if (bad[group]) info = 0;
      if (info) bad[group] = 1;
      tell(gives ? infos : (int *)0, first_bad, bad_count, info, which, all, layout_of(0, 0, i0, i1, i2));
    }
    for (u64 from = 0; from < columns; from += CHUNK) {
      const int width = (int)(columns - from < CHUNK ? columns - from : CHUNK);
      elem x[CHUNK];
      SYNC();
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
      OUTER
      for (int k = 0; k < N; k++) { /* L */
        elem *line = lines + (turn++ & 1) * CHUNK;
        if (at == k) {
          WHOLE
          for (int c = 0; c < CHUNK; c++) {
            if (POSITIVE) x[c] = over_real(x[c], RE(r[k]));
            line[c] = x[c];
          }
        }
        GROUP_SYNC();
        if (at > k && lane < N) {
          WHOLE
          for (int c = 0; c < CHUNK; c++) x[c] = minus(x[c], r[k], line[c]);
        }
      }
      OUTER
      for (int k = N - 1; k >= 0; k--) { /* U, or the adjoint of L */
        elem *line = lines + (turn++ & 1) * CHUNK;
        if (at == k) {
          WHOLE
          for (int c = 0; c < CHUNK; c++) {
            x[c] = divided(x[c], UPPER_ROW[k]);
            line[c] = x[c];
          }
        }
        GROUP_SYNC();
        if (at < k) {
          WHOLE
          for (int c = 0; c < CHUNK; c++) x[c] = minus(x[c], UPPER_ROW[k], line[c]);
        }
      }
      SYNC();
      WHOLE
      for (int c = 0; c < CHUNK; c++)
        if (lane < N) own[at * WIDE + c] = x[c];
      SYNC();
      give(out + from * o_column, tiles, EACH, WIDE, N, CHUNK, width, first, all,
           layout_of(o_row, o_column, o0, o1, o2), ALL, false, bad);
    }
    SYNC();
  }
}
""")
_BY_LU: Final = "    info = factor(r, lane, &at, lines, pivots + group * N);"
_BY_CHOLESKY: Final = """\
    info = factor(r, lane, lines);
    elem u[N];
    WHOLE
    for (int j = 0; j < N; j++)
      if (lane < N) own[lane * LEAD + j] = r[j];
    GROUP_SYNC();
    WHOLE
    for (int j = 0; j < N; j++) u[j] = lane < N && j >= lane ? CONJ(own[j * LEAD + lane]) : make_elem(0, 0);"""


def lu(dtype: str, rows: int, columns: int) -> tuple[str, int, int]:
    """Return the kernel that factors by LU, the lanes of a matrix and the threads of a block."""
    size = as_dtype(dtype).itemsize
    lanes = lanes_for(rows)
    threads = threads_for(lanes, size * (rows * (columns | 1) + 2 * columns))
    return common(dtype, rows, columns, lanes, threads, 1) + _LU + _LU_KERNEL, lanes, threads


def cholesky(dtype: str, n: int) -> tuple[str, int, int]:
    """Return the kernel that factors by Cholesky, the lanes of a matrix and the threads of a block."""
    lanes = lanes_for(n)
    threads = threads_for(lanes, as_dtype(dtype).itemsize * (n * (n | 1) + 2 * lanes))
    return common(dtype, n, n, lanes, threads, 1) + _CHOLESKY + _CHOLESKY_KERNEL, lanes, threads


def solve(dtype: str, n: int, columns: int, *, positive: bool) -> tuple[str, int, int]:
    """Return the kernel that solves for matrices of `columns` columns, its lanes and threads; 0: for the inverse."""
    chunk = min(_CHUNK, columns or n)
    lanes = lanes_for(n)
    each = n * (max(n, chunk) | 1) + 2 * max(lanes, chunk)
    threads = threads_for(lanes, as_dtype(dtype).itemsize * each)
    factor = _CHOLESKY if positive else _LU
    kernel = _SOLVE_KERNEL.substitute(chunk=chunk, head=_HEAD, factor=_BY_CHOLESKY if positive else _BY_LU)
    names = f"#define POSITIVE {int(positive)}\n#define INVERSE {int(columns == 0)}\n"
    names += f"#define UPPER_ROW {'u' if positive else 'r'}\n"
    return common(dtype, n, n, lanes, threads, 2) + names + factor + kernel, lanes, threads
