"""Functions of complex numbers that few programs call: their source, in C++ and C11, for programs that call them.

Inverse functions are those of Kahan, "Branch cuts for complex elementary functions" (1987): accurate near their branch
cuts, where a logarithm of a sum would cancel.  Infinities and NaN have the results of C11, Annex G.
"""

from __future__ import annotations

from collections.abc import Iterable
from string import Template
from typing import Final

__all__ = ["complex_functions"]

_SOURCES: Final[dict[str, str]] = {
    "isinf": """\
DEVICE bool isinf_$T($T a) {
  return (a.re == a.re && a.re - a.re != 0) || (a.im == a.im && a.im - a.im != 0);
}
""",
    "isfinite": "DEVICE bool isfinite_$T($T a) { return a.re - a.re == 0 && a.im - a.im == 0; }\n",
    "real": "DEVICE $R real_$T($T a) { return a.re; }\n",
    "imag": "DEVICE $R imag_$T($T a) { return a.im; }\n",
    "conj": "DEVICE $T conj_$T($T a) { return make_$T(a.re, -a.im); }\n",
    "rint": "DEVICE $T rint_$T($T a) { return make_$T(rint$f(a.re), rint$f(a.im)); }\n",
    "sign": """\
DEVICE $T sign_$T($T a) {
  $R h = hypot$f(a.re, a.im);
  return h == 0 ? make_$T(0, 0) : make_$T(a.re / h, a.im / h);
}
""",
    "sinh": """\
DEVICE $T sinh_$T($T a) {
  $R nan = a.im - a.im;
  if (a.im == 0) return make_$T(sinh$f(a.re), a.im);
  if (nan != 0) return make_$T(a.re == 0 || (a.re == a.re && a.re - a.re != 0) ? a.re : nan, nan);
  return make_$T(sinh$f(a.re) * cos$f(a.im), cosh$f(a.re) * sin$f(a.im));
}
""",
    "cosh": """\
DEVICE $T cosh_$T($T a) {
  $R nan = a.im - a.im;
  if (a.im == 0) return make_$T(cosh$f(a.re), a.re == a.re ? copysign$f(($R)1, a.re) * a.im : a.im);
  if (nan != 0 && a.re == 0) return make_$T(nan, copysign$f(($R)1, a.im) * a.re);
  if (nan != 0) return make_$T(a.re == a.re && a.re - a.re != 0 ? fabs$f(a.re) : nan, nan);
  return make_$T(cosh$f(a.re) * cos$f(a.im), sinh$f(a.re) * sin$f(a.im));
}
""",
    "sin": "DEVICE $T sin_$T($T a) { $T z = sinh_$T(make_$T(-a.im, a.re)); return make_$T(z.im, -z.re); }\n",
    "cos": "DEVICE $T cos_$T($T a) { return cosh_$T(make_$T(-a.im, a.re)); }\n",
    "tan": "DEVICE $T tan_$T($T a) { $T t = tanh_$T(make_$T(-a.im, a.re)); return make_$T(t.im, -t.re); }\n",
    "expm1": """\
DEVICE $T expm1_$T($T a) {
  if (a.re - a.re != 0) { $T e = exp_$T(a); return make_$T(e.re - 1, e.im); }
  $R s = sin$f(a.im / 2);
  return make_$T(expm1$f(a.re) * cos$f(a.im) - 2 * s * s, a.im == 0 ? a.im : exp$f(a.re) * sin$f(a.im));
}
""",
    "log1p": """\
DEVICE $T log1p_$T($T a) {
  if (fabs$f(a.re) > ($R)0.5 || fabs$f(a.im) > ($R)0.5) return log_$T(make_$T(a.re + 1, a.im));
  return make_$T(($R)0.5 * log1p$f(a.re * (2 + a.re) + a.im * a.im), atan2$f(a.im, a.re + 1));
}
""",
    "log2": """\
DEVICE $T log2_$T($T a) {
  $T z = log_$T(a);
  return make_$T(z.re * ($R)1.4426950408889634, z.im * ($R)1.4426950408889634);
}
""",
    "log10": """\
DEVICE $T log10_$T($T a) {
  $T z = log_$T(a);
  return make_$T(z.re * ($R)0.4342944819032518, z.im * ($R)0.4342944819032518);
}
""",
    "asin": """\
DEVICE $T asin_$T($T a) {
  if (isinf_$T(a)) return make_$T(atan2$f(a.re, fabs$f(a.im)), copysign$f(bits_float(0x7f800000u), a.im));
  if (a.re == 0 && a.im != a.im) return a;
  $T u = sqrt_$T(make_$T(1 - a.re, -a.im)), v = sqrt_$T(make_$T(1 + a.re, a.im));
  return make_$T(atan2$f(a.re, u.re * v.re - u.im * v.im), asinh$f(u.re * v.im - u.im * v.re));
}
""",
    "acos": """\
DEVICE $T acos_$T($T a) {
  if (isinf_$T(a)) return make_$T(atan2$f(fabs$f(a.im), a.re), -copysign$f(bits_float(0x7f800000u), a.im));
  if (a.re == 0 && a.im != a.im) return make_$T(($R)1.5707963267948966, a.im);
  $T u = sqrt_$T(make_$T(1 - a.re, -a.im)), v = sqrt_$T(make_$T(1 + a.re, a.im));
  return make_$T(2 * atan2$f(u.re, v.re), asinh$f(v.re * u.im - v.im * u.re));
}
""",
    "acosh": """\
DEVICE $T acosh_$T($T a) {
  if (isinf_$T(a)) return make_$T(bits_float(0x7f800000u), atan2$f(a.im, a.re));
  if (a.re == 0 && a.im != a.im) return make_$T(a.im, ($R)1.5707963267948966);
  $T u = sqrt_$T(make_$T(a.re - 1, a.im)), v = sqrt_$T(make_$T(a.re + 1, a.im));
  return make_$T(asinh$f(u.re * v.re + u.im * v.im), 2 * atan2$f(u.im, v.re));
}
""",
    "asinh": "DEVICE $T asinh_$T($T a) { $T z = asin_$T(make_$T(a.im, -a.re)); return make_$T(-z.im, z.re); }\n",
    "atanh": """\
DEVICE $T atanh_$T($T a) {
  if (isinf_$T(a))
    return make_$T(copysign$f(($R)0, a.re), a.im == a.im ? copysign$f(($R)1.5707963267948966, a.im) : a.im);
  if (a.re == 0 && a.im != a.im) return a;
  $R x = fabs$f(a.re), y = a.im, one = 1 - x;
  $R re = ($R)0.25 * log1p$f(4 * x / (one * one + y * y)), im = ($R)0.5 * atan2$f(2 * y, one * (1 + x) - y * y);
  return make_$T(copysign$f(re, a.re), im);
}
""",
    "atan": "DEVICE $T atan_$T($T a) { $T z = atanh_$T(make_$T(-a.im, a.re)); return make_$T(z.im, -z.re); }\n",
}
#: Functions that others call.
_NEEDS: Final = {
    "acos": ("isinf",), "acosh": ("isinf",), "asin": ("isinf",), "asinh": ("asin", "isinf"), "atan": ("atanh", "isinf"),
    "atanh": ("isinf",), "cos": ("cosh",), "sin": ("sinh",),
}  # fmt: skip


def complex_functions(called: Iterable[str], storage: str, real: str, suffix: str) -> str:
    """Return the source of the functions that are called, and not in every prelude.

    Parameters
    ----------
    called
        Names of operations.
    storage, real, suffix : str
        C types of a number and of its parts, and the ending of C functions of the latter.
    """
    wanted = set(called)
    wanted |= {needed for name in wanted & set(_NEEDS) for needed in _NEEDS[name]}
    return "".join(
        Template(text).substitute(T=storage, R=real, f=suffix) for name, text in _SOURCES.items() if name in wanted
    )
