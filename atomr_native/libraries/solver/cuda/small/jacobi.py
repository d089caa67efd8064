"""Eigenvalues and singular values of small matrices by Jacobi rotations of many pairs at once.

Pairs are those of a round-robin tournament.  Eigenvalues: each 2 x 2 block of A is rotated from both sides at once.
Singular values: two lanes rotate a pair of columns, half of its rows each.
"""

from __future__ import annotations

from typing import Final

from .....dtypes import as_dtype
from .common import common, lanes_for, threads_for

__all__ = ["eigh", "svd"]

_COMMON: Final = """\
enum { EVEN = N + N % 2, PAIRS = EVEN / 2, SWEEPS = 30 };
/* The columns of a pair in a turn; the second one may be N, which is none. */
DEVICE void pair_of(int pair, int turn, int *p, int *q) {
  int x = pair ? (turn + pair) % (EVEN - 1) : EVEN - 1, y = pair ? (turn - pair + EVEN - 1) % (EVEN - 1) : turn;
  *p = x < y ? x : y;
  *q = x < y ? y : x;
}
/* A rotation: columns p, q become c p - conj(s) q, s p + c q. */
typedef struct { real c; elem s; } rotation;
DEVICE rotation rotation_of(real pp, real qq, elem pq, real size) {
  const real z = (qq - pp) / (2 * size), far = (real)fabs(z);
  const real t = (z < 0 ? -1 : 1) / (far > 1 / EPSILON ? 2 * far : far + (real)sqrt(1 + far * far));
  rotation made;
  made.c = 1 / (real)sqrt(1 + t * t);
  made.s = by_real(over_real(pq, size), t * made.c);
  return made;
}
DEVICE elem rotated_p(rotation by, elem p, elem q) { return minus(by_real(p, by.c), CONJ(by.s), q); }
DEVICE elem rotated_q(rotation by, elem p, elem q) { return plus(by_real(q, by.c), by.s, p); }
/* The place of each lane's value among those of its group, in ascending order, ties in that of lanes. */
DEVICE int rank_of(const real *values, int lane) {
  int found = 0;
  for (int j = 0; j < N; j++) found += values[j] < values[lane] || (values[j] == values[lane] && j < lane);
  return found;
}
"""
_EIGH: Final = """\
enum { LEAD = N | 1, EACH = N * LEAD, STRIDE = LANES / 2 };
KERNEL small(const elem *a, elem *v_out, real *w_out, int *infos, int *words, u64 count, u64 e1,
             u64 e2, u64 a_row, u64 a_column, u64 a0, u64 a1, u64 a2, u64 v_row, u64 v_column, u64 v0, u64 v1, u64 v2,
             u64 w_row, u64 w0, u64 w1, u64 w2, u64 i0, u64 i1, u64 i2, u64 lower, u64 gives, u64 mailbox) {
  SHARED elem tiles[GROUPS * EACH], vectors[VECTORS ? GROUPS * EACH : 1];
  SHARED rotation all_turns[GROUPS * PAIRS];
  SHARED real all_values[GROUPS * LANES];
  SHARED int bad[GROUPS];
  AWAIT_LAUNCH();
  const int lane = (int)threadIdx.x % LANES, group = (int)threadIdx.x / LANES;
  const batch all = batch_of(count, e1, e2);
  elem *const own = tiles + group * EACH, *const v = vectors + (VECTORS ? group * EACH : 0);
  rotation *const turns = all_turns + group * PAIRS;
  real *const values = all_values + group * LANES;
  for (u64 first = (u64)blockIdx.x * GROUPS; first < count; first += (u64)gridDim.x * GROUPS) {
    real most = 0, norm = 0;
    if (lane == 0) bad[group] = 0;
    SYNC();
    take(tiles, EACH, LEAD, a, N, N, N, first, all, layout_of(a_row, a_column, a0, a1, a2), lower ? LOWER : UPPER, bad,
         true);
    SYNC();
    const bool skip = bad[group] != 0;
    for (int j = 0; j < N; j++)
      if (lane < N) {
        const real size = skip ? 0 : size1(own[lane * LEAD + j]);
        most = size > most ? size : most;
        if (VECTORS) v[lane * LEAD + j] = make_elem(lane == j ? 1 : 0, 0);
      }
    most = real_max(most);
    const int power = power_of(most);
    for (int j = 0; j < N; j++)
      if (lane < N) {
        elem *x = own + lane * LEAD + j;
        *x = skip ? make_elem(0, 0) : make_elem(scaled(RE(*x), -power), scaled(IM(*x), -power));
        norm += square(*x);
      }
    norm = (real)sqrt(real_sum(norm));
    GROUP_SYNC();
    int sweeps = 0;
    bool again = N > 1;
    while (again && sweeps < SWEEPS) {
      bool rotates = false;
      sweeps++;
      for (int turn = 0; turn < EVEN - 1; turn++) {
        if (lane < PAIRS) {
          int p, q;
          pair_of(lane, turn, &p, &q);
          rotation by;
          by.c = 1, by.s = make_elem(0, 0);
          if (q < N) {
            const elem pq = own[p * LEAD + q];
            const real size = IS_COMPLEX ? (real)sqrt(square(pq)) : (real)fabs(RE(pq));
            if (size > EPSILON * norm / 4) {
              by = rotation_of(RE(own[p * LEAD + p]), RE(own[q * LEAD + q]), pq, size);
              rotates = true;
            }
          }
          turns[lane] = by;
        }
        GROUP_SYNC();
        const int one = lane % STRIDE;
        if (one < PAIRS) {
          int p, q;
          pair_of(one, turn, &p, &q);
          const rotation left = turns[one];
          const bool turned = size1(left.s) != 0;
          for (int two = lane / STRIDE; two < PAIRS; two += LANES / STRIDE) {
            int x, y;
            pair_of(two, turn, &x, &y);
            const rotation right = turns[two];
            if (!turned && size1(right.s) == 0) continue;
            /* an odd N has a pair of one column, whose other elements are zeros */
            const elem none = make_elem(0, 0), px = own[p * LEAD + x], py = y < N ? own[p * LEAD + y] : none;
            const elem qx = q < N ? own[q * LEAD + x] : none, qy = q < N && y < N ? own[q * LEAD + y] : none;
            const elem px2 = rotated_p(right, px, py), py2 = rotated_q(right, px, py);
            const elem qx2 = rotated_p(right, qx, qy), qy2 = rotated_q(right, qx, qy);
            /* rows: the conjugates of both */
            elem new_px = minus(by_real(px2, left.c), left.s, qx2), new_py = minus(by_real(py2, left.c), left.s, qy2);
            elem new_qx = plus(by_real(qx2, left.c), CONJ(left.s), px2);
            elem new_qy = plus(by_real(qy2, left.c), CONJ(left.s), py2);
            if (one == two) {
              new_px = make_elem(RE(new_px), 0), new_qy = make_elem(RE(new_qy), 0);
              new_py = new_qx = none;
            }
            own[p * LEAD + x] = new_px;
            if (y < N) own[p * LEAD + y] = new_py;
            if (q < N) own[q * LEAD + x] = new_qx;
            if (q < N && y < N) own[q * LEAD + y] = new_qy;
          }
        }
        if (VECTORS && lane < N)
          for (int pair = 0; pair < PAIRS; pair++) {
            const rotation by = turns[pair];
            if (size1(by.s) == 0) continue;
            int p, q;
            pair_of(pair, turn, &p, &q);
            const elem x = v[lane * LEAD + p], y = v[lane * LEAD + q];
            v[lane * LEAD + p] = rotated_p(by, x, y);
            v[lane * LEAD + q] = rotated_q(by, x, y);
          }
        GROUP_SYNC();
      }
      again = any_lane(rotates);
    }
    /* a matrix that still rotates has not converged, although others of its warp may be the reason for a sweep */
    real off = 0;
    for (int j = 0; j < N; j++)
      if (lane < N && j != lane) off += square(own[lane * LEAD + j]);
    off = (real)sqrt(real_sum(off));
    const u64 b = first + (u64)group;
    const int info = sweeps == SWEEPS && off > N * EPSILON * norm ? N : 0;
    if (lane < N) values[lane] = RE(own[lane * LEAD + lane]);
    if (lane == 0 && b < count) {
      if (info) bad[group] = 1;
      tell(gives ? infos : (int *)0, mailbox, info, b, all, layout_of(0, 0, i0, i1, i2));
    }
    SYNC();
    if (lane < N) {
      const int rank = rank_of(values, lane);
      if (b < count)
        w_out[place(b, all, layout_of(0, 0, w0, w1, w2)) + (u64)rank * w_row] =
            bad[group] ? NOT_A_NUMBER : scaled(values[lane], power);
      if (VECTORS)
        for (int i = 0; i < N; i++) own[i * LEAD + rank] = v[i * LEAD + lane];
    }
    SYNC();
    if (VECTORS)
      give(v_out, tiles, EACH, LEAD, N, N, N, first, all, layout_of(v_row, v_column, v0, v1, v2), ALL, false, bad);
    SYNC();
  }
  report(words, mailbox);
}
"""
_SVD: Final = """\
enum { LEAD = N | 1, EACH = M * LEAD, EACH_V = N * LEAD };
KERNEL small(const elem *a, elem *u_out, real *s_out, elem *v_out, int *infos, int *words,
             u64 count, u64 e1, u64 e2, u64 a_row, u64 a_column, u64 a0, u64 a1, u64 a2, u64 u_row, u64 u_column,
             u64 u0, u64 u1, u64 u2, u64 s_row, u64 s0, u64 s1, u64 s2, u64 v_row, u64 v_column, u64 v0, u64 v1,
             u64 v2, u64 i0, u64 i1, u64 i2, u64 gives, u64 mailbox) {
  SHARED elem tiles[GROUPS * EACH], vectors[VECTORS ? GROUPS * EACH_V : 1];
  SHARED real all_values[GROUPS * LANES];
  SHARED int bad[GROUPS], all_ranks[GROUPS * N];
  AWAIT_LAUNCH();
  const int lane = (int)threadIdx.x % LANES, group = (int)threadIdx.x / LANES;
  const batch all = batch_of(count, e1, e2);
  elem *const own = tiles + group * EACH, *const v = vectors + (VECTORS ? group * EACH_V : 0);
  real *const values = all_values + group * LANES;
  int *const ranks = all_ranks + group * N;
  for (u64 first = (u64)blockIdx.x * GROUPS; first < count; first += (u64)gridDim.x * GROUPS) {
    real most = 0;
    if (lane == 0) bad[group] = 0;
    SYNC();
    take(tiles, EACH, LEAD, a, M, N, N, first, all, layout_of(a_row, a_column, a0, a1, a2), ALL, bad, true);
    SYNC();
    const bool skip = bad[group] != 0;
    if (lane < N) {
      for (int i = 0; i < M; i++) {
        const real size = skip ? 0 : size1(own[i * LEAD + lane]);
        most = size > most ? size : most;
      }
      for (int i = 0; i < N; i++)
        if (VECTORS) v[i * LEAD + lane] = make_elem(lane == i ? 1 : 0, 0);
    }
    most = real_max(most);
    const int power = power_of(most);
    if (lane < N)
      for (int i = 0; i < M; i++) {
        elem *x = own + i * LEAD + lane;
        *x = skip ? make_elem(0, 0) : make_elem(scaled(RE(*x), -power), scaled(IM(*x), -power));
      }
    GROUP_SYNC();
    const real close = EPSILON * (real)sqrt((real)M);
    int sweeps = 0;
    bool again = N > 1, rotates = false;
    while (again && sweeps < SWEEPS) {
      rotates = false;
      sweeps++;
      for (int turn = 0; turn < EVEN - 1; turn++) {
        const int pair = lane / 2, half = lane % 2;
        int p = 0, q = N;
        if (pair < PAIRS) pair_of(pair, turn, &p, &q);
        real pp = 0, qq = 0;
        elem pq = make_elem(0, 0);
        if (q < N)
          for (int i = half; i < M; i += 2) {
            const elem x = own[i * LEAD + p], y = own[i * LEAD + q];
            pp += square(x), qq += square(y), pq = plus(pq, CONJ(x), y);
          }
        pp += swapped(pp, 1), qq += swapped(qq, 1);
        const real re = RE(pq) + swapped(RE(pq), 1), im = IS_COMPLEX ? IM(pq) + swapped(IM(pq), 1) : 0;
        pq = make_elem(re, im);
        const real size = IS_COMPLEX ? (real)sqrt(square(pq)) : (real)fabs(RE(pq));
        if (q < N && pp > TINY * TINY && qq > TINY * TINY && size > close * (real)sqrt(pp) * (real)sqrt(qq)) {
          const rotation by = rotation_of(pp, qq, pq, size);
          rotates = true;
          for (int i = half; i < M; i += 2) {
            const elem x = own[i * LEAD + p], y = own[i * LEAD + q];
            own[i * LEAD + p] = rotated_p(by, x, y);
            own[i * LEAD + q] = rotated_q(by, x, y);
          }
          if (VECTORS)
            for (int i = half; i < N; i += 2) {
              const elem x = v[i * LEAD + p], y = v[i * LEAD + q];
              v[i * LEAD + p] = rotated_p(by, x, y);
              v[i * LEAD + q] = rotated_q(by, x, y);
            }
        }
        GROUP_SYNC();
      }
      again = any_lane(rotates);
    }
    const u64 b = first + (u64)group;
    const int info = sweeps == SWEEPS && real_max(rotates ? 1 : 0) > 0 ? N : 0;
    real size = 0;
    if (lane < N)
      for (int i = 0; i < M; i++) size += square(own[i * LEAD + lane]);
    size = (real)sqrt(size);
    values[lane] = -size; /* so that the largest is the first */
    if (lane == 0 && b < count) {
      if (info) bad[group] = 1;
      tell(gives ? infos : (int *)0, mailbox, info, b, all, layout_of(0, 0, i0, i1, i2));
    }
    SYNC();
    const int rank = lane < N ? rank_of(values, lane) : 0;
    if (lane < N) {
      ranks[rank] = lane;
      if (b < count)
        s_out[place(b, all, layout_of(0, 0, s0, s1, s2)) + (u64)rank * s_row] =
            bad[group] ? NOT_A_NUMBER : scaled(size, power);
      if (VECTORS && size > TINY)
        for (int i = 0; i < M; i++) own[i * LEAD + lane] = over_real(own[i * LEAD + lane], size);
    }
    SYNC();
    if (VECTORS) {
      /* Columns whose singular value is 0 become unit vectors, orthogonal to those before them: the unit vector with
       * the least part in the others, made orthogonal twice.  One lane of a group does it: few matrices need it. */
      if (lane == 0)
        for (int at = 0; at < N; at++) {
          elem *x = own + ranks[at];
          if (-values[ranks[at]] > TINY) continue;
          int row = 0;
          real least = 2;
          for (int i = 0; i < M; i++) {
            real part = 0;
            for (int j = 0; j < at; j++) part += square(own[i * LEAD + ranks[j]]);
            if (part < least) least = part, row = i;
          }
          for (int i = 0; i < M; i++) x[i * LEAD] = make_elem(i == row ? 1 : 0, 0);
          for (int twice = 0; twice < 2; twice++)
            for (int j = 0; j < at; j++) {
              const elem *y = own + ranks[j];
              elem dot = make_elem(0, 0);
              for (int i = 0; i < M; i++) dot = plus(dot, CONJ(y[i * LEAD]), x[i * LEAD]);
              for (int i = 0; i < M; i++) x[i * LEAD] = minus(x[i * LEAD], dot, y[i * LEAD]);
            }
          real norm = 0;
          for (int i = 0; i < M; i++) norm += square(x[i * LEAD]);
          for (int i = 0; i < M; i++) x[i * LEAD] = over_real(x[i * LEAD], (real)sqrt(norm));
        }
      GROUP_SYNC();
      /* each row in its order */
      for (int i = lane; i < M + N; i += LANES) {
        elem *const line = i < M ? own + i * LEAD : v + (i - M) * LEAD;
        elem found[N];
        for (int j = 0; j < N; j++) found[j] = line[ranks[j]];
        for (int j = 0; j < N; j++) line[j] = found[j];
      }
      SYNC();
      give(u_out, tiles, EACH, LEAD, M, N, N, first, all, layout_of(u_row, u_column, u0, u1, u2), ALL, false, bad);
      /* the adjoint of V */
      give(v_out, vectors, EACH_V, LEAD, N, N, N, first, all, layout_of(v_column, v_row, v0, v1, v2), ALL, true, bad);
    }
    SYNC();
  }
  report(words, mailbox);
}
"""


def _names(vectors: bool) -> str:
    return f"#define VECTORS {int(vectors)}\n"


def eigh(dtype: str, n: int, *, vectors: bool) -> tuple[str, int, int]:
    """Return the kernel of eigenvalues, the lanes of a matrix and the threads of a block."""
    lanes = lanes_for(n)
    threads = threads_for(lanes, as_dtype(dtype).itemsize * (n * (n | 1) * (2 if vectors else 1) + 4 * lanes))
    return common(dtype, n, n, lanes, threads, 1) + _names(vectors) + _COMMON + _EIGH, lanes, threads


def svd(dtype: str, rows: int, columns: int, *, vectors: bool) -> tuple[str, int, int]:
    """Return the kernel of singular values of tall matrices, the lanes of a matrix and the threads of a block."""
    lanes = lanes_for(columns)
    each = (rows + (columns if vectors else 0)) * (columns | 1) + 2 * lanes
    threads = threads_for(lanes, as_dtype(dtype).itemsize * each)
    return common(dtype, rows, columns, lanes, threads, 1) + _names(vectors) + _COMMON + _SVD, lanes, threads
