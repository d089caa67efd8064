"""Scalar functions of an epilogue, in CUDA C++: NaN passes through each of them.

Quotients and roots of float32 are the GPU's approximations, within 2 units in the last place: exact ones branch, and
call a function for numbers such as 0.  Where all results have 16 bits or less (``ATOMR_BRIEF``), exponentials are, too:
their relative error of 2**-17 is less than a part of 32 of the results' rounding.
"""

from __future__ import annotations

from typing import Final

__all__ = ["SOURCE", "call"]

SOURCE: Final = r"""
namespace atomr {
template <class T> __device__ __forceinline__ T quotient(T x, T y) { return x / y; }
template <> __device__ __forceinline__ float quotient(float x, float y) {
  float z;  // y is 1 or more
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(z) : "f"(y));
  return x * z;
}
template <class T> __device__ __forceinline__ T ratio(T x, T y) { return x / y; }
template <> __device__ __forceinline__ float ratio(float x, float y) {
  float z;
  asm("div.full.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}
template <class T> __device__ __forceinline__ T root(T x) { return ::sqrt(x); }
template <> __device__ __forceinline__ float root(float x) {
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
template <class T> __device__ __forceinline__ T power_of_2(T x) { return ::exp2(x); }
template <class T> __device__ __forceinline__ T power(T x) { return ::exp(x); }
#ifdef ATOMR_BRIEF
template <> __device__ __forceinline__ float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
template <> __device__ __forceinline__ float power(float x) { return power_of_2(x * 1.4426950408889634f); }
#endif
template <class T> __device__ __forceinline__ T f_identity(T x) { return x; }
template <class T> __device__ __forceinline__ T f_neg(T x) { return -x; }
template <class T> __device__ __forceinline__ T f_abs(T x) { return ::fabs(x); }
template <class T> __device__ __forceinline__ T f_sqrt(T x) { return root(x); }
template <class T> __device__ __forceinline__ T f_exp(T x) { return power(x); }
template <class T> __device__ __forceinline__ T f_tanh(T x) { return ::tanh(x); }
template <class T> __device__ __forceinline__ T f_add(T x, T y) { return x + y; }
template <class T> __device__ __forceinline__ T f_sub(T x, T y) { return x - y; }
template <class T> __device__ __forceinline__ T f_mul(T x, T y) { return x * y; }
template <class T> __device__ __forceinline__ T f_div(T x, T y) { return ratio(x, y); }
template <class T> __device__ __forceinline__ T f_fma(T x, T y, T z) { return ::fma(x, y, z); }
template <class T> __device__ __forceinline__ T f_max(T x, T y) { return x != x ? x : y != y ? y : x > y ? x : y; }
template <class T> __device__ __forceinline__ T f_min(T x, T y) { return x != x ? x : y != y ? y : x < y ? x : y; }
template <class T> __device__ __forceinline__ T f_clamp(T x, T low, T high) { return f_min(f_max(x, low), high); }
template <class T> __device__ __forceinline__ T f_relu(T x) { return x < T(0) ? T(0) : x; }
template <class T> __device__ __forceinline__ T f_sigmoid(T x) { return quotient(T(1), T(1) + power(-x)); }
template <class T> __device__ __forceinline__ T f_silu(T x) { return quotient(x, T(1) + power(-x)); }
template <class T> __device__ __forceinline__ T f_gelu(T x) {
  return T(0.5) * x * (T(1) + ::erf(x * T(0.70710678118654752440)));
}
template <class T> __device__ __forceinline__ T f_gelu_tanh(T x) {
  // 1 + tanh(z) is 2 / (1 + exp(-2 z)), which has no branch and does not cancel; its base becomes 2 in the factors.
  return quotient(x, T(1) + power_of_2(x * (T(-2.302208198144325) - T(0.1029432395800235) * x * x)));
}
template <class T> __device__ __forceinline__ T f_log(T x) { return ::log(x); }
template <class T> __device__ __forceinline__ T f_rsqrt(T x) { return ::rsqrt(x); }
template <class T> __device__ __forceinline__ T f_erf(T x) { return ::erf(x); }
template <class T> __device__ __forceinline__ T f_softplus(T x) { return f_max(x, T(0)) + ::log1p(power(-::fabs(x))); }
template <class T> __device__ __forceinline__ T f_leaky_relu(T x, T slope) { return x < T(0) ? slope * x : x; }
template <class T> __device__ __forceinline__ T f_hardswish(T x) {
  return x * f_clamp(x + T(3), T(0), T(6)) * T(1.0 / 6.0);
}
}
"""


def call(name: str, arguments: list[str]) -> str:
    """Return a call of a functor."""
    return f"atomr::f_{name}({', '.join(arguments)})"
