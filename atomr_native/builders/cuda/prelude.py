"""The part of every kernel's source that does not depend on the plan.

All of it, and all that is generated after it, is both C++ and C11, so that kernels can be run on a CPU as well: macros
stand for what only CUDA has, helpers have the dtype in their names, and nothing is overloaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from string import Template
from typing import Final

from .complex_functions import complex_functions

__all__ = ["INTEGERS", "STORAGE", "prelude"]

#: C type of an element in memory, by dtype; also of a value, but for bool, which is ``bool``.
STORAGE: Final[dict[str, str]] = {
    "bool": "unsigned char", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
    "uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned int", "uint64": "unsigned long long",
    "float16": "unsigned short", "bfloat16": "unsigned short", "float8_e4m3fn": "unsigned char",
    "float8_e5m2": "unsigned char", "float32": "float", "float64": "double", "complex64": "c64", "complex128": "c128",
}  # fmt: skip

#: The unsigned C type in which arithmetic wraps, by integer dtype.
INTEGERS: Final[dict[str, str]] = {
    name: "unsigned long long" if name.endswith("64") else "unsigned int"
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
}

_BASE = """\
#ifndef KERNEL
#define KERNEL extern "C" __global__ void
#define DEVICE static __device__ __forceinline__
#define OUTLINE static __device__ __noinline__
#define SHARED __shared__
#define ALIGNED(n) __align__(n)
#define SYNC() __syncthreads()
#define FENCE() __threadfence_system()
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define AWAIT_LAUNCH() asm volatile("griddepcontrol.wait;" ::: "memory")
#define ALLOW_LAUNCH() asm volatile("griddepcontrol.launch_dependents;")
#else
#define AWAIT_LAUNCH()
#define ALLOW_LAUNCH()
#endif
#endif
typedef unsigned long long u64;
DEVICE float bits_float(unsigned int bits) { return __uint_as_float(bits); }
DEVICE unsigned int float_bits(float x) { return __float_as_uint(x); }
DEVICE u64 thread_index(void) { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
DEVICE u64 thread_count(void) { return (u64)gridDim.x * blockDim.x; }
"""

# Narrow floating types.  Rounding is to nearest, ties to even; float64 to all but float16 goes through float32, and
# beyond the largest number of float8_e4m3fn is NaN: both as ml_dtypes has it.
_NARROW = """\
/* The magnitude of x with `man` bits of mantissa and least normal exponent `emin`; it is not too large. */
DEVICE unsigned int narrow(float x, int man, int emin) {
  unsigned int a = float_bits(x) & 0x7fffffffu;
  if ((int)(a >> 23) - 127 < emin) { /* the sum has the place value of the target's subnormals */
    float magic = bits_float((unsigned int)(emin - man + 23 + 127) << 23);
    return float_bits(bits_float(a) + magic) - float_bits(magic);
  }
  int shift = 23 - man;
  unsigned int r = a - ((unsigned int)(emin + 126) << 23);
  return (r + ((1u << (shift - 1)) - 1u) + ((r >> shift) & 1u)) >> shift;
}
DEVICE float float16_float(unsigned short h) {
#if defined(__CUDA_ARCH__)
  float x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h)); return x;
#else
  unsigned int a = h & 0x7fffu, sign = (unsigned int)(h & 0x8000u) << 16;
  if (a >= 0x7c00u) return bits_float(sign | 0x7f800000u | (a << 13));
  return bits_float(sign | float_bits(bits_float(a << 13) * bits_float(0x77800000u)));
#endif
}
DEVICE unsigned short float_float16(float x) {
#if defined(__CUDA_ARCH__)
  unsigned short h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x)); return h;
#else
  unsigned int r, a = float_bits(x) & 0x7fffffffu, sign = (float_bits(x) >> 16) & 0x8000u;
  if (a > 0x7f800000u) return (unsigned short)(sign | 0x7e00u);
  r = a >= 0x47800000u ? 0x7c00u : narrow(x, 10, -14);
  return (unsigned short)(sign | r);
#endif
}
DEVICE float bfloat16_float(unsigned short h) { return bits_float((unsigned int)h << 16); }
DEVICE unsigned short float_bfloat16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  unsigned short h; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x)); return h;
#else
  unsigned int b = float_bits(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return (unsigned short)((b >> 16) | 0x40u);
  return (unsigned short)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
#endif
}
DEVICE float float8_e4m3fn_float(unsigned char h) {
  unsigned int a = h & 0x7fu, sign = (unsigned int)(h & 0x80u) << 24;
  if (a == 0x7fu) return bits_float(sign | 0x7fc00000u);
  return bits_float(sign | float_bits(bits_float(a << 20) * bits_float(0x7b800000u)));
}
DEVICE unsigned char float_float8_e4m3fn(float x) {
  unsigned int a = float_bits(x) & 0x7fffffffu, sign = (float_bits(x) >> 24) & 0x80u;
  if (a > 0x43e80000u) return (unsigned char)(sign | 0x7fu); /* 464, half way to what would follow 448 */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  unsigned short h; asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(h) : "f"(0.0f), "f"(x));
  return (unsigned char)h;
#else
  return (unsigned char)(sign | narrow(x, 3, -6));
#endif
}
DEVICE float float8_e5m2_float(unsigned char h) { return float16_float((unsigned short)((unsigned int)h << 8)); }
DEVICE unsigned char float_float8_e5m2(float x) {
  unsigned int a = float_bits(x) & 0x7fffffffu, sign = (float_bits(x) >> 24) & 0x80u;
  if (a > 0x7f800000u) return (unsigned char)(sign | 0x7eu);
  if (a >= 0x47700000u) return (unsigned char)(sign | 0x7cu); /* 61440, half way to what would follow 57344 */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  unsigned short h; asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(h) : "f"(0.0f), "f"(x));
  return (unsigned char)h;
#else
  return (unsigned char)(sign | narrow(x, 2, -14));
#endif
}
/* Rounded to odd in between, so that nothing is rounded twice. */
DEVICE unsigned short double_float16(double d) {
  float x = (float)d;
  if (d == d && (double)x != d) {
    unsigned int b = float_bits(x);
    if (fabs((double)x) > fabs(d)) b -= 1u;
    x = bits_float(b | 1u);
  }
  return float_float16(x);
}
"""

# Division rounds down, by zero gives zero; a negative power is truncated to an integer (NumPy refuses those).
_INTEGER = Template("""\
DEVICE $T floor_divide_$name($T a, $T b) {
  if (b == 0) return 0;
  $T q = $minus_one ? ($T)(($U)0 - ($U)a) : ($T)(a / b);
  return !($minus_one) && $negative && ($T)(q * b) != a ? ($T)(q - 1) : q;
}
DEVICE $T remainder_$name($T a, $T b) {
  if (b == 0 || $minus_one) return 0;
  $T r = ($T)(a % b);
  return r != 0 && $negative_r ? ($T)(r + b) : r;
}
DEVICE $T power_$name($T a, $T b) {
  $U result = 1, base = ($U)a; u64 n = (u64)b;
  if ($below) return a == 1 ? ($T)1 : a == ($T)-1 ? ((n & 1) ? a : ($T)1) : ($T)0;
  for (; n; n >>= 1) { if (n & 1) result *= base; base *= base; }
  return ($T)result;
}
""")

# As NumPy's npy_divmod.
_FLOATING = Template("""\
DEVICE $T floor_divide_$name($T a, $T b) {
  if (b == 0) return a / b;
  $T m = fmod$f(a, b), d = (a - m) / b;
  if (m != 0 && (b < 0) != (m < 0)) d -= 1;
  if (d == 0) return copysign$f(($T)0, a / b);
  $T q = floor$f(d);
  return d - q > ($T)0.5 ? q + 1 : q;
}
DEVICE $T remainder_$name($T a, $T b) {
  $T m = fmod$f(a, b);
  if (b == 0) return m;
  if (m == 0) return copysign$f(($T)0, b);
  return (b < 0) != (m < 0) ? m + b : m;
}
""")

_COMPLEX = Template("""\
typedef struct { $R re, im; } $T;
DEVICE $T make_$T($R re, $R im) { $T z; z.re = re; z.im = im; return z; }
""")

# Only where programs need them.  Accurate to some units of the last place; exponentials, their inverses and hyperbolic
# functions of infinities and NaN are those of C11, Annex G.
_COMPLEX_FUNCTIONS = Template("""\
DEVICE $T add_$T($T a, $T b) { return make_$T(a.re + b.re, a.im + b.im); }
DEVICE $T subtract_$T($T a, $T b) { return make_$T(a.re - b.re, a.im - b.im); }
DEVICE $T multiply_$T($T a, $T b) { return make_$T(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re); }
DEVICE $T negative_$T($T a) { return make_$T(-a.re, -a.im); }
DEVICE bool equal_$T($T a, $T b) { return a.re == b.re && a.im == b.im; }
DEVICE bool not_equal_$T($T a, $T b) { return a.re != b.re || a.im != b.im; }
DEVICE bool isnan_$T($T a) { return a.re != a.re || a.im != a.im; }
DEVICE $R abs_$T($T a) { return hypot$f(a.re, a.im); }
DEVICE $T divide_$T($T a, $T b) {
  $R x = fabs$f(b.re), y = fabs$f(b.im);
  if (x >= y) {
    if (x == 0 && y == 0) return make_$T(a.re / x, a.im / x);
    $R r = b.im / b.re, s = 1 / (b.re + b.im * r);
    return make_$T((a.re + a.im * r) * s, (a.im - a.re * r) * s);
  }
  $R r = b.re / b.im, s = 1 / (b.im + b.re * r);
  return make_$T((a.re * r + a.im) * s, (a.im * r - a.re) * s);
}
DEVICE $T exp_$T($T a) {
  $R e = exp$f(a.re), nan = a.im - a.im;
  if (a.im == 0) return make_$T(e, a.im);
  if (nan != 0 && e == 0) return make_$T(e, copysign$f(($R)0, a.im));
  if (nan != 0 && e > 0 && a.re - a.re != 0) return make_$T(e, nan);
  return make_$T(e * cos$f(a.im), e * sin$f(a.im));
}
DEVICE $T log_$T($T a) {
  $R x = fabs$f(a.re), y = fabs$f(a.im), h = hypot$f(x, y);
  $R big = x > y ? x : y, small = x > y ? y : x;
  $R m = h > ($R)0.5 && h < 2 ? ($R)0.5 * log1p$f((big - 1) * (big + 1) + small * small) : log$f(h);
  return make_$T(m, atan2$f(a.im, a.re));
}
DEVICE $T sqrt_$T($T a) {
  if (a.re == 0 && a.im == 0) return make_$T(0, a.im);
  $R scale = fabs$f(a.re) > ($R)1e30 || fabs$f(a.im) > ($R)1e30 ? ($R)0.25 : 1;
  $R x = a.re * scale, y = a.im * scale, t = sqrt$f((fabs$f(x) + hypot$f(x, y)) * ($R)0.5), u = y / (2 * t);
  if (scale != 1) { t *= 2; u *= 2; }
  return x >= 0 ? make_$T(t, u) : make_$T(fabs$f(u), copysign$f(t, y));
}
DEVICE $T tanh_$T($T a) {
  if (a.im == 0) return make_$T(tanh$f(a.re), a.im);
  if (a.im - a.im != 0) {
    if (a.re == 0) return make_$T(a.re, a.im - a.im);
    if (a.re == a.re && a.re - a.re != 0) return make_$T(copysign$f(($R)1, a.re), copysign$f(($R)0, a.im));
    return make_$T(a.im - a.im, a.im - a.im);
  }
  if (fabs$f(a.re) > $big)
    return make_$T(copysign$f(($R)1, a.re), 4 * sin$f(a.im) * cos$f(a.im) * exp$f(-2 * fabs$f(a.re)));
  $R t = tan$f(a.im), beta = 1 + t * t, s = sinh$f(a.re), rho = sqrt$f(1 + s * s), d = 1 + beta * s * s;
  return make_$T(beta * rho * s / d, t / d);
}
DEVICE $T power_$T($T a, $T b) {
  if (b.re == 0 && b.im == 0) return make_$T(1, 0);
  if (a.re == 0 && a.im == 0) {
    $R zero = b.re > 0 && b.im == 0 ? 0 : bits_float(0x7fc00000u);
    return make_$T(zero, zero);
  }
  if (b.im == 0 && b.re == floor$f(b.re) && fabs$f(b.re) < 100) {
    $T result = make_$T(1, 0), base = a;
    for (int n = (int)fabs$f(b.re); n; n >>= 1) {
      if (n & 1) result = multiply_$T(result, base);
      base = multiply_$T(base, base);
    }
    return b.re < 0 ? divide_$T(make_$T(1, 0), result) : result;
  }
  return exp_$T(multiply_$T(b, log_$T(a)));
}
""")


def _integer(name: str) -> str:
    signed = not name.startswith("u")
    return _INTEGER.substitute(
        name=name,
        T=STORAGE[name],
        U=INTEGERS[name],
        minus_one=f"b == ({STORAGE[name]})-1" if signed else "0",
        negative="(a < 0) != (b < 0)" if signed else "0",
        negative_r="(r < 0) != (b < 0)" if signed else "0",
        below="b < 0" if signed else "0",
    )


def prelude(dtypes: Iterable[str], functions: Iterable[str] = ()) -> str:
    """Return the source that comes before kernels.

    Parameters
    ----------
    dtypes
        Of what the kernels read, write and compute with.
    functions
        Names of the operations whose helpers they call.
    """
    used, called = set(dtypes), set(functions)
    parts = [_BASE]
    if used & {"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"}:
        parts.append(_NARROW)
    if called & {"floor_divide", "remainder", "power"}:
        parts += [_integer(name) for name in INTEGERS if name in used]
        parts += [
            _FLOATING.substitute(name=name, T=STORAGE[name], f=suffix)
            for name, suffix in (("float32", "f"), ("float64", ""))
            if name in used
        ]
    for name, real, suffix, big in (("complex64", "float", "f", "10"), ("complex128", "double", "", "20")):
        if name in used:
            marks = {"T": STORAGE[name], "R": real, "f": suffix, "big": big}
            parts.append(_COMPLEX.substitute(marks))
            if called:
                parts.append(_COMPLEX_FUNCTIONS.substitute(marks))
                parts.append(complex_functions(called, STORAGE[name], real, suffix))
    return "".join(parts)
