"""Where a kernel of lines reads and writes: elements of any layout and dtype, or functions that cuFFT calls, too."""

from __future__ import annotations

from typing import Final

from ....builders.cuda.codegen import convert
from ....builders.cuda.prelude import STORAGE
from ....dtypes import as_dtype
from .butterflies import WHOLE, literal
from .line_types import End
from .sources import C_TYPES

__all__ = ["load_text", "store_text"]

_REALS: Final = {"complex64": "float32", "complex128": "float64"}


def _pair(dtype: str, name: str) -> str:
    """Return the type of two neighbours, which are read and written by one access."""
    return f"typedef struct ALIGNED({2 * as_dtype(dtype).itemsize}) {{ {STORAGE[dtype]} at[2]; }} {name};"


def load_text(end: End, kind: str, n: int, real: str, halves: bool) -> list[str]:
    """Return the function ``loaded(x, k)``, and the macro ``LOAD(k)``.

    `halves` says that the array has a last axis of parts.
    """
    split = kind != "c2c" and n % 2 == 0
    if end.symbol:
        return _called_load(end, kind, n, real, split)
    array, step = end.array, end.step
    dtype, stored = array.dtype, STORAGE[array.dtype]
    need = n // 2 + 1 if kind == "c2r" else n
    bound = min(array.shape[end.axis], need)
    sign = "-" if end.conjugated else ""
    lines: list[str] = []

    def one(k: str) -> str:
        at = f"(long long)({k}) * {step}"
        if dtype in _REALS:
            if end.aligned:
                return f"((const {WHOLE} *)x)[{at}]"
            return f"made_of(x[{at}].re, x[{at}].im)"
        if halves:
            if end.twos(True):
                both = f"((const unsigned int *)x)[(long long)({k}) * {step // 2}]"
                parts = (f"(unsigned short){both}", f"(unsigned short)({both} >> 16)")
            else:
                parts = (f"x[{at}]", f"x[{at} + {array.strides[-1]}]")
            return f"made_of({', '.join(convert(dtype, real, part) for part in parts)})"
        return f"made_of({convert(dtype, real, f'x[{at}]')}, 0)"

    def checked(k: str, name: str) -> list[str]:
        text = f"{name} = {one(k)};"
        return [f"{WHOLE} {name} = made_of(0, 0);", f"if ({k} < {bound}) {text}" if bound < need else text]

    body: list[str]
    if kind == "r2c" and split:
        if bound == n and end.twos(False):
            lines.append(_pair(dtype, "two_loaded"))
            body = [
                "const two_loaded both = ((const two_loaded *)x)[k];",
                f"return made_of({convert(dtype, real, 'both.at[0]')}, {convert(dtype, real, 'both.at[1]')});",
            ]
        else:
            body = [*checked("2 * k", "a"), *checked("2 * k + 1", "b"), "return made_of(a.re, b.re);"]
    elif kind == "c2r" and not split:
        body = [
            f"const bool back = k > {n // 2};",
            f"const int m = back ? {n} - k : k;",
            *checked("m", "z"),
            f"return made_of(z.re, k == 0 ? 0 : back ? -({sign}z.im) : {sign}z.im);",
        ]
    else:
        body = [*checked("k", "z"), f"return made_of(z.re, {sign}z.im);"]
    return [
        *lines,
        f"DEVICE {WHOLE} loaded(const {stored} *x, int k) {{",
        *body,
        "}",
        "#define LOAD(k) loaded(p + from, k)",
    ]


def store_text(end: End, kind: str, n: int, real: str, halves: bool) -> list[str]:
    """Return the function ``stored(y, k, z)``, and the macro ``STORE(k, z)``; parameters as of `load_text`."""
    split = kind != "c2c" and n % 2 == 0
    if end.symbol:
        return _called_store(end, kind, n, real, split)
    array, step = end.array, end.step
    dtype, stored = array.dtype, STORAGE[array.dtype]
    factor = f" * {literal(end.scale, real)}" if end.scale != 1 else ""
    sign = "-" if end.conjugated else ""
    lines: list[str] = []
    at = f"(long long)k * {step}"
    if kind == "c2r":
        if not split:
            body = [f"y[{at}] = {convert(real, dtype, f'(z.re{factor})')};"]
        elif end.twos(False):
            lines.append(_pair(dtype, "two_stored"))
            body = [
                "two_stored both;",
                *(
                    f"both.at[{i}] = {convert(real, dtype, f'(z.{part}{factor})')};"
                    for i, part in enumerate(("re", "im"))
                ),
                "((two_stored *)y)[k] = both;",
            ]
        else:
            parts = (convert(real, dtype, f"(z.{part}{factor})") for part in ("re", "im"))
            body = [f"y[(2 * (long long)k + {i}) * {step}] = {value};" for i, value in enumerate(parts)]
    else:
        body = [f"if (k > {n // 2}) return;"] if kind == "r2c" and not split else []
        body += [f"const {WHOLE} made = made_of(z.re{factor}, {sign}z.im{factor});"]
        if halves:
            low, high = (convert(real, dtype, f"made.{part}") for part in ("re", "im"))
            if end.twos(True):
                both = f"(unsigned int){low} | (unsigned int){high} << 16"
                body.append(f"((unsigned int *)y)[(long long)k * {step // 2}] = {both};")
            else:
                body += [f"y[{at}] = {low};", f"y[{at} + {array.strides[-1]}] = {high};"]
        elif end.aligned:
            body.append(f"(({WHOLE} *)y)[{at}] = made;")
        else:
            body += [f"y[{at}].re = made.re;", f"y[{at}].im = made.im;"]
    return [
        *lines,
        f"DEVICE void stored({stored} *y, int k, {WHOLE} z) {{",
        *body,
        "}",
        "#define STORE(k, z) stored(q_ + to, k, z)",
    ]


def _called_load(end: End, kind: str, n: int, real: str, split: bool) -> list[str]:
    whole = kind != "r2c"
    dense = ("complex64" if real == "float32" else "complex128") if whole else real
    element, step = C_TYPES[dense], end.step
    lines = [
        f"DEVICE {element} element_at(void *x, u64 place, void *words, int k) {{",
        f"return {end.symbol}(x, place + (u64)k * {step}u, words, 0);",
        "}",
        f"DEVICE {WHOLE} loaded(void *x, u64 place, void *words, int k) {{",
    ]
    sign = "-" if end.conjugated else ""
    if kind == "r2c" and split:
        lines += [
            f"const {element} a = element_at(x, place, words, 2 * k), b = element_at(x, place, words, 2 * k + 1);",
            "return made_of(a, b);",
        ]
    elif kind == "r2c":
        lines.append("return made_of(element_at(x, place, words, k), 0);")
    elif kind == "c2r" and not split:
        lines += [
            f"const bool back = k > {n // 2};",
            f"const {element} z = element_at(x, place, words, back ? {n} - k : k);",
            f"return made_of(z.x, k == 0 ? 0 : back ? -({sign}z.y) : {sign}z.y);",
        ]
    else:
        lines += [f"const {element} z = element_at(x, place, words, k);", f"return made_of(z.x, {sign}z.y);"]
    return [*lines, "}", "#define LOAD(k) loaded((void *)p, (u64)from, words, k)"]


def _called_store(end: End, kind: str, n: int, real: str, split: bool) -> list[str]:
    whole = kind != "c2r"
    dense = ("complex64" if real == "float32" else "complex128") if whole else real
    element, step = C_TYPES[dense], end.step
    lines = [f"DEVICE void stored(void *y, u64 place, void *words, int k, {WHOLE} z) {{"]
    call = f"{end.symbol}(y, place + (u64)({{}}) * {step}u, {{}}, words, 0);"
    if kind == "c2r":
        lines += (
            [call.format("2 * k", "z.re"), call.format("2 * k + 1", "z.im")] if split else [call.format("k", "z.re")]
        )
    else:
        lines += [f"if (k > {n // 2}) return;"] if kind == "r2c" and not split else []
        sign = "-" if end.conjugated else ""
        lines += [f"{element} made; made.x = z.re; made.y = {sign}z.im;", call.format("k", "made")]
    return [*lines, "}", "#define STORE(k, z) stored((void *)q_, (u64)to, words, k, z)"]
