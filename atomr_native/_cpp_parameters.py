"""Parameters of CUDA C++ kernels: from their declarations in the source."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import InvalidRequest

__all__ = ["Parameter", "declared", "parse"]

_INTEGERS = {
    "bool": "bool",
    "char": "int8", "signed char": "int8", "unsigned char": "uint8", "int8_t": "int8", "uint8_t": "uint8",
    "short": "int16", "unsigned short": "uint16", "int16_t": "int16", "uint16_t": "uint16",
    "int": "int32", "unsigned": "uint32", "int32_t": "int32", "uint32_t": "uint32",
    "long": "int64", "unsigned long": "uint64", "int64_t": "int64", "uint64_t": "uint64", "size_t": "uint64",
    "ptrdiff_t": "int64",
}  # fmt: skip
_SCALARS = {**_INTEGERS, "float": "float32", "double": "float64"}
_QUALIFIERS = frozenset({"const", "volatile", "__restrict__", "__restrict", "__grid_constant__", "struct", "std::"})
_SIZES = {"bool": 1, "float32": 4, "float64": 8} | {f"{u}int{n}": n // 8 for u in ("", "u") for n in (8, 16, 32, 64)}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter.

    Attributes
    ----------
    name : str
    kind : str
        ``"pointer"``, ``"scalar"`` or ``"struct"``.
    type : str
        NumPy's name of a scalar's type; for the others as in the source.
    reads : bool
        Whether it is a pointer to const.
    """

    name: str
    kind: str
    type: str
    reads: bool = False

    @property
    def nbytes(self) -> int | None:
        """Size; None for a struct, which the source alone does not say."""
        return 8 if self.kind == "pointer" else _SIZES[self.type] if self.kind == "scalar" else None


def _without_comments(source: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)


def _split(text: str) -> list[str]:
    """Split at the commas that are in no brackets."""
    parts, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += letter in "(<[" or -(letter in ")>]")
        if letter == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def _words(text: str) -> list[str]:
    return [word for word in text.replace("std::", "").split() if word not in _QUALIFIERS]


def _parameter(text: str) -> Parameter:
    text = text.split("=")[0].strip()
    found = re.fullmatch(r"(.*?)([A-Za-z_]\w*)\s*(\[\s*\d*\s*\])?", text, re.DOTALL)
    if found is None or not _words(found[1].replace("*", " ").replace("&", " ")):
        raise InvalidRequest(f"parameter {text!r} needs a type and a name, such as 'const float *x'")
    before, name, bracket = found.groups()
    outer = re.sub(r"<.*>", "", before, flags=re.DOTALL)  # without the types that a template has
    if "&" in outer:
        raise InvalidRequest(f"parameter {text!r} is a reference, which a kernel cannot take")
    if "*" in outer or bracket:
        target = outer.split("*")[0]
        return Parameter(name, "pointer", " ".join(_words(target)), reads="const" in target.split())
    words = _words(before)
    base = " ".join(words)
    plain = re.sub(r"\b(signed|int)\b", "", base).strip() if len(words) > 1 and "char" not in base else base
    plain = plain.replace("long long", "long") or "int"
    kind = _SCALARS.get(base) or _SCALARS.get(plain)
    return Parameter(name, "scalar", kind) if kind else Parameter(name, "struct", base)


def parse(text: str) -> tuple[Parameter, ...]:
    """Return the parameters of a declaration such as ``"float *x, const float *y, int n"``.

    Raises
    ------
    InvalidRequest
        For what is no list of C++ parameters with names.
    """
    inner = _without_comments(text).strip()
    found = tuple(_parameter(part) for part in _split(inner)) if inner not in ("", "void") else ()
    names = [p.name for p in found]
    if len(set(names)) != len(names):
        raise InvalidRequest(f"parameters {text!r} name one of them twice")
    return found


def _types(before: str, name: str) -> dict[str, str]:
    """Return what the types of a template are, whose head ends the text `before`, in an instance such as ``f<int>``."""
    head = re.search(r"\btemplate\s*<([^<>]*)>[\w\s]*$", before)
    given = re.search(r"<(.*)>", name, re.DOTALL)
    if head is None or given is None:
        return {}
    kinds = [re.fullmatch(r"(?:typename|class)\s+(\w+)(?:\s*=.*)?", part, re.DOTALL) for part in _split(head[1])]
    return {kind[1]: text for kind, text in zip(kinds, _split(given[1]), strict=False) if kind is not None}


def declared(source: str, name: str) -> str | None:
    """Return the text of the parameters with which a source declares a kernel; None if it is not found, or twice.

    Those of a template have the types with which `name` makes an instance of it.
    """
    plain = re.escape(name.split("<")[0].split("::")[-1].strip())
    found = []
    text = _without_comments(source)
    for match in re.finditer(rf"__global__[^;{{}}]*?\b{plain}\s*\(", text):
        depth, at = 1, match.end()
        while depth and at < len(text):
            depth += (text[at] == "(") - (text[at] == ")")
            at += 1
        types = _types(text[: match.start()], name)
        found.append("".join(types.get(word, word) for word in re.split(r"(\w+)", text[match.end() : at - 1])))
    return found[0] if len({" ".join(f.split()) for f in found}) == 1 else None
