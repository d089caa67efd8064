"""Parameters of CUDA C++ kernels: names from declarations in the source, kinds from the compiler if available.

Without the compiler, the text decides which pointers are to const; in doubt a parameter counts as written.

cxxheaderparser 2.2 does not replace this reader.  Sources are read before preprocessing, and it refuses ``#define`` and
``__global__``; of parameters alone it refuses ``int n = 1 < 2``, ``int n [[maybe_unused]]``,
``unsigned const char *x``, ``__align__(8) float x``, ``const __grid_constant__ T x``, and macros (``IN float *x``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..errors import InvalidRequest
from .cpp_kinds import Kind

__all__ = ["Parameter", "chosen", "declared", "parse"]

_INTEGERS = {
    "bool": "bool",
    "char": "int8", "signed char": "int8", "unsigned char": "uint8", "int8_t": "int8", "uint8_t": "uint8",
    "short": "int16", "unsigned short": "uint16", "int16_t": "int16", "uint16_t": "uint16",
    "int": "int32", "unsigned": "uint32", "int32_t": "int32", "uint32_t": "uint32",
    "long": "int64", "unsigned long": "uint64", "int64_t": "int64", "uint64_t": "uint64", "size_t": "uint64",
    "ptrdiff_t": "int64",
}  # fmt: skip
_SCALARS = {**_INTEGERS, "float": "float32", "double": "float64", "half": "float16", "__half": "float16"}
_QUALIFIERS = frozenset({"const", "volatile", "__restrict__", "__restrict", "__grid_constant__", "struct", "typename"})
_SIZES = {"bool": 1, "float16": 2, "float32": 4, "float64": 8} | {
    f"{u}int{n}": n // 8 for u in ("", "u") for n in (8, 16, 32, 64)
}
#: Words that can end a type, and are not names.
_TYPES: Final = (
    frozenset(" ".join(_SCALARS).split()) | _QUALIFIERS | {"void", "auto", "wchar_t", "char16_t", "char32_t"}
)
_LITERALS: Final = re.compile(
    r'R"([^\s()\\]{0,16})\(.*?\)\1"|//[^\n]*|/\*.*?\*/'
    r"""|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])+'""",
    re.DOTALL,
)
_ATTRIBUTES: Final = re.compile(
    r"\[\[.*?\]\]|\b(?:alignas|__align__|__attribute__)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", re.DOTALL
)
_CLOSING: Final = {")": "(", "]": "[", "}": "{", ">": "<"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter.

    Attributes
    ----------
    name : str
    kind : str
        ``"pointer"``, ``"scalar"`` or ``"struct"``.
    type : str
        NumPy's name of a scalar's type; for other kinds the text in the source.
    reads : bool
        Whether it is a pointer to const.
    """

    name: str
    kind: str
    type: str
    reads: bool = False

    @property
    def nbytes(self) -> int | None:
        """Size in bytes; None for a struct, whose size the source does not tell."""
        return 8 if self.kind == "pointer" else _SIZES[self.type] if self.kind == "scalar" else None


def _without_comments(source: str) -> str:
    """Return a source with continued lines joined, without comments, and with empty literals."""
    joined = re.sub(r"\\\r?\n", "", source)
    return _LITERALS.sub(lambda found: " " if found.group().startswith("/") else '""', joined)


def _split(text: str, at: str = ",") -> list[str]:
    """Split at a character outside brackets; ``<`` is a bracket, but not inside other brackets."""
    parts: list[str] = []
    within: list[str] = []
    start = 0
    for i, letter in enumerate(text):
        if letter in "([{" or (letter == "<" and within[-1:] in ([], ["<"])):
            within.append(letter)
        elif letter in _CLOSING and within[-1:] == [_CLOSING[letter]]:
            within.pop()
        elif letter == at and not within:
            parts.append(text[start:i])
            start = i + 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def _words(text: str) -> list[str]:
    return [word for word in text.replace("std::", "").split() if word not in _QUALIFIERS]


def _without_arguments(text: str) -> str:
    """Return a type without its template arguments, which qualify nothing outside."""
    while (shorter := re.sub(r"<[^<>]*>", " ", text)) != text:
        text = shorter
    return text


def _to_const(pointee: str) -> bool:
    """Whether the target of a pointer, given as the type without its last ``*``, is const."""
    return "const" in pointee.rpartition("*")[2].split()


def _parameter(text: str) -> Parameter:
    declaration = _ATTRIBUTES.sub(" ", (_split(text, "=") or [""])[0]).strip()
    nested = re.fullmatch(r"(.+?)\(\s*([*&])[\s\w]*?\b(\w+)\s*\)\s*([\[(]).*", declaration, re.DOTALL)
    if nested is not None:  # T (*x)[n], T (&x)[n] or T (*x)(U)
        before, sign, name, bracket = nested.groups()
        if sign == "&":
            raise _reference(text)
        if bracket == "(":
            raise InvalidRequest(f"parameter {text!r} is a pointer to a function, which cannot be passed to a kernel")
        return Parameter(name, "pointer", " ".join(_words(before)), reads=_to_const(_without_arguments(before)))
    found = re.fullmatch(r"(.*?)([A-Za-z_]\w*)\s*((?:\[[^\]]*\]\s*)*)", declaration, re.DOTALL)
    if found is None or found[2] in _TYPES or not _words(re.sub(r"[*&]", " ", found[1])):
        raise InvalidRequest(f"parameter {text!r} needs a type and a name, such as 'const float *x'")
    before, name, bracket = found.groups()
    outside = _without_arguments(before)
    if "&" in outside:
        raise _reference(text)
    if "*" in outside or bracket:
        pointee = outside if bracket else outside.rpartition("*")[0]
        return Parameter(name, "pointer", " ".join(_words(outside.partition("*")[0])), reads=_to_const(pointee))
    words = sorted(_words(before), key=lambda word: word not in ("signed", "unsigned"))  # which may occur anywhere
    base = " ".join(words)
    plain = re.sub(r"\b(signed|int)\b", "", base).strip() if len(words) > 1 and "char" not in base else base
    plain = " ".join(plain.split()).replace("long long", "long") or "int"
    kind = _SCALARS.get(base) or _SCALARS.get(plain)
    return Parameter(name, "scalar", kind) if kind else Parameter(name, "struct", " ".join(_words(before)))


def _reference(text: str) -> InvalidRequest:
    return InvalidRequest(f"parameter {text!r} is a reference, which a kernel cannot take")


def parse(text: str) -> tuple[Parameter, ...]:
    """Return the parameters of a declaration such as ``"float *x, const float *y, int n"``.

    Raises
    ------
    InvalidRequest
        For anything but a list of named C++ parameters.
    """
    inner = _without_comments(text).strip()
    found = tuple(_parameter(part) for part in _split(inner)) if inner not in ("", "void") else ()
    names = [p.name for p in found]
    if len(set(names)) != len(names):
        raise InvalidRequest(f"parameters {text!r} name one of them twice")
    return found


def declared(source: str, name: str) -> tuple[str, ...]:
    """Return the parameter lists by which a source declares a kernel; only those of definitions, if there are any.

    There may be several, because of namespaces, ``#if`` and overloads.
    """
    plain = re.escape(name.split("<")[0].split("::")[-1].strip(" &"))
    definitions: list[str] = []
    others: list[str] = []
    text = _without_comments(source)
    for match in re.finditer(rf"__global__([^;{{}}]*?)\b{plain}\s*\(", text):
        if match[1].count("(") != match[1].count(")"):
            continue
        depth, at = 1, match.end()
        while depth and at < len(text):
            depth += (text[at] == "(") - (text[at] == ")")
            at += 1
        kept = definitions if text[at:].lstrip().startswith("{") else others
        kept.append(" ".join(text[match.end() : at - 1].split()))
    return tuple(dict.fromkeys(definitions or others))


def chosen(
    name: str, candidates: Sequence[tuple[Parameter, ...]], kinds: Sequence[Kind] | None, *, given: bool
) -> tuple[Parameter, ...]:
    """Return the parameters of a kernel from candidate declarations and the compiler's kinds.

    Parameters
    ----------
    name : str
        For messages.
    candidates : sequence of tuple of Parameter
        Results of `parse`, at least one.
    kinds : sequence of Kind or None
        The compiler's kinds, or None.
    given : bool
        Whether the user has passed them: then they must agree with the compiler, and their non-const pointers count as
        written.

    Raises
    ------
    InvalidRequest
        If no candidate fits, or several fit with different names.
    """
    fitting = [c for c in candidates if kinds is None or len(c) == len(kinds)]
    if kinds is not None and len({_names(c) for c in fitting}) != 1:
        fitting = [c for c in fitting if all(map(_fits, c, kinds))]
    if len(set(fitting) if kinds is None else {_names(c) for c in fitting}) > 1:
        raise InvalidRequest(
            f"the source declares {name!r} with parameters {' and '.join(map(_listed, candidates))}; select one, as "
            f"in parameters='float *x, int n'"
        )
    if kinds is None:
        return fitting[0]
    if not fitting or (given and not all(map(_fits, fitting[0], kinds))):
        said = ", ".join("a function or a reference" if not k.kind else _told(k) for k in kinds)
        raise InvalidRequest(
            f"kernel {name} is declared with {' or '.join(map(_listed, candidates))}, and compiled with ({said}); give "
            f"parameters= as in the source"
        )
    for parameter, kind in zip(fitting[0], kinds, strict=True):
        if not kind.kind:
            raise InvalidRequest(
                f"parameter {parameter.name} of {name} is a reference or a pointer to a function, which cannot be "
                f"passed to a kernel"
            )
    return tuple(_merged(p, k, given) for p, k in zip(fitting[0], kinds, strict=True))


def _names(parameters: tuple[Parameter, ...]) -> tuple[str, ...]:
    return tuple(p.name for p in parameters)


def _listed(parameters: tuple[Parameter, ...]) -> str:
    words = ((("const " if p.reads else "") + p.type, "*" * (p.kind == "pointer") + p.name) for p in parameters)
    return f"({', '.join(map(' '.join, words))})"


def _told(kind: Kind) -> str:
    return kind.type or ("a pointer to const" if kind.reads else f"a {kind.kind}")


def _fits(parameter: Parameter, kind: Kind) -> bool:
    """Whether a declaration can match a kind; a type read as a struct may be a name for any type."""
    if parameter.kind == "struct":
        return True
    return parameter.kind == kind.kind and (kind.kind == "pointer" or parameter.type == kind.type)


def _merged(parameter: Parameter, kind: Kind, given: bool) -> Parameter:
    """Return a parameter with the compiler's kind."""
    reads = kind.reads and (parameter.reads or not given or parameter.kind == "struct")
    return replace(parameter, kind=kind.kind, type=kind.type or parameter.type, reads=reads)
