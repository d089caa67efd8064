"""Kernels for symmetric and Hermitian matrices that need not be definite: ``A = P L D L^H P^T``, one block a matrix.

Bunch and Kaufman's pivots, of which the blocks of D have one row or two.  Factors and pivots have LAPACK's form, those
of its lower triangle.  cuSOLVER has the symmetric factorisation alone, and none for batches.
"""

from __future__ import annotations

from typing import Final

from .kernels import THREADS, preamble

__all__ = ["source"]

_SOURCE: Final = """\
enum { WIDE = %(threads)d, COLUMNS = 8, LANES = WIDE / COLUMNS };
DEVICE real size_of(elem x) { return (real)(fabs(RE(x)) + fabs(IM(x))); }
DEVICE elem conj_if(elem x, bool conjugates) { return make_elem(RE(x), conjugates ? -IM(x) : IM(x)); }
DEVICE elem sum_of(elem x, elem y) { return make_elem(RE(x) + RE(y), IM(x) + IM(y)); }
DEVICE elem less(elem x, elem y) { return make_elem(RE(x) - RE(y), IM(x) - IM(y)); }
DEVICE elem product(elem x, elem y) {
  return IS_COMPLEX ? make_elem(RE(x) * RE(y) - IM(x) * IM(y), RE(x) * IM(y) + IM(x) * RE(y))
                    : make_elem(RE(x) * RE(y), 0);
}
/* Smith's quotient, whose parts do not overflow on the way. */
DEVICE elem quotient(elem x, elem y) {
  if (!IS_COMPLEX) return make_elem(RE(x) / RE(y), 0);
  if (fabs(RE(y)) >= fabs(IM(y))) {
    const real r = RE(y) != 0 ? IM(y) / RE(y) : 0, d = RE(y) + IM(y) * r;
    return make_elem((RE(x) + IM(x) * r) / d, (IM(x) - RE(x) * r) / d);
  }
  const real r = RE(y) / IM(y), d = RE(y) * r + IM(y);
  return make_elem((RE(x) * r + IM(x)) / d, (IM(x) * r - RE(x)) / d);
}
DEVICE void exchange(elem *x, elem *y) {
  const elem kept = *x;
  *x = *y;
  *y = kept;
}
/* The largest of all threads' values, and the place of the first of these, in places[0] and sizes[0]. */
DEVICE void find_largest(real *sizes, int *places, real size, int place) {
  sizes[threadIdx.x] = size;
  places[threadIdx.x] = place;
  SYNC();
  for (int half = WIDE / 2; half; half /= 2) {
    if ((int)threadIdx.x < half) {
      const int other = (int)threadIdx.x + half;
      if (sizes[other] > sizes[threadIdx.x] ||
          (sizes[other] == sizes[threadIdx.x] && places[other] < places[threadIdx.x])) {
        sizes[threadIdx.x] = sizes[other];
        places[threadIdx.x] = places[other];
      }
    }
    SYNC();
  }
}
/* Element (i, j) of a column-major matrix. */
#define AT(i, j) a[(u64)(j) * ld + (u64)(i)]
/* The lower triangles become L and D; info: the place, from 1, of the first column whose block of D is 0. */
KERNEL ldl(elem *all, int *all_pivots, int *info, u64 n_, u64 ld, u64 jump, u64 count, u64 hermitian) {
  SHARED real sizes[WIDE];
  SHARED int places[WIDE];
  SHARED int step, with, from; /* of this turn: rows of the block; rows `with` and `from` are exchanged */
  AWAIT_LAUNCH();
  const int n = (int)n_, me = (int)threadIdx.x;
  const bool turns = hermitian != 0;
  const real alpha = (real)0.6403882032022076;
  for (u64 b = blockIdx.x; b < count; b += gridDim.x) {
    elem *const a = all + b * jump;
    int *const pivots = all_pivots + b * n_;
    int failed = 0;
    if (turns)
      for (int i = me; i < n; i += WIDE) AT(i, i) = make_elem(RE(AT(i, i)), 0);
    SYNC();
    for (int k = 0; k < n;) {
      real most = -1, row = -1;
      int best = n;
      for (int i = k + 1 + me; i < n; i += WIDE)
        if (size_of(AT(i, k)) > most) most = size_of(AT(i, k)), best = i;
      find_largest(sizes, places, most, best);
      most = sizes[0] > 0 ? sizes[0] : 0;
      best = places[0];
      const real own = size_of(AT(k, k));
      SYNC();
      const bool looks = own < alpha * most && best < n; /* the same in all threads */
      if (looks) {
        for (int j = k + me; j < n; j += WIDE) {
          const real found = j == best ? -1 : size_of(j < best ? AT(best, j) : AT(j, best));
          if (found > row) row = found;
        }
        find_largest(sizes, places, row, 0);
        row = sizes[0];
        SYNC();
      }
      if (me == 0) {
        step = 1, from = k;
        if (looks && own < alpha * most * (most / row)) {
          from = best;
          if (size_of(AT(best, best)) < alpha * row) step = 2;
        }
        with = k + step - 1;
        pivots[k] = step == 1 ? from + 1 : -from - 1;
        if (step == 2) pivots[k + 1] = -from - 1;
      }
      SYNC();
      const int rows = step, kk = with, p = from;
      if (p != kk) { /* of the part that is left; rows of L stay, as LAPACK leaves them */
        for (int i = p + 1 + me; i < n; i += WIDE) exchange(&AT(i, kk), &AT(i, p));
        for (int i = kk + 1 + me; i < p; i += WIDE) {
          const elem kept = conj_if(AT(i, kk), turns);
          AT(i, kk) = conj_if(AT(p, i), turns);
          AT(p, i) = kept;
        }
        if (me == 0) {
          exchange(&AT(kk, kk), &AT(p, p));
          AT(p, kk) = conj_if(AT(p, kk), turns);
          if (rows == 2) exchange(&AT(k + 1, k), &AT(p, k));
        }
      }
      SYNC();
      const int left = n - k - rows;
      if (rows == 1) {
        const elem d = AT(k, k);
        const bool zero = RE(d) == 0 && IM(d) == 0;
        if (zero && !failed) failed = k + 1;
        if (!zero) {
          for (int t = me; t < left * left; t += WIDE) {
            const int j = k + 1 + t / left, i = k + 1 + t %% left;
            if (i < j) continue;
            const elem x = less(AT(i, j), product(AT(i, k), quotient(conj_if(AT(j, k), turns), d)));
            AT(i, j) = turns && i == j ? make_elem(RE(x), 0) : x;
          }
          SYNC();
          for (int i = k + 1 + me; i < n; i += WIDE) AT(i, k) = quotient(AT(i, k), d);
        }
      } else {
        /* With the block [d, e^H; e, f], rows of L are those of A, [x, y], times its inverse: [f x - e y, d y - e^H x]
         * by the determinant, both divided by the product of the two e. */
        const elem d = AT(k, k), e = AT(k + 1, k), f = AT(k + 1, k + 1), other = conj_if(e, turns);
        const elem of_f = quotient(f, e), of_d = quotient(d, other);
        const elem rest = less(product(of_f, of_d), make_elem(1, 0));
        for (int pass = 0; pass < 2; pass++) { /* first the part that is left, then the columns that it needs */
          const int columns = pass ? 1 : left;
          for (int t = me; t < left * columns; t += WIDE) {
            const int j = k + 2 + (pass ? t : t / left), i = k + 2 + t %% left;
            if (!pass && i < j) continue;
            const elem x = AT(j, k), y = AT(j, k + 1);
            const elem one = quotient(quotient(less(product(of_f, x), y), other), rest);
            const elem two = quotient(quotient(less(product(of_d, y), x), e), rest);
            if (pass) {
              AT(j, k) = one;
              AT(j, k + 1) = two;
              continue;
            }
            const elem by = sum_of(product(AT(i, k), conj_if(one, turns)), product(AT(i, k + 1), conj_if(two, turns)));
            const elem z = less(AT(i, j), by);
            AT(i, j) = turns && i == j ? make_elem(RE(z), 0) : z;
          }
          SYNC();
        }
      }
      SYNC();
      k += rows;
    }
    if (me == 0) info[b] = failed;
    SYNC();
  }
}
/* The same numbers behind a factorisation of the library's, where it has left 0. */
KERNEL ldl_info(const elem *all, const int *all_pivots, int *info, u64 n_, u64 ld, u64 jump, u64 count) {
  SHARED real sizes[WIDE];
  SHARED int places[WIDE];
  AWAIT_LAUNCH();
  const int n = (int)n_;
  for (u64 b = blockIdx.x; b < count; b += gridDim.x) {
    const elem *const a = all + b * jump;
    int zero = n;
    for (int k = (int)threadIdx.x; k < n && zero == n; k += WIDE)
      if (all_pivots[b * n_ + (u64)k] > 0 && RE(AT(k, k)) == 0 && IM(AT(k, k)) == 0) zero = k;
    find_largest(sizes, places, zero < n ? 1 : 0, zero);
    if (threadIdx.x == 0 && info[b] == 0 && places[0] < n) info[b] = places[0] + 1;
    SYNC();
  }
}
#define B(i, q) b[(u64)(q) * ldb + (u64)(i)]
/* X of A X = B, in place of B, by the factors of `ldl`. */
KERNEL ldl_solve(const elem *all, const int *all_pivots, elem *all_b, u64 n_, u64 ld, u64 jump, u64 columns, u64 ldb,
                 u64 jump_b, u64 count, u64 hermitian) {
  SHARED elem parts[WIDE];
  AWAIT_LAUNCH();
  const int n = (int)n_, wide = (int)columns, me = (int)threadIdx.x, lane = me %% LANES, group = me / LANES;
  const bool turns = hermitian != 0;
  for (u64 at = blockIdx.x; at < count; at += gridDim.x) {
    const elem *const a = all + at * jump;
    elem *const b = all_b + at * jump_b;
    const int *const pivots = all_pivots + at * n_;
    for (int k = 0; k < n;) {
      const int pivot = pivots[k], rows = pivot < 0 && k + 1 < n ? 2 : 1, kk = k + rows - 1;
      const int p = (pivot < 0 ? -pivot : pivot) - 1, left = n - k - rows;
      if (p != kk)
        for (int q = me; q < wide; q += WIDE) exchange(&B(kk, q), &B(p, q));
      SYNC();
      for (u64 t = (u64)me; t < (u64)left * (u64)wide; t += WIDE) {
        const int i = k + rows + (int)(t %% (u64)left), q = (int)(t / (u64)left);
        elem x = less(B(i, q), product(AT(i, k), B(k, q)));
        if (rows == 2) x = less(x, product(AT(i, k + 1), B(k + 1, q)));
        B(i, q) = x;
      }
      SYNC();
      const elem d = AT(k, k), e = rows == 2 ? AT(k + 1, k) : d, f = AT(kk, kk), other = conj_if(e, turns);
      for (int q = me; q < wide; q += WIDE) {
        const elem x = B(k, q), y = B(kk, q);
        if (rows == 1) {
          B(k, q) = quotient(x, d);
          continue;
        }
        const elem of_f = quotient(f, e), of_d = quotient(d, other);
        const elem rest = less(product(of_f, of_d), make_elem(1, 0));
        B(k, q) = quotient(less(quotient(product(of_f, x), other), quotient(y, e)), rest);
        B(kk, q) = quotient(less(quotient(product(of_d, y), e), quotient(x, other)), rest);
      }
      SYNC();
      k += rows;
    }
    for (int k = n - 1; k >= 0;) {
      const int pivot = pivots[k], rows = pivot < 0 && k > 0 ? 2 : 1, p = (pivot < 0 ? -pivot : pivot) - 1;
      for (int begin = 0; begin < wide; begin += COLUMNS) /* a group of threads has each column */
        for (int j = k - rows + 1; j <= k; j++) {
          const int q = begin + group;
          elem sum = make_elem(0, 0);
          for (int i = k + 1 + lane; q < wide && i < n; i += LANES)
            sum = sum_of(sum, product(conj_if(AT(i, j), turns), B(i, q)));
          parts[me] = sum;
          SYNC();
          if (lane == 0 && q < wide) {
            for (int other = 1; other < LANES; other++) sum = sum_of(sum, parts[me + other]);
            B(j, q) = less(B(j, q), sum);
          }
          SYNC();
        }
      if (p != k)
        for (int q = me; q < wide; q += WIDE) exchange(&B(k, q), &B(p, q));
      SYNC();
      k -= rows;
    }
  }
}
/* Pivots to where they are wanted, as they are. */
KERNEL ldl_pivots(int *out, const int *from, u64 n, u64 count, u64 e1, u64 e2, u64 step, u64 o0, u64 o1, u64 o2) {
  AWAIT_LAUNCH();
  for (u64 t = thread_index(); t < n * count; t += thread_count())
    out[place(t / n, e1, e2, o0, o1, o2) + t %% n * step] = from[t];
}
/* The message's pivots, without gaps.  What is none becomes its own row, so that a solve touches no
 * other memory: no row of the matrix, and a negative number without another of its block. */
KERNEL ldl_pivots_in(int *to, const int *from, u64 n, u64 count, u64 e1, u64 e2, u64 step, u64 s0, u64 s1, u64 s2) {
  AWAIT_LAUNCH();
  for (u64 t = thread_index(); t < n * count; t += thread_count()) {
    const int *const x = from + place(t / n, e1, e2, s0, s1, s2);
    const u64 i = t %% n;
    long long found = x[i * step];
    u64 before = 0;
#define IS_BLOCK(j) (x[(j) * step] < 0 && -(long long)x[(j) * step] <= (long long)n)
    if (found == 0 || found > (long long)n || found < -(long long)n) found = (long long)i + 1;
    else if (found < 0) {
      while (before < i && IS_BLOCK(i - 1 - before)) before++;
      if (before %% 2 == 0 && !(i + 1 < n && IS_BLOCK(i + 1))) found = (long long)i + 1;
    }
    to[t] = (int)found;
  }
}
"""


def source(dtype: str) -> str:
    """Return the kernels for matrices of a dtype, without their prelude."""
    return preamble(dtype) + _SOURCE % {"threads": THREADS}
