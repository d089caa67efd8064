"""The compiler's types of a kernel's parameters, with templates, typedefs, macros and ``#if`` resolved.

A few lines are appended to the source, and one more name expression is passed to NVRTC: an empty kernel with one
integer template argument for each parameter of the user's kernel.  Its lowered name contains these integers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["PROBE", "Kind", "expression", "kinds"]

_STRUCT, _POINTER, _POINTER_TO_CONST, _NONE, _REAL, _INTEGER, _BOOL = range(7)
_REALS: Final = ("float", "double", "__half")
_INTEGERS: Final = (
    "char", "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned int", "long",
    "unsigned long", "long long", "unsigned long long", "wchar_t", "char16_t", "char32_t",
)  # fmt: skip


def _is(kind: str, value: str) -> str:
    return f"template <> struct __atomr_kind<{kind}, false> {{ static constexpr int __atomr_value = {value}; }};"


def _integer(kind: str) -> str:
    return _is(kind, f"{_INTEGER} + 8 * (2 * sizeof({kind}) + (({kind})-1 < ({kind})0))")


#: Text appended to a source.  All names are reserved identifiers, since macros of the source apply here, too.
PROBE: Final = "\n".join(
    (
        '\n\n#line 1 "atomr-native"',
        "struct __half;",
        "template <int...> __global__ void __atomr_kinds() {}",
        "template <class __atomr_t, bool = __is_enum(__atomr_t)> struct __atomr_kind"
        f" {{ static constexpr int __atomr_value = {_STRUCT}; }};",
        "template <class __atomr_t> struct __atomr_kind<__atomr_t, true>"
        " : __atomr_kind<__underlying_type(__atomr_t)> {};",
        *(_is(kind, f"{_REAL} + 8 * {size}") for kind, size in zip(_REALS, (4, 8, 2), strict=True)),
        _is("bool", str(_BOOL)),
        *(_integer(kind) for kind in _INTEGERS),
        "#ifdef __cpp_char8_t",
        _integer("char8_t"),
        "#endif",
        *(
            f"template <{types}> struct __atomr_kind<{of}, false> {{ static constexpr int __atomr_value = {value}; }};"
            for types, of, value in (
                ("class __atomr_t", "__atomr_t *", _POINTER),
                ("class __atomr_t", "const __atomr_t *", _POINTER_TO_CONST),
                ("class __atomr_t", "__atomr_t &", _NONE),
                ("class __atomr_t", "__atomr_t &&", _NONE),
                ("class __atomr_r, class... __atomr_a", "__atomr_r (*)(__atomr_a...)", _NONE),
            )
        ),
        "template <class... __atomr_a> struct __atomr_list"
        " { static constexpr auto __atomr_kernel = &__atomr_kinds<__atomr_kind<__atomr_a>::__atomr_value...>; };",
        "template <class... __atomr_a> __device__ __atomr_list<__atomr_a...> __atomr_of(void (*)(__atomr_a...));",
        "",
    )
)


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a parameter.

    Attributes
    ----------
    kind : str
        ``"pointer"``, ``"scalar"``, ``"struct"``, or ``""`` for a reference or a pointer to a function.
    type : str
        NumPy's name of a scalar's type.
    reads : bool
        Whether it is a pointer to const.
    """

    kind: str
    type: str = ""
    reads: bool = False


def expression(name: str) -> str:
    """Return the name expression that yields the kinds of a kernel's parameters."""
    return f"decltype(__atomr_of({name}))::__atomr_kernel"


def kinds(lowered: str) -> tuple[Kind, ...] | None:
    """Return the kinds in the lowered name of the expression; None for any other name."""
    found = re.fullmatch(r"_Z\d+__atomr_kindsIJ((?:Li\d+E)*)EEvv", lowered)
    return None if found is None else tuple(_kind(int(number)) for number in re.findall(r"\d+", found[1]))


def _kind(number: int) -> Kind:
    kind, rest = number % 8, number // 8
    if kind == _REAL:
        return Kind("scalar", f"float{8 * rest}")
    if kind == _BOOL:
        return Kind("scalar", "bool")
    if kind == _INTEGER:
        signed, nbytes = rest % 2, rest // 2
        return Kind("scalar", f"{'' if signed else 'u'}int{8 * nbytes}")
    return Kind(("struct", "pointer", "pointer", "")[kind], reads=kind == _POINTER_TO_CONST)
