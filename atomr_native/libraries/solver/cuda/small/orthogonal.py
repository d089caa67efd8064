"""QR decompositions of small matrices by Householder reflectors; each lane has a column."""

from __future__ import annotations

from typing import Final

from .....dtypes import as_dtype
from .common import common, lanes_for, threads_for

__all__ = ["qr"]

_KERNEL: Final = """\
enum { LEAD = WIDE | 1, EACH = M * LEAD, LINES = 2 * M };
KERNEL small(const elem *a, elem *q, elem *r, elem *tau_out, u64 count, u64 e1, u64 e2, u64 a_row, u64 a_column,
             u64 a0, u64 a1, u64 a2, u64 q_row, u64 q_column, u64 q0, u64 q1, u64 q2, u64 r_row, u64 r_column, u64 r0,
             u64 r1, u64 r2, u64 t_row, u64 t0, u64 t1, u64 t2, u64 packs) {
  SHARED elem tiles[GROUPS * EACH], all_lines[GROUPS * LINES], all_taus[GROUPS * LEAST];
  SHARED int bad[GROUPS];
  AWAIT_LAUNCH();
  const int lane = (int)threadIdx.x % LANES, group = (int)threadIdx.x / LANES;
  const batch all = batch_of(count, e1, e2);
  elem *const own = tiles + group * EACH, *const lines = all_lines + group * LINES, *taus = all_taus + group * LEAST;
  for (u64 first = (u64)blockIdx.x * GROUPS; first < count; first += (u64)gridDim.x * GROUPS) {
    elem c[M];
    real most = 0;
    if (lane == 0) bad[group] = 0;
    SYNC();
    take(tiles, EACH, LEAD, a, M, N, N, first, all, layout_of(a_row, a_column, a0, a1, a2), ALL, bad, true);
    SYNC();
    WHOLE
    for (int i = 0; i < M; i++) {
      c[i] = lane < N ? own[i * LEAD + lane] : make_elem(0, 0);
      const real size = size1(c[i]);
      most = size > most ? size : most;
    }
    most = real_max(most);
    const int power = power_of(most);
    WHOLE
    for (int i = 0; i < M; i++) c[i] = make_elem(scaled(RE(c[i]), -power), scaled(IM(c[i]), -power));
    OUTER
    for (int k = 0; k < LEAST; k++) {
      elem *line = lines + (k & 1) * M;
      real rest = 0;
      int up = 0;
      WHOLE
      for (int i = 0; i < M; i++)
        if (i > k) rest += square(c[i]);
      if (lane == k && rest + square(c[k]) < TINY) { /* their squares may have vanished */
        real tail = 0;
        WHOLE
        for (int i = 0; i < M; i++) {
          const real size = i >= k ? size1(c[i]) : 0;
          tail = size > tail ? size : tail;
        }
        up = power_of(tail);
        rest = 0;
        WHOLE
        for (int i = 0; i < M; i++)
          if (i >= k) {
            c[i] = make_elem(scaled(RE(c[i]), -up), scaled(IM(c[i]), -up));
            if (i > k) rest += square(c[i]);
          }
      }
      if (lane == k) {
        const elem alpha = c[k];
        elem tau = make_elem(0, 0), by = make_elem(0, 0);
        if (rest > 0 || IM(alpha) != 0) {
          const real size = (real)sqrt(square(alpha) + rest), beta = RE(alpha) >= 0 ? -size : size;
          tau = make_elem((beta - RE(alpha)) / beta, -IM(alpha) / beta);
          by = divided(make_elem(1, 0), make_elem(RE(alpha) - beta, IM(alpha)));
          c[k] = make_elem(beta, 0);
        }
        c[k] = make_elem(scaled(RE(c[k]), up), scaled(IM(c[k]), up));
        taus[k] = tau;
        WHOLE
        for (int i = 0; i < M; i++)
          if (i > k) c[i] = times(c[i], by), line[i] = c[i];
      }
      GROUP_SYNC();
      if (lane > k) {
        elem w = c[k];
        WHOLE
        for (int i = 0; i < M; i++)
          if (i > k) w = plus(w, CONJ(line[i]), c[i]);
        w = times(w, CONJ(taus[k]));
        c[k] = less(c[k], w);
        WHOLE
        for (int i = 0; i < M; i++)
          if (i > k) c[i] = minus(c[i], w, line[i]);
      }
    }
    WHOLE
    for (int i = 0; i < M; i++)
      if (lane < N) own[i * LEAD + lane] = c[i];
    SYNC();
    if (packs) { /* reflectors below R */
      WHOLE
      for (int i = 0; i < M; i++)
        if (lane < N && i <= lane)
          own[i * LEAD + lane] = make_elem(scaled(RE(c[i]), power), scaled(IM(c[i]), power));
      SYNC();
      give(q, tiles, EACH, LEAD, M, N, N, first, all, layout_of(q_row, q_column, q0, q1, q2), ALL, false, bad);
      const u64 b = first + (u64)group;
      if (b < count && lane < LEAST)
        tau_out[place(b, all, layout_of(0, 0, t0, t1, t2)) + (u64)lane * t_row] =
            bad[group] ? make_elem(NOT_A_NUMBER, IS_COMPLEX ? NOT_A_NUMBER : 0) : taus[lane];
      SYNC();
      continue;
    }
    if (COLUMNS) {
      WHOLE
      for (int i = 0; i < M; i++) c[i] = make_elem(i == lane ? 1 : 0, 0);
      OUTER
      for (int k = LEAST - 1; k >= 0; k--) {
        elem w = c[k];
        WHOLE
        for (int i = 0; i < M; i++)
          if (i > k) w = plus(w, CONJ(own[i * LEAD + k]), c[i]);
        w = times(w, taus[k]);
        c[k] = less(c[k], w);
        WHOLE
        for (int i = 0; i < M; i++)
          if (i > k) c[i] = minus(c[i], w, own[i * LEAD + k]);
      }
    }
    SYNC();
    WHOLE
    for (int i = 0; i < M; i++) /* R in its own scale */
      if (lane < N && i <= lane) {
        const elem x = own[i * LEAD + lane];
        own[i * LEAD + lane] = make_elem(scaled(RE(x), power), scaled(IM(x), power));
      }
    SYNC();
    give(r, tiles, EACH, LEAD, ROWS_OF_R, N, N, first, all, layout_of(r_row, r_column, r0, r1, r2), UPPER, false, bad);
    SYNC();
    if (COLUMNS) {
      WHOLE
      for (int i = 0; i < M; i++)
        if (lane < COLUMNS) own[i * LEAD + lane] = c[i];
      SYNC();
      give(q, tiles, EACH, LEAD, M, COLUMNS, COLUMNS, first, all,
           layout_of(q_row, q_column, q0, q1, q2), ALL, false, bad);
      SYNC();
    }
  }
}
"""


def qr(dtype: str, rows: int, columns: int, of_q: int, of_r: int) -> tuple[str, int, int]:
    """Return the kernel of QR with `of_q` columns of Q and `of_r` rows of R, the lanes of a matrix and the threads."""
    widest = max(columns, of_q)
    lanes = lanes_for(widest)
    threads = threads_for(lanes, as_dtype(dtype).itemsize * (rows * (widest | 1) + 3 * rows))
    names = f"enum {{ WIDE = {widest}, COLUMNS = {of_q}, ROWS_OF_R = {of_r} }};\n"
    return common(dtype, rows, columns, lanes, threads, 3) + names + _KERNEL, lanes, threads
